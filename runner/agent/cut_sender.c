/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cut_sender.h"

#include "agent/agent.h"
#include "agent/rank.h"
#include "base/cut_frame.h"
#include "base/debug.h"
#include "base/wire_fields.h"

#include <stdlib.h>

#define MS_NS UINT64_C(1000000)

/* ---- one frame ---- */

struct cut_sender_frame {
    struct agent *agent;
    uint64_t look; /* the number that it answers; 0: none */
    uint32_t n;
    struct buf cuts;
};

static void cut_sender_begin(struct cut_sender_frame *f, struct agent *a, uint64_t look)
{
    *f = (struct cut_sender_frame){.agent = a, .look = look};
    buf_init(&f->cuts);
}

static void cut_sender_put(struct cut_sender_frame *f, uint64_t look)
{
    struct agent *a = f->agent;
    struct buf b;
    buf_init(&b);
    cut_frame_put(&b, &(struct cut_frame){.now_ns = now_ns(), .look = look, .n = f->n});
    buf_put_buf(&b, &f->cuts);
    conn_put_buf(&a->runner, WIRE_SNAPSHOT, WIRE_HOST, a->desc.attempt, &b);
    buf_fini(&b);
    buf_clear(&f->cuts);
    f->n = 0;
}

/* Many long cuts take several frames; the last one answers. */
static void cut_sender_add(struct cut_sender_frame *f, const struct buf *cut)
{
    buf_put_buf(&f->cuts, cut);
    f->n++;
    if (buf_pending(&f->cuts) > CUT_SENDER_FRAME)
        cut_sender_put(f, 0);
}

static void cut_sender_end(struct cut_sender_frame *f)
{
    if (f->n || f->look)
        cut_sender_put(f, f->look);
    buf_fini(&f->cuts);
    if (buf_pending(conn_out(&f->agent->runner)))
        conn_flush(&f->agent->runner);
}

/* ---- one rank ---- */

static const struct record_thread *cut_sender_threads(const struct rank_proc *p, uint32_t *n)
{
    const uint32_t used = atomic_load_explicit(&p->record->threads_used, memory_order_relaxed);
    *n = used < RECORD_THREADS ? used + 1 : RECORD_THREADS;
    return p->survey.threads;
}

/* Changes with each call of the rank, its epoch, its losses and its end. *waits: a thread is in
 * a call. */
static uint64_t cut_sender_sum(const struct rank_proc *p, bool *waits)
{
    const struct record_head *head = p->record;
    uint32_t n;
    const struct record_thread *threads = cut_sender_threads(p, &n);
    uint64_t sum = atomic_load_explicit(&head->finished, memory_order_relaxed) +
                   atomic_load_explicit(&head->lost, memory_order_relaxed) * UINT64_C(2) +
                   ((uint64_t)atomic_load_explicit(&head->epoch, memory_order_relaxed) << 40);
    *waits = false;
    for (uint32_t i = 1; i < n; i++) {
        const uint32_t word = atomic_load_explicit(&threads[i].word, memory_order_acquire);
        *waits = *waits || (word & 3) == RECORD_INSIDE;
        sum += (uint64_t)word << 5;
    }
    return sum;
}

static bool cut_sender_is_written(const struct rank_proc *p)
{
    return p->record &&
           atomic_load_explicit(&p->record->tap, memory_order_relaxed) != RECORD_TAP_NONE;
}

/* The hash is never 0, which stands for MOVING. The times are left out: the clock is calibrated
 * again for each cut, and the word of a thread differs for each call. */
static uint64_t cut_sender_hash(const struct record_cut *cut, struct arena *arena)
{
    struct record_cut same = *cut;
    struct buf b;
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    same.threads = arena_memdup(arena, cut->threads, cut->nthreads * sizeof *cut->threads);
    same.nthreads = same.threads ? cut->nthreads : 0;
    for (uint32_t i = 0; i < same.nthreads; i++)
        same.threads[i].since_ns = same.threads[i].timeout_ns = 0;
    buf_init(&b);
    cut_frame_put_cut(&b, &same);
    for (size_t i = 0; i < b.len; i++)
        hash = (hash ^ b.data[i]) * 1099511628211u;
    buf_fini(&b);
    return hash ? hash : 1;
}

/* A rank that writes at random may have filled its record with members that do not exist, for which
 * the runner would refuse the frame. */
