/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/cuts.h"

#include "base/names.h"
#include "base/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the cuts ---- */

void cuts_init(struct cuts *c, uint32_t nranks)
{
    *c = (struct cuts){.nranks = nranks, .ranks = calloc(nranks, sizeof *c->ranks)};
}

void cuts_fini(struct cuts *c)
{
    for (uint32_t i = 0; c->ranks && i < c->nranks; i++)
        arena_fini(&c->ranks[i].arena);
    free(c->ranks);
    *c = (struct cuts){0};
}

static bool cuts_has_blocked(const struct record_cut *cut)
{
    bool found = cut->state == RECORD_CUT_ENDED;
    for (uint32_t i = 0; cut->state == RECORD_CUT_STILL && i < cut->nthreads; i++)
        found = found || cut->threads[i].role == RECORD_CUT_BLOCKED;
    return found;
}

/* True if a thread of it is blocked, or it has ended. */
static bool cuts_take_one(struct cuts *c, const struct desc *desc, uint32_t host, struct reader *r)
{
    struct cuts_rank one = {.known = true};
    arena_init(&one.arena);
    cut_frame_read_cut(r, c->nranks, &one.arena, &one.cut);
    if (r->bad || desc->ranks[one.cut.rank].host != host) {
        arena_fini(&one.arena);
        return false;
    }
    struct cuts_rank *to = &c->ranks[one.cut.rank];
    arena_fini(&to->arena);
    *to = one;
    return cuts_has_blocked(&to->cut);
}

struct cuts_news cuts_take(struct cuts *c, const struct desc *desc, uint32_t host,
                           const struct wire_frame *f)
{
    struct cuts_news news = {0};
    struct reader r;
    reader_init(&r, f->payload, f->len);
    const struct cut_frame frame = cut_frame_read(&r);
    news.look = frame.look;
    for (uint32_t i = 0; c->ranks && !r.bad && i < frame.n; i++)
        news.blocked = cuts_take_one(c, desc, host, &r) || news.blocked;
    news.malformed = c->ranks && !reader_done(&r);
    return news;
}

/* ---- what they prove ---- */

static bool cuts_is_proven(const struct proof_thread *t)
{
    return t->state == PROOF_BLOCKED && t->cut->role == RECORD_CUT_BLOCKED;
}

/* The first operation of the rank that cannot complete; NULL: the rank is not in the proof. */
static const struct proof_item *cuts_item(const struct proof *p, uint32_t rank)
{
    const struct proof_rank *r = &p->ranks[rank];
    for (uint32_t t = r->first; t < r->first + r->nthreads; t++)
        for (uint32_t i = 0; cuts_is_proven(&p->threads[t]) && i < p->threads[t].nitems; i++)
            if (!p->items[p->threads[t].first + i].met)
                return &p->items[p->threads[t].first + i];
    return NULL;
}

