/* SPDX-License-Identifier: Apache-2.0
 *
 * Credit: how much a sender may leave at a receiver before it is matched. It is returned with the
 * next packet to the sender, or by a packet that has nothing else, when half of it has been used.
 *
 * The same packets tell the sender how the receiver's memory is aligned. Once a member knows that
 * of another one, it also knows that the group is open there.
 */
#ifndef NET_P2P_CREDIT_H
#define NET_P2P_CREDIT_H

#include "group.h"

/* Uses credit for a message of `len` bytes. False: there is not enough. */
bool net_p2p_credit_use(struct p2p_peer *peer, size_t len);
/* ... that has not left after all. */
void net_p2p_credit_unuse(struct p2p_peer *peer, size_t len);
/* What a packet of the peer tells. */
void net_p2p_credit_arrived(struct p2p_peer *peer, const struct packet_message *packet);

/* A message of the peer has been matched with a receive into this memory. `used`: it has used
 * credit. True: now a packet that has nothing else is due. */
bool net_p2p_credit_matched(struct p2p_peer *peer, const void *data, size_t len, bool used);
/* Completes a packet to the peer. */
void net_p2p_credit_return(struct p2p_peer *peer, struct packet_message *packet);

#endif
