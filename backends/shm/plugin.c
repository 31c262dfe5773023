/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend of one host: ranks exchange everything through one shared memory file. This file
 * holds what the engine calls: the exported struct, and the life of a group.
 *
 * - Collectives are sequences of steps (coll/).
 * - Messages go through FIFOs of packets (p2p.h); the engine matches them.
 * - There is no lock in shared memory, so a rank that is killed holds none. A failure is written
 *   into the segment, and wakes all ranks; group_abort is the failure of one rank (group.h).
 */
#include "coll/coll.h"
#include "group.h"
#include "transport/transfer.h"
#include "transport/wait.h"

#include <stdlib.h>

static int shm_check_desc(const struct collrun_group_desc *desc)
{
    const struct collrun_services *s = desc->services;
    if (desc->nranks > SEGMENT_MAX_RANKS)
        return s->fail(s->ctx, COLLRUN_ERR_UNSUPPORTED,
                       "the group has %u ranks; shm takes at most %u", desc->nranks,
                       SEGMENT_MAX_RANKS);
    for (uint32_t r = 0; r < desc->nranks; r++)
        if (desc->host_of[r] != desc->host_of[desc->rank])
            return s->fail(
                s->ctx, COLLRUN_ERR_UNSUPPORTED,
                "shm needs all ranks on one host; ranks %u and %u are on different hosts",
                desc->rank, r);
    return COLLRUN_OK;
}

static void shm_group_free(struct shm_group *g)
{
    shm_p2p_fini(&g->p2p);
    heap_fini(&g->own_heap, g->nranks);
    cma_fini(&g->own_cma);
    free(g->coll.in);
    free(g->coll.out);
    free(g->coll.srcs);
    free(g->step.compared);
    free(g->step.signatures);
    free(g);
}

static struct shm_group *shm_group_new(const struct collrun_group_desc *desc)
{
    struct shm_group *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->services = desc->services;
    g->rank = desc->rank;
    g->nranks = desc->nranks;
    g->coll.in = calloc(desc->nranks, sizeof *g->coll.in);
    g->coll.out = calloc(desc->nranks, sizeof *g->coll.out);
    g->coll.srcs = calloc(desc->nranks, sizeof *g->coll.srcs);
    g->step.compared = calloc(desc->nranks, sizeof *g->step.compared);
    g->sibling = desc->collectives_handle;
    const int heap = heap_init(&g->own_heap, &g->seg, desc->nranks);
    g->heap = g->sibling ? g->sibling->heap : &g->own_heap;
    const int cma = cma_init(&g->own_cma, desc->nranks);
    g->cma = g->sibling ? g->sibling->cma : &g->own_cma;
    const int p2p = shm_p2p_init(&g->p2p, desc->p2p, desc->nranks);
    if (g->coll.in && g->coll.out && g->coll.srcs && g->step.compared && heap == COLLRUN_OK &&
        cma == COLLRUN_OK && p2p == COLLRUN_OK)
        return g;
    shm_group_free(g);
    return NULL;
}

static enum wait_mode shm_wait_mode(const struct collrun_group_desc *desc)
{
    if (desc->ncpus == 0 || desc->nlocal <= desc->ncpus)
        return WAIT_DEDICATED;
    return desc->ncpus <= 2 ? WAIT_FEW_CORES : WAIT_OVERSUBSCRIBED;
}

/* All members must wait in the same way: the first one decides for all. */
static enum wait_mode shm_agree_on_wait_mode(struct segment_head *head,
                                             const struct collrun_group_desc *desc)
{
    uint32_t mode = WAIT_UNDECIDED;
    const uint32_t mine = shm_wait_mode(desc);
    return atomic_compare_exchange_strong(&head->mode, &mode, mine) ? mine : mode;
}

static void shm_group_close(void *group)
{
    struct shm_group *g = group;
    segment_close(&g->seg);
    shm_group_free(g);
}

static int shm_group_open(void *backend, const struct collrun_group_desc *theirs, void **group)
{
    (void)backend;
    struct collrun_group_desc copy;
    const struct collrun_group_desc *desc = &copy;
    COLLRUN_COPY(&copy, theirs);
    const struct collrun_services *s = desc->services;
    int status = shm_check_desc(desc);
    if (status != COLLRUN_OK)
        return status;
    struct shm_group *g = shm_group_new(desc);
    if (!g)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory for the group");
    status = segment_open(&g->seg, g->sibling ? &g->sibling->seg : NULL, desc);
    if (status != COLLRUN_OK) {
        shm_group_free(g);
        return status;
    }
    g->failure = &g->seg.head->failure;
    const char *cma = s->option(s->ctx, "cma");
    if (!g->sibling && !(cma && strcmp(cma, "off") == 0))
        cma_publish(g);
    wait_init(g, shm_agree_on_wait_mode(g->seg.head, desc));
    segment_set_depth(&g->seg, g->wait.oversubscribed);
    g->step.signatures = calloc(g->seg.depth, sizeof *g->step.signatures);
    if (!g->step.signatures) {
        shm_group_close(g);
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory for the group");
    }
    *group = g;
    return COLLRUN_OK;
}

static void shm_group_abort(void *group)
{
    shm_group_abort_here(group);
}

static int shm_exec(void *group, const struct collrun_call *calls, uint32_t ncalls)
{
    struct shm_group *g = group;
    if (shm_group_has_failed(g))
        return shm_group_report_failure(g);
    if (ncalls == 0)
        return COLLRUN_OK;
    wait_set_timeout(g, calls[0].timeout_ns);
    return coll_run(g, &calls[0]);
}

static void shm_fail(void *group, uint32_t peer, int status, const char *text)
{
    (void)peer;
    shm_group_set_failure(group, status, text);
}

static int shm_alloc(void *group, size_t len, void **ptr)
{
    return heap_alloc(group, len, ptr);
}

static int shm_free(void *group, void *ptr)
{
    return heap_free(group, ptr);
}

static const struct collrun_capability native[] = {
    COLLRUN_ALL_BUT_SCANS(COLLRUN_MEMORY_HOST),
    {0},
};

static const struct collrun_transport transport = {
    .size = sizeof(struct collrun_transport),
    .message_size = sizeof(struct transfer),
    .send = shm_p2p_send,
    .post = shm_p2p_post,
    .recv = shm_p2p_recv,
    .flush = shm_p2p_flush,
    .progress = shm_p2p_progress,
    .fail = shm_fail,
    .unpost = shm_p2p_unpost,
    .wake = shm_p2p_wake,
    .send_short = shm_p2p_send_short,
    .recv_short = shm_p2p_recv_short,
};

static const struct collrun_param options[] = {
    {.name = "cma",
     .type = COLLRUN_PARAM_ENUM,
     .def = "auto",
     .choices = "auto|off",
     .help = "auto: long messages are read from the memory of their sender, where the kernel "
             "permits it, for which all processes of the user may trace the ranks; off: they are "
             "copied through shared memory"},
    {0}};

const struct collrun_backend collrun_backend_v1 = {
    COLLRUN_BACKEND_HEAD,
    .name = "shm",
    .version = "1.0",
    .flags = COLLRUN_BACKEND_ONE_HOST | COLLRUN_BACKEND_INLINE_CHECK,
    .native = native,
    .group_open = shm_group_open,
    .group_abort = shm_group_abort,
    .group_close = shm_group_close,
    .exec = shm_exec,
    .alloc = shm_alloc,
    .free = shm_free,
    .options = options,
    .eager_limit = EAGER_BYTES,
    .transport = &transport,
};
