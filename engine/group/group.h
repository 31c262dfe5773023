/* SPDX-License-Identifier: Apache-2.0
 *
 * struct collrun_group: one rank's membership in one group, open on one or several backends.
 *
 * - A group may have a backend for each kind of memory. A call uses the one of its buffers
 *   (route.h).
 * - A backend with start and test alone, or one that starts everything, serves a group through one
 *   handle if it matches tags. Any other gets two, one for collectives and one for messages: a
 *   message that waits for its peer must not delay a collective, and messages of an emulated
 *   collective must not match messages of the workload. A group with check: strict gets two as
 *   well, since its collectives are executed, not started.
 * - After a failure that leaves the members in different states, every later call on the group
 *   fails immediately with the first error (struct group_status).
 *
 * This file owns the failure state of a group; table.h has the open groups, and group_open.h forms
 * and closes them.
 */
#ifndef ENGINE_GROUP_GROUP_H
#define ENGINE_GROUP_GROUP_H

#include "base/desc.h"
#include "base/names.h"
#include "base/record_queue.h"
#include "core/memory_kind.h"
#include "core/memory_kinds.h"
#include "core/process.h"
#include "core/rendezvous.h"
#include "core/services.h"
#include "core/threads.h"
#include "group/table.h"
#include "progress/progress_queue.h"

#include <collrun/collrun.h>

struct backend;
struct collrun_group;

/* Collectives and messages are numbered, queued and recorded separately. */
enum group_queue { GROUP_COLLECTIVES, GROUP_MESSAGES };

enum {
    GROUP_MOST_DEVICES = MEMORY_KIND_DEVICES,
    GROUP_KNOWN = 16,
    GROUP_EAGER_LIMIT = 1 << 20, /* bytes of a send that a backend may buffer, unless it declares
                                    another limit */
    REQUEST_SPARES = 8,
    GROUP_BACKENDS = MEMORY_KINDS_MAX
};

/* One backend of a group. A communicator rank is one device of one member, or one member if the
 * backend uses no devices: device d of member r has communicator rank r * ndevices + d. */
struct group_backend {
    struct backend *backend;
    struct memory_kind *kind;            /* of its device memory; NULL: it has none */
    struct progress_queue *pq[2];        /* by enum group_queue; may be the same */
    uint32_t ndevices;                   /* of each member that it uses; 0: it uses none */
    uint32_t comm_size, first_comm_rank; /* of its communicator; of this process in it */
    struct progress_queue queues[2];
    uint32_t nqueues;
    struct services services;
    struct collrun_group *group;
};

/* Set once, under the lock: `code` is released after `text`, and a call that acquires it may read
 * that. */
struct group_status {
    atomic_int code; /* 0, or the status that every call fails with */
    pthread_mutex_t lock;
    char *text; /* of the first error */
};

/* What does not change after group_open. */
struct group_identity {
    char *name;
    struct desc_ranks members; /* world ranks */
    uint32_t index;            /* in the desc; UINT32_MAX = made at run time */
    bool on_demand;            /* it may never be used */
    bool is_unique;            /* collrun made the name: no other group ever has it */
    char backend_name[160];    /* "shm"; "gloo (host), nccl (cuda)" */
};

/* Requests that the workloads have started and not collected by a test or wait. */
struct group_requests {
    pthread_mutex_t lock;
    struct collrun_request *newest;
    /* Spares (ops/request.h). The thread that leaves a request releases it with the place; the one
     * that takes it out acquires it. A relaxed look at a place only says whether to try. */
    _Atomic(struct collrun_request *) spares[REQUEST_SPARES];
};

/* The last blocking collective whose arguments were found to be good: a loop calls the same one
 * again and again. Of the thread that is inside. */
struct known_call {
    bool is_set;
    bool is_plain; /* consistency_is_plain */
    enum collrun_kind kind;
    enum collrun_dtype dtype;
    enum collrun_op op;
    int root;
    size_t count;
    const void *send;
    void *recv;
};

/* Indexed by enum group_queue. The thread inside the group writes the part of the collectives, the
 * owner of the queue writes the part of the messages, and the service thread reads both. */
struct group_calls {
    struct record_queue record[2]; /* for the agent, by enum group_queue */
    /* Operations so far; see group_number. Relaxed: they publish nothing. */
    _Atomic uint64_t numbers[2];
    struct known_call known;
    void *streams[GROUP_MOST_DEVICES]; /* after which an operation runs that names no stream */
    uint64_t timeout_ticks;            /* collrun_group.timeout_ns, for the record; 0: none */
    uint64_t eager_limit;              /* a send of more bytes waits for its receiver */
};

