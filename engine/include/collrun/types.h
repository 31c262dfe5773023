/* SPDX-License-Identifier: Apache-2.0
 *
 * Status codes, element types, operators, operation kinds and the description of a call, shared by
 * workloads (collrun.h) and backends (backend.h). Every number here is part of the ABI: values are
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

/* The version of these headers: major, minor, patch. collrun_version() is that of the library. */
#define COLLRUN_VERSION "0.1.0"
#define COLLRUN_VERSION_NUMBER 100 /* 10000 * major + 100 * minor + patch */

/* A member that an initialiser may leave out. C++ compilers warn of it unless it has a default. */
#ifdef __cplusplus
#define COLLRUN_OPTIONAL = {}
#else
#define COLLRUN_OPTIONAL
#endif

/* What functions return. Negative values are failures; collrun_error() then returns the error
 * message. After MISMATCH, TIMEOUT, PEER_FAILED, ABORTED or BACKEND, every later call on the group
 * fails immediately with the first error; destroy it. */
enum collrun_status {
    COLLRUN_OK = 0,
    /* No failure. collrun_test, collrun_poll: the request is not finished. collrun_iprobe: there is
     * no such message yet. collrun_cancel: too late, the request continues. */
    COLLRUN_AGAIN = 1,
    /* A bad argument. Nothing was sent; the group is unchanged. */
    COLLRUN_ERR_INVALID = -1,
    /* No such group, parameter or backend. */
    COLLRUN_ERR_NOT_FOUND = -2,
    /* The group exists, but this rank is not in it. */
    COLLRUN_ERR_NOT_MEMBER = -3,
    /* The name is taken. */
    COLLRUN_ERR_EXISTS = -4,
    /* This backend or build does not support the operation. */
    COLLRUN_ERR_UNSUPPORTED = -5,
    /* The backend is known, but does not work on this host. */
    COLLRUN_ERR_UNAVAILABLE = -6,
    /* Ranks called different operations; the message shows both calls. */
    COLLRUN_ERR_MISMATCH = -7,
    /* The operation's time-out expired. */
    COLLRUN_ERR_TIMEOUT = -8,
    /* Another rank has ended; the message names it and the reason. */
    COLLRUN_ERR_PEER_FAILED = -9,
    /* The job or the group is being closed. */
    COLLRUN_ERR_ABORTED = -10,
    /* The backend's library failed; the message quotes it. */
    COLLRUN_ERR_BACKEND = -11,
    COLLRUN_ERR_NO_MEMORY = -12,
    /* A system call failed; the message holds the text of errno. */
    COLLRUN_ERR_SYSTEM = -13
};

/* Element types, in native byte order. collrun_dtype_size() returns their sizes. */
enum collrun_dtype {
    COLLRUN_INT8,     /* 1 byte */
    COLLRUN_UINT8,    /* 1 byte */
    COLLRUN_INT16,    /* 2 bytes */
    COLLRUN_UINT16,   /* 2 bytes */
    COLLRUN_INT32,    /* 4 bytes */
    COLLRUN_UINT32,   /* 4 bytes */
    COLLRUN_INT64,    /* 8 bytes */
    COLLRUN_UINT64,   /* 8 bytes */
    COLLRUN_FLOAT16,  /* 2 bytes; IEEE 754 binary16 */
    COLLRUN_BFLOAT16, /* 2 bytes; the upper half of a binary32 */
    COLLRUN_FLOAT32,  /* 4 bytes */
    COLLRUN_FLOAT64,  /* 8 bytes */
    COLLRUN_BOOL      /* 1 byte; 0 or 1 */
};

/* Reduction operators. Half precision is accumulated in float32. The order in which floating-point
 * operands are combined is that of the backend; all ranks get the same bits. NaN and the sign of
 * zero on nccl are those of NCCL.
 */
