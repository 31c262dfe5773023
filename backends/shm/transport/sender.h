/* SPDX-License-Identifier: Apache-2.0
 *
 * The sender's side of a message; see p2p.h for the protocol.
 */
#ifndef SHM_TRANSPORT_SENDER_H
#define SHM_TRANSPORT_SENDER_H

#include "transport/transfer.h"

/* Sends a whole message in an RTS, or in a block beside it. False: it is too long, or its memory is
 * in the heap, or there is no room. */
bool sender_send_short(struct shm_group *g, const struct collrun_message *m);

/* After a message of `len` bytes: prepares the block of the next one, which may be as long. */
void sender_prefetch(const struct shm_group *g, uint32_t peer, size_t len);

/* Sends the next packet, if there is room for it. True if it, or some data, has moved. */
bool sender_advance(struct shm_group *g, struct transfer *t);

void sender_handle_cts(struct shm_group *g, struct transfer *t, const struct packet *packet);
void sender_handle_ack(struct shm_group *g, struct transfer *t, const struct packet *packet);

#endif
