/* SPDX-License-Identifier: Apache-2.0
 *
 * One snapshot reads the blocked calls and the lists of every group into the body of a WAIT_REPORT
 * frame. Its evidence (sequence numbers, scheduler statistics of unknown threads) is not sent, only
 * compared with that of the next snapshot.
 */
#include "observe/wait_report.h"

#include "core/backend.h"
#include "core/process.h"
#include "core/reduce.h"
#include "core/threads.h"
#include "group/group.h"
#include "progress/progress_owner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* FNV-1a's */
#define HASH_START 14695981039346656037u
#define HASH_FACTOR 1099511628211u

/* ---- a snapshot ---- */

struct snapshot {
    struct buf waits, groups, created; /* of the frame */
    uint32_t nwaits, ngroups;
    bool created_lost;
    struct buf posted, counts; /* of the current group, like the next four */
    uint32_t nposted, ncounts;
    bool waited_in, counts_lost;
    struct buf evidence;
    int *blocked; /* threads that are known to be in a blocking call */
    size_t nblocked;
    bool failed;         /* out of memory */
    bool has_other_wait; /* a thread forms a group in a way that is not listed */
};

struct waiter {
    int thread;
    uint64_t number, timeout_ns;
};

static void snapshot_add_blocked(struct snapshot *s, int thread)
{
    int *grown = realloc(s->blocked, (s->nblocked + 1) * sizeof *grown);
    s->failed = s->failed || !grown;
    if (!grown)
        return;
    s->blocked = grown;
    s->blocked[s->nblocked++] = thread;
}

static uint32_t wait_report_peer_world_rank(const struct collrun_group *g,
                                            const struct collrun_call *call)
{
    bool named =
        call->kind == COLLRUN_SEND || call->kind == COLLRUN_RECV || call->kind == KIND_PROBE;
    return named && call->peer >= 0 && (uint32_t)call->peer < g->nranks
               ? g->id.members.items[call->peer]
               : WIRE_HOST;
}

/* True if this send can complete before its receiver calls: it is short, and has not been announced
 * as one that waits for that. */
static bool wait_report_is_eager(const struct collrun_group *g, const struct collrun_call *call)
{
    uint64_t limit = 0;
    if (call->kind != COLLRUN_SEND || call->peer < 0 || (uint32_t)call->peer >= g->nranks)
        return false;
    for (uint32_t i = 0; i < g->nbackends; i++) {
        const struct p2p *p2p = g->backends[i].pq[GROUP_MESSAGES]->config.p2p;
        uint64_t own = g->backends[i].backend->table.eager_limit;
        if (p2p && p2p_sends_await_receiver(p2p, (uint32_t)call->peer))
            continue;
        own = own ? own : GROUP_EAGER_LIMIT;
        limit = own > limit ? own : limit;
    }
    return limit && call->count * dtype_size(call->dtype) <= limit;
}

/* The beginning of each wait: its thread, group, number, time-out and kind. */
static void snapshot_begin_wait(struct snapshot *s, const char *scope, const struct waiter *w,
                                enum collrun_kind kind)
{
    buf_put_u32(&s->waits, (uint32_t)w->thread);
    buf_put_str(&s->waits, scope);
    buf_put_u64(&s->waits, w->number);
    buf_put_u64(&s->waits, w->timeout_ns);
    buf_put_u8(&s->waits, (uint8_t)kind);
    s->nwaits++;
    s->waited_in = true;
}

static void snapshot_put_wait(struct snapshot *s, const struct collrun_group *g,
                              const struct waiter *w, const struct collrun_call *call)
{
    snapshot_begin_wait(s, g->rendezvous.scope, w, call->kind);
    buf_put_u8(&s->waits, (uint8_t)call->dtype);
    buf_put_u8(&s->waits, (uint8_t)call->op);
    buf_put_u8(&s->waits, wait_report_is_eager(g, call));
    buf_put_u64(&s->waits, call->count);
    buf_put_u32(&s->waits, wait_report_peer_world_rank(g, call));
    buf_put_u32(&s->waits, call->tag);
}

/* A thread that waits for the other members of a new group, or of one that is split. It cannot
 * return before they have made the call: until then it sleeps in the rendezvous. */
