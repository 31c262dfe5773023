/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface for workloads: the job as one rank sees it, its groups, collective operations and
 * messages, requests, parameters, and reports to the runner. A workload is one shared object;
 * workload.h declares what it exports.
 *
 * Status. A function that returns int and has an effect returns COLLRUN_OK (0) or a negative enum
 * collrun_status; collrun_error() then returns the error message. Any of them may return INVALID (a
 * bad argument, detected before data is sent) and NO_MEMORY. Operations may also return
 * UNSUPPORTED, MISMATCH, TIMEOUT, PEER_FAILED, ABORTED, BACKEND and SYSTEM. On failure, outputs are
 * unchanged, except for the buffers of an operation that had started: their contents are undefined.
 * After MISMATCH, TIMEOUT, PEER_FAILED, ABORTED or BACKEND, and after NO_MEMORY or SYSTEM of a
 * collective, which the other members may be in, every later call on the group fails immediately
 * with the first error; after any other error the group remains usable.
 *
 * Time. Every wait ends: by completion, by an error, or by the time-out of the operation
 * (collrun_call.timeout_ns, else that of the group). When another rank ends, blocked calls return
 * PEER_FAILED within milliseconds, and the error message names that rank.
 *
 * Threads. Any number of threads, of one or several workloads, may call the functions for messages
 * (send, recv, recv_any, sendrecv, probe, iprobe; start and run of messages) on one group at the
 * same time, each with its own buffers. All other functions of a group are called by one thread at
 * a time; a second one gets INVALID. A collective and messages may overlap. Different groups are
 * independent. Any thread may test, wait for and cancel a request, one thread at a time. Any thread
 * may call the functions about the job, the parameters and the reports at any time.
 *
 * A returned string lives as long as the object it belongs to. Counts are numbers of elements of
 * the given dtype, never bytes. Ranks are ranks of the group, except in names with `world`. Buffers
 * need no alignment; for reductions on a device they need that of their element type.
 *
 * C11 and C++17.
 */
#ifndef COLLRUN_COLLRUN_H
#define COLLRUN_COLLRUN_H

#include <collrun/program.h>
#include <collrun/types.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* The job, as one workload of one rank, or a program, sees it; lives as long as the workload. */
struct collrun_ctx;
/* One rank's membership in one group; MPI's communicator. */
struct collrun_group;
/* An operation in flight. */
struct collrun_request;

/* ==== errors ================================================================================== */

/* A status in a few words: "timed out". Never NULL. */
const char *collrun_strstatus(int status);

/* The error message of the last call that failed in this thread, with operation, group and number
 * if the call has them: "allreduce train#1042: rank 5 (node2) was killed by SIGKILL". "" if no call
 * has failed yet. Valid until the next failure in this thread; success does not clear it. */
const char *collrun_error(void);

/* Bytes of one element; 0 if `dtype` is not an element type. */
size_t collrun_dtype_size(enum collrun_dtype dtype);

/* The version of the library, as COLLRUN_VERSION is that of the headers: "0.1.0". */
const char *collrun_version(void);

/* ==== the job ================================================================================= */

int collrun_world_rank(const struct collrun_ctx *ctx); /* 0 .. world size - 1 */
int collrun_world_size(const struct collrun_ctx *ctx); /* processes.count */
int collrun_local_rank(const struct collrun_ctx *ctx); /* among the job's ranks on this host */
int collrun_local_size(const struct collrun_ctx *ctx); /* number of those */
int collrun_gpu_count(const struct collrun_ctx *ctx);  /* GPUs that this rank owns */
/* Devices of a kind of memory ("cuda") that this rank owns; NULL: of all kinds. */
int collrun_device_count(const struct collrun_ctx *ctx, const char *kind);

/* 0, then 1, 2, ... when on_failure restarts the job. */
int collrun_attempt(const struct collrun_ctx *ctx);

const char *collrun_host(const struct collrun_ctx *ctx);   /* this host, as job.yaml names it */
const char *collrun_run_id(const struct collrun_ctx *ctx); /* the same on all ranks */

/* This host's numeric address on network.interface of job.yaml, for the workload's connections. */
const char *collrun_address(const struct collrun_ctx *ctx);

