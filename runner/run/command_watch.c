/* SPDX-License-Identifier: Apache-2.0 */
#include "run/command_watch.h"

#include "base/exit_codes.h"
#include "base/parse.h"
#include "base/wire_fields.h"
#include "diagnose/cause.h"
#include "run/run_state.h"

#include <signal.h>
#include <stdio.h>

#define LEFT_NS 300000000ull /* after the exit of a member, and of a process of MPI */

void command_watch_on_phase(struct command_watch *c, uint32_t rank, const struct wire_frame *f)
{
    const uint16_t type = f->type;
    struct rank_state *state = &c->run->ranks[rank];
    const struct desc *desc = c->run->desc;
    if (type == WIRE_STARTED) {
        bool background = desc->workloads[desc_find_command(desc, rank)].background;
        phases_advance(c->phases, rank, background ? PHASE_DONE : PHASE_READY);
    }
    if (type == WIRE_ATTACHED)
        state->attached_ns = now_ns();
    if (type == WIRE_DONE) {
        struct wire_done done;
        phases_on_finalize(c->phases, rank);
        state->over = state->over || (wire_read_done(f, NULL, &done) && done.at_exit);
    }
    rank_advance_part(state, type == WIRE_ATTACHED ? PART_JOINING
                             : type == WIRE_READY  ? PART_MEMBER
                             : type == WIRE_DONE   ? PART_FINALIZING
                             : type == WIRE_IDLE   ? PART_FINALIZED
                                                   : PART_OUTSIDE);
}

/* ---- MPI ---- */

static const struct desc_ranks *command_watch_peers(const struct command_watch *c, uint32_t rank)
{
    const struct desc *desc = c->run->desc;
    return &desc->workloads[desc_find_command(desc, rank)].ranks;
}

static void command_watch_set_failure(struct command_watch *c, uint32_t rank, const struct diag *d)
{
    struct rank_state *state = &c->run->ranks[rank];
    rank_set_failure(state, FAILURE_REPORTED);
    state->failure = *d;
    state->subject = WIRE_SUBJECT_WORKLOAD;
    state->workload = desc_find_command(c->run->desc, rank);
    state->failure.loc = c->run->desc->workloads[state->workload].loc;
}

static void command_watch_set_left(struct command_watch *c, uint32_t rank)
{
    struct diag d;
    diag_set(&d, COLLRUN_ERR_ABORTED, "%s", c->run->ranks[rank].mpi_left);
    d.code = 1; /* as an exit code of the rank */
    diag_hint(&d, "the other ranks of MPI_COMM_WORLD may wait for it; MPI_Finalize ends its part");
    command_watch_set_failure(c, rank, &d);
    c->run->ranks[rank].failed_phase = WIRE_PHASE_RUN;
}

/* Ranks that all end without MPI_Finalize keep no other rank waiting. */
static bool command_watch_is_missed(const struct command_watch *c, uint32_t rank)
{
    const struct desc_ranks *peers = command_watch_peers(c, rank);
    for (uint32_t i = 0; i < peers->n; i++) {
        const struct rank_state *peer = &c->run->ranks[peers->items[i]];
        if (peer->end != RANK_EXITED && !peer->mpi_left)
            return true;
    }
    return false;
}

static void command_watch_judge_singletons(struct command_watch *c, uint32_t rank)
{
    const struct desc_ranks *peers = command_watch_peers(c, rank);
    struct diag d;
    uint32_t n = 0;
    for (uint32_t i = 0; i < peers->n; i++)
        n += c->run->ranks[peers->items[i]].singleton != NULL;
    if (n < 2 || c->stop->step != STOP_NONE)
        return;
    diag_set(
        &d, COLLRUN_ERR_UNSUPPORTED,
        "workload \"%.100s\" is a program of Open MPI (%.200s), in which each rank is rank 0 of 1",
        c->run->desc->workloads[desc_find_command(c->run->desc, rank)].name,
        c->run->ranks[rank].singleton);
    diag_hint(&d,
              "collrun serves PMI-1 of MPICH and Intel MPI, not PMIx: build it with one of these; "
              "ranks that are to be alone run `mpirun -n 1 PROGRAM`");
    for (uint32_t i = 0; i < peers->n; i++) {
        struct rank_state *peer = &c->run->ranks[peers->items[i]];
        if (!peer->singleton || peer->failed)
            continue;
        command_watch_set_failure(c, peers->items[i], &d);
        peer->failed_phase = WIRE_PHASE_LOAD;
    }
    c->failed(c->ctx, rank);
}

