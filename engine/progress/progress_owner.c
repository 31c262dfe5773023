/* SPDX-License-Identifier: Apache-2.0
 *
 * See progress_owner.h.
 */
#include "progress/progress_owner.h"

#include "base/loop.h"
#include "base/thread.h"
#include "core/threads.h"

#include <time.h>

/* How long no thread has met another one before blocking calls are direct again. */
enum { CONTENDED_NS = 100000000 };

void pq_wake_owner(struct progress_queue *pq)
{
    bool direct = pq_owner_of(pq) == PQ_DIRECT;
    pq_assert_locked(pq);
    if (!direct && !pq->blocked)
        return;
    pq->needed_ns = now_ns();
    if (direct)
        atomic_store_explicit(&pq->contended, true, memory_order_relaxed);
    if (pq->config.p2p)
        p2p_wake(pq->config.p2p);
}

/* Locked; the thread owns the queue. Blocking calls may be inside directly again if no thread has
 * met another one lately. */
static void pq_calm(struct progress_queue *pq)
{
    if (atomic_load_explicit(&pq->contended, memory_order_relaxed) && !pq->evicted &&
        pq_is_idle(pq) && now_ns() - pq->needed_ns > CONTENDED_NS)
        atomic_store_explicit(&pq->contended, false, memory_order_relaxed);
}

void pq_admit(struct progress_queue *pq)
{
    struct pq_requests *q = &pq->requests;
    pq_assert_locked(pq);
    if (!atomic_load_explicit(&q->deferred, memory_order_relaxed))
        return;
    struct collrun_request *r = atomic_exchange(&q->deferred, NULL);
    if (!r)
        return; /* its thread was faster */
    pq->config.ops->admitted(r);
    pq_list_unfinished(pq, r);
    pq_append(pq, r);
    pq_count_queued(q, 1);
}

bool pq_own(struct progress_queue *pq)
{
    pq_assert_locked(pq);
    pq_admit(pq);
    bool owned = pq_take(pq, PQ_OWNED);
    pq->worker.nrounds++;
    if (!owned)
        pq_wake_owner(pq);
    return owned;
}

/* Before the first request of the queue there is none: `asleep` says that no thread will look. */
void pq_wake_worker(struct progress_queue *pq)
{
    pq_assert_locked(pq);
    if (!pq->worker.started)
        return;
    pq->worker.asleep = false;
    pq->worker.nwakes++;
    pthread_cond_signal(&pq->worker.wake);
}

void pq_hand_over(struct progress_queue *pq)
{
    bool work = pq_owner_of(pq) != PQ_OWNED && !pq_is_idle(pq);
    pq_assert_locked(pq);
    if (pq->waiters.sleeping)
        pthread_cond_broadcast(&pq->changed);
    else if (!pq->waiters.active && ((work && pq->worker.asleep) || pq->worker.stopping))
        pq_wake_worker(pq);
}

void pq_disown(struct progress_queue *pq)
{
    pq_assert_locked(pq);
    pq_calm(pq);
    pq_give_back(pq);
    pq_hand_over(pq);
}

void pq_sleep(struct progress_queue *pq, unsigned *round)
{
    pq_assert_locked(pq);
    if (pq_owner_of(pq) != PQ_OWNED) {
        pq_wake_owner(pq);
        pthread_mutex_unlock(&pq->lock);
        progress_idle((*round)++);
        pthread_mutex_lock(&pq->lock);
        return;
    }
    pq->waiters.sleeping++;
    pthread_cond_wait(&pq->changed, &pq->lock);
    pq->waiters.sleeping--;
}

bool pq_progress(struct progress_queue *pq, const struct progress_args *args)
{
    if (!pq_own(pq)) {
        pq_hand_over(pq);
        return false;
    }
    pthread_mutex_unlock(&pq->lock);
    bool queued = progress_start_queued(pq, args);
    bool moved = progress_test_in_flight(pq, args->tests) || queued;
    pthread_mutex_lock(&pq->lock);
    pq_disown(pq);
    return moved;
}

/* ---- the worker ---- */

/* The worker's sleeps while it drives the queue and nothing moves. */
enum { SHORTEST_NAP_NS = 50000, LONGEST_NAP_NS = 2000000 };

/* How long a request may be left to the thread that has started it before the worker drives it. */
enum { LOOK_NS = 1000000 };

/* How long the worker delays a batch of messages after the last one was submitted: as long as a
 * thread that is about to add more may be without a core. */
enum { BATCH_QUIET_NS = 100000000, BATCH_LONGEST_NS = 1000000000 };

