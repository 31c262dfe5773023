/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiver's side of a message; see p2p.h for the protocol. Functions that return int return a
 * status.
 */
#ifndef SHM_TRANSPORT_RECEIVER_H
#define SHM_TRANSPORT_RECEIVER_H

#include "transport/transfer.h"

/* Takes a message that arrives whole with its RTS. False: the packet is another one. */
bool receiver_take_short(struct shm_group *g, const struct collrun_message *m,
                         const struct packet *rts);

/* Hands an RTS to the engine. */
int receiver_handle_rts(struct shm_group *g, uint32_t from, const struct packet *rts);
/* The engine has matched it: takes the data in the packet. */
int receiver_match(struct shm_group *g, struct transfer *t, const struct packet *rts);
int receiver_handle_frag(struct shm_group *g, struct transfer *t, const struct packet *packet);
int receiver_handle_fin(struct shm_group *g, struct transfer *t);

/* Reads the next part of the sender's memory, or sends the next packet, if there is room for it. */
bool receiver_advance(struct shm_group *g, struct transfer *t);

#endif
