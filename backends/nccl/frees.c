/* SPDX-License-Identifier: Apache-2.0 */
#include "frees.h"

#include "context.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

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
