/* SPDX-License-Identifier: Apache-2.0
 *
 * Forming and closing a group.
 *
 * Happy path
 *   - rank 0 starts the coordinator, and publishes it; every process gets its streams and buffers;
 *   - the communicators are formed as the coordinator says (on_demand.c): now, or if the group may
 *     never be used, when the first operation needs them. A warm-up connects them, and a barrier
 *     confirms that;
 *   - closing does not wait: a background thread frees the group, both of its handles, when all
 *     ranks have closed it and their GPUs are idle (on_demand.c), and finalizes its communicators,
 *     waiting for the peers up to a limit.
 * Failures
 *   - a rank does not arrive: NCCL does not report which one, so a part of the time is kept for a
 *     fence at the end, which names the ranks that do not reach it;
 *   - the job fails meanwhile: forming ends at once;
 *   - any error while forming fails the group and closes it.
 */
#include "group.h"

#include "capture.h"
#include "coord/server.h"
#include "direct.h"
#include "issue.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* While other ranks and NCCL form communicators: between two looks at that, and at the job. */
enum { POLL_NS = 50000, CHECK_NS = 20000000 };

/* What frees memory of a GPU, or a stream. */
static void nccl_group_free_devices(struct nccl_group *g)
{
    memory_fini(g);
    for (uint32_t i = 0; i < g->ndevs; i++)
        if (g->devs[i].device)
            dev_comm_fini(g, &g->devs[i]);
}

static void nccl_group_free(struct nccl_group *g)
{
    if (g->devs)
        nccl_group_free_devices(g);
    coord_client_free(g->coord);
    nccl_p2p_free(g);
    free(g->net_name);
    pthread_mutex_destroy(&g->lock);
    pthread_mutex_destroy(&g->status.lock);
    free(g->devs);
    free(g->name);
    free(g);
}

static struct nccl_group *nccl_group_new(struct context *context,
                                         const struct collrun_group_desc *desc)
{
    struct nccl_group *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->context = context;
    g->services = desc->services;
    g->rank = desc->rank;
    g->nranks = desc->nranks;
    g->ndevs = desc->ndevices;
    g->size = desc->nranks * desc->ndevices;
    g->name = strdup(desc->name);
    g->devs = calloc(desc->ndevices, sizeof *g->devs);
    pthread_mutex_init(&g->lock, NULL);
    pthread_mutex_init(&g->status.lock, NULL);
    if (g->name && g->devs)
        return g;
    nccl_group_free(g);
    return NULL;
}

static int nccl_group_check_desc(const struct context *context,
                                 const struct collrun_group_desc *desc)
{
    const struct collrun_services *s = desc->services;
    if (desc->ndevices == 0 || desc->ndevices > MAX_DEVICES)
        return s->fail(s->ctx, COLLRUN_ERR_INVALID,
                       "the group has %u GPUs per process; gpus_per_process must be 1 to %d",
                       desc->ndevices, MAX_DEVICES);
    for (uint32_t i = 0; i < desc->ndevices; i++)
        if (desc->devices[i] < 0 || desc->devices[i] >= context->lib.device_count)
            return s->fail(s->ctx, COLLRUN_ERR_UNAVAILABLE,
                           "GPU %d does not exist; this process sees %d", desc->devices[i],
                           context->lib.device_count);
    return COLLRUN_OK;
}

/* ---- forming ---- */

static int nccl_group_open_devs(struct nccl_group *g, const struct collrun_group_desc *desc)
{
    int status = COLLRUN_OK;
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->ndevs; i++) {
        int before = device_enter(g->context, desc->devices[i]);
        status = dev_comm_init(g, &g->devs[i], desc->devices[i]);
        device_leave(g->context, before);
    }
    return status;
}

static int nccl_group_start_coordinator(struct nccl_group *g, const struct collrun_group_desc *desc)
{
    const struct collrun_rendezvous *r = desc->rendezvous;
    struct coord_addr addr = {0};
    int fd = -1;
    int status = coord_listen(g->services, desc->address, &addr, &fd);
    if (status != COLLRUN_OK)
        return status;
    /* The server outlives the group's services: it ends after all ranks have closed the group. */
    g->coord_server = coord_server_new(g->context->services, fd, addr.secret, g->nranks, g->ndevs);
    if (g->coord_server)
        return r->put(r->ctx, "coordinator", &addr, sizeof addr);
    close(fd);
    return COLLRUN_ERR_NO_MEMORY;
}

/* The handle for messages uses the connection of the handle for collectives. */
static int nccl_group_connect_coordinator(struct nccl_group *g,
                                          const struct collrun_group_desc *desc,
                                          uint64_t deadline_ns)
{
    const struct collrun_rendezvous *r = desc->rendezvous;
    struct coord_addr addr;
    size_t len = 0;
    if (g->nranks == 1)
        g->sched.ready = UINT64_MAX; /* no other rank has to commit */
    int status = r->get(r->ctx, "coordinator", &addr, sizeof addr, &len);
    if (status == COLLRUN_OK)
        status = coord_connect(g->services, &addr, g->rank, deadline_ns, &g->coord);
    if (status == COLLRUN_OK && g->size > 1)
        status = on_demand_new(g, &addr, desc->world_rank[desc->rank], deadline_ns, &g->on_demand);
    return status;
}

