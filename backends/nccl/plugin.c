/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend's table: collectives and messages between GPUs by NCCL, which is found at run time
 * (library.h).
 *
 *   - Memory is the GPU's: the kind "cuda", which this backend declares.
 *   - Calls that only move data are NCCL's, as bytes.
 *   - Sums, products, minima, maxima and averages of the types that NCCL has are NCCL's, with its
 *     rounding (half precision is rounded at every step) and its minimum and maximum (which prefer
 *     a number to NaN). Other reductions go through the host (collectives.c).
 *   - Messages are matched by the group's coordinator before NCCL gets them (p2p.c): with tags,
 *     from any source, checked, and in any order of starting. With the option `messages: direct`
 *     those with tag 0 are launched at their call (direct.c).
 *
 * Files, lowest first; none needs another in a loop:
 *
 *   library        finds CUDA, NCCL and NVML
 *   abort          stops communicators on the GPUs, in a thread
 *   xid            the driver's reasons why a GPU failed
 *   group_status   how a group fails
 *   context        what all groups of a process share
 *   capture        graph capture by the program
 *   event, comm    CUDA events; communicators
 *   native         calls that NCCL does itself
 *   emulate        collectives that NCCL lacks
 *   batch          which collectives of a batch are one NCCL group
 *   issue          puts operations onto the streams
 *   scheduler      when a collective may be launched
 *   coord/         the coordinator: server in the process of rank 0, client in all
 *   message        what all messages have in common
 *   direct         messages that are launched at their call
 *   p2p            messages
 *   on_demand      forms communicators when they are first needed
 *   request        operations from start to end
 *   memory         collrun_alloc
 *   devices        the GPUs of a host
 *   cuda_memory    pointers and copies, for the engine
 *   group          forms and closes a group
 */
#include "cuda_memory.h"
#include "devices.h"
#include "group.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>

/* How long the end of the process waits for groups that are being closed. */
#define CLOSE_LIMIT_NS 15000000000ull

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

/* Settings that NCCL takes from the environment only; values of the user are kept. Operations of
 * different groups start on a GPU in the order in which the program issued them, and connections
 * are made when a group is formed. */
static void nccl_set_environment(void)
{
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
}

static int nccl_open(const struct collrun_services *services, void **backend)
{
    const struct collrun_services *s = services;
    struct libraries lib;
    char why[512];
    nccl_set_environment();
    if (libraries_load(&lib, why, sizeof why) != 0)
        return s->fail(s->ctx, COLLRUN_ERR_UNAVAILABLE, "%s", why);
    struct context *context = context_new(services, &lib);
    if (!context)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    int status = aborter_start(context);
    if (status != COLLRUN_OK) {
        context_free(context);
        return status;
    }
    xid_start(context);
    frees_watch(context);
    if (lib.nccl_version < 22600 || lib.cuda_version < 12030 || lib.driver_version < 12030)
        s->log(s->ctx, COLLRUN_LOG_INFO,
               "NCCL %d.%d.%d on CUDA %d.%d does not order the operations of different groups on a "
               "GPU; use the groups in the same order on all ranks",
               lib.nccl_version / 10000, lib.nccl_version / 100 % 100, lib.nccl_version % 100,
               lib.cuda_version / 1000, lib.cuda_version % 1000 / 10);
    *backend = context;
    return COLLRUN_OK;
}

/* If a group cannot be closed because its GPU hangs, its memory is not freed: the process ends
 * anyway. */
static void nccl_close(void *backend)
{
    struct context *context = backend;
    bool all = context_await_closings(context, CLOSE_LIMIT_NS);
    aborter_stop(context);
    xid_stop(context);
    if (!all)
        return;
    frees_unwatch(context);
    context_free(context);
}

static const struct collrun_capability native[] = {
    COLLRUN_ALL_BUT_SCANS(COLLRUN_MEMORY_DEVICE),
    {0},
};

