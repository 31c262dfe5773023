/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend plugin ABI. A backend is one shared object libcollrun_NAME.so that exports one const
 * symbol, `collrun_backend_v1`, and knows nothing of collrun but this header. Everything from
 * outside reaches it as an argument: rendezvous, options, logging, deadlines, addresses, reduction
 * kernels. It opens no port of its choice, reads no environment for its wiring, and keeps all
 * state behind the handles it returns.
 *
 * Evolution. A break moves the symbol (collrun_backend_v2). Growth appends members to the end of a
 * struct, pointers or 64-bit values only, and its leading `size` is that of the writer's version;
 * the reader copies min(size) into its own complete, zeroed struct (COLLRUN_COPY). A backend also
 * states the sizes of the structs that it exchanges in arrays (COLLRUN_BACKEND_HEAD): the engine
 * hands it calls, and reads its tables, in the backend's own stride. So a backend that was built
 * against this header works with later engines, whatever members they add. Never appended to:
 * struct collrun_envelope, struct collrun_message and struct collrun_device, which has room.
 *
 * Life of a backend in one rank:
 *   probe -> open -> { group_open -> exec... -> group_close }* -> close
 * Threads: calls on one group never overlap, except group_abort, which any thread may call at
 * any time. Calls on different groups do overlap. Nothing may be thrown, longjmped or exited
 * through this interface, and nothing that one side allocates is freed by the other.
 *
 * Errors: return a negative enum collrun_status, and report the cause through services->fail, which
 * stores it and returns the status: `return s->fail(s->ctx, COLLRUN_ERR_BACKEND, "connect to
 * rank %d: %s", ...)`. The engine prepends group, operation and its number.
 */
#ifndef COLLRUN_BACKEND_H
#define COLLRUN_BACKEND_H

#include <collrun/types.h>
#include <pthread.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COLLRUN_BACKEND_ABI 1u

struct sockaddr;

/* Where a buffer is. A capability row's `memory` is a set of these. DEVICE is the kind of memory
 * that collrun_backend.memory_kind names. */
enum collrun_memory { COLLRUN_MEMORY_HOST = 1u << 0, COLLRUN_MEMORY_DEVICE = 1u << 1 };

enum collrun_backend_flags {
    COLLRUN_BACKEND_ONE_HOST = 1u << 0,     /* all members of a group must share a host */
    COLLRUN_BACKEND_NEEDS_DEVICE = 1u << 1, /* every member must own a device of its memory_kind */
    COLLRUN_BACKEND_TAGS = 1u << 2,         /* matches collrun_call.tag itself */
    COLLRUN_BACKEND_RECV_ANY = 1u << 3,     /* has RECV_ANY natively */
    COLLRUN_BACKEND_INLINE_CHECK = 1u << 4, /* compares calls across ranks before data moves */
    /* start takes every kind; otherwise messages only: UNSUPPORTED for what exec then does */
    COLLRUN_BACKEND_START_COLLECTIVES = 1u << 5,
    COLLRUN_BACKEND_SEPARATE_P2P_HANDLE = 1u << 6, /* messages always use a second handle */
    /* Messages honour collrun_call.received and received_tag, COLLRUN_ANY_TAG, and a peer that is
     * this rank itself: a send to oneself is matched as any other. Without this flag the engine
     * refuses such calls. Implied by a transport. */
    COLLRUN_BACKEND_ENVELOPES = 1u << 7,
    /* exec and start take several collectives in one array, if ndevices is 0 or 1: a batch. They
     * are executed in the order of the array; the first failure is that of the batch. Without this
     * flag the engine passes them one by one. */
    COLLRUN_BACKEND_BATCHES = 1u << 8,
    /* A handle for messages takes what its devices hold, such as a communicator, when the first
     * message is sent; a handle for collectives when the group is formed, or, of a group with
     * COLLRUN_GROUP_ON_DEMAND, when the first one is called. For `collrun plan`. */
    COLLRUN_BACKEND_ON_DEMAND = 1u << 9,
    /* The ranks of one host are one flow to other hosts; `auto` prefers such a backend there. */
    COLLRUN_BACKEND_HOST_AWARE = 1u << 10,
    /* It is for RDMA devices: `auto` prefers it between hosts if each host has an active one. */
    COLLRUN_BACKEND_RDMA = 1u << 11
};

/* The tag of the messages that the engine builds operations from. Their buffers are in host memory
 * that the devices reach, and no stream has to be waited for: a backend ignores their `stream`. In
 * messages for users this tag is left out. */
#define COLLRUN_ENGINE_TAG (1u << 31)

/* Matching of messages and receives, lent to a backend whose one process matches for others, such
 * as a coordinator. (A backend with a transport needs none: the engine matches for it.) One
 * object serves one receiver. `item` is the backend's pointer for a message or a receive; the
 * engine never reads through it. No locks: the caller serializes the calls on one object. */
