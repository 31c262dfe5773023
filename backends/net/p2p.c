/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport; see p2p.h: credit, the lists of what waits, data of long packets, and the
 * functions that the engine calls. What the engine gets is read from the list of arrivals without
 * the lock, because the engine calls back.
 */
#include "p2p.h"

#include "p2p_local.h"

#include <stdlib.h>
#include <string.h>

/* How often a waiting thread looks whether ranks of its host have left. */
#define P2P_LOOK_NS 100000000u

static struct net_message *net_p2p_of(struct collrun_message *m)
{
    return (struct net_message *)(void *)m;
}

/* While messages of this group are under way, the engine comes back for them soon; else the service
 * thread of the endpoint sends what is left. */
static void net_p2p_unlock(struct net_group *g)
{
    if (g->p2p.active)
        endpoint_unlock_attended(g->endpoint);
    else
        endpoint_unlock(g->endpoint);
}

/* What the engine gets as the packet, before the data of an eager message. */
struct p2p_first {
    uint32_t type, id;          /* enum packet_type; of RTS: of the send */
    struct p2p_long *long_data; /* of LONG */
};

/* In the list of arrivals, before the data; padded to 8 bytes. */
struct p2p_arrival {
    uint32_t source, len; /* of `first` and the data */
    struct collrun_envelope envelope;
};

/* ---- credit: how much a sender may leave at a receiver before it is matched ----
 *
 * It is returned with the next packet to the sender, or by a packet that has nothing else, when
 * half of it has been used. The same packets tell the sender how the receiver's memory is aligned.
 * Once a member knows that of another one, it also knows that the group is open there. */

/* What may wait at a receiver, from one sender. */
enum { P2P_CREDIT_MESSAGES = 1024, P2P_CREDIT_BYTES = 1 << 20 };

/* Uses credit for a message of `len` bytes. False: there is not enough. */
static bool net_p2p_credit_use(struct p2p_peer *peer, size_t len)
{
    if (peer->used_messages == P2P_CREDIT_MESSAGES || peer->used_bytes + len > P2P_CREDIT_BYTES)
        return false;
    peer->used_messages++;
    peer->used_bytes += (uint32_t)len;
    return true;
}

/* The message has not left after all. */
static void net_p2p_credit_unuse(struct p2p_peer *peer, size_t len)
{
    peer->used_messages--;
    peer->used_bytes -= (uint32_t)len;
}

/* What a packet of the peer tells. */
static void net_p2p_credit_arrived(struct p2p_peer *peer, const struct packet_message *packet)
{
    if (packet->alignment)
        peer->alignment_there = packet->alignment;
    if (packet->credit_messages > peer->used_messages || packet->credit_bytes > peer->used_bytes)
        return;
    peer->used_messages -= packet->credit_messages;
    peer->used_bytes -= packet->credit_bytes;
}

/* A message of the peer has been matched with a receive into this memory. `used`: it has used
 * credit. True: now a packet that has nothing else is due. */
static bool net_p2p_credit_matched(struct p2p_peer *peer, const void *data, size_t len, bool used)
{
    if (len > 0)
        peer->alignment_here = (uint16_t)((uintptr_t)data % LINK_MEMORY_ALIGN + 1);
    if (!used)
        return false;
    peer->matched_messages++;
    peer->matched_bytes += (uint32_t)len;
    return peer->matched_messages >= P2P_CREDIT_MESSAGES / 2 ||
           peer->matched_bytes > P2P_CREDIT_BYTES / 2;
}

/* Completes a packet to the peer. */
static void net_p2p_credit_return(struct p2p_peer *peer, struct packet_message *packet)
{
    packet->credit_messages = (uint16_t)peer->matched_messages;
    packet->credit_bytes = peer->matched_bytes;
    packet->alignment = peer->alignment_here;
    peer->matched_messages = 0;
    peer->matched_bytes = 0;
}

