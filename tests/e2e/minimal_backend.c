/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest backend that works: barrier and allreduce on one host, through one shared segment.
 * MINIMAL_NAME, MINIMAL_ABI and MINIMAL_WHY (the reason why it is unavailable) build variants.
 */
#include <collrun/backend.h>

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef MINIMAL_NAME
#define MINIMAL_NAME "minimal"
#endif
#ifndef MINIMAL_ABI
#define MINIMAL_ABI COLLRUN_BACKEND_ABI
#endif

enum { SLOT = 65536, MAX = 64 };

struct shared {
    atomic_uint arrived, turn;
    unsigned char slots[MAX][SLOT];
};

struct group {
    struct shared *shared;
    const struct collrun_services *services;
    uint32_t rank, nranks;
    atomic_bool aborted;
};

static int probe(const struct collrun_services *s, char *why, size_t len)
{
    (void)s;
#ifdef MINIMAL_WHY
    strncpy(why, MINIMAL_WHY, len);
    return COLLRUN_ERR_UNAVAILABLE;
#else
    (void)why;
    (void)len;
    return COLLRUN_OK;
#endif
}

static int group_open(void *backend, const struct collrun_group_desc *d, void **group)
{
    const struct collrun_services *s = d->services;
    struct group *g = calloc(1, sizeof *g);
    int fd;
    uint64_t offset;
    (void)backend;
    if (g == NULL || d->nranks > MAX)
        return s->fail(s->ctx, COLLRUN_ERR_BACKEND, "at most %d ranks", MAX);
    int status = d->rendezvous->segment(d->rendezvous->ctx, sizeof(struct shared), &fd, &offset);
    if (status != COLLRUN_OK)
        return status;
    g->shared =
        mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    g->services = s, g->rank = d->rank, g->nranks = d->nranks;
    *group = g;
    return d->rendezvous->fence(d->rendezvous->ctx);
}

static void group_abort(void *group)
{
    atomic_store(&((struct group *)group)->aborted, true);
}

static void group_close(void *group)
{
    munmap(((struct group *)group)->shared, sizeof(struct shared));
    free(group);
}

static int barrier(struct group *g)
{
    unsigned turn = atomic_load(&g->shared->turn);
    if (atomic_fetch_add(&g->shared->arrived, 1) + 1 == g->nranks) {
        atomic_store(&g->shared->arrived, 0);
        atomic_fetch_add(&g->shared->turn, 1);
    }
    while (atomic_load(&g->shared->turn) == turn) {
        if (atomic_load(&g->aborted))
            return COLLRUN_ERR_ABORTED;
        sched_yield();
    }
    return COLLRUN_OK;
}

static int exec(void *group, const struct collrun_call *call, uint32_t ncalls)
{
    struct group *g = group;
    const void *srcs[MAX];
    size_t width = call->kind == COLLRUN_BARRIER ? 0 : g->services->dtype_size(call->dtype);
    if (ncalls != 1 || call->count * width > SLOT)
        return g->services->fail(g->services->ctx, COLLRUN_ERR_UNSUPPORTED,
                                 "at most %d bytes in one operation", SLOT);
    if (call->kind == COLLRUN_BARRIER)
        return barrier(g);
    memcpy(g->shared->slots[g->rank], call->send, call->count * width);
    int status = barrier(g);
    for (uint32_t r = 0; r < g->nranks; r++)
        srcs[r] = g->shared->slots[r];
    if (status == COLLRUN_OK)
        g->services->reduce(call->recv, srcs, g->nranks, call->count, call->dtype, call->op,
                            g->nranks);
    return status == COLLRUN_OK ? barrier(g) : status;
}

static const struct collrun_capability native[] = {
    {.kind = COLLRUN_BARRIER, .memory = COLLRUN_MEMORY_HOST},
    {.kind = COLLRUN_ALLREDUCE,
     .memory = COLLRUN_MEMORY_HOST,
     .dtypes = UINT64_MAX,
     .ops = UINT64_MAX},
    {0},
};

const struct collrun_backend collrun_backend_v1 = {
    .abi = MINIMAL_ABI,
    .size = (uint32_t)sizeof(struct collrun_backend),
    .call_size = (uint32_t)sizeof(struct collrun_call),
    .capability_size = (uint32_t)sizeof(struct collrun_capability),
    .param_size = (uint32_t)sizeof(struct collrun_param),
    .name = MINIMAL_NAME,
    .version = "0.1",
    .flags = COLLRUN_BACKEND_ONE_HOST,
    .native = native,
    .probe = probe,
    .group_open = group_open,
    .group_abort = group_abort,
    .group_close = group_close,
    .exec = exec,
};
