/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface for workloads: what a rank knows of its job, the groups it is in, collective
 * operations and messages, requests, parameters, and words to the runner. A workload is one shared
 * object; workload.h says what it exports.
 *
 * Status. Functions that return int and are called for an effect return COLLRUN_OK (0) or a
 * negative enum collrun_status; collrun_error() then holds a sentence. Any of them may return
 * INVALID (a bad argument, checked before anything is sent) and NO_MEMORY. Operations may also
 * return UNSUPPORTED, MISMATCH, TIMEOUT, PEER_FAILED, ABORTED, BACKEND and SYSTEM. On failure,
 * outputs stay untouched, except for buffers of an operation that had begun: their contents are
 * undefined. After MISMATCH, TIMEOUT, PEER_FAILED, ABORTED or BACKEND a group only fails, at once
 * and with the first reason; after anything else it works on.
 *
 * Time. Every wait ends: by completion, by an error, or by the time-out of the operation
 * (collrun_call.timeout_ns, else the group's). When another rank ends, blocked calls return
 * PEER_FAILED within milliseconds and name it.
 *
 * Threads. A group is used by one thread at a time; a second one gets INVALID. Different groups are
 * independent: use them from as many threads as you like. Requests may be waited for in any thread.
 * The functions about the job and about parameters, and those that speak to the runner, may be
 * called from any thread at any time.
 *
 * Strings that are returned live as long as what they were asked of. Counts are elements of the
 * given dtype, never bytes; ranks are ranks of the group unless they say world. Buffers need no
 * alignment, but for reductions on a GPU: there, that of their element type.
 *
 * C11 and C++17.
 */
#ifndef COLLRUN_COLLRUN_H
#define COLLRUN_COLLRUN_H

#include <collrun/types.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct collrun_ctx; /* the job, seen from one workload of one rank; lives as long as the workload */
struct collrun_group;   /* one rank's membership in one group, as MPI's communicator */
struct collrun_request; /* an operation in flight */

/* ==== errors ================================================================================== */

/* A status in a few words: "timed out". Never NULL. */
const char *collrun_strstatus(int status);

/* The sentence of this thread's last failure, with group, operation and its number where there is
 * one: "allreduce train#1042: rank 5 (node2) was killed by SIGKILL". "" if this thread has not
 * failed yet. Valid until this thread fails again; success does not clear it. */
const char *collrun_error(void);

/* Bytes of one element; 0 if `dtype` is none. */
size_t collrun_dtype_size(enum collrun_dtype dtype);

/* ==== the job ================================================================================= */

int collrun_world_rank(const struct collrun_ctx *ctx); /* 0 .. world size - 1 */
int collrun_world_size(const struct collrun_ctx *ctx); /* processes.count */
int collrun_local_rank(const struct collrun_ctx *ctx); /* among the job's ranks on this host */
int collrun_local_size(const struct collrun_ctx *ctx); /* how many those are */
int collrun_gpu_count(const struct collrun_ctx *ctx);  /* GPUs that this rank owns */

/* 0, then 1, 2, ... when on_failure restarts the job. */
int collrun_attempt(const struct collrun_ctx *ctx);

const char *collrun_host(const struct collrun_ctx *ctx);   /* this host, as job.yaml names it */
const char *collrun_run_id(const struct collrun_ctx *ctx); /* the same on all ranks */

/* The directory that the run is logged in; "" without logging.dir. */
const char *collrun_run_dir(const struct collrun_ctx *ctx);

/* ==== parameters =================================================================================
 *
 * `params` of job.yaml, for this rank, typed as the workload's own table declares them
 * (workload.h); the default if the job gives none. They have been checked before any rank starts,
 * so there is no error to handle. Asking for a name that is not declared, or as another type, is a
 * bug of the workload: it is logged, 0, "" or false is returned, and the workload fails with that
 * sentence when it returns. */

/* {rank} and the like are filled in. */
const char *collrun_param_string(const struct collrun_ctx *ctx, const char *name);

int64_t collrun_param_int(const struct collrun_ctx *ctx, const char *name);
double collrun_param_float(const struct collrun_ctx *ctx, const char *name);
bool collrun_param_bool(const struct collrun_ctx *ctx, const char *name);
uint64_t collrun_param_size(const struct collrun_ctx *ctx, const char *name);     /* bytes */
uint64_t collrun_param_duration(const struct collrun_ctx *ctx, const char *name); /* nanoseconds */

/* ==== groups of job.yaml =========================================================================
 *
 * They are open before any workload's init runs and close after the last one has returned. */

/* A group by name: of job.yaml, or made at run time by any workload of this process. Borrowed.
 * NOT_MEMBER if this rank is not in it; NOT_FOUND if there is no such group, or this workload's
 * `groups` does not list it. The name "" stands for the first group of this workload that this rank
 * is in, as collrun_group_at(ctx, 0); NOT_MEMBER if it is in none. */
int collrun_group_get(struct collrun_ctx *ctx, const char *name, struct collrun_group **out);

/* The groups of job.yaml that this workload may use on this rank, in the order of the file: index
 * 0, 1, ...; NULL past the last. Borrowed. */
struct collrun_group *collrun_group_at(struct collrun_ctx *ctx, int index);

/* Whether it is open in this process. */
bool collrun_group_exists(const struct collrun_ctx *ctx, const char *name);

/* This rank in the group; how many members it has. -1: no such group, or this rank is not in it. */
int collrun_group_rank(const struct collrun_ctx *ctx, const char *name);
int collrun_group_size(const struct collrun_ctx *ctx, const char *name);

/* ==== groups made at run time ================================================================= */

/* How ranks that disagree about a collective are found; `check` of job.yaml. STRICT: before each
 * one, on any backend, by exchanging the calls; all ranks then return MISMATCH, and nothing was
 * moved. OFF and ASYNC leave it to the backend, which may (shm does) or may not notice. Messages
 * are compared by their receiver, whatever this says. */
enum collrun_check { COLLRUN_CHECK_ASYNC, COLLRUN_CHECK_STRICT, COLLRUN_CHECK_OFF };

struct collrun_group_options {
    uint32_t size;       /* sizeof this struct */
    const char *name;    /* 1 to 255 bytes, no control characters; no open group of this process has
                            it, no group of job.yaml */
    const char *backend; /* of job.yaml or installed; NULL or "auto": among the job's, by what suits
                            these ranks */
    const int *ranks;    /* world ranks, no rank twice; their order is the order of group ranks */
    int nranks;
    uint64_t timeout_ns; /* of an operation; 0 = 10 minutes */
    enum collrun_check check;
    int gpus_per_process; /* on a backend that works on GPUs; 0 = 1 */
};

/* Collective over the members, and over nobody else: other ranks neither call nor wait. All members
 * give the same options. Ends within timeouts.rendezvous of job.yaml, then with TIMEOUT and the
 * ranks that have not come. The caller owns *out and destroys it. Also: NOT_MEMBER, EXISTS,
 * NOT_FOUND (the backend), UNAVAILABLE (the backend says why), MISMATCH (members disagree about the
 * members or the check, or hold different backends). */
int collrun_group_create(struct collrun_ctx *ctx, const struct collrun_group_options *options,
                         struct collrun_group **out);

/* Collective over the parent. Members that give the same color (>= 0) form one group each, called
 * `name`, ordered by `key`, then by rank in the parent, on the parent's backend, with its
 * time-out and check. A negative color takes part and gets *out = NULL. The caller destroys *out.
 */
int collrun_group_split(struct collrun_group *parent, int color, int key, const char *name,
                        struct collrun_group **out);

/* Local and bounded: waits for nobody. What has been sent stays receivable; requests that are not
 * finished end with ABORTED, and still have to be waited for; peers that are still inside may find
 * the group aborted. The name is free again at once. NULL, and a group that has been destroyed
 * before, are OK. INVALID for a group of job.yaml. Other calls with a destroyed group are INVALID
 * while it is one of the last 64 that were destroyed; older handles must not be used. */
int collrun_group_destroy(struct collrun_group *group);

/* ==== what a group is ========================================================================= */

int collrun_rank(const struct collrun_group *group);
int collrun_size(const struct collrun_group *group);
const char *collrun_group_name(const struct collrun_group *group);
/* "shm"; of a group with a backend for each sort of memory: "gloo (host), nccl (cuda)". */
const char *collrun_group_backend(const struct collrun_group *group);

/* The world rank of a rank of the group; -1: it has no such rank. */
int collrun_world_rank_of(const struct collrun_group *group, int rank);

/* ==== collectives, blocking ======================================================================
 *
 * Every member calls, in the same order on the group, with the same kind, dtype, operator, root and
 * (where it is one number) count. Below, n is the group's size, r this rank; "count" is always a
 * number of elements. A count of 0 moves nothing and needs no buffers, and the equal forms still
 * synchronise. A call returns when this rank's part is done: its buffers may be used again; other
 * ranks may still be at it.
 *
 * In place: send == recv for allreduce, reduce and alltoall; allgather send == recv + r*count;
 * reduce_scatter recv == send + r*count; at the root, gather send == recv + root*count and scatter
 * recv == send + root*count; the v-forms likewise, with this rank's own block (not alltoallv). Any
 * other overlap of what is sent and what is received is INVALID. What a rank does not receive into
 * stays unchanged; inputs stay unchanged unless in place. */

/* Returns when every member has called it. */
int collrun_barrier(struct collrun_group *g);

/* recv[i] = send[i] of all ranks, combined by op: count elements each, the same bits on every rank.
 * types.h defines the operators; B* and L* need integers or bool, else INVALID. */
int collrun_allreduce(struct collrun_group *g, const void *send, void *recv, size_t count,
                      enum collrun_dtype dtype, enum collrun_op op);

/* The same, for the root alone; recv is ignored elsewhere and may be NULL there. */
int collrun_reduce(struct collrun_group *g, const void *send, void *recv, size_t count,
                   enum collrun_dtype dtype, enum collrun_op op, int root);

/* The root's count elements of buf, to everybody's buf. */
int collrun_broadcast(struct collrun_group *g, void *buf, size_t count, enum collrun_dtype dtype,
                      int root);

/* count: of one rank. recv holds n*count elements: rank k's at k*count. */
int collrun_allgather(struct collrun_group *g, const void *send, void *recv, size_t count,
                      enum collrun_dtype dtype);

/* The same, for the root alone; recv is ignored elsewhere. */
int collrun_gather(struct collrun_group *g, const void *send, void *recv, size_t count,
                   enum collrun_dtype dtype, int root);

/* count: of one rank. The root's send holds n*count elements: those at k*count go to rank k. send
 * is ignored elsewhere. */
int collrun_scatter(struct collrun_group *g, const void *send, void *recv, size_t count,
                    enum collrun_dtype dtype, int root);

/* count: what each rank receives. send holds n*count elements; rank k gets those at k*count,
 * combined over all ranks. */
int collrun_reduce_scatter(struct collrun_group *g, const void *send, void *recv, size_t count,
                           enum collrun_dtype dtype, enum collrun_op op);

/* count: of one pair. send and recv hold n*count elements: send[k*count...] goes to rank k's
 * recv[r*count...]. */
int collrun_alltoall(struct collrun_group *g, const void *send, void *recv, size_t count,
                     enum collrun_dtype dtype);

/* ---- uneven forms: one count per rank, in arrays of n
 *
 * counts[k] elements concern rank k; displs[k] says where they start in the buffer, in elements;
 * displs NULL = packed in rank order. Blocks that are received must not overlap; blocks that are
 * sent may. Sender and receiver must agree on every count: what a rank sends itself is checked
 * before anything is sent, the rest is a MISMATCH where the backend compares calls. The arrays are
 * read before the call returns (collrun_start: before that returns). */

/* sendcount == recvcounts[r]; recvcounts are the same on all ranks, displs need not be. */
int collrun_allgatherv(struct collrun_group *g, const void *send, size_t sendcount, void *recv,
                       const size_t *recvcounts, const size_t *displs, enum collrun_dtype dtype);

/* recv, recvcounts and displs matter at the root only. */
int collrun_gatherv(struct collrun_group *g, const void *send, size_t sendcount, void *recv,
                    const size_t *recvcounts, const size_t *displs, enum collrun_dtype dtype,
                    int root);

/* send, sendcounts and displs matter at the root only. */
int collrun_scatterv(struct collrun_group *g, const void *send, const size_t *sendcounts,
                     const size_t *displs, void *recv, size_t recvcount, enum collrun_dtype dtype,
                     int root);

/* send holds the sum of recvcounts, packed; rank k gets block k, recvcounts[k] elements combined
 * over all ranks. recvcounts are the same on all ranks. */
int collrun_reduce_scatterv(struct collrun_group *g, const void *send, void *recv,
                            const size_t *recvcounts, enum collrun_dtype dtype, enum collrun_op op);

/* sendcounts[k] here == recvcounts[r] at rank k. */
int collrun_alltoallv(struct collrun_group *g, const void *send, const size_t *sendcounts,
                      const size_t *senddispls, void *recv, const size_t *recvcounts,
                      const size_t *recvdispls, enum collrun_dtype dtype);

/* ==== messages ===================================================================================
 *
 * Messages of one pair, group and tag arrive in the order they were sent; the blocking forms use
 * tag 0 (collrun_call has others). The receiver gives exactly the sender's count and dtype; a
 * difference is a MISMATCH on both sides. A send may return before it is received (short ones on
 * shm and gloo do; their sender is told of a difference by a later call on the group), and may wait
 * until it is: two ranks that both send before they receive may block, as in MPI; sendrecv and
 * start_many never do. Ranks that wait for each other for ever are found out: the job ends with a
 * sentence that says who waits for whom. A peer that is this rank itself is INVALID, but in
 * sendrecv. */

int collrun_send(struct collrun_group *g, const void *buf, size_t count, enum collrun_dtype dtype,
                 int peer);
int collrun_recv(struct collrun_group *g, void *buf, size_t count, enum collrun_dtype dtype,
                 int peer);

/* The next message of whichever rank; *source (may be NULL) is who sent it. */
int collrun_recv_any(struct collrun_group *g, void *buf, size_t count, enum collrun_dtype dtype,
                     int *source);

/* Both at once. dst and src may be the same rank, and both may be this one: that is a copy. The
 * buffers must not overlap. */
int collrun_sendrecv(struct collrun_group *g, const void *send, size_t sendcount, int dst,
                     void *recv, size_t recvcount, int src, enum collrun_dtype dtype);

/* ==== the same without blocking ==================================================================
 *
 * One descriptor, struct collrun_call of types.h, describes every kind:
 *
 *     struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
 *     call.send = x, call.recv = y, call.count = n;
 *     call.dtype = COLLRUN_FLOAT32, call.op = COLLRUN_SUM;
 *     collrun_start(g, &call, &request);
 *
 * The descriptor may be reused at once; the buffers belong to the operation until the request is
 * finished. Requests make progress whether or not anyone waits. Collectives of one group run in the
 * order in which they were started, blocking ones included; messages do not wait for them. Any
 * number may be in flight; they may be waited for in any order. Each has to be waited for (or
 * tested until it is not AGAIN): that frees it. */

/* Never blocks. Errors that are known at once are returned here; there is no request then. */
int collrun_start(struct collrun_group *g, const struct collrun_call *call,
                  struct collrun_request **out);

/* n >= 1 calls, messages only, as one request: none of them waits for an earlier one, so they
 * complete in whatever order the peers send and receive. */
int collrun_start_many(struct collrun_group *g, const struct collrun_call *calls, int n,
                       struct collrun_request **out);

/* AGAIN if it is not finished; anything else is its result and frees it. Never blocks. */
int collrun_test(struct collrun_request *request);

/* Waits until it is finished, returns its result, frees it, whatever the result. */
int collrun_wait(struct collrun_request *request);

/* Does not wait for the operation's end: what `stream`, of the group's GPU `device`, gets from now
 * on runs after the operation. The request lives on and has still to be waited for or tested, at
 * any later time, which then tells how it ended. Where there is no GPU to order, on backends for
 * host memory, it waits until the operation is finished. */
int collrun_wait_stream(struct collrun_request *request, int device, void *stream);

/* Waits for all of them, frees all, sets the entries to NULL, returns the first failure in the
 * order of the array. Entries that are NULL are skipped. */
int collrun_wait_all(struct collrun_request **requests, int n);

/* ==== memory =====================================================================================
 *
 * Memory that the group's backend moves without a copy where it can (shm), else plain memory
 * aligned to a page. On shm, what is sent from it is read by the receivers where it lies, in every
 * collective and message of this group but the shortest (which cost no copy anyway) and an
 * alltoall, or an allreduce of two ranks, in place; a message is written straight into it. Any rank
 * may use any amount; not collective. It can be used with every group and function. It goes with
 * its group: once that is destroyed it must not be touched. */

int collrun_alloc(struct collrun_group *g, size_t bytes, void **out);
/* NULL is OK; INVALID for what this group has not given, or has got back. */
int collrun_free(struct collrun_group *g, void *ptr);

/* ==== GPUs =======================================================================================
 *
 * A rank's GPUs are CUDA devices 0, 1, ... of its process. A group on a backend that works on GPUs
 * (nccl) drives the first gpus_per_process of them, with one communicator rank for each: GPU d of
 * rank r is number r*D + d of n*D, and in the collectives "n" and "rank k" mean these. With D = 1,
 * nothing is different. With more, a collective takes one call per GPU, together:
 *
 *     struct collrun_call calls[2] = {COLLRUN_CALL(COLLRUN_ALLREDUCE), ...};
 *     calls[0].device = 0, calls[1].device = 1; ...
 *     collrun_start_many(g, calls, 2, &request);
 *
 * The root is GPU `peer_device` of rank `root`; a message goes from GPU `device` to GPU
 * `peer_device` of rank `peer`, which may be another GPU of this rank. collrun_barrier is called as
 * ever. The blocking forms of the messages are for device 0. A buffer on another GPU than the
 * call's is INVALID.
 *
 * Buffers on a GPU belong to an operation in stream order: it begins when `call.stream` of that
 * device has done what it holds at the call, and the blocking forms return when the operation is
 * done. On a backend for host memory (shm, gloo) buffers on a GPU are copied through pinned memory,
 * and collrun_start waits for the stream. With `backend: {host: gloo, cuda: nccl}` each operation
 * goes where its buffers are: all members' in the same sort of memory; without any buffer, to the
 * host's. A backend for GPUs alone refuses buffers in host memory (UNSUPPORTED).
 *
 * Messages on nccl begin on the GPU when both ends have been called, and collectives may have to
 * wait for those before them, in their group or on the stream that they come after; until then
 * collrun_wait_stream, which needs something to wait for, waits on the host. Operations of several
 * groups, and messages, may be started in any order on any rank. */

/* GPUs that each rank drives in this group; 0: none, it works on host memory. */
int collrun_devices(const struct collrun_group *group);
/* The CUDA device of one of them; -1: there is no such. */
int collrun_device(const struct collrun_group *group, int index);

/* What a call comes after on that GPU if it names no stream, and what the blocking forms come
 * after. At first, and with NULL, the default stream. */
int collrun_set_stream(struct collrun_group *group, int device, void *stream);

/* Like collrun_alloc, on one of the GPUs; on nccl registered with the communicator. collrun_alloc
 * itself takes from the first one where the group works on GPUs alone. INVALID: no such GPU. Give
 * back what is still in use by a stream only when that is done. */
int collrun_alloc_device(struct collrun_group *g, int device, size_t bytes, void **out);

/* Copies between host memory and a GPU's, in any direction, and waits until that is done: for
 * workloads that know nothing of CUDA. It comes after no stream; blocking operations are over when
 * they return. */
int collrun_copy(struct collrun_group *g, void *to, const void *from, size_t bytes);

/* ==== words to the runner ===================================================================== */

/* How far the work is: `done` of `total` (0 = unknown) of `what` ("steps"). Shown in the status
 * line. Call it as often as you like: at most ten a second are sent, and the last. */
void collrun_progress(struct collrun_ctx *ctx, uint64_t done, uint64_t total, const char *what);

/* A number for the run's result.json. */
void collrun_metric(struct collrun_ctx *ctx, const char *name, double value);

/* One line, printed by the runner with this rank's label, on stderr; printf goes to stdout, as
 * everywhere. */
void collrun_log(struct collrun_ctx *ctx, enum collrun_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Stores the sentence that the report of the job will give as the cause, if this workload fails;
 * the first one counts. Returns 1, so that `return collrun_fail(ctx, "loss is %g", loss);` ends the
 * workload with exit code 1. */
int collrun_fail(struct collrun_ctx *ctx, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* True when a background workload is asked to end, and for every workload when the job has failed:
 * return soon. */
bool collrun_stopping(const struct collrun_ctx *ctx);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
