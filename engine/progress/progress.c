/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend is only called from here (and from pq_order_stream). `requests.in_flight` belongs to
 * the owner of the queue; the other lists are under the queue's lock.
 */
#include "progress/progress.h"

#include "base/loop.h"
#include "base/standstill.h"
#include "core/backend.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

/* A waiting thread first spins, then yields, then sleeps: ranks often outnumber cores. */
enum { SPIN_ROUNDS = 64, YIELD_ROUNDS = 1000, SLEEP_NS = 50000 };

/* ---- finishing ---- */

static void progress_finish(struct collrun_request *r, int status)
{
    struct progress_queue *pq = r->pq;
    status = pq->config.ops->finished(r, status);
    pthread_mutex_lock(&pq->lock);
    pq_remove_unfinished(r);
    request_move(r, REQUEST_OUTSIDE);
    atomic_store_explicit(&r->status, status, memory_order_release);
    if (pq->waiters.sleeping)
        pthread_cond_broadcast(&pq->changed);
    pthread_mutex_unlock(&pq->lock);
}

/* Each fails alike; the cause is stored. */
static void progress_fail_list(struct collrun_request *list, int status)
{
    struct error_record cause = *error_get();
    for (struct collrun_request *r = list, *next; r; r = next) {
        next = r->next;
        error_restore(&cause);
        progress_finish(r, status);
    }
}

/* Finishes all requests of a list with one status; the cause of a failure is stored. */
static void progress_finish_list(struct collrun_request *list, int status)
{
    if (status != COLLRUN_OK) {
        progress_fail_list(list, status);
        return;
    }
    for (struct collrun_request *r = list, *next; r; r = next) {
        next = r->next;
        progress_finish(r, status);
    }
}

/* ---- the queue ---- */

static struct collrun_request *progress_pop(struct pq_requests *q)
{
    struct collrun_request *r = q->queue;
    q->queue = r->next;
    if (!q->queue)
        q->queue_end = &q->queue;
    r->next = NULL;
    request_move(r, REQUEST_TAKEN);
    pq_count_queued(q, -1);
    return r;
}

/* The next request, or a batch of messages as a list. Without `may_block`: only a request that the
 * backend can start. */
static struct collrun_request *progress_dequeue(struct progress_queue *pq, bool may_block)
{
    struct pq_requests *q = &pq->requests;
    struct collrun_request *first = NULL, **end = &first;
    if (pq_queue_is_empty(pq))
        return NULL;
    pthread_mutex_lock(&pq->lock);
    while (q->queue && (may_block || (pq->starts && !q->queue->needs_exec))) {
        if (first && (pq->starts || !request_is_message(first) || !request_is_message(q->queue)))
            break;
        *end = progress_pop(q);
        end = &(*end)->next;
    }
    pthread_mutex_unlock(&pq->lock);
    return first;
}

static bool progress_has_collectives(const struct progress_queue *pq)
{
    const struct collrun_request *r = pq->requests.in_flight;
    while (r && request_is_message(r))
        r = r->next;
    return r != NULL;
}

/* False: the first request of the queue has to be executed, and waits for the streams of its calls,
 * or for collectives in flight: these get no progress while it blocks. Only the owner of the queue
 * takes collectives out of it, so the request stays. */
static bool progress_head_is_ready(struct progress_queue *pq)
{
    if (pq_queue_is_empty(pq))
        return true;
    pthread_mutex_lock(&pq->lock);
    struct collrun_request *head = pq->requests.queue;
    pthread_mutex_unlock(&pq->lock);
    if (!head || !head->needs_exec || request_is_message(head))
        return true;
    return !progress_has_collectives(pq) && (!head->events || pq->config.ops->ready(head));
}

static void progress_push_front(struct progress_queue *pq, struct collrun_request *r)
{
    struct pq_requests *q = &pq->requests;
    pthread_mutex_lock(&pq->lock);
    request_move(r, REQUEST_QUEUED);
    r->next = q->queue;
    if (!q->queue)
        q->queue_end = &r->next;
    q->queue = r;
    pq_count_queued(q, 1);
    pthread_mutex_unlock(&pq->lock);
}

/* The first message of the queue, behind collectives or not; NULL: none, or the backend cannot
 * start it. */
