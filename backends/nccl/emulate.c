/* SPDX-License-Identifier: Apache-2.0
 *
 * Which reductions NCCL has, and the others: 16-bit integers, bool but for and/or, bitwise and
 * logical operators. Those go through the host, chunk by chunk, in stream order: the chunks of all
 * ranks are gathered on the GPU, copied to pinned memory, reduced there by the engine's kernels in
 * a host function of the stream, and the result is copied back. Every rank takes everybody's data
 * over PCIe: right, and slow. NCCL's alltoall has no in-place form; here that goes through scratch.
 *
 * Each chunk is one kernel of NCCL's and is launched when the one before it has ended, so that no
 * kernel ever waits behind another one of its communicator.
 */
#include "group.h"

#include <stdlib.h>

bool dtype_native(enum collrun_dtype dtype, ncclDataType_t *out)
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

/* Bool is a byte of 0 or 1: or is the larger, and the smaller. */
static bool bool_native(enum collrun_op op, ncclRedOp_t *native)
{
    const unsigned ors =
        1u << COLLRUN_SUM | 1u << COLLRUN_MAX | 1u << COLLRUN_BOR | 1u << COLLRUN_LOR;
    const unsigned ands =
        1u << COLLRUN_PROD | 1u << COLLRUN_MIN | 1u << COLLRUN_BAND | 1u << COLLRUN_LAND;
    *native = ors >> op & 1 ? ncclMax : ncclMin;
    return (ors | ands) >> op & 1;
}

bool reduction_native(enum collrun_dtype dtype, enum collrun_op op, ncclDataType_t *type,
                      ncclRedOp_t *native)
{
    static const int ops[] = {[COLLRUN_SUM] = ncclSum,
                              [COLLRUN_PROD] = ncclProd,
                              [COLLRUN_MIN] = ncclMin,
                              [COLLRUN_MAX] = ncclMax,
                              [COLLRUN_AVG] = ncclAvg};
    if (dtype == COLLRUN_BOOL) {
        *type = ncclUint8;
        return bool_native(op, native);
    }
    if (op > COLLRUN_AVG)
        return false;
    *native = (ncclRedOp_t)ops[op];
    return dtype_native(dtype, type);
}

/* ---- scratch ---- */

static int need_scratch(struct nccl_group *g, struct port *p, bool pinned)
{
    const struct cuda_api *cuda = &g->home->lib.cuda;
    cudaError_t error = cudaSuccess;
    const int before = device_enter(g->home, p->ordinal);
    if (!p->scratch.device)
        error = cuda->cudaMalloc(&p->scratch.device, SCRATCH_LEN);
    if (error == cudaSuccess && pinned && !p->scratch.pinned)
        error = cuda->cudaHostAlloc(&p->scratch.pinned, SCRATCH_LEN, cudaHostAllocPortable);
    device_leave(g->home, before);
    return error == cudaSuccess ? COLLRUN_OK : cuda_failed(g, p, error, "take scratch memory");
}

static int end_group(struct nccl_group *g, ncclResult_t result, const struct flight *f)
{
    const ncclResult_t end = g->home->lib.nccl.ncclGroupEnd();
    if (result == ncclSuccess && end != ncclInProgress)
        result = end;
    int status =
        result == ncclSuccess ? COLLRUN_OK : nccl_failed(g, g->ports[0].comm, result, "NCCL");
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->nports; i++)
        status = await_ready(g, &g->ports[i], f->deadline_ns);
    return status;
}

static char *at(const void *base, size_t bytes)
{
    return (char *)(uintptr_t)base + bytes;
}

/* ---- reductions ---- */

/* A chunk of everybody's, to be reduced when the stream comes to it. Freed by the host function. */
struct chore {
    const struct collrun_services *services;
    char *pinned; /* a chunk of each rank, side by side; the result takes the first one's place */
    uint32_t size;
    size_t count, len;
    enum collrun_dtype dtype;
    enum collrun_op op;
    const void *sources[]; /* size */
};

static void do_chore(void *data)
{
    struct chore *c = data;
    for (uint32_t i = 0; i < c->size; i++)
        c->sources[i] = c->pinned + i * c->len;
    c->services->reduce(c->pinned, c->sources, c->size, c->count, c->dtype, c->op,
                        c->op == COLLRUN_AVG ? c->size : 0);
    free(c);
}

/* Part of a reduction: what lies where in everybody's send buffer, and whose result it is. */
struct segment {
    size_t first, count; /* elements */
    int receiver;        /* a rank of the communicator; -1: all of them */
};

struct chunk {
    const struct segment *segment;
    size_t from, count; /* elements into the segment */
    size_t width;       /* bytes of an element */
};

