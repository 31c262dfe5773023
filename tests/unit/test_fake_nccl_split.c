/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in for libnccl: ncclCommSplit, and communicators that share resources.
 */
#include "fake_clique.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { COUNT = 8, MEMORY_MIB = 16 };

struct pair { /* a communicator, and one that was split from it */
    struct ncclComm *parent, *child;
    struct CUstream_st *stream[2];
    int *in, *out[2];
    size_t grown; /* bytes of the device that the child holds */
};

static struct ncclConfig config_of(bool shares, bool blocking)
{
    return (struct ncclConfig){.size = sizeof(struct ncclConfig),
                               .magic = NCCL_CONFIG_MAGIC,
                               .version = 22809,
                               .blocking = blocking,
                               .splitShare = shares};
}

static int settle(struct ncclComm *comm)
{
    int state = ncclInProgress;
    for (int ms = 0; state == ncclInProgress && ms < 20000; ms++) {
        MUST_BE(fake.ncclCommGetAsyncError(comm, &state), ncclSuccess);
        procs_pause_ms(1);
    }
    return state;
}

static struct ncclComm *open_parent(struct procs *procs, int rank, struct ncclConfig config)
{
    struct ncclComm *comm;
    if (rank == 0)
        MUST_BE(fake.ncclGetUniqueId(&procs->ids[0]), ncclSuccess);
    procs_barrier(procs);
    MUST_BE(fake.cudaSetDevice(rank), cudaSuccess);
    int result = fake.ncclCommInitRankConfig(&comm, procs->nprocs, procs->ids[0], rank, &config);
    MUST(result == ncclSuccess || result == ncclInProgress);
    MUST_BE(settle(comm), ncclSuccess);
    return comm;
}

static size_t device_memory(void)
{
    size_t available, total;
    MUST_BE(fake.cudaMemGetInfo(&available, &total), cudaSuccess);
    return total - available;
}

static void open_pair(struct procs *procs, int rank, bool shares, struct pair *p)
{
    struct ncclConfig config = config_of(shares, true);
    p->parent = open_parent(procs, rank, config);
    for (int i = 0; i < 2; i++)
        MUST_BE(fake.cudaStreamCreateWithFlags(&p->stream[i], cudaStreamNonBlocking), cudaSuccess);
    MUST_BE(fake.cudaMalloc((void **)&p->in, COUNT * sizeof(int)), cudaSuccess);
    for (int i = 0; i < 2; i++)
        MUST_BE(fake.cudaMalloc((void **)&p->out[i], COUNT * sizeof(int)), cudaSuccess);
    size_t before = device_memory();
    MUST_BE(fake.ncclCommSplit(p->parent, 0, rank, &p->child, &config), ncclSuccess);
    p->grown = device_memory() - before;
}

static int launch(struct pair *p, bool child)
{
    return fake.ncclAllReduce(p->in, p->out[child], COUNT, ncclInt32, ncclSum,
                              child ? p->child : p->parent, p->stream[child]);
}

/* ---- colors ---- */

