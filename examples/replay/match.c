/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that the calls of all traces fit together; see match.h.
 *
 * Each process makes a *notice* of every call that another rank has to answer, and sends it to the
 * process of that rank: a send to its receiver, a collective to the first member of its group, a
 * block of an alltoallv to its receiver. It makes the same notices of what it expects. Both lists,
 * ordered by stream and then by the order of the calls, are compared side by side.
 */
#include "match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum match_class { MATCH_MESSAGE, MATCH_COLLECTIVE, MATCH_BLOCK };

struct notice {
    int32_t from, to; /* ranks of the trace; the notice is for `to` */
    int32_t class, kind, dtype, root;
    uint32_t tag, reserved;
    uint64_t group; /* its key */
    uint64_t order; /* of the call, in its trace */
    uint64_t place, count;
};

struct match_list {
    struct notice *notice;
    size_t n, room;
};

struct matcher {
    struct cast *cast;
    struct match_list out, expected, arrived;
};

static int match_add(struct matcher *m, struct match_list *list, const struct notice *notice)
{
    if (list->n == list->room) {
        size_t room = list->room ? 2 * list->room : 256;
        void *grown = realloc(list->notice, room * sizeof *list->notice);
        if (!grown)
            return collrun_fail(m->cast->ctx, "out of memory to compare %zu calls", room);
        list->notice = grown;
        list->room = room;
    }
    list->notice[list->n++] = *notice;
    return 0;
}

/* ---- notices ---- */

static int match_message(struct matcher *m, const struct trace *t, const struct notice *base,
                         int peer)
{
    struct notice n = *base;
    bool sends = n.kind == COLLRUN_SEND;
    n.class = MATCH_MESSAGE;
    n.from = sends ? t->rank : peer;
    n.to = sends ? peer : t->rank;
    return match_add(m, sends ? &m->out : &m->expected, &n);
}

static int match_blocks(struct matcher *m, const struct trace *t, const struct notice *base,
                        const struct op *op)
{
    const struct trace_group *g = &t->groups[op->group];
    const size_t *counts = t->counts + op->counts;
    int rc = 0;
    for (int i = 0; !rc && i < g->size; i++) {
        struct notice n = *base;
        n.class = MATCH_BLOCK;
        n.from = t->rank;
        n.to = g->ranks[i];
        n.count = counts[i];
        rc = match_add(m, &m->out, &n);
        n.from = g->ranks[i];
        n.to = t->rank;
        n.count = counts[g->size + i];
        if (!rc)
            rc = match_add(m, &m->expected, &n);
    }
    return rc;
}

static int match_collective(struct matcher *m, const struct trace *t, const struct notice *base,
                            const struct op *op)
{
    const struct trace_group *g = &t->groups[op->group];
    struct notice n = *base;
    int rc = 0;
    n.class = MATCH_COLLECTIVE;
    n.root = collrun_kind_has_root((enum collrun_kind)op->kind) ? op->peer : -1;
    n.from = t->rank;
    n.to = g->ranks[0];
    if (t->rank != n.to)
        return match_add(m, &m->out, &n);
    for (int i = 1; !rc && i < g->size; i++) {
        n.from = g->ranks[i];
        rc = match_add(m, &m->expected, &n);
    }
    return rc;
}

static int match_trace(struct matcher *m, int index)
{
    const struct trace *t = &m->cast->traces[index];
    int rc = 0;
    for (size_t i = 0; !rc && i < t->nops; i++) {
        const struct op *op = &t->ops[i];
        if (op->kind == TRACE_WAIT)
            continue;
        const struct notice base = {.kind = op->kind,
                                    .dtype = (int32_t)op->dtype,
                                    .root = -1,
                                    .tag = op->tag,
                                    .group = cast_group_of(m->cast, index, op)->key,
                                    .order = i,
                                    .place = op->place,
                                    .count = op->count};
        if (collrun_kind_is_message((enum collrun_kind)op->kind)) {
            rc = match_message(m, t, &base, op->peer);
            continue;
        }
        rc = match_collective(m, t, &base, op);
        if (!rc && op->kind == COLLRUN_ALLTOALLV)
            rc = match_blocks(m, t, &base, op);
    }
    return rc;
}

/* ---- exchange ---- */

static int match_by_process(const void *a, const void *b, void *cast)
{
    int n = ((const struct cast *)cast)->nprocesses;
    int x = ((const struct notice *)a)->to % n, y = ((const struct notice *)b)->to % n;
    return x - y;
}

static int match_exchange_counted(struct matcher *m, size_t *sends, size_t *receives)
{
    struct cast *c = m->cast;
    size_t n = 0;
    int rc = collrun_alltoall(c->group, sends, receives, 1, COLLRUN_UINT64);
    for (int i = 0; i < c->nprocesses; i++) {
        n += receives[i];
        sends[i] *= sizeof(struct notice);
        receives[i] *= sizeof(struct notice);
    }
    if (rc)
        return rc;
    m->arrived.notice = calloc(n + 1, sizeof *m->arrived.notice);
    m->arrived.n = n;
    if (!m->arrived.notice)
        return collrun_fail(c->ctx, "out of memory to compare %zu calls", n);
    return collrun_alltoallv(c->group, m->out.notice, sends, NULL, m->arrived.notice, receives,
                             NULL, COLLRUN_UINT8);
}