static void snapshot_put_forming(struct snapshot *s, const struct group_table *t, const char *scope,
                                 const struct forming *f)
{
    const struct waiter w = {.thread = f->thread,
                             .number = f->number,
                             .timeout_ns = t->process->desc.rendezvous_timeout_ns};
    snapshot_add_blocked(s, f->thread);
    snapshot_begin_wait(s, scope, &w, f->kind == WIRE_FORMING_SPLIT ? KIND_SPLIT : KIND_CREATE);
    for (int i = 0; i < 3; i++)
        buf_put_u8(&s->waits, 0);
    buf_put_u64(&s->waits, f->id);
    buf_put_u32(&s->waits, WIRE_HOST);
    buf_put_u32(&s->waits, 0);
}

static void snapshot_put_posted(struct snapshot *s, const struct collrun_group *g,
                                const struct collrun_call *call)
{
    if (!collrun_kind_is_message(call->kind))
        return;
    buf_put_u8(&s->posted, (uint8_t)call->kind);
    buf_put_u32(&s->posted, wait_report_peer_world_rank(g, call));
    buf_put_u32(&s->posted, call->tag);
    s->nposted++;
}

static struct collrun_call wait_report_blocked_op_call(const struct blocked_op *c)
{
    uint32_t packed = atomic_load_explicit(&c->packed, memory_order_relaxed);
    return (struct collrun_call){.kind = (enum collrun_kind)(packed & 0xff),
                                 .dtype = (enum collrun_dtype)(packed >> 8 & 0xff),
                                 .op = (enum collrun_op)(packed >> 16 & 0xff),
                                 .tag = atomic_load_explicit(&c->tag, memory_order_relaxed),
                                 .peer = atomic_load_explicit(&c->peer, memory_order_relaxed),
                                 .count =
                                     (size_t)atomic_load_explicit(&c->count, memory_order_relaxed)};
}

/* If the call is torn, the snapshot is discarded: its `seq` differs from the next snapshot's. */
static void snapshot_blocked_call(struct snapshot *s, const struct collrun_group *g,
                                  const struct blocked_call *n)
{
    uint64_t seq = atomic_load_explicit(&n->seq, memory_order_acquire);
    buf_put_u64(&s->evidence, seq);
    if (!(seq & 1))
        return;
    struct waiter w = {.thread = atomic_load_explicit(&n->thread, memory_order_relaxed),
                       .number = atomic_load_explicit(&n->number, memory_order_relaxed),
                       .timeout_ns = atomic_load_explicit(&n->timeout_ns, memory_order_relaxed)};
    uint32_t ncalls = atomic_load_explicit(&n->ncalls, memory_order_relaxed);
    snapshot_add_blocked(s, w.thread);
    for (uint32_t i = 0; i < ncalls && i < BLOCKED_CALL_OPS; i++) {
        struct collrun_call call = wait_report_blocked_op_call(&n->calls[i]);
        snapshot_put_wait(s, g, &w, &call);
        snapshot_put_posted(s, g, &call);
    }
}

static void snapshot_queue(struct snapshot *s, const struct collrun_group *g,
                           struct progress_queue *pq)
{
    pthread_mutex_lock(&pq->lock);
    pq_admit(pq);
    buf_put_u64(&s->evidence, pq->waiters.begun);
    for (const struct pq_waiter *p = pq->waiters.list; p; p = p->next) {
        struct waiter w = {
            .thread = p->thread, .number = p->number, .timeout_ns = p->calls[0].timeout_ns};
        snapshot_add_blocked(s, p->thread);
        for (uint32_t i = 0; i<p->ncalls; i++, w.number += p->last_number> p->number)
            snapshot_put_wait(s, g, &w, &p->calls[i]);
    }
    for (const struct collrun_request *r = pq->requests.unfinished; r; r = r->later)
        for (uint32_t i = 0; i < r->ncalls; i++)
            snapshot_put_posted(s, g, &r->calls[i]);
    pthread_mutex_unlock(&pq->lock);
}

static void snapshot_put_members(struct snapshot *s, const struct desc_ranks *members)
{
    buf_put_u32(&s->groups, members->n);
    for (uint32_t i = 0; i < members->n; i++)
        buf_put_u32(&s->groups, members->items[i]);
}

static void snapshot_put_counts(struct snapshot *s, const struct collrun_group *g,
                                struct progress_queue *pq)
{
    struct msg_count_table *table = atomic_load_explicit(&pq->counts.table, memory_order_acquire);
    for (uint32_t i = 0; table && i < table->size; i++) {
        const struct msg_count_entry *e = &table->entries[i];
        if (!e->key || msg_count_member(e) >= g->nranks)
            continue;
        buf_put_u32(&s->counts, g->id.members.items[msg_count_member(e)]);
        buf_put_u32(&s->counts, msg_count_tag(e));
        buf_put_u64(&s->counts, atomic_load_explicit(&e->sent, memory_order_acquire));
        buf_put_u64(&s->counts, atomic_load_explicit(&e->received, memory_order_acquire));
        s->ncounts++;
    }
    s->counts_lost = s->counts_lost || atomic_load_explicit(&pq->counts.lost, memory_order_acquire);
}