/* ---- what waits: messages that the link uses, those that are done, packets that have arrived ----
 */

/* The link uses the message's memory from now on, or not any more. */
static void net_p2p_activate(struct net_message *m, enum p2p_state state)
{
    struct net_p2p *p = &m->group->p2p;
    m->state = state;
    m->previous = NULL;
    m->next = p->active;
    if (p->active)
        p->active->previous = m;
    p->active = m;
}

static void net_p2p_deactivate(struct net_message *m)
{
    struct net_p2p *p = &m->group->p2p;
    if (m->next)
        m->next->previous = m->previous;
    if (m->previous)
        m->previous->next = m->next;
    else
        p->active = m->next;
    m->state = P2P_IDLE;
}

/* Its data has moved; the engine learns it in progress. */
static void net_p2p_complete(struct net_message *m)
{
    struct net_p2p *p = &m->group->p2p;
    net_p2p_deactivate(m);
    m->next_done = NULL;
    *p->done_end = m;
    p->done_end = &m->next_done;
    endpoint_notify(&m->group->context);
}

static void net_p2p_landed(struct link_landing *landing)
{
    struct net_message *m =
        (struct net_message *)(void *)((char *)landing - offsetof(struct net_message, landing));
    if (landing->token) /* else it was that of a long packet */
        net_group_put_landed(m->group, m->head.peer);
    net_p2p_complete(m);
}

/* Its memory is to become a landing, which the link gets from the caller. */
static struct link_landing *net_p2p_receive(struct net_message *m)
{
    m->landing = (struct link_landing){.peer = m->group->peers[m->head.peer]->link,
                                       .data = m->head.data,
                                       .len = m->head.len,
                                       .landed = net_p2p_landed};
    net_p2p_activate(m, P2P_RECEIVES);
    return &m->landing;
}

static bool net_p2p_arrivals_room(struct p2p_arrivals *arrivals, size_t len)
{
    if (arrivals->room - arrivals->len >= len)
        return true;
    const size_t room = 2 * (arrivals->len + len);
    char *bytes = realloc(arrivals->bytes, room);
    if (!bytes)
        return false;
    arrivals->bytes = bytes;
    arrivals->room = room;
    return true;
}

/* False: out of memory. */
static bool net_p2p_add_arrival(struct net_group *g, const struct packet *packet,
                                struct p2p_long *long_data, const void *data, size_t len)
{
    struct p2p_arrivals *arrivals = &g->p2p.arrivals;
    const struct packet_message *m = &packet->message;
    const struct p2p_first first = {.type = packet->type, .id = m->id, .long_data = long_data};
    const struct p2p_arrival head = {
        .source = packet->source,
        .len = (uint32_t)(sizeof first + len),
        .envelope = {.count = m->count, .tag = m->tag, .dtype = m->dtype}};
    const size_t total = (sizeof head + sizeof first + len + 7) & ~(size_t)7;
    if (!net_p2p_arrivals_room(arrivals, total))
        return false;
    char *at = arrivals->bytes + arrivals->len;
    memcpy(at, &head, sizeof head);
    memcpy(at + sizeof head, &first, sizeof first);
    if (len)
        memcpy(at + sizeof head + sizeof first, data, len);
    arrivals->len += total;
    endpoint_notify(&g->context);
    return true;
}

/* ---- long packets: their data, at the receiver ----
 *
 * Nothing more is read of the sender until the engine has been asked where it goes. If a receive
 * has been posted, the link reads straight into it. If not, or if the group's thread is elsewhere,
 * the data is kept in memory that is allocated for it, as much as credit allows. */

enum p2p_long_state {
    P2P_LONG_WAITS,   /* in the link */
    P2P_LONG_ARRIVES, /* in its own memory */
    P2P_LONG_HERE
};

