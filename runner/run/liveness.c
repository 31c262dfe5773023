/* SPDX-License-Identifier: Apache-2.0 */
#include "run/liveness.h"

#include "base/debug.h"
#include "base/exit_codes.h"
#include "base/names.h"
#include "base/parse.h"
#include "run/run_state.h"
#include "xalloc.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define SECOND_NS 1000000000ull
/* An agent sends a heartbeat every second. One on this machine is silent only if it is stopped or
 * starved, which may pass: it has so long, whatever timeouts.silence is. */
#define LOCAL_SILENCE_NS (15 * SECOND_NS)
/* For the child that carried a stream to exit after its end: one with much memory, on a busy
 * machine. */
#define EXIT_WAIT_NS (SECOND_NS / 2)
/* A gap of this length between two ticks, which are a second apart: this process was stopped. */
#define PAUSE_NS (3 * SECOND_NS)

/* ---- this process ---- */

void liveness_on_resume(struct liveness *l, uint64_t ns)
{
    const uint64_t now = now_ns();
    l->last_tick_ns = now;
    l->resumed_ns = now;
    l->paused_ns = ns;
    l->stopped_ns += ns;
    for (uint32_t h = 0; h < l->run->desc->nhosts; h++)
        l->run->hosts[h].last_frame_ns = now;
}

void liveness_check_pause(struct liveness *l)
{
    uint64_t now = now_ns(), gap = now - l->last_tick_ns;
    l->last_tick_ns = now;
    if (gap <= PAUSE_NS)
        return;
    debug_log(DEBUG_LIVENESS, "this process stood still: %.1f s between two ticks",
              (double)gap / 1e9);
    liveness_on_resume(l, gap - SECOND_NS); /* at least, ... */
    l->paused_ns = gap;                     /* ... and at most */
}

uint64_t liveness_now_ns(const struct liveness *l)
{
    return now_ns() - l->stopped_ns;
}

bool liveness_postpone(struct liveness *l, struct loop_timer *t, uint64_t due_ns)
{
    liveness_check_pause(l);
    const uint64_t now = liveness_now_ns(l);
    uint64_t left = due_ns > now ? due_ns - now : 0;
    if (l->resumed_ns && now_ns() - l->resumed_ns < SECOND_NS && left < SECOND_NS)
        left = SECOND_NS;
    if (left) {
        debug_log(DEBUG_LIVENESS, "a limit is postponed by %.3f s", (double)left / 1e9);
        loop_timer_set(l->run->loop, t, left);
    }
    return left > 0;
}

/* ---- a lost host ---- */

/* "host n1 lost, with ranks 0-3: HOW". `how` is NULL as long as it is not known. */
static void liveness_set_text(const struct run_state *run, const struct host *host, int code,
                              const char *how, struct diag *d)
{
    const struct desc_host *of = &run->desc->hosts[host->index];
    char ranks[128];
    uint32_t n = 0, *list = xcalloc(of->nranks, sizeof *list);
    for (uint32_t i = 0; i < run->desc->nranks && n < of->nranks; i++) {
        if (run->desc->ranks[i].host == host->index)
            list[n++] = i;
    }
    rank_list_format(ranks, sizeof ranks, list, n);
    free(list);
    diag_set(d, code, "host %s lost, with rank%s %s%s%s", of->name, n == 1 ? "" : "s", ranks,
             how ? ": " : "", how ? how : "");
}

