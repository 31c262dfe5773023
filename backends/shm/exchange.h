/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange: one engine for every collective that moves blocks from ranks to ranks. Broadcast,
 * allgather, gather, scatter and alltoall, even and uneven, and those reductions where a receiver
 * combines the blocks that arrive, differ only in who sends how much to whom, and in whether one
 * block is read by all or each has its own.
 *
 * In every step a sender puts the next piece of its blocks where all can read it (its ring, the
 * post itself if tiny) and a receiver takes what the step before has brought. A send buffer that
 * lies in the shared heap is not copied: the receivers read it in place, and one more step at the
 * end tells that they have.
 *
 * Uneven calls start with a step in which every rank announces what it will send to whom; receivers
 * compare it with what they expect. Only the first data step confirms that all agree, so nothing is
 * delivered before.
 */
#ifndef SHM_EXCHANGE_H
#define SHM_EXCHANGE_H

#include "step.h"

struct exchange {
    struct shm_group *g;
    const struct collrun_call *call;
    size_t elem;     /* bytes of an element */
    bool personal;   /* every receiver gets a block of its own: g->out[receiver]; else all read
                        g->out[0] */
    bool uneven;     /* blocks differ in length */
    bool even_load;  /* all ranks send: steps may be long; else short ones overlap sending and
                        receiving */
    bool overwrites; /* what arrives lands on what others still read: it must be copied out first */
    bool receives;   /* this rank knows what others send to it */
    size_t longest;  /* bytes of the longest block; found by the announcement if uneven */
    char *into;      /* not NULL: reduce what arrives into here; g->in[*].len are all alike */

    /* the exchange's own */
    struct signature signature;
    struct heap_ref ref;
    uint64_t first_step; /* of data */
    uint32_t place;      /* enum post_place, of the own data in that step */
    size_t piece;        /* bytes of a block that move in one step */
    bool stream, all_direct, some_direct;
};

/* Runs it over the caller's g->in and g->out. */
int exchange_run(struct exchange *x);

#endif
