/* SPDX-License-Identifier: Apache-2.0
 *
 * The places in source files of the calls that a verdict is about. The ranks of a deadlock wait in
 * their calls, whose places are asked for before the job stops:
 *
 *  - The agents of these ranks get READ_STACKS for the addresses alone, which stops no thread but
 *    those of Python. When all have answered, `done` is called; it finds the places by stacks_site.
 *  - A rank that has exited, a host that is silent: `done` is called after CALL_PLACES_NS, and some
 *    places are not known.
 *  - The job stops for another reason meanwhile: call_places_cancel, and `done` is not called.
 *
 * Calls that differ may have returned. The records hold their addresses, and the files of these:
 * collrun-stack finds the places once the ranks have ended, for ranks on this machine. Without it,
 * without debug information, or after CALL_PLACES_NS, the verdict has no places.
 */
#ifndef RUNNER_RUN_CALL_PLACES_H
#define RUNNER_RUN_CALL_PLACES_H

#include "diagnose/verdict.h"
#include "run/run_state.h"

#define CALL_PLACES_NS 500000000ull

enum { CALL_PLACES_MAX = 8 };

struct call_places {
    struct run_state *run;
    struct loop_timer timer;
    uint32_t asked[CALL_PLACES_MAX], nasked; /* ranks; 0: nothing is asked for */
    void (*done)(void *ctx);
    void *ctx;
};

/* `run` is set. The calls are of different ranks; those after the first CALL_PLACES_MAX get no
 * place. Without any, `done` is called at once. */
void call_places_ask(struct call_places *p, const struct stacks_call *calls, uint32_t n,
                     void (*done)(void *ctx), void *ctx);
/* STACKS of a rank have arrived and are stored in its state. */
void call_places_on_stacks(struct call_places *p);
void call_places_cancel(struct call_places *p);

/* Once the ranks have ended, for calls of MPI that differ or are wrong (verdict_call.site), and for
 * mistakes: their records say in which files the addresses are. Sets rank_state.place and
 * .mistake_places of ranks on this machine, whose files are here; text is in the arena. Takes
 * CALL_PLACES_NS at most. True: a place was found. */
bool call_places_resolve(struct run_state *run, const struct verdict *v, struct arena *arena);

#endif
