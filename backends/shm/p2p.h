/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages: the backend's transport. The engine matches (see struct collrun_p2p in
 * <collrun/backend.h>); this side moves packets and data.
 *
 *     sender                                receiver
 *     RTS, with the message if it is short  ->
 *                                           <-  CTS
 *     FRAG, one for each block, or FIN      ->
 *                                           <-  ACK
 *
 * - Up to PAYLOAD_BYTES travel in the RTS itself, and the send is done.
 * - Up to EAGER_BYTES of a longer message are written beside the RTS, into neighbouring blocks of
 *   the sender; or its first block, if such are not free. The RTS is pushed after the first part of
 *   that, so that both ranks copy at the same time. If that is the whole message, the send is done;
 *   the receiver returns the blocks through the sender's `returned` bits.
 * - A blocking call moves such a message without a transfer.
 * - The rest follows block by block (FRAG) once the receiver has sent CTS. Every block is
 *   acknowledged (ACK) and then used again.
 * - Memory in the shared heap is read, or written (FIN), in place; the last ACK ends the send.
 * - The RTS of a message of 4 MiB or more has its address. The receiver reads it from the sender's
 *   own memory (transport/cma.h), and then sends the last ACK; or it asks by CTS for what it cannot
 *   read, or gets faster in blocks (transport/policy.h).
 *
 * Failure modes:
 * - The group has failed in any member: every function returns that failure.
 * - The memory for messages, or the heap of a peer, cannot be mapped: NO_MEMORY, and the group
 *   fails.
 *
 * All messages progress together: progress takes all incoming packets, and pushes outgoing ones as
 * soon as their FIFO has room, and no rank waits with a full FIFO for another full FIFO.
 */
#ifndef SHM_P2P_H
#define SHM_P2P_H

#include "transport/policy.h"

#include <collrun/backend.h>
#include <stdatomic.h>
#include <stdbool.h>

struct shm_group;
struct transfer;

/* This rank's side of the two FIFOs that it has with one peer. */
struct peer {
    uint32_t pushed, seen_popped; /* outgoing */
    uint32_t blocked_round; /* the round in which an RTS found no room: later ones must wait */
    uint32_t popped;        /* incoming */
    uint64_t to_return;     /* blocks of the peer that have been read; see receiver.c */
    bool notify_due;        /* a packet was pushed or popped since the peer was last notified */
    bool watched;           /* by a message that is not done */
    struct remote_policy remote; /* of long messages from the peer */
};

struct p2p {
    const struct collrun_p2p *engine;
    struct peer *peers;
    uint32_t *watched; /* peers whose FIFOs are polled */
    uint32_t nwatched;
    uint32_t active;               /* messages that are not done */
    uint32_t round;                /* of progress */
    uint64_t free_blocks;          /* a bit for each of this rank's blocks */
    uint64_t in_turn;              /* the blocks to use while one of them is free */
    uint32_t next_block;           /* blocks are used in turn; see step.h on why */
    uint32_t laps;                 /* over all blocks; a message's place in its block changes */
    struct transfer *first, *last; /* those that have a packet to send, in order */
    atomic_bool woken;             /* the next wait of progress ends at once */
    uint32_t waits_to_spin;        /* of an oversubscribed group: waits until one spins again */
    uint32_t vain_spins;           /* how many found nothing, */
    uint32_t spins_in_a_row;       /* and how many something since then */
};

int shm_p2p_init(struct p2p *p, const struct collrun_p2p *engine, uint32_t nranks);
void shm_p2p_fini(struct p2p *p);

/* The members of struct collrun_backend. */
int shm_p2p_send(void *group, struct collrun_message *message);
int shm_p2p_post(void *group, struct collrun_message *message);
void shm_p2p_unpost(void *group, struct collrun_message *message);
int shm_p2p_recv(void *group, struct collrun_message *message, const void *packet, size_t len);
int shm_p2p_flush(void *group);
int shm_p2p_progress(void *group, uint64_t wait_ns);
void shm_p2p_wake(void *group);
int shm_p2p_send_short(void *group, const struct collrun_message *message);
int shm_p2p_recv_short(void *group, const struct collrun_message *message);

#endif
