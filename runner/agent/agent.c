/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank dies, in the order that matters:
 *
 * 1. SIGCHLD reaches the agent (agent_on_signal), which reaps the process (agent_on_rank_exit). It
 *    first reads the frames that the rank sent before it died, so that FAILED, with the error of
 *    the rank, precedes EXITED.
 * 2. The exit was early if the code is not 0, or if a plugin rank had not reported IDLE. The agent
 *    then aborts the other ranks of its host (ranks_abort), without asking the runner: their
 *    blocked calls return PEER_FAILED with the name of this rank, a millisecond after its death.
 *    With on_failure: continue the runner decides instead, since other groups go on.
 * 3. The agent sends what is left of the rank: its last output, the marks and operations of its
 *    record, what it was doing (STATUS), and at last EXITED, with the last failed call. Nothing
 *    about the rank follows EXITED.
 * 4. The runner (frames_on_exited) puts the end into a class (diagnose/cause.c) and asks for a
 *    verdict with what is known at that moment, only to choose between stop and continue. A rank
 *    that failed because of another one changes nothing; a time-out or a mismatch lets the runner
 *    look at the other ranks first.
 * 5. To stop, it sends QUERY, ABORT and READ_RECORDS to all hosts, in this order (stop_begin): what
 *    each rank does is read before ABORT changes it. The escalation follows: SIGTERM after
 *    timeouts.grace, SIGKILL, QUIT (run/stop.h).
 * 6. Each agent reaps every descendant and sends BYE. When the last host has, the loop ends, and
 *    run_judge computes the verdict again, from all evidence: this one is reported, written, and
 *    given to on_failure.
 *
 * If the agent dies with the rank, its stream ends, and the runner begins at step 5 with a lost
 * host; collrun-guard (guard.h) does what is left of step 6.
 */
#include "agent/agent.h"

#include "agent/audit_sender.h"
#include "agent/examine.h"
#include "agent/job.h"
#include "agent/process.h"
#include "agent/rank_stdin.h"
#include "agent/ranks.h"
#include "agent/status.h"
#include "agent/uplink.h"
#include "base/debug.h"
#include "base/exit_codes.h"
#include "base/names.h"
#include "base/reap.h"
#include "base/standstill.h"
#include "base/thread.h"
#include "base/wire_fields.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND_NS 1000000000ull
#define FIRST_KEEPALIVE_NS (60 * SECOND_NS) /* until the first KEEPALIVE */
/* A gap between two heartbeats, which are a second apart: this process was stopped. */
#define PAUSE_NS (3 * SECOND_NS)
#define LEFTOVERS_STEP_NS 5000000ull
#define TERMINATED_STEP_NS 50000000ull /* between two looks at what is ending after SIGTERM */

enum { NOTED_HEARTBEATS = 30 }; /* later, only what ends a rank makes ranks_note_memory() look */
enum { LAST_READS = 1024 /* of 256 KiB */, RUNNER_BACKLOG = 1 << 20 /* bytes */ };

static const int agent_ignored[] = {SIGPIPE, SIGUSR1, SIGUSR2, SIGQUIT, SIGXFSZ};

/* At the end of every frame: the agent may have been busy for longer than the limit, with frames
 * that it had no time to read. */
static void agent_restart_silence(struct agent *a)
{
    if (a->silence_ns && conn_is_open(&a->runner))
        loop_timer_set(a->loop, &a->silence, a->silence_ns);
    else
        loop_timer_clear(a->loop, &a->silence);
}

/* While this process was stopped, as on a frozen machine, it could not read what collrun sent: the
 * silence of that time does not count. */
static void agent_on_heartbeat(struct loop_timer *t)
{
    struct agent *a = t->owner;
    const uint64_t now = now_ns();
    if (now - a->heartbeat_ns > PAUSE_NS) {
        debug_log(DEBUG_LIVENESS, "this process stood still: %.1f s between two heartbeats",
                  (double)(now - a->heartbeat_ns) / 1e9);
        agent_restart_silence(a);
    }
    a->heartbeat_ns = now;
    standstill_tick();
    uplink_send_heartbeat(a);
    for (uint32_t i = 0; i < a->nranks; i++) {
        rank_check_frame(&a->ranks[i]);
        rank_check_closed(&a->ranks[i]);
    }
    cores_answer(&a->cores);
    if (a->heartbeats++ < NOTED_HEARTBEATS)
        ranks_note_memory(a);
    memory_watch_expire(&a->memory, now);
    loop_timer_set(a->loop, t, SECOND_NS);
}

