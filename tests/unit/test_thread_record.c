/* SPDX-License-Identifier: Apache-2.0
 *
 * What cuts of a live rank show of the calls of collrun.h (group/thread_record.h): a thread blocks
 * in each kind of call of a group whose backend is the test.
 */
#include "recorded_rank.h"

#include "base/loop.h"
#include "ops/request.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static struct rank rank;

/* ---- a thread that blocks ---- */

typedef int call_fn(void);

static struct {
    pthread_t thread;
    _Atomic uint32_t tid;
    call_fn *call;
    int result;
    bool runs;
    atomic_bool open; /* the backend returns */
} caller;

static void wait_for_gate(void)
{
    while (!atomic_load(&caller.open))
        sched_yield();
}

static void *caller_run(void *arg)
{
    (void)arg;
    atomic_store(&caller.tid, (uint32_t)syscall(SYS_gettid));
    caller.result = caller.call();
    return NULL;
}

/* Until the thread is in a call, as a cut shows it. */
static struct record_cut caller_blocks(call_fn *call)
{
    struct record_cut cut;
    const uint64_t until = now_ns() + PATIENCE_S * UINT64_C(1000000000);
    caller.call = call;
    atomic_store(&caller.tid, 0);
    atomic_store(&caller.open, false);
    assert_int_equal(pthread_create(&caller.thread, NULL, caller_run, NULL), 0);
    caller.runs = true;
    while (!atomic_load(&caller.tid))
        sched_yield();
    rank.ntasks = 0;
    rank_add_task(&rank, atomic_load(&caller.tid));
    do {
        assert_true(now_ns() < until);
        arena_fini(&rank.arena);
        arena_init(&rank.arena);
        cut = rank_cut(&rank);
    } while (cut.state != RECORD_CUT_STILL || cut.threads[0].role != RECORD_CUT_BLOCKED);
    assert_int_equal(cut.nthreads, 1);
    assert_int_equal(cut.lost, 0);
    return cut;
}

static void caller_returns(int expected)
{
    atomic_store(&caller.open, true);
    pthread_join(caller.thread, NULL);
    caller.runs = false;
    if (caller.result != expected)
        print_message("# %s\n", collrun_error());
    assert_int_equal(caller.result, expected);
}

/* The only operation that the thread of the cut waits for. */
static const struct record_cut_op *only_op(const struct record_cut *cut)
{
    assert_int_equal(cut->threads[0].mode, RECORD_ALL);
    assert_int_equal(cut->threads[0].nops, 1);
    assert_int_equal(cut->threads[0].ops[0].state, RECORD_OPEN);
    assert_int_not_equal(cut->threads[0].ops[0].group, RECORD_CUT_NO_GROUP);
    return &cut->threads[0].ops[0];
}

static int setup_exec(void **state)
{
    (void)state;
    rank_open(&rank, 1, RANKS, false);
    null_backend.inside = wait_for_gate;
    return 0;
}

static int setup_carried(void **state)
{
    (void)state;
    rank_open(&rank, 1, RANKS, true);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rank.end.fails = true; /* a test that has failed leaves its thread in the call */
    atomic_store(&caller.open, true);
    if (caller.runs)
        pthread_join(caller.thread, NULL);
    caller.runs = false;
    rank_close(&rank);
    return 0;
}

/* ---- collectives ---- */

static char in[4096], out[4096];
static const size_t counts[RANKS] = {3, 0, 2, 1}, displs[RANKS] = {0, 3, 3, 5};

