/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that share a queue whose transport can be woken: one that waits inside the transport lets
 * the others in at once. The transport here moves nothing while it waits, and returns from a wait
 * only when it is woken.
 */
#include "progress/progress_queue.h"

#include "base/loop.h"
#include "core/backend.h"
#include "core/services.h"
#include "progress/progress.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A wait that is longer than this was not woken. */
enum { LIMIT_NS = 1000000000 };

struct wire {
    struct p2p *p2p;
    struct collrun_message *sent;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool waiting, woken;
    unsigned nwoken, nlost; /* waits that were woken; that reached LIMIT_NS */
};

static int wire_send(void *group, struct collrun_message *message)
{
    struct wire *w = group;
    w->sent = message;
    return COLLRUN_OK;
}

static int wire_recv(void *group, struct collrun_message *message, const void *packet, size_t len)
{
    struct wire *w = group;
    memcpy(message->data, packet, len);
    w->p2p->table.done(w->p2p->table.ctx, message);
    return COLLRUN_OK;
}

static void wire_wait(struct wire *w, uint64_t wait_ns)
{
    uint64_t until = now_ns() + (wait_ns < LIMIT_NS ? wait_ns : LIMIT_NS);
    struct timespec at = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
    int rc = 0;
    pthread_mutex_lock(&w->lock);
    w->waiting = true;
    pthread_cond_broadcast(&w->changed);
    while (!w->woken && rc == 0)
        rc = pthread_cond_timedwait(&w->changed, &w->lock, &at);
    w->nwoken += w->woken;
    w->nlost += !w->woken && wait_ns >= LIMIT_NS;
    w->waiting = w->woken = false;
    pthread_mutex_unlock(&w->lock);
}

static int wire_progress(void *group, uint64_t wait_ns)
{
    struct wire *w = group;
    const struct collrun_p2p *table = &w->p2p->table;
    struct collrun_message *m = w->sent;
    w->sent = NULL;
    if (!m && wait_ns > 0)
        wire_wait(w, wait_ns);
    if (!m)
        return COLLRUN_OK;
    int rc = table->arrived(table->ctx, 1, &m->envelope, m->data, m->len);
    table->done(table->ctx, m);
    return rc == COLLRUN_OK ? COLLRUN_AGAIN : rc;
}

