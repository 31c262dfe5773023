/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens on each frame, and when time passes.
 */
#include "launch/supervise.h"

#include "launch/muster.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define SECOND_NS 1000000000ull
/* Of an agent that sends a heartbeat every second. On this machine only a stopped or starved agent
 * is silent, so there is time; a connection that is cut should be told of soon. */
#define LOCAL_SILENCE_NS (15 * SECOND_NS)
#define REMOTE_SILENCE_NS (4 * SECOND_NS - SECOND_NS / 4)
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

static void end_if_over(struct supervisor *s)
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
        fprintf(stderr, "collrun: %.3f s: %s\n", (double)(now_ns() - s->live.begin_ns) / 1e9,
                words[stage]);
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

static void advance(struct supervisor *s, uint32_t rank, enum rank_stage stage)
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
    advance(s, rank, STAGE_FINISHING);
}

/* The first bad sign of a rank. */
static void rank_sign(struct supervisor *s, uint32_t rank)
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

/* ---- frames ---- */

static void broken_frame(struct supervisor *s, const struct wire_frame *f)
{
    struct diag d;
    diag_set(&d, COLLRUN_ERR_INVALID, "rank %u sent a %s that cannot be read", f->rank,
             wire_type_name(f->type));
    supervisor_trouble(s, CAUSE_LAUNCH, 125, &d);
}

static void on_spawned(struct supervisor *s, const struct wire_frame *f)
{
    struct rank_state *state = &s->ranks[f->rank];
    struct reader r;
    reader_init(&r, f->payload, f->len);
    state->pid = (pid_t)read_u32(&r);
    state->started_ns = now_ns();
    if (state->pid) {
        advance(s, f->rank, STAGE_SPAWNED);
        rundir_event(s->rundir, "spawned",
                     json_pack("{s:i, s:i}", "rank", (int)f->rank, "pid", (int)state->pid));
        return;
    }
    state->failed = true;
    state->phase = WIRE_PHASE_LOAD;
    state->workload = UINT32_MAX;
    state->exited = true;
    state->status = 127 << 8;
    s->nexited++;
    wire_read_diag(&r, &s->arena, &state->failure);
    rank_sign(s, f->rank);
}

static void on_failed(struct supervisor *s, const struct wire_frame *f)
{
    struct rank_state *state = &s->ranks[f->rank];
    struct reader r;
    if (state->failed)
        return;
    reader_init(&r, f->payload, f->len);
    state->failed = true;
    state->workload = read_u32(&r);
    state->phase = (enum wire_phase)read_u32(&r);
    snprintf(state->group, sizeof state->group, "%s", read_str(&r, &s->arena));
    state->operation = read_u64(&r);
    wire_read_diag(&r, &s->arena, &state->failure);
    if (!state->failure.loc.line && strstr(state->failure.text, "hosts: workdir"))
        state->failure.loc = s->job->hosts.nodes[s->desc->ranks[f->rank].host].workdir.loc;
    rundir_event(s->rundir, "failed",
                 json_pack("{s:i, s:s}", "rank", (int)f->rank, "error", state->failure.text));
    rank_sign(s, f->rank);
}

static void on_exited(struct supervisor *s, const struct wire_frame *f)
{
    struct rank_state *state = &s->ranks[f->rank];
    struct reader r;
    reader_init(&r, f->payload, f->len);
    if (state->exited)
        return;
    state->exited = true;
    state->ended_ns = now_ns();
    state->status = (int)read_u32(&r);
    state->user_us = read_u64(&r);
    state->system_us = read_u64(&r);
    state->max_rss = read_u64(&r);
    snprintf(state->memory, sizeof state->memory, "%s", read_str(&r, &s->arena));
    s->nexited++;
    rundir_event(s->rundir, "exited",
                 json_pack("{s:i, s:i}", "rank", (int)f->rank, "status", state->status));
    if (cause_of(state) != CAUSE_NONE)
        rank_sign(s, f->rank);
    rdv_rank_gone(s->rdv, f->rank, "ended while the group was being formed");
}