/* Writes the splits of `parent`, or the creations if it is NULL; returns how many. The runner has
 * their FORMING frames, and their threads sleep. */
static uint32_t snapshot_forming(struct snapshot *s, const struct group_table *t,
                                 const struct collrun_group *parent, const char *scope)
{
    uint32_t n = 0;
    for (const struct forming *f = t->forming; f; f = f->next) {
        char own[32];
        if (f->parent != parent || !f->number || !f->sent ||
            !threads_sleeps(f->thread, &s->evidence))
            continue;
        n++;
        snprintf(own, sizeof own, "create:%016llx", (unsigned long long)f->id);
        snapshot_put_forming(s, t, scope ? scope : own, f);
        if (scope)
            continue;
        buf_put_str(&s->groups, own);
        buf_put_str(&s->groups, f->name);
        buf_put_u64(&s->groups, 0);
        buf_put_u64(&s->groups, 0);
        snapshot_put_members(s, f->members);
        buf_put_u32(&s->groups, 0);
        buf_put_u8(&s->groups, false);
        buf_put_u32(&s->groups, 0);
        s->ngroups++;
    }
    return n;
}

/* Reads the posted operations first and the counts second: a message that completes in between is
 * listed in both, not in neither. A message that failed is in neither, and its other end may have
 * the news of it already, unread: the counts of a group that has failed prove nothing. */
static void snapshot_group(struct snapshot *s, struct collrun_group *g, uint32_t *nforming)
{
    buf_clear(&s->posted);
    buf_clear(&s->counts);
    s->nposted = s->ncounts = 0;
    s->waited_in = false;
    s->counts_lost = group_has_failed(g);
    for (int i = 0; i < 2; i++)
        snapshot_blocked_call(s, g, &g->calls.blocked[i]);
    for (uint32_t i = 0; i < g->nbackends; i++)
        for (uint32_t k = 0; k < g->backends[i].nqueues; k++)
            snapshot_queue(s, g, &g->backends[i].queues[k]);
    for (uint32_t i = 0; i < g->nbackends; i++)
        snapshot_put_counts(s, g, g->backends[i].pq[GROUP_MESSAGES]);
    *nforming += snapshot_forming(s, g->table, g, g->rendezvous.scope);
    buf_put_str(&s->groups, g->rendezvous.scope);
    buf_put_str(&s->groups, g->id.name);
    buf_put_u64(&s->groups,
                atomic_load_explicit(&g->calls.numbers[GROUP_COLLECTIVES], memory_order_relaxed));
    buf_put_u64(&s->groups,
                atomic_load_explicit(&g->formed[GENERATION_OF_SPLIT], memory_order_relaxed));
    snapshot_put_members(s, s->waited_in ? &g->id.members : &(struct desc_ranks){NULL, 0});
    buf_put_u32(&s->groups, s->nposted);
    buf_put(&s->groups, s->posted.data, s->posted.len);
    buf_put_u8(&s->groups, s->counts_lost);
    buf_put_u32(&s->groups, s->ncounts);
    buf_put(&s->groups, s->counts.data, s->counts.len);
    s->ngroups++;
}

static void snapshot_groups(struct snapshot *s, struct group_table *t)
{
    uint32_t listed = 0, nforming = 0;
    pthread_mutex_lock(&t->lock);
    for (struct collrun_group *g = t->open; g; g = g->next)
        snapshot_group(s, g, &listed);
    listed += snapshot_forming(s, t, NULL, NULL);
    for (const struct forming *f = t->forming; f; f = f->next)
        nforming += f->kind != WIRE_FORMING_FINALIZE;
    s->has_other_wait = nforming > listed;
    s->created_lost = !generation_list(t, &s->created);
    pthread_mutex_unlock(&t->lock);
}

/* ---- the report ---- */

static bool snapshot_has_blocked(void *ctx, int thread)
{
    const struct snapshot *s = ctx;
    for (size_t i = 0; i < s->nblocked; i++) {
        if (s->blocked[i] == thread)
            return true;
    }
    return false;
}

