/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/graph.h"

#include "base/names.h"
#include "base/parse.h"
#include "diagnose/blame.h"

#include <stdlib.h>
#include <string.h>

static const struct group_snapshot *graph_group(const struct evidence *e, uint32_t rank,
                                                const char *name, bool collective)
{
    const struct rank_snapshot *s = &e->ranks[rank].snapshot;
    for (uint32_t i = 0; i < s->n; i++) {
        if (strcmp(s->groups[i].name, name) == 0 &&
            kind_is_collective(s->groups[i].kind) == collective)
            return &s->groups[i];
    }
    return NULL;
}

/* The members of a group that have not called its collective with this number. */
static struct desc_ranks graph_late(const struct evidence *e, const struct group_snapshot *g,
                                    struct arena *arena)
{
    struct desc_ranks late = {arena_calloc(arena, e->desc->nranks, sizeof(uint32_t)), 0};
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        if (snapshot_has_group(&e->ranks[i].snapshot, g->name) &&
            !snapshot_has_called(&e->ranks[i].snapshot, g->name, g->started))
            late.items[late.n++] = i;
    }
    return late;
}

/* The peer of a message, unless it is in a call that can be the counterpart. Groups that were made
 * at run time are not known here. */
static struct desc_ranks graph_peer(const struct evidence *e, uint32_t rank,
                                    const struct group_snapshot *g, struct arena *arena)
{
    const struct desc_group *group = desc_find_group(e->desc, g->name);
    struct desc_ranks peer = {NULL, 0};
    if (!group || g->root_or_peer < 0 || (uint32_t)g->root_or_peer >= group->ranks.n)
        return peer;
    uint32_t world = group->ranks.items[g->root_or_peer];
    const struct group_snapshot *other = graph_group(e, world, g->name, false);
    if (other && other->started > other->done &&
        (other->kind == COLLRUN_SEND) != (g->kind == COLLRUN_SEND) &&
        (other->root_or_peer < 0 || ((uint32_t)other->root_or_peer < group->ranks.n &&
                                     group->ranks.items[other->root_or_peer] == rank)))
        return peer;
    peer.items = arena_memdup(arena, &world, sizeof world);
    peer.n = peer.items ? 1 : 0;
    return peer;
}

/* When the job failed, which is what the snapshots are of. */
static uint64_t graph_time(const struct evidence *e)
{
    uint64_t first = e->job.class != CAUSE_NONE ? e->job.ns : UINT64_MAX;
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        const uint64_t ns = e->ranks[i].first_failure_ns;
        first = ns && ns < first ? ns : first;
    }
    return first;
}

/* The members of a group that have not made the call that is no operation. */
static struct desc_ranks graph_awaited(const struct evidence *e, const struct forming_wait *f,
                                       struct arena *arena)
{
    struct desc_ranks late = {arena_calloc(arena, f->members.n, sizeof(uint32_t)), 0};
    for (uint32_t i = 0; i < f->members.n; i++) {
        const uint32_t rank = f->members.items[i];
        if (rank < e->desc->nranks && rank_is_awaited(&e->ranks[rank], f))
            late.items[late.n++] = rank;
    }
    if (late.items)
        qsort(late.items, late.n, sizeof *late.items, rank_compare);
    return late;
}

static struct graph_wait graph_forming(const struct evidence *e, uint32_t rank,
                                       const struct forming_wait *f, uint64_t now_ns,
                                       struct arena *arena)
{
    char call[120];
    return (struct graph_wait){
        .rank = rank,
        .group = f->name,
        .call = arena_strdup(arena, forming_text(f->kind, f->name, call, sizeof call)),
        .age_ns = f->since_ns < now_ns ? now_ns - f->since_ns : 0,
        .waited_for = graph_awaited(e, f, arena)};
}

