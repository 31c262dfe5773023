/* SPDX-License-Identifier: Apache-2.0
 *
 * Ownership of a progress queue: the right to be inside the backend and to use
 * `requests.in_flight`. It is acquired and released under the lock, except by a thread that is
 * directly inside.
 *
 * All functions here are called with the lock held and return with it held; pq_sleep and
 * pq_progress release it meanwhile.
 */
#ifndef ENGINE_PROGRESS_PROGRESS_OWNER_H
#define ENGINE_PROGRESS_PROGRESS_OWNER_H

#include "progress/progress.h"
#include "progress/progress_queue.h"

static inline enum pq_owner pq_owner_of(const struct progress_queue *pq)
{
    return (enum pq_owner)atomic_load_explicit(&pq->owner, memory_order_relaxed);
}

/* There are requests, and no thread is inside. */
static inline bool pq_has_work(const struct progress_queue *pq)
{
    return pq_owner_of(pq) == PQ_FREE && !pq_is_idle(pq);
}

/* The request that was deferred, if there is one, takes its place in the queue. */
void pq_admit(struct progress_queue *pq);
/* False: another thread is inside; if it waits in the transport, it returns soon. */
bool pq_own(struct progress_queue *pq);
void pq_disown(struct progress_queue *pq);
/* The owner, if it waits in the transport, returns soon. */
void pq_wake_owner(struct progress_queue *pq);
/* Wakes a thread that continues: a waiting one if there is any, else the worker, unless it looks at
 * the queue soon. */
void pq_hand_over(struct progress_queue *pq);
void pq_wake_worker(struct progress_queue *pq);
/* The thread cannot continue now. `round` counts the rounds in which another thread was directly
 * inside; that thread wakes no other when it leaves, and may have left by now. */
void pq_sleep(struct progress_queue *pq, unsigned *round);
/* One round of progress, if the queue is free; true if a request has moved. */
bool pq_progress(struct progress_queue *pq, const struct progress_args *args);

/* ---- the worker ---- */

/* The worker thread of a progress queue: it drives the requests that no other thread drives. The
 * thread that starts a request is expected to wait for it soon, so the worker looks at the queue
 * again LOOK_NS later, and takes over what is still where it was. While requests are submitted it
 * looks every LOOK_NS; when there are no more, or a thread waits for them, it sleeps until a thread
 * wakes it. */

/* With the lock held. Starts the thread unless it runs. False: there is no thread. */
bool pq_worker_start(struct progress_queue *pq);

#endif