static int do_barrier(void)
{
    return collrun_barrier(rank.group);
}
static int do_allreduce(void)
{
    return collrun_allreduce(rank.group, in, out, 9, COLLRUN_FLOAT32, COLLRUN_MAX);
}
static int do_reduce(void)
{
    return collrun_reduce(rank.group, in, out, 9, COLLRUN_FLOAT32, COLLRUN_MAX, 2);
}
static int do_broadcast(void)
{
    return collrun_broadcast(rank.group, in, 9, COLLRUN_FLOAT32, 2);
}
static int do_allgather(void)
{
    return collrun_allgather(rank.group, in, out, 9, COLLRUN_FLOAT32);
}
static int do_gather(void)
{
    return collrun_gather(rank.group, in, out, 9, COLLRUN_FLOAT32, 2);
}
static int do_scatter(void)
{
    return collrun_scatter(rank.group, in, out, 9, COLLRUN_FLOAT32, 2);
}
static int do_reduce_scatter(void)
{
    return collrun_reduce_scatter(rank.group, in, out, 9, COLLRUN_FLOAT32, COLLRUN_MAX);
}
static int do_scan(void)
{
    return collrun_scan(rank.group, in, out, 9, COLLRUN_FLOAT32, COLLRUN_MAX);
}
static int do_exscan(void)
{
    return collrun_exscan(rank.group, in, out, 9, COLLRUN_FLOAT32, COLLRUN_MAX);
}
static int do_alltoall(void)
{
    return collrun_alltoall(rank.group, in, out, 9, COLLRUN_FLOAT32);
}

static void every_collective_is_read_with_its_number_and_root(void **state)
{
    static const struct {
        call_fn *call;
        enum collrun_kind kind;
        bool rooted, reduces;
    } cases[] = {{do_allreduce, COLLRUN_ALLREDUCE, false, true},
                 {do_reduce, COLLRUN_REDUCE, true, true},
                 {do_broadcast, COLLRUN_BROADCAST, true, false},
                 {do_allgather, COLLRUN_ALLGATHER, false, false},
                 {do_gather, COLLRUN_GATHER, true, false},
                 {do_scatter, COLLRUN_SCATTER, true, false},
                 {do_reduce_scatter, COLLRUN_REDUCE_SCATTER, false, true},
                 {do_scan, COLLRUN_SCAN, false, true},
                 {do_exscan, COLLRUN_EXSCAN, false, true},
                 {do_alltoall, COLLRUN_ALLTOALL, false, false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct record_cut cut = caller_blocks(cases[i].call);
        const struct record_cut_op *op = only_op(&cut);
        assert_int_equal(op->kind, cases[i].kind);
        assert_int_equal(op->number, i + 1);
        assert_int_equal(op->peer, cases[i].rooted ? (int)world[2] : RECORD_ANY_RANK);
        assert_int_equal(op->count, 9);
        assert_int_equal(op->dtype, COLLRUN_FLOAT32);
        if (cases[i].reduces)
            assert_int_equal(op->op, COLLRUN_MAX);
        assert_int_equal(cut.groups[op->group].id, GROUP_ID);
        assert_int_equal(cut.groups[op->group].called, i + 1);
        assert_memory_equal(cut.groups[op->group].members, world, sizeof world);
        assert_int_not_equal(cut.threads[0].timeout_ns, 0);
        caller_returns(COLLRUN_OK);
    }
    const struct record_cut cut = caller_blocks(do_barrier);
    assert_int_equal(only_op(&cut)->kind, COLLRUN_BARRIER);
    caller_returns(COLLRUN_OK);
}

static int do_allgatherv(void)
{
    return collrun_allgatherv(rank.group, in, counts[1], out, counts, displs, COLLRUN_FLOAT32);
}
static int do_gatherv(void)
{
    return collrun_gatherv(rank.group, in, counts[1], out, counts, displs, COLLRUN_FLOAT32, 1);
}
static int do_scatterv(void)
{
    return collrun_scatterv(rank.group, NULL, NULL, NULL, out, 7, COLLRUN_FLOAT32, 2);
}
static int do_alltoallv(void)
{
    return collrun_alltoallv(rank.group, in, counts, displs, out, counts, displs, COLLRUN_FLOAT32);
}
static int do_started_allgatherv(void)
{
    struct collrun_request *r;
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLGATHERV);
    call.send = in;
    call.count = counts[1];
    call.recv = out;
    call.recvcounts = counts;
    call.recvdispls = displs;
    call.dtype = COLLRUN_FLOAT32;
    const int rc = collrun_start(rank.group, &call, &r);
    return rc == COLLRUN_OK ? collrun_wait(r) : rc;
}

