/* SPDX-License-Identifier: Apache-2.0
 *
 * See coll.h. The descriptions fill g->coll.in and g->coll.out: what each rank sends to which rank.
 */
#include "coll/coll.h"

#include "coll/exchange.h"
#include "coll/step.h"
#include "transport/abortable.h"
#include "transport/copy.h"

#include <errno.h>
#include <string.h>

/* Short collectives: all that one rank contributes fits into its record or slot, so that one step
 * does the call, without the preparations of the exchange. */

#define SINGLE_STEP_BYTES 8192u
/* The most bytes of a rooted operation in one step where ranks share cores: a rank that does not
 * wait for others lets them run as long as they have something to do. */
#define SINGLE_STEP_CROWDED_BYTES STEP_MAX_BYTES

static bool single_step_block_per_rank(enum collrun_kind kind)
{
    return collrun_kind_row(kind).send == COLLRUN_BLOCK_EACH;
}

/* That a rank contributes at most. */
static size_t single_step_blocks(const struct shm_group *g, enum collrun_kind kind)
{
    return single_step_block_per_rank(kind) ? g->nranks - 1 : 1;
}

static bool single_step_fits_in(const struct shm_group *g, const struct collrun_call *call,
                                size_t len, size_t most)
{
    return (call->kind == COLLRUN_BARRIER || call->count <= most) &&
           len * single_step_blocks(g, call->kind) <= most;
}

static bool single_step_fits(const struct shm_group *g, const struct collrun_call *call, size_t len)
{
    if (collrun_kind_is_vector(call->kind))
        return false;
    return single_step_fits_in(g, call, len, SINGLE_STEP_BYTES) ||
           (g->wait.oversubscribed && collrun_kind_has_root(call->kind) &&
            single_step_fits_in(g, call, len, SINGLE_STEP_CROWDED_BYTES));
}

/* What this rank contributes, or NULL. */
static const void *single_step_source(const struct shm_group *g, const struct collrun_call *call)
{
    const bool is_root = (uint32_t)call->root == g->rank;
    if (call->kind == COLLRUN_BROADCAST)
        return is_root ? call->recv : NULL;
    return call->kind == COLLRUN_SCATTER && !is_root ? NULL : call->send;
}

/* The blocks before and after the one that this rank has for itself. */
static void single_step_contribute(struct shm_group *g, const struct collrun_call *call, size_t len)
{
    const char *source = len > 0 ? single_step_source(g, call) : NULL;
    const size_t all = source ? len * single_step_blocks(g, call->kind) : 0;
    const size_t before = single_step_block_per_rank(call->kind) ? g->rank * len : all;
    char *room = step_reserve(g, all);
    if (all > 0 && before > 0)
        copy_out(&g->copy_policy, room, source, before);
    if (all > before)
        copy_out(&g->copy_policy, room + before, source + before + len, all - before);
}

/* The block of `len` bytes that `rank` has for this one. */
static const char *single_step_block(const struct shm_group *g, const struct collrun_call *call,
                                     uint32_t rank, size_t len)
{
    const bool per_rank = single_step_block_per_rank(call->kind);
    if (rank == g->rank)
        return (const char *)call->send + (per_rank ? rank * len : 0);
    const size_t offset = per_rank ? (g->rank - (g->rank > rank)) * len : 0;
    return step_data(g, rank, g->step.last, offset + len) + offset;
}

static void single_step_reduce(struct shm_group *g, const struct collrun_call *call, size_t len)
{
    const void **srcs = g->coll.srcs;
    for (uint32_t r = 0; r < g->nranks; r++)
        srcs[r] = single_step_block(g, call, r, len);
    g->services->reduce(call->recv, srcs, g->nranks, call->count, call->dtype, call->op, g->nranks);
}

static void single_step_collect_from(struct shm_group *g, const struct collrun_call *call,
                                     uint32_t rank, size_t len)
{
    copy_in((char *)call->recv + rank * len, single_step_block(g, call, rank, len), len);
}

