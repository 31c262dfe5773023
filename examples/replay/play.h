/* SPDX-License-Identifier: Apache-2.0
 *
 * Plays the traces of a process: makes their calls in order, one thread for all of its ranks.
 *
 * - Each rank makes its calls in the order of its trace. A call that was blocking ends before the
 *   next begins; a non-blocking one is in flight until its wait, or the end of the trace.
 * - A process that plays one rank makes blocking calls as such. One that plays several starts every
 *   call and goes on with another rank while one waits.
 * - Collectives: the ranks of one process act as one rank of the group. Their call starts when the
 *   last of them has made it. What one rank would contribute or get as a block becomes the blocks
 *   of all of them, by the forms with uneven counts; all other counts stay.
 * - Messages between two ranks of one process are messages of the process to itself.
 * - Times of computation are slept, divided by `speed`.
 */
#ifndef REPLAY_PLAY_H
#define REPLAY_PLAY_H

#include "cast.h"

struct play_sum { /* of all calls of a kind */
    uint64_t calls, bytes;
    uint64_t ns;              /* of all of them, from the call to the end of the operation */
    uint64_t timed, timed_ns; /* of those whose time is recorded */
    uint64_t recorded_ns;
};

struct player;

/* Checks what only folding makes impossible; 0, or an exit code with the error reported. speed: 0
 * drops the computation. */
int play_new(struct player **out, struct cast *c, double speed, bool verify);
/* All traces once, from first to last call. */
int play_once(struct player *p);
/* One sum for each kind of operation. */
const struct play_sum *play_sums(const struct player *p);
uint64_t play_wrong(const struct player *p); /* results with a wrong value */
void play_free(struct player *p);
#endif
