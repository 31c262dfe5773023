/* SPDX-License-Identifier: Apache-2.0
 *
 * See coll.h.
 */
#include "coll/coll.h"
#include "coll/tuning.h"

#include <string.h>

void coll_copy(void *dst, const void *src, size_t len)
{
    if (len > 0 && dst != src)
        memcpy(dst, src, len);
}

int coll_copy_own(struct coll *c, void *dst, const void *src, size_t len)
{
    int status = COLLRUN_OK;
    for (size_t at = 0; status == COLLRUN_OK && dst != src && at < len; at += TUNING_OWN_BYTES) {
        const size_t left = len - at;
        coll_copy((char *)dst + at, (const char *)src + at,
                  left < TUNING_OWN_BYTES ? left : TUNING_OWN_BYTES);
        if (left > TUNING_OWN_BYTES)
            status = net_op_progress(c->op);
    }
    return status;
}

void *coll_scratch(struct coll *c, size_t n, size_t size)
{
    return net_op_scratch(c->op, n * size + 1);
}

int coll_run_local(struct coll *c, struct collrun_call *call)
{
    if (!c->local)
        return COLLRUN_OK;
    net_op_hand_over(c->op);
    call->root = (int)net_hosts_local_rank(c->hosts, coll_leader(c, c->host));
    return net_local_run(c->local, call, !c->leads);
}

int coll_broadcast_local(struct coll *c, void *data, size_t len)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_BROADCAST);
    call.recv = data;
    call.count = len;
    call.dtype = COLLRUN_UINT8;
    return coll_run_local(c, &call);
}

int coll_blocks_init(struct coll *c, struct coll_blocks *b, unsigned char extent)
{
    const struct collrun_call *call = c->call;
    *b = (struct coll_blocks){.count = call->count, .elem = c->elem};
    if (extent == COLLRUN_SENDCOUNTS_BLOCKS) {
        b->counts = call->sendcounts;
        b->displs = call->senddispls;
    } else if (extent == COLLRUN_RECVCOUNTS_BLOCKS) {
        b->counts = call->recvcounts;
        b->displs = call->recvdispls;
    } else if (extent == COLLRUN_RECVCOUNTS_PACKED) {
        b->counts = call->recvcounts;
    }
    if (!b->counts || b->displs)
        return COLLRUN_OK;
    b->at = coll_scratch(c, c->nranks, sizeof *b->at);
    if (!b->at)
        return COLLRUN_ERR_NO_MEMORY;
    size_t at = 0;
    for (uint32_t r = 0; r < c->nranks; r++) {
        b->at[r] = at;
        at += b->counts[r];
    }
    return COLLRUN_OK;
}

size_t coll_piece_len(const struct coll *c, size_t len)
{
    const bool two_ranks = c->nranks == 2;
    const size_t most = two_ranks ? TUNING_BLOCK_MAX_OF_TWO_RANKS : TUNING_BLOCK_MAX;
    const size_t piece = len / (two_ranks          ? TUNING_PIECES_OF_TWO_RANKS
                                : c->hosts->n == 2 ? TUNING_PIECES_OF_TWO
                                                   : TUNING_PIECES);
    return piece < TUNING_BLOCK_MIN ? TUNING_BLOCK_MIN : piece > most ? most : piece;
}

int coll_batch_init(struct coll *c, struct coll_batch *b, uint32_t capacity)
{
    *b = (struct coll_batch){.c = c, .capacity = capacity};
    b->requests = coll_scratch(c, capacity, sizeof *b->requests);
    return b->requests ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

int coll_batch_send(struct coll_batch *b, uint32_t peer, uint32_t slot, const void *data,
                    size_t len)
{
    if (len == 0)
        return COLLRUN_OK;
    return net_op_send(b->c->op, &b->requests[b->n++], peer, slot, data, len);
}

int coll_batch_recv(struct coll_batch *b, uint32_t peer, uint32_t slot, void *data, size_t len)
{
    if (len == 0)
        return COLLRUN_OK;
    return net_op_recv(b->c->op, &b->requests[b->n++], peer, slot, data, len);
}

int coll_batch_wait(struct coll_batch *b)
{
    const uint32_t n = b->n;
    b->n = 0;
    return n > 0 ? net_op_wait_all(b->c->op, b->requests, n) : COLLRUN_OK;
}

/* ---- barrier ----
 *
 * The ranks of a host meet, their leaders exchange in log2(hosts) rounds of dissemination (Hensgen,
 * Finkel and Manber, 1988), and each leader releases its host. */

static int barrier_between_hosts(struct coll *c)
{
    const uint32_t n = c->hosts->n;
    for (uint32_t distance = 1, round = 0; distance < n; distance *= 2, round++) {
        struct net_request requests[2];
        const uint32_t to = coll_leader(c, coll_next_host(c, distance));
        const uint32_t from = coll_leader(c, coll_next_host(c, n - distance));
        int status = net_op_recv(c->op, &requests[0], from, coll_slot(round, 0), NULL, 0);
        if (status == COLLRUN_OK)
            status = net_op_send(c->op, &requests[1], to, coll_slot(round, 0), NULL, 0);
        if (status == COLLRUN_OK)
            status = net_op_wait_all(c->op, requests, 2);
        if (status != COLLRUN_OK)
            return status;
    }
    return COLLRUN_OK;
}

int coll_barrier(struct coll *c)
{
    struct collrun_call meet = COLLRUN_CALL(COLLRUN_BARRIER);
    int status = coll_run_local(c, &meet);
    if (status == COLLRUN_OK && c->leads)
        status = barrier_between_hosts(c);
    return status == COLLRUN_OK ? coll_broadcast_local(c, NULL, 0) : status;
}
