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

/* Puts: see packet.h. A token is a number of this process, random at first, whose lower bits are
 * the index of the landing in `slots`. */

#define PUT_SLOT_BITS 20u
#define PUT_MAX_SLOTS (1u << PUT_SLOT_BITS)
/* How long unland and unput wait for data in flight before they close the connection. */
#define PUT_CANCEL_NS 100000000u

/* ---- landings ---- */

/* Doubles the slots. False: out of memory, or too many. */
static bool put_grow(struct link *link)
{
    const uint32_t n = link->nslots ? 2 * link->nslots : 64;
    struct link_landing **slots =
        n <= PUT_MAX_SLOTS ? realloc(link->slots, n * sizeof *slots) : NULL;
    if (!slots)
        return false;
    memset(slots + link->nslots, 0, (n - link->nslots) * sizeof *slots);
    link->next_slot = link->nslots;
    link->slots = slots;
    link->nslots = n;
    return true;
}

static bool put_find_slot(struct link *link, uint32_t *slot)
{
    for (uint32_t i = 0; i < link->nslots; i++) {
        *slot = (link->next_slot + i) % link->nslots;
        if (!link->slots[*slot])
            return true;
    }
    if (!put_grow(link))
        return false;
    *slot = link->next_slot;
    return true;
}

int link_land(struct link *link, struct link_landing *landing)
{
    uint32_t slot;
    if (!put_find_slot(link, &slot))
        return COLLRUN_ERR_NO_MEMORY;
    link->slots[slot] = landing;
    link->next_slot = slot + 1;
    landing->token = ++link->landings << PUT_SLOT_BITS | slot;
    landing->received = 0;
    landing->handle = NULL;
    return COLLRUN_OK;
}

static struct link_landing *put_find_landing(const struct link *link, uint64_t token)
{
    const uint32_t slot = token % PUT_MAX_SLOTS;
    struct link_landing *l = slot < link->nslots ? link->slots[slot] : NULL;
    return l && l->token == token ? l : NULL;
}

static void put_remove_landing(struct link *link, const struct link_landing *landing)
{
    link->slots[landing->token % PUT_MAX_SLOTS] = NULL;
}

/* All its data is here: the upcall is due. */
static void put_complete_landing(struct link *link, struct link_landing *landing)
{
    put_remove_landing(link, landing);
    landing->received = landing->len;
    landing->next = link->landed;
    link->landed = landing;
}

static void put_received(void *request, ucs_status_t status, size_t length, void *user_data)
{
    struct link_landing *landing = user_data;
    struct link *link = landing->peer->link;
    (void)length;
    landing->handle = NULL;
    link->ucx.ucp_request_free(request);
    if (status == UCS_OK)
        put_complete_landing(link, landing);
    else if (status != UCS_ERR_CANCELED)
        peer_lose(landing->peer, status);
}

static ucs_status_t put_fetch(struct link *link, struct link_landing *landing, void *data)
{
    const ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.recv_am = put_received,
        .user_data = landing,
    };
    void *request =
        link->ucx.ucp_am_recv_data_nbx(link->worker, data, landing->data, landing->len, &params);
    if (UCS_PTR_IS_PTR(request))
        landing->handle = request;
    else if (UCS_PTR_IS_ERR(request))
        peer_lose(landing->peer, UCS_PTR_STATUS(request));
    else
        put_complete_landing(link, landing);
    return UCS_INPROGRESS;
}

ucs_status_t put_arrived(void *arg, const void *header, size_t header_len, void *data, size_t len,
                         const ucp_am_recv_param_t *param)
{
    struct link *link = arg;
    struct link_peer *peer;
    struct ucx_head head;
    if (!peer_of_head(link, header, header_len, &head, &peer))
        return UCS_OK;
    struct link_landing *landing = put_find_landing(link, head.number);
    if (!landing || landing->peer != peer || landing->len != len || landing->handle)
        return UCS_OK; /* it is gone: UCX drops the data */
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)
        return put_fetch(link, landing, data);
    memcpy(landing->data, data, len);
    put_complete_landing(link, landing);
    return UCS_OK;
}

/* Waits until UCX does not use the memory any more; if that takes too long, closes the connection,
 * which ends all that is in flight there. */
