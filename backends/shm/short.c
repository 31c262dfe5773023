/* SPDX-License-Identifier: Apache-2.0
 *
 * See short.h. Broadcast, allgather, gather, allreduce and reduce contribute one block of `len`
 * bytes; scatter, alltoall and reduce_scatter one block for every rank, in the order of ranks. Up
 * to 232 bytes ride in the post itself, up to 2 KiB in the step's slot.
 */
#include "short.h"

#include "copy.h"
#include "step.h"
#include "wait.h"

#define SHORT_BYTES 8192u

static bool has_block_per_rank(enum collrun_kind kind)
{
    return kind == COLLRUN_SCATTER || kind == COLLRUN_ALLTOALL || kind == COLLRUN_REDUCE_SCATTER;
}

bool short_fits(const struct shm_group *g, const struct collrun_call *call)
{
    if (kind_is_uneven(call->kind))
        return false;
    if (call->kind == COLLRUN_BARRIER || call->count == 0)
        return true;
    const size_t blocks = has_block_per_rank(call->kind) ? g->nranks : 1;
    return call->count <= SHORT_BYTES &&
           call->count * g->services->dtype_size(call->dtype) * blocks <= SHORT_BYTES;
}

/* What this rank contributes, if anything. */
static const void *own_blocks(const struct shm_group *g, const struct collrun_call *call)
{
    const bool is_root = (uint32_t)call->root == g->rank;
    if (call->kind == COLLRUN_BROADCAST)
        return is_root ? call->recv : NULL;
    return call->kind == COLLRUN_SCATTER && !is_root ? NULL : call->send;
}

static void put_own(struct shm_group *g, const struct collrun_call *call, size_t len)
{
    const void *blocks = len > 0 ? own_blocks(g, call) : NULL;
    const size_t all = blocks ? len * (has_block_per_rank(call->kind) ? g->nranks : 1) : 0;
    char *room = step_room(g, all);
    if (all > 0)
        copy_out(&g->pace, room, blocks, all);
}

/* The block that `rank` has for this one. */
static const char *block_from(const struct shm_group *g, const struct collrun_call *call,
                              uint32_t rank, size_t offset)
{
    if (rank == g->rank)
        return (const char *)call->send + offset;
    return step_data(g, rank, g->step) + offset;
}

static void reduce_blocks(struct shm_group *g, const struct collrun_call *call, size_t offset)
{
    for (uint32_t r = 0; r < g->nranks; r++)
        g->srcs[r] = block_from(g, call, r, offset);
    g->services->reduce(call->recv, g->srcs, g->nranks, call->count, call->dtype, call->op,
                        g->nranks);
}

static void collect_blocks(struct shm_group *g, const struct collrun_call *call, size_t offset,
                           size_t len)
{
    for (uint32_t r = 0; r < g->nranks; r++)
        copy_bytes((char *)call->recv + r * len, block_from(g, call, r, offset), len, false);
}

static void deliver(struct shm_group *g, const struct collrun_call *call, size_t len)
{
    const uint32_t root = (uint32_t)call->root;
    const size_t mine = has_block_per_rank(call->kind) ? g->rank * len : 0;
    switch (call->kind) {
    case COLLRUN_BROADCAST:
        if (root != g->rank)
            copy_bytes(call->recv, block_from(g, call, root, 0), len, false);
        return;
    case COLLRUN_SCATTER:
        copy_bytes(call->recv, block_from(g, call, root, mine), len, false);
        return;
    case COLLRUN_REDUCE:
    case COLLRUN_GATHER:
        if (root != g->rank)
            return;
        break;
    default:
        break;
    }
    if (kind_reduces(call->kind))
        reduce_blocks(g, call, mine);
    else
        collect_blocks(g, call, mine, len);
}

int short_run(struct shm_group *g, const struct collrun_call *call)
{
    const bool empty = call->kind == COLLRUN_BARRIER || call->count == 0;
    const size_t len = empty ? 0 : call->count * g->services->dtype_size(call->dtype);
    const struct signature s = signature_of(call);
    put_own(g, call, len);
    step_post(g, &s);
    int status = step_wait(g, g->step);
    if (status == COLLRUN_OK)
        status = step_check(g, g->step, &s);
    if (status == COLLRUN_OK && len > 0)
        deliver(g, call, len);
    return status;
}
