/* SPDX-License-Identifier: Apache-2.0
 *
 * See p2p_queue.h.
 */
#include "p2p_queue.h"

#include <stdlib.h>
#include <string.h>

void net_p2p_activate(struct net_message *m, enum p2p_state state)
{
    struct net_p2p *p = &m->group->p2p;
    m->state = state;
    m->previous = NULL;
    m->next = p->active;
    if (p->active)
        p->active->previous = m;
    p->active = m;
}

void net_p2p_deactivate(struct net_message *m)
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

void net_p2p_complete(struct net_message *m)
{
    struct net_p2p *p = &m->group->p2p;
    net_p2p_deactivate(m);
    m->next_done = NULL;
    *p->done_end = m;
    p->done_end = &m->next_done;
    endpoint_notify(&m->group->context);
}

static void p2p_landed(struct link_landing *landing)
{
    struct net_message *m =
        (struct net_message *)(void *)((char *)landing - offsetof(struct net_message, landing));
    if (landing->token) /* else it was that of a long packet */
        net_group_put_landed(m->group, m->head.peer);
    net_p2p_complete(m);
}

struct link_landing *net_p2p_receive(struct net_message *m)
{
    m->landing = (struct link_landing){.peer = m->group->peers[m->head.peer]->link,
                                       .data = m->head.data,
                                       .len = m->head.len,
                                       .landed = p2p_landed};
    net_p2p_activate(m, P2P_RECEIVES);
    return &m->landing;
}

static bool p2p_arrivals_room(struct p2p_arrivals *arrivals, size_t len)
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

bool net_p2p_add_arrival(struct net_group *g, const struct packet *packet,
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
    if (!p2p_arrivals_room(arrivals, total))
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
