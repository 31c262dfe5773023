/* SPDX-License-Identifier: Apache-2.0
 *
 * Stopping a run: the ladder, and who sets a foot on it. Every rung waits only as long as somebody
 * is still there: the run is over as soon as all hosts have said BYE.
 */
#include "launch/supervise.h"

#include "launch/muster.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>

#define SECOND_NS 1000000000ull
#define HALF_SECOND_NS 500000000ull
static void send_signal(struct supervisor *s, int sig)
{
    struct buf b;
    buf_init(&b);
    buf_put_u32(&b, (uint32_t)sig);
    hosts_send_all(s, WIRE_SIGNAL, b.data, b.len);
    buf_fini(&b);
}

static void mark_killed(struct supervisor *s)
{
    for (uint32_t i = 0; i < s->desc->nranks; i++)
        s->ranks[i].killed = s->ranks[i].killed || !s->ranks[i].exited;
}

static void ladder_climb(struct supervisor *s)
{
    uint64_t next_ns = HALF_SECOND_NS;
    s->ladder++;
    switch (s->ladder) {
    case LADDER_NONE:
    case LADDER_ABORT:
        break;
    case LADDER_TERM:
        mark_killed(s);
        send_signal(s, SIGTERM);
        send_signal(s, SIGCONT);
        break;
    case LADDER_KILL:
        if (s->interrupts)
            output_give_up(s->output); /* who wants the end now does not read */
        mark_killed(s);
        send_signal(s, SIGKILL);
        next_ns = 2 * SECOND_NS;
        break;
    case LADDER_QUIT:
        hosts_send_all(s, WIRE_QUIT, NULL, 0);
        next_ns = 5 * SECOND_NS;
        break;
    case LADDER_LEAVE:
        loop_stop(s->loop);
        return;
    }
    loop_timer_set(s->loop, &s->ladder_timer, next_ns);
}

void supervisor_on_ladder(struct loop_timer *t)
{
    ladder_climb(t->owner);
}

void supervisor_stop(struct supervisor *s, int status, uint32_t culprit, const char *sentence)
{
    if (s->ladder != LADDER_NONE)
        return;
    struct buf b;
    hosts_send_all(s, WIRE_LOOK, NULL, 0); /* before it changes: what everybody was doing */
    buf_init(&b);
    buf_put_u32(&b, (uint32_t)status);
    buf_put_u32(&b, culprit);
    buf_put_str(&b, sentence);
    hosts_send_all(s, WIRE_ABORT, b.data, b.len);
    buf_fini(&b);
    for (uint32_t i = 0; i < s->desc->nranks; i++)
        s->ranks[i].told = s->ranks[i].told || !s->ranks[i].sign_ns;
    s->ladder = LADDER_ABORT;
    loop_timer_clear(s->loop, &s->start);
    loop_timer_clear(s->loop, &s->run);
    loop_timer_clear(s->loop, &s->finish);
    loop_timer_set(s->loop, &s->ladder_timer, s->desc->grace_ns);
    muster_give_up(s);
}

void supervisor_trouble(struct supervisor *s, enum cause_class class, int exit_code,
                        const struct diag *d)
{
    if (s->trouble.class == CAUSE_NONE) {
        s->trouble =
            (struct verdict){.class = class, .exit_code = exit_code, .rank = WIRE_HOST, .diag = *d};
        s->trouble_ns = now_ns();
    }
    supervisor_stop(s, COLLRUN_ERR_ABORTED, WIRE_HOST, d->text);
}

void supervisor_interrupted(int sig, struct verdict *v)
{
    *v = (struct verdict){.class = CAUSE_INTERRUPTED, .exit_code = 128 + sig, .rank = WIRE_HOST};
    if (sig == SIGINT)
        diag_set(&v->diag, COLLRUN_ERR_ABORTED, "interrupted by Ctrl-C");
    else
        diag_set(&v->diag, COLLRUN_ERR_ABORTED, "interrupted by SIG%s", sigabbrev_np(sig));
}

void supervisor_reader_gone(struct verdict *v)
{
    *v =
        (struct verdict){.class = CAUSE_INTERRUPTED, .exit_code = 128 + SIGPIPE, .rank = WIRE_HOST};
    diag_set(&v->diag, COLLRUN_ERR_ABORTED, "nobody reads the job's output any more");
}

/* timeout(1) sends SIGTERM to its command and at once to the whole process group: one wish, two
 * signals. The second cannot be an answer to what has not been said yet. */
static void take_echo(void)
{
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigtimedwait(&term, NULL, &(struct timespec){.tv_nsec = 5000000});
}

void supervisor_interrupt(struct supervisor *s, const struct signalfd_siginfo *info)
{
    struct verdict v;
    int sig = (int)info->ssi_signo;
    /* The kernel's SIGHUP when a terminal's shell has ended, which has sent one itself. */
    if (s->interrupts && sig == SIGHUP && info->ssi_code == SI_KERNEL)
        return;
    s->interrupts++;
    if (s->interrupts == 1 && s->ladder == LADDER_NONE) {
        supervisor_interrupted(sig, &v);
        supervisor_trouble(s, v.class, v.exit_code, &v.diag);
        if (sig == SIGTERM)
            take_echo();
        if (!s->options->quiet)
            fprintf(
                s->options->report->out,
                "collrun: interrupted: the ranks have %.1f s to end; again kills them at once\n",
                (double)s->desc->grace_ns / 1e9);
        return;
    }
    if (s->interrupts > 2) {
        loop_stop(s->loop);
        return;
    }
    if (s->ladder < LADDER_TERM)
        s->ladder = LADDER_TERM;
    if (s->ladder < LADDER_KILL)
        ladder_climb(s);
}

void supervisor_suspend(struct supervisor *s)
{
    live_wipe(&s->live);
    for (uint32_t h = 0; h < s->desc->nhosts; h++)
        supervisor_tell_alive(&s->hosts[h], 0);
    send_signal(s, SIGSTOP);
    raise(SIGSTOP);
    send_signal(s, SIGCONT);
}
