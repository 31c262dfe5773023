/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/align.h"

#include "base/mpi_names.h"
#include "base/names.h"

#include <string.h>

/* The types of buffers of MPI, of which one without elements has none. */
static bool align_mpi_differs(const struct align_call *a, const struct align_call *b)
{
    return a->count && b->count &&
           (mpi_type_class(a->dtype) != mpi_type_class(b->dtype) ||
            (a->count == b->count && a->user_op != b->user_op));
}

const char *align_field(const struct align_call *a, const struct align_call *b)
{
    enum collrun_kind kind = (enum collrun_kind)a->kind;
    if (a->kind != b->kind || a->function != b->function)
        return "kind";
    if (kind == COLLRUN_BARRIER)
        return NULL;
    if (a->function ? align_mpi_differs(a, b) : a->dtype != b->dtype)
        return "dtype";
    if (collrun_kind_reduces(kind) &&
        (a->op != b->op || (!a->function && a->user_op != b->user_op)))
        return "op";
    if (collrun_kind_has_root(kind) && a->root != b->root)
        return "root";
    return collrun_kind_is_vector(kind) || a->count == b->count ? NULL : "count";
}

static bool align_same(const struct align_call *a, const struct align_call *b)
{
    return !align_field(a, b);
}

uint32_t align_vote(const struct align_call *calls, uint32_t n, uint32_t *class_of)
{
    uint32_t best = n, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        class_of[i] = 0;
        while (!align_same(&calls[class_of[i]], &calls[i]))
            class_of[i]++;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t votes = 0;
        for (uint32_t k = 0; k < n && class_of[i] == i; k++)
            votes += class_of[k] == i;
        best = votes > most ? i : votes && votes == most ? n : best;
        most = votes > most ? votes : most;
    }
    return best;
}

/* ---- calls in the records ----
 *
 * The operations of each rank are first sorted by slot, so that each entry is read twice at most.
 */

enum { ALIGN_TAIL = 8 /* calls after the difference that are compared */ };

/* ---- the collectives of a rank, by slot ---- */

struct align_rank {
    uint32_t nslots;
    uint32_t *start; /* of slot i in `ops`; nslots + 1 */
    uint64_t *ops;   /* indices in the record, oldest first */
};

static bool align_is_collective(const struct record_view_op *op)
{
    return op->is_current && kind_is_collective(op->kind);
}

static bool align_sort(const struct record_view *v, struct arena *arena, struct align_rank *r)
{
    struct record_view_op op;
    uint64_t first = record_view_first(v), end = record_view_end(v);
    r->nslots = record_view_ngroups(v);
    r->start = arena_calloc(arena, (size_t)r->nslots + 2, sizeof *r->start);
    r->ops = arena_calloc(arena, end - first, sizeof *r->ops);
    for (uint64_t i = first; i < end; i++) {
        if (record_view_op(v, i, &op) && align_is_collective(&op))
            r->start[op.slot + 2]++;
    }
    for (uint32_t i = 2; i < r->nslots + 2; i++)
        r->start[i] += r->start[i - 1];
    for (uint64_t i = first; i < end; i++) {
        if (record_view_op(v, i, &op) && align_is_collective(&op))
            r->ops[r->start[op.slot + 1]++] = i;
    }
    return true;
}

/* ---- a group ---- */

struct align_member {
    uint32_t rank;
    const struct record_view *view;
    struct record_view_group group;
    uint64_t first; /* the lowest number that the record has */
    uint64_t n;
    uint64_t *at; /* index + 1 of number first + i; 0: not in the record */
};

struct align_group {
    const struct evidence *e;
    struct arena *arena;
    struct align_member *members;
    uint32_t n;
};

/* False: it was overwritten, or its number is damaged, since it is far from the current one. */
static bool align_read_op(const struct align_member *m, uint64_t index, struct record_view_op *op)
{
    uint64_t near = RECORD_ENTRIES + 2 * (uint64_t)m->view->head.entries; /* posted before it */
    uint64_t started = m->group.started;
    return record_view_op(m->view, index, op) && op->number <= started + near &&
           op->number + near > started;
}

