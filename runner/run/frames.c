/* SPDX-License-Identifier: Apache-2.0 */
#include "run/frames.h"

#include "base/debug.h"
#include "base/exit_codes.h"
#include "base/wire_fields.h"
#include "connect/agent_log.h"
#include "diagnose/deadlock.h"
#include "diagnose/mismatch.h"
#include "diagnose/network_cut.h"
#include "diagnose/policy.h"
#include "report/json_value.h"
#include "run/run_state.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* Ranks of one deadlock report their waits at nearly the same time, and are judged together a
 * moment later; at most a tenth of the time is spent on that. */
#define DEADLOCK_PAUSE_NS 10000000ull
#define DEADLOCK_SHARE 10
/* The time for the other members to call a collective that differs. */
#define MISMATCH_LOOK_NS 50000000ull
#define MISMATCH_WAIT_NS 1000000000ull
/* After a proof, the other ranks have so long to show who is to blame: two more wait reports. */
#define DEADLOCK_SETTLE_NS 250000000ull
/* The ranks of a program make the same mistakes. */
enum { WARNINGS_SHOWN = 16 };

/* ---- failures of ranks ---- */

/* on_failure: continue. Ranks that share a group with the lost one are notified; for all others the
 * job continues, and the lost rank counts as done. */
static void frames_continue_without(struct frames *s, uint32_t rank, const char *text)
{
    struct buf b;
    buf_init(&b);
    wire_put_rank_lost(&b, &(struct wire_rank_lost){rank, text});
    hosts_send_all(s->run, WIRE_RANK_LOST, &b);
    buf_fini(&b);
    s->run->ranks[rank].left_out = true;
    phases_advance(s->phases, rank, PHASE_FINISHING);
}

static void frames_stop_for(struct frames *s, uint32_t rank)
{
    struct evidence e = {s->run->desc, s->run->ranks, {.class = CAUSE_NONE}};
    struct verdict v;
    struct arena arena;
    arena_init(&arena);
    verdict_find(&e, &arena, &v);
    debug_log(DEBUG_PROOF,
              "verdict after the failure of rank %u: class %s, rank %d, exit code %d: %s", rank,
              cause_class_name(v.class), (int)v.rank, v.exit_code, v.diag.text);
    if (s->phases->all_reached >= PHASE_RUNNING &&
        policy_action(&s->run->job->on_failure, &v) == JOB_ACTION_CONTINUE)
        frames_continue_without(s, rank, v.diag.text);
    else
        stop_begin(s->stop, COLLRUN_ERR_PEER_FAILED, rank, v.diag.text);
    arena_fini(&arena);
}

/* Decides about rank `first`, and about those that have failed since, if the job continues
 * without them. */
static void frames_stop_since(struct frames *s, uint32_t first)
{
    const struct rank_state *ranks = s->run->ranks;
    uint64_t since_ns = ranks[first].first_failure_ns;
    if (s->stop->step == STOP_NONE)
        frames_stop_for(s, first);
    for (uint32_t i = 0; i < s->run->desc->nranks && s->stop->step == STOP_NONE; i++) {
        if (ranks[i].first_failure_ns >= since_ns && ranks[i].phase != PHASE_FINISHING)
            frames_stop_for(s, i);
    }
}

/* As far as is known: every member has called the collective about which two disagree, or will not.
 * What a rank calls after the group has failed is not in its record. */
static bool frames_members_have_called(const struct frames *s)
{
    const struct rank_state *first = &s->run->ranks[s->mismatch_rank];
    for (uint32_t i = 0; i < s->run->desc->nranks; i++) {
        const struct rank_state *r = &s->run->ranks[i];
        if (r->first_failure_ns || r->end != RANK_LIVES || rank_has_ended(r))
            continue;
        if (!r->snapshot.known ||
            (snapshot_has_group(&r->snapshot, first->group) &&
             !snapshot_has_called(&r->snapshot, first->group, first->operation)))
            return false;
    }
    return true;
}

