/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for libnccl.so.2: no GPU, no NVIDIA code. The life of a communicator: init, finalize,
 * destroy, abort, revoke, and queries.
 *
 * As in NCCL, aborting stops the communicator's own kernels and then frees memory, which waits for
 * everything else on the device: a thread that aborts two stuck communicators one after the other
 * waits forever. Nonblocking communicators free in a separate thread, so the order does not
 * matter.
 */
#include "comm.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef FAKE_NCCL_OLD
enum { VERSION = 22707 };
#else
enum { VERSION = 22809 };
#endif

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *all;
static _Thread_local char last_words[300];
static pthread_mutex_t error_lock = PTHREAD_MUTEX_INITIALIZER; /* last_error of all */

/* ---- communicators ---- */

/* With all_lock held, which keeps it there. */
static struct ncclComm *comm_find(struct ncclComm *comm, const char *function)
{
    struct ncclComm *c = all;
    while (c && c != comm)
        c = c->next;
    if (!c)
        fake_log("libnccl", "%s: %p is not a communicator, or was destroyed", function,
                 (void *)comm);
    return c;
}

struct ncclComm *comm_get(struct ncclComm *comm, const char *function)
{
    pthread_mutex_lock(&all_lock);
    struct ncclComm *c = comm_find(comm, function);
    pthread_mutex_unlock(&all_lock);
    return c;
}

int comm_fail(struct ncclComm *comm, int result, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(last_words, sizeof last_words, format, args);
    va_end(args);
    if (comm) {
        pthread_mutex_lock(&error_lock);
        snprintf(comm->last_error, sizeof comm->last_error, "%s", last_words);
        pthread_mutex_unlock(&error_lock);
        fake_log("libnccl", "%s rank %d of %d: %s", comm->name, comm->rank, comm->nranks,
                 last_words);
    } else {
        fake_log("libnccl", "%s", last_words);
    }
    return result;
}

bool comm_stopped(const struct ncclComm *comm)
{
    return atomic_load(&comm->aborted) || atomic_load(&comm->revoked);
}

int comm_ready(struct ncclComm *comm, const char *function)
{
    int state = atomic_load(&comm->async);
    if (atomic_load(&comm->aborted) || atomic_load(&comm->revoked) ||
        atomic_load(&comm->finalizing))
        return comm_fail(comm, ncclInvalidUsage, "%s: the communicator was finalized", function);
    if (state == ncclSuccess)
        return ncclSuccess;
    return comm_fail(comm, state == ncclInProgress ? ncclInvalidArgument : state,
                     "%s: Attempt to use communicator before the previous operation returned "
                     "ncclSuccess",
                     function);
}

struct ncclComm *comm_new(int nranks, int rank, const struct ncclConfig *config)
{
    static _Atomic int count;
    struct ncclComm *comm = calloc(1, sizeof *comm);
    if (!comm)
        return NULL;
    comm->rank = rank;
    comm->nranks = nranks;
    comm->device = fake_current();
    comm->blocking = !config || config->blocking != 0;
    atomic_store(&comm->async, ncclInProgress);
    if (config && config->size > offsetof(struct ncclConfig, commName) && config->commName)
        snprintf(comm->name, sizeof comm->name, "%s", config->commName);
    else
        snprintf(comm->name, sizeof comm->name, "comm%d", atomic_fetch_add(&count, 1));
    pthread_mutex_lock(&all_lock);
    comm->next = all;
    all = comm;
    pthread_mutex_unlock(&all_lock);
    return comm;
}

void comm_free(struct ncclComm *comm)
{
    pthread_mutex_lock(&all_lock);
    struct ncclComm **link = &all;
    while (*link != comm)
        link = &(*link)->next;
    *link = comm->next;
    pthread_mutex_unlock(&all_lock);
    fake_release(comm->buffers);
    shared_leave(comm);
    free(comm);
}

/* ---- jobs: executed by group.c, in a separate thread for nonblocking communicators ---- */

/* Frees the buffers of its connections, as NCCL does before it has waited for other ranks. */
static int finalize(struct ncclComm *comm)
{
    fake_delay();
    while (atomic_load(&comm->launched) > atomic_load(&comm->done))
        usleep(500);
    fake_drain_alone(comm->device);
    atomic_store(&comm->shared->ranks[comm->rank].finalized, 1);
    shared_notify(comm->shared);
    for (int r = 0; r < comm->nranks;) { /* all ranks have finalized */
        uint32_t seen = atomic_load(&comm->shared->changes);
        if (atomic_load(&comm->shared->ranks[r].finalized))
            r++;
        else if (comm_stopped(comm))
            return ncclInternalError;
        else
            shared_wait(comm->shared, seen);
    }
    return ncclSuccess;
}

