/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange: one routine for every collective that moves blocks from ranks to ranks. Broadcast,
 * allgather, gather, scatter and alltoall, their vector forms, and those reductions in which a
 * receiver combines the blocks that arrive, differ only in which rank sends how much to which, and
 * in whether all ranks read one block or each has its own.
 *
 * - In every step a sender copies the next piece of its blocks to where all can read it (its ring,
 *   or the record itself if tiny), and a receiver takes the piece of the step before.
 * - A send buffer in the shared heap is not copied: the receivers read it in place, and one more
 *   step at the end confirms that they have.
 * - Vector forms begin with a step in which every rank announces what it will send to which rank;
 *   receivers compare it with what they expect. Ranks that disagree deliver nothing of
 *   each other: a rank's block is delivered only after the first data step, which confirms that all
 *   agree.
 */
#ifndef SHM_COLL_EXCHANGE_H
#define SHM_COLL_EXCHANGE_H

#include "coll/step.h"

struct exchange {
    struct shm_group *g;
    const struct collrun_call *call;
    size_t elem;       /* bytes of an element */
    bool personalized; /* every receiver has its own block, coll.out[receiver]; else all read out[0]
                        */
    bool vector;       /* blocks differ in length */
    bool symmetric;    /* all ranks send: steps may be long. Else short steps let the receivers work
                          while the sender copies the next piece */
    bool in_place;  /* incoming data overwrites what others still read: that must be copied out */
    bool receives;  /* this rank knows what others send to it */
    size_t longest; /* bytes of the longest block; of vector forms, found by the announcement */
    char *reduce_into; /* not NULL: reduce the blocks that arrive, all of one length, into here */

    /* private to exchange.c */
    struct signature signature;
    struct heap_ref ref; /* of this rank's first block, if its blocks lie in the heap */
    uint64_t first_step; /* of data */
    uint32_t location;   /* STEP_... of this rank's data in that step */
    size_t piece;        /* bytes of a block that move in one step */
    bool stream, all_direct, some_direct;
    bool own_first; /* this rank's block for itself is delivered before those of the others */
    bool is_silent; /* no other rank reads this one's block */
};

/* Runs the exchange over the caller's coll.in and coll.out. */
int exchange_run(struct exchange *x);

#endif
