/* SPDX-License-Identifier: Apache-2.0
 *
 * Submitting, waiting, withdrawing. progress_owner.h decides which thread owns the queue, and
 * progress.c is what the owner does. A waiting thread releases the queue as soon as its own request
 * is finished: the remaining requests may need something that this thread does next.
 *
 * Functions that are marked "locked" are called with the lock held and return with it held.
 */
#include "progress/progress_queue.h"

#include "base/loop.h"
#include "core/backend.h"
#include "core/error.h"
#include "core/threads.h"
#include "progress/progress.h"
#include "progress/progress_owner.h"

/* How long no other thread has used the queue before a waiting thread blocks inside the transport.
 */
enum { BLOCK_QUIET_NS = 1000000 };

/* How long a look for a message waits, at most, until the thread that owns the queue makes room. */
enum { PROBE_LONGEST_NS = 10000000 };

/* ---- ownership ---- */

/* Locked. */
static void pq_await_ownership(struct progress_queue *pq)
{
    unsigned round = 0;
    while (!pq_own(pq))
        pq_sleep(pq, &round);
}

void pq_acquire(struct progress_queue *pq)
{
    threads_busy(pq->config.busy, 1);
    pthread_mutex_lock(&pq->lock);
    pq_await_ownership(pq);
    pthread_mutex_unlock(&pq->lock);
}

void pq_release(struct progress_queue *pq)
{
    pthread_mutex_lock(&pq->lock);
    pq_disown(pq);
    pthread_mutex_unlock(&pq->lock);
    threads_busy(pq->config.busy, -1);
}

/* In one order with pq_enter_direct: either a thread that has entered finds the queue contended, or
 * this one finds it inside, and acquires what it has done there once it has left. */
void pq_evict(struct progress_queue *pq)
{
    pthread_mutex_lock(&pq->lock);
    pq->evicted = true;
    atomic_store(&pq->contended, true);
    for (unsigned round = 0; atomic_load(&pq->owner) == PQ_DIRECT || pq->waiters.holding;
         pq_sleep(pq, &round))
        pq_wake_owner(pq);
    if (atomic_load(&pq->requests.deferred)) /* in one order with pq_defer, too */
        pq_admit(pq);
    pthread_mutex_unlock(&pq->lock);
}

bool pq_hold(struct progress_queue *pq)
{
    pthread_mutex_lock(&pq->lock);
    const bool held = !pq->evicted;
    pq->waiters.holding += held;
    pthread_mutex_unlock(&pq->lock);
    return held;
}

void pq_let_go(struct progress_queue *pq)
{
    pthread_mutex_lock(&pq->lock);
    pq->waiters.holding--;
    pthread_mutex_unlock(&pq->lock);
}

static int pq_refuse_evicted(void)
{
    return error_cause(COLLRUN_ERR_ABORTED, "the group was destroyed");
}

bool pq_poll(struct progress_queue *pq)
{
    bool moved = false;
    pthread_mutex_lock(&pq->lock);
    pq_admit(pq);
    if (pq->starts && pq_has_work(pq))
        moved = pq_progress(pq, &(struct progress_args){.may_block = false});
    if (pq->requests.queue && !pq->worker.urgent) {
        pq->worker.urgent = true;
        pq_wake_worker(pq);
    }
    pthread_mutex_unlock(&pq->lock);
    return moved;
}

/* Locked. A thread that waits for messages owns the queue nearly all the time, and makes room once
 * it is woken. Any other owner may be busy for long, and is not waited for. */
static bool pq_own_soon(struct progress_queue *pq)
{
    bool direct = pq_owner_of(pq) == PQ_DIRECT && pq->config.p2p && !pq->shared;
    bool soon = pq->blocked || direct, owned = !pq->evicted && pq_own(pq);
    uint64_t until = soon && !owned ? now_ns() + PROBE_LONGEST_NS : 0;
    for (unsigned round = 0; !owned && !pq->evicted && now_ns() < until; round++) {
        pthread_mutex_unlock(&pq->lock);
        progress_idle(round);
        pthread_mutex_lock(&pq->lock);
        owned = !pq->evicted && pq_own(pq);
    }
    return owned;
}