static void put_await_end(struct link *link, struct link_peer *peer, void *const *handle)
{
    const uint64_t until_ns = peer_now_ns(link) + PUT_CANCEL_NS;
    while (*handle && peer_now_ns(link) < until_ns)
        link->ucx.ucp_worker_progress(link->worker);
    if (!*handle)
        return;
    peer_lose(peer, UCS_ERR_CANCELED);
    peer_cut(peer);
    while (*handle)
        link->ucx.ucp_worker_progress(link->worker);
}

/* Takes an entry out of a list of landings. True if it was there. */
static bool put_take_landed(struct link *link, const struct link_landing *landing)
{
    for (struct link_landing **at = &link->landed; *at; at = &(*at)->next)
        if (*at == landing) {
            *at = landing->next;
            return true;
        }
    return false;
}

void link_unland(struct link *link, struct link_landing *landing)
{
    if (landing->handle) {
        link->ucx.ucp_request_cancel(link->worker, landing->handle);
        peer_ep(landing->peer); /* so that there is something to close */
        put_await_end(link, landing->peer, &landing->handle);
    }
    if (!put_take_landed(link, landing) && put_find_landing(link, landing->token) == landing)
        put_remove_landing(link, landing);
}

/* ---- puts ---- */

static void put_take(struct link_put **list, const struct link_put *put)
{
    for (struct link_put **at = list; *at; at = &(*at)->next)
        if (*at == put) {
            *at = put->next;
            return;
        }
}

static void put_complete(struct link *link, struct link_put *put)
{
    put->next = link->sent;
    link->sent = put;
}

/* What UCX needs until a put is complete. */
struct outgoing_put {
    struct link_put *put;
    struct ucx_head head;
};

static void put_sent(void *request, ucs_status_t status, void *user_data)
{
    struct outgoing_put *out = user_data;
    struct link_put *put = out->put;
    struct link *link = put->peer->link;
    free(out);
    put->handle = NULL;
    link->in_flight--;
    link->ucx.ucp_request_free(request);
    put_take(&link->puts, put);
    if (status == UCS_OK)
        put_complete(link, put);
    else
        peer_lose(put->peer, status);
}

/* UCX matches nothing here, and would have to keep the data. */
enum link_sending link_send_long(struct link_peer *peer, const void *header, struct link_put *put)
{
    (void)peer, (void)header, (void)put;
    return LINK_BUSY;
}

void link_take(struct link_peer *peer, struct link_landing *landing)
{
    (void)peer, (void)landing;
}

void link_put(struct link *link, struct link_put *put)
{
    put->handle = NULL;
    put->next = NULL;
    ucp_ep_h ep = peer_ep(put->peer);
    if (!ep)
        return;
    struct outgoing_put *out = malloc(sizeof *out);
    if (!out) {
        peer_lose(put->peer, UCS_ERR_NO_MEMORY);
        return;
    }
    *out = (struct outgoing_put){put, peer_head(put->peer)};
    out->head.number = put->token;
    const ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = put_sent,
        .user_data = out,
    };
    void *request = link->ucx.ucp_am_send_nbx(ep, UCX_AM_PUT, &out->head, sizeof out->head,
                                              put->data, put->len, &params);
    if (UCS_PTR_IS_PTR(request)) {
        put->handle = request;
        put->next = link->puts;
        link->puts = put;
        link->in_flight++;
        return;
    }
    free(out);
    if (UCS_PTR_IS_ERR(request))
        peer_lose(put->peer, UCS_PTR_STATUS(request));
    else
        put_complete(link, put);
}

void link_unput(struct link *link, struct link_put *put)
{
    if (put->handle) {
        link->ucx.ucp_request_cancel(link->worker, put->handle);
        put_await_end(link, put->peer, &put->handle);
    }
    put_take(&link->sent, put);
    put_take(&link->puts, put);
}

bool put_deliver_all(struct link *link)
{
    bool any = false;
    for (struct link_landing *l; (l = link->landed); any = true) {
        link->landed = l->next;
        l->landed(l);
    }
    for (struct link_put *p; (p = link->sent); any = true) {
        link->sent = p->next;
        p->sent(p);
    }
    return any;
}
