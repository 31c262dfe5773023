/* SPDX-License-Identifier: Apache-2.0
 *
 * The stairs that the ranks climb together, and the time-outs for those who are late. frames.c
 * brings what the ranks say, hosts.c what becomes of the hosts, stop.c the way down.
 */
#include "launch/supervise.h"

#include "launch/muster.h"
#include "watch/deadlock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS 1000000000ull
/* Longer than this between two pulses, which come every second: nobody was there. */
#define STOPPED_NS (3 * SECOND_NS)
/* Beyond the grace time: for ranks to close their groups and to end, once all workloads are done.
 */
#define FINISH_NS (30 * SECOND_NS)

bool supervisor_over(const struct supervisor *s)
{
    for (uint32_t h = 0; h < s->desc->nhosts; h++) {
        if (!s->hosts[h].bye && !s->hosts[h].lost)
            return false;
    }
    return true;
}

void supervisor_end_if_over(struct supervisor *s)
{
    if (supervisor_over(s))
        loop_stop(s->loop);
}

/* ---- stairs ---- */

static void reach(struct supervisor *s, uint32_t rank, enum rank_stage stage)
{
    struct rank_state *r = &s->ranks[rank];
    while (r->stage < stage)
        s->at_least[++r->stage]++;
}

static void everybody_to(struct supervisor *s, enum rank_stage stage, uint16_t type)
{
    hosts_send_all(s, type, NULL, 0);
    for (uint32_t i = 0; i < s->desc->nranks; i++)
        reach(s, i, stage);
}

/* --verbose: when everybody has reached a stair. */
static void tell_stage(const struct supervisor *s, enum rank_stage stage)
{
    static const char *const words[] = {
        [STAGE_ATTACHED] = "all ranks have loaded their plugins",
        [STAGE_READY] = "all groups are formed, all workloads initialised: running",
        [STAGE_DONE] = "all foreground workloads are done",
        [STAGE_IDLE] = "all workloads have ended",
        [STAGE_FINISHING] = NULL,
    };
    if (s->options->verbose && words[stage])
        fprintf(s->options->report->out, "collrun: %.3f s: %s\n",
                (double)(now_ns() - s->live.begin_ns) / 1e9, words[stage]);
}

/* Everybody has reached this stair: on to the next. */
static void everybody_at(struct supervisor *s, enum rank_stage stage)
{
    tell_stage(s, stage);
    switch (stage) {
    case STAGE_READY:
        loop_timer_clear(s->loop, &s->start);
        if (s->job->timeouts.run.v)
            loop_timer_set(s->loop, &s->run, (uint64_t)s->job->timeouts.run.v);
        rundir_event(s->rundir, "running", NULL);
        everybody_to(s, STAGE_RUNNING, WIRE_GO);
        break;
    case STAGE_DONE:
        loop_timer_clear(s->loop, &s->run);
        loop_timer_set(s->loop, &s->finish, s->desc->grace_ns + FINISH_NS);
        hosts_send_all(s, WIRE_STOP_BACKGROUND, NULL, 0);
        break;
    case STAGE_IDLE:
        if (s->rundir)
            hosts_send_all(s, WIRE_LOOK, NULL,
                           0); /* the totals of the groups, while they are open */
        everybody_to(s, STAGE_FINISHING, WIRE_FINISH);
        break;
    default:
        break;
    }
}

void supervisor_advance(struct supervisor *s, uint32_t rank, enum rank_stage stage)
{
    if (s->ladder != LADDER_NONE)
        return;
    reach(s, rank, stage);
    while (s->everybody < STAGE_FINISHING && s->at_least[s->everybody + 1] == s->desc->nranks)
        everybody_at(s, ++s->everybody);
}

/* on_failure: continue. Those who share a group with the rank hear of it; for everybody else the
 * job goes on, and the rank counts as one that is done. */
static void go_on_without(struct supervisor *s, uint32_t rank, const char *sentence)
{
    struct buf b;
    buf_init(&b);
    buf_put_u32(&b, rank);
    buf_put_str(&b, sentence);
    hosts_send_all(s, WIRE_LOST, b.data, b.len);
    buf_fini(&b);
    supervisor_advance(s, rank, STAGE_FINISHING);
}

/* The first bad sign of a rank. */
void supervisor_sign(struct supervisor *s, uint32_t rank)
{
    struct rank_state *r = &s->ranks[rank];
    if (r->sign_ns)
        return;
    r->sign_ns = now_ns();
    r->sign_stage = r->stage;
    if (s->ladder != LADDER_NONE)
        return;
    struct verdict none = {.class = CAUSE_NONE, .rank = WIRE_HOST}, v;
    cause_find(s->desc, s->ranks, &none, 0, &v);
    if (s->everybody >= STAGE_RUNNING &&
        policy_action(&s->job->on_failure, &v) == JOB_ACTION_CONTINUE)
        go_on_without(s, rank, v.diag.text);
    else
        supervisor_stop(s, COLLRUN_ERR_PEER_FAILED, rank, v.diag.text);
}

