/* SPDX-License-Identifier: Apache-2.0
 *
 * struct context: what all groups of a process share. It holds the libraries, the GPUs, the launch
 * scheduler, the thread that aborts communicators, and the number of groups that are being closed.
 *
 * Locks of this backend, in the order in which a thread may take them:
 *
 *   1. a group's `lock` (group.h): its communicators and its memory
 *   2. the `issue_lock` of devices, in ascending order of CUDA ordinals
 *   3. a group's status.lock and aborter.lock (group_status.c)
 *
 * sched.lock, aborter.lock, closings.lock and the lock of a coordinator client are leaves: their
 * holder takes no other lock. The holder of a device's `issue_lock` is the only thread that issues
 * work on that GPU. So operations of different groups have one order on a device, and NCCL's rule
 * against racing launches holds.
 */
#ifndef NCCL_CONTEXT_H
#define NCCL_CONTEXT_H

#include "group_status.h"
#include "library.h"
#include "scheduler.h"
#include "xid.h"

#include <collrun/backend.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

struct device { /* one GPU of this process */
    pthread_mutex_t issue_lock;
    atomic_uint in_flight; /* events that the GPU has not passed yet, over all groups */
    char pci[16];          /* the PCI address that NVML uses; "" if unknown */
    _Atomic uint64_t xid;  /* the last critical Xid; 0 = none */
};

/* Groups that are being closed in the background. */
struct closings {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned groups;
    unsigned serving;   /* those of them whose coordinator still has clients */
    atomic_bool ending; /* the process waits for them, and ends */
};

struct context {
    struct context *next; /* of memory.c */
    const struct collrun_services *services;
    struct libraries lib;
    struct device *devices;   /* by CUDA ordinal */
    pthread_mutex_t env_lock; /* held while the process's environment is another one, for NCCL */
    pthread_mutex_t set_lock; /* held while a variable is set, and by a thread that may read one */
    struct xid_watch xid;
    struct sched sched;
    struct aborter aborter;
    struct closings closings;
};

static inline uint64_t context_now_ns(const struct context *context)
{
    return context->services->now_ns();
}

static inline void context_sleep_ns(uint64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                                 .tv_nsec = (long)(ns % 1000000000u)},
              NULL);
}

/* NULL: out of memory. The threads are not started. */
struct context *context_new(const struct collrun_services *services, const struct libraries *lib);
void context_free(struct context *context);

/* setenv, or unsetenv with a value of NULL, beside the thread that calls NVML (xid.c). */
void context_set_variable(struct context *context, const char *name, const char *value);

/* The number of groups in the background, and of those whose coordinator still serves. */
void context_count_closing(struct context *context, int groups, int serving);
/* The backend is being closed: what still waits for other ranks is given up. */
bool context_is_ending(struct context *context);
/* True if all groups were closed in time. A coordinator that still serves other processes extends
 * the time: their messages need it. */
bool context_await_closings(struct context *context, uint64_t limit_ns);

/* Makes the device current in the calling thread. Returns the device that was current, for
 * device_leave. */
int device_enter(const struct context *context, int ordinal);
void device_leave(const struct context *context, int before);

#endif
