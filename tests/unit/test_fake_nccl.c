/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in for libnccl follows NCCL's documentation and enforces its rules. Results are
 * compared with sums over rank numbers written out here. Concurrency and failures:
 * test_fake_nccl_async.c.
 */
#include "fake_clique.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Element i of what a rank sends. */
static int64_t value(int rank, size_t i)
{
    return (int64_t)((i * 7 + (size_t)rank * 3) % 11) - 5;
}

static void fill(struct clique *c, int d, size_t count)
{
    int64_t *host = malloc(count * sizeof *host);
    for (size_t i = 0; i < count; i++)
        host[i] = value(c->first + d, i);
    MUST_BE(fake.cudaMemcpyAsync(c->send[d], host, count * 8, cudaMemcpyHostToDevice, c->stream[d]),
            cudaSuccess);
    free(host);
}

/* Element i of block `block` on `rank` after an operation. */
static int64_t expected(int kind, int rank, int nranks, size_t block, size_t count, size_t i)
{
    int64_t sum = 0;
    for (int r = 0; r < nranks; r++)
        sum += value(r, kind == 3 ? (size_t)rank * count + i : i);
    switch (kind) {
    case 0: /* allreduce, reduce */
    case 3: /* reduce-scatter */
        return sum;
    case 1: /* broadcast of rank 1 */
        return value(1 % nranks, i);
    case 2: /* allgather, gather */
        return value((int)block, i);
    case 4: /* alltoall */
        return value((int)block, (size_t)rank * count + i);
    default: /* scatter of rank 1 */
        return value(1 % nranks, (size_t)rank * count + i);
    }
}

static void verify(struct clique *c, int d, int kind, size_t blocks, size_t count)
{
    int64_t *host = malloc(blocks * count * sizeof *host + 1);
    MUST_BE(fake.cudaMemcpyAsync(host, c->recv[d], blocks * count * 8, cudaMemcpyDeviceToHost,
                                 c->stream[d]),
            cudaSuccess);
    for (size_t b = 0; b < blocks; b++)
        for (size_t i = 0; i < count; i++)
            MUST_BE(host[b * count + i], expected(kind, c->first + d, c->nranks, b, count, i));
    free(host);
}

/* All collectives once, with `count` elements per block. */
static void run_all(struct clique *c, size_t count)
{
    size_t n = (size_t)c->nranks;
    int root = 1 % c->nranks;
    for (int operation = 0; operation < 8; operation++) {
        for (int d = 0; d < c->n; d++)
            fill(c, d, n * count);
        MUST_BE(fake.ncclGroupStart(), ncclSuccess);
        for (int d = 0; d < c->n; d++) {
            struct ncclComm *comm = c->comm[d];
            struct CUstream_st *s = c->stream[d];
            char *in = c->send[d], *out = c->recv[d];
            int code =
                operation == 0 ? fake.ncclAllReduce(in, out, count, ncclInt64, ncclSum, comm, s)
                : operation == 1
                    ? fake.ncclReduce(in, out, count, ncclInt64, ncclSum, root, comm, s)
                : operation == 2 ? fake.ncclBroadcast(in, out, count, ncclInt64, root, comm, s)
                : operation == 3 ? fake.ncclAllGather(in, out, count, ncclInt64, comm, s)
                : operation == 4
                    ? fake.ncclReduceScatter(in, out, count, ncclInt64, ncclSum, comm, s)
                : operation == 5 ? fake.ncclAlltoAll(in, out, count, ncclInt64, comm, s)
                : operation == 6 ? fake.ncclGather(in, out, count, ncclInt64, root, comm, s)
                                 : fake.ncclScatter(in, out, count, ncclInt64, root, comm, s);
            MUST_BE(code, ncclSuccess);
        }
        MUST_BE(fake.ncclGroupEnd(), ncclSuccess);
        static const int kinds[] = {0, 0, 1, 2, 3, 4, 2, 5};
        for (int d = 0; d < c->n; d++) {
            bool many = operation == 3 || operation == 5 || operation == 6;
            if ((operation != 1 && operation != 6) || c->first + d == root)
                verify(c, d, kinds[operation], many ? n : 1, count);
        }
    }
}

static void collectives(struct procs *procs, int rank)
{
    struct clique c;
    clique_open(procs, rank, 0, (size_t)clique_ranks(procs) * 20000 * 8, &c);
    run_all(&c, 1);
    run_all(&c, 17);
    run_all(&c, 20000); /* several chunks */
    clique_close(&c);
}