static void agent_on_runner_closed(struct conn *c, const struct diag *why);

/* ---- stopping ---- */

/* Kills what the ranks have left behind. A process may take long to end (it has hundreds of GB, or
 * waits for a disk), and heartbeats go on meanwhile: a timer tries again, for 5 s. */
static bool agent_leftovers_end(struct agent *a)
{
    const uint64_t now = now_ns();
    if (!a->leftovers_ns)
        a->leftovers_ns = now + 5 * SECOND_NS;
    if (now >= a->leftovers_ns || reap_descendants(now + LEFTOVERS_STEP_NS))
        return true;
    loop_timer_set(a->loop, &a->leftovers, LEFTOVERS_STEP_NS);
    return false;
}

/* SIGTERM ends a shell at once, while the program below it saves its state: that has the rest of
 * timeouts.grace. */
static bool agent_awaits_terminated(struct agent *a)
{
    if (!ranks_await_terminated(a))
        return false;
    loop_timer_set(a->loop, &a->leftovers, TERMINATED_STEP_NS);
    return true;
}

/* Once no rank runs any more: kills the processes that the ranks left behind, sends the rest of
 * their output, and then BYE. A process outside of the job may keep a pipe open. */
static void agent_finish_if_done(struct agent *a)
{
    if (!a->have_job || a->nrunning || a->bye_sent || (a->awaits_master && !a->stopping) ||
        agent_awaits_terminated(a))
        return;
    if (!conn_is_open(&a->runner)) {
        loop_stop(a->loop);
        return;
    }
    if (!agent_leftovers_end(a))
        return;
    for (uint32_t i = 0; i < a->nranks; i++) {
        struct rank_proc *p = &a->ranks[i];
        bool out = p->spawned && rank_pipe_pump(&p->out),
             err = p->spawned && rank_pipe_pump(&p->err);
        if ((out || err) && !a->credit)
            return; /* until the next CREDIT */
    }
    records_send(a, a->failed || a->aborted || a->stopping);
    debug_log(DEBUG_RANK, "no process of the job is left on this host");
    uplink_send_debug(a); /* the runner reads nothing after BYE */
    a->bye_sent = true;
    conn_send(&a->runner, WIRE_BYE, WIRE_HOST, a->desc.attempt, NULL, 0);
    if (a->runner.writes_text && getppid() != a->guard)
        loop_stop(a->loop); /* flux exec was killed: its broker keeps the stream open */
}

static void agent_on_kill_timer(struct loop_timer *t)
{
    struct agent *a = t->owner;
    ranks_signal(a, WIRE_HOST, SIGKILL);
    agent_finish_if_done(a);
    if (a->nrunning)
        loop_timer_set(a->loop, t, SECOND_NS);
}

static void agent_stop(struct agent *a, const char *why, uint64_t grace_ns)
{
    debug_log(DEBUG_STOP, "stops %u ranks, grace %.1f s: %s", a->nrunning, (double)grace_ns / 1e9,
              why);
    if (!a->have_job) {
        loop_stop(a->loop);
        return;
    }
    if (!a->stopping && grace_ns) {
        ranks_abort(a, COLLRUN_ERR_ABORTED, WIRE_HOST, why);
        loop_timer_set(a->loop, &a->kill_timer, grace_ns);
    }
    a->stopping = true;
    if (!grace_ns)
        agent_on_kill_timer(&a->kill_timer);
    agent_finish_if_done(a);
}

/* ---- exits ---- */

static void agent_exit_text(const struct rank_proc *p, int status, const char *memory, char *text,
                            size_t size)
{
    const struct desc *desc = &p->agent->desc;
    const char *host = desc->hosts[p->agent->host].name;
    if (memory[0])
        snprintf(text, size,
                 "rank %u (%s, pid %d) was killed by the kernel for lack of memory (%s)", p->rank,
                 host, (int)p->pid, memory);
    else if (WIFSIGNALED(status))
        snprintf(text, size, "rank %u (%s, pid %d) was killed by signal %d (%s)", p->rank, host,
                 (int)p->pid, WTERMSIG(status), signal_name(WTERMSIG(status)));
    else
        snprintf(text, size,
                 "rank %u (%s, pid %d) exited with code %d before its workloads were done", p->rank,
                 host, (int)p->pid, WEXITSTATUS(status));
}