struct p2p_long {
    struct net_group *group;
    struct p2p_long *next, *previous; /* of the group */
    uint32_t source;
    enum p2p_long_state state;
    size_t len;
    char *memory; /* its own; NULL while it waits */
    struct link_landing landing;
    struct net_message *message; /* that has been matched with it before it was here; or NULL */
};

static struct link_peer *long_peer(const struct p2p_long *l)
{
    return l->group->peers[l->source]->link;
}

static struct p2p_long *long_new(struct net_group *g, uint32_t source, size_t len)
{
    struct p2p_long *l = malloc(sizeof *l);
    if (!l)
        return NULL;
    *l = (struct p2p_long){.group = g, .source = source, .len = len, .next = g->p2p.longs};
    if (l->next)
        l->next->previous = l;
    g->p2p.longs = l;
    return l;
}

static void long_free(struct p2p_long *l)
{
    if (l->next)
        l->next->previous = l->previous;
    if (l->previous)
        l->previous->next = l->next;
    else
        l->group->p2p.longs = l->next;
    free(l->memory);
    free(l);
}

static void long_finish(struct p2p_long *l, struct net_message *m)
{
    memcpy(m->head.data, l->memory, l->len);
    long_free(l);
}

static void long_landed(struct link_landing *landing)
{
    struct p2p_long *l =
        (struct p2p_long *)(void *)((char *)landing - offsetof(struct p2p_long, landing));
    struct net_message *m = l->message;
    l->state = P2P_LONG_HERE;
    if (!m)
        return;
    long_finish(l, m);
    net_p2p_complete(m);
}

/* Where it lands; NULL: no memory. */
static struct link_landing *long_keep(struct p2p_long *l)
{
    l->memory = malloc(l->len);
    if (!l->memory)
        return NULL;
    l->state = P2P_LONG_ARRIVES;
    l->landing = (struct link_landing){
        .peer = long_peer(l), .data = l->memory, .len = l->len, .landed = long_landed};
    return &l->landing;
}

/* ---- arriving ---- */

/* The group's thread is inside progress, and comes for what has arrived. */
static bool long_is_attended(const struct net_group *g)
{
    return g->p2p.attended && atomic_load(&g->context.sleep) == ENDPOINT_AWAKE;
}

/* False: out of memory. */
static bool long_arrive(struct net_group *g, const struct packet *packet, size_t len,
                        struct link_landing **landing)
{
    struct p2p_long *l = long_new(g, packet->source, len);
    if (!l || (!long_is_attended(g) && !(*landing = long_keep(l))))
        return false;
    return net_p2p_add_arrival(g, packet, l, NULL, 0);
}

bool net_p2p_handle_long_packet(struct net_group *g, const struct packet *packet, size_t len,
                                struct link_landing **landing)
{
    if (packet->type != PACKET_LONG) {
        net_group_set_failure(g, COLLRUN_ERR_BACKEND, "malformed packet from a member");
        return true;
    }
    net_p2p_credit_arrived(&g->p2p.peers[packet->source], &packet->message);
    if (long_arrive(g, packet, len, landing))
        return *landing != NULL;
    *landing = NULL;
    net_group_set_failure(g, COLLRUN_ERR_NO_MEMORY, "out of memory for messages");
    return true;
}

/* The engine has been asked about all that have arrived. */
static void net_p2p_long_keep(struct net_group *g)
{
    for (struct p2p_long *l = g->p2p.longs; l; l = l->next) {
        if (l->state != P2P_LONG_WAITS)
            continue;
        struct link_landing *landing = long_keep(l);
        if (!landing) {
            net_group_set_failure(g, COLLRUN_ERR_NO_MEMORY, "out of memory for messages");
            return;
        }
        link_take(long_peer(l), landing);
    }
}

