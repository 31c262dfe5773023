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
            supervisor_interrupt(s, (int)info.ssi_signo);
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
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGTSTP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    *out = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return *out < 0 ? diag_sys(d, errno, "watch signals") : COLLRUN_OK;
}

/* For when no loop runs: a signal that asks for the end, or 0 after so many ms without one. */
static int wait_signal(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct signalfd_siginfo info;
    if (poll(&p, 1, ms) <= 0)
        return 0;
    while (read(fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGTSTP)
            raise(SIGSTOP);
        else if (info.ssi_signo != SIGCHLD && info.ssi_signo != SIGUSR1)
            return (int)info.ssi_signo;
    }
    return 0;
}

/* What the ranks have printed and nobody has read yet is theirs to have, however long the reader
 * takes (a pager, say), unless the user will not wait. */
static void drain(struct supervisor *s, int signal_fd)
{
    int sig = 0;
    uint64_t patience = s->interrupts ? now_ns() + SECOND_NS : UINT64_MAX;
    while (!sig && now_ns() < patience && !output_drain(s->output, now_ns() + SECOND_NS / 10))
        sig = wait_signal(signal_fd, 0);
    if (sig && s->trouble.class == CAUSE_NONE)
        s->trouble =
            (struct verdict){.class = CAUSE_INTERRUPTED, .exit_code = 128 + sig, .rank = WIRE_HOST};
}

static void tell_verdict(struct supervisor *s, struct verdict *v)
{
    char others[512];
    cause_find(s->desc, s->ranks, &s->trouble, s->trouble_ns, v);
    live_wipe(&s->live);
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
        fprintf(stderr,
                "collrun: some processes of the job cannot be killed (they hang in the kernel)\n");
}

/* ---- attempts ---- */

struct launch {
    const struct job *job;
    const struct launch_options *options;
    struct desc desc; /* of this attempt */
    struct rundir *rundir;
    struct policy policy;
    int signal_fd;
    bool output_lost; /* in any attempt */
};

static int exit_code(const struct launch *l, const struct verdict *v)
{
    return v->class != CAUSE_NONE ? v->exit_code : l->output_lost ? 125 : 0;
}

/* One attempt, from agents to verdict. True: it is to be repeated, after the pause. */
static bool run_attempt(struct launch *l, struct verdict *v, struct policy_decision *next)
{
    struct supervisor s;
    struct diag d;
    struct loop_fd signals = {.fd = -1, .ready = on_signal, .owner = &s};
    diag_init(&d);
    *next = (struct policy_decision){0};
    int rc = supervisor_init(&s, l->job, &l->desc, l->options, l->rundir, &d);
    if (rc != COLLRUN_OK) {
        report_diag(l->options->report, &d);
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
    drain(&s, l->signal_fd);
    tell_verdict(&s, v);
    if (v->class != CAUSE_NONE)
        policy_decide(&l->policy, &l->job->on_failure, v, s.ranks, now_ns() - begin, next);
    l->output_lost = l->output_lost || s.output_lost;
    rundir_event(l->rundir, "end", json_pack("{s:i}", "exit_code", exit_code(l, v)));
    rundir_result(l->rundir, s.ranks, v, exit_code(l, v));
    sweep(&s);
    supervisor_fini(&s);
    return next->restart;
}

/* The pause before a restart. Not 0: the signal that interrupted it. */
static int pause_before_restart(struct launch *l, const struct policy_decision *next)
{
    uint64_t until = now_ns() + next->pause_ns;
    int sig = 0;
    if (!l->options->quiet)
        fprintf(stderr, "collrun: restarting in %.1f s: attempt %u, restart %u of %lld\n",
                (double)next->pause_ns / 1e9, l->desc.attempt + 1, l->policy.restarts,
                (long long)l->job->on_failure.max_restarts.v);
    for (uint64_t now = now_ns(); now < until && !sig; now = now_ns())
        sig = wait_signal(l->signal_fd, (int)((until - now) / 1000000 + 1));
    return sig;
}

static int run_attempts(struct launch *l)
{
    struct verdict v;
    struct policy_decision next;
    while (run_attempt(l, &v, &next)) {
        int sig = pause_before_restart(l, &next);
        if (sig)
            return 128 + sig;
        l->desc.attempt++;
        rundir_event(l->rundir, "restart", NULL);
    }
    if (next.why[0] && !l->options->quiet)
        fprintf(stderr, "collrun: %s\n", next.why);
    return exit_code(l, &v);
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

int launch_run(const struct job *job, const struct desc *desc, const struct launch_options *options)
{
    struct launch l = {.job = job, .options = options, .desc = *desc, .signal_fd = -1};
    struct diag d;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    l.rundir = rundir_open(job, &l.desc, &d);
    int code = d.code == COLLRUN_OK ? 125 : 2;
    keep(&l, "plan.json", write_plan);
    keep(&l, "resolved.yaml", write_resolved);
    if (d.code == COLLRUN_OK && open_signals(&l.signal_fd, &d) == COLLRUN_OK)
        code = run_attempts(&l);
    else
        report_diag(options->report, &d);
    if (l.signal_fd >= 0)
        close(l.signal_fd);
    rundir_close(l.rundir);
    return code;
}
