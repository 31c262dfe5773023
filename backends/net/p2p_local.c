/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages through the local group; see p2p_local.h.
 */
#include "p2p_local.h"

#include "coll/net_coll.h"

static struct collrun_message *net_p2p_local_of(struct net_message *m)
{
    return (struct collrun_message *)(void *)m->local;
}

static struct net_message *net_p2p_local_outer(struct collrun_message *local)
{
    return (struct net_message *)(void *)((char *)local - offsetof(struct net_message, local));
}

static void *net_p2p_local_handle(const struct net_group *g)
{
    return net_local_group(g->p2p.local.group);
}

static uint32_t net_p2p_local_rank(const struct net_group *g, uint32_t peer)
{
    return net_hosts_local_rank(g->p2p.local.hosts, peer);
}

/* ---- what the local group calls ---- */

static int net_p2p_local_arrived(void *ctx, uint32_t source,
                                 const struct collrun_envelope *envelope, const void *packet,
                                 size_t len)
{
    const struct net_group *g = ctx;
    const struct p2p_local *l = &g->p2p.local;
    const struct collrun_p2p *engine = g->p2p.engine;
    return engine->arrived(engine->ctx, net_hosts_rank(l->hosts, l->host, source), envelope, packet,
                           len);
}

static void net_p2p_local_done(void *ctx, struct collrun_message *local)
{
    struct net_group *g = ctx;
    struct net_message *m = net_p2p_local_outer(local);
    m->is_local = false;
    g->p2p.peers[m->head.peer].needed--;
    g->p2p.engine->done(g->p2p.engine->ctx, &m->head);
}

static void net_p2p_local_announced(void *ctx, const struct collrun_message *local)
{
    const struct net_group *g = ctx;
    const struct net_message *m = net_p2p_local_outer((struct collrun_message *)(uintptr_t)local);
    g->p2p.engine->announced(g->p2p.engine->ctx, &m->head);
}

static struct collrun_message *net_p2p_local_find(void *ctx, uint32_t id)
{
    const struct net_group *g = ctx;
    struct net_message *m =
        (struct net_message *)(void *)g->p2p.engine->find(g->p2p.engine->ctx, id);
    return m && m->is_local ? net_p2p_local_of(m) : NULL;
}

/* ---- messages ---- */

/* After a failure of the local group, all members fail. */
static int net_p2p_local_check(struct net_group *g, int status)
{
    if (status == COLLRUN_OK || status == COLLRUN_AGAIN)
        return status;
    endpoint_lock(g->endpoint);
    net_group_share_failure(g, status, net_local_failure_text(g->p2p.local.group));
    endpoint_unlock(g->endpoint);
    return status;
}

static struct collrun_message *net_p2p_local_begin(const struct net_group *g, struct net_message *m)
{
    struct collrun_message *local = net_p2p_local_of(m);
    *local = m->head;
    if (local->peer != COLLRUN_ANY_SOURCE)
        local->peer = net_p2p_local_rank(g, local->peer);
    m->is_local = true;
    return local;
}

int net_p2p_local_send(struct net_group *g, struct net_message *m)
{
    g->p2p.peers[m->head.peer].needed++;
    return net_p2p_local_check(
        g, net_local_transport()->send(net_p2p_local_handle(g), net_p2p_local_begin(g, m)));
}

int net_p2p_local_post(struct net_group *g, struct net_message *m)
{
    return net_p2p_local_check(
        g, net_local_transport()->post(net_p2p_local_handle(g), net_p2p_local_begin(g, m)));
}

void net_p2p_local_unpost(struct net_group *g, struct net_message *m)
{
    m->is_local = false;
    net_local_transport()->unpost(net_p2p_local_handle(g), net_p2p_local_of(m));
}

int net_p2p_local_recv(struct net_group *g, struct net_message *m, const void *packet, size_t len)
{
    struct collrun_message *local = net_p2p_local_of(m);
    local->envelope = m->head.envelope;
    local->len = m->head.len;
    local->peer = net_p2p_local_rank(g, m->head.peer);
    return net_p2p_local_check(
        g, net_local_transport()->recv(net_p2p_local_handle(g), local, packet, len));
}

int net_p2p_flush(void *group)
{
    struct net_group *g = group;
    return g->p2p.local.group ? net_local_transport()->flush(net_p2p_local_handle(g)) : COLLRUN_OK;
}

int net_p2p_local_progress(struct net_group *g, uint64_t wait_ns)
{
    return net_p2p_local_check(g,
                               net_local_transport()->progress(net_p2p_local_handle(g), wait_ns));
}

