/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators of NCCL: made, awaited, finalized.
 *
 * Happy path
 *   - dev_comm_init makes a stream, an event and a small buffer on each GPU;
 *   - comm_init makes one nonblocking communicator per GPU, in one NCCL group. It holds the group's
 *     lock only for each call of NCCL: other threads may use the group meanwhile, and abort it;
 *   - comm_close finalizes them, which waits for the peers, and destroys them.
 * Failures
 *   - a peer does not arrive: comm_init ends by its deadline, or as soon as the job fails;
 *   - a peer does not finalize: after 3 s the group has failed, and its communicators are aborted.
 */
#include "comm.h"

#include "group.h"
#include "memory.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long the peers may take to finalize. All ranks close at about the same time, when the job
 * ends and nothing is unfinished; a rank that has failed never finalizes. */
#define FINALIZE_LIMIT_NS 3000000000ull

/* ---- one GPU ---- */

int dev_comm_init(struct nccl_group *g, struct dev_comm *dev, int ordinal)
{
    const struct cuda_api *cuda = &g->context->lib.cuda;
    int least = 0, greatest = 0;
    void *token = NULL;
    dev->ordinal = ordinal;
    dev->device = &g->context->devices[ordinal];
    cuda->cudaDeviceGetStreamPriorityRange(&least, &greatest);
    cudaError_t error =
        cuda->cudaStreamCreateWithPriority(&dev->stream, cudaStreamNonBlocking, greatest);
    if (error != cudaSuccess)
        return nccl_group_fail_cuda(g, dev, error, "create a stream");
    error = cuda->cudaMalloc(&token, TOKEN_LEN);
    dev->token = token;
    if (error == cudaSuccess)
        error = cuda->cudaMemsetAsync(token, 0, TOKEN_LEN, dev->stream);
    if (error != cudaSuccess)
        return nccl_group_fail_cuda(g, dev, error, "allocate memory");
    dev->caller_evt = event_new(g->context);
    if (!dev->caller_evt)
        return nccl_group_fail_cuda(g, dev, cuda->cudaGetLastError(), "create an event");
    return COLLRUN_OK;
}

void dev_comm_fini(const struct nccl_group *g, struct dev_comm *dev)
{
    const struct cuda_api *cuda = &g->context->lib.cuda;
    int before = device_enter(g->context, dev->ordinal);
    event_free_all(g->context, dev->caller_evt);
    event_free_all(g->context, dev->spare_events);
    if (dev->stream)
        cuda->cudaStreamDestroy(dev->stream);
    if (dev->token)
        frees_add(FREE_DEVICE, dev->token, dev->ordinal, cuda, NULL);
    if (dev->scratch.device)
        frees_add(FREE_DEVICE, dev->scratch.device, dev->ordinal, cuda, NULL);
    if (dev->scratch.pinned)
        frees_add(FREE_HOST, dev->scratch.pinned, dev->ordinal, cuda, NULL);
    device_leave(g->context, before);
    *dev = (struct dev_comm){.ordinal = dev->ordinal, .device = dev->device};
}

/* ---- options ---- */

static const char *comm_option(const struct nccl_group *g, const char *key)
{
    return g->services->option(g->services->ctx, key);
}

static void comm_int_option(const struct nccl_group *g, const char *key, int *out)
{
    const char *text = comm_option(g, key);
    if (text && *text)
        *out = (int)strtol(text, NULL, 0);
}

