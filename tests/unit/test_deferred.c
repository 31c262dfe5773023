/* SPDX-License-Identifier: Apache-2.0
 *
 * Deferred requests: the thread that waits executes them without a list or a lock; whatever else
 * needs the queue before makes them requests as any other, in their order.
 */
#include "null_group.h"
#include "ops/request.h"
#include "progress/progress_owner.h"
#include "progress/progress_queue.h"

#include "base/loop.h"

#include <collrun/collrun.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { SHORT = 16, PATIENCE_S = 30 };

static struct {
    struct collrun_group *group;
    struct p2p *p2p;
    unsigned ntaken;              /* receives by recv_short */
    bool late;                    /* recv_short does not find its message */
    struct collrun_message *sent; /* to this rank itself, as it were: the next one that arrives */
} wire;

static int wire_send(void *group, struct collrun_message *m)
{
    (void)group;
    wire.sent = m;
    return COLLRUN_OK;
}

static int wire_recv(void *group, struct collrun_message *m, const void *packet, size_t len)
{
    (void)group;
    memcpy(m->data, packet, len);
    wire.p2p->table.done(wire.p2p->table.ctx, m);
    return COLLRUN_OK;
}

static int wire_recv_short(void *group, const struct collrun_message *m)
{
    (void)group;
    if (wire.late)
        return COLLRUN_AGAIN;
    memset(m->data, 's', m->len);
    wire.ntaken++;
    return COLLRUN_OK;
}

static int wire_progress(void *group, uint64_t wait_ns)
{
    (void)group, (void)wait_ns;
    struct collrun_message *m = wire.sent;
    wire.sent = NULL;
    if (!m)
        return COLLRUN_OK;
    const struct collrun_p2p *table = &wire.p2p->table;
    int rc = table->arrived(table->ctx, 1, &m->envelope, m->data, m->len);
    table->done(table->ctx, m);
    return rc == COLLRUN_OK ? COLLRUN_AGAIN : rc;
}

static const struct collrun_transport transport = {
    .size = (uint32_t)sizeof(struct collrun_transport),
    .message_size = (uint32_t)sizeof(struct collrun_message),
    .send = wire_send,
    .recv = wire_recv,
    .progress = wire_progress,
    .recv_short = wire_recv_short,
};

static struct progress_queue *queue(enum group_queue which)
{
    return wire.group->backends[0].pq[which];
}

static struct collrun_call allreduce(size_t count)
{
    static float in[8], out[8];
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    call.send = in;
    call.recv = out;
    call.count = count;
    call.dtype = COLLRUN_FLOAT32;
    call.op = COLLRUN_SUM;
    return call;
}

static struct collrun_request *start(struct collrun_call call)
{
    return null_group_start(wire.group, call);
}

static void collect(struct collrun_request *r)
{
    if (collrun_kind_is_message(r->calls->kind))
        assert_int_equal(collrun_cancel(r), COLLRUN_OK);
    else
        assert_int_equal(collrun_wait(r), COLLRUN_OK);
}

/* The worker leaves the queue alone while a thread waits: as one does now. */
static void keep_worker_away(struct progress_queue *pq, unsigned waiting)
{
    pthread_mutex_lock(&pq->lock);
    pq->waiters.active = waiting;
    pthread_mutex_unlock(&pq->lock);
}

/* The first request of a queue starts its worker, and is not deferred; nor is one that finds the
 * worker asleep. With `kept` the worker cannot take it over. */
static struct collrun_request *start_deferred(struct collrun_call call, bool kept)
{
    struct progress_queue *pq =
        queue(collrun_kind_is_message(call.kind) ? GROUP_MESSAGES : GROUP_COLLECTIVES);
    const uint64_t until = now_ns() + PATIENCE_S * UINT64_C(1000000000);
    while (now_ns() < until) {
        struct collrun_request *r = start(call);
        keep_worker_away(pq, kept);
        if (atomic_load(&pq->requests.deferred) == r)
            return r;
        keep_worker_away(pq, 0);
        collect(r);
    }
    fail_msg("no request was deferred");
    return NULL;
}

static int setup(void **state)
{
    (void)state;
    memset(&wire, 0, sizeof wire);
    wire.group = null_group_new(0, 2, COLLRUN_BACKEND_ENVELOPES | COLLRUN_BACKEND_TAGS);
    wire.p2p = wire.group ? null_group_carry(wire.group, &transport) : NULL;
    return wire.p2p ? 0 : 1;
}

