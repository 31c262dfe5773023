/* SPDX-License-Identifier: Apache-2.0
 *
 * A run: signals, attempts, and in each attempt agents, the loop, the verdict and the cleanup. The
 * runner is a child subreaper: if an agent on this machine is killed, its descendants become
 * children of the runner, which kills and reaps them.
 */
#include "run/run.h"

#include "base/debug.h"
#include "base/exit_codes.h"
#include "base/parse.h"
#include "base/quote.h"
#include "base/reap.h"
#include "diagnose/policy.h"
#include "prefix.h"
#include "report/json_value.h"
#include "report/result.h"
#include "report/show.h"
#include "run/run_state.h"
#include "run/supervisor.h"
#include "spec/resolved.h"
#include "xalloc.h"

#include <errno.h>
#include <inttypes.h>
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
enum { HOUR_MS = 3600000 };

static void run_on_signal(struct loop_fd *w, uint32_t events)
{
    (void)events;
    struct supervisor *s = w->owner;
    struct signalfd_siginfo info;
    while (read(w->fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo != SIGCHLD) {
            supervisor_on_signal(s, &info);
            continue;
        }
        int status;
        pid_t pid;
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
            supervisor_on_child_exit(s, pid, status);
    }
}

static int run_open_signals(int *out, struct diag *d)
{
    static const int wanted[] = {SIGCHLD,  SIGINT,  SIGTERM, SIGHUP,    SIGUSR1, SIGTSTP,
                                 SIGWINCH, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU};
    struct sigaction before;
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        /* A signal that nohup(1) or a shell without job control ignores stays ignored. */
        bool may = wanted[i] == SIGHUP || wanted[i] == SIGTSTP;
        if (!may || sigaction(wanted[i], NULL, &before) < 0 || before.sa_handler != SIG_IGN)
            sigaddset(&set, wanted[i]);
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    *out = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return *out < 0 ? diag_sys(d, errno, "cannot create a signalfd") : COLLRUN_OK;
}

/* What ranks whose programs collrun cannot see into wrote last: an exception whose clean-up hangs.
 */
static void run_print_last_words(const struct supervisor *s)
{
    enum { SHOWN = 4 };
    unsigned shown = 0;
    for (uint32_t i = 0; i < s->run.desc->nranks && shown < SHOWN; i++) {
        const struct rank_state *r = &s->run.ranks[i];
        char prefix[64];
        snprintf(prefix, sizeof prefix, "collrun: rank %u wrote last to stderr: ", i);
        shown += r->command && r->part == PART_OUTSIDE &&
                 output_stderr_tail(s->output, i, 1, prefix, s->run.options->report->out);
    }
}

/* The hint for a program in Python whose last words are that there is no module collrun. */
static void run_hint_python(const struct supervisor *s, struct verdict *v)
{
    char words[512] = "";
    FILE *to = v->rank < s->run.desc->nranks ? fmemopen(words, sizeof words - 1, "w") : NULL;
    if (!to)
        return;
    output_stderr_tail(s->output, v->rank, 1, "", to);
    fclose(to);
    if (!strstr(words, "ModuleNotFoundError: No module named 'collrun"))
        return;
    struct arena arena;
    struct diag unused = {0};
    arena_init(&arena);
    const char *package = prefix_path(&arena, "lib/collrun/python/collrun", &unused);
    if (package)
        diag_hint(&v->diag, access(package, F_OK) == 0
                                ? "the package is in PYTHONPATH of each rank, which python3 -E "
                                  "and -I ignore"
                                : PREFIX_NO_PYTHON);
    arena_fini(&arena);
}