int comm_read_config(struct nccl_group *g)
{
    const char *net = comm_option(g, "NCCL_NET");
    g->net_name = net ? strdup(net) : NULL; /* options are the engine's until group_close */
    if (net && !g->net_name)
        return nccl_group_out_of_memory(g);
    struct nccl_config c = {.size = sizeof c,
                            .magic = NCCL_CONFIG_MAGIC,
                            .version = NCCL_CONFIG_VERSION,
                            .blocking = 0,
                            .cgaClusterSize = NCCL_UNDEFINED,
                            .minCTAs = NCCL_UNDEFINED,
                            .maxCTAs = NCCL_UNDEFINED,
                            .netName = g->net_name,
                            .splitShare = NCCL_UNDEFINED,
                            .trafficClass = NCCL_UNDEFINED,
                            .commName = g->name,
                            .collnetEnable = NCCL_UNDEFINED,
                            .CTAPolicy = NCCL_UNDEFINED,
                            .shrinkShare = NCCL_UNDEFINED,
                            .nvlsCTAs = NCCL_UNDEFINED,
                            .nChannelsPerNetPeer = NCCL_UNDEFINED,
                            .nvlinkCentricSched = NCCL_UNDEFINED};
    comm_int_option(g, "NCCL_COMM_BLOCKING", &c.blocking);
    comm_int_option(g, "NCCL_CGA_CLUSTER_SIZE", &c.cgaClusterSize);
    comm_int_option(g, "NCCL_MIN_CTAS", &c.minCTAs);
    comm_int_option(g, "NCCL_MAX_CTAS", &c.maxCTAs);
    comm_int_option(g, "NCCL_TRAFFIC_CLASS", &c.trafficClass);
    comm_int_option(g, "NCCL_COLLNET_ENABLE", &c.collnetEnable);
    comm_int_option(g, "NCCL_CTA_POLICY", &c.CTAPolicy);
    comm_int_option(g, "NCCL_NVLS_NCHANNELS", &c.nvlsCTAs);
    comm_int_option(g, "NCCL_NCHANNELS_PER_NET_PEER", &c.nChannelsPerNetPeer);
    g->config = c;
    return COLLRUN_OK;
}

/* The options that NCCL reads from the environment only, each time that it makes a communicator. */
static const char *const env_options[] = {"NCCL_ALGO", "NCCL_PROTO"};
enum { NENV_OPTIONS = sizeof env_options / sizeof *env_options };

struct saved_env {
    char *before[NENV_OPTIONS]; /* NULL = it was not set, or is not changed */
    bool changed[NENV_OPTIONS];
};

static void saved_env_enter(struct nccl_group *g, struct saved_env *e)
{
    pthread_mutex_lock(&g->context->env_lock);
    *e = (struct saved_env){0};
    for (int i = 0; i < NENV_OPTIONS; i++) {
        const char *value = comm_option(g, env_options[i]), *old = getenv(env_options[i]);
        e->changed[i] = value != NULL;
        e->before[i] = value && old ? strdup(old) : NULL;
        if (value)
            context_set_variable(g->context, env_options[i], value);
    }
}

static void saved_env_leave(struct nccl_group *g, struct saved_env *e)
{
    for (int i = 0; i < NENV_OPTIONS; i++) {
        if (e->changed[i])
            context_set_variable(g->context, env_options[i], e->before[i]);
        free(e->before[i]);
    }
    pthread_mutex_unlock(&g->context->env_lock);
}

/* ---- making communicators ---- */

ncclResult_t comm_group_end(const struct nccl_group *g, ncclResult_t result)
{
    ncclResult_t end = g->context->lib.nccl.ncclGroupEnd();
    return result == ncclSuccess && end != ncclInProgress ? end : result;
}

/* OK: NCCL has accepted what was issued; AGAIN: not yet. */
static int comm_query(struct nccl_group *g, struct dev_comm *dev)
{
    ncclResult_t state = ncclInProgress;
    ncclResult_t queried = g->context->lib.nccl.ncclCommGetAsyncError(dev->comm, &state);
    if (queried != ncclSuccess)
        state = queried;
    if (state == ncclSuccess)
        return COLLRUN_OK;
    return state == ncclInProgress ? COLLRUN_AGAIN
                                   : nccl_group_fail_nccl(g, dev->comm, state, "NCCL");
}

/* Between two queries. OK: query again. */
static int comm_pause(struct nccl_group *g, unsigned round, uint64_t deadline_ns)
{
    if (nccl_group_has_failed(g))
        return nccl_group_failure(g);
    int job = nccl_group_check_job(g);
    if (job != COLLRUN_OK)
        return job;
    const struct forming_watch *watch = atomic_load(&g->forming.watch);
    if (watch && watch->is_over(watch))
        return nccl_group_report(g, COLLRUN_ERR_PEER_FAILED,
                                 "another rank failed, or closed the group");
    if (round > 64 && context_now_ns(g->context) >= deadline_ns)
        return nccl_group_report(
            g, COLLRUN_ERR_TIMEOUT,
            "NCCL was not ready in time: a peer has not arrived or cannot be reached");
    if (round < 1000)
        sched_yield();
    else
        context_sleep_ns(50000);
    return COLLRUN_OK;
}

