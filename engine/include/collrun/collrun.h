/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLLRUN_COLLRUN_H
#define COLLRUN_COLLRUN_H
#include <collrun/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct collrun_ctx;     /* the job, seen from one workload of one rank */
struct collrun_group;   /* a communicator; one thread at a time per group, different groups in
                           parallel */
struct collrun_request; /* an operation in flight */

const char *collrun_strstatus(int status);
const char *collrun_error(void);                     /* "" if this thread has not failed yet */
size_t collrun_dtype_size(enum collrun_dtype dtype); /* bytes; 0 if unknown */

/* ---- the job ---- */
int collrun_world_rank(const struct collrun_ctx *ctx);
int collrun_world_size(const struct collrun_ctx *ctx);
int collrun_local_rank(const struct collrun_ctx *ctx);
int collrun_local_size(const struct collrun_ctx *ctx);
int collrun_attempt(const struct collrun_ctx *ctx); /* 0, 1, ... with on_failure: restart */
int collrun_gpu_count(const struct collrun_ctx *ctx);
const char *collrun_host(const struct collrun_ctx *ctx);
const char *collrun_run_id(const struct collrun_ctx *ctx);
const char *collrun_run_dir(const struct collrun_ctx *ctx); /* "" without logging.dir */

/* ---- parameters: declared in the workload's table; asking for one that is not declared is a bug
 * and says so ---- */
const char *collrun_param_string(const struct collrun_ctx *ctx, const char *name);
int64_t collrun_param_int(const struct collrun_ctx *ctx, const char *name);
double collrun_param_float(const struct collrun_ctx *ctx, const char *name);
bool collrun_param_bool(const struct collrun_ctx *ctx, const char *name);
uint64_t collrun_param_size(const struct collrun_ctx *ctx, const char *name);     /* bytes */
uint64_t collrun_param_duration(const struct collrun_ctx *ctx, const char *name); /* nanoseconds */

/* ---- groups ---- */
int collrun_group_get(struct collrun_ctx *ctx, const char *name,
                      struct collrun_group **out); /* borrowed */
/* The groups that this workload may use on this rank, in the order of job.yaml: index 0, 1, ...; NULL past the
 * last. Borrowed. */
struct collrun_group *collrun_group_at(struct collrun_ctx *ctx, int index);
bool collrun_group_exists(const struct collrun_ctx *ctx,
                          const char *name); /* open in this process */
int collrun_group_rank(const struct collrun_ctx *ctx,
                       const char *name); /* -1: unknown, or not a member */
int collrun_group_size(const struct collrun_ctx *ctx, const char *name); /* -1: likewise */
struct collrun_group_options {
    uint32_t size;       /* sizeof this struct */
    const char *name;    /* not empty */
    const char *backend; /* NULL = auto */
    const int *ranks;    /* world ranks; their order is the order of group ranks */
    int nranks;
    uint64_t timeout_ns; /* 0 = the default */
};
int collrun_group_create(struct collrun_ctx *ctx, const struct collrun_group_options *options,
                         struct collrun_group **out); /* members only */
int collrun_group_split(struct collrun_group *parent, int color, int key, const char *name,
                        struct collrun_group **out);    /* color < 0: *out = NULL */
int collrun_group_destroy(struct collrun_group *group); /* local; the name is free again */
int collrun_rank(const struct collrun_group *group);
int collrun_size(const struct collrun_group *group);
int collrun_world_rank_of(const struct collrun_group *group, int rank);
const char *collrun_group_name(const struct collrun_group *group);
const char *collrun_group_backend(const struct collrun_group *group);

/* ---- collectives, blocking ----
 * In place: send == recv for allreduce, reduce and alltoall; allgather send == recv + rank*count;
 * reduce_scatter recv == send + rank*count; gather send == recv + root*count and scatter recv ==
 * send + root*count at the root. Any other overlap: INVALID. What a rank does not receive into
 * stays unchanged; inputs stay unchanged unless in place. displs NULL = packed. */
int collrun_barrier(struct collrun_group *g);
int collrun_allreduce(struct collrun_group *g, const void *send, void *recv, size_t count,
                      enum collrun_dtype dtype, enum collrun_op op);