enum collrun_op {
    /* Integers wrap; bool: or. */
    COLLRUN_SUM,
    /* Integers wrap; bool: and. */
    COLLRUN_PROD,
    /* Floating point: NaN if any operand is; of zeros, the sign of either. */
    COLLRUN_MIN,
    /* Floating point: NaN if any operand is; of zeros, the sign of either. */
    COLLRUN_MAX,
    /* SUM divided by the number of ranks that are combined: the group size, or that of the prefix.
     * Integers and bool round toward zero, so the AVG of bool is 0 in a group of several ranks. */
    COLLRUN_AVG,
    /* Bitwise; integers and bool only. */
    COLLRUN_BAND,
    COLLRUN_BOR,
    COLLRUN_BXOR,
    /* Logical, with result 0 or 1; integers and bool only. */
    COLLRUN_LAND,
    COLLRUN_LOR,
    COLLRUN_LXOR
};

/* Operations: collrun_call.kind, and the rows of a backend's capabilities. */
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
    COLLRUN_RECV_ANY,
    COLLRUN_SCAN,
    COLLRUN_EXSCAN
};

/* When ranks that call different collectives are detected; `check` of a group in job.yaml. The
 * receiver of a message always compares count and dtype. */
enum collrun_check {
    /* Beside the program, on any backend: within 250 ms after ranks have called different
     * operations the job ends. Results may be wrong by then. If the backend has returned MISMATCH
     * to ranks, they have that time to end in their own way; a program that goes on is stopped. */
    COLLRUN_CHECK_ASYNC,
    /* As ASYNC, and before each collective, by exchanging the calls. All ranks then return
     * MISMATCH, and no data was moved: a program may handle it and go on. */
    COLLRUN_CHECK_STRICT,
    /* The backend alone compares calls, if it can (shm does). */
    COLLRUN_CHECK_OFF
};

enum collrun_log_level { COLLRUN_LOG_ERROR, COLLRUN_LOG_WARN, COLLRUN_LOG_INFO, COLLRUN_LOG_DEBUG };

/* How job.yaml writes a parameter of a workload or an option of a backend. A workload reads it with
 * the collrun_param_*() of the same name. */
enum collrun_param_type {
    /* Any text. {rank}, {local_rank}, {host}, {run_id} and {attempt} are replaced. */
    COLLRUN_PARAM_STRING,
    /* -3, 0x1F; 64 bits. */
    COLLRUN_PARAM_INT,
    /* 0.5, 1e-3, .inf */
    COLLRUN_PARAM_FLOAT,
    /* true, false */
    COLLRUN_PARAM_BOOL,
    /* 64KiB, 1GiB, 1000; in bytes. */
    COLLRUN_PARAM_SIZE,
    /* 500ms, 30s, 1h30m; in nanoseconds. */
    COLLRUN_PARAM_DURATION,
    /* One of `choices`, spelt exactly so. */
    COLLRUN_PARAM_ENUM,
    /* [1KiB, 2KiB]: any number of values of one type, `item`. A single value is a list of one. Of
     * parameters only; options have no lists. */
    COLLRUN_PARAM_LIST
};

/* One parameter or option. All values are texts, as in job.yaml. Tables in C name the members
 * (.name = ...), so that those which later versions append are NULL; tables in C++17 list them in
 * order. */
struct collrun_param {
    const char *name;
    enum collrun_param_type type;
    /* NULL: the job must give a value; of an option: no default. LIST: items separated by commas,
     * "1KiB, 2KiB"; "" is an empty list. */
    const char *def;
    const char *min, *max; /* inclusive; NULL = no bound; for numbers, sizes and durations */
    const char *help;      /* half a line; may be NULL */
    /* ENUM: "sum|prod|min|max", at most 64 and 1023 bytes; else NULL. */
    const char *choices COLLRUN_OPTIONAL;
    /* LIST: the enum collrun_param_type of its items, any but LIST; min, max and choices are
     * theirs. Else 0. */
    uint64_t item COLLRUN_OPTIONAL;
    /* An ENUM option of a backend: the value with which a device of a group takes another
     * communicator for each direction of messages to or from another one, on demand. For
     * `collrun plan`. */
    const char *per_direction COLLRUN_OPTIONAL;
};

/* The number of values of each enum above, for tables. It grows with them. */
#define COLLRUN_DTYPE_COUNT 13
#define COLLRUN_OP_COUNT 11
#define COLLRUN_KIND_COUNT 19