static bool cut_sender_is_sane(const struct record_cut *cut, uint32_t nranks)
{
    for (uint32_t i = 0; i < cut->ngroups; i++) {
        const struct record_cut_group *g = &cut->groups[i];
        if (g->nmembers > nranks || g->nremote > nranks - g->nmembers)
            return false;
        for (uint32_t k = 0; k < g->nmembers + g->nremote; k++)
            if (g->members[k] >= nranks)
                return false;
    }
    return true;
}

/* True if the runner learns something by it: a thread waits, or none can act. *settled: nothing
 * changes until a word does. */
static bool cut_sender_is_of_use(const struct record_cut *cut, bool *settled)
{
    uint32_t blocked = 0, actors = 0;
    for (uint32_t i = 0; i < cut->nthreads; i++) {
        blocked += cut->threads[i].role == RECORD_CUT_BLOCKED;
        actors += cut->threads[i].role == RECORD_CUT_ACTOR;
    }
    *settled = cut->state == RECORD_CUT_ENDED || (cut->state == RECORD_CUT_STILL && !actors);
    return *settled || (cut->state == RECORD_CUT_STILL && blocked);
}

static void cut_sender_put_moving(struct cut_sender_rank *r, const struct rank_proc *p,
                                  struct cut_sender_frame *f)
{
    struct record_cut_thread words[RECORD_THREADS];
    uint32_t n;
    const struct record_thread *threads = cut_sender_threads(p, &n);
    struct record_cut cut = {.state = RECORD_CUT_MOVING, .rank = p->rank, .threads = words};
    for (uint32_t i = 1; i < n; i++)
        words[cut.nthreads++] = (struct record_cut_thread){
            .number = (uint16_t)i,
            .tid = atomic_load_explicit(&threads[i].tid, memory_order_relaxed),
            .word = atomic_load_explicit(&threads[i].word, memory_order_acquire)};
    struct buf b;
    buf_init(&b);
    cut_frame_put_cut(&b, &cut);
    cut_sender_add(f, &b);
    buf_fini(&b);
    r->sent = 0;
}

/* Sends the cut, unless the runner has it. */
static void cut_sender_put_cut(struct cut_sender_rank *r, const struct record_cut *cut,
                               bool settled, struct arena *arena, struct cut_sender_frame *f)
{
    const uint64_t hash = cut_sender_hash(cut, arena);
    if (hash != r->sent) {
        struct buf b;
        buf_init(&b);
        cut_frame_put_cut(&b, cut);
        debug_log(DEBUG_PROOF, "rank %u: cut: state %d, %u threads, %u channels, %zu bytes%s",
                  cut->rank, (int)cut->state, cut->nthreads, cut->nchannels, b.len,
                  settled ? "; settled" : "");
        cut_sender_add(f, &b);
        buf_fini(&b);
    }
    r->sent = hash;
}

/* After another program was executed, in a thread beside those in calls, the words of the old one
 * still stand, and nothing of it waits. */
static bool cut_sender_is_of_writer(const struct record_cut *cut, struct rank_proc *p)
{
    return cut->state == RECORD_CUT_ENDED || task_survey_writer_runs(&p->survey);
}

/* The rank is as the runner knows it, or is sent. Returns true if it is settled. */
static bool cut_sender_take(struct cut_sender_rank *r, struct rank_proc *p, bool ended,
                            struct cut_sender_frame *f)
{
    struct record_view v;
    struct record_cut cut;
    struct arena arena;
    bool settled = false;
    arena_init(&arena);
    record_calibrate(p->record);
    if (record_view_init(&v, p->record, p->record_len, NULL) == COLLRUN_OK &&
        record_cut_take(&v, ended, task_survey_take, &p->survey, &arena, &cut) &&
        cut_sender_is_sane(&cut, p->agent->desc.nranks) && cut_sender_is_of_use(&cut, &settled) &&
        cut_sender_is_of_writer(&cut, p)) {
        cut.rank = p->rank;
        cut_sender_put_cut(r, &cut, settled, &arena, f);
    } else {
        settled = false;
        if (r->sent)
            cut_sender_put_moving(r, p, f);
    }
    arena_fini(&arena);
    return settled;
}

