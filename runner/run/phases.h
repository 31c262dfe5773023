/* SPDX-License-Identifier: Apache-2.0
 *
 * The phases of the ranks (diagnose/ranks.h). All ranks advance together: when the last one has
 * reached a phase, the runner starts the next phase on all of them. Three limits end the job if
 * some rank is late: timeouts.start until all are ready, timeouts.run until all are done, and then
 * the time to close groups and exit.
 */
#ifndef RUNNER_RUN_PHASES_H
#define RUNNER_RUN_PHASES_H

#include "run/liveness.h"
#include "run/stall_monitor.h"

struct phases {
    struct run_state *run;
    struct stop *stop;
    struct bring_up *bring_up;
    struct liveness *liveness;
    struct last_look *look;
    uint32_t reached[PHASE_FINISHING + 1]; /* how many ranks have reached each phase */
    enum rank_phase all_reached;           /* the last phase that all ranks have reached */
    bool *done, *beside_background;        /* by rank: see phases.c, "background workloads" */
    uint32_t ndone;
    bool background_stopped;
    uint64_t running_ns; /* when the workloads began to run; 0: not yet */
    struct loop_timer start, running, warn, finish;
    uint64_t start_due_ns, running_due_ns, warn_due_ns, finish_due_ns; /* liveness_now_ns */
    enum rank_phase late_phase;
    struct diag late; /* the limit that has passed, while the late ranks are looked at */
    void (*on_spawned)(void *ctx); /* all ranks are processes */
    void (*on_running)(void *ctx); /* all ranks run */
    void (*on_done)(void *ctx);    /* all foreground workloads are done */
    void *ctx;
};

/* All pointers are set. timeouts.start begins. */
void phases_start(struct phases *p);
/* A rank has reached a phase. No effect once the run is stopping. */
void phases_advance(struct phases *p, uint32_t rank, enum rank_phase phase);
/* A program has called collrun_finalize. */
void phases_on_finalize(struct phases *p, uint32_t rank);
/* The run stops: no limit applies any more. */
void phases_clear_limits(struct phases *p);

#endif
