/* SPDX-License-Identifier: Apache-2.0
 *
 * struct p2p_long: the data of a long packet, at its receiver. Nothing more is read of its sender
 * until the engine has been asked where it goes. If a receive has been posted, the link reads
 * straight into it. If not, or if the group's thread is elsewhere, it is kept in memory that is
 * allocated for it, as much as credit allows.
 */
#ifndef NET_P2P_LONG_H
#define NET_P2P_LONG_H

#include "group.h"

struct p2p_long;

/* With the lock of the endpoint. */

/* A receive of its length is matched with it, which frees it. True: the data is there. */
bool net_p2p_long_recv(struct p2p_long *data, struct net_message *message);
/* The engine has been asked about all that have arrived. */
void net_p2p_long_keep(struct net_group *group);
/* Takes the memory back, and drops what comes. */
void net_p2p_long_detach(struct net_group *group);

#endif
