/* SPDX-License-Identifier: Apache-2.0
 *
 * What the threads of this rank are in, in the record (base/record_writer.h): every call of
 * collrun.h that may wait enters, says what it waits for, and leaves. Proofs of deadlock are made
 * from it (runner/diagnose/proof.h).
 *
 *     t = thread_record_collective(...)    a blocking call: it is inside when this returns
 *     ... the backend ...
 *     thread_record_return(t)
 *
 *     t = thread_record_post(...)          a request: counted before the queue has it
 *     ... pq_submit ...
 *     thread_record_pass(t)
 *
 *     t = thread_record_enter(...), thread_record_await(t, request), thread_record_inside(t, ...)
 *     ... pq_wait ...
 *     thread_record_leave(t, request)
 *
 * A `t` of NULL is not recorded, and every function accepts it. The operations inside an emulated
 * collective are not recorded, and neither is what another thread of the engine does for a request.
 *
 * Why no proof from this is wrong. A proof needs for each kind of call a condition that is true
 * whenever the call returns OK, and that no other rank can make true without a recorded step:
 *
 * - Collective number k of a group: it returns only after members (those that proof.c lists by the
 *   kind) have called number k. Each of them stores `called` before its backend is called, whether
 *   it blocks or posts a request. Deferred, queued and started requests are therefore alike.
 * - Receive from m: it returns only with a message that m has counted in `sent` before its
 *   transport got it. Messages are counted as taken by the thread that learns of them, in the phase
 *   LEAVING of its wait, test or blocking call, and never by the thread that completes the request:
 *   the worker, another caller's progress, or the transport may complete it at any time before.
 * Until then the message is still on the way and its request is open, for every reader. So sent -
 * taken is never smaller than the number of messages that no receive of this rank has been matched
 * with, plus one for each open receive that was. Earlier open receives of the same thread and
 * channel are matched first: the queue of the handle, and its transport, keep the order in which
 * one thread has posted them, also when a receive is deferred or a blocking call becomes a request.
 * Between the handles of several backends, and between the devices of one process, there is no such
 * order: these groups are UNORDERED, and nothing is proven with their messages.
 * - Send that cannot return before it is received (SYNC): its bytes exceed what the group's
 *   backends may buffer. It is matched by a receive of its peer that is open in the peer's record,
 *   or that has been taken; a receive that was completed, and not yet waited for, is open. A
 *   receive that has failed may have been matched: it stays, ABANDONED. A message of a rank to
 * itself is never SYNC.
 * - A send that is not made after all (the short way is closed) is taken back before its thread has
 *   left the phase ENTERING: no reader accepts a cut in between.
 * - Wait for requests: ALL or ANY of their operations. A request that is completed is listed as
 *   open until its wait leaves: its condition is true then, by the above.
 * - A receive that is canceled is WITHDRAWN before its queue is asked. From then on it holds back
 *   no message from later ones, and if it stays, it may complete at any time.
 * - Probe: it sees a message that is on the way, or that another thread takes while it returns,
 *   which the sum of `takes` shows. It reads the sum before its first look.
 * - Formation of a group, and splits: each has its slot and its id, so "has called" is "has
 *   the slot". All members have called it before one returns. What forms in another way (shrink,
 *   the part of a split, destroy) may return at any time.
 * - A group that has failed: its calls return an error; record_cut.h proves nothing with it.
 * - A callback of the program that calls this library from inside a call is lost
 *   (RECORD_LOST_THREADS), and nothing of the rank is proven any more.
 *
 * What is missing here hides a deadlock: sends that await their receivers because the peer's buffer
 * is full are not SYNC.
 */
#ifndef ENGINE_GROUP_THREAD_RECORD_H
#define ENGINE_GROUP_THREAD_RECORD_H

#include "base/record_writer.h"
#include "group/group.h"

/* ---- a call ---- */

/* A thread is in another call already, or the process has no slot for it. */
void thread_record_refuse(struct record_writer *w);

/* The call enters: what is counted and posted follows. */
static inline struct record_thread *thread_record_enter(struct record_writer *w)
{
    const uint16_t self = record_queue_thread;
    if (!w || !w->head)
        return NULL;
    if (!self || self >= RECORD_THREADS)
        return record_enter(w);
    struct record_thread *t = &w->threads[self];
    const uint32_t word = atomic_load_explicit(&t->word, memory_order_relaxed);
    if ((word & 3) != RECORD_OUTSIDE) {
        thread_record_refuse(w);
        return NULL;
    }
    record_enter_at(w, t, word & ~3u);
    return t;
}