/* ---- what the calls of a kind use ---- */

/* The elements of a buffer. */
enum collrun_extent {
    COLLRUN_NOTHING,
    COLLRUN_ONE_BLOCK,         /* of call.count elements */
    COLLRUN_BLOCK_EACH,        /* one such block for each rank */
    COLLRUN_RECVCOUNT_BLOCK,   /* of call.recvcount elements */
    COLLRUN_SENDCOUNTS_BLOCKS, /* one block for each rank: sendcounts, senddispls */
    COLLRUN_RECVCOUNTS_BLOCKS, /* one block for each rank: recvcounts, recvdispls */
    COLLRUN_RECVCOUNTS_PACKED, /* one block for each rank: recvcounts, one behind the other */
    COLLRUN_RECVCOUNTS_OWN     /* the block of this rank: recvcounts */
};

enum collrun_kind_flag {
    COLLRUN_HAS_ROOT = 1,
    COLLRUN_HAS_PEER = 2,
    COLLRUN_REDUCES_DATA = 4,
    COLLRUN_IS_MESSAGE = 8,
    COLLRUN_IS_VECTOR = 16,          /* ranks may have different counts */
    COLLRUN_COUNTS_ALIKE = 32,       /* a vector form in which every rank gives the counts of all */
    COLLRUN_ROOT_SENDS = 64,         /* only the root has a send buffer */
    COLLRUN_ROOT_RECEIVES = 128,     /* only the root has a receive buffer */
    COLLRUN_FIRST_GETS_NOTHING = 256 /* rank 0 has no receive buffer */
};

struct collrun_kind_info {
    unsigned char send, recv; /* enum collrun_extent */
    unsigned short flags;     /* enum collrun_kind_flag */
};

/* The table of kinds, from which all of collrun takes what it has to know of a kind: a new
 * collective is a row here and an algorithm. A number that is no kind has a row of zeros. A
 * broadcast has one buffer, recv: the root sends it. */
static inline struct collrun_kind_info collrun_kind_row(enum collrun_kind kind)
{
    static const struct collrun_kind_info rows[COLLRUN_KIND_COUNT + 1] = {
        /* barrier */ {COLLRUN_NOTHING, COLLRUN_NOTHING, 0},
        /* allreduce */ {COLLRUN_ONE_BLOCK, COLLRUN_ONE_BLOCK, COLLRUN_REDUCES_DATA},
        /* reduce */
        {COLLRUN_ONE_BLOCK, COLLRUN_ONE_BLOCK,
         COLLRUN_REDUCES_DATA | COLLRUN_HAS_ROOT | COLLRUN_ROOT_RECEIVES},
        /* broadcast */ {COLLRUN_NOTHING, COLLRUN_ONE_BLOCK, COLLRUN_HAS_ROOT},
        /* allgather */ {COLLRUN_ONE_BLOCK, COLLRUN_BLOCK_EACH, 0},
        /* gather */
        {COLLRUN_ONE_BLOCK, COLLRUN_BLOCK_EACH, COLLRUN_HAS_ROOT | COLLRUN_ROOT_RECEIVES},
        /* scatter */
        {COLLRUN_BLOCK_EACH, COLLRUN_ONE_BLOCK, COLLRUN_HAS_ROOT | COLLRUN_ROOT_SENDS},
        /* reduce_scatter */ {COLLRUN_BLOCK_EACH, COLLRUN_ONE_BLOCK, COLLRUN_REDUCES_DATA},
        /* alltoall */ {COLLRUN_BLOCK_EACH, COLLRUN_BLOCK_EACH, 0},
        /* allgatherv */
        {COLLRUN_ONE_BLOCK, COLLRUN_RECVCOUNTS_BLOCKS, COLLRUN_IS_VECTOR | COLLRUN_COUNTS_ALIKE},
        /* gatherv */
        {COLLRUN_ONE_BLOCK, COLLRUN_RECVCOUNTS_BLOCKS,
         COLLRUN_IS_VECTOR | COLLRUN_HAS_ROOT | COLLRUN_ROOT_RECEIVES},
        /* scatterv */
        {COLLRUN_SENDCOUNTS_BLOCKS, COLLRUN_RECVCOUNT_BLOCK,
         COLLRUN_IS_VECTOR | COLLRUN_HAS_ROOT | COLLRUN_ROOT_SENDS},
        /* reduce_scatterv */
        {COLLRUN_RECVCOUNTS_PACKED, COLLRUN_RECVCOUNTS_OWN,
         COLLRUN_IS_VECTOR | COLLRUN_COUNTS_ALIKE | COLLRUN_REDUCES_DATA},
        /* alltoallv */
        {COLLRUN_SENDCOUNTS_BLOCKS, COLLRUN_RECVCOUNTS_BLOCKS, COLLRUN_IS_VECTOR},
        /* send */ {COLLRUN_ONE_BLOCK, COLLRUN_NOTHING, COLLRUN_IS_MESSAGE | COLLRUN_HAS_PEER},
        /* recv */ {COLLRUN_NOTHING, COLLRUN_ONE_BLOCK, COLLRUN_IS_MESSAGE | COLLRUN_HAS_PEER},
        /* recv_any */ {COLLRUN_NOTHING, COLLRUN_ONE_BLOCK, COLLRUN_IS_MESSAGE},
        /* scan */ {COLLRUN_ONE_BLOCK, COLLRUN_ONE_BLOCK, COLLRUN_REDUCES_DATA},
        /* exscan */
        {COLLRUN_ONE_BLOCK, COLLRUN_ONE_BLOCK, COLLRUN_REDUCES_DATA | COLLRUN_FIRST_GETS_NOTHING},
        {COLLRUN_NOTHING, COLLRUN_NOTHING, 0}};
    return rows[(unsigned)kind < COLLRUN_KIND_COUNT ? (unsigned)kind : COLLRUN_KIND_COUNT];
}

