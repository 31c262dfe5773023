/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in for libnccl under concurrency and failures: nonblocking communicators, several on
 * one device, injected faults, and an older library.
 */
#include "fake_clique.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

/* ---- nonblocking communicators ---- */

static int settle(struct ncclComm *comm)
{
    int state = ncclInProgress;
    for (int ms = 0; state == ncclInProgress && ms < 20000; ms++) {
        MUST_BE(fake.ncclCommGetAsyncError(comm, &state), ncclSuccess);
        procs_pause_ms(1);
    }
    return state;
}

static struct ncclConfig nonblocking(void)
{
    return (struct ncclConfig){.size = sizeof(struct ncclConfig),
                               .magic = NCCL_CONFIG_MAGIC,
                               .version = 22809,
                               .blocking = 0,
                               .commName = "patient"};
}

static void open_nonblocking(struct procs *procs, int rank, int id, struct ncclComm **comm)
{
    struct ncclConfig config = nonblocking();
    if (rank == 0)
        MUST_BE(fake.ncclGetUniqueId(&procs->ids[id]), ncclSuccess);
    procs_barrier(procs);
    MUST_BE(fake.cudaSetDevice(rank), cudaSuccess);
    MUST_BE(fake.ncclCommInitRankConfig(comm, procs->nprocs, procs->ids[id], rank, &config),
            ncclInProgress);
}