int pq_probe(struct progress_queue *pq, struct p2p_probe *probe)
{
    int rc = COLLRUN_AGAIN;
    pthread_mutex_lock(&pq->lock);
    pq->waiters.holding++;
    bool owned = pq_own_soon(pq), evicted = pq->evicted && !owned;
    pthread_mutex_unlock(&pq->lock);
    if (owned)
        rc = progress_probe(pq, probe);
    else if (evicted)
        rc = pq_refuse_evicted();
    pthread_mutex_lock(&pq->lock);
    pq->waiters.holding--;
    if (owned)
        pq_disown(pq);
    pthread_mutex_unlock(&pq->lock);
    return rc;
}

/* ---- waiting ---- */

int pq_wait_begin(struct progress_queue *pq)
{
    pthread_mutex_lock(&pq->lock);
    const bool evicted = pq->evicted;
    pq->waiters.waiting += !evicted;
    pthread_mutex_unlock(&pq->lock);
    return evicted ? pq_refuse_evicted() : COLLRUN_OK;
}

void pq_wait_end(struct progress_queue *pq)
{
    pthread_mutex_lock(&pq->lock);
    pq->waiters.waiting--;
    pthread_mutex_unlock(&pq->lock);
}

/* Locked. True if no other thread has needed the queue lately: one that waits inside the transport
 * has to be woken first. */
static bool pq_may_block(const struct progress_queue *pq)
{
    return pq->config.p2p && pq->config.p2p->transport.wake && !pq->requests.queue &&
           now_ns() - pq->needed_ns > BLOCK_QUIET_NS;
}

/* Locked. Waits inside the transport until a message has moved or another thread needs the queue.
 */
static void pq_block(struct progress_queue *pq, unsigned *round)
{
    if (!pq_own(pq))
        return;
    pq->blocked = true;
    pthread_mutex_unlock(&pq->lock);
    if (progress_block(pq))
        *round = 0;
    pthread_mutex_lock(&pq->lock);
    pq->blocked = false;
    pq_disown(pq);
}

/* Locked. One round of a thread that waits; `round` counts the rounds in which
 * nothing has moved. */
static void pq_wait_round(struct progress_queue *pq, const struct progress_args *args,
                          unsigned *round)
{
    *round = pq_progress(pq, args) ? 0 : *round + 1;
    if (*round == 0 || request_is_finished(args->awaited))
        return;
    if (progress_has_spun(*round) && pq_may_block(pq)) {
        pq_block(pq, round);
        return;
    }
    pthread_mutex_unlock(&pq->lock);
    progress_idle(*round);
    pthread_mutex_lock(&pq->lock);
}

/* Until the request, which another thread finishes, is finished. */
void pq_await_finished(struct collrun_request *r)
{
    struct progress_queue *pq = r->pq;
    pthread_mutex_lock(&pq->lock);
    pq->waiters.sleeping++;
    while (!request_is_finished(r))
        pthread_cond_wait(&pq->changed, &pq->lock);
    pq->waiters.sleeping--;
    pthread_mutex_unlock(&pq->lock);
}

void pq_wait(struct collrun_request *r)
{
    struct progress_queue *pq = r->pq;
    struct progress_args args = {.may_block = true, .awaited = r};
    unsigned round = 0;
    pthread_mutex_lock(&pq->lock);
    pq->waiters.active++;
    while (!request_is_finished(r)) {
        if (pq_owner_of(pq) != PQ_FREE)
            pq_sleep(pq, &round);
        else
            pq_wait_round(pq, &args, &round);
    }
    pq->waiters.active--;
    pq_hand_over(pq);
    pthread_mutex_unlock(&pq->lock);
}

/* Locked. AGAIN also if the queue is not free. */
static int pq_order_in_flight(struct progress_queue *pq, const struct collrun_request *r,
                              uint32_t device, void *stream)
{
    if (!pq_own(pq))
        return COLLRUN_AGAIN;
    pthread_mutex_unlock(&pq->lock);
    error_clear_cause();
    int rc = backend_order(pq->config.backend, pq->config.handle, r->handle, device, stream);
    pthread_mutex_lock(&pq->lock);
    pq_disown(pq);
    return rc;
}

