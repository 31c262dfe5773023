/* SPDX-License-Identifier: Apache-2.0 */
#include "html/ops.h"

#include "xalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OPS_NAMES = 1024 };

struct ops_names { /* strings by number */
    const char *items[OPS_NAMES];
    uint32_t n;
};

struct ops {
    uint64_t n, stride;
    struct ops_kept *kept; /* [OPS_MOST] */
    uint32_t nkept;
    struct ops_row rows[OPS_ROWS];
    uint32_t nrows;
    struct ops_names groups, kinds, states;
    struct ops_latency *latencies; /* [OPS_LATENCIES] */
    uint32_t nlatencies;
    double begin_us, end_us, slice_us, slice_begin_us;
    double slices[OPS_SLICES];
    struct ops_pending *pending; /* [OPS_PENDING], by a hash */
    uint64_t compared;
    uint32_t nranks;
    uint64_t last[OPS_RANKS];
    double *waited; /* [OPS_RANKS * OPS_RANKS] */
};

struct ops *ops_new(void)
{
    struct ops *o = xcalloc(1, sizeof *o);
    o->stride = 1;
    o->slice_us = 100;
    o->kept = xcalloc(OPS_MOST, sizeof *o->kept);
    o->latencies = xcalloc(OPS_LATENCIES, sizeof *o->latencies);
    o->pending = xcalloc(OPS_PENDING, sizeof *o->pending);
    o->waited = xcalloc((size_t)OPS_RANKS * OPS_RANKS, sizeof *o->waited);
    return o;
}

static void ops_names_free(struct ops_names *names)
{
    for (uint32_t i = 0; i < names->n; i++)
        free((char *)names->items[i]);
}

void ops_free(struct ops *ops)
{
    if (!ops)
        return;
    ops_names_free(&ops->groups);
    ops_names_free(&ops->kinds);
    ops_names_free(&ops->states);
    for (uint32_t i = 0; ops->pending && i < OPS_PENDING; i++)
        free(ops->pending[i].calls);
    free(ops->kept);
    free(ops->latencies);
    free(ops->pending);
    free(ops->waited);
    free(ops);
}

/* The number of a string; the last number is that of all which have no room. */
static uint32_t ops_name(struct ops_names *names, const char *text)
{
    for (uint32_t i = 0; i < names->n; i++) {
        if (strcmp(names->items[i], text) == 0)
            return i;
    }
    if (names->n < OPS_NAMES)
        names->items[names->n] = xstrdup(names->n == OPS_NAMES - 1 ? "others" : text);
    names->n += names->n < OPS_NAMES;
    return names->n - 1;
}

/* ---- the sample for the timeline ---- */

static bool ops_is_good(const struct op *op)
{
    return strcmp(op->state, "done") == 0;
}

static uint32_t ops_row(struct ops *o, const struct op *op, const char *group)
{
    for (uint32_t i = o->nrows; i-- > 0;) {
        const struct ops_row *r = &o->rows[i];
        if (r->rank == op->rank && r->scope == op->scope && r->queue == op->queue)
            return i;
    }
    if (o->nrows == OPS_ROWS)
        return OPS_ROWS;
    o->rows[o->nrows] = (struct ops_row){op->rank, op->scope, op->queue, group};
    return o->nrows++;
}

/* Twice the stride: half of the sample goes, except for what has not ended well. */
static void ops_thin(struct ops *o)
{
    uint32_t n = 0;
    o->stride *= 2;
    for (uint32_t i = 0; i < o->nkept; i++) {
        const struct ops_kept *k = &o->kept[i];
        bool good = strcmp(o->states.items[k->state], "done") == 0;
        if (!good || k->number % o->stride == 0)
            o->kept[n++] = *k;
    }
    o->nkept = n;
}

