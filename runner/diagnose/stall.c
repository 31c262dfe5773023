/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the snapshots of all ranks. The collectives of a group are numbered in the same order on
 * all members, so a member that has started fewer than number N has not called number N. A message
 * names its peer, a rank of the group; the snapshot of that rank has the same number.
 */
#include "diagnose/stall.h"

#include "base/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATEST_NS 100000000ull

/* ---- between STATUS frames ---- */

int stall_watch_init(struct stall_watch *w, const struct desc *desc)
{
    *w = (struct stall_watch){.desc = desc,
                              .ranks = calloc(desc->nranks, sizeof(struct stall_rank))};
    return w->ranks ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
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
    struct stall_slot *slots = calloc(snapshot->n ? snapshot->n : 1, sizeof *slots);
    for (uint32_t i = 0; slots && i < snapshot->n; i++) {
        const struct group_snapshot *g = &snapshot->groups[i];
        slots[i] = stall_slot_of(stall_slot_find(r, g), g, now_ns);
    }
    free(r->slots);
    *r = (struct stall_rank){.slots = slots, .n = slots ? snapshot->n : 0, .at_ns = now_ns};
}

void stall_watch_phases(struct stall_watch *w, const struct rank_state *ranks, uint64_t now_ns)
{
    uint64_t sum = 0;
    for (uint32_t r = 0; r < w->desc->nranks; r++)
        sum += (uint64_t)ranks[r].phase + ranks[r].member + ranks[r].formed;
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

/* True if `rank` is a member of the group of `g` and has not called collective number `number`. */
static bool stall_is_missing(const struct desc *desc, const struct rank_state *r, uint32_t rank,
                             const struct group_snapshot *g, uint64_t number)
{
    bool member = false;
    if (r->exited)
        return false;
    for (uint32_t i = 0; i < r->snapshot.n; i++) {
        const struct group_snapshot *slot = &r->snapshot.groups[i];
        if (strcmp(slot->scope, g->scope) != 0)
            continue;
        member = true;
        if (!slot->messages && slot->started >= number)
            return false;
    }
    const struct desc_group *group = desc_find_group(desc, g->name);
    return member || (group && stall_has(group->ranks.items, group->ranks.n, rank));
}

/* ---- waits ---- */

struct stall_search {
    const struct stall_watch *watch;
    const struct rank_state *ranks;
    struct stall *out;
    uint32_t capacity;
};

static struct stall_wait *stall_add(struct stall_search *s, const struct group_snapshot *g)
{
    struct stall *out = s->out;
    uint32_t nranks = s->watch->desc->nranks;
    if (out->nwaits == s->capacity) {
        struct stall_wait *old = out->waits;
        s->capacity = s->capacity ? 2 * s->capacity : 8;
        out->waits = arena_calloc(&out->arena, s->capacity, sizeof *out->waits);
        if (!out->waits)
            return NULL;
        if (old)
            memcpy(out->waits, old, out->nwaits * sizeof *old);
    }
    struct stall_wait *w = &out->waits[out->nwaits];
    *w = (struct stall_wait){.op = *g};
    w->waiting = arena_calloc(&out->arena, nranks, sizeof *w->waiting);
    w->missing = arena_calloc(&out->arena, nranks, sizeof *w->missing);
    if (!w->waiting || !w->missing)
        return NULL;
    out->nwaits++;
    return w;
}

/* An operation that a rank has called, and that has not ended. */
struct stall_call {
    uint32_t rank;
    const struct group_snapshot *group;
    struct snapshot_op op;
    uint64_t since_ns;
    bool described; /* `op` has more than the number */
};

/* A rank waits in the wait `w`. */
static void stall_join(struct stall_wait *w, const struct stall_call *c)
{
    const struct snapshot_op *op = &c->op;
    if (!w->nwaiting || c->since_ns < w->since_ns)
        w->since_ns = c->since_ns;
    if (!stall_has(w->waiting, w->nwaiting, c->rank))
        w->waiting[w->nwaiting++] = c->rank;
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
    w->op.dtype = op->dtype;
    w->op.op = op->op;
    w->tag = op->tag;
}

static void stall_add_collective(struct stall_search *s, const struct stall_call *c)
{
    const struct desc *desc = s->watch->desc;
    struct stall_wait *w = NULL;
    for (uint32_t i = 0; i < s->out->nwaits && !w; i++) {
        struct stall_wait *other = &s->out->waits[i];
        if (!other->op.messages && other->op.started == c->op.number &&
            strcmp(other->op.scope, c->group->scope) == 0)
            w = other;
    }
    if (!w) {
        w = stall_add(s, c->group);
        for (uint32_t r = 0; w && r < desc->nranks; r++) {
            if (stall_is_missing(desc, &s->ranks[r], r, c->group, c->op.number))
                w->missing[w->nmissing++] = r;
        }
    }
    if (w)
        stall_join(w, c);
}

/* All other members: one of them can send. */
static void stall_peers_any(const struct stall_search *s, const struct stall_call *c,
                            struct stall_wait *w)
{
    for (uint32_t r = 0; r < s->watch->desc->nranks; r++) {
        if (r != c->rank && stall_is_missing(s->watch->desc, &s->ranks[r], r, c->group, UINT64_MAX))
            w->missing[w->nmissing++] = r;
    }
}

/* The world rank of the peer; WIRE_HOST: not known. */
static uint32_t stall_peer(const struct stall_search *s, const struct stall_call *c)
{
    uint32_t peer = (uint32_t)c->op.root_or_peer;
    for (uint32_t r = 0; r < s->watch->desc->nranks; r++) {
        const struct rank_snapshot *snapshot = &s->ranks[r].snapshot;
        for (uint32_t i = 0; i < snapshot->n; i++) {
            const struct group_snapshot *g = &snapshot->groups[i];
            if (g->members && g->rank == peer && strcmp(g->scope, c->group->scope) == 0)
                return r;
        }
    }
    const struct desc_group *group = desc_find_group(s->watch->desc, c->group->name);
    return group && peer < group->ranks.n ? group->ranks.items[peer] : WIRE_HOST;
}

static struct stall_wait *stall_find_message(const struct stall_search *s,
                                             const struct stall_call *c, bool any)
{
    for (uint32_t i = 0; i < s->out->nwaits; i++) {
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
    if (!w)
        return;
    stall_join(w, c);
    w->op.started = number;
    w->any = any;
    if (any && first)
        stall_peers_any(s, c, w);
    if (any)
        return;
    uint32_t peer = stall_peer(s, c);
    w->peer_unknown = w->peer_unknown || peer == WIRE_HOST;
    if (peer != WIRE_HOST && !stall_has(w->missing, w->nmissing, peer))
        w->missing[w->nmissing++] = peer;
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

/* Of the messages that a thread has posted, it waits for the latest; those that are older by more
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
        if (rank_is_awaited(&s->ranks[rank], f) && !stall_has(w->missing, w->nmissing, rank))
            w->missing[w->nmissing++] = rank;
    }
}

static void stall_add_forming(struct stall_search *s, uint32_t rank, uint64_t until_ns)
{
    const struct group_snapshot none = {.started = 1};
    const struct rank_forming *all = &s->ranks[rank].forming;
    for (uint32_t i = 0; i < all->n; i++) {
        const struct forming_wait *f = &all->items[i];
        struct stall_wait *w = f->since_ns <= until_ns ? stall_find_forming(s, f) : NULL;
        if (f->since_ns > until_ns || (!w && !(w = stall_add(s, &none))))
            continue;
        if (!w->nwaiting) {
            w->forming = true;
            w->kind = f->kind;
            memcpy(w->op.name, f->name, sizeof w->op.name);
            snprintf(w->op.scope, sizeof w->op.scope, "%d %.50s", (int)f->kind, f->name);
            w->since_ns = f->since_ns;
            stall_miss_forming(s, f, w);
        }
        w->since_ns = f->since_ns < w->since_ns ? f->since_ns : w->since_ns;
        w->waiting[w->nwaiting++] = rank;
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
    for (uint32_t r = 0; w && r < desc->nranks; r++) {
        if (s->ranks[r].phase == first)
            w->missing[w->nmissing++] = r;
        else
            w->waiting[w->nwaiting++] = r;
    }
    if (!w)
        return;
    w->start = true;
    w->op.started = (uint64_t)first + 1; /* the waits for two phases are two waits */
    w->since_ns = s->watch->phases_ns;
}

/* ---- programs that have not called collrun_init ---- */

static bool stall_has_joined(const struct rank_state *r)
{
    return r->exited || !r->command || r->member || r->phase < PHASE_READY;
}

/* A rank of a plugin forms its groups before its init. */
static bool stall_is_joining(const struct rank_state *r)
{
    return !r->exited && (r->command ? r->member && !r->formed : r->phase == PHASE_ATTACHED);
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
    struct stall_wait *w = NULL;
    for (uint32_t g = 0; involved && g < desc->ngroups; g++)
        stall_mark_joining(s, &desc->groups[g].ranks, involved);
    for (uint32_t r = 0; involved && r < desc->nranks; r++)
        any = any || involved[r];
    if (!any || !(w = stall_add(s, &none)))
        return any;
    for (uint32_t r = 0; r < desc->nranks; r++) {
        if (involved[r] && !stall_has_joined(&s->ranks[r]))
            w->missing[w->nmissing++] = r;
        else if (involved[r] && stall_is_joining(&s->ranks[r]))
            w->waiting[w->nwaiting++] = r;
    }
    w->start = w->joining = true;
    w->since_ns = s->watch->phases_ns;
    return true;
}

/* ---- who is waited for ---- */

struct stall_graph {
    bool *waiting, *missed;
};

static void stall_graph_fill(const struct stall *s, struct stall_graph *g, bool with_any)
{
    for (uint32_t i = 0; i < s->nwaits; i++) {
        const struct stall_wait *w = &s->waits[i];
        if (w->any && !with_any)
            continue;
        for (uint32_t k = 0; k < w->nmissing; k++)
            g->missed[w->missing[k]] = true;
        for (uint32_t k = 0; k < w->nwaiting && w->nmissing; k++)
            g->waiting[w->waiting[k]] = true;
    }
}

/* Ranks that are waited for and that wait for no rank. A thread in a receive from any rank may be
 * idle, as that of a server; so such waits count only if culprits are found with them. */
static void stall_find_culprits(struct stall *s, struct stall_graph *g, uint32_t nranks)
{
    for (int with_any = 1; with_any >= 0 && !s->nculprits; with_any--) {
        memset(g->waiting, 0, nranks);
        memset(g->missed, 0, nranks);
        stall_graph_fill(s, g, with_any);
        for (uint32_t r = 0; r < nranks; r++) {
            if (g->missed[r] && !g->waiting[r])
                s->culprits[s->nculprits++] = r;
        }
    }
}

/* Ranks inside an operation that a signal has stopped. */
static void stall_find_stopped(struct stall *s, const struct rank_state *ranks, uint32_t nranks)
{
    for (uint32_t r = 0; r < nranks; r++) {
        bool inside = false;
        for (uint32_t i = 0; i < s->nwaits && !inside; i++)
            inside = stall_has(s->waits[i].waiting, s->waits[i].nwaiting, r);
        if (inside && ranks[r].snapshot.state == 'T')
            s->culprits[s->nculprits++] = r;
    }
}

static void stall_blame(struct stall_search *s)
{
    struct stall *out = s->out;
    uint32_t nranks = s->watch->desc->nranks;
    struct stall_graph g = {arena_calloc(&out->arena, nranks, sizeof(bool)),
                            arena_calloc(&out->arena, nranks, sizeof(bool))};
    out->culprits = arena_calloc(&out->arena, nranks, sizeof *out->culprits);
    out->suspects = arena_calloc(&out->arena, nranks, sizeof *out->suspects);
    if (arena_failed(&out->arena))
        return;
    stall_find_culprits(out, &g, nranks);
    if (!out->nculprits)
        stall_find_stopped(out, s->ranks, nranks);
    if (out->nculprits)
        return;
    memset(g.missed, 0, nranks);
    stall_graph_fill(out, &g, true);
    for (uint32_t r = 0; r < nranks; r++) {
        if (g.missed[r])
            out->suspects[out->nsuspects++] = r;
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
        for (uint32_t i = 0; i < w->ranks[r].n && i < ranks[r].snapshot.n && !ranks[r].exited; i++)
            stall_add_slot(&s, r, i, now_ns - least_ns);
        if (!ranks[r].exited)
            stall_add_forming(&s, r, now_ns - least_ns);
    }
    if (w->phases_ns && w->phases_ns + least_ns <= now_ns && !stall_add_joining(&s))
        stall_add_start(&s);
    if (out->nwaits)
        qsort(out->waits, out->nwaits, sizeof *out->waits, stall_compare);
    stall_forget_stop(out, w->resumed_ns);
    stall_blame(&s);
    return out->nwaits && !arena_failed(&out->arena);
}

void stall_fini(struct stall *s)
{
    arena_fini(&s->arena);
    *s = (struct stall){0};
}

const struct stall_wait *stall_wait_for(const struct stall *s, uint32_t rank)
{
    for (uint32_t i = 0; i < s->nwaits; i++) {
        if (stall_has(s->waits[i].missing, s->waits[i].nmissing, rank))
            return &s->waits[i];
    }
    return NULL;
}