/* The world ranks that are known to have failed, in ascending order: writes up to `max` of them to
 * `ranks` (may be NULL if max is 0) and returns how many there are. With `on_failure: {action:
 * continue}` a rank that gets PEER_FAILED finds the reason here and goes on in other groups. */
int collrun_failed(const struct collrun_ctx *ctx, int *ranks, int max);

/* The directory of the run's logs; "" without logging.dir. */
const char *collrun_run_dir(const struct collrun_ctx *ctx);

/* ==== parameters =================================================================================
 *
 * `params` of job.yaml for this rank, with the types that the workload's table declares
 * (workload.h); the default if the job gives no value. They were checked before any rank started,
 * so these functions do not fail. To ask for a name that is not declared, or for another type, is
 * an error in the workload: the function logs it and returns 0, "" or false, and the workload fails
 * with that message when it returns. */

/* {rank} and the other templates are replaced. Of an enum: the choice, as the table writes it. */
const char *collrun_param_string(const struct collrun_ctx *ctx, const char *name);

int64_t collrun_param_int(const struct collrun_ctx *ctx, const char *name);
double collrun_param_float(const struct collrun_ctx *ctx, const char *name);
bool collrun_param_bool(const struct collrun_ctx *ctx, const char *name);
uint64_t collrun_param_size(const struct collrun_ctx *ctx, const char *name);     /* bytes */
uint64_t collrun_param_duration(const struct collrun_ctx *ctx, const char *name); /* nanoseconds */
/* The index of the choice in `choices` of the table: 0 for the first. */
int collrun_param_enum(const struct collrun_ctx *ctx, const char *name);

/* Lists: the number of items, and item `index` (0 .. count - 1), by the function of its type. An
 * index out of range is an error in the workload, as above. */
int collrun_param_count(const struct collrun_ctx *ctx, const char *name);
const char *collrun_param_string_at(const struct collrun_ctx *ctx, const char *name, int index);
int64_t collrun_param_int_at(const struct collrun_ctx *ctx, const char *name, int index);
double collrun_param_float_at(const struct collrun_ctx *ctx, const char *name, int index);
bool collrun_param_bool_at(const struct collrun_ctx *ctx, const char *name, int index);
uint64_t collrun_param_size_at(const struct collrun_ctx *ctx, const char *name, int index);
uint64_t collrun_param_duration_at(const struct collrun_ctx *ctx, const char *name, int index);
int collrun_param_enum_at(const struct collrun_ctx *ctx, const char *name, int index);

/* ==== groups of job.yaml =========================================================================
 *
 * They are opened before any workload's init runs, and closed after the last workload has returned.
 */

/* Finds a group by name: one of job.yaml, or one that any workload of this process made at run
 * time. Borrowed. NOT_MEMBER if this rank is not in it; NOT_FOUND if the group does not exist, or
 * `groups` of this workload does not list it. "" is the first group of this workload that this rank
 * is in, as collrun_group_at(ctx, 0); NOT_MEMBER if there is none. */
int collrun_group_get(struct collrun_ctx *ctx, const char *name, struct collrun_group **out);

/* The groups of job.yaml that this workload may use on this rank, in file order: index 0, 1, ...;
 * NULL past the last. Borrowed. */
struct collrun_group *collrun_group_at(struct collrun_ctx *ctx, int index);

/* True if a group of this name is open in this process. */
bool collrun_group_exists(const struct collrun_ctx *ctx, const char *name);

/* This rank's rank in the group, and the group's size. -1 if no group of this name is open in this
 * process. */
int collrun_group_rank(const struct collrun_ctx *ctx, const char *name);
int collrun_group_size(const struct collrun_ctx *ctx, const char *name);

/* ==== groups made at run time ================================================================= */

struct collrun_group_options {
    uint32_t size; /* sizeof this struct */
    /* Up to 255 bytes without control characters; not the name of a group of this process that is
     * open or being created, nor of a group of job.yaml. NULL or "": a unique name, "group(0-3).1",
     * the same on all members. */
    const char *name;
    /* The name of one backend, of job.yaml or an installed one; a group has no second one for
     * another kind of memory. NULL or "auto": the best backend of the job for these ranks. */
    const char *backend;
    const int *ranks; /* world ranks, each once; their order is the order of group ranks */
    int nranks;
    uint64_t timeout_ns; /* of an operation; 0 = 10 minutes */
    enum collrun_check check;
    int devices_per_process; /* for backends that work on devices: of each rank; 0 = 1 */
};