/* The next look at the calls of the members comes with the timer. */
static void frames_look_for_calls(struct frames *s)
{
    hosts_send_all(s->run, WIRE_QUERY, NULL);
    loop_timer_set(s->run->loop, &s->mismatch_timer, MISMATCH_LOOK_NS);
}

/* Two ranks disagree about a collective that others may not have called yet. What
 * fails meanwhile because of that changes nothing; any other failure stops the job at once. */
static bool frames_await_calls(struct frames *s, uint32_t rank)
{
    const struct rank_state *r = &s->run->ranks[rank];
    enum cause_class class = cause_of(r);
    bool awaits = s->mismatch_timer.at_ns != 0;
    if (awaits && (class == CAUSE_MISMATCH || class == CAUSE_PEER || class == CAUSE_STOPPED))
        return true;
    if (awaits || class != CAUSE_MISMATCH || !mismatch_is_partial(s->run->desc, r))
        return false;
    debug_log(DEBUG_PROOF, "rank %u disagrees; waits %d ms for calls of other ranks", rank,
              (int)(MISMATCH_WAIT_NS / 1000000));
    s->mismatch_rank = rank;
    frames_look_for_calls(s);
    return true;
}

static void frames_on_mismatch_timer(struct loop_timer *t)
{
    struct frames *s = t->owner;
    const uint64_t since_ns = s->run->ranks[s->mismatch_rank].first_failure_ns;
    if (s->stop->step == STOP_NONE && now_ns() - since_ns < MISMATCH_WAIT_NS &&
        !frames_members_have_called(s))
        frames_look_for_calls(s);
    else
        frames_stop_since(s, s->mismatch_rank);
}

static void frames_on_looked(void *ctx)
{
    struct frames *s = ctx;
    frames_stop_since(s, s->late_rank);
    command_limits_on_looked(s->limits);
    if (s->stop->step != STOP_NONE)
        return;
    for (uint32_t i = 0; i < s->run->desc->nranks; i++)
        s->run->ranks[i].snapshot_final = false; /* the job continues */
}

/* A time-out: first, a look at the ranks that are late. What fails meanwhile because of the
 * time-out changes nothing; any other failure stops the job at once. */
static bool frames_look_first(struct frames *s, uint32_t rank)
{
    enum cause_class class = cause_of(&s->run->ranks[rank]);
    if (s->look->step != LAST_LOOK_NONE && class >= CAUSE_MISSING)
        return true;
    last_look_cancel(s->look);
    if (class != CAUSE_TIMEOUT)
        return false;
    s->late_rank = rank;
    debug_log(DEBUG_PROOF, "rank %u has timed out; looks at the late ranks first", rank);
    last_look_begin(s->look, frames_on_looked, s);
    return true;
}

/* The first sign that a rank has failed. */
static void frames_rank_failed(struct frames *s, uint32_t rank)
{
    struct rank_state *r = &s->run->ranks[rank];
    if (r->first_failure_ns)
        return;
    r->first_failure_ns = now_ns();
    r->first_failure_phase = r->phase;
    debug_log(DEBUG_STOP, "rank %u has failed in phase %d, class %s, wait status %d: %s", rank,
              (int)r->phase, cause_class_name(cause_of(r)), r->status, r->failure.text);
    trace_instant(s->run->trace, &(struct trace_instant){.rank = rank,
                                                         .name = "failed",
                                                         .key = "class",
                                                         .value = cause_class_name(cause_of(r)),
                                                         .text = r->failure.text});
    if (s->stop->step != STOP_NONE)
        return;
    command_watch_on_failure(s->commands, rank);
    if (!frames_await_calls(s, rank) && !frames_look_first(s, rank))
        frames_stop_for(s, rank);
}

void frames_fail_rank(struct frames *s, uint32_t rank)
{
    rundir_event(s->run->rundir, "failed",
                 json_pack("{s:i, s:o}", "rank", (int)rank, "error",
                           json_value_text(s->run->ranks[rank].failure.text)));
    frames_rank_failed(s, rank);
}

/* ---- timers ---- */

