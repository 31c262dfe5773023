/* SPDX-License-Identifier: Apache-2.0
 *
 * Allgather and allgatherv.
 * - Short: the blocks of a host are gathered, packed, at its leader. The leaders exchange by the
 *   algorithm of Bruck et al. (1997): after round i each has the blocks of 2^(i+1) hosts, from its
 *   own on. Each leader broadcasts the packed blocks to its host, and every rank unpacks them.
 * - Long: the ranks of a host exchange their blocks in place, the leaders send them to the other
 *   hosts, straight from buffer to buffer, and each leader broadcasts what has arrived.
 */
#include "coll/coll.h"
#include "coll/tuning.h"

struct allgather {
    struct coll *c;
    struct coll_blocks blocks; /* in the receive buffer */
    size_t *counts, *at;       /* of the ranks of this host, for the local group: elements */
    size_t own;                /* bytes of this rank's block */
};

static size_t allgather_host_len(const struct allgather *g, uint32_t host)
{
    size_t len = 0;
    for (uint32_t i = 0; i < net_hosts_count(g->c->hosts, host); i++)
        len += coll_block_len(&g->blocks, net_hosts_rank(g->c->hosts, host, i));
    return len;
}

/* ---- short ---- */

/* Gathers the blocks of this host at the start of `packed`. */
static int allgather_pack(struct allgather *g, char *packed)
{
    struct coll *c = g->c;
    struct collrun_call call = COLLRUN_CALL(COLLRUN_GATHERV);
    if (!c->local) {
        coll_copy(packed, c->call->send, g->own);
        return COLLRUN_OK;
    }
    for (uint32_t i = 0; i < net_hosts_count(c->hosts, c->host); i++)
        g->counts[i] = coll_block_len(&g->blocks, net_hosts_rank(c->hosts, c->host, i)) / c->elem;
    call.send = c->call->send;
    call.count = g->own / c->elem;
    call.recv = packed;
    call.recvcounts = g->counts;
    call.dtype = c->call->dtype;
    return coll_run_local(c, &call);
}

/* offsets[k]: where the blocks of the k-th host from this one on begin in `packed`. */
static int allgather_rounds(struct allgather *g, char *packed, const size_t *offsets)
{
    struct coll *c = g->c;
    const uint32_t n = c->hosts->n;
    int status = COLLRUN_OK;
    for (uint32_t have = 1, round = 0; status == COLLRUN_OK && have < n; have *= 2, round++) {
        struct net_request requests[2];
        const uint32_t more = have < n - have ? have : n - have;
        const uint32_t from = coll_leader(c, coll_next_host(c, have));
        const uint32_t to = coll_leader(c, coll_next_host(c, n - have));
        status = net_op_recv(c->op, &requests[0], from, coll_slot(round, 0), packed + offsets[have],
                             offsets[have + more] - offsets[have]);
        if (status == COLLRUN_OK)
            status =
                net_op_send(c->op, &requests[1], to, coll_slot(round, 0), packed, offsets[more]);
        if (status == COLLRUN_OK)
            status = net_op_wait_all(c->op, requests, 2);
    }
    return status;
}

/* All ranks of a host have the same packed blocks, that of their own host first. */
static void allgather_unpack(const struct allgather *g, const char *packed)
{
    const struct net_hosts *hosts = g->c->hosts;
    for (uint32_t k = 0; k < hosts->n; k++) {
        const uint32_t host = coll_next_host(g->c, k);
        for (uint32_t i = 0; i < net_hosts_count(hosts, host); i++) {
            const uint32_t rank = net_hosts_rank(hosts, host, i);
            const size_t len = coll_block_len(&g->blocks, rank);
            coll_copy(coll_at(g->c->call->recv, coll_block_at(&g->blocks, rank)), packed, len);
            packed += len;
        }
    }
}

static int allgather_short(struct allgather *g, size_t total)
{
    struct coll *c = g->c;
    size_t *offsets = coll_scratch(c, c->hosts->n + 1, sizeof *offsets);
    char *packed = coll_scratch(c, total, 1);
    if (!offsets || !packed)
        return COLLRUN_ERR_NO_MEMORY;
    offsets[0] = 0;
    for (uint32_t k = 0; k < c->hosts->n; k++)
        offsets[k + 1] = offsets[k] + allgather_host_len(g, coll_next_host(c, k));
    int status = allgather_pack(g, packed);
    if (status == COLLRUN_OK && c->leads)
        status = allgather_rounds(g, packed, offsets);
    if (status == COLLRUN_OK)
        status = coll_broadcast_local(c, packed, total);
    if (status == COLLRUN_OK)
        allgather_unpack(g, packed);
    return status;
}

/* ---- long ---- */

static char *allgather_block(const struct allgather *g, uint32_t rank)
{
    return coll_at(g->c->call->recv, coll_block_at(&g->blocks, rank));
}