void net_p2p_local_wake(struct net_group *g)
{
    net_local_transport()->wake(net_p2p_local_handle(g));
}

static int net_p2p_local_short(const struct net_group *g, const struct collrun_message *message,
                               int (*move)(void *, const struct collrun_message *))
{
    struct collrun_message local = *message;
    if (!net_p2p_is_local(g, message->peer))
        return COLLRUN_AGAIN;
    local.peer = net_p2p_local_rank(g, message->peer);
    return move(net_p2p_local_handle(g), &local);
}

int net_p2p_send_short(void *group, const struct collrun_message *message)
{
    return net_p2p_local_short(group, message, net_local_transport()->send_short);
}

int net_p2p_recv_short(void *group, const struct collrun_message *message)
{
    return net_p2p_local_short(group, message, net_local_transport()->recv_short);
}

/* ---- waiting ---- */

/* A rank of this host sleeps in its link. */
static void net_p2p_local_wake_peer(void *ctx, uint32_t local_rank)
{
    struct net_group *g = ctx;
    struct packet packet = {.type = PACKET_WAKE};
    endpoint_lock(g->endpoint);
    if (!net_group_has_failed(g))
        net_group_send(g, net_hosts_rank(g->p2p.local.hosts, g->p2p.local.host, local_rank),
                       &packet, NULL, 0);
    endpoint_unlock(g->endpoint);
}

static bool net_p2p_local_look(struct endpoint_context *context)
{
    struct net_group *g = (struct net_group *)context;
    g->p2p.local.status = net_p2p_local_progress(g, 0);
    return g->p2p.local.status != COLLRUN_OK;
}

static uint64_t net_p2p_local_before_sleep(struct endpoint_context *context)
{
    const struct net_group *g = (const struct net_group *)context;
    return net_local_sleep_begin(g->p2p.local.group);
}

static void net_p2p_local_after_sleep(struct endpoint_context *context)
{
    const struct net_group *g = (const struct net_group *)context;
    net_local_sleep_end(g->p2p.local.group);
}

const struct endpoint_source net_p2p_local_source = {.look = net_p2p_local_look,
                                                     .before_sleep = net_p2p_local_before_sleep,
                                                     .after_sleep = net_p2p_local_after_sleep};

void net_p2p_local_note_left(struct net_group *g)
{
    struct p2p_local *l = &g->p2p.local;
    const uint32_t nleft = net_local_nleft(l->group);
    if (nleft == l->nleft)
        return;
    l->nleft = nleft;
    endpoint_lock(g->endpoint);
    for (uint32_t r = 0; r < g->nranks; r++) {
        if (r != g->rank && net_p2p_is_local(g, r) &&
            net_local_has_left(l->group, net_p2p_local_rank(g, r)))
            net_group_set_left(g, r);
    }
    endpoint_unlock(g->endpoint);
}

/* ---- life ---- */

void net_p2p_local_init(struct net_group *g, struct collrun_group_desc *desc)
{
    struct p2p_local *l = &g->p2p.local;
    l->table = (struct collrun_p2p){.size = sizeof l->table,
                                    .ctx = g,
                                    .arrived = net_p2p_local_arrived,
                                    .done = net_p2p_local_done,
                                    .find = net_p2p_local_find,
                                    .announced = net_p2p_local_announced};
    desc->p2p = &l->table;
}

int net_p2p_local_open(struct net_group *g, const struct collrun_group_desc *desc,
                       const struct net_coll *coll)
{
    struct p2p_local *l = &g->p2p.local;
    struct net_local *first = net_coll_local(coll), *local = first;
    l->hosts = net_coll_hosts(coll);
    l->host = l->hosts->of[g->rank];
    l->is_all = l->hosts->n == 1;
    l->is_owned = first && desc->collectives_handle;
    if (l->is_owned) {
        const int status = net_local_open(desc, l->hosts, first, &local);
        if (status != COLLRUN_OK)
            return status;
    }
    l->embedder = (struct embedder){.ctx = g, .wake = net_p2p_local_wake_peer};
    if (local && !l->is_all)
        net_local_set_embedder(local, &l->embedder);
    l->group = local;
    return COLLRUN_OK;
}

void net_p2p_local_close(struct net_group *g)
{
    if (g->p2p.local.is_owned)
        net_local_close(g->p2p.local.group);
}

void net_p2p_local_fail(struct net_group *g, int status, const char *text)
{
    if (g->p2p.local.is_owned && g->p2p.local.group)
        net_local_fail(g->p2p.local.group, status, text);
}