/* Even ranks, in reverse, are one communicator; rank 1 has no color; rank 3 is alone. */
static void splits(struct procs *procs, int rank)
{
    struct ncclConfig config = config_of(false, true);
    struct ncclComm *parent = open_parent(procs, rank, config), *child = parent;
    int color = rank == 1 ? NCCL_SPLIT_NOCOLOR : rank % 2, n = 0, *value, got = 0;
    struct CUstream_st *stream;
    MUST_BE(fake.ncclCommSplit(parent, color, -rank, &child, &config), ncclSuccess);
    MUST((child == NULL) == (rank == 1));
    if (child) {
        MUST_BE(fake.ncclCommCount(child, &n), ncclSuccess);
        MUST_BE(n, rank == 3 ? 1 : 2);
        MUST_BE(fake.cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
        MUST_BE(fake.cudaMalloc((void **)&value, sizeof *value), cudaSuccess);
        MUST_BE(fake.cudaMemcpy(value, &rank, sizeof rank, cudaMemcpyDefault), cudaSuccess);
        MUST_BE(fake.ncclBroadcast(value, value, 1, ncclInt32, 0, child, stream), ncclSuccess);
        MUST_BE(fake.cudaStreamSynchronize(stream), cudaSuccess);
        MUST_BE(fake.cudaMemcpy(&got, value, sizeof got, cudaMemcpyDefault), cudaSuccess);
        MUST_BE(got, rank == 3 ? 3 : 2); /* the key of rank 2 is the lowest */
        MUST_BE(fake.ncclCommDestroy(child), ncclSuccess);
    }
    MUST_BE(fake.ncclCommDestroy(parent), ncclSuccess);
}

static void ranks_are_placed_by_color_and_key(void **state)
{
    (void)state;
    assert_int_equal(clique_run(4, 1, splits), 0);
}

/* ---- sharing ---- */

static void hold_memory(struct procs *procs, int rank)
{
    struct pair own, shared;
    open_pair(procs, rank, false, &own);
    MUST(own.grown == (size_t)MEMORY_MIB << 20);
    open_pair(procs, rank, true, &shared);
    MUST(shared.grown < 1u << 20);
    size_t before = device_memory();
    MUST_BE(fake.ncclCommDestroy(shared.parent), ncclSuccess);
    MUST(before - device_memory() < 1u << 20); /* the child uses it */
    MUST_BE(launch(&shared, true), ncclSuccess);
    MUST_BE(fake.cudaStreamSynchronize(shared.stream[1]), cudaSuccess);
    MUST_BE(fake.ncclCommDestroy(shared.child), ncclSuccess);
    MUST(before - device_memory() >= (size_t)MEMORY_MIB << 20);
}

/* Rank 1 launches the kernel of the child first. True if all end. */
static bool cross(struct procs *procs, int rank, bool shares, struct pair *p)
{
    open_pair(procs, rank, shares, p);
    for (int i = 0; i < 2; i++)
        MUST_BE(launch(p, i != rank), ncclSuccess);
    procs_pause_ms(500);
    bool end = fake.cudaStreamQuery(p->stream[0]) == cudaSuccess &&
               fake.cudaStreamQuery(p->stream[1]) == cudaSuccess;
    procs_barrier(procs);
    return end;
}

static void run_in_order(struct procs *procs, int rank)
{
    struct pair p;
    MUST(cross(procs, rank, false, &p));
    MUST(!cross(procs, rank, true, &p));
    MUST_BE(fake.ncclCommAbort(p.child), ncclSuccess); /* ends the kernels of both */
    MUST_BE(fake.cudaStreamSynchronize(p.stream[0]), cudaSuccess);
    MUST_BE(launch(&p, false), ncclInvalidUsage);
    MUST_BE(fake.ncclCommAbort(p.parent), ncclSuccess);
}

static void a_family_has_one_memory_and_one_stream(void **state)
{
    (void)state;
    setenv("FAKE_NCCL_MEMORY_MIB", "16", 1);
    assert_int_equal(clique_run(2, 1, hold_memory), 0);
    assert_int_equal(clique_run(2, 1, run_in_order), 0);
    unsetenv("FAKE_NCCL_MEMORY_MIB");
}

/* ---- progress and misuse ---- */

/* Rank 1 splits later: until then the parent is in progress, and the child NULL. */
static void does_not_block(struct procs *procs, int rank)
{
    struct ncclConfig config = config_of(true, false);
    struct ncclComm *parent = open_parent(procs, rank, config), *child = parent;
    int state = ncclSuccess;
    if (rank == 1)
        procs_pause_ms(300);
    MUST_BE(fake.ncclCommSplit(parent, 0, rank, &child, &config), ncclInProgress);
    if (rank == 0) {
        procs_pause_ms(50);
        MUST_BE(fake.ncclCommGetAsyncError(parent, &state), ncclSuccess);
        MUST(state == ncclInProgress && !child);
    }
    MUST_BE(settle(parent), ncclSuccess);
    MUST(child && settle(child) == ncclSuccess);
    fake.ncclCommDestroy(child);
    fake.ncclCommDestroy(parent);
}

static void splits_too_early(struct procs *procs, int rank)
{
    struct ncclConfig config = config_of(true, false);
    struct ncclComm *parent = open_parent(procs, rank, config), *child;
    struct CUstream_st *stream;
    int *value;
    MUST_BE(fake.cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    MUST_BE(fake.cudaMalloc((void **)&value, sizeof *value), cudaSuccess);
    if (rank == 0) {
        MUST_BE(fake.ncclAllReduce(value, value, 1, ncclInt32, ncclSum, parent, stream),
                ncclInProgress);
        MUST_BE(settle(parent), ncclSuccess);
    }
    MUST_BE(fake.ncclCommSplit(parent, 0, rank, &child, &config), ncclInProgress);
    procs_pause_ms(300);
    procs_barrier(procs);
    MUST_BE(fake.ncclCommAbort(parent), ncclInProgress);
    procs_pause_ms(300);
}

static void all_ranks_split_an_idle_parent(void **state)
{
    (void)state;
    assert_int_equal(clique_run(2, 1, does_not_block), 0);
    assert_true(clique_runs_and_prints(2, splits_too_early, "an operation is on the parent"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(ranks_are_placed_by_color_and_key, clique_setup),
        cmocka_unit_test_setup(a_family_has_one_memory_and_one_stream, clique_setup),
        cmocka_unit_test_setup(all_ranks_split_an_idle_parent, clique_setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
