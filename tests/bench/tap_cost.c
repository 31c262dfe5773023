/* SPDX-License-Identifier: Apache-2.0
 *
 * What it costs that calls of MPI are recorded (observe), in nanoseconds a call: MPI_X, which
 * passes the preloaded library, beside PMPI_X, which does not, in turn in one process. A row has
 * the medians, and the median of the differences with its confidence interval of 99.5 %. With two
 * ranks; "self" rows need no other rank. Fewer than 9 undisturbed rounds have no interval.
 *
 * usage: tap_cost [ROUNDS]      under collrun
 */
#include "bench/paired.h"

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CALLS = 2000 };

static int rank;
static char x[8], y[8];

/* The functions of the library itself. A program that names them would be taken for a tool. */
static struct {
    int (*allreduce)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
    int (*barrier)(MPI_Comm);
    int (*send)(const void *, int, MPI_Datatype, int, int, MPI_Comm);
    int (*recv)(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);
    int (*irecv)(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
    int (*wait)(MPI_Request *, MPI_Status *);
} tables[2]; /* 1: those that are observed */

static void find(const char *name, void *to)
{
    char full[64];
    snprintf(full, sizeof full, "%cMPI_%s", 'P', name);
    void *found = dlsym(RTLD_DEFAULT, full);
    if (!found)
        exit(3);
    memcpy(to, &found, sizeof found);
}

static void find_all(void)
{
    tables[1].allreduce = MPI_Allreduce;
    tables[1].barrier = MPI_Barrier;
    tables[1].send = MPI_Send;
    tables[1].recv = MPI_Recv;
    tables[1].irecv = MPI_Irecv;
    tables[1].wait = MPI_Wait;
    find("Allreduce", &tables[0].allreduce);
    find("Barrier", &tables[0].barrier);
    find("Send", &tables[0].send);
    find("Recv", &tables[0].recv);
    find("Irecv", &tables[0].irecv);
    find("Wait", &tables[0].wait);
}

static void allreduce(int observed)
{
    for (int i = 0; i < CALLS; i++)
        tables[observed].allreduce(x, y, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void barrier(int observed)
{
    for (int i = 0; i < CALLS; i++)
        tables[observed].barrier(MPI_COMM_WORLD);
}

static void there_and_back(int observed)
{
    for (int i = 0; i < CALLS / 2; i++) {
        if (rank == 0)
            tables[observed].send(x, 8, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        tables[observed].recv(y, 8, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            tables[observed].send(x, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
}

static void allreduce_self(int observed)
{
    for (int i = 0; i < CALLS; i++)
        tables[observed].allreduce(x, y, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF);
}

static void messages_self(int observed)
{
    MPI_Request r;
    for (int i = 0; i < CALLS / 3; i++) {
        tables[observed].irecv(y, 8, MPI_BYTE, 0, 0, MPI_COMM_SELF, &r);
        tables[observed].send(x, 8, MPI_BYTE, 0, 0, MPI_COMM_SELF);
        tables[observed].wait(&r, MPI_STATUS_IGNORE);
    }
}

static double run_once(void (*run)(int), int observed)
{
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    run(observed);
    clock_gettime(CLOCK_MONOTONIC, &b);
    return ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / CALLS;
}

static double least(const double *v, int n)
{
    double best = v[0];
    for (int i = 1; i < n; i++)
        best = v[i] < best ? v[i] : best;
    return best;
}

/* Only rounds count that other programs have hardly disturbed: those in which neither was more than
 * a tenth slower than in its best round. Returns how many, and their differences in `more`. */
static int leave_out(double *without, double *with, double *more, int rounds)
{
    const double best_without = least(without, rounds), best_with = least(with, rounds);
    int kept = 0;
    for (int i = 0; i < rounds; i++) {
        if (without[i] > 1.1 * best_without || with[i] > 1.1 * best_with)
            continue;
        without[kept] = without[i];
        with[kept] = with[i];
        more[kept++] = with[i] - without[i];
    }
    return kept;
}

static void measure(const char *name, void (*run)(int), int rounds)
{
    static double with[PAIRED_MOST], without[PAIRED_MOST], more[PAIRED_MOST];
    tables[0].barrier(MPI_COMM_WORLD);
    run_once(run, 0);
    run_once(run, 1);
    for (int i = 0; i < rounds; i++) {
        /* Which one is first changes from round to round. */
        if (i & 1)
            with[i] = run_once(run, 1);
        without[i] = run_once(run, 0);
        if (!(i & 1))
            with[i] = run_once(run, 1);
    }
    const int kept = leave_out(without, with, more, rounds);
    if (!kept) {
        if (rank == 0)
            printf("%-28s every round was disturbed\n", name);
        return;
    }
    const struct interval cost = paired_interval(more, (unsigned)kept);
    const double a = paired_interval(without, (unsigned)kept).median;
    const double b = paired_interval(with, (unsigned)kept).median;
    if (rank == 0)
        printf("%-28s %10.1f %10.1f %8.1f [%.1f, %.1f] %4d\n", name, a, b, cost.median, cost.low,
               cost.high, kept);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? atoi(argv[1]) : 395;
    if (rounds < 9 || rounds > PAIRED_MOST)
        return 2;
    const int few = rounds < 75 ? rounds : 75; /* the cores may be shared */
    MPI_Init(&argc, &argv);
    find_all();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        printf("%-28s %10s %10s %8s\n", "call", "off, ns", "on, ns", "cost, interval, rounds");
    measure("allreduce of 8 B", allreduce, few);
    measure("send or recv of 8 B", there_and_back, few);
    measure("barrier", barrier, few);
    measure("self: allreduce of 8 B", allreduce_self, rounds);
    measure("self: irecv, send, wait", messages_self, rounds);
    return MPI_Finalize();
}