/* A line on the stderr of the rank, as crash reports are. A command may have a folder that the
 * agent does not know. */
static void agent_tell_core(struct rank_proc *p)
{
    const char *workdir = p->agent->desc.hosts[p->agent->host].workdir;
    char folder[PATH_MAX] = ".", text[PATH_MAX + 400], line[PATH_MAX + 440];
    if (p->command && p->command->workdir[0])
        snprintf(folder, sizeof folder, "%s", p->command->workdir);
    else if (workdir[0])
        snprintf(folder, sizeof folder, "%s", workdir);
    else if (p->command || !getcwd(folder, sizeof folder))
        snprintf(folder, sizeof folder, ".");
    core_file_describe_here(p->pid, folder, text, sizeof text);
    int n = snprintf(line, sizeof line, "rank %u: %s\n", p->rank, text);
    uplink_send_output(&p->err, line, (size_t)n);
}

/* Frames that the rank sent before it exited (FAILED above all) precede EXITED. The limit is for a
 * process that has inherited the socket and still writes. */
static void agent_read_last_frames(struct rank_proc *p)
{
    for (int rounds = 0; rounds < LAST_READS && conn_is_open(&p->control); rounds++) {
        struct pollfd waiting = {.fd = p->control.read_fd, .events = POLLIN};
        if (poll(&waiting, 1, 0) <= 0)
            return;
        p->control.reader.ready(&p->control.reader, EPOLLIN);
    }
}

/* The failed call that may be why the rank has ended. Once the job stops, what a rank got stays the
 * reason for however long it takes to end. */
static void agent_last_failure(const struct rank_proc *p, struct record_view_failure *out)
{
    struct record_view v;
    *out = (struct record_view_failure){0};
    if (!p->record)
        return;
    record_calibrate(p->record);
    if (record_view_init(&v, p->record, p->record_len, NULL) == COLLRUN_OK)
        record_view_failure(&v, p->agent->aborted ? UINT64_MAX : RECORD_VIEW_RECENT_NS, out);
}

/* What a program that has no connection to the agent has left in its record. */
static void agent_tell_exception(const struct rank_proc *p)
{
    struct record_view_exception e;
    struct record_view v;
    struct buf b;
    if (!p->record || record_view_init(&v, p->record, p->record_len, NULL) != COLLRUN_OK ||
        !record_view_exception(&v, &e))
        return;
    buf_init(&b);
    wire_put_exception(&b, &(struct wire_exception){e.type, e.text, e.file, e.line, e.thread});
    conn_send_buf(&p->agent->runner, WIRE_EXCEPTION, p->rank, p->agent->desc.attempt, &b);
    buf_fini(&b);
}

