/* SPDX-License-Identifier: Apache-2.0 */
#include "run/stall_monitor.h"

#include "base/debug.h"
#include "base/wire_fields.h"
#include "diagnose/network_cut.h"
#include "run/run_state.h"

#include <stdlib.h>
#include <string.h>

#define SECOND_NS 1000000000ull
#define POLL_MIN_NS (SECOND_NS / 20)
#define POLL_MAX_NS (5 * SECOND_NS / 2)
#define LIVE_NS (2 * SECOND_NS)    /* the live line shows waits of this age */
#define PLACES_NS (SECOND_NS / 2)  /* so much longer the block waits for the places of calls */
#define REQUEST_NS (SECOND_NS / 2) /* and a request waits of this age */
enum { PASSED_MAX = 6 };

/* ---- episodes ---- */

/* Forgets the last report of an episode, and the evidence of the kernels: it explains no later
 * time-out. The report goes into result.json if the stall has passed. */
static void stall_monitor_end(struct stall_monitor *m, struct stall_episode *e)
{
    if (!e->report)
        return;
    e->passed += e->passed < PASSED_MAX;
    network_cut_forget(m->run->desc, m->run->ranks);
    json_object_set_new(e->report, "seconds", json_real((double)(now_ns() - e->since_ns) / 1e9));
    debug_log(DEBUG_PROOF, "the stall has passed after %.1f s, %u so far",
              (double)(now_ns() - e->since_ns) / 1e9, e->passed);
    rundir_event(m->run->rundir, "stall_passed",
                 json_pack("{s:O, s:O}", "group", json_object_get(e->report, "group"), "number",
                           json_object_get(e->report, "number")));
    trace_instant(m->run->trace, &(struct trace_instant){.rank = WIRE_HOST,
                                                         .name = "stall_passed",
                                                         .text = json_string_value(
                                                             json_object_get(e->report, "text"))});
    rundir_stall(m->run->rundir, e->report);
    e->report = NULL;
}

static struct stall_episode *stall_monitor_episode(struct stall_monitor *m,
                                                   const struct stall_wait *w)
{
    return stall_episodes_get(&m->episodes, w->op.scope, w->op.messages);
}

/* Compares what waits now with the episodes. True: one of them is due. */
static bool stall_monitor_update(struct stall_monitor *m, const struct stall *s, uint64_t now)
{
    bool due = false;
    for (struct stall_episode *e = m->episodes.first; e; e = e->next)
        e->present = false;
    for (uint32_t i = 0; i < s->nwaits; i++) {
        const struct stall_wait *w = &s->waits[i];
        struct stall_episode *e = stall_monitor_episode(m, w);
        if (!e || e->present)
            continue; /* an older wait of this group stands for it */
        if (e->number != w->op.started) {
            stall_monitor_end(m, e);
            e->number = w->op.started;
            e->report_ns = m->limit_ns << e->passed;
        }
        e->since_ns = w->since_ns;
        e->present = true;
        due = due || now - e->since_ns >= e->report_ns;
    }
    for (struct stall_episode *e = m->episodes.first; e; e = e->next) {
        if (!e->present) {
            stall_monitor_end(m, e);
            e->number = 0;
        }
    }
    return due;
}

/* After a report: the next one is due at twice the age. The report is kept with the wait that it is
 * about. */
static void stall_monitor_reported(struct stall_monitor *m, const struct stall *s, json_t *report,
                                   uint64_t now)
{
    for (struct stall_episode *e = m->episodes.first; e; e = e->next) {
        while (e->present && e->report_ns && e->report_ns <= now - e->since_ns)
            e->report_ns *= 2;
    }
    const struct stall_wait *about = s->nculprits ? stall_wait_for(s, s->culprits[0]) : NULL;
    struct stall_episode *e = stall_monitor_episode(m, about ? about : &s->waits[0]);
    if (!e) {
        json_decref(report);
        return;
    }
    json_decref(e->report);
    e->report = report;
}

/* ---- the block ---- */

static bool stall_monitor_find(struct stall_monitor *m, uint64_t least_ns, struct stall *s)
{
    liveness_check_pause(m->liveness);
    m->watch.resumed_ns = m->liveness->resumed_ns;
    return stall_find(&m->watch, m->run->ranks, now_ns(), least_ns, s);
}