/* A receive of its length is matched with it, which frees it. True: the data is there. */
static bool net_p2p_long_recv(struct p2p_long *l, struct net_message *m)
{
    const enum p2p_long_state state = l->state;
    if (l->len != m->head.len) {
        net_group_set_failure(l->group, COLLRUN_ERR_BACKEND, "malformed packet from a member");
        return false;
    }
    if (state == P2P_LONG_HERE) {
        long_finish(l, m);
        return true;
    }
    if (state == P2P_LONG_ARRIVES) {
        l->message = m;
        net_p2p_activate(m, P2P_AWAITS_COPY);
        return false;
    }
    long_free(l);
    link_take(m->group->peers[m->head.peer]->link, net_p2p_receive(m));
    return false;
}

/* Takes the memory back, and drops what comes. */
static void net_p2p_long_detach(struct net_group *g)
{
    struct link *link = endpoint_link(g->endpoint);
    for (struct p2p_long *l = g->p2p.longs, *next; l; l = next) {
        next = l->next;
        if (l->state == P2P_LONG_WAITS)
            link_take(long_peer(l), NULL);
        else if (l->state == P2P_LONG_ARRIVES)
            link_unland(link, &l->landing);
        free(l->memory);
        free(l);
    }
    g->p2p.longs = NULL;
}

/* ---- the messages that the link uses ---- */

static void net_p2p_sent(struct link_put *put)
{
    struct net_message *m =
        (struct net_message *)(void *)((char *)put - offsetof(struct net_message, put));
    if (put->token) /* else it was a long packet */
        net_group_put_sent(m->group, m->head.peer);
    net_p2p_complete(m);
}

static struct link *net_p2p_link(const struct net_group *g)
{
    return endpoint_link(g->endpoint);
}

void net_p2p_detach(struct net_group *g)
{
    struct net_p2p *p = &g->p2p;
    while (p->active) {
        struct net_message *m = p->active;
        if (m->state == P2P_PUTS)
            link_unput(net_p2p_link(g), &m->put);
        else if (m->state == P2P_RECEIVES)
            link_unland(net_p2p_link(g), &m->landing);
        net_p2p_deactivate(m);
    }
    net_p2p_long_detach(g);
    p->done = NULL;
    p->done_end = &p->done;
    p->arrivals.len = 0;
    if (p->nsends)
        memset(p->sends, 0, p->nsends * sizeof(void *));
}

/* ---- arriving; with the lock ---- */

static void net_p2p_handle_cts(struct net_group *g, const struct packet *packet)
{
    struct net_p2p *p = &g->p2p;
    const struct packet_message *cts = &packet->message;
    struct net_message *m = cts->id < p->nsends ? p->sends[cts->id] : NULL;
    if (!m || m->head.peer != packet->source)
        return;
    p->sends[cts->id] = NULL;
    if (m->head.len == 0) {
        net_p2p_complete(m);
        return;
    }
    m->state = P2P_PUTS;
    m->put = (struct link_put){.peer = g->peers[packet->source]->link,
                               .token = cts->token,
                               .data = m->head.data,
                               .len = m->head.len,
                               .sent = net_p2p_sent};
    link_put(net_p2p_link(g), &m->put);
}

void net_p2p_handle_packet(struct net_group *g, const struct packet *packet, const void *data,
                           size_t len)
{
    net_p2p_credit_arrived(&g->p2p.peers[packet->source], &packet->message);
    switch ((enum packet_type)packet->type) {
    case PACKET_EAGER:
    case PACKET_RTS:
        if (!net_p2p_add_arrival(g, packet, NULL, data, len))
            net_group_set_failure(g, COLLRUN_ERR_NO_MEMORY, "out of memory for messages");
        break;
    case PACKET_CTS:
        net_p2p_handle_cts(g, packet);
        break;
    case PACKET_CREDIT:
        break;
    default:
        net_group_set_failure(g, COLLRUN_ERR_BACKEND, "malformed packet from a member");
    }
}

/* ---- sending ---- */

static struct packet net_p2p_packet(enum packet_type type, const struct collrun_message *m)
{
    return (struct packet){.type = type,
                           .message = {.count = m->envelope.count,
                                       .tag = m->envelope.tag,
                                       .dtype = m->envelope.dtype,
                                       .id = m->id}};
}