/* Reads one member. The size of the ring bounds the range of numbers, even in a damaged record. */
static void align_read_member(const struct align_rank *r, struct arena *arena,
                              struct align_member *m)
{
    struct record_view_op op;
    uint64_t last = 0;
    for (uint32_t i = r->start[m->group.slot]; i < r->start[m->group.slot + 1]; i++) {
        if (!align_read_op(m, r->ops[i], &op))
            continue;
        m->first = !m->first || op.number < m->first ? op.number : m->first;
        last = op.number > last ? op.number : last;
    }
    if (!m->first)
        return;
    m->n = last - m->first + 1;
    m->at = arena_calloc(arena, m->n, sizeof *m->at);
    for (uint32_t i = r->start[m->group.slot]; i < r->start[m->group.slot + 1]; i++) {
        if (align_read_op(m, r->ops[i], &op) && op.number - m->first < m->n)
            m->at[op.number - m->first] = r->ops[i] + 1;
    }
    m->n = m->at ? m->n : 0;
}

static bool align_op(const struct align_member *m, uint64_t number, struct record_view_op *op)
{
    return number >= m->first && number - m->first < m->n && m->at[number - m->first] &&
           record_view_op(m->view, m->at[number - m->first] - 1, op);
}

struct align_call align_call_of(const struct record_view_op *op)
{
    bool user = (op->function || (int)op->op == OP_USER) && !collrun_kind_is_vector(op->kind);
    return (struct align_call){.kind = (uint8_t)op->kind,
                               .dtype = (uint8_t)op->dtype,
                               .op = (uint8_t)op->op,
                               .function = op->function,
                               .root = op->root_or_peer,
                               .count = op->count,
                               .user_op = user ? op->tag : 0};
}

static bool align_call_at(const struct align_member *m, uint64_t number, struct align_call *call)
{
    struct record_view_op op;
    if (!align_op(m, number, &op))
        return false;
    *call = align_call_of(&op);
    return true;
}

static void align_collect(const struct evidence *e, const struct align_rank *sorted,
                          const char *scope, struct align_group *g)
{
    g->n = 0;
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        const struct record_view *v = &e->ranks[i].record;
        for (uint32_t slot = 0; sorted[i].start && slot < sorted[i].nslots; slot++) {
            struct align_member *m = &g->members[g->n];
            *m = (struct align_member){.rank = i, .view = v};
            if (!record_view_group(v, slot, &m->group) || m->group.messages ||
                m->group.members > e->desc->nranks || strcmp(m->group.scope, scope) != 0)
                continue; /* more members than ranks: the rank has damaged its record */
            align_read_member(&sorted[i], g->arena, m);
            g->n += m->n > 0;
            break;
        }
    }
}

/* ---- the counts of v-forms ---- */

struct align_vector { /* one operation of all members */
    const struct align_group *g;
    uint8_t kind;
    struct arena arena; /* of the lists */
    struct record_view_op *ops;
    struct record_view_counts *counts;
    bool *known;
    uint32_t *blamed; /* per member: how often its counts differ */
};

static void align_read_vector(const struct align_group *g, uint64_t number, uint8_t kind,
                              struct align_vector *v)
{
    *v = (struct align_vector){.g = g, .kind = kind};
    arena_init(&v->arena);
    v->ops = arena_calloc(&v->arena, g->n, sizeof *v->ops);
    v->counts = arena_calloc(&v->arena, g->n, sizeof *v->counts);
    v->known = arena_calloc(&v->arena, g->n, sizeof *v->known);
    v->blamed = arena_calloc(&v->arena, g->n, sizeof *v->blamed);
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t most = g->members[i].group.members;
        struct record_view_counts *c = &v->counts[i];
        c->sent = arena_calloc(&v->arena, most, sizeof(uint64_t));
        c->expected = arena_calloc(&v->arena, most, sizeof(uint64_t));
        v->known[i] = align_op(&g->members[i], number, &v->ops[i]) &&
                      record_view_counts(g->members[i].view, &v->ops[i], most, c);
    }
}