/* Whether each rank delivers the block that it has for itself while the others publish theirs. That
 * would gain nothing of a short one, or where they wait for this rank's core. */
static bool single_step_own_first(const struct shm_group *g, const struct collrun_call *call,
                                  size_t len)
{
    return len > PAYLOAD_BYTES && !g->wait.oversubscribed &&
           (call->kind == COLLRUN_ALLGATHER || call->kind == COLLRUN_ALLTOALL);
}

static void single_step_collect(struct shm_group *g, const struct collrun_call *call, size_t len)
{
    const bool others = single_step_own_first(g, call, len);
    for (uint32_t r = 0; r < g->nranks; r++)
        if (r != g->rank || !others)
            single_step_collect_from(g, call, r, len);
}

static void single_step_deliver(struct shm_group *g, const struct collrun_call *call, size_t len)
{
    const uint32_t root = (uint32_t)call->root;
    switch (call->kind) {
    case COLLRUN_BROADCAST:
        if (root != g->rank)
            copy_in(call->recv, single_step_block(g, call, root, len), len);
        return;
    case COLLRUN_SCATTER:
        copy_in(call->recv, single_step_block(g, call, root, len), len);
        return;
    case COLLRUN_REDUCE:
    case COLLRUN_GATHER:
        if (root != g->rank)
            return;
        break;
    default:
        break;
    }
    if (collrun_kind_reduces(call->kind))
        single_step_reduce(g, call, len);
    else
        single_step_collect(g, call, len);
}

/* How far this rank may be ahead. All of a call's data is in one place, on this rank or on none. */
static uint32_t single_step_lead(const struct shm_group *g, const struct collrun_call *call,
                                 size_t len)
{
    const size_t all = len * single_step_blocks(g, call->kind);
    if (all <= PAYLOAD_BYTES)
        return STEP_LEAD(g);
    return all <= SLOT_BYTES ? STEP_LEAD_WITH_SLOT(g) : step_lead_with_ring(g, all);
}

/* Waits for the ranks whose data this one needs. */
static int single_step_wait(struct shm_group *g, const struct collrun_call *call)
{
    const bool is_root = (uint32_t)call->root == g->rank;
    switch (call->kind) {
    case COLLRUN_BROADCAST:
    case COLLRUN_SCATTER:
        if (!is_root)
            return step_wait_for(g, (uint32_t)call->root);
        step_wake(g);
        return COLLRUN_OK;
    case COLLRUN_REDUCE:
    case COLLRUN_GATHER:
        return is_root ? step_wait(g, g->step.last) : COLLRUN_OK;
    default:
        return step_wait(g, g->step.last);
    }
}

static int single_step_run(struct shm_group *g, const struct collrun_call *call, size_t len)
{
    const struct signature s = signature_of(call);
    int status = step_begin(g, single_step_lead(g, call, len));
    if (status != COLLRUN_OK)
        return status;
    single_step_contribute(g, call, len);
    step_publish(g, &s);
    if (single_step_own_first(g, call, len))
        single_step_collect_from(g, call, g->rank, len);
    status = single_step_wait(g, call);
    if (status == COLLRUN_OK && len > 0)
        single_step_deliver(g, call, len);
    return status;
}

/* Allreduce and reduce of long vectors among several ranks, in two phases per chunk:
 * - each rank reduces its share of the chunk from the inputs of all ranks;
 * - each rank collects the reduced shares of the others.
 * Every element is thus read n times and combined once, in rank order, so all ranks get the same
 * bits. The caller has zeroed g->coll.in and g->coll.out. */

#define CHUNK_BYTES (128u << 10)
/* Fewer steps: in each, every rank has to be scheduled once. */
#define OVERSUBSCRIBED_CHUNK_BYTES (192u << 10)
#define STREAM_FROM (8u << 20)

/* The payload of a rank's first step: where its buffers are, if they lie in the heap. */
struct combine_refs {
    struct heap_ref input, result;
};

