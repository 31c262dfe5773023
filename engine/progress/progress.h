/* SPDX-License-Identifier: Apache-2.0
 *
 * Progress of the requests of one queue: starting or executing what is queued, testing what is in
 * flight, finishing what has ended. All functions here need ownership of the queue, or a queue that
 * is idle and a single caller.
 */
#ifndef ENGINE_PROGRESS_PROGRESS_H
#define ENGINE_PROGRESS_PROGRESS_H

#include "base/loop.h"
#include "progress/progress_queue.h"

/* A backend moves all messages of a group when one of them is tested. So a request that is started
 * behind many does not test each of them: starting n would cost n * n tests. */
enum progress_tests {
    PROGRESS_TEST_ALL,
    PROGRESS_OLDEST_MESSAGE /* of those that the backend has; and all other requests */
};

struct progress_args {
    bool may_block; /* may execute what the backend cannot start */
    enum progress_tests tests;
    const struct collrun_request *awaited; /* stop when it is finished; NULL: do not stop */
};

/* False: the backend cannot start it, and the request is back in the queue. */
bool progress_start(struct progress_queue *pq, struct collrun_request *r);
/* Starts or executes what is queued. True if there was a request. */
bool progress_start_queued(struct progress_queue *pq, const struct progress_args *args);
/* Tests the started requests once. True if one has finished, or a message has moved. */
bool progress_test_in_flight(struct progress_queue *pq, enum progress_tests which);
void progress_add_in_flight(struct progress_queue *pq, struct collrun_request *r);
/* Withdraws a request in flight, as pq_withdraw does. */
int progress_withdraw(struct progress_queue *pq, struct collrun_request *r);
/* One look for a message, after a round of progress. AGAIN: there is none. */
int progress_probe(struct progress_queue *pq, struct p2p_probe *probe);
/* Waits inside the transport of messages until one has moved, p2p_wake is called, or the next
 * time-out is due. True if a request has moved. */
bool progress_block(struct progress_queue *pq);
/* progress_idle would yield or sleep. */
bool progress_has_spun(unsigned round);
/* Spins, yields or sleeps after `round` rounds in which nothing has moved. */
void progress_idle(unsigned round);
/* Executes calls that the backend has natively; blocks, and moves messages in flight meanwhile. */
int progress_exec(struct progress_queue *pq, const struct collrun_call *calls, uint32_t ncalls);

static inline bool request_is_finished(const struct collrun_request *r)
{
    return atomic_load_explicit(&r->status, memory_order_acquire) != COLLRUN_AGAIN;
}

/* Under the lock of the queue: a request that is counted in `pending` becomes visible. */
static inline void pq_list_unfinished(struct progress_queue *pq, struct collrun_request *r)
{
    struct pq_requests *q = &pq->requests;
    r->submitted_ns = q->last_ns = now_coarse_ns();
    r->later = q->unfinished;
    r->link = &q->unfinished;
    if (r->later)
        r->later->link = &r->later;
    q->unfinished = r;
}

/* Under the lock of the queue: the request is not unfinished any more. */
static inline void pq_remove_unfinished(struct collrun_request *r)
{
    *r->link = r->later;
    if (r->later)
        r->later->link = r->link;
    atomic_fetch_sub_explicit(&r->pq->pending, 1, memory_order_release);
}

static inline bool request_is_message(const struct collrun_request *r)
{
    return collrun_kind_is_message(r->calls[0].kind);
}

#endif
