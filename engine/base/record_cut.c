/* SPDX-License-Identifier: Apache-2.0
 *
 * The arrays are copied between the two readings of the words, and everything is built from the
 * copies: what a rank changes later, or a damaged one at any time, is not looked at again.
 */
#include "base/record_cut.h"

#include "base/names.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* What is copied of a record. */
struct cut_source {
    const struct record_view *v;
    struct arena *arena;
    uint32_t nthreads, nrequests, nchannels, ngroups, nmembers; /* in use */
    const uint32_t *words;                                      /* of the first reading */
    struct record_survey first, second;
    uint32_t epoch, lost;
    const struct record_thread *threads;
    const uint32_t *waits;
    const struct record_request *requests;
    const struct record_channel *channels;
    const struct record_group *groups;
    const uint32_t *members;
    uint32_t *group_at; /* by slot: index of record_cut.groups, or NO_GROUP */
    uint64_t *listed;   /* members of all groups, and needs, so far */
    bool finished;      /* no call followed when the words were read */
};

static const struct record_head *cut_head(const struct cut_source *s)
{
    return (const void *)s->v->bytes;
}

/* The words say whether it was of the same instant. */
static uint32_t cut_used(const _Atomic uint32_t *used, uint32_t most)
{
    const uint32_t n = atomic_load_explicit(used, memory_order_relaxed);
    return n < most ? n : most;
}

/* ---- the two readings ---- */

/* The words are acquired: what was written before them is in the copies. */
static const uint32_t *cut_read_words(const struct cut_source *s)
{
    const struct record_thread *live = (const void *)(s->v->bytes + s->v->at.threads);
    uint32_t *words = arena_calloc(s->arena, s->nthreads, sizeof *words);
    for (uint32_t i = 0; words && i < s->nthreads; i++)
        words[i] = atomic_load_explicit(&live[i].word, memory_order_acquire);
    return words;
}

static uint32_t cut_count_threads(const struct cut_source *s)
{
    const uint32_t most = s->v->head.nthreads;
    const uint32_t n = cut_used(&cut_head(s)->threads_used, most ? most - 1 : 0);
    return n ? n + 1 : 0;
}

static const void *cut_copy(const struct cut_source *s, size_t at, size_t len)
{
    void *copy = arena_alloc(s->arena, len);
    if (copy)
        memcpy(copy, s->v->bytes + at, len);
    return copy;
}

static void cut_copy_arrays(struct cut_source *s)
{
    const struct record_head *head = cut_head(s);
    const struct record_layout *at = &s->v->at;
    s->nrequests = cut_used(&head->requests_used, s->v->head.nrequests);
    s->nchannels = cut_used(&head->channels_used, s->v->head.nchannels);
    s->ngroups = cut_used(&head->groups_used, s->v->head.ngroups);
    s->nmembers = cut_used(&head->members_used, s->v->head.nmembers);
    s->threads = cut_copy(s, at->threads, s->nthreads * sizeof *s->threads);
    s->waits = cut_copy(s, at->waits, s->nthreads * RECORD_WAITS * sizeof *s->waits);
    s->requests = cut_copy(s, at->requests, s->nrequests * sizeof *s->requests);
    s->channels = cut_copy(s, at->channels, s->nchannels * sizeof *s->channels);
    s->groups = cut_copy(s, at->groups, s->ngroups * sizeof *s->groups);
    s->members = cut_copy(s, at->members, s->nmembers * sizeof *s->members);
}

static bool cut_words_are_still(const struct cut_source *s, const uint32_t *again)
{
    bool still = true;
    for (uint32_t i = 0; i < s->nthreads; i++) {
        still = still && !(s->words[i] & 1);
        if (RECORD_RULE(WORDS_AGAIN))
            still = still && s->words[i] == again[i];
    }
    return still;
}

/* A rank whose process has ended does not change. Where no call follows (MPI_Finalize was entered),
 * its threads need no survey. */