static bool net_p2p_sends_room(struct net_p2p *p, uint32_t id)
{
    if (id < p->nsends)
        return true;
    const uint32_t n = 2 * (id + 1);
    struct net_message **sends = realloc(p->sends, n * sizeof(void *));
    if (!sends)
        return false;
    memset(sends + p->nsends, 0, (n - p->nsends) * sizeof(void *));
    p->sends = sends;
    p->nsends = n;
    return true;
}

/* With its data, if that can leave at once. The packet's type and what is to follow are set. */
static enum link_sending net_p2p_send_long(struct net_group *g, struct net_message *m,
                                           struct packet *packet)
{
    const struct p2p_peer *peer = &g->p2p.peers[m->head.peer];
    if (m->head.len < P2P_LONG_MIN || m->head.len > LINK_LONG_MAX || !peer->alignment_there)
        return LINK_BUSY;
    packet->type = PACKET_LONG;
    m->put = (struct link_put){.peer = g->peers[m->head.peer]->link,
                               .alignment = peer->alignment_there - 1u,
                               .data = m->head.data,
                               .len = m->head.len,
                               .sent = net_p2p_sent};
    return net_group_send_long(g, m->head.peer, packet, &m->put);
}

/* True: the message is done. */
static bool net_p2p_send_announced(struct net_group *g, struct net_message *m,
                                   struct packet *packet)
{
    struct net_p2p *p = &g->p2p;
    if (!net_p2p_sends_room(p, m->head.id)) {
        net_group_set_failure(g, COLLRUN_ERR_NO_MEMORY, "out of memory for messages");
        return false;
    }
    packet->type = PACKET_RTS;
    net_group_send(g, m->head.peer, packet, NULL, 0);
    p->peers[m->head.peer].needed++;
    p->sends[m->head.id] = m;
    net_p2p_activate(m, P2P_AWAITS_CTS);
    p->engine->announced(p->engine->ctx, &m->head);
    return false;
}

/* True: the message is done. */
static bool net_p2p_send_locked(struct net_group *g, struct net_message *m)
{
    struct p2p_peer *peer = &g->p2p.peers[m->head.peer];
    struct packet packet = net_p2p_packet(PACKET_EAGER, &m->head);
    net_p2p_credit_return(peer, &packet.message);
    if (m->head.len > LINK_LONG_MAX || !net_p2p_credit_use(peer, m->head.len))
        return net_p2p_send_announced(g, m, &packet);
    const enum link_sending sending = net_p2p_send_long(g, m, &packet);
    if (sending == LINK_BEGUN) {
        peer->needed++;
        net_p2p_activate(m, P2P_PUTS);
    }
    if (sending != LINK_BUSY)
        return sending == LINK_SENT;
    if (m->head.len > P2P_EAGER_LIMIT) {
        net_p2p_credit_unuse(peer, m->head.len);
        return net_p2p_send_announced(g, m, &packet);
    }
    packet.type = PACKET_EAGER;
    net_group_send(g, m->head.peer, &packet, m->head.data, m->head.len);
    return true;
}

static int net_p2p_send(void *group, struct collrun_message *message)
{
    struct net_group *g = group;
    struct net_message *m = net_p2p_of(message);
    m->group = g;
    m->state = P2P_IDLE;
    m->from_any = m->is_local = false;
    if (net_p2p_is_local(g, message->peer))
        return net_p2p_local_send(g, m);
    endpoint_lock(g->endpoint);
    const bool failed = net_group_has_failed(g);
    const bool done = !failed && net_p2p_send_locked(g, m);
    const bool ok = !net_group_has_failed(g);
    net_p2p_unlock(g);
    if (!ok)
        return net_group_failure(g);
    if (done)
        g->p2p.engine->done(g->p2p.engine->ctx, message);
    return COLLRUN_OK;
}

