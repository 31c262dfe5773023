/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls in the flight recorder, on a backend that does nothing. Each rank of a group of four runs
 * its calls in turn; then the marks of all are compared as the audit does it: equal signatures, and
 * pairs whose sum is 0, if and only if the calls agree. Then what an entry holds: call site, times,
 * state, for every way to call.
 */
#include "base/names.h"
#include "base/record_view.h"
#include "core/backend.h"
#include "core/fingerprint.h"
#include "unit/null_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 4, ENTRIES = 256 };

static char memory[4096];

struct recorded {
    struct collrun_group *g;
    struct record_head *head;
    struct record_view view;
};

static struct recorded open_rank(uint32_t rank)
{
    struct recorded r = {.g = null_group_new(rank, RANKS, 0)};
    int fd = record_make(rank, ENTRIES);
    r.head = record_map(fd);
    assert_non_null(r.head);
    close(fd);
    for (int i = 0; i < 2; i++)
        record_queue_open(&r.g->calls.record[i], r.head,
                          &(struct record_queue_info){.name = "test",
                                                      .scope = "test#0:1",
                                                      .members = RANKS,
                                                      .rank = rank,
                                                      .messages = i == GROUP_MESSAGES});
    assert_int_equal(record_view_init(&r.view, r.head, record_len(r.head), NULL), 0);
    return r;
}

static void close_rank(struct recorded *r)
{
    null_group_free(r->g);
    record_unmap(r->head, record_len(r->head));
}

/* ---- marks ---- */

static size_t counts_of[RANKS + 1][RANKS]; /* v-forms: [from][to]; the last row: equal on all */

/* The call of one rank, of kinds whose members all agree. */
static struct collrun_call call_of(enum collrun_kind kind, uint32_t rank)
{
    static size_t expected[RANKS];
    struct collrun_call call = COLLRUN_CALL(kind);
    call.send = memory;
    call.recv = memory + 2048;
    call.dtype = COLLRUN_FLOAT32;
    call.op = COLLRUN_SUM;
    call.root = 1;
    call.count = collrun_kind_is_vector(kind) ? counts_of[RANKS][rank] : 8;
    call.recvcount = counts_of[RANKS][rank];
    call.sendcounts = call.recvcounts = counts_of[RANKS];
    if (kind != COLLRUN_ALLTOALLV)
        return call;
    for (uint32_t i = 0; i < RANKS; i++)
        expected[i] = counts_of[i][rank];
    call.sendcounts = counts_of[rank];
    call.recvcounts = expected;
    return call;
}

static void reset_counts(void)
{
    for (size_t i = 0; i <= RANKS; i++)
        for (size_t k = 0; k < RANKS; k++)
            counts_of[i][k] = 1 + i * 2 + k;
}

typedef void change(struct collrun_call *call, uint32_t rank, uint64_t number);

/* Every rank makes the same calls, changed by `f`. Returns the first number at which the marks
 * disagree; 0: none. */
static uint64_t first_disagreement(const enum collrun_kind *kinds, uint32_t n, change *f)
{
    struct record_view_mark marks[RANKS][64];
    struct record_view_group g;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct recorded r = open_rank(rank);
        for (uint32_t i = 0; i < n; i++) {
            struct collrun_call call = call_of(kinds[i], rank);
            if (f)
                f(&call, rank, i + 1);
            assert_int_equal(collrun_run(r.g, &call, 1), COLLRUN_OK);
        }
        assert_true(record_view_group(&r.view, 0, &g));
        assert_int_equal(g.started, n);
        assert_int_equal(g.done, n);
        for (uint32_t i = 0; i < n; i++)
            assert_true(record_view_mark(&r.view, &g, i + 1, &marks[rank][i]));
        close_rank(&r);
    }
    uint64_t first = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t pairs = 0;
        bool same = true;
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            pairs += marks[rank][i].pairs;
            same = same && marks[rank][i].signature == marks[0][i].signature;
        }
        bool agree = same && !pairs;
        assert_true(!first || !agree); /* what has differed once differs in all later marks */
        if (!agree && !first)
            first = i + 1;
    }
    return first;
}

