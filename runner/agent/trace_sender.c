/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages are counted by source, destination and tag in the order in which they were begun, which
 * is the order in which they match. A receive whose source or tag is not known when it is first
 * seen can match any of them: from then on the receives of its group have no order.
 */
#include "agent/trace_sender.h"

#include "agent/agent.h"
#include "agent/rank.h"
#include "base/names.h"
#include "base/trace_op.h"

#include <stdlib.h>
#include <string.h>

#define MS_NS 1000000ull

struct trace_sender_pack { /* one frame */
    struct trace_sender_rank *rank;
    const struct record_view *view;
    const struct trace_sender_look *look;
    struct buf *out;
    uint32_t read, sent;
    uint64_t dropped, in_flight;
};

/* ---- the order of messages ---- */

static uint64_t trace_sender_key(const struct trace_sender_rank *r, const struct record_view_op *op)
{
    uint64_t slot = (uint64_t)op->slot << 32 | r->generation[op->slot];
    uint64_t peer = (uint64_t)(uint32_t)op->root_or_peer << 32 | op->tag;
    uint64_t hash = (slot ^ 0x9e3779b97f4a7c15u) * 0xc4ceb9fe1a85ec53u;
    hash = (hash ^ hash >> 29 ^ peer) * 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 32 ^ (op->kind == COLLRUN_SEND);
    return hash ? hash : 1;
}

static uint32_t trace_sender_count(struct trace_sender_rank *r, uint64_t key)
{
    for (uint32_t i = 0; i < 8; i++) {
        struct trace_sender_pair *p = &r->pairs[(key + i) % TRACE_SENDER_PAIRS];
        if (p->key && p->key != key)
            continue;
        p->key = key;
        return p->count++;
    }
    return TRACE_OP_NO_ORDER;
}

static bool trace_sender_has_ended(const struct record_view_op *op)
{
    return op->state >= RECORD_DONE && op->ended_ns;
}

static uint32_t trace_sender_order(struct trace_sender_rank *r, const struct record_view_op *op)
{
    bool receives = op->kind != COLLRUN_SEND;
    if (!collrun_kind_is_message(op->kind) || !op->is_current || r->gap)
        return TRACE_OP_NO_ORDER;
    if (receives && !trace_sender_has_ended(op) &&
        (op->kind == COLLRUN_RECV_ANY || op->tag == COLLRUN_ANY_TAG))
        r->unordered[op->slot] = true;
    if ((receives && r->unordered[op->slot]) || op->root_or_peer < 0 || op->state > RECORD_DONE)
        return TRACE_OP_NO_ORDER;
    return trace_sender_count(r, trace_sender_key(r, op));
}

/* ---- one rank ---- */

static void trace_sender_put_group(struct trace_sender_pack *p, const struct record_view_op *op)
{
    struct record_view_group g;
    if (!op->is_current || p->rank->generation[op->slot] == op->generation ||
        !record_view_group(p->view, op->slot, &g))
        return;
    p->rank->generation[op->slot] = g.generation;
    p->rank->unordered[op->slot] = false;
    buf_put_u8(p->out, TRACE_OP_GROUP);
    buf_put_u16(p->out, (uint16_t)op->slot);
    buf_put_u32(p->out, g.members);
    buf_put_u32(p->out, g.rank);
    buf_put_str(p->out, g.name);
    buf_put_str(p->out, g.scope);
}

static void trace_sender_put(struct trace_sender_pack *p, const struct record_view_op *op,
                             uint32_t order)
{
    const uint64_t unfinished = p->look->now_ns > op->called_ns ? p->look->now_ns : op->called_ns;
    const struct trace_op t = {.number = op->number,
                               .called = op->called_ns,
                               .started = op->started_ns,
                               .ended = trace_sender_has_ended(op) ? op->ended_ns : unfinished,
                               .count = op->count,
                               .root_or_peer = op->root_or_peer,
                               .tag = op->tag,
                               .order = op->state == RECORD_DONE ? order : TRACE_OP_NO_ORDER,
                               .slot = (uint16_t)(op->is_current ? op->slot : TRACE_OP_NO_SLOT),
                               .kind = (uint8_t)op->kind,
                               .dtype = (uint8_t)op->dtype,
                               .op = (uint8_t)op->op,
                               .state = (uint8_t)op->state,
                               .function = op->function};
    if (order != TRACE_OP_NO_ORDER && op->state > RECORD_DONE) /* the count is one too high */
        p->rank->unordered[op->slot] = true;
    buf_put_u8(p->out, TRACE_OP_OPERATION);
    buf_put(p->out, &t, sizeof t);
    p->sent++;
}

/* Operations in flight that were seen before. */
static void trace_sender_again(struct trace_sender_pack *p)
{
    struct trace_sender_rank *r = p->rank;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->nflight; i++) {
        struct record_view_op op;
        if (!record_view_op(p->view, r->flight[i].index, &op)) {
            p->dropped++;
            r->gap = true;
        } else if (trace_sender_has_ended(&op) || p->look->ended) {
            trace_sender_put(p, &op, r->flight[i].order);
        } else {
            p->in_flight += op.count * record_view_op_size(&op);
            r->flight[kept++] = r->flight[i];
        }
    }
    r->nflight = kept;
}

