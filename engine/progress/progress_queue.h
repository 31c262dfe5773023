/* SPDX-License-Identifier: Apache-2.0
 *
 * struct progress_queue: serializes the calls into one backend handle, as the ABI demands. The
 * thread that owns the queue is the only one inside the backend.
 *
 * - A blocking call on an idle queue runs in the caller's thread, which is then inside directly. It
 *   takes no lock. When another thread needs the queue (`contended`), its messages become a
 *   request, and so do all blocking messages until no thread has met another one for a while.
 * - All other calls become requests. They are queued in order of arrival. A thread that waits for a
 *   request drives the queue, and so executes what the backend cannot start. A worker thread,
 *   started for the first request, drives what no thread has driven for a millisecond, and at once
 *   what a thread polls. Progress therefore never depends on a waiter, and neither starting a
 *   request nor waiting for it wakes a thread.
 * - A request that the waiting thread executes anyway, and that nothing is before, is deferred: it
 *   is in no list until another thread, or another request, needs the queue: pq_defer.
 * - If the backend has start and test, or a transport (p2p.h), the owner starts every queued
 *   request and then tests all that are in flight.
 * - A request that waits for the streams of its calls stays in the queue, before those behind it;
 *   messages overtake it.
 * - A thread that waits long for a message waits inside the transport, if that can be woken.
 * - If it has only exec, a collective runs alone, and adjacent messages run as one batch, in which
 *   they progress together. A request that is submitted during a batch has to wait for its end, so
 *   the worker delays a batch of messages until none has been added for a while. A waiting thread
 *   runs the batch at once.
 *
 * The queue knows nothing of groups. Its creator passes in what it does with a request that is
 * executed, finished or overdue (struct pq_ops).
 */
#ifndef ENGINE_PROGRESS_PROGRESS_QUEUE_H
#define ENGINE_PROGRESS_PROGRESS_QUEUE_H

#include "core/error.h"
#include "progress/p2p.h"

#include <assert.h>
#include <collrun/backend.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

struct backend;
struct bounce;
struct record_writer;
struct collrun_ctx;
struct collrun_group;
struct progress_queue;
struct stream_events;

/* Where a request is. It is moved by the owner of the queue, by a thread that has the lock, or, if
 * it is deferred, by the thread that puts it there or takes it out. The transitions, and by what:
 *
 *   from     to  DEFERRED  QUEUED        TAKEN              IN_FLIGHT  EXPIRED   OUTSIDE
 *   OUTSIDE      pq_defer  pq_submit     pq_submit
 *   DEFERRED               pq_admit      pq_enter_deferred                       pq_defer
 *   QUEUED                               progress_dequeue                        withdrawn
 *   TAKEN                  cannot start                     started              finished
 *   IN_FLIGHT                                                          too late  either
 *   EXPIRED                                                                      either
 */
enum request_state {
    REQUEST_OUTSIDE,   /* the queue does not have it: it is new, finished, or a spare */
    REQUEST_DEFERRED,  /* in requests.deferred */
    REQUEST_QUEUED,    /* in requests.queue */
    REQUEST_TAKEN,     /* a thread starts or executes it */
    REQUEST_IN_FLIGHT, /* in requests.in_flight: `handle` or `batch` is valid */
    REQUEST_EXPIRED    /* there too, and ops->expired has been called */
};

/* A thread wants to withdraw a request, and another one owns the queue: the owner does it.
 *
 *   NONE --pq_withdraw--> WANTED --the owner begins--> BEGUN --it is done--> NONE
 *                         WANTED --the request is finished, or the queue is free--> NONE */
enum pq_withdrawal { PQ_WITHDRAWAL_NONE, PQ_WITHDRAWAL_WANTED, PQ_WITHDRAWAL_BEGUN };

/* One operation of a request, in the record of this rank (group/thread_record.h). A receive from
 * any rank, or with any tag, finds here where its message came from. The places of the caller get
 * that when it has ended: the caller may use the same ones for several receives. */
struct request_op {
    uint32_t handle; /* of record_post; 0: none */
    uint32_t tag;
    int source;
    int *source_out; /* NULL: the caller does not want to know */
    uint32_t *tag_out;
};

