/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator of the stand-in libnccl. Its ranks share a memory file, which the caller of
 * ncclGetUniqueId creates, and which the others find by the id, as /proc/PID/fd/N. It has a state
 * and a data slot per rank, and a channel for messages per ordered pair of ranks. A counter in it
 * is a futex: every change increments and wakes it.
 *
 *   shared.c        the shared memory: creating, joining, waiting for changes
 *   nccl.c          the life of a communicator
 *   operations.c    the calls: arguments checked, one task each
 *   group.c         ncclGroupStart/End: tasks of a communicator become a kernel; launches kernels
 *   launch_queue.c  the launched kernels of one device: start order, and reports of blocked ones
 *   kernel.c        what a kernel does when it runs, in the thread of its stream
 */
#ifndef FAKE_COMM_H
#define FAKE_COMM_H

#include "device.h"
#include "nccl_abi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum { RANKS_MAX = 64, SLOT = 256 << 10, PIECE = 32 << 10, NAME_MAX_LEN = 64, STREAMS_MAX = 8 };

enum operation {
    ALLREDUCE,
    REDUCE,
    BROADCAST,
    ALLGATHER,
    REDUCE_SCATTER,
    ALLTOALL,
    GATHER,
    SCATTER,
    SEND,
    RECV
};
extern const char *const operation_names[];

struct call { /* for collectives: equal on all ranks */
    int operation, type, op, root;
    size_t count;
};

struct task {
    struct call call; /* root: the peer of a message */
    const char *send; /* bytes that the stand-in may touch */
    char *recv;
    uint64_t moved; /* messages: pieces so far */
    bool posted, over;
};

/* ---- shared memory ---- */

struct rank_state { /* one rank's */
    _Atomic uint32_t joined, left;
    int32_t nranks, gpu;
    uint64_t host;
    char bus_id[16], name[NAME_MAX_LEN];
    _Atomic uint64_t posted, taken;               /* chunks of collectives */
    _Atomic uint64_t launched, started, finished; /* kernels */
    _Atomic uint64_t blocked_by; /* the id of the communicator that occupies its device */
    _Atomic uint32_t finalized;
    struct call call; /* of the chunk that is posted */
};

struct channel {
    _Atomic uint32_t connects[2];   /* the sender, the receiver: has a message for it */
    _Atomic uint64_t written, read; /* pieces, ever */
    uint64_t total;                 /* bytes of the message that is being written */
    uint32_t len;                   /* of the piece */
    char piece[PIECE];
};

struct shared {
    _Atomic uint32_t changes;
    uint32_t reserved;
    uint64_t id;
    struct rank_state ranks[RANKS_MAX];
};

struct ncclComm {
    struct ncclComm *next; /* of all live ones */
    int rank, nranks, device;
    bool blocking;
    bool lost; /* injected: it never finds the others */
    char name[NAME_MAX_LEN], last_error[300];
    struct ncclUniqueId unique;
    _Atomic int async; /* ncclSuccess, ncclInProgress or the error */
    _Atomic bool ready, aborted, revoked, finalizing;
    _Atomic int busy;      /* background threads that execute groups with it */
    struct shared *shared; /* NULL: not joined */
    size_t shared_len;
    void *buffers; /* device memory that it holds */
    uint64_t id;
    uint64_t connected[2];           /* the peers that it sends to, and receives from */
    _Atomic uint64_t launched, done; /* kernels */
};

char *shared_slot(const struct ncclComm *comm, int rank);
struct channel *shared_channel(const struct ncclComm *comm, int from, int to);
int shared_create(struct ncclUniqueId *id);
/* Joins and waits for all ranks; refuses two of them on one GPU. */
int shared_join(struct ncclComm *comm);
void shared_leave(struct ncclComm *comm);
void shared_notify(struct shared *shared);
/* Sleeps until the counter of changes differs from `seen`, at most 100 ms. */
void shared_wait(struct shared *shared, uint32_t seen);

/* ---- communicators ---- */

enum { FAULT_HANG = 99 }; /* as an injected result: the call never returns */

/* NULL, with a line on stderr, if it is no communicator. */
struct ncclComm *comm_get(struct ncclComm *comm, const char *function);
/* Stores the error message, prints it, returns `result`. */
int comm_fail(struct ncclComm *comm, int result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* ncclSuccess if it accepts another operation. */
int comm_ready(struct ncclComm *comm, const char *function);
/* Whether its kernels and jobs have to stop. */
bool comm_stopped(const struct ncclComm *comm);
/* On the current device. NULL: no memory. */
struct ncclComm *comm_new(int nranks, int rank, const struct ncclConfig *config);
void comm_free(struct ncclComm *comm);
/* Takes its device memory. */
int comm_reserve(struct ncclComm *comm);
/* ---- kernels ---- */

struct kernel {
    struct kernel *next; /* on the device, in the order of launch */
    struct ncclComm *comm;
    uint64_t number; /* of the communicator's kernels, from 1 */
    bool started, explained;
    double since;
    const struct kernel *suspect; /* launched in the wrong order relative to it, */
    double suspect_since;         /* since when */
    uint32_t ntasks;
    struct task tasks[];
};

/* Puts a kernel on a stream of its device. `racing` has been checked by launch_queue_enter. */
int launch_queue_launch(struct kernel *kernel, struct CUstream_st *stream);
/* False: another thread is launching on this device, and the launch order is enabled. */
bool launch_queue_enter(int device);
void launch_queue_leave(int device);
/* Waits until the kernel may start; false: it must not, it was aborted. */
bool launch_queue_start(struct kernel *kernel);
void launch_queue_finish(struct kernel *kernel);
/* A condition of launch_queue_start may have changed. */
void launch_queue_wake(int device);
/* For a kernel that waits for `rank`, called repeatedly. Prints the reason once, if it is certain
 * or the wait has lasted FAKE_NCCL_STALL_MS (5000). */
void launch_queue_explain(struct kernel *kernel, int rank);

void kernel_run(void *kernel);

/* ---- groups ---- */

enum job_kind { JOB_INIT, JOB_FINALIZE, JOB_DESTROY, JOB_ABORT, JOB_REVOKE };
int job_run(enum job_kind kind, struct ncclComm *comm);
/* Inside a group: queued for ncclGroupEnd. Outside: executed at once, or started if the
 * communicator is nonblocking. */
int group_job(enum job_kind kind, struct ncclComm *comm);
int group_task(struct ncclComm *comm, struct CUstream_st *stream, const struct task *task);
/* An operation inside the group was refused; ncclGroupEnd will fail, too. Returns `result`. */
int group_refuse(int result);

#endif
