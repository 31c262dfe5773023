/* SPDX-License-Identifier: Apache-2.0 */
#include "run/stop.h"

#include "base/debug.h"
#include "base/names.h"
#include "base/wire_fields.h"
#include "run/run_state.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define SECOND_NS 1000000000ull
#define HALF_SECOND_NS 500000000ull

static void stop_mark_killed(struct run_state *run)
{
    for (uint32_t i = 0; i < run->desc->nranks; i++)
        run->ranks[i].killed = run->ranks[i].killed || run->ranks[i].end != RANK_EXITED;
}

static void stop_escalate(struct stop *s)
{
    struct run_state *run = s->run;
    uint64_t next_ns = HALF_SECOND_NS;
    s->step++;
    debug_log(DEBUG_STOP, "escalates to step %d (%s)", (int)s->step,
              s->step == STOP_TERM   ? "SIGTERM"
              : s->step == STOP_KILL ? "SIGKILL"
              : s->step == STOP_QUIT ? "QUIT"
                                     : "abandon");
    switch (s->step) {
    case STOP_NONE:
    case STOP_ABORT:
        break;
    case STOP_TERM:
        stop_mark_killed(run);
        hosts_send_signal(run, SIGTERM);
        hosts_send_signal(run, SIGCONT);
        break;
    case STOP_KILL:
        if (s->interrupts)
            output_give_up(s->output); /* a user who interrupts again does not wait for output */
        stop_mark_killed(run);
        hosts_send_signal(run, SIGKILL);
        next_ns = 2 * SECOND_NS;
        break;
    case STOP_QUIT:
        hosts_send_all(run, WIRE_QUIT, NULL);
        next_ns = 5 * SECOND_NS;
        break;
    case STOP_ABANDON:
        loop_stop(run->loop);
        return;
    }
    loop_timer_set(run->loop, &s->timer, next_ns);
}

static void stop_on_timer(struct loop_timer *t)
{
    stop_escalate(t->owner);
}

void stop_init(struct stop *s, struct run_state *run, struct output *output)
{
    *s = (struct stop){.run = run, .output = output};
    s->timer = (struct loop_timer){.fired = stop_on_timer, .owner = s};
    s->job_failure.class = CAUSE_NONE;
}

void stop_begin(struct stop *s, int status, uint32_t culprit, const char *text)
{
    struct run_state *run = s->run;
    if (s->step != STOP_NONE)
        return;
    struct buf b;
    debug_log(DEBUG_STOP, "stops the job, status %d, culprit %d: %s", status, (int)culprit, text);
    hosts_send_all(run, WIRE_QUERY, NULL); /* what each rank does, before ABORT changes it */
    buf_init(&b);
    wire_put_abort(&b, &(struct wire_abort){status, culprit, text});
    hosts_send_all(run, WIRE_ABORT, &b);
    buf_fini(&b);
    /* After ABORT: a copy takes time, and ABORT changes no more than the state of operations in
     * flight. */
    hosts_send_all(run, WIRE_READ_RECORDS, NULL);
    for (uint32_t i = 0; i < run->desc->nranks; i++)
        run->ranks[i].stop_requested =
            run->ranks[i].stop_requested || !run->ranks[i].first_failure_ns;
    s->step = STOP_ABORT;
    s->begin_ns = now_ns();
    loop_timer_set(run->loop, &s->timer, run->desc->grace_ns);
    s->on_begin(s->ctx);
}

void stop_note_job_failure(struct stop *s, enum cause_class class, int exit_code,
                           const struct diag *d)
{
    debug_log(DEBUG_STOP, "failure of the job, class %s, exit code %d%s: %s",
              cause_class_name(class), exit_code,
              s->job_failure.class == CAUSE_NONE ? "" : ", not the first one", d->text);
    if (s->job_failure.class == CAUSE_NONE) {
        s->job_failure.class = class;
        s->job_failure.exit_code = exit_code;
        s->job_failure.diag = *d;
        s->job_failure.ns = now_ns();
        trace_instant(s->run->trace, &(struct trace_instant){.rank = WIRE_HOST,
                                                             .name = "stop",
                                                             .key = "class",
                                                             .value = cause_class_name(class),
                                                             .text = d->text});
    }
}

void stop_on_job_failure(struct stop *s, enum cause_class class, int exit_code,
                         const struct diag *d)
{
    stop_note_job_failure(s, class, exit_code, d);
    stop_begin(s, COLLRUN_ERR_ABORTED, WIRE_HOST, d->text);
}

void stop_verdict_interrupted(int sig, struct verdict *v)
{
    verdict_init(v, CAUSE_INTERRUPTED, 128 + sig, NULL);
    if (sig == SIGINT)
        diag_set(&v->diag, COLLRUN_ERR_ABORTED, "interrupted by Ctrl-C");
    else
        diag_set(&v->diag, COLLRUN_ERR_ABORTED, "interrupted by %s", signal_name(sig));
}

void stop_verdict_reader_gone(struct verdict *v)
{
    verdict_init(v, CAUSE_INTERRUPTED, 128 + SIGPIPE, NULL);
    diag_set(&v->diag, COLLRUN_ERR_ABORTED, "the reader of stdout or stderr has closed it");
}

/* timeout(1) sends SIGTERM to its command and right after that to the whole process group: one
 * request, two signals. The second one is dropped; it cannot answer the message about the first. */
static void stop_drop_second_sigterm(void)
{
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigtimedwait(&term, NULL, &(struct timespec){.tv_nsec = 5000000});
}

static void stop_on_first_interrupt(struct stop *s, int sig)
{
    struct verdict v;
    const struct run_options *options = s->run->options;
    stop_verdict_interrupted(sig, &v);
    stop_on_job_failure(s, v.class, v.exit_code, &v.diag);
    if (sig == SIGTERM)
        stop_drop_second_sigterm();
    const bool usual = sig == SIGINT || sig == SIGTERM || sig == SIGHUP;
    if (!options->quiet)
        fprintf(
            options->report->out,
            "collrun: interrupted%s%s: stopping, ranks have %.1f s to exit (%s kills them now)\n",
            usual ? "" : " by ", usual ? "" : signal_name(sig),
            (double)s->run->desc->grace_ns / 1e9,
            sig == SIGINT ? "Ctrl-C again" : "a second signal");
}

void stop_on_interrupt(struct stop *s, const struct signalfd_siginfo *info)
{
    int sig = (int)info->ssi_signo;
    debug_log(DEBUG_STOP, "signal %d from pid %u, interrupt %u", sig, info->ssi_pid,
              s->interrupts + 1u);
    /* When a terminal's shell exits it sends SIGHUP, and then the kernel sends another one. */
    if (s->interrupts && sig == SIGHUP && info->ssi_code == SI_KERNEL)
        return;
    s->signal = s->interrupts ? s->signal : sig;
    s->interrupts++;
    if (s->interrupts == 1 && s->step == STOP_NONE) {
        stop_on_first_interrupt(s, sig);
        return;
    }
    if (s->interrupts > 2) {
        loop_stop(s->run->loop);
        return;
    }
    if (s->step < STOP_TERM)
        s->step = STOP_TERM;
    if (s->step < STOP_KILL)
        stop_escalate(s);
}
