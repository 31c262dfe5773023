/* SPDX-License-Identifier: Apache-2.0 */
#include "run/supervisor.h"

#include "base/exit_codes.h"
#include "run/run_state.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>

#define SUSPEND_NS 2000000000ull /* at most, until the hosts have been sent the signal */

/* ---- streams ---- */

static void supervisor_on_frame(struct conn *c, const struct wire_frame *f)
{
    struct host *host = c->owner;
    frames_on_frame(&host->supervisor->frames, host, f);
}

static void supervisor_on_closed(struct conn *c, const struct diag *why)
{
    struct host *host = c->owner;
    liveness_on_closed(&host->supervisor->liveness, host, why);
}

static int supervisor_open_stream(void *ctx, struct host *host,
                                  const struct transport_stream *stream, struct diag *d)
{
    struct supervisor *s = ctx;
    host->pid = stream->pid;
    host->last_frame_ns = now_ns();
    host->conn.peer = s->run.desc->hosts[host->index].name;
    host->conn.frame = supervisor_on_frame;
    host->conn.on_closed = supervisor_on_closed;
    host->conn.owner = host;
    host->conn.reads_text = stream->text;
    return conn_open(&host->conn, s->run.loop, stream->read_fd, stream->write_fd, d);
}

static void supervisor_on_stop(void *ctx)
{
    struct supervisor *s = ctx;
    phases_clear_limits(&s->phases);
    stdin_feed_stop(&s->stdin_feed);
    bring_up_cancel(&s->bring_up);
    last_look_cancel(&s->look);
    call_places_cancel(&s->call_places);
}

static void supervisor_send_store(void *ctx, const uint32_t *ranks, uint32_t n, uint16_t type,
                                  const struct buf *payload)
{
    hosts_send_ranks(ctx, ranks, n, type, payload);
}

/* ---- output ---- */

static void supervisor_send_credit(void *ctx, uint32_t host, uint32_t bytes)
{
    hosts_send_credit(ctx, host, bytes);
}

static bool supervisor_files_are_full(void *ctx)
{
    const struct run_state *run = ctx;
    return rundir_is_full(run->rundir);
}

static void supervisor_on_disk(struct loop_fd *w, uint32_t events)
{
    (void)events;
    struct supervisor *s = w->owner;
    rundir_take_errors(s->run.rundir);
    output_refund(s->output);
}

static void supervisor_on_debug(struct loop_fd *w, uint32_t events)
{
    (void)events;
    struct supervisor *s = w->owner;
    rundir_take_debug(s->run.rundir);
}

static void supervisor_before_write(void *ctx)
{
    struct supervisor *s = ctx;
    live_wipe(&s->live);
}

static void supervisor_after_write(void *ctx)
{
    struct supervisor *s = ctx;
    output_refund(s->output);
}

void supervisor_print_broken(const struct report *report, const char *which, int err)
{
    struct diag d;
    diag_sys(&d, err, "cannot write to %s; the output of the ranks is lost there", which);
    diag_hint(&d, "the job continues");
    report_diag(report, &d);
}

/* A closed pipe ends the job, as it ends a command in a pipeline. Any other error, a full disk
 * above all, costs the output but not the work. */
static void supervisor_on_broken(void *ctx, const char *which, int err)
{
    struct supervisor *s = ctx;
    struct verdict v;
    if (err == EPIPE) {
        stop_verdict_reader_gone(&v);
        stop_on_job_failure(&s->stop, v.class, v.exit_code, &v.diag);
        return;
    }
    supervisor_print_broken(s->run.options->report, which, err);
    s->output_lost = true;
}

/* ---- signals ---- */

/* Ctrl-Z: stops the ranks and this process; continues both when this process is continued. The
 * threads of SSH connections stop with it, so they send everything before. */
static void supervisor_suspend(struct supervisor *s)
{
    const uint64_t deadline_ns = now_ns() + SUSPEND_NS;
    live_wipe(&s->live);
    for (uint32_t h = 0; h < s->run.desc->nhosts; h++)
        hosts_send_keepalive(&s->run, h, 0);
    hosts_send_signal(&s->run, SIGSTOP);
    for (uint32_t h = 0; h < s->run.desc->nhosts; h++) {
        conn_drain(&s->run.hosts[h].conn, deadline_ns);
        if (s->bring_up.connector && conn_is_open(&s->run.hosts[h].conn))
            connector_drain(s->bring_up.connector, h, deadline_ns);
    }
    stdin_feed_suspend(&s->stdin_feed);
    const uint64_t begin_ns = now_ns();
    raise(SIGSTOP);
    liveness_on_resume(&s->liveness, now_ns() - begin_ns);
    stdin_feed_resume(&s->stdin_feed);
    hosts_send_signal(&s->run, SIGCONT);
}