struct collrun_match;
#define COLLRUN_ANY_SOURCE UINT32_MAX /* a message may be from any member, this rank included */
struct collrun_match_ops {
    uint32_t size, reserved;
    struct collrun_match *(*open)(void); /* NULL: out of memory */
    /* Calls drop, which may be NULL, for every item that is left. `match` may be NULL. */
    void (*close)(struct collrun_match *match, void (*drop)(void *item));
    /* A receive from `source` (or COLLRUN_ANY_SOURCE) with `tag` (or COLLRUN_ANY_TAG, which takes
     * tags below 2^31). *message is the item of the oldest message that it takes, which is taken
     * out; or NULL, and the receive is queued. OK, or NO_MEMORY: nothing has changed. Count and
     * type are the caller's to compare. */
    int (*post)(struct collrun_match *match, uint32_t source, uint32_t tag, void *item,
                void **message);
    /* A message from `source`. *receive is the item of the oldest receive that takes it, which is
     * taken out; or NULL, and the message is queued. */
    int (*arrive)(struct collrun_match *match, uint32_t source, uint32_t tag, void *item,
                  void **receive);
    /* The item of the message that such a receive would take, which stays queued; NULL: none. */
    void *(*probe)(struct collrun_match *match, uint32_t source, uint32_t tag);
    /* Takes out a receive that was posted with these arguments. OK; or NOT_FOUND: it is not queued,
     * because a message was matched with it. */
    int (*withdraw)(struct collrun_match *match, uint32_t source, uint32_t tag, void *item);
};

/* Two members disagree about a count of a vector form: what `sender` sends to `receiver` is not
 * what that one receives. */
struct collrun_count_mismatch {
    const struct collrun_call *call;
    uint64_t sent, received; /* elements */
    uint32_t sender, receiver;
};

/* Areas of the log for developers that a backend writes to. */
enum collrun_debug {
    COLLRUN_DEBUG_LINK = 1u << 1,  /* connections */
    COLLRUN_DEBUG_COORD = 1u << 2, /* a process of the group that decides for others */
    COLLRUN_DEBUG_GROUP = 1u << 4  /* how a group forms and ends */
};

/* Lent by the engine. The one passed to probe and open is valid until close and serves the
 * backend; the one in a group's description is valid until group_close and serves that group.
 * Any thread may use it. */
