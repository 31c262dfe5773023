/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator of the stand-in libnccl. What its ranks share is a board: a memory file that the
 * caller of ncclGetUniqueId makes and that the others find by the id, as /proc/PID/fd/N. On it each
 * rank has a line (who it is, how far it is) and a slot for the data of a collective, and each
 * ordered pair of ranks a channel for messages. Whatever changes on the board rings its bell.
 *
 *   board.c       joining, and waiting for the bell
 *   nccl.c        the life of a communicator
 *   operations.c  the calls: arguments checked, one task each
 *   group.c       ncclGroupStart/End: tasks of a communicator become a kernel, kernels are launched
 *   lane.c        the kernels of one device: in which order they may start, and who is stuck
 *   kernel.c      what a kernel does when it runs, in the thread of its stream
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

struct call { /* what all ranks must agree on, for collectives */
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

/* ---- the board ---- */

struct line { /* one rank's */
    _Atomic uint32_t joined, left;
    int32_t nranks, gpu;
    uint64_t host;
    char bus_id[16], name[NAME_MAX_LEN];
    _Atomic uint64_t posted, taken;               /* chunks of collectives */
    _Atomic uint64_t launched, started, finished; /* kernels */
    _Atomic uint64_t behind; /* the id of the communicator that keeps its device */
    _Atomic uint32_t finalized;
    struct call call; /* of the chunk that is posted */
};

struct channel {
    _Atomic uint64_t written, read; /* pieces, ever */
    uint64_t total;                 /* bytes of the message that is being written */
    uint32_t len;                   /* of the piece */
    char piece[PIECE];
};

struct board {
    _Atomic uint32_t bell;
    uint32_t reserved;
    uint64_t id;
    struct line lines[RANKS_MAX];
};

struct ncclComm {
    struct ncclComm *next; /* of all that are alive */
    int rank, nranks, device;
    bool blocking;
    bool lost; /* planted: it never finds the others */
    char name[NAME_MAX_LEN], last_error[300];
    struct ncclUniqueId unique;
    _Atomic int async; /* ncclSuccess, ncclInProgress or the error */
    _Atomic bool ready, aborted, revoked, finalizing;
    _Atomic int busy;    /* groups that are at work on it in threads of their own */
    struct board *board; /* NULL: not joined */
    size_t board_len;
    uint64_t id;
    _Atomic uint64_t launched, done; /* kernels */
};

char *board_slot(const struct ncclComm *comm, int rank);
struct channel *board_channel(const struct ncclComm *comm, int from, int to);
int board_make(struct ncclUniqueId *id);
/* Joins and waits for all ranks; refuses two of them on one GPU. */
int board_join(struct ncclComm *comm);
void board_leave(struct ncclComm *comm);
void board_ring(struct board *board);
/* Sleeps until the bell has rung since `heard` was read off it, or a tenth of a second. */
void board_listen(struct board *board, uint32_t heard);

/* ---- communicators ---- */

enum { FAULT_HANG = 99 }; /* as a planted result: the call never returns */

/* NULL, and words, if it is none. */
struct ncclComm *comm_get(struct ncclComm *comm, const char *function);
/* Stores the sentence, says it, returns `result`. */
int comm_fail(struct ncclComm *comm, int result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* ncclSuccess if another operation may be given to it. */
int comm_ready(struct ncclComm *comm, const char *function);
/* Whether what runs for it has to stop. */
bool comm_stopped(const struct ncclComm *comm);

/* ---- kernels and lanes ---- */

struct kernel {
    struct kernel *next; /* on the device, in the order of launch */
    struct ncclComm *comm;
    uint64_t number; /* of the communicator's kernels, from 1 */
    bool started, explained;
    double since;
    const struct kernel *doubted; /* one that stands in the wrong order to it, */
    double doubted_since;         /* for so long */
    uint32_t ntasks;
    struct task tasks[];
};

/* Puts a kernel on a stream of its device. `racing` has been checked by lane_enter. */
int lane_launch(struct kernel *kernel, struct CUstream_st *stream);
/* False: another thread is launching on this device, and order by launch is asked for. */
bool lane_enter(int device);
void lane_leave(int device);
/* Waits until the kernel may start; false: it must not, it was aborted. */
bool lane_start(struct kernel *kernel);
void lane_finish(struct kernel *kernel);
/* Something that lane_start waits for may have changed. */
void lane_wake(int device);
/* Called again and again by a kernel that waits for `rank`: says once what is wrong if it is sure,
 * or has waited for FAKE_NCCL_STALL_MS (5000). */
void lane_explain(struct kernel *kernel, int rank);

void kernel_run(void *kernel);

/* ---- groups ---- */

enum job_kind { JOB_INIT, JOB_FINALIZE, JOB_DESTROY, JOB_ABORT, JOB_REVOKE };
int job_run(enum job_kind kind, struct ncclComm *comm);
/* Inside a group: kept for ncclGroupEnd. Outside: done at once, or begun if the communicator does
 * not block. */
int group_job(enum job_kind kind, struct ncclComm *comm);
int group_task(struct ncclComm *comm, struct CUstream_st *stream, const struct task *task);
/* An operation inside the group was refused: so will ncclGroupEnd. Returns `result`. */
int group_refuse(int result);

#endif
