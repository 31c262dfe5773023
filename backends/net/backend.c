/* SPDX-License-Identifier: Apache-2.0
 *
 * What the engine calls, but for messages: the life of the backend and of its groups; and what
 * arrives for a group. See backend.h.
 */
#include "backend.h"

#include "coll/net_coll.h"
#include "group.h"
#include "p2p_local.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The backend in one process: an endpoint for each address that groups use, of which there is
 * nearly always one. */
struct backend {
    const struct collrun_services *services;
    pthread_mutex_t lock;
    struct backend_endpoint {
        struct endpoint *endpoint;
        struct backend_endpoint *next;
    } * endpoints;
};

/* What a member publishes for the others. */
struct backend_card {
    uint64_t context; /* of the first member */
    char address[LINK_ADDRESS_MAX];
};

/* ---- what arrives ---- */

/* The memory of messages and requests is the caller's again. */
static void backend_detach(struct net_group *g)
{
    net_p2p_detach(g);
    net_ops_fail(g);
}

static void backend_handle_own_failure(struct net_group *g)
{
    backend_detach(g);
    if (g->coll)
        net_coll_fail(g->coll, g->status, g->text);
    net_p2p_local_fail(g, g->status, g->text);
}

/* From a peer that cannot know better: its group has failed. */
static void backend_handle_failure(struct net_group *g, const struct packet *packet,
                                   const char *data, size_t len)
{
    char text[NET_FAILURE_TEXT];
    snprintf(text, sizeof text, "%.*s", (int)(len < sizeof text ? len : sizeof text - 1), data);
    if (packet->message.status < 0)
        net_group_set_failure(g, packet->message.status, text);
}

/* A rank of this host does not send it: its last messages are in shared memory, where
 * net_p2p_local_note_left sees that it has left. */
static void backend_handle_leave(struct net_group *g, uint32_t rank)
{
    if (net_p2p_is_local(g, rank))
        return;
    net_group_set_left(g, rank);
    endpoint_notify(&g->context);
}

/* The sender must be the member that it names: no rank fails the group, leaves it or sends data in
 * the name of another. */
static bool backend_is_from(const struct net_group *g, const struct endpoint_peer *peer,
                            const struct packet *packet)
{
    return packet->source < g->nranks && packet->source != g->rank &&
           g->peers[packet->source] == peer && g->status == COLLRUN_OK;
}

static void backend_handle_packet(struct endpoint_context *context,
                                  const struct endpoint_peer *peer, const struct packet *packet,
                                  const void *data, size_t len)
{
    struct net_group *g = (struct net_group *)context;
    const uint32_t from = packet->source;
    if (!backend_is_from(g, peer, packet))
        return;
    switch ((enum packet_type)packet->type) {
    case PACKET_FAIL:
        backend_handle_failure(g, packet, data, len);
        break;
    case PACKET_LEAVE:
        if (!net_p2p_is_local(g, from))
            net_group_set_leaves(g, from, packet->message.count);
        break;
    case PACKET_WAKE:
        endpoint_notify(&g->context);
        break;
    case PACKET_ASK: /* this rank has not left */
        break;
    case PACKET_OP:
    case PACKET_GRANT:
        net_ops_handle_packet(g, packet, data, len);
        break;
    default:
        net_p2p_handle_packet(g, packet, data, len);
    }
}

static bool backend_handle_long_packet(struct endpoint_context *context,
                                       const struct endpoint_peer *peer,
                                       const struct packet *packet, size_t len,
                                       struct link_landing **landing)
{
    struct net_group *g = (struct net_group *)context;
    return !backend_is_from(g, peer, packet) || net_p2p_handle_long_packet(g, packet, len, landing);
}

static void backend_handle_lost(struct endpoint_context *context, const struct endpoint_peer *peer)
{
    struct net_group *g = (struct net_group *)context;
    char text[NET_FAILURE_TEXT];
    uint32_t r = 0;
    while (r < g->nranks && g->peers[r] != peer)
        r++;
    if (r == g->nranks)
        return;
    backend_handle_leave(g, r);
    if (peer->reason == LINK_LOSS_LEFT || peer->reason == LINK_LOSS_GONE)
        return;
    snprintf(text, sizeof text, "connection to %s: %s", peer->name, peer->text);
    net_group_set_failure(
        g, peer->reason == LINK_LOSS_LOCAL ? COLLRUN_ERR_BACKEND : COLLRUN_ERR_PEER_FAILED, text);
}

void net_group_abort(void *group)
{
    struct net_group *g = group;
    atomic_store(&g->aborted, true);
    endpoint_wake(&g->context);
    endpoint_lock(g->endpoint);
    net_group_set_failure(g, COLLRUN_ERR_ABORTED, "the group was aborted");
    endpoint_unlock(g->endpoint);
}