static void run_print_verdict(struct supervisor *s, const struct evidence *e, struct verdict *v)
{
    char others[1024];
    if (v->class == CAUSE_NONE || v->class == CAUSE_INTERRUPTED)
        return;
    if (v->diag.loc.line && !v->diag.loc.file)
        v->diag.loc.file = s->run.job->file;
    bool tail =
        v->rank != WIRE_HOST && !s->run.options->quiet && !output_tail_is_shown(s->output, v->rank);
    report_diag(s->run.options->report, &v->diag);
    bring_up_print_unreachable(&s->bring_up);
    if (tail)
        output_stderr_tail(s->output, v->rank, OUTPUT_TAIL_LINES, "  | ",
                           s->run.options->report->out);
    verdict_other_ranks(e, v, others, sizeof others);
    if ((v->class == CAUSE_TIMEOUT || v->class == CAUSE_MISSING) && !s->run.options->quiet) {
        status_request_print(&s->status_request, s->run.options->report->out);
        run_print_last_words(s);
    }
    if (others[0] && !s->run.options->quiet)
        report_line(s->run.options->report, others);
}

/* Closes the streams, which ends the agents, and reaps every descendant. */
static void run_reap(struct supervisor *s)
{
    hosts_close_all(&s->run);
    uint64_t deadline_ns = now_ns() + (s->stop.interrupts > 2      ? 0
                                       : s->stop.step == STOP_NONE ? 5
                                                                   : 1) *
                                          SECOND_NS;
    for (uint32_t h = 0; h < s->run.desc->nhosts; h++) {
        const struct host *host = &s->run.hosts[h];
        while (host->pid && (!host->lost || host->ended) &&
               waitpid(host->pid, NULL, WNOHANG) == 0 && now_ns() < deadline_ns)
            usleep(200);
    }
    if (s->stop.interrupts <= 2 && !reap_descendants(now_ns() + 5 * SECOND_NS))
        fprintf(s->run.options->report->out, "collrun: some processes of the job cannot be killed "
                                             "(they are blocked in the kernel)\n");
}

/* ---- hosts that were lost ----
 *
 * Before a restart: other hosts in the place of those that were lost.
 *
 *  - A spare host (hosts.spare) takes the place of a lost one, with its ranks; the lost host
 *    becomes the last spare for later restarts, for it may be back when it is needed. A host that
 *    could not be reached when the attempt began does not.
 *  - Without a spare the ranks of the lost host move to the host with the fewest ranks that has
 *    slots for all, else to several, unless they have devices. If there is no room the lost host is
 *    tried again.
 *  - This machine is never replaced: only its agent can have ended.
 *  - Ranks keep their numbers, and groups their members.
 */

enum replace_loss { REPLACE_KEPT, REPLACE_LOST, REPLACE_UNREACHED };

struct replace {
    struct job *job;
    struct desc *desc;
    struct arena *arena;
    FILE *out;
};

static const char *replace_ranks_text(struct replace *r, uint32_t host, char *out, size_t size)
{
    uint32_t n = 0, *list = arena_calloc(r->arena, r->desc->nranks, sizeof *list);
    for (uint32_t i = 0; i < r->desc->nranks; i++) {
        if (r->desc->ranks[i].host == host)
            list[n++] = i;
    }
    rank_list_format(out, size, list, n);
    return n == 1 ? "rank" : "ranks";
}

static void replace_name_host(struct replace *r, uint32_t host)
{
    const struct job_host *node = &r->job->hosts.nodes[host];
    struct desc_host *to = &r->desc->hosts[host];
    to->name = node->name.v;
    to->workdir = node->workdir.v ? node->workdir.v : "";
    to->workdir_loc = node->workdir.loc;
}

/* The host that it replaces becomes the last spare if it is `kept`. */
static void replace_by_spare(struct replace *r, uint32_t host, bool kept)
{
    struct job_hosts *hosts = &r->job->hosts;
    const struct job_host lost = hosts->nodes[host];
    char text[128];
    const char *ranks = replace_ranks_text(r, host, text, sizeof text);
    hosts->nodes[host] = hosts->spares[0];
    hosts->nspares--;
    memmove(hosts->spares, hosts->spares + 1, hosts->nspares * sizeof *hosts->spares);
    if (kept)
        hosts->spares[hosts->nspares++] = lost;
    replace_name_host(r, host);
    fprintf(r->out, "collrun: host %s takes the place of %s, with %s %s\n",
            hosts->nodes[host].name.v, lost.name.v, ranks, text);
}

