/* SPDX-License-Identifier: Apache-2.0
 *
 * The vector is split into one part per rank. Every rank sends each part to its rank, each rank
 * combines the parts that it receives, and the results are sent to all ranks, to the root, or not
 * at all. This moves as much data as a ring, takes two rounds, and rounds once.
 *
 * The caller's operator combines from the last rank to the first, since it writes to its right
 * operand: s0 op (s1 op (... op s[n-1])). Parts and blocks begin where a unit begins.
 */
#include "ops/emulate_reduce.h"

#include "core/error.h"
#include "core/fingerprint.h"
#include "core/reduce.h"
#include "ops/emulate_move.h"

#include <stdlib.h>

enum { BLOCK_ALIGNMENT = 64 };

enum collrun_dtype emulate_partial_dtype(const struct collrun_call *call)
{
    return call->user_op ? call->dtype : reduce_partial_dtype(call->dtype);
}

void emulate_combine(const struct collrun_call *call, const void *left, void *right, size_t count)
{
    const struct collrun_user_op *own = call->user_op;
    const void *const sources[2] = {left, right};
    if (!count)
        return;
    if (own)
        own->combine(own->ctx, left, right, count, call->dtype);
    else
        reduce_vectors(right, sources, 2, count, emulate_partial_dtype(call), call->op, 0);
}

/* ---- one block ---- */

/* The blocks of all ranks for this one; those of the others are in memory of the emulation. */
static int emulate_collect_blocks(struct emulation *e, const struct cut *from, void **sources)
{
    size_t len = emulate_block_of(e, from, e->me).len;
    size_t stride = (len + BLOCK_ALIGNMENT - 1) / BLOCK_ALIGNMENT * BLOCK_ALIGNMENT;
    char *room = emulate_scratch(e, stride * (e->n - 1));
    if (!room)
        return COLLRUN_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < e->n; i++) {
        struct block b = emulate_block_of(e, from, i);
        sources[i] = b.bytes;
        if (i == e->me)
            continue;
        emulate_add_send(e, i, b.bytes, b.len);
        emulate_add_recv(e, i, room, len);
        sources[i] = room;
        room += stride;
    }
    return emulate_exchange(e);
}

/* Into the block of the last rank, or a copy of it if that is the input of this rank. */
static void emulate_combine_blocks(const struct emulation *e, void *const *sources, void *dst,
                                   size_t len)
{
    uint32_t last = e->n - 1;
    void *result = sources[last];
    if (e->me == last) {
        emulate_copy(dst, result, len);
        result = dst;
    }
    for (uint32_t i = last; i-- > 0;)
        emulate_combine(e->call, sources[i], result, len / e->es);
    emulate_copy(dst, result, len);
}

int emulate_reduce_block(struct emulation *e, const struct cut *from, void *dst)
{
    const struct collrun_call *call = e->call;
    size_t len = emulate_block_of(e, from, e->me).len;
    void **sources = calloc(e->n, sizeof *sources);
    if (!sources)
        return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory");
    int rc = emulate_collect_blocks(e, from, sources);
    if (rc == COLLRUN_OK && len && call->user_op)
        emulate_combine_blocks(e, sources, dst, len);
    else if (rc == COLLRUN_OK && len)
        reduce_vectors(dst, (const void *const *)sources, e->n, len / e->es, call->dtype, call->op,
                       call->op == COLLRUN_AVG ? e->n : 0);
    free(sources);
    return rc;
}

/* ---- whole vectors ---- */

/* One part per rank, of whole units: the first `units % n` parts have one unit more. */
static size_t *emulate_even_parts(const struct emulation *e)
{
    size_t unit = user_op_unit(e->call->user_op), units = e->call->count / unit;
    size_t *counts = calloc(e->n, sizeof *counts);
    for (uint32_t i = 0; counts && i < e->n; i++)
        counts[i] = unit * (units / e->n + (i < units % e->n));
    return counts;
}

static int emulate_reduce_parts(struct emulation *e, size_t *counts)
{
    const struct collrun_call *call = e->call;
    struct cut send = {.base = call->send, .counts = counts},
               recv = {.base = call->recv, .counts = counts};
    bool to_all = call->kind == COLLRUN_ALLREDUCE,
         receives = to_all || e->me == (uint32_t)call->root;
    struct block part = emulate_block_of(e, &send, e->me);
    void *result =
        receives ? emulate_block_of(e, &recv, e->me).bytes : emulate_scratch(e, part.len);
    if (!receives && !result)
        return COLLRUN_ERR_NO_MEMORY;
    int rc = emulate_reduce_block(e, &send, result);
    if (rc == COLLRUN_OK && to_all)
        return emulate_all_gather(e, result, &recv);
    return rc == COLLRUN_OK ? emulate_gather(e, result, part.len, &recv, (uint32_t)call->root) : rc;
}

int emulate_reduce_all(struct emulation *e)
{
    size_t *counts = emulate_even_parts(e);
    int rc = counts ? emulate_reduce_parts(e, counts)
                    : error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory");
    free(counts);
    return rc;
}