static void liveness_host_lost(struct liveness *l, struct host *host, int code, const char *how)
{
    struct run_state *run = l->run;
    debug_log(DEBUG_LIVENESS,
              "host %s is lost, status %d: %s; last frame %.1f s ago, %s, stop step %d",
              run->desc->hosts[host->index].name, code, how ? how : "not known yet",
              (double)(now_ns() - host->last_frame_ns) / 1e9,
              host->has_job ? "it has the job" : "it has no job", (int)l->stop->step);
    if (!host->has_job) {
        bring_up_on_lost(l->bring_up, host, code, how);
        return;
    }
    struct diag d;
    host->lost = true;
    conn_close(&host->conn);
    for (uint32_t i = 0; i < run->desc->nranks; i++) {
        if (run->desc->ranks[i].host != host->index)
            continue;
        rank_set_end(&run->ranks[i], RANK_LOST);
        output_end_rank(l->output, i);
        rdv_on_rank_exit(l->rdv, i, "was lost with its host");
    }
    liveness_set_text(run, host, code, how, &d);
    if (l->stop->step < STOP_QUIT) {
        l->blamed = l->stop->job_failure.class == CAUSE_NONE ? host : l->blamed;
        stop_on_job_failure(l->stop, CAUSE_HOST_LOST, EXIT_HOST, &d);
    }
    hosts_stop_loop_if_gone(run);
}

/* Why the stream ended: the transport knows most, unless the bytes made no sense; then the exit
 * status of the child that carried the stream, if it has exited. */
static void liveness_end_text(struct liveness *l, struct host *host, const struct diag *why,
                              char *out, size_t size)
{
    const int status = host->pid_status;
    liveness_check_pause(l);
    struct connector *connector = l->bring_up->connector;
    bool remote = connector_is_remote(connector, host->index);
    if (remote && l->paused_ns > hosts_runner_silence_ms(l->run) * 1000000ull &&
        now_ns() - l->resumed_ns < 5 * SECOND_NS) {
        snprintf(out, size,
                 "collrun was stopped for %.0f s, and the agent on this host has ended its ranks",
                 (double)l->paused_ns / 1e9);
        return;
    }
    const bool nonsense = why->code == COLLRUN_ERR_INVALID;
    if (remote && !nonsense && connector_end_reason(connector, host->index, out, size))
        return;
    if (why->code)
        snprintf(out, size, "%.200s", why->text);
    else if (!host->pid && WIFSIGNALED(status))
        snprintf(out, size, "its collrun-agent was killed by signal %d (%s)", WTERMSIG(status),
                 signal_name(WTERMSIG(status)));
    else if (!host->pid)
        snprintf(out, size, "its collrun-agent exited with code %d", WEXITSTATUS(status));
    else
        snprintf(out, size, "its collrun-agent closed the connection");
}

static void liveness_end(struct liveness *l, struct host *host, const struct diag *why)
{
    char how[400];
    host->exit_by_ns = 0;
    liveness_end_text(l, host, why, how, sizeof how);
    if (!host->lost)
        liveness_host_lost(l, host, COLLRUN_ERR_UNAVAILABLE, how);
    else if (l->blamed == host)
        liveness_set_text(l->run, host, COLLRUN_ERR_UNAVAILABLE, how, &l->stop->job_failure.diag);
    hosts_stop_loop_if_gone(l->run);
}

/* The text has the exit status of the child that carried the stream. The kernel closes the stream
 * shortly before the child exits. */
static bool liveness_needs_exit(struct liveness *l, const struct host *host, const struct diag *why)
{
    if (!host->pid || why->code == COLLRUN_ERR_INVALID)
        return false;
    return !why->code || connector_is_remote(l->bring_up->connector, host->index);
}

void liveness_on_closed(struct liveness *l, struct host *host, const struct diag *why)
{
    host->ended = true;
    debug_log(DEBUG_LIVENESS, "the stream of host %s has ended, status %d: %s",
              l->run->desc->hosts[host->index].name, why->code, why->text);
    if (!liveness_needs_exit(l, host, why)) {
        liveness_end(l, host, why);
        return;
    }
    host->exit_by_ns = now_ns() + EXIT_WAIT_NS;
    if (!l->exit_timer.at_ns)
        loop_timer_set(l->run->loop, &l->exit_timer, EXIT_WAIT_NS);
    /* At once: what happens to ranks on other hosts from now on may be a consequence. */
    if (host->has_job)
        liveness_host_lost(l, host, COLLRUN_ERR_UNAVAILABLE, NULL);
}