/* The buffers of its connections. */
int comm_reserve(struct ncclComm *comm)
{
    size_t len = (size_t)fake_setting("FAKE_NCCL_MEMORY_MIB", 8) << 20;
    if (fake_reserve(comm->device, len, &comm->buffers))
        return ncclSuccess;
    return comm_fail(comm, ncclUnhandledCudaError, "out of memory on device %d", comm->device);
}

/* Waits for other work on the communicator, then for its device, as cudaFree does. */
static void reclaim(struct ncclComm *comm)
{
    while (atomic_load(&comm->busy) || atomic_load(&comm->launched) > atomic_load(&comm->done))
        usleep(500);
    fake_drain_alone(comm->device);
}

int job_run(enum job_kind kind, struct ncclComm *comm)
{
    int result = ncclSuccess;
    switch (kind) {
    case JOB_INIT:
        fake_delay();
        result = shared_join(comm);
        if (result == ncclSuccess)
            result = comm_reserve(comm);
        atomic_store(&comm->ready, true);
        break;
    case JOB_FINALIZE:
        result = finalize(comm);
        break;
    case JOB_DESTROY:
        while (atomic_load(&comm->busy))
            usleep(500);
        if (!atomic_load(&comm->revoked) && comm->shared &&
            !atomic_load(&comm->shared->ranks[comm->rank].finalized))
            finalize(comm);
        reclaim(comm);
        comm_free(comm);
        return ncclSuccess;
    case JOB_ABORT:
        reclaim(comm);
        comm_free(comm);
        return ncclSuccess;
    case JOB_REVOKE:
        while (atomic_load(&comm->launched) > atomic_load(&comm->done))
            usleep(500);
        break;
    }
    atomic_store(&comm->async, result);
    return result;
}

/* ---- init ---- */

int ncclGetVersion(int *version)
{
    if (!version)
        return ncclInvalidArgument;
    *version = (int)fake_setting("FAKE_NCCL_VERSION", VERSION);
    return ncclSuccess;
}

int ncclGetUniqueId(struct ncclUniqueId *id)
{
    int result = ncclSuccess;
    if (!id)
        return ncclInvalidArgument;
    if (fake_fault("FAKE_NCCL_FAULT", "ncclGetUniqueId", -1, &result))
        return comm_fail(NULL, result, "ncclGetUniqueId: an injected fault");
    return shared_create(id);
}

int ncclCommInitRankConfig(struct ncclComm **comm, int nranks, struct ncclUniqueId id, int rank,
                           struct ncclConfig *config)
{
    int result = ncclSuccess;
    if (!comm || nranks < 1 || nranks > RANKS_MAX || rank < 0 || rank >= nranks)
        return group_refuse(
            comm_fail(NULL, ncclInvalidArgument, "ncclCommInitRank: rank %d of %d", rank, nranks));
    if (config && (config->magic != NCCL_CONFIG_MAGIC || config->size < 40))
        return group_refuse(
            comm_fail(NULL, ncclInvalidArgument, "ncclConfig_t is not initialised"));
    if (fake_gpu_of(fake_current()) < 0)
        return group_refuse(comm_fail(NULL, ncclUnhandledCudaError, "no CUDA device"));
    const bool fault = fake_fault("FAKE_NCCL_FAULT", "ncclCommInitRank", rank, &result);
    while (fault && result == FAULT_HANG)
        pause();
    if (fault && result != ncclInProgress)
        return group_refuse(comm_fail(NULL, result, "ncclCommInitRank: an injected fault"));
    struct ncclComm *made = comm_new(nranks, rank, config);
    if (!made)
        return group_refuse(ncclSystemError);
    made->unique = id;
    made->lost = fault;
    *comm = made;
    return group_job(JOB_INIT, made);
}

int ncclCommInitRank(struct ncclComm **comm, int nranks, struct ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(comm, nranks, id, rank, NULL);
}

/* ---- finalize, destroy, abort, revoke ---- */

int ncclCommFinalize(struct ncclComm *comm)
{
    struct ncclComm *c = comm_get(comm, "ncclCommFinalize");
    int result = c ? comm_ready(c, "ncclCommFinalize") : ncclInvalidArgument;
    if (result != ncclSuccess)
        return group_refuse(result);
    atomic_store(&c->finalizing, true);
    return group_job(JOB_FINALIZE, c);
}

int ncclCommDestroy(struct ncclComm *comm)
{
    if (!comm)
        return ncclSuccess;
    struct ncclComm *c = comm_get(comm, "ncclCommDestroy");
    if (!c)
        return group_refuse(ncclInvalidArgument);
    if (!atomic_load(&c->ready))
        return group_refuse(comm_fail(c, ncclInvalidArgument,
                                      "ncclCommDestroy: its initialisation is in progress"));
    return group_job(JOB_DESTROY, c);
}

