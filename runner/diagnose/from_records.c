/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/from_records.h"

#include "base/exit_codes.h"
#include "base/names.h"
#include "xalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- members ---- */

/* The world rank with this rank in the group of the scope; WIRE_HOST: none has. */
static uint32_t from_records_member(const struct desc *desc, const struct rank_state *ranks,
                                    const char *scope, uint32_t group_rank)
{
    struct record_view_group g;
    for (uint32_t i = 0; i < desc->nranks; i++) {
        uint32_t n = ranks[i].record_bytes ? record_view_ngroups(&ranks[i].record) : 0;
        for (uint32_t slot = 0; slot < n; slot++) {
            if (record_view_group(&ranks[i].record, slot, &g) && g.rank == group_rank &&
                strcmp(g.scope, scope) == 0)
                return i;
        }
    }
    return WIRE_HOST;
}

static struct desc_ranks from_records_members(const struct desc *desc,
                                              const struct rank_state *ranks,
                                              const struct record_view_group *g,
                                              struct arena *arena)
{
    uint32_t most = g->members < desc->nranks ? g->members : desc->nranks;
    struct desc_ranks list = {arena_calloc(arena, most, sizeof(uint32_t)), 0};
    for (uint32_t i = 0; i < most; i++) {
        uint32_t rank = from_records_member(desc, ranks, g->scope, i);
        if (rank != WIRE_HOST)
            list.items[list.n++] = rank;
    }
    return list;
}

static void from_records_groups(struct desc *desc, const struct rank_state *ranks,
                                struct arena *arena)
{
    struct record_view_group g;
    uint32_t most = 0;
    for (uint32_t i = 0; i < desc->nranks; i++)
        most += ranks[i].record_bytes ? record_view_ngroups(&ranks[i].record) : 0;
    desc->groups = arena_calloc(arena, most, sizeof *desc->groups);
    for (uint32_t i = 0; i < desc->nranks; i++) {
        uint32_t n = ranks[i].record_bytes ? record_view_ngroups(&ranks[i].record) : 0;
        for (uint32_t slot = 0; slot < n; slot++) {
            if (!record_view_group(&ranks[i].record, slot, &g) || desc_find_group(desc, g.name))
                continue;
            desc->groups[desc->ngroups++] =
                (struct desc_group){.name = arena_strdup(arena, g.name),
                                    .ranks = from_records_members(desc, ranks, &g, arena)};
        }
    }
}

/* ---- STATUS ---- */

static void from_records_snapshot(struct rank_state *r)
{
    struct rank_snapshot *s = &r->snapshot;
    struct record_view_group g;
    uint32_t n = record_view_ngroups(&r->record);
    s->groups = xcalloc(n, sizeof *s->groups);
    for (uint32_t slot = 0; slot < n; slot++) {
        if (!record_view_group(&r->record, slot, &g))
            continue;
        struct group_snapshot *out = &s->groups[s->n++];
        *out = (struct group_snapshot){.members = g.members,
                                       .rank = g.rank,
                                       .messages = g.messages,
                                       .started = g.started,
                                       .done = g.done,
                                       .bytes = g.bytes,
                                       .count = g.count,
                                       .root_or_peer = g.root_or_peer,
                                       .function = g.function,
                                       .kind = (uint8_t)g.kind,
                                       .dtype = (uint8_t)g.dtype,
                                       .op = (uint8_t)g.op};
        memcpy(out->name, g.name, sizeof out->name);
        memcpy(out->scope, g.scope, sizeof out->scope);
    }
    s->known = true;
}

/* ---- WAIT_REPORT ---- */

struct from_records { /* one rank */
    const struct desc *desc;
    const struct rank_state *ranks;
    struct rank_state *rank;
    struct arena *arena; /* of its wait report */
};

static bool from_records_pends(const struct record_view_op *op)
{
    return op->state == RECORD_POSTED || op->state == RECORD_STARTED;
}

static uint32_t from_records_peer(const struct from_records *f, const struct record_view_group *g,
                                  const struct record_view_op *op)
{
    return op->root_or_peer < 0 || kind_is_collective(op->kind)
               ? WIRE_HOST
               : from_records_member(f->desc, f->ranks, g->scope, (uint32_t)op->root_or_peer);
}

static struct wait_report_group *from_records_report_group(struct wait_report *w, const char *scope)
{
    for (uint32_t i = 0; i < w->ngroups; i++) {
        if (strcmp(w->groups[i].scope, scope) == 0)
            return &w->groups[i];
    }
    return &w->groups[w->ngroups];
}