void liveness_on_child_exit(struct liveness *l, struct host *host)
{
    struct diag d;
    diag_init(&d);
    if (host->exit_by_ns)
        liveness_end(l, host, &d);
}

static void liveness_on_exit_timeout(struct loop_timer *t)
{
    struct liveness *l = t->owner;
    const uint64_t now = now_ns();
    uint64_t next_ns = 0;
    for (uint32_t h = 0; h < l->run->desc->nhosts; h++) {
        struct host *host = &l->run->hosts[h];
        if (host->exit_by_ns && host->exit_by_ns <= now)
            liveness_on_child_exit(l, host);
        else if (host->exit_by_ns && (!next_ns || host->exit_by_ns < next_ns))
            next_ns = host->exit_by_ns;
    }
    if (next_ns)
        loop_timer_set(l->run->loop, t, next_ns - now);
}

bool liveness_on_bye(struct liveness *l, struct host *host)
{
    const struct desc *desc = l->run->desc;
    bool early = !host->has_job;
    for (uint32_t i = 0; i < desc->nranks; i++)
        early =
            early || (desc->ranks[i].host == host->index && l->run->ranks[i].end != RANK_EXITED);
    if (!early || l->stop->step != STOP_NONE)
        return false;
    conn_close(&host->conn);
    liveness_host_lost(l, host, COLLRUN_ERR_UNAVAILABLE,
                       host->has_job ? "its collrun-agent ended before its ranks"
                                     : "collrun-agent ended before it got the job");
    return true;
}

/* ---- every second ---- */

static uint64_t liveness_limit_ns(const struct liveness *l, bool remote)
{
    uint64_t limit_ns = (uint64_t)l->run->job->timeouts.silence.v;
    return remote || limit_ns > LOCAL_SILENCE_NS ? limit_ns : LOCAL_SILENCE_NS;
}

static void liveness_check_host(struct liveness *l, struct host *host)
{
    bool remote = connector_is_remote(l->bring_up->connector, host->index);
    uint64_t silence = l->last_tick_ns - host->last_frame_ns;
    char how[160];
    if (silence > 2 * SECOND_NS)
        debug_log(DEBUG_LIVENESS, "host %s is silent for %.1f s, the limit is %.1f s",
                  l->run->desc->hosts[host->index].name, (double)silence / 1e9,
                  (double)liveness_limit_ns(l, remote) / 1e9);
    if (silence > liveness_limit_ns(l, remote)) {
        snprintf(how, sizeof how, "no heartbeat for %.0f s%s", (double)silence / 1e9,
                 remote ? " (the connection is cut, or the host is frozen or overloaded)"
                        : " from its collrun-agent");
        liveness_host_lost(l, host, COLLRUN_ERR_UNAVAILABLE, how);
    } else if (remote) {
        hosts_send_keepalive(l->run, host->index, hosts_runner_silence_ms(l->run));
    }
}

static void liveness_on_tick(struct loop_timer *t)
{
    struct liveness *l = t->owner;
    struct run_state *run = l->run;
    liveness_check_pause(l);
    loop_timer_set(run->loop, t, SECOND_NS);
    for (uint32_t h = 0; h < run->desc->nhosts; h++) {
        struct host *host = &run->hosts[h];
        if (host->has_hello && !host->bye && !host->lost && conn_is_open(&host->conn))
            liveness_check_host(l, host);
    }
}

void liveness_start(struct liveness *l)
{
    l->timer = (struct loop_timer){.fired = liveness_on_tick, .owner = l};
    l->exit_timer = (struct loop_timer){.fired = liveness_on_exit_timeout, .owner = l};
    l->last_tick_ns = now_ns();
    loop_timer_set(l->run->loop, &l->timer, SECOND_NS);
}
