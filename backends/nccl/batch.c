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

static struct span batch_span(const struct nccl_group *g, const struct collrun_call *c,
                              const void *base, unsigned char extent, size_t width)
{
    const struct collrun_range used = collrun_call_range(c, extent, g->size, g->rank);
    const uintptr_t at = (uintptr_t)base;
    return base && used.to > used.from ? (struct span){at + used.from * width, at + used.to * width}
                                       : (struct span){0};
}

/* What the call reads on this rank. Of a broadcast: see batch_written. */
static struct span batch_read(const struct nccl_group *g, const struct collrun_call *c,
                              size_t width)
{
    if (!collrun_kind_sends(c->kind, c->root == (int)g->rank))
        return (struct span){0};
    return batch_span(g, c, c->send, collrun_kind_row(c->kind).send, width);
}

/* What the call writes on this rank; of the root of a broadcast, what it reads. */
static struct span batch_written(const struct nccl_group *g, const struct collrun_call *c,
                                 size_t width)
{
    if (!collrun_kind_receives(c->kind, c->root == (int)g->rank, g->rank == 0))
        return (struct span){0};
    return batch_span(g, c, c->recv, collrun_kind_row(c->kind).recv, width);
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
    return error ? nccl_group_fail_coordinator(op->group, error, "compares the batches")
                 : COLLRUN_AGAIN;
}

uint32_t batch_group_len(const struct op *op)
{
    uint32_t at = (uint32_t)(op->next - op->calls) - op->batch.first, end = at + 1;
    while (end < batch_window_len(op) && !(op->batch.cuts >> end & 1))
        end++;
    return end - at;
}
