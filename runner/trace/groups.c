/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/groups.h"

#include "xalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS 1000000000ull

enum { TABLE = 2 * TRACE_GROUPS_MOST, CALLS_PER_SECOND = 1000 };

void trace_groups_init(struct trace_groups *g)
{
    *g = (struct trace_groups){.n = 1, .capacity = 64};
    g->items = xcalloc(g->capacity, sizeof *g->items);
    g->table = xcalloc(TABLE, sizeof *g->table);
    snprintf(g->items[0].name, sizeof g->items[0].name, "?");
}

void trace_groups_fini(struct trace_groups *g)
{
    for (uint32_t i = 0; g->items && i < g->n; i++) {
        free(g->items[i].ranks);
        free(g->items[i].text);
        free(g->items[i].calls);
    }
    free(g->items);
    free(g->table);
    *g = (struct trace_groups){0};
}

/* ---- members ---- */

static uint32_t trace_groups_hash(const char *scope)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *scope; scope++)
        hash = (hash ^ (unsigned char)*scope) * 1099511628211u;
    return (uint32_t)(hash ^ hash >> 32);
}

/* 0: there is no room. */
static uint32_t trace_groups_add(struct trace_groups *g, const struct trace_member *m)
{
    if (g->n == TRACE_GROUPS_MOST)
        return 0;
    if (g->n == g->capacity) {
        g->capacity *= 2;
        g->items = xrealloc(g->items, g->capacity, sizeof *g->items);
    }
    struct trace_group *item = &g->items[g->n];
    *item = (struct trace_group){.size = m->size, .stride = 1};
    snprintf(item->name, sizeof item->name, "%s", m->name);
    snprintf(item->scope, sizeof item->scope, "%s", m->scope);
    item->ranks = xmalloc(m->size * sizeof *item->ranks);
    item->calls = m->size > 1 ? xcalloc(TRACE_GROUPS_WINDOW, sizeof *item->calls) : NULL;
    for (uint32_t i = 0; i < m->size; i++)
        item->ranks[i] = UINT32_MAX;
    return g->n++;
}

static void trace_groups_list(struct trace_group *item)
{
    char text[TRACE_GROUPS_LISTED * 12 + 4];
    size_t len = 0;
    for (uint32_t i = 0; i < item->size; i++) {
        if (item->ranks[i] == UINT32_MAX)
            return;
        len +=
            (size_t)snprintf(text + len, sizeof text - len, "%s%u", i ? ", " : "[", item->ranks[i]);
    }
    snprintf(text + len, sizeof text - len, "]");
    item->text = xstrdup(text);
}

static uint32_t trace_groups_find(struct trace_groups *g, const struct trace_member *m)
{
    for (uint32_t at = trace_groups_hash(m->scope);; at++) {
        uint32_t *slot = &g->table[at % TABLE];
        if (!*slot) {
            uint32_t index = trace_groups_add(g, m);
            *slot = index ? index + 1 : 0;
            return index;
        }
        if (strcmp(g->items[*slot - 1].scope, m->scope) == 0)
            return *slot - 1;
    }
}

uint32_t trace_groups_join(struct trace_groups *g, const struct trace_member *m)
{
    uint32_t index = trace_groups_find(g, m);
    struct trace_group *item = &g->items[index];
    if (!index || !item->ranks || m->group_rank >= item->size)
        return index;
    item->ranks[m->group_rank] = m->rank;
    if (!item->text && item->size <= TRACE_GROUPS_LISTED)
        trace_groups_list(item);
    return index;
}

/* ---- skew ---- */

static void trace_groups_set_stride(struct trace_group *item, uint64_t number, uint64_t called_ns)
{
    uint64_t passed = called_ns > item->begin_ns ? called_ns - item->begin_ns : 1;
    double rate = (double)number * (double)SECOND_NS / (double)passed;
    item->stride = 1;
    while ((double)item->stride * (double)CALLS_PER_SECOND < rate && item->stride < (1u << 20))
        item->stride *= 2;
}

bool trace_groups_call(struct trace_groups *g, uint32_t group, uint64_t number, uint64_t called_ns,
                       struct trace_call *out)
{
    struct trace_group *item = &g->items[group];
    if (!item->calls)
        return false;
    if (!item->begin_ns)
        item->begin_ns = called_ns;
    if (number % TRACE_GROUPS_WINDOW == 0)
        trace_groups_set_stride(item, number, called_ns);
    if (number & (item->stride - 1))
        return false;
    struct trace_call *c = &item->calls[number / item->stride % TRACE_GROUPS_WINDOW];
    if (c->number != number)
        *c = (struct trace_call){.number = number, .first_ns = called_ns, .last_ns = called_ns};
    c->first_ns = called_ns < c->first_ns ? called_ns : c->first_ns;
    c->last_ns = called_ns > c->last_ns ? called_ns : c->last_ns;
    c->seen++;
    *out = *c;
    return c->seen == item->size;
}
