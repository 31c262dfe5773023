/* SPDX-License-Identifier: Apache-2.0
 *
 * The frame around a run: signals, attempts, and in each of them agents, the loop, the verdict and
 * the sweep at the end. The runner is a child subreaper too: if an agent on this machine is killed,
 * what it leaves becomes the runner's to end.
 */
#include "launch/launch.h"

#include "base/reap.h"
#include "launch/muster.h"
#include "launch/supervise.h"
#include "spec/resolved.h"
#include "tell/show.h"
#include "watch/policy.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND_NS 1000000000ull

enum { LAST_WORDS = 20 }; /* lines of the culprit's stderr that the verdict repeats */

static void on_signal(struct loop_fd *w, uint32_t events)
{
    (void)events;
    struct supervisor *s = w->owner;
    struct signalfd_siginfo info;
    while (read(w->fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGUSR1) {
            supervisor_tell_state(s);
            continue;
        }
        if (info.ssi_signo == SIGTSTP) {
            supervisor_suspend(s);
            continue;
        }
        if (info.ssi_signo != SIGCHLD) {
            supervisor_interrupt(s, &info);
            continue;
        }
        int status;
        pid_t pid;
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
            supervisor_child_ended(s, pid, status);
    }
}

static int open_signals(int *out, struct diag *d)
{
    static const int wanted[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGTSTP};
    struct sigaction before;
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        /* nohup(1), and a shell without job control: what they ignore stays so. */
        bool may = wanted[i] == SIGHUP || wanted[i] == SIGTSTP;
        if (!may || sigaction(wanted[i], NULL, &before) < 0 || before.sa_handler != SIG_IGN)
            sigaddset(&set, wanted[i]);
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    *out = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return *out < 0 ? diag_sys(d, errno, "watch signals") : COLLRUN_OK;
}

static void tell_verdict(struct supervisor *s, struct verdict *v)
{
    char others[512];
    if (v->class == CAUSE_NONE || v->class == CAUSE_INTERRUPTED)
        return;
    if (v->diag.loc.line && !v->diag.loc.file)
        v->diag.loc.file = s->job->file;
    report_diag(s->options->report, &v->diag);
    muster_report(s, s->options->report);
    if (v->rank != WIRE_HOST && !s->options->quiet)
        output_last_words(s->output, v->rank, LAST_WORDS, "  | ", s->options->report->out);
    cause_consequences(s->desc, s->ranks, v, others, sizeof others);
    if (v->class == CAUSE_TIMEOUT && !s->options->quiet)
        supervisor_print_state(s, s->options->report->out);
    if (others[0] && !s->options->quiet)
        fprintf(s->options->report->out, "collrun: %s\n", others);
}

/* Nothing stays: agents end when their stream does; what a killed one left behind is ours. */
static void sweep(struct supervisor *s)
{
    for (uint32_t h = 0; h < s->desc->nhosts; h++)
        conn_close(&s->hosts[h].conn);
    uint64_t patience = now_ns() + (s->interrupts > 2          ? 0
                                    : s->ladder == LADDER_NONE ? 5
                                                               : 1) *
                                       SECOND_NS;
    for (uint32_t h = 0; h < s->desc->nhosts; h++) {
        while (s->hosts[h].pid && !s->hosts[h].lost &&
               waitpid(s->hosts[h].pid, NULL, WNOHANG) == 0 && now_ns() < patience)
            usleep(200);
    }
    if (s->interrupts <= 2 && !reap_descendants(now_ns() + 5 * SECOND_NS))
        fprintf(s->options->report->out,
                "collrun: some processes of the job cannot be killed (they hang in the kernel)\n");
}

/* ---- attempts ---- */

struct launch {
    const struct job *job;
    struct launch_options options;
    struct report report; /* printing to the console */
    struct console *console;
    struct desc desc; /* of this attempt */
    struct rundir *rundir;
    struct policy policy;
    int signal_fd;
    bool hurried;     /* collrun was told to end while the job ran */
    bool output_lost; /* in any attempt */
    bool reader_gone;
    enum cause_class noted_class; /* what result.json says */
    int noted_code;
};