static const enum collrun_kind collectives[] = {
    COLLRUN_BARRIER,         COLLRUN_ALLREDUCE,  COLLRUN_REDUCE,  COLLRUN_BROADCAST,
    COLLRUN_ALLGATHER,       COLLRUN_GATHER,     COLLRUN_SCATTER, COLLRUN_REDUCE_SCATTER,
    COLLRUN_ALLTOALL,        COLLRUN_ALLGATHERV, COLLRUN_GATHERV, COLLRUN_SCATTERV,
    COLLRUN_REDUCE_SCATTERV, COLLRUN_ALLTOALLV,  COLLRUN_SCAN,    COLLRUN_EXSCAN};
enum { NCOLLECTIVES = sizeof collectives / sizeof *collectives };

static void marks_agree_if_all_ranks_call_alike(void **state)
{
    (void)state;
    reset_counts();
    assert_int_equal(first_disagreement(collectives, NCOLLECTIVES, NULL), 0);
}

/* Each makes one rank differ in one field of operation 2. */
static void change_kind(struct collrun_call *call, uint32_t rank, uint64_t number)
{
    if (rank == 3 && number == 2)
        call->kind = COLLRUN_SCAN;
}

static void change_dtype(struct collrun_call *call, uint32_t rank, uint64_t number)
{
    if (rank == 3 && number == 2)
        call->dtype = COLLRUN_INT32;
}

static void change_op(struct collrun_call *call, uint32_t rank, uint64_t number)
{
    if (rank == 3 && number == 2)
        call->op = COLLRUN_MAX;
}

static void change_count(struct collrun_call *call, uint32_t rank, uint64_t number)
{
    if (rank == 3 && number == 2)
        call->count = 9;
}

static void change_root(struct collrun_call *call, uint32_t rank, uint64_t number)
{
    if (rank == 3 && number == 2)
        call->root = 2;
}

static void user_combine(void *ctx, const void *left, void *right, size_t count,
                         enum collrun_dtype dtype)
{
    (void)ctx, (void)left, (void)right, (void)count, (void)dtype;
}

static void change_vector(struct collrun_call *call, uint32_t rank, uint64_t number)
{
    static size_t counts[RANKS];
    if (rank != 2 || number != 2)
        return;
    const size_t **array = call->kind == COLLRUN_SCATTERV    ? &call->sendcounts
                           : call->kind == COLLRUN_ALLTOALLV ? &call->sendcounts
                                                             : &call->recvcounts;
    memcpy(counts, *array, sizeof counts);
    counts[1]++;
    *array = counts;
    call->count += call->kind == COLLRUN_GATHERV;
    call->recvcount += call->kind == COLLRUN_SCATTERV;
}

static void a_rank_that_differs_is_in_the_marks(void **state)
{
    (void)state;
    static const struct {
        enum collrun_kind kind;
        change *f;
    } cases[] = {
        {COLLRUN_ALLREDUCE, change_kind},
        {COLLRUN_ALLREDUCE, change_dtype},
        {COLLRUN_ALLREDUCE, change_op},
        {COLLRUN_ALLREDUCE, change_count},
        {COLLRUN_BROADCAST, change_root},
        {COLLRUN_BROADCAST, change_dtype},
        {COLLRUN_REDUCE, change_op},
        {COLLRUN_GATHER, change_root},
        {COLLRUN_EXSCAN, change_op},
        {COLLRUN_ALLGATHERV, change_dtype},
        {COLLRUN_GATHERV, change_root},
        {COLLRUN_ALLGATHERV, change_vector},
        {COLLRUN_GATHERV, change_vector},
        {COLLRUN_SCATTERV, change_vector},
        {COLLRUN_REDUCE_SCATTERV, change_vector},
        {COLLRUN_ALLTOALLV, change_vector},
    };
    reset_counts();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const enum collrun_kind kinds[4] = {COLLRUN_BARRIER, cases[i].kind, cases[i].kind,
                                            COLLRUN_BARRIER};
        uint64_t first = first_disagreement(kinds, 4, cases[i].f);
        if (first != 2)
            fail_msg("case %zu, %s: first disagreement %llu", i, kind_name(cases[i].kind),
                     (unsigned long long)first);
    }
}