/* How many elements member i sends to member k, or expects from it. False: it does not say. */
static bool align_count(const struct align_vector *v, uint32_t i, uint32_t k, bool sent,
                        uint64_t *out)
{
    const struct record_view_op *op = &v->ops[i];
    const struct record_view_counts *c = &v->counts[i];
    uint32_t other = v->g->members[k].group.rank;
    if (other < (sent ? c->nsent : c->nexpected)) {
        *out = sent ? c->sent[other] : c->expected[other];
        return true;
    }
    *out = op->count;
    return (int64_t)other == op->root_or_peer &&
           op->kind == (sent ? COLLRUN_GATHERV : COLLRUN_SCATTERV);
}

/* alltoallv, gatherv, scatterv: what each member sends is what its peer expects. Returns how many
 * pairs differ. */
static uint32_t align_vote_pairs(struct align_vector *v, struct align_counts *first)
{
    uint32_t pairs = 0;
    for (uint32_t i = 0; i < v->g->n; i++) {
        for (uint32_t k = 0; v->known[i] && k < v->g->n; k++) {
            uint64_t sent, expected;
            if (!v->known[k] || !align_count(v, i, k, true, &sent) ||
                !align_count(v, k, i, false, &expected) || sent == expected)
                continue;
            if (!pairs++)
                *first = (struct align_counts){v->g->members[i].rank, v->g->members[k].rank, sent,
                                               expected};
            v->blamed[i]++;
            v->blamed[k] += i != k;
        }
    }
    return pairs;
}

/* The count of member `of`, as member k gives it: in its list, or as its own contribution. */
static bool align_claim(const struct align_vector *v, uint32_t k, uint32_t of, uint64_t *out)
{
    uint32_t at = v->g->members[of].group.rank;
    if (!v->known[k] || at >= v->counts[k].nexpected)
        return false;
    *out = v->counts[k].expected[at];
    if (k == of && v->ops[k].kind == COLLRUN_ALLGATHERV)
        *out = v->ops[k].count;
    return true;
}

static uint32_t align_votes(const struct align_vector *v, uint32_t of, uint64_t count)
{
    uint32_t votes = 0;
    uint64_t claim;
    for (uint32_t i = 0; i < v->g->n; i++)
        votes += align_claim(v, i, of, &claim) && claim == count;
    return votes;
}

/* Two members that give different counts for member `of`, which is one of them: `claim` is what
 * member i gives, `best` what most do. In allgatherv, `of` sends as many elements as it gives, in
 * reduce_scatterv it expects them. */
static struct align_counts align_pair(const struct align_vector *v, uint32_t of, uint32_t i,
                                      uint64_t claim, uint64_t best)
{
    uint64_t own, other;
    if (!align_claim(v, of, of, &own))
        own = best;
    if (own == claim) {
        for (i = 0; i + 1 < v->g->n && !(align_claim(v, i, of, &other) && other == best); i++)
            ;
        claim = best;
    }
    const uint32_t rank = v->g->members[of].rank, peer = v->g->members[i].rank;
    return v->kind == COLLRUN_ALLGATHERV ? (struct align_counts){rank, peer, own, claim}
                                         : (struct align_counts){peer, rank, claim, own};
}

/* allgatherv, reduce_scatterv: all members give the counts of all. What most of them give is right.
 * Returns how many counts are not, or are in doubt. */
static uint32_t align_vote_lists(struct align_vector *v, struct align_counts *first)
{
    uint32_t differ = 0;
    for (uint32_t of = 0; of < v->g->n; of++) {
        uint64_t best = 0, claim;
        uint32_t most = 0;
        bool tie = false;
        for (uint32_t i = 0; i < v->g->n; i++) {
            uint32_t votes = align_claim(v, i, of, &claim) ? align_votes(v, of, claim) : 0;
            tie = votes > most ? false : tie || (votes && votes == most && claim != best);
            best = votes > most ? claim : best;
            most = votes > most ? votes : most;
        }
        for (uint32_t i = 0; i < v->g->n; i++) {
            if (!align_claim(v, i, of, &claim) || (claim == best && !tie))
                continue;
            v->blamed[i]++;
            if (claim != best && !differ++)
                *first = align_pair(v, of, i, claim, best);
        }
    }
    return differ;
}

