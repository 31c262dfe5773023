/* SPDX-License-Identifier: Apache-2.0
 *
 * See exchange.h. A block is all that one rank sends to another; a piece is the part of a block
 * that moves in one step.
 */
#include "coll/exchange.h"

#include "transport/abortable.h"
#include "transport/copy.h"

#include <string.h>

/* The data of this rank and of the others in one step stay in the second-level cache. */
#define EXCHANGE_CHUNK (128u << 10)
/* Where only some ranks send, shorter steps let the receivers start earlier. */
#define ONE_SIDED_MIN (8u << 10)
#define ONE_SIDED_PARTS 8u
/* A rank that receives less than this finds the data in its cache afterwards. */
#define STREAM_FROM (8u << 20)

/* What a sender announces in a vector form: first its longest block, then an entry per block. */
struct announcement {
    uint64_t len;
    struct heap_ref ref;
};

/* Bytes of the piece at `done` of a block of `len` bytes. */
static size_t exchange_part_len(size_t len, size_t done, size_t piece)
{
    const size_t rest = len > done ? len - done : 0;
    return rest < piece ? rest : piece;
}

/* The block that this rank sends to `rank`. */
static const struct coll_block *exchange_out_block(const struct exchange *x, uint32_t rank)
{
    return &x->g->coll.out[x->personalized ? rank : 0];
}

/* The address of the first block if all blocks lie in the heap; without vector forms they are
 * contiguous, so the first one locates all. */
static struct heap_ref exchange_find_heap_ref(const struct exchange *x)
{
    const struct shm_group *g = x->g;
    struct heap_ref first = HEAP_REF_NONE;
    for (uint32_t j = 0; j < (x->personalized ? g->nranks : 1) && !x->in_place; j++) {
        const struct heap_ref ref = heap_find(g, g->coll.out[j].data, g->coll.out[j].len);
        if (g->coll.out[j].len > 0 && !heap_ref_is_set(ref))
            return HEAP_REF_NONE;
        if (!heap_ref_is_set(first))
            first = ref;
    }
    return first;
}

/* True if no other rank reads this one's block. */
static bool exchange_is_silent(const struct exchange *x)
{
    const enum collrun_kind kind = x->call->kind;
    const bool to_root =
        kind == COLLRUN_GATHER || kind == COLLRUN_GATHERV || kind == COLLRUN_REDUCE;
    return to_root && (uint32_t)x->call->root == x->g->rank;
}

/* ---- announcements of vector forms ---- */

static void exchange_announce(struct exchange *x)
{
    struct shm_group *g = x->g;
    const uint32_t nblocks = x->personalized ? g->nranks : 1;
    struct announcement *a =
        (void *)step_reserve(g, (size_t)(nblocks + 1) * sizeof(struct announcement));
    for (uint32_t j = 0; j < nblocks; j++) {
        const struct coll_block *block = &g->coll.out[j];
        a[1 + j] = (struct announcement){block->len, HEAP_REF_NONE};
        if (heap_ref_is_set(x->ref))
            a[1 + j].ref = heap_find(g, block->data, block->len);
        if (block->len > x->longest)
            x->longest = block->len;
    }
    a[0] = (struct announcement){x->longest, HEAP_REF_NONE};
    step_publish(g, &x->signature);
}

static int exchange_count_mismatch(struct exchange *x, uint32_t from, uint64_t sent,
                                   uint64_t expected)
{
    const struct collrun_services *services = x->g->services;
    const struct collrun_count_mismatch counts = {.call = x->call,
                                                  .sent = sent,
                                                  .received = expected,
                                                  .sender = from,
                                                  .receiver = x->g->rank};
    char text[256];
    services->count_mismatch_text(services->ctx, &counts, text, sizeof text);
    return shm_group_fail(x->g, COLLRUN_ERR_MISMATCH, "%s", text);
}

/* Reads what `from` has announced to this rank and compares it with what this rank expects. */
static int exchange_read_announcement(struct exchange *x, uint32_t from)
{
    struct shm_group *g = x->g;
    struct announcement a[2] = {{0, HEAP_REF_NONE},
                                {exchange_out_block(x, g->rank)->len, HEAP_REF_NONE}};
    if (from != g->rank) {
        const size_t all = sizeof a[0] * (1 + (x->personalized ? g->nranks : 1));
        const char *data = step_data(g, from, g->step.last, all);
        memcpy(&a[0], data, sizeof a[0]);
        memcpy(&a[1], data + sizeof a[0] * (1 + (x->personalized ? g->rank : 0)), sizeof a[1]);
    }
    if (a[0].len > x->longest)
        x->longest = (size_t)a[0].len;
    if (!x->receives)
        return COLLRUN_OK;
    if (a[1].len != g->coll.in[from].len)
        return exchange_count_mismatch(x, from, a[1].len / x->elem, g->coll.in[from].len / x->elem);
    if (!heap_ref_is_set(a[1].ref))
        return COLLRUN_OK;
    g->coll.in[from].direct = heap_at(g, from, a[1].ref, g->coll.in[from].len);
    return g->coll.in[from].direct ? COLLRUN_OK : shm_group_report_failure(g);
}

