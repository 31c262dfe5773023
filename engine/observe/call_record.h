/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls in the flight recorder (base/record.h): one entry per message and collective, the marks of
 * collectives, the current operation. What the workload calls is recorded, not what an emulated
 * form or a check sends for it.
 *
 * - Collectives: by the thread inside the group, when they are numbered.
 * - Messages: entries by any thread, the current operation by the owner of the queue.
 */
#ifndef ENGINE_OBSERVE_CALL_RECORD_H
#define ENGINE_OBSERVE_CALL_RECORD_H

#include "base/record_queue.h"
#include "group/group.h"
#include "group/route.h"

/* The caller of a function of collrun.h: struct route.site. */
#define CALL_RECORD_SITE ((uint64_t)(uintptr_t)__builtin_return_address(0))

/* How many entries a request or blocking call takes: one for each message and each call of a batch;
 * a collective with a call per device is one operation. */
static inline uint32_t call_record_entries(const struct group_backend *gb,
                                           const struct collrun_call *calls, uint32_t ncalls)
{
    return ncalls == 1 || collrun_kind_is_message(calls->kind) ? ncalls
                                                               : batch_numbers(gb, calls, ncalls);
}

/* Records complete calls whose first number is `number`: RECORD_STARTED, or RECORD_POSTED. Returns
 * the index of the first entry. */
uint64_t call_record_collectives(const struct route *route, const struct collrun_call *calls,
                                 uint32_t ncalls, uint64_t number, enum record_state state);
uint64_t call_record_messages_at(const struct route *route, const struct collrun_call *calls,
                                 uint32_t ncalls, uint64_t number, enum record_state state,
                                 uint64_t ticks);
/* The first message becomes the current operation of its queue, at that time. */
void call_record_enter_message(struct collrun_group *g, const struct collrun_call *call,
                               uint64_t number, uint64_t ticks);

/* Where the counts of the v-form that was recorded there begin (record_entry.tag). */
static inline uint32_t call_record_counts_at(const struct collrun_group *g,
                                             const struct collrun_call *call, uint64_t index)
{
    if (!collrun_kind_is_vector(call->kind))
        return 0;
    const struct record_entry *e = record_queue_find(&g->calls.record[GROUP_COLLECTIVES], index);
    return e ? e->tag : RECORD_NO_COUNTS;
}

/* Calls that have numbers, but fail with `status` before they begin. All ranks record them, so that
 * their later marks agree. */
void call_record_not_begun(const struct route *route, const struct collrun_call *calls,
                           uint32_t ncalls, uint64_t number, int status);

/* The present time, if it is recorded. */
static inline uint64_t call_record_ticks(const struct collrun_group *g)
{
    const struct record_head *head = g->calls.record[GROUP_MESSAGES].head;
    return head ? record_ticks(head) : 0;
}

/* The same if times of ends are recorded, too; else 0. */
static inline uint64_t call_record_ticks_if_timed(const struct collrun_group *g)
{
    const struct record_head *head = g->calls.record[GROUP_MESSAGES].head;
    return head ? record_ticks_if_timed(head) : 0;
}

static inline uint64_t call_record_messages(const struct route *route,
                                            const struct collrun_call *calls, uint32_t ncalls,
                                            uint64_t number, enum record_state state)
{
    return call_record_messages_at(route, calls, ncalls, number, state,
                                   call_record_ticks(route->gb->group));
}

/* The current operation, a send, is done: records it, as called at that time. */
void call_record_sent(const struct route *route, const struct collrun_call *call, uint64_t number,
                      uint64_t called);

/* `n` entries from `first` on were posted, and are begun now. */
static inline void call_record_start(const struct collrun_group *g, enum group_queue which,
                                     uint64_t first, uint32_t n)
{
    const struct record_queue *q = &g->calls.record[which];
    if (first == RECORD_QUEUE_NONE)
        return;
    uint64_t ticks = record_ticks_if_timed(q->head);
    for (uint32_t i = 0; i < n; i++)
        record_queue_start(q, first + i, ticks);
}

/* They have ended with `status`; the last one has the number `number`. 0: it was not the current
 * operation. After a failure of the group the rank counts as inside the operation. */
void call_record_end_all(struct collrun_group *g, enum group_queue which, uint64_t first,
                         uint32_t n, uint64_t number, int status);
static inline void call_record_end(struct collrun_group *g, enum group_queue which, uint64_t first,
                                   uint32_t n, uint64_t number, int status)
{
    const struct record_queue *q = &g->calls.record[which];
    if (n != 1 || !number || status != COLLRUN_OK) {
        call_record_end_all(g, which, first, n, number, status);
        return;
    }
    record_queue_leave(q, number);
    if (first != RECORD_QUEUE_NONE)
        record_queue_end(q, first, RECORD_DONE, record_ticks_if_timed(q->head));
}

/* The messages have been received: an entry of a receive from any source, or with any tag, gets
 * those of its message, as far as the caller asked for them. Before call_record_end. */
void call_record_received(struct collrun_group *g, uint64_t first, const struct collrun_call *calls,
                          uint32_t n);
/* A request of receives was withdrawn. */
void call_record_cancel(struct collrun_group *g, uint64_t first, uint32_t n, uint64_t number);

#endif