struct collrun_request {
    struct collrun_group *group; /* a reference; kept until the request is freed; or NULL */
    /* Frees what a request owns that is no operation of a group (ops/group_start.c), before the
     * request itself is freed; NULL for others. */
    void (*release)(struct collrun_request *request);
    struct progress_queue *pq;
    struct collrun_call *calls; /* copies, with their count arrays, in the request's allocation */
    const struct collrun_call
        *given;      /* there too: the caller's call; or NULL (a spare, ops/request.h) */
    uint32_t misses; /* as a spare: starts of other calls in its place */
    _Atomic(struct collrun_request *) *place; /* as a spare: in its group */
    uint32_t ncalls;
    uint64_t number, last_number; /* of its first and last operation in the group */
    uint64_t record;              /* of its first entry in the flight recorder */
    uint32_t nrecord;             /* how many entries */
    struct record_writer *writer; /* of a request without a group; or NULL */
    struct request_op *posted;    /* of each; NULL: the call of its thread is recorded instead */
    bool exec_batch;              /* several collectives that the backend does not start as one */
    struct bounce *bounce; /* copies of buffers in device memory, until it is finished; or NULL */
    bool bounced;          /* it has or had such copies, or will have them */
    struct stream_events *events; /* it is executed when they have passed; or NULL */
    bool settled;                 /* the work on its streams had ended when it was started */
    bool bounces_late;            /* the copies are made when it is executed */
    struct error_record *failure; /* of a failed request; NULL: out of memory for it */
    /* The workload that has to test or wait for it, NULL if unknown; and its links in the list of
     * such requests of its group. */
    const struct collrun_ctx *starter;
    struct collrun_request *older, **older_link;
    bool listed;
    bool may_wait; /* it need not begin before it is waited for */
    bool plain;    /* a collective that the backend then executes as it is */
    bool deferred; /* it was, when it was started */
    bool shared;   /* a send that is done: of no group, and never freed */

    /* The queue's own. */
    atomic_int status; /* AGAIN until it is finished; released after its results, which the thread
                          that tests or waits acquires */
    bool needs_exec;   /* the backend cannot start it */
    enum pq_withdrawal withdrawal; /* under the lock */
    int withdrawn;                 /* the owner's result */
    enum request_state state;      /* request_move */
    void *handle;                  /* the backend's request; */
    struct p2p_batch batch;        /* or the messages that the engine matches */
    uint64_t submit;               /* its number among the requests of the queue */
    uint64_t submitted_ns;         /* all times: now_ns(); this one is some ms old */
    uint64_t deadline_ns;          /* after which ops->expired is called */
    uint64_t stopped_ns;           /* base/standstill.h, when the deadline was set */
    struct collrun_request *next;
    struct collrun_request *later, **link; /* in `unfinished`: the next, and the pointer to this */
};

static inline bool request_may_move(enum request_state from, enum request_state to)
{
    static const unsigned next[] = {
        [REQUEST_OUTSIDE] = 1u << REQUEST_DEFERRED | 1u << REQUEST_QUEUED | 1u << REQUEST_TAKEN,
        [REQUEST_DEFERRED] = 1u << REQUEST_QUEUED | 1u << REQUEST_TAKEN | 1u << REQUEST_OUTSIDE,
        [REQUEST_QUEUED] = 1u << REQUEST_TAKEN | 1u << REQUEST_OUTSIDE,
        [REQUEST_TAKEN] = 1u << REQUEST_IN_FLIGHT | 1u << REQUEST_QUEUED | 1u << REQUEST_OUTSIDE,
        [REQUEST_IN_FLIGHT] = 1u << REQUEST_EXPIRED | 1u << REQUEST_OUTSIDE,
        [REQUEST_EXPIRED] = 1u << REQUEST_OUTSIDE,
    };
    return next[from] >> to & 1u;
}

static inline void request_move(struct collrun_request *r, enum request_state to)
{
    assert(request_may_move(r->state, to));
    r->state = to;
}

