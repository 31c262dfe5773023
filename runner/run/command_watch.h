/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that run a command, and take no part in the phases of plugins.
 *
 *  - STARTED: the program was executed. The rank counts as ready: a program need not call
 *    collrun_init, and nothing waits for that.
 *  - A rank in the background counts as done as well.
 *  - It exits with code 0: it is done. Its ATTACHED and IDLE say only whether it is a member, and
 *    whether it has called collrun_finalize.
 *  - It exits with code 0 without collrun_finalize: RANK_LOST ends what other ranks wait for. That
 *    of a member is delayed, so that calls that need nothing more of it complete. If a rank fails
 *    because of that, the one that exited left the job early; otherwise all is well.
 *  - Its MPI process ends without MPI_Finalize, and after a moment other ranks of the workload
 *    still run: it has failed, as they may wait for it for ever.
 *  - Open MPI comes up as rank 0 of 1 in two ranks of one workload: both have failed, as each of
 *    them computes alone. One such rank is no error.
 */
#ifndef RUNNER_RUN_COMMAND_WATCH_H
#define RUNNER_RUN_COMMAND_WATCH_H

#include "run/liveness.h"
#include "run/phases.h"

struct command_watch {
    struct run_state *run;
    struct stop *stop;
    struct phases *phases;
    struct loop_timer left; /* RANK_LOST of members that have exited is due */
    struct loop_timer mpi;  /* ranks without MPI_Finalize, and those of Open MPI, are judged */
    void (*failed)(void *ctx, uint32_t rank); /* its rank_state says why */
    void *ctx;
};

/* The pointers are set. */
void command_watch_start(struct command_watch *c);
/* STARTED, ATTACHED, READY, DONE or IDLE of a rank that runs a command. */
void command_watch_on_phase(struct command_watch *c, uint32_t rank, const struct wire_frame *f);
/* MPI of a rank. False: malformed. */
bool command_watch_on_mpi(struct command_watch *c, const struct wire_frame *f);
/* EXITED of any rank; its state has the wait status. */
/* A member has closed its connection, and runs. */
void command_watch_on_detached(struct command_watch *c, uint32_t rank);
/* It has failed by that. */
void command_watch_blame_detached(struct run_state *run, uint32_t rank);
void command_watch_on_exit(struct command_watch *c, uint32_t rank);
/* A rank has failed: marks the ranks of its groups whose early exit may have caused it. */
void command_watch_on_failure(struct command_watch *c, uint32_t rank);

/* ---- limits ----
 *
 * Limits of ranks that run a command.
 *
 *  - `timeout` of a workload begins when its program has been executed. When it expires, the rank
 *    has failed; it gets SIGTERM, and SIGKILL after timeouts.grace.
 *  - `background`: when all other workloads are done, the rank gets SIGTERM. A member has half of
 *    the grace time to return after collrun_stopping() before that. Its exit code does not count
 *    any more. A program that has not exited after the grace time has failed.
 */

struct command_limit { /* points in time, of liveness_now_ns; 0: none */
    uint64_t timeout_ns, term_ns, kill_ns;
    bool overdue; /* it gets its signal once it has been looked at (run/stall_monitor.h) */
};

struct command_limits {
    struct run_state *run;
    struct stop *stop;
    struct liveness *liveness;
    void (*failed)(void *ctx, uint32_t rank); /* the state of a rank has its failure */
    void *ctx;
    struct command_limit *ranks;
    struct loop_timer timer; /* the first of all limits */
};

/* The pointers above `ranks` are set. */
void command_limits_start(struct command_limits *c);
/* The program of a rank has been executed. */
void command_limits_on_started(struct command_limits *c, uint32_t rank);
/* The ranks that have failed by a limit have been looked at. */
void command_limits_on_looked(struct command_limits *c);
/* All foreground workloads are done: ends commands in the background. */
void command_limits_stop_background(struct command_limits *c);

#endif
