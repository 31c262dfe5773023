/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing by the first buffer that the call uses on this rank; one that is NULL, as with nothing
 * to send, says nothing. Groups of processes without GPUs are not asked: all their memory is the
 * host's.
 */
#include "route.h"

#include "backend.h"
#include "error.h"
#include "gpu.h"

/* Which buffers a call uses on this rank, whatever its counts. */
static bool uses_send(const struct collrun_group *g, const struct collrun_call *call)
{
    bool at_root = (uint32_t)call->root == g->rank;
    switch (call->kind) {
    case COLLRUN_BARRIER:
    case COLLRUN_BROADCAST:
    case COLLRUN_RECV:
    case COLLRUN_RECV_ANY:
        return false;
    case COLLRUN_SCATTER:
    case COLLRUN_SCATTERV:
        return at_root;
    default:
        return true;
    }
}

static bool uses_recv(const struct collrun_group *g, const struct collrun_call *call)
{
    bool at_root = (uint32_t)call->root == g->rank;
    switch (call->kind) {
    case COLLRUN_BARRIER:
    case COLLRUN_SEND:
        return false;
    case COLLRUN_REDUCE:
    case COLLRUN_GATHER:
    case COLLRUN_GATHERV:
        return at_root;
    default:
        return true;
    }
}

/* Asking CUDA takes longer than the rest of the way. Where the group works on GPU memory alone, a
 * pointer that was there once is there: all that the question is good for is a sentence. */
static enum collrun_memory memory_kind(struct collrun_group *g, const void *ptr)
{
    bool remembers = !(g->sides[0].backend->memory & COLLRUN_MEMORY_HOST);
    _Atomic(const void *) *known = &g->on_gpu[((uintptr_t)ptr >> 8) % GROUP_KNOWN];
    if (remembers && ptr && atomic_load_explicit(known, memory_order_relaxed) == ptr)
        return COLLRUN_MEMORY_CUDA;
    enum collrun_memory kind = gpu_memory_kind(ptr);
    if (remembers && kind == COLLRUN_MEMORY_CUDA)
        atomic_store_explicit(known, ptr, memory_order_relaxed);
    return kind;
}

static int memory_of(struct collrun_group *g, const struct collrun_call *call,
                     enum collrun_memory *out)
{
    const void *send = uses_send(g, call) ? call->send : NULL;
    const void *recv = uses_recv(g, call) ? call->recv : NULL;
    *out = memory_kind(g, send ? send : recv);
    if (!send || !recv || send == recv || memory_kind(g, recv) == *out)
        return COLLRUN_OK;
    return error_cause(COLLRUN_ERR_INVALID,
                       "the send buffer is in %s memory, the receive buffer "
                       "in %s memory",
                       *out == COLLRUN_MEMORY_CUDA ? "GPU" : "host",
                       *out == COLLRUN_MEMORY_CUDA ? "host" : "GPU");
}

static bool has_buffer(const struct collrun_group *g, const struct collrun_call *call)
{
    return (uses_send(g, call) && call->send) || (uses_recv(g, call) && call->recv);
}

int route_find(struct collrun_group *g, const struct collrun_call *call, struct route *out)
{
    enum collrun_memory memory = COLLRUN_MEMORY_HOST;
    *out = (struct route){.side = &g->sides[0]};
    if (!g->has_gpus)
        return COLLRUN_OK;
    int rc = memory_of(g, call, &memory);
    if (rc != COLLRUN_OK)
        return rc;
    if (g->nsides == 2 && memory == COLLRUN_MEMORY_CUDA)
        out->side = &g->sides[1];
    const struct backend *b = out->side->backend;
    if (b->memory & memory || !has_buffer(g, call))
        return COLLRUN_OK;
    out->staged = memory == COLLRUN_MEMORY_CUDA;
    if (out->staged)
        return COLLRUN_OK;
    return error_cause(COLLRUN_ERR_UNSUPPORTED,
                       "the buffer is in host memory, and backend \"%s\" works on GPU memory; take "
                       "it from collrun_alloc, or give the group a backend for each: {host: gloo, "
                       "cuda: %s}",
                       b->name, b->name);
}
