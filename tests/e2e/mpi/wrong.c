/* SPDX-License-Identifier: Apache-2.0
 *
 * A program of MPI with one mistake, which its first word names: the last rank calls something else
 * than the others do, as operation 4 of MPI_COMM_WORLD unless the mistake says otherwise.
 */
#include <mpi.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *mistake;
static int rank, size, odd; /* odd: this rank makes the mistake */
static int in[64], out[64];

static int is(const char *name)
{
    return strcmp(mistake, name) == 0;
}

static void call_arguments(void)
{
    if (is("root"))
        MPI_Bcast(in, 4, MPI_INT, odd, MPI_COMM_WORLD);
    else if (is("count"))
        MPI_Allreduce(in, out, odd ? 3 : 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    else if (is("type"))
        MPI_Allreduce(in, out, 4, odd ? MPI_FLOAT : MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    else if (is("op"))
        MPI_Reduce(in, out, 4, MPI_INT, odd ? MPI_MAX : MPI_SUM, 0, MPI_COMM_WORLD);
    else if (is("gather"))
        MPI_Gather(in, odd ? 1 : 2, MPI_INT, out, 2, MPI_INT, 0, MPI_COMM_WORLD);
}

/* The last rank sends rank 0 one element less than that expects. */
static void call_lists(void)
{
    int sent[64], got[64], displs[64];
    for (int i = 0; i < size; i++) {
        sent[i] = odd && i == 0 ? 1 : 2;
        got[i] = 2;
        displs[i] = 2 * i;
    }
    if (is("alltoallv"))
        MPI_Alltoallv(in, sent, displs, MPI_INT, out, got, displs, MPI_INT, MPI_COMM_WORLD);
    else if (is("gatherv"))
        MPI_Gatherv(in, sent[0], MPI_INT, out, got, displs, MPI_INT, 0, MPI_COMM_WORLD);
    else if (is("allgatherv"))
        MPI_Allgatherv(in, 2, MPI_INT, out, odd ? sent : got, displs, MPI_INT, MPI_COMM_WORLD);
}

/* {int, double} twice is four elements, as {int, int, double, double} is. */
static void call_derived(void)
{
    int blocks[2] = {1, 1}, other[2] = {2, 2};
    MPI_Aint at[2] = {0, 16};
    MPI_Datatype parts[2] = {MPI_INT, MPI_DOUBLE}, once, type;
    if (odd) {
        MPI_Type_create_struct(2, other, at, parts, &type);
    } else {
        MPI_Type_create_struct(2, blocks, at, parts, &once);
        MPI_Type_contiguous(2, once, &type);
        MPI_Type_free(&once);
    }
    MPI_Type_commit(&type);
    MPI_Bcast(in, 1, type, 0, MPI_COMM_WORLD);
    MPI_Type_free(&type);
}

static void call_kinds(void)
{
    MPI_Request r;
    MPI_Comm comm;
    if (is("kind") && odd)
        MPI_Reduce(in, out, 4, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    else if (is("kind"))
        MPI_Bcast(in, 4, MPI_INT, 0, MPI_COMM_WORLD);
    if (is("form") && odd)
        MPI_Barrier(MPI_COMM_WORLD);
    else if (is("form"))
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (is("nonblocking") && odd) {
        MPI_Ibarrier(MPI_COMM_WORLD, &r);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
    } else if (is("nonblocking")) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (is("order") && odd) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Bcast(in, 4, MPI_INT, 0, MPI_COMM_WORLD);
    } else if (is("order")) {
        MPI_Bcast(in, 4, MPI_INT, 0, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (is("left out") && !odd)
        MPI_Barrier(MPI_COMM_WORLD); /* the last one calls MPI_Finalize instead */
}

/* Operation 1 of a communicator of all ranks. */
static void call_child(void)
{
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &comm);
    MPI_Comm_set_name(comm, "halves");
    MPI_Bcast(in, odd ? 2 : 4, MPI_INT, 0, comm);
    MPI_Barrier(comm);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    mistake = argc > 1 ? argv[1] : "";
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    odd = rank == size - 1;
    for (int i = 0; i < 3; i++)
        MPI_Allreduce(in, out, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    /* The mistake comes when the others are in their calls: between two of three ranks, if these
     * are compared first, nothing decides who is wrong. */
    if (odd)
        usleep(700000);
    call_arguments();
    call_lists();
    if (is("derived"))
        call_derived();
    call_kinds();
    if (is("child"))
        call_child();
    MPI_Finalize();
    return 0;
}
