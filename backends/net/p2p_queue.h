/* SPDX-License-Identifier: Apache-2.0
 *
 * What waits in a group's struct net_p2p: messages that the link uses, those that are done, and
 * packets that have arrived. All with the lock of the endpoint.
 */
#ifndef NET_P2P_QUEUE_H
#define NET_P2P_QUEUE_H

#include "group.h"

struct p2p_long;

/* What the engine gets as the packet, before the data of an eager message. */
struct p2p_first {
    uint32_t type, id;          /* enum packet_type; of RTS: of the send */
    struct p2p_long *long_data; /* of LONG */
};

/* In the list of arrivals, before the data; padded to 8 bytes. */
struct p2p_arrival {
    uint32_t source, len; /* of `first` and the data */
    struct collrun_envelope envelope;
};

/* The link uses the message's memory from now on, or not any more. */
void net_p2p_activate(struct net_message *message, enum p2p_state state);
void net_p2p_deactivate(struct net_message *message);
/* Its data has moved; the engine learns it in progress. */
void net_p2p_complete(struct net_message *message);
/* Its memory is to become a landing, which the link gets from the caller. */
struct link_landing *net_p2p_receive(struct net_message *message);

/* False: out of memory. */
bool net_p2p_add_arrival(struct net_group *group, const struct packet *packet,
                         struct p2p_long *long_data, const void *data, size_t len);

#endif