static void ops_keep(struct ops *o, const struct op *op, const char *group)
{
    bool good = ops_is_good(op);
    if (good && op->number % o->stride)
        return;
    while (o->nkept == OPS_MOST && o->stride < UINT32_MAX)
        ops_thin(o);
    uint32_t row = ops_row(o, op, group);
    if (o->nkept == OPS_MOST || row == OPS_ROWS || (good && op->number % o->stride))
        return;
    uint32_t kind = ops_name(&o->kinds, op->kind), state = ops_name(&o->states, op->state);
    if (o->kinds.n == 0 || o->states.n == 0 || state > UINT8_MAX)
        return;
    o->kept[o->nkept++] = (struct ops_kept){.row = row,
                                            .number = (uint32_t)op->number,
                                            .kind = (uint16_t)kind,
                                            .state = (uint8_t)state,
                                            .message = op->message,
                                            .bytes = op->bytes,
                                            .begin_us = op->begin_us,
                                            .length_us = op->length_us};
}

/* ---- latencies ---- */

double ops_bucket_us(uint32_t bucket)
{
    return exp2((double)bucket / 8) / 1e3;
}

static uint32_t ops_bucket(double us)
{
    double at = us > 1e-3 ? log2(us * 1e3) * 8 : 0;
    return at >= OPS_BUCKETS - 1 ? OPS_BUCKETS - 1 : (uint32_t)at;
}

static struct ops_latency *ops_latency(struct ops *o, const char *group, const char *kind)
{
    for (uint32_t i = 0; i < o->nlatencies; i++) {
        struct ops_latency *l = &o->latencies[i];
        if (l->group == group && l->kind == kind)
            return l;
    }
    if (o->nlatencies == OPS_LATENCIES)
        return NULL;
    o->latencies[o->nlatencies] =
        (struct ops_latency){.group = group, .kind = kind, .least_us = HUGE_VAL};
    return &o->latencies[o->nlatencies++];
}

static void ops_measure(struct ops *o, const struct op *op, const char *group)
{
    uint32_t kind = ops_name(&o->kinds, op->kind);
    struct ops_latency *l = o->kinds.n ? ops_latency(o, group, o->kinds.items[kind]) : NULL;
    if (!l)
        return;
    l->n++;
    l->bytes += op->bytes;
    l->sum_us += op->length_us;
    l->least_us = fmin(l->least_us, op->length_us);
    l->most_us = fmax(l->most_us, op->length_us);
    l->buckets[ops_bucket(op->length_us)]++;
}

double ops_percentile(const struct ops_latency *l, double p)
{
    uint64_t want = (uint64_t)ceil(p * (double)l->n), seen = 0;
    for (uint32_t i = 0; i < OPS_BUCKETS; i++) {
        seen += l->buckets[i];
        if (seen >= want && seen)
            return fmin(fmax(ops_bucket_us(i) * exp2(1.0 / 16), l->least_us), l->most_us);
    }
    return l->most_us;
}

/* ---- bytes over time ---- */

static void ops_slice_add(struct ops *o, double us, double bytes)
{
    double at = (us - o->slice_begin_us) / o->slice_us;
    if (at < 0) /* operations are not reported in the order of time */
        at = 0;
    while (at >= (double)OPS_SLICES) {
        for (uint32_t i = 0; i < OPS_SLICES / 2; i++)
            o->slices[i] = o->slices[2 * i] + o->slices[2 * i + 1];
        memset(o->slices + OPS_SLICES / 2, 0, sizeof o->slices / 2);
        o->slice_us *= 2;
        at /= 2;
    }
    o->slices[(uint32_t)at] += bytes;
}

/* ---- who came last ---- */

static struct ops_pending *ops_pending(struct ops *o, const struct op *op)
{
    uint64_t hash = (op->number * 0x9e3779b97f4a7c15u) ^ (op->scope * 0xc4ceb9fe1a85ec53u);
    struct ops_pending *p = &o->pending[(hash >> 40) % OPS_PENDING];
    if (p->members && p->number == op->number && p->scope == op->scope && p->members == op->members)
        return p;
    struct ops_call *calls = p->members == op->members ? p->calls : NULL;
    if (!calls) {
        free(p->calls);
        calls = xcalloc(op->members, sizeof *calls);
    }
    *p = (struct ops_pending){
        .number = op->number, .scope = op->scope, .members = op->members, .calls = calls};
    return p;
}

