/* SPDX-License-Identifier: Apache-2.0
 *
 * A program of MPI that makes no mistake: every function that is recorded, in its blocking,
 * nonblocking and persistent form, with derived types, buffers in place, wildcards, probes and
 * communicators of every kind. It prints one line a rank, and a checksum of what it received. A
 * second word gives how often all of it is done.
 */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 6 };
static int rank, size;
static long sum;

static void add(const int *x, int n)
{
    for (int i = 0; i < n; i++)
        sum = sum * 31 % 1000003 + x[i];
}

static void rooted(MPI_Comm comm)
{
    int me, n, in[64], out[64], counts[16], displs[16];
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    for (int i = 0; i < 64; i++)
        in[i] = me * 100 + i;
    memset(out, 0, sizeof out);
    for (int i = 0; i < n; i++) {
        counts[i] = i % 3; /* some are 0 */
        displs[i] = 4 * i;
    }
    for (int root = 0; root < n; root++) {
        MPI_Bcast(in, N, MPI_INT, root, comm);
        add(in, N);
        MPI_Reduce(me == root ? MPI_IN_PLACE : in, me == root ? in : NULL, N, MPI_INT, MPI_SUM,
                   root, comm);
        /* What only the root must give is nonsense elsewhere. */
        MPI_Gather(in, 1, MPI_INT, out, me == root ? 1 : -5,
                   me == root ? MPI_INT : MPI_DATATYPE_NULL, root, comm);
        MPI_Scatter(out, me == root ? 2 : 0, me == root ? MPI_INT : MPI_DATATYPE_NULL, in, 2,
                    MPI_INT, root, comm);
        add(in, 2);
        MPI_Gatherv(in, counts[me], counts[me] ? MPI_INT : MPI_DOUBLE, out,
                    me == root ? counts : NULL, me == root ? displs : NULL, MPI_INT, root, comm);
        MPI_Scatterv(out, me == root ? counts : NULL, me == root ? displs : NULL, MPI_INT,
                     me == root ? MPI_IN_PLACE : (void *)in, counts[me], MPI_INT, root, comm);
        add(in, 2);
    }
}

static void unrooted(MPI_Comm comm)
{
    int me, n, in[64], out[64], counts[16], displs[16], zero[16];
    MPI_Datatype pair, types[16];
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    for (int i = 0; i < 64; i++)
        in[i] = me + i;
    memset(out, 0, sizeof out);
    for (int i = 0; i < n; i++) {
        counts[i] = 1 + i % 2;
        displs[i] = 2 * i;
        zero[i] = 0;
        types[i] = MPI_INT;
    }
    /* The same elements, by other types on some ranks. */
    MPI_Bcast(in, me % 2 ? 2 : 4, me % 2 ? pair : MPI_INT, 0, comm);
    MPI_Allreduce(MPI_IN_PLACE, in, 3, MPI_INT, MPI_MAX, comm);
    MPI_Allreduce(in, out, 0, me % 2 ? MPI_INT : MPI_FLOAT, MPI_SUM, comm);
    MPI_Scan(in, out, 2, MPI_INT, MPI_SUM, comm);
    MPI_Exscan(in, out, 2, MPI_INT, MPI_SUM, comm);
    MPI_Allgather(in, me % 2 ? 1 : 2, me % 2 ? pair : MPI_INT, out, 2, MPI_INT, comm);
    add(out, 2 * n);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, 2, MPI_INT, comm);
    MPI_Alltoall(in, 1, MPI_INT, out, 1, MPI_INT, comm);
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, 1, MPI_INT, comm);
    MPI_Allgatherv(in, counts[me], MPI_INT, out, counts, displs, MPI_INT, comm);
    add(out, 2 * n);
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, counts, displs, MPI_INT, comm);
    for (int i = 0; i < n; i++)
        counts[i] = (me + i) % 3;
    MPI_Alltoallv(in, counts, displs, MPI_INT, out, counts, displs, MPI_INT, comm);
    MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, out, counts, displs, MPI_INT, comm);
    MPI_Alltoallv(in, zero, displs, me % 2 ? MPI_INT : MPI_CHAR, out, zero, displs, MPI_INT, comm);
    for (int i = 0; i < n; i++)
        displs[i] = (int)sizeof(int) * 2 * i;
    MPI_Alltoallw(in, counts, displs, types, out, counts, displs, types, comm);
    for (int i = 0; i < n; i++)
        counts[i] = 1 + i % 2;
    MPI_Reduce_scatter(in, out, counts, MPI_INT, MPI_SUM, comm);
    MPI_Reduce_scatter_block(in, out, 1, MPI_INT, MPI_SUM, comm);
    add(out, 1);
    MPI_Barrier(comm);
    MPI_Type_free(&pair);
}

