/* SPDX-License-Identifier: Apache-2.0
 *
 * struct control: this rank's end of the control stream. One service thread owns the reading side:
 * it keeps what the job has been told to do (go, stop background workloads, finish, abort), hands
 * answers to the threads that wait for them, and collects the descriptors that come along. Any
 * thread may send; one lock keeps frames whole.
 *
 * When the job fails, an ABORT frame arrives: its sentence is kept, the abort hook is called at
 * once from the service thread, and every wait ends. The end of the stream means that the agent is
 * gone, and is treated the same way; then the workloads have LINGER_MS to return before the process
 * exits.
 */
#ifndef ENGINE_CONTROL_H
#define ENGINE_CONTROL_H

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

struct control_hooks {        /* called by the service thread; none may block */
    void (*abort)(void *ctx); /* the job failed: abort_reason says why */
    void (*lost)(void *ctx, uint32_t rank,
                 const char *sentence); /* a rank is gone, the job goes on */
    void (*look)(void *ctx);            /* now and then */
    int look_ms;
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

    pthread_mutex_t lock;
    pthread_cond_t changed; /* on CLOCK_MONOTONIC; broadcast at every change of what stands below */
    atomic_uint events;     /* set of enum control_event; written under the lock */
    struct control_request *requests;
    struct arena arena;       /* with the lock: what failures say of files */
    struct diag abort_reason; /* valid with CONTROL_ABORT; never changes afterwards */

    struct control_hooks hooks;

    struct buf
        in; /* the service thread's own, as are the descriptors that arrived and were not claimed */
    int *fds;
    size_t nfds;
};

/* Takes the descriptor and waits for the first frame, which has to be `type`; its payload stays in
 * c->in until control_start. */
int control_open(struct control *c, int fd, uint16_t type, struct wire_frame *first,
                 struct diag *d);
/* Starts the service thread. */
int control_start(struct control *c, struct control_hooks hooks, struct diag *d);
void control_close(struct control *c);

/* Builds one frame in place: what is put into the buffer between the two. The send lock is held in
 * between. Frames for an agent that is gone vanish: the service thread reports that better. */
struct buf *control_begin(struct control *c, uint16_t type, size_t *mark);
void control_end(struct control *c, size_t mark);
void control_send(struct control *c, uint16_t type); /* without payload */
void control_log(struct control *c, enum collrun_log_level level, const char *text);

static inline bool control_has(const struct control *c, unsigned events)
{
    return atomic_load_explicit(&c->events, memory_order_acquire) & events;
}

/* Waits until one of the events is there, or the deadline (now_ns) passes. True: one is there. */
bool control_wait(struct control *c, unsigned events, uint64_t deadline_ns);
/* For state of others that hangs on the same condition: lock, change it, notify, unlock. */
void control_lock(struct control *c);
void control_unlock(struct control *c);
void control_notify(struct control *c);
void control_wait_change(struct control *c, uint64_t deadline_ns); /* with the lock held */

/* A question and its answer. The caller fills in the first part, adds it (then sends the frame),
 * waits, and releases it. */
struct control_request {
    uint16_t answer_type; /* WIRE_REPLY, WIRE_FENCED or WIRE_SEGMENT_FD */
    const char *scope, *key;
    uint32_t number; /* FENCED: instead of the key */

    struct buf value; /* the answer's payload after its status */
    int fd;           /* SEGMENT_FD: the caller's to take; -1 = none */
    struct diag failure;
    bool done;
    struct control_request *next;
};

void control_request_add(struct control *c, struct control_request *q);
/* OK; or the answer's failure, the job's abort, or TIMEOUT in `d`. */
int control_request_wait(struct control *c, struct control_request *q, uint64_t deadline_ns,
                         struct diag *d);
void control_request_fini(struct control *c,
                          struct control_request *q); /* closes an fd that was not taken */

#endif
