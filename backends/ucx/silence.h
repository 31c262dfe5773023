/* SPDX-License-Identifier: Apache-2.0
 *
 * A silent cut of the network under UCX's TCP transport, which waits for as long as the kernel
 * retransmits (a quarter of an hour). RDMA transports report one themselves.
 *
 * - The kernel lists the sockets of UCX as targets of the worker's epoll descriptor.
 * - One with data that is not acknowledged, of a host that has sent nothing for a while, is shut
 *   down; UCX then reports its peer as lost. A stopped process is not: its host acknowledges.
 * - So is one that has not come up for as long.
 */
#ifndef UCX_SILENCE_H
#define UCX_SILENCE_H

#include "library.h"

#include <stdbool.h>

struct link;
struct link_peer;

/* Looks at all connections, at most every SILENCE_TICK_MS; true if it did. With the lock of the
 * endpoint. */
enum { SILENCE_TICK_MS = 2000 };
bool silence_check(struct link *link);
/* A peer is lost, with this status: peer->silent is what explains it, or "". */
void silence_explain(struct link_peer *peer, ucs_status_t status);

#endif