static struct collrun_request *progress_dequeue_message(struct progress_queue *pq)
{
    struct collrun_request **p = &pq->requests.queue, *r;
    if (pq_queue_is_empty(pq))
        return NULL;
    pthread_mutex_lock(&pq->lock);
    while ((r = *p) && !request_is_message(r))
        p = &r->next;
    if (r && !r->needs_exec) {
        *p = r->next;
        if (!r->next)
            pq->requests.queue_end = p;
        r->next = NULL;
        request_move(r, REQUEST_TAKEN);
        pq_count_queued(&pq->requests, -1);
    } else {
        r = NULL;
    }
    pthread_mutex_unlock(&pq->lock);
    return r;
}

/* ---- executing ---- */

static int progress_failure(const struct progress_queue *pq)
{
    return atomic_load_explicit(pq->config.failed, memory_order_acquire);
}

/* The calls of several requests in one array. NULL: out of memory, and the cause is stored. */
static struct collrun_call *progress_join_calls(const struct collrun_request *list, uint32_t n)
{
    struct collrun_call *calls = calloc(n, sizeof *calls);
    uint32_t at = 0;
    if (!calls)
        error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for %u messages", n);
    for (const struct collrun_request *r = list; calls && r; r = r->next) {
        for (uint32_t i = 0; i < r->ncalls; i++)
            calls[at++] = r->calls[i];
    }
    return calls;
}

static int progress_exec_batch(struct progress_queue *pq, struct collrun_request *list)
{
    uint32_t n = 0;
    if (!list->next)
        return pq->config.ops->exec(pq->config.ctx, list);
    for (const struct collrun_request *r = list; r; r = r->next)
        n += r->ncalls;
    struct collrun_call *calls = progress_join_calls(list, n);
    int rc = calls ? progress_exec(pq, calls, n) : COLLRUN_ERR_NO_MEMORY;
    free(calls);
    return rc;
}

/* ---- withdrawing ---- */

int progress_withdraw(struct progress_queue *pq, struct collrun_request *r)
{
    const struct backend *b = pq->config.backend;
    error_clear_cause();
    int rc = pq->config.p2p    ? p2p_withdraw(pq->config.p2p, &r->batch)
             : b->has_withdraw ? backend_withdraw(b, pq->config.handle, r->handle)
                               : COLLRUN_ERR_UNSUPPORTED;
    struct collrun_request **p = &pq->requests.in_flight;
    while (rc == COLLRUN_OK && *p && *p != r)
        p = &(*p)->next;
    if (rc == COLLRUN_OK && *p)
        *p = r->next;
    return rc;
}

/* A request in flight that another thread wants to withdraw; NULL: none. */
static struct collrun_request *progress_begin_withdrawal(struct progress_queue *pq)
{
    struct collrun_request *r = pq->requests.in_flight;
    pthread_mutex_lock(&pq->lock);
    while (r && r->withdrawal != PQ_WITHDRAWAL_WANTED)
        r = r->next;
    if (r) {
        r->withdrawal = PQ_WITHDRAWAL_BEGUN;
        atomic_fetch_sub(&pq->withdrawals, 1);
    }
    pthread_mutex_unlock(&pq->lock);
    return r;
}

static void progress_withdraw_for_others(struct progress_queue *pq)
{
    struct collrun_request *r;
    while ((r = progress_begin_withdrawal(pq))) {
        int rc = progress_withdraw(pq, r);
        pthread_mutex_lock(&pq->lock);
        r->withdrawn = rc;
        r->withdrawal = PQ_WITHDRAWAL_NONE;
        pthread_cond_broadcast(&pq->changed);
        pthread_mutex_unlock(&pq->lock);
    }
}

/* ---- starting and testing ---- */

/* The messages that the engine matches; NULL: the backend has the request. */
static struct p2p *progress_p2p(const struct progress_queue *pq, const struct collrun_request *r)
{
    return request_is_message(r) ? pq->config.p2p : NULL;
}

void progress_add_in_flight(struct progress_queue *pq, struct collrun_request *r)
{
    struct collrun_request **end = &pq->requests.in_flight;
    pq_assert_owner(pq);
    request_move(r, REQUEST_IN_FLIGHT);
    while (*end)
        end = &(*end)->next;
    *end = r;
}