/* The options have the names of NCCL's environment variables; comm.c passes the values on. */
#define TEXT(name_, help_)                                                                         \
    {                                                                                              \
        .name = name_, .type = COLLRUN_PARAM_STRING, .help = help_                                 \
    }
#define NUMBER(name_, min_, max_, help_)                                                           \
    {                                                                                              \
        .name = name_, .type = COLLRUN_PARAM_INT, .min = min_, .max = max_, .help = help_          \
    }
static const struct collrun_param options[] = {
    TEXT("NCCL_ALGO", "algorithms, as in Ring or ^Tree"),
    TEXT("NCCL_PROTO", "protocols, as in Simple or LL,LL128"),
    TEXT("NCCL_NET", "the network plugin, as in Socket or IB"),
    NUMBER("NCCL_COMM_BLOCKING", "0", "1",
           "1: calls take less host time, but cannot be interrupted inside NCCL; default 0"),
    NUMBER("NCCL_CGA_CLUSTER_SIZE", "0", "8", "CTAs per cluster"),
    NUMBER("NCCL_MIN_CTAS", "1", "64", "minimum number of CTAs per kernel"),
    NUMBER("NCCL_MAX_CTAS", "1", "64", "maximum number of CTAs per kernel"),
    NUMBER("NCCL_CTA_POLICY", "0", "3", "policy that chooses the number of CTAs"),
    NUMBER("NCCL_TRAFFIC_CLASS", "0", NULL, "traffic class of the network"),
    NUMBER("NCCL_COLLNET_ENABLE", "0", "1", "reductions in the network"),
    NUMBER("NCCL_NVLS_NCHANNELS", "1", NULL, "channels for NVLink SHARP"),
    NUMBER("NCCL_NCHANNELS_PER_NET_PEER", "1", NULL, "channels to a peer on another host"),
    {.name = "messages",
     .type = COLLRUN_PARAM_ENUM,
     .choices = "matched|direct",
     .def = "matched",
     .help = "direct: those with tag 0 are launched at their call",
     .per_direction = "direct"},
    {0},
};

static void *nccl_native_handle(void *group, const char *what, uint32_t device)
{
    const struct nccl_group *g = group;
    return strcmp(what, "nccl_comm") == 0 && nccl_group_is_formed(g) ? g->devs[device].comm : NULL;
}

static const struct collrun_memory_kind cuda = {
    .size = sizeof cuda,
    .name = "cuda",
    .title = "GPU",
    .mask = "CUDA_VISIBLE_DEVICES",
    .flags = COLLRUN_MEMORY_KIND_GPU,
    .devices = nccl_devices,
    .open = cuda_memory_open,
    .close = cuda_memory_close,
    .locate = cuda_memory_locate,
    .copy = cuda_memory_copy,
    .host_alloc = cuda_memory_host_alloc,
    .host_free = cuda_memory_host_free,
    .alloc = cuda_memory_alloc,
    .free = cuda_memory_free,
    .synchronize = cuda_memory_synchronize,
    .event_record = cuda_memory_event_record,
    .event_query = cuda_memory_event_query,
    .event_free = cuda_memory_event_free,
    .stream_check = cuda_memory_stream_check,
};

const struct collrun_backend collrun_backend_v1 = {
    COLLRUN_BACKEND_HEAD,
    .name = "nccl",
    .version = "1.0",
    .flags = COLLRUN_BACKEND_NEEDS_DEVICE | COLLRUN_BACKEND_START_COLLECTIVES |
             COLLRUN_BACKEND_TAGS | COLLRUN_BACKEND_RECV_ANY | COLLRUN_BACKEND_SEPARATE_P2P_HANDLE |
             COLLRUN_BACKEND_ENVELOPES | COLLRUN_BACKEND_BATCHES | COLLRUN_BACKEND_ON_DEMAND,
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
    .probe_message = nccl_probe_message,
    .withdraw = nccl_withdraw,
    .options = options,
    .memory_kind = &cuda,
    .native_handle = nccl_native_handle,
    .check_receive = nccl_check_receive,
    .eager_limit = 1, /* a send ends when it was received */
};
