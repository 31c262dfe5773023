/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread at a time may be inside a group. A second one is rejected with INVALID, and the error
 * names both workloads; it does not wait. Messages need not enter, since the progress queue
 * serializes the threads, unless the backend can only execute them.
 */
#ifndef ENGINE_GROUP_GROUP_ENTER_H
#define ENGINE_GROUP_GROUP_ENTER_H

#include "core/process.h"
#include "group/group.h"
#include "group/group_order.h"

/* The drivers that are no workload: a thread that a workload has made itself; a closed group. */
extern const struct collrun_ctx group_unknown_thread, group_closed_driver;

/* Composes the error message of the call `what`. Returns INVALID. */
int group_enter_rejected(struct collrun_group *g, const struct collrun_ctx *inside,
                         const char *what);

/* NULL: this thread is inside now. Else who is. */
static inline const struct collrun_ctx *group_try_enter(struct collrun_group *g)
{
    const struct collrun_ctx *inside = NULL, *me = thread_context;
    if (atomic_compare_exchange_strong_explicit(&g->driver, &inside,
                                                me ? me : &group_unknown_thread,
                                                memory_order_acquire, memory_order_relaxed))
        return NULL;
    return inside;
}

/* OK; or INVALID, with the error message of the call `what`. */
static inline int group_enter(struct collrun_group *g, const char *what)
{
    const struct collrun_ctx *inside = group_try_enter(g);
    return inside ? group_enter_rejected(g, inside, what) : COLLRUN_OK;
}

/* The same for a call of this kind. */
static inline int group_enter_kind(struct collrun_group *g, enum collrun_kind kind)
{
    const struct collrun_ctx *inside = group_try_enter(g);
    if (inside)
        return group_enter_rejected(g, inside, kind_name(kind));
    if (g->order && kind_is_collective(kind))
        group_order_enter(g);
    return COLLRUN_OK;
}

static inline void group_leave(struct collrun_group *g)
{
    atomic_store_explicit(&g->driver, NULL, memory_order_release);
}

static inline bool group_is_closed(const struct collrun_group *g)
{
    return atomic_load_explicit(&g->driver, memory_order_acquire) == &group_closed_driver;
}

/* For operations of a kind. */
static inline bool group_enters(const struct group_backend *gb, enum collrun_kind kind)
{
    return kind_is_collective(kind) || !gb->pq[GROUP_MESSAGES]->starts;
}

static inline int group_enter_for(const struct group_backend *gb, enum collrun_kind kind)
{
    if (group_enters(gb, kind))
        return group_enter_kind(gb->group, kind);
    return group_is_closed(gb->group)
               ? group_enter_rejected(gb->group, &group_closed_driver, kind_name(kind))
               : COLLRUN_OK;
}

static inline void group_leave_after(const struct group_backend *gb, enum collrun_kind kind)
{
    if (group_enters(gb, kind))
        group_leave(gb->group);
}

/* By the thread inside, which never leaves: later calls fail because the group was destroyed, or
 * belongs to the process that forked this one. */
static inline void group_mark_closed(struct collrun_group *g)
{
    atomic_store_explicit(&g->driver, &group_closed_driver, memory_order_release);
}

#endif