static void wire_wake(void *group)
{
    struct wire *w = group;
    pthread_mutex_lock(&w->lock);
    w->woken = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void wire_await_waiting(struct wire *w)
{
    pthread_mutex_lock(&w->lock);
    while (!w->waiting)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

static const struct collrun_transport transport = {
    .size = (uint32_t)sizeof(struct collrun_transport),
    .message_size = (uint32_t)sizeof(struct collrun_message),
    .send = wire_send,
    .recv = wire_recv,
    .progress = wire_progress,
    .wake = wire_wake,
};

static void begin(const struct collrun_request *r)
{
    (void)r;
}

static int finished(struct collrun_request *r, int status)
{
    (void)r;
    return status;
}

static int exec_collective(void *ctx, struct collrun_request *r);

static const struct pq_ops ops = {.begin = begin, .exec = exec_collective, .finished = finished};

struct fixture {
    struct services services;
    atomic_int busy;
    atomic_int failed;
    struct wire wire;
    struct progress_queue pq;
    struct backend backend; /* which starts messages alone */
    bool executes;
    atomic_bool inside, leave;
    char in, out;
    struct collrun_call calls[2]; /* recv, send */
    struct collrun_request requests[2];
};

static void fixture_reset(struct fixture *f)
{
    for (int i = 0; i < 2; i++)
        f->requests[i] = (struct collrun_request){
            .calls = &f->calls[i], .ncalls = 1, .number = 1, .deadline_ns = UINT64_MAX};
}

static struct fixture *fixture_new(void)
{
    struct fixture *f = calloc(1, sizeof *f);
    pthread_condattr_t monotonic;
    assert_non_null(f);
    services_init(&f->services, NULL, NULL, NULL, "test");
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&f->wire.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&f->wire.lock, NULL);
    f->wire.p2p = p2p_new(&transport, &f->services.table, 0, 2);
    assert_non_null(f->wire.p2p);
    f->wire.p2p->handle = &f->wire;
    pq_init(&f->pq, &(struct pq_config){.backend = &f->backend,
                                        .handle = &f->wire,
                                        .ctx = f,
                                        .p2p = f->wire.p2p,
                                        .ops = &ops,
                                        .failed = &f->failed,
                                        .busy = &f->busy});
    f->out = 7;
    for (int i = 0; i < 2; i++) {
        f->calls[i] = (struct collrun_call)COLLRUN_CALL(i == 0 ? COLLRUN_RECV : COLLRUN_SEND);
        f->calls[i].recv = &f->in;
        f->calls[i].send = &f->out;
        f->calls[i].count = 1;
        f->calls[i].dtype = COLLRUN_UINT8;
        f->calls[i].peer = 1;
        f->calls[i].timeout_ns = UINT64_MAX / 2;
    }
    fixture_reset(f);
    return f;
}

static void fixture_free(struct fixture *f)
{
    pq_stop(&f->pq);
    pq_fini(&f->pq);
    p2p_free(f->wire.p2p);
    pthread_mutex_destroy(&f->wire.lock);
    pthread_cond_destroy(&f->wire.changed);
    free(f);
}

/* A blocking receive on an idle queue, which goes on as a request. */
static void *receive_directly(void *arg)
{
    struct fixture *f = arg;
    struct collrun_request *r = &f->requests[0];
    if (!pq_enter_direct(&f->pq))
        return "the queue is not idle";
    if (p2p_exec(f->wire.p2p, r->calls, 1, &r->batch, &f->pq.contended) != COLLRUN_AGAIN)
        return "the receive was not interrupted";
    pq_adopt(&f->pq, r);
    pq_wait(r);
    return NULL;
}

static void *receive_as_request(void *arg)
{
    struct fixture *f = arg;
    if (pq_submit(&f->pq, &f->requests[0]) != COLLRUN_OK)
        return "the receive was refused";
    pq_wait(&f->requests[0]);
    return NULL;
}

/* The receive waits inside the transport; then this thread sends what it receives. */
static void send_to(struct fixture *f, void *(*receive)(void *))
{
    pthread_t thread;
    void *failure = NULL;
    assert_int_equal(pthread_create(&thread, NULL, receive, f), 0);
    wire_await_waiting(&f->wire);
    assert_int_equal(pq_submit(&f->pq, &f->requests[1]), COLLRUN_OK);
    pq_wait(&f->requests[1]);
    assert_int_equal(pthread_join(thread, &failure), 0);
    if (failure)
        fail_msg("%s", (const char *)failure);
    assert_int_equal(atomic_load(&f->requests[0].status), COLLRUN_OK);
    assert_int_equal(atomic_load(&f->requests[1].status), COLLRUN_OK);
    assert_int_equal(f->in, 7);
    assert_true(f->wire.nwoken > 0);
    assert_int_equal(f->wire.nlost, 0);
}

static void send_beside(void *(*receive)(void *))
{
    struct fixture *f = fixture_new();
    send_to(f, receive);
    fixture_free(f);
}

static void a_send_wakes_a_thread_that_is_directly_inside(void **state)
{
    (void)state;
    send_beside(receive_directly);
}

static void a_send_wakes_a_thread_that_waits_for_a_request(void **state)
{
    (void)state;
    send_beside(receive_as_request);
}

/* As if the last meeting of two threads was long ago; then both messages as requests. */
static void exchange_later(struct fixture *f)
{
    pthread_mutex_lock(&f->pq.lock);
    f->pq.needed_ns = 0;
    pthread_mutex_unlock(&f->pq.lock);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pq_submit(&f->pq, &f->requests[i]), COLLRUN_OK);
    for (int i = 0; i < 2; i++)
        pq_wait(&f->requests[i]);
    fixture_reset(f);
}

