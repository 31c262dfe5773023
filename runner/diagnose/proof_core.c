/* SPDX-License-Identifier: Apache-2.0
 *
 * A graph of ranks and of the nodes of the proof: a rank leads to the nodes of the operations that
 * its threads wait for, a node to the ranks that it depends on and that cannot act. A strongly
 * connected component without a way out (Tarjan) has no other reason than itself: it holds the
 * core.
 *
 * - A node that needs all of several ranks needs the first one that is blocked, rather than one
 *   that has ended: so a cycle is found where there is one.
 * - In a component in which each rank needs one rank at a time, the shortest cycle is found from
 *   each of some ranks. Else a set is grown from each of them: a node that needs one of its ranks
 *   adds all, one that needs all adds one, which is in the set already if possible. The smallest
 *   set wins.
 */
#include "diagnose/proof.h"

#include "base/call_text.h"
#include "base/mpi_names.h"
#include "base/names.h"
#include "base/parse.h"
#include "diagnose/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CORE_STARTS = 64 };
#define CORE_NONE UINT32_MAX

/* Vertices are the ranks, then the nodes. */
struct core_graph {
    const struct proof *p;
    uint32_t n;
    uint32_t *at, *nodes; /* of rank R: nodes[at[R]] to nodes[at[R + 1]] */
    uint32_t *component;  /* by vertex; CORE_NONE: not visited */
    bool *waiting;        /* by node: one of its ranks waits, rather than has ended */
    uint32_t ncomponents;
};

static bool core_waits(const struct proof_thread *t)
{
    return t->state == PROOF_BLOCKED && t->cut->role == RECORD_CUT_BLOCKED;
}

static bool core_has_waiting(const struct proof *p, uint32_t rank)
{
    const struct proof_rank *r = &p->ranks[rank];
    for (uint32_t i = r->first; i < r->first + r->nthreads; i++)
        if (core_waits(&p->threads[i]))
            return true;
    return false;
}

/* A rank that waits for none: it has ended, or its threads sleep. */
static bool core_is_end(const struct proof *p, uint32_t rank)
{
    return !core_has_waiting(p, rank);
}

static bool core_build(struct core_graph *g)
{
    const struct proof *p = g->p;
    uint32_t n = 0;
    g->n = p->nranks + p->nnodes;
    g->at = arena_calloc(p->arena, (size_t)p->nranks + 1, sizeof *g->at);
    g->nodes = arena_calloc(p->arena, p->nitems, sizeof *g->nodes);
    g->component = arena_calloc(p->arena, g->n, sizeof *g->component);
    g->waiting = arena_calloc(p->arena, p->nnodes, sizeof *g->waiting);
    if (arena_failed(p->arena))
        return false;
    for (uint32_t i = 0; i < p->nranks; i++) {
        const struct proof_rank *r = &p->ranks[i];
        g->at[i] = n;
        for (uint32_t t = r->first; t < r->first + r->nthreads; t++)
            for (uint32_t k = 0; core_waits(&p->threads[t]) && k < p->threads[t].nitems; k++) {
                const struct proof_item *item = &p->items[p->threads[t].first + k];
                if (!item->met)
                    g->nodes[n++] = item->node;
            }
    }
    g->at[p->nranks] = n;
    for (uint32_t i = 0; i < p->nnodes; i++)
        for (uint32_t k = 0; k < p->nodes[i].nranks && !g->waiting[i]; k++) {
            const uint32_t rank = p->links[p->nodes[i].first + k];
            g->waiting[i] = !p->ranks[rank].acts && !core_is_end(p, rank);
        }
    return true;
}

/* The i-th way out of a vertex; CORE_NONE: there are fewer. */
static uint32_t core_next(const struct core_graph *g, uint32_t vertex, uint32_t *i)
{
    const struct proof *p = g->p;
    if (vertex < p->nranks) {
        const uint32_t at = g->at[vertex] + (*i)++;
        return at < g->at[vertex + 1] ? p->nranks + g->nodes[at] : CORE_NONE;
    }
    const struct proof_node *n = &p->nodes[vertex - p->nranks];
    const bool waiting = g->waiting[vertex - p->nranks];
    while (*i < n->nranks) {
        const uint32_t rank = p->links[n->first + (*i)++];
        if (!p->ranks[rank].acts && (n->any || !waiting || !core_is_end(p, rank)))
            return rank;
    }
    return CORE_NONE;
}