int collrun_reduce(struct collrun_group *g, const void *send, void *recv, size_t count,
                   enum collrun_dtype dtype, enum collrun_op op, int root);
int collrun_broadcast(struct collrun_group *g, void *buf, size_t count, enum collrun_dtype dtype,
                      int root);
int collrun_allgather(struct collrun_group *g, const void *send, void *recv, size_t count,
                      enum collrun_dtype dtype); /* count of one rank */
int collrun_gather(struct collrun_group *g, const void *send, void *recv, size_t count,
                   enum collrun_dtype dtype, int root);
int collrun_scatter(struct collrun_group *g, const void *send, void *recv, size_t count,
                    enum collrun_dtype dtype, int root);
int collrun_reduce_scatter(struct collrun_group *g, const void *send, void *recv, size_t count,
                           enum collrun_dtype dtype, enum collrun_op op); /* count received */
int collrun_alltoall(struct collrun_group *g, const void *send, void *recv, size_t count,
                     enum collrun_dtype dtype); /* count of one pair */
int collrun_allgatherv(struct collrun_group *g, const void *send, size_t sendcount, void *recv,
                       const size_t *recvcounts, const size_t *displs, enum collrun_dtype dtype);
int collrun_gatherv(struct collrun_group *g, const void *send, size_t sendcount, void *recv,
                    const size_t *recvcounts, const size_t *displs, enum collrun_dtype dtype,
                    int root);
int collrun_scatterv(struct collrun_group *g, const void *send, const size_t *sendcounts,
                     const size_t *displs, void *recv, size_t recvcount, enum collrun_dtype dtype,
                     int root);
int collrun_reduce_scatterv(struct collrun_group *g, const void *send, void *recv,
                            const size_t *recvcounts, enum collrun_dtype dtype, enum collrun_op op);
int collrun_alltoallv(struct collrun_group *g, const void *send, const size_t *sendcounts,
                      const size_t *senddispls, void *recv, const size_t *recvcounts,
                      const size_t *recvdispls, enum collrun_dtype dtype);

/* ---- point to point: messages of one pair, group and tag arrive in order; a count or dtype that
 * differs is a MISMATCH on both sides ---- */
int collrun_send(struct collrun_group *g, const void *buf, size_t count, enum collrun_dtype dtype,
                 int peer);
int collrun_recv(struct collrun_group *g, void *buf, size_t count, enum collrun_dtype dtype,
                 int peer);
int collrun_recv_any(struct collrun_group *g, void *buf, size_t count, enum collrun_dtype dtype,
                     int *source);
int collrun_sendrecv(struct collrun_group *g, const void *send, size_t sendcount, int dst,
                     void *recv, size_t recvcount, int src, enum collrun_dtype dtype);

/* ---- the same without blocking: one descriptor (types.h) for every kind ---- */
int collrun_start(struct collrun_group *g, const struct collrun_call *call,
                  struct collrun_request **out); /* never blocks */
int collrun_start_many(struct collrun_group *g, const struct collrun_call *calls, int n,
                       struct collrun_request **out); /* one request; they progress together */
int collrun_test(
    struct collrun_request *request); /* AGAIN keeps the request; anything else frees it */
int collrun_wait(struct collrun_request *request); /* frees it, always */
int collrun_wait_all(struct collrun_request **requests,
                     int n); /* waits for all, frees all, returns the first failure */

/* ---- memory that the group's backend moves without a copy; any rank may use any amount ---- */
int collrun_alloc(struct collrun_group *g, size_t bytes, void **out);
int collrun_free(struct collrun_group *g, void *ptr);

/* ---- telling the runner ---- */
void collrun_progress(struct collrun_ctx *ctx, uint64_t done, uint64_t total, const char *what);
void collrun_metric(struct collrun_ctx *ctx, const char *name, double value);
void collrun_log(struct collrun_ctx *ctx, enum collrun_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int collrun_fail(struct collrun_ctx *ctx, const char *format, ...)
    __attribute__((format(printf, 2, 3)));            /* the sentence of the report; returns 1 */
bool collrun_stopping(const struct collrun_ctx *ctx); /* a background workload is asked to end */

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif
#endif