static int reduce_on_host(struct nccl_group *g, const struct collrun_call *call,
                          const struct chunk *k)
{
    const struct cuda_api *cuda = &g->home->lib.cuda;
    struct port *p = &g->ports[call->device];
    const size_t len = k->count * k->width;
    struct chore *c = malloc(sizeof(*c) + g->size * sizeof(*c->sources));
    if (!c)
        return g->services->fail(g->services->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    *c = (struct chore){.services = g->services,
                        .pinned = p->scratch.pinned,
                        .size = g->size,
                        .count = k->count,
                        .len = len,
                        .dtype = call->dtype,
                        .op = call->op};
    const int before = device_enter(g->home, p->ordinal);
    cudaError_t error = cuda->cudaMemcpyAsync(p->scratch.pinned, p->scratch.device, g->size * len,
                                              cudaMemcpyDeviceToHost, p->stream);
    if (error == cudaSuccess) {
        error = cuda->cudaLaunchHostFunc(p->stream, do_chore, c);
        c = error == cudaSuccess ? NULL : c;
    }
    if (error == cudaSuccess)
        error = cuda->cudaMemcpyAsync(at(call->recv, k->from * k->width), p->scratch.pinned, len,
                                      cudaMemcpyHostToDevice, p->stream);
    device_leave(g->home, before);
    free(c);
    return error == cudaSuccess ? COLLRUN_OK : cuda_failed(g, p, error, "reduce on the host");
}

static int reduce_chunk(struct nccl_group *g, const struct collrun_call *calls,
                        const struct chunk *k, const struct flight *f)
{
    const struct nccl_api *nccl = &g->home->lib.nccl;
    const size_t len = k->count * k->width, first = (k->segment->first + k->from) * k->width;
    ncclResult_t result = nccl->ncclGroupStart();
    for (uint32_t i = 0; result == ncclSuccess && i < g->nports; i++) {
        struct port *p = &g->ports[calls[i].device];
        result = nccl->ncclAllGather(at(calls[i].send, first), p->scratch.device, len, ncclUint8,
                                     p->comm, p->stream);
    }
    int status = end_group(g, result, f);
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->nports; i++) {
        const int rank = (int)(g->rank * g->nports) + calls[i].device;
        if (k->segment->receiver < 0 || k->segment->receiver == rank)
            status = reduce_on_host(g, &calls[i], k);
    }
    return status;
}

/* Whose part of everybody's buffer comes n-th, and where it lies. */
static struct segment segment_of(const struct nccl_group *g, const struct collrun_call *c,
                                 uint32_t n)
{
    const bool uneven = c->kind == COLLRUN_REDUCE_SCATTERV;
    struct segment s = {.count = uneven ? c->recvcounts[n] : c->count, .receiver = (int)n};
    for (uint32_t i = 0; i < n; i++)
        s.first += uneven ? c->recvcounts[i] : c->count;
    if (c->kind == COLLRUN_ALLREDUCE)
        s.receiver = -1;
    else if (c->kind == COLLRUN_REDUCE)
        s.receiver = c->root * (int)g->nports + c->peer_device;
    return s;
}

int emulate_reduction(struct nccl_group *g, struct flight *f)
{
    const struct collrun_call *c = f->calls;
    const bool scattered = c->kind == COLLRUN_REDUCE_SCATTER || c->kind == COLLRUN_REDUCE_SCATTERV;
    const uint32_t nsegments = scattered ? g->size : 1;
    struct segment s = {0};
    int status = COLLRUN_OK;
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->nports; i++)
        status = need_scratch(g, &g->ports[i], true);
    while (f->segment < nsegments && (s = segment_of(g, c, f->segment)).count == f->from) {
        f->segment++;
        f->from = 0;
    }
    f->unlaunched = f->segment < nsegments;
    if (!f->unlaunched || status != COLLRUN_OK)
        return status;
    struct chunk k = {.segment = &s, .from = f->from, .width = g->services->dtype_size(c->dtype)};
    const size_t most = SCRATCH_LEN / (g->size * k.width);
    k.count = s.count - k.from < most ? s.count - k.from : most;
    f->from += k.count;
    return reduce_chunk(g, c, &k, f);
}

/* ---- alltoall in place ---- */

/* Of every block the same part: saved, then exchanged. */
static int exchange_part(struct nccl_group *g, const struct collrun_call *calls, size_t block,
                         size_t from, size_t len, const struct flight *f)
{
    const struct nccl_api *nccl = &g->home->lib.nccl;
    cudaError_t error = cudaSuccess;
    ncclResult_t result = ncclSuccess;
    for (uint32_t i = 0; i < g->nports; i++) {
        struct port *p = &g->ports[calls[i].device];
        const int before = device_enter(g->home, p->ordinal);
        for (uint32_t k = 0; error == cudaSuccess && k < g->size; k++)
            error = g->home->lib.cuda.cudaMemcpyAsync(at(p->scratch.device, k * len),
                                                      at(calls[i].recv, k * block + from), len,
                                                      cudaMemcpyDeviceToDevice, p->stream);
        device_leave(g->home, before);
        if (error != cudaSuccess)
            return cuda_failed(g, p, error, "copy");
    }
    nccl->ncclGroupStart();
    for (uint32_t i = 0; i < g->nports; i++) {
        struct port *p = &g->ports[calls[i].device];
        for (uint32_t k = 0; result == ncclSuccess && k < g->size; k++) {
            result = nccl->ncclSend(at(p->scratch.device, k * len), len, ncclUint8, (int)k, p->comm,
                                    p->stream);
            if (result == ncclSuccess)
                result = nccl->ncclRecv(at(calls[i].recv, k * block + from), len, ncclUint8, (int)k,
                                        p->comm, p->stream);
        }
    }
    return end_group(g, result, f);
}

int alltoall_in_place(struct nccl_group *g, struct flight *f)
{
    const size_t block = f->calls->count * g->services->dtype_size(f->calls->dtype);
    const size_t most = SCRATCH_LEN / g->size, left = block - f->from;
    const size_t len = left < most ? left : most, from = f->from;
    int status = COLLRUN_OK;
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->nports; i++)
        status = need_scratch(g, &g->ports[i], false);
    f->from += len;
    f->unlaunched = f->from < block;
    return status == COLLRUN_OK ? exchange_part(g, f->calls, block, from, len, f) : status;
}
