/* SPDX-License-Identifier: Apache-2.0
 *
 * What makes the merge associative:
 * - A null that removes stays in the tree as a mark (NODE_REMOVED), since the tree may be merged
 *   over another one that has the key, too.
 * - A mapping that has replaced a null, a list or a scalar is whole: it hides what lies below, and
 *   is not merged with it.
 */
#include "spec/merge.h"

#include <string.h>

static const struct node nothing = {.kind = NODE_MAP, .weight = 1};

static uint32_t merge_find(const struct node *map, const char *key)
{
    uint32_t i = 0;
    while (i < map->n && strcmp(map->entries[i].key, key) != 0)
        i++;
    return i;
}

/* A null that was merged over something, or over nothing. */
static struct node *merge_mark(const struct node *null, enum node_mark mark, struct arena *arena)
{
    struct node *copy = arena_memdup(arena, null, sizeof *null);
    copy->mark = mark;
    return copy;
}

/* The variables are no part of the job: null declares one without a value. */
static bool merge_is_vars(const char *key, uint32_t depth)
{
    return depth == 0 && strcmp(key, "vars") == 0;
}

static struct node *merge_map(const struct node *base, const struct node *over, uint32_t depth,
                              bool nulls_stay, struct arena *arena);

/* `base` NULL: there is nothing below. */
static struct node *merge_value(struct node *base, struct node *over, uint32_t depth,
                                bool nulls_stay, struct arena *arena)
{
    if (node_is_null(over) && !nulls_stay) {
        const bool below = base && base->mark != NODE_ABSENT;
        const bool removed = below || over->mark == NODE_REMOVED;
        return merge_mark(over, removed ? NODE_REMOVED : NODE_ABSENT, arena);
    }
    if (over->kind != NODE_MAP || over->whole)
        return over;
    if (base && base->kind == NODE_MAP)
        return merge_map(base, over, depth, nulls_stay, arena);
    struct node *alone = merge_map(&nothing, over, depth, nulls_stay, arena);
    alone->whole = base != NULL;
    return alone;
}

static struct node *merge_map(const struct node *base, const struct node *over, uint32_t depth,
                              bool nulls_stay, struct arena *arena)
{
    struct node *merged = arena_memdup(arena, over, sizeof *over);
    merged->entries = arena_calloc(arena, (size_t)base->n + over->n, sizeof *merged->entries);
    merged->whole = base->whole;
    merged->n = base->n;
    if (base->n)
        memcpy(merged->entries, base->entries, base->n * sizeof *base->entries);
    for (uint32_t i = 0; i < over->n; i++) {
        const struct node_entry *entry = &over->entries[i];
        const uint32_t at = merge_find(base, entry->key);
        struct node *below = at < base->n ? base->entries[at].value : NULL;
        const bool stay = nulls_stay || merge_is_vars(entry->key, depth);
        struct node *value = merge_value(below, entry->value, depth + 1, stay, arena);
        merged->entries[at < base->n ? at : merged->n++] =
            (struct node_entry){entry->key, entry->loc, value};
    }
    merged->weight = 1;
    for (uint32_t i = 0; i < merged->n; i++)
        merged->weight += merged->entries[i].value->weight;
    return merged;
}

struct node *merge_over(const struct node *base, const struct node *over, struct arena *arena)
{
    return merge_map(base ? base : &nothing, over, 0, false, arena);
}

/* ---- the result ---- */

static const struct schema_type *merge_type_of(const struct schema_type *type, const char *key)
{
    if (type && type->kind == SCHEMA_EITHER)
        type = type->map;
    if (!type || (type->kind != SCHEMA_MAP && type->kind != SCHEMA_NAMED))
        return NULL;
    if (type->kind == SCHEMA_NAMED)
        return type->item;
    for (const struct schema_key *k = type->keys; k->name; k++)
        if (strcmp(k->name, key) == 0)
            return k->type;
    return NULL;
}

static bool merge_names_are_free(const struct schema_type *type)
{
    if (type && type->kind == SCHEMA_EITHER)
        type = type->map;
    return type && type->kind == SCHEMA_NAMED && type->item->kind == SCHEMA_MAP;
}

struct node *merge_finish(const struct node *root, const struct schema_type *type,
                          struct arena *arena)
{
    struct node *out = node_copy(root, arena);
    out->whole = false;
    out->mark = NODE_PLAIN;
    if (root->kind != NODE_MAP)
        return out;
    out->n = 0;
    out->weight = 1;
    for (uint32_t i = 0; i < root->n; i++) {
        const struct node_entry *entry = &root->entries[i];
        const enum node_mark mark = entry->value->mark;
        if (mark == NODE_REMOVED || (mark == NODE_ABSENT && !merge_names_are_free(type)))
            continue;
        struct node *value = merge_finish(entry->value, merge_type_of(type, entry->key), arena);
        out->entries[out->n++] = (struct node_entry){entry->key, entry->loc, value};
        out->weight += value->weight;
    }
    return out;
}