/* Locked. */
static void pq_worker_sleep_until(struct progress_queue *pq, uint64_t ns)
{
    struct timespec at = {.tv_sec = (time_t)(ns / 1000000000u),
                          .tv_nsec = (long)(ns % 1000000000u)};
    pthread_cond_timedwait(&pq->worker.wake, &pq->lock, &at);
}

/* Locked. Sleeps longer after each round in which nothing has moved; any change ends the sleep. */
static void pq_worker_nap(struct progress_queue *pq, unsigned round)
{
    uint64_t ns = round < 8 ? (uint64_t)SHORTEST_NAP_NS << round : LONGEST_NAP_NS;
    pq_worker_sleep_until(pq, now_ns() + (ns < LONGEST_NAP_NS ? ns : LONGEST_NAP_NS));
}

/* Locked. When the worker may run the batch at the head of the queue; 0: now. */
static uint64_t pq_batch_due(const struct progress_queue *pq)
{
    const struct collrun_request *first = pq->requests.queue;
    if (pq->starts || !first || !request_is_message(first) || pq->worker.stopping)
        return 0;
    uint64_t latest = first->submitted_ns + BATCH_LONGEST_NS;
    uint64_t quiet = pq->requests.last_ns + BATCH_QUIET_NS;
    return quiet < latest ? quiet : latest;
}

/* What the worker knew when it looked at the queue. */
struct pq_look {
    uint64_t nsubmits, nrounds;
};

static uint64_t pq_worker_submits(const struct pq_worker *w)
{
    return atomic_load_explicit(&w->nsubmits, memory_order_relaxed);
}

/* Locked. True if no thread drives the requests: none was driven or submitted since the last look,
 * or the first of those that have to be executed was there then. */
static bool pq_worker_is_due(const struct progress_queue *pq, const struct pq_look *last)
{
    const struct collrun_request *head = pq->requests.queue;
    if (pq_is_idle(pq) || pq_owner_of(pq) == PQ_OWNED)
        return false;
    if (pq->worker.stopping)
        return true;
    const bool quiet =
        pq->worker.nrounds == last->nrounds && pq_worker_submits(&pq->worker) == last->nsubmits;
    return !pq->waiters.active &&
           (pq->worker.urgent || quiet || (head && head->submit <= last->nsubmits));
}

/* Locked. Sleeps until the next look: soon if a request was submitted since the last one, or is
 * driven by threads that poll; else until it is woken. */
static void pq_worker_await_look(struct progress_queue *pq, struct pq_look *last)
{
    struct pq_worker *w = &pq->worker;
    w->urgent = w->urgent && !pq_is_idle(pq);
    bool left_alone = pq_is_idle(pq) || pq->waiters.active || pq_owner_of(pq) == PQ_OWNED;
    const uint64_t nsubmits = pq_worker_submits(w);
    atomic_store(&w->asleep, left_alone && nsubmits == last->nsubmits);
    *last = (struct pq_look){.nsubmits = nsubmits, .nrounds = w->nrounds};
    if (atomic_load(&pq->requests.deferred))
        atomic_store(&w->asleep, false);
    if (!w->asleep)
        pq_worker_sleep_until(pq, now_ns() + LOOK_NS);
    while (w->asleep)
        pthread_cond_wait(&w->wake, &pq->lock);
}

/* Locked. Drives the requests until none is left, or a thread waits for one. */
static void pq_worker_drive(struct progress_queue *pq)
{
    unsigned idle = 0;
    while (!pq_is_idle(pq) && pq_owner_of(pq) != PQ_OWNED &&
           (pq->worker.stopping || !pq->waiters.active)) {
        uint64_t due = pq_batch_due(pq);
        if (now_ns() < due) {
            pq_worker_sleep_until(pq, due);
            continue;
        }
        idle = pq_progress(pq, &(struct progress_args){.may_block = true}) ? 0 : idle + 1;
        if (idle && !pq->waiters.active)
            pq_worker_nap(pq, idle);
    }
    pq->worker.urgent = false;
}

static void *pq_worker_run(void *arg)
{
    struct progress_queue *pq = arg;
    struct pq_look last = {0};
    thread_name("worker");
    pthread_mutex_lock(&pq->lock);
    while (!pq->worker.stopping || !pq_is_idle(pq)) {
        if (pq_worker_is_due(pq, &last))
            pq_worker_drive(pq);
        else
            pq_worker_await_look(pq, &last);
    }
    pthread_mutex_unlock(&pq->lock);
    return NULL;
}

bool pq_worker_start(struct progress_queue *pq)
{
    struct pq_worker *w = &pq->worker;
    if (!w->started && thread_start(&w->thread, 0, pq_worker_run, pq) == 0) {
        w->started = true;
        atomic_store(&w->asleep, false);
    }
    return w->started;
}
