/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames from the hosts: phases, exits and failures of ranks, their output, what they report,
 * requests to the rendezvous store, and what the agents report for their host.
 *
 * Failure modes:
 *  - A frame with the number of a rank that is not on the sender's host is dropped.
 *  - A malformed frame ends the job.
 *  - The first failure of a rank stops the job, or, with on_failure: continue, only the ranks that
 *    share a group with it are notified.
 *  - A mismatch that one message of a collective has shown stops it when the other members have
 *    called the collective, or a second later: their calls tell who is wrong.
 *  - A time-out stops it after a look at the ranks that are late (run/stall_monitor.h).
 */
#ifndef RUNNER_RUN_FRAMES_H
#define RUNNER_RUN_FRAMES_H

#include "run/audit_watch.h"
#include "run/command_watch.h"
#include "run/phases.h"
#include "run/proof_watch.h"
#include "run/stall_monitor.h"
#include "run/stdin_feed.h"

struct frames {
    struct run_state *run;
    struct phases *phases;
    struct stop *stop;
    struct bring_up *bring_up;
    struct liveness *liveness;
    struct rdv *rdv;
    struct output *output;
    struct live *live;
    struct stall_monitor *stalls;
    struct audit_watch *audit_watch;
    struct proof_watch *proof_watch;
    struct command_watch *commands;
    struct command_limits *limits;
    struct stdin_feed *stdin_feed;
    struct last_look *look;
    struct call_places *call_places;
    struct loop_timer rendezvous_timer; /* the next deadline of the store */
    struct loop_timer deadlock_timer;   /* wait reports have arrived: judge them */
    struct loop_timer mismatch_timer;   /* the next look at the calls of members */
    uint32_t mismatch_rank;             /* which has reported it */
    uint32_t late_rank;                 /* the first that has reported a time-out */
    uint64_t deadlock_pause_ns;         /* before that */
    uint64_t deadlock_ns;               /* when the first proof was found; 0: none */
    uint32_t nwarnings;                 /* of the verdict, which were printed */
};

/* All pointers are set. */
void frames_start(struct frames *s);
/* Takes the failure that the state of a rank has. */
void frames_fail_rank(struct frames *s, uint32_t rank);
void frames_on_frame(struct frames *s, struct host *host, const struct wire_frame *f);

#endif