/* The host with the fewest ranks that has room for `n` more; nhosts: none has. */
static uint32_t replace_find_room(const struct replace *r, uint32_t lost, uint32_t n)
{
    const struct desc *desc = r->desc;
    uint32_t best = desc->nhosts;
    for (uint32_t h = 0; h < desc->nhosts; h++) {
        const int64_t slots = r->job->hosts.nodes[h].slots.v;
        if (h == lost || (slots && desc->hosts[h].nranks + (int64_t)n > slots))
            continue;
        if (best == desc->nhosts || desc->hosts[h].nranks < desc->hosts[best].nranks)
            best = h;
    }
    return best;
}

static bool replace_has_devices(const struct desc *desc, uint32_t host)
{
    for (uint32_t i = 0; i < desc->nranks; i++) {
        if (desc->ranks[i].host == host && desc->ranks[i].ndevices)
            return true;
    }
    return false;
}

/* Whether the other hosts have slots for all ranks of this one. */
static bool replace_has_room(const struct replace *r, uint32_t lost)
{
    uint64_t room = 0;
    for (uint32_t h = 0; h < r->desc->nhosts; h++) {
        const int64_t slots = r->job->hosts.nodes[h].slots.v;
        if (h != lost)
            room += slots ? (uint64_t)slots - r->desc->hosts[h].nranks : r->desc->nranks;
    }
    return room >= r->desc->hosts[lost].nranks;
}

static void replace_number_local_ranks(struct desc *desc)
{
    for (uint32_t h = 0; h < desc->nhosts; h++)
        desc->hosts[h].nranks = 0;
    for (uint32_t i = 0; i < desc->nranks; i++)
        desc->ranks[i].local_rank = desc->hosts[desc->ranks[i].host].nranks++;
}

/* Removes a host without ranks. */
static void replace_remove(struct replace *r, uint32_t host)
{
    struct job_hosts *hosts = &r->job->hosts;
    struct desc *desc = r->desc;
    memmove(hosts->nodes + host, hosts->nodes + host + 1,
            (hosts->n - host - 1) * sizeof *hosts->nodes);
    hosts->n--;
    memmove(desc->hosts + host, desc->hosts + host + 1,
            (desc->nhosts - host - 1) * sizeof *desc->hosts);
    desc->nhosts--;
    for (uint32_t i = 0; i < desc->nranks; i++)
        desc->ranks[i].host -= desc->ranks[i].host > host;
    replace_number_local_ranks(desc);
}

/* Ranks that share a host with one that moves are not bound: their shares were computed without it.
 */
static void replace_unbind(struct desc *desc, uint32_t host)
{
    for (uint32_t i = 0; i < desc->nranks; i++) {
        if (desc->ranks[i].host == host)
            desc->ranks[i].cpus = "";
    }
}

/* One host takes all, if it has room: groups whose members shared the lost host share it. */
static void replace_by_others(struct replace *r, uint32_t lost)
{
    struct desc *desc = r->desc;
    const uint32_t one = replace_find_room(r, lost, desc->hosts[lost].nranks);
    char text[128];
    const char *name = desc->hosts[lost].name;
    const char *ranks = replace_ranks_text(r, lost, text, sizeof text);
    for (uint32_t i = 0; i < desc->nranks; i++) {
        if (desc->ranks[i].host != lost)
            continue;
        const uint32_t to = one < desc->nhosts ? one : replace_find_room(r, lost, 1);
        desc->ranks[i].host = to;
        desc->hosts[to].nranks++;
        replace_unbind(desc, to);
    }
    replace_remove(r, lost);
    fprintf(r->out, "collrun: host %s is left out; the other hosts run %s %s\n", name, ranks, text);
}