bool progress_start(struct progress_queue *pq, struct collrun_request *r)
{
    const struct backend *b = pq->config.backend;
    int failed = progress_failure(pq);
    error_clear_cause();
    if (failed) {
        progress_finish(r, failed);
        return true;
    }
    struct p2p *p2p = progress_p2p(pq, r);
    pq->config.ops->begin(r);
    int rc = p2p ? p2p_start(p2p, r->calls, r->ncalls, &r->batch)
                 : backend_start(b, pq->config.handle, r->calls, r->ncalls, &r->handle);
    r->batch.begun_ns = r->submitted_ns;
    if (rc == COLLRUN_ERR_UNSUPPORTED && !p2p && b->has_exec) {
        r->needs_exec = true;
        progress_push_front(pq, r);
        return false;
    }
    if (rc != COLLRUN_OK) {
        progress_finish(r, rc);
        return true;
    }
    progress_add_in_flight(pq, r);
    return true;
}

bool progress_start_queued(struct progress_queue *pq, const struct progress_args *args)
{
    bool any = false;
    struct collrun_request *list;
    while (!(args->awaited && request_is_finished(args->awaited))) {
        bool ready = progress_head_is_ready(pq);
        list = ready        ? progress_dequeue(pq, args->may_block)
               : pq->starts ? progress_dequeue_message(pq)
                            : NULL;
        if (!list)
            break;
        any = true;
        if (pq->starts && !list->needs_exec) {
            progress_start(pq, list);
            continue;
        }
        error_clear_cause();
        int failed = progress_failure(pq);
        for (const struct collrun_request *r = list; r; r = r->next)
            pq->config.ops->begin(r);
        progress_finish_list(list, failed ? failed : progress_exec_batch(pq, list));
    }
    return any;
}

/* True: the request has finished, and is not in flight any more. */
static bool progress_test(struct progress_queue *pq, struct collrun_request **link)
{
    struct collrun_request *r = *link;
    struct p2p *p2p = progress_p2p(pq, r);
    error_clear_cause();
    int rc = p2p ? p2p_check(p2p, &r->batch)
                 : backend_test(pq->config.backend, pq->config.handle, r->handle);
    if (rc != COLLRUN_AGAIN) {
        *link = r->next;
        progress_finish(r, rc);
        return true;
    }
    /* A backend that keeps no deadlines, or does not know that the group has failed (a copy of
     * another request has), is aborted; its request then ends as any other. */
    if (r->state != REQUEST_EXPIRED &&
        (progress_failure(pq) ||
         standstill_expired(now_coarse_ns(), &r->stopped_ns, &r->deadline_ns))) {
        request_move(r, REQUEST_EXPIRED);
        pq->config.ops->expired(r);
    }
    return false;
}

bool progress_test_in_flight(struct progress_queue *pq, enum progress_tests which)
{
    if (atomic_load_explicit(&pq->withdrawals, memory_order_relaxed))
        progress_withdraw_for_others(pq);
    struct collrun_request **link = &pq->requests.in_flight;
    bool any = *link && pq->config.p2p && p2p_progress(pq->config.p2p) == COLLRUN_AGAIN;
    bool skips = false;
    while (*link) {
        const bool of_backend = request_is_message(*link) && !pq->config.p2p;
        if (!(skips && of_backend) && progress_test(pq, link)) {
            any = true;
            continue;
        }
        skips = skips || (of_backend && which == PROGRESS_OLDEST_MESSAGE);
        link = &(*link)->next;
    }
    return any;
}

/* ---- probing ---- */

int progress_probe(struct progress_queue *pq, struct p2p_probe *probe)
{
    const struct backend *b = pq->config.backend;
    int failed = progress_failure(pq);
    error_clear_cause();
    if (failed)
        return failed;
    progress_start_queued(pq, &(struct progress_args){.may_block = false});
    progress_test_in_flight(pq, PROGRESS_TEST_ALL);
    error_clear_cause();
    return pq->config.p2p ? p2p_probe(pq->config.p2p, probe, 0)
                          : b->table.probe_message(pq->config.handle, probe->source, probe->tag,
                                                   &probe->envelope, &probe->from);
}

/* ---- blocking ---- */

bool progress_has_spun(unsigned round)
{
    return round >= SPIN_ROUNDS;
}

/* How long the requests in flight may be waited for; 0: one of them has to be tested. */
static uint64_t progress_longest_wait(const struct progress_queue *pq)
{
    uint64_t first = UINT64_MAX, now = now_ns();
    for (const struct collrun_request *r = pq->requests.in_flight; r; r = r->next) {
        uint64_t deadline =
            r->deadline_ns < r->batch.deadline_ns ? r->deadline_ns : r->batch.deadline_ns;
        if (!request_is_message(r))
            return 0;
        first = deadline < first ? deadline : first;
    }
    return first > now ? first - now : 0;
}