int pq_order_stream(struct collrun_request *r, uint32_t device, void *stream)
{
    struct progress_queue *pq = r->pq;
    struct progress_args args = {.may_block = true, .awaited = r};
    unsigned round = 0;
    int rc = COLLRUN_OK;
    if (request_is_finished(r))
        return rc;
    if (!pq->config.backend->has_order || r->bounced) {
        pq_wait(r);
        return rc;
    }
    threads_busy(pq->config.busy, 1);
    pthread_mutex_lock(&pq->lock);
    pq->waiters.active++;
    while (!request_is_finished(r)) {
        if (pq_owner_of(pq) != PQ_FREE) {
            pq_sleep(pq, &round);
            continue;
        }
        if (r->state >= REQUEST_IN_FLIGHT &&
            (rc = pq_order_in_flight(pq, r, device, stream)) != COLLRUN_AGAIN)
            break;
        pq_wait_round(pq, &args, &round);
    }
    pq->waiters.active--;
    pq_hand_over(pq);
    pthread_mutex_unlock(&pq->lock);
    threads_busy(pq->config.busy, -1);
    return rc == COLLRUN_AGAIN ? COLLRUN_OK : rc; /* AGAIN: the request has finished meanwhile */
}

/* ---- life ---- */

void pq_init(struct progress_queue *pq, const struct pq_config *config)
{
    pthread_condattr_t monotonic;
    *pq = (struct progress_queue){.config = *config,
                                  .starts = config->p2p ||
                                            (config->backend && config->backend->has_start)};
    pq->requests.queue_end = &pq->requests.queue;
    atomic_init(&pq->worker.asleep, true);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&pq->changed, &monotonic);
    pthread_cond_init(&pq->worker.wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&pq->lock, NULL);
}

/* An emulated or checked call takes several calls of the backend, some backends start messages
 * only, and few take batches. */
bool pq_needs_exec(const struct progress_queue *pq, const struct collrun_request *r)
{
    const struct backend *b = pq->config.backend;
    const struct collrun_call *call = r->calls;
    if (pq->config.p2p && collrun_kind_is_message(call->kind))
        return false;
    bool native = !r->exec_batch;
    for (uint32_t i = 0; native && i < r->ncalls; i++)
        native = backend_is_native(b, &r->calls[i]);
    if (!native)
        return true;
    bool starts = !b->has_exec || (b->table.flags & COLLRUN_BACKEND_START_COLLECTIVES);
    return !collrun_kind_is_message(call->kind) && (!starts || pq->config.exec_collectives);
}

/* Locked. */
static void pq_add_unfinished(struct progress_queue *pq, struct collrun_request *r)
{
    atomic_fetch_add_explicit(&pq->pending, 1, memory_order_relaxed);
    r->submit = pq_number_submit(pq);
    pq_list_unfinished(pq, r);
}

/* Locked. Messages that nothing is queued before are not queued either. */
static bool pq_start_messages(struct progress_queue *pq, struct collrun_request *r)
{
    bool first = pq->config.p2p && request_is_message(r) && !pq->requests.queue;
    if (!first || pq_owner_of(pq) != PQ_FREE || !pq_own(pq))
        return false;
    request_move(r, REQUEST_TAKEN);
    pthread_mutex_unlock(&pq->lock);
    progress_start(pq, r);
    /* What has arrived is answered now, not when a thread waits. */
    progress_test_in_flight(pq, PROGRESS_TEST_ALL);
    pthread_mutex_lock(&pq->lock);
    pq_disown(pq);
    return true;
}

/* Locked. */
static void pq_add_queued(struct progress_queue *pq, struct collrun_request *r)
{
    pq_append(pq, r);
    pq_count_queued(&pq->requests, 1);
    if (pq->starts && pq_owner_of(pq) == PQ_FREE)
        pq_progress(pq, &(struct progress_args){.tests = PROGRESS_OLDEST_MESSAGE});
    else
        pq_hand_over(pq);
    if (pq->requests.queue)
        pq_wake_owner(pq);
}