/* Collective over the members; other ranks are not involved. All members give the same options.
 * Fails with TIMEOUT after timeouts.rendezvous of job.yaml, and the message names the missing
 * ranks. The caller owns *out and destroys it. Also: NOT_MEMBER, EXISTS, NOT_FOUND (the backend),
 * UNAVAILABLE (with the reason of the backend), MISMATCH (members disagree about the members or the
 * check, or have different backends). Members that wait for each other in creations with another
 * name or order end the job soon, as a mismatch of the minority. */
int collrun_group_create(struct collrun_ctx *ctx, const struct collrun_group_options *options,
                         struct collrun_group **out);

/* Collective over the parent. Members with the same color (>= 0) form a group, ordered by `key`,
 * then by rank in the parent, with the parent's backend, time-out and check. `name`: as in
 * collrun_group_options; NULL or "": a unique one, "world/1.0" for color 0 of the first split of
 * world. A member with a negative color gets *out = NULL. The caller destroys *out. */
int collrun_group_split(struct collrun_group *parent, int color, int key, const char *name,
                        struct collrun_group **out);

/* The same without blocking, as MPI_Comm_idup: a thread creates the group while the caller goes on,
 * also with other groups and with the parent. The arguments are checked before the call returns.
 * The request is tested or waited for like any other; *out is written when it has ended with OK,
 * and must stay valid until then. Several creations may be in flight; all members start those of
 * the same parent, or without a name and with the same ranks, in the same order. The parent may be
 * destroyed meanwhile. Also: SYSTEM (no thread). */
int collrun_group_create_start(struct collrun_ctx *ctx, const struct collrun_group_options *options,
                               struct collrun_group **out, struct collrun_request **request);
int collrun_group_split_start(struct collrun_group *parent, int color, int key, const char *name,
                              struct collrun_group **out, struct collrun_request **request);

/* Collective over the members of `broken` that have not exited: they form a group, in the order of
 * their ranks in `broken`, with its backend, time-out and check. `broken` may have failed or not,
 * and stays open; its name cannot be used for the new group. `name`: as in collrun_group_options.
 *
 * Returns OK on all of these members or on none. A member that exits meanwhile is left out. One
 * that exits after that fails the new group like any other. A rank that does not exit has to call:
 * TIMEOUT after timeouts.rendezvous of job.yaml names the ranks that did not. With `on_failure:
 * {action: continue}`, this is how a job goes on without a lost rank; with any other action the job
 * ends, and the call returns ABORTED. The caller destroys *out. */
int collrun_group_shrink(struct collrun_group *broken, const char *name,
                         struct collrun_group **out);

/* OK if groups can be created on this backend, of job.yaml or an installed one, as far as this rank
 * can tell; NOT_FOUND; or UNAVAILABLE. In all cases `why` (NULL if len is 0) gets the reason, ""
 * for OK, cut to len bytes with the NUL. Local; does not open the backend. */
int collrun_backend_available(struct collrun_ctx *ctx, const char *name, char *why, size_t len);

/* Local: does not wait for other ranks. Messages that were sent can still be received. Messages of
 * other threads end with ABORTED, and so do unfinished requests, which still have to be waited for.
 * Operations of peers that are in progress may fail; a collective that peers call although this
 * rank has not called it is a mismatch, which ends the job. The name may be used again immediately.
 * OK for NULL and for a group that was destroyed before; INVALID for a group of job.yaml. Any other
 * call with a destroyed group is INVALID as long as it is one of the last 64 that were destroyed;
 * older handles must not be used. */
int collrun_group_destroy(struct collrun_group *group);

/* Fails the group on this rank: calls and requests in progress end with ABORTED, and so does every
 * later one; the error message holds `reason`. Any thread may call it while others are in calls of
 * the group. Other ranks are not involved: those that wait for this one go on to wait, until it
 * exits or their time-out expires. OK without effect for a group that has failed before. INVALID
 * for NULL, for a group that was destroyed, and if `reason` is NULL. */
int collrun_group_abort(struct collrun_group *group, const char *reason);

/* ==== properties of a group =================================================================== */

int collrun_rank(const struct collrun_group *group);
int collrun_size(const struct collrun_group *group);
const char *collrun_group_name(const struct collrun_group *group);
/* "shm"; for a group with a backend per kind of memory: "gloo (host), nccl (cuda)". */
const char *collrun_group_backend(const struct collrun_group *group);

