/* SPDX-License-Identifier: Apache-2.0
 *
 * One snapshot writes a cut of this rank's record (base/record_cut.h) and the lists of forming
 * groups into the body of a WAIT_REPORT frame. Its evidence (words of threads, scheduler statistics
 * of unknown threads) is not sent, only compared with that of the next snapshot.
 */
#include "observe/wait_report.h"

#include "base/record_cut.h"
#include "base/record_writer.h"
#include "core/process.h"
#include "core/reduce.h"
#include "core/threads.h"
#include "group/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* FNV-1a's */
#define HASH_START 14695981039346656037u
#define HASH_FACTOR 1099511628211u
#define MS_NS UINT64_C(1000000)

/* ---- a snapshot ---- */

struct snapshot {
    struct arena arena; /* of the cut, and the two arrays */
    struct record_cut cut;
    const struct record_writer *writer;
    struct collrun_group **opened;     /* by index of cut.groups; NULL: it is not open */
    bool *waited_in;                   /* by the same index: a thread waits in it */
    struct buf waits, groups, created; /* of the frame */
    uint32_t nwaits, ngroups;
    bool created_lost;
    struct buf evidence;
    int *blocked; /* threads that are known to be in a blocking call */
    size_t nblocked;
    bool failed;         /* out of memory, or a thread went on meanwhile */
    bool has_other_wait; /* a thread forms a group in a way that is not listed */
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

/* ---- the cut ---- */

/* A record_survey_fn: the threads that are in a call. threads_are_blocked judges the others. */
static bool snapshot_survey(void *ctx, struct arena *arena, struct record_survey *out)
{
    const struct record_writer *w = ctx;
    const uint32_t used = atomic_load_explicit(&w->head->threads_used, memory_order_relaxed);
    struct record_task *tasks = arena_calloc(arena, RECORD_THREADS, sizeof *tasks);
    *out = (struct record_survey){.tasks = tasks};
    for (uint32_t i = 1; tasks && i <= used && i < RECORD_THREADS; i++)
        if (record_phase(&w->threads[i]) == RECORD_INSIDE)
            tasks[out->ntasks++].tid =
                atomic_load_explicit(&w->threads[i].tid, memory_order_relaxed);
    return tasks != NULL;
}

/* NULL: the record has no room for the group, so its calls are not known. */
static const struct record_cut_group *snapshot_find(const struct snapshot *s,
                                                    const struct collrun_group *g)
{
    const struct record_group *slot = g->calls.record[GROUP_COLLECTIVES].group;
    return slot ? record_cut_group(&s->cut, slot->id) : NULL;
}

static void snapshot_take_cut(struct snapshot *s, const struct group_table *t)
{
    struct process *p = t->process;
    struct record_view v;
    s->writer = p->writer;
    const bool taken = record_view_init(&v, p->record, record_len(p->record), NULL) == COLLRUN_OK &&
                       record_cut_take(&v, false, snapshot_survey, p->writer, &s->arena, &s->cut);
    s->opened = arena_calloc(&s->arena, s->cut.ngroups, sizeof *s->opened);
    s->waited_in = arena_calloc(&s->arena, s->cut.ngroups, sizeof *s->waited_in);
    s->failed = !taken || s->cut.state == RECORD_CUT_MOVING || arena_failed(&s->arena);
    for (struct collrun_group *g = t->open; !s->failed && g; g = g->next) {
        const struct record_cut_group *found = snapshot_find(s, g);
        if (found)
            s->opened[found - s->cut.groups] = g;
    }
}

/* ---- calls ---- */

/* True if this send can complete before its receiver calls: it is short, and has not been announced
 * as one that waits for that. */
static bool wait_report_is_eager(const struct collrun_group *g, const struct record_cut_op *op)
{
    const int peer = op->peer >= 0 ? desc_ranks_find(&g->id.members, (uint32_t)op->peer) : -1;
    bool eager = false;
    if (op->kind != COLLRUN_SEND || (op->flags & RECORD_SYNC) || peer < 0)
        return false;
    for (uint32_t i = 0; i < g->nbackends; i++) {
        const struct p2p *p2p = g->backends[i].pq[GROUP_MESSAGES]->config.p2p;
        eager = eager || !p2p || !p2p_sends_await_receiver(p2p, (uint32_t)peer);
    }
    return eager;
}

struct waiter {
    int thread;
    uint64_t number, timeout_ns;
};

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
}

/* In whole milliseconds: the clock of the record is calibrated again and again. */
static uint64_t snapshot_timeout(const struct record_cut_thread *t)
{
    return t->timeout_ns ? (t->timeout_ns + MS_NS / 2) / MS_NS * MS_NS : UINT64_MAX;
}

