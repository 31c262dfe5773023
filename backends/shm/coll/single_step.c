/* SPDX-License-Identifier: Apache-2.0
 *
 * One step per call; see single_step.h.
 *
 * - Broadcast, allgather, gather, allreduce and reduce contribute one block of `len` bytes;
 *   scatter, alltoall and reduce_scatter one block for each other rank, in the order of ranks.
 * - Up to 232 bytes travel in the record itself, up to 2 KiB in the step's slot, more in the ring.
 * - The root of broadcast and scatter and the leaves of reduce and gather do not wait.
 */
#include "coll/single_step.h"

#include "coll/step.h"
#include "transport/copy.h"

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

bool single_step_fits(const struct shm_group *g, const struct collrun_call *call, size_t len)
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

int single_step_run(struct shm_group *g, const struct collrun_call *call, size_t len)
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
