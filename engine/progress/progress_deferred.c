/* SPDX-License-Identifier: Apache-2.0
 *
 * See progress_deferred.h.
 */
#include "progress/progress_deferred.h"

#include "progress/progress_owner.h"

/* A thread that closes the queue finds the request there, or this one finds it contended. */
static bool pq_take_back(struct collrun_request *r)
{
    struct progress_queue *pq = r->pq;
    struct collrun_request *deferred = r;
    if (!atomic_load(&pq->contended) ||
        !atomic_compare_exchange_strong(&pq->requests.deferred, &deferred, NULL))
        return false;
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
    if (!atomic_compare_exchange_strong(&pq->requests.deferred, &none, r)) {
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
    int owner = PQ_FREE;
    if (atomic_load_explicit(&pq->requests.deferred, memory_order_relaxed) != r ||
        atomic_load_explicit(&pq->contended, memory_order_relaxed) ||
        !atomic_compare_exchange_strong_explicit(&pq->owner, &owner, PQ_DIRECT,
                                                 memory_order_seq_cst, memory_order_relaxed))
        return false;
    if (!atomic_load(&pq->contended) &&
        atomic_compare_exchange_strong(&pq->requests.deferred, &deferred, NULL))
        return true;
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
        atomic_store_explicit(&r->status, status, memory_order_release);
    }
    atomic_fetch_sub_explicit(&pq->pending, 1, memory_order_release);
}
