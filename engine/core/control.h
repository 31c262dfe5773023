/* SPDX-License-Identifier: Apache-2.0
 *
 * struct control: this rank's end of the control connection.
 *
 * - One service thread reads. It stores the runner's events (go, stop background workloads, finish,
 *   abort) and passes replies to the threads that wait for them.
 * - Any thread may send; a lock keeps frames whole.
 * - If the job fails, an ABORT frame arrives: its text is stored, the service thread calls the
 *   abort hook, and every wait ends.
 * - If the connection closes, the agent has ended. This is handled as an ABORT; then the workloads
 *   or the program have LINGER_MS to return before the process exits.
 * - The descriptor was closed by other code of the process: collrun-engine exits; in a program this
 *   is handled as an ABORT.
 */
#ifndef ENGINE_CORE_CONTROL_H
#define ENGINE_CORE_CONTROL_H

#include "base/wire.h"

#include <pthread.h>
#include <stdatomic.h>

enum control_event {
    CONTROL_GO = 1u << 0,
    CONTROL_STOP_BACKGROUND = 1u << 1,
    CONTROL_FINISH = 1u << 2,
    CONTROL_ABORT = 1u << 3
};

struct control_request;

struct control_hooks { /* called by the service thread; none may block */
    /* A rank is the reason for the abort that follows; before CONTROL_ABORT is set. */
    void (*culprit)(void *ctx, uint32_t rank);
    void (*abort)(void *ctx); /* the job failed: see abort_reason */
    void (*lost)(void *ctx, uint32_t rank,
                 const char *text); /* a rank has ended, the job continues */
    /* Other code has closed the descriptor. Any thread. */
    void (*closed)(void *ctx);
    void (*tick)(void *ctx); /* every tick_ms */
    int tick_ms;
    bool in_program; /* the process is not collrun-engine */
    void *ctx;
};

struct control {
    int fd, wake_fd;
    uint32_t rank, attempt;
    pthread_t thread;
    bool running;

    pthread_mutex_t send_lock;
    struct buf out; /* the frame being built */
    bool broken;    /* nothing can be sent any more */
    bool fd_lost;   /* other code has closed the descriptor */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* CLOCK_MONOTONIC; broadcast at every change of the members below */
    /* Set of enum control_event; written under the lock. Released after what an event means, such
     * as `abort_reason` and the ranks that have failed; control_has acquires that. */
    atomic_uint events;
    struct control_request *requests;
    struct arena arena;       /* under the lock: file names in failures */
    struct diag abort_reason; /* valid with CONTROL_ABORT; never changes afterwards */

    struct control_hooks hooks;

    struct buf in; /* used by the service thread alone */
};

/* Takes the descriptor and waits for the first frame, which has to be `type`; its payload stays in
 * c->in until control_start. */
int control_open(struct control *c, int fd, uint16_t type, struct wire_frame *first,
                 struct diag *d);
/* Starts the service thread. */
int control_start(struct control *c, struct control_hooks hooks, struct diag *d);
/* Ends the service thread and the connection. What is sent from now on is dropped. */
void control_stop(struct control *c);
void control_close(struct control *c); /* the same, and frees everything */
/* In a forked child: drops its copy of the connection, whatever other threads were doing. */
void control_abandon(struct control *c);

/* Builds one frame in place, from the bytes that are put into the buffer between the two calls. The
 * send lock is held in between. Frames for an agent that has ended are dropped: the service thread
 * reports its end. */
struct buf *control_begin(struct control *c, uint16_t type, size_t *mark);
void control_end(struct control *c, size_t mark);
void control_send(struct control *c, uint16_t type); /* without payload */
void control_log(struct control *c, enum collrun_log_level level, const char *text);
/* A mistake of the program that does not fail it: the verdict lists it beside the class. */
void control_warn(struct control *c, enum collrun_log_level level, const char *text);

/* Ends every wait of this process, as an ABORT frame does. The first reason is kept. */
void control_abort(struct control *c, const struct diag *why);

static inline bool control_has(const struct control *c, unsigned events)
{
    return atomic_load_explicit(&c->events, memory_order_acquire) & events;
}

/* Waits until one of the events has occurred, or the deadline (now_ns) passes. True: one has
 * occurred. */
bool control_wait(struct control *c, unsigned events, uint64_t deadline_ns);
/* True if the job has failed, and why. */
bool control_aborted(struct control *c, struct diag *why);
/* For state of other modules that uses the same condition: lock, change it, notify, unlock. */
void control_lock(struct control *c);
void control_unlock(struct control *c);
void control_notify(struct control *c);
void control_wait_change(struct control *c, uint64_t deadline_ns); /* with the lock held */

/* A question and its answer. The caller fills in the first part, adds it (then sends the frame),
 * waits, and releases it. */
struct control_request {
    uint16_t answer_type; /* WIRE_REPLY or WIRE_FENCED */
    const char *scope, *key;
    uint32_t number; /* FENCED: instead of the key */

    struct buf value; /* the answer's payload after its status */
    struct diag failure;
    bool done;
    struct control_request *next;
};

void control_request_add(struct control *c, struct control_request *q);
/* OK; or the answer's failure, the job's abort, or TIMEOUT in `d`. */
int control_request_wait(struct control *c, struct control_request *q, uint64_t deadline_ns,
                         struct diag *d);
void control_request_fini(struct control *c, struct control_request *q);

#endif
