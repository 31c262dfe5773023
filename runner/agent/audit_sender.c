/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/audit_sender.h"

#include "agent/agent.h"
#include "agent/rank.h"
#include "base/record_view.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MS_NS 1000000ull

enum {
    AUDIT_SENDER_FEW = 64,       /* so many new numbers are all sent */
    AUDIT_SENDER_LAST = 8,       /* of more, so many of the last ones */
    AUDIT_SENDER_MULTIPLES = 16, /* and so many of the last multiples of 64 */
    AUDIT_SENDER_STEP = 64 * RECORD_STEP,
    AUDIT_SENDER_SOON = AUDIT_SENDER_STEP / 4
};

/* ---- one group ---- */

struct audit_sender_marks { /* of one group */
    const struct record_view *view;
    const struct record_view_group *group;
    struct buf *out;
    uint32_t n;
};

static void audit_sender_put(struct audit_sender_marks *m, uint64_t number)
{
    struct record_view_mark mark;
    if (!record_view_mark(m->view, m->group, number, &mark))
        return;
    buf_put_u64(m->out, mark.number);
    buf_put_u64(m->out, mark.signature);
    buf_put_u64(m->out, mark.pairs);
    buf_put_u64(m->out, mark.called_ns);
    m->n++;
}

/* Multiples of `step` in (after, before), at most the last `most`. */
static void audit_sender_put_multiples(struct audit_sender_marks *m, uint64_t step, uint64_t after,
                                       uint64_t before, uint64_t most)
{
    uint64_t first = after / step * step + step, end = before ? (before - 1) / step * step : 0;
    if (end >= most * step && first < end - (most - 1) * step)
        first = end - (most - 1) * step;
    uint64_t n = first <= end ? (end - first) / step + 1 : 0;
    for (uint64_t i = 0; i < n && i < most; i++)
        audit_sender_put(m, first + i * step);
}

/* In ascending order. */
static void audit_sender_put_marks(struct audit_sender_marks *m,
                                   const struct audit_sender_slot *slot, bool all)
{
    uint64_t number = m->group->started, before = slot->number;
    uint64_t last = all || number - before <= AUDIT_SENDER_FEW ? RECORD_MARKS : AUDIT_SENDER_LAST;
    uint64_t first = number > last ? number - last + 1 : 1;
    if (!all && first <= before)
        first = before + 1;
    if (all) {
        uint64_t kept = (uint64_t)RECORD_MARKS * RECORD_STEP;
        audit_sender_put_multiples(m, RECORD_STEP, number > kept ? number - kept : 0, first,
                                   RECORD_MARKS);
    } else {
        uint64_t recent = (uint64_t)AUDIT_SENDER_MULTIPLES * RECORD_STEP;
        uint64_t from = first > recent && first - recent > before ? first - recent : before;
        audit_sender_put_multiples(m, AUDIT_SENDER_STEP, before, from + 1, 1);
        audit_sender_put_multiples(m, RECORD_STEP, from, first, AUDIT_SENDER_MULTIPLES);
    }
    for (uint64_t i = 0; i < last && first + i <= number; i++)
        audit_sender_put(m, first + i);
}

static void audit_sender_put_u32_at(struct buf *b, size_t at, uint32_t v)
{
    for (int i = 0; i < 4 && !b->failed; i++)
        b->data[at + (size_t)i] = (unsigned char)(v >> 8 * i);
}

static void audit_sender_put_group(const struct record_view *v, const struct record_view_group *g,
                                   const struct audit_sender_slot *slot, bool rank_ended,
                                   struct buf *out)
{
    const bool ended = rank_ended || !g->open;
    bool all = ended || g->started == slot->number;
    struct audit_sender_marks m = {.view = v, .group = g, .out = out};
    buf_put_str(out, g->scope);
    buf_put_str(out, g->name);
    buf_put_u32(out, g->members);
    buf_put_u64(out, g->started);
    buf_put_u64(out, g->done);
    buf_put_u32(out, (uint32_t)g->status);
    buf_put_u8(out, (uint8_t)((ended ? WIRE_AUDIT_ENDED : 0) |
                              (ended && !rank_ended ? WIRE_AUDIT_DESTROYED : 0) |
                              (g->check == COLLRUN_CHECK_STRICT ? WIRE_AUDIT_STRICT : 0)));
    size_t at = out->len;
    buf_put_u32(out, 0);
    if (ended || slot->complete != g->started)
        audit_sender_put_marks(&m, slot, all);
    audit_sender_put_u32_at(out, at, m.n);
}

static uint64_t audit_sender_hash(const char *scope)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *scope; scope++)
        hash = (hash ^ (unsigned char)*scope) * 1099511628211u;
    return hash ? hash : 1;
}

/* Without an operation that is in flight for a short time only. */
static bool audit_sender_hold_back(struct record_view_group *g, uint64_t now)
{
    uint64_t ms = g->check == COLLRUN_CHECK_STRICT ? AUDIT_SENDER_STRICT_MS : AUDIT_SENDER_HOLD_MS;
    if (g->status || g->started <= g->done || now >= g->since_ns + ms * MS_NS)
        return false;
    g->started--;
    return true;
}

static bool audit_sender_is_new(const struct audit_sender_slot *slot,
                                const struct record_view_group *g, bool ended)
{
    return !slot->ended && (g->started != slot->number || g->done != slot->done ||
                            g->status != slot->status || slot->complete != g->started || ended);
}