/* The world rank of a rank of the group; -1 if the group has no such rank. */
int collrun_world_rank_of(const struct collrun_group *group, int rank);
/* The other way round: -1 if that world rank is not a member. */
int collrun_group_rank_of(const struct collrun_group *group, int world_rank);
/* Writes the world ranks of the members, in the order of group ranks and up to `max` of them, to
 * `ranks` (may be NULL if max is 0). Returns the size of the group; -1 if `group` is NULL. */
int collrun_group_members(const struct collrun_group *group, int *ranks, int max);

/* The handle of the backend's library behind the group, for calls that collrun does not have. NULL:
 * there is none of that name, or not yet: that of `world` may be formed when the group is first
 * used. `device`: 0 .. collrun_devices() - 1; 0 for a group without devices.
 *
 *   what         backend   type
 *   "nccl_comm"  nccl      ncclComm_t of that GPU, with ranks as under "GPUs" below
 *   "mpi_comm"   mpi       MPI_Comm *
 *
 * Borrowed: valid until the group is destroyed or fails. The caller keeps the order that the
 * library asks for among its own calls and those of the group on all ranks, and frees nothing. */
void *collrun_group_native(const struct collrun_group *group, const char *what, int device);

uint64_t collrun_group_timeout(const struct collrun_group *group); /* nanoseconds */
enum collrun_check collrun_group_check(const struct collrun_group *group);

/* ==== collectives, blocking ======================================================================
 *
 * Every member calls the same operations on the group in the same order, with the same kind, dtype,
 * operator, root and (except in the v-forms) count. Below, n is the size of the group and r this
 * rank. With a count of 0 no data is moved and the buffers may be NULL; forms with a single count
 * still synchronise. A call returns when this rank's part is complete: its buffers may be used
 * again, and other ranks may still be in the operation.
 *
 * In place: send == recv for allreduce, reduce, scan, exscan and alltoall; allgather send == recv +
 * r*count; reduce_scatter recv == send + r*count; at the root, gather send == recv + root*count and
 * scatter recv == send + root*count; the v-forms likewise, with this rank's own block; alltoallv
 * send == recv with counts and displacements that are the same for both: each block is replaced by
 * that of its rank. Any other overlap of send and receive buffers is INVALID. Memory that a rank
 * does not receive into is unchanged, and so are inputs, unless in place.
 *
 * An operator of the workload, struct collrun_user_op, is given by collrun_run and collrun_start:
 *
 *     struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
 *     call.send = pairs, call.recv = largest, call.count = 2 * n;
 *     call.dtype = COLLRUN_FLOAT64, call.user_op = &argmax;
 *     collrun_run(g, &call, 1);
 */

/* Returns after every member has called it. */
int collrun_barrier(struct collrun_group *g);

/* recv[i] = send[i] of all ranks, combined by op: count elements each, the same bits on every rank.
 * types.h defines the operators; B* and L* need integers or bool, else INVALID. */
int collrun_allreduce(struct collrun_group *g, const void *send, void *recv, size_t count,
                      enum collrun_dtype dtype, enum collrun_op op);

/* As allreduce, with the result at the root only; elsewhere recv is ignored and may be NULL. */
int collrun_reduce(struct collrun_group *g, const void *send, void *recv, size_t count,
                   enum collrun_dtype dtype, enum collrun_op op, int root);

/* Copies count elements of the root's buf to buf of all ranks. */
int collrun_broadcast(struct collrun_group *g, void *buf, size_t count, enum collrun_dtype dtype,
                      int root);

/* count: of one rank. recv has room for n*count elements; those of rank k are at k*count. */
int collrun_allgather(struct collrun_group *g, const void *send, void *recv, size_t count,
                      enum collrun_dtype dtype);

/* As allgather, with the result at the root only; elsewhere recv is ignored. */
int collrun_gather(struct collrun_group *g, const void *send, void *recv, size_t count,
                   enum collrun_dtype dtype, int root);

/* count: of one rank. send of the root holds n*count elements; those at k*count go to rank k.
 * Elsewhere send is ignored. */
int collrun_scatter(struct collrun_group *g, const void *send, void *recv, size_t count,
                    enum collrun_dtype dtype, int root);