/* Finds who is wrong: among pairs, the member that is part of all that differ; among lists, those
 * that are outvoted. */
static bool align_find_counts(const struct align_group *g, uint64_t number, uint8_t kind,
                              struct align_difference *out)
{
    struct align_vector v;
    uint32_t n = 0, all = 0;
    align_read_vector(g, number, kind, &v);
    bool lists = collrun_kind_row((enum collrun_kind)kind).flags & COLLRUN_COUNTS_ALIKE;
    n = lists ? align_vote_lists(&v, &out->counts) : align_vote_pairs(&v, &out->counts);
    for (uint32_t i = 0; n && i < g->n; i++)
        all += lists ? v.blamed[i] > 0 : v.blamed[i] == n;
    bool certain = lists ? 2 * all < g->n : all == 1;
    struct desc_ranks *list = certain ? &out->wrong : &out->suspects;
    list->items = n ? arena_calloc(g->arena, g->n, sizeof *list->items) : NULL;
    for (uint32_t i = 0; list->items && i < g->n; i++) {
        if (certain && !lists ? v.blamed[i] == n : v.blamed[i] > 0)
            list->items[list->n++] = g->members[i].rank;
    }
    if (n)
        out->field = "counts";
    arena_fini(&v.arena);
    return n > 0;
}

/* ---- the first difference ---- */

/* How many calls of the two members are equal, from these numbers on; -1: two differ. */
static int align_compare_tails(const struct align_member *a, uint64_t from_a,
                               const struct align_member *b, uint64_t from_b)
{
    struct align_call x, y;
    int n = 0;
    while (n < ALIGN_TAIL && align_call_at(a, from_a + (uint64_t)n, &x) &&
           align_call_at(b, from_b + (uint64_t)n, &y)) {
        if (!align_same(&x, &y))
            return -1;
        n++;
    }
    return n;
}

static enum align_edit align_edit_of(const struct align_member *wrong,
                                     const struct align_member *right, uint64_t number)
{
    struct align_call w[2], r[2];
    bool two = align_call_at(wrong, number, &w[0]) && align_call_at(wrong, number + 1, &w[1]) &&
               align_call_at(right, number, &r[0]) && align_call_at(right, number + 1, &r[1]);
    if (two && align_same(&w[0], &r[1]) && align_same(&w[1], &r[0]))
        return ALIGN_SWAPPED;
    int same = align_compare_tails(wrong, number + 1, right, number + 1);
    int extra = align_compare_tails(wrong, number + 1, right, number);
    int left_out = align_compare_tails(wrong, number, right, number + 1);
    if (same >= 1 || (extra < 1 && left_out < 1))
        return ALIGN_ARGUMENT;
    return extra >= left_out ? ALIGN_EXTRA : ALIGN_LEFT_OUT;
}

/* The calls with this number; false: they are equal. */
static bool align_differs(const struct align_group *g, uint64_t number, struct align_call *calls,
                          uint32_t *who, uint32_t *n)
{
    bool differs = false;
    *n = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        if (!align_call_at(&g->members[i], number, &calls[*n]))
            continue;
        differs = differs || !align_same(&calls[0], &calls[*n]);
        who[(*n)++] = i;
    }
    return differs;
}

static void align_judge(const struct align_group *g, struct align_call *calls, const uint32_t *who,
                        struct align_difference *out)
{
    uint32_t n = out->ranks.n, *class_of = arena_calloc(g->arena, n, sizeof *class_of);
    out->majority = align_vote(calls, n, class_of);
    out->class_of = class_of;
    out->calls = calls;
    uint32_t base = out->majority < n ? out->majority : 0;
    struct desc_ranks *list = out->majority < n ? &out->wrong : &out->suspects;
    list->items = arena_calloc(g->arena, n, sizeof *list->items);
    for (uint32_t i = 0; i < n; i++) {
        const char *field = align_field(&calls[base], &calls[i]);
        if (field && !out->field) {
            out->field = field;
            out->edit = align_edit_of(&g->members[who[i]], &g->members[who[base]], out->number);
        }
        if (field || out->majority == n)
            list->items[list->n++] = out->ranks.items[i];
    }
}

