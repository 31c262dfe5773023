/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend plugin ABI. A backend is one shared object libcollrun_NAME.so that exports one const
 * symbol, `collrun_backend_v1`, and knows nothing of collrun but this header. Everything from
 * outside reaches it as an argument: rendezvous, options, logging, deadlines, addresses, reduction
 * kernels. It opens no port of its own choosing, reads no environment for its wiring, and keeps all
 * state behind the handles it returns.
 *
 * Evolution: a break moves the symbol (collrun_backend_v2). Growth appends members to the end of a
 * struct (pointers or 64-bit values only); the leading `size` says what the writer was built with,
 * and the reader copies min(size) into its own complete, zeroed struct.
 *
 * Life of a backend in one rank:
 *   probe -> open -> { group_open -> exec... -> group_close }* -> close
 * Threads: calls on one group never overlap, but for group_abort, which may come from any thread at
 * any time. Calls on different groups do overlap. Nothing may be thrown, longjmped or exited
 * through this interface, and nothing that one side allocates is freed by the other.
 *
 * Errors: return a negative enum collrun_status, and say why through services->fail, which stores
 * the sentence and returns the status: `return s->fail(s->ctx, COLLRUN_ERR_BACKEND, "connect to
 * rank %d: %s", ...)`. The engine prepends group, operation and its number.
 */
#ifndef COLLRUN_BACKEND_H
#define COLLRUN_BACKEND_H

#include <collrun/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COLLRUN_BACKEND_ABI 1u

/* Where a buffer lives. A capability row's `memory` is a set of these. */
enum collrun_memory { COLLRUN_MEMORY_HOST = 1u << 0, COLLRUN_MEMORY_CUDA = 1u << 1 };

enum collrun_backend_flags {
    COLLRUN_BACKEND_ONE_HOST = 1u << 0,     /* all members of a group must share a host */
    COLLRUN_BACKEND_NEEDS_DEVICE = 1u << 1, /* every member must own a GPU */
    COLLRUN_BACKEND_TAGS = 1u << 2,         /* matches collrun_call.tag itself */
    COLLRUN_BACKEND_RECV_ANY = 1u << 3,     /* has RECV_ANY natively */
    COLLRUN_BACKEND_INLINE_CHECK =
        1u << 4, /* compares call signatures across ranks before data moves */
    COLLRUN_BACKEND_STARTS_ALL = 1u
                                 << 5, /* start takes every kind; otherwise messages only: it
                                          returns UNSUPPORTED for the rest, which exec then does */
    COLLRUN_BACKEND_MESSAGES_APART =
        1u << 6 /* messages have a handle of their own, whatever the other flags say */
};

/* Lent by the engine. The one passed to probe and open is valid until close and speaks for the
 * backend; the one in a group's description is valid until group_close and speaks for that group.
 * Any thread may use it. */