static int exit_code(const struct launch *l, const struct verdict *v)
{
    return v->class != CAUSE_NONE ? v->exit_code : l->output_lost ? 125 : 0;
}

static void note_end(struct launch *l, const struct verdict *v)
{
    l->noted_class = v->class;
    l->noted_code = exit_code(l, v);
    rundir_event(l->rundir, "end", json_pack("{s:i}", "exit_code", l->noted_code));
}

/* Once no loop runs. */
static void output_broken(void *ctx, const char *which, int err)
{
    struct launch *l = ctx;
    l->reader_gone = l->reader_gone || err == EPIPE;
    l->output_lost = l->output_lost || err != EPIPE;
    if (err != EPIPE)
        supervisor_report_broken(&l->report, which, err);
}

static void detach_console(struct launch *l)
{
    console_attach(l->console, NULL, &(struct console_hooks){.broken = output_broken, .ctx = l});
}

/* Kept before it is told: whoever is to be told may not read for long. */
static void judge(struct launch *l, struct supervisor *s, struct verdict *v)
{
    cause_find(s->desc, s->ranks, &s->trouble, s->trouble_ns, v);
    l->output_lost = l->output_lost || s->output_lost;
    l->hurried = s->interrupts > 0;
    note_end(l, v);
    rundir_result(l->rundir, s->ranks, v, l->noted_code);
    tell_verdict(s, v);
}

/* One attempt, from agents to verdict. True: it is to be repeated, after the pause. */
static bool run_attempt(struct launch *l, struct verdict *v, struct policy_decision *next)
{
    struct supervisor s;
    struct diag d;
    struct loop_fd signals = {.fd = -1, .ready = on_signal, .owner = &s};
    diag_init(&d);
    *next = (struct policy_decision){0};
    int rc = supervisor_init(&s,
                             &(struct attempt){.job = l->job,
                                               .desc = &l->desc,
                                               .options = &l->options,
                                               .console = l->console,
                                               .rundir = l->rundir},
                             &d);
    if (rc != COLLRUN_OK) {
        report_diag(&l->report, &d);
        *v =
            (struct verdict){.class = CAUSE_LAUNCH, .exit_code = 125, .rank = WIRE_HOST, .diag = d};
        supervisor_fini(&s);
        return false;
    }
    uint64_t begin = now_ns();
    loop_watch(s.loop, &signals, l->signal_fd, EPOLLIN);
    rc = muster_begin(&s, &d);
    if (rc != COLLRUN_OK) /* with a place: job.yaml names something that is not there */
        supervisor_trouble(&s, CAUSE_LAUNCH, d.loc.line ? 2 : 125, &d);
    if (!supervisor_over(&s))
        loop_run(s.loop);
    live_wipe(&s.live);
    detach_console(l);
    judge(l, &s, v);
    if (v->class != CAUSE_NONE)
        policy_decide(&l->policy, &l->job->on_failure, v, s.ranks, now_ns() - begin, next);
    sweep(&s);
    supervisor_fini(&s);
    return next->restart;
}

/* ---- between and after attempts ---- */

/* Until so many ms are over, somebody has read, or a signal has come that is for the caller to
 * heed; 0: none. */
static int wait_signal(struct launch *l, int ms)
{
    struct pollfd p[3] = {{.fd = l->signal_fd, .events = POLLIN}};
    struct signalfd_siginfo info;
    poll(p, 1 + console_poll(l->console, p + 1), ms);
    console_push(l->console);
    while (read(l->signal_fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGTSTP)
            raise(SIGSTOP);
        else if (info.ssi_signo != SIGCHLD)
            return (int)info.ssi_signo;
    }
    return 0;
}

