/* SPDX-License-Identifier: Apache-2.0
 *
 * An array with a list of its free places; see landing.h.
 */
#include "landing.h"

#include <stdlib.h>

enum { LANDING_FIRST_SLOTS = 16, LANDING_SLOTS_MAX = 1 << (LANDING_INDEX_BITS - 1) };

static bool landing_table_grow(struct landing_table *table)
{
    const uint32_t before = table->nslots, after = before ? 2 * before : LANDING_FIRST_SLOTS;
    struct landing_slot *slots =
        after <= LANDING_SLOTS_MAX ? realloc(table->slots, after * sizeof *slots) : NULL;
    if (!slots)
        return false;
    for (uint32_t i = after; i-- > before;) {
        slots[i] = (struct landing_slot){.next_free = table->first_free};
        table->first_free = i + 1;
    }
    table->slots = slots;
    table->nslots = after;
    return true;
}

static uint32_t landing_index(uint64_t token)
{
    return (uint32_t)(token & ((1u << LANDING_INDEX_BITS) - 1)) - 1;
}

bool landing_add(struct landing_table *table, struct link_landing *landing)
{
    if (!table->first_free && !landing_table_grow(table))
        return false;
    const uint32_t index = table->first_free - 1;
    struct landing_slot *slot = &table->slots[index];
    table->first_free = slot->next_free;
    slot->landing = landing;
    slot->uses++;
    table->nused++;
    const uint32_t alignment = (uint32_t)(uintptr_t)landing->data % LANDING_ALIGN;
    landing->token = (uint64_t)slot->uses << 32 | alignment << LANDING_INDEX_BITS | (index + 1);
    return true;
}

struct link_landing *landing_find(const struct landing_table *table, uint64_t token)
{
    const uint32_t index = landing_index(token);
    if (index >= table->nslots || table->slots[index].uses != token >> 32)
        return NULL;
    return table->slots[index].landing;
}

void landing_remove(struct landing_table *table, const struct link_landing *landing)
{
    const uint32_t index = landing_index(landing->token);
    struct landing_slot *slot = &table->slots[index];
    slot->landing = NULL;
    table->nused--;
    slot->next_free = table->first_free;
    table->first_free = index + 1;
}

void landing_table_fini(struct landing_table *table)
{
    free(table->slots);
}