static void stall_monitor_print(struct stall_monitor *m, const struct stall *s)
{
    uint64_t now = now_ns();
    const struct stall_report report = {
        .desc = m->run->desc, .ranks = m->run->ranks, .stall = s, .now_ns = now};
    FILE *out = m->run->options->report->out;
    if (!console_full(m->console) && (m->on_request || !m->run->options->quiet)) {
        if (!m->on_request)
            fprintf(out, "collrun: STALLED after %.1f s (timeouts.stall); the job continues\n",
                    (double)(now - s->waits[0].since_ns) / 1e9);
        stall_report_print(&report, out);
    }
    if (m->on_request)
        return;
    json_t *o = stall_report_json(&report);
    rundir_event(m->run->rundir, "stall", json_incref(o));
    trace_instant(m->run->trace,
                  &(struct trace_instant){.rank = WIRE_HOST,
                                          .name = "stall",
                                          .text = json_string_value(json_object_get(o, "text"))});
    stall_monitor_reported(m, s, o, now);
}

/* The STATUS of the ranks is newer than the request for STACKS. */
static void stall_monitor_finish(struct stall_monitor *m)
{
    struct stall s;
    loop_timer_clear(m->run->loop, &m->answers);
    m->asked = false;
    bool found = stall_monitor_find(m, m->on_request ? REQUEST_NS : m->limit_ns / 2, &s);
    bool due = !m->on_request && stall_monitor_update(m, &s, now_ns());
    debug_log(DEBUG_PROOF, "stall? %s, limit %.1f s%s", found ? "found" : "none",
              (double)m->limit_ns / 1e9,
              m->on_request ? ", asked for"
              : due         ? ", due"
                            : "");
    if (found && (due || m->on_request) && m->stop->step == STOP_NONE)
        stall_monitor_print(m, &s);
    m->on_request = false;
    stall_fini(&s);
}

static void stall_monitor_on_answers(struct loop_timer *t)
{
    stall_monitor_finish(t->owner);
}

/* The addresses in which the rank called what it waits in, of the waits that the block shows. */
static uint32_t stall_monitor_sites(const struct stall *s, uint32_t rank,
                                    struct wire_item_site sites[STALL_REPORT_WAITS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->nwaits && i < STALL_REPORT_WAITS; i++) {
        if (s->waits[i].site && s->waits[i].site_rank == rank)
            sites[n++].address = s->waits[i].site;
    }
    return n;
}

static void stall_monitor_put_ask(const struct stall_monitor *m, const struct stall *s,
                                  struct buf *b)
{
    struct wire_item_look looks[STALL_MONITOR_ASKED];
    struct wire_item_site sites[STALL_MONITOR_ASKED][STALL_REPORT_WAITS];
    for (uint32_t i = 0; i < m->nasked; i++)
        looks[i] = (struct wire_item_look){
            .rank = m->asked_ranks[i],
            .threads = i < m->nthreads,
            .sites = {sites[i], stall_monitor_sites(s, m->asked_ranks[i], sites[i])}};
    wire_put_read_stacks(b, &(struct wire_read_stacks){.ranks = {looks, m->nasked}});
}

/* First the ranks whose threads the block shows, then those whose calls it places. */
static void stall_monitor_ask(struct stall_monitor *m, const struct stall *s)
{
    struct buf b;
    m->asked = true;
    m->nthreads = m->nasked = stall_report_ranks(s, m->asked_ranks);
    for (uint32_t i = 0; i < s->nwaits && i < STALL_REPORT_WAITS; i++) {
        uint32_t rank = s->waits[i].site_rank;
        if (s->waits[i].site && !stall_has(m->asked_ranks, m->nasked, rank))
            m->asked_ranks[m->nasked++] = rank;
    }
    for (uint32_t i = 0; i < m->run->desc->nranks; i++)
        rank_forget_look(&m->run->ranks[i]);
    buf_init(&b);
    stall_monitor_put_ask(m, s, &b);
    hosts_send_all(m->run, WIRE_QUERY, NULL);
    hosts_send_all(m->run, WIRE_READ_STACKS, &b);
    buf_fini(&b);
    loop_timer_set(m->run->loop, &m->answers, STALL_MONITOR_ANSWER_NS);
}

static bool stall_monitor_has_answer(const struct stall_monitor *m, uint32_t rank)
{
    const struct rank_state *r = &m->run->ranks[rank];
    return r->stacks.received || r->end == RANK_EXITED;
}

