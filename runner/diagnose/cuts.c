/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/cuts.h"

#include "base/names.h"
#include "base/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CUTS_TAGS = 2 }; /* receives whose message has another tag, in one text */

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
        qsort(list.items, list.n, sizeof(uint32_t), rank_compare);
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

/* ---- messages with another tag ---- */

/* Messages on the channel that `rank` has neither received nor receives. */
static uint64_t cuts_count_left(const struct record_cut *to, uint64_t group, uint32_t from,
                                const struct record_cut_channel *sent)
{
    uint64_t taken = 0;
    for (uint32_t i = 0; i < to->nchannels; i++) {
        const struct record_cut_channel *c = &to->channels[i];
        if (to->groups[c->group].id == group && c->peer == from && c->tag == sent->tag)
            taken = c->folded ? sent->sent : c->taken;
    }
    for (uint32_t i = 0; i < to->nreceives; i++) {
        const struct record_cut_op *op = &to->receives[i];
        taken += op->group != RECORD_CUT_NO_GROUP && to->groups[op->group].id == group &&
                 (op->peer == (int32_t)from || op->peer == RECORD_ANY_RANK) &&
                 (op->tag == sent->tag || op->tag == RECORD_ANY_TAG);
    }
    return sent->sent > taken ? sent->sent - taken : 0;
}

/* A receive waits, and its sender has sent with another tag. Not for folded channels, which have no
 * tag of their own. */
static bool cuts_add_other_tag(const struct proof *p, uint32_t rank, struct diag *d)
{
    const struct proof_item *item = cuts_item(p, rank);
    const struct record_cut_op *op = item ? item->op : NULL;
    const struct record_cut *to = p->ranks[rank].cut;
    if (!op || kind_is_collective(op->kind) || op->kind == COLLRUN_SEND || op->peer < 0 ||
        (uint32_t)op->peer >= p->nranks || op->tag == RECORD_ANY_TAG || to->lost)
        return false;
    const struct record_cut *from = p->ranks[op->peer].cut;
    const uint64_t group = to->groups[op->group].id;
    for (uint32_t i = 0; from && i < from->nchannels; i++) {
        const struct record_cut_channel *c = &from->channels[i];
        if (from->groups[c->group].id != group || c->peer != rank || c->folded || c->tag == op->tag)
            continue;
        const uint64_t n = cuts_count_left(to, group, (uint32_t)op->peer, c);
        const size_t len = strlen(d->text);
        if (!n)
            continue;
        snprintf(
            d->text + len, sizeof d->text - len,
            "; rank %d has sent %llu message%s with tag %u to rank %u, which receives one with "
            "tag %u",
            op->peer, (unsigned long long)n, n == 1 ? "" : "s", c->tag, rank, op->tag);
        diag_hint(d, "the tag of the receive must be the tag of the send");
        return true;
    }
    return false;
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
    for (uint32_t i = 0, n = 0; i < core->n && n < CUTS_TAGS; i++)
        n += cuts_add_other_tag(p, core->ranks[i], d);
}

/* ---- the order that most ranks follow ---- */

static bool cuts_is_collective(const struct proof_item *item)
{
    return item && kind_is_known(item->op->kind) && kind_is_collective(item->op->kind);
}

/* The rank takes part in both collectives, and has called the first one alone. */
static bool cuts_follows(const struct record_cut *cut, uint64_t first, uint64_t first_number,
                         uint64_t later, uint64_t later_number)
{
    const struct record_cut_group *f = cut ? record_cut_group(cut, first) : NULL,
                                  *l = cut ? record_cut_group(cut, later) : NULL;
    return f && l && f->called >= first_number && l->called < later_number;
}

/* Compares the i-th rank of a cycle, which waits in `later`, with the next one, which is in
 * `first`. */
static bool cuts_order(const struct proof *p, const struct proof_core *core, uint32_t i,
                       struct cuts_order *out)
{
    const uint32_t rank = core->ranks[i], other = core->ranks[(i + 1) % core->n];
    const struct proof_item *later = cuts_item(p, rank), *first = cuts_item(p, other);
    if (!cuts_is_collective(later) || !cuts_is_collective(first))
        return false;
    const struct record_cut_group *f = &p->ranks[other].cut->groups[first->op->group],
                                  *l = &p->ranks[rank].cut->groups[later->op->group];
    *out = (struct cuts_order){.first = arena_strdup(p->arena, f->name),
                               .later = arena_strdup(p->arena, l->name),
                               .first_number = first->op->number,
                               .later_number = later->op->number,
                               .ranks = {arena_calloc(p->arena, p->nranks, sizeof(uint32_t)), 0}};
    for (uint32_t r = 0; out->ranks.items && r < p->nranks; r++)
        if (cuts_follows(p->ranks[r].cut, f->id, out->first_number, l->id, out->later_number))
            out->ranks.items[out->ranks.n++] = r;
    return true;
}

/* The orders of a cycle cannot all be right. The one that fewer ranks follow than each other one is
 * wrong. */
static void cuts_set_minority(const struct proof *p, const struct proof_core *core,
                              struct cuts_proof *out)
{
    uint32_t least = UINT32_MAX;
    struct cuts_order wrong = {0}, o;
    for (uint32_t i = 0; core->shape == PROOF_CYCLE && i < core->n; i++) {
        if (!cuts_order(p, core, i, &o))
            return;
        if (o.ranks.n < least)
            wrong = o;
        else if (o.ranks.n == least)
            wrong.ranks.n = 0;
        least = o.ranks.n < least ? o.ranks.n : least;
    }
    out->minority = wrong;
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
    p.places = c->places;
    *out = (struct cuts_proof){
        .shape = core.shape,
        .core = {arena_memdup(arena, core.ranks, core.n * sizeof *core.ranks), core.n},
        .missing = core.missing};
    out->missing_sleeps = core.shape == PROOF_MISSING && !p.ranks[core.missing].ended;
    cuts_set_text(&p, &core, &out->diag);
    cuts_set_waits(&p, arena, out);
    cuts_set_calls(&p, arena, out);
    cuts_set_minority(&p, &core, out);
    out->nsites = proof_core_calls(&p, &core, out->sites);
    if (arena_failed(arena))
        return false;
    qsort(out->core.items, out->core.n, sizeof(uint32_t), rank_compare);
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
