/* SPDX-License-Identifier: Apache-2.0
 *
 * What peers send each other over UCX: packets and puts.
 *
 * Packets: eager active messages, with a number for each peer. UCX may deliver them in
 * another order than they were sent; the receiver restores it.
 */
#ifndef UCX_PACKET_H
#define UCX_PACKET_H

#include "state.h"

/* A packet that has arrived and was not delivered yet. */
struct packet {
    struct packet *next;
    struct ucx_head head;
    const void *data;
    size_t len;
    bool of_ucx; /* `data` is UCX's, else behind this struct */
};

/* The active message handler. */
ucs_status_t packet_arrived(void *link, const void *header, size_t header_len, void *data,
                            size_t len, const ucp_am_recv_param_t *param);

/* The last packet: this process closes its link. */
void packet_send_leave(struct link_peer *peer);

/* Upcalls for the packets that are next, and losses of peers that have left. True if there was
 * one. */
bool packet_deliver_all(struct link *link);

void packet_drop_all(struct link_peer *peer);

/* Puts over UCX: one active message each, whose number is the token of the landing. UCX moves a
 * large one by its rendezvous, into the memory of the landing. */

/* The active message handler. */
ucs_status_t put_arrived(void *link, const void *header, size_t header_len, void *data, size_t len,
                         const ucp_am_recv_param_t *param);

/* Upcalls for landings and puts that are complete. True if there was one. */
bool put_deliver_all(struct link *link);

#endif