struct collrun_group {
    /* The workload whose thread is inside, except for messages; NULL = none (group_try_enter). What
     * that thread has done to the group is released with NULL, and acquired by the next one. A
     * refused call reads only what does not change: the workload's name. */
    _Atomic(const struct collrun_ctx *) driver;
    struct group_status status;
    struct memory_kind_set kinds;   /* of device memory that this process may have pointers to */
    uint32_t nbackends;             /* several: the first for host memory, each other for a kind */
    struct group_backend *backends; /* owned */
    struct group_calls calls;
    struct group_requests requests;
    uint32_t rank, nranks;
    uint64_t timeout_ns;
    enum collrun_check check;
    /* Addresses that are known to be device memory (route.c). Each stands alone, relaxed; one that
     * is missed is looked up again. */
    atomic_uintptr_t on_device[GROUP_KNOWN];

    struct group_identity id;
    struct process *process;
    struct group_table *table;
    struct rendezvous rendezvous;
    struct group_memory
        *memory; /* memory.c: allocated by collrun_alloc, not yet freed by collrun_free */
    /* 1 while it is open, 1 for each request that is not freed. Relaxed when it grows: the thread
     * has a reference. A thread that drops one releases its use of the group, which the last one
     * acquires. */
    atomic_uint refs;
    bool job_ends;              /* the members call nothing more */
    bool unreceived_reported;   /* group_report_unreceived */
    bool is_tombstone;          /* under group_table.lock */
    struct collrun_group *next; /* in the table */
    /* Relaxed: a number for each thread that takes one. */
    atomic_uint formed[GENERATION_KINDS]; /* generation_within */
};

void group_free(struct collrun_group *g); /* of one that was never open, or is a tombstone */

/* Fails the group and aborts its backends. */
void group_abort(struct collrun_group *g, int status, const char *why);

/* An operation failed with `status`, its cause stored. Finds the cause behind it (a message of the
 * runner about another rank may arrive a moment later), fails the group unless it can continue, and
 * composes the error message. Returns the status that the caller gets. */
int group_op_failed(struct collrun_group *g, enum collrun_kind kind, uint64_t number, int status);
/* The error of a call on a group that has failed before. */
int group_reject(struct collrun_group *g, enum collrun_kind kind, uint64_t number);

static inline bool group_has_failed(const struct collrun_group *g)
{
    return atomic_load_explicit(&g->status.code, memory_order_acquire) != 0;
}

/* The backend whose devices collrun_devices() and the like are about: the first one for device
 * memory, if the group has one. */
static inline const struct group_backend *group_device_backend(const struct collrun_group *g)
{
    return &g->backends[g->nbackends > 1];
}

/* The kind of those devices; of a group on host memory: the first that the rank owns devices of. */
static inline struct memory_kind *group_device_kind(const struct collrun_group *g)
{
    const struct group_backend *gb = group_device_backend(g);
    return gb->kind ? gb->kind : g->kinds.n ? g->kinds.items[0] : NULL;
}

/* The number of the device on which `stream` of a call for `device` lies, if it is one of `kind`.
 * -1: not known, as in a group on host memory, whose calls may name streams of any device. */
static inline int32_t group_stream_device(const struct group_backend *gb,
                                          const struct memory_kind *kind, int device,
                                          const void *stream)
{
    bool in_range = device >= 0 && device < GROUP_MOST_DEVICES;
    if (!kind || kind != group_device_kind(gb->group) || !in_range ||
        (uint32_t)device >= kind->ndevices)
        return -1;
    bool is_set = stream && stream == gb->group->calls.streams[device];
    return gb->ndevices || is_set ? kind->numbers[device] : -1;
}

static inline uint32_t group_devices(const struct group_backend *gb)
{
    return gb->ndevices ? gb->ndevices : 1;
}

/* The kind whose host memory a backend takes that works on device memory alone; NULL: plain memory
 * will do. */
struct memory_kind *group_host_kind(const struct group_backend *gb);

static inline enum group_queue group_queue_of(enum collrun_kind kind)
{
    return kind_is_collective(kind) ? GROUP_COLLECTIVES : GROUP_MESSAGES;
}

