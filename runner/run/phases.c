/* SPDX-License-Identifier: Apache-2.0 */
#include "run/phases.h"

#include "base/debug.h"
#include "base/exit_codes.h"
#include "base/parse.h"
#include "run/run_state.h"
#include "xalloc.h"

#include <stdio.h>
#include <stdlib.h>

#define SECOND_NS 1000000000ull
/* How long ranks may close their groups and exit, beyond timeouts.grace, once all workloads are
 * done. */
#define FINISH_NS (30 * SECOND_NS)

/* ---- advancing ---- */

static void phases_mark_done(struct phases *p, uint32_t rank)
{
    p->ndone += !p->done[rank];
    p->done[rank] = true;
}

static void phases_set(struct phases *p, uint32_t rank, enum rank_phase phase)
{
    struct rank_state *r = &p->run->ranks[rank];
    while (r->phase < phase)
        p->reached[++r->phase]++;
    if (phase >= PHASE_DONE)
        phases_mark_done(p, rank);
}

static void phases_send_on(struct phases *p, enum rank_phase phase, uint16_t type)
{
    hosts_send_all(p->run, type, NULL);
    for (uint32_t i = 0; i < p->run->desc->nranks; i++)
        phases_set(p, i, phase);
}

static void phases_set_limit(struct phases *p, struct loop_timer *t, uint64_t *due_ns,
                             uint64_t after_ns)
{
    *due_ns = deadline_after(liveness_now_ns(p->liveness), after_ns);
    loop_timer_set(p->run->loop, t, after_ns);
}

static void phases_log(const struct phases *p)
{
    static const char *const texts[] = {
        [PHASE_ATTACHED] = "all ranks have loaded their plugins",
        [PHASE_READY] = "all groups are formed and all workloads initialised: running",
        [PHASE_DONE] = "all foreground workloads are done",
        [PHASE_IDLE] = "all workloads have ended",
        [PHASE_FINISHING] = NULL,
    };
    if (texts[p->all_reached])
        run_state_log(p->run, texts[p->all_reached]);
}

static void phases_on_all_reached(struct phases *p)
{
    struct run_state *run = p->run;
    debug_log(DEBUG_RANK, "all %u ranks have reached phase %d", run->desc->nranks,
              (int)p->all_reached);
    phases_log(p);
    switch (p->all_reached) {
    case PHASE_SPAWNED:
        p->on_spawned(p->ctx);
        break;
    case PHASE_READY:
        loop_timer_clear(run->loop, &p->start);
        if (run->job->timeouts.run.v)
            phases_set_limit(p, &p->running, &p->running_due_ns,
                             (uint64_t)run->job->timeouts.run.v);
        if (run->job->timeouts.warn.before.v)
            phases_set_limit(
                p, &p->warn, &p->warn_due_ns,
                (uint64_t)(run->job->timeouts.run.v - run->job->timeouts.warn.before.v));
        rundir_event(run->rundir, "running", NULL);
        p->running_ns = now_ns();
        phases_send_on(p, PHASE_RUNNING, WIRE_GO);
        p->on_running(p->ctx);
        break;
    case PHASE_DONE:
        loop_timer_clear(run->loop, &p->running);
        loop_timer_clear(run->loop, &p->warn);
        phases_set_limit(p, &p->finish, &p->finish_due_ns, run->desc->grace_ns + FINISH_NS);
        break;
    case PHASE_IDLE:
        if (run->rundir) /* for the totals of the groups, while they are open */
            hosts_send_all(run, WIRE_QUERY, NULL);
        phases_send_on(p, PHASE_FINISHING, WIRE_FINISH);
        break;
    default:
        break;
    }
}

/* ---- background workloads ---- */

/* They end when all others are done. A program that waits in collrun_finalize for the rank of a
 * background workload is done, too: each would wait for the other. */
static void phases_stop_background(struct phases *p)
{
    if (p->ndone < p->run->desc->nranks || p->background_stopped)
        return;
    p->background_stopped = true;
    hosts_send_all(p->run, WIRE_STOP_BACKGROUND, NULL);
    p->on_done(p->ctx);
}

void phases_on_finalize(struct phases *p, uint32_t rank)
{
    if (!p->beside_background[rank] || p->stop->step != STOP_NONE)
        return;
    phases_mark_done(p, rank);
    phases_stop_background(p);
}

/* The members of each group in which a rank runs a background workload. */
static void phases_find_beside_background(const struct desc *desc, const bool *background,
                                          bool *beside)
{
    for (uint32_t g = 0; g < desc->ngroups; g++) {
        const struct desc_ranks *members = &desc->groups[g].ranks;
        bool any = false;
        for (uint32_t i = 0; i < members->n; i++)
            any = any || background[members->items[i]];
        for (uint32_t i = 0; any && i < members->n; i++)
            beside[members->items[i]] = true;
    }
}

static void phases_prepare_background(struct phases *p)
{
    const struct desc *desc = p->run->desc;
    bool *background = arena_calloc(&p->run->arena, desc->nranks, sizeof *background);
    p->done = arena_calloc(&p->run->arena, desc->nranks, sizeof *p->done);
    p->beside_background = arena_calloc(&p->run->arena, desc->nranks, sizeof *p->done);
    for (uint32_t w = 0; w < desc->nworkloads; w++) {
        const struct desc_ranks *ranks = &desc->workloads[w].ranks;
        for (uint32_t i = 0; desc->workloads[w].background && i < ranks->n; i++)
            background[ranks->items[i]] = true;
    }
    phases_find_beside_background(desc, background, p->beside_background);
}

/* ---- all ranks ---- */