/* True if the rank has gone on since the last look. */
static bool cut_sender_compare(struct cut_sender_rank *r, const struct rank_proc *p,
                               struct cut_sender_frame *f, bool *waits)
{
    const uint64_t sum = cut_sender_sum(p, waits);
    if (sum == r->sum)
        return false;
    r->sum = sum;
    r->state = CUT_SENDER_MOVING;
    if (r->sent)
        cut_sender_put_moving(r, p, f);
    return true;
}

static void cut_sender_look(struct cut_sender_rank *r, struct rank_proc *p, uint64_t now,
                            struct cut_sender_frame *f)
{
    bool waits;
    if (r->state == CUT_SENDER_ENDED || cut_sender_compare(r, p, f, &waits))
        return;
    if (r->state == CUT_SENDER_MOVING) {
        r->state = CUT_SENDER_STILL;
        /* Outside of calls, a thread mostly computes. */
        r->pause_ms = waits ? CUT_SENDER_MS : CUT_SENDER_MOST_MS;
        r->due_ns = waits ? now : now + CUT_SENDER_MOST_MS * MS_NS;
    }
    if (r->state != CUT_SENDER_STILL || now < r->due_ns ||
        buf_pending(conn_out(&p->agent->runner)) > CUT_SENDER_BACKLOG)
        return;
    if (cut_sender_take(r, p, false, f))
        r->state = CUT_SENDER_SETTLED;
    r->due_ns = now + r->pause_ms * MS_NS;
    r->pause_ms = r->pause_ms * 2 < CUT_SENDER_MOST_MS ? r->pause_ms * 2 : CUT_SENDER_MOST_MS;
}

/* ---- the ranks ---- */

static bool cut_sender_may_send(const struct agent *a)
{
    return conn_is_open(&a->runner) && !a->aborted && !a->stopping;
}

static void cut_sender_on_timer(struct loop_timer *t)
{
    struct cut_sender *s = t->owner;
    struct agent *a = s->agent;
    const uint64_t now = now_ns();
    struct cut_sender_frame f;
    if (!cut_sender_may_send(a))
        return;
    cut_sender_begin(&f, a, 0);
    for (uint32_t i = 0; i < a->nranks; i++)
        if (a->ranks[i].pid && !a->ranks[i].exited && cut_sender_is_written(&a->ranks[i]))
            cut_sender_look(&s->ranks[i], &a->ranks[i], now, &f);
    cut_sender_end(&f);
    if (a->nrunning)
        loop_timer_set(a->loop, t, CUT_SENDER_MS * MS_NS);
}

void cut_sender_on_look(struct cut_sender *s, const struct wire_frame *frame)
{
    struct agent *a = s->agent;
    struct wire_look look;
    struct cut_sender_frame f;
    bool waits;
    if (!s->agent || !wire_read_look(frame, NULL, &look))
        return;
    cut_sender_begin(&f, a, look.number);
    for (uint32_t i = 0; s->ranks && i < a->nranks; i++)
        if (a->ranks[i].pid && !a->ranks[i].exited && cut_sender_is_written(&a->ranks[i]))
            cut_sender_compare(&s->ranks[i], &a->ranks[i], &f, &waits);
    cut_sender_end(&f);
}

/* The process that writes may be a child of the rank's, and go on. */
void cut_sender_end_rank(struct cut_sender *s, struct rank_proc *p, bool well)
{
    struct agent *a = p->agent;
    struct cut_sender_frame f;
    if (!s->ranks || !cut_sender_may_send(a) || !cut_sender_is_written(p))
        return;
    struct cut_sender_rank *r = &s->ranks[p - a->ranks];
    cut_sender_begin(&f, a, 0);
    if (well && !task_survey_writer_runs(&p->survey))
        cut_sender_take(r, p, true, &f);
    else if (r->sent)
        cut_sender_put_moving(r, p, &f);
    r->state = CUT_SENDER_ENDED;
    cut_sender_end(&f);
}

void cut_sender_start(struct cut_sender *s, struct agent *a)
{
    *s = (struct cut_sender){.agent = a, .ranks = calloc(a->nranks, sizeof *s->ranks)};
    s->timer = (struct loop_timer){.fired = cut_sender_on_timer, .owner = s};
    if (s->ranks)
        loop_timer_set(a->loop, &s->timer, CUT_SENDER_MS * MS_NS);
}

void cut_sender_stop(struct cut_sender *s)
{
    if (s->agent && s->agent->loop)
        loop_timer_clear(s->agent->loop, &s->timer);
    free(s->ranks);
    s->ranks = NULL;
}
