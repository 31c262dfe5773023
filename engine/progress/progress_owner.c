/* SPDX-License-Identifier: Apache-2.0
 *
 * See progress_owner.h.
 */
#include "progress/progress_owner.h"

#include "base/loop.h"

/* How long no thread has met another one before blocking calls are direct again. */
enum { CONTENDED_NS = 100000000 };

void pq_wake_owner(struct progress_queue *pq)
{
    bool direct = pq_owner_of(pq) == PQ_DIRECT;
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
    int owner = PQ_FREE;
    pq_admit(pq);
    bool owned = atomic_compare_exchange_strong_explicit(
        &pq->owner, &owner, PQ_OWNED, memory_order_acquire, memory_order_relaxed);
    pq->worker.nrounds++;
    if (!owned)
        pq_wake_owner(pq);
    return owned;
}

/* Before the first request of the queue there is none: `asleep` says that no thread will look. */
void pq_wake_worker(struct progress_queue *pq)
{
    if (!pq->worker.started)
        return;
    pq->worker.asleep = false;
    pq->worker.nwakes++;
    pthread_cond_signal(&pq->worker.wake);
}

void pq_hand_over(struct progress_queue *pq)
{
    bool work = pq_owner_of(pq) != PQ_OWNED && !pq_is_idle(pq);
    if (pq->waiters.sleeping)
        pthread_cond_broadcast(&pq->changed);
    else if (!pq->waiters.active && ((work && pq->worker.asleep) || pq->worker.stopping))
        pq_wake_worker(pq);
}

void pq_disown(struct progress_queue *pq)
{
    pq_calm(pq);
    atomic_store_explicit(&pq->owner, PQ_FREE, memory_order_release);
    pq_hand_over(pq);
}

void pq_sleep(struct progress_queue *pq, unsigned *round)
{
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