/* The number of a new message where several threads may be. */
static inline uint64_t group_number_shared(struct collrun_group *g)
{
    return atomic_fetch_add_explicit(&g->calls.numbers[GROUP_MESSAGES], 1, memory_order_relaxed) +
           1;
}

/* The first of `n` numbers for new operations. By the one thread that is inside. A load and a store
 * cost less than an addition: a message that another thread numbers at the same time may get the
 * same number, by which only texts and records name it. */
static inline uint64_t group_number(struct collrun_group *g, enum group_queue which, uint32_t n)
{
    _Atomic uint64_t *last = &g->calls.numbers[which];
    uint64_t before = atomic_load_explicit(last, memory_order_relaxed);
    atomic_store_explicit(last, before + n, memory_order_relaxed);
    return before + 1;
}

/* True for failures that leave the group usable. A collective that has a number and runs out of
 * memory on one rank does not: the other members may be in it, and wait for this rank. */
static inline bool group_survives(enum group_queue which, int status)
{
    if (status == COLLRUN_ERR_NO_MEMORY || status == COLLRUN_ERR_SYSTEM)
        return which == GROUP_MESSAGES;
    return status != COLLRUN_ERR_MISMATCH && status != COLLRUN_ERR_TIMEOUT &&
           status != COLLRUN_ERR_PEER_FAILED && status != COLLRUN_ERR_ABORTED &&
           status != COLLRUN_ERR_BACKEND;
}

/* ---- the thread inside ---- */

/* One thread at a time may be inside a group. A second one is rejected with INVALID, and the error
 * names both workloads; it does not wait. Messages need not enter, since the progress queue
 * serializes the threads, unless the backend can only execute them. */

/* The drivers that are no workload: a thread that a workload has made itself; a closed group. */
extern const struct collrun_ctx group_unknown_thread, group_closed_driver;

/* Composes the error message of the call `what`. Returns INVALID. */
int group_enter_rejected(struct collrun_group *g, const struct collrun_ctx *inside,
                         const char *what);

/* NULL: this thread is inside now. Else who is. */
static inline const struct collrun_ctx *group_try_enter(struct collrun_group *g)
{
    const struct collrun_ctx *inside = NULL, *me = thread_context;
    if (atomic_compare_exchange_strong_explicit(&g->driver, &inside,
                                                me ? me : &group_unknown_thread,
                                                memory_order_acquire, memory_order_relaxed))
        return NULL;
    return inside;
}

/* OK; or INVALID, with the error message of the call `what`. */
static inline int group_enter(struct collrun_group *g, const char *what)
{
    const struct collrun_ctx *inside = group_try_enter(g);
    return inside ? group_enter_rejected(g, inside, what) : COLLRUN_OK;
}

/* The same for a call of this kind. */
static inline int group_enter_kind(struct collrun_group *g, enum collrun_kind kind)
{
    const struct collrun_ctx *inside = group_try_enter(g);
    return inside ? group_enter_rejected(g, inside, kind_name(kind)) : COLLRUN_OK;
}

static inline void group_leave(struct collrun_group *g)
{
    atomic_store_explicit(&g->driver, NULL, memory_order_release);
}

static inline bool group_is_closed(const struct collrun_group *g)
{
    return atomic_load_explicit(&g->driver, memory_order_acquire) == &group_closed_driver;
}

/* For operations of a kind. */
static inline bool group_enters(const struct group_backend *gb, enum collrun_kind kind)
{
    return kind_is_collective(kind) || !gb->pq[GROUP_MESSAGES]->starts;
}

static inline int group_enter_for(const struct group_backend *gb, enum collrun_kind kind)
{
    if (group_enters(gb, kind))
        return group_enter_kind(gb->group, kind);
    return group_is_closed(gb->group)
               ? group_enter_rejected(gb->group, &group_closed_driver, kind_name(kind))
               : COLLRUN_OK;
}

static inline void group_leave_after(const struct group_backend *gb, enum collrun_kind kind)
{
    if (group_enters(gb, kind))
        group_leave(gb->group);
}

/* Called by the thread inside, which never leaves: later calls fail because the group was
 * destroyed, or belongs to the process that forked this one. */
static inline void group_mark_closed(struct collrun_group *g)
{
    atomic_store_explicit(&g->driver, &group_closed_driver, memory_order_release);
}

/* ---- memory.c ---- */

/* Drops the list of memory that was not passed to collrun_free. Memory of the engine is freed; that
 * of the backends belongs to their handles. */
void memory_free_all(struct collrun_group *g);

#endif