static void concat(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *n; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

static void nonblocking(MPI_Comm comm)
{
    int me, n, in[64], out[8][64];
    MPI_Request r[8];
    MPI_Op op;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    for (int i = 0; i < 64; i++)
        in[i] = me - i;
    memset(out, 0, sizeof out);
    MPI_Op_create(concat, 1, &op);
    MPI_Ibarrier(comm, &r[0]);
    MPI_Ibcast(out[1], 3, MPI_INT, 0, comm, &r[1]);
    MPI_Iallreduce(in, out[2], 4, MPI_INT, op, comm, &r[2]);
    MPI_Ireduce(in, out[3], 4, MPI_INT, MPI_MIN, n - 1, comm, &r[3]);
    MPI_Iallgather(in, 1, MPI_INT, out[4], 1, MPI_INT, comm, &r[4]);
    MPI_Ialltoall(in, 1, MPI_INT, out[5], 1, MPI_INT, comm, &r[5]);
    MPI_Igather(in, 1, MPI_INT, out[6], 1, MPI_INT, 0, comm, &r[6]);
    MPI_Iscan(in, out[7], 1, MPI_INT, MPI_SUM, comm, &r[7]);
    MPI_Waitall(8, r, MPI_STATUSES_IGNORE);
    MPI_Op_free(&op);
    add(out[2], 4);
    add(out[4], n);
}

static void messages(MPI_Comm comm)
{
    int me, n, x[64] = {0}, flag = 0, index, done = 0, indices[4], left, right;
    MPI_Status s, ss[4];
    MPI_Request r[4];
    MPI_Message m;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    left = (me + n - 1) % n;
    right = (me + 1) % n;
    x[0] = me;
    MPI_Sendrecv(x, 1, MPI_INT, right, 3, x + 1, 1, MPI_INT, left, 3, comm, MPI_STATUS_IGNORE);
    MPI_Sendrecv_replace(x, 1, MPI_INT, right, 4, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &s);
    MPI_Sendrecv(x, 1, MPI_INT, MPI_PROC_NULL, 3, x + 1, 1, MPI_INT, MPI_PROC_NULL, 3, comm, &s);
    add(x, 2);
    MPI_Irecv(x + 2, 1, MPI_INT, MPI_ANY_SOURCE, 5, comm, &r[0]);
    MPI_Irecv(x + 3, 1, MPI_INT, left, MPI_ANY_TAG, comm, &r[1]);
    MPI_Isend(x, 1, MPI_INT, right, 5, comm, &r[2]);
    MPI_Issend(x, 1, MPI_INT, right, 6, comm, &r[3]);
    MPI_Waitany(4, r, &index, MPI_STATUS_IGNORE);
    MPI_Waitsome(4, r, &done, indices, ss);
    MPI_Waitall(4, r, ss);
    add(x + 2, 2);
    MPI_Irecv(x + 20, 1, MPI_INT, left, 7, comm, &r[0]);
    MPI_Send(x + 1, 1, MPI_INT, right, 7, comm);
    while (!flag)
        MPI_Test(&r[0], &flag, MPI_STATUS_IGNORE);
    MPI_Isend(x, 1, MPI_INT, right, 8, comm, &r[0]);
    MPI_Isend(x, 1, MPI_INT, right, 9, comm, &r[1]);
    MPI_Probe(MPI_ANY_SOURCE, 9, comm, &s);
    MPI_Recv(x + 5, 1, MPI_INT, s.MPI_SOURCE, s.MPI_TAG, comm, MPI_STATUS_IGNORE);
    MPI_Mprobe(left, 8, comm, &m, MPI_STATUS_IGNORE);
    MPI_Mrecv(x + 6, 1, MPI_INT, &m, &s);
    for (flag = 0; !flag;)
        MPI_Testall(2, r, &flag, MPI_STATUSES_IGNORE);
    MPI_Isend(x, 1, MPI_INT, right, 10, comm, &r[0]);
    for (flag = 0; !flag;)
        MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &m, &s);
    MPI_Imrecv(x + 7, 1, MPI_INT, &m, &r[1]);
    MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
    add(x + 5, 3);
    MPI_Send_init(x, 1, MPI_INT, right, 11, comm, &r[0]);
    MPI_Recv_init(x + 8, 1, MPI_INT, left, 11, comm, &r[1]);
    for (int i = 0; i < 3; i++) {
        x[0] = i;
        MPI_Start(&r[1]);
        MPI_Start(&r[0]);
        MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
        MPI_Startall(2, r);
        MPI_Wait(&r[0], MPI_STATUS_IGNORE);
        MPI_Wait(&r[1], &s);
    }
    MPI_Wait(&r[0], &s); /* not active */
    MPI_Request_free(&r[0]);
    MPI_Request_free(&r[1]);
    MPI_Irecv(x + 9, 1, MPI_INT, left, 99, comm, &r[0]);
    MPI_Cancel(&r[0]);
    MPI_Wait(&r[0], &s);
    MPI_Test_cancelled(&s, &flag);
    add(&flag, 1);
    add(x + 8, 1);
    MPI_Isend(x, 1, MPI_INT, right, 12, comm, &r[0]);
    MPI_Request_free(&r[0]);
    MPI_Recv(x + 21, 1, MPI_INT, MPI_ANY_SOURCE, 12, comm, MPI_STATUS_IGNORE);
    char *buffer = malloc(4096);
    MPI_Buffer_attach(buffer, 4096);
    MPI_Bsend(x, 1, MPI_INT, right, 13, comm);
    MPI_Recv(x + 21, 1, MPI_INT, left, 13, comm, MPI_STATUS_IGNORE);
    MPI_Buffer_detach(&buffer, &index);
    free(buffer);
    if (n > 1 && me % 2 == 0 && right != me && right % 2)
        MPI_Ssend(x, 1, MPI_INT, right, 14, comm);
    else if (me % 2)
        MPI_Recv(x + 21, 1, MPI_INT, left, 14, comm, MPI_STATUS_IGNORE);
}