static void blocking_calls_are_direct_again_some_time_after_a_meeting(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
    send_to(f, receive_directly);
    fixture_reset(f);
    assert_false(pq_enter_direct(&f->pq));
    bool direct = false;
    for (int i = 0; i < 100 && !direct; i++) { /* the worker may meet this thread */
        exchange_later(f);
        direct = pq_enter_direct(&f->pq);
    }
    assert_true(direct);
    pq_leave_direct(&f->pq);
    fixture_free(f);
}

static void an_evicted_queue_takes_no_call(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
    assert_true(pq_hold(&f->pq));
    pq_let_go(&f->pq);
    pq_evict(&f->pq);
    assert_false(pq_enter_direct(&f->pq) || pq_hold(&f->pq));
    assert_int_equal(pq_submit(&f->pq, &f->requests[0]), COLLRUN_ERR_ABORTED);
    assert_true(pq_is_idle(&f->pq));
    fixture_free(f);
}

/* They have entered the group before it was closed, and come to its queue after that. */
static void threads_that_are_late_may_look_at_a_stopped_queue(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
    struct p2p_probe probe = {.source = 1};
    pq_evict(&f->pq);
    pq_stop(&f->pq);
    f->requests[0].pq = &f->pq;
    atomic_store(&f->requests[0].status, COLLRUN_OK);
    assert_false(pq_poll(&f->pq));
    pq_wait(&f->requests[0]);
    assert_int_equal(pq_withdraw(&f->requests[0]), COLLRUN_AGAIN);
    assert_int_equal(pq_probe(&f->pq, &probe), COLLRUN_ERR_ABORTED);
    assert_int_equal(pq_wait_begin(&f->pq), COLLRUN_ERR_ABORTED);
    fixture_free(f);
}