/* ---- strongly connected components ---- */

struct core_tarjan {
    uint32_t *index, *low, *next; /* by vertex; index 0: not visited */
    uint32_t *stack, *path;
    uint32_t nstack, npath, visited;
};

static void core_push(struct core_tarjan *t, uint32_t vertex)
{
    t->index[vertex] = t->low[vertex] = ++t->visited;
    t->stack[t->nstack++] = t->path[t->npath++] = vertex;
}

/* The last vertex of the path has no further way: its component is complete if it leads to no
 * vertex that was visited before. */
static void core_pop(struct core_graph *g, struct core_tarjan *t)
{
    const uint32_t vertex = t->path[--t->npath];
    if (t->npath && t->low[vertex] < t->low[t->path[t->npath - 1]])
        t->low[t->path[t->npath - 1]] = t->low[vertex];
    if (t->low[vertex] != t->index[vertex])
        return;
    do
        g->component[t->stack[--t->nstack]] = g->ncomponents;
    while (t->stack[t->nstack] != vertex);
    g->ncomponents++;
}

static void core_visit(struct core_graph *g, struct core_tarjan *t, uint32_t start)
{
    core_push(t, start);
    while (t->npath) {
        const uint32_t vertex = t->path[t->npath - 1];
        const uint32_t to = core_next(g, vertex, &t->next[vertex]);
        if (to == CORE_NONE)
            core_pop(g, t);
        else if (!t->index[to])
            core_push(t, to);
        else if (g->component[to] == CORE_NONE && t->index[to] < t->low[vertex])
            t->low[vertex] = t->index[to];
    }
}

static bool core_find_components(struct core_graph *g)
{
    struct arena *a = g->p->arena;
    struct core_tarjan t = {.index = arena_calloc(a, g->n, sizeof(uint32_t)),
                            .low = arena_calloc(a, g->n, sizeof(uint32_t)),
                            .next = arena_calloc(a, g->n, sizeof(uint32_t)),
                            .stack = arena_calloc(a, g->n, sizeof(uint32_t)),
                            .path = arena_calloc(a, g->n, sizeof(uint32_t))};
    if (arena_failed(a))
        return false;
    for (uint32_t i = 0; i < g->n; i++)
        g->component[i] = CORE_NONE;
    for (uint32_t i = 0; i < g->p->nranks; i++)
        if (!t.index[i] && core_has_waiting(g->p, i))
            core_visit(g, &t, i);
    return true;
}

/* A component without a way out; one in which ranks wait, if there is one. */
static uint32_t core_find_sink(const struct core_graph *g)
{
    bool *leads = arena_calloc(g->p->arena, g->ncomponents, sizeof *leads);
    uint32_t found = CORE_NONE;
    for (uint32_t v = 0; leads && v < g->n; v++) {
        uint32_t i = 0, to;
        if (g->component[v] == CORE_NONE)
            continue;
        while ((to = core_next(g, v, &i)) != CORE_NONE)
            leads[g->component[v]] = leads[g->component[v]] || g->component[to] != g->component[v];
    }
    for (uint32_t r = 0; leads && r < g->p->nranks; r++) {
        if (g->component[r] == CORE_NONE || leads[g->component[r]])
            continue;
        if (core_has_waiting(g->p, r))
            return g->component[r];
        found = g->component[r];
    }
    return found;
}

/* ---- the core of a component ---- */

/* True if the thread may return after any of its operations: the core has to explain each. */
static bool core_needs_each(const struct proof_thread *t)
{
    return t->cut->mode == RECORD_ANY;
}