static void frames_set_rendezvous_timer(struct frames *s)
{
    uint64_t at = rdv_next_deadline(s->rdv), now = liveness_now_ns(s->liveness);
    if (at == UINT64_MAX)
        loop_timer_clear(s->run->loop, &s->rendezvous_timer);
    else if (!s->rendezvous_timer.at_ns || at < s->rendezvous_timer.at_ns)
        loop_timer_set(s->run->loop, &s->rendezvous_timer, at > now ? at - now : 0);
}

static void frames_on_rendezvous_timer(struct loop_timer *t)
{
    struct frames *s = t->owner;
    if (liveness_postpone(s->liveness, t, rdv_next_deadline(s->rdv)))
        return;
    rdv_expire(s->rdv, liveness_now_ns(s->liveness));
    frames_set_rendezvous_timer(s);
}

/* The SIGINT of timeouts.warn raises KeyboardInterrupt in Python, whose default handler is
 * otherwise taken for harmless (engine/core/signals.h). */
static bool frames_warn_interrupts(const struct frames *s)
{
    const struct job_warn *warn = &s->run->job->timeouts.warn;
    return warn->before.v && warn->signal.v == SIGINT;
}

static void frames_end_deadlock(struct frames *s, const struct deadlock *found)
{
    proof_watch_compare(s->proof_watch, &found->waits);
    stop_on_job_failure(s->stop, CAUSE_DEADLOCK, EXIT_TIMEOUT, &found->diag);
}

static void frames_on_deadlock_timer(struct loop_timer *t)
{
    struct frames *s = t->owner;
    struct deadlock found;
    struct arena arena;
    uint64_t begin = now_ns();
    arena_init(&arena);
    bool is = s->stop->step == STOP_NONE && !frames_warn_interrupts(s) &&
              deadlock_find(s->run->desc, s->run->ranks, false, &arena, &found);
    debug_log(DEBUG_PROOF, "deadlock? %s%s%s", is ? "proven: " : "not proven",
              is ? found.diag.text : "", is && !found.settled ? " (not settled)" : "");
    if (!is)
        s->deadlock_ns = 0;
    else if (!s->deadlock_ns)
        s->deadlock_ns = begin;
    if (is && (found.settled || begin - s->deadlock_ns >= DEADLOCK_SETTLE_NS))
        frames_end_deadlock(s, &found);
    else if (is)
        loop_timer_set(s->run->loop, t, s->deadlock_ns + DEADLOCK_SETTLE_NS - begin);
    arena_fini(&arena);
    uint64_t pause = (now_ns() - begin) * DEADLOCK_SHARE;
    s->deadlock_pause_ns = pause > DEADLOCK_PAUSE_NS ? pause : DEADLOCK_PAUSE_NS;
}

/* ---- frames from ranks ---- */

static void frames_malformed(struct frames *s, const struct wire_frame *f)
{
    struct diag d;
    char from[32] = "an agent";
    if (f->rank != WIRE_HOST)
        snprintf(from, sizeof from, "rank %u", f->rank);
    wire_malformed(&d, "%s frame from %s", wire_type_name(f->type), from);
    stop_on_job_failure(s->stop, CAUSE_LAUNCH, EXIT_INTERNAL, &d);
}

/* The id of device `i` in a list "a,b", without a terminator. */
static const char *frames_device(const char *list, uint32_t i, int *len)
{
    while (i--) {
        list += strcspn(list, ",");
        list += *list == ',';
    }
    *len = (int)strcspn(list, ",");
    return list;
}

/* Whether two hosts are one machine, on which an id is that of one device. Containers of a machine
 * differ in what follows the '/'. */
static bool frames_same_machine(const struct run_state *run, uint32_t a, uint32_t b)
{
    const char *mine = run->hosts[a].machine, *other = run->hosts[b].machine;
    size_t len = strcspn(mine, "/");
    return a == b || (len && len == strcspn(other, "/") && strncmp(mine, other, len) == 0);
}