int pq_submit(struct progress_queue *pq, struct collrun_request *r)
{
    r->pq = pq;
    r->next = NULL;
    r->needs_exec = pq_needs_exec(pq, r);
    atomic_init(&r->status, COLLRUN_AGAIN);
    pthread_mutex_lock(&pq->lock);
    const int rc = pq->evicted           ? COLLRUN_ERR_ABORTED
                   : pq_worker_start(pq) ? COLLRUN_OK
                                         : COLLRUN_ERR_SYSTEM;
    if (rc == COLLRUN_OK) {
        pq_admit(pq); /* in its order */
        pq_add_unfinished(pq, r);
        if (!pq_start_messages(pq, r))
            pq_add_queued(pq, r);
    }
    pthread_mutex_unlock(&pq->lock);
    return rc;
}

void pq_adopt(struct progress_queue *pq, struct collrun_request *r)
{
    r->pq = pq;
    r->next = NULL;
    r->needs_exec = false;
    r->state = REQUEST_TAKEN; /* by this thread, which has begun its messages */
    r->withdrawal = PQ_WITHDRAWAL_NONE;
    r->deadline_ns = UINT64_MAX; /* p2p keeps it */
    r->listed = false;
    atomic_init(&r->status, COLLRUN_AGAIN);
    pthread_mutex_lock(&pq->lock);
    pq_add_unfinished(pq, r);
    progress_add_in_flight(pq, r);
    pq_disown(pq);
    pthread_mutex_unlock(&pq->lock);
}

/* ---- withdrawing ---- */

/* Locked. False: the request is not in the queue. */
static bool pq_unqueue(struct progress_queue *pq, struct collrun_request *r)
{
    struct pq_requests *q = &pq->requests;
    struct collrun_request **p = &q->queue;
    while (*p && *p != r)
        p = &(*p)->next;
    if (!*p)
        return false;
    *p = r->next;
    if (!r->next)
        q->queue_end = p;
    pq_count_queued(q, -1);
    return true;
}

/* Locked. Until this thread owns the queue (true), or the request needs no withdrawal any more: the
 * owner has withdrawn it, it is finished, or the backend is inside a collective. */
static bool pq_own_for_withdrawal(struct progress_queue *pq, struct collrun_request *r)
{
    bool owned = false;
    r->withdrawn = COLLRUN_ERR_UNSUPPORTED;
    r->withdrawal = PQ_WITHDRAWAL_WANTED;
    atomic_fetch_add(&pq->withdrawals, 1);
    for (unsigned round = 0; r->withdrawal && !request_is_finished(r); pq_sleep(pq, &round)) {
        bool begun = r->withdrawal == PQ_WITHDRAWAL_BEGUN;
        if (!begun && (atomic_load(&pq->executing) || (owned = pq_own(pq))))
            break;
    }
    if (r->withdrawal == PQ_WITHDRAWAL_WANTED)
        atomic_fetch_sub(&pq->withdrawals, 1);
    r->withdrawal = PQ_WITHDRAWAL_NONE;
    return owned;
}

/* Locked. Of a request that is in flight, or is being executed. */
static int pq_withdraw_started(struct progress_queue *pq, struct collrun_request *r)
{
    if (!pq->starts || r->needs_exec)
        return COLLRUN_ERR_UNSUPPORTED;
    if (!pq_own_for_withdrawal(pq, r)) {
        pq_hand_over(pq); /* this thread may have been the one that was woken */
        return request_is_finished(r) ? COLLRUN_AGAIN : r->withdrawn;
    }
    int rc = COLLRUN_OK;
    if (!pq_unqueue(pq, r)) {
        pthread_mutex_unlock(&pq->lock);
        rc = progress_withdraw(pq, r);
        pthread_mutex_lock(&pq->lock);
    }
    pq_disown(pq);
    return rc;
}

int pq_withdraw(struct collrun_request *r)
{
    struct progress_queue *pq = r->pq;
    pthread_mutex_lock(&pq->lock);
    pq_admit(pq);
    int rc = pq_unqueue(pq, r) ? COLLRUN_OK : pq_withdraw_started(pq, r);
    if (rc == COLLRUN_OK) {
        pq_remove_unfinished(r);
        request_move(r, REQUEST_OUTSIDE);
        atomic_store_explicit(&r->status, COLLRUN_OK, memory_order_release);
    }
    pthread_mutex_unlock(&pq->lock);
    return rc;
}

/* Locked. A thread that has started or polled a request may own the queue still, and one whose
 * blocking messages have become a request is about to wait for it: there may be no worker. */