bool progress_block(struct progress_queue *pq)
{
    uint64_t wait_ns = progress_longest_wait(pq);
    if (wait_ns == 0) {
        progress_idle(YIELD_ROUNDS);
        return false;
    }
    error_clear_cause();
    bool moved = p2p_wait(pq->config.p2p, wait_ns) == COLLRUN_AGAIN;
    return progress_test_in_flight(pq, PROGRESS_TEST_ALL) || moved;
}

void progress_idle(unsigned round)
{
    if (round < SPIN_ROUNDS) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    } else if (round < YIELD_ROUNDS) {
        sched_yield();
    } else {
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
}

/* Before peers enter the same collective, they may need messages that were submitted before or
 * after it. True if a request has moved. */
static bool progress_messages(struct progress_queue *pq, bool has_messages)
{
    bool any = false;
    struct collrun_request *r;
    while (has_messages && pq->starts && (r = progress_dequeue_message(pq)) &&
           progress_start(pq, r))
        any = true;
    return progress_test_in_flight(pq, PROGRESS_TEST_ALL) || any;
}

/* Messages that the engine matches, beside those in flight. */
static int progress_exec_messages(struct progress_queue *pq, const struct collrun_call *calls,
                                  uint32_t ncalls)
{
    struct p2p *p2p = pq->config.p2p;
    struct p2p_batch batch;
    bool contended = atomic_load_explicit(&pq->contended, memory_order_relaxed);
    bool alone = !pq->requests.in_flight && (!pq->shared || (pq_is_idle(pq) && !contended));
    int rc = alone ? p2p_exec(p2p, calls, ncalls, &batch, pq->shared ? &pq->contended : NULL)
                   : p2p_start(p2p, calls, ncalls, &batch);
    if (alone ? rc != COLLRUN_AGAIN : rc != COLLRUN_OK)
        return rc;
    for (unsigned round = 0;; round++) {
        bool moved = p2p_progress(p2p) == COLLRUN_AGAIN;
        rc = p2p_check(p2p, &batch);
        if (rc != COLLRUN_AGAIN)
            return rc;
        if (progress_messages(pq, true) || moved)
            round = 0;
        progress_idle(round);
    }
}

/* In one call of the backend: nothing else is done in the queue meanwhile. */
static int progress_exec_alone(struct progress_queue *pq, const struct collrun_call *calls,
                               uint32_t ncalls)
{
    if (!pq->shared)
        return backend_exec(pq->config.backend, pq->config.handle, calls, ncalls);
    atomic_store(&pq->executing, true);
    if (atomic_load(&pq->withdrawals)) {
        pthread_mutex_lock(&pq->lock);
        pthread_cond_broadcast(&pq->changed);
        pthread_mutex_unlock(&pq->lock);
    }
    int rc = backend_exec(pq->config.backend, pq->config.handle, calls, ncalls);
    atomic_store(&pq->executing, false);
    return rc;
}

int progress_exec(struct progress_queue *pq, const struct collrun_call *calls, uint32_t ncalls)
{
    const struct backend *b = pq->config.backend;
    void *handle = pq->config.handle, *request = NULL;
    if (pq->config.p2p && collrun_kind_is_message(calls->kind))
        return progress_exec_messages(pq, calls, ncalls);
    /* Peers may need a queued message before they come to the collective that these belong to. */
    bool has_messages = pq->shared || collrun_kind_is_message(calls->kind);
    if (b->has_exec && (!pq->starts || (!has_messages && !pq->requests.in_flight)))
        return progress_exec_alone(pq, calls, ncalls);
    int rc = backend_start(b, handle, calls, ncalls, &request);
    if (rc == COLLRUN_ERR_UNSUPPORTED && b->has_exec)
        return progress_exec_alone(pq, calls, ncalls);
    if (rc != COLLRUN_OK)
        return rc;
    for (unsigned round = 0;; round++) {
        error_clear_cause();
        rc = backend_test(b, handle, request);
        if (rc != COLLRUN_AGAIN)
            return rc;
        if (progress_messages(pq, has_messages))
            round = 0;
        progress_idle(round);
    }
}