int comm_await_ready(struct nccl_group *g, struct dev_comm *dev, uint64_t deadline_ns)
{
    int status = COLLRUN_AGAIN;
    for (unsigned round = 0; (status = comm_query(g, dev)) == COLLRUN_AGAIN; round++) {
        status = comm_pause(g, round, deadline_ns);
        if (status != COLLRUN_OK)
            return status;
    }
    return status;
}

static int comm_query_all(struct nccl_group *g)
{
    int status = COLLRUN_OK;
    pthread_mutex_lock(&g->lock);
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->ndevs; i++)
        status = nccl_group_has_failed(g) ? nccl_group_failure(g) : comm_query(g, &g->devs[i]);
    pthread_mutex_unlock(&g->lock);
    return status;
}

int comm_await_all(struct nccl_group *g, uint64_t deadline_ns)
{
    int status = COLLRUN_AGAIN;
    for (unsigned round = 0; (status = comm_query_all(g)) == COLLRUN_AGAIN; round++) {
        status = comm_pause(g, round, deadline_ns);
        if (status != COLLRUN_OK)
            return status;
    }
    return status;
}

/* With the group's lock. */
static int comm_begin_all(struct nccl_group *g, const ncclUniqueId *id)
{
    const struct nccl_api *nccl = &g->context->lib.nccl;
    if (nccl_group_has_failed(g))
        return nccl_group_failure(g);
    ncclResult_t result = nccl->ncclGroupStart();
    for (uint32_t i = 0; result == ncclSuccess && i < g->ndevs; i++) {
        struct dev_comm *dev = &g->devs[i];
        int before = device_enter(g->context, dev->ordinal);
        result = nccl->ncclCommInitRankConfig(&dev->comm, (int)g->size, *id,
                                              (int)(g->rank * g->ndevs + i), &g->config);
        if (result == ncclInProgress)
            result = ncclSuccess;
        device_leave(g->context, before);
    }
    result = comm_group_end(g, result);
    COLLRUN_DEBUG(g->context->services, GROUP,
                  "ncclCommInitRankConfig of %u devices, rank %u of %u processes: result %d",
                  g->ndevs, g->rank, g->nranks, (int)result);
    return result == ncclSuccess
               ? COLLRUN_OK
               : nccl_group_fail_nccl(g, g->devs[0].comm, result, "ncclCommInitRankConfig");
}

static int comm_init_all(struct nccl_group *g, const ncclUniqueId *id, uint64_t deadline_ns)
{
    pthread_mutex_lock(&g->lock);
    atomic_store(&g->forming.inside, true);
    int status = comm_begin_all(g, id);
    atomic_store(&g->forming.inside, false);
    pthread_mutex_unlock(&g->lock);
    return status == COLLRUN_OK ? comm_await_all(g, deadline_ns) : status;
}

/* Communicators of messages alone have no use for it. They are formed in the background, where a
 * thread that holds the environment would wait for that of another rank, which may hold its own. */
static bool comm_changes_env(const struct nccl_group *g)
{
    bool changes = false;
    if (g->whole || g->collectives)
        return false;
    for (int i = 0; i < NENV_OPTIONS; i++)
        changes = changes || comm_option(g, env_options[i]);
    return changes;
}

int comm_init(struct nccl_group *g, const ncclUniqueId *id, uint64_t deadline_ns)
{
    struct saved_env e;
    if (!comm_changes_env(g)) /* without the lock: peers may form their groups in another order */
        return comm_init_all(g, id, deadline_ns);
    saved_env_enter(g, &e);
    int status = comm_init_all(g, id, deadline_ns);
    saved_env_leave(g, &e);
    return status;
}

bool comm_is_busy(const struct nccl_group *g)
{
    bool busy = false;
    for (uint32_t i = 0; !busy && i < g->ndevs; i++) {
        int before = device_enter(g->context, g->devs[i].ordinal);
        busy = g->context->lib.cuda.cudaStreamQuery(g->devs[i].stream) == cudaErrorNotReady;
        device_leave(g->context, before);
    }
    return busy;
}

/* ---- closing ---- */