void stall_monitor_on_stacks(struct stall_monitor *m)
{
    uint32_t answers = 0;
    while (answers < m->nasked && stall_monitor_has_answer(m, m->asked_ranks[answers]))
        answers++;
    if (m->asked && answers == m->nasked)
        stall_monitor_finish(m);
    else if (m->asked && answers >= m->nthreads && m->nthreads) {
        m->nthreads = 0;
        loop_timer_set(m->run->loop, &m->answers, PLACES_NS);
    }
}

void stall_monitor_request(struct stall_monitor *m)
{
    struct stall s;
    if (m->asked)
        return; /* a block is on its way */
    if (stall_monitor_find(m, REQUEST_NS, &s)) {
        m->on_request = true;
        stall_monitor_ask(m, &s);
    }
    stall_fini(&s);
}

/* ---- polling ---- */

static void stall_monitor_show(struct stall_monitor *m)
{
    char text[256] = "";
    struct stall s;
    if (stall_monitor_find(m, LIVE_NS, &s))
        stall_report_line(&s, text, sizeof text);
    stall_fini(&s);
    live_waits(m->live, text);
}

/* How long until the next look: a part of the limit, and not after an episode is due. */
static uint64_t stall_monitor_pause(const struct stall_monitor *m, uint64_t now)
{
    uint64_t pause = m->limit_ns / 4;
    pause = pause < POLL_MIN_NS ? POLL_MIN_NS : pause > POLL_MAX_NS ? POLL_MAX_NS : pause;
    if ((m->live->on || m->live->watched || !m->limit_ns) && pause > SECOND_NS)
        pause = SECOND_NS;
    for (const struct stall_episode *e = m->episodes.first; e; e = e->next) {
        uint64_t age = now - e->since_ns;
        if (e->present && age < e->report_ns && e->report_ns - age < pause)
            pause = e->report_ns - age;
    }
    return pause > POLL_MIN_NS ? pause : POLL_MIN_NS;
}

static void stall_monitor_on_poll(struct loop_timer *t)
{
    struct stall_monitor *m = t->owner;
    struct stall s;
    if (m->stop->step != STOP_NONE)
        return;
    stall_watch_phases(&m->watch, m->run->ranks, now_ns());
    if (m->live->on || m->live->watched)
        stall_monitor_show(m);
    bool found = m->limit_ns && stall_monitor_find(m, m->limit_ns / 2, &s);
    if (m->limit_ns && !m->asked && stall_monitor_update(m, &s, now_ns()) && found)
        stall_monitor_ask(m, &s);
    else
        hosts_send_all(m->run, WIRE_QUERY, NULL);
    if (m->limit_ns)
        stall_fini(&s);
    if (m->limit_ns || m->live->on || m->live->watched)
        loop_timer_set(m->run->loop, t, stall_monitor_pause(m, now_ns()));
}

void stall_monitor_on_status(struct stall_monitor *m, uint32_t rank)
{
    if (m->watch.ranks)
        stall_watch_update(&m->watch, rank, &m->run->ranks[rank].snapshot, now_ns());
}

void stall_monitor_start(struct stall_monitor *m)
{
    m->poll = (struct loop_timer){.fired = stall_monitor_on_poll, .owner = m};
    m->answers = (struct loop_timer){.fired = stall_monitor_on_answers, .owner = m};
    if (m->limit_ns || m->live->on)
        loop_timer_set(m->run->loop, &m->poll, stall_monitor_pause(m, now_ns()));
    stall_watch_init(&m->watch, m->run->desc);
}

void stall_monitor_watch(struct stall_monitor *m)
{
    if (m->watch.ranks)
        loop_timer_set(m->run->loop, &m->poll, POLL_MIN_NS);
}

void stall_monitor_pass(struct stall_monitor *m)
{
    for (struct stall_episode *e = m->episodes.first; e; e = e->next)
        stall_monitor_end(m, e);
}

void stall_monitor_fini(struct stall_monitor *m)
{
    for (struct stall_episode *e = m->episodes.first; e; e = e->next)
        json_decref(e->report);
    stall_episodes_fini(&m->episodes);
    stall_watch_fini(&m->watch);
}

/* ---- a last look ---- */

static void last_look_end(struct last_look *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        rank_set_doing(&l->run->ranks[l->ranks[i]]);
    l->step = LAST_LOOK_NONE;
    loop_timer_clear(l->run->loop, &l->timer);
    l->done(l->ctx);
}

/* ---- the stacks ---- */

