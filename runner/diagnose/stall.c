/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the snapshots of all ranks. The collectives of a group are numbered in the same order on
 * all members, so a member that has started fewer than number N has not called number N. A message
 * names its peer, a rank of the group; the snapshot of that rank has the same number.
 */
#include "diagnose/stall.h"

#include "base/names.h"
#include "base/parse.h"
#include "xalloc.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATEST_NS 100000000ull

/* ---- between STATUS frames ---- */

void stall_watch_init(struct stall_watch *w, const struct desc *desc)
{
    *w = (struct stall_watch){.desc = desc,
                              .ranks = xcalloc(desc->nranks, sizeof(struct stall_rank))};
}

void stall_watch_fini(struct stall_watch *w)
{
    for (uint32_t i = 0; w->ranks && i < w->desc->nranks; i++)
        free(w->ranks[i].slots);
    free(w->ranks);
    *w = (struct stall_watch){0};
}

static const struct stall_slot *stall_slot_find(const struct stall_rank *r,
                                                const struct group_snapshot *g)
{
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->slots[i].messages == g->messages && strcmp(r->slots[i].scope, g->scope) == 0)
            return &r->slots[i];
    }
    return NULL;
}

static struct stall_slot stall_slot_of(const struct stall_slot *before,
                                       const struct group_snapshot *g, uint64_t now_ns)
{
    struct stall_slot slot = {.messages = g->messages};
    memcpy(slot.scope, g->scope, sizeof slot.scope);
    if (g->started <= g->done)
        return slot;
    slot.pending = g->done + 1;
    if (before && before->pending == slot.pending)
        slot.since_ns = before->since_ns;
    else if (slot.pending == g->started && g->age_ns < now_ns)
        slot.since_ns = now_ns - g->age_ns;
    else
        slot.since_ns = now_ns; /* called long ago, but an older operation has just ended */
    return slot;
}

void stall_watch_update(struct stall_watch *w, uint32_t rank, const struct rank_snapshot *snapshot,
                        uint64_t now_ns)
{
    struct stall_rank *r = &w->ranks[rank];
    struct stall_slot *slots = xcalloc(snapshot->n, sizeof *slots);
    for (uint32_t i = 0; i < snapshot->n; i++) {
        const struct group_snapshot *g = &snapshot->groups[i];
        slots[i] = stall_slot_of(stall_slot_find(r, g), g, now_ns);
    }
    free(r->slots);
    *r = (struct stall_rank){.slots = slots, .n = snapshot->n, .at_ns = now_ns};
}

void stall_watch_phases(struct stall_watch *w, const struct rank_state *ranks, uint64_t now_ns)
{
    uint64_t sum = 0;
    for (uint32_t r = 0; r < w->desc->nranks; r++)
        sum +=
            (uint64_t)ranks[r].phase + (ranks[r].part < PART_MEMBER ? ranks[r].part : PART_MEMBER);
    if (sum != w->phases || !w->phases_ns)
        w->phases_ns = now_ns;
    w->phases = sum;
}

/* ---- members ---- */

bool stall_has(const uint32_t *ranks, uint32_t n, uint32_t rank)
{
    for (uint32_t i = 0; i < n; i++) {
        if (ranks[i] == rank)
            return true;
    }
    return false;
}

/* ---- waits ---- */

/* A slot of a rank. Two lists of all slots find the members of a group: the time and the memory of
 * a search are linear in the ranks, but for the logarithms of the sort. */
struct stall_ref {
    const struct group_snapshot *slot;
    uint32_t rank;
    uint32_t wait; /* of the first slot of a scope: 1 + the latest wait in a collective of it */
};

/* The ranks that can send to a receive from any rank. The waits of a group share them. */
struct stall_senders {
    struct stall_senders *next;
    const char *scope;
    uint32_t *ranks, n, nmarked;
};

struct stall_search {
    const struct stall_watch *watch;
    const struct rank_state *ranks;
    struct stall *out;
    uint32_t capacity, of_rank; /* the first wait that began with the rank at hand */
    struct stall_ref *refs;     /* by scope and rank */
    struct stall_ref *members;  /* by scope and rank in the group */
    uint32_t nrefs;
    struct stall_senders *senders;
};

/* Appends to a list that stall_add has made: it has room for 4 ranks, then for each power of two.
 */