/* True if the rank cannot go on as long as any single one of the ranks that it leads to cannot: one
 * thread waits, for all of its operations, of which none needs only one of several ranks. */
static bool core_is_simple(const struct core_graph *g, uint32_t rank)
{
    const struct proof_rank *r = &g->p->ranks[rank];
    uint32_t threads = 0;
    bool simple = true;
    for (uint32_t t = r->first; t < r->first + r->nthreads; t++) {
        threads += core_waits(&g->p->threads[t]);
        simple = simple && (!core_needs_each(&g->p->threads[t]) || g->p->threads[t].nitems == 1);
    }
    for (uint32_t i = g->at[rank]; i < g->at[rank + 1]; i++) {
        const struct proof_node *n = &g->p->nodes[g->nodes[i]];
        simple = simple && (!n->any || n->nranks == 1);
    }
    return simple && threads == 1;
}

struct core_search {
    const struct core_graph *g;
    uint32_t *order, *from; /* ranks in the order in which they were reached; by rank: from which */
    bool *in;
    uint32_t n;
    uint32_t *seen, start; /* by node: the number of the start from which it was last visited */
};

/* True the first time from this start: a node has nothing new to offer later. */
static bool core_see(struct core_search *s, uint32_t vertex)
{
    uint32_t *seen = &s->seen[vertex - s->g->p->nranks];
    const bool first = *seen != s->start;
    *seen = s->start;
    return first;
}

static void core_reach(struct core_search *s, uint32_t rank, uint32_t from)
{
    if (s->in[rank])
        return;
    s->in[rank] = true;
    s->from[rank] = from;
    s->order[s->n++] = rank;
}

static void core_clear(struct core_search *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        s->in[s->order[i]] = false;
    s->n = 0;
    s->start++;
}

/* Reaches all ranks that this one leads to. True: `start` is one of them. */
static bool core_reach_next(struct core_search *s, uint32_t rank, uint32_t start)
{
    uint32_t i = 0, node, to;
    bool closed = false;
    while ((node = core_next(s->g, rank, &i)) != CORE_NONE)
        for (uint32_t k = core_see(s, node) ? 0 : UINT32_MAX;
             (to = core_next(s->g, node, &k)) != CORE_NONE;) {
            closed = closed || to == start;
            core_reach(s, to, rank);
        }
    return closed;
}

/* The ranks of the shortest cycle through `start`, in its order; 0: there is none. */
static uint32_t core_cycle(struct core_search *s, uint32_t start, uint32_t *out)
{
    core_clear(s);
    core_reach(s, start, start);
    for (uint32_t k = 0; k < s->n; k++) {
        uint32_t rank = s->order[k], n = 1;
        if (!core_reach_next(s, rank, start))
            continue;
        for (uint32_t r = rank; r != start; r = s->from[r])
            n++;
        for (uint32_t at = n; at > 0; rank = s->from[rank])
            out[--at] = rank;
        return n;
    }
    return 0;
}

/* Adds what one operation needs: all ranks of which one is enough, else one of those that must all
 * act, which may be in the set already. */
static void core_add_node(struct core_search *s, uint32_t rank, uint32_t vertex)
{
    const bool any = s->g->p->nodes[vertex - s->g->p->nranks].any;
    uint32_t i = 0, to, first = CORE_NONE;
    if (!core_see(s, vertex))
        return;
    while ((to = core_next(s->g, vertex, &i)) != CORE_NONE) {
        if (any)
            core_reach(s, to, rank);
        else if (s->in[to])
            return;
        first = first == CORE_NONE ? to : first;
    }
    if (!any && first != CORE_NONE)
        core_reach(s, first, rank);
}

static void core_add_thread(struct core_search *s, const struct proof_thread *t)
{
    const struct proof *p = s->g->p;
    bool done = !core_waits(t);
    for (uint32_t i = t->first; !done && i < t->first + t->nitems; i++) {
        if (p->items[i].met)
            continue;
        core_add_node(s, t->rank, p->nranks + p->items[i].node);
        done = !core_needs_each(t);
    }
}

