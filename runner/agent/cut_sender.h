/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes cuts of the ranks of this host (base/record_cut.h), and sends them to the runner, which
 * proves deadlocks with them (diagnose/proof.h). Frame: WIRE_SNAPSHOT (base/cut_frame.h).
 *
 * - Every CUT_SENDER_MS: the sum of the words of each rank's threads, and nothing more of a rank
 *   that goes on.
 * - A rank whose sum is that of the last look: a cut. If each of its threads is in a call or
 *   asleep, the cut remains true until the sum changes, and is the last one. Else, as threads may
 *   fall asleep, and as a rank may not let itself be read, it is looked at again after 100, 200,
 *   ... CUT_SENDER_MOST_MS.
 * - A cut is sent if it says something that the last one did not. A rank that goes on after a cut,
 *   or of which nothing is known any more, is sent as MOVING, once.
 * - LOOK is answered at once, by comparing the sums.
 * - A rank ends well: what it has counted, before its EXITED. After another end, the library of its
 *   peers may return errors to them.
 * - A rank of which no library writes the calls costs a load.
 */
#ifndef RUNNER_AGENT_CUT_SENDER_H
#define RUNNER_AGENT_CUT_SENDER_H

#include "base/loop.h"
#include "base/wire.h"

struct agent;
struct rank_proc;

enum {
    CUT_SENDER_MS = 100,
    CUT_SENDER_MOST_MS = 1000,
    CUT_SENDER_FRAME = 4 << 20,   /* bytes, after which a frame is sent */
    CUT_SENDER_BACKLOG = 16 << 20 /* while so many wait to be sent, no cut is taken */
};

/*
 *            the sum changes
 *   +--------------------------------------+
 *   v                                      |
 * MOVING --- it is the same at a look ---> STILL --- all threads are in calls ---> SETTLED
 *   ^   <--- (each state) the sum changes ---------- or asleep                        |
 *   +---------------------------------------------------------------------------------+
 *                                          ENDED, from each state: the last one
 */
enum cut_sender_state { CUT_SENDER_MOVING, CUT_SENDER_STILL, CUT_SENDER_SETTLED, CUT_SENDER_ENDED };

struct cut_sender_rank {
    enum cut_sender_state state;
    uint64_t sum;    /* at the last look */
    uint64_t sent;   /* hash of the cut that was sent last; 0: for the runner, it is MOVING */
    uint64_t due_ns; /* STILL: when the next cut is taken */
    uint64_t pause_ms;
};

struct cut_sender {
    struct agent *agent;
    struct loop_timer timer;
    struct cut_sender_rank *ranks; /* owned; of this host; NULL: no cuts are taken */
};

/* Once the ranks were spawned. Without memory no cuts are taken. */
void cut_sender_start(struct cut_sender *s, struct agent *a);
void cut_sender_stop(struct cut_sender *s); /* safe on a zeroed one */
/* The process of the rank has ended; `well`: with exit code 0. */
void cut_sender_end_rank(struct cut_sender *s, struct rank_proc *p, bool well);
void cut_sender_on_look(struct cut_sender *s, const struct wire_frame *f);

#endif