static void on_seen(struct supervisor *s, const struct wire_frame *f)
{
    struct rank_state *state = &s->ranks[f->rank];
    if (state->seen_last)
        return;
    state->seen_last = s->ladder != LADDER_NONE;
    if (!seen_read(&state->seen, f))
        broken_frame(s, f);
    live_seen(&s->live, now_ns(), &state->seen);
}

static void on_progress(struct supervisor *s, const struct wire_frame *f)
{
    struct reader r;
    struct arena arena;
    arena_init(&arena);
    reader_init(&r, f->payload, f->len);
    uint32_t workload = read_u32(&r);
    uint64_t done = read_u64(&r), total = read_u64(&r);
    const char *what = read_str(&r, &arena);
    if (!r.bad)
        live_progress(&s->live, now_ns(), f->rank, workload, done, total, what);
    arena_fini(&arena);
}

static void on_metric(struct supervisor *s, const struct wire_frame *f)
{
    struct reader r;
    struct arena arena;
    double value;
    arena_init(&arena);
    reader_init(&r, f->payload, f->len);
    uint32_t workload = read_u32(&r);
    const char *name = read_str(&r, &arena);
    uint64_t bits = read_u64(&r);
    memcpy(&value, &bits, sizeof value);
    if (!r.bad)
        rundir_metric(s->rundir, f->rank, workload, name, value);
    arena_fini(&arena);
}

static void on_log(struct supervisor *s, const struct wire_frame *f)
{
    static const char *const levels[] = {"error", "warning", "info", "debug"};
    struct reader r;
    reader_init(&r, f->payload, f->len);
    uint8_t level = read_u8(&r);
    const char *text = read_str(&r, &s->arena);
    unsigned most = s->options->quiet     ? COLLRUN_LOG_ERROR
                    : s->options->verbose ? COLLRUN_LOG_DEBUG
                                          : COLLRUN_LOG_WARN;
    if (!r.bad && level <= most)
        output_say(s->output, "collrun: rank %u: %s: %s", f->rank, levels[level & 3], text);
}

static void rearm_rendezvous(struct supervisor *s)
{
    uint64_t at = rdv_next_deadline(s->rdv), now = now_ns();
    if (at == UINT64_MAX)
        loop_timer_clear(s->loop, &s->rendezvous);
    else if (!s->rendezvous.at_ns || at < s->rendezvous.at_ns)
        loop_timer_set(s->loop, &s->rendezvous, at > now ? at - now : 0);
}

static void on_store(struct supervisor *s, const struct wire_frame *f)
{
    struct diag d;
    diag_init(&d);
    if (s->ranks[f->rank].exited)
        return;
    if (rdv_frame(s->rdv, f, now_ns(), &d) != COLLRUN_OK)
        supervisor_trouble(s, CAUSE_LAUNCH, 125, &d);
    rearm_rendezvous(s);
}

static void on_output(struct supervisor *s, const struct wire_frame *f)
{
    struct reader r;
    reader_init(&r, f->payload, f->len);
    uint8_t stream = read_u8(&r);
    uint64_t realtime_ns = read_u64(&r);
    if (r.bad || (stream != 1 && stream != 2)) {
        broken_frame(s, f);
        return;
    }
    rundir_output(s->rundir, s->desc->attempt, f->rank, stream, f->payload + r.pos, f->len - r.pos);
    output_take(s->output, f->rank, stream, realtime_ns, f->payload + r.pos, f->len - r.pos);
}

