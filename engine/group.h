/* SPDX-License-Identifier: Apache-2.0
 *
 * struct collrun_group: one rank's membership in one group, open on a backend. It holds what every
 * call needs (first, for the cache), how the group came about, and its fate: after a failure that
 * leaves the members in different places, the group only fails, at once and with the first reason.
 * group_open forms it with the other members; group_close takes it down without them.
 *
 * A group may have a backend for each sort of memory: two sides. A call goes to the side of its
 * buffers (route.h).
 *
 * A backend that has nothing but start and test, and matches tags, serves a group through one
 * handle. Any other gets two, one for collectives and one for messages, so that a message that
 * waits for its peer does not stand in the way of a collective, and messages that an emulated
 * collective sends are not taken for the workload's. So does a group with check: strict, which
 * needs to execute in any case.
 */
#ifndef ENGINE_GROUP_H
#define ENGINE_GROUP_H

#include "base/desc.h"
#include "base/record.h"
#include "lane.h"
#include "rendezvous.h"
#include "services.h"
#include "waits.h"

#include <collrun/collrun.h>

struct backend;
struct engine;

enum group_lane { GROUP_COLLECTIVES, GROUP_MESSAGES };

/* One backend of a group, and the way into it. */
struct group_side {
    struct backend *backend;
    struct lane *lane[2];          /* by enum group_lane; may be the same */
    uint32_t ndevices;             /* GPUs that each member drives in it; 0: it knows of none */
    uint32_t nplaces, first_place; /* ranks of its communicator; this process's first one */
    struct lane lanes[2];
    uint32_t nlanes;
    struct services services;
};

enum { GROUP_MOST_DEVICES = 64, GROUP_KNOWN = 16 };

struct collrun_group {
    _Atomic(const struct collrun_ctx *)
        driver;      /* the workload whose thread is inside; NULL = nobody */
    atomic_int fate; /* 0, or why it only fails */
    bool has_gpus;   /* this process may hold pointers to GPU memory */
    uint32_t nsides; /* 2: sides[0] for buffers in host memory, sides[1] for those on a GPU */
    struct group_side sides[2];
    struct record_group *record[2]; /* what the agent sees of each sort; may be NULL */
    _Atomic uint64_t numbers[2];    /* operations so far, of each sort; see group_number */
    struct wait_note note;          /* of the thread that is inside a blocking call */
    uint32_t rank, nranks;
    uint64_t timeout_ns;
    enum collrun_check check;
    void *streams[GROUP_MOST_DEVICES];    /* what comes before an operation that names no stream */
    atomic_uintptr_t on_gpu[GROUP_KNOWN]; /* what has been found to be (route.c), by a hash */

    struct engine *engine;
    char *name;
    struct desc_ranks members; /* world ranks */
    uint32_t index;            /* in the desc; UINT32_MAX = made at run time */
    uint32_t splits;           /* how often it has been split */
    uint32_t gpus_per_process;
    char backend_name[80]; /* "shm"; "gloo (host), nccl (cuda)" */
    struct rendezvous rendezvous;
    struct group_memory *memory; /* what collrun_alloc gave and has not got back */
    pthread_mutex_t fate_lock;
    char *fate_text;            /* written once, under the lock, before `fate` */
    atomic_uint refs;           /* 1 for being open, 1 for each request that is not freed */
    struct collrun_group *next; /* in engine.groups */
};

struct group_spec {
    const char *name;
    struct backend *backend, *cuda_backend; /* the latter for buffers on a GPU; NULL: one for all */
    const struct desc_ranks *members;
    uint64_t timeout_ns; /* of an operation */
    enum collrun_check check;
    const struct desc_kvs *options; /* may be NULL; borrowed for the life of the group */
    uint32_t index;                 /* in the desc, or UINT32_MAX */
    uint32_t gpus_per_process;
};

/* Collective over the members. NOT_MEMBER if this rank is none, EXISTS if the name is open here. */
int group_open(struct engine *e, const struct group_spec *spec, struct collrun_group **out,
               struct diag *d);
/* Local and bounded: aborts what is still inside, then closes. What is left when the last request
 * is gone is kept for a while, closed, so that a handle which outlives its group is known for what
 * it is. */
void group_close(struct collrun_group *g);
void group_unref(struct collrun_group *g);
/* memory.c: forgets what was not given back; plain memory is freed. */
void group_free_memory(struct collrun_group *g);
/* Frees what is left of groups that were closed. */
void group_forget_all(struct engine *e);

struct collrun_group *group_find(struct engine *e, const char *name); /* an open one; NULL */
bool group_is_open(struct engine *e, const struct collrun_group *g);  /* g may be a dead pointer */
int group_rank_in(const struct desc_ranks *members, uint32_t rank);   /* -1 = no member */

/* Dooms every open group and aborts its backend. From the service thread. */
void group_abort_all(struct engine *e, int status, const char *why);
/* The same for those that this rank of the job is a member of. */
void group_abort_with(struct engine *e, uint32_t member, int status, const char *why);
void group_abort(struct collrun_group *g, int status, const char *why);

/* The side for buffers on a GPU, where there is one. */
static inline const struct group_side *group_gpu_side(const struct collrun_group *g)
{
    return &g->sides[g->nsides - 1];
}

/* The devices and places of a side: GPU d of member r is place r * ndevices + d. */
static inline uint32_t group_devices(const struct group_side *s)
{
    return s->ndevices ? s->ndevices : 1;
}

static inline enum group_lane group_lane_of(enum collrun_kind kind)
{
    return kind >= COLLRUN_SEND ? GROUP_MESSAGES : GROUP_COLLECTIVES;
}

/* The number of a new operation. One thread is inside at a time. */
static inline uint64_t group_number(struct collrun_group *g, enum group_lane which)
{
    uint64_t number = atomic_load_explicit(&g->numbers[which], memory_order_relaxed) + 1;
    atomic_store_explicit(&g->numbers[which], number, memory_order_relaxed);
    return number;
}

/* Which failures leave the group as it was. */
static inline bool group_survives(int status)
{
    return status != COLLRUN_ERR_MISMATCH && status != COLLRUN_ERR_TIMEOUT &&
           status != COLLRUN_ERR_PEER_FAILED && status != COLLRUN_ERR_ABORTED &&
           status != COLLRUN_ERR_BACKEND;
}

/* An operation failed with `status`, its cause stands in this thread's record: finds the reason
 * behind it (another rank's end is told by the runner a moment later), dooms the group if need be,
 * and makes the sentence. Returns the status that counts. */
int group_failed(struct collrun_group *g, enum collrun_kind kind, uint64_t number, int status);
/* The same for a call on a group that is doomed already. */
int group_refuse(struct collrun_group *g, enum collrun_kind kind, uint64_t number);

#endif