static void agent_on_rank_exit(struct rank_proc *p, int status, const struct rusage *use)
{
    struct agent *a = p->agent;
    p->exited = true;
    a->nrunning--;
    ranks_note_memory(a);
    agent_read_last_frames(p);
    rank_check_started(p);
    if (p->command)
        pmi_finish(&p->pmi, status == 0);
    bool dismissed = p->command && p->command->background && a->foreground_done;
    bool early = !dismissed && (status != 0 || (!p->command && !p->idle));
    char memory[96] = "";
    a->failed = a->failed || early;
    debug_log(DEBUG_RANK, "rank %u (pid %d) has ended, wait status %d%s%s%s; %u still run", p->rank,
              (int)p->pid, status, early ? ", early" : "", p->failed ? ", after FAILED" : "",
              dismissed ? ", in the background" : "", a->nrunning);
    if (early && !p->failed)
        rank_report_closed(p);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !a->stopping)
        memory_watch_claim_kill(&a->memory, memory, sizeof memory);
    if (early && !a->aborted && !p->failed && !a->desc.may_continue) {
        char text[256];
        agent_exit_text(p, status, memory, text, sizeof text);
        ranks_abort(a, COLLRUN_ERR_PEER_FAILED, p->rank, text);
    }
    rank_pipe_pump(&p->out);
    rank_pipe_pump(&p->err);
    if (WIFSIGNALED(status) && WCOREDUMP(status))
        agent_tell_core(p);
    conn_close(&p->control);
    local_rdv_on_rank_exit(&a->rendezvous, p->rank);
    audit_sender_end_rank(&a->audit, p);
    trace_sender_end_rank(&a->trace, p);
    cut_sender_end_rank(&a->cuts, p, status == 0);
    if (early) {
        status_send(a, p);
        agent_tell_exception(p);
    }
    struct wire_exited exited = {
        .status = status,
        .user_us = (uint64_t)use->ru_utime.tv_sec * 1000000u + (uint64_t)use->ru_utime.tv_usec,
        .system_us = (uint64_t)use->ru_stime.tv_sec * 1000000u + (uint64_t)use->ru_stime.tv_usec,
        .max_rss = (uint64_t)use->ru_maxrss * 1024u,
        .memory = memory};
    struct buf b;
    agent_last_failure(p, &exited.why);
    exited.disturbed =
        p->terminated || p->pmi.disturbed || (p->record && atomic_load(&p->record->disturbed)) ||
        exited.why.status == COLLRUN_ERR_PEER_FAILED || exited.why.status == COLLRUN_ERR_ABORTED;
    buf_init(&b);
    wire_put_exited(&b, &exited);
    conn_send_buf(&a->runner, WIRE_EXITED, p->rank, a->desc.attempt, &b);
    buf_fini(&b);
}

static void agent_on_leftovers(struct loop_timer *t)
{
    agent_finish_if_done(t->owner);
}

static void agent_reap_children(struct agent *a)
{
    struct rusage use;
    int status;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG, &use)) > 0) {
        for (uint32_t i = 0; i < a->nranks; i++) {
            if (a->ranks[i].pid == pid && !a->ranks[i].exited)
                agent_on_rank_exit(&a->ranks[i], status, &use);
        }
    }
    agent_finish_if_done(a);
}

/* The runner learns the reason before the ranks exit: their exits are then no failures of theirs.
 */
static void agent_on_stop_signal(struct agent *a, int sig)
{
    /* The guard blocks every signal but SIGKILL, and its end sends SIGTERM. */
    const bool guard_killed = sig == SIGTERM && getppid() != a->guard;
    if (a->have_job && !a->stopping) {
        struct diag d;
        if (guard_killed)
            diag_set(&d, COLLRUN_ERR_ABORTED,
                     "its collrun-guard (pid %d), the parent of its collrun-agent, was killed by "
                     "signal %d (SIGKILL)",
                     (int)a->guard, SIGKILL);
        else
            diag_set(&d, COLLRUN_ERR_ABORTED, "its collrun-agent was ended by signal %d (%s)", sig,
                     signal_name(sig));
        uplink_send_error(a, &d);
    }
    agent_stop(a,
               guard_killed ? "collrun-guard on this host was killed"
                            : "collrun-agent on this host was ended by a signal",
               a->desc.grace_ns ? a->desc.grace_ns : SECOND_NS);
}

