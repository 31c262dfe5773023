/* SPDX-License-Identifier: Apache-2.0
 *
 * One group in one rank: the private side of the shared segment. Calls on a group never overlap, so
 * nothing here is locked; group_abort touches only the shared side.
 */
#ifndef SHM_GROUP_H
#define SHM_GROUP_H

#include "copy.h"
#include "heap.h"
#include "p2p.h"
#include "segment.h"

/* A block of memory that goes to, or comes from, one rank. */
struct piece {
    char *at;
    size_t len;         /* bytes */
    const char *direct; /* incoming only: the sender's own memory, readable from here; or NULL */
};

struct shm_group {
    const struct collrun_services *services;
    uint32_t rank, nranks;
    struct segment seg;
    const struct shm_group *sibling; /* the handle that was opened first and is closed last; NULL */
    struct failure *failure;         /* of both handles: in the segment of the first */

    /* wait.h */
    bool crowded;         /* there are more ranks than cores */
    uint32_t spins;       /* how often to look before giving way, */
    uint64_t yield_ns;    /* and how long to yield before sleeping: both learnt */
    uint64_t timeout_ns;  /* of the call that is running */
    uint64_t deadline_ns; /* 0 until a wait of this call took long enough to look at the clock */

    /* step.h */
    uint64_t step;   /* the last one posted; posts hold its lower half */
    uint32_t place;  /* of the next post's data; a copy of post.at */
    size_t post_len; /* of the next post, with the data in it */
    size_t ring_pos,
        ring_window;     /* next byte of the own ring, and how much of the ring is in use */
    uint64_t ring_moved; /* bytes since the window last grew */
    struct pace pace;    /* of copies to the others */

    /* exchange.h: one entry per rank, valid during one call */
    struct piece *in, *out;
    const void **srcs;

    struct p2p p2p;
    struct heap *heap; /* own_heap, or that of the group's other handle */
    struct heap own_heap;
};

#endif