/* A member that closed the group while there was no connection has not sent LEAVE. */
static void backend_ask(struct net_group *g, uint32_t rank)
{
    struct packet packet = {.type = PACKET_ASK, .message = {.tag = rank}};
    if (g->puts[rank].asked || net_p2p_is_local(g, rank))
        return;
    g->puts[rank].asked = true;
    net_group_send(g, rank, &packet, NULL, 0);
}

static void backend_connect(struct endpoint_context *context)
{
    struct net_group *g = (struct net_group *)context;
    for (uint32_t r = 0; r < g->nranks; r++) {
        if (!g->peers[r] || !(g->p2p.peers[r].needed || net_ops_wait_for(g, r)))
            continue;
        link_connect(g->peers[r]->link);
        backend_ask(g, r);
    }
}

/* ---- opening ---- */

static int backend_endpoint_get(struct backend *b, const struct collrun_group_desc *desc,
                                struct endpoint **out)
{
    const struct link_config config = {.options = desc->services,
                                       .world_rank = desc->world_rank[desc->rank],
                                       .address = desc->address,
                                       .first_port = (uint16_t)desc->first_port,
                                       .last_port = (uint16_t)desc->last_port,
                                       .interface = desc->interface};
    const struct collrun_services *s = b->services;
    struct backend_endpoint *entry;
    int status = COLLRUN_OK;
    pthread_mutex_lock(&b->lock);
    for (entry = b->endpoints; entry; entry = entry->next) {
        if (endpoint_has_address(entry->endpoint, desc->address))
            break;
    }
    if (!entry) {
        entry = calloc(1, sizeof *entry);
        status = entry ? endpoint_open(s, &config, &entry->endpoint)
                       : s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
        if (status == COLLRUN_OK) {
            entry->next = b->endpoints;
            b->endpoints = entry;
        } else {
            free(entry);
        }
    }
    if (status == COLLRUN_OK)
        *out = entry->endpoint;
    pthread_mutex_unlock(&b->lock);
    return status;
}

static void backend_group_free(struct net_group *g)
{
    net_p2p_local_close(g);
    net_coll_close(g->coll);
    net_p2p_fini(&g->p2p);
    net_ops_fini(&g->ops);
    free(g->peers);
    free(g->has_left);
    free(g->puts);
    free(g);
}

static struct net_group *backend_group_new(const struct collrun_group_desc *desc,
                                           struct endpoint *endpoint)
{
    struct net_group *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->endpoint = endpoint;
    g->services = desc->services;
    g->rank = desc->rank;
    g->nranks = desc->nranks;
    g->context.oversubscribed = desc->ncpus > 0 && desc->nlocal > desc->ncpus;
    g->context.packet = backend_handle_packet;
    g->context.long_packet = backend_handle_long_packet;
    g->context.lost = backend_handle_lost;
    g->context.connect = backend_connect;
    g->on_failure = backend_handle_own_failure;
    g->peers = calloc(desc->nranks, sizeof(void *));
    g->has_left = calloc(desc->nranks, sizeof *g->has_left);
    g->puts = calloc(desc->nranks, sizeof *g->puts);
    net_ops_init(&g->ops);
    if (net_p2p_init(&g->p2p, desc->p2p, desc->nranks) && g->peers && g->has_left && g->puts)
        return g;
    backend_group_free(g);
    return NULL;
}

static int backend_meet_member(struct net_group *g, const struct collrun_group_desc *desc,
                               uint32_t rank)
{
    const struct collrun_rendezvous *r = desc->rendezvous;
    struct backend_card card;
    char key[32];
    size_t len = 0;
    snprintf(key, sizeof key, "net/%u", rank);
    int status = r->get(r->ctx, key, &card, sizeof card, &len);
    if (status != COLLRUN_OK)
        return status;
    if (rank == 0)
        g->context.id = card.context;
    if (rank == g->rank)
        return COLLRUN_OK;
    endpoint_lock(g->endpoint);
    COLLRUN_DEBUG(desc->services, GROUP,
                  "context %llu: member %u is rank %u, with a card of %zu "
                  "bytes",
                  (unsigned long long)g->context.id, rank, desc->world_rank[rank], len);
    status = endpoint_peer_get(g->endpoint, desc->world_rank[rank], card.address,
                               len - offsetof(struct backend_card, address), &g->peers[rank]);
    endpoint_unlock(g->endpoint);
    return status;
}

/* All members publish their addresses, and wait for those of the others. */
static int backend_meet(struct net_group *g, const struct collrun_group_desc *desc)
{
    const struct collrun_rendezvous *r = desc->rendezvous;
    struct backend_card card = {0};
    char key[32];
    snprintf(key, sizeof key, "net/%u", g->rank);
    endpoint_lock(g->endpoint);
    card.context = endpoint_new_id(g->endpoint);
    endpoint_unlock(g->endpoint);
    g->context.id = card.context;
    if (g->nranks == 1)
        return COLLRUN_OK;
    const size_t len =
        offsetof(struct backend_card, address) + endpoint_address(g->endpoint, card.address);
    int status = r->share(r->ctx, key, &card, len);
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->nranks; i++)
        status = backend_meet_member(g, desc, i);
    return status;
}