/* No rank is waited for: the first ranks that have not finished are chosen. */
static void last_look_choose_unfinished(struct last_look *l)
{
    for (uint32_t i = 0; i < l->run->desc->nranks && l->n < STALL_REPORT_STACKS; i++) {
        const struct rank_state *r = &l->run->ranks[i];
        if (r->pid && r->end != RANK_EXITED && r->phase != PHASE_DONE && r->phase != PHASE_IDLE)
            l->ranks[l->n++] = i;
    }
}

/* A rank that has exceeded the time-out of its workload may be the one that hangs. */
static void last_look_choose(struct last_look *l)
{
    struct stall s;
    char inside[192];
    l->n = 0;
    stall_watch_phases(&l->stalls->watch, l->run->ranks, now_ns());
    if (stall_find(&l->stalls->watch, l->run->ranks, now_ns(), 0, &s))
        l->n = stall_report_ranks(&s, l->ranks);
    stall_fini(&s);
    for (uint32_t i = 0; i < l->run->desc->nranks && l->n < STALL_REPORT_STACKS; i++) {
        const struct rank_state *r = &l->run->ranks[i];
        if (r->failed && r->end != RANK_EXITED && r->failure.code == COLLRUN_ERR_TIMEOUT &&
            r->subject == WIRE_SUBJECT_WORKLOAD && !stall_has(l->ranks, l->n, i) &&
            !snapshot_inside(&r->snapshot, inside, sizeof inside))
            l->ranks[l->n++] = i;
    }
    if (!l->n)
        last_look_choose_unfinished(l);
}

static void last_look_take_stacks(struct last_look *l)
{
    struct wire_item_look looks[STALL_REPORT_STACKS];
    struct buf b;
    last_look_choose(l);
    if (!l->n) {
        last_look_end(l);
        return;
    }
    for (uint32_t i = 0; i < l->run->desc->nranks; i++)
        rank_forget_look(&l->run->ranks[i]);
    for (uint32_t i = 0; i < l->n; i++)
        looks[i] = (struct wire_item_look){.rank = l->ranks[i], .threads = 1};
    buf_init(&b);
    wire_put_read_stacks(&b, &(struct wire_read_stacks){.ranks = {looks, l->n}});
    hosts_send_all(l->run, WIRE_READ_STACKS, &b);
    buf_fini(&b);
    l->step = LAST_LOOK_STACKS;
    loop_timer_set(l->run->loop, &l->timer, LAST_LOOK_STACKS_NS);
}

void last_look_on_stacks(struct last_look *l)
{
    uint32_t answers = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        const struct rank_state *r = &l->run->ranks[l->ranks[i]];
        answers += r->stacks.received || r->end == RANK_EXITED;
    }
    if (l->step == LAST_LOOK_STACKS && answers == l->n)
        last_look_end(l);
}

/* ---- STATUS ---- */

void last_look_on_status(struct last_look *l, uint32_t rank)
{
    if (l->step != LAST_LOOK_STATUS || !l->asked[rank])
        return;
    l->asked[rank] = false;
    if (--l->nasked == 0)
        last_look_take_stacks(l);
}

static void last_look_on_timer(struct loop_timer *t)
{
    struct last_look *l = t->owner;
    if (l->step == LAST_LOOK_STATUS)
        last_look_take_stacks(l);
    else
        last_look_end(l);
}

void last_look_begin(struct last_look *l, void (*done)(void *ctx), void *ctx)
{
    if (!l->asked)
        l->asked = arena_calloc(&l->run->arena, l->run->desc->nranks, sizeof *l->asked);
    if (l->step != LAST_LOOK_NONE) {
        done(ctx);
        return;
    }
    l->done = done;
    l->ctx = ctx;
    l->step = LAST_LOOK_STATUS;
    l->n = l->nasked = 0;
    l->timer = (struct loop_timer){.fired = last_look_on_timer, .owner = l};
    for (uint32_t i = 0; i < l->run->desc->nranks; i++) {
        l->asked[i] = l->run->ranks[i].pid && l->run->ranks[i].end != RANK_EXITED;
        l->nasked += l->asked[i];
    }
    hosts_send_all(l->run, WIRE_QUERY, NULL);
    loop_timer_set(l->run->loop, &l->timer, l->nasked ? LAST_LOOK_ANSWER_NS : 0);
}

void last_look_cancel(struct last_look *l)
{
    if (l->step != LAST_LOOK_NONE)
        loop_timer_clear(l->run->loop, &l->timer);
    l->step = LAST_LOOK_NONE;
}