/* ---- time ---- */

/* Who is behind, and with what: "rank 3 (loading its plugins)". Past the last stage: who has not
 * ended. */
static void name_late(const struct supervisor *s, enum rank_stage stage, char *out, size_t size)
{
    uint32_t n = 0, *list = calloc(s->desc->nranks, sizeof *list);
    const char *doing = "";
    for (uint32_t i = 0; list && i < s->desc->nranks; i++) {
        if (s->ranks[i].exited || s->ranks[i].stage >= stage)
            continue;
        doing = n ? doing : rank_stage_text(s->ranks[i].stage);
        list[n++] = i;
    }
    char ranks[200];
    ranks_format(ranks, sizeof ranks, list, n);
    snprintf(out, size, "rank%s %s (%s)", n == 1 ? "" : "s", ranks, doing);
    free(list);
}

static void time_out(struct supervisor *s, const char *what, struct job_num limit,
                     enum rank_stage stage)
{
    struct diag d;
    char late[256];
    muster_late(s, late, sizeof late);
    bool hosts = late[0];
    if (!hosts)
        name_late(s, stage, late, sizeof late);
    diag_set(&d, COLLRUN_ERR_TIMEOUT, "timeouts.%s: %.1f s are over; late: %s%s", what,
             (double)limit.v / 1e9, hosts ? "host " : "", late);
    d.loc = limit.loc;
    supervisor_trouble(s, CAUSE_TIMEOUT, 124, &d);
}

/* Takes note when this process itself was stopped (SIGSTOP, a frozen machine): no pulse for long.
 * What the hosts said meanwhile was not heard, so their silence does not count. */
void supervisor_note_stop(struct supervisor *s)
{
    uint64_t now = now_ns(), gap = now - s->pulse_ns;
    s->pulse_ns = now;
    if (gap <= STOPPED_NS)
        return;
    s->resumed_ns = now;
    s->stopped_ns = gap;
    for (uint32_t h = 0; h < s->desc->nhosts; h++)
        s->hosts[h].heard_ns = now;
}

/* A timer that fires because of such a stop waits until what has come meanwhile was read: that may
 * tell more. */
static bool was_stopped(struct supervisor *s, struct loop_timer *t)
{
    supervisor_note_stop(s);
    bool stopped = s->resumed_ns && now_ns() - s->resumed_ns < SECOND_NS;
    if (stopped)
        loop_timer_set(s->loop, t, SECOND_NS);
    return stopped;
}

static void on_start_over(struct loop_timer *t)
{
    struct supervisor *s = t->owner;
    if (was_stopped(s, t))
        return;
    time_out(s, "start", s->job->timeouts.start, STAGE_READY);
}

static void on_run_over(struct loop_timer *t)
{
    struct supervisor *s = t->owner;
    if (was_stopped(s, t))
        return;
    time_out(s, "run", s->job->timeouts.run, STAGE_DONE);
}

/* Nobody has anything left to do, so whoever is still there hangs. */
static void on_finish_over(struct loop_timer *t)
{
    struct supervisor *s = t->owner;
    struct diag d;
    char late[256];
    if (was_stopped(s, t))
        return;
    name_late(s, STAGE_FINISHING + 1, late, sizeof late);
    diag_set(&d, COLLRUN_ERR_TIMEOUT, "all workloads are done, but after %.1f s not all ranks: %s",
             (double)(s->desc->grace_ns + FINISH_NS) / 1e9, late);
    supervisor_trouble(s, CAUSE_TIMEOUT, 124, &d);
}

void supervisor_rearm_rendezvous(struct supervisor *s)
{
    uint64_t at = rdv_next_deadline(s->rdv), now = now_ns();
    if (at == UINT64_MAX)
        loop_timer_clear(s->loop, &s->rendezvous);
    else if (!s->rendezvous.at_ns || at < s->rendezvous.at_ns)
        loop_timer_set(s->loop, &s->rendezvous, at > now ? at - now : 0);
}

static void on_rendezvous_over(struct loop_timer *t)
{
    struct supervisor *s = t->owner;
    if (was_stopped(s, t))
        return;
    rdv_expire(s->rdv, now_ns());
    supervisor_rearm_rendezvous(s);
}

static void on_judgement(struct loop_timer *t)
{
    struct supervisor *s = t->owner;
    struct diag d;
    diag_init(&d);
    if (s->ladder == LADDER_NONE && deadlock_find(s->desc, s->ranks, false, &d))
        supervisor_trouble(s, CAUSE_STALL, 124, &d);
}

static void on_pulse(struct loop_timer *t)
{
    struct supervisor *s = t->owner;
    supervisor_note_stop(s);
    if (s->live.on)
        hosts_send_all(s, WIRE_LOOK, NULL, 0);
    loop_timer_set(s->loop, t, SECOND_NS);
    for (uint32_t h = 0; h < s->desc->nhosts; h++) {
        struct host *host = &s->hosts[h];
        if (host->greeted && !host->bye && !host->lost && conn_is_open(&host->conn))
            host_check(host, s->pulse_ns);
    }
}

