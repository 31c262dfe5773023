/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for collrun_alloc: of the GPU, and registered with the group's communicator, so that NCCL
 * moves it without a copy where the hardware can (NVLink SHARP, GPUDirect RDMA). Where NCCL has no
 * allocator of its own it is plain memory of the GPU.
 */
#include "group.h"

#include <stdlib.h>

struct allocation {
    void *ptr, *handle; /* handle: of the registration; NULL = none */
    uint32_t port;
    bool by_nccl;
    struct allocation *next;
};

static int take(struct nccl_group *g, struct allocation *a, size_t len)
{
    const struct nccl_api *nccl = &g->home->lib.nccl;
    struct port *p = &g->ports[a->port];
    a->by_nccl =
        nccl->ncclMemAlloc && nccl->ncclMemFree && nccl->ncclMemAlloc(&a->ptr, len) == ncclSuccess;
    if (!a->by_nccl) {
        const struct cuda_api *cuda = &g->home->lib.cuda;
        const cudaError_t error = cuda->cudaMalloc(&a->ptr, len);
        if (error == cudaErrorMemoryAllocation) {
            cuda->cudaGetLastError(); /* is not to surface elsewhere */
            return g->services->fail(g->services->ctx, COLLRUN_ERR_NO_MEMORY,
                                     "GPU %d has no %zu bytes left", p->ordinal, len);
        }
        if (error != cudaSuccess)
            return cuda_failed(g, p, error, "take memory");
    }
    if (nccl->ncclCommRegister && nccl->ncclCommDeregister && p->comm &&
        nccl->ncclCommRegister(p->comm, a->ptr, len, &a->handle) != ncclSuccess)
        a->handle = NULL; /* it works without, with a copy */
    return COLLRUN_OK;
}

int nccl_alloc_on(void *group, uint32_t device, size_t len, void **ptr)
{
    struct nccl_group *g = group;
    const struct collrun_services *s = g->services;
    struct allocation *a = calloc(1, sizeof(*a));
    if (!a)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    a->port = device;
    pthread_mutex_lock(&g->lock);
    const int before = device_enter(g->home, g->ports[device].ordinal);
    const int status = take(g, a, len ? len : 1);
    device_leave(g->home, before);
    if (status == COLLRUN_OK) {
        a->next = g->memory;
        g->memory = a;
        *ptr = a->ptr;
    }
    pthread_mutex_unlock(&g->lock);
    if (status != COLLRUN_OK)
        free(a);
    return status;
}

int nccl_alloc(void *group, size_t len, void **ptr)
{
    return nccl_alloc_on(group, 0, len, ptr);
}

static void give_back(struct nccl_group *g, struct allocation *a)
{
    const struct port *p = &g->ports[a->port];
    const int before = device_enter(g->home, p->ordinal);
    if (a->handle && p->comm)
        g->home->lib.nccl.ncclCommDeregister(p->comm, a->handle);
    if (a->by_nccl)
        g->home->lib.nccl.ncclMemFree(a->ptr);
    else
        g->home->lib.cuda.cudaFree(a->ptr);
    device_leave(g->home, before);
    free(a);
}

int nccl_free(void *group, void *ptr)
{
    struct nccl_group *g = group;
    pthread_mutex_lock(&g->lock);
    struct allocation **p = &g->memory;
    while (*p && (*p)->ptr != ptr)
        p = &(*p)->next;
    struct allocation *a = *p;
    if (a) {
        *p = a->next;
        give_back(g, a);
    }
    pthread_mutex_unlock(&g->lock);
    return a ? COLLRUN_OK
             : g->services->fail(g->services->ctx, COLLRUN_ERR_INVALID,
                                 "%p did not come from this group's collrun_alloc", ptr);
}

/* What the workload has not given back. */
void memory_fini(struct nccl_group *g)
{
    while (g->memory) {
        struct allocation *next = g->memory->next;
        give_back(g, g->memory);
        g->memory = next;
    }
}