/* Reads all announcements; finds the longest block of all ranks. */
static int exchange_read_announcements(struct exchange *x)
{
    struct shm_group *g = x->g;
    int status = step_wait(g, g->step.last);
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->nranks; i++)
        status = exchange_read_announcement(x, i);
    return status;
}

/* ---- sending ---- */

static void exchange_plan_pieces(struct exchange *x)
{
    const size_t share = x->personalized ? x->g->nranks : 1;
    size_t chunk = EXCHANGE_CHUNK;
    if (x->g->wait.oversubscribed)
        chunk = STEP_MAX_BYTES; /* in every step, every rank has to be scheduled once */
    else if (!x->symmetric && x->longest * share / ONE_SIDED_PARTS < chunk)
        chunk = x->longest * share / ONE_SIDED_PARTS;
    if (chunk < ONE_SIDED_MIN)
        chunk = ONE_SIDED_MIN;
    x->piece = chunk / share / LINE_BYTES * LINE_BYTES;
    if (x->piece == 0)
        x->piece = LINE_BYTES;
    if (x->longest < x->piece)
        x->piece = x->longest;
}

/* Copies the piece of each receiver's block to its own slice of the room; all slices are alike. */
static void exchange_copy_blocks(struct exchange *x, size_t done)
{
    struct shm_group *g = x->g;
    size_t total = 0;
    for (uint32_t j = 0; j < g->nranks; j++)
        if (j != g->rank && g->coll.out[j].len > done)
            total = (j + 1) * x->piece;
    char *room = step_reserve(g, total);
    for (uint32_t j = 0; j < g->nranks; j++) {
        const size_t len = exchange_part_len(g->coll.out[j].len, done, x->piece);
        if (j != g->rank && len > 0)
            copy_out(&g->copy_policy, room + j * x->piece, g->coll.out[j].data + done, len);
    }
}

static void exchange_send(struct exchange *x, size_t done)
{
    struct shm_group *g = x->g;
    const size_t len = exchange_part_len(g->coll.out[0].len, done, x->piece);
    if (x->is_silent)
        step_reserve(g, 0);
    else if (heap_ref_is_set(x->ref) && done == 0)
        step_set_heap_ref(g, x->ref);
    else if (heap_ref_is_set(x->ref) || g->nranks == 1)
        step_reserve(g, 0);
    else if (x->personalized)
        exchange_copy_blocks(x, done);
    else if (len > 0)
        copy_out(&g->copy_policy, step_reserve(g, len), g->coll.out[0].data + done, len);
    else
        step_reserve(g, 0);
    if (done == 0)
        x->location = g->step.location;
    step_publish(g, done == 0 && !x->vector ? &x->signature : NULL);
}

/* ---- receiving ---- */

/* Where the data of `rank` lies in the first data step. */
static uint32_t exchange_location(const struct exchange *x, uint32_t rank)
{
    return rank == x->g->rank ? x->location : step_rec_of(x->g, rank, x->first_step)->location;
}

/* After the first data step: finds the ranks whose blocks are read in place. */
static int exchange_find_direct(struct exchange *x)
{
    struct shm_group *g = x->g;
    bool copied = false;
    for (uint32_t i = 0; i < g->nranks; i++) {
        const uint32_t location = exchange_location(x, i);
        copied |= location != STEP_IN_HEAP && location != STEP_NO_DATA;
        x->some_direct |= location == STEP_IN_HEAP;
        if (location != STEP_IN_HEAP || x->vector || i == g->rank)
            continue; /* not in the heap, known from the announcement, or not needed */
        struct heap_ref ref;
        memcpy(&ref, step_rec_of(g, i, x->first_step)->payload, sizeof ref);
        if (x->personalized)
            ref.offset += g->rank * x->longest;
        if (!(g->coll.in[i].direct = heap_at(g, i, ref, g->coll.in[i].len)))
            return shm_group_report_failure(g);
    }
    x->all_direct = x->some_direct && !copied;
    return COLLRUN_OK;
}

