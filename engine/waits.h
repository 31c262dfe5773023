/* SPDX-License-Identifier: Apache-2.0
 *
 * What the threads of this rank wait for, told to the runner (WIRE_WAITS) once they have stood
 * still for a while. The runner puts the words of all ranks together and finds out whether any of
 * them can ever go on (watch/deadlock.h).
 *
 * That is a proof, so this side says nothing that it is not sure of. A blocking call leaves a note
 * in its group, whoever waits for a request is in the lane's list, and two looks in a row have to
 * find the same; a thread that went through a call in between has left a number behind. The word is
 * sure if every other thread of the process stands still, too (threads.h). An unsure one explains a
 * time-out, but never ends a job.
 *
 * What has been posted and what has been sent is told along, in numbers that only grow. So a word
 * that is old when it is read can hide a deadlock, and never makes one up.
 */
#ifndef ENGINE_WAITS_H
#define ENGINE_WAITS_H

#include <collrun/types.h>

#include <stdatomic.h>

struct collrun_group;
struct engine;

enum { WAITS_LOOK_MS = 500, WAITS_CALLS = 2 /* of a blocking function, at most */ };

/* The call that a thread is inside of. Written by that thread, read by the service thread, which
 * looks at `turns` before and after. */
struct wait_call {
    _Atomic uint32_t sort; /* kind, dtype and op, a byte each */
    _Atomic uint32_t tag;
    atomic_int peer;
    _Atomic uint64_t count;
};

struct wait_note {
    _Atomic uint64_t turns; /* odd: a thread is inside */
    _Atomic uint64_t number, timeout_ns;
    atomic_int thread;
    _Atomic uint32_t ncalls;
    struct wait_call calls[WAITS_CALLS];
};

/* What the last look found, and what was told: hashes; 0 = nothing. */
struct waits {
    uint64_t seen, told;
    bool told_sure;
    atomic_int busy; /* waits_busy */
};

int waits_thread(void); /* this thread's number, as the kernel counts */

static inline uint32_t wait_sort(const struct collrun_call *call)
{
    return (uint32_t)call->kind | (uint32_t)call->dtype << 8 | (uint32_t)call->op << 16;
}

static inline void waits_enter(struct wait_note *n, const struct collrun_call *calls,
                               uint32_t ncalls, uint64_t number)
{
    ncalls = ncalls < WAITS_CALLS ? ncalls : WAITS_CALLS;
    for (uint32_t i = 0; i < ncalls; i++) {
        atomic_store_explicit(&n->calls[i].sort, wait_sort(&calls[i]), memory_order_relaxed);
        atomic_store_explicit(&n->calls[i].tag, calls[i].tag, memory_order_relaxed);
        atomic_store_explicit(&n->calls[i].peer, calls[i].peer, memory_order_relaxed);
        atomic_store_explicit(&n->calls[i].count, calls[i].count, memory_order_relaxed);
    }
    atomic_store_explicit(&n->ncalls, ncalls, memory_order_relaxed);
    atomic_store_explicit(&n->number, number, memory_order_relaxed);
    atomic_store_explicit(&n->timeout_ns, calls->timeout_ns, memory_order_relaxed);
    atomic_store_explicit(&n->thread, waits_thread(), memory_order_relaxed);
    atomic_store_explicit(&n->turns, atomic_load_explicit(&n->turns, memory_order_relaxed) + 1,
                          memory_order_release);
}

static inline void waits_leave(struct wait_note *n)
{
    atomic_store_explicit(&n->turns, atomic_load_explicit(&n->turns, memory_order_relaxed) + 1,
                          memory_order_release);
}

/* A thread begins (1) or ends (-1) to wait inside the engine for something that is no operation:
 * meanwhile nothing is certain. */
void waits_busy(struct engine *e, int change);

/* From the service thread, every WAITS_LOOK_MS. */
void waits_look(struct engine *e);

#endif