static void agent_on_signal(struct loop_fd *w, uint32_t events)
{
    (void)events;
    struct agent *a = w->owner;
    struct signalfd_siginfo info;
    bool child = false;
    int sig = 0;
    while (read(w->fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            child = true;
        else
            sig = (int)info.ssi_signo;
    }
    if (child)
        agent_reap_children(a);
    if (sig)
        agent_on_stop_signal(a, sig);
}

/* ---- from the ranks ---- */

static void agent_on_rank_frame(struct rank_proc *p, const struct wire_frame *f)
{
    struct agent *a = p->agent;
    if (f->type < WIRE_ATTACHED || f->type > WIRE_EXCEPTION)
        return; /* a rank may not send it */
    if (f->type == WIRE_IDLE)
        audit_sender_end_rank(&a->audit, p);
    if (f->type == WIRE_ATTACHED) {
        struct wire_attached attached;
        p->member = true;
        if (wire_read_attached(f, NULL, &attached))
            p->member_pid = (pid_t)attached.pid;
    }
    p->idle = p->idle || f->type == WIRE_IDLE;
    p->failed = p->failed || f->type == WIRE_FAILED;
    if (local_rdv_take(&a->rendezvous, f))
        return;
    conn_send(&a->runner, f->type, p->rank, a->desc.attempt, f->payload, f->len);
    /* A rank that logs faster than the runner reads waits in its next frame. */
    if (buf_pending(conn_out(&a->runner)) > RUNNER_BACKLOG)
        conn_pause(&p->control);
}

static void agent_read_ranks_again(struct conn *c)
{
    struct agent *a = c->owner;
    for (uint32_t i = 0; i < a->nranks; i++)
        conn_resume(&a->ranks[i].control);
}

/* ---- from the runner ---- */

static void agent_pump_output(struct agent *a)
{
    for (uint32_t i = 0; i < a->nranks && a->credit; i++) {
        if (a->ranks[i].spawned) {
            rank_pipe_pump(&a->ranks[i].out);
            rank_pipe_pump(&a->ranks[i].err);
        }
    }
}

static void agent_on_credit(struct agent *a, const struct wire_frame *f)
{
    struct wire_credit credit;
    if (!wire_read_credit(f, NULL, &credit))
        return;
    a->credit += credit.bytes;
    agent_pump_output(a);
    agent_finish_if_done(a);
}

/* A cut link does not close the stream; only the time without frames shows it. */
static void agent_on_silence(struct loop_timer *t)
{
    struct agent *a = t->owner;
    struct diag why;
    diag_set(&why, COLLRUN_ERR_TIMEOUT, "no frame from collrun for too long");
    debug_log(DEBUG_LIVENESS, "no frame of the runner for %.1f s", (double)a->silence_ns / 1e9);
    conn_close(&a->runner);
    agent_on_runner_closed(&a->runner, &why);
}

static void agent_on_keepalive(struct agent *a, const struct wire_frame *f)
{
    struct wire_keepalive k;
    if (!wire_read_keepalive(f, NULL, &k))
        return;
    a->silence_ns = (uint64_t)k.limit_ms * 1000000u;
    a->keepalive_ns = k.now_ns;
    a->keepalive_at_ns = now_ns();
}

static void agent_on_query(struct agent *a, const struct wire_frame *f)
{
    (void)f;
    for (uint32_t i = 0; i < a->nranks; i++)
        if (a->ranks[i].pid && !a->ranks[i].exited)
            status_send(a, &a->ranks[i]);
}

static void agent_on_look(struct agent *a, const struct wire_frame *f)
{
    cut_sender_on_look(&a->cuts, f);
}

static void agent_on_measure(struct agent *a, const struct wire_frame *f)
{
    (void)f;
    for (uint32_t i = 0; i < a->nranks; i++)
        if (a->ranks[i].pid && !a->ranks[i].exited)
            usage_send(a, &a->ranks[i]);
}

/* Ranks that have not been started are not started any more. */
static void agent_on_abort(struct agent *a)
{
    a->awaits_master = false;
    a->aborted = true;
    ranks_end_commands(a);
    agent_finish_if_done(a);
}

/* A frame for ranks; of any other type it is dropped. */
static void agent_relay(struct agent *a, const struct wire_frame *f)
{
    const struct buf payload = buf_borrow(f->payload, f->len);
    if (f->type == WIRE_ABORT)
        agent_on_abort(a);
    a->foreground_done = a->foreground_done || f->type == WIRE_STOP_BACKGROUND;
    if (f->type >= WIRE_REPLY && f->type <= WIRE_ABORT &&
        (f->rank == WIRE_HOST || ranks_find(a, f->rank)))
        ranks_send(a, f->rank, f->type, &payload);
}

static void agent_on_job(struct agent *a, const struct wire_frame *f)
{
    struct diag d;
    diag_init(&d);
    if ((f->type == WIRE_JOB ? job_start : job_on_master)(a, f, &d) != COLLRUN_OK)
        uplink_send_error(a, &d);
    agent_finish_if_done(a);
}

static void agent_on_rank_signal(struct agent *a, const struct wire_frame *f)
{
    struct wire_signal s;
    if (!wire_read_signal(f, NULL, &s))
        return;
    const int sig = (int)s.signal;
    if (s.warning)
        ranks_warn(a, sig);
    else
        ranks_signal(a, f->rank, sig);
    if (sig == SIGSTOP && f->rank == WIRE_HOST)
        local_rdv_suspend(&a->rendezvous);
    else if (sig == SIGCONT && f->rank == WIRE_HOST)
        local_rdv_resume(&a->rendezvous);
    agent_finish_if_done(a); /* after SIGKILL nothing is waited for any more */
}

static void agent_on_stdin(struct agent *a, const struct wire_frame *f)
{
    struct rank_proc *p = ranks_find(a, f->rank);
    if (p && p->spawned)
        rank_stdin_on_frame(&p->in, f);
}

static void agent_on_window(struct agent *a, const struct wire_frame *f)
{
    const struct rank_proc *p = ranks_find(a, f->rank);
    if (p && p->spawned)
        rank_terminal_resize(p, f);
}

static void agent_on_read_records(struct agent *a, const struct wire_frame *f)
{
    (void)f;
    records_send(a, true);
}

static void agent_on_quit(struct agent *a, const struct wire_frame *f)
{
    (void)f;
    agent_stop(a, "", 0);
}

static void agent_on_runner_frame(struct conn *c, const struct wire_frame *f)
{
    static const struct {
        uint16_t type;
        void (*handle)(struct agent *a, const struct wire_frame *f);
    } handlers[] = {
        {WIRE_JOB, agent_on_job},
        {WIRE_MASTER, agent_on_job},
        {WIRE_SIGNAL, agent_on_rank_signal},
        {WIRE_CREDIT, agent_on_credit},
        {WIRE_STDIN, agent_on_stdin},
        {WIRE_WINDOW, agent_on_window},
        {WIRE_MULTICAST, ranks_send_multicast},
        {WIRE_QUERY, agent_on_query},
        {WIRE_MEASURE, agent_on_measure},
        {WIRE_READ_RECORDS, agent_on_read_records},
        {WIRE_READ_STACKS, stacks_on_read},
        {WIRE_LOOK, agent_on_look},
        {WIRE_EXAMINE, examine_host},
        {WIRE_PLACE, job_on_place},
        {WIRE_PROBE, examine_probe},
        {WIRE_KEEPALIVE, agent_on_keepalive},
        {WIRE_DEBUG, uplink_open_debug},
        {WIRE_QUIT, agent_on_quit},
    };
    struct agent *a = c->owner;
    size_t i = 0, n = sizeof handlers / sizeof *handlers;
    while (i < n && handlers[i].type != f->type)
        i++;
    (i < n ? handlers[i].handle : agent_relay)(a, f);
    agent_restart_silence(a);
}

static void agent_on_runner_closed(struct conn *c, const struct diag *why)
{
    struct agent *a = c->owner;
    if (why->code) /* otherwise the runner knows why */
        fprintf(stderr, "collrun-agent: %s\n", why->text);
    a->no_memory = why->code == COLLRUN_ERR_NO_MEMORY;
    loop_timer_clear(a->loop, &a->heartbeat);
    loop_timer_clear(a->loop, &a->silence);
    uplink_close_debug(a);
    debug_log(DEBUG_LIVENESS, "the stream to the runner has ended: %s",
              why->code ? why->text : "the runner closed it");
    agent_read_ranks_again(c);
    a->credit = UINT64_MAX; /* output is read and dropped, so that no rank blocks on a full pipe */
    agent_pump_output(a);
    if (!a->nrunning && (a->bye_sent || !agent_awaits_terminated(a)))
        loop_stop(a->loop);
    else
        agent_stop(a, "collrun is gone (killed, or the connection to it is lost)",
                   a->desc.grace_ns);
}

/* ---- main ---- */

/* The agent needs four descriptors for each rank, and a sparse file that is longer than many a
 * `ulimit -f`. */
static void agent_raise_limits(struct agent *a)
{
    getrlimit(RLIMIT_NOFILE, &a->files);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){a->files.rlim_max, a->files.rlim_max});
    a->nice = getpriority(PRIO_PROCESS, 0);
    getrlimit(RLIMIT_FSIZE, &a->file_size);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){a->file_size.rlim_max, a->file_size.rlim_max});
}