static int match_exchange(struct matcher *m)
{
    size_t *counts = calloc(2 * (size_t)m->cast->nprocesses, sizeof *counts);
    struct notice none = {0};
    if (!counts)
        return collrun_fail(m->cast->ctx, "out of memory for %d counts", m->cast->nprocesses);
    if (m->out.n)
        qsort_r(m->out.notice, m->out.n, sizeof none, match_by_process, m->cast);
    for (size_t i = 0; i < m->out.n; i++)
        counts[m->out.notice[i].to % m->cast->nprocesses]++;
    int rc = match_exchange_counted(m, counts, counts + m->cast->nprocesses);
    free(counts);
    return rc;
}

/* ---- comparison ---- */

static int match_order(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Orders the calls of a stream so that those which answer each other are neighbours. */
static int match_by_stream(const struct notice *x, const struct notice *y)
{
    if (x->to != y->to)
        return x->to - y->to;
    if (x->class != y->class)
        return x->class - y->class;
    if (x->from != y->from)
        return x->from - y->from;
    if (x->group != y->group)
        return match_order(x->group, y->group);
    return x->class == MATCH_MESSAGE ? match_order(x->tag, y->tag) : 0;
}

static int match_by_call(const void *a, const void *b)
{
    const struct notice *x = a, *y = b;
    int order = match_by_stream(x, y);
    return order ? order : match_order(x->order, y->order);
}

static int match_fail_alone(const struct matcher *m, const struct notice *n, bool arrived)
{
    struct collrun_ctx *ctx = m->cast->ctx;
    const char *unit = m->cast->traces[0].unit, *name = trace_kind_name(n->kind);
    int caller = arrived ? n->from : n->to, other = arrived ? n->to : n->from;
    unsigned long long place = n->place;
    if (n->class == MATCH_MESSAGE)
        return collrun_fail(
            ctx, "the trace of rank %d, %s %llu: %s %s rank %d with tag %u has no %s", caller, unit,
            place, name, arrived ? "to" : "from", other, n->tag, arrived ? "receive" : "send");
    return collrun_fail(ctx, "the trace of rank %d, %s %llu: the trace of rank %d has no such %s",
                        caller, unit, place, other, name);
}

static void match_describe(const struct matcher *m, const struct notice *n, int rank, char *text,
                           size_t size)
{
    int len = snprintf(text, size, "rank %d (%s %llu) calls %s", rank, m->cast->traces[0].unit,
                       (unsigned long long)n->place, trace_kind_name(n->kind));
    if (n->kind != COLLRUN_BARRIER && len > 0 && (size_t)len < size)
        len +=
            snprintf(text + len, size - (size_t)len, " of %llu x %s", (unsigned long long)n->count,
                     trace_dtype_name((enum collrun_dtype)n->dtype));
    if (n->root >= 0 && len > 0 && (size_t)len < size)
        snprintf(text + len, size - (size_t)len, " with root %d", n->root);
}

static int match_fail_pair(const struct matcher *m, const struct notice *a, const struct notice *e)
{
    char one[160], other[160];
    match_describe(m, a, a->from, one, sizeof one);
    match_describe(m, e, a->to, other, sizeof other);
    return collrun_fail(m->cast->ctx, "the traces differ: %s, %s%s", one, other,
                        a->class == MATCH_BLOCK ? " from it" : "");
}

static bool match_fits(const struct notice *a, const struct notice *e)
{
    if (a->class == MATCH_MESSAGE)
        return a->dtype == e->dtype && a->count <= e->count;
    if (a->class == MATCH_BLOCK)
        return a->count == e->count;
    return a->kind == e->kind && a->root == e->root &&
           (a->kind == COLLRUN_BARRIER || (a->count == e->count && a->dtype == e->dtype));
}

static int match_compare(const struct matcher *m)
{
    const struct match_list *arrived = &m->arrived, *expected = &m->expected;
    size_t i = 0, k = 0;
    while (i < arrived->n || k < expected->n) {
        const struct notice *a = i < arrived->n ? &arrived->notice[i] : NULL;
        const struct notice *e = k < expected->n ? &expected->notice[k] : NULL;
        int order = !a ? 1 : !e ? -1 : match_by_stream(a, e);
        if (order)
            return match_fail_alone(m, order < 0 ? a : e, order < 0);
        if (!match_fits(a, e))
            return match_fail_pair(m, a, e);
        i++;
        k++;
    }
    return 0;
}

int match_traces(struct cast *c)
{
    struct matcher m = {.cast = c};
    int rc = 0;
    for (int i = 0; !rc && i < c->ntraces; i++)
        rc = match_trace(&m, i);
    if (!rc)
        rc = match_exchange(&m);
    if (!rc && m.arrived.n)
        qsort(m.arrived.notice, m.arrived.n, sizeof *m.arrived.notice, match_by_call);
    if (!rc && m.expected.n)
        qsort(m.expected.notice, m.expected.n, sizeof *m.expected.notice, match_by_call);
    if (!rc)
        rc = match_compare(&m);
    free(m.out.notice);
    free(m.expected.notice);
    free(m.arrived.notice);
    return rc;
}