static void wait_report_send(struct wait_reporter *w, const struct snapshot *s, bool certain,
                             bool free)
{
    size_t mark;
    struct buf *out = control_begin(&w->groups->process->control, WIRE_WAIT_REPORT, &mark);
    buf_put_u8(out, certain);
    buf_put_u8(out, free);
    buf_put_u32(out, s->nwaits);
    buf_put(out, s->waits.data, s->waits.len);
    buf_put_u32(out, s->ngroups);
    buf_put(out, s->groups.data, s->groups.len);
    buf_put_u8(out, s->created_lost);
    if (s->created.len)
        buf_put(out, s->created.data, s->created.len);
    else
        buf_put_u32(out, 0);
    control_end(&w->groups->process->control, mark);
}

static uint64_t wait_report_hash_number(uint64_t h, uint64_t value)
{
    return (h ^ value) * HASH_FACTOR;
}

static uint64_t wait_report_hash(uint64_t h, const struct buf *b)
{
    for (size_t i = 0; i < b->len; i++)
        h = wait_report_hash_number(h, b->data[i]);
    return h;
}

static bool snapshot_is_complete(const struct snapshot *s)
{
    return !s->failed && !s->waits.failed && !s->groups.failed && !s->created.failed &&
           !s->posted.failed && !s->counts.failed && !s->evidence.failed;
}

/* The frame that was sent is no longer true. */
static void wait_report_withdraw(struct wait_reporter *w)
{
    const struct snapshot none = {0};
    if (w->sent)
        wait_report_send(w, &none, false, true);
    w->sent = 0;
    w->sent_certain = false;
}

/* Sends a snapshot that equals the one before, unless the runner has it already. */
static void wait_report_decide(struct wait_reporter *w, struct snapshot *s, bool timed_out,
                               bool background)
{
    struct process *p = w->groups->process;
    uint64_t content = wait_report_hash(wait_report_hash(HASH_START, &s->waits), &s->groups);
    content = wait_report_hash(content, &s->created);
    if (content == w->sent && w->sent_certain)
        return;
    bool certain =
        atomic_load(&p->busy) == 0 && !s->has_other_wait && !background &&
        (atomic_load(&w->groups->finalizing) ||
         threads_are_blocked(snapshot_has_blocked, s, p->kinds.nowned > 0, &s->evidence));
    bool free = !certain && s->nwaits && threads_caller_is_free(snapshot_has_blocked, s);
    content += free;
    uint64_t last = snapshot_is_complete(s) && (certain || s->nwaits)
                        ? wait_report_hash(content + certain, &s->evidence)
                        : 0;
    if (last && last == w->last && (content != w->sent || certain)) {
        w->sent = content;
        w->sent_certain = certain;
        wait_report_send(w, s, certain, free);
    } else if (!last && !timed_out) {
        wait_report_withdraw(w);
    }
    w->last = last;
}

/* What every call changes when it begins, and a blocking one when it ends. *timed_out: an operation
 * of an open group has. Relaxed: nothing is concluded before two looks agree, a tick apart, and one
 * that is out of date changes until then. */
static uint64_t wait_report_counters(struct group_table *t, bool *timed_out)
{
    uint64_t h = HASH_START;
    pthread_mutex_lock(&t->lock);
    for (struct collrun_group *g = t->open; g; g = g->next) {
        int status = atomic_load_explicit(&g->status.code, memory_order_acquire);
        *timed_out = *timed_out || status == COLLRUN_ERR_TIMEOUT;
        h = wait_report_hash_number(h, (uintptr_t)g);
        for (int i = 0; i < 2; i++) {
            h = wait_report_hash_number(
                h, atomic_load_explicit(&g->calls.numbers[i], memory_order_relaxed));
            h = wait_report_hash_number(
                h, atomic_load_explicit(&g->calls.blocked[i].seq, memory_order_relaxed));
        }
    }
    pthread_mutex_unlock(&t->lock);
    return h;
}

bool wait_report_update(struct wait_reporter *w, bool background)
{
    struct snapshot s = {0};
    struct buf *bufs[] = {&s.waits, &s.groups, &s.created, &s.posted, &s.counts, &s.evidence};
    bool timed_out = false;
    uint64_t counters = wait_report_counters(w->groups, &timed_out);
    if (counters != w->counters) {
        w->counters = counters;
        w->last = 0;
        if (!timed_out)
            wait_report_withdraw(w);
        return false;
    }
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        buf_init(bufs[i]);
    snapshot_groups(&s, w->groups);
    wait_report_decide(w, &s, timed_out, background);
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        buf_fini(bufs[i]);
    free(s.blocked);
    return true;
}
