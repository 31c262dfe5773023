/* SPDX-License-Identifier: Apache-2.0
 *
 * See exchange.h. Block: all that one rank sends to another. Piece: the part of a block that one
 * step moves.
 */
#include "exchange.h"

#include "explain.h"
#include "slices.h"
#include "wait.h"

#include <string.h>

/* Own and foreign data of a step stay in the second-level cache. */
#define EVEN_CHUNK (128u << 10)
/* Where only some ranks send, shorter steps let the receivers start early. */
#define ONE_SIDED_LEAST (8u << 10)
#define ONE_SIDED_PARTS 8u
/* A rank that receives less than this finds it in its cache afterwards. */
#define STREAM_FROM (8u << 20)

/* What a sender announces in an uneven call: first the longest block, then an entry per block. */
struct announcement {
    uint64_t len;
    struct heap_ref ref;
};

static size_t part_len(size_t len, size_t done, size_t piece)
{
    const size_t rest = len > done ? len - done : 0;
    return rest < piece ? rest : piece;
}

/* The block that this rank sends to `rank`. */
static const struct piece *out_block(const struct exchange *x, uint32_t rank)
{
    return &x->g->out[x->personal ? rank : 0];
}

static bool is_somewhere(struct heap_ref ref)
{
    return ref.offset != HEAP_NOWHERE.offset;
}

/* Where the first block lies, if all of them lie in the heap. Even blocks lie one after the other.
 */
static struct heap_ref find_blocks(const struct exchange *x)
{
    const struct shm_group *g = x->g;
    struct heap_ref first = HEAP_NOWHERE;
    for (uint32_t j = 0; j < (x->personal ? g->nranks : 1) && !x->overwrites; j++) {
        const struct heap_ref ref = heap_find(g, g->out[j].at, g->out[j].len);
        if (g->out[j].len > 0 && !is_somewhere(ref))
            return HEAP_NOWHERE;
        if (!is_somewhere(first))
            first = ref;
    }
    return first;
}

/* ---- the announcement of uneven calls ---- */

static void announce(struct exchange *x)
{
    struct shm_group *g = x->g;
    const uint32_t nblocks = x->personal ? g->nranks : 1;
    struct announcement *a =
        (void *)step_room(g, (size_t)(nblocks + 1) * sizeof(struct announcement));
    for (uint32_t j = 0; j < nblocks; j++) {
        const struct piece *block = &g->out[j];
        a[1 + j] = (struct announcement){block->len, HEAP_NOWHERE};
        if (is_somewhere(x->ref))
            a[1 + j].ref = heap_find(g, block->at, block->len);
        if (block->len > x->longest)
            x->longest = block->len;
    }
    a[0] = (struct announcement){x->longest, HEAP_NOWHERE};
    step_post(g, &x->signature);
}

static int uneven_mismatch(struct exchange *x, uint32_t from, uint64_t sent, uint64_t expected)
{
    char what[128];
    explain_signature(&x->signature, what, sizeof(what));
    return group_fail(x->g, COLLRUN_ERR_MISMATCH,
                      "%s: rank %u sends %llu elements to rank %u, which receives %llu", what, from,
                      (unsigned long long)sent, x->g->rank, (unsigned long long)expected);
}

/* What `from` has announced to this rank. */
static int hear(struct exchange *x, uint32_t from)
{
    struct shm_group *g = x->g;
    struct announcement a[2] = {{0, HEAP_NOWHERE}, {out_block(x, g->rank)->len, HEAP_NOWHERE}};
    if (from != g->rank) {
        const char *data = step_data(g, from, g->step);
        memcpy(&a[0], data, sizeof(a[0]));
        memcpy(&a[1], data + sizeof(a[0]) * (1 + (x->personal ? g->rank : 0)), sizeof(a[1]));
    }
    if (a[0].len > x->longest)
        x->longest = (size_t)a[0].len;
    if (!x->receives)
        return COLLRUN_OK;
    if (a[1].len != g->in[from].len)
        return uneven_mismatch(x, from, a[1].len / x->elem, g->in[from].len / x->elem);
    if (!is_somewhere(a[1].ref))
        return COLLRUN_OK;
    g->in[from].direct = heap_at(g, from, a[1].ref);
    return g->in[from].direct ? COLLRUN_OK : group_failure(g);
}

/* Compares what the ranks announced with what this one expects, and finds the longest block of all.
 */
static int hear_all(struct exchange *x)
{
    struct shm_group *g = x->g;
    int status = step_wait(g, g->step);
    if (status == COLLRUN_OK)
        status = step_check(g, g->step, &x->signature);
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->nranks; i++)
        status = hear(x, i);
    return status;
}

/* ---- sending ---- */

static void plan_pieces(struct exchange *x)
{
    const size_t share = x->personal ? x->g->nranks : 1;
    size_t chunk = EVEN_CHUNK;
    if (x->g->crowded)
        chunk = STEP_MOST; /* every step costs a turn of all ranks on the cores */
    else if (!x->even_load && x->longest * share / ONE_SIDED_PARTS < chunk)
        chunk = x->longest * share / ONE_SIDED_PARTS;
    if (chunk < ONE_SIDED_LEAST)
        chunk = ONE_SIDED_LEAST;
    x->piece = chunk / share / LINE_BYTES * LINE_BYTES;
    if (x->piece == 0)
        x->piece = LINE_BYTES;
    if (x->longest < x->piece)
        x->piece = x->longest;
}

