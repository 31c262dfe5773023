/* SPDX-License-Identifier: Apache-2.0
 *
 * One call on one GPU as calls of NCCL. Data that is only moved is moved as bytes.
 * The v-forms, and what an older NCCL lacks, are built from ncclSend and ncclRecv.
 */
#include "collectives.h"

#include "group.h"

#include <stdlib.h>

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

/* Collectives that NCCL lacks.
 *
 *   - Reductions of 16-bit integers, of bool except for "and" and "or", and with bitwise and
 *     logical operators. They go through the host, chunk by chunk, in stream order: the chunks of
 *     all ranks are gathered on the GPU, copied to pinned memory, reduced there by the engine's
 *     kernels in a host function of the stream, and the result is copied back. Every rank copies
 *     the data of all ranks over PCIe: correct, but slow.
 *   - alltoall in place: the blocks are copied to scratch memory first.
 *
 * Each chunk is one kernel of NCCL. It is launched when the chunk before it has ended, so that no
 * kernel ever waits behind another one of its communicator. */

static bool emulate_is_in_place(const struct collrun_call *call)
{
    return call->kind == COLLRUN_ALLTOALL && call->send == call->recv;
}

bool emulate_is_needed(const struct collrun_call *call)
{
    ncclDataType_t type;
    ncclRedOp_t op;
    return !native_is_barrier(call) &&
           (emulate_is_in_place(call) || (collrun_kind_reduces(call->kind) &&
                                          !native_reduction(call->dtype, call->op, &type, &op)));
}

static char *emulate_at(const void *base, size_t bytes)
{
    return (char *)(uintptr_t)base + bytes;
}

static int emulate_need_scratch(struct nccl_group *g, bool pinned)
{
    const struct cuda_api *cuda = &g->context->lib.cuda;
    for (uint32_t i = 0; i < g->ndevs; i++) {
        struct dev_comm *dev = &g->devs[i];
        cudaError_t error = cudaSuccess;
        int before = device_enter(g->context, dev->ordinal);
        if (!dev->scratch.device)
            error = cuda->cudaMalloc(&dev->scratch.device, SCRATCH_LEN);
        if (error == cudaSuccess && pinned && !dev->scratch.pinned)
            error = cuda->cudaHostAlloc(&dev->scratch.pinned, SCRATCH_LEN, cudaHostAllocPortable);
        device_leave(g->context, before);
        if (error != cudaSuccess)
            return nccl_group_fail_cuda(g, dev, error, "allocate scratch memory");
    }
    return COLLRUN_OK;
}

/* Ends the NCCL group, in which `result` was reported, and waits until NCCL has accepted it. */
static int emulate_group_end(struct nccl_group *g, ncclResult_t result, const struct op *op)
{
    result = comm_group_end(g, result);
    int status = result == ncclSuccess ? COLLRUN_OK
                                       : nccl_group_fail_nccl(g, g->devs[0].comm, result, "NCCL");
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->ndevs; i++)
        status = comm_await_ready(g, &g->devs[i], op->deadline_ns);
    return status;
}

/* ---- reductions ---- */

/* One chunk of every rank, reduced when the stream reaches the host function, which frees this. */
struct host_reduce_job {
    const struct collrun_services *services;
    char *pinned; /* the chunks, one per rank; the result replaces the first */
    uint32_t size;
    size_t count, len; /* of a chunk: elements, bytes */
    enum collrun_dtype dtype;
    enum collrun_op op;
    const void *sources[]; /* size */
};

static void host_reduce_run(void *data)
{
    struct host_reduce_job *job = data;
    for (uint32_t i = 0; i < job->size; i++)
        job->sources[i] = job->pinned + i * job->len;
    job->services->reduce(job->pinned, job->sources, job->size, job->count, job->dtype, job->op,
                          job->op == COLLRUN_AVG ? job->size : 0);
    free(job);
}

/* A part of a reduction: its elements in every rank's send buffer, and the rank of its result. */
struct reduce_part {
    size_t first, count; /* elements */
    int receiver;        /* a communicator rank; -1: all of them */
};

struct chunk {
    const struct reduce_part *part;
    size_t offset, count; /* elements, from the start of the part */
    size_t width;         /* bytes of an element */
};

static int host_reduce_submit(struct nccl_group *g, const struct collrun_call *call,
                              const struct chunk *k)
{
    const struct cuda_api *cuda = &g->context->lib.cuda;
    struct dev_comm *dev = &g->devs[call->device];
    size_t len = k->count * k->width;
    struct host_reduce_job *job = malloc(sizeof *job + g->size * sizeof *job->sources);
    if (!job)
        return nccl_group_out_of_memory(g);
    *job = (struct host_reduce_job){.services = g->services,
                                    .pinned = dev->scratch.pinned,
                                    .size = g->size,
                                    .count = k->count,
                                    .len = len,
                                    .dtype = call->dtype,
                                    .op = call->op};
    int before = device_enter(g->context, dev->ordinal);
    cudaError_t error = cuda->cudaMemcpyAsync(dev->scratch.pinned, dev->scratch.device,
                                              g->size * len, cudaMemcpyDeviceToHost, dev->stream);
    if (error == cudaSuccess) {
        error = cuda->cudaLaunchHostFunc(dev->stream, host_reduce_run, job);
        job = error == cudaSuccess ? NULL : job;
    }
    if (error == cudaSuccess)
        error =
            cuda->cudaMemcpyAsync(emulate_at(call->recv, k->offset * k->width), dev->scratch.pinned,
                                  len, cudaMemcpyHostToDevice, dev->stream);
    device_leave(g->context, before);
    free(job);
    return error == cudaSuccess ? COLLRUN_OK
                                : nccl_group_fail_cuda(g, dev, error, "reduce on the host");
}

