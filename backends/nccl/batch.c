/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path
 *   - a rank finds its cuts when the batch is first in its group and the communicator is idle, and
 *     sends them to the coordinator;
 *   - the coordinator replies when it has those of all ranks: one round trip for up to 64 calls,
 *     which costs less than the launches that it saves;
 *   - every group is launched when the one before it has left the GPU.
 * Failures
 *   - a rank does not start the batch: the op times out, as it would inside the kernel;
 *   - the connection to the coordinator is lost: the group fails.
 */
#include "batch.h"

#include "emulate.h"
#include "group.h"

bool batch_is(const struct op *op)
{
    return op->ncalls > 1 && op->group->ndevs == 1 && !collrun_kind_is_message(op->calls->kind);
}

uint64_t batch_timeout(const struct op *op)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < op->ncalls; i++)
        sum =
            op->calls[i].timeout_ns > UINT64_MAX - sum ? UINT64_MAX : sum + op->calls[i].timeout_ns;
    return sum;
}

/* ---- the memory of a call ---- */

struct span {
    uintptr_t from, to; /* empty if they are equal */
};

static struct span batch_span(const void *base, size_t first, size_t end, size_t width)
{
    uintptr_t at = (uintptr_t)base;
    return base && end > first ? (struct span){at + first * width, at + end * width}
                               : (struct span){0};
}

/* From the first block of a v-form to its last one. */
static struct span batch_uneven_span(const struct nccl_group *g, const void *base,
                                     const size_t *counts, const size_t *displs, size_t width)
{
    size_t first = SIZE_MAX, end = 0, packed = 0;
    for (uint32_t i = 0; counts && i < g->size; i++) {
        size_t at = displs ? displs[i] : packed;
        packed += counts[i];
        if (!counts[i])
            continue;
        first = at < first ? at : first;
        end = at + counts[i] > end ? at + counts[i] : end;
    }
    return batch_span(base, first, end, width);
}

static bool batch_is_root(const struct nccl_group *g, const struct collrun_call *c)
{
    return c->root == (int)g->rank;
}

/* What the call reads on this rank. Of a broadcast: see batch_written. */
static struct span batch_read(const struct nccl_group *g, const struct collrun_call *c,
                              size_t width)
{
    size_t n = c->count, all = c->count * g->size;
    switch (c->kind) {
    case COLLRUN_BARRIER:
    case COLLRUN_BROADCAST:
        return (struct span){0};
    case COLLRUN_SCATTER:
        return batch_span(c->send, 0, batch_is_root(g, c) ? all : 0, width);
    case COLLRUN_REDUCE_SCATTER:
    case COLLRUN_ALLTOALL:
        return batch_span(c->send, 0, all, width);
    case COLLRUN_REDUCE_SCATTERV:
        return batch_uneven_span(g, c->send, c->recvcounts, NULL, width);
    case COLLRUN_SCATTERV:
        if (!batch_is_root(g, c))
            return (struct span){0};
        return batch_uneven_span(g, c->send, c->sendcounts, c->senddispls, width);
    case COLLRUN_ALLTOALLV:
        return batch_uneven_span(g, c->send, c->sendcounts, c->senddispls, width);
    default:
        return batch_span(c->send, 0, n, width);
    }
}

/* What the call writes on this rank; of the root of a broadcast, what it reads. */
static struct span batch_written(const struct nccl_group *g, const struct collrun_call *c,
                                 size_t width)
{
    bool root = batch_is_root(g, c);
    size_t all = c->count * g->size;
    switch (c->kind) {
    case COLLRUN_BARRIER:
        return (struct span){0};
    case COLLRUN_REDUCE:
        return batch_span(c->recv, 0, root ? c->count : 0, width);
    case COLLRUN_GATHER:
        return batch_span(c->recv, 0, root ? all : 0, width);
    case COLLRUN_ALLGATHER:
    case COLLRUN_ALLTOALL:
        return batch_span(c->recv, 0, all, width);
    case COLLRUN_GATHERV:
        if (!root)
            return (struct span){0};
        return batch_uneven_span(g, c->recv, c->recvcounts, c->recvdispls, width);
    case COLLRUN_ALLGATHERV:
    case COLLRUN_ALLTOALLV:
        return batch_uneven_span(g, c->recv, c->recvcounts, c->recvdispls, width);
    case COLLRUN_SCATTERV:
        return batch_span(c->recv, 0, c->recvcount, width);
    case COLLRUN_REDUCE_SCATTERV:
        return batch_span(c->recv, 0, c->recvcounts[g->rank], width);
    default:
        return batch_span(c->recv, 0, c->count, width);
    }
}

static bool batch_overlaps(struct span a, struct span b)
{
    return a.from < b.to && b.from < a.to;
}

/* True if the two calls must not be executed at the same time. */
static bool batch_depends(const struct nccl_group *g, const struct collrun_call *a,
                          const struct collrun_call *b)
{
    size_t a_width = g->services->dtype_size(a->dtype), b_width = g->services->dtype_size(b->dtype);
    struct span a_written = batch_written(g, a, a_width), b_written = batch_written(g, b, b_width);
    return batch_overlaps(a_written, b_written) ||
           batch_overlaps(a_written, batch_read(g, b, b_width)) ||
           batch_overlaps(batch_read(g, a, a_width), b_written);
}

/* ---- cuts ---- */

static uint32_t batch_window_len(const struct op *op)
{
    uint32_t left = op->ncalls - op->batch.first;
    return left < BATCH_WINDOW ? left : BATCH_WINDOW;
}

static uint64_t batch_own_cuts(const struct op *op)
{
    const struct collrun_call *calls = &op->calls[op->batch.first];
    uint64_t cuts = 1;
    uint32_t group = 0; /* its first call */
    for (uint32_t i = 1; i < batch_window_len(op); i++) {
        bool cut = emulate_is_needed(&calls[i]) || emulate_is_needed(&calls[i - 1]);
        for (uint32_t k = group; !cut && k < i; k++)
            cut = batch_depends(op->group, &calls[k], &calls[i]);
        cuts |= (uint64_t)cut << i;
        group = cut ? i : group;
    }
    return cuts;
}

int batch_join_cuts(struct op *op)
{
    struct batch *b = &op->batch;
    struct coord_client *coord = op->group->coord;
    if (b->joined && op->next < op->calls + b->first + BATCH_WINDOW)
        return COLLRUN_OK;
    if (b->joined)
        *b = (struct batch){.first = b->first + BATCH_WINDOW};
    if (!b->asked)
        b->cuts = batch_own_cuts(op);
    b->joined = op->group->size == 1;
    if (b->joined)
        return COLLRUN_OK;
    b->asked = b->asked || coord_send_cuts(coord, b->cuts);
    b->joined = b->asked && coord_next_cuts(coord, &b->cuts);
    if (b->joined)
        return COLLRUN_OK;
    int error = coord_poll(coord);
    return error ? group_fail_coordinator(op->group, error, "compares the batches") : COLLRUN_AGAIN;
}

uint32_t batch_group_len(const struct op *op)
{
    uint32_t at = (uint32_t)(op->next - op->calls) - op->batch.first, end = at + 1;
    while (end < batch_window_len(op) && !(op->batch.cuts >> end & 1))
        end++;
    return end - at;
}