/* Where the piece at `done` of the block from `rank` lies, of `len` bytes. */
static const char *exchange_source(const struct exchange *x, uint32_t rank, size_t done, size_t len,
                                   uint64_t step)
{
    const struct shm_group *g = x->g;
    if (rank == g->rank)
        return exchange_out_block(x, rank)->data + done;
    if (g->coll.in[rank].direct)
        return g->coll.in[rank].direct + done;
    const size_t at = x->personalized ? g->rank * x->piece : 0;
    return step_data(g, rank, step, at + len) + at;
}

/* Delivers the piece at `done` of the block from `rank`, of at most `piece` bytes. */
static int exchange_deliver_from(struct exchange *x, uint32_t rank, size_t done, size_t piece,
                                 uint64_t step)
{
    struct shm_group *g = x->g;
    const size_t len = exchange_part_len(g->coll.in[rank].len, done, piece);
    if (len == 0)
        return COLLRUN_OK;
    return abortable_copy(g, g->coll.in[rank].data + done,
                          exchange_source(x, rank, done, len, step), len, x->stream);
}

/* The block that this rank has for itself, while the others publish theirs: a piece in each step,
 * or in the first one all of a block in the heap. */
static int exchange_deliver_own(struct exchange *x, size_t done, uint64_t step)
{
    const bool whole = x->location == STEP_IN_HEAP;
    if (!x->own_first || (whole && done > 0))
        return COLLRUN_OK;
    return exchange_deliver_from(x, x->g->rank, done, whole ? SIZE_MAX : x->piece, step);
}

static int exchange_deliver(struct exchange *x, size_t done, size_t piece, uint64_t step)
{
    const struct shm_group *g = x->g;
    const uint32_t blocks = x->own_first ? g->nranks - 1 : g->nranks;
    int status = COLLRUN_OK;
    for (uint32_t k = 1; status == COLLRUN_OK && k <= blocks; k++)
        status = exchange_deliver_from(x, (g->rank + k) % g->nranks, done, piece, step);
    return status;
}

static int exchange_reduce(struct exchange *x, size_t done, size_t piece, uint64_t step)
{
    struct shm_group *g = x->g;
    const size_t len = exchange_part_len(g->coll.in[g->rank].len, done, piece);
    for (uint32_t i = 0; len > 0 && i < g->nranks; i++)
        g->coll.srcs[i] = exchange_source(x, i, done, len, step);
    return abortable_reduce(g, x->reduce_into + done, g->coll.srcs, len, x->call, x->stream);
}

static int exchange_receive(struct exchange *x, size_t done, uint64_t step)
{
    struct shm_group *g = x->g;
    int status = exchange_deliver_own(x, done, step);
    if (status == COLLRUN_OK)
        status = step_wait(g, step);
    if (status == COLLRUN_OK && done == 0)
        status = exchange_find_direct(x);
    if (status != COLLRUN_OK)
        return status;
    const size_t piece = x->all_direct ? SIZE_MAX : x->piece;
    return x->reduce_into ? exchange_reduce(x, done, piece, step)
                          : exchange_deliver(x, done, piece, step);
}

/* ---- the whole exchange ---- */

static int exchange_prepare(struct exchange *x)
{
    struct shm_group *g = x->g;
    size_t incoming = 0;
    x->elem = g->services->dtype_size(x->call->dtype);
    x->signature = signature_of(x->call);
    x->ref = exchange_find_heap_ref(x);
    if (x->vector) {
        exchange_announce(x);
        const int status = exchange_read_announcements(x);
        if (status != COLLRUN_OK)
            return status;
    }
    for (uint32_t i = 0; i < g->nranks; i++)
        incoming += x->reduce_into && i != g->rank ? 0 : g->coll.in[i].len;
    x->stream = incoming >= STREAM_FROM && !x->in_place;
    x->is_silent = exchange_is_silent(x);
    x->own_first = x->symmetric && !x->vector && !x->reduce_into && !g->wait.oversubscribed &&
                   (!heap_ref_is_set(x->ref) || x->longest <= EXCHANGE_CHUNK);
    exchange_plan_pieces(x);
    x->first_step = g->step.last + 1;
    return COLLRUN_OK;
}

int exchange_run(struct exchange *x)
{
    struct shm_group *g = x->g;
    int status = exchange_prepare(x);
    size_t done = 0;
    bool more = true;
    if (status != COLLRUN_OK)
        return status;
    exchange_send(x, 0);
    while (more) {
        const uint64_t step = g->step.last;
        more = x->longest - done > x->piece;
        if (more)
            exchange_send(x, done + x->piece);
        status = exchange_receive(x, done, step);
        if (status != COLLRUN_OK)
            return status;
        more &= !x->all_direct;
        done += x->piece;
    }
    return x->some_direct ? step_end_direct(g) : COLLRUN_OK;
}
