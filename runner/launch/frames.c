/* SPDX-License-Identifier: Apache-2.0
 *
 * What comes from the hosts, frame by frame: stages, exits and failures of ranks, their output and
 * what they report, requests to the store, and the agents' own words. A frame in the name of a
 * rank that is not its sender's is dropped; one that cannot be read ends the job.
 */
#include "launch/supervise.h"

#include "launch/muster.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define SETTLE_NS 100000000ull

static void broken_frame(struct supervisor *s, const struct wire_frame *f)
{
    struct diag d;
    diag_set(&d, COLLRUN_ERR_INVALID, "rank %u sent a %s that cannot be read", f->rank,
             wire_type_name(f->type));
    supervisor_trouble(s, CAUSE_LAUNCH, 125, &d);
}

/* Whether two lists "GPU-a,GPU-b" have an entry in common, which then is *gpu. */
static bool share_gpu(const char *a, const char *b, const char **gpu, int *len)
{
    for (*gpu = a; **gpu; *gpu += **gpu == ',') {
        *len = (int)strcspn(*gpu, ",");
        for (const char *at = b; *at; at += *at == ',') {
            int other = (int)strcspn(at, ",");
            if (other == *len && !strncmp(*gpu, at, (size_t)other))
                return true;
            at += other;
        }
        *gpu += *len;
    }
    return false;
}

/* The plan knows this machine's GPUs only: two hosts may be one machine. */
static void check_gpus(struct supervisor *s, const struct desc_group *group, uint32_t rank)
{
    const char *mine = s->ranks[rank].gpus, *gpu;
    struct diag_loc asked = s->desc->hosts[s->desc->ranks[rank].host].gpus_loc;
    bool member = false;
    int len;
    for (uint32_t i = 0; i < group->ranks.n; i++)
        member = member || group->ranks.items[i] == rank;
    for (uint32_t i = 0; member && i < group->ranks.n; i++) {
        uint32_t other = group->ranks.items[i];
        struct diag d;
        if (other == rank || !s->ranks[other].gpus ||
            !share_gpu(mine, s->ranks[other].gpus, &gpu, &len))
            continue;
        diag_at(&d, group->loc.line ? group->loc : asked,
                "groups.%s: ranks %u (%s) and %u (%s) are both on %.*s", group->name, other,
                s->desc->hosts[s->desc->ranks[other].host].name, rank,
                s->desc->hosts[s->desc->ranks[rank].host].name, len, gpu);
        diag_hint(&d, "every member of this group needs a GPU of its own");
        supervisor_trouble(s, CAUSE_LAUNCH, 2, &d);
        return;
    }
}

static void on_spawned(struct supervisor *s, const struct wire_frame *f)
{
    struct rank_state *state = &s->ranks[f->rank];
    struct reader r;
    reader_init(&r, f->payload, f->len);
    state->pid = (pid_t)read_u32(&r);
    state->started_ns = now_ns();
    if (state->pid) {
        state->gpus = read_str(&r, &s->arena);
        for (uint32_t i = 0; *state->gpus && i < s->desc->ngroups; i++)
            if (s->desc->groups[i].own_gpus)
                check_gpus(s, &s->desc->groups[i], f->rank);
        supervisor_advance(s, f->rank, STAGE_SPAWNED);
        rundir_rank(s->rundir, s->desc->attempt, f->rank);
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
    supervisor_sign(s, f->rank);
}

/* Where the job file says what a host could not do. */
static void place(const struct supervisor *s, uint32_t host, struct diag *d)
{
    if (d->loc.line)
        return;
    if (strncmp(d->text, "workdir ", 8) == 0)
        d->loc = s->job->hosts.nodes[host].workdir.loc;
    else if (strncmp(d->text, "network.interface", 17) == 0)
        d->loc = s->job->interface.loc;
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
    place(s, s->desc->ranks[f->rank].host, &state->failure);
    rundir_event(s->rundir, "failed",
                 json_pack("{s:i, s:s}", "rank", (int)f->rank, "error", state->failure.text));
    supervisor_sign(s, f->rank);
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
    if (++s->nexited == s->desc->nranks)
        output_take_rest(s->output);
    bool killed = WIFSIGNALED(state->status);
    rundir_event(s->rundir, "exited",
                 json_pack("{s:i, s:i}", "rank", (int)f->rank, killed ? "signal" : "exit_code",
                           killed ? WTERMSIG(state->status) : WEXITSTATUS(state->status)));
    if (cause_of(state) != CAUSE_NONE)
        supervisor_sign(s, f->rank);
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

/* Others will speak at nearly the same time: they are judged together. */
static void on_waits(struct supervisor *s, const struct wire_frame *f)
{
    if (!waits_read(&s->ranks[f->rank].waits, f))
        broken_frame(s, f);
    else if (!s->judgement.at_ns)
        loop_timer_set(s->loop, &s->judgement, SETTLE_NS);
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

static void on_store(struct supervisor *s, const struct wire_frame *f)
{
    struct diag d;
    diag_init(&d);
    if (s->ranks[f->rank].exited)
        return;
    if (rdv_frame(s->rdv, f, now_ns(), &d) != COLLRUN_OK)
        supervisor_trouble(s, CAUSE_LAUNCH, 125, &d);
    supervisor_rearm_rendezvous(s);
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
        supervisor_advance(s, f->rank, STAGE_ATTACHED);
        break;
    case WIRE_READY:
        supervisor_advance(s, f->rank, STAGE_READY);
        break;
    case WIRE_DONE:
        supervisor_advance(s, f->rank, STAGE_DONE);
        break;
    case WIRE_IDLE:
        supervisor_advance(s, f->rank, STAGE_IDLE);
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
    case WIRE_WAITS:
        on_waits(s, f);
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
    supervisor_end_if_over(s);
}

void supervisor_on_frame(struct conn *c, const struct wire_frame *f)
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
        place(s, host->index, &d);
        diag_wrap(&d, "host %s", s->desc->hosts[host->index].name);
        supervisor_trouble(s, CAUSE_LAUNCH, d.loc.line ? 2 : 125, &d);
        break;
    default:
        break;
    }
}
