/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers of a link over UCX: their endpoints, and how they are lost.
 */
#ifndef UCX_PEER_H
#define UCX_PEER_H

#include "library.h"
#include "state.h"

#include <stdbool.h>

/* ---- silence ----
 *
 * A silent cut of the network under UCX's TCP transport, which waits for as long as the kernel
 * retransmits (a quarter of an hour). RDMA transports report one themselves.
 *
 * - The kernel lists the sockets of UCX as targets of the worker's epoll descriptor.
 * - One with data that is not acknowledged, of a host that has sent nothing for a while, is shut
 *   down; UCX then reports its peer as lost. A stopped process is not: its host acknowledges.
 * - So is one that has not come up for as long.
 */

struct link;
struct link_peer;

/* Looks at all connections, at most every SILENCE_TICK_MS; true if it did. With the lock of the
 * endpoint. */
enum { SILENCE_TICK_MS = 2000 };
bool silence_check(struct link *link);

/* ---- peers ---- */

/* The endpoint, connected now if it was not; NULL: the peer is lost. */
ucp_ep_h peer_ep(struct link_peer *peer);

/* Nothing is sent to the peer, or received from it, any more. The first loss counts; its upcall is
 * made by the next link_progress. */
void peer_lose(struct link_peer *peer, ucs_status_t status);

/* The head of an active message to the peer. */
struct ucx_head peer_head(const struct link_peer *peer);

/* True if the message bears this process's secret; *peer is who sent it, NULL if out of memory. */
bool peer_of_head(struct link *link, const void *bytes, size_t len, struct ucx_head *head,
                  struct link_peer **peer);

/* Closes the endpoint at once: all requests on it end. */
void peer_cut(struct link_peer *peer);

/* Upcalls for the peers that are lost. True if there was one. */
bool peer_report_losses(struct link *link);

/* Begins to close the endpoint; `flags` are those of UCX. The request, which is not counted in
 * in_flight, or NULL if it is closed. */
void *peer_close_ep(struct link_peer *peer, uint32_t flags);
/* Waits for the end of a request, at most until then on CLOCK_MONOTONIC, and frees it. */
void peer_end(struct link *link, void *request, uint64_t until_ns);
uint64_t peer_now_ns(const struct link *link);

#endif