/* It may return at any time. */
static inline struct record_thread *thread_record_enter_other(struct record_writer *w)
{
    struct record_thread *t = thread_record_enter(w);
    if (t)
        record_inside(t, RECORD_NONE, &(struct record_at){.since = record_ticks(w->head)});
    return t;
}

/* It returns: nothing was received, and no request completed. */
static inline void thread_record_return(struct record_thread *t)
{
    if (t)
        record_return(t);
}

/* It has entered, and returns without a wait. */
static inline void thread_record_pass(struct record_thread *t)
{
    if (!t)
        return;
    record_inside(t, RECORD_NONE, &(struct record_at){0});
    record_return(t);
}

/* ---- its parts ---- */

uint64_t thread_record_ticks_of(const struct collrun_group *g, uint64_t timeout_ns);

static inline struct record_at thread_record_at(const struct collrun_group *g,
                                                const struct collrun_call *call, uint64_t since,
                                                uint64_t site, uint64_t number)
{
    const uint64_t ticks = call->timeout_ns == g->timeout_ns
                               ? g->calls.timeout_ticks
                               : thread_record_ticks_of(g, call->timeout_ns);
    return (struct record_at){
        .since = since, .deadline = ticks ? since + ticks : 0, .site = site, .number = number};
}

static inline int32_t thread_record_world_rank(const struct collrun_group *g, int rank)
{
    return rank >= 0 && (uint32_t)rank < g->nranks ? (int32_t)g->id.members.items[rank]
                                                   : RECORD_ANY_RANK;
}

/* `tag`: of a v-form, where its counts begin (record_entry.tag). */
static inline struct record_part thread_record_collective_part(const struct collrun_group *g,
                                                               const struct collrun_call *call,
                                                               uint32_t tag, uint64_t number)
{
    const bool rooted = collrun_kind_row(call->kind).flags & COLLRUN_HAS_ROOT;
    return (struct record_part){
        .group = g->calls.record[GROUP_COLLECTIVES].group,
        .peer = rooted ? thread_record_world_rank(g, call->root) : RECORD_ANY_RANK,
        .tag = tag,
        .count = call->kind == COLLRUN_SCATTERV ? call->recvcount : call->count,
        .kind = (uint8_t)call->kind,
        .dtype = (uint8_t)call->dtype,
        .op = (uint8_t)call->op,
        .number = number};
}

static inline bool thread_record_is_sync(const struct collrun_group *g,
                                         const struct collrun_call *call)
{
    return call->kind == COLLRUN_SEND && (uint32_t)call->peer != g->rank &&
           call->count * dtype_size(call->dtype) > g->calls.eager_limit;
}

static inline struct record_part thread_record_message_part(const struct collrun_group *g,
                                                            const struct collrun_call *call)
{
    return (struct record_part){.group = g->calls.record[GROUP_MESSAGES].group,
                                .peer = call->kind == COLLRUN_RECV_ANY
                                            ? RECORD_ANY_RANK
                                            : thread_record_world_rank(g, call->peer),
                                .tag = call->tag,
                                .count = call->count,
                                .kind = (uint8_t)call->kind,
                                .flags = thread_record_is_sync(g, call) ? RECORD_SYNC : 0,
                                .dtype = (uint8_t)call->dtype};
}

/* ---- blocking calls ---- */

/* A collective that call_record_collectives has recorded, at the ticks `since`. */
static inline __attribute__((always_inline)) struct record_thread *
thread_record_collective(const struct collrun_group *g, const struct collrun_call *call,
                         uint32_t tag, uint64_t number, uint64_t site)
{
    struct record_writer *w = g->process->writer;
    struct record_group *slot = g->calls.record[GROUP_COLLECTIVES].group;
    if (!slot)
        return thread_record_enter_other(w);
    struct record_thread *t = thread_record_enter(w);
    if (!t)
        return NULL;
    const struct record_part part = thread_record_collective_part(g, call, tag, number);
    const struct record_at at = thread_record_at(g, call, slot->since, site, 0);
    record_begin_collective(w, t, slot, &part);
    record_inside(t, RECORD_ALL, &at);
    return t;
}