struct collrun_services {
    uint32_t size, reserved;
    void *ctx;
    void (*log)(void *ctx, enum collrun_log_level level, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
    /* Stores the sentence of this thread's failure and returns `status`. */
    int (*fail)(void *ctx, int status, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
    /* `options:` of job.yaml (the group's first, then the backend's), or NULL. The key is the
     * backend's own. */
    const char *(*option)(void *ctx, const char *key);
    /* enum collrun_memory of a pointer; memory that CUDA manages counts as a GPU's. */
    int (*memory_kind)(void *ctx, const void *ptr);
    size_t (*dtype_size)(enum collrun_dtype dtype); /* bytes of an element; 0 if unknown */
    /* dst[i] = srcs[0][i] op srcs[1][i] op ... over nsrcs >= 1 vectors of `count` elements; dst may
     * be any of the sources, no other overlap. Half precision is summed in float32 and rounded
     * once. AVG sums, then divides by `divisor` (the group's size) and rounds as types.h says;
     * divisor 0 leaves the plain sum, for partial results; a last pass with nsrcs = 1 then divides.
     * Vectorised, needs no alignment, thread-safe. Reducing is all that a backend needs to know of
     * dtypes and operators: it never has to look inside a buffer. */
    void (*reduce)(void *dst, const void *const *srcs, uint32_t nsrcs, size_t count,
                   enum collrun_dtype dtype, enum collrun_op op, uint32_t divisor);
    const char *(*dtype_name)(enum collrun_dtype dtype); /* "float32"; "?" if unknown */
};

/* The key/value exchange of one group. Keys are the group's own: two groups never see each other's.
 * Every call blocks under the group's rendezvous deadline, ends early with ABORTED or PEER_FAILED
 * when the job fails, and has stored its sentence when it returns an error. Only the thread inside
 * group_open may use it. */
struct collrun_rendezvous {
    uint32_t size, reserved;
    void *ctx;
    /* Publishes. `value` is copied. A key put twice, by one rank or by two, is an error. */
    int (*put)(void *ctx, const char *key, const void *value, size_t len);
    /* Copies the value of a key; waits until some member has put it. *len is the value's true
     * length; INVALID, with *len written, if that exceeds capacity. */
    int (*get)(void *ctx, const char *key, void *value, size_t capacity, size_t *len);
    /* All members; afterwards every member's puts can be got without leaving the process. */
    int (*fence)(void *ctx);
    /* One memory file of `len` bytes, zeroed, shared by the members on this host that ask for `key`
     * (with the same len). No name in any file system; it vanishes with its last descriptor. *fd is
     * the caller's to close. */
    int (*segment)(void *ctx, const char *key, size_t len, int *fd);
};

struct collrun_group_desc {
    uint32_t size;
    uint32_t rank, nranks;       /* this process in the group */
    uint32_t local_rank, nlocal; /* among the members on this host */
    uint32_t ndevices;           /* GPUs that each process drives; 0 unless NEEDS_DEVICE is set */
    const char *name;            /* for messages */
    const uint32_t *world_rank;  /* nranks: the member's rank in the job; valid during group_open */
    const uint32_t
        *host_of; /* nranks: a number per host, equal = same host; valid during group_open */
    const int32_t *devices; /* ndevices CUDA ordinals */
    const char *address;    /* this host's numeric address, as network.interface resolved it */
    const char *interface;  /* the name of that interface */
    uint64_t
        timeout_ns; /* default time-out of an operation; every call carries its own, resolved */
    const struct collrun_rendezvous *rendezvous; /* valid during group_open */
    const struct collrun_services *services;     /* valid until group_close */
    uint32_t ncpus; /* cores that the members on this host may use in all; nlocal > ncpus means
                       that ranks share cores and a waiter must yield */
    uint32_t reserved;
    void *sibling; /* this group's other handle in this process, if the engine has opened one before
                      (collectives first, then messages); it is closed after this one. What alloc
                      gave on it is used with both */
    uint64_t deadline_ns; /* group_open ends by then, on CLOCK_MONOTONIC (timeouts.rendezvous) */
};

/* One row per kind that the backend does natively. `memory` says for buffers where; those elsewhere
 * are copied by the engine to host memory if the backend knows that, else refused. The engine
 * builds the rest from SEND and RECV (and REDUCE-like kinds from whatever is there); a (kind,
 * dtype, op) outside the row is emulated too. */
struct collrun_capability {
    uint32_t kind;   /* enum collrun_kind */
    uint32_t memory; /* set of enum collrun_memory; 0 ends the table */
    uint64_t dtypes; /* bit (1 << enum collrun_dtype); 0 for barrier, all ones for "moves bytes" */
    uint64_t ops;    /* bit (1 << enum collrun_op); 0 = not a reduction */
};

struct collrun_backend {
    uint32_t abi;                            /* COLLRUN_BACKEND_ABI */
    uint32_t size;                           /* sizeof(struct collrun_backend) */
    const char *name;                        /* lower case letters, digits, - and _; at most 31 */
    const char *version;                     /* also of the library below, e.g. "1.0 (Gloo 0.5)" */
    uint64_t flags;                          /* enum collrun_backend_flags */
    const struct collrun_capability *native; /* ends with a zeroed row */

    /* OK, or UNAVAILABLE with the reason in `why` ("libnccl.so.2 not found"). With OK, `why` may
     * hold what was found ("NCCL 2.28.9, CUDA 13.0"), for `collrun backends`. No side effects. NULL
     * = available. */
    int (*probe)(const struct collrun_services *services, char *why, size_t len);
    /* Once per process, before the first group. NULL = nothing to open. */
    int (*open)(const struct collrun_services *services, void **backend);
    void (*close)(void *backend);

    /* Collective over the group's members, under the rendezvous deadline. */
    int (*group_open)(void *backend, const struct collrun_group_desc *desc, void **group);
    /* From any thread, at any time between group_open's return and group_close's call, any number
     * of times; never blocks. Every call inside the group, and every later one, returns ABORTED
     * soon (aim: under 1 ms). */
    void (*group_abort)(void *group);
    /* Local and bounded; no call is inside any more. Peers may still be inside theirs: data already
     * sent stays receivable. */
    void (*group_close)(void *group);

    /* A backend has exec (it blocks; the engine adds a worker thread for collrun_start), or start
     * and test, or all three. Arguments are checked, counts resolved and timeout_ns filled in by
     * the engine. Several calls are point to point only and progress together: none waits for an
     * earlier one of the same array. A message brings its count and dtype along, if it can have a
     * head; the receiver compares them with its own and fails with MISMATCH, and so should a sender
     * that still waits.
     *
     * With ndevices > 1, a collective comes as ndevices calls, one for each device (barrier: one
     * call for all of them). Ranks are then those of nranks * ndevices: device d of member r is
     * r * ndevices + d; blocks and count arrays are theirs, the root is device peer_device of
     * member root, a peer device peer_device of member peer. A call begins after what its stream
     * holds; that one may be NULL, the default stream. */
    int (*exec)(void *group, const struct collrun_call *calls, uint32_t ncalls);
    int (*start)(void *group, const struct collrun_call *calls, uint32_t ncalls, void **request);
    int (*test)(void *group, void *request); /* AGAIN keeps the request; anything else frees it */

    /* Optional pair: memory that this group moves without a copy. NULL: the engine's plain aligned
     * memory. */
    int (*alloc)(void *group, size_t len, void **ptr);
    int (*free)(void *group, void *ptr);

    /* Optional, for backends that work on streams. What `stream` (of the process's GPU `device`,
     * an index into desc->devices) gets from now on runs after the started request. Returns at
     * once; test still has to be asked until the request ends. AGAIN: the request is not on its own
     * stream yet; the engine tests it and asks again. NULL: the engine waits instead. */
    int (*order)(void *group, void *request, uint32_t device, void *stream);
    /* Optional: alloc on one of the process's GPUs, likewise an index; `free` takes it back. */
    int (*alloc_on)(void *group, uint32_t device, size_t len, void **ptr);

    /* Optional: what `services->option` may be asked for; ends with a zeroed entry. `collrun check`
     * refuses any other key, and values of another type or out of bounds. NULL: anything goes. */
    const struct collrun_param *options;

    /* A send of more bytes than this ends only once its receiver has called. 0: not known; 1 MiB is
     * taken. It tells a deadlock from a message that is under way. */
    uint64_t eager_limit;
};

/* The one exported symbol of a backend. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
extern const struct collrun_backend collrun_backend_v1;

#ifdef __cplusplus
}
#endif
#endif