static void a_v_form_needs_the_members_that_send_to_it(void **state)
{
    static call_fn *const calls[] = {do_allgatherv, do_gatherv, do_alltoallv,
                                     do_started_allgatherv};
    static const uint32_t needs[] = {5, 7, 8};
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const struct record_cut cut = caller_blocks(calls[i]);
        const struct record_cut_op *op = only_op(&cut);
        assert_int_equal(op->nneeds, 3);
        assert_memory_equal(op->needs, needs, sizeof needs);
        caller_returns(COLLRUN_OK);
    }
    const struct record_cut cut = caller_blocks(do_scatterv);
    assert_int_equal(only_op(&cut)->count, 7);
    assert_int_equal(only_op(&cut)->peer, world[2]);
    caller_returns(COLLRUN_OK);
}

static int do_started_batch(void)
{
    struct collrun_request *r;
    struct collrun_call calls[2] = {COLLRUN_CALL(COLLRUN_BARRIER), COLLRUN_CALL(COLLRUN_BROADCAST)};
    calls[1].recv = out;
    calls[1].count = 2;
    calls[1].dtype = COLLRUN_INT32;
    const int rc = collrun_start_many(rank.group, calls, 2, &r);
    return rc == COLLRUN_OK ? collrun_wait(r) : rc;
}

static void each_collective_of_a_batch_is_listed(void **state)
{
    (void)state;
    const struct record_cut cut = caller_blocks(do_started_batch);
    assert_int_equal(cut.threads[0].mode, RECORD_ALL);
    assert_int_equal(cut.threads[0].nops, 2);
    assert_int_equal(cut.threads[0].ops[0].kind, COLLRUN_BARRIER);
    assert_int_equal(cut.threads[0].ops[0].number, 1);
    assert_int_equal(cut.threads[0].ops[1].kind, COLLRUN_BROADCAST);
    assert_int_equal(cut.threads[0].ops[1].number, 2);
    assert_int_equal(cut.groups[0].called, 2);
    caller_returns(COLLRUN_OK);
}

/* ---- messages ---- */

static int do_send_long(void)
{
    return collrun_send(rank.group, in, 65, COLLRUN_INT8, 2);
}
static int do_send_short(void)
{
    return collrun_send(rank.group, in, 64, COLLRUN_INT8, 2);
}

static void a_send_is_synchronous_only_past_the_limit(void **state)
{
    (void)state;
    rank.end.holds = true;
    struct record_cut cut = caller_blocks(do_send_short);
    assert_int_equal(only_op(&cut)->kind, COLLRUN_SEND);
    assert_int_equal(only_op(&cut)->flags, 0);
    assert_int_equal(only_op(&cut)->order, 0);
    assert_int_equal(rank_channel(&cut, 2, 0)->sent, 1);
    rank.end.holds = false;
    caller_returns(COLLRUN_OK);
    rank.end.holds = true;
    cut = caller_blocks(do_send_long);
    assert_int_equal(only_op(&cut)->flags, RECORD_SYNC);
    assert_int_equal(only_op(&cut)->message, 2);
    assert_int_equal(only_op(&cut)->peer, world[2]);
    assert_int_equal(rank_channel(&cut, 2, 0)->sent, 2);
    rank.end.holds = false;
    caller_returns(COLLRUN_OK);
}

static void arrives(uint32_t source, uint32_t tag)
{
    const struct collrun_envelope e = {.count = 4, .tag = tag, .dtype = COLLRUN_INT8};
    post_letter(&rank.end, source, &e);
}