static void collectives_are_right(void **state)
{
    (void)state;
    assert_int_equal(clique_run(1, 1, collectives), 0);
    assert_int_equal(clique_run(1, 4, collectives), 0);
    assert_int_equal(clique_run(2, 2, collectives), 0);
    assert_int_equal(clique_run(4, 1, collectives), 0);
    assert_int_equal(clique_run(3, 2, collectives), 0);
}

/* ---- arithmetic ---- */

/* Reduces one element per rank of any type; all ranks are in this process. */
static int64_t reduced(struct clique *c, int type, size_t size, int op, const uint64_t *inputs)
{
    int64_t got = 0;
    MUST_BE(fake.ncclGroupStart(), ncclSuccess);
    for (int d = 0; d < c->n; d++) {
        MUST_BE(fake.cudaMemcpyAsync(c->send[d], &inputs[d], size, cudaMemcpyHostToDevice,
                                     c->stream[d]),
                cudaSuccess);
        MUST_BE(fake.ncclAllReduce(c->send[d], c->recv[d], 1, type, op, c->comm[d], c->stream[d]),
                ncclSuccess);
    }
    MUST_BE(fake.ncclGroupEnd(), ncclSuccess);
    for (int d = 0; d < c->n; d++)
        MUST_BE(fake.cudaStreamSynchronize(c->stream[d]), cudaSuccess);
    MUST_BE(fake.cudaMemcpy(&got, c->recv[0], size, cudaMemcpyDeviceToHost), cudaSuccess);
    return got;
}