/* Nothing is left of the requests of a test. */
static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        keep_worker_away(queue((enum group_queue)i), 0);
    assert_null(wire.group->requests.newest);
    request_spare_close(wire.group);
    assert_int_equal(atomic_load(&wire.group->refs), 1);
    null_group_free(wire.group);
    return 0;
}

static void await_finished(const struct collrun_request *r)
{
    const uint64_t until = now_ns() + PATIENCE_S * UINT64_C(1000000000);
    while (atomic_load(&r->status) == COLLRUN_AGAIN && now_ns() < until)
        sched_yield();
    assert_int_equal(atomic_load(&r->status), COLLRUN_OK);
}

static void the_waiting_thread_executes_it_alone(void **state)
{
    (void)state;
    struct collrun_request *r = start_deferred(allreduce(3), true);
    const unsigned before = null_backend.calls;
    assert_false(pq_is_idle(queue(GROUP_COLLECTIVES)));
    assert_null(wire.group->requests.newest);
    assert_int_equal(collrun_wait(r), COLLRUN_OK);
    assert_int_equal(null_backend.calls, before + 1);
    assert_int_equal(null_backend.last.count, 3);
    assert_true(pq_is_idle(queue(GROUP_COLLECTIVES)));
    assert_int_equal(atomic_load(&queue(GROUP_COLLECTIVES)->owner), PQ_FREE);
}

static void the_worker_executes_what_no_thread_waits_for(void **state)
{
    (void)state;
    struct collrun_request *r = start_deferred(allreduce(3), false);
    await_finished(r);
    assert_ptr_equal(wire.group->requests.newest, r); /* it is reported unless it is collected */
    assert_int_equal(collrun_wait(r), COLLRUN_OK);
}

static void polling_ends_it(void **state)
{
    (void)state;
    struct collrun_request *r = start_deferred(allreduce(3), false);
    const uint64_t until = now_ns() + PATIENCE_S * UINT64_C(1000000000);
    int rc = COLLRUN_AGAIN;
    while (rc == COLLRUN_AGAIN && now_ns() < until)
        rc = collrun_test(r);
    assert_int_equal(rc, COLLRUN_OK);
}

static void later_requests_come_after_it(void **state)
{
    (void)state;
    struct collrun_request *first = start_deferred(allreduce(3), true),
                           *second = start(allreduce(4));
    assert_null(atomic_load(&queue(GROUP_COLLECTIVES)->requests.deferred));
    assert_int_equal(collrun_wait(second), COLLRUN_OK);
    assert_int_equal(atomic_load(&first->status), COLLRUN_OK);
    assert_int_equal(null_backend.last.count, 4);
    assert_int_equal(collrun_wait(first), COLLRUN_OK);
}

static void blocking_calls_come_after_it(void **state)
{
    (void)state;
    struct collrun_request *r = start_deferred(allreduce(3), true);
    struct collrun_call call = allreduce(5);
    assert_int_equal(collrun_run(wire.group, &call, 1), COLLRUN_OK);
    assert_int_equal(atomic_load(&r->status), COLLRUN_OK);
    assert_int_equal(null_backend.last.count, 5);
    assert_int_equal(collrun_wait(r), COLLRUN_OK);
}

static void a_failure_reaches_the_waiting_thread(void **state)
{
    (void)state;
    struct collrun_request *r = start_deferred(allreduce(3), true);
    null_backend.answer = COLLRUN_ERR_BACKEND;
    assert_int_equal(collrun_wait(r), COLLRUN_ERR_BACKEND);
    assert_non_null(strstr(collrun_error(), "allreduce test#"));
    assert_true(pq_is_idle(queue(GROUP_COLLECTIVES)));
}

/* Whether it was in the queue the last time or not. */
static void it_can_be_started_again(void **state)
{
    (void)state;
    struct collrun_request *first = start_deferred(allreduce(3), true);
    const uint64_t number = first->number;
    assert_true(first->plain);
    for (unsigned i = 1; i < 8; i++) {
        if (i % 2) { /* the first one goes into the queue now */
            struct collrun_request *second = start(allreduce(4));
            assert_true(first->listed);
            assert_int_equal(collrun_wait(second), COLLRUN_OK);
        }
        const unsigned calls = null_backend.calls;
        assert_int_equal(collrun_wait(first), COLLRUN_OK);
        assert_int_equal(null_backend.calls, i % 2 ? calls : calls + 1);
        keep_worker_away(queue(GROUP_COLLECTIVES), 0);
        struct collrun_request *again = start_deferred(allreduce(3), true);
        assert_ptr_equal(again, first);
        assert_false(first->listed);
        assert_true(first->number > number);
        assert_int_equal(atomic_load(&first->status), COLLRUN_AGAIN);
    }
    assert_int_equal(collrun_wait(first), COLLRUN_OK);
}

