/* SPDX-License-Identifier: Apache-2.0
 *
 * Stopping a run. The first failure, or the first interrupt, starts the escalation:
 *
 *  - STOP_ABORT: ABORT to every rank; the ranks have timeouts.grace to exit.
 *  - STOP_TERM: SIGTERM to every process that is left.
 *  - STOP_KILL: SIGKILL, half a second later.
 *  - STOP_QUIT: QUIT to the agents, which kill and reap every process of the job.
 *  - STOP_ABANDON: the loop ends although an agent has not sent BYE.
 *
 * The run ends as soon as all hosts have sent BYE, at any step. A second interrupt leads to
 * STOP_KILL at once; a third one ends the loop.
 */
#ifndef RUNNER_RUN_STOP_H
#define RUNNER_RUN_STOP_H

#include "diagnose/verdict.h"
#include "report/output.h"
#include "run/run_state.h"

#include <sys/signalfd.h>

enum stop_step { STOP_NONE, STOP_ABORT, STOP_TERM, STOP_KILL, STOP_QUIT, STOP_ABANDON };

struct stop {
    struct run_state *run;
    struct output *output;
    void (*on_begin)(
        void *ctx); /* ABORT was sent: start-up ends, and its time limits no longer apply */
    void *ctx;
    enum stop_step step;
    uint64_t begin_ns; /* when the escalation began; 0: it has not */
    struct loop_timer timer;
    struct job_failure job_failure; /* a cause that is not a rank's */
    unsigned interrupts;            /* signals that asked collrun to end */
    int signal;                     /* the first of them */
};

void stop_init(struct stop *s, struct run_state *run, struct output *output);
/* Starts the escalation: ABORT with this status, culprit (a rank or WIRE_HOST) and text. Only the
 * first call has an effect. */
void stop_begin(struct stop *s, int status, uint32_t culprit, const char *text);
/* The job failed for a reason that is not a rank, such as a lost host or a time limit. The first
 * such failure is kept. Starts the escalation. */
void stop_on_job_failure(struct stop *s, enum cause_class class, int exit_code,
                         const struct diag *d);
/* The same, but the job goes on: stop_begin follows soon. */
void stop_note_job_failure(struct stop *s, enum cause_class class, int exit_code,
                           const struct diag *d);
/* SIGINT, SIGTERM, SIGHUP or another signal arrived that asks collrun to end. */
void stop_on_interrupt(struct stop *s, const struct signalfd_siginfo *info);

/* The verdicts on a run that ended because collrun received a signal, or because the reader of its
 * output closed the pipe. */
void stop_verdict_interrupted(int sig, struct verdict *v);
void stop_verdict_reader_gone(struct verdict *v);

#endif
