/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections of peers, and their loss.
 */
#ifndef TCP_PEERS_H
#define TCP_PEERS_H

#include "state.h"

struct link_peer *peers_find(const struct link *link, uint32_t world_rank);

/* "10.0.0.7 port 4711", for the log; in `out`, which has room for PEERS_WHERE bytes. */
enum { PEERS_WHERE = 128 };
const char *peers_where(const struct handshake_address *address, char *out);
const char *peers_where_from(int fd, char *out); /* of the other end of a socket */

/* What all sockets to peers have: no delay, and probes while nothing is on its way. */
void peers_configure(int fd);
/* An open socket becomes a connection of the peer. False: errno; the socket is the caller's. */
bool peers_adopt(struct link_peer *peer, int fd, uint32_t channel, bool incoming);

/* The peer is lost, unless it is already; link_progress reports it. */
void peers_lose(struct link_peer *peer, enum link_loss_reason reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* errno, with what may help. */
void peers_lose_by_errno(struct link_peer *peer, const char *what, int error);
/* Its upcalls. True if there were any. */
bool peers_report_losses(struct link *link);

/* A connection has ended: that of a further socket is closed, or the peer is lost. */
void peers_conn_ended(struct conn *conn);
/* conn_push will find something to do. */
void peers_list_pending(struct link *link, struct conn *conn);
/* Loses peers that do not acknowledge what was sent. */
void peers_check_silence(struct link *link);
void peers_free(struct link *link);

#endif