static int do_recv(void)
{
    return collrun_recv(rank.group, out, 4, COLLRUN_INT8, 2);
}

static void a_message_is_taken_when_its_receive_has_returned(void **state)
{
    (void)state;
    struct record_cut cut = caller_blocks(do_recv);
    assert_int_equal(only_op(&cut)->kind, COLLRUN_RECV);
    assert_int_equal(only_op(&cut)->peer, world[2]);
    assert_null(rank_channel(&cut, 2, 0));
    assert_int_equal(cut.nreceives, 1);
    arrives(2, 0);
    caller_returns(COLLRUN_OK);
    cut = rank_cut(&rank);
    assert_int_equal(rank_channel(&cut, 2, 0)->taken, 1);
    assert_int_equal(cut.takes, 1);
    assert_int_equal(cut.nreceives, 0);
}

static int shared_source;

static int do_recv_any(void)
{
    return collrun_recv_any(rank.group, out, 4, COLLRUN_INT8, &shared_source);
}

static void a_receive_from_any_rank_counts_at_its_sender(void **state)
{
    (void)state;
    struct record_cut cut = caller_blocks(do_recv_any);
    assert_int_equal(only_op(&cut)->kind, COLLRUN_RECV_ANY);
    assert_int_equal(only_op(&cut)->peer, RECORD_ANY_RANK);
    arrives(3, 0);
    caller_returns(COLLRUN_OK);
    assert_int_equal(shared_source, 3);
    cut = rank_cut(&rank);
    assert_int_equal(rank_channel(&cut, 3, 0)->taken, 1);
}

static struct collrun_request *wild[2];

/* Two receives whose callers want to know the sender in the same place, or not at all. */
static int start_wild(void)
{
    for (int i = 0; i < 2; i++) {
        struct collrun_call call = null_group_message(COLLRUN_RECV_ANY, out + i * 8, 4);
        call.dtype = COLLRUN_INT8;
        call.source = &shared_source;
        call.tag = COLLRUN_ANY_TAG;
        const int rc = collrun_start(rank.group, &call, &wild[i]);
        if (rc != COLLRUN_OK)
            return rc;
    }
    return collrun_wait_all(wild, 2);
}

static void receives_that_share_a_place_count_at_their_own_senders(void **state)
{
    (void)state;
    struct record_cut cut = caller_blocks(start_wild);
    assert_int_equal(cut.threads[0].nops, 2);
    assert_int_equal(cut.threads[0].ops[1].kind, COLLRUN_RECV_ANY);
    assert_int_equal(cut.threads[0].ops[1].tag, RECORD_ANY_TAG);
    assert_int_equal(cut.threads[0].ops[1].post, 1);
    assert_int_equal(cut.nreceives, 2);
    arrives(0, 11);
    arrives(3, 12);
    caller_returns(COLLRUN_OK);
    cut = rank_cut(&rank);
    assert_int_equal(rank_channel(&cut, 0, 11)->taken, 1);
    assert_int_equal(rank_channel(&cut, 3, 12)->taken, 1);
    assert_int_equal(cut.nreceives, 0);
}

static int do_sendrecv(void)
{
    return collrun_sendrecv(rank.group, in, 3, 2, out, 4, 3, COLLRUN_INT8);
}

static void a_sendrecv_waits_for_both(void **state)
{
    (void)state;
    const struct record_cut cut = caller_blocks(do_sendrecv);
    assert_int_equal(cut.threads[0].mode, RECORD_ALL);
    assert_int_equal(cut.threads[0].nops, 2);
    assert_int_equal(cut.threads[0].ops[0].kind, COLLRUN_SEND);
    assert_int_equal(cut.threads[0].ops[1].kind, COLLRUN_RECV);
    assert_int_equal(rank_channel(&cut, 2, 0)->sent, 1);
    arrives(3, 0);
    caller_returns(COLLRUN_OK);
}