/* What a kind does not use may differ. */
static void change_unused(struct collrun_call *call, uint32_t rank, uint64_t number)
{
    (void)number;
    call->tag = rank;
    call->peer = (int)rank;
    if (!collrun_kind_has_root(call->kind))
        call->root = (int)rank;
    if (!collrun_kind_reduces(call->kind))
        call->op = (enum collrun_op)rank;
    if (call->kind == COLLRUN_BARRIER) {
        call->count = rank;
        call->dtype = (enum collrun_dtype)rank;
    }
}

static void fields_that_a_kind_does_not_use_are_not_compared(void **state)
{
    (void)state;
    reset_counts();
    assert_int_equal(first_disagreement(collectives, NCOLLECTIVES, change_unused), 0);
}

/* Rank 0 sends one more than rank 1 expects; in the next operation rank 1 expects it. */
static void change_and_change_back(struct collrun_call *call, uint32_t rank, uint64_t number)
{
    static size_t counts[RANKS];
    const size_t **array = rank == 0 ? &call->sendcounts : &call->recvcounts;
    if ((rank != 0 || number != 2) && (rank != 1 || number != 3))
        return;
    memcpy(counts, *array, sizeof counts);
    counts[1 - rank]++;
    *array = counts;
}

static void differences_of_two_operations_do_not_cancel(void **state)
{
    (void)state;
    const enum collrun_kind kinds[4] = {COLLRUN_ALLTOALLV, COLLRUN_ALLTOALLV, COLLRUN_ALLTOALLV,
                                        COLLRUN_BARRIER};
    reset_counts();
    for (int i = 0; i < RANKS; i++)
        for (int k = 0; k < RANKS; k++)
            counts_of[i][k] = 5;
    assert_int_equal(first_disagreement(kinds, 4, change_and_change_back), 2);
}

static const struct collrun_user_op user_ops[2] = {
    {.size = sizeof user_ops[0], .name = "first", .combine = user_combine},
    {.size = sizeof user_ops[0], .name = "second", .combine = user_combine},
};

static void change_user_op(struct collrun_call *call, uint32_t rank, uint64_t number)
{
    call->user_op = &user_ops[rank == 1 && number == 3];
}

static void operators_of_the_caller_are_compared_by_name(void **state)
{
    (void)state;
    const enum collrun_kind kinds[4] = {COLLRUN_ALLREDUCE, COLLRUN_ALLREDUCE, COLLRUN_ALLREDUCE,
                                        COLLRUN_ALLREDUCE};
    reset_counts();
    assert_int_equal(first_disagreement(kinds, 4, change_user_op), 3);
}

/* ---- entries ---- */

/* The last operation; fails the test if its site is not in a function. */
static struct record_view_op last_op(const struct recorded *r)
{
    struct record_view_op op;
    assert_true(record_view_end(&r->view) > 0);
    record_calibrate(r->head);
    assert_true(record_view_op(&r->view, record_view_end(&r->view) - 1, &op));
    return op;
}

static void assert_called_in(const struct record_view_op *op, int (*f)(struct recorded *r))
{
    uint64_t start = (uint64_t)(uintptr_t)f;
    if (op->site <= start || op->site > start + 1024)
        fail_msg("%s: the site is not in its caller", kind_name(op->kind));
}

static int do_wait(struct collrun_request *request)
{
    return request ? collrun_wait(request) : COLLRUN_ERR_INVALID;
}