/* ---- receiving ---- */

static void net_p2p_count_posted(struct net_group *g, const struct net_message *m, uint32_t by)
{
    if (m->from_any)
        g->p2p.nany += by;
    else
        g->p2p.peers[m->head.peer].needed += by;
}

static int net_p2p_post(void *group, struct collrun_message *message)
{
    struct net_group *g = group;
    struct net_message *m = net_p2p_of(message);
    m->group = g;
    m->state = P2P_IDLE;
    m->from_any = message->peer == COLLRUN_ANY_SOURCE;
    m->is_local = false;
    net_p2p_count_posted(g, m, 1);
    const bool local =
        m->from_any ? g->p2p.local.group != NULL : net_p2p_is_local(g, message->peer);
    return local ? net_p2p_local_post(g, m) : COLLRUN_OK;
}

static void net_p2p_unpost(void *group, struct collrun_message *message)
{
    struct net_message *m = net_p2p_of(message);
    net_p2p_count_posted(group, m, UINT32_MAX);
    if (m->is_local)
        net_p2p_local_unpost(group, m);
}

/* It has used credit. */
static void net_p2p_return_credit(struct net_group *g, const struct net_message *m)
{
    struct p2p_peer *peer = &g->p2p.peers[m->head.peer];
    struct packet packet = {.type = PACKET_CREDIT};
    if (!net_p2p_credit_matched(peer, m->head.data, m->head.len, true))
        return;
    net_p2p_credit_return(peer, &packet.message);
    endpoint_lock(g->endpoint);
    if (!net_group_has_failed(g))
        net_group_send(g, m->head.peer, &packet, NULL, 0);
    net_p2p_unlock(g);
}

static void net_p2p_done(struct net_group *g, struct net_message *m)
{
    if (m->head.peer != COLLRUN_ANY_SOURCE)
        g->p2p.peers[m->head.peer].needed--;
    g->p2p.engine->done(g->p2p.engine->ctx, &m->head);
}

/* CTS. True: the message is done. */
static bool net_p2p_land(struct net_group *g, struct net_message *m, uint32_t id)
{
    struct p2p_peer *peer = &g->p2p.peers[m->head.peer];
    struct packet packet = {.type = PACKET_CTS, .message = {.id = id}};
    if (m->head.len && link_land(net_p2p_link(g), net_p2p_receive(m)) != COLLRUN_OK) {
        net_p2p_deactivate(m);
        net_group_set_failure(g, COLLRUN_ERR_NO_MEMORY, "out of memory for messages");
        return false;
    }
    net_p2p_credit_matched(peer, m->head.data, m->head.len, false);
    net_p2p_credit_return(peer, &packet.message);
    packet.message.token = m->head.len ? m->landing.token : 0;
    net_group_send(g, m->head.peer, &packet, NULL, 0);
    return m->head.len == 0;
}

static int net_p2p_recv_eager(struct net_group *g, struct net_message *m, const char *data,
                              size_t len)
{
    const struct collrun_services *s = g->services;
    if (len != m->head.len)
        return s->fail(s->ctx, COLLRUN_ERR_BACKEND, "malformed packet: %zu bytes instead of %zu",
                       len, m->head.len);
    if (len)
        memcpy(m->head.data, data, len);
    net_p2p_return_credit(g, m);
    net_p2p_done(g, m);
    return COLLRUN_OK;
}