/* One group for the slot of its collectives and the slot of its messages. */
static void from_records_report_groups(const struct from_records *f, uint32_t nops)
{
    struct wait_report *w = &f->rank->wait_report;
    struct record_view_group g;
    uint32_t n = record_view_ngroups(&f->rank->record);
    w->groups = arena_calloc(f->arena, n + 1, sizeof *w->groups);
    for (uint32_t slot = 0; slot < n; slot++) {
        if (!record_view_group(&f->rank->record, slot, &g))
            continue;
        struct wait_report_group *out = from_records_report_group(w, g.scope);
        if (out == &w->groups[w->ngroups]) {
            struct desc_ranks members = from_records_members(f->desc, f->ranks, &g, f->arena);
            *out = (struct wait_report_group){.scope = arena_strdup(f->arena, g.scope),
                                              .name = arena_strdup(f->arena, g.name),
                                              .members = members.items,
                                              .nmembers = members.n};
            out->posted = arena_calloc(f->arena, nops, sizeof *out->posted);
            out->counts = arena_calloc(f->arena, nops, sizeof *out->counts);
            w->ngroups++;
        }
        if (g.messages)
            out->lost = g.first < record_view_first(&f->rank->record);
        else
            out->collectives = g.started;
    }
}

static void from_records_count(struct wait_report_group *g, const struct record_view_op *op,
                               uint32_t peer)
{
    uint32_t i = 0;
    while (i < g->ncounts && (g->counts[i].peer != peer || g->counts[i].tag != op->tag))
        i++;
    g->ncounts += i == g->ncounts;
    g->counts[i].peer = peer;
    g->counts[i].tag = op->tag;
    if (op->kind == COLLRUN_SEND)
        g->counts[i].sent++;
    else
        g->counts[i].received++;
}

/* The sends that precede this one with its peer and tag. */
static uint64_t from_records_sent(const struct wait_report_group *g,
                                  const struct record_view_op *op, uint32_t peer)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < g->ncounts; i++)
        n += g->counts[i].peer == peer && g->counts[i].tag == op->tag ? g->counts[i].sent : 0;
    return n;
}

static void from_records_add_op(const struct from_records *f, const struct record_view_op *op,
                                const struct record_view_group *slot)
{
    struct wait_report *w = &f->rank->wait_report;
    struct wait_report_group *g = from_records_report_group(w, slot->scope);
    uint32_t peer = from_records_peer(f, slot, op);
    bool message = collrun_kind_is_message(op->kind);
    if (g == &w->groups[w->ngroups])
        return;
    const bool receives = message && op->kind != COLLRUN_SEND;
    const uint64_t order = op->kind == COLLRUN_SEND ? from_records_sent(g, op, peer) : 0;
    if (message && (op->kind == COLLRUN_SEND || op->state == RECORD_DONE))
        from_records_count(g, op, peer);
    if (!from_records_pends(op))
        return;
    if (receives)
        g->posted[g->nposted++] =
            (struct posted_message){.kind = (uint8_t)op->kind, .peer = peer, .tag = op->tag};
    w->items[w->nitems++] = (struct wait_report_call){.thread = op->thread,
                                                      .scope = g->scope,
                                                      .number = op->number,
                                                      .timeout_ns = UINT64_MAX,
                                                      .kind = (uint8_t)op->kind,
                                                      .dtype = (uint8_t)op->dtype,
                                                      .op = (uint8_t)op->op,
                                                      .count = op->count,
                                                      .peer = peer,
                                                      .tag = message ? op->tag : 0,
                                                      .order = order};
}

static int from_records_by_thread(const void *a, const void *b)
{
    const struct wait_report_call *x = a, *y = b;
    return (x->thread > y->thread) - (x->thread < y->thread);
}

static void from_records_waits(const struct desc *desc, const struct rank_state *ranks,
                               struct rank_state *r)
{
    struct wait_report *w = &r->wait_report;
    struct record_view_op op;
    struct record_view_group g;
    uint64_t first = record_view_first(&r->record), end = record_view_end(&r->record);
    const struct from_records f = {desc, ranks, r, &w->arena};
    arena_init(&w->arena);
    w->items = arena_calloc(&w->arena, end - first, sizeof *w->items);
    from_records_report_groups(&f, (uint32_t)(end - first));
    for (uint64_t i = first; i < end; i++) {
        if (record_view_op(&r->record, i, &op) && op.is_current &&
            record_view_group(&r->record, op.slot, &g))
            from_records_add_op(&f, &op, &g);
    }
    qsort(w->items, w->nitems, sizeof *w->items, from_records_by_thread);
    w->received = w->nitems > 0 || rank_has_ended(r);
    w->certain = true;
}

void from_records_complete(struct desc *desc, struct rank_state *ranks, struct job_failure *job,
                           struct arena *arena)
{
    bool failed = job->class != CAUSE_NONE;
    if (!desc->ngroups)
        from_records_groups(desc, ranks, arena);
    for (uint32_t i = 0; i < desc->nranks; i++) {
        struct rank_state *r = &ranks[i];
        failed = failed || cause_of(r) != CAUSE_NONE;
        if (!r->record_bytes || r->status_frame.len)
            continue;
        from_records_snapshot(r);
        if (!r->waits_frame.len)
            from_records_waits(desc, ranks, r);
    }
    if (!failed)
        *job = (struct job_failure){.class = CAUSE_TIMEOUT, .exit_code = EXIT_TIMEOUT};
}
