/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend for GPUs: NCCL, on streams of its own, found at run time (library.h). This file is
 * the backend's table and the state that the groups of a process share; group.h says what lives
 * where.
 *
 * Memory is the GPU's. Everything that moves data is NCCL's, moved as bytes; sums, products,
 * minima, maxima and averages of the types that NCCL knows are NCCL's too, with its rounding (half
 * precision is rounded at every step) and its minimum and maximum (which prefer a number to NaN).
 * Other reductions go through the host (emulate.c). Messages are matched by the ranks before NCCL
 * sees them (message.c): with tags, from anyone, compared, and in whatever order they are started.
 */
#include "group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long the end of the process waits for groups that are being closed. */
#define CLOSING_NS 15000000000ull

static int nccl_probe(const struct collrun_services *services, char *why, size_t len)
{
    struct libraries lib;
    (void)services;
    if (libraries_load(&lib, why, len) != 0)
        return COLLRUN_ERR_UNAVAILABLE;
    snprintf(why, len, "NCCL %d.%d.%d, CUDA %d.%d, a driver for %d.%d, %d GPU%s",
             lib.nccl_version / 10000, lib.nccl_version / 100 % 100, lib.nccl_version % 100,
             lib.cuda_version / 1000, lib.cuda_version % 1000 / 10, lib.driver_version / 1000,
             lib.driver_version % 1000 / 10, lib.device_count, lib.device_count == 1 ? "" : "s");
    return COLLRUN_OK;
}

static void home_free(struct home *home)
{
    for (int i = 0; home->devices && i < home->lib.device_count; i++)
        pthread_mutex_destroy(&home->devices[i].issue);
    pthread_mutex_destroy(&home->lock);
    pthread_mutex_destroy(&home->environment);
    pthread_cond_destroy(&home->changed);
    traffic_fini(&home->traffic);
    free(home->devices);
    free(home);
}

static struct home *home_new(const struct collrun_services *services, const struct libraries *lib)
{
    pthread_condattr_t monotonic;
    struct home *home = calloc(1, sizeof(*home));
    if (!home)
        return NULL;
    home->services = services;
    home->lib = *lib;
    traffic_init(&home->traffic);
    home->devices = calloc((size_t)lib->device_count, sizeof(*home->devices));
    pthread_mutex_init(&home->lock, NULL);
    pthread_mutex_init(&home->environment, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&home->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    for (int i = 0; home->devices && i < lib->device_count; i++) {
        struct device *d = &home->devices[i];
        pthread_mutex_init(&d->issue, NULL);
        if (lib->cuda.cudaDeviceGetPCIBusId(d->pci, sizeof(d->pci), i) != cudaSuccess)
            d->pci[0] = '\0';
    }
    if (home->devices)
        return home;
    home_free(home);
    return NULL;
}

/* What NCCL can be told by the environment alone, unless the user has told it already: operations
 * of different groups start on a GPU in the order in which the program issued them, and connections
 * are made when a group is formed. */
static void set_defaults(void)
{
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
}

static int nccl_open(const struct collrun_services *services, void **backend)
{
    const struct collrun_services *s = services;
    struct libraries lib;
    char why[512];
    set_defaults();
    if (libraries_load(&lib, why, sizeof(why)) != 0)
        return s->fail(s->ctx, COLLRUN_ERR_UNAVAILABLE, "%s", why);
    struct home *home = home_new(services, &lib);
    if (!home || aborter_start(home) != 0) {
        if (home)
            home_free(home);
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory or threads");
    }
    xid_start(home);
    if (lib.nccl_version < 22600 || lib.cuda_version < 12030 || lib.driver_version < 12030)
        s->log(s->ctx, COLLRUN_LOG_INFO,
               "NCCL %d.%d.%d on CUDA %d.%d does not order the operations of different groups on a "
               "GPU; use them in the same order on all ranks",
               lib.nccl_version / 10000, lib.nccl_version / 100 % 100, lib.nccl_version % 100,
               lib.cuda_version / 1000, lib.cuda_version % 1000 / 10);
    *backend = home;
    return COLLRUN_OK;
}

/* A group that cannot be closed, because the GPU hangs, keeps its memory: the process ends anyway.
 * The others' messages need this process as long as it has their desk. */
static bool await_burials(struct home *home)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(CLOSING_NS / 1000000000u);
    pthread_mutex_lock(&home->lock);
    int late = 0;
    while (home->burials && (home->serving || !late)) {
        late = pthread_cond_timedwait(&home->changed, &home->lock, &until);
        if (late) /* for those whom a desk still serves there is no hurry */
            until.tv_sec++;
    }
    const bool all = home->burials == 0;
    pthread_mutex_unlock(&home->lock);
    return all;
}