/* The first device of a kind that two ranks have in common; NULL: none. */
static const char *frames_shared_device(const struct run_state *run, uint32_t a, uint32_t b,
                                        uint32_t kind, int *len)
{
    const struct desc_rank *mine = &run->desc->ranks[a], *other = &run->desc->ranks[b];
    if (!frames_same_machine(run, mine->host, other->host))
        return NULL;
    for (uint32_t i = 0; i < mine->ndevices; i++)
        for (uint32_t k = 0; k < other->ndevices; k++) {
            int len_b;
            const char *id = frames_device(run->ranks[a].devices, i, len);
            const char *id_b = frames_device(run->ranks[b].devices, k, &len_b);
            if (mine->devices[i].kind == kind && other->devices[k].kind == kind && *len &&
                *len == len_b && strncmp(id, id_b, (size_t)*len) == 0)
                return id;
        }
    return NULL;
}

/* The plan knows this machine's devices only: two hosts may be one machine. */
static void frames_check_devices(struct frames *s, const struct desc_group *group, uint32_t kind,
                                 uint32_t rank)
{
    const struct desc *desc = s->run->desc;
    struct diag_loc asked = desc->hosts[desc->ranks[rank].host].devices_loc;
    bool member = false;
    for (uint32_t i = 0; i < group->ranks.n; i++)
        member = member || group->ranks.items[i] == rank;
    for (uint32_t i = 0; member && i < group->ranks.n; i++) {
        uint32_t other = group->ranks.items[i];
        int len;
        const char *id = other == rank || !s->run->ranks[other].devices
                             ? NULL
                             : frames_shared_device(s->run, rank, other, kind, &len);
        struct diag d;
        if (!id)
            continue;
        diag_at(&d, group->loc.line ? group->loc : asked,
                "groups.%s: ranks %u (%s) and %u (%s) share %.*s", group->name, other,
                desc->hosts[desc->ranks[other].host].name, rank,
                desc->hosts[desc->ranks[rank].host].name, len, id);
        diag_hint(&d, "each member of this group needs a separate %s", desc->kinds[kind].title);
        stop_on_job_failure(s->stop, CAUSE_LAUNCH, EXIT_JOB, &d);
        return;
    }
}

/* Checks every group in which no two members may have a device in common. */
static void frames_check_groups(struct frames *s, uint32_t rank)
{
    for (uint32_t i = 0; i < s->run->desc->ngroups; i++) {
        const struct desc_group *group = &s->run->desc->groups[i];
        for (uint32_t k = 0; k < group->ndevices; k++)
            if (group->devices[k].own)
                frames_check_devices(s, group, group->devices[k].kind, rank);
    }
}

static void frames_on_spawned(struct frames *s, const struct wire_frame *f)
{
    struct rank_state *state = &s->run->ranks[f->rank];
    struct wire_spawned spawned;
    if (state->started_ns || state->end != RANK_LIVES) { /* a rank starts once */
        frames_malformed(s, f);
        return;
    }
    if (!wire_read_spawned(f, &s->run->arena, &spawned)) {
        frames_malformed(s, f);
        return;
    }
    state->pid = (pid_t)spawned.pid;
    state->started_ns = now_ns();
    if (state->pid) {
        state->devices = spawned.devices;
        if (*state->devices)
            frames_check_groups(s, f->rank);
        phases_advance(s->phases, f->rank, PHASE_SPAWNED);
        rundir_rank(s->run->rundir, s->run->desc->attempt, f->rank);
        rundir_event(s->run->rundir, "spawned",
                     json_pack("{s:i, s:i}", "rank", (int)f->rank, "pid", (int)state->pid));
        return;
    }
    rank_set_failure(state, FAILURE_REPORTED);
    state->failed_phase = WIRE_PHASE_LOAD;
    state->workload = UINT32_MAX;
    rank_set_end(state, RANK_EXITED);
    state->status = EXIT_EXEC << 8;
    s->run->nexited++;
    state->failure = spawned.why;
    frames_rank_failed(s, f->rank);
}