/* True: the group was put into `out`. */
static bool audit_sender_pack_group(struct audit_sender_rank *sent, const struct record_view *v,
                                    struct record_view_group *g,
                                    const struct audit_sender_look *look, struct buf *out)
{
    struct audit_sender_slot *slot = &sent->slots[g->slot];
    uint64_t scope = audit_sender_hash(g->scope);
    if (slot->scope != scope)
        *slot = (struct audit_sender_slot){.scope = scope};
    bool ended = look->ended || !g->open, held = !ended && audit_sender_hold_back(g, look->now_ns);
    if (slot->number > g->started) /* it was not held back before */
        g->started = slot->number;
    uint64_t news = g->started - slot->number;
    sent->soon = sent->soon || (news > AUDIT_SENDER_SOON && !look->one_host) ||
                 (held && g->check != COLLRUN_CHECK_STRICT && news <= AUDIT_SENDER_FEW);
    if (!audit_sender_is_new(slot, g, ended))
        return false;
    audit_sender_put_group(v, g, slot, look->ended, out);
    if (!news || ended || (slot->complete == slot->number && news <= AUDIT_SENDER_FEW))
        slot->complete = g->started;
    slot->number = g->started;
    slot->done = g->done;
    slot->status = g->status;
    slot->ended = ended;
    return true;
}

uint32_t audit_sender_pack(struct audit_sender_rank *sent, const struct record_view *v,
                           const struct audit_sender_look *look, struct buf *out)
{
    size_t at = out->len;
    uint32_t n = 0;
    sent->soon = false;
    buf_put_u32(out, 0);
    for (uint32_t i = 0; i < record_view_ngroups(v); i++) {
        struct record_view_group g;
        if (!record_view_group(v, i, &g) || g.messages || g.members < 2 ||
            g.check == COLLRUN_CHECK_OFF)
            continue;
        n += audit_sender_pack_group(sent, v, &g, look, out);
    }
    audit_sender_put_u32_at(out, at, n);
    return n;
}

/* ---- the ranks ---- */

/* The frame is sent by the next conn_flush. */
static void audit_sender_put_rank(struct audit_sender *s, const struct rank_proc *p, bool ended)
{
    struct agent *a = s->agent;
    struct record_view v;
    struct diag d;
    struct buf b;
    if (!p->record || !conn_is_open(&a->runner))
        return;
    record_calibrate(p->record);
    diag_init(&d);
    if (record_view_init(&v, p->record, p->record_len, &d) != COLLRUN_OK)
        return;
    buf_init(&b);
    const struct audit_sender_look look = {
        .now_ns = now_ns(), .ended = ended, .one_host = a->desc.nhosts == 1};
    if (audit_sender_pack(&s->ranks[p - a->ranks], &v, &look, &b) && !b.failed)
        conn_put_buf(&a->runner, WIRE_AUDIT, p->rank, a->desc.attempt, &b);
    buf_fini(&b);
}

/* At the next multiple of `ms` since the epoch. */
static void audit_sender_set_timer(struct audit_sender *s, uint64_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t since = ((uint64_t)t.tv_sec * 1000 * MS_NS + (uint64_t)t.tv_nsec) % (ms * MS_NS);
    loop_timer_set(s->agent->loop, &s->timer, ms * MS_NS - since);
}

static void audit_sender_on_timer(struct loop_timer *t)
{
    struct audit_sender *s = t->owner;
    struct agent *a = s->agent;
    bool soon = false;
    for (uint32_t i = 0; i < a->nranks; i++) {
        if (!a->ranks[i].pid || a->ranks[i].exited)
            continue;
        audit_sender_put_rank(s, &a->ranks[i], a->ranks[i].idle);
        soon = soon || s->ranks[i].soon;
    }
    if (buf_pending(conn_out(&a->runner))) /* all in one write, for which the runner wakes once */
        conn_flush(&a->runner);
    if (a->nrunning)
        audit_sender_set_timer(s, soon ? AUDIT_SENDER_SOON_MS : AUDIT_SENDER_MS);
}

void audit_sender_end_rank(struct audit_sender *s, const struct rank_proc *p)
{
    if (!s->ranks)
        return;
    audit_sender_put_rank(s, p, true);
    conn_flush(&s->agent->runner);
}

void audit_sender_start(struct audit_sender *s, struct agent *a)
{
    *s = (struct audit_sender){.agent = a, .ranks = calloc(a->nranks, sizeof *s->ranks)};
    s->timer = (struct loop_timer){.fired = audit_sender_on_timer, .owner = s};
    if (s->ranks)
        audit_sender_set_timer(s, AUDIT_SENDER_MS);
}

void audit_sender_stop(struct audit_sender *s)
{
    if (s->agent && s->agent->loop)
        loop_timer_clear(s->agent->loop, &s->timer);
    free(s->ranks);
    s->ranks = NULL;
}

/* ---- records ---- */

/* Operations per rank, of 64 bytes each; and of all ranks of the job. */
enum { RECORDS_FAILED = 4096, RECORDS_FAILED_JOB = 1 << 20, RECORDS_GOOD = 256 };

void records_send(struct agent *a, bool failed)
{
    struct record_view_part part = {.entries = failed ? RECORDS_FAILED : RECORDS_GOOD,
                                    .marks = failed};
    while (failed && part.entries > 64 &&
           (uint64_t)part.entries * a->desc.nranks > RECORDS_FAILED_JOB)
        part.entries /= 2;
    for (uint32_t i = 0; i < a->nranks && !a->records_sent; i++) {
        const struct rank_proc *p = &a->ranks[i];
        struct buf b;
        buf_init(&b);
        if (p->record && record_view_save(p->record, p->record_len, &part, &b))
            conn_send_buf(&a->runner, WIRE_RECORDS, p->rank, a->desc.attempt, &b);
        buf_fini(&b);
    }
    a->records_sent = true;
}