/* The message names all ranks, so it waits a moment for the others; not if one exits meanwhile. */
static void command_watch_on_singleton(struct command_watch *c, uint32_t rank, const char *library)
{
    const struct desc_ranks *peers = command_watch_peers(c, rank);
    bool all = true;
    c->run->ranks[rank].singleton = library;
    for (uint32_t i = 0; i < peers->n; i++)
        all = all && c->run->ranks[peers->items[i]].singleton;
    if (all)
        command_watch_judge_singletons(c, rank);
    else
        loop_timer_set(c->run->loop, &c->mpi, LEFT_NS);
}

static void command_watch_on_mpi_timer(struct loop_timer *t)
{
    struct command_watch *c = t->owner;
    for (uint32_t i = 0; i < c->run->desc->nranks; i++) {
        const struct rank_state *state = &c->run->ranks[i];
        if (state->failed || c->stop->step != STOP_NONE)
            continue;
        if (state->singleton)
            command_watch_judge_singletons(c, i);
        if (!state->mpi_left || !command_watch_is_missed(c, i))
            continue;
        command_watch_set_left(c, i);
        c->failed(c->ctx, i);
    }
}

bool command_watch_on_mpi(struct command_watch *c, const struct wire_frame *f)
{
    struct rank_state *state = &c->run->ranks[f->rank];
    struct wire_mpi_report m;
    if (!wire_read_mpi_report(f, &c->run->arena, &m) || !state->command)
        return false;
    if (m.what == WIRE_MPI_LEFT && c->stop->step == STOP_NONE) {
        state->mpi_left = m.text;
        loop_timer_set(c->run->loop, &c->mpi, LEFT_NS);
    } else if (m.what == WIRE_MPI_SINGLETON) {
        command_watch_on_singleton(c, f->rank, m.text);
    } else if (m.what == WIRE_MPI_NO_SPAWN && !c->run->options->quiet) {
        fprintf(
            c->run->options->report->out,
            "collrun: rank %u: warning: MPI_Comm_spawn fails: collrun starts no further ranks; a "
            "program of mpi4py.futures runs as `python3 -m mpi4py.futures PROGRAM`\n",
            f->rank);
    }
    return true;
}

/* ---- ranks that exit without collrun_finalize ---- */

static void command_watch_send_lost(struct command_watch *c, uint32_t rank)
{
    struct rank_state *state = &c->run->ranks[rank];
    char text[400];
    if (c->stop->step != STOP_NONE || !rank_advance_departure(state, DEPARTURE_SENT))
        return;
    int len = snprintf(text, sizeof text, "rank %u (%.100s, pid %d) ", rank,
                       c->run->desc->hosts[c->run->desc->ranks[rank].host].name, (int)state->pid);
    if (state->detached)
        snprintf(text + len, sizeof text - (size_t)len, "%s", state->detached);
    else
        snprintf(text + len, sizeof text - (size_t)len, "exited with code 0 without %s",
                 state->part != PART_OUTSIDE ? "collrun_finalize" : "collrun_init");
    struct buf b;
    buf_init(&b);
    wire_put_rank_lost(&b, &(struct wire_rank_lost){rank, text});
    hosts_send_all(c->run, WIRE_RANK_LOST, &b);
    buf_fini(&b);
}

void command_watch_on_detached(struct command_watch *c, uint32_t rank)
{
    if (c->run->ranks[rank].part != PART_FINALIZED)
        command_watch_send_lost(c, rank);
}