/* Arrays that may change, in place of those that the caller shares with others. */
static void replace_copy(struct replace *r)
{
    struct job_hosts *hosts = &r->job->hosts;
    struct desc *desc = r->desc;
    hosts->nodes = arena_memdup(r->arena, hosts->nodes, hosts->n * sizeof *hosts->nodes);
    hosts->spares = arena_memdup(r->arena, hosts->spares, hosts->nspares * sizeof *hosts->spares);
    desc->hosts = arena_memdup(r->arena, desc->hosts, desc->nhosts * sizeof *desc->hosts);
    desc->ranks = arena_memdup(r->arena, desc->ranks, desc->nranks * sizeof *desc->ranks);
}

/* `losses`: by host. The hosts of `job` and `desc` change in place; both are copies of their
 * owner's. Prints a line about each change. */
static void replace_lost_hosts(struct job *job, struct desc *desc, const enum replace_loss *losses,
                               struct arena *arena, FILE *out)
{
    struct replace r = {job, desc, arena, out};
    uint32_t usable = job->hosts.nspares; /* without those that are lost with this attempt */
    replace_copy(&r);
    for (uint32_t h = desc->nhosts; h-- > 0;) { /* removal moves those behind it */
        if (!losses[h] || job->hosts.nodes[h].transport.kind.v == JOB_TRANSPORT_LOCAL)
            continue;
        debug_log(DEBUG_POLICY, "host %s, %s, is replaced by %s", desc->hosts[h].name,
                  losses[h] == REPLACE_LOST ? "lost" : "not reached",
                  usable ? job->hosts.spares[0].name.v : "the other hosts, if they have room");
        if (usable) {
            replace_by_spare(&r, h, losses[h] == REPLACE_LOST);
            usable--;
        } else if (desc->nhosts > 1 && !replace_has_devices(desc, h) && replace_has_room(&r, h))
            replace_by_others(&r, h);
    }
}

/* ---- attempts ---- */

struct run {
    struct job job; /* of this attempt: its hosts may change */
    struct run_options options;
    struct report report; /* prints to the console */
    struct console *console;
    struct desc desc;   /* of this attempt */
    struct arena arena; /* of the verdicts */
    struct rundir *rundir;
    struct trace *trace;
    struct policy policy;
    int signal_fd;
    int signal;       /* with which the user interrupted the last attempt; 0: none */
    bool output_lost; /* in any attempt */
    bool reader_gone;
    enum cause_class recorded_class; /* in result.json */
    int recorded_code;
};

static int run_exit_code(const struct run *r, const struct verdict *v)
{
    return v->class != CAUSE_NONE ? v->exit_code : r->output_lost ? EXIT_INTERNAL : EXIT_OK;
}

static void run_record_end(struct run *r, const struct verdict *v)
{
    r->recorded_class = v->class;
    r->recorded_code = run_exit_code(r, v);
    rundir_event(r->rundir, "end", json_pack("{s:i}", "exit_code", r->recorded_code));
}

/* Called while no loop runs. */
static void run_on_broken(void *ctx, const char *which, int err)
{
    struct run *r = ctx;
    r->reader_gone = r->reader_gone || err == EPIPE;
    r->output_lost = r->output_lost || err != EPIPE;
    if (err != EPIPE)
        supervisor_print_broken(&r->report, which, err);
}

static void run_detach_console(struct run *r)
{
    console_attach(r->console, NULL, &(struct console_hooks){.broken = run_on_broken, .ctx = r});
}