struct collrun_services {
    uint32_t size, reserved;
    void *ctx;
    void (*log)(void *ctx, enum collrun_log_level level, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

    /* Errors. Each stores the message of this thread's failure and returns the status, so that a
     * failing path is one line: return s->fail(s->ctx, ...). The thread that returns the status
     * from a call of the engine is the one that calls them; group_abort and group_close store
     * nothing. Ranks are ranks of the group.
     *   fail_mismatch: "rank 0 calls barrier(), rank 2 calls allreduce(1 x int32, sum)"
     *   fail_timeout: "rank 0 waited 2.0 s for ranks 1-3"; nmissing 0: not known for whom */
    int (*fail)(void *ctx, int status, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
    int (*fail_mismatch)(void *ctx, uint32_t rank_a, const struct collrun_call *a, uint32_t rank_b,
                         const struct collrun_call *b);
    int (*fail_timeout)(void *ctx, uint32_t rank, const uint32_t *missing, uint32_t nmissing,
                        uint64_t waited_ns);
    /* The same messages in a buffer, for a backend that sends them to other members. */
    void (*mismatch_text)(void *ctx, uint32_t rank_a, const struct collrun_call *a, uint32_t rank_b,
                          const struct collrun_call *b, char *out, size_t len);
    void (*timeout_text)(void *ctx, uint32_t rank, const uint32_t *missing, uint32_t nmissing,
                         uint64_t waited_ns, char *out, size_t len);
    /* "alltoallv(int32): rank 0 sends 4 elements to rank 2, which receives 3" */
    void (*count_mismatch_text)(void *ctx, const struct collrun_count_mismatch *counts, char *out,
                                size_t len);
    /* A call as all messages of collrun show it: "allreduce(8 x float32, sum)", "send(10 x int32,
     * to 1, tag 3)". Reads kind, count, dtype, op, root, peer and tag; a root or peer below 0 and a
     * tag of 0 are left out. Writes at most `len` bytes, terminated. */
    void (*call_text)(const struct collrun_call *call, char *out, size_t len);
    const char *(*kind_name)(enum collrun_kind kind);    /* "allreduce"; "?" if unknown */
    const char *(*dtype_name)(enum collrun_dtype dtype); /* "float32"; "?" if unknown */
    const char *(*op_name)(enum collrun_op op);          /* "sum"; "?" if unknown */

    size_t (*dtype_size)(enum collrun_dtype dtype); /* bytes of an element; 0 if unknown */
    /* dst[i] = srcs[0][i] op srcs[1][i] op ... over nsrcs >= 1 vectors of `count` elements; dst may
     * be any of the sources, no other overlap. Half precision is summed in float32 and rounded
     * once. AVG sums, divides by `divisor` (the group's size) and rounds as types.h says; divisor 0
     * leaves the plain sum, for partial results; a last pass with nsrcs = 1 then divides.
     * Vectorised, needs no alignment, thread-safe: a backend needs no code for types. */
    void (*reduce)(void *dst, const void *const *srcs, uint32_t nsrcs, size_t count,
                   enum collrun_dtype dtype, enum collrun_op op, uint32_t divisor);
    /* `options:` of job.yaml (the group's first, then the backend's), or NULL. The text is valid as
     * long as the services are. */
    const char *(*option)(void *ctx, const char *key);
    /* DEVICE for a pointer to memory of the backend's memory_kind, HOST for any other. */
    int (*memory_kind)(void *ctx, const void *ptr);
    /* Starts a joinable thread with all signals blocked. OK, or SYSTEM with its message. */
    int (*thread_start)(void *ctx, void *(*run)(void *), void *arg, pthread_t *thread);
    /* Connects to a numeric address by TCP, by deadline_ns on CLOCK_MONOTONIC. *fd is non-blocking,
     * close-on-exec, with TCP_NODELAY, the caller's to close. OK, or TIMEOUT or SYSTEM. */
    int (*connect)(void *ctx, const struct sockaddr *address, uint32_t len, uint64_t deadline_ns,
                   int *fd);
    const struct collrun_match_ops *match;
    /* How long this process has stood still so far, ns (Ctrl-Z, a frozen cgroup or machine). A
     * deadline of an operation moves by what is added while the operation waits. */
    uint64_t (*stopped_ns)(void *ctx);
    /* CLOCK_MONOTONIC, in ns: the clock of all deadlines here. Costs a few ns more than reading it.
     */
    uint64_t (*now_ns)(void);
    /* The log for developers, collrun-debug(7): the areas that are enabled, bits of enum
     * collrun_debug, and a line of one of them. Called through COLLRUN_DEBUG. */
    uint64_t debug;
    void (*debug_line)(void *ctx, enum collrun_debug area, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
};

/* Logs a decision that a report from the field would need, with its values, and no secrets:
 *     COLLRUN_DEBUG(services, LINK, "dial %s port %u for rank %u", address, port, rank);
 * Without the area the arguments are not evaluated. Any thread, any time. */
#define COLLRUN_DEBUG(services, area, ...)                                                         \
    do {                                                                                           \
        if (__builtin_expect(((services)->debug & COLLRUN_DEBUG_##area) != 0, 0))                  \
            (services)->debug_line((services)->ctx, COLLRUN_DEBUG_##area, __VA_ARGS__);            \
    } while (0)

/* The key/value exchange of one group. Each group has a separate key space.
 * Calls block until the rendezvous deadline of the group at most. They return ABORTED or
 * PEER_FAILED when the job fails, and store a message before they return an error. Only the thread
 * inside group_open may use it, and only `alive` from others, until group_open returns. */
struct collrun_rendezvous {
    uint32_t size, reserved;
    void *ctx;
    /* Publishes. `value` is copied. A key put twice, by one rank or by two, is an error. */
    int (*put)(void *ctx, const char *key, const void *value, size_t len);
    /* Copies the value of a key; waits until some member has put it. *len is its true length, also
     * with INVALID: that exceeds capacity. */
    int (*get)(void *ctx, const char *key, void *value, size_t capacity, size_t *len);
    /* All members; afterwards every member's puts can be got without leaving the process. */
    int (*fence)(void *ctx);
    /* Memory that the members on this host share: `len` bytes, zeroed, at `offset` (a multiple of 1
     * MiB) of a memory file without a name. All members here ask for it, with the same len; each
     * call gives another segment. *fd is the engine's; it serves until group_close returns, by when
     * the backend has unmapped the memory. Pages that are never touched cost nothing: len may be up
     * to 128 GiB for each rank of the host. */
    int (*segment)(void *ctx, size_t len, int *fd, uint64_t *offset);
    /* Whether the group can still form: OK, or the status of the failure of the job or a member.
     * Does not block. For a group_open that waits by other means than the rendezvous. */
    int (*alive)(void *ctx);
    /* Connects the members by TCP, each with every other one; all members call it. fds[i] becomes
     * the socket to member i, and -1 for this rank itself: non-blocking, close-on-exec, with
     * TCP_NODELAY, the caller's to close. A secret that only members can get protects them; they
     * use the network of `address` in the group's description. On failure all are -1. */
    int (*connect_all)(void *ctx, int *fds);
    /* put and fence in one, without another process on one host; by all, before any put. */
    int (*share)(void *ctx, const char *key, const void *value, size_t len);
};

/* Messages. A backend that declares `send`, `recv` and `progress` moves bytes, and nothing else:
 * the engine matches messages with receives (sources, any source, tags, order), compares count and
 * type, formats a MISMATCH and a time-out, and keeps the requests.
 *
 *     sender                                        receiver
 *     engine: send(msg)                             engine: post(msg), a receive
 *     backend: a packet with the envelope    ---->  backend, in progress: arrived(envelope, packet)
 *                                                   engine: finds the receive, or keeps the packet
 *     backend, in progress: what is left     <--->  engine: recv(msg, packet)
 *     backend: done(msg)                            backend: done(msg)
 *
 * A short message may be in the packet itself (eager): the backend then calls done inside send.
 * A long one announces itself with the packet (RTS); recv asks for the rest (CTS), and the two
 * backends exchange it in their progress. The engine does not read packets.
 *
 * Threads: the engine calls one member at a time of a group, except wake; the backend calls the
 * functions of struct collrun_p2p only from inside them, and never from inside wake. */

/* Describes a message to its receiver, before the data. */
struct collrun_envelope {
    uint64_t count; /* elements */
    uint32_t tag;
    uint32_t dtype; /* enum collrun_dtype */
};

/* One message that is sent or received. Allocated by the engine with the backend's `message_size`
 * bytes: the backend's own struct begins with this one, and what follows is uninitialised. The
 * engine owns it; the backend may use it from send or post until it calls done. It never grows. */
struct collrun_message {
    struct collrun_envelope envelope; /* of a receive in recv: that of the message */
    void *data;                       /* `len` bytes; those of a send are only read */
    size_t len; /* of a receive: the room of its buffer until it is matched, then the length of the
                   message, which may be less */
    uint32_t peer; /* of a send: the receiver; of a receive: the sender, or COLLRUN_ANY_SOURCE until
                      it is matched. Messages to this rank itself stay in the engine. */
    uint32_t id;   /* of all messages of this group in this process that are not done, the only one
                      with this number; small. For packets that answer: CTS, ACK */
};

/* Lent with a group's description. All members are set. */
struct collrun_p2p {
    uint32_t size, reserved;
    void *ctx;
    /* The first packet of a message has arrived. `packet` is `len` bytes of the backend's own,
     * which recv gets to see: at once, if the receive has been posted (recv is then called before
     * this returns), or later; the engine keeps a copy. Packets of one source arrive in the order
     * in which they were sent. Anything but OK is the group's failure: return it from progress. */
    int (*arrived)(void *ctx, uint32_t source, const struct collrun_envelope *envelope,
                   const void *packet, size_t len);
    /* The data of a send is not read any more, that of a receive is complete. May be called inside
     * send, recv or progress. The message is the engine's again. */
    void (*done)(void *ctx, struct collrun_message *message);
    /* The message with this id; NULL if there is none. */
    struct collrun_message *(*find)(void *ctx, uint32_t id);
    /* A send has left as an announcement (RTS), or is about to: it is done only after its receiver
     * has called, however short it is. At most once for a message, inside send or progress. With
     * it, the deadlock detector tells such a send of up to `eager_limit` bytes from one in flight.
     */
    void (*announced)(void *ctx, const struct collrun_message *message);
};

/* How a backend moves messages. send, recv and progress are mandatory. Functions that return int
 * return a status whose message is stored. A failure is the group's: after it, none of them is
 * called again but unpost, of a receive that was posted before, and wake. */
struct collrun_transport {
    uint32_t size;         /* sizeof(struct collrun_transport) */
    uint32_t message_size; /* of the backend's struct that begins with struct collrun_message;
                              aligned to 16 bytes */
    /* Begins a send. Messages to one peer leave in the order of the calls. Does not block: what
     * cannot leave at once waits for progress. May keep `message` and its data until done. */
    int (*send)(void *group, struct collrun_message *message);
    /* Optional. A receive begins: from now on progress has to look at message->peer, until the
     * receive is done. For a backend that does not look at all peers all the time. */
    int (*post)(void *group, struct collrun_message *message) COLLRUN_OPTIONAL;
    /* A receive and a message have been matched; the types agree, the message fits, message->peer
     * is the sender. `packet`, valid during the call, is what the backend handed to arrived. Does
     * not block: fetches the data, or asks for it and lets progress do the rest; then done. */
    int (*recv)(void *group, struct collrun_message *message, const void *packet, size_t len);
    /* Optional. The engine has begun all messages of one call or array of calls: what send and recv
     * have left in the backend's buffers is sent, sleeping peers are woken. NULL: both do so. */
    int (*flush)(void *group) COLLRUN_OPTIONAL;
    /* Moves what can be moved, in both directions, without blocking. AGAIN: something has moved.
     * OK: nothing has, for `wait_ns` (0: at once): the backend waits by its own means, spinning or
     * asleep, and may return earlier, but not later: the engine may need the thread back (without
     * `wake`, `wait_ns` is short). The engine keeps the time-outs. */
    int (*progress)(void *group, uint64_t wait_ns);
    /* Optional. The engine fails the group in this process: MISMATCH with a message of `peer`; or,
     * with peer COLLRUN_ANY_SOURCE, TIMEOUT, or PEER_FAILED if this rank lacks memory or a copy has
     * failed. The backend makes calls of that peer, or of all members, fail with this status and
     * text, if it can reach them. */
    void (*fail)(void *group, uint32_t peer, int status, const char *text) COLLRUN_OPTIONAL;
    /* Goes with post: withdraws a receive that has not been matched, which is the engine's. */
    void (*unpost)(void *group, struct collrun_message *message) COLLRUN_OPTIONAL;
    /* Optional. Another thread needs the group: progress, which may be waiting, returns soon; with
     * no thread inside, the next wait of progress ends at once. What the caller has written before
     * is visible to that thread. From any thread, until group_close; never blocks. */
    void (*wake)(void *group) COLLRUN_OPTIONAL;
    /* Optional, for a blocking call of one message while none is in progress or unexpected. OK: it
     * is done, without flush. AGAIN: nothing has happened, and the engine calls send or post.
     * recv_short waits some microseconds at most for the next message of message->peer, and takes
     * it if its envelope is message->envelope. */
    int (*send_short)(void *group, const struct collrun_message *message) COLLRUN_OPTIONAL;
    int (*recv_short)(void *group, const struct collrun_message *message) COLLRUN_OPTIONAL;
};

enum collrun_group_flags {
    /* No part of job.yaml names the group: it exists because groups always do, as `world` does, and
     * may never be used. A backend with COLLRUN_BACKEND_ON_DEMAND then takes what its devices hold
     * for the group when the first rank calls an operation. */
    COLLRUN_GROUP_ON_DEMAND = 1u << 0
};

/* What group_open is to form. Valid during group_open, unless a member says otherwise. */
struct collrun_group_desc {
    uint32_t size;
    uint32_t rank, nranks;       /* this process in the group */
    uint32_t local_rank, nlocal; /* among the members on this host */
    uint32_t ndevices; /* devices that each process drives; 0 unless NEEDS_DEVICE is set */
    uint32_t ncpus;    /* cores that the members on this host may use in all; nlocal > ncpus means
                          that ranks share cores and a waiter must yield */
    uint32_t reserved;
    const char *name;           /* for messages; valid until group_close */
    const uint32_t *world_rank; /* nranks: the member's rank in the job */
    const uint32_t *host_of;    /* nranks: a number per host, equal = same host */
    const int32_t *devices;     /* ndevices: their numbers in this process, as `locate` of the
                                   memory_kind gives them */
    const char *address;        /* this host's numeric address, as network.interface resolved it */
    const char *interface;      /* the name of that interface */
    uint64_t timeout_ns;        /* default time-out of an operation; each call has its own */
    uint64_t deadline_ns;       /* group_open ends by then, on CLOCK_MONOTONIC */
    const struct collrun_rendezvous *rendezvous;
    const struct collrun_services *services; /* valid until group_close */
    const struct collrun_p2p *p2p;           /* for a backend with a transport, else NULL; valid
                                                until group_close returns */
    /* A group may have two handles in one process, one for collectives and one for messages. When
     * the second one is opened, this is the first one, for collectives; it is closed last. Memory
     * from its `alloc` is used with both. Else NULL. */
    void *collectives_handle;
    /* network.ports: sockets that wait for connections use only these; 0: any. */
    uint64_t first_port, last_port;
    uint64_t flags; /* enum collrun_group_flags */
};

/* One row per kind that the backend does natively. `memory` is where its buffers may be. The engine
 * copies others to host memory if the backend works on that; else it refuses them. The engine
 * builds the rest from SEND and RECV (reductions also from other kinds); a (kind,
 * dtype, op) outside the row is emulated too. */
struct collrun_capability {
    uint32_t kind;   /* enum collrun_kind */
    uint32_t memory; /* set of enum collrun_memory; 0 ends the table */
    uint64_t dtypes; /* bit (1 << enum collrun_dtype); 0 for barrier, all ones for "moves bytes" */
    uint64_t ops;    /* bit (1 << enum collrun_op); 0 = not a reduction */
};
/* Rows for a backend that reduces all dtypes with all operators, and for one that moves bytes. */
#define COLLRUN_REDUCES(kind_, memory_)                                                            \
    {                                                                                              \
        kind_, memory_, (1u << COLLRUN_DTYPE_COUNT) - 1, (1u << COLLRUN_OP_COUNT) - 1              \
    }
#define COLLRUN_MOVES(kind_, memory_)                                                              \
    {                                                                                              \
        kind_, memory_, UINT64_MAX, 0                                                              \
    }
/* The rows of a backend that has every operation but the scans, for all dtypes and operators. A
 * backend with fewer lists its rows one by one. */
#define COLLRUN_ALL_BUT_SCANS(memory_)                                                             \
    {COLLRUN_BARRIER, memory_, 0, 0}, COLLRUN_REDUCES(COLLRUN_ALLREDUCE, memory_),                 \
        COLLRUN_REDUCES(COLLRUN_REDUCE, memory_),                                                  \
        COLLRUN_REDUCES(COLLRUN_REDUCE_SCATTER, memory_),                                          \
        COLLRUN_REDUCES(COLLRUN_REDUCE_SCATTERV, memory_),                                         \
        COLLRUN_MOVES(COLLRUN_BROADCAST, memory_), COLLRUN_MOVES(COLLRUN_ALLGATHER, memory_),      \
        COLLRUN_MOVES(COLLRUN_GATHER, memory_), COLLRUN_MOVES(COLLRUN_SCATTER, memory_),           \
        COLLRUN_MOVES(COLLRUN_ALLTOALL, memory_), COLLRUN_MOVES(COLLRUN_ALLGATHERV, memory_),      \
        COLLRUN_MOVES(COLLRUN_GATHERV, memory_), COLLRUN_MOVES(COLLRUN_SCATTERV, memory_),         \
        COLLRUN_MOVES(COLLRUN_ALLTOALLV, memory_), COLLRUN_MOVES(COLLRUN_SEND, memory_),           \
        COLLRUN_MOVES(COLLRUN_RECV, memory_), COLLRUN_MOVES(COLLRUN_RECV_ANY, memory_)

/* ==== kinds of memory ============================================================================
 *
 * The engine knows host memory. Every other kind is declared by a backend: its `memory_kind` says
 * which devices a host has, whether a pointer is of the kind, and how it is copied. job.yaml then
 * knows it by its name, for `backend: {host: tcp, hpu: hccl}` and `devices: {hpu: 1}`; the engine
 * routes a call to the backend for the memory of its buffers, and copies buffers of the kind for
 * backends that work on host memory.
 *
 * A kind has one name, whichever backend works on it. A backend that gives only the name uses the
 * kind as another backend of the job declares it. If several declare it, the first that job.yaml
 * names serves it for all of them.
 *
 * A device has a number in each process. With a mask, a process sees the devices that the variable
 * lists, as 0, 1, ... in that order; the ids of a rank's devices are in it before the rank starts.
 * Without one, it sees all devices of the host, numbered as `devices` lists them.
 *
 * Life in one rank that owns such devices, or has a group on a backend of the kind:
 *   open -> { locate, copy, host_alloc, ... }* -> close
 * open is called before the first such group is formed, close after the last group is closed. Any
 * thread may call the functions between the two, several at a time. `devices` is called in another
 * process, and needs no open. Errors are reported as those of a backend are. */

/* One device of a host. */
struct collrun_device {
    char id[96];     /* the same in every process and after a restart, such as a UUID; unique on the
                        host; no commas, blanks, or plain number. The mask variable takes it. */
    char model[96];  /* "NVIDIA H200"; "" = not known */
    char cpus[1024]; /* the CPUs near it, "0-31,64-95"; "" = not known */
    uint64_t reserved[16]; /* of later versions; zero */
};

/* Bytes between any two places: memory of the kind, or of the host. At least one of dst and src is
 * of the kind. */
struct collrun_memory_copy {
    uint32_t size;    /* sizeof this struct */
    uint32_t ordered; /* 1: starts after the work that `stream` holds; else after nothing */
    void *dst;
    const void *src;
    uint64_t len;         /* may be 0 if it is ordered: then it waits for the stream */
    void *stream;         /* of the device `stream_device`; NULL: the default one */
    uint64_t deadline_ns; /* on CLOCK_MONOTONIC; TIMEOUT if the copy is not complete by then */
    /* The number of the device on which `stream` lies, which may be another one than that of the
     * memory; -1: not known, that of the memory is taken. */
    int32_t stream_device;
    uint32_t reserved;
};

enum collrun_memory_kind_flags {
    /* Its devices are what job.yaml calls GPUs: `gpus`, `gpus_per_process`, `bind: gpu`. */
    COLLRUN_MEMORY_KIND_GPU = 1u << 0
};

struct collrun_memory_kind {
    uint32_t size, reserved;            /* sizeof this struct */
    const char *name;                   /* as a backend's name: "cuda"; not "host" */
    const char *title COLLRUN_OPTIONAL; /* in messages: "GPU"; NULL: the name */
    /* The environment variable that lists the devices that a process may use, by number or id, with
     * commas: "CUDA_VISIBLE_DEVICES". NULL: there is none. */
    const char *mask COLLRUN_OPTIONAL;
    uint64_t flags COLLRUN_OPTIONAL; /* enum collrun_memory_kind_flags */

    /* Mandatory, unless the struct only refers to a kind of another backend: devices, locate, copy.
     *
     * Writes up to `max` devices of this host, all of them whatever the mask says, and returns how
     * many there are. 0: none, with the reason in `why` ("libnvidia-ml.so.1 not found"); that is no
     * error. No side effects: no device is opened or reserved. Of the services, only the functions
     * without `ctx`, log and fail are useful. */
    int (*devices)(const struct collrun_services *services, struct collrun_device *out,
                   uint32_t max, char *why, size_t len) COLLRUN_OPTIONAL;
    /* UNAVAILABLE, with a message: the process cannot use such memory, so no pointer is of this
     * kind. NULL: nothing to open; the functions get NULL. */
    int (*open)(const struct collrun_services *services, void **kind) COLLRUN_OPTIONAL;
    void (*close)(void *kind) COLLRUN_OPTIONAL;
    /* 1 if `ptr` is in memory of this kind, else 0. *device is the number of its device; -1: it
     * belongs to none, and may be used with each. Called for every buffer, so it has to be fast. */
    int (*locate)(void *kind, const void *ptr, int32_t *device) COLLRUN_OPTIONAL;
    /* Returns when the copy is complete, or has failed: BACKEND, TIMEOUT. */
    int (*copy)(void *kind, const struct collrun_memory_copy *copy) COLLRUN_OPTIONAL;

    /* Optional pair: host memory that the devices reach, for bounce buffers. A backend of the kind
     * takes it in the place of DEVICE memory in SEND, RECV, RECV_ANY and ALLGATHER: the engine
     * builds what such a backend lacks on it. NULL: bounce buffers are plain memory, and what a
     * backend that works on DEVICE memory alone lacks is UNSUPPORTED. `len`: as in host_alloc. */
    int (*host_alloc)(void *kind, size_t len, void **ptr) COLLRUN_OPTIONAL;
    void (*host_free)(void *kind, void *ptr, size_t len) COLLRUN_OPTIONAL;
    /* Optional pair: memory of a device, for collrun_alloc_device in groups without alloc_on. */
    int (*alloc)(void *kind, int32_t device, size_t len, void **ptr) COLLRUN_OPTIONAL;
    int (*free)(void *kind, void *ptr) COLLRUN_OPTIONAL;
    /* Optional: waits for all work on a device, of every stream, without a time-out. */
    int (*synchronize)(void *kind, int32_t device) COLLRUN_OPTIONAL;

    /* Optional, all three or none; none of them blocks. An event stands for the work that a stream
     * (of that device; NULL: the default one) holds when it is recorded. event_query: OK when it
     * has ended, AGAIN before, or a failure. event_free: at any time, from any thread. Without them
     * collrun_start of an operation on copies of its buffers waits for its stream. */
    int (*event_record)(void *kind, int32_t device, void *stream, void **event) COLLRUN_OPTIONAL;
    int (*event_query)(void *kind, void *event) COLLRUN_OPTIONAL;
    void (*event_free)(void *kind, void *event) COLLRUN_OPTIONAL;
    /* Optional: UNSUPPORTED, with a message, if the stream captures (a CUDA graph); else OK. */
    int (*stream_check)(void *kind, int32_t device, void *stream) COLLRUN_OPTIONAL;
};

struct collrun_backend {
    uint32_t abi;  /* COLLRUN_BACKEND_ABI; these six are COLLRUN_BACKEND_HEAD */
    uint32_t size; /* sizeof(struct collrun_backend); at least up to `test` */
    uint32_t call_size, capability_size, param_size; /* of the structs of those names */
    uint32_t reserved;
    const char *name;                /* lower case letters, digits, - and _; at most 31 */
    const char *version;             /* also of the library below, e.g. "1.0 (Gloo 0.5)" */
    uint64_t flags COLLRUN_OPTIONAL; /* enum collrun_backend_flags */
    /* A send of more bytes than this, if it waits, waits for its receiver to call; so does a
     * shorter one that was announced (struct collrun_p2p). 0: not known; 1 MiB is taken. It
     * distinguishes a deadlock from a message in flight. */
    uint64_t eager_limit COLLRUN_OPTIONAL;
    const struct collrun_capability *native; /* ends with a zeroed row */
    /* Optional: what `services->option` may be asked for; ends with a zeroed entry. `collrun check`
     * refuses other keys, and values of another type or out of bounds. NULL: all are accepted. */
    const struct collrun_param *options COLLRUN_OPTIONAL;

    /* OK, or UNAVAILABLE with the reason in `why` ("libnccl.so.2 not found"). With OK, `why` may
     * hold what was found ("NCCL 2.28.9"), for `collrun backends`. No side effects. NULL: OK. */
    int (*probe)(const struct collrun_services *services, char *why, size_t len) COLLRUN_OPTIONAL;
    /* Once per process, before the first group. NULL = nothing to open. */
    int (*open)(const struct collrun_services *services, void **backend) COLLRUN_OPTIONAL;
    void (*close)(void *backend) COLLRUN_OPTIONAL;

    /* Collective over the group's members, under the rendezvous deadline. */
    int (*group_open)(void *backend, const struct collrun_group_desc *desc, void **group);
    /* From any thread, at any time between group_open's return and group_close's call, any number
     * of times; never blocks. Every call of this rank in the group, and every later one, returns
     * ABORTED soon (aim: under 1 ms). Other ranks go on, and wait for this one as before. */
    void (*group_abort)(void *group);
    /* Local and bounded; no call is inside any more. Peers may still be inside theirs: data already
     * sent stays receivable. */
    void (*group_close)(void *group);

    /* A backend has exec (it blocks; the engine adds a worker thread for collrun_start), or start
     * and test, or all three, or a transport of messages.
     * Arguments are checked, counts resolved and timeout_ns filled in by the engine; ncalls is at
     * least 1. Several calls are point to point and progress together, none waits for an earlier
     * one of the same array; or they are a batch of collectives (COLLRUN_BACKEND_BATCHES). A
     * message brings its count and dtype along, if it can have a head; the receiver compares them
     * with its own and fails with MISMATCH, and so should a sender that still waits.
     *
     * With ndevices > 1, a collective is ndevices calls, one for each device (barrier: one
     * call for all of them). Ranks are then those of nranks * ndevices: device d of member r is
     * r * ndevices + d; blocks and count arrays are theirs, the root is device peer_device of
     * member root, a peer device peer_device of member peer. A call begins after what its stream
     * holds; that one may be NULL, the default stream. */
    int (*exec)(void *group, const struct collrun_call *calls, uint32_t ncalls) COLLRUN_OPTIONAL;
    int (*start)(void *group, const struct collrun_call *calls, uint32_t ncalls,
                 void **request) COLLRUN_OPTIONAL;
    /* AGAIN keeps the request; anything else frees it. */
    int (*test)(void *group, void *request) COLLRUN_OPTIONAL;

    /* Optional, in the place of exec, start and test for SEND, RECV and RECV_ANY: the backend moves
     * bytes, and the engine matches. The rows of the three kinds in `native` still say for which
     * memory; COLLRUN_BACKEND_TAGS, RECV_ANY and ENVELOPES are implied. A message in DEVICE memory
     * begins when the engine has waited for its stream. NULL for a backend whose library matches
     * messages. */
    const struct collrun_transport *transport COLLRUN_OPTIONAL;

    /* Optional pair: memory that this group moves without a copy. NULL: plain aligned memory. */
    int (*alloc)(void *group, size_t len, void **ptr) COLLRUN_OPTIONAL;
    int (*free)(void *group, void *ptr) COLLRUN_OPTIONAL;
    /* Optional: alloc on one of the group's devices, an index into desc->devices; `free` takes it
     * back. NULL: `alloc` of the memory_kind. */
    int (*alloc_on)(void *group, uint32_t device, size_t len, void **ptr) COLLRUN_OPTIONAL;

    /* Optional, for backends that work on streams. What `stream` (of `device`, an index into
     * desc->devices) gets from now on runs after the started request. Returns at
     * once; test still has to be called until the request ends. AGAIN: the request is not in a
     * stream yet; the engine tests it and calls again. NULL: the engine waits instead. */
    int (*order)(void *group, void *request, uint32_t device, void *stream) COLLRUN_OPTIONAL;

    /* Optional, for a backend with ENVELOPES that matches messages itself (with a transport the
     * engine does both). Neither blocks.
     * probe_message: *envelope and *from describe the oldest message that a receive from `source`
     * (or COLLRUN_ANY_SOURCE) with `tag` (or COLLRUN_ANY_TAG) would take, and leave it. AGAIN: none
     * is there yet; or a failure. NULL: the engine refuses collrun_probe and collrun_iprobe.
     * withdraw: a started request of receives alone is to be withdrawn. OK: no message has been
     * matched with any of them, and the request is freed. AGAIN: too late; the request is
     * unchanged. NULL: the engine withdraws requests that it has not started, and no others. */
    int (*probe_message)(void *group, uint32_t source, uint32_t tag,
                         struct collrun_envelope *envelope, uint32_t *from) COLLRUN_OPTIONAL;
    int (*withdraw)(void *group, void *request) COLLRUN_OPTIONAL;

    /* The kind of DEVICE memory: declared here, or the name of one that another backend of the job
     * declares. NULL for a backend whose rows have HOST memory alone. */
    const struct collrun_memory_kind *memory_kind COLLRUN_OPTIONAL;

    /* Optional, for collrun_group_native: what the backend's library calls the group: `what` is
     * "nccl_comm"; `device` an index into desc->devices, or 0. NULL: there is no such name. Any
     * thread, before group_close; does not block. Valid until group_close, or a failure. */
    void *(*native_handle)(void *group, const char *what, uint32_t device)COLLRUN_OPTIONAL;
    /* Optional, for a backend that matches messages in DEVICE memory itself: UNSUPPORTED, with a
     * message, if options exclude such a receive, or, with `probes`, a look for what it takes. */
    int (*check_receive)(void *group, const struct collrun_call *call, int probes) COLLRUN_OPTIONAL;
};

/* The first members of a backend:
 *     const struct collrun_backend collrun_backend_v1 = {COLLRUN_BACKEND_HEAD, .name = "x", ...};
 * C++17 lists the members in order, without their names, up to the last one that it needs. */
#define COLLRUN_BACKEND_HEAD                                                                       \
    COLLRUN_BACKEND_ABI, (uint32_t)sizeof(struct collrun_backend),                                 \
        (uint32_t)sizeof(struct collrun_call), (uint32_t)sizeof(struct collrun_capability),        \
        (uint32_t)sizeof(struct collrun_param), 0

/* Copies *src, a struct with a leading `size` that the other side of this interface has filled in,
 * into *dst, the same struct as this side knows it. Members that the other side does not know are
 * zero; members that this side does not know are left out. A backend that reads more of its
 * description than the pointers to services and rendezvous reads such a copy:
 *     struct collrun_group_desc mine;
 *     COLLRUN_COPY(&mine, desc); */
#define COLLRUN_COPY(dst, src) collrun_copy_sized((dst), sizeof *(dst), (src), (src)->size)
static inline void collrun_copy_sized(void *dst, size_t dst_size, const void *src, size_t src_size)
{
    memset(dst, 0, dst_size);
    memcpy(dst, src, src_size < dst_size ? src_size : dst_size);
}

/* The elements [from, to) of a buffer that a checked call uses, by the extent in the table of kinds
 * (collrun_kind_row): of v-forms, from the first block that is not empty to the end of the last.
 */
struct collrun_range {
    size_t from, to;
};
static inline struct collrun_range collrun_call_range(const struct collrun_call *call,
                                                      unsigned char extent, uint32_t nranks,
                                                      uint32_t rank)
{
    struct collrun_range range = {SIZE_MAX, 0};
    const bool sent = extent == COLLRUN_SENDCOUNTS_BLOCKS;
    const size_t *counts = sent ? call->sendcounts : call->recvcounts;
    const size_t *displs = sent ? call->senddispls : call->recvdispls;
    size_t packed = 0;
    switch (extent) {
    case COLLRUN_SENDCOUNTS_BLOCKS:
    case COLLRUN_RECVCOUNTS_BLOCKS:
    case COLLRUN_RECVCOUNTS_PACKED:
        for (uint32_t i = 0; counts && i < nranks; packed += counts[i++]) {
            const size_t at = displs && extent != COLLRUN_RECVCOUNTS_PACKED ? displs[i] : packed;
            if (!counts[i])
                continue;
            range.from = at < range.from ? at : range.from;
            range.to = at + counts[i] > range.to ? at + counts[i] : range.to;
        }
        break;
    case COLLRUN_ONE_BLOCK:
        range.to = call->count;
        break;
    case COLLRUN_BLOCK_EACH:
        range.to = call->count * nranks;
        break;
    case COLLRUN_RECVCOUNT_BLOCK:
        range.to = call->recvcount;
        break;
    case COLLRUN_RECVCOUNTS_OWN:
        range.to = call->recvcounts[rank];
        break;
    default:
        break;
    }
    if (!range.to || range.from == SIZE_MAX)
        range.from = 0;
    return range;
}

/* The one exported symbol of a backend. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
extern const struct collrun_backend collrun_backend_v1;

#ifdef __cplusplus
}
#endif
#endif
