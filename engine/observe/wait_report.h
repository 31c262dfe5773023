/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations that the threads of this rank wait for, as a WAIT_REPORT frame. The runner
 * compares the frames of all ranks and decides whether any rank can continue (diagnose/deadlock.h).
 *
 * - A blocking call is recorded in its group (struct blocked_call); a thread that waits for a
 *   request is in the list of its progress queue, one that waits for the members of a new group in
 *   engine.forming.
 * - At every tick the service thread compares a few counters of the groups. While they change, that
 *   is all. Once they do not, it takes a snapshot at every tick, and sends one only if two in a row
 *   are equal. A thread that went through a call in between has changed a sequence number.
 * - A frame is certain if every other thread of the process is blocked, too (threads.h). One that
 *   is not certain explains a time-out, but never ends a job. It says whether a thread that has
 *   called this library before is free to call it again.
 * - A rank that continues after its frame withdraws it by one without waits that is not certain,
 *   unless an operation has timed out, which the frame explains.
 *
 * A frame also holds the posted operations and the numbers of messages that were sent and received,
 * of splits and of creations, which only grow. A frame that is old when it is read can therefore
 * hide a deadlock, but never invent one.
 */
#ifndef ENGINE_OBSERVE_WAIT_REPORT_H
#define ENGINE_OBSERVE_WAIT_REPORT_H

#include "core/threads.h"

#include <collrun/types.h>
#include <stdatomic.h>

struct collrun_group;
struct engine;

enum { WAIT_REPORT_TICK_MS = 100, BLOCKED_CALL_OPS = 2 /* of a blocking function, at most */ };

/* The blocking call that a thread executes. The thread, one at a time, writes it, relaxed, and then
 * releases `seq`. The service thread acquires an odd `seq` and reads the rest. The value is torn if
 * a later call has begun meanwhile: then the snapshot a tick later, when every store of that call
 * is visible, finds another `seq`. */
struct blocked_op {
    _Atomic uint32_t packed; /* kind, dtype and op, a byte each */
    _Atomic uint32_t tag;
    atomic_int peer;
    _Atomic uint64_t count;
};

struct blocked_call {
    _Atomic uint64_t seq; /* odd: a thread is inside */
    _Atomic uint64_t number, timeout_ns;
    atomic_int thread;
    _Atomic uint32_t ncalls;
    struct blocked_op calls[BLOCKED_CALL_OPS];
};

/* Hashes of the counters at the last tick, of the last snapshot and of the last frame that was
 * sent; 0 = none. */
struct wait_reporter {
    uint64_t counters, last, sent;
    bool sent_certain;
    /* wait_report_busy. A report is certain only if it was 0 in two snapshots, a tick apart. */
    atomic_int busy;
};

static inline uint32_t blocked_op_pack(const struct collrun_call *call)
{
    return (uint32_t)call->kind | (uint32_t)call->dtype << 8 | (uint32_t)call->op << 16;
}

static inline void blocked_call_begin(struct blocked_call *n, const struct collrun_call *calls,
                                      uint32_t ncalls, uint64_t number)
{
    ncalls = ncalls < BLOCKED_CALL_OPS ? ncalls : BLOCKED_CALL_OPS;
    for (uint32_t i = 0; i < ncalls; i++) {
        atomic_store_explicit(&n->calls[i].packed, blocked_op_pack(&calls[i]),
                              memory_order_relaxed);
        atomic_store_explicit(&n->calls[i].tag, calls[i].tag, memory_order_relaxed);
        atomic_store_explicit(&n->calls[i].peer, calls[i].peer, memory_order_relaxed);
        atomic_store_explicit(&n->calls[i].count, calls[i].count, memory_order_relaxed);
    }
    atomic_store_explicit(&n->ncalls, ncalls, memory_order_relaxed);
    atomic_store_explicit(&n->number, number, memory_order_relaxed);
    atomic_store_explicit(&n->timeout_ns, calls->timeout_ns, memory_order_relaxed);
    atomic_store_explicit(&n->thread, threads_caller(), memory_order_relaxed);
    atomic_store_explicit(&n->seq, atomic_load_explicit(&n->seq, memory_order_relaxed) + 1,
                          memory_order_release);
}

static inline void blocked_call_end(struct blocked_call *n)
{
    atomic_store_explicit(&n->seq, atomic_load_explicit(&n->seq, memory_order_relaxed) + 1,
                          memory_order_release);
}

/* A thread begins (1) or ends (-1) a wait inside the engine that is not for an operation. No report
 * is certain in between. */
static inline void wait_report_busy(struct wait_reporter *w, int change)
{
    atomic_fetch_add_explicit(&w->busy, change, memory_order_seq_cst);
}

/* Called by the service thread every WAIT_REPORT_TICK_MS. */
void wait_report_update(struct engine *e);

#endif