/* count: of one rank's result. send holds n*count elements; rank k receives those at k*count,
 * combined over all ranks. */
int collrun_reduce_scatter(struct collrun_group *g, const void *send, void *recv, size_t count,
                           enum collrun_dtype dtype, enum collrun_op op);

/* The prefix of this rank: recv[i] = send[i] of ranks 0 to r, combined by op. AVG divides by the
 * number of ranks that are combined. */
int collrun_scan(struct collrun_group *g, const void *send, void *recv, size_t count,
                 enum collrun_dtype dtype, enum collrun_op op);

/* As scan, of ranks 0 to r-1. At rank 0 recv is ignored and may be NULL. */
int collrun_exscan(struct collrun_group *g, const void *send, void *recv, size_t count,
                   enum collrun_dtype dtype, enum collrun_op op);

/* count: of one pair. send and recv hold n*count elements: send[k*count...] goes to rank k's
 * recv[r*count...]. */
int collrun_alltoall(struct collrun_group *g, const void *send, void *recv, size_t count,
                     enum collrun_dtype dtype);

/* ---- v-forms: one count per rank, in arrays of n
 *
 * counts[k] is the number of elements for or from rank k; displs[k] is their offset in the buffer,
 * in elements; displs NULL = packed in rank order. Received blocks must not overlap; sent blocks
 * may. Sender and receiver must agree on every count. The count of a rank with itself is checked
 * before data is sent; any other difference is a MISMATCH if the backend compares calls. The arrays
 * are read before the call (or collrun_start) returns. */

/* sendcount == recvcounts[r]. recvcounts are the same on all ranks; displs may differ. */
int collrun_allgatherv(struct collrun_group *g, const void *send, size_t sendcount, void *recv,
                       const size_t *recvcounts, const size_t *displs, enum collrun_dtype dtype);

/* recv, recvcounts and displs are used at the root only. */
int collrun_gatherv(struct collrun_group *g, const void *send, size_t sendcount, void *recv,
                    const size_t *recvcounts, const size_t *displs, enum collrun_dtype dtype,
                    int root);

/* send, sendcounts and displs are used at the root only. */
int collrun_scatterv(struct collrun_group *g, const void *send, const size_t *sendcounts,
                     const size_t *displs, void *recv, size_t recvcount, enum collrun_dtype dtype,
                     int root);

/* send holds one block per rank, packed, of recvcounts[k] elements; rank k receives block k,
 * combined over all ranks. recvcounts are the same on all ranks. */
int collrun_reduce_scatterv(struct collrun_group *g, const void *send, void *recv,
                            const size_t *recvcounts, enum collrun_dtype dtype, enum collrun_op op);

/* sendcounts[k] of this rank == recvcounts[r] of rank k. */
int collrun_alltoallv(struct collrun_group *g, const void *send, const size_t *sendcounts,
                      const size_t *senddispls, void *recv, const size_t *recvcounts,
                      const size_t *recvdispls, enum collrun_dtype dtype);

/* ==== messages ===================================================================================
 *
 * Messages between two ranks of a group with the same tag arrive in the order of sending; a receive
 * of any tag takes them in that order, too. The blocking forms use tag 0; collrun_call has a tag,
 * which may be COLLRUN_ANY_TAG for a receive. The receiver gives exactly the sender's count and
 * dtype, and a difference is a MISMATCH; with collrun_call.received it learns the count, and only a
 * message that is longer than its buffer is a MISMATCH. A send may return before it is received
 * (short messages on shm and gloo; a later call on the group then returns the MISMATCH), or wait
 * for the receiver. Two ranks that both send before they receive may block, as in MPI; sendrecv and
 * start_many do not. Ranks that wait for each other forever are detected: the job ends with an
 * error that names the ranks.
 *
 * A rank may send to itself: such a message is matched as any other. If its receive is not posted,
 * the message is copied, so that the send does not wait for it (on nccl, it waits).
 *
 * Several threads may send and receive at the same time. Messages of one thread keep their order;
 * those of two threads to one peer with one tag have none.
 *
 * A backend that matches messages itself may lack tags, any-tag, `received`, messages to oneself,
 * probe or cancel; such a call returns UNSUPPORTED, and the error message names the backend. The
 * built-in backends have all of them. */

int collrun_send(struct collrun_group *g, const void *buf, size_t count, enum collrun_dtype dtype,
                 int peer);