static bool cut_is_still(struct cut_source *s, bool ended, record_survey_fn *survey, void *ctx)
{
    const struct record_head *head = cut_head(s);
    /* Acquired, and before the words: they are then not older than the last call of the process. A
     * load behind them could find what these do not show yet. */
    s->finished = atomic_load_explicit(&head->finished, memory_order_acquire);
    const bool process = !ended && !s->finished;
    s->nthreads = cut_count_threads(s);
    s->words = cut_read_words(s);
    s->epoch = atomic_load_explicit(&head->epoch, memory_order_relaxed);
    s->lost = atomic_load_explicit(&head->lost, memory_order_relaxed);
    if (process && !survey(ctx, s->arena, &s->first))
        return false;
    if (RECORD_RULE(FIELDS_BETWEEN_WORDS))
        cut_copy_arrays(s);
    atomic_thread_fence(memory_order_acquire);
    if (process && !survey(ctx, s->arena, &s->second))
        return false;
    const uint32_t *again = cut_read_words(s);
    if (!RECORD_RULE(FIELDS_BETWEEN_WORDS))
        cut_copy_arrays(s);
    if (arena_failed(s->arena))
        return false;
    if (ended)
        return true;
    return cut_words_are_still(s, again) && cut_count_threads(s) == s->nthreads &&
           !(s->epoch & 1) &&
           atomic_load_explicit(&head->epoch, memory_order_relaxed) == s->epoch &&
           atomic_load_explicit(&head->lost, memory_order_relaxed) == s->lost;
}

/* ---- groups ---- */

