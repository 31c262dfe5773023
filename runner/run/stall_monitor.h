/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports stalls (diagnose/stall.h) while the job runs.
 *
 *  - The agents are queried a few times within timeouts.stall. When ranks have waited for that
 *    long, the agents are asked what the ranks do that are waited for (READ_STACKS); then, if they
 *    still wait, one block is printed on stderr. It is printed again after 2, 4, ... times as long.
 *  - Each stall that passes is kept for result.json, and doubles the time for its group: a job
 *    whose ranks are often late is not reported at every step.
 *  - Agents that do not answer delay the block for STALL_MONITOR_ANSWER_NS at most.
 */
#ifndef RUNNER_RUN_STALL_MONITOR_H
#define RUNNER_RUN_STALL_MONITOR_H

#include "diagnose/stall.h"
#include "report/live.h"
#include "report/stall_report.h"
#include "run/liveness.h"

#include <jansson.h>

#define STALL_MONITOR_ANSWER_NS 9000000000ull
enum { STALL_MONITOR_ASKED = STALL_REPORT_STACKS + STALL_REPORT_WAITS };

struct stall_monitor {
    struct run_state *run;
    struct stop *stop;
    struct console *console;
    struct live *live;
    struct liveness *liveness;
    uint64_t limit_ns; /* timeouts.stall; 0: off */
    struct stall_watch watch;
    struct stall_episodes episodes;
    struct loop_timer poll, answers;
    bool asked;      /* READ_STACKS was sent; the block follows */
    bool on_request; /* the block was requested, whatever the age of the waits */
    /* The first `nthreads` for their threads, all for the places of calls. Once the former have
     * answered, `nthreads` is 0. */
    uint32_t nasked, nthreads, asked_ranks[STALL_MONITOR_ASKED];
};

/* `run`, `stop`, `console`, `live`, `liveness` and `limit_ns` are set. */
void stall_monitor_start(struct stall_monitor *m);
void stall_monitor_fini(struct stall_monitor *m);
/* live->watched has become true: looks for waits soon, also with `stall: off`. */
void stall_monitor_watch(struct stall_monitor *m);
/* The job has ended well: all stalls have passed. */
void stall_monitor_pass(struct stall_monitor *m);
/* A STATUS, or STACKS, of the rank has arrived and is stored in its state. */
void stall_monitor_on_status(struct stall_monitor *m, uint32_t rank);
void stall_monitor_on_stacks(struct stall_monitor *m);
/* Prints the block for all that waits now, once the STACKS have arrived; nothing if no rank has
 * waited for half a second. The STATUS of all ranks is new. */
void stall_monitor_request(struct stall_monitor *m);

/* ---- a last look ----
 *
 * A look at the ranks that are late when a time limit has passed, before the job stops and they are
 * killed: where they are, for the verdict.
 *
 *  - The agents are queried. When the ranks have answered, the stacks of a few of them are taken:
 *    those that others wait for; without any, those that have not finished.
 *  - What each is doing is kept in rank_state.doing. Then `done` is called, which stops the job.
 *  - Agents and ranks that do not answer delay that by LAST_LOOK_ANSWER_NS and LAST_LOOK_STACKS_NS.
 */

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
