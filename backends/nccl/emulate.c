/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives that NCCL lacks.
 *
 *   - Reductions of 16-bit integers, of bool except for "and" and "or", and with bitwise and
 *     logical operators. They go through the host, chunk by chunk, in stream order: the chunks of
 *     all ranks are gathered on the GPU, copied to pinned memory, reduced there by the engine's
 *     kernels in a host function of the stream, and the result is copied back. Every rank copies
 *     the data of all ranks over PCIe: correct, but slow.
 *   - alltoall in place: the blocks are copied to scratch memory first.
 *
 * Each chunk is one kernel of NCCL. It is launched when the chunk before it has ended, so that no
 * kernel ever waits behind another one of its communicator.
 */
#include "emulate.h"

#include "group.h"
#include "native.h"

#include <stdlib.h>

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