static int cut_by_id(const void *a, const void *b)
{
    const struct record_cut_group *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* A damaged record does not make this allocate without bounds. */
static const uint32_t *cut_members(struct cut_source *s, const struct record_group *g)
{
    const uint32_t at = g->members_at & ~RECORD_RANGE;
    const uint64_t n = (uint64_t)g->members + g->nremote;
    *s->listed += n;
    if (*s->listed > RECORD_CUT_MEMBERS)
        return NULL;
    if (!(g->members_at & RECORD_RANGE))
        return at + n <= s->nmembers ? &s->members[at] : NULL;
    uint32_t *all = at + UINT64_C(2) <= s->nmembers ? arena_calloc(s->arena, n, sizeof *all) : NULL;
    for (uint32_t i = 0; all && i < n; i++)
        all[i] = s->members[at] + i * s->members[at + 1];
    return all;
}

/* The slots of one group, of its collectives and of its messages, are one group here. */
static void cut_merge_groups(struct record_cut *out)
{
    uint32_t n = 0;
    qsort(out->groups, out->ngroups, sizeof *out->groups, cut_by_id);
    for (uint32_t i = 0; i < out->ngroups; i++) {
        const struct record_cut_group *g = &out->groups[i];
        if (!n || out->groups[n - 1].id != g->id) {
            out->groups[n++] = *g;
            continue;
        }
        struct record_cut_group *same = &out->groups[n - 1];
        same->closed = same->closed && g->closed;
        same->unordered = same->unordered || g->unordered;
        same->called = same->called > g->called ? same->called : g->called;
    }
    out->ngroups = n;
}

/* Calls on the group return an error, here and soon at its other members: nothing is known of what
 * its messages and collectives still complete. */
static bool cut_has_failed(const struct record_group *g, uint32_t used)
{
    return used == RECORD_GROUP_OPEN && atomic_load_explicit(&g->status, memory_order_relaxed) != 0;
}

static void cut_add_groups(struct cut_source *s, struct record_cut *out)
{
    out->groups = arena_calloc(s->arena, s->ngroups, sizeof *out->groups);
    s->group_at = arena_calloc(s->arena, s->ngroups, sizeof *s->group_at);
    for (uint32_t i = 0; !arena_failed(s->arena) && i < s->ngroups; i++) {
        const struct record_group *g = &s->groups[i];
        const uint32_t used = atomic_load_explicit(&g->used, memory_order_relaxed);
        const bool failed = cut_has_failed(g, used);
        const bool closed = used == RECORD_GROUP_CLOSED || used == RECORD_GROUP_FORMED || failed;
        const bool known = closed || used == RECORD_GROUP_OPEN || used == RECORD_GROUP_FORMING;
        if (failed)
            out->lost |= RECORD_LOST_REQUESTS | RECORD_LOST_CHANNELS;
        const uint32_t *members = g->id && known ? cut_members(s, g) : NULL;
        if (!members)
            continue;
        struct record_cut_group *to = &out->groups[out->ngroups++];
        *to = (struct record_cut_group){.id = g->id,
                                        .closed = closed,
                                        .called =
                                            atomic_load_explicit(&g->called, memory_order_relaxed),
                                        .unordered = g->unordered == 1,
                                        .nmembers = g->members,
                                        .nremote = g->nremote,
                                        .members = members};
        memcpy(to->name, g->name, sizeof to->name - 1);
    }
    if (arena_failed(s->arena))
        return;
    cut_merge_groups(out);
    for (uint32_t i = 0; i < s->ngroups; i++) {
        const struct record_group *from = &s->groups[i];
        const struct record_cut_group *g = record_cut_group(out, from->id);
        const uint32_t used = atomic_load_explicit(&from->used, memory_order_relaxed);
        s->group_at[i] =
            g && !cut_has_failed(from, used) ? (uint32_t)(g - out->groups) : RECORD_CUT_NO_GROUP;
    }
}

const struct record_cut_group *record_cut_group(const struct record_cut *cut, uint64_t id)
{
    const struct record_cut_group key = {.id = id};
    return id && cut->ngroups ? bsearch(&key, cut->groups, cut->ngroups, sizeof key, cut_by_id)
                              : NULL;
}

/* A slot that was used again has another generation. `mask`: of the bits that are known. */
static uint32_t cut_group_of(const struct cut_source *s, uint32_t slot, uint32_t generation,
                             uint32_t mask)
{
    return slot < s->ngroups && (s->groups[slot].generation & mask) == generation
               ? s->group_at[slot]
               : RECORD_CUT_NO_GROUP;
}

/* ---- channels ---- */

static int cut_by_channel(const void *a, const void *b)
{
    const struct record_cut_channel *x = a, *y = b;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x->peer != y->peer)
        return x->peer < y->peer ? -1 : 1;
    if (x->folded != y->folded)
        return x->folded ? 1 : -1;
    return (x->tag > y->tag) - (x->tag < y->tag);
}

static void cut_add_channels(const struct cut_source *s, struct record_cut *out)
{
    out->channels = arena_calloc(s->arena, s->nchannels, sizeof *out->channels);
    for (uint32_t i = 0; out->channels && i < s->nchannels; i++) {
        const struct record_channel *c = &s->channels[i];
        const uint32_t group = cut_group_of(s, c->group, c->generation, UINT32_MAX);
        if (group != RECORD_CUT_NO_GROUP)
            out->channels[out->nchannels++] = (struct record_cut_channel){
                .group = group,
                .peer = c->peer,
                .tag = c->tag,
                .folded = c->folded == 1,
                .sent = atomic_load_explicit(&c->sent, memory_order_relaxed) +
                        atomic_load_explicit(&c->sent_by_others, memory_order_relaxed),
                .taken = atomic_load_explicit(&c->taken, memory_order_relaxed) +
                         atomic_load_explicit(&c->taken_by_others, memory_order_relaxed)};
    }
    if (out->nchannels)
        qsort(out->channels, out->nchannels, sizeof *out->channels, cut_by_channel);
}

/* ---- operations ---- */