static void trace_sender_first_look(struct trace_sender_pack *p, const struct record_view_op *op)
{
    struct trace_sender_rank *r = p->rank;
    trace_sender_put_group(p, op);
    uint32_t order = trace_sender_order(r, op);
    if (trace_sender_has_ended(op) || p->look->ended) {
        trace_sender_put(p, op, order);
    } else if (r->nflight < TRACE_SENDER_FLIGHT) {
        r->flight[r->nflight++] = (struct trace_sender_flight){op->index, order};
        p->in_flight += op->count * record_view_op_size(op);
    } else {
        p->dropped++;
        r->gap = true;
    }
}

/* An entry that cannot be read is being written, so those after it wait as well; unless the rank
 * has ended. */
static void trace_sender_new_ones(struct trace_sender_pack *p)
{
    struct trace_sender_rank *r = p->rank;
    uint64_t first = record_view_first(p->view), end = record_view_end(p->view);
    struct record_view_op op;
    if (r->next < first) {
        p->dropped += first - r->next;
        r->gap = true;
        r->next = first;
    }
    for (; r->next < end && p->read < TRACE_SENDER_MOST; r->next++, p->read++) {
        if (record_view_op(p->view, r->next, &op))
            trace_sender_first_look(p, &op);
        else if (p->look->ended)
            r->gap = true;
        else
            return;
    }
}

static void trace_sender_put_at(struct buf *b, size_t at, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes && !b->failed; i++)
        b->data[at + (size_t)i] = (unsigned char)(v >> 8 * i);
}

uint32_t trace_sender_pack(struct trace_sender_rank *r, const struct record_view *v,
                           const struct trace_sender_look *look, struct buf *out)
{
    struct trace_sender_pack p = {.rank = r, .view = v, .look = look, .out = out};
    size_t at = out->len;
    bool idle = !r->nflight && r->next == record_view_end(v);
    if (idle || !v->head.entries)
        return 0;
    buf_put_u64(out, look->now_ns);
    buf_put_u64(out, 0);
    buf_put_u64(out, 0);
    buf_put_u32(out, 0);
    trace_sender_again(&p);
    trace_sender_new_ones(&p);
    trace_sender_put_at(out, at + 8, p.in_flight, 8);
    trace_sender_put_at(out, at + 16, p.dropped, 8);
    trace_sender_put_at(out, at + 24, p.sent, 4);
    return p.read ? p.read : 1;
}

/* ---- the ranks ---- */

/* Returns the number of operations that were read. */
static uint32_t trace_sender_send(struct trace_sender *s, const struct rank_proc *p, bool ended)
{
    struct agent *a = s->agent;
    struct record_view v;
    struct diag d;
    struct buf b;
    diag_init(&d);
    if (!p->record || !conn_is_open(&a->runner))
        return 0;
    record_calibrate(p->record);
    if (record_view_init(&v, p->record, p->record_len, &d) != COLLRUN_OK)
        return 0;
    buf_init(&b);
    const struct trace_sender_look look = {.now_ns = now_ns(), .ended = ended};
    uint32_t read = trace_sender_pack(&s->ranks[p - a->ranks], &v, &look, &b);
    if (read && !b.failed)
        conn_put_buf(&a->runner, WIRE_TRACE, p->rank, a->desc.attempt, &b);
    buf_fini(&b);
    return read;
}

static uint64_t trace_sender_interval(const struct trace_sender *s, uint32_t most)
{
    uint32_t part = s->agent->desc.record_entries / 8;
    uint64_t ms = most > 2 * part ? s->ms / 4 : most > part ? s->ms / 2 : s->ms * 2;
    return ms < TRACE_SENDER_SOON_MS ? TRACE_SENDER_SOON_MS
           : ms > TRACE_SENDER_MS    ? TRACE_SENDER_MS
                                     : ms;
}

static void trace_sender_on_timer(struct loop_timer *t)
{
    struct trace_sender *s = t->owner;
    struct agent *a = s->agent;
    uint32_t most = 0;
    for (uint32_t i = 0; i < a->nranks; i++) {
        if (!a->ranks[i].pid || a->ranks[i].exited ||
            buf_pending(conn_out(&a->runner)) > TRACE_SENDER_BACKLOG)
            continue;
        uint32_t read = trace_sender_send(s, &a->ranks[i], false);
        most = read > most ? read : most;
    }
    if (buf_pending(conn_out(&a->runner))) /* all in one write, for which the runner wakes once */
        conn_flush(&a->runner);
    s->ms = trace_sender_interval(s, most);
    if (a->nrunning)
        loop_timer_set(a->loop, t, s->ms * MS_NS);
}

void trace_sender_end_rank(struct trace_sender *s, const struct rank_proc *p)
{
    uint64_t before = 0;
    if (!s->ranks)
        return;
    struct trace_sender_rank *r = &s->ranks[p - s->agent->ranks];
    do {
        before = r->next;
        trace_sender_send(s, p, true);
    } while (r->next != before);
    conn_flush(&s->agent->runner);
}

void trace_sender_start(struct trace_sender *s, struct agent *a)
{
    *s = (struct trace_sender){.agent = a, .ms = TRACE_SENDER_SOON_MS};
    s->timer = (struct loop_timer){.fired = trace_sender_on_timer, .owner = s};
    if (a->desc.trace)
        s->ranks = calloc(a->nranks, sizeof *s->ranks);
    if (s->ranks)
        loop_timer_set(a->loop, &s->timer, s->ms * MS_NS);
}

void trace_sender_stop(struct trace_sender *s)
{
    if (s->agent && s->agent->loop)
        loop_timer_clear(s->agent->loop, &s->timer);
    free(s->ranks);
    s->ranks = NULL;
}
