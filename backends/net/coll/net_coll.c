/* SPDX-License-Identifier: Apache-2.0
 *
 * See net_coll.h: the life of a group's collectives, and the choice of the algorithm.
 */
#include "coll/net_coll.h"

#include "coll/coll.h"

#include <stdlib.h>
#include <string.h>

struct net_coll {
    struct net_hosts hosts;
    struct net_local *local;
};

const struct collrun_capability net_coll_native[] = {
    COLLRUN_ALL_BUT_SCANS(COLLRUN_MEMORY_HOST),
    {0},
};

int net_coll_open(const struct collrun_group_desc *desc, struct net_coll **out)
{
    const struct collrun_services *s = desc->services;
    const char *local = s->option(s->ctx, "local");
    struct net_coll *coll = calloc(1, sizeof *coll);
    if (!coll || !net_hosts_init(&coll->hosts, desc, local && strcmp(local, "shm") != 0)) {
        free(coll);
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory for the group");
    }
    int status = COLLRUN_OK;
    if (net_hosts_count(&coll->hosts, coll->hosts.of[desc->rank]) > 1)
        status = net_local_open(desc, &coll->hosts, NULL, &coll->local);
    if (status != COLLRUN_OK) {
        net_coll_close(coll);
        return status;
    }
    *out = coll;
    return COLLRUN_OK;
}

void net_coll_close(struct net_coll *coll)
{
    if (!coll)
        return;
    net_local_close(coll->local);
    net_hosts_fini(&coll->hosts);
    free(coll);
}

const struct net_hosts *net_coll_hosts(const struct net_coll *coll)
{
    return &coll->hosts;
}

struct net_local *net_coll_local(const struct net_coll *coll)
{
    return coll->local;
}

void net_coll_fail(struct net_coll *coll, int status, const char *text)
{
    if (coll->local)
        net_local_fail(coll->local, status, text);
}

const char *net_coll_failure_text(const struct net_coll *coll)
{
    return coll->local ? net_local_failure_text(coll->local) : "";
}

static int net_coll_dispatch(struct coll *c)
{
    switch (c->call->kind) {
    case COLLRUN_BARRIER:
        return coll_barrier(c);
    case COLLRUN_BROADCAST:
        return coll_broadcast(c);
    case COLLRUN_ALLREDUCE:
        return coll_allreduce(c);
    case COLLRUN_REDUCE:
        return coll_reduce(c);
    case COLLRUN_REDUCE_SCATTER:
    case COLLRUN_REDUCE_SCATTERV:
        return coll_reduce_scatter(c);
    case COLLRUN_ALLGATHER:
    case COLLRUN_ALLGATHERV:
        return coll_allgather(c);
    case COLLRUN_GATHER:
    case COLLRUN_GATHERV:
    case COLLRUN_SCATTER:
    case COLLRUN_SCATTERV:
        return coll_gather(c);
    case COLLRUN_ALLTOALL:
    case COLLRUN_ALLTOALLV:
        return coll_alltoall(c);
    default:
        return c->services->fail(c->services->ctx, COLLRUN_ERR_UNSUPPORTED,
                                 "%s is not supported by this backend",
                                 c->services->kind_name(c->call->kind));
    }
}

/* All ranks share a host: their ranks in the local group are those of the group. */
static int net_coll_run_here(struct coll *c)
{
    struct collrun_call call;
    COLLRUN_COPY(&call, c->call);
    return net_local_run(c->local, &call, false);
}

int net_coll_run(struct net_coll *coll, struct net_op *op)
{
    const struct collrun_call *call = net_op_call(op);
    struct coll c = {.op = op,
                     .call = call,
                     .services = net_op_services(op),
                     .hosts = &coll->hosts,
                     .local = coll->local,
                     .rank = net_op_rank(op),
                     .nranks = net_op_size(op),
                     .has_root = collrun_kind_has_root(call->kind)};
    c.elem = call->kind == COLLRUN_BARRIER ? 1 : c.services->dtype_size(call->dtype);
    c.host = coll->hosts.of[c.rank];
    c.root_host = c.has_root ? coll->hosts.of[call->root] : 0;
    c.leads = coll_leader(&c, c.host) == c.rank;
    if (c.local)
        net_local_begin(c.local, call);
    if (c.local && coll->hosts.n == 1)
        return net_coll_run_here(&c);
    return net_coll_dispatch(&c);
}