/* One step of connecting. Waits until it has ended: nothing is launched behind it, which it could
 * block. */
static int nccl_group_handshake(struct nccl_group *g,
                                int (*step)(struct nccl_group *g, struct op *op),
                                uint64_t deadline_ns)
{
    uint64_t now = context_now_ns(g->context);
    struct op *op = op_new(g, deadline_ns > now ? deadline_ns - now : 0, 0);
    if (!op)
        return nccl_group_out_of_memory(g);
    pthread_mutex_lock(&g->lock);
    int status = step(g, op);
    pthread_mutex_unlock(&g->lock);
    if (status != COLLRUN_OK)
        nccl_group_fail(g, status, "the communicator could not be connected");
    int waited = op_wait(op);
    return status != COLLRUN_OK ? status : waited;
}

/* NCCL timed out, and does not report why. The fence names the ranks that do not reach it. */
static int nccl_group_name_missing(struct nccl_group *g, const struct collrun_rendezvous *r,
                                   double seconds)
{
    const struct collrun_services *s = g->services;
    if (atomic_load(&g->forming.inside))
        return s->fail(s->ctx, COLLRUN_ERR_TIMEOUT,
                       "ncclCommInitRankConfig has not returned for %.1f s; set NCCL_DEBUG=INFO in "
                       "env.set for details",
                       seconds);
    int status = r->fence(r->ctx);
    if (status != COLLRUN_OK)
        return status;
    return s->fail(
        s->ctx, COLLRUN_ERR_TIMEOUT,
        "all ranks have arrived, but NCCL did not connect them within %.1f s; set NCCL_DEBUG=INFO "
        "in env.set for details, or NCCL_SOCKET_IFNAME to choose the network",
        seconds);
}

/* Forms the communicator of a single GPU: no rank has to wait for another one. */
static int nccl_group_form_alone(struct nccl_group *g, uint64_t deadline_ns)
{
    ncclUniqueId id;
    ncclResult_t result = g->context->lib.nccl.ncclGetUniqueId(&id);
    if (result != ncclSuccess)
        return nccl_group_fail_nccl(g, NULL, result, "ncclGetUniqueId");
    int status = comm_init(g, &id, deadline_ns);
    if (status == COLLRUN_OK)
        status = nccl_group_handshake(g, issue_warm_up, deadline_ns);
    if (status == COLLRUN_OK)
        status = nccl_group_handshake(g, issue_confirm, deadline_ns);
    atomic_store(&g->forming.done, status == COLLRUN_OK);
    return status;
}

/* As if an operation of each rank waited for them: threads of this rank, and other ranks, may form
 * other groups at the same time, in any order. */
static int nccl_group_form_on_demand(struct nccl_group *g, const struct collrun_rendezvous *r,
                                     uint64_t deadline_ns)
{
    int status = COLLRUN_OK;
    for (uint64_t check_ns = 0; status == COLLRUN_OK && !nccl_group_is_formed(g);) {
        int lost = on_demand_want(g);
        context_sleep_ns(POLL_NS);
        const uint64_t now = context_now_ns(g->context);
        if (nccl_group_has_failed(g)) {
            status = nccl_group_failure(g);
        } else if (lost) {
            status = nccl_group_fail_coordinator(g, lost, "forms the communicators");
        } else if (now >= deadline_ns) {
            status = nccl_group_report(g, COLLRUN_ERR_TIMEOUT, "NCCL was not ready in time");
        } else if (now >= check_ns) {
            status = r->alive(r->ctx);
            check_ns = now + CHECK_NS;
        }
    }
    return status;
}

static int nccl_group_connect(struct nccl_group *g, const struct collrun_group_desc *desc,
                              uint64_t deadline_ns)
{
    const struct collrun_rendezvous *r = desc->rendezvous;
    int status = g->rank == 0 ? nccl_group_start_coordinator(g, desc) : COLLRUN_OK;
    if (status == COLLRUN_OK)
        status = r->fence(r->ctx); /* so no rank waits inside NCCL for one that never arrives */
    if (status == COLLRUN_OK)
        status = nccl_group_connect_coordinator(g, desc, deadline_ns);
    if (status == COLLRUN_OK && g->size == 1) /* its one handle is for messages to itself, too */
        status = nccl_p2p_new(g, g->coord);
    if (status != COLLRUN_OK || (g->size > 1 && desc->flags & COLLRUN_GROUP_ON_DEMAND))
        return status;
    if (g->size > 1)
        return nccl_group_form_on_demand(g, r, deadline_ns);
    g->forming.rendezvous = r;
    status = nccl_group_form_alone(g, deadline_ns);
    g->forming.rendezvous = NULL;
    return status;
}