static void a_group_that_fails_meanwhile_ends_it(void **state)
{
    (void)state;
    struct collrun_request *r = start_deferred(allreduce(3), true);
    const unsigned before = null_backend.calls;
    group_abort(wire.group, COLLRUN_ERR_PEER_FAILED, "rank 1 is gone");
    assert_int_equal(collrun_wait(r), COLLRUN_ERR_PEER_FAILED);
    assert_non_null(strstr(collrun_error(), "rank 1 is gone"));
    assert_int_equal(null_backend.calls, before);
    const struct collrun_call call = allreduce(3);
    assert_int_equal(collrun_start(wire.group, &call, &r), COLLRUN_ERR_PEER_FAILED);
    assert_true(pq_is_idle(queue(GROUP_COLLECTIVES)));
}

static void a_short_receive_is_taken_by_the_waiting_thread(void **state)
{
    (void)state;
    char in[4] = "";
    struct collrun_request *r =
        start_deferred(null_group_message(COLLRUN_RECV, in, sizeof in), true);
    assert_int_equal(wire.ntaken, 0);
    assert_int_equal(collrun_wait(r), COLLRUN_OK);
    assert_int_equal(wire.ntaken, 1);
    assert_memory_equal(in, "ssss", 4);
}

static void a_receive_whose_message_is_late_waits_for_it(void **state)
{
    (void)state;
    char in[4] = "", data[] = {'l', 'a', 't', 'e'};
    struct collrun_request *r =
        start_deferred(null_group_message(COLLRUN_RECV, in, sizeof in), true);
    struct collrun_request *send = start(null_group_message(COLLRUN_SEND, data, sizeof data));
    assert_int_equal(collrun_wait(r),
                     COLLRUN_OK); /* admitted, since a send was started behind it */
    assert_int_equal(wire.ntaken, 0);
    assert_memory_equal(in, "late", 4);
    assert_int_equal(collrun_wait(send), COLLRUN_OK);
}

static void a_deferred_receive_can_be_canceled(void **state)
{
    (void)state;
    char in[4] = "";
    struct collrun_request *r =
        start_deferred(null_group_message(COLLRUN_RECV, in, sizeof in), true);
    assert_int_equal(collrun_cancel(r), COLLRUN_OK);
    assert_true(pq_is_idle(queue(GROUP_MESSAGES)));
    assert_int_equal(wire.ntaken, 0);
}

/* A thread that needs the queue: the one inside gives way, and its receive goes on as a request. */
static void a_receive_gives_way_to_other_threads(void **state)
{
    (void)state;
    char in[4] = "", data[] = {'l', 'a', 't', 'e'};
    struct progress_queue *pq = queue(GROUP_MESSAGES);
    struct collrun_request *r =
        start_deferred(null_group_message(COLLRUN_RECV, in, sizeof in), true);
    wire.late = true;
    assert_true(pq_enter_deferred(r));
    atomic_store(&pq->contended, true);
    assert_int_equal(pq->config.ops->exec(pq->config.ctx, r), COLLRUN_AGAIN);
    pq_leave_deferred(r, COLLRUN_AGAIN);
    assert_int_equal(atomic_load(&pq->pending), 1);
    struct collrun_request *send = start(null_group_message(COLLRUN_SEND, data, sizeof data));
    pq_wait(r);
    assert_int_equal(collrun_wait(r), COLLRUN_OK);
    assert_memory_equal(in, "late", 4);
    assert_int_equal(collrun_wait(send), COLLRUN_OK);
}

#define DEFERRED_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DEFERRED_TEST(the_waiting_thread_executes_it_alone),
        DEFERRED_TEST(the_worker_executes_what_no_thread_waits_for),
        DEFERRED_TEST(polling_ends_it),
        DEFERRED_TEST(later_requests_come_after_it),
        DEFERRED_TEST(blocking_calls_come_after_it),
        DEFERRED_TEST(a_failure_reaches_the_waiting_thread),
        DEFERRED_TEST(it_can_be_started_again),
        DEFERRED_TEST(a_group_that_fails_meanwhile_ends_it),
        DEFERRED_TEST(a_short_receive_is_taken_by_the_waiting_thread),
        DEFERRED_TEST(a_receive_whose_message_is_late_waits_for_it),
        DEFERRED_TEST(a_deferred_receive_can_be_canceled),
        DEFERRED_TEST(a_receive_gives_way_to_other_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