#define WAY(name) static __attribute__((noinline)) int name(struct recorded *r)
#define AFTER(call)                                                                                \
    do {                                                                                           \
        int rc_ = (call);                                                                          \
        __asm__ volatile("" ::: "memory"); /* no tail call */                                      \
        return rc_;                                                                                \
    } while (0)

WAY(way_allreduce)
{
    AFTER(collrun_allreduce(r->g, memory, memory + 64, 4, COLLRUN_FLOAT32, COLLRUN_MAX));
}

WAY(way_barrier)
{
    AFTER(collrun_barrier(r->g));
}

WAY(way_broadcast)
{
    AFTER(collrun_broadcast(r->g, memory, 4, COLLRUN_INT32, 2));
}

WAY(way_send)
{
    AFTER(collrun_send(r->g, memory, 4, COLLRUN_FLOAT32, 2));
}

WAY(way_recv)
{
    AFTER(collrun_recv(r->g, memory, 4, COLLRUN_FLOAT32, 2));
}

WAY(way_sendrecv)
{
    AFTER(collrun_sendrecv(r->g, memory, 4, 1, memory + 64, 4, 2, COLLRUN_FLOAT32));
}

WAY(way_sendrecv_self)
{
    AFTER(collrun_sendrecv(r->g, memory, 4, 0, memory + 64, 4, 0, COLLRUN_FLOAT32));
}

WAY(way_run)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLGATHER);
    call.send = memory;
    call.recv = memory + 64;
    call.count = 2;
    AFTER(collrun_run(r->g, &call, 1));
}

WAY(way_start)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_REDUCE);
    struct collrun_request *request = NULL;
    call.send = memory;
    call.recv = memory + 64;
    call.count = 2;
    int rc = collrun_start(r->g, &call, &request);
    return rc == COLLRUN_OK ? do_wait(request) : rc;
}

WAY(way_start_many)
{
    struct collrun_call calls[2] = {COLLRUN_CALL(COLLRUN_BARRIER), COLLRUN_CALL(COLLRUN_BROADCAST)};
    struct collrun_request *request = NULL;
    calls[1].recv = memory;
    calls[1].count = 3;
    int rc = collrun_start_many(r->g, calls, 2, &request);
    return rc == COLLRUN_OK ? do_wait(request) : rc;
}

static void every_way_to_call_is_recorded_with_its_site(void **state)
{
    (void)state;
    static const struct {
        int (*call)(struct recorded *r);
        enum collrun_kind kind;
        int root_or_peer;
        uint64_t count;
        unsigned entries;
    } ways[] = {
        {way_allreduce, COLLRUN_ALLREDUCE, -1, 4, 1},
        {way_barrier, COLLRUN_BARRIER, -1, 0, 1},
        {way_broadcast, COLLRUN_BROADCAST, 2, 4, 1},
        {way_send, COLLRUN_SEND, 2, 4, 1},
        {way_recv, COLLRUN_RECV, 2, 4, 1},
        {way_sendrecv, COLLRUN_RECV, 2, 4, 2},
        {way_sendrecv_self, COLLRUN_RECV, 0, 4, 2},
        {way_run, COLLRUN_ALLGATHER, -1, 2, 1},
        {way_start, COLLRUN_REDUCE, 0, 2, 1},
        {way_start_many, COLLRUN_BROADCAST, 0, 3, 2},
    };
    struct recorded r = open_rank(0);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        uint64_t before = record_view_end(&r.view);
        assert_int_equal(ways[i].call(&r), COLLRUN_OK);
        assert_int_equal(record_view_end(&r.view), before + ways[i].entries);
        struct record_view_op op = last_op(&r);
        assert_int_equal(op.kind, ways[i].kind);
        assert_int_equal(op.root_or_peer, ways[i].root_or_peer);
        assert_int_equal(op.count, ways[i].count);
        assert_int_equal(op.state, RECORD_DONE);
        assert_int_equal(op.slot, group_queue_of(op.kind));
        assert_true(op.called_ns && op.called_ns <= op.started_ns && op.started_ns <= op.ended_ns);
        assert_called_in(&op, ways[i].call);
    }
    close_rank(&r);
}