static void communicators(void)
{
    MPI_Comm dup, split, created, cart, sub, idup, shared, grouped;
    MPI_Group world, some;
    MPI_Request r;
    int dims[2] = {0, 0}, periods[2] = {1, 0}, keep[2] = {1, 0}, ranks[1] = {0};
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_set_name(dup, "twin");
    rooted(dup);
    MPI_Comm_split(dup, rank % 2, -rank, &split);
    unrooted(split);
    messages(split);
    MPI_Comm_split(MPI_COMM_WORLD, rank ? 0 : MPI_UNDEFINED, 0, &shared);
    if (shared != MPI_COMM_NULL) {
        unrooted(shared);
        MPI_Comm_free(&shared);
    }
    MPI_Comm_idup(split, &idup, &r);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    nonblocking(idup);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_excl(world, 1, ranks, &some);
    MPI_Comm_create(MPI_COMM_WORLD, some, &created);
    if (created != MPI_COMM_NULL) {
        nonblocking(created);
        MPI_Comm_free(&created);
    }
    if (rank) {
        for (int i = 0; i < 2; i++) {
            MPI_Comm_create_group(MPI_COMM_WORLD, some, 5, &grouped);
            messages(grouped);
            MPI_Comm_free(&grouped);
        }
    }
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &cart);
    unrooted(cart);
    MPI_Cart_sub(cart, keep, &sub);
    messages(sub);
    MPI_Comm_free(&sub);
    MPI_Comm_free(&cart);
    MPI_Group_free(&some);
    MPI_Group_free(&world);
    MPI_Comm_free(&idup);
    MPI_Comm_free(&split);
    MPI_Comm_free(&dup);
}

/* MPICH has one handle for all requests that are complete when they are made. */
static void complete_at_once(MPI_Comm comm)
{
    int me, n, x[2] = {0}, got[2];
    MPI_Request r[4];
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    x[0] = me;
    for (int i = 0; i < 4; i++) {
        MPI_Isend(x, 1, MPI_INT, MPI_PROC_NULL, 21, comm, &r[0]);
        MPI_Isend(x, 1, MPI_INT, (me + 1) % n, 21, comm, &r[1]);
        MPI_Isend(x + 1, 1, MPI_INT, (me + 1) % n, 22, comm, &r[2]);
        MPI_Irecv(got, 1, MPI_INT, MPI_PROC_NULL, 21, comm, &r[3]);
        MPI_Recv(got, 1, MPI_INT, (me + n - 1) % n, 21, comm, MPI_STATUS_IGNORE);
        MPI_Recv(got + 1, 1, MPI_INT, (me + n - 1) % n, 22, comm, MPI_STATUS_IGNORE);
        MPI_Waitall(4, r, MPI_STATUSES_IGNORE);
        add(got, 2);
    }
#if MPI_VERSION >= 4
    MPI_Datatype type;
    MPI_Type_contiguous_c(2, MPI_INT, &type); /* MPI_Type_get_envelope may be an error for it */
    MPI_Type_commit(&type);
    MPI_Bcast(x, 1, type, 0, comm);
    MPI_Type_free(&type);
    add(x, 2);
#endif
}

int main(int argc, char **argv)
{
    int times = argc > 1 ? atoi(argv[1]) : 1, provided;
    if (argc > 2)
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    else
        MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < times; i++) {
        rooted(MPI_COMM_WORLD);
        unrooted(MPI_COMM_WORLD);
        nonblocking(MPI_COMM_WORLD);
        messages(MPI_COMM_WORLD);
        messages(MPI_COMM_SELF);
        complete_at_once(MPI_COMM_WORLD);
        communicators();
    }
    printf("rank %d of %d: %ld\n", rank, size, sum);
    MPI_Finalize();
    return 0;
}
