/* SPDX-License-Identifier: Apache-2.0
 *
 * One call on one GPU as calls of NCCL. Data that is only moved is moved as bytes.
 * The v-forms, and what an older NCCL lacks, are built from ncclSend and ncclRecv.
 */
#include "native.h"

#include "group.h"

/* ---- what NCCL can reduce ---- */

static bool native_dtype(enum collrun_dtype dtype, ncclDataType_t *out)
{
    static const struct {
        bool native;
        int type;
    } types[COLLRUN_DTYPE_COUNT] = {
        [COLLRUN_INT8] = {true, ncclInt8},       [COLLRUN_UINT8] = {true, ncclUint8},
        [COLLRUN_INT32] = {true, ncclInt32},     [COLLRUN_UINT32] = {true, ncclUint32},
        [COLLRUN_INT64] = {true, ncclInt64},     [COLLRUN_UINT64] = {true, ncclUint64},
        [COLLRUN_FLOAT16] = {true, ncclFloat16}, [COLLRUN_BFLOAT16] = {true, ncclBfloat16},
        [COLLRUN_FLOAT32] = {true, ncclFloat32}, [COLLRUN_FLOAT64] = {true, ncclFloat64},
    };
    *out = (ncclDataType_t)types[dtype].type;
    return types[dtype].native;
}

/* A bool is a byte of 0 or 1: "or" is the maximum, "and" the minimum. */
static bool native_bool_op(enum collrun_op op, ncclRedOp_t *native)
{
    unsigned ors = 1u << COLLRUN_SUM | 1u << COLLRUN_MAX | 1u << COLLRUN_BOR | 1u << COLLRUN_LOR;
    unsigned ands =
        1u << COLLRUN_PROD | 1u << COLLRUN_MIN | 1u << COLLRUN_BAND | 1u << COLLRUN_LAND;
    *native = ors >> op & 1 ? ncclMax : ncclMin;
    return (ors | ands) >> op & 1;
}

bool native_reduction(enum collrun_dtype dtype, enum collrun_op op, ncclDataType_t *type,
                      ncclRedOp_t *native)
{
    static const int ops[] = {[COLLRUN_SUM] = ncclSum,
                              [COLLRUN_PROD] = ncclProd,
                              [COLLRUN_MIN] = ncclMin,
                              [COLLRUN_MAX] = ncclMax,
                              [COLLRUN_AVG] = ncclAvg};
    if (dtype == COLLRUN_BOOL) {
        *type = ncclUint8;
        return native_bool_op(op, native);
    }
    if (op > COLLRUN_AVG)
        return false;
    *native = (ncclRedOp_t)ops[op];
    return native_dtype(dtype, type);
}

/* ---- blocks ---- */

struct native_call { /* one call on one GPU */
    struct nccl_group *g;
    const struct nccl_api *nccl;
    struct dev_comm *dev;
    const struct collrun_call *call;
    uint32_t rank; /* the GPU's communicator rank */
    int root;      /* a communicator rank */
    ncclDataType_t type;
    size_t scale; /* elements of `type` per element of the call */
    size_t width; /* bytes of an element of the call */
    ncclRedOp_t op;
};

static struct native_call native_call_of(struct nccl_group *g, const struct collrun_call *call)
{
    size_t width = g->services->dtype_size(call->dtype);
    return (struct native_call){.g = g,
                                .nccl = &g->context->lib.nccl,
                                .dev = &g->devs[call->device],
                                .call = call,
                                .rank = g->rank * g->ndevs + (uint32_t)call->device,
                                .root = call->root * (int)g->ndevs + call->peer_device,
                                .type = ncclUint8,
                                .scale = width,
                                .width = width};
}

static char *native_at(const void *base, size_t bytes)
{
    return base ? (char *)(uintptr_t)base + bytes : NULL;
}

static ncclResult_t native_send(const struct native_call *n, const void *base, size_t first,
                                size_t count, uint32_t peer)
{
    if (!count)
        return ncclSuccess;
    return n->nccl->ncclSend(native_at(base, first * n->width), count * n->scale, n->type,
                             (int)peer, n->dev->comm, n->dev->stream);
}

