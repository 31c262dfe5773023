/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlocks by the cuts that agents take of their ranks (diagnose/cuts.h).
 *
 *  - A cut arrives in which a thread waits: a moment later, as ranks of one deadlock block at
 *    nearly the same time, the cuts are judged; at most a tenth of the time is spent on that.
 *  - They prove something: the agents look again 100 ms later (LOOK). If no thread of the proof has
 *    returned, the job ends, once the places of its calls are known (run/call_places.h).
 *  - One has returned: the proof was wrong. result.json says so ("internal"), and cuts prove
 *    nothing more in this attempt.
 *
 * Ranks that the engine records send wait reports, too, by which frames.c ends the job. The cuts of
 * such ranks end nothing; where both proofs are about different ranks, result.json says so.
 */
#ifndef RUNNER_RUN_PROOF_WATCH_H
#define RUNNER_RUN_PROOF_WATCH_H

#include "diagnose/cuts.h"
#include "run/call_places.h"
#include "run/stop.h"

/* How far the watch has come with a proof. The transitions, and by what:
 *
 *   from       to  NONE         FOUND     ASKED         CONFIRMED    ASKED_AGAIN   OVER
 *   NONE                        judged
 *   FOUND                                 100 ms later
 *   ASKED          a rank ended                         it holds                   it holds, or not
 *   CONFIRMED                                                        1 s later
 *   ASKED_AGAIN    it holds, or a rank ended                                       it does not hold
 *
 * A proof about ranks that the engine records goes by CONFIRMED: it ends no job. */
enum proof_watch_state {
    PROOF_WATCH_NONE,        /* the cuts prove nothing */
    PROOF_WATCH_FOUND,       /* the agents are about to look again */
    PROOF_WATCH_ASKED,       /* LOOK was sent, and not all hosts have answered */
    PROOF_WATCH_CONFIRMED,   /* no thread has returned; wait reports are about to prove the same */
    PROOF_WATCH_ASKED_AGAIN, /* as PROOF_WATCH_ASKED */
    PROOF_WATCH_OVER         /* it ends the job, or was wrong: cuts prove nothing more */
};

struct proof_watch {
    struct run_state *run;
    struct stop *stop;
    struct call_places *call_places;
    struct cuts cuts;
    struct loop_timer timer; /* judge the cuts, or, with a proof, look again */
    uint64_t pause_ns;
    enum proof_watch_state state; /* proof_watch_move */
    bool fresh;                   /* cuts have arrived that were not judged */
    struct cuts_proof proof;      /* in `arena` */
    struct arena arena;
    uint64_t look; /* the number of the last LOOK */
    bool compared; /* beside wait reports */
};

/* The first three members are set. */
void proof_watch_start(struct proof_watch *w);
void proof_watch_fini(struct proof_watch *w); /* safe on a zeroed one */
/* WIRE_SNAPSHOT. False: malformed. */
bool proof_watch_take(struct proof_watch *w, uint32_t host, const struct wire_frame *f);
/* The wait reports have proven this, and the job ends. */
void proof_watch_compare(struct proof_watch *w, const struct graph *by_reports);

#endif