static void on_rank_frame(struct supervisor *s, const struct wire_frame *f)
{
    switch (f->type) {
    case WIRE_SPAWNED:
        on_spawned(s, f);
        break;
    case WIRE_EXITED:
        on_exited(s, f);
        break;
    case WIRE_OUTPUT:
        on_output(s, f);
        break;
    case WIRE_ATTACHED:
        advance(s, f->rank, STAGE_ATTACHED);
        break;
    case WIRE_READY:
        advance(s, f->rank, STAGE_READY);
        break;
    case WIRE_DONE:
        advance(s, f->rank, STAGE_DONE);
        break;
    case WIRE_IDLE:
        advance(s, f->rank, STAGE_IDLE);
        break;
    case WIRE_FAILED:
        on_failed(s, f);
        break;
    case WIRE_LOG:
        on_log(s, f);
        break;
    case WIRE_JOIN:
    case WIRE_PUT:
    case WIRE_GET:
    case WIRE_FENCE:
    case WIRE_LEAVE:
        on_store(s, f);
        break;
    case WIRE_SEEN:
        on_seen(s, f);
        break;
    case WIRE_PROGRESS:
        on_progress(s, f);
        break;
    case WIRE_METRIC:
        on_metric(s, f);
        break;
    default:
        break;
    }
    s->live.up = s->at_least[STAGE_SPAWNED] - s->nexited;
}

static void on_bye(struct host *host)
{
    struct supervisor *s = host->run;
    host->bye = true;
    for (uint32_t i = 0; i < s->desc->nranks; i++) {
        if (s->desc->ranks[i].host == host->index)
            output_end_rank(s->output, i);
    }
    conn_close(&host->conn);
    end_if_over(s);
}

static void on_host_frame(struct conn *c, const struct wire_frame *f)
{
    struct host *host = c->owner;
    struct supervisor *s = host->run;
    struct diag d;
    struct reader r;
    host->heard_ns = now_ns();
    if (f->rank != WIRE_HOST) {
        if (host->greeted && f->rank < s->desc->nranks &&
            s->desc->ranks[f->rank].host == host->index)
            on_rank_frame(s, f);
        return;
    }
    switch (f->type) {
    case WIRE_HELLO:
        muster_hello(host, f);
        break;
    case WIRE_BYE:
        on_bye(host);
        break;
    case WIRE_TROUBLE:
        reader_init(&r, f->payload, f->len);
        wire_read_diag(&r, &s->arena, &d);
        if (strstr(d.text, "network.interface"))
            d.loc = s->job->interface.loc;
        diag_wrap(&d, "host %s", s->desc->hosts[host->index].name);
        supervisor_trouble(s, CAUSE_LAUNCH, d.loc.line ? 2 : 125, &d);
        break;
    default:
        break;
    }
}

/* ---- hosts ---- */

static void host_lost(struct host *host, const char *how)
{
    if (!host->has_job) {
        muster_lost(host, how);
        return;
    }
    struct supervisor *s = host->run;
    struct diag d;
    char ranks[128];
    uint32_t n = 0, *list = calloc(s->desc->nranks, sizeof *list);
    host->lost = true;
    conn_close(&host->conn);
    for (uint32_t i = 0; i < s->desc->nranks; i++) {
        if (s->desc->ranks[i].host != host->index)
            continue;
        if (list)
            list[n++] = i;
        output_end_rank(s->output, i);
        rdv_rank_gone(s->rdv, i, "was lost with its host");
    }
    ranks_format(ranks, sizeof ranks, list, n);
    free(list);
    diag_set(&d, COLLRUN_ERR_PEER_FAILED, "host %s lost, with rank%s %s: %s",
             s->desc->hosts[host->index].name, n == 1 ? "" : "s", ranks, how);
    if (s->ladder < LADDER_QUIT)
        supervisor_trouble(s, CAUSE_HOST_LOST, 127, &d);
    end_if_over(s);
}