/* The members from whom a v-form expects data; none, if its counts are not kept any more. */
static void cut_add_needs(const struct cut_source *s, const struct record_cut_group *g,
                          uint32_t own, struct record_cut_op *op)
{
    const struct record_view_op counted = {.counts = op->tag};
    const uint32_t most = g->nmembers < RECORD_COUNTS ? g->nmembers : RECORD_COUNTS;
    *s->listed += UINT64_C(5) * most; /* three arrays, in numbers of 4 bytes */
    if (*s->listed > RECORD_CUT_MEMBERS)
        return;
    struct record_view_counts counts = {.sent = arena_calloc(s->arena, most, sizeof(uint64_t)),
                                        .expected = arena_calloc(s->arena, most, sizeof(uint64_t))};
    uint32_t *needs = arena_calloc(s->arena, most, sizeof *needs);
    if (arena_failed(s->arena) || !record_view_counts(s->v, &counted, most, &counts))
        return;
    const bool all = op->kind == COLLRUN_REDUCE_SCATTERV;
    if (all && (own >= counts.nexpected || !counts.expected[own]))
        return;
    for (uint32_t i = 0; i < counts.nexpected; i++)
        if (all || counts.expected[i])
            needs[op->nneeds++] = g->members[i];
    op->needs = needs;
}

static struct record_cut_op cut_op(const struct cut_source *s, const struct record_cut *out,
                                   const struct record_op *from)
{
    struct record_cut_op op = {.state = RECORD_OPEN,
                               .kind = from->kind,
                               .flags = from->flags,
                               .dtype = from->dtype,
                               .op = from->op,
                               .group = cut_group_of(s, from->group, from->generation, UINT16_MAX),
                               .peer = from->peer,
                               .tag = from->tag,
                               .number = from->number,
                               .count = from->count};
    if (op.group != RECORD_CUT_NO_GROUP &&
        (collrun_kind_is_vector((enum collrun_kind)op.kind) || op.kind == RECORD_NEIGHBORS))
        cut_add_needs(s, &out->groups[op.group], s->groups[from->group].rank, &op);
    return op;
}

static struct record_cut_op cut_request(const struct cut_source *s, const struct record_cut *out,
                                        const struct record_request *r)
{
    struct record_cut_op op = cut_op(s, out, &r->op);
    op.state =
        (enum record_request_state)(atomic_load_explicit(&r->state, memory_order_relaxed) & 3);
    op.thread = r->thread;
    op.site = r->site;
    op.message = r->number;
    return op;
}

/* A request that was closed is complete. */
static struct record_cut_op cut_waited(const struct cut_source *s, const struct record_cut *out,
                                       uint32_t handle)
{
    const uint32_t slot = handle % RECORD_HANDLE_SLOT;
    const struct record_request *r = slot < s->nrequests ? &s->requests[slot] : NULL;
    if (!r ||
        atomic_load_explicit(&r->state, memory_order_relaxed) >> 2 != handle / RECORD_HANDLE_SLOT)
        return (struct record_cut_op){.state = RECORD_FREE, .group = RECORD_CUT_NO_GROUP};
    return cut_request(s, out, r);
}

static bool cut_is_receive(uint8_t kind)
{
    return kind == COLLRUN_RECV || kind == COLLRUN_RECV_ANY;
}

/* Open receives: of requests, and of the threads that are in a call. */
static void cut_add_receives(const struct cut_source *s, struct record_cut *out)
{
    const uint32_t most = s->nrequests + 2 * s->nthreads;
    out->receives = arena_calloc(s->arena, most, sizeof *out->receives);
    for (uint32_t i = 0; out->receives && i < s->nrequests; i++) {
        if (!cut_is_receive(s->requests[i].op.kind))
            continue;
        out->receives[out->nreceives] = cut_request(s, out, &s->requests[i]);
        out->nreceives += out->receives[out->nreceives].state != RECORD_FREE;
    }
    for (uint32_t i = 0; out->receives && i < s->nthreads; i++) {
        const struct record_thread *t = &s->threads[i];
        const bool inside = (s->words[i] & 3) == RECORD_INSIDE;
        for (uint32_t k = 0; inside && k < t->nops && k < 2; k++) {
            if (!cut_is_receive(t->ops[k].kind))
                continue;
            out->receives[out->nreceives] = cut_op(s, out, &t->ops[k]);
            out->receives[out->nreceives++].thread = (uint16_t)i;
        }
    }
}

