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

/* ---- outgoing connections ----
 *
 * Outgoing connections: connect, HELLO, ANSWER. The service thread moves them.
 *
 * One that is not open after LINK_CONNECT_MS has failed, unless the host of the peer has
 * acknowledged HELLO: then its process is stopped, by a debugger or Ctrl-Z, and the limit is that
 * of the operation that waits for it. A peer that has answered WAIT and does not connect for as
 * long is asked again: it may have been stopped, it may answer WAIT once more, or refuse because
 * it has given up.
 */

/* Begins to connect. What prevents it is the loss of the peer, for channel 0. */
void dial_start(struct link_peer *peer, uint32_t channel);
/* An event of its socket. */
void dial_advance(struct link *link, struct dial *dial);
/* Gives up the connection of channel 0: another one is used. */
void dial_cancel(struct link_peer *peer);
/* Ends those that take too long. */
void dial_check_deadlines(struct link *link, uint64_t now_ns);
void dial_free_all(struct link *link);

#endif