static inline bool collrun_kind_is_message(enum collrun_kind kind)
{
    return (collrun_kind_row(kind).flags & COLLRUN_IS_MESSAGE) != 0;
}
static inline bool collrun_kind_is_vector(enum collrun_kind kind)
{
    return (collrun_kind_row(kind).flags & COLLRUN_IS_VECTOR) != 0;
}
static inline bool collrun_kind_reduces(enum collrun_kind kind)
{
    return (collrun_kind_row(kind).flags & COLLRUN_REDUCES_DATA) != 0;
}
static inline bool collrun_kind_has_root(enum collrun_kind kind)
{
    return (collrun_kind_row(kind).flags & COLLRUN_HAS_ROOT) != 0;
}
/* Whether a rank has a send buffer, and a receive buffer. `root`: it is the root; `first`: rank 0.
 */
static inline bool collrun_kind_sends(enum collrun_kind kind, bool root)
{
    const struct collrun_kind_info info = collrun_kind_row(kind);
    return info.send && (root || !(info.flags & COLLRUN_ROOT_SENDS));
}
static inline bool collrun_kind_receives(enum collrun_kind kind, bool root, bool first)
{
    const struct collrun_kind_info info = collrun_kind_row(kind);
    return info.recv && (root || !(info.flags & COLLRUN_ROOT_RECEIVES)) &&
           !(first && info.flags & COLLRUN_FIRST_GETS_NOTHING);
}

/* The tag of a receive or a probe that accepts every tag. */
#define COLLRUN_ANY_TAG UINT32_MAX
/* The peer of a probe that accepts every sender. (A receive of that kind is a COLLRUN_RECV_ANY.) */
#define COLLRUN_ANY_PEER (-1)

/* An operator that a workload defines, in the place of collrun_call.op. All ranks give operators of
 * the same name, unit and commutativity. The struct must live until the operation is finished. */
