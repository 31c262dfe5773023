/* SPDX-License-Identifier: Apache-2.0
 *
 * struct group_order: the groups of a rank that share what their devices hold (the option `share`).
 * Their backend launches their collectives in the order in which the engine starts them, and that
 * has to be the order of the program, which is the same on all ranks. Within a group the progress
 * queue keeps it; a request may wait there while another thread owns the queue, or behind one that
 * has to be executed. So a collective of another group first waits until the queue of the group
 * before it holds none.
 */
#ifndef ENGINE_GROUP_GROUP_ORDER_H
#define ENGINE_GROUP_GROUP_ORDER_H

#include "group/group.h"

struct group_order {
    pthread_mutex_t lock;
    /* The last one that was called; NULL: none. Set under the lock, by the thread inside. */
    _Atomic(struct collrun_group *) last;
    uint32_t refs; /* groups; under group_table.lock */
};

/* Of a group that is being opened. False: out of memory. */
bool group_order_join(struct collrun_group *g);
/* The group is being closed, or was not opened; no call is inside. */
void group_order_leave(struct collrun_group *g);
/* The group that it shares with; NULL: none. */
struct collrun_group *group_order_parent(const struct collrun_group *g);
void group_order_switch(struct collrun_group *g);

/* A collective of the group, which has an order, is about to be started or executed. */
static inline void group_order_enter(struct collrun_group *g)
{
    if (atomic_load_explicit(&g->order->last, memory_order_relaxed) != g)
        group_order_switch(g);
}

#endif
