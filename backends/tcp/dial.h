/* SPDX-License-Identifier: Apache-2.0
 *
 * Outgoing connections: connect, HELLO, ANSWER. The service thread moves them.
 *
 * One that is not open after LINK_CONNECT_MS has failed, unless the host of the peer has
 * acknowledged HELLO: then its process is stopped, by a debugger or Ctrl-Z, and the limit is that
 * of the operation that waits for it. A peer that has answered WAIT and does not connect for as
 * long is asked again: it may have been stopped, it may answer WAIT once more, or refuse because
 * it has given up.
 */
#ifndef TCP_DIAL_H
#define TCP_DIAL_H

#include "state.h"

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
