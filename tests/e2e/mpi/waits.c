/* SPDX-License-Identifier: Apache-2.0
 *
 * waits WAY: a program of MPI whose ranks wait for each other for ever, or seem to.
 */
#include <mpi.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int rank, size, x, y;

static void receive(int from, int tag)
{
    MPI_Recv(&x, 1, MPI_INT, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void send(int to, int tag)
{
    MPI_Send(&x, 1, MPI_INT, to, tag, MPI_COMM_WORLD);
}

static int next(void)
{
    return (rank + 1) % size;
}

static int last(void)
{
    return (rank + size - 1) % size;
}

/* ---- deadlocks ---- */

static void ring(void)
{
    receive(next(), 0);
}

static void tags(void)
{
    if (rank == 0)
        send(1, 5);
    else if (rank == 1)
        receive(0, 6);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void synchronous(void)
{
    MPI_Ssend(&x, 1, MPI_INT, next(), 0, MPI_COMM_WORLD);
    receive(last(), 0);
}

static void any_source(void)
{
    if (rank)
        receive(MPI_ANY_SOURCE, 0);
    else
        MPI_Barrier(MPI_COMM_WORLD);
}

static void requests(void)
{
    MPI_Request q[2];
    MPI_Irecv(&x, 1, MPI_INT, next(), 0, MPI_COMM_WORLD, &q[0]);
    MPI_Irecv(&y, 1, MPI_INT, last(), 0, MPI_COMM_WORLD, &q[1]);
    MPI_Waitall(2, q, MPI_STATUSES_IGNORE);
}

static void split(void)
{
    MPI_Comm half;
    if (rank)
        MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &half);
    else
        receive(1, 0);
}

static void finalized(void)
{
    if (rank)
        receive(0, 0);
}

/* ---- none ---- */

static void ordered(void) /* messages before their receives, several on the way */
{
    MPI_Request q[2];
    for (int i = 0; i < 20; i++) {
        MPI_Irecv(&x, 1, MPI_INT, MPI_ANY_SOURCE, i, MPI_COMM_WORLD, &q[0]);
        MPI_Isend(&y, 1, MPI_INT, next(), i, MPI_COMM_WORLD, &q[1]);
        MPI_Waitall(2, q, MPI_STATUSES_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void late(void)
{
    if (rank == 0)
        usleep(1200000);
    else
        receive(last(), 0);
    send(next(), 0);
    if (rank == 0)
        receive(last(), 0);
}

static sigjmp_buf left;

static void leave(int sig)
{
    (void)sig;
    siglongjmp(left, 1);
}

/* A handler of a signal that UCX handles, too, leaves the receive of rank 0. The process ends
 * without MPI_Finalize: MPI does not allow this. */
static void handler(void)
{
    const pid_t self = getpid();
    if (rank) {
        receive(0, 0);
        return;
    }
    signal(SIGUSR1, leave);
    if (sigsetjmp(left, 1) == 0) {
        if (fork() == 0) {
            usleep(1200000);
            kill(self, SIGUSR1);
            _exit(0);
        }
        receive(1, 0);
    }
    for (int i = 1; i < size; i++)
        send(i, 0);
}

static const struct {
    const char *name;
    void (*go)(void);
} ways[] = {{"ring", ring},           {"tags", tags},         {"synchronous", synchronous},
            {"any", any_source},      {"requests", requests}, {"split", split},
            {"finalized", finalized}, {"ordered", ordered},   {"late", late},
            {"handler", handler}};

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        if (strcmp(ways[i].name, argv[1]) == 0)
            ways[i].go();
    printf("rank %d is done\n", rank);
    fflush(stdout);
    if (strcmp(argv[1], "handler") == 0) {
        usleep(500000); /* what was sent is received */
        _exit(0);
    }
    return MPI_Finalize();
}
