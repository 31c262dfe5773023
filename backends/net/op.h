/* SPDX-License-Identifier: Apache-2.0
 *
 * struct net_op: one collective in one rank, as its algorithm sees the network: sends to and
 * receives from other members of the group.
 *
 * - A message of an operation is named by its two ranks and its slot. Both ends compute the same
 *   slot and the same length, so no message announces itself. A slot is used once in each
 *   direction of a pair and operation.
 * - A short message (NET_EAGER_LIMIT bytes at most; NET_ROOT_EAGER_LIMIT in an operation with a
 *   root and blocks no longer than that) leaves at once; its send is complete when net_op_send
 *   returns. A longer one leaves when its receiver has called net_op_recv, straight from the
 *   sender's memory to the receiver's; of an operation with a root, its first NET_EAGER_LIMIT bytes
 *   leave at once. Now and then all wait for their receivers, so that no rank is far ahead.
 * - Nothing is ordered but by waiting: all requests of an operation progress together.
 *
 * Failure modes, after which the group has failed and no buffer of the operation is in use:
 * - MISMATCH: a member of the same operation number calls something else
 * - TIMEOUT, PEER_FAILED, ABORTED, BACKEND: as <collrun/backend.h> defines them
 * The message is stored as this thread's error. The algorithm returns the status, and calls
 * nothing else.
 */
#ifndef NET_OP_H
#define NET_OP_H

#include "link.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NET_EAGER_LIMIT 65536u       /* bytes */
#define NET_ROOT_EAGER_LIMIT 131072u /* of a short operation with a root */

struct net_group;
struct net_op;

/* Memory of the caller; may be used again when it is done. */
struct net_request {
    bool done;
    /* private to op.c */
    bool receives;
    uint32_t peer, slot;
    void *data;
    size_t len;
    struct net_op *op;
    struct net_request *next;          /* of those that are not done */
    struct net_request *next_finished; /* of those that are done, but do not say so yet */
    union {
        struct link_landing landing;
        struct link_put put;
    };
    bool in_link;  /* the link uses `data` */
    bool has_head; /* what arrives without a grant is here */
    bool was_done; /* at the call of net_op_wait_any */
};

/* The call that the operation executes. Valid until the algorithm returns. */
const struct collrun_call *net_op_call(const struct net_op *op);

/* This rank and the number of ranks, those of the group. */
uint32_t net_op_rank(const struct net_op *op);
uint32_t net_op_size(const struct net_op *op);
const struct collrun_services *net_op_services(const struct net_op *op);

/* Starts to send `len` bytes to, or to receive them from, the member `peer`, which is another rank.
 * The memory is in use until the request is done. A length of 0 is a message, too. Neither blocks.
 */
int net_op_send(struct net_op *op, struct net_request *request, uint32_t peer, uint32_t slot,
                const void *data, size_t len);
int net_op_recv(struct net_op *op, struct net_request *request, uint32_t peer, uint32_t slot,
                void *data, size_t len);

/* Waits until the request is done; until all `n` are; until one is that was not done at the call,
 * and writes its index. While it waits, all requests of the operation progress. */
int net_op_wait(struct net_op *op, struct net_request *request);
int net_op_wait_all(struct net_op *op, struct net_request *requests, uint32_t n);
int net_op_wait_any(struct net_op *op, struct net_request *requests, uint32_t n, uint32_t *index);

/* Moves what can be moved, without waiting. */
int net_op_progress(struct net_op *op);

/* This thread is about to do something else, for long: meanwhile the service thread of the endpoint
 * sends what is left. */
void net_op_hand_over(struct net_op *op);

/* Fails the group, here and at all members, with this text, and returns the status. */
int net_op_fail(struct net_op *op, int status, const char *text);
/* The algorithm is being left, and its status will be a failure: takes the memory of all requests
 * back. */
void net_op_abandon(struct net_op *op);

/* Scratch memory of the operation, freed when it ends; not initialised, aligned to 64 bytes. Large
 * pieces are kept for later operations of the group. NULL: out of memory; the failure is stored.
 */
void *net_op_scratch(struct net_op *op, size_t len);

#endif