static bool comm_is_in_progress(struct nccl_group *g, const struct dev_comm *dev)
{
    ncclResult_t state = ncclSuccess;
    pthread_mutex_lock(&g->lock); /* the aborter may take the communicator away */
    if (dev->comm)
        g->context->lib.nccl.ncclCommGetAsyncError(dev->comm, &state);
    pthread_mutex_unlock(&g->lock);
    return state == ncclInProgress;
}

/* Waits until no communicator is in progress. False: the time is up. */
static bool comm_await_idle(struct nccl_group *g, uint64_t deadline_ns)
{
    for (uint32_t i = 0; i < g->ndevs; i++)
        while (comm_is_in_progress(g, &g->devs[i])) {
            if (context_now_ns(g->context) >= deadline_ns)
                return false;
            context_sleep_ns(100000);
        }
    return true;
}

static void comm_finalize_all(struct nccl_group *g)
{
    const struct nccl_api *nccl = &g->context->lib.nccl;
    pthread_mutex_lock(&g->lock);
    nccl->ncclGroupStart();
    for (uint32_t i = 0; i < g->ndevs; i++)
        if (g->devs[i].comm)
            nccl->ncclCommFinalize(g->devs[i].comm);
    nccl->ncclGroupEnd();
    pthread_mutex_unlock(&g->lock);
}

/* A communicator that is being freed belongs to no group any more: the group may fail still, as one
 * of its parts does, and the aborter would stop it. */
static void comm_free_all(struct nccl_group *g, ncclResult_t (*end)(ncclComm_t comm))
{
    const struct nccl_api *nccl = &g->context->lib.nccl;
    ncclComm_t comms[MAX_DEVICES] = {NULL};
    pthread_mutex_lock(&g->lock);
    for (uint32_t i = 0; i < g->ndevs; i++) {
        comms[i] = g->devs[i].comm;
        g->devs[i].comm = NULL;
    }
    pthread_mutex_unlock(&g->lock);
    nccl->ncclGroupStart();
    for (uint32_t i = 0; i < g->ndevs; i++)
        if (comms[i])
            end(comms[i]);
    nccl->ncclGroupEnd();
}

void comm_close(struct nccl_group *g)
{
    const struct nccl_api *nccl = &g->context->lib.nccl;
    uint64_t deadline = context_now_ns(g->context) + FINALIZE_LIMIT_NS;
    if (!nccl_group_has_failed(g)) {
        comm_finalize_all(g);
        if (!comm_await_idle(g, deadline))
            nccl_group_fail(g, COLLRUN_ERR_TIMEOUT, "the peers did not close the group in time");
    }
    aborter_await(g); /* it uses the communicators of a group that has failed */
    comm_await_idle(g, deadline);
    comm_free_all(g, nccl_group_has_failed(g) ? nccl->ncclCommAbort : nccl->ncclCommDestroy);
}

/* CUDA events, which are reused: each dev_comm keeps a list of spare ones. */

struct event *event_new(const struct context *context)
{
    const struct cuda_api *cuda = &context->lib.cuda;
    struct event *e = calloc(1, sizeof *e);
    if (e && cuda->cudaEventCreateWithFlags(&e->handle, cudaEventDisableTiming) != cudaSuccess) {
        free(e);
        e = NULL;
    }
    return e;
}

void event_free_all(const struct context *context, struct event *list)
{
    while (list) {
        struct event *next = list->next;
        context->lib.cuda.cudaEventDestroy(list->handle);
        free(list);
        list = next;
    }
}

struct event *event_record(struct nccl_group *g, struct dev_comm *dev, cudaStream_t stream)
{
    const struct cuda_api *cuda = &g->context->lib.cuda;
    int before = device_enter(g->context, dev->ordinal);
    struct event *e = dev->spare_events;
    if (e)
        dev->spare_events = e->next;
    else
        e = event_new(g->context);
    cudaError_t error = e ? cuda->cudaEventRecord(e->handle, stream) : cuda->cudaGetLastError();
    device_leave(g->context, before);
    if (e && error == cudaSuccess)
        return e;
    event_release(dev, e);
    nccl_group_fail_cuda(g, dev, error, "record an event");
    return NULL;
}

void event_release(struct dev_comm *dev, struct event *event)
{
    if (!event)
        return;
    event->next = dev->spare_events;
    dev->spare_events = event;
}
