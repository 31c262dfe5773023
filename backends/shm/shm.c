/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend of one host: ranks meet in one shared memory file (segment.h) and exchange everything
 * through it. Collectives are sequences of steps (step.h, exchange.h, combine.h); point to point
 * goes through boxes (p2p.h). There is no lock in shared memory, so a rank that is killed holds
 * none; group_abort writes the group's failure there and wakes everybody. This file is the
 * backend's table.
 */
#include "collective.h"
#include "group.h"
#include "wait.h"

#include <stdlib.h>

#define MOST_RANKS 2048u

static int check_desc(const struct collrun_group_desc *desc)
{
    const struct collrun_services *s = desc->services;
    if (desc->nranks > MOST_RANKS)
        return s->fail(s->ctx, COLLRUN_ERR_UNSUPPORTED, "%u ranks; shm takes up to %u",
                       desc->nranks, MOST_RANKS);
    for (uint32_t r = 0; r < desc->nranks; r++)
        if (desc->host_of[r] != desc->host_of[desc->rank])
            return s->fail(s->ctx, COLLRUN_ERR_UNSUPPORTED,
                           "shm needs all ranks on one host; rank %u is on another than rank %u", r,
                           desc->rank);
    return COLLRUN_OK;
}

static void group_free(struct shm_group *g)
{
    p2p_fini(&g->p2p);
    heap_fini(&g->own_heap, g->nranks);
    free(g->in);
    free(g->out);
    free(g->srcs);
    free(g);
}

static struct shm_group *group_new(const struct collrun_group_desc *desc)
{
    struct shm_group *g = calloc(1, sizeof(*g));
    if (!g)
        return NULL;
    g->services = desc->services;
    g->rank = desc->rank;
    g->nranks = desc->nranks;
    g->in = calloc(desc->nranks, sizeof(*g->in));
    g->out = calloc(desc->nranks, sizeof(*g->out));
    g->srcs = calloc(desc->nranks, sizeof(*g->srcs));
    g->sibling = desc->sibling;
    const int heap = heap_init(&g->own_heap, &g->seg, desc->nranks);
    g->heap = g->sibling ? g->sibling->heap : &g->own_heap;
    const int p2p = p2p_init(&g->p2p, desc->nranks);
    if (g->in && g->out && g->srcs && heap == COLLRUN_OK && p2p == COLLRUN_OK)
        return g;
    group_free(g);
    return NULL;
}

/* All members must wait in the same way; the first one's view of the cores holds for all. */
static bool agree_on_crowding(struct segment_head *head, const struct collrun_group_desc *desc)
{
    uint32_t mode = WAIT_UNDECIDED;
    const uint32_t mine =
        desc->ncpus > 0 && desc->nlocal > desc->ncpus ? WAIT_CROWDED : WAIT_DEDICATED;
    if (atomic_compare_exchange_strong(&head->mode, &mode, mine))
        mode = mine;
    return mode == WAIT_CROWDED;
}

static int shm_group_open(void *backend, const struct collrun_group_desc *desc, void **group)
{
    (void)backend;
    const struct collrun_services *s = desc->services;
    int status = check_desc(desc);
    if (status != COLLRUN_OK)
        return status;
    struct shm_group *g = group_new(desc);
    if (!g)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "no memory for the group");
    status = segment_open(&g->seg, desc);
    if (status != COLLRUN_OK) {
        group_free(g);
        return status;
    }
    g->failure = g->sibling ? g->sibling->failure : &g->seg.head->failure;
    g->crowded = agree_on_crowding(g->seg.head, desc);
    wait_init(g);
    *group = g;
    return COLLRUN_OK;
}

static void shm_group_abort(void *group)
{
    group_poison(group, COLLRUN_ERR_ABORTED, "the group was aborted");
}

static void shm_group_close(void *group)
{
    struct shm_group *g = group;
    segment_close(&g->seg);
    group_free(g);
}