struct collrun_user_op {
    uint32_t size;        /* sizeof this struct */
    uint32_t commutative; /* 0: operands are combined in rank order; else: in any order */
    const char *name;     /* for messages, and to compare the calls of the ranks */
    /* Elements that belong together, such as 2 for pairs of a value and its index; 0 = 1. Counts
     * are multiples of it, and `combine` gets whole units. */
    uint64_t unit;
    /* right[i] = left[i] op right[i], for `count` elements. The operands in `left` are those of
     * lower ranks, unless the operator is commutative. The buffers are in host memory and do not
     * overlap. Any thread of the engine may call it, and different operations at the same time; it
     * must not call functions of collrun.h, nor wake a thread that waits. */
    void (*combine)(void *ctx, const void *left, void *right, size_t count,
                    enum collrun_dtype dtype);
    void *ctx; /* for `combine` */
};

/* One operation: what collrun_start takes and what a backend executes. All counts are numbers of
 * elements of `dtype`; all ranks are ranks of the group. A call uses these fields by kind ("root":
 * at the root only), and `kind`, `device`, `stream` and `timeout_ns` always:
 *
 *                    send  recv  count      counts, displs  dtype  op  root  peer  tag  source
 *   barrier
 *   allreduce        x     x     x                          x      x
 *   reduce           x     root  x                          x      x   x
 *   broadcast              x     x                          x          x
 *   allgather        x     x     x                          x
 *   gather           x     root  x                          x          x
 *   scatter          root  x     x                          x          x
 *   reduce_scatter   x     x     x                          x      x
 *   alltoall         x     x     x                          x
 *   allgatherv       x     x     x          recv            x
 *   gatherv          x     root  x          recv: root      x          x
 *   scatterv         root  x     recvcount  send: root      x          x
 *   reduce_scatterv  x     x                recvcounts      x      x
 *   alltoallv        x     x                send, recv      x
 *   scan             x     x     x                          x      x
 *   exscan           x     x     x                          x      x
 *   send             x           x                          x                x     x
 *   recv                   x     x                          x                x     x
 *   recv_any               x     x                          x                      x    x
 *
 * `peer_device` belongs to `root` and `peer`; `received` and `received_tag` belong to recv and
 * recv_any, `user_op` to every kind that has an `op`. */
struct collrun_call {
    uint32_t size; /* sizeof this struct; COLLRUN_CALL sets it */
    enum collrun_kind kind;
    const void *send;
    void *recv;       /* broadcast: the buffer, on every rank */
    size_t count;     /* as in the blocking form; allgatherv, gatherv: sendcount */
    size_t recvcount; /* scatterv: what this rank receives */
    /* One entry per rank; read before collrun_start returns. Displs may be NULL: packed. */
    const size_t *sendcounts, *senddispls, *recvcounts, *recvdispls;
    enum collrun_dtype dtype;
    enum collrun_op op;
    int root, peer;
    int *source;  /* recv_any: the sender; written when the operation is finished */
    uint32_t tag; /* messages: 0 to 2^31 - 1, of a receive also COLLRUN_ANY_TAG; the blocking
                     forms use 0 */
    /* The device that runs the call, and that of the root or peer: an index among the devices of
     * that kind of memory that the process owns. */
    int device, peer_device;
    void *stream;        /* of the device (a cudaStream_t), after whose work the call runs; NULL:
                            see collrun_set_stream */
    uint64_t timeout_ns; /* 0 = that of the group */

    /* recv, recv_any. NULL: the message must have exactly `count` elements, else it is a MISMATCH.
     * Not NULL: `count` is the room of the buffer, a shorter message is received as it is, a longer
     * one is a MISMATCH, and *received is the number of elements of the message. Written when the
     * operation is finished. */
    size_t *received;
    /* recv, recv_any: the tag of the message, written when the operation is finished; or NULL. */
    uint32_t *received_tag;
    /* Reductions: the operator in the place of `op`; NULL: `op`. */
    const struct collrun_user_op *user_op;
};
#ifndef __cplusplus
#define COLLRUN_CALL(k)                                                                            \
    {                                                                                              \
        .size = (uint32_t)sizeof(struct collrun_call), .kind = (k)                                 \
    }
#else
#define COLLRUN_CALL(k) collrun_call_of(k)
static inline struct collrun_call collrun_call_of(enum collrun_kind kind)
{
    struct collrun_call call = {};
    call.size = (uint32_t)sizeof call;
    call.kind = kind;
    return call;
}
#endif

#ifdef __cplusplus
}
#endif
#endif
