/* SPDX-License-Identifier: Apache-2.0
 *
 * One group in one rank: the process-private state beside the shared segment, and the group's
 * failure.
 *
 * - Calls on a group never overlap, so nothing here is locked. group_abort may come from another
 *   thread; it touches only the shared side.
 * - The first failure of any member is the failure of the whole group: its status and text go into
 *   the segment, all members wake, and every call of every member, now and later, returns it.
 * - An abort is one of its rank alone. The others go on; those that need that rank wait for it
 *   until their time-out. What they read of its memory after that is dropped.
 */
#ifndef SHM_GROUP_H
#define SHM_GROUP_H

#include "coll/signature.h"
#include "embed.h"
#include "p2p.h"
#include "transport/cma.h"
#include "transport/heap.h"
#include "transport/policy.h"
#include "transport/segment.h"

/* How this rank waits, and until when. Owned by transport/wait.c. */
struct wait_state {
    bool oversubscribed;        /* there are more ranks than cores, */
    bool few_cores;             /* and at most two cores */
    uint32_t spins;             /* how often to poll before yielding; adapts */
    uint64_t yield_ns;          /* how long to yield before sleeping; adapts */
    uint64_t spread_ns;         /* when this rank last moved to another core */
    struct yield_policy policy; /* of an oversubscribed group */
    _Atomic uint32_t
        oversubscribed_yields; /* for messages; that for collectives is in the segment */
    uint64_t timeout_ns;       /* of the running call */
    /* of the running call; 0 until a wait takes long enough to read the clock */
    uint64_t deadline_ns;
    uint64_t stopped_ns;   /* how long the process had stood still when the deadline was set */
    bool is_elsewhere;     /* counted among the sleepers of its doorbell (embed.h), */
    uint64_t elsewhere_ns; /* and since when no rank has woken it */
};

/* What this rank has published and prepares to publish. Owned by coll/step.c. */
struct step_state {
    uint64_t last;                /* the last step published; records hold its lower half */
    uint64_t complete;            /* the last step whose records of all ranks were compared */
    struct signature *signatures; /* [step % depth], of this rank; SIGNATURE_NONE within a call */
    uint64_t *compared;           /* [rank]: the last step whose record of that rank was compared */
    uint32_t location;            /* of the next step's data; a copy of step_rec.location */
    size_t rec_len;               /* bytes of the next record that are in use */
    size_t ring_pos;              /* next byte of this rank's ring */
    size_t ring_window;           /* bytes of the ring in use */
    uint64_t ring_moved;          /* bytes written since the window last grew */
};

/* The data that one rank sends to, or receives from, one other rank in a collective. */
struct coll_block {
    char *data;
    size_t len;         /* bytes */
    const char *direct; /* incoming only: the sender's own memory, readable from here; or NULL */
};

/* Scratch of one collective: an entry per rank, valid during one call. */
struct coll_scratch {
    struct coll_block *in, *out;
    const void **srcs;
};

struct shm_group {
    const struct collrun_services *services;
    uint32_t rank, nranks;
    struct segment seg;
    const struct shm_group *sibling; /* the handle that is opened first and closed last; or NULL */
    struct failure *failure;         /* shared by both handles */
    atomic_bool aborted;             /* of this handle in this rank */

    struct wait_state wait;
    struct step_state step;
    struct coll_scratch coll;
    struct copy_policy copy_policy; /* of copies that other ranks read */
    struct p2p p2p;
    const struct embedder *embedder; /* or NULL */
    struct heap *heap;               /* own_heap, or that of the sibling */
    struct heap own_heap;
    struct cma *cma; /* own_cma, or that of the sibling */
    struct cma own_cma;
};

/* True once the group has failed, or was aborted here. Relaxed: the status and text are read by
 * shm_group_report_failure, which acquires them; a failure that is missed is found at the next
 * check.
 */
static inline bool shm_group_has_failed(const struct shm_group *g)
{
    return atomic_load_explicit(&g->failure->state, memory_order_relaxed) != FAILURE_NONE ||
           atomic_load_explicit(&g->aborted, memory_order_relaxed);
}

/* The same, after reading memory that its owner uses again once the group has failed: if it has
 * not, what was read before is what the owner meant. */
static inline bool shm_group_has_failed_meanwhile(const struct shm_group *g)
{
    atomic_thread_fence(memory_order_acquire);
    return shm_group_has_failed(g);
}

/* After reading memory of another rank: true if that rank may use it again. */
static inline bool shm_group_rank_has_aborted(const struct shm_group *g, uint32_t rank)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&g->seg.processes[rank].aborted, memory_order_relaxed) != 0;
}

static inline uint64_t shm_group_now_ns(const struct shm_group *g)
{
    return g->services->now_ns();
}

/* Stores the group's failure as this thread's error and returns its status. */
int shm_group_report_failure(struct shm_group *g);

/* Makes this the group's failure unless there is one already, wakes all members, and returns as
 * shm_group_report_failure does. */
int shm_group_fail(struct shm_group *g, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int shm_group_fail_mismatch(struct shm_group *g, uint32_t rank_a, const struct collrun_call *a,
                            uint32_t rank_b, const struct collrun_call *b);
/* `rank` has written `what`, which it never does: its memory is damaged. */
int shm_group_fail_damaged(struct shm_group *g, uint32_t rank, const char *what);
int shm_group_fail_timeout(struct shm_group *g, const uint32_t *missing, uint32_t nmissing);

/* The first half of shm_group_fail, for any thread: stores no error of this thread. */
void shm_group_set_failure(struct shm_group *g, int status, const char *text);
/* From any thread: all calls of this rank end with ABORTED, now and later. */
void shm_group_abort_here(struct shm_group *g);

#endif