static int do_probe(void)
{
    struct collrun_message_info info = {.size = sizeof info};
    return collrun_probe(rank.group, 2, 5, &info);
}

static void a_probe_knows_what_was_taken_before(void **state)
{
    (void)state;
    caller_blocks(do_recv);
    arrives(2, 0);
    caller_returns(COLLRUN_OK);
    const struct record_cut cut = caller_blocks(do_probe);
    assert_int_equal(only_op(&cut)->kind, RECORD_PROBE);
    assert_int_equal(only_op(&cut)->peer, world[2]);
    assert_int_equal(only_op(&cut)->tag, 5);
    assert_int_equal(only_op(&cut)->takes, 1);
    assert_int_equal(cut.takes, 1);
    arrives(2, 5);
    caller_returns(COLLRUN_OK);
}

/* ---- requests ---- */

static struct collrun_request *requests[4];

static struct collrun_call receive_of(uint32_t peer, uint32_t tag)
{
    struct collrun_call call = null_group_message(COLLRUN_RECV, out, 4);
    call.dtype = COLLRUN_INT8;
    call.peer = (int)peer;
    call.tag = tag;
    return call;
}

static int start_receives(void)
{
    for (uint32_t i = 0; i < 3; i++) {
        const struct collrun_call call = receive_of(i == 1 ? 0 : i, i);
        const int rc = collrun_start(rank.group, &call, &requests[i]);
        if (rc != COLLRUN_OK)
            return rc;
    }
    return COLLRUN_OK;
}

static int do_wait_all(void)
{
    const int rc = start_receives();
    return rc == COLLRUN_OK ? collrun_wait_all(requests, 3) : rc;
}

static int do_wait_any(void)
{
    int index, rc = start_receives();
    return rc == COLLRUN_OK ? collrun_wait_any(requests, 3, &index) : rc;
}

static void a_wait_lists_its_requests(void **state)
{
    (void)state;
    struct record_cut cut = caller_blocks(do_wait_all);
    assert_int_equal(cut.threads[0].mode, RECORD_ALL);
    assert_int_equal(cut.threads[0].nops, 3);
    assert_int_equal(cut.threads[0].ops[2].tag, 2);
    assert_int_equal(cut.threads[0].ops[2].post, 2);
    for (uint32_t i = 0; i < 3; i++)
        arrives(i == 1 ? 0 : i, i);
    caller_returns(COLLRUN_OK);
    cut = caller_blocks(do_wait_any);
    assert_int_equal(cut.threads[0].mode, RECORD_ANY);
    assert_int_equal(cut.threads[0].nops, 3);
    assert_int_equal(cut.threads[0].ops[0].post, 0); /* of this thread */
    arrives(0, 1);
    caller_returns(COLLRUN_OK);
    assert_null(requests[1]);
    cut = rank_cut(&rank);
    assert_int_equal(cut.nreceives, 2);
    assert_int_equal(rank_channel(&cut, 0, 1)->taken, 2);
    assert_int_equal(collrun_cancel(requests[0]), COLLRUN_OK);
    assert_int_equal(collrun_cancel(requests[2]), COLLRUN_OK);
    cut = rank_cut(&rank);
    assert_int_equal(cut.nreceives, 0);
}

static void until_finished(struct collrun_request *r)
{
    const uint64_t until = now_ns() + PATIENCE_S * UINT64_C(1000000000);
    while (collrun_poll(r) == COLLRUN_AGAIN)
        assert_true(now_ns() < until);
}