static int nccl_group_join_collectives(struct nccl_group *g, struct nccl_group *collectives)
{
    g->collectives = collectives;
    int status = nccl_p2p_new(g, collectives->coord);
    if (status == COLLRUN_OK)
        on_demand_add(collectives->on_demand, g);
    return status;
}

/* A quarter of the time is kept for naming missing ranks. */
static int nccl_group_form(struct nccl_group *g, const struct collrun_group_desc *desc)
{
    uint64_t begin = context_now_ns(g->context);
    uint64_t left = desc->deadline_ns > begin ? desc->deadline_ns - begin : 0;
    uint64_t deadline = begin + left / 4 * 3;
    if (desc->collectives_handle)
        return nccl_group_join_collectives(g, desc->collectives_handle);
    const int status = nccl_group_connect(g, desc, deadline);
    return status == COLLRUN_ERR_TIMEOUT && context_now_ns(g->context) >= deadline
               ? nccl_group_name_missing(g, desc->rendezvous,
                                         (double)(context_now_ns(g->context) - begin) / 1e9)
               : status;
}

/* The sockets of NCCL use the interface of network.interface, unless the user chose another. NCCL
 * reads the variable once, before the first communicator of the process. */
static void nccl_group_choose_interface(struct context *context,
                                        const struct collrun_group_desc *desc)
{
    char exactly[64];
    if (!desc->interface || !*desc->interface || getenv("NCCL_SOCKET_IFNAME"))
        return;
    snprintf(exactly, sizeof exactly, "=%s", desc->interface);
    context_set_variable(context, "NCCL_SOCKET_IFNAME", exactly);
}

int nccl_group_open(void *backend, const struct collrun_group_desc *theirs, void **group)
{
    struct context *context = backend;
    struct collrun_group_desc copy;
    const struct collrun_group_desc *desc = &copy;
    COLLRUN_COPY(&copy, theirs);
    const struct collrun_services *s = desc->services;
    int status = nccl_group_check_desc(context, desc);
    if (status != COLLRUN_OK)
        return status;
    struct nccl_group *g = nccl_group_new(context, desc);
    if (!g)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory for the group");
    nccl_group_choose_interface(context, desc);
    const enum cudaStreamCaptureMode mode = capture_relax(&context->lib.cuda);
    status = comm_read_config(g);
    if (status == COLLRUN_OK)
        status = nccl_group_open_devs(g, desc);
    if (status == COLLRUN_OK)
        status = nccl_group_form(g, desc);
    capture_restore(&context->lib.cuda, mode);
    if (status == COLLRUN_OK) {
        *group = g;
        return COLLRUN_OK;
    }
    nccl_group_fail(g, status, "the group could not be formed");
    nccl_group_close(g);
    return status;
}

/* ---- closing ---- */

void nccl_group_abort(void *group)
{
    nccl_group_fail(group, COLLRUN_ERR_ABORTED, "the group was aborted");
}

/* With the GPUs locked, and idle, unless the process ends; the kernels of one that has failed are
 * stopped. */
static void nccl_group_close_handles(struct nccl_group *g)
{
    struct nccl_group *messages = g->messages;
    comm_close(g);
    if (messages) {
        comm_close(messages);
        direct_comm_close_all(messages);
        aborter_await(messages); /* a part that was closed may have failed it */
        nccl_group_free_devices(messages);
    }
    nccl_group_free_devices(g);
}

static void nccl_group_finish_one(struct nccl_group *g)
{
    struct context *context = g->context;
    bool failed = nccl_group_has_failed(g) || (g->messages && nccl_group_has_failed(g->messages));
    int serving = g->coord_server != NULL;
    context_count_closing(context, 0, serving);
    on_demand_close(g, g->on_demand, failed, nccl_group_close_handles);
    frees_sweep();
    if (g->messages)
        nccl_group_free(g->messages);
    if (g->coord_server)
        coord_server_free(g->coord_server, failed);
    context_count_closing(context, 0, -serving);
    nccl_group_free(g);
}

/* In a thread, if there is one to be had. */
static void *nccl_group_finish_close(void *group)
{
    struct nccl_group *g = group;
    struct context *context = g->context;
    const struct cuda_api *cuda = &context->lib.cuda;
    const enum cudaStreamCaptureMode mode = capture_relax(cuda);
    aborter_await(g);
    nccl_group_finish_one(g);
    capture_restore(cuda, mode);
    context_count_closing(context, -1, 0); /* the last use: nccl_close may free the context */
    return NULL;
}

void nccl_group_close(void *group)
{
    struct nccl_group *g = group;
    pthread_t thread;
    nccl_group_end_services(g);
    nccl_p2p_close(g);
    if (g->collectives) { /* closed with the handle for collectives */
        g->collectives->messages = g;
        return;
    }
    context_count_closing(g->context, +1, 0);
    coord_client_close(g->coord);
    if (pthread_create(&thread, NULL, nccl_group_finish_close, g) == 0)
        pthread_detach(thread);
    else
        nccl_group_finish_close(g);
}