/* The order of a send or receive; without one, nothing is certain to precede it. */
static uint64_t snapshot_order(const struct snapshot *s, const struct record_cut_op *op)
{
    const bool ordered =
        op->kind == COLLRUN_SEND || op->kind == COLLRUN_RECV || op->kind == COLLRUN_RECV_ANY;
    return ordered && !s->cut.groups[op->group].unordered ? op->order : 0;
}

/* RECORD_ANY_RANK is WIRE_HOST. */
static void snapshot_put_wait(struct snapshot *s, const struct record_cut_thread *t,
                              const struct record_cut_op *op)
{
    const struct collrun_group *g = s->opened[op->group];
    const enum collrun_kind kind = (enum collrun_kind)op->kind;
    const bool collective = kind_is_collective(kind);
    const struct waiter w = {.thread = (int)t->tid,
                             .number = collective ? op->number : op->message,
                             .timeout_ns = snapshot_timeout(t)};
    s->waited_in[op->group] = true;
    snapshot_begin_wait(s, g->rendezvous.scope, &w, kind);
    buf_put_u8(&s->waits, op->dtype);
    buf_put_u8(&s->waits, op->op);
    buf_put_u8(&s->waits, wait_report_is_eager(g, op));
    buf_put_u64(&s->waits, op->count);
    buf_put_u32(&s->waits, collective ? WIRE_HOST : (uint32_t)op->peer);
    buf_put_u32(&s->waits, collective ? 0 : op->tag);
    buf_put_u64(&s->waits, snapshot_order(s, op));
}

/* True if the thread cannot return before all of some operations of open groups are complete. */
static bool snapshot_waits(const struct snapshot *s, const struct record_cut_thread *t)
{
    bool waits = false;
    for (uint32_t i = 0; t->mode == RECORD_ALL && i < t->nops; i++) {
        if (t->ops[i].state == RECORD_FREE)
            continue;
        if (t->ops[i].group == RECORD_CUT_NO_GROUP || !s->opened[t->ops[i].group])
            return false;
        waits = true;
    }
    return waits;
}

static void snapshot_threads(struct snapshot *s)
{
    for (uint32_t i = 0; i < s->cut.nthreads; i++) {
        const struct record_cut_thread *t = &s->cut.threads[i];
        buf_put_u32(&s->evidence, t->word);
        if (!snapshot_waits(s, t))
            continue;
        snapshot_add_blocked(s, (int)t->tid);
        for (uint32_t k = 0; k < t->nops; k++)
            if (t->ops[k].state != RECORD_FREE)
                snapshot_put_wait(s, t, &t->ops[k]);
    }
}

/* ---- groups ---- */

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
    buf_put_u64(&s->waits, 0);
}