/* What the creator of a queue supplies. Called by the owner of the queue, without its lock. */
struct pq_ops {
    /* A request that was deferred is in the queue now. Under the lock. */
    void (*admitted)(struct collrun_request *request);
    /* The request is about to be started or executed. */
    void (*begin)(const struct collrun_request *request);
    /* False: the request, which has to be executed, must not begin yet. Does not block. */
    bool (*ready)(struct collrun_request *request);
    /* Executes the calls of one request; blocks. On failure the cause is stored. */
    int (*exec)(void *ctx, struct collrun_request *request);
    /* The request has ended with `status`; the cause of a failure is stored. Returns the status
     * that waiters get. */
    int (*finished)(struct collrun_request *request, int status);
    /* The deadline of a started request has passed. Must make the backend end it. */
    void (*expired)(struct collrun_request *request);
};

struct pq_config {
    struct backend *backend;
    void *handle;    /* the backend's group */
    struct p2p *p2p; /* its messages, if it has a transport; else NULL */
    const struct pq_ops *ops;
    void *ctx;                /* for ops->exec */
    const atomic_int *failed; /* a status (group_status.code); requests fail with it unless it
                                 is 0 */
    atomic_int *busy;         /* threads_busy: waits that are not for an operation */
    bool exec_collectives;    /* collectives go through ops->exec even if the backend could start
                                 them */
};

/* A thread that waits for the end of these calls. */
struct pq_requests {
    struct collrun_request *queue, **queue_end; /* not started; under the lock */
    atomic_uint nqueued; /* how many; written under the lock. 0 saves the owner taking the lock; a
                            request that it misses is found in its next round, or under the lock,
                            when it disowns the queue */
    /* pq_defer. Released with the request; the thread that takes it out acquires it. Sequentially
     * consistent with worker.asleep: either the worker sees the request, or its thread that the
     * worker sleeps. */
    _Atomic(struct collrun_request *) deferred;
    struct collrun_request *in_flight;  /* started; the owner's */
    struct collrun_request *unfinished; /* all of both; under the lock */
    uint64_t last_ns;                   /* when the last request was submitted */
};

/* Under the lock. */
struct pq_waiters {
    unsigned waiting;  /* threads from pq_wait_begin to pq_wait_end */
    unsigned active;   /* threads that wait for a request and take ownership when it is free */
    unsigned sleeping; /* of those, and of others: asleep on `changed` */
    unsigned holding;  /* threads that look for a message, or are about to; pq_hold */
};

/* Under the lock. */
struct pq_worker {
    pthread_t thread;
    pthread_cond_t wake; /* CLOCK_MONOTONIC */
    bool started, stopping;
    atomic_bool
        asleep;  /* until it is woken; else it looks at the queue soon. Written under the lock
                  */
    bool urgent; /* a thread polls for what only the worker can execute */
    /* Requests so far. By any thread, relaxed: it matters only that it changes. */
    _Atomic uint64_t nsubmits;
    uint64_t nwakes;  /* how often it was woken */
    uint64_t nrounds; /* how often a thread has owned the queue */
};

/* The thread that may call the backend.
 *
 *   FREE --pq_own--> OWNED --pq_disown--> FREE                                    under the lock
 *   FREE --pq_enter_direct, pq_enter_deferred--> DIRECT --pq_leave_...--> FREE    without it
 *                                                DIRECT --pq_adopt--> FREE        under the lock
 *
 * The release of PQ_OWNED wakes those that sleep; after that of PQ_DIRECT others have to look
 * again. A relaxed load under the lock is therefore exact about PQ_OWNED, and only a hint about the
 * other two. */
enum pq_owner { PQ_FREE, PQ_OWNED, PQ_DIRECT };