static void ops_compare(struct ops *o, const struct op *op)
{
    if (op->message || op->members < 2 || op->members > OPS_RANKS || op->rank >= OPS_RANKS)
        return;
    struct ops_pending *p = ops_pending(o, op);
    if (!p || p->called == p->members)
        return;
    p->calls[p->called++] = (struct ops_call){op->rank, op->begin_us};
    if (p->called == 1 || op->begin_us > p->last_us) {
        p->last = op->rank;
        p->last_us = op->begin_us;
    }
    if (p->called < p->members)
        return;
    o->compared++;
    o->last[p->last]++;
    for (uint32_t i = 0; i < p->members; i++)
        o->waited[(size_t)p->calls[i].rank * OPS_RANKS + p->last] += p->last_us - p->calls[i].us;
}

/* ---- all of it ---- */

void ops_take(struct ops *ops, const struct op *op)
{
    uint32_t group = ops_name(&ops->groups, op->group);
    if (!ops->groups.n || !isfinite(op->begin_us) || !isfinite(op->length_us) ||
        op->length_us < 0 || fabs(op->begin_us) > 1e15 || op->length_us > 1e15)
        return;
    const char *name = ops->groups.items[group];
    double end_us = op->begin_us + op->length_us;
    if (ops->n == 0) {
        ops->begin_us = ops->slice_begin_us = op->begin_us;
        ops->end_us = end_us;
    }
    ops->n++;
    ops->begin_us = fmin(ops->begin_us, op->begin_us);
    ops->end_us = fmax(ops->end_us, end_us);
    if (op->rank < OPS_RANKS && op->rank >= ops->nranks)
        ops->nranks = op->rank + 1;
    ops_keep(ops, op, name);
    ops_compare(ops, op);
    if (ops_is_good(op)) {
        ops_measure(ops, op, name);
        ops_slice_add(ops, end_us, (double)op->bytes);
    }
}

static int ops_row_order(const void *a, const void *b)
{
    const struct ops_row *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->scope != y->scope)
        return x->scope < y->scope ? -1 : 1;
    return (x->queue > y->queue) - (x->queue < y->queue);
}

static void ops_sort_rows(struct ops *o)
{
    struct ops_row old[OPS_ROWS];
    uint32_t place[OPS_ROWS] = {0};
    memcpy(old, o->rows, sizeof old);
    qsort(o->rows, o->nrows, sizeof *o->rows, ops_row_order);
    for (uint32_t i = 0; i < o->nrows; i++) {
        const struct ops_row *found =
            bsearch(&old[i], o->rows, o->nrows, sizeof *o->rows, ops_row_order);
        place[i] = found ? (uint32_t)(found - o->rows) : 0;
    }
    for (uint32_t i = 0; i < o->nkept; i++)
        o->kept[i].row = place[o->kept[i].row];
}

void ops_view(struct ops *ops, struct ops_view *out)
{
    ops_sort_rows(ops);
    *out = (struct ops_view){.n = ops->n,
                             .stride = ops->stride,
                             .kept = ops->kept,
                             .nkept = ops->nkept,
                             .rows = ops->rows,
                             .nrows = ops->nrows,
                             .kinds = ops->kinds.items,
                             .nkinds = ops->kinds.n,
                             .states = ops->states.items,
                             .nstates = ops->states.n,
                             .latencies = ops->latencies,
                             .nlatencies = ops->nlatencies,
                             .begin_us = ops->begin_us,
                             .end_us = ops->end_us,
                             .slice_us = ops->slice_us,
                             .slice_begin_us = ops->slice_begin_us,
                             .slices = ops->slices,
                             .compared = ops->compared,
                             .nranks = ops->nranks,
                             .last = ops->last,
                             .waited = ops->waited};
}