/* A program in collrun_init waits for those of its groups that have not called it. */
static struct graph_wait graph_init(const struct evidence *e, uint32_t rank, uint64_t now_ns,
                                    struct arena *arena)
{
    const struct rank_state *r = &e->ranks[rank];
    struct graph_wait w = {.rank = rank,
                           .group = "",
                           .call = "collrun_init",
                           .age_ns = r->attached_ns < now_ns ? now_ns - r->attached_ns : 0};
    bool *late = arena_calloc(arena, e->desc->nranks, sizeof *late);
    w.waited_for.items = arena_calloc(arena, e->desc->nranks, sizeof(uint32_t));
    for (uint32_t g = 0; g < e->desc->ngroups; g++) {
        const struct desc_ranks *members = &e->desc->groups[g].ranks;
        for (uint32_t i = 0; i < members->n && blame_has(members, rank); i++) {
            const struct rank_state *other = &e->ranks[members->items[i]];
            late[members->items[i]] =
                other->command && other->part == PART_OUTSIDE && !rank_is_gone(other);
        }
    }
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        if (late[i])
            w.waited_for.items[w.waited_for.n++] = i;
    }
    return w;
}

void graph_build(const struct evidence *e, struct arena *arena, struct graph *graph)
{
    const uint64_t now_ns = graph_time(e);
    uint32_t most = 0, n = 0;
    for (uint32_t i = 0; i < e->desc->nranks; i++)
        most += e->ranks[i].snapshot.n + e->ranks[i].forming.n + 1;
    struct graph_wait *waits = arena_calloc(arena, most, sizeof *waits);
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        const struct rank_snapshot *s = &e->ranks[i].snapshot;
        for (uint32_t k = 0; k < s->n; k++) {
            const struct group_snapshot *g = &s->groups[k];
            if (g->started <= g->done)
                continue;
            struct desc_ranks other =
                kind_is_collective(g->kind) ? graph_late(e, g, arena) : graph_peer(e, i, g, arena);
            if (other.n)
                waits[n++] = (struct graph_wait){.rank = i,
                                                 .group = g->name,
                                                 .number = g->started,
                                                 .kind = g->kind,
                                                 .age_ns = g->age_ns,
                                                 .waited_for = other};
        }
        if (e->ranks[i].part == PART_JOINING) {
            waits[n] = graph_init(e, i, now_ns, arena);
            n += waits[n].waited_for.n > 0;
        }
        for (uint32_t k = 0; k < e->ranks[i].forming.n; k++) {
            waits[n] = graph_forming(e, i, &e->ranks[i].forming.items[k], now_ns, arena);
            n += waits[n].waited_for.n > 0;
        }
    }
    *graph = (struct graph){waits, n, e->desc->nranks};
}

/* Adds the ranks for which those that are reached wait. False: none is new. */
static bool graph_reach(const struct graph *graph, bool *reached)
{
    bool changed = false;
    for (uint32_t i = 0; i < graph->n; i++) {
        const struct graph_wait *w = &graph->waits[i];
        for (uint32_t k = 0; reached[w->rank] && k < w->waited_for.n; k++) {
            changed = changed || !reached[w->waited_for.items[k]];
            reached[w->waited_for.items[k]] = true;
        }
    }
    return changed;
}

struct desc_ranks graph_reached(const struct graph *graph, uint32_t start, struct arena *arena)
{
    struct desc_ranks list = {arena_calloc(arena, graph->nranks, sizeof(uint32_t)), 0};
    bool *reached = arena_calloc(arena, graph->nranks, sizeof *reached);
    if (!list.items)
        return list;
    reached[start] = true;
    while (graph_reach(graph, reached))
        ;
    for (uint32_t i = 0; i < graph->nranks; i++) {
        if (reached[i])
            list.items[list.n++] = i;
    }
    return list;
}

struct desc_ranks graph_sinks(const struct graph *graph, uint32_t start, struct arena *arena)
{
    struct desc_ranks sinks = graph_reached(graph, start, arena);
    uint32_t n = sinks.n;
    sinks.n = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool waits = sinks.items[i] == start;
        for (uint32_t k = 0; k < graph->n; k++)
            waits = waits || graph->waits[k].rank == sinks.items[i];
        if (!waits)
            sinks.items[sinks.n++] = sinks.items[i];
    }
    return sinks;
}