static void snapshot_put_members(struct snapshot *s, const struct desc_ranks *members)
{
    buf_put_u32(&s->groups, members->n);
    for (uint32_t i = 0; i < members->n; i++)
        buf_put_u32(&s->groups, members->items[i]);
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

/* The thread whose later receives take no message before this one; 0: none. */
static uint32_t snapshot_poster(const struct snapshot *s, const struct record_cut_op *op)
{
    const struct record_writer *w = s->writer;
    return op->state == RECORD_OPEN && !s->cut.groups[op->group].unordered
               ? atomic_load_explicit(&w->threads[op->thread].tid, memory_order_relaxed)
               : 0;
}

/* The receives that are open, and the counts of messages. A message that failed is in neither, and
 * its other end may have the news of it already, unread: the counts of a group that has failed
 * prove nothing. */
static void snapshot_put_messages(struct snapshot *s, const struct collrun_group *g, uint32_t index)
{
    const struct record_cut *c = &s->cut;
    const uint32_t lost = atomic_load_explicit(&g->process->record->lost, memory_order_relaxed);
    bool counts_lost = lost || group_has_failed(g) || index == RECORD_CUT_NO_GROUP;
    uint32_t nposted = 0, ncounts = 0;
    for (uint32_t i = 0; i < c->nreceives; i++)
        nposted += c->receives[i].group == index && !counts_lost;
    buf_put_u32(&s->groups, nposted);
    for (uint32_t i = 0; nposted && i < c->nreceives; i++) {
        if (c->receives[i].group != index)
            continue;
        buf_put_u8(&s->groups, c->receives[i].kind);
        buf_put_u32(&s->groups, (uint32_t)c->receives[i].peer);
        buf_put_u32(&s->groups, c->receives[i].tag);
        buf_put_u32(&s->groups, snapshot_poster(s, &c->receives[i]));
        buf_put_u64(&s->groups, snapshot_order(s, &c->receives[i]));
    }
    for (uint32_t i = 0; i < c->nchannels; i++) {
        counts_lost = counts_lost || (c->channels[i].group == index && c->channels[i].folded);
        ncounts += c->channels[i].group == index;
    }
    buf_put_u8(&s->groups, counts_lost);
    buf_put_u32(&s->groups, counts_lost ? 0 : ncounts);
    for (uint32_t i = 0; !counts_lost && i < c->nchannels; i++) {
        if (c->channels[i].group != index)
            continue;
        buf_put_u32(&s->groups, c->channels[i].peer);
        buf_put_u32(&s->groups, c->channels[i].tag);
        buf_put_u64(&s->groups, c->channels[i].sent);
        buf_put_u64(&s->groups, c->channels[i].taken);
    }
}

static void snapshot_group(struct snapshot *s, const struct collrun_group *g, uint32_t *nforming)
{
    const uint32_t splits = *nforming;
    const struct record_cut_group *found = snapshot_find(s, g);
    const uint32_t index = found ? (uint32_t)(found - s->cut.groups) : RECORD_CUT_NO_GROUP;
    *nforming += snapshot_forming(s, g->table, g, g->rendezvous.scope);
    const bool waited_in = *nforming > splits || (found && s->waited_in[index]);
    buf_put_str(&s->groups, g->rendezvous.scope);
    buf_put_str(&s->groups, g->id.name);
    buf_put_u64(&s->groups,
                atomic_load_explicit(&g->calls.numbers[GROUP_COLLECTIVES], memory_order_relaxed));
    buf_put_u64(&s->groups,
                atomic_load_explicit(&g->formed[GENERATION_OF_SPLIT], memory_order_relaxed));
    snapshot_put_members(s, waited_in ? &g->id.members : &(struct desc_ranks){NULL, 0});
    snapshot_put_messages(s, g, index);
    s->ngroups++;
}

static void snapshot_take(struct snapshot *s, struct group_table *t)
{
    uint32_t listed = 0, nforming = 0;
    pthread_mutex_lock(&t->lock);
    snapshot_take_cut(s, t);
    if (!s->failed)
        snapshot_threads(s);
    for (const struct collrun_group *g = s->failed ? NULL : t->open; g; g = g->next)
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

/* A thread that has called before is in no blocking call and not asleep: it may call again. */
static bool snapshot_caller_is_free(const struct record_writer *w, struct snapshot *s)
{
    const uint32_t used = atomic_load_explicit(&w->head->threads_used, memory_order_relaxed);
    for (uint32_t i = 1; i <= used && i < RECORD_THREADS; i++) {
        const int tid = (int)atomic_load_explicit(&w->threads[i].tid, memory_order_relaxed);
        if (!snapshot_has_blocked(s, tid) && threads_may_call(tid))
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
           !s->evidence.failed;
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
    bool free = !certain && s->nwaits && snapshot_caller_is_free(p->writer, s);
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

/* What every call changes when it begins and when it ends. *timed_out: an operation of an open
 * group has. */
static uint64_t wait_report_counters(struct group_table *t, bool *timed_out)
{
    const struct record_writer *w = t->process->writer;
    const uint32_t used = atomic_load_explicit(&w->head->threads_used, memory_order_relaxed);
    uint64_t h = HASH_START;
    for (uint32_t i = 1; i <= used && i < RECORD_THREADS; i++)
        h = wait_report_hash_number(
            h, atomic_load_explicit(&w->threads[i].word, memory_order_acquire));
    pthread_mutex_lock(&t->lock);
    for (const struct collrun_group *g = t->open; g; g = g->next) {
        *timed_out = *timed_out || atomic_load_explicit(&g->status.code, memory_order_acquire) ==
                                       COLLRUN_ERR_TIMEOUT;
        h = wait_report_hash_number(h, (uintptr_t)g);
    }
    pthread_mutex_unlock(&t->lock);
    return h;
}

bool wait_report_update(struct wait_reporter *w, bool background)
{
    struct snapshot s = {0};
    struct buf *bufs[] = {&s.waits, &s.groups, &s.created, &s.evidence};
    bool timed_out = false;
    if (!w->groups->process->writer) /* without a record, nothing is known of the calls */
        return false;
    uint64_t counters = wait_report_counters(w->groups, &timed_out);
    if (counters != w->counters) {
        w->counters = counters;
        w->last = 0;
        if (!timed_out)
            wait_report_withdraw(w);
        return false;
    }
    arena_init(&s.arena);
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        buf_init(bufs[i]);
    snapshot_take(&s, w->groups);
    wait_report_decide(w, &s, timed_out, background);
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        buf_fini(bufs[i]);
    free(s.blocked);
    arena_fini(&s.arena);
    return true;
}