static int net_p2p_recv(void *group, struct collrun_message *message, const void *packet,
                        size_t len)
{
    struct net_group *g = group;
    struct net_message *m = net_p2p_of(message);
    struct p2p_first first;
    memcpy(&first, packet, sizeof first);
    if (m->from_any) { /* from now on the message needs its sender */
        net_p2p_count_posted(g, m, UINT32_MAX);
        m->from_any = false;
        net_p2p_count_posted(g, m, 1);
        if (m->is_local && !net_p2p_is_local(g, message->peer))
            net_p2p_local_unpost(g, m);
    }
    if (m->is_local)
        return net_p2p_local_recv(g, m, packet, len);
    if (first.type == PACKET_EAGER)
        return net_p2p_recv_eager(g, m, (const char *)packet + sizeof first, len - sizeof first);
    endpoint_lock(g->endpoint);
    const bool failed = net_group_has_failed(g);
    bool done = false;
    if (!failed && first.type == PACKET_RTS)
        done = net_p2p_land(g, m, first.id);
    else if (!failed)
        done = net_p2p_long_recv(first.long_data, m);
    net_p2p_unlock(g);
    if (!failed && first.type == PACKET_LONG)
        net_p2p_return_credit(g, m);
    if (done)
        net_p2p_done(g, m);
    return COLLRUN_OK; /* progress reports a failure */
}

/* ---- progress ---- */

static bool net_p2p_has_news(const struct endpoint_context *context)
{
    const struct net_group *g = (const struct net_group *)context;
    return g->p2p.arrivals.len || g->p2p.done || g->peer_has_left || net_group_has_failed(g);
}

/* A peer that a message needs, and that has left, is a failure. For receives from any source, all
 * must have left. */
static void net_p2p_check_left(struct net_group *g)
{
    const bool any = g->p2p.nany && g->nleft == g->nranks - 1;
    g->peer_has_left = false;
    for (uint32_t r = 0; r < g->nranks && g->nleft && g->status == COLLRUN_OK; r++) {
        if (g->has_left[r] && (any || g->p2p.peers[r].needed))
            net_group_fail_left(g, r);
    }
}

static int net_p2p_hand_over(struct net_group *g)
{
    const struct collrun_p2p *engine = g->p2p.engine;
    struct p2p_arrivals *reading = &g->p2p.reading;
    int status = COLLRUN_OK;
    bool has_long = false;
    for (size_t at = 0; at < reading->len;) {
        struct p2p_arrival head;
        struct p2p_first first;
        const char *packet = reading->bytes + at + sizeof head;
        memcpy(&head, reading->bytes + at, sizeof head);
        memcpy(&first, packet, sizeof first);
        at += (sizeof head + head.len + 7) & ~(size_t)7;
        has_long |= first.type == PACKET_LONG;
        if (status == COLLRUN_OK)
            status = engine->arrived(engine->ctx, head.source, &head.envelope, packet, head.len);
    }
    reading->len = 0;
    if (has_long) {
        endpoint_lock(g->endpoint);
        net_p2p_long_keep(g);
        net_p2p_unlock(g);
    }
    return status;
}

/* Takes what there is. False: nothing. */
static bool net_p2p_take_news(struct net_p2p *p, struct net_message **done)
{
    const struct p2p_arrivals empty = p->reading;
    const bool any = p->arrivals.len || p->done;
    p->reading = p->arrivals;
    p->arrivals = empty;
    *done = p->done;
    p->done = NULL;
    p->done_end = &p->done;
    return any;
}

/* Waits, in a group on several hosts, for messages of both kinds. */
static void net_p2p_wait(struct net_group *g, uint64_t wait_ns)
{
    struct p2p_local *l = &g->p2p.local;
    if (l->group && wait_ns > P2P_LOOK_NS)
        wait_ns = P2P_LOOK_NS;
    g->context.source = l->group ? &net_p2p_local_source : NULL;
    endpoint_wait(&g->context, net_p2p_has_news, endpoint_now_ns(g->endpoint) + wait_ns);
    g->context.source = NULL;
}