static void does_not_block(struct procs *procs, int rank)
{
    struct ncclComm *comm;
    struct CUstream_st *stream;
    struct CUevent_st *event;
    int *in, *out, got, early = 0;
    open_nonblocking(procs, rank, 0, &comm);
    MUST_BE(fake.cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    MUST_BE(fake.cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    MUST_BE(fake.cudaMalloc((void **)&in, 4), cudaSuccess);
    MUST_BE(fake.cudaMalloc((void **)&out, 4), cudaSuccess);
    MUST_BE(settle(comm), ncclSuccess);
    for (int i = 0; i < 60; i++) {
        MUST_BE(fake.cudaMemcpyAsync(in, &i, 4, cudaMemcpyHostToDevice, stream), cudaSuccess);
        MUST_BE(fake.ncclAllReduce(in, out, 1, ncclInt32, ncclSum, comm, stream), ncclInProgress);
        MUST_BE(fake.cudaEventRecord(event, stream), cudaSuccess); /* too early */
        MUST_BE(fake.cudaEventSynchronize(event), cudaSuccess);
        if (PROCS_MAY_RACE)
            MUST_BE(fake.cudaMemcpy(&got, out, 4, cudaMemcpyDeviceToHost), cudaSuccess);
        early += !PROCS_MAY_RACE || got != 2 * i;
        MUST_BE(settle(comm), ncclSuccess);
        MUST_BE(fake.cudaEventRecord(event, stream), cudaSuccess);
        MUST_BE(fake.cudaEventSynchronize(event), cudaSuccess);
        MUST_BE(fake.cudaMemcpy(&got, out, 4, cudaMemcpyDeviceToHost), cudaSuccess);
        MUST_BE(got, 2 * i);
    }
    MUST(early > 0);
    MUST_BE(fake.ncclCommFinalize(comm), ncclInProgress);
    MUST_BE(settle(comm), ncclSuccess);
    fake.ncclCommDestroy(comm);
}

static void impatient(struct procs *procs, int rank)
{
    struct ncclComm *comm;
    int *in;
    if (rank == 1) { /* never joins */
        open_nonblocking(procs, rank, 0, &comm);
        MUST_BE(settle(comm), ncclSuccess);
        procs_barrier(procs);
        return;
    }
    open_nonblocking(procs, rank, 0, &comm);
    MUST_BE(fake.cudaMalloc((void **)&in, 4), cudaSuccess);
    MUST_BE(settle(comm), ncclSuccess);
    MUST_BE(fake.ncclAllReduce(in, in, 1, ncclInt32, ncclSum, comm, NULL), ncclInProgress);
    MUST_BE(fake.ncclAllReduce(in, in, 1, ncclInt32, ncclSum, comm, NULL), ncclInvalidArgument);
    MUST_BE(settle(comm), ncclSuccess); /* launched, not done: rank 1 does not take part */
    MUST_BE(fake.ncclCommRevoke(comm, 0), ncclInProgress);
    MUST_BE(settle(comm), ncclSuccess);
    MUST_BE(fake.cudaDeviceSynchronize(), cudaSuccess);
    MUST_BE(fake.ncclAllReduce(in, in, 1, ncclInt32, ncclSum, comm, NULL), ncclInvalidUsage);
    MUST_BE(fake.ncclCommAbort(comm), ncclInProgress);
    procs_barrier(procs);
}

/* A rank is missing: the init can be aborted. */
static void abandons_init(struct procs *procs, int rank)
{
    struct ncclComm *comm;
    struct ncclConfig config = nonblocking();
    MUST_BE(fake.ncclGetUniqueId(&procs->ids[0]), ncclSuccess);
    MUST_BE(fake.ncclCommInitRankConfig(&comm, 2, procs->ids[0], rank, &config), ncclInProgress);
    procs_pause_ms(100);
    int state;
    MUST_BE(fake.ncclCommGetAsyncError(comm, &state), ncclSuccess);
    MUST_BE(state, ncclInProgress);
    MUST_BE(fake.ncclCommAbort(comm), ncclInProgress);
    for (int ms = 0; fake.ncclCommGetAsyncError(comm, &state) == ncclSuccess; ms++) {
        MUST(ms < 5000);
        procs_pause_ms(1);
    }
}

static void nonblocking_communicators_do_not_block(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_DELAY_US", "300", 1);
    assert_int_equal(clique_run(2, 1, does_not_block), 0);
    assert_int_equal(clique_run(2, 1, impatient), 0);
    assert_int_equal(clique_run(1, 1, abandons_init), 0);
}

/* ---- several communicators on one device ---- */

/* Two communicators over both ranks; rank 1 launches in the other order if `inverted`. */
static void two_at_once(struct procs *procs, int rank, bool inverted)
{
    struct clique a, b;
    clique_open(procs, rank, 0, 64, &a);
    clique_open(procs, rank, 1, 64, &b);
    for (int i = 0; i < 20; i++) {
        struct clique *c = (i + (inverted ? rank : 0)) % 2 ? &a : &b;
        MUST_BE(fake.ncclAllReduce(c->send[0], c->recv[0], 8, ncclInt64, ncclSum, c->comm[0],
                                   c->stream[0]),
                ncclSuccess);
    }
    if (inverted) {
        procs_pause_ms(3000); /* until LAUNCH ORDER is printed */
        MUST(fake.cudaStreamQuery(a.stream[0]) == cudaErrorNotReady ||
             fake.cudaStreamQuery(b.stream[0]) == cudaErrorNotReady);
        procs_barrier(procs);
        fake.ncclGroupStart(); /* together: one after the other would wait forever */
        MUST_BE(fake.ncclCommAbort(a.comm[0]), ncclSuccess);
        MUST_BE(fake.ncclCommAbort(b.comm[0]), ncclSuccess);
        MUST_BE(fake.ncclGroupEnd(), ncclSuccess);
        return;
    }
    MUST_BE(fake.cudaStreamSynchronize(a.stream[0]), cudaSuccess);
    MUST_BE(fake.cudaStreamSynchronize(b.stream[0]), cudaSuccess);
    clique_close(&a);
    clique_close(&b);
}

static void same_order(struct procs *procs, int rank)
{
    two_at_once(procs, rank, false);
}

static void other_order(struct procs *procs, int rank)
{
    two_at_once(procs, rank, true);
}

static void *abort_it(void *comm)
{
    fake.ncclCommAbort(comm);
    return NULL;
}

/* Both are stuck on one device: ncclCommAbort of the first returns only once the second is aborted,
 * too. */
static void aborts_one_by_one(struct procs *procs, int rank)
{
    struct clique a, b;
    pthread_t thread;
    clique_open(procs, rank, 0, 64, &a);
    clique_open(procs, rank, 1, 64, &b);
    if (rank == 0) {
        MUST_BE(
            fake.ncclAllReduce(a.send[0], a.recv[0], 8, ncclInt64, ncclSum, a.comm[0], a.stream[0]),
            ncclSuccess);
        MUST_BE(
            fake.ncclAllReduce(b.send[0], b.recv[0], 8, ncclInt64, ncclSum, b.comm[0], b.stream[0]),
            ncclSuccess);
        MUST_BE(pthread_create(&thread, NULL, abort_it, a.comm[0]), 0);
        procs_pause_ms(500);
        MUST(pthread_tryjoin_np(thread, NULL) != 0);
        MUST_BE(fake.ncclCommAbort(b.comm[0]), ncclSuccess);
        MUST_BE(pthread_join(thread, NULL), 0);
    }
    procs_barrier(procs);
}

static atomic_bool race_seen;

/* Until a launch of one of the threads is refused: on a busy machine they may take turns for long.
 */
static void *launch_many(void *arg)
{
    struct clique *c = arg;
    const time_t end = time(NULL) + 20;
    while (!atomic_load(&race_seen) && time(NULL) < end)
        if (fake.ncclAllReduce(c->send[0], c->recv[0], 8, ncclInt64, ncclSum, c->comm[0],
                               c->stream[0]) == ncclInvalidUsage)
            atomic_store(&race_seen, true);
    return NULL;
}

static void races(struct procs *procs, int rank)
{
    struct clique a, b;
    pthread_t thread;
    clique_open(procs, rank, 0, 64, &a);
    clique_open(procs, rank, 1, 64, &b);
    MUST_BE(pthread_create(&thread, NULL, launch_many, &a), 0);
    launch_many(&b);
    MUST_BE(pthread_join(thread, NULL), 0);
    MUST(atomic_load(&race_seen));
}

static void launch_orders_are_checked(void **state)
{
    (void)state;
    assert_int_equal(clique_run(2, 1, same_order), 0);
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
    assert_int_equal(clique_run(2, 1, same_order), 0);
    assert_true(clique_runs_and_prints(1, races, "NCCL_LAUNCH_RACE_FATAL"));
    setenv("FAKE_NCCL_CONCURRENCY", "1", 1);
    assert_int_equal(clique_run(2, 1, same_order), 0);
    assert_true(clique_runs_and_prints(2, other_order, "LAUNCH ORDER"));
    clique_setup(NULL);
    assert_int_equal(clique_run(2, 1, aborts_one_by_one), 0);
}

/* ---- injected faults, older libraries ---- */

static void faults(struct procs *procs, int rank)
{
    struct ncclComm *comm;
    int *in, state;
    open_nonblocking(procs, rank, 0, &comm);
    MUST_BE(fake.cudaMalloc((void **)&in, 4), cudaSuccess);
    MUST_BE(settle(comm), ncclSuccess);
    for (int i = 0; i < 2; i++) {
        MUST_BE(fake.ncclAllReduce(in, in, 1, ncclInt32, ncclSum, comm, NULL), ncclInProgress);
        while (fake.ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclInProgress)
            procs_pause_ms(1);
    }
    for (int ms = 0; rank == 1 && state == ncclSuccess && ms < 5000; ms++) {
        MUST_BE(fake.ncclCommGetAsyncError(comm, &state), ncclSuccess);
        procs_pause_ms(1);
    }
    MUST_BE(state, rank == 1 ? ncclRemoteError : ncclSuccess);
    MUST_BE(fake.cudaStreamQuery(NULL), cudaErrorNotReady);
    procs_barrier(procs);
    fake.ncclCommAbort(comm);
}

static void is_older(struct procs *procs, int rank)
{
    int version;
    (void)procs, (void)rank;
    MUST_BE(fake.ncclGetVersion(&version), ncclSuccess);
    MUST_BE(version, 22707);
    MUST(fake.ncclAllReduce && !fake.ncclAlltoAll && !fake.ncclGather && !fake.ncclScatter);
}

static void faults_and_older_libraries_are_simulated(void **state)
{
    struct procs *procs;
    (void)state;
    setenv("FAKE_NCCL_FAULT", "kernel:2:6:1", 1);
    assert_int_equal(clique_run(2, 1, faults), 0);
    assert_int_equal(procs_run(&procs, 1, "old", is_older), 0);
    procs_free(procs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nonblocking_communicators_do_not_block, clique_setup),
        cmocka_unit_test_setup(launch_orders_are_checked, clique_setup),
        cmocka_unit_test_setup(faults_and_older_libraries_are_simulated, clique_setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
