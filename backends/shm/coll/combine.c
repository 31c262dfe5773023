/* SPDX-License-Identifier: Apache-2.0
 *
 * See combine.h. The vector is cut into chunks, a chunk into one share per rank. Step t carries two
 * things: this rank's copy of chunk t (the input), and its reduced share of chunk t - 1 (the
 * result). K chunks take K + 1 steps:
 *
 *     publish 0: input 0
 *     wait 0, reduce share 0, publish 1: input 1 and result 0
 *     wait 1, reduce share 1, publish 2: input 2 and result 1; collect results 0 from step 1
 *     ...
 *     wait K, collect results K - 1 from step K
 *
 * A send buffer in the shared heap replaces the input, a receive buffer there replaces the result.
 * One more step at the end then confirms that no rank reads them any more.
 */
#include "coll/combine.h"

#include "coll/step.h"
#include "transport/abortable.h"
#include "transport/copy.h"

#include <string.h>

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

int combine_run(struct shm_group *g, const struct collrun_call *call)
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
