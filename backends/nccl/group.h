/* SPDX-License-Identifier: Apache-2.0
 *
 * The structs of this backend. A process drives one or more GPUs in a group; each is a port: a
 * communicator rank with a stream of its own. Rank r's device d is communicator rank
 * r * nports + d.
 *
 *   nccl.c      the backend's table, and what all groups of a process share
 *   library.c   finding CUDA, NCCL and NVML
 *   group.c     forming a group, closing it
 *   issue.c     one operation onto the streams
 *   emulate.c   operators and types that NCCL lacks, reduced on the host in stream order
 *   request.c   when it is done, and how it ended: start, test, exec
 *   abort.c     stopping what runs on the GPUs
 *   memory.c    collrun_alloc
 *   xid.c       what the driver says about a GPU that failed
 *
 * Locks, in the order in which they are taken: a group's `lock`, then the devices' `issue` in
 * ascending order. Whoever holds a device's `issue` is the one thread that issues on it, so the
 * order of operations of different groups on a device is one order, and NCCL's rule against racing
 * launches holds.
 */
#ifndef NCCL_GROUP_H
#define NCCL_GROUP_H

#include "library.h"

#include <collrun/backend.h>
#include <pthread.h>
#include <stdatomic.h>

struct device { /* a GPU of this process */
    pthread_mutex_t issue;
    atomic_uint flying;   /* requests that are not finished on it */
    char pci[16];         /* its PCI address, as NVML knows it; "" if unknown */
    _Atomic uint64_t xid; /* the last critical Xid; 0 = none */
};

struct xid_watch {
    pthread_t thread;
    bool running;
    atomic_bool stop;
};

struct nccl_group;

/* What all groups of the process share. */
struct home {
    const struct collrun_services *services;
    struct libraries lib;
    struct device *devices; /* by CUDA ordinal */
    struct xid_watch xid;
    pthread_mutex_t environment; /* of the process, while a communicator is made */

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    pthread_t aborter;
    bool stopping;
    struct nccl_group *doomed; /* to be stopped */
    unsigned burials;          /* groups that are being closed */
};

/* An event that is reused. */
struct mark {
    cudaEvent_t event;
    struct mark *next;
};

struct scratch { /* made when it is first needed */
    void *device, *pinned;
};

enum { SCRATCH_LEN = 4 << 20, TOKEN_LEN = 256, MOST_PORTS = 64 };

struct port {
    struct device *device;
    int ordinal;
    ncclComm_t comm; /* NULL once it is gone */
    cudaStream_t stream;
    struct mark *ready;       /* what the caller's stream had before an operation */
    struct mark *spare_marks; /* for requests */
    char *token;              /* TOKEN_LEN bytes on the device: something to synchronise with */
    struct scratch scratch;
};

struct nccl_group {
    struct home *home;
    const struct collrun_services *services;
    char *name;
    uint32_t rank, nranks, nports, size; /* size = nranks * nports: communicator ranks */
    struct port *ports;
    pthread_mutex_t lock; /* the communicators */
    atomic_int fate;      /* 0, or the status with which everything fails */
    char why[512];        /* written once, before `fate` */
    pthread_mutex_t why_lock;
    bool queued;               /* for the aborter; under home.lock, like what follows */
    bool stopped;              /* it has told the communicators to stop */
    struct nccl_group *next;   /* in home.doomed */
    struct allocation *memory; /* of collrun_alloc; under `lock` */
};

/* An operation on its way: one mark per port that takes part. */
struct flight {
    struct nccl_group *group;
    uint64_t deadline_ns, timeout_ns;
    uint64_t polls;
    uint64_t failed_ns; /* when `status` was set */
    int status; /* 0, or how it failed: what is left is to wait until the streams are idle */
    enum collrun_kind kind;
    int peer;            /* of a lone message; -1 */
    struct mark *done[]; /* nports; NULL = not involved */
};

/* ---- group.c ---- */
int nccl_group_open(void *backend, const struct collrun_group_desc *desc, void **group);
void nccl_group_close(void *group);
struct mark *port_mark(const struct home *home, struct port *port); /* NULL: CUDA refuses */

/* ---- issue.c ---- */
/* Puts the calls onto the streams, and a mark behind them for each port that takes part. With the
 * group's lock. 0, or a status with its sentence stored. */
int issue(struct nccl_group *g, const struct collrun_call *calls, uint32_t ncalls,
          struct flight *flight);
/* Connects this rank to every other one, so that nothing has to be connected later, when it could
 * wait for a peer that is busy elsewhere. */
int issue_handshake(struct nccl_group *g, struct flight *flight);
/* Waits until NCCL has accepted what was issued to a port. */
int await_ready(struct nccl_group *g, struct port *port, uint64_t deadline_ns);
/* The sentence; the group is doomed with it: what NCCL and CUDA report leaves nothing to go on
 * with.
 */
int nccl_failed(struct nccl_group *g, ncclComm_t comm, ncclResult_t result, const char *what);
int cuda_failed(struct nccl_group *g, const struct port *port, cudaError_t error, const char *what);

/* The calling thread's current device, put back by device_leave. */
int device_enter(const struct home *home, int ordinal);
void device_leave(const struct home *home, int before);

/* ---- emulate.c ---- */
bool dtype_native(enum collrun_dtype dtype, ncclDataType_t *out);
bool reduction_native(enum collrun_dtype dtype, enum collrun_op op, ncclDataType_t *type,
                      ncclRedOp_t *native);
/* With the devices locked; one call for each port. They may wait for the GPU when there is much to
 * do. */
int emulate_reduction(struct nccl_group *g, const struct collrun_call *calls,
                      const struct flight *f);
int alltoall_in_place(struct nccl_group *g, const struct collrun_call *calls,
                      const struct flight *f);

/* ---- request.c ---- */
int nccl_exec(void *group, const struct collrun_call *calls, uint32_t ncalls);
int nccl_start(void *group, const struct collrun_call *calls, uint32_t ncalls, void **request);
int nccl_test(void *group, void *request);
int nccl_order(void *group, void *request, uint32_t device, void *stream);
struct flight *flight_new(struct nccl_group *g, uint64_t timeout_ns);
int flight_wait(struct flight *f); /* and frees */

/* ---- abort.c ---- */
int aborter_start(struct home *home);
void aborter_stop(struct home *home);
/* The first reason counts. Has the group's communicators stopped by the aborter. */
void group_doom(struct nccl_group *g, int status, const char *why);
void nccl_group_abort(void *group);
/* The group's reason, as this thread's failure. */
int group_failure(const struct nccl_group *g);

/* ---- memory.c ---- */
struct allocation;
int nccl_alloc(void *group, size_t len, void **ptr);
int nccl_alloc_on(void *group, uint32_t device, size_t len, void **ptr);
int nccl_free(void *group, void *ptr);
void memory_fini(struct nccl_group *g);

/* ---- xid.c ---- */
void xid_start(struct home *home);
void xid_stop(struct home *home);
/* The GPU has failed: gives the driver a moment to say why. */
void xid_await(const struct home *home, const struct device *device);
/* " (Xid 79 on GPU 0000:17:00.0: ...)", or "". */
const char *xid_words(const struct device *device, char *out, size_t len);

uint64_t clock_ns(void);
void pause_ns(uint64_t ns);

#endif