/* False: collrun is to end instead, as `v` then says. */
static bool pause_before_restart(struct launch *l, const struct policy_decision *next,
                                 struct verdict *v)
{
    FILE *out = l->report.out;
    uint64_t until = now_ns() + next->pause_ns;
    uint32_t attempt = l->desc.attempt + 1;
    if (!l->options.quiet)
        fprintf(out, "collrun: restarting in %.1f s: attempt %u, restart %u of %lld\n",
                (double)next->pause_ns / 1e9, attempt, l->policy.restarts,
                (long long)l->job->on_failure.max_restarts.v);
    for (uint64_t now = now_ns(); now < until; now = now_ns()) {
        int sig = wait_signal(l, (int)((until - now) / 1000000 + 1));
        if (sig == SIGUSR1) {
            fprintf(out, "collrun: no rank runs: attempt %u begins in %.1f s\n", attempt,
                    (double)(until - now) / 1e9);
        } else if (sig) {
            supervisor_interrupted(sig, v);
            diag_wrap(&v->diag, "attempt %u is not begun", attempt);
            if (!l->options.quiet)
                fprintf(out, "collrun: %s\n", v->diag.text);
            return false;
        }
    }
    return true;
}

/* What is not read yet is theirs who read it, however long they take (a pager, say), unless the
 * user will not wait. */
static void drain(struct launch *l, struct verdict *v)
{
    uint64_t until =
        l->hurried || v->class == CAUSE_INTERRUPTED ? now_ns() + SECOND_NS : UINT64_MAX;
    int sig = 0;
    while (console_pending(l->console) && now_ns() < until && !sig) {
        sig = wait_signal(l, 100);
        sig = sig == SIGUSR1 ? 0 : sig;
    }
    if (v->class != CAUSE_NONE)
        return;
    if (l->reader_gone)
        supervisor_reader_gone(v);
    else if (sig)
        supervisor_interrupted(sig, v);
}

static int run_attempts(struct launch *l)
{
    struct verdict v;
    struct policy_decision next;
    while (run_attempt(l, &v, &next)) {
        if (!pause_before_restart(l, &next, &v))
            break;
        l->desc.attempt++;
        rundir_event(l->rundir, "restart", NULL);
    }
    if (next.why[0] && !l->options.quiet)
        fprintf(l->report.out, "collrun: %s\n", next.why);
    drain(l, &v);
    if (v.class != l->noted_class || exit_code(l, &v) != l->noted_code) {
        note_end(l, &v);
        rundir_amend(l->rundir, &v, l->noted_code);
    }
    return l->noted_code;
}

static int write_plan(struct launch *l, FILE *out)
{
    struct arena arena;
    arena_init(&arena);
    int rc = show_plan_json(&l->desc, &arena, out);
    arena_fini(&arena);
    return rc;
}

static int write_resolved(struct launch *l, FILE *out)
{
    return resolved_write(l->job, out);
}

/* A file of the run directory that is known from the start. */
static void keep(struct launch *l, const char *name, int (*write)(struct launch *l, FILE *out))
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = l->rundir ? open_memstream(&text, &len) : NULL;
    int rc = f ? write(l, f) : -1;
    if (f && fclose(f) == 0 && rc == 0)
        rundir_file(l->rundir, name, text, len);
    free(text);
}

/* Everything from here on is said by way of the console. */
static int open_console(struct launch *l, struct diag *d)
{
    l->console = console_new();
    if (!l->console)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    l->report = *l->options.report;
    l->report.out = console_voice(l->console);
    l->options.report = &l->report;
    detach_console(l);
    return COLLRUN_OK;
}

int launch_run(const struct job *job, const struct desc *desc, const struct launch_options *options)
{
    struct launch l = {.job = job, .options = *options, .desc = *desc, .signal_fd = -1};
    struct diag d;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int code = 125;
    diag_init(&d);
    if (open_signals(&l.signal_fd, &d) == COLLRUN_OK && open_console(&l, &d) == COLLRUN_OK) {
        l.rundir = rundir_open(job, &l.desc, l.report.out, &d);
        code = d.code == COLLRUN_OK ? 125 : 2;
    }
    keep(&l, "plan.json", write_plan);
    keep(&l, "resolved.yaml", write_resolved);
    if (d.code == COLLRUN_OK)
        code = run_attempts(&l);
    else
        report_diag(options->report, &d);
    rundir_close(l.rundir);
    console_free(l.console);
    if (l.signal_fd >= 0)
        close(l.signal_fd);
    return code;
}
