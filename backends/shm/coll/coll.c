/* SPDX-License-Identifier: Apache-2.0
 *
 * See coll.h. The descriptions fill g->coll.in and g->coll.out: what each rank sends to which rank.
 */
#include "coll/coll.h"

#include "coll/combine.h"
#include "coll/exchange.h"
#include "coll/single_step.h"

#include <errno.h>
#include <string.h>

/* Bytes that one rank reads at most in a reduction where every rank reads all vectors. */
#define COLL_FLAT_BYTES (16u << 10)
/* The same of a reduce by its root alone, where ranks share at most two cores: to share the work
 * gains nothing there. */
#define COLL_FLAT_FEW_CORES_BYTES (8u << 20)

/* The address at `offset`; NULL for a buffer that the call does not have. */
static char *coll_at(const void *base, size_t offset)
{
    return base ? (char *)(uintptr_t)base + offset : NULL;
}

/* An exchange that moves nothing yet. */
static struct exchange coll_exchange(struct shm_group *g, const struct collrun_call *call)
{
    for (uint32_t r = 0; r < g->nranks; r++) {
        g->coll.in[r] = (struct coll_block){0};
        g->coll.out[r] = (struct coll_block){0};
    }
    return (struct exchange){
        .g = g, .call = call, .elem = g->services->dtype_size(call->dtype), .receives = true};
}

/* Blocks of `len` bytes from every rank, contiguous in the receive buffer. */
static void coll_receive_from_all(struct exchange *x, size_t len)
{
    for (uint32_t r = 0; r < x->g->nranks; r++)
        x->g->coll.in[r] = (struct coll_block){.data = coll_at(x->call->recv, r * len), .len = len};
}

/* Blocks of `len` bytes to every rank, contiguous in the send buffer. */
static void coll_send_to_all(struct exchange *x, size_t len)
{
    x->personalized = true;
    for (uint32_t r = 0; r < x->g->nranks; r++)
        x->g->coll.out[r] =
            (struct coll_block){.data = coll_at(x->call->send, r * len), .len = len};
}

/* Blocks of a vector form: a count and a displacement (NULL: packed) per rank, both in elements. */
static void coll_vector_blocks(const struct exchange *x, struct coll_block *blocks,
                               const void *base, const size_t *counts, const size_t *displs)
{
    size_t packed = 0;
    for (uint32_t r = 0; r < x->g->nranks; r++) {
        blocks[r].data = coll_at(base, (displs ? displs[r] : packed) * x->elem);
        blocks[r].len = counts[r] * x->elem;
        packed += counts[r];
    }
}

static bool coll_is_root(const struct exchange *x)
{
    return (uint32_t)x->call->root == x->g->rank;
}

static void coll_broadcast(struct exchange *x, size_t len)
{
    struct coll_block *block = coll_is_root(x) ? &x->g->coll.out[0] : &x->g->coll.in[x->call->root];
    *block = (struct coll_block){.data = x->call->recv, .len = len};
    x->longest = len;
}

static void coll_gather(struct exchange *x, size_t len)
{
    const bool to_all = x->call->kind == COLLRUN_ALLGATHER;
    x->g->coll.out[0] = (struct coll_block){.data = coll_at(x->call->send, 0), .len = len};
    if (to_all || coll_is_root(x))
        coll_receive_from_all(x, len);
    x->symmetric = to_all;
    x->longest = len;
}

static void coll_scatter(struct exchange *x, size_t len)
{
    x->personalized = true;
    if (coll_is_root(x))
        coll_send_to_all(x, len);
    x->g->coll.in[x->call->root] = (struct coll_block){.data = x->call->recv, .len = len};
    x->longest = len;
}

static void coll_alltoall(struct exchange *x, size_t len)
{
    coll_send_to_all(x, len);
    coll_receive_from_all(x, len);
    x->in_place = x->call->send == x->call->recv;
    x->symmetric = true;
    x->longest = len;
}

/* All ranks (allreduce) or the root (reduce) read the whole vectors of all. */
static void coll_flat_reduction(struct exchange *x, size_t len)
{
    const bool to_all = x->call->kind == COLLRUN_ALLREDUCE;
    x->g->coll.out[0] = (struct coll_block){.data = coll_at(x->call->send, 0), .len = len};
    if (to_all || coll_is_root(x))
        coll_receive_from_all(x, len);
    x->reduce_into = x->call->recv;
    x->in_place = to_all && x->call->send == x->call->recv;
    x->symmetric = to_all;
    x->longest = len;
}