static void frames_on_failed(struct frames *s, const struct wire_frame *f)
{
    struct rank_state *state = &s->run->ranks[f->rank];
    struct wire_failed failed;
    if (state->failed)
        return;
    if (!wire_read_failed(f, &s->run->arena, &failed)) {
        frames_malformed(s, f);
        return;
    }
    rank_set_failure(state, FAILURE_REPORTED);
    state->workload = failed.workload;
    state->failed_phase = (enum wire_phase)failed.phase;
    snprintf(state->group, sizeof state->group, "%s", failed.group);
    state->operation = failed.number;
    state->subject = (enum wire_subject)failed.subject;
    state->failure = failed.why;
    state->why = failed.last;
    frames_fail_rank(s, f->rank);
}

static void frames_on_exception(struct frames *s, const struct wire_frame *f)
{
    if (!rank_read_exception(&s->run->ranks[f->rank], f->payload, f->len))
        frames_malformed(s, f);
}

static void frames_on_exited(struct frames *s, const struct wire_frame *f)
{
    struct rank_state *state = &s->run->ranks[f->rank];
    struct wire_exited exited;
    if (state->end != RANK_LIVES)
        return;
    if (!wire_read_exited(f, &s->run->arena, &exited))
        frames_malformed(s, f);
    rank_set_end(state, RANK_EXITED);
    state->ended_ns = now_ns();
    state->status = exited.status;
    state->user_us = exited.user_us;
    state->system_us = exited.system_us;
    state->max_rss = exited.max_rss;
    snprintf(state->memory, sizeof state->memory, "%s", exited.memory);
    state->disturbed = exited.disturbed;
    if (!state->failed || cause_is_mpi_abort(state)) /* else FAILED has it */
        rank_set_why(state, &exited.why);
    if (cause_is_mpi_abort(state) ||
        (state->command && WIFEXITED(state->status) &&
         (WEXITSTATUS(state->status) == 1 || WEXITSTATUS(state->status) == 2)))
        output_stderr_last(s->output, f->rank, state->last_words, sizeof state->last_words);
    if (++s->run->nexited == s->run->desc->nranks)
        output_flush_lines(s->output);
    bool killed = WIFSIGNALED(state->status);
    rundir_event(s->run->rundir, "exited",
                 json_pack("{s:i, s:i}", "rank", (int)f->rank, killed ? "signal" : "exit_code",
                           killed ? WTERMSIG(state->status) : WEXITSTATUS(state->status)));
    command_watch_on_exit(s->commands, f->rank);
    stdin_feed_on_exit(s->stdin_feed);
    if (cause_of(state) != CAUSE_NONE)
        frames_rank_failed(s, f->rank);
    audit_watch_rank_ended(s->audit_watch, f->rank);
    rdv_on_rank_exit(s->rdv, f->rank, "exited while the group was being formed");
}

static void frames_on_status(struct frames *s, const struct wire_frame *f)
{
    struct rank_state *state = &s->run->ranks[f->rank];
    if (state->snapshot_final)
        return;
    /* The calls that others have waited in end when they fail. */
    state->snapshot_final = s->stop->step != STOP_NONE || s->look->step != LAST_LOOK_NONE;
    if (!rank_read_status(state, f->payload, f->len))
        frames_malformed(s, f);
    live_snapshot(s->live, now_ns(), &state->snapshot);
    stall_monitor_on_status(s->stalls, f->rank);
    last_look_on_status(s->look, f->rank);
}

static void frames_on_stacks(struct frames *s, const struct wire_frame *f)
{
    if (!stacks_read(&s->run->ranks[f->rank].stacks, f))
        frames_malformed(s, f);
    stall_monitor_on_stacks(s->stalls);
    last_look_on_stacks(s->look);
    call_places_on_stacks(s->call_places);
}

static void frames_on_network(struct frames *s, const struct wire_frame *f)
{
    struct wire_network n;
    struct arena arena;
    arena_init(&arena);
    if (wire_read_network(f, &arena, &n))
        network_cut_take(s->run->desc, s->run->ranks, f->rank, &n, s->stop->step != STOP_NONE);
    else
        frames_malformed(s, f);
    arena_fini(&arena);
}

static void frames_set_deadlock_timer(struct frames *s)
{
    if (s->stop->step == STOP_NONE && (!s->deadlock_timer.at_ns || s->deadlock_ns))
        loop_timer_set(s->run->loop, &s->deadlock_timer, s->deadlock_pause_ns);
}

