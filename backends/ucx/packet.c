/* SPDX-License-Identifier: Apache-2.0
 *
 * Packets: see packet.h.
 */
#include "packet.h"

#include "peer.h"

#include <stdlib.h>
#include <string.h>

/* A copy of a packet, until UCX has sent it. */
struct outgoing {
    struct link_peer *peer;
    struct ucx_head head;
    char data[];
};

static void packet_sent(void *request, ucs_status_t status, void *user_data)
{
    struct outgoing *out = user_data;
    struct link *link = out->peer->link;
    if (status != UCS_OK)
        peer_lose(out->peer, status);
    link->in_flight--;
    link->ucx.ucp_request_free(request);
    free(out);
}

static void packet_send(struct link_peer *peer, uint32_t kind, const void *header, const void *data,
                        size_t len)
{
    struct link *link = peer->link;
    ucp_ep_h ep = peer_ep(peer);
    if (!ep)
        return;
    struct outgoing *out = malloc(sizeof *out + len);
    if (!out) {
        peer_lose(peer, UCS_ERR_NO_MEMORY);
        return;
    }
    out->peer = peer;
    out->head = peer_head(peer);
    out->head.kind = kind;
    out->head.number = peer->sent++;
    if (header)
        memcpy(out->head.header, header, LINK_HEADER_LEN);
    if (len > 0)
        memcpy(out->data, data, len);
    const ucp_request_param_t params = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .cb.send = packet_sent,
        .user_data = out,
    };
    void *request = link->ucx.ucp_am_send_nbx(ep, UCX_AM_PACKET, &out->head, sizeof out->head,
                                              out->data, len, &params);
    if (UCS_PTR_IS_PTR(request)) {
        link->in_flight++;
        return;
    }
    if (UCS_PTR_IS_ERR(request))
        peer_lose(peer, UCS_PTR_STATUS(request));
    free(out);
}

void link_send(struct link_peer *peer, const void *header, const void *data, size_t len)
{
    packet_send(peer, UCX_HEAD_PACKET, header, data, len);
}

void packet_send_leave(struct link_peer *peer)
{
    packet_send(peer, UCX_HEAD_LEAVE, NULL, NULL, 0);
}

static void packet_queue(struct link_peer *peer, struct packet *packet)
{
    struct packet **at = &peer->packets;
    while (*at && (*at)->head.number < packet->head.number)
        at = &(*at)->next;
    packet->next = *at;
    *at = packet;
    peer->link->has_packets = true;
}

ucs_status_t packet_arrived(void *arg, const void *header, size_t header_len, void *data,
                            size_t len, const ucp_am_recv_param_t *param)
{
    struct link_peer *peer;
    struct ucx_head head;
    const bool keep = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA;
    if (!peer_of_head(arg, header, header_len, &head, &peer) || len > LINK_PACKET_MAX ||
        (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) || (peer && peer->lost))
        return UCS_OK; /* not from a member, or too late */
    struct packet *p = peer ? malloc(sizeof *p + (keep ? 0 : len)) : NULL;
    if (!p) {
        if (peer)
            peer_lose(peer, UCS_ERR_NO_MEMORY);
        return UCS_OK;
    }
    *p = (struct packet){.head = head, .data = keep ? data : p + 1, .len = len, .of_ucx = keep};
    if (!keep && len > 0)
        memcpy(p + 1, data, len);
    packet_queue(peer, p);
    return keep ? UCS_INPROGRESS : UCS_OK;
}

static void packet_free(struct link *link, struct packet *packet)
{
    if (packet->of_ucx)
        link->ucx.ucp_am_data_release(link->worker, (void *)packet->data);
    free(packet);
}

static bool packet_deliver(struct link_peer *peer)
{
    struct link *link = peer->link;
    bool any = false;
    for (struct packet *p; (p = peer->packets) && p->head.number == peer->delivered; any = true) {
        peer->packets = p->next;
        peer->delivered++;
        if (p->head.kind == UCX_HEAD_LEAVE) {
            peer->left = true;
            peer_lose(peer, UCS_ERR_CONNECTION_RESET);
        } else {
            link->upcalls.packet(link->upcalls.ctx, peer->cookie, p->head.header, p->data, p->len);
        }
        packet_free(link, p);
    }
    return any;
}

bool packet_deliver_all(struct link *link)
{
    bool any = false;
    for (struct link_peer *p = link->peers; p; p = p->next)
        if (p->packets && p->opened)
            any |= packet_deliver(p);
    return any;
}

void packet_drop_all(struct link_peer *peer)
{
    for (struct packet *p; (p = peer->packets);) {
        peer->packets = p->next;
        packet_free(peer->link, p);
    }
}