static void calls_of_a_batch_have_their_own_numbers(void **state)
{
    (void)state;
    struct recorded r = open_rank(0);
    struct record_view_op op;
    struct record_view_group g;
    struct record_view_mark marks[2];
    way_barrier(&r);
    assert_int_equal(way_start_many(&r), COLLRUN_OK);
    for (uint64_t i = 0; i < 3; i++) {
        assert_true(record_view_op(&r.view, i, &op));
        assert_int_equal(op.number, i + 1);
        assert_int_equal(op.state, RECORD_DONE);
    }
    assert_true(record_view_group(&r.view, 0, &g));
    assert_int_equal(g.started, 3);
    assert_int_equal(g.done, 3);
    for (uint64_t i = 0; i < 2; i++)
        assert_true(record_view_mark(&r.view, &g, 2 + i, &marks[i]));
    assert_int_not_equal(marks[0].signature, marks[1].signature);
    close_rank(&r);
}

static void a_receive_from_any_source_learns_its_sender(void **state)
{
    (void)state;
    struct recorded r = open_rank(0);
    int source = -2;
    uint32_t tag = 0;
    null_backend.source = 3;
    null_backend.tag = 7;
    struct collrun_call call = COLLRUN_CALL(COLLRUN_RECV_ANY);
    struct backend *b = r.g->backends[0].backend;
    b->native[COLLRUN_RECV_ANY][COLLRUN_INT8] = b->native[COLLRUN_RECV][COLLRUN_INT8];
    b->table.flags |= COLLRUN_BACKEND_TAGS | COLLRUN_BACKEND_ENVELOPES;
    call.recv = memory;
    call.count = 4;
    call.source = &source;
    call.tag = COLLRUN_ANY_TAG;
    call.received_tag = &tag;
    assert_int_equal(collrun_run(r.g, &call, 1), COLLRUN_OK);
    struct record_view_op op = last_op(&r);
    assert_int_equal(op.kind, COLLRUN_RECV_ANY);
    assert_int_equal(op.root_or_peer, 3);
    assert_int_equal(op.tag, 7);
    assert_int_equal(source, 3);
    assert_int_equal(tag, 7);
    null_backend.answer = COLLRUN_ERR_NO_MEMORY;
    assert_int_equal(collrun_run(r.g, &call, 1), COLLRUN_ERR_NO_MEMORY);
    op = last_op(&r);
    assert_int_equal(op.root_or_peer, -1);
    assert_int_equal(op.tag, COLLRUN_ANY_TAG);
    close_rank(&r);
}

static void a_failure_is_the_state_of_its_operation(void **state)
{
    (void)state;
    struct recorded r = open_rank(0);
    null_backend.answer = COLLRUN_ERR_UNSUPPORTED;
    assert_int_equal(way_allreduce(&r), COLLRUN_ERR_UNSUPPORTED);
    assert_int_equal(last_op(&r).state, RECORD_FAILED);
    assert_true(last_op(&r).ended_ns);
    assert_int_equal(way_start(&r), COLLRUN_ERR_UNSUPPORTED);
    assert_int_equal(last_op(&r).state, RECORD_FAILED);
    assert_int_equal(way_send(&r), COLLRUN_ERR_UNSUPPORTED);
    assert_int_equal(last_op(&r).state, RECORD_FAILED);
    null_backend.answer = COLLRUN_ERR_PEER_FAILED;
    assert_int_equal(way_allreduce(&r), COLLRUN_ERR_PEER_FAILED);
    assert_int_equal(last_op(&r).state, RECORD_ABORTED);
    close_rank(&r);
}

/* The second call of a batch fails; the group can continue. Blocking on one rank, started on
 * another, the later marks are the same. */