/* Writes result.json before it prints: the reader of stderr may block. */
static void run_judge(struct run *r, struct supervisor *s, struct verdict *v)
{
    audit_watch_end(&s->audit_watch);
    struct evidence e = {s->run.desc, s->run.ranks, s->stop.job_failure};
    verdict_find(&e, &r->arena, v);
    if (call_places_resolve(&s->run, v, &r->arena))
        verdict_find(&e, &r->arena, v); /* the same, with the places of its calls */
    debug_log(DEBUG_PROOF, "verdict: class %s, rank %d, exit code %d: %s",
              cause_class_name(v->class), (int)v->rank, v->exit_code, v->diag.text);
    if (v->class == CAUSE_NONE)
        stall_monitor_pass(&s->stalls);
    r->output_lost = r->output_lost || s->output_lost;
    r->signal = s->stop.signal;
    run_record_end(r, v);
    if (v->class != CAUSE_NONE)
        trace_instant(r->trace, &(struct trace_instant){.rank = WIRE_HOST,
                                                        .name = "verdict",
                                                        .key = "class",
                                                        .value = cause_class_name(v->class),
                                                        .text = v->diag.text});
    if (v->class == CAUSE_EXIT && !v->diag.hint[0])
        run_hint_python(s, v);
    rundir_stragglers(r->rundir, stragglers_json(audit_stragglers(s->audit_watch.audit)));
    rundir_diag(r->rundir, v->class != CAUSE_NONE ? &e : NULL);
    rundir_result(r->rundir, s->run.ranks, v, r->recorded_code);
    run_print_verdict(s, &e, v);
    if (v->class == CAUSE_NONE && !r->options.quiet)
        stragglers_print(audit_stragglers(s->audit_watch.audit), r->report.out);
}

static int run_write_plan(struct run *r, FILE *out)
{
    struct arena arena;
    arena_init(&arena);
    show_plan_json(&r->desc, &r->job.env.secrets, &arena, out);
    arena_fini(&arena);
    return COLLRUN_OK;
}

/* Writes a file of the run directory whose content is known from the start. */
static void run_write_file(struct run *r, const char *name, int (*write)(struct run *r, FILE *out))
{
    char *text = NULL;
    size_t len = 0;
    if (!r->rundir)
        return;
    FILE *f = text_stream_open(&text, &len);
    int rc = write(r, f);
    text_stream_close(f, &text);
    if (rc == COLLRUN_OK)
        rundir_file(r->rundir, name, text, len);
    else
        rundir_not_made(r->rundir, name);
    free(text);
}

/* The next attempt runs without the lost hosts, as far as there are others. */
static void run_replace_hosts(struct run *r, const struct supervisor *s)
{
    const uint32_t n = r->desc.nhosts;
    enum replace_loss *lost = arena_calloc(&r->arena, n, sizeof *lost);
    bool any = false;
    for (uint32_t h = 0; h < n; h++) {
        const struct host *host = &s->run.hosts[h];
        lost[h] = !host->lost ? REPLACE_KEPT : host->has_hello ? REPLACE_LOST : REPLACE_UNREACHED;
        any = any || lost[h];
    }
    if (!any)
        return;
    replace_lost_hosts(&r->job, &r->desc, lost, &r->arena, r->report.out);
    run_write_file(r, "plan.json", run_write_plan);
    for (uint32_t h = 0; h < n; h++) {
        if (lost[h])
            rundir_event(r->rundir, "host_replaced", json_pack("{s:i}", "host", (int)h));
    }
}

/* One attempt, from agents to verdict. True: the job is restarted after the pause. */
static bool run_attempt(struct run *r, struct verdict *v, struct policy_decision *next)
{
    struct supervisor s;
    struct diag d;
    struct loop_fd signals = {.fd = -1, .ready = run_on_signal, .owner = &s};
    diag_init(&d);
    *next = (struct policy_decision){0};
    int rc = supervisor_init(&s,
                             &(struct attempt){.job = &r->job,
                                               .desc = &r->desc,
                                               .options = &r->options,
                                               .console = r->console,
                                               .rundir = r->rundir,
                                               .trace = r->trace},
                             &d);
    if (rc != COLLRUN_OK) {
        report_diag(&r->report, &d);
        verdict_init(v, CAUSE_LAUNCH, EXIT_INTERNAL, &d);
        supervisor_fini(&s);
        return false;
    }
    loop_watch(s.run.loop, &signals, r->signal_fd, EPOLLIN);
    supervisor_run(&s);
    run_detach_console(r);
    run_judge(r, &s, v);
    if (v->class != CAUSE_NONE)
        policy_decide(&r->policy, &r->job.on_failure, v, s.run.ranks, supervisor_uptime_ns(&s),
                      next);
    if (v->class != CAUSE_NONE)
        debug_log(DEBUG_POLICY, "%s %s", next->restart ? "the job is restarted" : "no restart",
                  next->why);
    run_reap(&s);
    if (next->restart && !r->signal)
        run_replace_hosts(r, &s);
    supervisor_fini(&s);
    return next->restart;
}

