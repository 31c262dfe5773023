/* SPDX-License-Identifier: Apache-2.0
 *
 * A program of MPI in which the last rank makes one mistake, which the first word names. No other
 * rank is needed for it, but for those of messages to the last rank. "right" makes calls that look
 * like mistakes.
 */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *mistake;
static int rank, size, x[8], y[8];

static int is(const char *name)
{
    return strcmp(mistake, name) == 0;
}

static void call_messages(void)
{
    MPI_Datatype type;
    if (is("count"))
        MPI_Send(x, -1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    if (is("tag"))
        MPI_Send(x, 1, MPI_INT, 0, -5, MPI_COMM_WORLD);
    if (is("commit")) {
        MPI_Type_contiguous(2, MPI_INT, &type);
        MPI_Send(x, 1, type, 0, 0, MPI_COMM_WORLD);
    }
    if (is("same buffer"))
        MPI_Sendrecv(x, 1, MPI_INT, rank, 0, x, 1, MPI_INT, rank, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
}

static void call_collectives(void)
{
    MPI_Comm comm;
    if (is("root"))
        MPI_Bcast(x, 1, MPI_INT, size, MPI_COMM_WORLD);
    if (is("freed")) {
        MPI_Comm_dup(MPI_COMM_SELF, &comm);
        const MPI_Comm old = comm;
        MPI_Comm_free(&comm);
        MPI_Barrier(old);
    }
    if (is("list"))
        MPI_Alltoallv(x, NULL, NULL, MPI_INT, y, NULL, NULL, MPI_INT, MPI_COMM_SELF);
}

/* None of it is freed. */
static void make_leaks(void)
{
    MPI_Comm comm;
    MPI_Datatype type;
    MPI_Group group;
    MPI_Request request;
    for (int i = 0; i < 2; i++)
        MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_group(comm, &group);
    MPI_Recv_init(x, 1, MPI_INT, 0, 0, comm, &request);
    MPI_Irecv(x, 1, MPI_INT, 0, 7, comm, &request);
}

static int delete_comm(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)state;
    return MPI_Comm_free(value);
}

/* MPI_Finalize runs delete_comm. */
static void attach_comm(void)
{
    static MPI_Comm comm;
    int key;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_comm, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, &comm);
    MPI_Comm_free_keyval(&key);
}

/* Rank 0 and the last one disagree about a message. */
static void call_pair(void)
{
    double d[2] = {0};
    MPI_Request request;
    if (rank == 0) {
        MPI_Send(x, 1, MPI_INT, size - 1, 3, MPI_COMM_WORLD);
        MPI_Sendrecv(x, 4, MPI_INT, size - 1, 4, y, 1, MPI_INT, size - 1, 4, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    } else if (rank == size - 1) {
        MPI_Recv(x, 2, MPI_UNSIGNED, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Isend(y, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, &request);
        if (is("long message"))
            MPI_Recv(x, 3, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Recv(d, 2, MPI_DOUBLE, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

/* Receives whose order does not say which message they get, and types that programs mix. */
static void call_right_pairs(void)
{
    char bytes[2 * sizeof(float)];
    float f[2] = {0};
    MPI_Request requests[2];
    MPI_Message message;
    MPI_Status status;
    MPI_Isend(x, 4, MPI_INT, rank, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(f, 2, MPI_FLOAT, rank, 1, MPI_COMM_SELF, &requests[1]);
    MPI_Recv(x, 8, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Cancel(&requests[1]);
    MPI_Wait(&requests[1], &status);
    MPI_Isend(f, 2, MPI_FLOAT, 0, 2, MPI_COMM_SELF, &requests[0]);
    MPI_Mprobe(0, MPI_ANY_TAG, MPI_COMM_SELF, &message, &status);
    MPI_Mrecv(bytes, 8, MPI_BYTE, &message, &status);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Sendrecv(x, 1, MPI_INT, 0, 2, y, 1, MPI_INT, 0, 2, MPI_COMM_SELF, MPI_STATUS_IGNORE);
}

static void call_right(void)
{
    const MPI_Aint at = (MPI_Aint)(void *)x;
    const int one = 1;
    MPI_Datatype absolute, copy;
    MPI_Group group, same, none;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Type_create_hindexed(1, &one, &at, MPI_INT, &absolute);
    MPI_Type_commit(&absolute);
    MPI_Type_dup(absolute, &copy);
    MPI_Sendrecv(MPI_BOTTOM, 1, copy, rank, 0, y, 1, MPI_INT, rank, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Type_free(&absolute);
    MPI_Type_free(&copy);
    MPI_Send(NULL, 0, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    MPI_Recv(NULL, 0, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Bcast(NULL, 0, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, x, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Gather(rank ? (void *)x : MPI_IN_PLACE, rank ? 1 : -1, MPI_INT, rank ? NULL : y,
               rank ? -5 : 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Reduce(x, rank ? NULL : y, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    MPI_Comm_group(MPI_COMM_WORLD, &same);
    MPI_Group_difference(group, same, &none);
    MPI_Group_free(&group);
    MPI_Group_free(&same);
    attach_comm();
    /* What a library returns as an error is for the program to handle. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (MPI_Send(x, -1, MPI_INT, 0, 0, MPI_COMM_WORLD) == MPI_SUCCESS)
        exit(3);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    mistake = argc > 1 ? argv[1] : "right";
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (is("right")) {
        call_right();
        call_right_pairs();
    } else if (is("long message") || is("other type")) {
        call_pair();
    } else if (rank == size - 1) {
        call_messages();
        call_collectives();
        if (is("leaks"))
            make_leaks();
    }
    MPI_Finalize();
    return 0;
}
