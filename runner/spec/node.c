/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers for nodes.
 */
#include "spec/node.h"

#include "base/parse.h"
#include "base/quote.h"
#include "base/suggest.h"

#include <stdio.h>
#include <string.h>

bool node_is_null(const struct node *node)
{
    if (node->kind != NODE_SCALAR || !node->plain || node->written)
        return false;
    const char *s = node->text;
    return !*s || strcmp(s, "~") == 0 || strcmp(s, "null") == 0 || strcmp(s, "Null") == 0 ||
           strcmp(s, "NULL") == 0;
}

struct node *node_get(const struct node *map, const char *key)
{
    for (uint32_t i = 0; map->kind == NODE_MAP && i < map->n; i++)
        if (strcmp(map->entries[i].key, key) == 0)
            return map->entries[i].value;
    return NULL;
}

const char *node_suggest(const struct node *map, const char *name, struct arena *arena)
{
    const uint32_t n = map && map->kind == NODE_MAP ? map->n : 0;
    const char **names = arena_calloc(arena, n, sizeof *names);
    for (uint32_t i = 0; i < n; i++)
        names[i] = map->entries[i].key;
    return suggest(name, names, n);
}

struct node *node_copy(const struct node *node, struct arena *arena)
{
    struct node *copy = arena_memdup(arena, node, sizeof *node);
    if (node->kind == NODE_MAP)
        copy->entries = arena_memdup(arena, node->entries, node->n * sizeof *node->entries);
    if (node->kind == NODE_LIST)
        copy->items = arena_memdup(arena, node->items, node->n * sizeof(struct node *));
    return copy;
}

struct node *node_scalar(struct arena *arena, const char *text)
{
    struct node *node = arena_alloc(arena, sizeof *node);
    *node = (struct node){.kind = NODE_SCALAR, .plain = true, .text = text, .weight = 1};
    return node;
}

const char *node_name(const struct node *node, char *out, size_t size)
{
    double number;
    bool flag;
    if (node->kind != NODE_SCALAR)
        snprintf(out, size, "%s", node->kind == NODE_MAP ? "a mapping" : "a list");
    else if (node_is_null(node))
        snprintf(out, size, "no value");
    else if (node->plain && parse_float(node->text, &number, NULL) == 0)
        snprintf(out, size, "the number %.40s", node->text);
    else if (node->plain && parse_bool(node->text, &flag, NULL) == 0)
        snprintf(out, size, "%s", node->text);
    else
        snprintf(out, size, "the string %s", quote(node->text, (char[QUOTE_SIZE]){0}));
    return out;
}