static int shm_exec(void *group, const struct collrun_call *calls, uint32_t ncalls)
{
    struct shm_group *g = group;
    if (group_failed(g))
        return group_failure(g);
    if (ncalls == 0)
        return COLLRUN_OK;
    g->timeout_ns = calls[0].timeout_ns;
    g->deadline_ns = 0;
    if (calls[0].kind >= COLLRUN_SEND)
        return p2p_run(g, calls, ncalls);
    return collective_run(g, &calls[0]);
}

/* Messages only: whoever starts a collective has a thread to wait in it. */
static int shm_start(void *group, const struct collrun_call *calls, uint32_t ncalls, void **request)
{
    struct shm_group *g = group;
    if (group_failed(g))
        return group_failure(g);
    if (ncalls == 0 || calls[0].kind < COLLRUN_SEND)
        return COLLRUN_ERR_UNSUPPORTED;
    struct parcel *parcel = malloc(sizeof(*parcel));
    if (!parcel)
        return g->services->fail(g->services->ctx, COLLRUN_ERR_NO_MEMORY,
                                 "no memory for a request");
    const int status = p2p_start(g, calls, ncalls, parcel);
    if (status == COLLRUN_OK)
        *request = parcel;
    else
        free(parcel);
    return status;
}

static int shm_test(void *group, void *request)
{
    const int status = p2p_test(group, request);
    if (status != COLLRUN_AGAIN)
        free(request);
    return status;
}

static int shm_alloc(void *group, size_t len, void **ptr)
{
    return heap_alloc(group, len, ptr);
}

static int shm_free(void *group, void *ptr)
{
    return heap_free(group, ptr);
}

#define HOST COLLRUN_MEMORY_HOST
#define ANY_DTYPE UINT64_MAX
#define ANY_OP ((1u << COLLRUN_OP_COUNT) - 1)
#define REDUCES(kind_)                                                                             \
    {                                                                                              \
        kind_, HOST, (1u << COLLRUN_DTYPE_COUNT) - 1, ANY_OP                                       \
    }
#define MOVES(kind_)                                                                               \
    {                                                                                              \
        kind_, HOST, ANY_DTYPE, 0                                                                  \
    }

static const struct collrun_capability native[] = {
    {COLLRUN_BARRIER, HOST, 0, 0},
    REDUCES(COLLRUN_ALLREDUCE),
    REDUCES(COLLRUN_REDUCE),
    REDUCES(COLLRUN_REDUCE_SCATTER),
    REDUCES(COLLRUN_REDUCE_SCATTERV),
    MOVES(COLLRUN_BROADCAST),
    MOVES(COLLRUN_ALLGATHER),
    MOVES(COLLRUN_GATHER),
    MOVES(COLLRUN_SCATTER),
    MOVES(COLLRUN_ALLTOALL),
    MOVES(COLLRUN_ALLGATHERV),
    MOVES(COLLRUN_GATHERV),
    MOVES(COLLRUN_SCATTERV),
    MOVES(COLLRUN_ALLTOALLV),
    MOVES(COLLRUN_SEND),
    MOVES(COLLRUN_RECV),
    MOVES(COLLRUN_RECV_ANY),
    {0},
};

static const struct collrun_param no_options[] = {{0}};

const struct collrun_backend collrun_backend_v1 = {
    .abi = COLLRUN_BACKEND_ABI,
    .size = sizeof(struct collrun_backend),
    .name = "shm",
    .version = "1.0",
    .flags = COLLRUN_BACKEND_ONE_HOST | COLLRUN_BACKEND_TAGS | COLLRUN_BACKEND_RECV_ANY |
             COLLRUN_BACKEND_INLINE_CHECK,
    .native = native,
    .group_open = shm_group_open,
    .group_abort = shm_group_abort,
    .group_close = shm_group_close,
    .exec = shm_exec,
    .start = shm_start,
    .test = shm_test,
    .alloc = shm_alloc,
    .free = shm_free,
    .options = no_options,
    .eager_limit = BLOCK_BYTES,
};