int collrun_recv(struct collrun_group *g, void *buf, size_t count, enum collrun_dtype dtype,
                 int peer);

/* The next message from any rank; *source (may be NULL) is its sender. */
int collrun_recv_any(struct collrun_group *g, void *buf, size_t count, enum collrun_dtype dtype,
                     int *source);

/* A send and a receive that progress together. dst and src may be the same rank, and may be this
 * rank. The buffers must not overlap. With tags, or with two dtypes, the two calls are given to
 * collrun_run:
 *
 *     struct collrun_call calls[2] = {COLLRUN_CALL(COLLRUN_SEND), COLLRUN_CALL(COLLRUN_RECV)};
 *     calls[0].send = x, calls[0].peer = dst, calls[0].tag = 3; ...
 *     calls[1].recv = y, calls[1].peer = src, calls[1].tag = 4; ...
 *     collrun_run(g, calls, 2); */
int collrun_sendrecv(struct collrun_group *g, const void *send, size_t sendcount, int dst,
                     void *recv, size_t recvcount, int src, enum collrun_dtype dtype);

/* A message that can be received. */
struct collrun_message_info {
    uint32_t size; /* sizeof this struct; set by the caller */
    int source;    /* its sender */
    uint32_t tag;
    enum collrun_dtype dtype;
    size_t count;
};

/* Waits, under the group's time-out, until a message can be received from `peer` (or
 * COLLRUN_ANY_PEER) with `tag` (or COLLRUN_ANY_TAG), and describes in *out the one that such a
 * receive would take. The message is not taken: a receive from out->source with out->tag takes it,
 * if no other thread has received it meanwhile. */
int collrun_probe(struct collrun_group *g, int peer, uint32_t tag,
                  struct collrun_message_info *out);

/* The same without waiting: AGAIN if there is no such message yet; *out is then unchanged. */
int collrun_iprobe(struct collrun_group *g, int peer, uint32_t tag,
                   struct collrun_message_info *out);

/* ==== non-blocking operations ====================================================================
 *
 * struct collrun_call of types.h describes an operation of any kind:
 *
 *     struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
 *     call.send = x, call.recv = y, call.count = n;
 *     call.dtype = COLLRUN_FLOAT32, call.op = COLLRUN_SUM;
 *     collrun_start(g, &call, &request);
 *
 * The descriptor may be reused immediately; the buffers belong to the operation until the request
 * is finished. Requests make progress without a waiting thread. Collectives of one group, blocking
 * ones included, run in the order in which they were started; messages do not wait for them. Any
 * number of requests may be in flight, and they may be waited for in any order. Each request must
 * be waited for, or tested until the result is not AGAIN; that frees it. */

/* Does not block. On an error, *out is unchanged: there is no request. */
int collrun_start(struct collrun_group *g, const struct collrun_call *call,
                  struct collrun_request **out);

/* n >= 1 messages, or n collectives, as one request.
 *   Messages: none of them waits for an earlier one, so they may complete in any order.
 *   Collectives, a batch: executed in the order of the array, each with its number, as if they had
 *   been started one by one; all members start the same batch. A call may read what an earlier one
 *   has written. The first failure ends the batch and is its result.
 * (One collective with a call per device is possible, too; see below. With several devices per
 * process there are no batches.) */
int collrun_start_many(struct collrun_group *g, const struct collrun_call *calls, int n,
                       struct collrun_request **out);

/* collrun_start_many and collrun_wait in one call: returns when all n calls are complete. It makes
 * no request for a batch or if n is 1 or 2, and then costs as much as the blocking functions.
 * Unlike those, it takes a tag, a time-out, and several calls at once. */
int collrun_run(struct collrun_group *g, const struct collrun_call *calls, int n);

/* AGAIN: it is not finished. Otherwise its result, and the request is freed. Does not block. */
int collrun_test(struct collrun_request *request);

/* As collrun_test, but keeps the request in any case: AGAIN, or its result, as often as it is
 * asked. The request must still be waited for or tested. */
int collrun_poll(struct collrun_request *request);

/* Waits until the request is finished, frees it, and returns its result. */
int collrun_wait(struct collrun_request *request);