/* One or two messages, with this number. */
static inline struct record_thread *thread_record_messages(const struct collrun_group *g,
                                                           const struct collrun_call *calls,
                                                           uint32_t n, uint64_t number,
                                                           uint64_t since, uint64_t site)
{
    struct record_writer *w = g->process->writer;
    if (!g->calls.record[GROUP_MESSAGES].group)
        return thread_record_enter_other(w);
    struct record_thread *t = thread_record_enter(w);
    for (uint32_t i = 0; t && i < n; i++) {
        const struct record_part part = thread_record_message_part(g, &calls[i]);
        record_begin(w, t, &part);
    }
    if (t) {
        const struct record_at at = thread_record_at(g, calls, since, site, number);
        record_inside(t, RECORD_ALL, &at);
    }
    return t;
}

/* A send that its transport takes at once, or not at all: it enters, and is counted. */
static inline struct record_thread *thread_record_send(const struct collrun_group *g,
                                                       const struct collrun_call *call)
{
    struct record_writer *w = g->process->writer;
    struct record_thread *t = g->calls.record[GROUP_MESSAGES].group ? thread_record_enter(w) : NULL;
    if (t) {
        const struct record_part part = thread_record_message_part(g, call);
        record_begin(w, t, &part);
    }
    return t;
}

static inline void thread_record_sent(const struct collrun_group *g, struct record_thread *t,
                                      const struct collrun_call *call, bool sent)
{
    if (t && !sent) {
        const struct record_part part = thread_record_message_part(g, call);
        record_uncount_sent(g->process->writer, &part);
    }
    thread_record_pass(t);
}

/* It is about to look for the first time. */
struct record_thread *thread_record_probe(const struct collrun_group *g,
                                          const struct collrun_call *call, uint64_t number,
                                          uint64_t site);

/* They have ended with `status`. A receive from any rank, or with any tag, has been given a place
 * for those of its message. */
void thread_record_messages_end(const struct collrun_group *g, struct record_thread *t,
                                const struct collrun_call *calls, uint32_t n, int status);

/* ---- requests ---- */

/* The operations of a request, which is about to be queued: the call enters. It goes on by
 * thread_record_pass, or waits for the request at once. Messages are open from now on, and
 * collectives count as called; these are listed when a thread waits for them. */
struct record_thread *thread_record_post(struct collrun_request *r, uint64_t site);
/* The queue has refused it. */
void thread_record_drop(struct collrun_request *r);

/* The call that has entered waits for the request. */
void thread_record_await(struct record_writer *w, struct record_thread *t,
                         const struct collrun_request *r);
/* Inside the wait, of the mode, for requests of which `r` is the first. It counts as begun when
 * that one was posted, as does the time-out. */
void thread_record_inside(struct record_thread *t, enum record_mode mode,
                          const struct collrun_request *r, uint64_t site);
/* The call, which posts nothing and waits for nothing, is about to withdraw the receives of a
 * request; and it has, if `status` is OK. */
struct record_thread *thread_record_withdraw(struct collrun_request *r);
void thread_record_withdrawn(struct record_thread *t, struct collrun_request *r, int status);
/* As the call leaves: the request is finished, its messages are taken. */
void thread_record_complete(struct record_writer *w, struct record_thread *t,
                            struct collrun_request *r);

/* The call leaves with this one. */
static inline void thread_record_leave(struct record_writer *w, struct record_thread *t,
                                       struct collrun_request *r)
{
    if (!t)
        return;
    record_leave(t);
    thread_record_complete(w, t, r);
    record_outside(t);
}

/* ---- formations ---- */

/* What all members do once, and together: they form a group, or split one. */
struct thread_record_form {
    uint64_t id; /* equal on all members, and unique in the job; 0: it may return at any time */
    const char *name;
    const struct desc_ranks *members; /* world ranks */
};

/* A thread waits for the other members, until thread_record_form_end. `slot` is zeroed if there is
 * none. */
struct record_thread *thread_record_form(struct process *p, const struct thread_record_form *form,
                                         struct record_queue *slot);
void thread_record_form_end(struct record_thread *t, struct record_queue *slot);
/* A request: its handle. record_queue_close follows when it is freed. */
uint32_t thread_record_form_post(struct process *p, const struct thread_record_form *form,
                                 struct record_queue *slot);

#endif
