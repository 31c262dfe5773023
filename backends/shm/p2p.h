/* SPDX-License-Identifier: Apache-2.0
 *
 * Send, recv and recv_any.
 *
 * The sender announces a message (SEND); the receiver matches it with the oldest of its receives
 * that takes that sender and tag, or puts the announcement by. Up to 232 bytes ride in the
 * announcement itself; the first block of a longer message lies beside it in the sender's blocks.
 * If that is all of it, the send is over: nothing has to come back but the block, which the
 * receiver puts into the sender's `returned`, and what the sender has left in the segment outlives
 * it.
 *
 * The rest of a longer message follows block by block (FRAG) once the receiver says so (GO); every
 * block is acknowledged (ACK) and then reused. Memory from the shared heap is read, or written, in
 * place; its send, too, ends with the last ACK. If the two sides disagree about count or type, the
 * group fails: the receiver at once, the sender in the same call or in its next one, both with the
 * same sentence.
 *
 * Everything that has been started progresses together, whether it came by exec or by start:
 * whatever arrives is always taken, whatever there is to say is said as soon as its box has room,
 * and nobody waits with a full box for another full box.
 */
#ifndef SHM_P2P_H
#define SHM_P2P_H

#include "heap.h"

#include <collrun/backend.h>

/* This rank's side of the two boxes that it has with one peer. */
struct mail_side {
    uint32_t put, seen_taken; /* outgoing */
    uint32_t full_round; /* in which no more announcements may go out: an earlier one had no room */
    uint32_t got;        /* incoming */
    bool ring_due;       /* something was put or taken since the peer's bell was last looked at */
    bool watched;        /* by the calls that are running */
};

struct transfer;
struct letter;

/* The calls of one exec or start. */
struct parcel {
    uint32_t unfinished; /* of its transfers */
    uint64_t timeout_ns, deadline_ns;
};

struct p2p {
    struct mail_side *sides; /* per peer */
    uint32_t *watched;       /* peers to look at */
    uint32_t nwatched;
    uint32_t round;              /* of hearing and saying */
    uint64_t free_blocks;        /* a bit for each of the own blocks */
    uint32_t next_block;         /* blocks are used in turn; see step.h on why */
    struct transfer **transfers; /* by their number */
    uint32_t ntransfers, active; /* that there are; that are in use */
    struct transfer *idle;
    struct transfer *posted, **posted_end; /* receives that wait for their message, in order */
    struct transfer *agenda, **agenda_end; /* transfers that have something to say, in order */
    struct letter *unexpected; /* announcements that no receive has matched, oldest first */
    struct letter **unexpected_end;
};

int p2p_init(struct p2p *p, uint32_t nranks);
void p2p_fini(struct p2p *p);

/* Runs the calls, which are all point to point. */
int p2p_run(struct shm_group *g, const struct collrun_call *calls, uint32_t ncalls);

/* The same in two parts. The calls stay where they are until p2p_test has said something other than
 * AGAIN. */
int p2p_start(struct shm_group *g, const struct collrun_call *calls, uint32_t ncalls,
              struct parcel *parcel);
int p2p_test(struct shm_group *g, struct parcel *parcel);

#endif