static ncclResult_t native_recv(const struct native_call *n, void *base, size_t first, size_t count,
                                uint32_t peer)
{
    if (!count)
        return ncclSuccess;
    return n->nccl->ncclRecv(native_at(base, first * n->width), count * n->scale, n->type,
                             (int)peer, n->dev->comm, n->dev->stream);
}

struct blocks { /* the blocks of a buffer: equal ones, or those of a v-form */
    const void *base;
    size_t equal;
    const size_t *counts, *displs;
};

static ncclResult_t native_send_all(const struct native_call *n, const struct blocks *b)
{
    ncclResult_t result = ncclSuccess;
    size_t packed = 0;
    for (uint32_t i = 0; result == ncclSuccess && i < n->g->size; i++) {
        size_t count = b->counts ? b->counts[i] : b->equal;
        result = native_send(n, b->base, b->displs ? b->displs[i] : packed, count, i);
        packed += count;
    }
    return result;
}

static ncclResult_t native_recv_all(const struct native_call *n, const struct blocks *b)
{
    ncclResult_t result = ncclSuccess;
    void *base = (void *)(uintptr_t)b->base;
    size_t packed = 0;
    for (uint32_t i = 0; result == ncclSuccess && i < n->g->size; i++) {
        size_t count = b->counts ? b->counts[i] : b->equal;
        result = native_recv(n, base, b->displs ? b->displs[i] : packed, count, i);
        packed += count;
    }
    return result;
}

/* ---- kinds built from send and receive ---- */

static ncclResult_t native_exchange(const struct native_call *n, const struct blocks *out,
                                    const struct blocks *in)
{
    ncclResult_t sent = native_send_all(n, out), received = native_recv_all(n, in);
    return sent != ncclSuccess ? sent : received;
}

/* This GPU's block goes to every communicator rank. */
static ncclResult_t native_allgatherv(const struct native_call *n, const struct blocks *in)
{
    ncclResult_t result = ncclSuccess;
    for (uint32_t i = 0; result == ncclSuccess && i < n->g->size; i++)
        result = native_send(n, n->call->send, 0, n->call->count, i);
    ncclResult_t received = native_recv_all(n, in);
    return result != ncclSuccess ? result : received;
}

static ncclResult_t native_gather(const struct native_call *n, const struct blocks *in)
{
    const struct collrun_call *c = n->call;
    ncclResult_t sent = native_send(n, c->send, 0, c->count, (uint32_t)n->root);
    ncclResult_t received = (int)n->rank == n->root ? native_recv_all(n, in) : ncclSuccess;
    return sent != ncclSuccess ? sent : received;
}

static ncclResult_t native_scatter(const struct native_call *n, const struct blocks *out,
                                   size_t count)
{
    ncclResult_t sent = (int)n->rank == n->root ? native_send_all(n, out) : ncclSuccess;
    ncclResult_t received = native_recv(n, n->call->recv, 0, count, (uint32_t)n->root);
    return sent != ncclSuccess ? sent : received;
}

/* One ncclReduce per block, with the communicator rank that owns the block as its root. */
static ncclResult_t native_reduce_scatterv(const struct native_call *n)
{
    const struct collrun_call *c = n->call;
    ncclResult_t result = ncclSuccess;
    size_t first = 0;
    for (uint32_t i = 0; result == ncclSuccess && i < n->g->size; i++) {
        if (c->recvcounts[i])
            result = n->nccl->ncclReduce(native_at(c->send, first * n->width),
                                         i == n->rank ? c->recv : NULL, c->recvcounts[i] * n->scale,
                                         n->type, n->op, (int)i, n->dev->comm, n->dev->stream);
        first += c->recvcounts[i];
    }
    return result;
}

/* ---- all kinds ---- */

