/* SPDX-License-Identifier: Apache-2.0
 *
 * struct net_ops: the collectives of a group handle, as the network sees them. op.h is what their
 * algorithms call.
 *
 * - An operation has a number; all members execute the same ones in the same order. Each packet
 *   carries the number, and the call as its sender makes it.
 * - A short message is a packet (OP). For a long one the receiver grants a landing (GRANT); the
 *   data follows. In a vector form a packet (OP) says how long the message is. In an operation with
 *   a root a packet (OP) has the first bytes.
 * - Packets that no request waits for are kept, also those of later operations.
 */
#ifndef NET_OPS_H
#define NET_OPS_H

#include "op.h"
#include "packet.h"
#include "scratch.h"

struct net_group;
struct net_ops_kept;

/* About what a pair of ranks may have in flight; in vector forms up to 16 times as much. */
#define NET_AHEAD_BYTES (1u << 20)

struct net_ahead {
    size_t bytes; /* of operations since one that all ranks have been in */
};

struct net_ops {
    struct net_op *current; /* NULL: none */
    uint32_t next_number;   /* of the next operation */
    struct net_ahead ahead;
    struct net_ops_kept *kept, **kept_end; /* packets, in order of arrival */
    struct scratch_pool scratch;
};

void net_ops_init(struct net_ops *ops);
void net_ops_fini(struct net_ops *ops);

/* Runs the next operation of the group; `run` is its algorithm. Returns its status. */
int net_ops_run(struct net_group *group, const struct collrun_call *call,
                int (*run)(void *ctx, struct net_op *op), void *ctx);

/* With the lock of the endpoint. */
void net_ops_handle_packet(struct net_group *group, const struct packet *packet, const void *data,
                           size_t len);
/* True if a request of the present operation waits for that rank. */
bool net_ops_wait_for(const struct net_group *group, uint32_t rank);
/* The group has failed: the memory of all requests is taken back. */
void net_ops_fail(struct net_group *group);

#endif
