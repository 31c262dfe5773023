/* SPDX-License-Identifier: Apache-2.0
 *
 * The audit of a run: feeds the marks that the agents send to diagnose/audit.h, and ends the job
 * when ranks disagree. Agents send the marks of a rank before its IDLE, so a job whose ranks all
 * return 0 is audited to the end before it counts as successful.
 *
 * Ranks that got MISMATCH as the status of a call have a moment to end in their own words. If one
 * goes on, or ends as if all were well, the job ends; with check: strict it may handle the
 * mismatch. An operation too many, which its peers have not noticed, ends a job only if no rank has
 * failed and no background workload runs, since these stop at any operation. It is judged once all
 * members are idle or have exited.
 */
#ifndef RUNNER_RUN_AUDIT_WATCH_H
#define RUNNER_RUN_AUDIT_WATCH_H

#include "diagnose/audit.h"
#include "run/bring_up.h"

struct audit_watch {
    struct run_state *run;
    struct stop *stop;
    struct bring_up *bring_up;
    struct audit *audit;         /* owned; made by audit_watch_open */
    bool found;                  /* it has ended the job */
    struct loop_timer reported;  /* a call has returned MISMATCH */
    struct loop_timer undecided; /* calls of MPI differ, and no majority is known yet */
    bool destroyed;              /* because of a group that some members have closed */
};

/* The first three members are set. */
void audit_watch_open(struct audit_watch *w);
void audit_watch_close(struct audit_watch *w); /* safe on a zeroed one */
/* WIRE_AUDIT. False: malformed. */
bool audit_watch_take(struct audit_watch *w, const struct wire_frame *f);
/* IDLE or EXITED of a rank, before it is acted upon, but after a failure is known. */
void audit_watch_rank_ended(struct audit_watch *w, uint32_t rank);
/* Once all frames have arrived: says what ended the job as all marks show it. */
void audit_watch_end(struct audit_watch *w);

#endif