/* Signals for the ranks that also reach the agent, as those of `scancel -s USR1` and
 * `#SBATCH --signal` do, do not end it; nor does a file that is too long. */
static void agent_ignore_signals(void)
{
    for (size_t i = 0; i < sizeof agent_ignored / sizeof *agent_ignored; i++)
        signal(agent_ignored[i], SIG_IGN);
}

static int agent_init(struct agent *a, struct diag *d)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    agent_ignore_signals();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    agent_raise_limits(a);
    memory_watch_init(&a->memory, "/proc/self/cgroup", "/sys/fs/cgroup");
    arena_init(&a->arena);
    a->loop = loop_new();
    a->output = arena_alloc(&a->arena, AGENT_OUTPUT);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (!a->loop || !a->output || fd < 0)
        return diag_sys(d, errno, "cannot start collrun-agent");
    a->signals = (struct loop_fd){.fd = -1, .ready = agent_on_signal, .owner = a};
    int err = -loop_watch(a->loop, &a->signals, fd, EPOLLIN);
    if (err)
        return diag_sys(d, err, "cannot watch signals");
    a->heartbeat = (struct loop_timer){.fired = agent_on_heartbeat, .owner = a};
    a->silence = (struct loop_timer){.fired = agent_on_silence, .owner = a};
    a->leftovers = (struct loop_timer){.fired = agent_on_leftovers, .owner = a};
    a->kill_timer = (struct loop_timer){.fired = agent_on_kill_timer, .owner = a};
    a->debug.fd = -1;
    a->runner.peer = "runner";
    a->runner.frame = agent_on_runner_frame;
    a->runner.on_closed = agent_on_runner_closed;
    a->runner.drained = agent_read_ranks_again;
    a->runner.owner = a;
    a->on_rank_frame = agent_on_rank_frame;
    return conn_open(&a->runner, a->loop, STDIN_FILENO, STDOUT_FILENO, d);
}

