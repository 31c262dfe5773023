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
    const struct group_side *s = group_gpu_side(g);
    switch (call->kind) {
    case COLLRUN_BARRIER:
    case COLLRUN_BROADCAST:
    case COLLRUN_RECV:
    case COLLRUN_RECV_ANY:
        return false;
    case COLLRUN_SCATTER:
    case COLLRUN_SCATTERV:
        return route_root(s, call) == route_place(s, call);
    default:
        return true;
    }
}

static bool uses_recv(const struct collrun_group *g, const struct collrun_call *call)
{
    const struct group_side *s = group_gpu_side(g);
    switch (call->kind) {
    case COLLRUN_BARRIER:
    case COLLRUN_SEND:
        return false;
    case COLLRUN_REDUCE:
    case COLLRUN_GATHER:
    case COLLRUN_GATHERV:
        return route_root(s, call) == route_place(s, call);
    default:
        return true;
    }
}

/* Of a call for one GPU: what it uses has to be there, or wherever it is touched. */
static int check_place(const struct collrun_group *g, const struct collrun_call *call, int device)
{
    uint32_t n = group_gpu_side(g)->ndevices;
    if (device < 0 || call->device < 0 || (uint32_t)call->device >= n || device == call->device)
        return COLLRUN_OK;
    return error_cause(COLLRUN_ERR_INVALID, "a buffer is on GPU %d, and the call is for GPU %d",
                       device, call->device);
}

/* Asking CUDA takes longer than the rest of the way. Where the group works on GPU memory alone, a
 * pointer that was there once is there: all that the question is good for is a sentence. What is
 * remembered is the address with the call's device above it, where no address has bits. */
static int memory_kind(struct collrun_group *g, const struct collrun_call *call, const void *ptr,
                       enum collrun_memory *out)
{
    bool remembers = ptr && !(g->sides[0].backend->memory & COLLRUN_MEMORY_HOST);
    uintptr_t key = (uintptr_t)ptr ^ (uintptr_t)call->device << 58;
    atomic_uintptr_t *known = &g->on_gpu[((uintptr_t)ptr >> 8) % GROUP_KNOWN];
    int device;
    *out = COLLRUN_MEMORY_CUDA;
    if (remembers && atomic_load_explicit(known, memory_order_relaxed) == key)
        return COLLRUN_OK;
    *out = gpu_memory_kind(ptr, &device);
    int rc = check_place(g, call, device);
    if (rc == COLLRUN_OK && remembers && *out == COLLRUN_MEMORY_CUDA)
        atomic_store_explicit(known, key, memory_order_relaxed);
    return rc;
}

static int memory_of(struct collrun_group *g, const struct collrun_call *call,
                     enum collrun_memory *out)
{
    const void *send = uses_send(g, call) ? call->send : NULL;
    const void *recv = uses_recv(g, call) ? call->recv : NULL;
    enum collrun_memory second = COLLRUN_MEMORY_HOST;
    int rc = memory_kind(g, call, send ? send : recv, out);
    if (rc != COLLRUN_OK || !send || !recv || send == recv)
        return rc;
    rc = memory_kind(g, call, recv, &second);
    if (rc != COLLRUN_OK || second == *out)
        return rc;
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