static void stop(struct ncclComm *comm, _Atomic bool *flag)
{
    atomic_store(flag, true);
    if (atomic_load(&comm->ready) && comm->shared)
        shared_notify(comm->shared);
    launch_queue_wake(comm->device);
}

int ncclCommAbort(struct ncclComm *comm)
{
    if (!comm)
        return ncclSuccess;
    struct ncclComm *c = comm_get(comm, "ncclCommAbort");
    if (!c)
        return group_refuse(ncclInvalidArgument);
    stop(c, &c->aborted);
    return group_job(JOB_ABORT, c);
}

#ifndef FAKE_NCCL_OLD
int ncclCommRevoke(struct ncclComm *comm, int flags)
{
    struct ncclComm *c = comm_get(comm, "ncclCommRevoke");
    if (!c || flags)
        return group_refuse(ncclInvalidArgument);
    if (!atomic_load(&c->ready))
        return group_refuse(comm_fail(c, ncclInvalidArgument, "ncclCommRevoke: not initialised"));
    stop(c, &c->revoked);
    return group_job(JOB_REVOKE, c);
}
#endif

/* ---- queries ---- */

/* Programs ask while a communicator is being aborted, until it is gone. */
int ncclCommGetAsyncError(struct ncclComm *comm, int *result)
{
    pthread_mutex_lock(&all_lock);
    struct ncclComm *c = comm_find(comm, "ncclCommGetAsyncError");
    const int state = c ? atomic_load(&c->async) : ncclSuccess;
    pthread_mutex_unlock(&all_lock);
    if (!c || !result)
        return ncclInvalidArgument;
    *result = state;
    return ncclSuccess;
}

/* A copy, which the next call of this thread replaces: a kernel may fail meanwhile. */
const char *ncclGetLastError(struct ncclComm *comm)
{
    static _Thread_local char copy[sizeof comm->last_error];
    pthread_mutex_lock(&all_lock);
    const bool known = comm && comm_find(comm, "ncclGetLastError");
    pthread_mutex_lock(&error_lock);
    if (known)
        memcpy(copy, comm->last_error, sizeof copy);
    pthread_mutex_unlock(&error_lock);
    pthread_mutex_unlock(&all_lock);
    return known ? copy : last_words;
}

const char *ncclGetErrorString(int result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error (run with NCCL_DEBUG=INFO for "
                                        "details)",
                                        "unhandled system error (run with NCCL_DEBUG=INFO for "
                                        "details)",
                                        "internal error - please report this issue to the NCCL "
                                        "developers",
                                        "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                        "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return result >= 0 && result <= ncclInProgress ? texts[result] : "unknown result code";
}

int ncclCommCount(const struct ncclComm *comm, int *count)
{
    if (!comm_get((struct ncclComm *)comm, "ncclCommCount") || !count)
        return ncclInvalidArgument;
    *count = comm->nranks;
    return ncclSuccess;
}

int ncclCommCuDevice(const struct ncclComm *comm, int *device)
{
    if (!comm_get((struct ncclComm *)comm, "ncclCommCuDevice") || !device)
        return ncclInvalidArgument;
    *device = comm->device;
    return ncclSuccess;
}

int fake_nccl_kernels(const struct ncclComm *comm)
{
    return comm ? (int)atomic_load(&comm->launched) : -1;
}

int fake_nccl_communicators(int device)
{
    int n = 0;
    pthread_mutex_lock(&all_lock);
    for (const struct ncclComm *c = all; c; c = c->next)
        n += c->device == device;
    pthread_mutex_unlock(&all_lock);
    return n;
}

int ncclCommUserRank(const struct ncclComm *comm, int *rank)
{
    if (!comm_get((struct ncclComm *)comm, "ncclCommUserRank") || !rank)
        return ncclInvalidArgument;
    *rank = comm->rank;
    return ncclSuccess;
}

/* ---- memory ---- */

int ncclCommRegister(const struct ncclComm *comm, void *ptr, size_t len, void **handle)
{
    struct fake_place place = fake_find(ptr);
    if (!comm_get((struct ncclComm *)comm, "ncclCommRegister") || !handle || !place.bytes ||
        place.left < len)
        return ncclInvalidArgument;
    *handle = ptr;
    return ncclSuccess;
}

int ncclCommDeregister(const struct ncclComm *comm, void *handle)
{
    return comm_get((struct ncclComm *)comm, "ncclCommDeregister") && handle ? ncclSuccess
                                                                             : ncclInvalidArgument;
}

int ncclMemAlloc(void **ptr, size_t len)
{
    return cudaMalloc(ptr, len) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

int ncclMemFree(void *ptr)
{
    return cudaFree(ptr) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