static int agent_main_with(struct guard_files *files, bool text)
{
    struct agent *a = calloc(1, sizeof *a); /* too large for a small `ulimit -s` */
    struct diag d;
    diag_init(&d);
    if (!a) {
        fputs("collrun-agent: out of memory\n", stderr);
        return EXIT_INTERNAL;
    }
    a->guard = getppid();
    a->left = files;
    a->hostmem = a->master.fd = -1;
    a->runner.writes_text = text;
    if (text) /* see guard.h */
        setpgid(0, 0);
    if (agent_init(a, &d) != COLLRUN_OK) {
        fprintf(stderr, "collrun-agent: %s\n", d.text);
        return EXIT_INTERNAL;
    }
    sched_slice_shorten();
    uplink_send_hello(a);
    a->silence_ns = FIRST_KEEPALIVE_NS;
    agent_restart_silence(a);
    a->heartbeat_ns = now_ns();
    loop_timer_set(a->loop, &a->heartbeat, SECOND_NS);
    loop_run(a->loop);
    bool clean = reap_descendants(a->leftovers_ns ? a->leftovers_ns : now_ns() + 5 * SECOND_NS);
    guard_files_remove(a->left);
    stacks_close(a);
    open_mpi_stop(&a->open_mpi);
    audit_sender_stop(&a->audit);
    trace_sender_stop(&a->trace);
    cut_sender_stop(&a->cuts);
    for (uint32_t i = 0; i < a->nranks; i++)
        rank_close(&a->ranks[i]);
    local_rdv_close(&a->rendezvous);
    for (uint32_t i = 0; a->pmi_keys && i < a->desc.nworkloads; i++)
        pmi_keys_fini(&a->pmi_keys[i]);
    master_release(&a->master);
    cores_close(&a->cores);
    if (a->hostmem >= 0)
        close(a->hostmem);
    conn_drain(&a->runner, now_ns() + SECOND_NS);
    conn_close(&a->runner);
    loop_free(a->loop);
    arena_fini(&a->arena);
    const int code = a->no_memory ? EXIT_INTERNAL : clean ? 0 : 1;
    free(a);
    return code;
}

int agent_main(struct guard_files *files)
{
    return agent_main_with(files, false);
}

int agent_main_text(struct guard_files *files)
{
    return agent_main_with(files, true);
}