static void stall_put(struct stall *out, uint32_t **list, uint32_t *n, uint32_t rank)
{
    if (*n >= 4 && (*n & (*n - 1)) == 0) {
        uint32_t *more = arena_calloc(&out->arena, (size_t)*n * 2, sizeof *more);
        memcpy(more, *list, *n * sizeof *more);
        *list = more;
    }
    (*list)[(*n)++] = rank;
}

static struct stall_wait *stall_add(struct stall_search *s, const struct group_snapshot *g)
{
    struct stall *out = s->out;
    if (out->nwaits == s->capacity) {
        struct stall_wait *old = out->waits;
        s->capacity = s->capacity ? 2 * s->capacity : 8;
        out->waits = arena_calloc(&out->arena, s->capacity, sizeof *out->waits);
        if (old)
            memcpy(out->waits, old, out->nwaits * sizeof *old);
    }
    struct stall_wait *w = &out->waits[out->nwaits];
    *w = (struct stall_wait){.op = *g};
    w->waiting = arena_calloc(&out->arena, 4, sizeof *w->waiting);
    w->missing = arena_calloc(&out->arena, 4, sizeof *w->missing);
    out->nwaits++;
    return w;
}

/* ---- members ---- */

static int stall_ref_by_rank(const void *a, const void *b)
{
    const struct stall_ref *x = a, *y = b;
    const int order = strcmp(x->slot->scope, y->slot->scope);
    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

static int stall_ref_by_member(const void *a, const void *b)
{
    const struct stall_ref *x = a, *y = b;
    const int order = strcmp(x->slot->scope, y->slot->scope);
    if (order || x->slot->rank != y->slot->rank)
        return order ? order : x->slot->rank > y->slot->rank ? 1 : -1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static void stall_index(struct stall_search *s)
{
    const uint32_t nranks = s->watch->desc->nranks;
    size_t n = 0;
    if (s->refs)
        return;
    for (uint32_t r = 0; r < nranks; r++)
        n += s->ranks[r].snapshot.n;
    struct stall_ref *refs = arena_calloc(&s->out->arena, n, sizeof *refs);
    s->members = arena_calloc(&s->out->arena, n, sizeof *refs);
    s->refs = refs;
    for (uint32_t r = 0; r < nranks; r++)
        for (uint32_t i = 0; i < s->ranks[r].snapshot.n; i++)
            refs[s->nrefs++] = (struct stall_ref){&s->ranks[r].snapshot.groups[i], r, 0};
    memcpy(s->members, refs, s->nrefs * sizeof *refs);
    qsort(refs, s->nrefs, sizeof *refs, stall_ref_by_rank);
    qsort(s->members, s->nrefs, sizeof *refs, stall_ref_by_member);
}

/* The first in a sorted list that is not before `key`. */
static uint32_t stall_ref_find(const struct stall_search *s, const struct stall_ref *list,
                               const struct stall_ref *key,
                               int (*compare)(const void *, const void *))
{
    uint32_t from = 0, to = s->nrefs;
    while (from < to) {
        const uint32_t middle = from + (to - from) / 2;
        if (compare(&list[middle], key) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static bool stall_ref_is_of(const struct stall_search *s, const struct stall_ref *list, uint32_t i,
                            const struct group_snapshot *g)
{
    return i < s->nrefs && strcmp(list[i].slot->scope, g->scope) == 0;
}

/* Lists the members of the group of `g` that have not called collective number `number`. */
static void stall_list_missing(struct stall_search *s, const struct group_snapshot *g,
                               uint64_t number, uint32_t **list, uint32_t *n)
{
    stall_index(s);
    const uint32_t first =
        stall_ref_find(s, s->refs, &(struct stall_ref){.slot = g}, stall_ref_by_rank);
    for (uint32_t i = first, next; stall_ref_is_of(s, s->refs, i, g); i = next) {
        const uint32_t rank = s->refs[i].rank;
        bool called = s->ranks[rank].end == RANK_EXITED;
        for (next = i; stall_ref_is_of(s, s->refs, next, g) && s->refs[next].rank == rank; next++) {
            const struct group_snapshot *slot = s->refs[next].slot;
            called = called || (!slot->messages && slot->started >= number);
        }
        if (!called)
            stall_put(s->out, list, n, rank);
    }
    /* Members that have no slot of it yet. */
    const struct desc_group *group = desc_find_group(s->watch->desc, g->name);
    const uint32_t have = *n;
    for (uint32_t i = 0; group && i < group->ranks.n; i++) {
        const struct stall_ref key = {.slot = g, .rank = group->ranks.items[i]};
        const uint32_t at = stall_ref_find(s, s->refs, &key, stall_ref_by_rank);
        const bool known = stall_ref_is_of(s, s->refs, at, g) && s->refs[at].rank == key.rank;
        if (!known && s->ranks[key.rank].end != RANK_EXITED)
            stall_put(s->out, list, n, key.rank);
    }
    if (*n > have)
        qsort(*list, *n, sizeof **list, rank_compare);
}

/* ---- operations ---- */

/* An operation that a rank has called, and that has not ended. */
struct stall_call {
    uint32_t rank;
    const struct group_snapshot *group;
    struct snapshot_op op;
    uint64_t since_ns;
    bool described; /* `op` has more than the number */
};

/* A rank waits in the wait `w`. Ranks come in ascending order. */
static void stall_join(struct stall *out, struct stall_wait *w, const struct stall_call *c)
{
    const struct snapshot_op *op = &c->op;
    if (!w->nwaiting || c->since_ns < w->since_ns)
        w->since_ns = c->since_ns;
    if (!w->nwaiting || w->waiting[w->nwaiting - 1] != c->rank)
        stall_put(out, &w->waiting, &w->nwaiting, c->rank);
    w->op.started = op->number;
    if (!w->site && op->site) {
        w->site = op->site;
        w->site_rank = c->rank;
    }
    if (w->described || !c->described)
        return;
    w->described = true;
    w->op.count = op->count;
    w->op.root_or_peer = op->root_or_peer;
    w->op.kind = op->kind;
    w->op.function = op->function;
    w->op.dtype = op->dtype;
    w->op.op = op->op;
    w->tag = op->tag;
}

static bool stall_is_in(const struct stall_wait *w, const struct stall_call *c)
{
    return !w->op.messages && w->op.started == c->op.number &&
           strcmp(w->op.scope, c->group->scope) == 0;
}

static void stall_add_collective(struct stall_search *s, const struct stall_call *c)
{
    stall_index(s);
    const struct stall_ref key = {.slot = c->group};
    const uint32_t at = stall_ref_find(s, s->refs, &key, stall_ref_by_rank);
    assert(at < s->nrefs);
    const uint32_t latest = s->refs[at].wait;
    struct stall_wait *w = latest ? &s->out->waits[latest - 1] : NULL;
    if (w && !stall_is_in(w, c)) {
        w = NULL; /* an operation of the same group with another number */
        for (uint32_t i = 0; i < latest && !w; i++)
            w = stall_is_in(&s->out->waits[i], c) ? &s->out->waits[i] : NULL;
    }
    if (!w) {
        w = stall_add(s, c->group);
        s->refs[at].wait = s->out->nwaits;
        stall_list_missing(s, c->group, c->op.number, &w->missing, &w->nmissing);
    }
    stall_join(s->out, w, c);
}

/* All members: one of the others can send. */
static void stall_share_senders(struct stall_search *s, const struct stall_call *c,
                                struct stall_wait *w)
{
    struct stall_senders *of = s->senders;
    while (of && strcmp(of->scope, c->group->scope) != 0)
        of = of->next;
    if (!of) {
        of = arena_calloc(&s->out->arena, 1, sizeof *of);
        *of = (struct stall_senders){
            .next = s->senders, .scope = c->group->scope, .ranks = w->missing};
        stall_list_missing(s, c->group, UINT64_MAX, &of->ranks, &of->n);
        s->senders = of;
    }
    w->senders = of;
}

/* The world rank of the peer; WIRE_HOST: not known. */
static uint32_t stall_peer(struct stall_search *s, const struct stall_call *c)
{
    const uint32_t peer = (uint32_t)c->op.root_or_peer;
    struct group_snapshot wanted = *c->group;
    wanted.rank = peer;
    stall_index(s);
    uint32_t i =
        stall_ref_find(s, s->members, &(struct stall_ref){.slot = &wanted}, stall_ref_by_member);
    for (; stall_ref_is_of(s, s->members, i, &wanted) && s->members[i].slot->rank == peer; i++) {
        if (s->members[i].slot->members)
            return s->members[i].rank;
    }
    const struct desc_group *group = desc_find_group(s->watch->desc, c->group->name);
    return group && peer < group->ranks.n ? group->ranks.items[peer] : WIRE_HOST;
}

static struct stall_wait *stall_find_message(const struct stall_search *s,
                                             const struct stall_call *c, bool any)
{
    for (uint32_t i = s->of_rank; i < s->out->nwaits; i++) {
        struct stall_wait *w = &s->out->waits[i];
        if (w->op.messages && w->waiting[0] == c->rank && w->any == any &&
            w->op.kind == c->op.kind && strcmp(w->op.scope, c->group->scope) == 0)
            return w;
    }
    return NULL;
}

/* The messages of one rank in one group, of one kind, are one wait, with the number of the first.
 */
static void stall_add_message(struct stall_search *s, const struct stall_call *c)
{
    bool any = c->op.root_or_peer < 0;
    struct stall_wait *w = stall_find_message(s, c, any);
    uint64_t number = w ? w->op.started : c->op.number;
    bool first = !w;
    w = w ? w : stall_add(s, c->group);
    stall_join(s->out, w, c);
    w->op.started = number;
    w->any = any;
    if (any && first)
        stall_share_senders(s, c, w);
    if (any)
        return;
    uint32_t peer = stall_peer(s, c);
    w->peer_unknown = w->peer_unknown || peer == WIRE_HOST;
    if (peer != WIRE_HOST && !stall_has(w->missing, w->nmissing, peer))
        stall_put(s->out, &w->missing, &w->nmissing, peer);
}

static void stall_add_call(struct stall_search *s, const struct stall_call *c)
{
    if (c->group->messages)
        stall_add_message(s, c);
    else
        stall_add_collective(s, c);
}

/* How long before its thread's last call a message was called. */
static uint64_t stall_before(const struct snapshot_op *op)
{
    return op->age_ns > op->idle_ns ? op->age_ns - op->idle_ns : 0;
}

/* A thread that has posted several messages waits for the latest; those that are older by more
 * than a moment may be for later. */
static bool stall_is_latest(const struct group_snapshot *g, const struct snapshot_op *op)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < g->npending; i++) {
        uint64_t before = stall_before(&g->pending[i]);
        least = before < least ? before : least;
    }
    return stall_before(op) <= least + LATEST_NS;
}

/* What has been pending in one slot of a rank since `until_ns` or longer. */
static void stall_add_slot(struct stall_search *s, uint32_t rank, uint32_t slot, uint64_t until_ns)
{
    const struct stall_rank *known = &s->watch->ranks[rank];
    const struct group_snapshot *g = &s->ranks[rank].snapshot.groups[slot];
    struct stall_call c = {.rank = rank, .group = g, .described = true};
    uint32_t n = g->messages || g->npending == 0 ? g->npending : 1; /* later ones wait for it */
    for (uint32_t i = 0; i < n; i++) {
        c.op = g->pending[i];
        uint64_t age = g->messages ? c.op.idle_ns : c.op.age_ns;
        c.since_ns = age < known->at_ns ? known->at_ns - age : 1;
        if (c.since_ns <= until_ns && (!g->messages || stall_is_latest(g, &c.op)))
            stall_add_call(s, &c);
    }
    if (n || !known->slots[slot].pending || known->slots[slot].since_ns > until_ns)
        return;
    c.since_ns = known->slots[slot].since_ns;
    c.op = (struct snapshot_op){.number = known->slots[slot].pending,
                                .count = g->count,
                                .root_or_peer = g->root_or_peer,
                                .kind = g->kind,
                                .function = g->function,
                                .dtype = g->dtype,
                                .op = g->op};
    c.described = g->started == c.op.number;
    stall_add_call(s, &c);
}

static struct stall_wait *stall_find_forming(const struct stall_search *s,
                                             const struct forming_wait *f)
{
    for (uint32_t i = 0; i < s->out->nwaits; i++) {
        struct stall_wait *w = &s->out->waits[i];
        if (w->forming && rank_forming_find(&s->ranks[w->waiting[0]].forming, f) &&
            w->kind == f->kind && strcmp(w->op.name, f->name) == 0)
            return w;
    }
    return NULL;
}

static void stall_miss_forming(const struct stall_search *s, const struct forming_wait *f,
                               struct stall_wait *w)
{
    for (uint32_t i = 0; i < f->members.n; i++) {
        uint32_t rank = f->members.items[i];
        if (rank >= s->watch->desc->nranks)
            continue;
        if (rank_is_awaited(&s->ranks[rank], f))
            stall_put(s->out, &w->missing, &w->nmissing, rank);
    }
    qsort(w->missing, w->nmissing, sizeof *w->missing, rank_compare);
    const uint32_t n = w->nmissing;
    w->nmissing = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!i || w->missing[i] != w->missing[i - 1])
            w->missing[w->nmissing++] = w->missing[i];
}

static void stall_add_forming(struct stall_search *s, uint32_t rank, uint64_t until_ns)
{
    const struct group_snapshot none = {.started = 1};
    const struct rank_forming *all = &s->ranks[rank].forming;
    for (uint32_t i = 0; i < all->n; i++) {
        const struct forming_wait *f = &all->items[i];
        if (f->since_ns > until_ns)
            continue;
        struct stall_wait *w = stall_find_forming(s, f);
        w = w ? w : stall_add(s, &none);
        if (!w->nwaiting) {
            w->forming = true;
            w->kind = f->kind;
            memcpy(w->op.name, f->name, sizeof w->op.name);
            snprintf(w->op.scope, sizeof w->op.scope, "%d %.50s", (int)f->kind, f->name);
            w->since_ns = f->since_ns;
            stall_miss_forming(s, f, w);
        }
        w->since_ns = f->since_ns < w->since_ns ? f->since_ns : w->since_ns;
        stall_put(s->out, &w->waiting, &w->nwaiting, rank);
    }
}

/* Before the workloads run: the ranks in the earliest phase are late for the others. */
static void stall_add_start(struct stall_search *s)
{
    const struct desc *desc = s->watch->desc;
    const struct group_snapshot none = {0};
    enum rank_phase first = PHASE_FINISHING, last = PHASE_WAITING;
    for (uint32_t r = 0; r < desc->nranks; r++) {
        first = s->ranks[r].phase < first ? s->ranks[r].phase : first;
        last = s->ranks[r].phase > last ? s->ranks[r].phase : last;
    }
    if (first == last || first == PHASE_WAITING || last > PHASE_READY)
        return;
    struct stall_wait *w = stall_add(s, &none);
    for (uint32_t r = 0; r < desc->nranks; r++) {
        if (s->ranks[r].phase == first)
            stall_put(s->out, &w->missing, &w->nmissing, r);
        else
            stall_put(s->out, &w->waiting, &w->nwaiting, r);
    }
    w->start = true;
    w->op.started = (uint64_t)first + 1; /* the waits for two phases are two waits */
    w->since_ns = s->watch->phases_ns;
}

/* ---- programs that have not called collrun_init ---- */

static bool stall_has_joined(const struct rank_state *r)
{
    return r->end == RANK_EXITED || !r->command || r->part != PART_OUTSIDE ||
           r->phase < PHASE_READY;
}

/* A rank of a plugin forms its groups before its init. */
static bool stall_is_joining(const struct rank_state *r)
{
    return r->end != RANK_EXITED &&
           (r->command ? r->part == PART_JOINING : r->phase == PHASE_ATTACHED);
}

/* Marks the ranks of a group if members of it form their groups and others have not begun to. */
static void stall_mark_joining(const struct stall_search *s, const struct desc_ranks *members,
                               bool *involved)
{
    bool missing = false, joining = false;
    for (uint32_t i = 0; i < members->n; i++) {
        missing = missing || !stall_has_joined(&s->ranks[members->items[i]]);
        joining = joining || stall_is_joining(&s->ranks[members->items[i]]);
    }
    for (uint32_t i = 0; i < members->n && missing && joining; i++)
        involved[members->items[i]] = true;
}

/* Returns false if no program is late for collrun_init. */
static bool stall_add_joining(struct stall_search *s)
{
    const struct desc *desc = s->watch->desc;
    const struct group_snapshot none = {.started = PHASE_FINISHING + 2}; /* unlike all phases */
    bool *involved = arena_calloc(&s->out->arena, desc->nranks, sizeof *involved), any = false;
    for (uint32_t g = 0; g < desc->ngroups; g++)
        stall_mark_joining(s, &desc->groups[g].ranks, involved);
    for (uint32_t r = 0; r < desc->nranks; r++)
        any = any || involved[r];
    if (!any)
        return false;
    struct stall_wait *w = stall_add(s, &none);
    for (uint32_t r = 0; r < desc->nranks; r++) {
        if (involved[r] && !stall_has_joined(&s->ranks[r]))
            stall_put(s->out, &w->missing, &w->nmissing, r);
        else if (involved[r] && stall_is_joining(&s->ranks[r]))
            stall_put(s->out, &w->waiting, &w->nwaiting, r);
    }
    w->start = w->joining = true;
    w->since_ns = s->watch->phases_ns;
    return true;
}

/* ---- who is waited for ---- */

struct stall_graph {
    bool *waiting, *missed;
};

/* A rank that receives from any rank does not wait for itself. Two such waits mark all senders: the
 * second one marks the rank that waits in the first one. */
static void stall_graph_fill_any(const struct stall_wait *w, struct stall_graph *g)
{
    struct stall_senders *of = w->senders;
    if (!of || of->n < 2)
        return;
    g->waiting[w->waiting[0]] = true;
    for (uint32_t k = 0; k < of->n && of->nmarked < 2; k++)
        g->missed[of->ranks[k]] = g->missed[of->ranks[k]] || of->ranks[k] != w->waiting[0];
    of->nmarked++;
}

static void stall_graph_fill(const struct stall_search *search, struct stall_graph *g,
                             bool with_any)
{
    const struct stall *s = search->out;
    for (struct stall_senders *of = search->senders; of; of = of->next)
        of->nmarked = 0;
    for (uint32_t i = 0; i < s->nwaits; i++) {
        const struct stall_wait *w = &s->waits[i];
        if (w->any && with_any)
            stall_graph_fill_any(w, g);
        if (w->any)
            continue;
        for (uint32_t k = 0; k < w->nmissing; k++)
            g->missed[w->missing[k]] = true;
        for (uint32_t k = 0; k < w->nwaiting && w->nmissing; k++)
            g->waiting[w->waiting[k]] = true;
    }
}

/* Ranks that are waited for and that wait for no rank. A thread in a receive from any rank may be
 * idle, as that of a server; so such waits count only if culprits are found with them. */
static void stall_find_culprits(const struct stall_search *search, struct stall_graph *g,
                                uint32_t nranks)
{
    struct stall *s = search->out;
    for (int with_any = 1; with_any >= 0 && !s->nculprits; with_any--) {
        memset(g->waiting, 0, nranks);
        memset(g->missed, 0, nranks);
        stall_graph_fill(search, g, with_any);
        for (uint32_t r = 0; r < nranks; r++) {
            if (g->missed[r] && !g->waiting[r])
                s->culprits[s->nculprits++] = r;
        }
    }
}

/* Ranks inside an operation that a signal has stopped. */
static void stall_find_stopped(struct stall *s, const struct rank_state *ranks, bool *inside,
                               uint32_t nranks)
{
    memset(inside, 0, nranks);
    for (uint32_t i = 0; i < s->nwaits; i++)
        for (uint32_t k = 0; k < s->waits[i].nwaiting; k++)
            inside[s->waits[i].waiting[k]] = true;
    for (uint32_t r = 0; r < nranks; r++)
        if (inside[r] && ranks[r].snapshot.state == 'T')
            s->culprits[s->nculprits++] = r;
}

static void stall_blame(struct stall_search *s)
{
    struct stall *out = s->out;
    uint32_t nranks = s->watch->desc->nranks;
    struct stall_graph g = {arena_calloc(&out->arena, nranks, sizeof(bool)),
                            arena_calloc(&out->arena, nranks, sizeof(bool))};
    out->culprits = arena_calloc(&out->arena, nranks, sizeof *out->culprits);
    out->suspects = arena_calloc(&out->arena, nranks, sizeof *out->suspects);
    stall_find_culprits(s, &g, nranks);
    if (!out->nculprits)
        stall_find_stopped(out, s->ranks, g.waiting, nranks);
    if (out->nculprits)
        return;
    memset(g.missed, 0, nranks);
    stall_graph_fill(s, &g, true);
    for (uint32_t r = 0; r < nranks; r++) {
        if (g.missed[r])
            out->suspects[out->nsuspects++] = r;
    }
}

/* The first waits, which are shown, list the senders that they wait for. */
static void stall_list_senders(struct stall *s)
{
    for (uint32_t i = 0; i < s->nwaits && i < STALL_LISTED; i++) {
        struct stall_wait *w = &s->waits[i];
        if (!w->senders)
            continue;
        w->missing = arena_calloc(&s->arena, w->senders->n, sizeof *w->missing);
        for (uint32_t k = 0; k < w->senders->n; k++)
            if (w->senders->ranks[k] != w->waiting[0])
                w->missing[w->nmissing++] = w->senders->ranks[k];
    }
}

/* Waits that began before the job was stopped count from when it went on. */
static void stall_forget_stop(struct stall *s, uint64_t resumed_ns)
{
    for (uint32_t i = 0; i < s->nwaits; i++)
        if (s->waits[i].since_ns < resumed_ns)
            s->waits[i].since_ns = resumed_ns;
}

static int stall_compare(const void *a, const void *b)
{
    const struct stall_wait *x = a, *y = b;
    if (x->since_ns != y->since_ns)
        return x->since_ns < y->since_ns ? -1 : 1;
    return x->waiting[0] < y->waiting[0] ? -1 : 1;
}

bool stall_find(const struct stall_watch *w, const struct rank_state *ranks, uint64_t now_ns,
                uint64_t least_ns, struct stall *out)
{
    struct stall_search s = {.watch = w, .ranks = ranks, .out = out};
    *out = (struct stall){0};
    arena_init(&out->arena);
    if (now_ns < w->resumed_ns + least_ns)
        return false;
    for (uint32_t r = 0; r < w->desc->nranks; r++) {
        s.of_rank = out->nwaits;
        for (uint32_t i = 0;
             i < w->ranks[r].n && i < ranks[r].snapshot.n && ranks[r].end != RANK_EXITED; i++)
            stall_add_slot(&s, r, i, now_ns - least_ns);
        if (ranks[r].end != RANK_EXITED)
            stall_add_forming(&s, r, now_ns - least_ns);
    }
    if (w->phases_ns && w->phases_ns + least_ns <= now_ns && !stall_add_joining(&s))
        stall_add_start(&s);
    if (out->nwaits)
        qsort(out->waits, out->nwaits, sizeof *out->waits, stall_compare);
    stall_forget_stop(out, w->resumed_ns);
    stall_blame(&s);
    stall_list_senders(out);
    return out->nwaits;
}

void stall_fini(struct stall *s)
{
    arena_fini(&s->arena);
    *s = (struct stall){0};
}

const struct stall_wait *stall_wait_for(const struct stall *s, uint32_t rank)
{
    for (uint32_t i = 0; i < s->nwaits; i++) {
        const struct stall_wait *w = &s->waits[i];
        if (w->senders ? w->waiting[0] != rank && stall_has(w->senders->ranks, w->senders->n, rank)
                       : stall_has(w->missing, w->nmissing, rank))
            return w;
    }
    return NULL;
}

/* ---- episodes ---- */

/* Takes that which has not waited for the longest time out of the list; NULL: all wait. */
static struct stall_episode *stall_episodes_evict(struct stall_episodes *e)
{
    struct stall_episode **oldest = NULL;
    for (struct stall_episode **p = &e->first; *p; p = &(*p)->next) {
        bool over = !(*p)->present && !(*p)->number && !(*p)->report;
        if (over && (!oldest || (*p)->since_ns < (*oldest)->since_ns))
            oldest = p;
    }
    if (!oldest)
        return NULL;
    struct stall_episode *out = *oldest;
    *oldest = out->next;
    e->n--;
    e->left_out++;
    return out;
}

struct stall_episode *stall_episodes_get(struct stall_episodes *e, const char *scope, bool messages)
{
    struct stall_episode *found = e->first;
    while (found && (found->messages != messages || strcmp(found->scope, scope) != 0))
        found = found->next;
    if (found)
        return found;
    if (e->n >= STALL_EPISODES_MAX)
        found = stall_episodes_evict(e);
    if (!found)
        found = xmalloc(sizeof *found);
    *found = (struct stall_episode){.next = e->first, .messages = messages};
    memcpy(found->scope, scope, sizeof found->scope);
    e->first = found;
    e->n++;
    return found;
}

void stall_episodes_fini(struct stall_episodes *e)
{
    while (e->first) {
        struct stall_episode *next = e->first->next;
        free(e->first);
        e->first = next;
    }
    *e = (struct stall_episodes){0};
}