/* The piece of each receiver's block, at its place among pieces of equal room. */
static void put_personal(struct exchange *x, size_t done)
{
    struct shm_group *g = x->g;
    size_t total = 0;
    for (uint32_t j = 0; j < g->nranks; j++)
        if (j != g->rank && g->out[j].len > done)
            total = (j + 1) * x->piece;
    char *room = step_room(g, total);
    for (uint32_t j = 0; j < g->nranks; j++) {
        const size_t len = part_len(g->out[j].len, done, x->piece);
        if (j != g->rank && len > 0)
            copy_out(&g->pace, room + j * x->piece, g->out[j].at + done, len);
    }
}

static void produce(struct exchange *x, size_t done)
{
    struct shm_group *g = x->g;
    const size_t len = part_len(g->out[0].len, done, x->piece);
    if (is_somewhere(x->ref) && done == 0)
        step_refer(g, x->ref);
    else if (is_somewhere(x->ref) || g->nranks == 1)
        step_room(g, 0);
    else if (x->personal)
        put_personal(x, done);
    else if (len > 0)
        copy_out(&g->pace, step_room(g, len), g->out[0].at + done, len);
    else
        step_room(g, 0);
    if (done == 0)
        x->place = g->place;
    step_post(g, done == 0 && !x->uneven ? &x->signature : NULL);
}

/* ---- receiving ---- */

/* Where `rank` has put what it sends, in the first data step. */
static uint32_t place_of(const struct exchange *x, uint32_t rank)
{
    return rank == x->g->rank ? x->place : step_post_of(x->g, rank, x->first_step)->at;
}

/* After the first data step: who is to be read in place. */
static int find_direct(struct exchange *x)
{
    struct shm_group *g = x->g;
    bool copied = false;
    for (uint32_t i = 0; i < g->nranks; i++) {
        const uint32_t place = place_of(x, i);
        copied |= place != POST_DIRECT && place != POST_NOTHING;
        x->some_direct |= place == POST_DIRECT;
        if (place != POST_DIRECT || x->uneven || i == g->rank)
            continue; /* known from the announcement; not needed */
        struct heap_ref ref;
        memcpy(&ref, step_post_of(g, i, x->first_step)->payload, sizeof(ref));
        if (x->personal)
            ref.offset += g->rank * x->longest;
        if (!(g->in[i].direct = heap_at(g, i, ref)))
            return group_failure(g);
    }
    x->all_direct = x->some_direct && !copied;
    return COLLRUN_OK;
}

static const char *arrived_from(const struct exchange *x, uint32_t rank, size_t done, uint64_t step)
{
    const struct shm_group *g = x->g;
    if (rank == g->rank)
        return out_block(x, rank)->at + done;
    if (g->in[rank].direct)
        return g->in[rank].direct + done;
    return step_data(g, rank, step) + (x->personal ? g->rank * x->piece : 0);
}

static int deliver_blocks(struct exchange *x, size_t done, size_t piece, uint64_t step)
{
    struct shm_group *g = x->g;
    for (uint32_t k = 1; k <= g->nranks; k++) {
        const uint32_t i = (g->rank + k) % g->nranks;
        const size_t len = part_len(g->in[i].len, done, piece);
        if (len == 0)
            continue;
        const int status =
            copy_slices(g, g->in[i].at + done, arrived_from(x, i, done, step), len, x->stream);
        if (status != COLLRUN_OK)
            return status;
    }
    return COLLRUN_OK;
}

static int deliver_reduced(struct exchange *x, size_t done, size_t piece, uint64_t step)
{
    struct shm_group *g = x->g;
    const size_t len = part_len(g->in[g->rank].len, done, piece);
    for (uint32_t i = 0; len > 0 && i < g->nranks; i++)
        g->srcs[i] = arrived_from(x, i, done, step);
    return reduce_slices(g, x->into + done, len, x->call, x->stream);
}

static int consume(struct exchange *x, size_t done, uint64_t step)
{
    struct shm_group *g = x->g;
    int status = step_wait(g, step);
    if (status == COLLRUN_OK && done == 0) {
        if (!x->uneven)
            status = step_check(g, step, &x->signature);
        if (status == COLLRUN_OK)
            status = find_direct(x);
    }
    if (status != COLLRUN_OK)
        return status;
    const size_t piece = x->all_direct ? SIZE_MAX : x->piece;
    return x->into ? deliver_reduced(x, done, piece, step) : deliver_blocks(x, done, piece, step);
}

/* ---- the whole ---- */

static int prepare(struct exchange *x)
{
    struct shm_group *g = x->g;
    size_t incoming = 0;
    x->elem = g->services->dtype_size(x->call->dtype);
    x->signature = signature_of(x->call);
    x->ref = find_blocks(x);
    if (x->uneven) {
        announce(x);
        const int status = hear_all(x);
        if (status != COLLRUN_OK)
            return status;
    }
    for (uint32_t i = 0; i < g->nranks; i++)
        incoming += x->into && i != g->rank ? 0 : g->in[i].len;
    x->stream = incoming >= STREAM_FROM && !x->overwrites;
    plan_pieces(x);
    x->first_step = g->step + 1;
    return COLLRUN_OK;
}

int exchange_run(struct exchange *x)
{
    struct shm_group *g = x->g;
    int status = prepare(x);
    size_t done = 0;
    bool more = true;
    if (status != COLLRUN_OK)
        return status;
    produce(x, 0);
    while (more) {
        const uint64_t step = g->step;
        more = x->longest - done > x->piece;
        if (more)
            produce(x, done + x->piece);
        status = consume(x, done, step);
        if (status != COLLRUN_OK)
            return status;
        more &= !x->all_direct;
        done += x->piece;
    }
    if (!x->some_direct)
        return COLLRUN_OK;
    step_room(g, 0);
    step_post(g, NULL);
    return step_wait(g, g->step);
}
