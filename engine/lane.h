/* SPDX-License-Identifier: Apache-2.0
 *
 * struct lane: the way into one backend handle, one call at a time, as the ABI demands. A blocking
 * call on an idle lane goes straight through in the caller's thread. Everything else becomes a
 * request: a queue in order of arrival, a worker thread that is made for the first request, and
 * waiters that take the worker's place while they wait, so that progress never depends on anybody
 * waiting and waiting costs no hop.
 *
 * Whoever holds the turn takes requests off the queue. A backend with start and test gets them all
 * started, and then asked in turn. For one with exec alone, a collective runs by itself, and
 * neighbouring messages run as one batch, in which they progress together. What comes while a batch
 * runs has to wait for it, so the worker leaves a batch of messages open until nothing has been
 * added for a while; a waiter closes it at once.
 */
#ifndef ENGINE_LANE_H
#define ENGINE_LANE_H

#include "error.h"
#include "traffic.h"

#include <collrun/backend.h>
#include <pthread.h>
#include <stdatomic.h>

struct backend;
struct collrun_group;
struct stage;

struct collrun_request {
    struct collrun_group *group; /* a reference; kept until the request is freed */
    struct lane *lane;
    struct collrun_call *calls; /* copies, with their count arrays, in this very allocation */
    uint32_t ncalls;
    uint64_t number; /* of the operation in its group */
    uint64_t submitted_ns;
    uint64_t deadline_ns;         /* when the engine steps in, should the backend not */
    void *handle;                 /* the backend's, while it is started */
    bool needs_exec;              /* start cannot do it */
    bool staged;                  /* its buffers are copies of those on a GPU: */
    struct stage *stage;          /* these; until it is finished */
    bool expired;                 /* the engine has aborted the group for it */
    atomic_int status;            /* AGAIN until it is finished */
    struct error_record *failure; /* of a finished one that failed; NULL: out of memory for it */
    bool started;                 /* `handle` is valid until it is finished */
    struct collrun_request *next;
    struct collrun_request *later, **link; /* in `unfinished`: the next, and who points to this */
};

/* A thread that waits for a request. */
struct lane_waiter {
    int thread;
    const struct collrun_request *request;
    struct lane_waiter *next;
};

struct lane {
    struct collrun_group *group;
    struct backend *backend;
    void *handle;  /* the backend's group */
    bool shared;   /* it serves collectives and messages */
    bool starts;   /* requests go through the backend's start and test, else through exec */
    bool in_order; /* what different lanes start at the backend comes in the program's order */
    struct traffic traffic;
    atomic_uint pending; /* requests that are not finished; 0 = the lane is idle */

    pthread_mutex_t lock;
    pthread_cond_t changed, work; /* for those who wait, and for the worker; CLOCK_MONOTONIC */
    struct collrun_request *queue, **queue_end; /* not started yet */
    struct collrun_request *flying;             /* started */
    struct collrun_request *unfinished;         /* all there are, wherever they stand */
    struct lane_waiter *waiting;                /* who waits, and for which */
    uint64_t waits;                             /* how often anybody has begun to */
    uint64_t last_ns;                           /* when the last request came */
    bool taken;                                 /* somebody has the turn */
    bool blocked;                               /* ... and is inside something that blocks */
    unsigned waiters, sleepers; /* threads that wait, making progress; those who cannot just now */
    bool stopping, has_worker;
    pthread_t worker;
};

void lane_init(struct lane *lane, struct collrun_group *group, struct backend *backend,
               void *handle);
/* Takes the request, which then finishes at some time, whatever happens; or fails and leaves it to
 * the caller. */
int lane_submit(struct lane *lane, struct collrun_request *request);
void lane_wait(struct collrun_request *request); /* until it is finished */
/* Has `stream` of one of the group's GPUs wait for the request, which lives on; where the backend
 * has no streams, waits until it is finished. */
int lane_order(struct collrun_request *request, uint32_t device, void *stream);
void lane_poke(struct lane *lane); /* makes some progress if nobody else does; never blocks */
/* No call may be inside or come. Finishes what is left (the backend has been aborted), ends the
 * worker. */
void lane_fini(struct lane *lane);

/* Sole use of the handle, for what is neither a call nor thread-safe; waits until the turn is free.
 */
void lane_acquire(struct lane *lane);
void lane_release(struct lane *lane);

static inline bool lane_is_idle(const struct lane *lane)
{
    return atomic_load_explicit(&lane->pending, memory_order_acquire) == 0;
}

/* One or more calls through to the backend; blocks. Native ones only. */
int lane_exec(struct lane *lane, const struct collrun_call *calls, uint32_t ncalls);

#endif
