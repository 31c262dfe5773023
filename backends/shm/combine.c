/* SPDX-License-Identifier: Apache-2.0
 *
 * The vector is cut into chunks, a chunk into one share per rank. Step t carries two things: this
 * rank's copy of chunk t (the input), and its reduced share of chunk t - 1 (the result). So K
 * chunks take K + 1 steps:
 *
 *     post 0: input 0
 *     wait 0, reduce share 0, post 1: input 1 and result 0
 *     wait 1, reduce share 1, post 2: input 2 and result 1; collect results 0 from step 1
 *     ...
 *     wait K, collect results K - 1 from step K
 *
 * A send buffer in the shared heap replaces the input, a receive buffer there replaces the result;
 * then one more step at the end tells that nobody reads them any more.
 */
#include "combine.h"

#include "copy.h"
#include "slices.h"
#include "step.h"
#include "wait.h"

#include <string.h>

#define CHUNK_BYTES (128u << 10)
#define CROWDED_CHUNK_BYTES (192u << 10) /* fewer steps, each of which is a turn of all ranks */
#define STREAM_FROM (8u << 20)

/* What a rank says about itself in the payload of the first step. */
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

static bool is_somewhere(struct heap_ref ref)
{
    return ref.offset != HEAP_NOWHERE.offset;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t chunk_len(const struct combine *c, size_t t)
{
    const size_t at = t * c->chunk;
    return at < c->len ? least(c->chunk, c->len - at) : 0;
}

/* Bytes of a rank's share of chunk t; the last shares of the last chunk may be short or empty. */
static size_t share_len(const struct combine *c, size_t t, uint32_t rank)
{
    const size_t len = chunk_len(c, t);
    const size_t at = rank * c->share;
    return at < len ? least(c->share, len - at) : 0;
}

/* Room that a rank's input of chunk t takes in step t. */
static size_t input_room(const struct combine *c, uint32_t rank, size_t t)
{
    return c->g->in[rank].direct ? 0 : (chunk_len(c, t) + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

/* Copies chunk t, but for the own share, to where the others read it. */
static void copy_input(const struct combine *c, char *room, size_t t)
{
    const char *from = (const char *)c->call->send + t * c->chunk;
    const size_t len = chunk_len(c, t);
    const size_t own = least(c->g->rank * c->share, len);
    const size_t after = least(own + c->share, len);
    copy_out(&c->g->pace, room, from, own);
    copy_out(&c->g->pace, room + after, from + after, len - after);
}

/* Reduces the own share of chunk t from everybody's input, into the receive buffer and to where the
 * others read it. */
static int reduce_share(struct combine *c, char *room, size_t t)
{
    struct shm_group *g = c->g;
    const size_t at = g->rank * c->share;
    const size_t len = share_len(c, t, g->rank);
    char *recv = c->receives ? (char *)c->call->recv + t * c->chunk + at : NULL;
    for (uint32_t r = 0; len > 0 && r < g->nranks; r++) {
        if (r == g->rank)
            g->srcs[r] = (const char *)c->call->send + t * c->chunk + at;
        else if (g->in[r].direct)
            g->srcs[r] = g->in[r].direct + t * c->chunk + at;
        else
            g->srcs[r] = step_data(g, r, c->first_step + t) + at;
    }
    const int status = reduce_slices(g, recv ? recv : room, len, c->call, false);
    if (status == COLLRUN_OK && recv && !is_somewhere(c->mine.result))
        copy_out(&g->pace, room, recv, len);
    return status;
}

/* Collects the others' shares of chunk t, which they posted in step t + 1. */
static int collect(struct combine *c, size_t t)
{
    struct shm_group *g = c->g;
    for (uint32_t k = 1; c->receives && k < g->nranks; k++) {
        const uint32_t r = (g->rank + k) % g->nranks;
        const size_t at = t * c->chunk + r * c->share;
        const size_t len = share_len(c, t, r);
        const char *from = g->out[r].direct ? g->out[r].direct + at : NULL;
        if (len > 0 && !from)
            from = step_data(g, r, c->first_step + t + 1) + input_room(c, r, t + 1);
        const int status =
            len > 0 ? copy_slices(g, (char *)c->call->recv + at, from, len, c->stream) : COLLRUN_OK;
        if (status != COLLRUN_OK)
            return status;
    }
    return COLLRUN_OK;
}

/* After step 0: everybody means the same call; who is to be read in place. */
static int meet(struct combine *c)
{
    struct shm_group *g = c->g;
    int status = step_check(g, c->first_step, &c->signature);
    c->any_direct = is_somewhere(c->mine.input) || is_somewhere(c->mine.result);
    for (uint32_t r = 0; status == COLLRUN_OK && r < g->nranks; r++) {
        struct combine_refs refs;
        if (r == g->rank)
            continue;
        memcpy(&refs, step_post_of(g, r, c->first_step)->payload, sizeof(refs));
        c->any_direct |= is_somewhere(refs.input) || is_somewhere(refs.result);
        if (is_somewhere(refs.input) && !(g->in[r].direct = heap_at(g, r, refs.input)))
            status = group_failure(g);
        else if (is_somewhere(refs.result) && !(g->out[r].direct = heap_at(g, r, refs.result)))
            status = group_failure(g);
    }
    return status;
}

/* Step t, up to its post; for t > 0 this waits for step t - 1. */
static int advance(struct combine *c, size_t t)
{
    struct shm_group *g = c->g;
    const size_t input = is_somewhere(c->mine.input) ? 0 : input_room(c, g->rank, t);
    const bool in_heap = is_somewhere(c->mine.result);
    const size_t result = t > 0 && !in_heap ? share_len(c, t - 1, g->rank) : 0;
    char *room = step_room(g, input + result);
    if (input > 0)
        copy_input(c, room, t);
    if (t == 0) {
        step_note(g, &c->mine, sizeof(c->mine));
        step_post(g, &c->signature);
        return COLLRUN_OK;
    }
    int status = step_wait(g, g->step);
    if (status == COLLRUN_OK && t == 1)
        status = meet(c);
    if (status == COLLRUN_OK)
        status = reduce_share(c, room + input, t - 1);
    if (status == COLLRUN_OK)
        step_post(g, NULL);
    return status;
}

static struct combine combine_of(struct shm_group *g, const struct collrun_call *call)
{
    struct combine c = {.g = g, .call = call, .signature = signature_of(call)};
    const size_t most = g->crowded ? CROWDED_CHUNK_BYTES : CHUNK_BYTES;
    c.len = call->count * g->services->dtype_size(call->dtype);
    c.receives = call->kind == COLLRUN_ALLREDUCE || (uint32_t)call->root == g->rank;
    c.stream = c.len >= STREAM_FROM && call->send != call->recv;
    c.share = (least(c.len, most) + g->nranks - 1) / g->nranks;
    c.share = (c.share + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    c.chunk = c.share * g->nranks;
    c.mine.input = heap_find(g, call->send, c.len);
    c.mine.result = c.receives ? heap_find(g, call->recv, c.len) : HEAP_NOWHERE;
    c.first_step = g->step + 1;
    return c;
}

int combine_run(struct shm_group *g, const struct collrun_call *call)
{
    struct combine c = combine_of(g, call);
    const size_t nchunks = (c.len + c.chunk - 1) / c.chunk;
    int status = COLLRUN_OK;
    for (size_t t = 0; status == COLLRUN_OK && t <= nchunks; t++) {
        status = advance(&c, t);
        if (status == COLLRUN_OK && t > 1)
            status = collect(&c, t - 2);
    }
    if (status == COLLRUN_OK)
        status = step_wait(g, g->step);
    if (status == COLLRUN_OK)
        status = collect(&c, nchunks - 1);
    if (status != COLLRUN_OK || !c.any_direct)
        return status;
    step_room(g, 0);
    step_post(g, NULL);
    return step_wait(g, g->step);
}