static bool pq_is_used(const struct progress_queue *pq)
{
    const struct pq_waiters *w = &pq->waiters;
    return w->waiting || w->active || w->sleeping || pq_owner_of(pq) == PQ_OWNED || !pq_is_idle(pq);
}

/* Threads that wait for requests: these are finished, so they leave. Those that wait for a message
 * find the queue evicted. */
static void pq_await_users(struct progress_queue *pq)
{
    pthread_mutex_lock(&pq->lock);
    for (unsigned round = 0; pq_is_used(pq); round++) {
        pthread_cond_broadcast(&pq->changed);
        pthread_mutex_unlock(&pq->lock);
        progress_idle(round);
        pthread_mutex_lock(&pq->lock);
    }
    pthread_mutex_unlock(&pq->lock);
}

void pq_stop(struct progress_queue *pq)
{
    pthread_mutex_lock(&pq->lock);
    pq->worker.stopping = true;
    pq_wake_worker(pq);
    pthread_mutex_unlock(&pq->lock);
    if (pq->worker.started)
        pthread_join(pq->worker.thread, NULL);
    pq_await_users(pq);
}

void pq_fini(struct progress_queue *pq)
{
    pthread_cond_destroy(&pq->changed);
    pthread_cond_destroy(&pq->worker.wake);
    pthread_mutex_destroy(&pq->lock);
}

/* ---- deferred requests ---- */

/* A thread that closes the queue finds the request there, or this one finds it contended. */
static bool pq_take_back(struct collrun_request *r)
{
    struct progress_queue *pq = r->pq;
    struct collrun_request *deferred = r;
    if (!atomic_load(&pq->contended) ||
        !atomic_compare_exchange_strong(&pq->requests.deferred, &deferred, NULL))
        return false;
    request_move(r, REQUEST_OUTSIDE);
    atomic_fetch_sub_explicit(&pq->pending, 1, memory_order_relaxed);
    return true;
}

bool pq_defer(struct collrun_request *r)
{
    struct progress_queue *pq = r->pq;
    struct collrun_request *none = NULL;
    if (!pq_is_idle(pq) || atomic_load_explicit(&pq->contended, memory_order_relaxed) ||
        atomic_load_explicit(&pq->worker.asleep, memory_order_relaxed))
        return false;
    r->next = NULL;
    r->submit = pq_number_submit(pq);
    atomic_fetch_add_explicit(&pq->pending, 1, memory_order_relaxed);
    request_move(r, REQUEST_DEFERRED);
    if (!atomic_compare_exchange_strong(&pq->requests.deferred, &none, r)) {
        request_move(r, REQUEST_OUTSIDE);
        atomic_fetch_sub_explicit(&pq->pending, 1, memory_order_relaxed);
        return false; /* another thread was faster */
    }
    if (pq_take_back(r))
        return false;
    if (atomic_load(&pq->worker.asleep)) {
        pthread_mutex_lock(&pq->lock);
        pq_hand_over(pq);
        pthread_mutex_unlock(&pq->lock);
    }
    return true;
}

bool pq_enter_deferred(struct collrun_request *r)
{
    struct progress_queue *pq = r->pq;
    struct collrun_request *deferred = r;
    if (atomic_load_explicit(&pq->requests.deferred, memory_order_relaxed) != r ||
        atomic_load_explicit(&pq->contended, memory_order_relaxed) || !pq_take(pq, PQ_DIRECT))
        return false;
    if (!atomic_load(&pq->contended) &&
        atomic_compare_exchange_strong(&pq->requests.deferred, &deferred, NULL)) {
        request_move(r, REQUEST_TAKEN);
        return true;
    }
    pq_leave_direct(pq);
    return false;
}

void pq_leave_deferred(struct collrun_request *r, int status)
{
    struct progress_queue *pq = r->pq;
    if (status == COLLRUN_AGAIN) {
        pq_adopt(pq, r);
    } else {
        pq_leave_direct(pq);
        request_move(r, REQUEST_OUTSIDE);
        atomic_store_explicit(&r->status, status, memory_order_release);
    }
    atomic_fetch_sub_explicit(&pq->pending, 1, memory_order_release);
}
