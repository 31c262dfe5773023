/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between ranks of one host: the transport of the local group moves them, and the engine
 * matches them together with those of the network.
 *
 * - The engine's message holds that of the local group, a copy whose peer is a rank of the local
 *   group. A receive from any source is posted in the local group until it is matched.
 * - A group on one host waits in the local group alone. Else a waiting thread polls both, and then
 *   sleeps in the link; a rank of the host that sends to it, and finds it asleep, sends a packet.
 *
 * Failure modes: a failure of the local group is one of all members.
 */
#ifndef NET_P2P_LOCAL_H
#define NET_P2P_LOCAL_H

#include "group.h"

/* Before the local group is opened: makes desc->p2p what it is to get. */
void net_p2p_local_init(struct net_group *group, struct collrun_group_desc *desc);
/* `coll`: of the group's first handle. A status; the cause is stored. */
int net_p2p_local_open(struct net_group *group, const struct collrun_group_desc *desc,
                       const struct net_coll *coll);
void net_p2p_local_close(struct net_group *group);
/* The group has failed: calls of the other ranks of this host return the same. */
void net_p2p_local_fail(struct net_group *group, int status, const char *text);

static inline bool net_p2p_is_local(const struct net_group *g, uint32_t peer)
{
    const struct p2p_local *l = &g->p2p.local;
    return l->group && l->hosts->of[peer] == l->host;
}

/* As those of struct collrun_transport; without the lock. */
int net_p2p_local_send(struct net_group *group, struct net_message *message);
int net_p2p_local_post(struct net_group *group, struct net_message *message);
void net_p2p_local_unpost(struct net_group *group, struct net_message *message);
int net_p2p_local_recv(struct net_group *group, struct net_message *message, const void *packet,
                       size_t len);
int net_p2p_local_progress(struct net_group *group, uint64_t wait_ns);
int net_p2p_flush(void *group);
int net_p2p_send_short(void *group, const struct collrun_message *message);
int net_p2p_recv_short(void *group, const struct collrun_message *message);
void net_p2p_local_wake(struct net_group *group);

/* Notes which ranks of the host have left. All that they have sent is in shared memory: progress
 * afterwards takes it. Without the lock. */
void net_p2p_local_note_left(struct net_group *group);

/* For a wait in the link: looks by progress, whose status it stores in local.status. */
extern const struct endpoint_source net_p2p_local_source;

#endif