void supervisor_on_signal(struct supervisor *s, const struct signalfd_siginfo *info)
{
    if (info->ssi_signo == SIGUSR1)
        status_request_send(&s->status_request);
    else if (info->ssi_signo == SIGTSTP)
        supervisor_suspend(s);
    else if (info->ssi_signo == SIGWINCH)
        stdin_feed_resize(&s->stdin_feed);
    else
        stop_on_interrupt(&s->stop, info);
}

void supervisor_on_child_exit(struct supervisor *s, pid_t pid, int status)
{
    if (s->bring_up.connector)
        connector_child_exited(s->bring_up.connector, pid, status);
    for (uint32_t h = 0; h < s->run.desc->nhosts; h++) {
        struct host *host = &s->run.hosts[h];
        if (host->pid == pid) {
            host->pid = 0;
            host->pid_status = status;
            liveness_on_child_exit(&s->liveness, host);
        }
    }
}

/* ---- start and end ---- */

static void supervisor_on_failed(void *ctx, uint32_t rank)
{
    struct supervisor *s = ctx;
    frames_fail_rank(&s->frames, rank);
}

static void supervisor_on_done(void *ctx)
{
    struct supervisor *s = ctx;
    command_limits_stop_background(&s->limits);
}

static void supervisor_on_spawned(void *ctx)
{
    struct supervisor *s = ctx;
    if (s->run.desc->terminal.used)
        stdin_feed_start(&s->stdin_feed);
}

static void supervisor_on_running(void *ctx)
{
    struct supervisor *s = ctx;
    if (!s->run.desc->terminal.used)
        stdin_feed_start(&s->stdin_feed);
}

/* The parts that watch and report. */
static void supervisor_wire_up_watches(struct supervisor *s)
{
    struct run_state *run = &s->run;
    s->stalls = (struct stall_monitor){.run = run,
                                       .stop = &s->stop,
                                       .console = s->console,
                                       .live = &s->live,
                                       .liveness = &s->liveness,
                                       .limit_ns = (uint64_t)run->job->timeouts.stall.v};
    s->look = (struct last_look){.run = run, .stalls = &s->stalls};
    s->status_request = (struct status_request){.run = run,
                                                .stop = &s->stop,
                                                .bring_up = &s->bring_up,
                                                .console = s->console,
                                                .stalls = &s->stalls};
    s->audit_watch = (struct audit_watch){.run = run, .stop = &s->stop, .bring_up = &s->bring_up};
    s->call_places = (struct call_places){.run = run};
    s->proof_watch =
        (struct proof_watch){.run = run, .stop = &s->stop, .call_places = &s->call_places};
    s->top = (struct top_server){
        .run = run, .live = &s->live, .stalls = &s->stalls, .audit = &s->audit_watch.audit};
}

static void supervisor_wire_up(struct supervisor *s)
{
    struct run_state *run = &s->run;
    stop_init(&s->stop, run, s->output);
    s->stop.on_begin = supervisor_on_stop;
    s->stop.ctx = s;
    s->bring_up = (struct bring_up){
        .run = run, .stop = &s->stop, .open_stream = supervisor_open_stream, .ctx = s};
    s->liveness = (struct liveness){
        .run = run, .stop = &s->stop, .bring_up = &s->bring_up, .rdv = s->rdv, .output = s->output};
    s->phases = (struct phases){.run = run,
                                .stop = &s->stop,
                                .bring_up = &s->bring_up,
                                .liveness = &s->liveness,
                                .look = &s->look,
                                .on_spawned = supervisor_on_spawned,
                                .on_running = supervisor_on_running,
                                .on_done = supervisor_on_done,
                                .ctx = s};
    s->frames = (struct frames){.run = run,
                                .phases = &s->phases,
                                .stop = &s->stop,
                                .bring_up = &s->bring_up,
                                .liveness = &s->liveness,
                                .rdv = s->rdv,
                                .output = s->output,
                                .live = &s->live,
                                .stalls = &s->stalls,
                                .audit_watch = &s->audit_watch,
                                .proof_watch = &s->proof_watch,
                                .commands = &s->commands,
                                .limits = &s->limits,
                                .stdin_feed = &s->stdin_feed,
                                .look = &s->look,
                                .call_places = &s->call_places};
    s->stdin_feed = (struct stdin_feed){.run = run, .console = s->console};
    s->commands = (struct command_watch){.run = run,
                                         .stop = &s->stop,
                                         .phases = &s->phases,
                                         .failed = supervisor_on_failed,
                                         .ctx = s};
    s->limits = (struct command_limits){.run = run,
                                        .stop = &s->stop,
                                        .liveness = &s->liveness,
                                        .failed = supervisor_on_failed,
                                        .ctx = s};
}