/* The process that carried the stream tells more than the stream; it is ending right now. */
static void describe_end(struct host *host, const struct diag *why, char *how, size_t size)
{
    const struct supervisor *s = host->run;
    int status = host->pid_status;
    bool remote = reach_is_remote(s->reach, host->index);
    if (remote && s->stopped_ns > RUNNER_SILENCE_MS * 1000000ull &&
        now_ns() - s->resumed_ns < 5 * SECOND_NS) {
        snprintf(how, size, "collrun itself was stopped for %.0f s, so its agent there gave it up",
                 (double)s->stopped_ns / 1e9);
        return;
    }
    if (remote && reach_why(s->reach, host->index, how, size))
        return;
    if (host->pid && waitpid(host->pid, &status, WNOHANG) == host->pid)
        host->pid = 0;
    if (why->code)
        snprintf(how, size, "%.200s", why->text);
    else if (!host->pid && WIFSIGNALED(status))
        snprintf(how, size, "its collrun-agent was killed by signal %d (SIG%s)", WTERMSIG(status),
                 sigabbrev_np(WTERMSIG(status)));
    else if (!host->pid)
        snprintf(how, size, "its collrun-agent exited with code %d", WEXITSTATUS(status));
    else
        snprintf(how, size, "its collrun-agent closed the connection");
}

static void on_host_closed(struct conn *c, const struct diag *why)
{
    struct host *host = c->owner;
    char how[400];
    describe_end(host, why, how, sizeof how);
    host_lost(host, how);
}

void supervisor_child_ended(struct supervisor *s, pid_t pid, int status)
{
    if (s->reach)
        reach_child_ended(s->reach, pid, status);
    for (uint32_t h = 0; h < s->desc->nhosts; h++) {
        if (s->hosts[h].pid == pid) {
            s->hosts[h].pid = 0;
            s->hosts[h].pid_status = status;
        }
    }
}

int supervisor_add_host(struct supervisor *s, uint32_t index, int read_fd, int write_fd, pid_t pid,
                        struct diag *d)
{
    struct host *host = &s->hosts[index];
    host->run = s;
    host->index = index;
    host->pid = pid;
    host->heard_ns = now_ns();
    host->conn.frame = on_host_frame;
    host->conn.on_closed = on_host_closed;
    host->conn.owner = host;
    return conn_open(&host->conn, s->loop, read_fd, write_fd, d);
}

