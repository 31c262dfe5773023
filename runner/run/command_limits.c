/* SPDX-License-Identifier: Apache-2.0 */
#include "run/command_limits.h"

#include "base/parse.h"
#include "base/wire_fields.h"
#include "run/hosts.h"

#include <signal.h>

static const struct desc_workload *command_limits_workload(const struct command_limits *c,
                                                           uint32_t rank)
{
    return &c->run->desc->workloads[desc_find_command(c->run->desc, rank)];
}

static void command_limits_signal(struct command_limits *c, uint32_t rank, int sig)
{
    struct buf b;
    buf_init(&b);
    wire_put_signal(&b, &(struct wire_signal){.signal = (uint32_t)sig});
    hosts_send_ranks(c->run, &rank, 1, WIRE_SIGNAL, &b);
    buf_fini(&b);
}

static void command_limits_term(struct command_limits *c, uint32_t rank)
{
    c->ranks[rank].term_ns = 0;
    command_limits_signal(c, rank, SIGTERM);
    command_limits_signal(c, rank, SIGCONT);
}

/* ---- the first limit ---- */

/* UINT64_MAX: there is none. */
static uint64_t command_limits_first(const struct command_limits *c)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t i = 0; i < c->run->desc->nranks; i++) {
        const struct command_limit *l = &c->ranks[i];
        const uint64_t at[] = {l->timeout_ns, l->term_ns, l->kill_ns};
        for (size_t k = 0; !c->run->ranks[i].exited && k < sizeof at / sizeof *at; k++)
            first = at[k] && at[k] < first ? at[k] : first;
    }
    return first;
}

static void command_limits_set_timer(struct command_limits *c)
{
    const uint64_t first = command_limits_first(c), now = liveness_now_ns(c->liveness);
    if (first < UINT64_MAX)
        loop_timer_set(c->run->loop, &c->timer, first > now ? first - now : 0);
}

/* ---- limits that have passed ---- */

static void command_limits_fail(struct command_limits *c, uint32_t rank, const struct diag *d)
{
    struct rank_state *state = &c->run->ranks[rank];
    if (state->failed)
        return;
    state->failed = state->overdue = true;
    state->failure = *d;
    state->failure.loc = command_limits_workload(c, rank)->loc;
    state->failed_phase = WIRE_PHASE_RUN;
    state->subject = WIRE_SUBJECT_WORKLOAD;
    state->workload = desc_find_command(c->run->desc, rank);
    c->failed(c->ctx, rank);
}

static void command_limits_on_timeout(struct command_limits *c, uint32_t rank)
{
    const struct desc_workload *w = command_limits_workload(c, rank);
    struct diag d;
    char limit[32];
    diag_set(&d, COLLRUN_ERR_TIMEOUT, "workload \"%s\" exceeded its time-out of %s", w->name,
             format_duration(w->timeout_ns, limit));
    c->ranks[rank].timeout_ns = 0;
    c->ranks[rank].overdue = true;
    command_limits_fail(c, rank, &d);
}

void command_limits_on_looked(struct command_limits *c)
{
    const uint64_t kill_ns = deadline_after(liveness_now_ns(c->liveness), c->run->desc->grace_ns);
    for (uint32_t i = 0; i < c->run->desc->nranks; i++) {
        if (!c->ranks[i].overdue)
            continue;
        c->ranks[i].overdue = false;
        if (c->run->ranks[i].dismissed) {
            command_limits_signal(c, i, SIGKILL);
            continue;
        }
        c->ranks[i].kill_ns = kill_ns;
        /* Where the job stops, the agents have sent SIGTERM to all programs but members. */
        if (c->stop->step == STOP_NONE || c->run->ranks[i].member)
            command_limits_term(c, i);
    }
    if (c->stop->step == STOP_NONE)
        command_limits_set_timer(c);
}

static void command_limits_on_kill(struct command_limits *c, uint32_t rank)
{
    const struct desc_workload *w = command_limits_workload(c, rank);
    struct diag d;
    char grace[32];
    diag_set(&d, COLLRUN_ERR_TIMEOUT, "background workload \"%s\" did not stop within %s", w->name,
             format_duration(c->run->desc->grace_ns, grace));
    diag_hint(&d, "it should exit soon after SIGTERM");
    c->ranks[rank].kill_ns = 0;
    if (c->run->ranks[rank].failed) {
        command_limits_signal(c, rank, SIGKILL);
        return;
    }
    c->ranks[rank].overdue = true;
    command_limits_fail(c, rank, &d);
}

static void command_limits_on_timer(struct loop_timer *t)
{
    struct command_limits *c = t->owner;
    if (liveness_postpone(c->liveness, t, command_limits_first(c)))
        return;
    for (uint32_t i = 0; i < c->run->desc->nranks; i++) {
        const struct command_limit *l = &c->ranks[i];
        const uint64_t now = liveness_now_ns(c->liveness);
        if (c->run->ranks[i].exited || c->stop->step != STOP_NONE)
            continue;
        if (l->timeout_ns && now >= l->timeout_ns)
            command_limits_on_timeout(c, i);
        if (l->term_ns && now >= l->term_ns)
            command_limits_term(c, i);
        if (l->kill_ns && now >= l->kill_ns)
            command_limits_on_kill(c, i);
    }
    if (c->stop->step == STOP_NONE)
        command_limits_set_timer(c);
}

/* ---- limits that begin ---- */

void command_limits_on_started(struct command_limits *c, uint32_t rank)
{
    uint64_t limit = command_limits_workload(c, rank)->timeout_ns;
    if (!limit)
        return;
    c->ranks[rank].timeout_ns = deadline_after(liveness_now_ns(c->liveness), limit);
    command_limits_set_timer(c);
}

void command_limits_stop_background(struct command_limits *c)
{
    uint64_t grace = c->run->desc->grace_ns, now = liveness_now_ns(c->liveness);
    for (uint32_t i = 0; i < c->run->desc->nranks; i++) {
        struct rank_state *state = &c->run->ranks[i];
        if (!state->command || state->exited || !command_limits_workload(c, i)->background)
            continue;
        state->dismissed = true;
        c->ranks[i].kill_ns = deadline_after(now, grace);
        if (state->member)
            c->ranks[i].term_ns = deadline_after(now, grace / 2);
        else
            command_limits_term(c, i);
    }
    command_limits_set_timer(c);
}

void command_limits_start(struct command_limits *c)
{
    c->timer = (struct loop_timer){.fired = command_limits_on_timer, .owner = c};
    c->ranks = arena_calloc(&c->run->arena, c->run->desc->nranks, sizeof *c->ranks);
}