/* `moved`: of messages of this host, something has. */
static int net_p2p_progress_network(struct net_group *g, uint64_t wait_ns, bool moved)
{
    struct net_message *done, *next;
    endpoint_lock(g->endpoint);
    g->p2p.local.status = COLLRUN_OK;
    g->p2p.attended = true;
    if (wait_ns && !moved && !net_p2p_has_news(&g->context) && !g->nleft)
        net_p2p_wait(g, wait_ns);
    else
        endpoint_progress(g->endpoint);
    moved |= net_p2p_take_news(&g->p2p, &done) || g->p2p.local.status != COLLRUN_OK;
    if (!moved)
        net_p2p_check_left(g);
    if (!moved && wait_ns && g->nleft && !net_group_has_failed(g)) {
        net_p2p_wait(g, wait_ns);
        moved = net_p2p_take_news(&g->p2p, &done) || g->p2p.local.status != COLLRUN_OK;
    }
    g->p2p.attended = false;
    const bool failed = net_group_has_failed(g);
    net_p2p_unlock(g);
    if (failed)
        return net_group_failure(g);
    if (!moved)
        return COLLRUN_OK;
    for (; done; done = next) {
        next = done->next_done;
        net_p2p_done(g, done);
    }
    const int status = net_p2p_hand_over(g);
    return status == COLLRUN_OK ? COLLRUN_AGAIN : status;
}

/* Makes progress in a group on one host. */
static int net_p2p_progress_local(struct net_group *g, uint64_t wait_ns)
{
    int status = net_p2p_local_progress(g, wait_ns < P2P_LOOK_NS ? wait_ns : P2P_LOOK_NS);
    if (status != COLLRUN_OK || net_local_nleft(g->p2p.local.group) == 0)
        return status;
    net_p2p_local_note_left(g);
    status = net_p2p_local_progress(g, 0);
    if (status != COLLRUN_OK)
        return status;
    endpoint_lock(g->endpoint);
    net_p2p_check_left(g);
    const bool failed = net_group_has_failed(g);
    endpoint_unlock(g->endpoint);
    return failed ? net_group_failure(g) : COLLRUN_OK;
}

static int net_p2p_progress(void *group, uint64_t wait_ns)
{
    struct net_group *g = group;
    if (!g->p2p.local.group)
        return net_p2p_progress_network(g, wait_ns, false);
    if (g->p2p.local.is_all)
        return net_p2p_progress_local(g, wait_ns);
    net_p2p_local_note_left(g);
    const int status = net_p2p_local_progress(g, 0);
    return status < 0 ? status : net_p2p_progress_network(g, wait_ns, status == COLLRUN_AGAIN);
}

static void net_p2p_fail(void *group, uint32_t peer, int status, const char *text)
{
    struct net_group *g = group;
    endpoint_lock(g->endpoint);
    if (!net_group_has_failed(g))
        net_group_send_failure(g, peer, status, text);
    net_group_set_failure(g, status, text);
    endpoint_unlock(g->endpoint);
}

static void net_p2p_wake(void *group)
{
    struct net_group *g = group;
    if (g->p2p.local.is_all && g->p2p.local.group)
        net_p2p_local_wake(g);
    else
        endpoint_wake(&g->context);
}

/* ---- life ---- */

bool net_p2p_init(struct net_p2p *p, const struct collrun_p2p *engine, uint32_t nranks)
{
    *p = (struct net_p2p){.engine = engine, .peers = calloc(nranks, sizeof *p->peers)};
    p->done_end = &p->done;
    return p->peers != NULL;
}

void net_p2p_fini(struct net_p2p *p)
{
    free(p->peers);
    free(p->arrivals.bytes);
    free(p->reading.bytes);
    free(p->sends);
}

const struct collrun_transport net_transport = {
    .size = sizeof(struct collrun_transport),
    .message_size = sizeof(struct net_message),
    .send = net_p2p_send,
    .post = net_p2p_post,
    .recv = net_p2p_recv,
    .flush = net_p2p_flush,
    .progress = net_p2p_progress,
    .fail = net_p2p_fail,
    .unpost = net_p2p_unpost,
    .wake = net_p2p_wake,
    .send_short = net_p2p_send_short,
    .recv_short = net_p2p_recv_short,
};