/* ---- between and after attempts ---- */

/* Waits up to `ms` for space in the console or a signal. Returns the signal, or 0. */
static int run_wait_signal(struct run *r, int ms)
{
    struct pollfd p[3] = {{.fd = r->signal_fd, .events = POLLIN}};
    struct signalfd_siginfo info;
    poll(p, 1 + console_poll(r->console, p + 1), ms);
    console_push(r->console);
    while (read(r->signal_fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGTSTP)
            raise(SIGSTOP);
        else if (info.ssi_signo != SIGCHLD && info.ssi_signo != SIGWINCH)
            return (int)info.ssi_signo;
    }
    return 0;
}

/* False: interrupted; `v` is the verdict. */
static bool run_pause(struct run *r, const struct policy_decision *next, struct verdict *v)
{
    FILE *out = r->report.out;
    uint64_t until = now_ns() + next->pause_ns;
    uint32_t attempt = r->desc.attempt + 1;
    int sig = r->signal; /* while the attempt that has failed was stopping */
    if (!r->options.quiet && !sig)
        fprintf(out, "collrun: restarting in %.1f s: attempt %u, restart %u of %lld\n",
                (double)next->pause_ns / 1e9, attempt, r->policy.restarts,
                (long long)r->job.on_failure.max_restarts.v);
    for (uint64_t now = now_ns(); now < until && !sig; now = now_ns()) {
        const uint64_t ms = (until - now) / 1000000 + 1;
        sig = run_wait_signal(r, ms < HOUR_MS ? (int)ms : HOUR_MS);
        if (sig != SIGUSR1)
            continue;
        sig = 0;
        fprintf(out, "collrun: no rank is running: attempt %u starts in %.1f s\n", attempt,
                (double)(until - now) / 1e9);
    }
    if (!sig)
        return true;
    stop_verdict_interrupted(sig, v);
    diag_wrap(&v->diag, "attempt %u not started", attempt);
    if (!r->options.quiet)
        report_line(&r->report, v->diag.text);
    return false;
}

static bool run_is_drained(struct run *r, bool *asked)
{
    bool written = !console_pending(r->console);
    console_push(r->console); /* learns of an error that came last, and prints it */
    if (!written || console_pending(r->console))
        return false;
    if (rundir_is_written(r->rundir))
        return true;
    if (!*asked)
        fprintf(r->report.out, "collrun: waiting for the disk: %s; Ctrl-C ends the wait\n",
                r->desc.run_dir);
    *asked = true;
    return false;
}

/* Waits until the console and the files are written, however long the reader (a pager, for example)
 * and the disk take, unless the user interrupted the job. */
static void run_drain(struct run *r, struct verdict *v)
{
    bool asked = false;
    uint64_t until = r->signal || v->class == CAUSE_INTERRUPTED ? now_ns() + SECOND_NS : UINT64_MAX;
    int sig = 0;
    while (!sig && now_ns() < until && !run_is_drained(r, &asked)) {
        sig = run_wait_signal(r, 100);
        sig = sig == SIGUSR1 ? 0 : sig;
    }
    if (v->class != CAUSE_NONE)
        return;
    if (r->reader_gone)
        stop_verdict_reader_gone(v);
    else if (sig)
        stop_verdict_interrupted(sig, v);
}

/* ---- the trace ---- */

static const char *run_trace_path(struct run *r)
{
    const struct job_logging *logging = &r->job.logging;
    return logging->trace_file ? logging->trace_file
                               : arena_printf(&r->arena, "%s/trace.json", r->desc.run_dir);
}

