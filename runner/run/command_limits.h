/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits of ranks that run a command.
 *
 *  - `timeout` of a workload begins when its program has been executed. When it expires, the rank
 *    has failed; it gets SIGTERM, and SIGKILL after timeouts.grace.
 *  - `background`: when all other workloads are done, the rank gets SIGTERM. A member has half of
 *    the grace time to return after collrun_stopping() before that. Its exit code does not count
 *    any more. A program that has not exited after the grace time has failed.
 */
#ifndef RUNNER_RUN_COMMAND_LIMITS_H
#define RUNNER_RUN_COMMAND_LIMITS_H

#include "run/liveness.h"

struct command_limit { /* points in time, of liveness_now_ns; 0: none */
    uint64_t timeout_ns, term_ns, kill_ns;
    bool overdue; /* it gets its signal once it has been looked at (run/last_look.h) */
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