static void nccl_close(void *backend)
{
    struct home *home = backend;
    const bool all = await_burials(home);
    aborter_stop(home);
    xid_stop(home);
    if (all)
        home_free(home);
}

#define CUDA COLLRUN_MEMORY_CUDA
#define ANY_DTYPE UINT64_MAX
#define ANY_OP ((1u << COLLRUN_OP_COUNT) - 1)
#define REDUCES(kind_)                                                                             \
    {                                                                                              \
        kind_, CUDA, (1u << COLLRUN_DTYPE_COUNT) - 1, ANY_OP                                       \
    }
#define MOVES(kind_)                                                                               \
    {                                                                                              \
        kind_, CUDA, ANY_DTYPE, 0                                                                  \
    }

static const struct collrun_capability native[] = {
    {COLLRUN_BARRIER, CUDA, 0, 0},
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

/* NCCL's names; group.c hands them on. */
#define TEXT(name_, help_)                                                                         \
    {                                                                                              \
        name_, COLLRUN_PARAM_STRING, NULL, NULL, NULL, help_                                       \
    }
#define NUMBER(name_, min_, max_, help_)                                                           \
    {                                                                                              \
        name_, COLLRUN_PARAM_INT, NULL, min_, max_, help_                                          \
    }
static const struct collrun_param options[] = {
    TEXT("NCCL_ALGO", "algorithms, as in Ring or ^Tree"),
    TEXT("NCCL_PROTO", "protocols, as in Simple or LL,LL128"),
    TEXT("NCCL_NET", "the network plugin, as in Socket or IB"),
    NUMBER("NCCL_COMM_BLOCKING", "0", "1",
           "1: a call costs the host less, and cannot be given up inside NCCL; default 0"),
    NUMBER("NCCL_CGA_CLUSTER_SIZE", "0", "8", "CTAs of a cluster"),
    NUMBER("NCCL_MIN_CTAS", "1", "64", "fewest CTAs of a kernel"),
    NUMBER("NCCL_MAX_CTAS", "1", "64", "most CTAs of a kernel"),
    NUMBER("NCCL_CTA_POLICY", "0", "3", "what the number of CTAs is chosen for"),
    NUMBER("NCCL_TRAFFIC_CLASS", "0", NULL, "of the network"),
    NUMBER("NCCL_COLLNET_ENABLE", "0", "1", "reductions in the network"),
    NUMBER("NCCL_NVLS_NCHANNELS", "1", NULL, "channels for NVLink SHARP"),
    NUMBER("NCCL_NCHANNELS_PER_NET_PEER", "1", NULL, "channels to a peer on another host"),
    {0},
};

const struct collrun_backend collrun_backend_v1 = {
    .abi = COLLRUN_BACKEND_ABI,
    .size = sizeof(struct collrun_backend),
    .name = "nccl",
    .version = "1.0",
    .flags = COLLRUN_BACKEND_NEEDS_DEVICE | COLLRUN_BACKEND_STARTS_ALL | COLLRUN_BACKEND_TAGS |
             COLLRUN_BACKEND_RECV_ANY | COLLRUN_BACKEND_MESSAGES_APART,
    .native = native,
    .probe = nccl_probe,
    .open = nccl_open,
    .close = nccl_close,
    .group_open = nccl_group_open,
    .group_abort = nccl_group_abort,
    .group_close = nccl_group_close,
    .exec = nccl_exec,
    .start = nccl_start,
    .test = nccl_test,
    .alloc = nccl_alloc,
    .free = nccl_free,
    .order = nccl_order,
    .alloc_on = nccl_alloc_on,
    .options = options,
    .eager_limit = 1, /* both ends are matched before a byte moves */
};