/* Withdraws receives that no message has been matched with, so that their buffers may be used
 * again. OK: none of the request's receives happens, and the request is freed. AGAIN: too late, the
 * request is unchanged and has to be waited for. INVALID: it holds something else than receives.
 * UNSUPPORTED: the backend cannot, or not during a collective. Does not wait for other ranks. */
int collrun_cancel(struct collrun_request *request);

/* Makes `stream`, of the group's `device`, wait for the operation: work that is queued on it
 * from now on runs afterwards. The host does not wait, except on backends for host memory. The
 * request lives on and must still be waited for or tested. */
int collrun_wait_stream(struct collrun_request *request, int device, void *stream);

/* Waits for all requests, frees them, sets the entries to NULL, and returns the first failure in
 * the order of the array; its error message begins with the index, and names operation, group and
 * number: "requests[2]: allreduce train#17: ...". NULL entries are skipped. */
int collrun_wait_all(struct collrun_request **requests, int n);

/* Waits until one of the requests is finished, which may be of several groups; frees it, sets its
 * entry to NULL, writes its index to *index, also if it has failed, and returns its result. If
 * several are finished, the first in the array. NULL entries are skipped; if all are NULL, or n is
 * 0, the result is OK and *index is -1. A deadlock of ranks that wait here is not detected: the
 * time-outs of the operations end it. */
int collrun_wait_any(struct collrun_request **requests, int n, int *index);

/* ==== memory =====================================================================================
 *
 * Memory that the group's backend moves without a copy, if it can (shm); else plain memory, aligned
 * to a page. On shm, receivers read directly from it in all collectives and messages of this group,
 * except the shortest ones and, in place, alltoall and the allreduce of two ranks; messages are
 * written directly into it. Not collective: each rank allocates any amount. It can be used with
 * every group and function. It must not be used after its group was destroyed. */

int collrun_alloc(struct collrun_group *g, size_t bytes, void **out);
/* NULL is OK; INVALID for memory that is not allocated by this group, or was freed. */
int collrun_free(struct collrun_group *g, void *ptr);

/* ==== devices ====================================================================================
 *
 * Buffers are in host memory, or in memory of a kind that a backend of the job declares: "cuda" by
 * nccl, or that of an accelerator which collrun does not know (backend.h). A rank owns the devices
 * that job.yaml gives it (gpus_per_process, devices); those of one kind are numbered from 0. A
 * group on a backend that works on devices uses the first D of them, with one communicator rank for
 * each: device d of rank r has communicator rank r*D + d of n*D, and "n" and "rank k" of the
 * collectives mean these. With D > 1, a collective is one request with one call per device:
 *
 *     struct collrun_call calls[2] = {COLLRUN_CALL(COLLRUN_ALLREDUCE), ...};
 *     calls[0].device = 0, calls[1].device = 1; ...
 *     collrun_start_many(g, calls, 2, &request);
 *
 * The root is device `peer_device` of rank `root`; a message goes from device `device` to device
 * `peer_device` of rank `peer`, which may be another device of this rank. collrun_barrier is called
 * once per rank. The blocking messages use device 0. A buffer on another device than that of the
 * call is INVALID.
 *
 * Operations on device memory are ordered by streams: an operation starts after the work that
 * `call.stream` of that device holds at the call, and the blocking forms return when the operation
 * is complete. While a CUDA graph is captured on the stream, the operation is UNSUPPORTED, as is
 * collrun_wait_stream for it; the capture remains valid. A backend for host memory (shm, gloo) gets
 * copies of device memory, made after the stream: those of a collective in the background, while
 * collrun_start of messages waits for it. With `backend: {host: gloo, cuda: nccl}` the memory of
 * the buffers selects the backend (the one for host memory if there is none); all members must use
 * the same kind. A backend for device memory alone returns UNSUPPORTED for buffers in host memory;
 * what it lacks, operators of the workload and alltoallv in place run on copies.
 *
 * The functions below are about the kind of the group's backend; of several, the first one that
 * `backend` lists after host; in a group on host memory, the first kind that the rank owns devices
 * of. Calls on memory of another kind name their stream.
 *
 * A message on nccl starts on the GPU when both ranks have called it. A collective may have to wait
 * for earlier ones of its group or its stream. Until the operation has started on the GPU,
 * collrun_wait_stream waits on the host. Operations of several groups, and messages, may be started
 * in different orders on different ranks. */

