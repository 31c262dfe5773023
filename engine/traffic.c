/* SPDX-License-Identifier: Apache-2.0
 *
 * An open hash table that grows once.
 */
#include "traffic.h"

#include <stdlib.h>

static struct traffic_table *table_new(uint32_t size)
{
    struct traffic_table *table = calloc(1, sizeof *table + size * sizeof table->entries[0]);
    if (table)
        table->size = size;
    return table;
}

/* The entry of a key, or the free one where it would be. */
static struct traffic_entry *look_up(struct traffic_table *table, uint64_t key)
{
    uint64_t at = (key * 0x9e3779b97f4a7c15u) >> 32;
    for (;; at++) {
        struct traffic_entry *e = &table->entries[at & (table->size - 1)];
        uint64_t there = atomic_load_explicit(&e->key, memory_order_relaxed);
        if (there == key || there == 0)
            return e;
    }
}

static void copy(struct traffic_table *to, const struct traffic_table *from)
{
    for (uint32_t i = 0; i < from->size; i++) {
        const struct traffic_entry *e = &from->entries[i];
        if (!e->key)
            continue;
        struct traffic_entry *place = look_up(to, e->key);
        atomic_init(&place->key, e->key);
        atomic_init(&place->sent, e->sent);
        atomic_init(&place->received, e->received);
    }
    to->used = from->used;
}

/* With room for one more; NULL: there is none. */
static struct traffic_table *with_room(struct traffic *t)
{
    struct traffic_table *table = atomic_load_explicit(&t->table, memory_order_relaxed);
    if (table && table->used < table->size / 4 * 3)
        return table;
    if (table && table->size == TRAFFIC_MOST)
        return NULL;
    struct traffic_table *grown = table_new(table ? TRAFFIC_MOST : TRAFFIC_FEW);
    if (!grown)
        return NULL;
    if (table)
        copy(grown, table);
    t->outgrown = table;
    atomic_store_explicit(&t->table, grown, memory_order_release);
    return grown;
}

static struct traffic_entry *entry_of(struct traffic *t, uint64_t key)
{
    struct traffic_table *table = atomic_load_explicit(&t->table, memory_order_relaxed);
    struct traffic_entry *e = table ? look_up(table, key) : NULL;
    if (e && atomic_load_explicit(&e->key, memory_order_relaxed))
        return e;
    table = with_room(t);
    if (!table)
        return NULL;
    e = look_up(table, key);
    atomic_store_explicit(&e->key, key, memory_order_relaxed);
    table->used++;
    return e;
}

void traffic_count(struct traffic *t, const struct collrun_call *message)
{
    bool any = message->kind == COLLRUN_RECV_ANY;
    if (atomic_load_explicit(&t->lost, memory_order_relaxed))
        return;
    struct traffic_entry *e = NULL;
    if (!any || message->source) {
        uint64_t member = (uint32_t)(any ? *message->source : message->peer);
        e = entry_of(t, 1 + (member << 32 | message->tag));
    }
    if (!e) {
        atomic_store_explicit(&t->lost, true, memory_order_release);
        return;
    }
    _Atomic uint64_t *count = message->kind == COLLRUN_SEND ? &e->sent : &e->received;
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
                          memory_order_release);
}

void traffic_fini(struct traffic *t)
{
    free(t->outgrown);
    free(atomic_load_explicit(&t->table, memory_order_relaxed));
    *t = (struct traffic){0};
}
