/* SPDX-License-Identifier: Apache-2.0
 *
 * struct nccl_group: one handle of a group in this process. The engine opens two for each of its
 * groups, each with its own communicators and streams: first one for collectives, then one for
 * messages, which is closed first and has a `p2p`. The communicators of messages are formed when
 * the first rank sends one (on_demand.h), those of collectives with the group, or, if its
 * description says ON_DEMAND, when the first rank calls one.
 */
#ifndef NCCL_GROUP_H
#define NCCL_GROUP_H

#include "comm.h"
#include "context.h"
#include "coord/client.h"
#include "group_status.h"
#include "nccl_api.h"
#include "on_demand.h"
#include "p2p.h"
#include "request.h"
#include "scheduler.h"

#include <collrun/backend.h>

struct allocation;
struct coord_server;

struct forming_watch { /* of the thread that forms them */
    /* They will not be formed: another rank has failed, or has closed the group. */
    bool (*is_over)(const struct forming_watch *watch);
};

struct forming {                                 /* of the communicators */
    const struct collrun_rendezvous *rendezvous; /* during group_open; else NULL */
    uint64_t checked_ns;                         /* when the state of the job was last queried */
    /* While a thread of on_demand.c forms them; else NULL. */
    _Atomic(const struct forming_watch *) watch;
    bool wanted;        /* the coordinator was asked for them */
    atomic_bool done;   /* successfully; stored after them, acquired before they are used */
    atomic_bool inside; /* NCCL, which makes them, and should return soon */
};

struct nccl_group {
    struct context *context;
    const struct collrun_services *services; /* after group_close: the context's */
    char *name;
    uint32_t rank, nranks;
    uint32_t ndevs, size; /* GPUs per process; communicator ranks: nranks * ndevs */

    struct nccl_config config; /* of its communicators */
    char *net_name;            /* in it */

    pthread_mutex_t lock; /* of `devs` and `memory` */
    struct dev_comm *devs;
    struct allocation *memory; /* of collrun_alloc */

    struct group_status status;
    struct abort_entry abort;
    struct forming forming;
    struct sched_queue sched; /* collectives */
    /* In the handle for collectives, of a group with several communicator ranks; else NULL. */
    struct coord_server *coord_server; /* rank 0's */
    struct coord_client *coord;
    struct on_demand *on_demand;
    struct nccl_group *messages; /* the handle for messages, once that is closed */
    /* In the handle for messages; else NULL. */
    struct p2p *p2p;
    struct nccl_group *collectives;     /* the handle for collectives */
    _Atomic(struct nccl_group *) parts; /* direct.h; only prepended to until it is closed */
    /* In a part; else NULL and 0. */
    struct nccl_group *whole; /* the handle for messages */
    struct nccl_group *next_part;
    uint32_t from, to; /* communicator ranks of the whole */
};

static inline bool nccl_group_has_failed(const struct nccl_group *g)
{
    return atomic_load_explicit(&g->status.code, memory_order_acquire) != 0;
}

/* The handle has communicators, which are connected. */
static inline bool nccl_group_is_formed(const struct nccl_group *g)
{
    return atomic_load_explicit(&g->forming.done, memory_order_acquire);
}

/* The operations of the backend's table. */
int nccl_group_open(void *backend, const struct collrun_group_desc *desc, void **group);
void nccl_group_close(void *group);
void nccl_group_abort(void *group);

#endif
