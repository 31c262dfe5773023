/* SPDX-License-Identifier: Apache-2.0
 *
 * Supervises one attempt: puts the parts of a run together, and passes events to them.
 *
 *   run_state       the job, its hosts and ranks: data that all parts share
 *   bring_up        no rank starts before all hosts have answered
 *   phases          all ranks advance together; time-outs
 *   frames          frames from the hosts
 *   liveness        hosts that are lost or silent
 *   stop            ABORT, SIGTERM, SIGKILL, QUIT
 *   stall_monitor   ranks that wait for a long time
 *   status_request  what every rank is doing, for SIGUSR1
 *   command_watch   ranks that run a command
 *   audit_watch     ranks that disagree about a collective
 *   proof_watch     ranks that wait for each other, by cuts of them
 */
#ifndef RUNNER_RUN_SUPERVISOR_H
#define RUNNER_RUN_SUPERVISOR_H

#include "run/frames.h"
#include "run/stall_monitor.h"
#include "run/status_request.h"

struct supervisor {
    struct run_state run;
    struct bring_up bring_up;
    struct phases phases;
    struct frames frames;
    struct liveness liveness;
    struct stop stop;
    struct stall_monitor stalls;
    struct last_look look;
    struct call_places call_places;
    struct status_request status_request;
    struct audit_watch audit_watch;
    struct proof_watch proof_watch;
    struct top_server top;
    struct command_watch commands;
    struct command_limits limits;
    struct stdin_feed stdin_feed;
    struct console *console; /* borrowed */
    struct output *output;
    struct rdv *rdv;
    struct live live;
    struct loop_fd debug; /* lines for debug.log of the run directory */
    struct loop_fd disk;  /* the run directory has errors, or room again */
    bool output_lost;     /* stdout or stderr could not be written */
};

/* supervisor_fini must be called even if it fails. */
int supervisor_init(struct supervisor *s, const struct attempt *a, struct diag *d);
void supervisor_fini(struct supervisor *s); /* the console is not attached to its loop any more */
/* Connects to the hosts and runs the job. Returns when all hosts are gone, or at STOP_ABANDON. */
void supervisor_run(struct supervisor *s);
/* How long the workloads have run, until the run began to stop. */
uint64_t supervisor_uptime_ns(const struct supervisor *s);

/* A signal to this process: SIGTSTP, SIGWINCH, SIGUSR1, or one that ends the run. */
void supervisor_on_signal(struct supervisor *s, const struct signalfd_siginfo *info);
/* A child of this process was reaped: an agent, or a transport's process. */
void supervisor_on_child_exit(struct supervisor *s, pid_t pid, int status);
/* Prints that stdout or stderr cannot be written. */
void supervisor_print_broken(const struct report *report, const char *which, int err);

#endif
