/* SPDX-License-Identifier: Apache-2.0
 *
 * See p2p_long.h.
 */
#include "p2p_long.h"

#include "p2p_credit.h"
#include "p2p_queue.h"

#include <stdlib.h>
#include <string.h>

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

/* ---- the list ---- */

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

/* ---- its own memory ---- */

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

void net_p2p_long_keep(struct net_group *g)
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

bool net_p2p_long_recv(struct p2p_long *l, struct net_message *m)
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

void net_p2p_long_detach(struct net_group *g)
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