void supervisor_tell_alive(struct host *host, uint32_t limit_ms)
{
    struct buf b;
    buf_init(&b);
    buf_put_u32(&b, limit_ms);
    if (conn_is_open(&host->conn))
        conn_send(&host->conn, WIRE_ALIVE, WIRE_HOST, host->run->desc->attempt, b.data, b.len);
    buf_fini(&b);
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

/* A timer that fires because this process itself was stopped (SIGSTOP, a frozen machine) waits
 * until what has come meanwhile was read: that may tell more. */
static bool was_stopped(struct supervisor *s, struct loop_timer *t)
{
    uint64_t now = now_ns();
    bool stopped =
        s->pulse_ns && (now - s->pulse_ns > STOPPED_NS || now - s->resumed_ns < SECOND_NS);
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

static void on_rendezvous_over(struct loop_timer *t)
{
    struct supervisor *s = t->owner;
    if (was_stopped(s, t))
        return;
    rdv_expire(s->rdv, now_ns());
    rearm_rendezvous(s);
}

static void check_host(struct host *host, uint64_t now)
{
    struct supervisor *s = host->run;
    bool remote = reach_is_remote(s->reach, host->index);
    uint64_t silence = now - host->heard_ns;
    char how[160];
    if (silence > (remote ? REMOTE_SILENCE_NS : LOCAL_SILENCE_NS)) {
        snprintf(how, sizeof how, "no sign of life for %.0f s%s", (double)silence / 1e9,
                 remote ? " (the connection is cut, or the host is frozen or overloaded)"
                        : " from its collrun-agent");
        host_lost(host, how);
    } else if (remote) {
        supervisor_tell_alive(host, RUNNER_SILENCE_MS);
    }
}

static void on_pulse(struct loop_timer *t)
{
    struct supervisor *s = t->owner;
    uint64_t now = now_ns(), gap = s->pulse_ns ? now - s->pulse_ns : 0;
    s->pulse_ns = now;
    if (gap > STOPPED_NS) {
        s->resumed_ns = now;
        s->stopped_ns = gap;
    }
    if (s->live.on)
        hosts_send_all(s, WIRE_LOOK, NULL, 0);
    loop_timer_set(s->loop, t, SECOND_NS);
    for (uint32_t h = 0; h < s->desc->nhosts; h++) {
        struct host *host = &s->hosts[h];
        if (gap > STOPPED_NS)
            host->heard_ns = now; /* nobody was there to listen */
        if (host->greeted && !host->bye && !host->lost && conn_is_open(&host->conn))
            check_host(host, now);
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

/* A reader that is gone wants no more: the job ends, as a command in a pipe does. Anything else, a
 * full disk above all, costs the output but not the work. */
static void output_broken(void *ctx, const char *which, int err)
{
    struct supervisor *s = ctx;
    struct diag d;
    if (err == EPIPE) {
        diag_set(&d, COLLRUN_ERR_ABORTED, "nobody reads the job's output any more");
        supervisor_trouble(s, CAUSE_INTERRUPTED, 128 + SIGPIPE, &d);
        return;
    }
    diag_sys(&d, err, "cannot write to %s, so what the ranks print there is lost", which);
    diag_hint(&d, "the job goes on");
    report_diag(s->options->report, &d);
    s->output_lost = true;
}

int supervisor_init(struct supervisor *s, const struct job *job, const struct desc *desc,
                    const struct launch_options *options, struct rundir *rundir, struct diag *d)
{
    *s = (struct supervisor){.job = job, .desc = desc, .options = options, .rundir = rundir};
    s->trouble = (struct verdict){.class = CAUSE_NONE, .rank = WIRE_HOST};
    s->start = (struct loop_timer){.fired = on_start_over, .owner = s};
    s->run = (struct loop_timer){.fired = on_run_over, .owner = s};
    s->finish = (struct loop_timer){.fired = on_finish_over, .owner = s};
    s->rendezvous = (struct loop_timer){.fired = on_rendezvous_over, .owner = s};
    s->ladder_timer = (struct loop_timer){.fired = supervisor_on_ladder, .owner = s};
    s->state = (struct loop_timer){.fired = supervisor_on_state, .owner = s};
    s->pulse = (struct loop_timer){.fired = on_pulse, .owner = s};
    arena_init(&s->arena);
    s->hosts = arena_calloc(&s->arena, desc->nhosts, sizeof *s->hosts);
    s->ranks = arena_calloc(&s->arena, desc->nranks, sizeof *s->ranks);
    s->loop = loop_new();
    s->rdv = rdv_new(desc, (struct rdv_output){.send = send_store, .ctx = s});
    s->output = s->loop ? output_new(s->loop, job, desc,
                                     (struct output_hooks){.credit = give_credit,
                                                           .writing = about_to_write,
                                                           .broken = output_broken,
                                                           .ctx = s})
                        : NULL;
    int live = s->loop ? live_init(&s->live, s->loop, desc, stderr, options->quiet)
                       : COLLRUN_ERR_NO_MEMORY;
    if (live != COLLRUN_OK || arena_failed(&s->arena) || !s->loop || !s->rdv || !s->output)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for the job");
    loop_timer_set(s->loop, &s->start, (uint64_t)job->timeouts.start.v);
    loop_timer_set(s->loop, &s->pulse, SECOND_NS);
    return COLLRUN_OK;
}

void supervisor_fini(struct supervisor *s)
{
    for (uint32_t h = 0; s->hosts && h < s->desc->nhosts; h++)
        conn_close(&s->hosts[h].conn);
    for (uint32_t i = 0; s->ranks && i < s->desc->nranks; i++)
        seen_fini(&s->ranks[i].seen);
    if (s->reach)
        muster_end(s);
    live_fini(&s->live);
    output_free(s->output);
    rdv_free(s->rdv);
    loop_free(s->loop);
    arena_fini(&s->arena);
}
