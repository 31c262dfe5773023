/* SPDX-License-Identifier: Apache-2.0
 *
 * The group is assembled as group_open would leave it, without a rendezvous.
 */
#include "null_group.h"

#include "core/backend.h"
#include "core/process.h"
#include "core/services.h"
#include "group/group_open.h"
#include "ops/request.h"
#include "progress/p2p.h"
#include "progress/progress_queue.h"

#include <collrun/collrun.h>
#include <stdlib.h>
#include <string.h>

struct null_backend null_backend;

struct null_process {
    struct process process; /* first: null_group_free finds the rest by it */
    struct group_table groups;
};

static int null_exec(void *group, const struct collrun_call *calls, uint32_t n)
{
    (void)group;
    null_backend.calls += n;
    null_backend.longest = n > null_backend.longest ? n : null_backend.longest;
    null_backend.last = calls[n - 1];
    if (null_backend.inside)
        null_backend.inside();
    for (uint32_t i = 0; i < n; i++) {
        if (calls[i].kind == COLLRUN_RECV_ANY && calls[i].source)
            *calls[i].source = null_backend.source;
        if (calls[i].received_tag)
            *calls[i].received_tag = null_backend.tag;
    }
    return null_backend.answer;
}

static int null_open(void *backend, const struct collrun_group_desc *desc, void **group)
{
    (void)backend;
    (void)desc;
    *group = NULL;
    return COLLRUN_OK;
}

static void count_abort(void *group)
{
    (void)group;
    null_backend.aborts++;
}

static void nothing(void *group)
{
    (void)group;
}

#define EVERY_OP ((1u << COLLRUN_OP_COUNT) - 1)
#define MOVES(kind)                                                                                \
    {                                                                                              \
        (kind), COLLRUN_MEMORY_HOST, UINT64_MAX, 0                                                 \
    }
#define REDUCES(kind)                                                                              \
    {                                                                                              \
        (kind), COLLRUN_MEMORY_HOST, UINT64_MAX, EVERY_OP                                          \
    }

static const struct collrun_capability native[] = {
    MOVES(COLLRUN_BARRIER),
    REDUCES(COLLRUN_ALLREDUCE),
    REDUCES(COLLRUN_REDUCE),
    MOVES(COLLRUN_BROADCAST),
    MOVES(COLLRUN_ALLGATHER),
    MOVES(COLLRUN_GATHER),
    MOVES(COLLRUN_SCATTER),
    REDUCES(COLLRUN_REDUCE_SCATTER),
    MOVES(COLLRUN_ALLTOALL),
    MOVES(COLLRUN_ALLGATHERV),
    MOVES(COLLRUN_GATHERV),
    MOVES(COLLRUN_SCATTERV),
    REDUCES(COLLRUN_REDUCE_SCATTERV),
    MOVES(COLLRUN_ALLTOALLV),
    MOVES(COLLRUN_SEND),
    MOVES(COLLRUN_RECV),
    REDUCES(COLLRUN_SCAN),
    REDUCES(COLLRUN_EXSCAN),
    {0},
};

struct collrun_group *null_group_new(uint32_t rank, uint32_t nranks, uint64_t flags)
{
    struct collrun_backend table = {COLLRUN_BACKEND_HEAD,
                                    .name = "null",
                                    .version = "0",
                                    .flags = flags,
                                    .native = native,
                                    .group_open = null_open,
                                    .group_abort = count_abort,
                                    .group_close = nothing,
                                    .exec = null_exec};
    struct collrun_group *g = calloc(1, sizeof *g);
    struct null_process *e = calloc(1, sizeof *e);
    struct backend *b = calloc(1, sizeof *b);
    uint32_t *members = calloc(nranks, sizeof *members);
    struct group_backend *gb = calloc(1, sizeof *gb);
    if (!g || !e || !b || !members || !gb || backend_adopt(&table, "", b, NULL) != COLLRUN_OK)
        abort();
    for (uint32_t i = 0; i < nranks; i++)
        members[i] = i;
    pthread_mutex_init(&e->process.control.lock, NULL);
    e->process.control.broken = true; /* there is no connection: what is sent is dropped */
    group_table_init(&e->groups, &e->process, &request_group_ops);
    pthread_mutex_init(&g->status.lock, NULL);
    pthread_mutex_init(&g->requests.lock, NULL);
    atomic_init(&g->refs, 1);
    g->process = &e->process;
    g->table = &e->groups;
    g->nbackends = 1;
    g->backends = gb;
    gb->backend = b;
    gb->group = g;
    gb->comm_size = nranks;
    gb->first_comm_rank = rank;
    g->id.name = strdup("test");
    g->id.members = (struct desc_ranks){.items = members, .n = nranks};
    g->rank = rank;
    g->nranks = nranks;
    g->timeout_ns = 1000000000;
    g->id.index = UINT32_MAX;
    for (int i = 0; i < 2; i++) {
        pq_init(&gb->queues[i], &(struct pq_config){.backend = b,
                                                    .ops = &request_pq_ops,
                                                    .ctx = gb,
                                                    .failed = &g->status.code,
                                                    .busy = &e->process.busy});
        gb->pq[i] = &gb->queues[i];
    }
    gb->nqueues = 2;
    null_backend = (struct null_backend){0};
    return g;
}

struct p2p *null_group_carry(struct collrun_group *g, const struct collrun_transport *transport)
{
    static struct services services;
    services_init(&services, NULL, NULL, NULL, "test");
    struct p2p *p2p = p2p_new(transport, &services.table, g->rank, g->nranks);
    struct progress_queue *pq = g->backends[0].pq[GROUP_MESSAGES];
    pq->config.p2p = p2p;
    pq->starts = true;
    return p2p;
}

struct collrun_call null_group_message(enum collrun_kind kind, void *data, size_t len)
{
    struct collrun_call call = COLLRUN_CALL(kind);
    call.send = call.recv = data;
    call.count = len;
    call.dtype = COLLRUN_UINT8;
    call.peer = 1;
    return call;
}

struct collrun_request *null_group_start(struct collrun_group *g, struct collrun_call call)
{
    struct collrun_request *request = NULL;
    if (collrun_start(g, &call, &request) != COLLRUN_OK || !request)
        abort();
    return request;
}

void null_group_free(struct collrun_group *g)
{
    struct null_process *e = (struct null_process *)g->process;
    struct backend *b = g->backends[0].backend;
    group_close(g);
    group_table_fini(&e->groups);
    buf_fini(&e->process.control.out);
    backend_close(b);
    free(b);
    pthread_mutex_destroy(&e->process.control.lock);
    free(e);
}

int null_transport_recv(void *group, struct collrun_message *m, const void *packet, size_t len)
{
    (void)group, (void)m, (void)packet, (void)len;
    return COLLRUN_OK;
}

int null_transport_progress(void *group, uint64_t wait_ns)
{
    (void)group, (void)wait_ns;
    return COLLRUN_OK;
}