static int emulate_reduce_chunk(struct nccl_group *g, const struct op *op, const struct chunk *k)
{
    const struct nccl_api *nccl = &g->context->lib.nccl;
    const struct collrun_call *calls = op->next;
    size_t len = k->count * k->width, first = (k->part->first + k->offset) * k->width;
    ncclResult_t result = nccl->ncclGroupStart();
    for (uint32_t i = 0; result == ncclSuccess && i < g->ndevs; i++) {
        struct dev_comm *dev = &g->devs[calls[i].device];
        result = nccl->ncclAllGather(emulate_at(calls[i].send, first), dev->scratch.device, len,
                                     ncclUint8, dev->comm, dev->stream);
    }
    int status = emulate_group_end(g, result, op);
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->ndevs; i++) {
        int rank = (int)(g->rank * g->ndevs) + calls[i].device;
        if (k->part->receiver < 0 || k->part->receiver == rank)
            status = host_reduce_submit(g, &calls[i], k);
    }
    return status;
}

static struct reduce_part reduce_part_of(const struct nccl_group *g, const struct collrun_call *c,
                                         uint32_t n)
{
    bool uneven = c->kind == COLLRUN_REDUCE_SCATTERV;
    struct reduce_part part = {.count = uneven ? c->recvcounts[n] : c->count, .receiver = (int)n};
    for (uint32_t i = 0; i < n; i++)
        part.first += uneven ? c->recvcounts[i] : c->count;
    if (c->kind == COLLRUN_ALLREDUCE)
        part.receiver = -1;
    else if (c->kind == COLLRUN_REDUCE)
        part.receiver = c->root * (int)g->ndevs + c->peer_device;
    return part;
}

static int emulate_reduction(struct nccl_group *g, struct op *op)
{
    const struct collrun_call *c = op->next;
    struct op_kernels *next = &op->kernels;
    bool scatters = c->kind == COLLRUN_REDUCE_SCATTER || c->kind == COLLRUN_REDUCE_SCATTERV;
    uint32_t nparts = scatters ? g->size : 1;
    struct reduce_part part = {0};
    int status = emulate_need_scratch(g, true);
    while (next->part < nparts && (part = reduce_part_of(g, c, next->part)).count == next->offset) {
        next->part++;
        next->offset = 0;
    }
    next->more = next->part < nparts;
    if (!next->more || status != COLLRUN_OK)
        return status;
    struct chunk k = {
        .part = &part, .offset = next->offset, .width = g->services->dtype_size(c->dtype)};
    size_t most = SCRATCH_LEN / (g->size * k.width);
    k.count = part.count - k.offset < most ? part.count - k.offset : most;
    next->offset += k.count;
    return emulate_reduce_chunk(g, op, &k);
}

/* ---- alltoall in place ---- */

struct block_slice { /* the same bytes of every block */
    size_t block, offset, len;
};

/* Copies the slice of every block to scratch memory. */
static int emulate_save_slice(struct nccl_group *g, const struct collrun_call *call,
                              const struct block_slice *s)
{
    struct dev_comm *dev = &g->devs[call->device];
    cudaError_t error = cudaSuccess;
    int before = device_enter(g->context, dev->ordinal);
    for (uint32_t k = 0; error == cudaSuccess && k < g->size; k++)
        error =
            g->context->lib.cuda.cudaMemcpyAsync(emulate_at(dev->scratch.device, k * s->len),
                                                 emulate_at(call->recv, k * s->block + s->offset),
                                                 s->len, cudaMemcpyDeviceToDevice, dev->stream);
    device_leave(g->context, before);
    return error == cudaSuccess ? COLLRUN_OK : nccl_group_fail_cuda(g, dev, error, "copy");
}

static ncclResult_t emulate_exchange_slice(struct nccl_group *g, const struct collrun_call *call,
                                           const struct block_slice *s)
{
    const struct nccl_api *nccl = &g->context->lib.nccl;
    struct dev_comm *dev = &g->devs[call->device];
    ncclResult_t result = ncclSuccess;
    for (uint32_t k = 0; result == ncclSuccess && k < g->size; k++) {
        result = nccl->ncclSend(emulate_at(dev->scratch.device, k * s->len), s->len, ncclUint8,
                                (int)k, dev->comm, dev->stream);
        if (result == ncclSuccess)
            result = nccl->ncclRecv(emulate_at(call->recv, k * s->block + s->offset), s->len,
                                    ncclUint8, (int)k, dev->comm, dev->stream);
    }
    return result;
}

static int emulate_alltoall_in_place(struct nccl_group *g, struct op *op)
{
    struct op_kernels *next = &op->kernels;
    struct block_slice s = {.block = op->next->count * g->services->dtype_size(op->next->dtype),
                            .offset = next->offset};
    size_t most = SCRATCH_LEN / g->size, left = s.block - s.offset;
    s.len = left < most ? left : most;
    next->offset += s.len;
    next->more = next->offset < s.block;
    int status = emulate_need_scratch(g, false);
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->ndevs; i++)
        status = emulate_save_slice(g, &op->next[i], &s);
    if (status != COLLRUN_OK)
        return status;
    ncclResult_t result = g->context->lib.nccl.ncclGroupStart();
    for (uint32_t i = 0; result == ncclSuccess && i < g->ndevs; i++)
        result = emulate_exchange_slice(g, &op->next[i], &s);
    return emulate_group_end(g, result, op);
}

int emulate_collective(struct nccl_group *g, struct op *op)
{
    return emulate_is_in_place(op->next) ? emulate_alltoall_in_place(g, op)
                                         : emulate_reduction(g, op);
}
