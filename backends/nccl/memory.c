/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for collrun_alloc: on the GPU, and registered with the group's communicator, so that NCCL
 * moves it without a copy where the hardware can (NVLink SHARP, GPUDirect RDMA). If NCCL has no
 * allocator, it is plain memory of CUDA.
 */
#include "memory.h"

#include "capture.h"
#include "context.h"
#include "group.h"

#include <pthread.h>
#include <stdatomic.h>
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

/* ---- frees ---- */

struct free_item {
    struct free_item *next;
    enum free_kind kind;
    void *ptr;
    int ordinal;
    struct cuda_api cuda;                 /* the backend may be closed before it is freed */
    ncclResult_t (*nccl_free)(void *ptr); /* NULL: it is none of NCCL's */
};

static struct {
    pthread_mutex_t lock; /* held while memory is freed */
    struct context *contexts;
    struct free_item *kept;
    atomic_uint count; /* of those */
} frees = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void free_run(const struct free_item *item)
{
    const struct cuda_api *cuda = &item->cuda;
    int before = item->ordinal;
    cuda->cudaGetDevice(&before);
    if (before != item->ordinal)
        cuda->cudaSetDevice(item->ordinal);
    if (item->nccl_free)
        item->nccl_free(item->ptr);
    else if (item->kind == FREE_HOST)
        cuda->cudaFreeHost(item->ptr);
    else
        cuda->cudaFree(item->ptr);
    if (before != item->ordinal)
        cuda->cudaSetDevice(before);
}

/* With the lock. */
static void frees_run(void)
{
    struct free_item *item;
    while ((item = frees.kept)) {
        frees.kept = item->next;
        atomic_fetch_sub(&frees.count, 1);
        free_run(item);
        free(item);
    }
}

static void frees_unlock_devices(struct context *context, int n)
{
    while (n > 0)
        pthread_mutex_unlock(&context->devices[--n].issue_lock);
}

/* Nothing is in flight on a GPU of this context, and nothing is launched until they are unlocked.
 */
static bool frees_lock_devices(struct context *context)
{
    for (int i = 0; i < context->lib.device_count; i++) {
        struct device *d = &context->devices[i];
        if (pthread_mutex_trylock(&d->issue_lock) != 0) {
            frees_unlock_devices(context, i);
            return false;
        }
        if (atomic_load(&d->in_flight)) {
            frees_unlock_devices(context, i + 1);
            return false;
        }
    }
    return true;
}

/* Unlocks all contexts up to `end`. */
static void frees_unlock(const struct context *end)
{
    for (struct context *c = frees.contexts; c != end; c = c->next)
        frees_unlock_devices(c, c->lib.device_count);
}

static bool frees_lock(void)
{
    for (struct context *c = frees.contexts; c; c = c->next)
        if (!frees_lock_devices(c)) {
            frees_unlock(c);
            return false;
        }
    return true;
}

void frees_sweep(void)
{
    if (!atomic_load(&frees.count) || pthread_mutex_trylock(&frees.lock) != 0)
        return;
    if (frees_lock()) {
        frees_run();
        frees_unlock(NULL);
    }
    pthread_mutex_unlock(&frees.lock);
}

void frees_add(enum free_kind kind, void *ptr, int ordinal, const struct cuda_api *cuda,
               const struct nccl_api *nccl)
{
    struct free_item *item = malloc(sizeof *item);
    const struct free_item now = {.kind = kind,
                                  .ptr = ptr,
                                  .ordinal = ordinal,
                                  .cuda = *cuda,
                                  .nccl_free = nccl ? nccl->ncclMemFree : NULL};
    if (!item) {
        free_run(&now);
        return;
    }
    *item = now;
    pthread_mutex_lock(&frees.lock);
    item->next = frees.kept;
    frees.kept = item;
    atomic_fetch_add(&frees.count, 1);
    pthread_mutex_unlock(&frees.lock);
    frees_sweep();
}

bool frees_all(void)
{
    pthread_mutex_lock(&frees.lock);
    const bool any = frees.kept != NULL;
    frees_run();
    pthread_mutex_unlock(&frees.lock);
    return any;
}

void frees_watch(struct context *context)
{
    pthread_mutex_lock(&frees.lock);
    context->next = frees.contexts;
    frees.contexts = context;
    pthread_mutex_unlock(&frees.lock);
}

void frees_unwatch(struct context *context)
{
    pthread_mutex_lock(&frees.lock);
    struct context **link = &frees.contexts;
    while (*link != context)
        link = &(*link)->next;
    *link = context->next;
    pthread_mutex_unlock(&frees.lock);
    frees_sweep();
}