/* ---- making it ---- */

static void send_store(void *ctx, const uint32_t *ranks, uint32_t n, uint16_t type,
                       const struct buf *payload)
{
    hosts_send_ranks(ctx, ranks, n, type, payload);
}

static void give_credit(void *ctx, uint32_t host, uint32_t bytes)
{
    struct supervisor *s = ctx;
    unsigned char payload[4];
    for (int i = 0; i < 4; i++)
        payload[i] = (unsigned char)(bytes >> (8 * i));
    if (conn_is_open(&s->hosts[host].conn))
        conn_send(&s->hosts[host].conn, WIRE_CREDIT, WIRE_HOST, s->desc->attempt, payload,
                  sizeof payload);
}

static void about_to_write(void *ctx)
{
    struct supervisor *s = ctx;
    live_wipe(&s->live);
}

static void has_written(void *ctx)
{
    struct supervisor *s = ctx;
    output_refund(s->output);
}

void supervisor_report_broken(const struct report *report, const char *which, int err)
{
    struct diag d;
    diag_sys(&d, err, "cannot write to %s, so what the ranks print there is lost", which);
    diag_hint(&d, "the job goes on");
    report_diag(report, &d);
}

/* A reader that is gone wants no more: the job ends, as a command in a pipe does. Anything else, a
 * full disk above all, costs the output but not the work. */
static void output_broken(void *ctx, const char *which, int err)
{
    struct supervisor *s = ctx;
    struct verdict v;
    if (err == EPIPE) {
        supervisor_reader_gone(&v);
        supervisor_trouble(s, v.class, v.exit_code, &v.diag);
        return;
    }
    supervisor_report_broken(s->options->report, which, err);
    s->output_lost = true;
}

int supervisor_init(struct supervisor *s, const struct attempt *a, struct diag *d)
{
    const struct desc *desc = a->desc;
    const struct console_hooks hooks = {
        .writing = about_to_write, .taken = has_written, .broken = output_broken, .ctx = s};
    *s = (struct supervisor){.job = a->job,
                             .desc = desc,
                             .options = a->options,
                             .console = a->console,
                             .rundir = a->rundir};
    s->trouble = (struct verdict){.class = CAUSE_NONE, .rank = WIRE_HOST};
    s->start = (struct loop_timer){.fired = on_start_over, .owner = s};
    s->run = (struct loop_timer){.fired = on_run_over, .owner = s};
    s->finish = (struct loop_timer){.fired = on_finish_over, .owner = s};
    s->rendezvous = (struct loop_timer){.fired = on_rendezvous_over, .owner = s};
    s->ladder_timer = (struct loop_timer){.fired = supervisor_on_ladder, .owner = s};
    s->state = (struct loop_timer){.fired = supervisor_on_state, .owner = s};
    s->judgement = (struct loop_timer){.fired = on_judgement, .owner = s};
    s->pulse = (struct loop_timer){.fired = on_pulse, .owner = s};
    arena_init(&s->arena);
    s->hosts = arena_calloc(&s->arena, desc->nhosts, sizeof *s->hosts);
    s->ranks = arena_calloc(&s->arena, desc->nranks, sizeof *s->ranks);
    s->loop = loop_new();
    s->rdv = rdv_new(desc, (struct rdv_output){.send = send_store, .ctx = s});
    s->output = output_new(s->console, s->job, desc,
                           (struct output_hooks){.credit = give_credit, .ctx = s});
    int live = s->loop ? live_init(&s->live, s->loop, desc, s->console, s->options->quiet)
                       : COLLRUN_ERR_NO_MEMORY;
    if (live != COLLRUN_OK || arena_failed(&s->arena) || !s->loop || !s->rdv || !s->output)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for the job");
    loop_timer_set(s->loop, &s->start, (uint64_t)s->job->timeouts.start.v);
    loop_timer_set(s->loop, &s->pulse, SECOND_NS);
    s->pulse_ns = now_ns();
    console_attach(s->console, s->loop, &hooks);
    return COLLRUN_OK;
}

void supervisor_fini(struct supervisor *s)
{
    if (s->options->verbose && s->hosts)
        hosts_tell_traffic(s);
    live_fini(&s->live);
    for (uint32_t h = 0; s->hosts && h < s->desc->nhosts; h++)
        conn_close(&s->hosts[h].conn);
    for (uint32_t i = 0; s->ranks && i < s->desc->nranks; i++) {
        seen_fini(&s->ranks[i].seen);
        waits_fini(&s->ranks[i].waits);
    }
    if (s->reach)
        muster_end(s);
    output_free(s->output);
    rdv_free(s->rdv);
    loop_free(s->loop);
    arena_fini(&s->arena);
}
