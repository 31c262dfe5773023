/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/status.h"

#include "base/mpi_names.h"
#include "base/reap.h"
#include "base/record_view.h"

#include <stdlib.h>

enum {
    SEARCH_MAX = 1 << 16, /* the latest operations, in which pending ones are searched */
    PENDING_MAX = 4096,   /* of them */
    SLOT_MAX = 16         /* of them in one slot */
};

/* The operations that have not ended, oldest first. */
struct status_pending {
    struct record_view_op *ops; /* owned */
    uint32_t n;
    uint64_t called_ns[RECORD_THREADS]; /* the last call of each thread */
};

static void status_find_pending(struct status_pending *p, const struct record_view *v)
{
    uint64_t end = record_view_end(v), i = record_view_first(v);
    *p = (struct status_pending){.ops = calloc(PENDING_MAX, sizeof *p->ops)};
    for (i = end - i > SEARCH_MAX ? end - SEARCH_MAX : i; p->ops && i < end; i++) {
        struct record_view_op op;
        if (!record_view_op(v, i, &op))
            continue;
        if (op.thread < RECORD_THREADS && op.called_ns > p->called_ns[op.thread])
            p->called_ns[op.thread] = op.called_ns;
        bool pending = op.state == RECORD_POSTED || op.state == RECORD_STARTED;
        if (pending && op.is_current && p->n < PENDING_MAX)
            p->ops[p->n++] = op;
    }
}

static uint64_t status_age(uint64_t at_ns, uint64_t now)
{
    return at_ns && at_ns < now ? now - at_ns : 0;
}

static void status_put_pending(struct buf *b, const struct status_pending *p, uint32_t slot,
                               uint64_t now)
{
    struct buf ops;
    uint32_t n = 0;
    buf_init(&ops);
    for (uint32_t i = 0; i < p->n && n < SLOT_MAX; i++) {
        const struct record_view_op *op = &p->ops[i];
        if (op->slot != slot)
            continue;
        n++;
        uint64_t last = op->thread < RECORD_THREADS ? p->called_ns[op->thread] : op->called_ns;
        buf_put_u64(&ops, op->number);
        buf_put_u64(&ops, status_age(op->called_ns, now));
        buf_put_u64(&ops, status_age(last, now));
        buf_put_u64(&ops, op->count);
        buf_put_u32(&ops, (uint32_t)op->root_or_peer);
        buf_put_u32(&ops, op->tag);
        buf_put_u8(&ops, mpi_kind_pack(op->function, op->kind));
        buf_put_u8(&ops, (uint8_t)op->dtype);
        buf_put_u8(&ops, (uint8_t)op->op);
        buf_put_u64(&ops, op->site);
    }
    buf_put_u32(b, n);
    buf_put_buf(b, &ops);
    buf_fini(&ops);
}

/* A group that a failed call has ended keeps that call as its last one. It is over once the rank
 * has gone on since, unless another thread is still in the group. */
static void status_end_failed(struct record_view_group *g, const struct status_pending *p)
{
    bool pends = false;
    for (uint32_t i = 0; i < p->n; i++)
        pends = pends || p->ops[i].slot == g->slot;
    if (g->status && !pends)
        g->done = g->started;
}

static void status_put_group(struct buf *b, const struct record_view_group *g, uint64_t now)
{
    buf_put_str(b, g->name);
    buf_put_u64(b, g->started);
    buf_put_u64(b, g->done);
    buf_put_u64(b, g->bytes);
    buf_put_u64(b, status_age(g->since_ns, now));
    buf_put_u64(b, g->count);
    buf_put_u32(b, (uint32_t)g->root_or_peer);
    buf_put_u8(b, mpi_kind_pack(g->function, g->kind));
    buf_put_u8(b, (uint8_t)g->dtype);
    buf_put_u8(b, (uint8_t)g->op);
    buf_put_str(b, g->scope);
    buf_put_u32(b, g->members);
    buf_put_u32(b, g->rank);
    buf_put_u8(b, g->messages);
}

/* The open groups; returns how many. */
static uint32_t status_put_groups(struct buf *b, const struct rank_proc *p)
{
    struct record_view v;
    struct record_view_group g;
    struct status_pending pending;
    struct record_view_failure why;
    uint32_t n = 0;
    record_calibrate(p->record);
    if (record_view_init(&v, p->record, p->record_len, NULL) != COLLRUN_OK)
        return n;
    status_find_pending(&pending, &v);
    record_view_failure(&v, p->agent->aborted ? UINT64_MAX : RECORD_VIEW_RECENT_NS, &why);
    uint64_t now = now_ns();
    for (uint32_t i = 0; i < record_view_ngroups(&v); i++) {
        if (!record_view_group(&v, i, &g) || !g.open)
            continue;
        n++;
        if (!why.status)
            status_end_failed(&g, &pending);
        status_put_group(b, &g, now);
        status_put_pending(b, &pending, i, now);
    }
    free(pending.ops);
    return n;
}

/* The workload that has ended the rank, those in their fini, and for how long. */
static void status_put_workloads(struct buf *b, const struct rank_proc *p)
{
    const struct record_head *r = p->record;
    const uint64_t in_fini = r ? atomic_load(&r->in_fini) : 0;
    buf_put_u32(b, r ? atomic_load_explicit(&r->ended_by, memory_order_relaxed) : 0);
    buf_put_u64(b, in_fini);
    buf_put_u64(b, in_fini ? status_age(atomic_load(&r->fini_since_ns), now_ns()) : 0);
}

void status_send(struct agent *a, const struct rank_proc *p)
{
    struct buf groups;
    buf_init(&groups);
    uint32_t n = p->record ? status_put_groups(&groups, p) : 0;
    pid_t parent;
    struct buf b;
    buf_init(&b);
    buf_put_u8(&b, p->exited ? 0 : (uint8_t)reap_state(p->pid, &parent));
    status_put_workloads(&b, p);
    buf_put_u32(&b, n);
    buf_put_buf(&b, &groups);
    conn_send_buf(&a->runner, WIRE_STATUS, p->rank, a->desc.attempt, &b);
    buf_fini(&b);
    buf_fini(&groups);
}
