/* SPDX-License-Identifier: Apache-2.0
 *
 * struct net_group: one handle of a group in one rank, its failure and its packets.
 *
 * - The first failure of a handle stays. Then all memory of its messages and operations is taken
 *   back from the link, and every later call returns the failure.
 *
 * Failure modes beside those of the calls: a member is dead or cannot be reached: PEER_FAILED, or
 * BACKEND if this process is the cause. One that has closed the group in the usual way is no
 * failure until something needs it, and has not left before what it has put is here: that may take
 * another way than its packets.
 */
#ifndef NET_GROUP_H
#define NET_GROUP_H

#include "endpoint.h"
#include "ops.h"
#include "p2p.h"

/* A failure is sent to all members of a group of so many ranks, and in a larger one to those that
 * this process is connected with: the others wait for members that know. */
enum { NET_FAILURE_TEXT = 768, NET_FAILURE_DIALS = 64 };

struct net_coll;

/* Puts between this rank and a member. */
struct net_group_puts {
    uint64_t sent, landed;
    bool asked;  /* whether the member has closed the group */
    bool leaves; /* the member closes the group; it has left when `last` have landed */
    uint64_t last;
};

struct net_group {
    struct endpoint_context context; /* first */
    struct endpoint *endpoint;
    const struct collrun_services *services;
    uint32_t rank, nranks;
    struct endpoint_peer **peers; /* by rank; NULL: this rank itself */
    bool *has_left;               /* by rank: it has closed the group */
    uint32_t nleft;
    struct net_group_puts *puts; /* by rank */
    bool peer_has_left;          /* since the group's thread last looked */
    /* Relaxed where a thread looks for it again and again: endpoint_wake, which follows it, makes
     * that thread look once more. */
    atomic_bool aborted;
    /* The group has failed: the memory of all messages and requests is to be taken back from the
     * link, and calls on the ranks of this host are to end. */
    void (*on_failure)(struct net_group *group);
    int status; /* 0, or the failure */
    char text[NET_FAILURE_TEXT];
    struct net_p2p p2p;
    struct net_ops ops;
    struct net_coll *coll; /* NULL: the handle is for messages alone */
};

/* With the lock of the endpoint, but for net_group_failure. */

/* The failure, unless there is one already. Stores nothing for this thread. */
void net_group_set_failure(struct net_group *group, int status, const char *text);
/* Without the lock: stores the failure for this thread and returns its status; OK if there is none.
 */
int net_group_failure(struct net_group *group);
static inline bool net_group_has_failed(const struct net_group *group)
{
    return group->status != COLLRUN_OK ||
           atomic_load_explicit(&group->aborted, memory_order_relaxed);
}
/* A failure among the ranks of this host is one of all members, and is sent to them. Each rank gets
 * an abort from its agent. */
void net_group_share_failure(struct net_group *group, int status, const char *text);
/* Makes the group fail at a member, or at all (COLLRUN_ANY_SOURCE; see NET_FAILURE_DIALS).
 */
void net_group_send_failure(struct net_group *group, uint32_t peer, int status, const char *text);
/* A member has closed the group. */
void net_group_set_left(struct net_group *group, uint32_t peer);
/* It closes the group, and has sent so many puts to this rank. Again, the second time is ignored.
 */
void net_group_set_leaves(struct net_group *group, uint32_t peer, uint64_t nputs);
/* A put to a member has been sent; one of a member is here. */
void net_group_put_sent(struct net_group *group, uint32_t peer);
void net_group_put_landed(struct net_group *group, uint32_t peer);
/* Fails the group because `peer`, which something needs, has left. */
void net_group_fail_left(struct net_group *group, uint32_t peer);

void net_group_send(struct net_group *group, uint32_t peer, struct packet *packet, const void *data,
                    size_t len);
enum link_sending net_group_send_long(struct net_group *group, uint32_t peer, struct packet *packet,
                                      struct link_put *put);

#endif