/* Number of devices that each rank uses in this group; 0 if it works on host memory. */
int collrun_devices(const struct collrun_group *group);
/* The number of one of them in this process, as the vendor's functions take it: the CUDA device.
 * -1 if there is no such device. */
int collrun_device(const struct collrun_group *group, int index);

/* The kind of memory at `ptr`, as the group's operations see it: "host", or the name of a kind.
 * *device (may be NULL): the index of its device, as in collrun_call; -1: none of this rank's, or
 * host memory. Memory of a kind that neither rank nor group knows is "host". */
const char *collrun_memory_of(const struct collrun_group *group, const void *ptr, int *device);

/* Sets the stream after which blocking calls, and calls that name no stream, run on that device.
 * NULL, and the initial value, is the default stream. */
int collrun_set_stream(struct collrun_group *group, int device, void *stream);

/* As collrun_alloc, on one of the devices; on nccl registered with the communicator. (collrun_alloc
 * uses the first device if the group works on devices alone.) INVALID if there is no such device;
 * UNSUPPORTED if its backend gives no memory. Free the memory only after the streams that use it
 * have finished. */
int collrun_alloc_device(struct collrun_group *g, int device, size_t bytes, void **out);

/* Copies between memory of any kinds, or of the host, and waits for the copy; for workloads without
 * code for devices. The copy is not ordered after any stream. */
int collrun_copy(struct collrun_group *g, void *to, const void *from, size_t bytes);

/* Waits for all work on a device of this rank (0 .. collrun_device_count(ctx, NULL) - 1, kinds in
 * the order of the plan), of every stream; without a time-out. UNAVAILABLE, with the reason, if the
 * process cannot use it; UNSUPPORTED if its backend cannot wait; BACKEND for an error of it. */
int collrun_device_synchronize(struct collrun_ctx *ctx, int device);

/* ==== reports to the runner =================================================================== */

/* Reports progress for the status line: `done` of `total` (0 = unknown) of `what` ("steps"). It may
 * be called often: at most ten reports a second are sent, and the last one always. */
void collrun_progress(struct collrun_ctx *ctx, uint64_t done, uint64_t total, const char *what);

/* Reports a number for result.json of the run. */
void collrun_metric(struct collrun_ctx *ctx, const char *name, double value);

/* One line, which the runner prints on stderr with this rank's label. (printf writes to stdout.) */
void collrun_log(struct collrun_ctx *ctx, enum collrun_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets the error message that the job's report shows if this workload fails; the first one counts.
 * Returns 1, so that `return collrun_fail(ctx, "loss is %g", loss);` ends the workload with exit
 * code 1. */
int collrun_fail(struct collrun_ctx *ctx, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* An exception that the program has not caught, in a language that has them. */
struct collrun_exception {
    size_t size;        /* sizeof(struct collrun_exception) */
    const char *type;   /* "KeyError" */
    const char *text;   /* "'wte.weight'"; may be "" */
    const char *file;   /* where it was raised; NULL: not known */
    int line;           /* in that file, from 1 */
    const char *thread; /* NULL: it ends the program. Else it has ended the thread of that name */
};

/* As collrun_fail, with "KeyError: 'wte.weight' (train.py:5)"; result.json has the members. Where
 * the exception has ended a thread alone, this is the reason if the program then fails without
 * another one, and if other ranks wait for what that thread would have called. The first one of the
 * program counts, or else of its threads. Returns 1. */
int collrun_fail_exception(struct collrun_ctx *ctx, const struct collrun_exception *exception);

/* For the `check` of a workload: the value of this parameter is wrong, and the text says why. The
 * first call counts. Elsewhere it does what collrun_fail does. Returns 1. */
int collrun_refuse(struct collrun_ctx *ctx, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* True if this background workload should end, and for every workload if the job has failed. The
 * workload should then return soon. */
bool collrun_stopping(const struct collrun_ctx *ctx);

/* Declares that the handler of this signal, as it is installed now, lets no waiting thread of this
 * process continue: it posts no semaphore, leaves no call by longjmp or an exception, and calls no
 * function of this header; it may set a flag. A rank that has another handler is never proven to be
 * deadlocked, as its signal could end the wait (collrun-failures(7)). `harmless` 0 takes it back,
 * and so does installing another handler. INVALID: no such signal. */
int collrun_signal_harmless(int number, int harmless);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
