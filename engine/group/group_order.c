/* SPDX-License-Identifier: Apache-2.0
 *
 * Every switch from one group to another leaves nothing behind that is not started, so the group
 * that was called last is the only one to look at. Threads that use groups of one order at the same
 * time take turns here, and have no order.
 */
#include "group/group_order.h"

#include "core/process.h"
#include "progress/progress_queue.h"

#include <stdlib.h>

struct collrun_group *group_order_parent(const struct collrun_group *g)
{
    const struct desc *desc = &g->process->desc;
    uint32_t share = g->id.index < desc->ngroups ? desc->groups[g->id.index].share : 0;
    return share ? group_find(g->table, desc->groups[share - 1].name) : NULL;
}

bool group_order_join(struct collrun_group *g)
{
    const struct desc *desc = &g->process->desc;
    struct collrun_group *parent = group_order_parent(g);
    if (parent) {
        g->order = parent->order;
    } else if (g->id.index < desc->ngroups && desc_group_is_shared(desc, g->id.index)) {
        g->order = calloc(1, sizeof *g->order);
        if (!g->order)
            return false;
        pthread_mutex_init(&g->order->lock, NULL);
    }
    if (g->order) {
        pthread_mutex_lock(&g->table->lock);
        g->order->refs++;
        pthread_mutex_unlock(&g->table->lock);
    }
    return true;
}

void group_order_leave(struct collrun_group *g)
{
    struct group_order *order = g->order;
    if (!order)
        return;
    pthread_mutex_lock(&order->lock);
    if (atomic_load(&order->last) == g)
        atomic_store(&order->last, NULL);
    pthread_mutex_unlock(&order->lock);
    g->order = NULL;
    pthread_mutex_lock(&g->table->lock);
    bool is_last = --order->refs == 0;
    pthread_mutex_unlock(&g->table->lock);
    if (!is_last)
        return;
    pthread_mutex_destroy(&order->lock);
    free(order);
}

void group_order_switch(struct collrun_group *g)
{
    struct group_order *order = g->order;
    pthread_mutex_lock(&order->lock);
    struct collrun_group *last = atomic_load(&order->last);
    for (uint32_t i = 0; last && last != g && i < last->nbackends; i++)
        pq_settle(last->backends[i].pq[GROUP_COLLECTIVES]);
    atomic_store(&order->last, g);
    pthread_mutex_unlock(&order->lock);
}