static void a_failure_that_a_group_survives_leaves_marks_that_agree(void **state)
{
    (void)state;
    struct record_view_mark marks[2];
    struct record_view_group g;
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct recorded r = open_rank(rank);
        struct collrun_call calls[3] = {COLLRUN_CALL(COLLRUN_BARRIER),
                                        COLLRUN_CALL(COLLRUN_BROADCAST),
                                        COLLRUN_CALL(COLLRUN_BARRIER)};
        struct collrun_request *request = NULL;
        calls[1].recv = memory;
        calls[1].count = 3;
        null_backend.answer = COLLRUN_ERR_UNSUPPORTED;
        if (rank == 0) {
            assert_int_equal(collrun_run(r.g, calls, 3), COLLRUN_ERR_UNSUPPORTED);
        } else {
            assert_int_equal(collrun_start_many(r.g, calls, 3, &request), COLLRUN_OK);
            assert_int_equal(collrun_wait(request), COLLRUN_ERR_UNSUPPORTED);
        }
        assert_true(record_view_group(&r.view, 0, &g));
        assert_int_equal(g.started, 3);
        assert_int_equal(g.done, 3); /* the rank is not inside */
        null_backend.answer = COLLRUN_OK;
        assert_int_equal(way_barrier(&r), COLLRUN_OK);
        assert_true(record_view_mark(&r.view, &g, 4, &marks[rank]));
        assert_int_equal(last_op(&r).number, 4);
        close_rank(&r);
    }
    assert_int_equal(marks[0].signature, marks[1].signature);
}

static void counts_of_v_forms_are_kept(void **state)
{
    (void)state;
    uint64_t got[2][RANKS];
    struct record_view_counts counts = {.sent = got[0], .expected = got[1]};
    reset_counts();
    struct recorded r = open_rank(1);
    struct collrun_call call = call_of(COLLRUN_ALLTOALLV, 1);
    assert_int_equal(collrun_run(r.g, &call, 1), COLLRUN_OK);
    struct record_view_op op = last_op(&r);
    assert_true(record_view_counts(&r.view, &op, RANKS, &counts));
    assert_int_equal(counts.nsent, RANKS);
    assert_int_equal(counts.nexpected, RANKS);
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(got[0][i], counts_of[1][i]);
        assert_int_equal(got[1][i], counts_of[i][1]);
    }
    assert_int_equal(op.count, 3 + 4 + 5 + 6);
    call = call_of(COLLRUN_GATHERV, 0);
    call.root = 0;
    assert_int_equal(collrun_run(r.g, &call, 1), COLLRUN_OK);
    op = last_op(&r);
    assert_true(record_view_counts(&r.view, &op, RANKS, &counts));
    assert_int_equal(counts.nsent + counts.nexpected, 0); /* it is not the root */
    close_rank(&r);
}

static void without_a_record_calls_work(void **state)
{
    (void)state;
    struct recorded r = {.g = null_group_new(0, RANKS, 0)};
    assert_int_equal(way_allreduce(&r), COLLRUN_OK);
    assert_int_equal(way_start_many(&r), COLLRUN_OK);
    assert_int_equal(way_sendrecv(&r), COLLRUN_OK);
    null_group_free(r.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_agree_if_all_ranks_call_alike),
        cmocka_unit_test(a_rank_that_differs_is_in_the_marks),
        cmocka_unit_test(fields_that_a_kind_does_not_use_are_not_compared),
        cmocka_unit_test(differences_of_two_operations_do_not_cancel),
        cmocka_unit_test(operators_of_the_caller_are_compared_by_name),
        cmocka_unit_test(every_way_to_call_is_recorded_with_its_site),
        cmocka_unit_test(calls_of_a_batch_have_their_own_numbers),
        cmocka_unit_test(a_receive_from_any_source_learns_its_sender),
        cmocka_unit_test(a_failure_is_the_state_of_its_operation),
        cmocka_unit_test(a_failure_that_a_group_survives_leaves_marks_that_agree),
        cmocka_unit_test(counts_of_v_forms_are_kept),
        cmocka_unit_test(without_a_record_calls_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
