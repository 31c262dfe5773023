/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the operations of several ranks one call of their process; see fold.h.
 */
#include "fold.h"

static void fold_counts(const struct cast_group *g, const struct op *op, size_t *counts,
                        struct collrun_call *c)
{
    static const struct {
        enum collrun_kind kind, folded;
    } forms[] = {{COLLRUN_ALLGATHER, COLLRUN_ALLGATHERV},
                 {COLLRUN_GATHER, COLLRUN_GATHERV},
                 {COLLRUN_SCATTER, COLLRUN_SCATTERV},
                 {COLLRUN_REDUCE_SCATTER, COLLRUN_REDUCE_SCATTERV},
                 {COLLRUN_ALLTOALL, COLLRUN_ALLTOALLV}};
    size_t n = (size_t)g->nprocesses, own = (size_t)g->members[collrun_rank(g->group)];
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (op->kind != (int)forms[i].kind)
            continue;
        c->kind = forms[i].folded;
        c->count = c->recvcount = op->count * own;
        for (size_t k = 0; k < n; k++)
            counts[k] = counts[n + k] =
                op->count * (size_t)g->members[k] * (c->kind == COLLRUN_ALLTOALLV ? own : 1);
    }
}

/* One for each pair of ranks that two processes play. */
static uint64_t fold_tag(const struct cast *c, const struct op *op, int from, int to)
{
    int n = c->nprocesses;
    uint64_t each = ((uint64_t)c->world_size + (uint64_t)n - 1) / (uint64_t)n;
    uint64_t pair = (uint64_t)(from / n) * each + (uint64_t)(to / n);
    return op->tag * each * each + pair;
}

void fold_call(const struct cast *c, const struct cast_group *g, int rank, const struct op *op,
               size_t *counts, struct collrun_call *call)
{
    *call = (struct collrun_call)COLLRUN_CALL((enum collrun_kind)op->kind);
    call->dtype = op->dtype;
    call->op = COLLRUN_SUM;
    call->count = op->count;
    call->sendcounts = counts;
    call->recvcounts = counts + g->nprocesses;
    if (op->peer >= 0)
        call->root = call->peer = g->process[trace_group_rank(&g->traced, op->peer)];
    if (call->kind == COLLRUN_SEND)
        call->tag = (uint32_t)fold_tag(c, op, rank, op->peer);
    else if (call->kind == COLLRUN_RECV)
        call->tag = (uint32_t)fold_tag(c, op, op->peer, rank);
    else if (g->folded)
        fold_counts(g, op, counts, call);
}

void fold_blocks(const struct cast_group *g, const struct trace *t, const struct op *op,
                 size_t *counts)
{
    const size_t *own = t->counts + op->counts;
    for (int i = 0; i < g->traced.size; i++) {
        counts[g->process[i]] += own[i];
        counts[g->nprocesses + g->process[i]] += own[g->traced.size + i];
    }
}

static int fold_refuse(const struct cast *c, const struct trace *t, const struct op *op,
                       const char *why)
{
    return collrun_fail(c->ctx, "%s: %s %llu: %s: %s; start as many processes as ranks, %d",
                        t->file, t->unit, (unsigned long long)op->place, trace_kind_name(op->kind),
                        why, c->world_size);
}

int fold_check(const struct cast *c, int trace)
{
    const struct trace *t = &c->traces[trace];
    for (size_t i = 0; i < t->nops; i++) {
        const struct op *op = &t->ops[i];
        if (op->kind == TRACE_WAIT)
            continue;
        bool message = op->kind == COLLRUN_SEND || op->kind == COLLRUN_RECV;
        if (cast_group_of(c, trace, op)->folded &&
            (op->kind == COLLRUN_SCAN || op->kind == COLLRUN_EXSCAN))
            return fold_refuse(c, t, op, "the ranks of one process have different results");
        if (message && fold_tag(c, op, c->world_size - 1, c->world_size - 1) > INT32_MAX)
            return fold_refuse(c, t, op,
                               "its tag is too large where a process plays several ranks");
    }
    return 0;
}