/* Collectives, of the first handle, and messages of this host. */
static int backend_open_local(struct net_group *g, const struct collrun_group_desc *desc)
{
    const struct net_group *first = desc->collectives_handle;
    struct collrun_group_desc local = *desc;
    net_p2p_local_init(g, &local);
    const int status = first ? COLLRUN_OK : net_coll_open(&local, &g->coll);
    return status == COLLRUN_OK ? net_p2p_local_open(g, &local, first ? first->coll : g->coll)
                                : status;
}

static int backend_join(struct net_group *g, const struct collrun_group_desc *desc)
{
    const struct net_group *first = desc->collectives_handle;
    int status = COLLRUN_OK;
    endpoint_lock(g->endpoint);
    endpoint_opening_begin(g->endpoint);
    link_add_group(endpoint_link(g->endpoint), desc->services);
    endpoint_unlock(g->endpoint);
    if (first) {
        g->context.id = first->context.id + 1;
        memcpy(g->peers, first->peers, g->nranks * sizeof *g->peers);
    } else {
        status = backend_meet(g, desc);
    }
    if (status == COLLRUN_OK)
        status = backend_open_local(g, desc);
    endpoint_lock(g->endpoint);
    if (status == COLLRUN_OK)
        status = endpoint_context_add(g->endpoint, &g->context);
    endpoint_opening_end(g->endpoint);
    endpoint_unlock(g->endpoint);
    return status;
}

int net_group_open(void *backend, const struct collrun_group_desc *theirs, void **group)
{
    struct collrun_group_desc desc;
    struct endpoint *endpoint;
    COLLRUN_COPY(&desc, theirs);
    const struct collrun_services *s = desc.services;
    int status = backend_endpoint_get(backend, &desc, &endpoint);
    if (status != COLLRUN_OK)
        return status;
    struct net_group *g = backend_group_new(&desc, endpoint);
    if (!g)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory for the group");
    status = backend_join(g, &desc);
    if (status != COLLRUN_OK) {
        backend_group_free(g);
        return status;
    }
    *group = g;
    return COLLRUN_OK;
}

/* ---- closing ---- */

/* Peers that have no connection do not wait for this rank. After a failure that a member may not
 * know, they get its text. */
void net_group_close(void *group)
{
    struct net_group *g = group;
    endpoint_lock(g->endpoint);
    if (g->status == COLLRUN_OK)
        backend_detach(g);
    const bool failed = g->status != COLLRUN_OK && g->status != COLLRUN_ERR_ABORTED;
    for (uint32_t r = 0; r < g->nranks; r++) {
        struct packet packet = {.type = failed ? PACKET_FAIL : PACKET_LEAVE,
                                .message = {.count = g->puts[r].sent, .status = g->status}};
        if (g->peers[r] && !g->has_left[r] && link_is_connected(g->peers[r]->link))
            net_group_send(g, r, &packet, g->text, failed ? strlen(g->text) : 0);
    }
    endpoint_context_remove(&g->context);
    endpoint_unlock(g->endpoint);
    backend_group_free(g);
}

/* ---- collectives ---- */

static int backend_run(void *ctx, struct net_op *op)
{
    struct net_group *g = ctx;
    return net_coll_run(g->coll, op);
}

int net_run(void *group, const struct collrun_call *call, int (*run)(void *ctx, struct net_op *op),
            void *ctx)
{
    struct net_group *g = group;
    const int status = net_ops_run(g, call, run, ctx);
    if (status != COLLRUN_OK) {
        endpoint_lock(g->endpoint);
        net_group_share_failure(g, status, net_coll_failure_text(g->coll));
        endpoint_unlock(g->endpoint);
    }
    return status;
}

int net_exec(void *group, const struct collrun_call *calls, uint32_t ncalls)
{
    return ncalls ? net_run(group, &calls[0], backend_run, group) : COLLRUN_OK;
}

/* ---- the backend ---- */

int net_open(const struct collrun_services *services, void **backend)
{
    struct backend *b = calloc(1, sizeof *b);
    if (!b)
        return services->fail(services->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    b->services = services;
    pthread_mutex_init(&b->lock, NULL);
    *backend = b;
    return COLLRUN_OK;
}

void net_close(void *backend)
{
    struct backend *b = backend;
    for (struct backend_endpoint *entry; (entry = b->endpoints);) {
        b->endpoints = entry->next;
        endpoint_close(entry->endpoint);
        free(entry);
    }
    pthread_mutex_destroy(&b->lock);
    free(b);
}