/* ---- threads ---- */

static void cut_add_call(const struct cut_source *s, const struct record_cut *out, uint32_t number,
                         struct record_cut_thread *to)
{
    const struct record_thread *t = &s->threads[number];
    const uint32_t nops = t->nops < 2 ? t->nops : 2;
    const uint32_t nwaits = t->nwaits < RECORD_WAITS ? t->nwaits : RECORD_WAITS;
    struct record_cut_op *ops = arena_calloc(s->arena, nops + nwaits, sizeof *ops);
    for (uint32_t i = 0; ops && i < nops; i++) {
        ops[i] = cut_op(s, out, &t->ops[i]);
        ops[i].thread = (uint16_t)number;
        ops[i].site = t->site;
        ops[i].message = t->number;
    }
    for (uint32_t i = 0; ops && i < nwaits; i++)
        ops[nops + i] = cut_waited(s, out, s->waits[number * RECORD_WAITS + i]);
    to->ops = ops;
    to->nops = nops + nwaits;
    to->mode = t->mode <= RECORD_ANY ? (enum record_mode)t->mode : RECORD_NONE;
    to->cut = t->cut != 0;
    to->since_ns = record_view_ns(s->v, t->since);
    to->timeout_ns = t->deadline > t->since ? record_view_ns(s->v, t->deadline) - to->since_ns : 0;
    to->site = t->site;
}

static const struct record_task *cut_task(const struct record_survey *s, uint32_t tid)
{
    for (uint32_t i = 0; i < s->ntasks; i++)
        if (s->tasks[i].tid == tid)
            return &s->tasks[i];
    return NULL;
}

static bool cut_sleeps(const struct record_task *task)
{
    return task->state == RECORD_TASK_SLEEPS ||
           (task->state == RECORD_TASK_TIMED && !RECORD_RULE(TIMED_SLEEP_ACTS));
}

/* A thread that was woken, and has not run yet, has equal slices, but does not sleep any more. */
static bool cut_is_asleep(const struct cut_source *s, const struct record_task *now)
{
    const struct record_task *before = cut_task(&s->first, now->tid);
    if (!before || !cut_sleeps(before))
        return false;
    if (!RECORD_RULE(SLEEPERS_COMPARED))
        return true;
    return before->slices == now->slices && (cut_sleeps(now) || !RECORD_RULE(SLEEPS_AGAIN));
}

static uint32_t cut_number(const struct cut_source *s, uint32_t tid)
{
    for (uint32_t i = 1; i < s->nthreads; i++)
        if (atomic_load_explicit(&s->threads[i].tid, memory_order_relaxed) == tid)
            return i;
    return 0;
}

uint64_t record_cut_signals(const struct record_head *head, bool children)
{
    static const int synchronous[] = {SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                                      SIGABRT, SIGTRAP, SIGSYS, SIGPIPE};
    uint64_t mask = ~atomic_load_explicit(&head->harmless, memory_order_relaxed);
    for (size_t i = 0; i < sizeof synchronous / sizeof synchronous[0]; i++)
        mask &= ~(UINT64_C(1) << (synchronous[i] - 1));
    for (int sig = 32; sig < SIGRTMIN; sig++)
        mask &= ~(UINT64_C(1) << (sig - 1));
    return children ? mask : mask & ~(UINT64_C(1) << (SIGCHLD - 1));
}