struct progress_queue {
    struct pq_config config;
    bool shared; /* it serves collectives and messages */
    bool starts; /* requests are started and tested, by the backend or p2p; else executed */
    /* Unfinished requests; 0 = the queue is idle. A new one is published by the lock, or by
     * requests.deferred. A request that has finished is released, for a thread that finds the queue
     * idle without the lock. */
    atomic_uint pending;
    /* enum pq_owner. The backend's handle and `requests.in_flight` are the owner's: acquired with
     * it, and released with PQ_FREE. Changed by pq_take and pq_give_back alone. */
    atomic_int owner;
#ifndef NDEBUG
    pthread_t owner_thread; /* while it is not PQ_FREE */
#endif
    /* A thread has found another one directly inside, not long ago. A hint: the one inside soon
     * sees it, and the other looks again until then. pq_evict needs more, and says what. */
    atomic_bool contended;
    bool evicted; /* it stays contended; under the lock */
    /* PQ_WITHDRAWAL_WANTED. A hint: the owner looks in every round, and once the queue is free the
     * thread that waits withdraws its request itself. */
    atomic_uint withdrawals;
    atomic_bool executing; /* the owner executes a collective in one call of the backend */
    bool blocked;          /* the owner waits in the transport; under the lock */
    uint64_t needed_ns;    /* when a thread last had to wake the owner; under the lock */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* a request has finished, or ownership is free; CLOCK_MONOTONIC */
    struct pq_requests requests;
    struct pq_waiters waiters;
    struct pq_worker worker;
};

void pq_init(struct progress_queue *pq, const struct pq_config *config);
/* No collective may be inside or follow. Finishes all requests (the backend has been aborted) and
 * joins the worker. A thread that is late may still submit a message or look for one, which an
 * evicted queue refuses, and test, wait for or withdraw a request, until pq_fini. */
void pq_stop(struct progress_queue *pq);
void pq_fini(struct progress_queue *pq); /* of a queue that was stopped */

/* On success the queue has the request, and finishes it in every case. On failure the caller
 * keeps it: SYSTEM (no thread), ABORTED (the queue was evicted). */
int pq_submit(struct progress_queue *pq, struct collrun_request *request);
/* True if the backend cannot start the request, so that it has to be executed. */
bool pq_needs_exec(const struct progress_queue *pq, const struct collrun_request *request);
void pq_wait(struct collrun_request *request); /* until it is finished */
/* The same, for a request that no queue finishes: its thread broadcasts `changed`. */
void pq_await_finished(struct collrun_request *request);
/* Makes `stream` of the process's `device` wait for the request, which stays valid. If the
 * backend has no streams, waits until the request is finished. */
int pq_order_stream(struct collrun_request *request, uint32_t device, void *stream);
/* Makes progress if the queue is free; never blocks. True if a request has moved. */
bool pq_poll(struct progress_queue *pq);

/* The batch of a blocking call, started by the thread that is directly inside, becomes a request;
 * the thread is not inside any more. `r` has its group, calls, number and batch. */
void pq_adopt(struct progress_queue *pq, struct collrun_request *r);
/* OK: the request held receives alone that no message was matched with; it is finished for the
 * queue, without a call of ops->finished. AGAIN: too late, or it is finished. UNSUPPORTED: the
 * backend cannot withdraw what it has started, or not before the end of the collective that it
 * executes. Does not wait for other ranks. */
int pq_withdraw(struct collrun_request *request);
/* A thread waits, by other means than pq_wait, from begin to end; pq_stop waits for it. ABORTED:
 * the queue was evicted; the cause is stored. */
int pq_wait_begin(struct progress_queue *pq);
void pq_wait_end(struct progress_queue *pq);
/* One look for a message; AGAIN also if another thread owns the queue. ABORTED: the queue was
 * evicted; the cause is stored. */
int pq_probe(struct progress_queue *pq, struct p2p_probe *probe);
/* On return no thread is directly inside, or holds the queue, and none will. */
void pq_evict(struct progress_queue *pq);
/* True: pq_evict waits until pq_let_go, so the backend's handle is valid. False: it was evicted. */
bool pq_hold(struct progress_queue *pq);
void pq_let_go(struct progress_queue *pq);

/* Ownership for a use of the handle that is not a call; waits until it is free. */
void pq_acquire(struct progress_queue *pq);
void pq_release(struct progress_queue *pq);

/* What the comment "locked" claims: a thread has the lock. */
static inline void pq_assert_locked(struct progress_queue *pq)
{
    (void)pq;
    assert(pthread_mutex_trylock(&pq->lock) == EBUSY);
}

