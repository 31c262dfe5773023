/* SPDX-License-Identifier: Apache-2.0
 *
 * The listening socket of the process, and incoming connections until they are open: HELLO, ANSWER.
 * The service thread moves them.
 *
 * A connection without a valid, new HELLO is closed, and the first one is logged. The kernel
 * hands over one that has sent something, or nothing for LINK_HANDSHAKE_MS. Then it is closed after
 * LINK_HANDSHAKE_MS, or when a newer one needs its place. A process without free descriptors
 * answers NO, by means of a spare one. While it lacks that, too, it accepts nothing, and tries
 * again every LINK_TICK_MS.
 */
#ifndef TCP_LISTENER_H
#define TCP_LISTENER_H

#include "state.h"

/* On failure the cause is stored. */
int listener_open(struct link *link, const struct link_config *config);
void listener_close(struct link *link);

/* Events of the listener, and of a connection. */
void listener_accept(struct link *link);
void listener_advance(struct link *link, struct inbound *inbound);
/* A peer has become known: its connections that wait for it are opened. */
void listener_adopt_parked(struct link *link, uint32_t world_rank);
void listener_check_deadlines(struct link *link, uint64_t now_ns);

#endif