struct combine {
    struct shm_group *g;
    const struct collrun_call *call;
    struct signature signature;
    size_t len;          /* bytes of the vector */
    size_t chunk, share; /* bytes; share is a whole number of lines, chunk = n shares */
    uint64_t first_step;
    bool receives, stream, any_direct;
    struct combine_refs mine;
};

static size_t combine_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t combine_chunk_len(const struct combine *c, size_t t)
{
    const size_t at = t * c->chunk;
    return at < c->len ? combine_min(c->chunk, c->len - at) : 0;
}

/* Bytes of a rank's share of chunk t; the last shares of the last chunk may be short or empty. */
static size_t combine_share_len(const struct combine *c, size_t t, uint32_t rank)
{
    const size_t len = combine_chunk_len(c, t);
    const size_t at = rank * c->share;
    return at < len ? combine_min(c->share, len - at) : 0;
}

/* Bytes that a rank's input of chunk t takes in step t. */
static size_t combine_input_len(const struct combine *c, uint32_t rank, size_t t)
{
    return c->g->coll.in[rank].direct
               ? 0
               : (combine_chunk_len(c, t) + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

/* Copies chunk t, except for this rank's share, to where the others read it. */
static void combine_copy_input(const struct combine *c, char *room, size_t t)
{
    const char *from = (const char *)c->call->send + t * c->chunk;
    const size_t len = combine_chunk_len(c, t);
    const size_t own = combine_min(c->g->rank * c->share, len);
    const size_t after = combine_min(own + c->share, len);
    copy_out(&c->g->copy_policy, room, from, own);
    copy_out(&c->g->copy_policy, room + after, from + after, len - after);
}

/* Reduces this rank's share of chunk t from the inputs of all ranks, into the receive buffer and to
 * where the others read it. */
static int combine_reduce_share(struct combine *c, char *room, size_t t)
{
    struct shm_group *g = c->g;
    const size_t at = g->rank * c->share;
    const size_t len = combine_share_len(c, t, g->rank);
    char *recv = c->receives ? (char *)c->call->recv + t * c->chunk + at : NULL;
    for (uint32_t r = 0; len > 0 && r < g->nranks; r++) {
        if (r == g->rank)
            g->coll.srcs[r] = (const char *)c->call->send + t * c->chunk + at;
        else if (g->coll.in[r].direct)
            g->coll.srcs[r] = g->coll.in[r].direct + t * c->chunk + at;
        else
            g->coll.srcs[r] = step_data(g, r, c->first_step + t, at + len) + at;
    }
    const int status = abortable_reduce(g, recv ? recv : room, g->coll.srcs, len, c->call, false);
    if (status == COLLRUN_OK && recv && !heap_ref_is_set(c->mine.result))
        copy_out(&g->copy_policy, room, recv, len);
    return status;
}

/* Collects the shares that the others have reduced of chunk t and published in step t + 1. */
static int combine_collect(struct combine *c, size_t t)
{
    struct shm_group *g = c->g;
    for (uint32_t k = 1; c->receives && k < g->nranks; k++) {
        const uint32_t r = (g->rank + k) % g->nranks;
        const size_t at = t * c->chunk + r * c->share;
        const size_t len = combine_share_len(c, t, r);
        const char *from = g->coll.out[r].direct ? g->coll.out[r].direct + at : NULL;
        if (len > 0 && !from) {
            const size_t input = combine_input_len(c, r, t + 1);
            from = step_data(g, r, c->first_step + t + 1, input + len) + input;
        }
        const int status = len > 0
                               ? abortable_copy(g, (char *)c->call->recv + at, from, len, c->stream)
                               : COLLRUN_OK;
        if (status != COLLRUN_OK)
            return status;
    }
    return COLLRUN_OK;
}

/* After step 0: finds the buffers that are read in place. */
static int combine_start(struct combine *c)
{
    struct shm_group *g = c->g;
    int status = COLLRUN_OK;
    c->any_direct = heap_ref_is_set(c->mine.input) || heap_ref_is_set(c->mine.result);
    for (uint32_t r = 0; status == COLLRUN_OK && r < g->nranks; r++) {
        struct combine_refs refs;
        if (r == g->rank)
            continue;
        memcpy(&refs, step_rec_of(g, r, c->first_step)->payload, sizeof refs);
        c->any_direct |= heap_ref_is_set(refs.input) || heap_ref_is_set(refs.result);
        if (heap_ref_is_set(refs.input) &&
            !(g->coll.in[r].direct = heap_at(g, r, refs.input, c->len)))
            status = shm_group_report_failure(g);
        else if (heap_ref_is_set(refs.result) &&
                 !(g->coll.out[r].direct = heap_at(g, r, refs.result, c->len)))
            status = shm_group_report_failure(g);
    }
    return status;
}

/* The payload of the first step has the references: short data goes to the slot. */
static size_t combine_room(size_t len, size_t t)
{
    return t == 0 && len > 0 && len <= PAYLOAD_BYTES ? PAYLOAD_BYTES + 1 : len;
}

/* Step t, until it is published; for t > 0 this waits for step t - 1. */
static int combine_step(struct combine *c, size_t t)
{
    struct shm_group *g = c->g;
    const size_t input = heap_ref_is_set(c->mine.input) ? 0 : combine_input_len(c, g->rank, t);
    const bool in_heap = heap_ref_is_set(c->mine.result);
    const size_t result = t > 0 && !in_heap ? combine_share_len(c, t - 1, g->rank) : 0;
    char *room = step_reserve(g, combine_room(input + result, t));
    if (input > 0)
        combine_copy_input(c, room, t);
    if (t == 0) {
        step_write_payload(g, &c->mine, sizeof c->mine);
        step_publish(g, &c->signature);
        return COLLRUN_OK;
    }
    int status = step_wait(g, g->step.last);
    if (status == COLLRUN_OK && t == 1)
        status = combine_start(c);
    if (status == COLLRUN_OK)
        status = combine_reduce_share(c, room + input, t - 1);
    if (status == COLLRUN_OK)
        step_publish(g, NULL);
    return status;
}

static struct combine combine_init(struct shm_group *g, const struct collrun_call *call)
{
    struct combine c = {.g = g, .call = call, .signature = signature_of(call)};
    const size_t most = g->wait.oversubscribed ? OVERSUBSCRIBED_CHUNK_BYTES : CHUNK_BYTES;
    c.len = call->count * g->services->dtype_size(call->dtype);
    c.receives = call->kind == COLLRUN_ALLREDUCE || (uint32_t)call->root == g->rank;
    c.stream = c.len >= STREAM_FROM && call->send != call->recv;
    c.share = (combine_min(c.len, most) + g->nranks - 1) / g->nranks;
    c.share = (c.share + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    c.chunk = c.share * g->nranks;
    c.mine.input = heap_find(g, call->send, c.len);
    c.mine.result = c.receives ? heap_find(g, call->recv, c.len) : HEAP_REF_NONE;
    c.first_step = g->step.last + 1;
    return c;
}

static int combine_run(struct shm_group *g, const struct collrun_call *call)
{
    struct combine c = combine_init(g, call);
    const size_t nchunks = (c.len + c.chunk - 1) / c.chunk;
    int status = COLLRUN_OK;
    for (size_t t = 0; status == COLLRUN_OK && t <= nchunks; t++) {
        status = combine_step(&c, t);
        if (status == COLLRUN_OK && t > 1)
            status = combine_collect(&c, t - 2);
    }
    if (status == COLLRUN_OK)
        status = step_wait(g, g->step.last);
    if (status == COLLRUN_OK)
        status = combine_collect(&c, nchunks - 1);
    return status == COLLRUN_OK && c.any_direct ? step_end_direct(g) : status;
}

/* ---- the calls ---- */

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
