/* SPDX-License-Identifier: Apache-2.0
 *
 * struct net_ahead: how far a rank may be ahead of others in the collectives of a group.
 *
 * In an operation with a root, and in a vector form, some ranks wait for no other: they send what
 * is short at once, return, and begin the next operation. What they send waits for slower ranks in
 * memory, here or there. So after NET_AHEAD_BYTES of such operations one of them is bounded: it
 * sends no data without a grant, for which its receiver has to be in the same operation. All
 * members compute alike which operation that is.
 */
#ifndef NET_AHEAD_H
#define NET_AHEAD_H

#include <collrun/backend.h>

/* About what a pair of ranks may have in flight; in vector forms up to 16 times as much. */
#define NET_AHEAD_BYTES (1u << 20)

struct net_ahead {
    size_t bytes; /* of operations since one that all ranks have been in */
};

/* Of every operation of the group, in order; `elem`: bytes of an element. True: it is bounded. */
bool net_ahead_add(struct net_ahead *ahead, const struct collrun_call *call, size_t elem);

#endif