/* 0: it has `most` ranks or more. */
static uint32_t core_set(struct core_search *s, uint32_t start, uint32_t most, uint32_t *out)
{
    const struct proof *p = s->g->p;
    core_clear(s);
    core_reach(s, start, start);
    for (uint32_t k = 0; k < s->n; k++) {
        if (s->n >= most)
            return 0;
        const struct proof_rank *r = &p->ranks[s->order[k]];
        for (uint32_t t = r->first; t < r->first + r->nthreads; t++)
            core_add_thread(s, &p->threads[t]);
    }
    memcpy(out, s->order, s->n * sizeof *out);
    return s->n;
}

/* The smallest core that is found from some ranks of the component. */
static bool core_shrink(const struct core_graph *g, uint32_t component, struct proof_core *out)
{
    struct arena *a = g->p->arena;
    const uint32_t n = g->p->nranks;
    uint32_t *found = arena_calloc(a, n, sizeof *found), *best = arena_calloc(a, n, sizeof *best);
    struct core_search s = {.g = g,
                            .order = arena_calloc(a, n, sizeof *s.order),
                            .from = arena_calloc(a, n, sizeof *s.from),
                            .in = arena_calloc(a, n, sizeof *s.in),
                            .seen = arena_calloc(a, g->p->nnodes, sizeof *s.seen)};
    bool simple = true;
    if (arena_failed(a))
        return false;
    for (uint32_t r = 0; r < n; r++)
        simple = simple && (g->component[r] != component || core_is_simple(g, r));
    for (uint32_t r = 0, starts = 0; r < n && starts < CORE_STARTS; r++) {
        if (g->component[r] != component)
            continue;
        starts++;
        const uint32_t most = out->n ? out->n : UINT32_MAX;
        const uint32_t size = simple ? core_cycle(&s, r, found) : core_set(&s, r, most, found);
        if (!size || (out->n && size >= out->n))
            continue;
        memcpy(best, found, size * sizeof *best);
        out->n = size;
    }
    if (!simple && out->n)
        qsort(best, out->n, sizeof *best, rank_compare);
    out->shape = simple ? PROOF_CYCLE : PROOF_SET;
    out->ranks = best;
    return true;
}

/* The ranks that wait for one that has ended. */
static bool core_missing(const struct core_graph *g, uint32_t component, struct proof_core *out)
{
    const struct proof *p = g->p;
    uint32_t *ranks = arena_calloc(p->arena, p->nranks, sizeof *ranks);
    out->shape = PROOF_MISSING;
    out->ranks = ranks;
    for (uint32_t r = 0; r < p->nranks; r++)
        if (g->component[r] == component)
            out->missing = r;
    for (uint32_t r = 0; ranks && r < p->nranks; r++) {
        uint32_t i = 0, node, to;
        bool waits = false;
        while ((node = core_next(g, r, &i)) != CORE_NONE)
            for (uint32_t k = 0; (to = core_next(g, node, &k)) != CORE_NONE;)
                waits = waits || to == out->missing;
        if (waits)
            ranks[out->n++] = r;
    }
    return ranks != NULL;
}

bool proof_explain(const struct proof *p, struct proof_core *out)
{
    struct core_graph g = {.p = p};
    *out = (struct proof_core){0};
    if (!p->nblocked)
        return true;
    if (!core_build(&g) || !core_find_components(&g))
        return false;
    const uint32_t sink = core_find_sink(&g);
    bool blocked = false;
    for (uint32_t r = 0; r < p->nranks; r++)
        blocked = blocked || (g.component[r] == sink && core_has_waiting(p, r));
    if (!(blocked ? core_shrink(&g, sink, out) : core_missing(&g, sink, out)))
        return false;
    for (uint32_t r = 0; r < p->nranks; r++)
        out->behind += core_has_waiting(p, r);
    out->behind = out->behind > out->n ? out->behind - out->n : 0;
    return true;
}

/* ---- the text ---- */

