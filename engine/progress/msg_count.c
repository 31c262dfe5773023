/* SPDX-License-Identifier: Apache-2.0
 *
 * An open hash table that grows once.
 */
#include "progress/msg_count.h"

#include <stdlib.h>

static struct msg_count_table *msg_count_table_new(uint32_t size)
{
    struct msg_count_table *table = calloc(1, sizeof *table + size * sizeof table->entries[0]);
    if (table)
        table->size = size;
    return table;
}

/* The entry of a key, or the free one where it would be. */
static struct msg_count_entry *msg_count_look_up(struct msg_count_table *table, uint64_t key)
{
    uint64_t at = (key * 0x9e3779b97f4a7c15u) >> 32;
    for (;; at++) {
        struct msg_count_entry *e = &table->entries[at & (table->size - 1)];
        uint64_t there = atomic_load_explicit(&e->key, memory_order_relaxed);
        if (there == key || there == 0)
            return e;
    }
}

static void msg_count_copy(struct msg_count_table *to, const struct msg_count_table *from)
{
    for (uint32_t i = 0; i < from->size; i++) {
        const struct msg_count_entry *e = &from->entries[i];
        if (!e->key)
            continue;
        struct msg_count_entry *slot = msg_count_look_up(to, e->key);
        atomic_init(&slot->key, e->key);
        atomic_init(&slot->sent, e->sent);
        atomic_init(&slot->received, e->received);
    }
    to->used = from->used;
}

/* With room for one more; NULL: there is none. */
static struct msg_count_table *msg_count_with_room(struct msg_count *t)
{
    struct msg_count_table *table = atomic_load_explicit(&t->table, memory_order_relaxed);
    if (table && table->used < table->size / 4 * 3)
        return table;
    if (table && table->size == MSG_COUNT_MOST)
        return NULL;
    struct msg_count_table *grown = msg_count_table_new(table ? MSG_COUNT_MOST : MSG_COUNT_FEW);
    if (!grown)
        return NULL;
    if (table)
        msg_count_copy(grown, table);
    t->outgrown = table;
    atomic_store_explicit(&t->table, grown, memory_order_release);
    return grown;
}

static struct msg_count_entry *msg_count_entry_of(struct msg_count *t, uint64_t key)
{
    struct msg_count_table *table = atomic_load_explicit(&t->table, memory_order_relaxed);
    struct msg_count_entry *e = table ? msg_count_look_up(table, key) : NULL;
    if (e && atomic_load_explicit(&e->key, memory_order_relaxed))
        return e;
    table = msg_count_with_room(t);
    if (!table)
        return NULL;
    e = msg_count_look_up(table, key);
    atomic_store_explicit(&e->key, key, memory_order_relaxed);
    table->used++;
    return e;
}

void msg_count_add(struct msg_count *t, bool sent, uint32_t member, uint32_t tag)
{
    if (atomic_load_explicit(&t->lost, memory_order_relaxed))
        return;
    struct msg_count_entry *e = msg_count_entry_of(t, 1 + ((uint64_t)member << 32 | tag));
    if (!e) {
        atomic_store_explicit(&t->lost, true, memory_order_release);
        return;
    }
    _Atomic uint64_t *count = sent ? &e->sent : &e->received;
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
                          memory_order_release);
}

void msg_count_add_call(struct msg_count *t, const struct collrun_call *call)
{
    bool any_source = call->kind == COLLRUN_RECV_ANY, any_tag = call->tag == COLLRUN_ANY_TAG;
    if ((any_source && !call->source) || (any_tag && !call->received_tag))
        atomic_store_explicit(&t->lost, true, memory_order_release);
    else
        msg_count_add(t, call->kind == COLLRUN_SEND,
                      (uint32_t)(any_source ? *call->source : call->peer),
                      any_tag ? *call->received_tag : call->tag);
}

void msg_count_fini(struct msg_count *t)
{
    free(t->outgrown);
    free(atomic_load_explicit(&t->table, memory_order_relaxed));
    *t = (struct msg_count){NULL, NULL, false};
}
