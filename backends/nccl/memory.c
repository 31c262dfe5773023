/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for collrun_alloc: on the GPU, and registered with the group's communicator, so that NCCL
 * moves it without a copy where the hardware can (NVLink SHARP, GPUDirect RDMA). If NCCL has no
 * allocator, it is plain memory of CUDA.
 */
#include "memory.h"

#include "capture.h"
#include "frees.h"
#include "group.h"

#include <stdlib.h>

struct allocation {
    void *ptr, *handle; /* handle: of the registration; NULL = none */
    size_t len;
    uint32_t dev;
    bool by_nccl;
    struct allocation *next;
};

static void memory_register(struct nccl_group *g, struct allocation *a)
{
    const struct nccl_api *nccl = &g->context->lib.nccl;
    const struct dev_comm *dev = &g->devs[a->dev];
    if (nccl->ncclCommRegister && nccl->ncclCommDeregister && dev->comm &&
        nccl->ncclCommRegister(dev->comm, a->ptr, a->len, &a->handle) != ncclSuccess)
        a->handle = NULL; /* not registered: NCCL copies */
}

static int memory_new(struct nccl_group *g, struct allocation *a, size_t len)
{
    const struct nccl_api *nccl = &g->context->lib.nccl;
    struct dev_comm *dev = &g->devs[a->dev];
    a->by_nccl =
        nccl->ncclMemAlloc && nccl->ncclMemFree && nccl->ncclMemAlloc(&a->ptr, len) == ncclSuccess;
    if (!a->by_nccl) {
        const struct cuda_api *cuda = &g->context->lib.cuda;
        cudaError_t error = cuda->cudaMalloc(&a->ptr, len);
        if (error == cudaErrorMemoryAllocation && frees_all())
            error = cuda->cudaMalloc(&a->ptr, len);
        if (error == cudaErrorMemoryAllocation) {
            cuda->cudaGetLastError(); /* clears it: a later call would return it */
            return g->services->fail(g->services->ctx, COLLRUN_ERR_NO_MEMORY,
                                     "out of memory on GPU %d: no %zu bytes are free", dev->ordinal,
                                     len);
        }
        if (error != cudaSuccess)
            return nccl_group_fail_cuda(g, dev, error, "allocate memory");
    }
    a->len = len;
    if (atomic_load(&g->forming.done))
        memory_register(g, a);
    return COLLRUN_OK;
}

void memory_register_all(struct nccl_group *g)
{
    for (struct allocation *a = g->memory; a; a = a->next)
        memory_register(g, a);
}

int nccl_alloc_on(void *group, uint32_t device, size_t len, void **ptr)
{
    struct nccl_group *g = group;
    struct allocation *a = calloc(1, sizeof *a);
    if (!a)
        return nccl_group_out_of_memory(g);
    a->dev = device;
    pthread_mutex_lock(&g->lock);
    const enum cudaStreamCaptureMode mode = capture_relax(&g->context->lib.cuda);
    int before = device_enter(g->context, g->devs[device].ordinal);
    int status = memory_new(g, a, len ? len : 1);
    device_leave(g->context, before);
    capture_restore(&g->context->lib.cuda, mode);
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

static void memory_release(struct nccl_group *g, struct allocation *a)
{
    const struct libraries *lib = &g->context->lib;
    struct dev_comm *dev = &g->devs[a->dev];
    const enum cudaStreamCaptureMode mode = capture_relax(&lib->cuda);
    int before = device_enter(g->context, dev->ordinal);
    if (a->handle && dev->comm)
        lib->nccl.ncclCommDeregister(dev->comm, a->handle);
    frees_add(FREE_DEVICE, a->ptr, dev->ordinal, &lib->cuda, a->by_nccl ? &lib->nccl : NULL);
    device_leave(g->context, before);
    capture_restore(&lib->cuda, mode);
    free(a);
}

int nccl_free(void *group, void *ptr)
{
    struct nccl_group *g = group;
    pthread_mutex_lock(&g->lock);
    struct allocation **link = &g->memory;
    while (*link && (*link)->ptr != ptr)
        link = &(*link)->next;
    struct allocation *a = *link;
    if (a) {
        *link = a->next;
        memory_release(g, a);
    }
    pthread_mutex_unlock(&g->lock);
    return a ? COLLRUN_OK
             : g->services->fail(g->services->ctx, COLLRUN_ERR_INVALID,
                                 "%p was not allocated by collrun_alloc on this group", ptr);
}

void memory_fini(struct nccl_group *g)
{
    while (g->memory) {
        struct allocation *next = g->memory->next;
        memory_release(g, g->memory);
        g->memory = next;
    }
}