static void coll_reduce_scatter(struct exchange *x, size_t len)
{
    coll_send_to_all(x, len);
    coll_receive_from_all(x, len);
    x->reduce_into = x->call->recv;
    x->symmetric = true;
    x->longest = len;
}

static void coll_vector(struct exchange *x)
{
    const struct collrun_call *c = x->call;
    struct shm_group *g = x->g;
    x->vector = true;
    x->symmetric = true;
    if (c->kind == COLLRUN_ALLGATHERV || c->kind == COLLRUN_GATHERV) {
        g->coll.out[0] =
            (struct coll_block){.data = coll_at(c->send, 0), .len = c->count * x->elem};
        x->receives = c->kind == COLLRUN_ALLGATHERV || coll_is_root(x);
        if (x->receives)
            coll_vector_blocks(x, g->coll.in, c->recv, c->recvcounts, c->recvdispls);
        return;
    }
    x->personalized = true;
    if (c->kind == COLLRUN_ALLTOALLV) {
        coll_vector_blocks(x, g->coll.out, c->send, c->sendcounts, c->senddispls);
        coll_vector_blocks(x, g->coll.in, c->recv, c->recvcounts, c->recvdispls);
    } else if (c->kind == COLLRUN_SCATTERV) {
        if (coll_is_root(x))
            coll_vector_blocks(x, g->coll.out, c->send, c->sendcounts, c->senddispls);
        g->coll.in[c->root] = (struct coll_block){.data = c->recv, .len = c->recvcount * x->elem};
    } else {
        coll_vector_blocks(x, g->coll.out, c->send, c->recvcounts, NULL);
        for (uint32_t r = 0; r < g->nranks; r++)
            g->coll.in[r].len = c->recvcounts[g->rank] * x->elem;
        x->reduce_into = c->recv;
    }
}

/* True if it is best that every rank reads all vectors: two ranks lose nothing by it, and short
 * vectors save a step. */
static bool coll_is_flat(const struct shm_group *g, enum collrun_kind kind, size_t len)
{
    if (g->nranks <= 2)
        return true;
    const bool root_alone = g->wait.few_cores && kind == COLLRUN_REDUCE;
    return (g->nranks - 1) * len <= (root_alone ? COLL_FLAT_FEW_CORES_BYTES : COLL_FLAT_BYTES);
}

/* False if no rank's data of one step can be longer than a slot. All ranks get the same answer for
 * calls with the same signature. */
static bool coll_may_use_ring(const struct shm_group *g, const struct collrun_call *call,
                              size_t len)
{
    if (collrun_kind_is_vector(call->kind))
        return true;
    /* A step carries a block for each rank, or a vector and a share of the last one. */
    return len > SLOT_BYTES || (len > 0 && (len + LINE_BYTES) * (g->nranks + 1) > SLOT_BYTES);
}

static int coll_map_rings(struct shm_group *g)
{
    if (segment_map_rings(&g->seg))
        return COLLRUN_OK;
    return shm_group_fail(g, COLLRUN_ERR_NO_MEMORY,
                          "rank %u cannot map the memory for collectives: %s", g->rank,
                          strerror(errno));
}

int coll_run(struct shm_group *g, const struct collrun_call *call)
{
    const bool empty = call->kind == COLLRUN_BARRIER || call->count == 0;
    const size_t len = empty ? 0 : call->count * g->services->dtype_size(call->dtype);
    const bool flat = coll_is_flat(g, call->kind, len);
    if (!g->seg.rings && coll_may_use_ring(g, call, len) && coll_map_rings(g) != COLLRUN_OK)
        return shm_group_report_failure(g);
    if (single_step_fits(g, call, len) && (flat || !collrun_kind_reduces(call->kind)))
        return single_step_run(g, call, len);
    const int status = step_begin(g, 1);
    if (status != COLLRUN_OK)
        return status;
    struct exchange x = coll_exchange(g, call);
    switch (call->kind) {
    case COLLRUN_BROADCAST:
        coll_broadcast(&x, len);
        break;
    case COLLRUN_ALLGATHER:
    case COLLRUN_GATHER:
        coll_gather(&x, len);
        break;
    case COLLRUN_SCATTER:
        coll_scatter(&x, len);
        break;
    case COLLRUN_ALLTOALL:
        coll_alltoall(&x, len);
        break;
    case COLLRUN_REDUCE_SCATTER:
        coll_reduce_scatter(&x, len);
        break;
    case COLLRUN_ALLREDUCE:
    case COLLRUN_REDUCE:
        if (!flat)
            return combine_run(g, call);
        coll_flat_reduction(&x, len);
        break;
    default:
        coll_vector(&x);
    }
    return exchange_run(&x);
}