static void run_open_trace(struct run *r, struct diag *d)
{
    if (r->desc.trace)
        r->trace = trace_open(run_trace_path(r), r->job.logging.trace_file, &r->desc, now_ns(), d);
}

static void run_close_trace(struct run *r)
{
    if (!r->trace)
        return;
    const char *path = run_trace_path(r);
    const struct trace_result t = trace_close(r->trace, r->recorded_code);
    r->trace = NULL;
    rundir_trace(r->rundir,
                 json_pack("{s:o, s:I, s:I, s:b}", "file", json_value_text(path), "operations",
                           (json_int_t)t.operations, "dropped", (json_int_t)t.dropped, "complete",
                           !t.err && !t.stuck && !t.dropped));
    if (t.err)
        fprintf(r->report.out, "collrun: warning: trace: %s: %s; the rest is missing\n", path,
                strerror(t.err));
    else if (t.stuck)
        fprintf(r->report.out,
                "collrun: warning: trace: %s: the disk is too slow; the rest is missing\n", path);
    else if (t.dropped)
        fprintf(r->report.out,
                "collrun: warning: trace: %" PRIu64 " of %" PRIu64
                " operations are missing: the ranks were faster than they could be written\n",
                t.dropped, t.operations + t.dropped);
}

static int run_attempts(struct run *r)
{
    struct verdict v;
    struct policy_decision next;
    while (run_attempt(r, &v, &next)) {
        if (!run_pause(r, &next, &v))
            break;
        r->desc.attempt++;
        rundir_event(r->rundir, "restart", NULL);
        trace_instant(r->trace, &(struct trace_instant){.rank = WIRE_HOST, .name = "restart"});
    }
    run_close_trace(r);
    if (next.why[0] && !r->options.quiet)
        report_line(&r->report, next.why);
    run_drain(r, &v);
    if (v.class != r->recorded_class || run_exit_code(r, &v) != r->recorded_code) {
        run_record_end(r, &v);
        rundir_amend(r->rundir, &v, r->recorded_code);
    }
    return r->recorded_code;
}

static int run_write_resolved(struct run *r, FILE *out)
{
    const struct desc *desc = &r->desc;
    const char **programs = xcalloc(desc->nworkloads + 1, sizeof *programs);
    for (uint32_t i = 0; i < desc->nworkloads; i++)
        programs[i] = desc->workloads[i].command.n ? desc->workloads[i].command.items[0] : NULL;
    int rc = resolved_write(&r->job, programs, out);
    free(programs);
    return rc;
}

/* From here on, everything is printed through the console. */
static void run_open_console(struct run *r)
{
    r->console = console_new();
    r->report = *r->options.report;
    r->report.out = console_stderr(r->console);
    r->options.report = &r->report;
    run_detach_console(r);
}

int run_job(const struct job *job, const struct desc *desc, const struct run_options *options)
{
    struct run r = {.job = *job, .options = *options, .desc = *desc, .signal_fd = -1};
    struct diag d;
    reap_spare_children();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int code = EXIT_INTERNAL;
    diag_init(&d);
    if (run_open_signals(&r.signal_fd, &d) == COLLRUN_OK) {
        run_open_console(&r);
        r.rundir = rundir_open(&r.job, &r.desc, r.report.out, &d);
        if (d.code == COLLRUN_OK)
            run_open_trace(&r, &d);
        code = d.code == COLLRUN_OK || d.code == COLLRUN_ERR_UNAVAILABLE ? EXIT_INTERNAL : EXIT_JOB;
    }
    run_write_file(&r, "plan.json", run_write_plan);
    run_write_file(&r, "resolved.yaml", run_write_resolved);
    if (d.code == COLLRUN_OK)
        code = run_attempts(&r);
    else
        report_diag(options->report, &d);
    trace_close(r.trace, code);
    rundir_close(r.rundir);
    console_free(r.console);
    arena_fini(&r.arena);
    if (r.signal_fd >= 0)
        close(r.signal_fd);
    return code;
}
