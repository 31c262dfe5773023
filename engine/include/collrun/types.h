/* SPDX-License-Identifier: Apache-2.0
 *
 * Status codes, element types, operators and operation kinds: the vocabulary that workloads
 * (collrun.h) and backends (backend.h) share. Every number here is part of the ABI: values are
 * appended, never renumbered. C11 and C++17.
 */
#ifndef COLLRUN_TYPES_H
#define COLLRUN_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a function returns. Negative values are failures; collrun_error() then holds a sentence.
 * After MISMATCH, TIMEOUT, PEER_FAILED, ABORTED or BACKEND a group only fails, at once and with the
 * first reason; destroy it. */
enum collrun_status {
    COLLRUN_OK = 0,
    COLLRUN_AGAIN = 1,           /* collrun_test: not finished yet */
    COLLRUN_ERR_INVALID = -1,    /* a bad argument; nothing was sent, the group is as it was */
    COLLRUN_ERR_NOT_FOUND = -2,  /* no such group, parameter or backend */
    COLLRUN_ERR_NOT_MEMBER = -3, /* the group exists, this rank is not in it */
    COLLRUN_ERR_EXISTS = -4,     /* the name is taken */
    COLLRUN_ERR_UNSUPPORTED =
        -5, /* this backend (or build) cannot do it; the sentence says which */
    COLLRUN_ERR_UNAVAILABLE =
        -6, /* the backend is known but cannot work here; the sentence says why */
    COLLRUN_ERR_MISMATCH = -7,    /* ranks disagree about the call; the sentence holds both calls */
    COLLRUN_ERR_TIMEOUT = -8,     /* the operation's time-out passed */
    COLLRUN_ERR_PEER_FAILED = -9, /* another rank ended; the sentence names it and how it ended */
    COLLRUN_ERR_ABORTED = -10,    /* the job or the group is being torn down */
    COLLRUN_ERR_BACKEND = -11,    /* the backend's library failed; the sentence holds its words */
    COLLRUN_ERR_NO_MEMORY = -12,
    COLLRUN_ERR_SYSTEM = -13 /* a system call failed; the sentence holds errno's text */
};

/* Element types. Sizes: 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1 bytes; native byte order. FLOAT16 is
 * IEEE 754 binary16, BFLOAT16 the upper half of a binary32, BOOL one byte that holds 0 or 1. */
enum collrun_dtype {
    COLLRUN_INT8,
    COLLRUN_UINT8,
    COLLRUN_INT16,
    COLLRUN_UINT16,
    COLLRUN_INT32,
    COLLRUN_UINT32,
    COLLRUN_INT64,
    COLLRUN_UINT64,
    COLLRUN_FLOAT16,
    COLLRUN_BFLOAT16,
    COLLRUN_FLOAT32,
    COLLRUN_FLOAT64,
    COLLRUN_BOOL
};

/* Reduction operators. B*: integers and bool. L*: integers and bool, result 0 or 1. SUM and PROD of
 * integers wrap; half precision accumulates in float32; bool SUM = or, PROD = and. AVG: SUM, which
 * wraps, too, / group size; integers and bool round toward zero (so that of bool is 0 in a group of
 * several). Floating MIN and MAX propagate NaN. */
enum collrun_op {
    COLLRUN_SUM,
    COLLRUN_PROD,
    COLLRUN_MIN,
    COLLRUN_MAX,
    COLLRUN_AVG,
    COLLRUN_BAND,
    COLLRUN_BOR,
    COLLRUN_BXOR,
    COLLRUN_LAND,
    COLLRUN_LOR,
    COLLRUN_LXOR
};

/* Operations, as collrun_call.kind and as a backend's capability rows name them. */
enum collrun_kind {
    COLLRUN_BARRIER,
    COLLRUN_ALLREDUCE,
    COLLRUN_REDUCE,
    COLLRUN_BROADCAST,
    COLLRUN_ALLGATHER,
    COLLRUN_GATHER,
    COLLRUN_SCATTER,
    COLLRUN_REDUCE_SCATTER,
    COLLRUN_ALLTOALL,
    COLLRUN_ALLGATHERV,
    COLLRUN_GATHERV,
    COLLRUN_SCATTERV,
    COLLRUN_REDUCE_SCATTERV,
    COLLRUN_ALLTOALLV,
    COLLRUN_SEND,
    COLLRUN_RECV,
    COLLRUN_RECV_ANY
};

enum collrun_log_level { COLLRUN_LOG_ERROR, COLLRUN_LOG_WARN, COLLRUN_LOG_INFO, COLLRUN_LOG_DEBUG };

/* How a parameter of a workload, or an option of a backend, is written in job.yaml, and which
 * collrun_param_*() returns it. */
enum collrun_param_type {
    COLLRUN_PARAM_STRING,  /* any text; {rank} {local_rank} {host} {run_id} {attempt} are filled in
                            */
    COLLRUN_PARAM_INT,     /* -3, 0x1F; 64 bits */
    COLLRUN_PARAM_FLOAT,   /* 0.5, 1e-3, .inf */
    COLLRUN_PARAM_BOOL,    /* true, false */
    COLLRUN_PARAM_SIZE,    /* 64KiB, 1GiB, 1000; bytes */
    COLLRUN_PARAM_DURATION /* 500ms, 30s, 1h30m; nanoseconds */
};

/* One parameter, or option. All values are texts, as job.yaml would have them. */
struct collrun_param {
    const char *name;
    enum collrun_param_type type;
    const char *def;       /* NULL = the job has to give one; of an option: there is none */
    const char *min, *max; /* both included; NULL = no bound; not for strings and bools */
    const char *help;      /* half a line; may be NULL */
};

/* How many there are: for tables indexed by one of the enums above. Grows with them. */
#define COLLRUN_DTYPE_COUNT 13
#define COLLRUN_OP_COUNT 11
#define COLLRUN_KIND_COUNT 17

/* One operation, described: what collrun_start takes and what a backend executes. Fields that a
 * kind does not use are ignored. All counts are in elements of `dtype`, all ranks are ranks of the
 * group. */
struct collrun_call {
    uint32_t size; /* sizeof this struct; COLLRUN_CALL fills it in */
    enum collrun_kind kind;
    const void *send;
    void *recv;       /* broadcast: the buffer, on every rank */
    size_t count;     /* as in the blocking form; v-forms: sendcount */
    size_t recvcount; /* scatterv: what this rank receives */
    const size_t *sendcounts, *senddispls, *recvcounts,
        *recvdispls; /* read before collrun_start returns */
    enum collrun_dtype dtype;
    enum collrun_op op;
    int root, peer;
    int *source;  /* recv_any: the sender, written when done */
    uint32_t tag; /* point to point: up to 2^31 - 1; 0 is what the blocking forms use */
    int device,
        peer_device;     /* index among the GPUs that this process (the peer, or the root) owns */
    void *stream;        /* cudaStream_t whose work comes first; NULL = collrun_set_stream's */
    uint64_t timeout_ns; /* 0 = the group's */
};
#define COLLRUN_CALL(k)                                                                            \
    {                                                                                              \
        .size = (uint32_t)sizeof(struct collrun_call), .kind = (k)                                 \
    }

#ifdef __cplusplus
}
#endif
#endif