void phases_advance(struct phases *p, uint32_t rank, enum rank_phase phase)
{
    if (p->stop->step != STOP_NONE)
        return;
    phases_set(p, rank, phase);
    phases_stop_background(p);
    while (p->all_reached < PHASE_FINISHING &&
           p->reached[p->all_reached + 1] == p->run->desc->nranks) {
        p->all_reached++;
        phases_on_all_reached(p);
    }
}

/* ---- limits ---- */

/* "rank 3 (loading its plugins)": the ranks that have not reached a phase. After the last phase:
 * those that have not exited. */
static void phases_late_text(const struct phases *p, enum rank_phase phase, char *out, size_t size)
{
    const struct run_state *run = p->run;
    uint32_t n = 0, *list = xcalloc(run->desc->nranks, sizeof *list);
    const char *doing = "";
    for (uint32_t i = 0; i < run->desc->nranks; i++) {
        if (run->ranks[i].end == RANK_EXITED || run->ranks[i].phase >= phase)
            continue;
        doing = n ? doing : rank_phase_text(&run->ranks[i], run->ranks[i].phase);
        list[n++] = i;
    }
    char ranks[200];
    rank_list_format(ranks, sizeof ranks, list, n);
    snprintf(out, size, "rank%s %s (%s)", n == 1 ? "" : "s", ranks, doing);
    free(list);
}

static void phases_on_looked(void *ctx)
{
    struct phases *p = ctx;
    if (p->all_reached < p->late_phase) /* else the ranks were late by less than the look took */
        stop_on_job_failure(p->stop, CAUSE_TIMEOUT, EXIT_TIMEOUT, &p->late);
}

static void phases_stop_late(struct phases *p, enum rank_phase phase, const struct diag *d)
{
    debug_log(DEBUG_STOP, "a limit has expired; looks at the late ranks first: %s", d->text);
    p->late = *d;
    p->late_phase = phase;
    last_look_begin(p->look, phases_on_looked, p);
}

/* "timeouts.run expired after 3.0 s; not finished: ranks 0-3 (running)" */
static void phases_fail_timeout(struct phases *p, const char *key, struct job_num limit,
                                enum rank_phase phase)
{
    struct diag d;
    char late[256];
    bring_up_missing_text(p->bring_up, late, sizeof late);
    bool hosts = late[0];
    if (!hosts)
        phases_late_text(p, phase, late, sizeof late);
    diag_set(&d, COLLRUN_ERR_TIMEOUT, "timeouts.%s expired after %.1f s; %s: %s%s", key,
             (double)limit.v / 1e9, phase == PHASE_READY ? "not ready" : "not finished",
             hosts ? "host " : "", late);
    d.loc = limit.loc;
    if (phase == PHASE_DONE && p->stop->job_failure.class == CAUSE_NONE)
        p->stop->job_failure.limit_ns = (uint64_t)limit.v;
    phases_stop_late(p, phase, &d);
}

static void phases_on_start_timeout(struct loop_timer *t)
{
    struct phases *p = t->owner;
    if (!liveness_postpone(p->liveness, t, p->start_due_ns))
        phases_fail_timeout(p, "start", p->run->job->timeouts.start, PHASE_READY);
}

static void phases_on_run_timeout(struct loop_timer *t)
{
    struct phases *p = t->owner;
    if (!liveness_postpone(p->liveness, t, p->running_due_ns))
        phases_fail_timeout(p, "run", p->run->job->timeouts.run, PHASE_DONE);
}

/* timeouts.warn: timeouts.run will have passed soon. */
static void phases_on_warn(struct loop_timer *t)
{
    struct phases *p = t->owner;
    const struct job_warn *warn = &p->run->job->timeouts.warn;
    char line[128];
    if (liveness_postpone(p->liveness, t, p->warn_due_ns))
        return;
    snprintf(line, sizeof line, "timeouts.warn: signal %d to all ranks, %.1f s before the end",
             (int)warn->signal.v, (double)warn->before.v / 1e9);
    run_state_log(p->run, line);
    rundir_event(p->run->rundir, "warn", NULL);
    hosts_send_warning(p->run, (int)warn->signal.v);
}

/* No workload runs any more, so a rank that has not exited hangs. */
static void phases_on_finish_timeout(struct loop_timer *t)
{
    struct phases *p = t->owner;
    struct diag d;
    char late[256];
    if (liveness_postpone(p->liveness, t, p->finish_due_ns))
        return;
    phases_late_text(p, PHASE_FINISHING + 1, late, sizeof late);
    diag_set(&d, COLLRUN_ERR_TIMEOUT, "all workloads are done, but %s did not exit within %.1f s",
             late, (double)(p->run->desc->grace_ns + FINISH_NS) / 1e9);
    phases_stop_late(p, PHASE_FINISHING + 1, &d);
}

void phases_clear_limits(struct phases *p)
{
    loop_timer_clear(p->run->loop, &p->start);
    loop_timer_clear(p->run->loop, &p->running);
    loop_timer_clear(p->run->loop, &p->warn);
    loop_timer_clear(p->run->loop, &p->finish);
}

void phases_start(struct phases *p)
{
    p->start = (struct loop_timer){.fired = phases_on_start_timeout, .owner = p};
    p->running = (struct loop_timer){.fired = phases_on_run_timeout, .owner = p};
    p->warn = (struct loop_timer){.fired = phases_on_warn, .owner = p};
    p->finish = (struct loop_timer){.fired = phases_on_finish_timeout, .owner = p};
    phases_set_limit(p, &p->start, &p->start_due_ns, (uint64_t)p->run->job->timeouts.start.v);
    phases_prepare_background(p);
}