static bool cut_is_interruptible(const struct cut_source *s)
{
    return (s->second.caught & record_cut_signals(cut_head(s), s->second.children)) &&
           RECORD_RULE(CAUGHT_SIGNALS);
}

static void cut_add_threads(const struct cut_source *s, struct record_cut *out)
{
    const uint32_t init = atomic_load_explicit(&cut_head(s)->init_thread, memory_order_relaxed);
    const bool funneled = init && atomic_load_explicit(&cut_head(s)->level, memory_order_relaxed) ==
                                      RECORD_LEVEL_FUNNELED;
    const bool interruptible = cut_is_interruptible(s);
    const bool callbacks = atomic_load_explicit(&cut_head(s)->callbacks, memory_order_relaxed);
    out->threads = arena_calloc(s->arena, s->second.ntasks, sizeof *out->threads);
    for (uint32_t i = 0; out->threads && i < s->second.ntasks; i++) {
        const struct record_task *task = &s->second.tasks[i];
        const uint32_t number = cut_number(s, task->tid);
        const bool inside = number && (s->words[number] & 3) == RECORD_INSIDE;
        if (!inside && (task->state == RECORD_TASK_INERT ||
                        record_is_library(cut_head(s), task->tid) || !RECORD_RULE(OUTSIDE_ACTS)))
            continue;
        struct record_cut_thread *t = &out->threads[out->nthreads++];
        *t = (struct record_cut_thread){.number = (uint16_t)number,
                                        .tid = task->tid,
                                        .word = number ? s->words[number] : 0,
                                        .calls = !funneled || task->tid == init};
        if (inside)
            cut_add_call(s, out, number, t);
        if (interruptible)
            t->role = RECORD_CUT_ACTOR;
        else if (inside)
            t->role = RECORD_CUT_BLOCKED;
        else
            t->role = !callbacks && cut_is_asleep(s, task) ? RECORD_CUT_ASLEEP : RECORD_CUT_ACTOR;
    }
}

/* ---- the cut ---- */

/* A thread that was killed while it left a call may have received a message that is not counted: a
 * send to this rank may be complete. */
static void cut_check_ended(const struct cut_source *s, struct record_cut *out)
{
    for (uint32_t i = 0; i < s->nthreads; i++)
        if (s->words[i] & 1)
            out->lost |= RECORD_LOST_REQUESTS;
}

bool record_cut_take(const struct record_view *v, bool ended, record_survey_fn *survey, void *ctx,
                     struct arena *arena, struct record_cut *out)
{
    uint64_t listed = 0;
    struct cut_source s = {.v = v, .arena = arena, .listed = &listed};
    *out = (struct record_cut){.state = RECORD_CUT_MOVING, .rank = v->head.rank};
    const struct record_head *head = cut_head(&s);
    const bool written = atomic_load_explicit(&head->epoch, memory_order_relaxed) != 0;
    /* A thread without a slot calls, and is not seen. */
    if (!cut_is_still(&s, ended, survey, ctx) || (s.lost & RECORD_LOST_THREADS) || !written)
        return !arena_failed(arena);
    out->tap = atomic_load_explicit(&head->tap, memory_order_relaxed);
    out->lost = s.lost;
    out->epoch = s.epoch;
    out->forgotten = atomic_load_explicit(&head->forgotten, memory_order_relaxed);
    for (uint32_t i = 0; i < s.nthreads; i++)
        out->takes += atomic_load_explicit(&s.threads[i].takes, memory_order_relaxed);
    cut_add_groups(&s, out);
    if (arena_failed(arena) || listed > RECORD_CUT_MEMBERS)
        return !arena_failed(arena);
    cut_add_channels(&s, out);
    cut_add_receives(&s, out);
    if (ended || s.finished) {
        out->state = RECORD_CUT_ENDED;
        cut_check_ended(&s, out);
    } else {
        out->state = RECORD_CUT_STILL;
        cut_add_threads(&s, out);
    }
    return !arena_failed(arena);
}
