/* SPDX-License-Identifier: Apache-2.0
 *
 * A look at the ranks that are late when a time limit has passed, before the job stops and they are
 * killed: where they are, for the verdict.
 *
 *  - The agents are queried. When the ranks have answered, the stacks of a few of them are taken:
 *    those that others wait for; without any, those that have not finished.
 *  - What each is doing is kept in rank_state.doing. Then `done` is called, which stops the job.
 *  - Agents and ranks that do not answer delay that by LAST_LOOK_ANSWER_NS and LAST_LOOK_STACKS_NS.
 */
#ifndef RUNNER_RUN_LAST_LOOK_H
#define RUNNER_RUN_LAST_LOOK_H

#include "run/stall_monitor.h"

#define LAST_LOOK_ANSWER_NS 300000000ull
#define LAST_LOOK_STACKS_NS 2500000000ull

struct last_look {
    struct run_state *run;
    struct stall_monitor *stalls;
    enum { LAST_LOOK_NONE, LAST_LOOK_STATUS, LAST_LOOK_STACKS } step;
    struct loop_timer timer;
    bool *asked; /* by rank: its STATUS is awaited */
    uint32_t nasked;
    uint32_t ranks[STALL_REPORT_STACKS], n; /* whose stacks are taken */
    void (*done)(void *ctx);
    void *ctx;
};

/* `run` and `stalls` are set. `done` is called later, or at once if a look is in progress. */
void last_look_begin(struct last_look *l, void (*done)(void *ctx), void *ctx);
/* Another failure stops the job: `done` is not called. */
void last_look_cancel(struct last_look *l);
/* A STATUS, or STACKS, of the rank has arrived and is stored in its state. */
void last_look_on_status(struct last_look *l, uint32_t rank);
void last_look_on_stacks(struct last_look *l);

#endif
