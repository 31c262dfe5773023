/* SPDX-License-Identifier: Apache-2.0
 *
 * The frame around a run: signals, agents, the loop, the verdict, and the sweep at the end. The
 * runner is a child subreaper too: if an agent on this machine is killed, what it leaves becomes
 * the runner's to end.
 */
#include "launch/launch.h"

#include "base/reap.h"
#include "launch/supervise.h"
#include "launch/transport.h"
#include "prefix.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND_NS 1000000000ull

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

static int open_signals(struct supervisor *s, struct loop_fd *w, sigset_t *before, struct diag *d)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, before);
    signal(SIGPIPE, SIG_IGN);
    *w = (struct loop_fd){.fd = -1, .ready = on_signal, .owner = s};
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return diag_sys(d, errno, "watch signals");
    int rc = loop_watch(s->loop, w, fd, EPOLLIN);
    return rc < 0 ? diag_sys(d, -rc, "watch signals") : COLLRUN_OK;
}

static int start_agents(struct supervisor *s, struct diag *d)
{
    const char *agent = prefix_path(&s->arena, "libexec/collrun/collrun-agent", d);
    if (!agent)
        return d->code;
    for (uint32_t h = 0; h < s->desc->nhosts; h++) {
        struct transport_stream stream;
        int rc = transport_local_open(agent, &stream, d);
        if (rc == COLLRUN_OK)
            rc = supervisor_add_host(s, h, stream.read_fd, stream.write_fd, stream.pid, d);
        if (rc != COLLRUN_OK)
            return diag_wrap(d, "host %s", s->desc->hosts[h].name);
    }
    return COLLRUN_OK;
}

static int tell_verdict(struct supervisor *s)
{
    struct verdict v;
    char others[512];
    cause_find(s->desc, s->ranks, &s->trouble, s->trouble_ns, &v);
    live_wipe(&s->live);
    rundir_result(s->rundir, s->ranks, &v, s->desc->attempt + 1);
    if (v.class == CAUSE_NONE)
        return 0;
    if (v.class == CAUSE_INTERRUPTED)
        return v.exit_code;
    if (!v.diag.loc.file)
        v.diag.loc.file = s->job->file;
    report_diag(s->options->report, &v.diag);
    cause_consequences(s->desc, s->ranks, &v, others, sizeof others);
    if (others[0] && !s->options->quiet)
        fprintf(s->options->report->out, "collrun: %s\n", others);
    return v.exit_code;
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

int launch_run(const struct job *job, const struct desc *desc, const struct launch_options *options)
{
    struct supervisor s;
    struct diag d;
    struct loop_fd signals = {.fd = -1};
    sigset_t before;
    diag_init(&d);
    int rc = supervisor_init(&s, job, desc, options, &d);
    if (rc != COLLRUN_OK) {
        report_diag(options->report, &d);
        supervisor_fini(&s);
        return 125;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    rc = open_signals(&s, &signals, &before, &d);
    if (rc == COLLRUN_OK)
        rc = start_agents(&s, &d);
    if (rc == COLLRUN_OK)
        loop_run(s.loop);
    else
        supervisor_trouble(&s, CAUSE_HOST_LOST, 127, &d);
    output_drain(s.output, now_ns() + 60 * SECOND_NS);
    int code = tell_verdict(&s);
    sweep(&s);
    if (signals.fd >= 0)
        close(signals.fd);
    supervisor_fini(&s);
    return code;
}
