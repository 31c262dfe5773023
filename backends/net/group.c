/* SPDX-License-Identifier: Apache-2.0
 *
 * The failure of a group, and its packets; see group.h.
 */
#include "group.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- failure ---- */

void net_group_set_failure(struct net_group *g, int status, const char *text)
{
    assert(endpoint_is_locked(g->endpoint));
    if (g->status == COLLRUN_OK) {
        g->status = status;
        snprintf(g->text, sizeof g->text, "%s", text);
    }
    g->on_failure(g);
    endpoint_notify(&g->context);
}

int net_group_failure(struct net_group *g)
{
    const struct collrun_services *s = g->services;
    char text[NET_FAILURE_TEXT];
    endpoint_lock(g->endpoint);
    if (g->status == COLLRUN_OK && atomic_load(&g->aborted))
        net_group_set_failure(g, COLLRUN_ERR_ABORTED, "the group was aborted");
    const int status = g->status;
    memcpy(text, g->text, sizeof text);
    endpoint_unlock(g->endpoint);
    return status == COLLRUN_OK ? status : s->fail(s->ctx, status, "%s", text);
}

static bool net_group_reaches(const struct net_group *g, uint32_t peer)
{
    return g->nranks <= NET_FAILURE_DIALS || link_is_connected(g->peers[peer]->link);
}

void net_group_send_failure(struct net_group *g, uint32_t peer, int status, const char *text)
{
    for (uint32_t r = 0; r < g->nranks; r++) {
        struct packet packet = {.type = PACKET_FAIL, .message = {.status = status}};
        const bool is_wanted =
            r == peer || (peer == COLLRUN_ANY_SOURCE && g->peers[r] && net_group_reaches(g, r));
        if (g->peers[r] && is_wanted)
            net_group_send(g, r, &packet, text, strlen(text));
    }
}

void net_group_share_failure(struct net_group *g, int status, const char *text)
{
    if (net_group_has_failed(g) || status == COLLRUN_ERR_ABORTED ||
        status == COLLRUN_ERR_UNSUPPORTED)
        return;
    net_group_send_failure(g, COLLRUN_ANY_SOURCE, status, text);
    net_group_set_failure(g, status, text);
}

void net_group_set_left(struct net_group *g, uint32_t peer)
{
    g->nleft += !g->has_left[peer];
    g->has_left[peer] = true;
    g->peer_has_left = true;
}

static void net_group_check_leaves(struct net_group *g, uint32_t peer)
{
    const struct net_group_puts *puts = &g->puts[peer];
    if (!puts->leaves || puts->landed < puts->last)
        return;
    net_group_set_left(g, peer);
    endpoint_notify(&g->context);
}

void net_group_set_leaves(struct net_group *g, uint32_t peer, uint64_t nputs)
{
    if (g->puts[peer].leaves)
        return;
    g->puts[peer].leaves = true;
    g->puts[peer].last = nputs;
    net_group_check_leaves(g, peer);
}

void net_group_put_sent(struct net_group *g, uint32_t peer)
{
    g->puts[peer].sent++;
}

void net_group_put_landed(struct net_group *g, uint32_t peer)
{
    g->puts[peer].landed++;
    net_group_check_leaves(g, peer);
}

void net_group_fail_left(struct net_group *g, uint32_t peer)
{
    char text[NET_FAILURE_TEXT];
    const struct endpoint_peer *p = g->peers[peer];
    if (p->lost && p->reason == LINK_LOSS_GONE)
        snprintf(text, sizeof text, "connection to %s: %s", p->name, p->text);
    else
        snprintf(text, sizeof text, "%s has left the group", p->name);
    net_group_set_failure(g, COLLRUN_ERR_PEER_FAILED, text);
}

/* ---- packets ---- */

void net_group_send(struct net_group *g, uint32_t peer, struct packet *packet, const void *data,
                    size_t len)
{
    assert(endpoint_is_locked(g->endpoint));
    packet->context = g->context.id;
    packet->source = g->rank;
    link_send(g->peers[peer]->link, packet, data, len);
}

enum link_sending net_group_send_long(struct net_group *g, uint32_t peer, struct packet *packet,
                                      struct link_put *put)
{
    assert(endpoint_is_locked(g->endpoint));
    packet->context = g->context.id;
    packet->source = g->rank;
    return link_send_long(g->peers[peer]->link, packet, put);
}