/* This thread owns the queue, or is directly inside. */
static inline void pq_assert_owner(const struct progress_queue *pq)
{
    (void)pq;
    assert(atomic_load_explicit(&pq->owner, memory_order_relaxed) != PQ_FREE);
    assert(pthread_equal(pq->owner_thread, pthread_self()));
}

/* False: another thread is inside. Sequentially consistent, in one order with pq_evict. */
static inline bool pq_take(struct progress_queue *pq, enum pq_owner as)
{
    int owner = PQ_FREE;
    const bool taken = atomic_compare_exchange_strong_explicit(
        &pq->owner, &owner, as, memory_order_seq_cst, memory_order_relaxed);
#ifndef NDEBUG
    if (taken)
        pq->owner_thread = pthread_self();
#endif
    return taken;
}

static inline void pq_give_back(struct progress_queue *pq)
{
    pq_assert_owner(pq);
    atomic_store_explicit(&pq->owner, PQ_FREE, memory_order_release);
}

static inline bool pq_queue_is_empty(const struct progress_queue *pq)
{
    return atomic_load_explicit(&pq->requests.nqueued, memory_order_acquire) == 0;
}

static inline uint64_t pq_number_submit(struct progress_queue *pq)
{
    _Atomic uint64_t *n = &pq->worker.nsubmits;
    const uint64_t number = atomic_load_explicit(n, memory_order_relaxed) + 1;
    atomic_store_explicit(n, number, memory_order_relaxed);
    return number;
}

/* Under the lock. */
static inline void pq_append(struct progress_queue *pq, struct collrun_request *r)
{
    struct pq_requests *q = &pq->requests;
    pq_assert_locked(pq);
    request_move(r, REQUEST_QUEUED);
    *q->queue_end = r;
    q->queue_end = &r->next;
}

/* Under the lock. */
static inline void pq_count_queued(struct pq_requests *q, int more)
{
    const unsigned n = atomic_load_explicit(&q->nqueued, memory_order_relaxed);
    atomic_store_explicit(&q->nqueued, n + (unsigned)more, memory_order_release);
}

static inline bool pq_is_idle(const struct progress_queue *pq)
{
    return atomic_load_explicit(&pq->pending, memory_order_acquire) == 0;
}

static inline void pq_leave_direct(struct progress_queue *pq)
{
    pq_give_back(pq);
}

/* True: this thread is directly inside, until pq_leave_direct or pq_adopt. */
static inline bool pq_enter_direct(struct progress_queue *pq)
{
    if (!pq_is_idle(pq) || atomic_load_explicit(&pq->contended, memory_order_relaxed) ||
        !pq_take(pq, PQ_DIRECT))
        return false;
    if (!atomic_load(&pq->contended))
        return true;
    pq_leave_direct(pq); /* pq_evict was faster */
    return false;
}

/* ---- deferred requests ---- */

/* Deferred requests. Most requests are waited for by the thread that has started them, before
 * anything else happens in their queue, and it is the waiting thread that executes them. Such a
 * request needs no list and no lock between its start and its wait:
 *
 * - pq_defer leaves it in `requests.deferred`, a place for one request.
 * - The thread that waits takes it out, is directly inside the queue, and executes it as a blocking
 *   call is executed.
 * - Whatever else needs the queue (another request, a poll, a cancellation, the worker a
 *   millisecond later, the report of what ranks wait for) first puts it into the queue: pq_admit.
 *   Then it is a request as any other, in its order.
 * - It counts in `pending` from the start, so no blocking call overtakes it. */

/* For a request of this queue, with `needs_exec` set, that need not begin before it is waited for.
 * False: the queue is not idle, or contended, or the worker sleeps; nothing has happened. */
bool pq_defer(struct collrun_request *r);

/* True: the request is deferred no more, and this thread is directly inside; until
 * pq_leave_deferred. */
bool pq_enter_deferred(struct collrun_request *r);
/* `status`: how it has ended. AGAIN: another thread needs the queue, and the messages of the
 * request have begun; it is one in flight from now on. */
void pq_leave_deferred(struct collrun_request *r, int status);

#endif