static void frames_on_wait_report(struct frames *s, const struct wire_frame *f)
{
    if (s->stop->step != STOP_NONE) /* what ABORT changes is no evidence */
        return;
    if (!rank_read_waits(&s->run->ranks[f->rank], f->payload, f->len))
        frames_malformed(s, f);
    else
        frames_set_deadlock_timer(s);
}

static void frames_on_forming(struct frames *s, const struct wire_frame *f)
{
    if (s->stop->step != STOP_NONE) /* what ABORT changes is no evidence */
        return;
    if (!rank_forming_read(&s->run->ranks[f->rank].forming, f, now_ns()))
        frames_malformed(s, f);
}

static void frames_on_records(struct frames *s, const struct wire_frame *f)
{
    if (!rank_record_set(&s->run->ranks[f->rank], f->payload, f->len))
        frames_malformed(s, f);
}

static void frames_on_usage(struct frames *s, const struct wire_frame *f)
{
    if (!usage_read(&s->run->ranks[f->rank].usage, f, now_ns()))
        frames_malformed(s, f);
}

static void frames_on_stdin_taken(struct frames *s, const struct wire_frame *f)
{
    if (!stdin_feed_on_taken(s->stdin_feed, f))
        frames_malformed(s, f);
}

static void frames_on_mpi(struct frames *s, const struct wire_frame *f)
{
    if (!command_watch_on_mpi(s->commands, f))
        frames_malformed(s, f);
}

static void frames_on_audit(struct frames *s, const struct wire_frame *f)
{
    if (!audit_watch_take(s->audit_watch, f))
        frames_malformed(s, f);
}

/* The clock of a remote host is known after its first heartbeat; until then, the frame is taken to
 * have arrived at once. */
static void frames_on_trace(struct frames *s, const struct wire_frame *f)
{
    struct host *host = &s->run->hosts[s->run->desc->ranks[f->rank].host];
    struct trace_frame frame = {
        .payload = f->payload, .len = f->len, .rank = f->rank, .attempt = f->attempt};
    struct reader r;
    reader_init(&r, f->payload, f->len);
    uint64_t now = read_u64(&r);
    if (connector_is_remote(s->bring_up->connector, host->index) &&
        !host_clock_offset(&host->clock, &frame.ahead_ns))
        frame.ahead_ns = (int64_t)(now - host->last_frame_ns);
    trace_frame(s->run->trace, &frame);
}

static void frames_on_progress(struct frames *s, const struct wire_frame *f)
{
    struct wire_progress p;
    struct arena arena;
    arena_init(&arena);
    if (wire_read_progress(f, &arena, &p))
        live_progress(s->live, now_ns(),
                      &(struct live_step){f->rank, p.workload, p.done, p.total, p.what});
    arena_fini(&arena);
}

static void frames_on_metric(struct frames *s, const struct wire_frame *f)
{
    struct wire_metric m;
    struct arena arena;
    arena_init(&arena);
    if (wire_read_metric(f, &arena, &m))
        rundir_metric(s->run->rundir, f->rank, m.workload, m.name, m.value);
    arena_fini(&arena);
}

/* A plugin has no life outside of the job. A program that no rank needs any more may do as it
 * likes. */
static void frames_on_detached(struct frames *s, const struct wire_frame *f)
{
    struct rank_state *state = &s->run->ranks[f->rank];
    struct wire_detached detached;
    const bool good = wire_read_detached(f, &s->run->arena, &detached);
    state->detached = detached.text;
    if (!good)
        frames_malformed(s, f);
    else if (state->command)
        command_watch_on_detached(s->commands, f->rank);
    else if (!state->failed && state->end != RANK_EXITED) {
        command_watch_blame_detached(s->run, f->rank);
        frames_fail_rank(s, f->rank);
    }
}