/* The operation that the text of a rank is about: the first one that is not complete. */
static const struct proof_item *core_item(const struct proof *p, uint32_t rank)
{
    const struct proof_rank *r = &p->ranks[rank];
    for (uint32_t t = r->first; t < r->first + r->nthreads; t++)
        for (uint32_t i = 0; core_waits(&p->threads[t]) && i < p->threads[t].nitems; i++)
            if (!p->items[p->threads[t].first + i].met)
                return &p->items[p->threads[t].first + i];
    return NULL;
}

/* The rank of the communicator that the operation names, for a world rank. */
static int core_rank_in(const struct record_cut_group *g, int32_t peer)
{
    const uint32_t from = g->nremote ? g->nmembers : 0, n = g->nremote ? g->nremote : g->nmembers;
    for (uint32_t i = 0; i < n; i++)
        if ((int32_t)g->members[from + i] == peer)
            return (int)i;
    return peer < 0 ? peer : -1;
}

/* "MPI_Recv(count=8, MPI_INT, source=1, tag=3) in MPI_COMM_WORLD", "MPI_Barrier(), operation 3 of
 * MPI_COMM_WORLD" */
static void core_mpi_text(const struct record_cut *cut, const struct record_cut_op *op, char *out,
                          size_t size)
{
    const struct record_cut_group *g = &cut->groups[op->group];
    const struct mpi_call call = {.function = op->flags >> MPI_FUNCTION_FLAG,
                                  .type = op->dtype,
                                  .op = op->op,
                                  .root_or_peer = core_rank_in(g, op->peer),
                                  .tag = op->tag,
                                  .count = op->count};
    char text[MPI_CALL_TEXT_LEN];
    if (kind_is_collective(op->kind)) {
        mpi_call_text_numbered(&call, g->name, op->number, out, size);
        return;
    }
    mpi_call_text(&call, text, sizeof text);
    snprintf(out, size, "%s in %s", text, g->name);
}

/* "barrier world#3", "recv(8 x int32, from 1, tag 3) in world" */
static void core_call_text(const struct record_cut *cut, const struct record_cut_op *op, char *out,
                           size_t size)
{
    const struct collrun_call call = {.kind = (enum collrun_kind)op->kind,
                                      .count = op->count,
                                      .dtype = (enum collrun_dtype)op->dtype,
                                      .op = (enum collrun_op)op->op,
                                      .root = op->peer,
                                      .peer = op->peer,
                                      .tag = op->tag};
    const char *group = cut->groups[op->group].name;
    char text[CALL_TEXT_LEN];
    if (record_tap_has_functions(cut->tap) && op->flags >> MPI_FUNCTION_FLAG)
        core_mpi_text(cut, op, out, size);
    else if (op->kind == RECORD_FORM)
        snprintf(out, size, "the making of a group from %s", group);
    else if (op->kind == RECORD_NEIGHBORS)
        snprintf(out, size, "a neighborhood collective of %s", group);
    else if (kind_is_collective(call.kind))
        call_text_numbered(&call, group, op->number, out, size);
    else {
        call_text(&call, text, sizeof text);
        snprintf(out, size, "%s in %s", text, group);
    }
}

/* "rank 1", "any of ranks 0, 2 and 5"; of a cycle, the next rank; of one that has ended, that.
 * `alone`: the rank that waits is not listed among those that it waits for, unless it is the only
 * one. */
static void core_needs_text(const struct proof *p, const struct proof_core *core, uint32_t index,
                            bool alone, char *out, size_t size)
{
    const struct proof_item *item = core_item(p, core->ranks[index]);
    const struct proof_node *n = &p->nodes[item->node];
    const uint32_t next =
        core->shape == PROOF_MISSING ? core->missing : core->ranks[(index + 1) % core->n];
    uint32_t *ranks = arena_calloc(p->arena, n->nranks, sizeof *ranks), nranks = 0;
    char list[128] = "?";
    for (uint32_t i = 0; ranks && i < n->nranks; i++) {
        const uint32_t rank = p->links[n->first + i];
        if (core->shape != PROOF_SET && rank == next) {
            ranks[0] = rank;
            nranks = 1;
            break;
        }
        const bool self = alone && rank == core->ranks[index] && n->nranks > 1;
        if (!p->ranks[rank].acts && !self)
            ranks[nranks++] = rank;
    }
    if (nranks)
        rank_list_format(list, sizeof list, ranks, nranks);
    snprintf(out, size, "%srank%s %s", n->any && nranks > 1 ? "any of " : "", nranks > 1 ? "s" : "",
             list);
}