/* The blocks of this host, at their places on all its ranks, of which there are several. */
static int allgather_here(struct allgather *g)
{
    struct coll *c = g->c;
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLGATHERV);
    for (uint32_t i = 0; i < net_hosts_count(c->hosts, c->host); i++) {
        const uint32_t rank = net_hosts_rank(c->hosts, c->host, i);
        g->counts[i] = coll_block_len(&g->blocks, rank) / c->elem;
        g->at[i] = coll_block_at(&g->blocks, rank) / c->elem;
    }
    call.send = c->call->send;
    call.count = g->own / c->elem;
    call.recv = c->call->recv;
    call.recvcounts = g->counts;
    call.recvdispls = g->at;
    call.dtype = c->call->dtype;
    return coll_run_local(c, &call);
}

/* Exchanges with many hosts are in flight, which takes no memory but the requests: connections are
 * not equally fast. What has arrived is handed out meanwhile. */
#define ALLGATHER_DEPTH 16u

struct exchange {
    struct coll_batch sent, received;
};

/* This host's blocks to the k-th host after it, and those of the k-th before it here. */
static int allgather_exchange(struct allgather *g, struct exchange *x, uint32_t k)
{
    struct coll *c = g->c;
    const uint32_t from = coll_next_host(c, c->hosts->n - k);
    const uint32_t to = coll_leader(c, coll_next_host(c, k));
    int status = COLLRUN_OK;
    for (uint32_t i = 0; status == COLLRUN_OK && i < net_hosts_count(c->hosts, from); i++) {
        const uint32_t rank = net_hosts_rank(c->hosts, from, i);
        status = coll_batch_recv(&x->received, coll_leader(c, from), coll_slot(rank, 0),
                                 allgather_block(g, rank), coll_block_len(&g->blocks, rank));
    }
    for (uint32_t i = 0; status == COLLRUN_OK && i < net_hosts_count(c->hosts, c->host); i++) {
        const uint32_t rank = net_hosts_rank(c->hosts, c->host, i);
        const void *block = c->local ? allgather_block(g, rank) : c->call->send;
        status = coll_batch_send(&x->sent, to, coll_slot(rank, 0), block,
                                 coll_block_len(&g->blocks, rank));
    }
    return status;
}

/* The blocks of a host to the ranks of this one. */
static int allgather_hand_out(struct allgather *g, uint32_t host)
{
    int status = COLLRUN_OK;
    for (uint32_t i = 0; status == COLLRUN_OK && i < net_hosts_count(g->c->hosts, host); i++) {
        const uint32_t rank = net_hosts_rank(g->c->hosts, host, i);
        if (coll_block_len(&g->blocks, rank) > 0)
            status = coll_broadcast_local(g->c, allgather_block(g, rank),
                                          coll_block_len(&g->blocks, rank));
    }
    return status;
}

/* The exchange with the k-th host ends. */
static int allgather_end(struct allgather *g, struct exchange *x, uint32_t k)
{
    struct coll *c = g->c;
    int status = c->leads ? coll_batch_wait(&x->received) : COLLRUN_OK;
    if (status == COLLRUN_OK && c->local)
        status = allgather_hand_out(g, coll_next_host(c, c->hosts->n - k));
    return status == COLLRUN_OK && c->leads ? coll_batch_wait(&x->sent) : status;
}

static int allgather_long(struct allgather *g)
{
    struct coll *c = g->c;
    const uint32_t n = c->hosts->n;
    struct exchange exchanges[ALLGATHER_DEPTH];
    int status = COLLRUN_OK;
    for (uint32_t i = 0; status == COLLRUN_OK && c->leads && i < ALLGATHER_DEPTH && i < n; i++) {
        status = coll_batch_init(c, &exchanges[i].sent, c->nranks);
        if (status == COLLRUN_OK)
            status = coll_batch_init(c, &exchanges[i].received, c->nranks);
    }
    if (status == COLLRUN_OK && c->local)
        status = allgather_here(g);
    for (uint32_t step = 1; status == COLLRUN_OK && step < n + ALLGATHER_DEPTH - 1; step++) {
        const uint32_t ended = step - (ALLGATHER_DEPTH - 1); /* large, if there is none */
        if (c->leads && step < n)
            status = allgather_exchange(g, &exchanges[step % ALLGATHER_DEPTH], step);
        if (status == COLLRUN_OK && step == 1 && !c->local)
            status = coll_copy_own(c, allgather_block(g, c->rank), c->call->send, g->own);
        if (status == COLLRUN_OK && ended >= 1 && ended < n)
            status = allgather_end(g, &exchanges[ended % ALLGATHER_DEPTH], ended);
    }
    return status;
}

int coll_allgather(struct coll *c)
{
    struct allgather g = {.c = c, .own = c->call->count * c->elem};
    const int status = coll_blocks_init(c, &g.blocks, collrun_kind_row(c->call->kind).recv);
    const uint32_t nlocal = net_hosts_count(c->hosts, c->host);
    g.counts = coll_scratch(c, nlocal, sizeof *g.counts);
    g.at = coll_scratch(c, nlocal, sizeof *g.at);
    if (status != COLLRUN_OK || !g.counts || !g.at)
        return COLLRUN_ERR_NO_MEMORY;
    size_t total = 0;
    for (uint32_t h = 0; h < c->hosts->n; h++)
        total += allgather_host_len(&g, h);
    return total <= TUNING_SHORT_BYTES ? allgather_short(&g, total) : allgather_long(&g);
}