static void frames_on_log(struct frames *s, const struct wire_frame *f)
{
    static const char *const levels[] = {"error", "warning", "info", "debug"};
    struct wire_log log;
    struct arena arena;
    arena_init(&arena);
    const bool good = wire_read_log(f, &arena, &log);
    const uint8_t level = log.level & (uint8_t)~WIRE_LOG_IN_VERDICT;
    unsigned most = s->run->options->quiet     ? COLLRUN_LOG_ERROR
                    : s->run->options->verbose ? COLLRUN_LOG_DEBUG
                                               : COLLRUN_LOG_WARN;
    const bool in_verdict = log.level != level;
    if (good && in_verdict)
        rank_add_warning(&s->run->ranks[f->rank], log.text);
    if (good && level <= most && in_verdict && s->nwarnings++ >= WARNINGS_SHOWN) {
        if (s->nwarnings == WARNINGS_SHOWN + 1)
            output_message(s->output, "collrun: further warnings are in result.json");
    } else if (good && level <= most) {
        output_show_rank(s->output, f->rank);
        output_message(s->output, "collrun: rank %u: %s: %s", f->rank, levels[level & 3], log.text);
    }
    arena_fini(&arena);
}

static void frames_on_store(struct frames *s, const struct wire_frame *f)
{
    struct diag d;
    diag_init(&d);
    if (s->run->ranks[f->rank].end == RANK_EXITED)
        return;
    if (rdv_on_frame(s->rdv, f, liveness_now_ns(s->liveness), &d) != COLLRUN_OK)
        stop_on_job_failure(s->stop, CAUSE_LAUNCH, EXIT_INTERNAL, &d);
    frames_set_rendezvous_timer(s);
}

static void frames_on_output(struct frames *s, const struct wire_frame *f)
{
    struct wire_output o;
    if (!wire_read_output(f, NULL, &o) || (o.stream != 1 && o.stream != 2)) {
        frames_malformed(s, f);
        return;
    }
    rundir_output(s->run->rundir, s->run->desc->attempt, f->rank, o.stream, o.bytes.data,
                  o.bytes.len);
    output_add(s->output, f->rank, o.stream, o.realtime_ns, o.bytes.data, o.bytes.len);
}

static void frames_on_phase(struct frames *s, const struct wire_frame *f)
{
    if (f->type == WIRE_IDLE)
        audit_watch_rank_ended(s->audit_watch, f->rank);
    if (s->run->ranks[f->rank].wait_report.received) /* what its report proves may have changed */
        frames_set_deadlock_timer(s);
    if (s->run->ranks[f->rank].command) {
        if (f->type == WIRE_STARTED)
            command_limits_on_started(s->limits, f->rank);
        command_watch_on_phase(s->commands, f->rank, f);
        return;
    }
    if (f->type == WIRE_STARTED) { /* not of a rank that runs plugins */
        frames_malformed(s, f);
        return;
    }
    phases_advance(s->phases, f->rank,
                   f->type == WIRE_ATTACHED ? PHASE_ATTACHED
                   : f->type == WIRE_READY  ? PHASE_READY
                   : f->type == WIRE_DONE   ? PHASE_DONE
                                            : PHASE_IDLE);
}

static void frames_on_rank_frame(struct frames *s, const struct wire_frame *f)
{
    static const struct {
        uint16_t type;
        void (*handle)(struct frames *s, const struct wire_frame *f);
    } handlers[] = {
        {WIRE_SPAWNED, frames_on_spawned},
        {WIRE_EXITED, frames_on_exited},
        {WIRE_OUTPUT, frames_on_output},
        {WIRE_ATTACHED, frames_on_phase},
        {WIRE_READY, frames_on_phase},
        {WIRE_DONE, frames_on_phase},
        {WIRE_IDLE, frames_on_phase},
        {WIRE_FAILED, frames_on_failed},
        {WIRE_LOG, frames_on_log},
        {WIRE_JOIN, frames_on_store},
        {WIRE_PUT, frames_on_store},
        {WIRE_GET, frames_on_store},
        {WIRE_FENCE, frames_on_store},
        {WIRE_LEAVE, frames_on_store},
        {WIRE_STATUS, frames_on_status},
        {WIRE_WAIT_REPORT, frames_on_wait_report},
        {WIRE_FORMING, frames_on_forming},
        {WIRE_PROGRESS, frames_on_progress},
        {WIRE_METRIC, frames_on_metric},
        {WIRE_AGREE, frames_on_store},
        {WIRE_STACKS, frames_on_stacks},
        {WIRE_NETWORK, frames_on_network},
        {WIRE_RECORDS, frames_on_records},
        {WIRE_AUDIT, frames_on_audit},
        {WIRE_STARTED, frames_on_phase},
        {WIRE_USAGE, frames_on_usage},
        {WIRE_STDIN_TAKEN, frames_on_stdin_taken},
        {WIRE_TRACE, frames_on_trace},
        {WIRE_MPI, frames_on_mpi},
        {WIRE_EXCEPTION, frames_on_exception},
        {WIRE_DETACHED, frames_on_detached},
    };
    for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++) {
        if (handlers[i].type == f->type)
            handlers[i].handle(s, f);
    }
}