static void a_withdrawal_wakes_the_owner(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
    struct collrun_call other = f->calls[0];
    struct collrun_request second = f->requests[0];
    pthread_t thread;
    other.tag = 5;
    second.calls = &other;
    assert_int_equal(pq_submit(&f->pq, &second), COLLRUN_OK);
    assert_int_equal(pthread_create(&thread, NULL, receive_as_request, f), 0);
    wire_await_waiting(&f->wire);
    assert_int_equal(pq_withdraw(&second), COLLRUN_OK);
    assert_int_equal(pq_submit(&f->pq, &f->requests[1]), COLLRUN_OK);
    pq_wait(&f->requests[1]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(f->wire.nlost, 0);
    fixture_free(f);
}

/* What an emulated collective does between its messages, until another thread lets it end. */
static int exec_collective(void *ctx, struct collrun_request *r)
{
    struct fixture *f = ctx;
    struct progress_queue *pq = r->pq;
    atomic_store(&pq->executing, f->executes);
    atomic_store(&f->inside, true);
    while (!atomic_load(&f->leave)) {
        if (f->executes)
            sched_yield();
        else
            progress_test_in_flight(pq, PROGRESS_TEST_ALL);
    }
    atomic_store(&pq->executing, false);
    return COLLRUN_OK;
}

static void *run_collective(void *arg)
{
    struct fixture *f = arg;
    struct collrun_call call = COLLRUN_CALL(COLLRUN_BARRIER);
    struct collrun_request r = {
        .calls = &call, .ncalls = 1, .number = 1, .deadline_ns = UINT64_MAX};
    if (pq_submit(&f->pq, &r) != COLLRUN_OK)
        return "the collective was refused";
    pq_wait(&r);
    return NULL;
}

/* The collective ends after the withdrawal only. `executes`: in one call of the backend. */
static void withdraw_beside(bool executes)
{
    struct fixture *f = fixture_new();
    pthread_t thread;
    f->executes = executes;
    assert_int_equal(pq_submit(&f->pq, &f->requests[0]), COLLRUN_OK);
    assert_int_equal(pthread_create(&thread, NULL, run_collective, f), 0);
    while (!atomic_load(&f->inside))
        sched_yield();
    assert_int_equal(pq_withdraw(&f->requests[0]), executes ? COLLRUN_ERR_UNSUPPORTED : COLLRUN_OK);
    assert_int_equal(f->wire.p2p->nactive, executes);
    atomic_store(&f->leave, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (executes)
        assert_int_equal(pq_withdraw(&f->requests[0]), COLLRUN_OK);
    fixture_free(f);
}

static void a_withdrawal_does_not_wait_for_a_collective(void **state)
{
    (void)state;
    withdraw_beside(false);
}

static void a_withdrawal_is_refused_while_the_backend_executes(void **state)
{
    (void)state;
    withdraw_beside(true);
}

/* ---- the worker ---- */

static bool worker_is_asleep(struct progress_queue *pq)
{
    pthread_mutex_lock(&pq->lock);
    bool asleep = pq->worker.asleep;
    pthread_mutex_unlock(&pq->lock);
    return asleep;
}

/* Submits a collective, twice: the second time the worker sleeps until it is woken. */
static void leave_to_the_worker(bool polls)
{
    struct fixture *f = fixture_new();
    struct collrun_call call = COLLRUN_CALL(COLLRUN_BARRIER);
    atomic_store(&f->leave, true);
    for (int round = 0; round < 2; round++) {
        struct collrun_request r = {
            .calls = &call, .ncalls = 1, .number = 1, .deadline_ns = UINT64_MAX};
        assert_int_equal(pq_submit(&f->pq, &r), COLLRUN_OK);
        while (!request_is_finished(&r)) {
            if (polls)
                pq_poll(&f->pq);
            sched_yield();
        }
        while (!worker_is_asleep(&f->pq))
            sched_yield();
    }
    fixture_free(f);
}

static void the_worker_executes_what_no_thread_waits_for(void **state)
{
    (void)state;
    leave_to_the_worker(false);
}

static void the_worker_executes_what_a_thread_polls(void **state)
{
    (void)state;
    leave_to_the_worker(true);
}

/* One that is submitted and waited for at once, again and again: a worker that were woken for each
 * would have looked at the queue about as often. */
static void waiting_at_once_wakes_no_worker(void **state)
{
    enum { CALLS = 2000 };
    struct fixture *f = fixture_new();
    struct collrun_call call = COLLRUN_CALL(COLLRUN_BARRIER);
    (void)state;
    atomic_store(&f->leave, true);
    for (int i = 0; i < CALLS; i++) {
        struct collrun_request r = {
            .calls = &call, .ncalls = 1, .number = 1, .deadline_ns = UINT64_MAX};
        assert_int_equal(pq_submit(&f->pq, &r), COLLRUN_OK);
        pq_wait(&r);
    }
    pthread_mutex_lock(&f->pq.lock);
    assert_true(f->pq.worker.nwakes < CALLS / 10);
    pthread_mutex_unlock(&f->pq.lock);
    fixture_free(f);
}

/* ---- messages that the backend starts ---- */

enum { MANY = 200 };

static struct {
    pthread_t starter;
    unsigned tests; /* by the thread that starts the messages */
    atomic_bool complete;
} slow;

static int slow_start(void *group, const struct collrun_call *calls, uint32_t ncalls,
                      void **request)
{
    (void)group;
    (void)ncalls;
    *request = (void *)(uintptr_t)calls;
    return COLLRUN_OK;
}

static int slow_test(void *group, void *request)
{
    (void)group;
    (void)request;
    slow.tests += pthread_equal(pthread_self(), slow.starter) != 0;
    return atomic_load(&slow.complete) ? COLLRUN_OK : COLLRUN_AGAIN;
}

/* A queue whose messages the backend starts and matches. */
static void backend_queue_init(struct progress_queue *pq, struct fixture *f,
                               struct backend *backend)
{
    pq_init(pq, &(struct pq_config){
                    .backend = backend, .ops = &ops, .failed = &f->failed, .busy = &f->busy});
}

static void starting_many_messages_tests_few(void **state)
{
    static struct collrun_request requests[MANY];
    struct fixture *f = fixture_new();
    struct backend backend = {.table = {.start = slow_start, .test = slow_test},
                              .has_start = true,
                              .same_calls = true,
                              .native = {[COLLRUN_RECV][COLLRUN_UINT8] = 1}};
    struct progress_queue pq;
    (void)state;
    backend_queue_init(&pq, f, &backend);
    slow.starter = pthread_self();
    for (int i = 0; i < MANY; i++) {
        requests[i] = (struct collrun_request){
            .calls = &f->calls[0], .ncalls = 1, .number = 1, .deadline_ns = UINT64_MAX};
        assert_int_equal(pq_submit(&pq, &requests[i]), COLLRUN_OK);
    }
    assert_true(slow.tests >= 1 && slow.tests <= 2 * MANY);
    atomic_store(&slow.complete, true);
    for (int i = 0; i < MANY; i++)
        pq_wait(&requests[i]);
    pq_stop(&pq);
    pq_fini(&pq);
    fixture_free(f);
}

static unsigned nstarted;

static int count_start(void *group, const struct collrun_call *calls, uint32_t ncalls,
                       void **request)
{
    nstarted++;
    return slow_start(group, calls, ncalls, request);
}

static int test_that_both_are_started(void *group, void *request)
{
    (void)group;
    (void)request;
    return nstarted == 2 ? COLLRUN_OK : COLLRUN_AGAIN;
}

static int exec_at_once(void *group, const struct collrun_call *calls, uint32_t ncalls)
{
    (void)group;
    (void)calls;
    (void)ncalls;
    return COLLRUN_OK;
}

/* The peer of an emulated collective's message may wait for the other one first. */
static void a_message_is_started_while_the_owner_executes_another(void **state)
{
    struct fixture *f = fixture_new();
    struct backend backend = {
        .table = {.start = count_start, .test = test_that_both_are_started, .exec = exec_at_once},
        .has_start = true,
        .has_exec = true,
        .same_calls = true,
        .native = {[COLLRUN_RECV][COLLRUN_UINT8] = 1}};
    struct progress_queue pq;
    (void)state;
    backend_queue_init(&pq, f, &backend);
    pq_acquire(&pq);
    assert_int_equal(pq_submit(&pq, &f->requests[0]), COLLRUN_OK);
    assert_int_equal(nstarted, 0);
    assert_int_equal(progress_exec(&pq, &f->calls[1], 1), COLLRUN_OK);
    assert_int_equal(nstarted, 2);
    pq_release(&pq);
    pq_wait(&f->requests[0]);
    pq_stop(&pq);
    pq_fini(&pq);
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_send_wakes_a_thread_that_is_directly_inside),
        cmocka_unit_test(a_send_wakes_a_thread_that_waits_for_a_request),
        cmocka_unit_test(blocking_calls_are_direct_again_some_time_after_a_meeting),
        cmocka_unit_test(an_evicted_queue_takes_no_call),
        cmocka_unit_test(threads_that_are_late_may_look_at_a_stopped_queue),
        cmocka_unit_test(a_withdrawal_wakes_the_owner),
        cmocka_unit_test(a_withdrawal_does_not_wait_for_a_collective),
        cmocka_unit_test(a_withdrawal_is_refused_while_the_backend_executes),
        cmocka_unit_test(the_worker_executes_what_no_thread_waits_for),
        cmocka_unit_test(the_worker_executes_what_a_thread_polls),
        cmocka_unit_test(waiting_at_once_wakes_no_worker),
        cmocka_unit_test(starting_many_messages_tests_few),
        cmocka_unit_test(a_message_is_started_while_the_owner_executes_another),
    };
    return cmocka_run_group_tests_name("progress_queue", tests, NULL, NULL);
}