static void arithmetic(struct procs *procs, int rank)
{
    struct clique c;
    clique_open(procs, rank, 0, 64, &c);
    static const struct {
        int type, size, op;
        uint64_t in[3], out;
    } cases[] = {
        {ncclInt8, 1, ncclSum, {127, 1, 1}, 0x81},        /* wraps */
        {ncclInt8, 1, ncclAvg, {0xfe, 0xfe, 0xff}, 0xff}, /* -5/3 = -1 */
        {ncclUint8, 1, ncclMax, {1, 255, 3}, 255},
        {ncclInt8, 1, ncclMax, {1, 255, 3}, 3},
        {ncclInt32, 4, ncclProd, {3, 0xffffffff, 5}, 0xfffffff1}, /* -15 */
        {ncclUint64, 8, ncclMin, {~UINT64_C(0), 7, 9}, 7},
        {ncclFloat32, 4, ncclSum, {0x3f800000, 0x40000000, 0x40400000}, 0x40c00000},
        {ncclFloat32, 4, ncclMax, {0x3f800000, 0x7fc00000, 0x40000000}, 0x40000000}, /* no NaN */
        {ncclFloat16, 2, ncclSum, {0x6800, 0x3c00, 0x3c00}, 0x6800},  /* 2048+1+1 = 2048 */
        {ncclFloat16, 2, ncclProd, {0x7bff, 0x4000, 0x3c00}, 0x7c00}, /* overflow */
        {ncclFloat16, 2, ncclMin, {0x8001, 0x0001, 0x0002}, 0x8001},  /* denormals */
        {ncclBfloat16, 2, ncclSum, {0x4380, 0x3f80, 0x3f80}, 0x4380}, /* 256+1+1 = 256 */
        {ncclFloat8e5m2, 1, ncclSum, {0x3c, 0x3c, 0x40}, 0x44},       /* 1+1+2 = 4 */
        {ncclFloat8e4m3, 1, ncclSum, {0x38, 0x38, 0x40}, 0x48},
        {ncclFloat8e4m3, 1, ncclMax, {0x7e, 0x38, 0x01}, 0x7e}, /* 448 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        MUST_BE(reduced(&c, cases[i].type, (size_t)cases[i].size, cases[i].op, cases[i].in),
                (int64_t)cases[i].out);
    clique_close(&c);
}

static void arithmetic_is_that_of_nccl(void **state)
{
    (void)state;
    assert_int_equal(clique_run(1, 3, arithmetic), 0);
}

/* ---- messages ---- */

static void grouped_messages(struct procs *procs, int rank)
{
    struct clique c;
    int peer = 1 - rank;
    clique_open(procs, rank, 0, 200000 * 8, &c);
    fill(&c, 0, 200000);
    MUST_BE(fake.ncclGroupStart(), ncclSuccess);
    MUST_BE(fake.ncclSend(c.send[0], 0, ncclInt64, peer, c.comm[0], c.stream[0]), ncclSuccess);
    MUST_BE(fake.ncclSend(c.send[0], 200000, ncclInt64, peer, c.comm[0], c.stream[0]), ncclSuccess);
    MUST_BE(fake.ncclSend(c.send[0], 3, ncclInt64, rank, c.comm[0], c.stream[0]), ncclSuccess);
    MUST_BE(fake.ncclRecv(c.recv[0], 3, ncclInt64, rank, c.comm[0], c.stream[0]), ncclSuccess);
    MUST_BE(fake.ncclRecv(c.recv[0], 0, ncclInt64, peer, c.comm[0], c.stream[0]), ncclSuccess);
    MUST_BE(fake.ncclRecv(c.recv[0], 200000, ncclInt64, peer, c.comm[0], c.stream[0]), ncclSuccess);
    MUST_BE(fake.ncclGroupEnd(), ncclSuccess);
    int64_t *host = malloc(200000 * 8);
    MUST_BE(fake.cudaMemcpyAsync(host, c.recv[0], 200000 * 8, cudaMemcpyDeviceToHost, c.stream[0]),
            cudaSuccess);
    for (size_t i = 3; i < 200000; i++)
        MUST_BE(host[i], value(peer, i));
    clique_close(&c);
}

static void crossed_messages(struct procs *procs, int rank)
{
    struct clique c;
    clique_open(procs, rank, 0, 64, &c);
    MUST_BE(fake.ncclGroupStart(), ncclSuccess);
    MUST_BE(fake.ncclSend(c.send[0], 1, ncclInt64, 1 - rank, c.comm[0], c.stream[0]), ncclSuccess);
    MUST_BE(fake.ncclRecv(c.recv[0], 1, ncclInt64, 1 - rank, c.comm[0], c.stream[0]), ncclSuccess);
    MUST_BE(fake.ncclGroupEnd(), ncclSuccess); /* it connects them */
    MUST_BE(fake.ncclSend(c.send[0], 1, ncclInt64, 1 - rank, c.comm[0], c.stream[0]), ncclSuccess);
    MUST_BE(fake.ncclRecv(c.recv[0], 1, ncclInt64, 1 - rank, c.comm[0], c.stream[0]), ncclSuccess);
    procs_pause_ms(2000); /* until STALL is printed */
    MUST_BE(fake.cudaStreamQuery(c.stream[0]), cudaErrorNotReady);
    procs_barrier(procs);
    MUST_BE(fake.ncclCommAbort(c.comm[0]), ncclSuccess);
    MUST_BE(fake.cudaStreamSynchronize(c.stream[0]), cudaSuccess);
    MUST_BE(fake.ncclCommAbort(c.comm[0]), ncclInvalidArgument); /* it is gone */
}

/* Waits until one of the ranks reports an error. */
static void await_mismatch(struct procs *procs, struct ncclComm *comm)
{
    for (int ms = 0; !atomic_load(&procs->flags[0]) && ms < 20000; ms++) {
        if (strstr(fake.ncclGetLastError(comm), "MISMATCH"))
            atomic_store(&procs->flags[0], 1);
        procs_pause_ms(1);
    }
}

static void lengths_differ(struct procs *procs, int rank)
{
    struct clique c;
    clique_open(procs, rank, 0, 64, &c);
    if (rank == 0)
        MUST_BE(fake.ncclSend(c.send[0], 2, ncclInt64, 1, c.comm[0], c.stream[0]), ncclSuccess);
    else
        MUST_BE(fake.ncclRecv(c.recv[0], 3, ncclInt64, 0, c.comm[0], c.stream[0]), ncclSuccess);
    await_mismatch(procs, c.comm[0]);
    procs_barrier(procs);
    MUST_BE(fake.ncclCommAbort(c.comm[0]), ncclSuccess);
}

static void messages_meet_or_are_reported(void **state)
{
    (void)state;
    assert_int_equal(clique_run(2, 1, grouped_messages), 0);
    setenv("FAKE_NCCL_STALL_MS", "300", 1);
    assert_true(clique_runs_and_prints(2, crossed_messages, "STALL"));
    assert_true(clique_runs_and_prints(2, lengths_differ, "MISMATCH"));
}

/* ---- refused calls ---- */

static void misuse(struct procs *procs, int rank)
{
    struct clique c;
    char host[64], *elsewhere;
    struct CUstream_st *foreign;
    clique_open(procs, rank, 0, 64, &c);
    struct ncclComm *comm = c.comm[0];
    MUST_BE(fake.cudaSetDevice(5), cudaSuccess);
    MUST_BE(fake.cudaMalloc((void **)&elsewhere, 64), cudaSuccess);
    MUST_BE(fake.cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking), cudaSuccess);
    MUST_BE(fake.ncclAllReduce(host, c.recv[0], 1, ncclInt64, ncclSum, comm, c.stream[0]),
            ncclInvalidArgument); /* of the host */
    MUST_BE(fake.ncclAllReduce(elsewhere, c.recv[0], 1, ncclInt64, ncclSum, comm, c.stream[0]),
            ncclInvalidArgument); /* of another device */
    MUST_BE(fake.ncclAllReduce(c.send[0], c.recv[0], 9, ncclInt64, ncclSum, comm, c.stream[0]),
            ncclInvalidArgument); /* leaves its allocation */
    MUST_BE(fake.ncclAllReduce(c.send[0], c.send[0] + 8, 2, ncclInt64, ncclSum, comm, c.stream[0]),
            ncclInvalidArgument); /* overlaps */
    MUST_BE(fake.ncclAlltoAll(c.send[0], c.send[0], 1, ncclInt64, comm, c.stream[0]),
            ncclInvalidArgument); /* has no in-place form */
    MUST_BE(fake.ncclBroadcast(c.send[0], c.recv[0], 1, ncclInt64, 2, comm, c.stream[0]),
            ncclInvalidArgument);
    MUST_BE(fake.ncclBroadcast(c.send[0], c.recv[0], 1, 99, 0, comm, c.stream[0]),
            ncclInvalidArgument);
    MUST_BE(fake.ncclGroupEnd(), ncclInvalidUsage);
    MUST_BE(fake.ncclGroupStart(), ncclSuccess);
    MUST_BE(fake.ncclBroadcast(c.send[0], c.recv[0], 1, 99, 0, comm, c.stream[0]),
            ncclInvalidArgument);
    MUST_BE(fake.ncclGroupEnd(), ncclInvalidArgument);
    /* a count of 0 does not involve other ranks */
    if (rank == 0)
        MUST_BE(fake.ncclAllReduce(NULL, NULL, 0, ncclInt64, ncclSum, comm, c.stream[0]),
                ncclSuccess);
    clique_close(&c);
    clique_open(procs, rank, 1, 64, &c);
    MUST_BE(fake.ncclAllReduce(c.send[0], c.recv[0], 1, ncclInt64, ncclSum, c.comm[0], foreign),
            ncclUnhandledCudaError); /* a stream of another device; fatal, as in NCCL */
    MUST_BE(fake.ncclCommAbort(c.comm[0]), ncclSuccess);
}

static void calls_differ(struct procs *procs, int rank)
{
    struct clique c;
    clique_open(procs, rank, 0, 64, &c);
    MUST_BE(fake.ncclAllReduce(c.send[0], c.recv[0], 1, ncclInt64, rank ? ncclMax : ncclSum,
                               c.comm[0], c.stream[0]),
            ncclSuccess);
    await_mismatch(procs, c.comm[0]);
    MUST_BE(fake.cudaStreamQuery(c.stream[0]), cudaErrorNotReady);
    procs_barrier(procs);
    MUST_BE(fake.ncclCommAbort(c.comm[0]), ncclSuccess);
}

static void share_a_gpu(struct procs *procs, int rank)
{
    struct ncclComm *comm;
    if (rank == 0)
        MUST_BE(fake.ncclGetUniqueId(&procs->ids[0]), ncclSuccess);
    procs_barrier(procs);
    MUST_BE(fake.cudaSetDevice(3), cudaSuccess);
    MUST_BE(fake.ncclCommInitRank(&comm, 2, procs->ids[0], rank), ncclInvalidUsage);
    MUST(strstr(fake.ncclGetLastError(NULL), "Duplicate GPU") != NULL);
    if (rank == 0)
        MUST_BE(fake.ncclGetUniqueId(&procs->ids[1]), ncclSuccess);
    procs_barrier(procs);
    setenv("NCCL_HOSTID", rank ? "b" : "a", 1);
    MUST_BE(fake.ncclCommInitRank(&comm, 2, procs->ids[1], rank), ncclSuccess);
    MUST_BE(fake.ncclCommDestroy(comm), ncclSuccess);
}

static void misuse_is_refused(void **state)
{
    (void)state;
    assert_int_equal(clique_run(2, 1, misuse), 0);
    assert_true(clique_runs_and_prints(2, calls_differ, "MISMATCH"));
    assert_int_equal(clique_run(2, 1, share_a_gpu), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(collectives_are_right, clique_setup),
        cmocka_unit_test_setup(arithmetic_is_that_of_nccl, clique_setup),
        cmocka_unit_test_setup(messages_meet_or_are_reported, clique_setup),
        cmocka_unit_test_setup(misuse_is_refused, clique_setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