/* True if one text serves both ranks. */
static bool core_waits_alike(const struct proof *p, uint32_t a, uint32_t b)
{
    const struct proof_item *x = core_item(p, a), *y = core_item(p, b);
    return x->node == y->node && x->op->kind == y->op->kind && x->op->peer == y->op->peer &&
           x->op->tag == y->op->tag && x->op->count == y->op->count &&
           x->op->dtype == y->op->dtype && x->op->op == y->op->op &&
           p->ranks[a].cut->groups[x->op->group].id == p->ranks[b].cut->groups[y->op->group].id;
}

/* The ranks from the i-th on that share a part of the text; the index behind them. */
static uint32_t core_part_end(const struct proof *p, const struct proof_core *core, uint32_t i)
{
    uint32_t end = i + 1;
    while (core->shape != PROOF_CYCLE && end < core->n && core->ranks[end] > core->ranks[end - 1] &&
           core_waits_alike(p, core->ranks[i], core->ranks[end]))
        end++;
    return end;
}

/* " at exchange (halo.c:88)", of a call of MPI; "": not known. */
static void core_place_text(const struct proof *p, uint32_t rank, char *out, size_t size)
{
    const uint64_t site = core_item(p, rank)->op->site;
    const char *place = p->places && site ? stacks_site(&p->places[rank].stacks, site) : NULL;
    snprintf(out, size, "%s%s", place ? " at " : "", place ? place : "");
}

uint32_t proof_core_calls(const struct proof *p, const struct proof_core *core,
                          struct stacks_call calls[PROOF_CALLS])
{
    uint32_t n = 0;
    for (uint32_t i = 0, parts = 0; i < core->n && parts < PROOF_CALLS; parts++) {
        const uint32_t rank = core->ranks[i];
        const struct record_cut_op *op = core_item(p, rank)->op;
        if (op->site && record_tap_has_functions(p->ranks[rank].cut->tap))
            calls[n++] = (struct stacks_call){rank, op->site};
        i = core_part_end(p, core, i);
    }
    return n;
}

static void core_append(struct diag *d, const char *text)
{
    const size_t len = strlen(d->text);
    snprintf(d->text + len, sizeof d->text - len, "%s", text);
}

/* Ranks that wait in the same for the same share a part of the text. */
void proof_core_text(const struct proof *p, const struct proof_core *core, struct diag *d)
{
    char call[256], place[256], needs[192], list[128], line[1024];
    uint32_t parts = 0, shown = 0;
    for (uint32_t i = 0; i < core->n && parts < PROOF_CALLS; i = shown, parts++) {
        const uint32_t rank = core->ranks[i];
        shown = core_part_end(p, core, i);
        const bool several = shown - i > 1;
        core_call_text(p->ranks[rank].cut, core_item(p, rank)->op, call, sizeof call);
        core_place_text(p, rank, place, sizeof place);
        core_needs_text(p, core, i, !several, needs, sizeof needs);
        rank_list_format(list, sizeof list, &core->ranks[i], shown - i);
        snprintf(line, sizeof line, "%srank%s %s wait%s in %s%s for %s", i ? "; " : "",
                 several ? "s" : "", list, several ? "" : "s", call, place, needs);
        core_append(d, line);
    }
    const uint32_t more = core->n - shown + core->behind;
    if (!more)
        return;
    snprintf(line, sizeof line, "; %u more rank%s wait%s behind them", more, more > 1 ? "s" : "",
             more > 1 ? "" : "s");
    core_append(d, line);
}