/* The least number above `number` that is in the range of a member; UINT64_MAX: there is none. The
 * numbers of damaged records may be far apart. */
static uint64_t align_next(const struct align_group *g, uint64_t number)
{
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < g->n; i++) {
        const struct align_member *m = &g->members[i];
        uint64_t own = m->first > number ? m->first : number + 1;
        if (own - m->first < m->n && own < next)
            next = own;
    }
    return next;
}

static bool align_search(const struct align_group *g, struct align_difference *out)
{
    struct align_call *calls = arena_calloc(g->arena, g->n, sizeof *calls);
    uint32_t *who = arena_calloc(g->arena, g->n, sizeof *who), n;
    for (uint64_t number = align_next(g, 0); number < UINT64_MAX; number = align_next(g, number)) {
        bool differs = align_differs(g, number, calls, who, &n);
        *out = (struct align_difference){.number = number, .majority = n};
        if (!differs && (n < 2 || !collrun_kind_is_vector((enum collrun_kind)calls[0].kind) ||
                         !align_find_counts(g, number, calls[0].kind, out)))
            continue;
        out->group = arena_strdup(g->arena, g->members[0].group.name);
        out->scope = arena_strdup(g->arena, g->members[0].group.scope);
        out->nmembers = g->members[0].group.members;
        out->ranks.items = arena_calloc(g->arena, n, sizeof(uint32_t));
        for (uint32_t i = 0; i < n; i++) {
            struct record_view_op op;
            out->ranks.items[out->ranks.n++] = g->members[who[i]].rank;
            out->completed = out->completed || (align_op(&g->members[who[i]], number, &op) &&
                                                op.state == RECORD_DONE);
        }
        if (differs)
            align_judge(g, calls, who, out);
        else
            out->calls = calls;
        return true;
    }
    return false;
}

/* ---- all groups ---- */

/* When the first member called it, on its own clock: only the order within a host is certain. */
static uint64_t align_called_ns(const struct align_group *g, uint64_t number)
{
    uint64_t first = UINT64_MAX;
    struct record_view_op op;
    for (uint32_t i = 0; i < g->n; i++) {
        if (align_op(&g->members[i], number, &op) && op.called_ns < first)
            first = op.called_ns;
    }
    return first;
}

/* True: no earlier rank has a slot of this scope. */
static bool align_is_first(const struct evidence *e, uint32_t rank, const char *scope)
{
    struct record_view_group g;
    for (uint32_t i = 0; i < rank; i++) {
        uint32_t n = e->ranks[i].record_bytes ? record_view_ngroups(&e->ranks[i].record) : 0;
        for (uint32_t slot = 0; slot < n; slot++) {
            if (record_view_group(&e->ranks[i].record, slot, &g) && !g.messages &&
                strcmp(g.scope, scope) == 0)
                return false;
        }
    }
    return true;
}

bool align_find(const struct evidence *e, const char *group, struct arena *arena,
                struct align_difference *out)
{
    uint64_t best = UINT64_MAX;
    bool found = false;
    struct align_group g = {e, arena, arena_calloc(arena, e->desc->nranks + 1, sizeof *g.members),
                            0};
    struct align_rank *sorted = arena_calloc(arena, e->desc->nranks, sizeof *sorted);
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        if (e->ranks[i].record_bytes)
            align_sort(&e->ranks[i].record, arena, &sorted[i]);
    }
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        for (uint32_t slot = 0; slot < sorted[i].nslots; slot++) {
            struct record_view_group own;
            struct align_difference d;
            if (!record_view_group(&e->ranks[i].record, slot, &own) || own.messages ||
                (group && strcmp(own.name, group) != 0) || !align_is_first(e, i, own.scope))
                continue;
            align_collect(e, sorted, own.scope, &g);
            if (g.n < 2 || !align_search(&g, &d) || (own.check == COLLRUN_CHECK_OFF && d.completed))
                continue;
            uint64_t called = align_called_ns(&g, d.number);
            if (found && called >= best)
                continue;
            *out = d;
            best = called;
            found = true;
        }
    }
    return found;
}