int supervisor_init(struct supervisor *s, const struct attempt *a, struct diag *d)
{
    const struct console_hooks hooks = {.writing = supervisor_before_write,
                                        .written = supervisor_after_write,
                                        .broken = supervisor_on_broken,
                                        .ctx = s};
    struct run_state *run = &s->run;
    *s = (struct supervisor){.console = a->console};
    int rc = run_state_init(run, a, d);
    s->rdv = rdv_new(run->desc, (struct rdv_output){.send = supervisor_send_store, .ctx = run});
    s->output = output_new(s->console, run->loop, run->job, run->desc,
                           (struct output_hooks){.credit = supervisor_send_credit,
                                                 .full = supervisor_files_are_full,
                                                 .ctx = run});
    supervisor_wire_up(s); /* all of it: supervisor_fini follows in any case */
    supervisor_wire_up_watches(s);
    if (rc != COLLRUN_OK)
        return rc;
    live_init(&s->live, run->loop, run->desc, run->ranks, s->console, run->options->quiet);
    for (uint32_t h = 0; h < run->desc->nhosts; h++) {
        run->hosts[h].supervisor = s;
        run->hosts[h].index = h;
    }
    command_limits_start(&s->limits);
    phases_start(&s->phases);
    audit_watch_open(&s->audit_watch);
    proof_watch_start(&s->proof_watch);
    frames_start(&s->frames);
    command_watch_start(&s->commands);
    liveness_start(&s->liveness);
    top_server_start(&s->top);
    s->disk = (struct loop_fd){.fd = -1, .ready = supervisor_on_disk, .owner = s};
    if (run->rundir)
        loop_watch(run->loop, &s->disk, rundir_event_fd(run->rundir), EPOLLIN);
    s->debug = (struct loop_fd){.fd = -1, .ready = supervisor_on_debug, .owner = s};
    if (rundir_debug_fd(run->rundir) >= 0)
        loop_watch(run->loop, &s->debug, rundir_debug_fd(run->rundir), EPOLLIN);
    stall_monitor_start(&s->stalls);
    console_attach(s->console, run->loop, &hooks);
    return COLLRUN_OK;
}

void supervisor_run(struct supervisor *s)
{
    struct diag d;
    diag_init(&d);
    if (bring_up_start(&s->bring_up, &d) != COLLRUN_OK) /* with a place: an error of job.yaml */
        stop_on_job_failure(&s->stop, CAUSE_LAUNCH, d.loc.line ? EXIT_JOB : EXIT_INTERNAL, &d);
    if (!hosts_all_gone(&s->run))
        loop_run(s->run.loop);
    output_show_all(s->output);
    live_wipe(&s->live);
}

uint64_t supervisor_uptime_ns(const struct supervisor *s)
{
    const uint64_t begin_ns = s->phases.running_ns, end_ns = s->stop.begin_ns;
    return begin_ns ? (end_ns ? end_ns : now_ns()) - begin_ns : 0;
}

void supervisor_fini(struct supervisor *s)
{
    hosts_log_traffic(&s->run);
    top_server_stop(&s->top);
    stdin_feed_stop(&s->stdin_feed);
    live_fini(&s->live);
    stall_monitor_fini(&s->stalls);
    hosts_close_all(&s->run);
    bring_up_fini(&s->bring_up);
    audit_watch_close(&s->audit_watch);
    proof_watch_fini(&s->proof_watch);
    output_free(s->output);
    rdv_free(s->rdv);
    run_state_fini(&s->run);
}
