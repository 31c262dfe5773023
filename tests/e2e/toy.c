/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest backend that works: barrier and allreduce of the ranks of one host through one
 * shared segment, by turns. TOY_NAME, TOY_ABI and TOY_WHY (a reason to be unavailable) make
 * variants of it.
 */
#include <collrun/backend.h>

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef TOY_NAME
#define TOY_NAME "toy"
#endif
#ifndef TOY_ABI
#define TOY_ABI COLLRUN_BACKEND_ABI
#endif

enum { SLOT = 65536, MAX = 64 };

struct shared {
    atomic_uint arrived, turn;
    unsigned char slots[MAX][SLOT];
};

struct toy {
    struct shared *shared;
    const struct collrun_services *services;
    uint32_t rank, nranks;
    atomic_bool aborted;
};

static int probe(const struct collrun_services *s, char *why, size_t len)
{
    (void)s;
#ifdef TOY_WHY
    strncpy(why, TOY_WHY, len);
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
    struct toy *t = calloc(1, sizeof *t);
    int fd;
    (void)backend;
    if (t == NULL || d->nranks > MAX)
        return s->fail(s->ctx, COLLRUN_ERR_BACKEND, "at most %d ranks", MAX);
    int status = d->rendezvous->segment(d->rendezvous->ctx, "all", sizeof(struct shared), &fd);
    if (status != COLLRUN_OK)
        return status;
    t->shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    t->services = s, t->rank = d->rank, t->nranks = d->nranks;
    *group = t;
    return d->rendezvous->fence(d->rendezvous->ctx);
}

static void group_abort(void *group)
{
    atomic_store(&((struct toy *)group)->aborted, true);
}

static void group_close(void *group)
{
    munmap(((struct toy *)group)->shared, sizeof(struct shared));
    free(group);
}

static int barrier(struct toy *t)
{
    unsigned turn = atomic_load(&t->shared->turn);
    if (atomic_fetch_add(&t->shared->arrived, 1) + 1 == t->nranks) {
        atomic_store(&t->shared->arrived, 0);
        atomic_fetch_add(&t->shared->turn, 1);
    }
    while (atomic_load(&t->shared->turn) == turn) {
        if (atomic_load(&t->aborted))
            return COLLRUN_ERR_ABORTED;
        sched_yield();
    }
    return COLLRUN_OK;
}

static int exec(void *group, const struct collrun_call *call, uint32_t ncalls)
{
    struct toy *t = group;
    const void *srcs[MAX];
    size_t width = call->kind == COLLRUN_BARRIER ? 0 : t->services->dtype_size(call->dtype);
    if (ncalls != 1 || call->count * width > SLOT)
        return t->services->fail(t->services->ctx, COLLRUN_ERR_UNSUPPORTED, "too much for a toy");
    if (call->kind == COLLRUN_BARRIER)
        return barrier(t);
    memcpy(t->shared->slots[t->rank], call->send, call->count * width);
    int status = barrier(t);
    for (uint32_t r = 0; r < t->nranks; r++)
        srcs[r] = t->shared->slots[r];
    if (status == COLLRUN_OK)
        t->services->reduce(call->recv, srcs, t->nranks, call->count, call->dtype, call->op,
                            t->nranks);
    return status == COLLRUN_OK ? barrier(t) : status;
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
    .abi = TOY_ABI,
    .size = (uint32_t)sizeof(struct collrun_backend),
    .name = TOY_NAME,
    .version = "0.1",
    .flags = COLLRUN_BACKEND_ONE_HOST,
    .native = native,
    .probe = probe,
    .group_open = group_open,
    .group_abort = group_abort,
    .group_close = group_close,
    .exec = exec,
};