static void frames_on_bye(struct frames *s, struct host *host)
{
    if (liveness_on_bye(s->liveness, host))
        return;
    host->bye = true;
    for (uint32_t i = 0; i < s->run->desc->nranks; i++) {
        if (s->run->desc->ranks[i].host == host->index)
            output_end_rank(s->output, i);
    }
    conn_close(&host->conn);
    hosts_stop_loop_if_gone(s->run);
}

static void frames_on_heartbeat(struct host *host, const struct wire_frame *f)
{
    struct wire_heartbeat h;
    if (wire_read_heartbeat(f, NULL, &h))
        host_clock_take(&host->clock, &(struct host_clock_exchange){.t1 = h.sent_ns,
                                                                    .t2 = h.arrived_ns,
                                                                    .t3 = h.now_ns,
                                                                    .t4 = host->last_frame_ns});
}

void frames_on_frame(struct frames *s, struct host *host, const struct wire_frame *f)
{
    const struct buf payload = buf_borrow(f->payload, f->len);
    struct diag d;
    struct wire_host_error error;
    host->last_frame_ns = now_ns();
    if (f->rank != WIRE_HOST) {
        if (host->has_hello && f->rank < s->run->desc->nranks &&
            s->run->desc->ranks[f->rank].host == host->index)
            frames_on_rank_frame(s, f);
        return;
    }
    switch (f->type) {
    case WIRE_HELLO:
        bring_up_on_hello(s->bring_up, host, f);
        break;
    case WIRE_HEARTBEAT:
        frames_on_heartbeat(host, f);
        break;
    case WIRE_BYE:
        frames_on_bye(s, host);
        break;
    case WIRE_DEBUG_LINES:
        agent_log_relay(f);
        break;
    case WIRE_SNAPSHOT:
        if (host->has_hello && !proof_watch_take(s->proof_watch, host->index, f))
            frames_malformed(s, f);
        break;
    case WIRE_MASTER:
        hosts_send_all(s->run, WIRE_MASTER, &payload);
        break;
    case WIRE_HOST_ERROR:
        wire_read_host_error(f, &s->run->arena, &error); /* or it says that it is malformed */
        d = error.error;
        diag_wrap(&d, "host %s", s->run->desc->hosts[host->index].name);
        if (d.code == COLLRUN_ERR_ABORTED) /* a signal ended the agent */
            stop_on_job_failure(s->stop, CAUSE_HOST_LOST, EXIT_HOST, &d);
        else
            stop_on_job_failure(s->stop, CAUSE_LAUNCH, d.loc.line ? EXIT_JOB : EXIT_INTERNAL, &d);
        break;
    default:
        break;
    }
}

void frames_start(struct frames *s)
{
    s->rendezvous_timer = (struct loop_timer){.fired = frames_on_rendezvous_timer, .owner = s};
    s->deadlock_timer = (struct loop_timer){.fired = frames_on_deadlock_timer, .owner = s};
    s->mismatch_timer = (struct loop_timer){.fired = frames_on_mismatch_timer, .owner = s};
    s->deadlock_pause_ns = DEADLOCK_PAUSE_NS;
}