static ncclResult_t native_move(const struct native_call *n)
{
    const struct nccl_api *nccl = n->nccl;
    const struct collrun_call *c = n->call;
    ncclComm_t comm = n->dev->comm;
    cudaStream_t stream = n->dev->stream;
    size_t count = c->count * n->scale;
    struct blocks out = {c->send, c->count, c->sendcounts, c->senddispls};
    struct blocks in = {c->recv, c->count, c->recvcounts, c->recvdispls};
    switch (c->kind) {
    case COLLRUN_BROADCAST:
        return nccl->ncclBroadcast(c->recv, c->recv, count, n->type, n->root, comm, stream);
    case COLLRUN_ALLGATHER:
        return nccl->ncclAllGather(c->send, c->recv, count, n->type, comm, stream);
    case COLLRUN_GATHER:
        return nccl->ncclGather
                   ? nccl->ncclGather(c->send, c->recv, count, n->type, n->root, comm, stream)
                   : native_gather(n, &in);
    case COLLRUN_SCATTER:
        return nccl->ncclScatter
                   ? nccl->ncclScatter(c->send, c->recv, count, n->type, n->root, comm, stream)
                   : native_scatter(n, &out, c->count);
    case COLLRUN_ALLTOALL:
        return nccl->ncclAlltoAll
                   ? nccl->ncclAlltoAll(c->send, c->recv, count, n->type, comm, stream)
                   : native_exchange(n, &out, &in);
    case COLLRUN_ALLGATHERV:
        return native_allgatherv(n, &in);
    case COLLRUN_GATHERV:
        return native_gather(n, &in);
    case COLLRUN_SCATTERV:
        return native_scatter(n, &out, c->recvcount);
    case COLLRUN_ALLTOALLV:
        return native_exchange(n, &out, &in);
    default:
        return ncclInvalidArgument;
    }
}

static ncclResult_t native_reduce(const struct native_call *n)
{
    const struct nccl_api *nccl = n->nccl;
    const struct collrun_call *c = n->call;
    ncclComm_t comm = n->dev->comm;
    cudaStream_t stream = n->dev->stream;
    size_t count = c->count * n->scale;
    switch (c->kind) {
    case COLLRUN_ALLREDUCE:
        return nccl->ncclAllReduce(c->send, c->recv, count, n->type, n->op, comm, stream);
    case COLLRUN_REDUCE:
        return nccl->ncclReduce(c->send, c->recv, count, n->type, n->op, n->root, comm, stream);
    case COLLRUN_REDUCE_SCATTER:
        return nccl->ncclReduceScatter(c->send, c->recv, count, n->type, n->op, comm, stream);
    default:
        return native_reduce_scatterv(n);
    }
}

/* ---- the interface ---- */

ncclResult_t native_collective(struct nccl_group *g, const struct collrun_call *call)
{
    struct native_call n = native_call_of(g, call);
    if (!collrun_kind_reduces(call->kind))
        return native_move(&n);
    n.scale = 1;
    native_reduction(call->dtype, call->op, &n.type, &n.op);
    return native_reduce(&n);
}

ncclResult_t native_message(struct nccl_group *g, const struct message *m)
{
    const struct collrun_call *c = m->call;
    struct native_call n = native_call_of(g, c);
    return c->kind == COLLRUN_SEND ? native_send(&n, c->send, 0, m->count, m->peer_rank)
                                   : native_recv(&n, c->recv, 0, m->count, m->peer_rank);
}

ncclResult_t native_direct(struct nccl_group *part, struct dev_comm *dev, const struct message *m)
{
    const struct collrun_call *c = m->call;
    size_t width = part->services->dtype_size(c->dtype);
    const struct native_call n = {.nccl = &part->context->lib.nccl,
                                  .dev = dev,
                                  .type = ncclUint8,
                                  .scale = width,
                                  .width = width};
    return c->kind == COLLRUN_SEND ? native_send(&n, c->send, 0, m->count, 1)
                                   : native_recv(&n, c->recv, 0, m->count, 0);
}

ncclResult_t native_barrier(struct nccl_group *g, uint32_t dev)
{
    struct dev_comm *d = &g->devs[dev];
    return g->context->lib.nccl.ncclAllReduce(d->token, d->token, 1, ncclUint8, ncclMax, d->comm,
                                              d->stream);
}