static int cuts_by_rank(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The ranks that the operation waits for, without the one that waits. */
static struct desc_ranks cuts_waited_for(const struct proof *p, uint32_t rank,
                                         const struct proof_item *item, struct arena *arena)
{
    const struct proof_node *n = &p->nodes[item->node];
    struct desc_ranks list = {arena_calloc(arena, (size_t)n->nranks + 1, sizeof(uint32_t)), 0};
    for (uint32_t i = 0; list.items && i < n->nranks; i++) {
        const uint32_t other = p->links[n->first + i];
        if (other != rank && !p->ranks[other].acts)
            list.items[list.n++] = other;
    }
    if (list.items && !list.n)
        list.items[list.n++] = rank; /* it waits for itself alone */
    if (list.items)
        qsort(list.items, list.n, sizeof(uint32_t), cuts_by_rank);
    return list;
}

static void cuts_set_waits(const struct proof *p, struct arena *arena, struct cuts_proof *out)
{
    struct graph_wait *waits = arena_calloc(arena, p->nranks, sizeof *waits);
    uint32_t n = 0;
    for (uint32_t i = 0; waits && i < p->nranks; i++) {
        const struct proof_item *item = cuts_item(p, i);
        if (!item)
            continue;
        const struct record_cut_op *op = item->op;
        const bool forms = op->kind == RECORD_FORM || op->kind == RECORD_NEIGHBORS;
        const bool numbered = !forms && kind_is_collective(op->kind);
        waits[n++] = (struct graph_wait){
            .rank = i,
            .group = arena_strdup(arena, p->ranks[i].cut->groups[op->group].name),
            .number = numbered ? op->number : 0,
            .kind = op->kind,
            .call =
                forms ? op->kind == RECORD_FORM ? "the making of a group" : "a collective" : NULL,
            .waited_for = cuts_waited_for(p, i, item, arena)};
    }
    out->waits = (struct graph){waits, n, p->nranks};
}

static void cuts_set_calls(const struct proof *p, struct arena *arena, struct cuts_proof *out)
{
    struct cuts_call *calls = arena_calloc(arena, p->nthreads, sizeof *calls);
    for (uint32_t i = 0; calls && i < p->nthreads; i++) {
        const struct proof_thread *t = &p->threads[i];
        if (!cuts_is_proven(t))
            continue;
        calls[out->ncalls++] =
            (struct cuts_call){.rank = t->rank, .tid = t->cut->tid, .word = t->cut->word};
        out->engine = out->engine || p->ranks[t->rank].cut->tap == RECORD_TAP_ENGINE;
    }
    for (uint32_t i = 0; i < p->nranks; i++)
        out->ended = out->ended || p->ranks[i].ended;
    out->calls = calls;
}

static void cuts_set_text(const struct proof *p, const struct proof_core *core, struct diag *d)
{
    const bool missing = core->shape == PROOF_MISSING;
    diag_set(d, COLLRUN_ERR_ABORTED, "%s", missing ? "" : "deadlock: ");
    proof_core_text(p, core, d);
    const size_t len = strlen(d->text);
    if (missing)
        snprintf(d->text + len, sizeof d->text - len, "; rank %u %s", core->missing,
                 p->ranks[core->missing].ended ? "calls nothing more: it has ended"
                                               : "calls nothing more: all its threads sleep");
}

bool cuts_prove(const struct cuts *c, struct arena *arena, struct cuts_proof *out)
{
    const struct record_cut **cuts = arena_calloc(arena, c->nranks, sizeof *cuts);
    struct proof p;
    struct proof_core core;
    for (uint32_t i = 0; cuts && c->ranks && i < c->nranks; i++)
        cuts[i] = c->ranks[i].known ? &c->ranks[i].cut : NULL;
    if (!cuts || !c->ranks || !proof_solve(cuts, c->nranks, arena, &p) || !p.nblocked ||
        !proof_explain(&p, &core) || !core.n)
        return false;
    *out = (struct cuts_proof){
        .shape = core.shape,
        .core = {arena_memdup(arena, core.ranks, core.n * sizeof *core.ranks), core.n},
        .missing = core.missing};
    out->missing_sleeps = core.shape == PROOF_MISSING && !p.ranks[core.missing].ended;
    cuts_set_text(&p, &core, &out->diag);
    cuts_set_waits(&p, arena, out);
    cuts_set_calls(&p, arena, out);
    if (arena_failed(arena))
        return false;
    qsort(out->core.items, out->core.n, sizeof(uint32_t), cuts_by_rank);
    return true;
}

/* ---- the second look ---- */

enum cuts_check cuts_check(const struct cuts *c, const struct cuts_proof *p)
{
    enum cuts_check check = CUTS_HOLDS;
    for (uint32_t i = 0; i < p->ncalls; i++) {
        const struct record_cut *cut = &c->ranks[p->calls[i].rank].cut;
        if (cut->state == RECORD_CUT_ENDED) {
            check = check == CUTS_HOLDS ? CUTS_GONE : check;
            continue;
        }
        bool found = false, same = false;
        for (uint32_t k = 0; k < cut->nthreads; k++) {
            found = found || cut->threads[k].tid == p->calls[i].tid;
            same = same || (cut->threads[k].tid == p->calls[i].tid &&
                            cut->threads[k].word == p->calls[i].word);
        }
        if (!found)
            check = check == CUTS_HOLDS ? CUTS_GONE : check;
        else if (!same)
            check = p->ended ? CUTS_GONE : CUTS_MOVED;
    }
    return check;
}

/* ---- beside wait reports ---- */

static void cuts_list(const struct graph *g, char *out, size_t size, struct arena *arena)
{
    uint32_t *ranks = arena_calloc(arena, g->n, sizeof *ranks);
    snprintf(out, size, "none");
    for (uint32_t i = 0; ranks && i < g->n; i++)
        ranks[i] = g->waits[i].rank;
    if (ranks && g->n) {
        snprintf(out, size, "ranks ");
        rank_list_format(out + strlen(out), size - strlen(out), ranks, g->n);
    }
}

bool cuts_differ(const struct cuts *c, const struct graph *by_reports,
                 const struct cuts_proof *by_cuts, char *out, size_t size)
{
    static const struct graph none;
    const struct graph *mine = by_cuts ? &by_cuts->waits : &none;
    char reports[160], cuts[160];
    struct arena arena;
    bool same = mine->n == by_reports->n;
    for (uint32_t i = 0; i < by_reports->n; i++) {
        const struct cuts_rank *r = c->ranks ? &c->ranks[by_reports->waits[i].rank] : NULL;
        if (!r || !r->known || r->cut.state == RECORD_CUT_MOVING)
            return false;
        same = same && mine->waits[i].rank == by_reports->waits[i].rank;
    }
    if (same)
        return false;
    arena_init(&arena);
    cuts_list(by_reports, reports, sizeof reports, &arena);
    cuts_list(mine, cuts, sizeof cuts, &arena);
    snprintf(out, size, "blocked by wait reports: %s; by cuts: %s", reports, cuts);
    arena_fini(&arena);
    return true;
}