static void a_request_that_is_complete_stays_open_until_it_is_waited_for(void **state)
{
    (void)state;
    const struct collrun_call call = receive_of(2, 9);
    struct collrun_request *r;
    rank_add_task(&rank, (uint32_t)syscall(SYS_gettid));
    assert_int_equal(collrun_start(rank.group, &call, &r), COLLRUN_OK);
    arrives(2, 9);
    until_finished(r);
    struct record_cut cut = rank_cut(&rank);
    assert_int_equal(cut.nreceives, 1);
    assert_null(rank_channel(&cut, 2, 9));
    assert_int_equal(collrun_test(r), COLLRUN_OK);
    cut = rank_cut(&rank);
    assert_int_equal(cut.nreceives, 0);
    assert_int_equal(rank_channel(&cut, 2, 9)->taken, 1);
}

static int do_wait_for_sends(void)
{
    struct collrun_call call = null_group_message(COLLRUN_SEND, in, 65);
    call.peer = 2;
    const int rc = collrun_start(rank.group, &call, &requests[0]);
    return rc == COLLRUN_OK ? collrun_wait(requests[0]) : rc;
}

static void a_started_send_is_counted_and_waited_for(void **state)
{
    (void)state;
    rank.end.holds = true;
    const struct record_cut cut = caller_blocks(do_wait_for_sends);
    assert_int_equal(only_op(&cut)->kind, COLLRUN_SEND);
    assert_int_equal(only_op(&cut)->flags, RECORD_SYNC);
    assert_int_equal(rank_channel(&cut, 2, 0)->sent, 1);
    rank.end.holds = false;
    caller_returns(COLLRUN_OK);
}

/* ---- failures ---- */

static void nothing_is_known_of_a_group_that_has_failed(void **state)
{
    (void)state;
    struct record_cut cut = caller_blocks(do_recv);
    assert_int_equal(cut.lost, 0);
    group_abort(rank.group, COLLRUN_ERR_ABORTED, "test");
    cut = rank_cut(&rank);
    if (cut.state == RECORD_CUT_STILL) {
        assert_true(cut.groups[0].closed);
        assert_true(cut.lost & RECORD_LOST_CHANNELS);
    }
    rank.end.fails = true;
    caller_returns(COLLRUN_ERR_ABORTED);
}

static int nested_result;

static void call_inside(void)
{
    if (null_backend.calls == 1)
        nested_result = collrun_send(rank.group, in, 1, COLLRUN_INT8, 2);
}

static void a_call_inside_a_call_ends_all_proofs(void **state)
{
    (void)state;
    null_backend.inside = call_inside;
    assert_int_equal(do_allreduce(), COLLRUN_OK);
    assert_int_equal(nested_result, COLLRUN_OK);
    rank_add_task(&rank, (uint32_t)syscall(SYS_gettid));
    assert_int_equal(rank_cut(&rank).state, RECORD_CUT_MOVING);
}

#define EXEC_TEST(name) cmocka_unit_test_setup_teardown(name, setup_exec, teardown)
#define WIRE_TEST(name) cmocka_unit_test_setup_teardown(name, setup_carried, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EXEC_TEST(every_collective_is_read_with_its_number_and_root),
        EXEC_TEST(a_v_form_needs_the_members_that_send_to_it),
        EXEC_TEST(each_collective_of_a_batch_is_listed),
        WIRE_TEST(a_send_is_synchronous_only_past_the_limit),
        WIRE_TEST(a_message_is_taken_when_its_receive_has_returned),
        WIRE_TEST(a_receive_from_any_rank_counts_at_its_sender),
        WIRE_TEST(receives_that_share_a_place_count_at_their_own_senders),
        WIRE_TEST(a_sendrecv_waits_for_both),
        WIRE_TEST(a_probe_knows_what_was_taken_before),
        WIRE_TEST(a_wait_lists_its_requests),
        WIRE_TEST(a_request_that_is_complete_stays_open_until_it_is_waited_for),
        WIRE_TEST(a_started_send_is_counted_and_waited_for),
        WIRE_TEST(nothing_is_known_of_a_group_that_has_failed),
        WIRE_TEST(a_call_inside_a_call_ends_all_proofs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