void command_watch_blame_detached(struct run_state *run, uint32_t rank)
{
    struct rank_state *r = &run->ranks[rank];
    const uint32_t command = desc_find_command(run->desc, rank);
    rank_set_failure(r, FAILURE_REPORTED);
    r->failed_phase = WIRE_PHASE_RUN;
    r->subject = WIRE_SUBJECT_WORKLOAD;
    r->workload = command < run->desc->nworkloads ? command : UINT32_MAX;
    diag_init(&r->failure);
    diag_set(&r->failure, EXIT_FAILED, "it %s while other ranks needed it", r->detached);
    diag_hint(&r->failure,
              "a rank keeps the descriptors of collrun, and executes other programs in "
              "children, until its part in the job has ended");
}

static bool command_watch_has_left(const struct rank_state *r)
{
    return r->command && r->end == RANK_EXITED && r->status == 0 && r->part != PART_FINALIZED;
}

static void command_watch_on_left(struct loop_timer *t)
{
    struct command_watch *c = t->owner;
    for (uint32_t i = 0; i < c->run->desc->nranks; i++)
        if (command_watch_has_left(&c->run->ranks[i]))
            command_watch_send_lost(c, i);
}

void command_watch_on_exit(struct command_watch *c, uint32_t rank)
{
    struct rank_state *state = &c->run->ranks[rank];
    if (state->singleton && !state->failed)
        command_watch_judge_singletons(c, rank);
    if (!state->command || (state->status != 0 && cause_of(state) != CAUSE_NONE))
        return;
    if (command_watch_has_left(state) && state->part == PART_OUTSIDE)
        command_watch_send_lost(c, rank);
    else if (command_watch_has_left(state) && !c->left.at_ns)
        loop_timer_set(c->run->loop, &c->left, LEFT_NS);
    phases_advance(c->phases, rank, PHASE_FINISHING);
}

static bool command_watch_share_group(const struct desc *desc, uint32_t a, uint32_t b)
{
    for (uint32_t g = 0; g < desc->ngroups; g++) {
        const struct desc_ranks *ranks = &desc->groups[g].ranks;
        unsigned found = 0;
        for (uint32_t i = 0; i < ranks->n; i++)
            found += ranks->items[i] == a || ranks->items[i] == b;
        if (found == 2)
            return true;
    }
    return false;
}

void command_watch_on_failure(struct command_watch *c, uint32_t rank)
{
    enum cause_class class = cause_of(&c->run->ranks[rank]);
    if (class != CAUSE_PEER && class != CAUSE_STOPPED)
        return;
    for (uint32_t i = 0; i < c->run->desc->nranks; i++) {
        struct rank_state *r = &c->run->ranks[i];
        if (r->mpi_left && !r->failed) {
            command_watch_set_left(c, i);
            r->first_failure_ns = now_ns();
            r->first_failure_phase = PHASE_RUNNING;
        }
        if (r->departure != DEPARTURE_SENT || r->failed ||
            !command_watch_share_group(c->run->desc, i, rank))
            continue;
        if (r->detached)
            command_watch_blame_detached(c->run, i);
        else
            rank_advance_departure(r, DEPARTURE_EARLY);
        r->first_failure_ns = r->detached ? c->run->ranks[rank].first_failure_ns : r->ended_ns;
        r->first_failure_phase = PHASE_RUNNING;
    }
}

void command_watch_start(struct command_watch *c)
{
    c->left = (struct loop_timer){.fired = command_watch_on_left, .owner = c};
    c->mpi = (struct loop_timer){.fired = command_watch_on_mpi_timer, .owner = c};
}

/* ---- limits ---- */

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
        for (size_t k = 0; c->run->ranks[i].end != RANK_EXITED && k < sizeof at / sizeof *at; k++)
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
    if (!rank_set_failure(state, FAILURE_OVERDUE))
        return;
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
        if (c->stop->step == STOP_NONE || c->run->ranks[i].part != PART_OUTSIDE)
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
        if (c->run->ranks[i].end == RANK_EXITED || c->stop->step != STOP_NONE)
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
        if (!state->command || state->end == RANK_EXITED ||
            !command_limits_workload(c, i)->background)
            continue;
        state->dismissed = true;
        c->ranks[i].kill_ns = deadline_after(now, grace);
        if (state->part != PART_OUTSIDE)
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
