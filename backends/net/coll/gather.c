/* SPDX-License-Identifier: Apache-2.0
 *
 * Gather, scatter and their vector forms. The ranks of the root's host use shared memory. Each rank
 * of another host exchanges its block with the root directly, from buffer to buffer: the bytes on
 * the root's link are the same on any way, and only the root knows the lengths of a vector form.
 * The root keeps a bounded number of messages in flight.
 */
#include "coll/coll.h"
#include "coll/tuning.h"

struct gather {
    struct coll *c;
    struct coll_blocks blocks; /* at the root */
    bool uneven, scatters;
    size_t own; /* bytes of this rank's block */
};

/* Between the root and a rank of another host, which has one message. */
static int gather_far(struct gather *g)
{
    struct coll *c = g->c;
    struct net_request request;
    const uint32_t root = (uint32_t)c->call->root;
    if (g->own == 0 && g->uneven)
        return COLLRUN_OK;
    const int status =
        g->scatters ? net_op_recv(c->op, &request, root, coll_slot(0, 0), c->call->recv, g->own)
                    : net_op_send(c->op, &request, root, coll_slot(0, 0), c->call->send, g->own);
    return status == COLLRUN_OK ? net_op_wait(c->op, &request) : status;
}

/* Begins the root's message with one rank. */
static int gather_begin(struct gather *g, struct coll_batch *batch, uint32_t rank)
{
    struct coll *c = g->c;
    const size_t at = coll_block_at(&g->blocks, rank), len = coll_block_len(&g->blocks, rank);
    struct net_request *request = &batch->requests[batch->n];
    if (len == 0 && g->uneven)
        return COLLRUN_OK;
    batch->n++;
    if (g->scatters)
        return net_op_send(c->op, request, rank, coll_slot(0, 0), coll_at(c->call->send, at), len);
    return net_op_recv(c->op, request, rank, coll_slot(0, 0), coll_at(c->call->recv, at), len);
}

/* The root and the ranks of its host. */
static int gather_near(struct gather *g)
{
    struct coll *c = g->c;
    const uint32_t nlocal = net_hosts_count(c->hosts, c->host);
    struct collrun_call call = COLLRUN_CALL(g->scatters ? COLLRUN_SCATTERV : COLLRUN_GATHERV);
    size_t *counts = coll_scratch(c, nlocal, sizeof *counts);
    size_t *at = coll_scratch(c, nlocal, sizeof *at);
    if (!counts || !at)
        return COLLRUN_ERR_NO_MEMORY;
    for (uint32_t i = 0; coll_is_root(c) && i < nlocal; i++) {
        const uint32_t rank = net_hosts_rank(c->hosts, c->host, i);
        counts[i] = coll_block_len(&g->blocks, rank) / c->elem;
        at[i] = coll_block_at(&g->blocks, rank) / c->elem;
    }
    call.send = c->call->send;
    call.recv = c->call->recv;
    call.dtype = c->call->dtype;
    if (g->scatters) {
        call.sendcounts = counts;
        call.senddispls = at;
        call.recvcount = g->own / c->elem;
    } else {
        call.recvcounts = counts;
        call.recvdispls = at;
        call.count = g->own / c->elem;
    }
    return coll_run_local(c, &call);
}

/* The root's own block, if it is alone on its host. */
static int gather_own(struct gather *g)
{
    struct coll *c = g->c;
    const size_t at = coll_block_at(&g->blocks, c->rank);
    if (g->scatters)
        return coll_copy_own(c, c->call->recv, coll_at(c->call->send, at), g->own);
    return coll_copy_own(c, coll_at(c->call->recv, at), c->call->send, g->own);
}

static int gather_root(struct gather *g)
{
    struct coll *c = g->c;
    struct coll_batch batch;
    int status = coll_batch_init(c, &batch, TUNING_MESSAGES);
    uint32_t next = 1;
    for (; status == COLLRUN_OK && next < c->nranks && batch.n < TUNING_MESSAGES; next++) {
        const uint32_t rank = (c->rank + next) % c->nranks;
        if (c->hosts->of[rank] != c->host)
            status = gather_begin(g, &batch, rank);
    }
    if (status == COLLRUN_OK)
        status = c->local ? gather_near(g) : gather_own(g);
    while (status == COLLRUN_OK && batch.n > 0) {
        status = coll_batch_wait(&batch);
        for (; status == COLLRUN_OK && next < c->nranks && batch.n < TUNING_MESSAGES; next++) {
            const uint32_t rank = (c->rank + next) % c->nranks;
            if (c->hosts->of[rank] != c->host)
                status = gather_begin(g, &batch, rank);
        }
    }
    return status;
}

static int gather_run(struct gather *g)
{
    if (coll_is_root(g->c))
        return gather_root(g);
    return g->c->host == g->c->root_host ? gather_near(g) : gather_far(g);
}

int coll_gather(struct coll *c)
{
    const struct collrun_kind_info info = collrun_kind_row(c->call->kind);
    const bool scatters = info.flags & COLLRUN_ROOT_SENDS;
    struct gather g = {.c = c, .scatters = scatters, .uneven = info.flags & COLLRUN_IS_VECTOR};
    g.own = (info.recv == COLLRUN_RECVCOUNT_BLOCK ? c->call->recvcount : c->call->count) * c->elem;
    const int status = /* only the root has counts of all */
        coll_blocks_init(c, &g.blocks,
                         !coll_is_root(c) ? COLLRUN_BLOCK_EACH
                         : scatters       ? info.send
                                          : info.recv);
    return status == COLLRUN_OK ? gather_run(&g) : status;
}
