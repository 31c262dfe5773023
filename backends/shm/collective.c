/* SPDX-License-Identifier: Apache-2.0
 *
 * Who sends what to whom, for every kind of collective. The descriptions fill g->in and g->out;
 * exchange.h moves.
 */
#include "collective.h"

#include "combine.h"
#include "exchange.h"
#include "short.h"

/* What one rank may read in a reduction where every rank reads everything. */
#define FLAT_BYTES (16u << 10)

static char *bytes_at(const void *base, size_t offset)
{
    return base ? (char *)(uintptr_t)base + offset : NULL;
}

static struct exchange exchange_of(struct shm_group *g, const struct collrun_call *call)
{
    for (uint32_t r = 0; r < g->nranks; r++) {
        g->in[r] = (struct piece){0};
        g->out[r] = (struct piece){0};
    }
    return (struct exchange){
        .g = g, .call = call, .elem = g->services->dtype_size(call->dtype), .receives = true};
}

/* Blocks of `len` bytes from every rank, one after the other in the receive buffer. */
static void receive_from_all(struct exchange *x, size_t len)
{
    for (uint32_t r = 0; r < x->g->nranks; r++)
        x->g->in[r] = (struct piece){.at = bytes_at(x->call->recv, r * len), .len = len};
}

static void send_to_all(struct exchange *x, size_t len)
{
    x->personal = true;
    for (uint32_t r = 0; r < x->g->nranks; r++)
        x->g->out[r] = (struct piece){.at = bytes_at(x->call->send, r * len), .len = len};
}

/* The same with a count and a displacement (NULL: packed) per rank, both in elements. */
static void blocks_of_counts(const struct exchange *x, struct piece *blocks, const void *base,
                             const size_t *counts, const size_t *displs)
{
    size_t packed = 0;
    for (uint32_t r = 0; r < x->g->nranks; r++) {
        blocks[r].at = bytes_at(base, (displs ? displs[r] : packed) * x->elem);
        blocks[r].len = counts[r] * x->elem;
        packed += counts[r];
    }
}

static bool is_root(const struct exchange *x)
{
    return (uint32_t)x->call->root == x->g->rank;
}

static void describe_broadcast(struct exchange *x, size_t len)
{
    struct piece *block = is_root(x) ? &x->g->out[0] : &x->g->in[x->call->root];
    *block = (struct piece){.at = x->call->recv, .len = len};
    x->longest = len;
}

static void describe_gather(struct exchange *x, size_t len)
{
    const bool to_all = x->call->kind == COLLRUN_ALLGATHER;
    x->g->out[0] = (struct piece){.at = bytes_at(x->call->send, 0), .len = len};
    if (to_all || is_root(x))
        receive_from_all(x, len);
    x->even_load = to_all;
    x->longest = len;
}

static void describe_scatter(struct exchange *x, size_t len)
{
    x->personal = true;
    if (is_root(x))
        send_to_all(x, len);
    x->g->in[x->call->root] = (struct piece){.at = x->call->recv, .len = len};
    x->longest = len;
}

static void describe_alltoall(struct exchange *x, size_t len)
{
    send_to_all(x, len);
    receive_from_all(x, len);
    x->overwrites = x->call->send == x->call->recv;
    x->even_load = true;
    x->longest = len;
}

/* Everybody's vector is read whole by all (allreduce) or by the root (reduce). */
static void describe_flat_reduction(struct exchange *x, size_t len)
{
    const bool to_all = x->call->kind == COLLRUN_ALLREDUCE;
    x->g->out[0] = (struct piece){.at = bytes_at(x->call->send, 0), .len = len};
    if (to_all || is_root(x))
        receive_from_all(x, len);
    x->into = x->call->recv;
    x->overwrites = to_all && x->call->send == x->call->recv;
    x->even_load = to_all;
    x->longest = len;
}

static void describe_reduce_scatter(struct exchange *x, size_t len)
{
    send_to_all(x, len);
    receive_from_all(x, len);
    x->into = x->call->recv;
    x->even_load = true;
    x->longest = len;
}

static void describe_uneven(struct exchange *x)
{
    const struct collrun_call *c = x->call;
    struct shm_group *g = x->g;
    x->uneven = true;
    x->even_load = true;
    if (c->kind == COLLRUN_ALLGATHERV || c->kind == COLLRUN_GATHERV) {
        g->out[0] = (struct piece){.at = bytes_at(c->send, 0), .len = c->count * x->elem};
        x->receives = c->kind == COLLRUN_ALLGATHERV || is_root(x);
        if (x->receives)
            blocks_of_counts(x, g->in, c->recv, c->recvcounts, c->recvdispls);
        return;
    }
    x->personal = true;
    if (c->kind == COLLRUN_ALLTOALLV) {
        blocks_of_counts(x, g->out, c->send, c->sendcounts, c->senddispls);
        blocks_of_counts(x, g->in, c->recv, c->recvcounts, c->recvdispls);
    } else if (c->kind == COLLRUN_SCATTERV) {
        if (is_root(x))
            blocks_of_counts(x, g->out, c->send, c->sendcounts, c->senddispls);
        g->in[c->root] = (struct piece){.at = c->recv, .len = c->recvcount * x->elem};
    } else {
        blocks_of_counts(x, g->out, c->send, c->recvcounts, NULL);
        for (uint32_t r = 0; r < g->nranks; r++)
            g->in[r].len = c->recvcounts[g->rank] * x->elem;
        x->into = c->recv;
    }
}

/* Whether a reduction is done best by reading everything everywhere: two ranks lose nothing by it,
 * short vectors save a step. */
static bool is_flat(const struct shm_group *g, size_t len)
{
    return g->nranks <= 2 || (g->nranks - 1) * len <= FLAT_BYTES;
}

int collective_run(struct shm_group *g, const struct collrun_call *call)
{
    const size_t len = call->count * g->services->dtype_size(call->dtype);
    const bool flat = is_flat(g, len);
    if (short_fits(g, call) && (flat || !kind_reduces(call->kind)))
        return short_run(g, call);
    struct exchange x = exchange_of(g, call);
    switch (call->kind) {
    case COLLRUN_BROADCAST:
        describe_broadcast(&x, len);
        break;
    case COLLRUN_ALLGATHER:
    case COLLRUN_GATHER:
        describe_gather(&x, len);
        break;
    case COLLRUN_SCATTER:
        describe_scatter(&x, len);
        break;
    case COLLRUN_ALLTOALL:
        describe_alltoall(&x, len);
        break;
    case COLLRUN_REDUCE_SCATTER:
        describe_reduce_scatter(&x, len);
        break;
    case COLLRUN_ALLREDUCE:
    case COLLRUN_REDUCE:
        if (!flat)
            return combine_run(g, call);
        describe_flat_reduction(&x, len);
        break;
    default:
        describe_uneven(&x);
    }
    return exchange_run(&x);
}
