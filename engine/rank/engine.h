/* SPDX-License-Identifier: Apache-2.0
 *
 * struct engine: the process of one rank. There is one; it lives from WELCOME to exit. Parts that
 * need more than their own state get a pointer to it.
 */
#ifndef ENGINE_RANK_ENGINE_H
#define ENGINE_RANK_ENGINE_H

#include "base/desc.h"
#include "base/record.h"
#include "base/wire.h"
#include "core/control.h"
#include "core/error.h"
#include "core/fork_guard.h"
#include "core/host_scope.h"
#include "core/memory_kinds.h"
#include "core/registry.h"
#include "observe/wait_report.h"

#include <stdatomic.h>

struct collrun_ctx;
struct collrun_group;
struct group_creation;

enum { ENGINE_TOMBSTONES = 64 };

/* Who owns the process: collrun-engine, or a program that has called collrun_init. */
enum engine_owner { ENGINE_UNUSED, ENGINE_OF_WORKLOADS, ENGINE_OF_PROGRAM };

struct engine {
    enum engine_owner owner;
    bool connected;         /* WELCOME has arrived: failures can be reported */
    atomic_bool finalizing; /* collrun_finalize has taken all groups: no thread calls any more */
    /* Publishes nothing, as the groups are closed one by one after it. A call beside
     * collrun_finalize that misses it counts as one before. */
    atomic_bool finalized;
    struct control control;
    struct arena arena; /* data that lives as long as the process */
    struct desc desc;
    uint32_t rank, attempt, host;
    const char *address, *interface;
    uint32_t ncpus; /* of this host, for all its ranks together */
    struct registry registry;
    struct memory_kinds kinds;
    /* By world rank: the runner has reported its failure. Nothing but the flag is published. It is
     * set first, so a thread that acquires the failure of a group or of the job finds it. */
    atomic_bool *failed;
    atomic_bool disturbed; /* engine_set_disturbed */
    struct host_scopes host_scopes;
    struct record_head *record;       /* read by the agent; NULL: there is no agent that reads it */
    struct wait_reporter wait_report; /* used by the service thread alone */

    pthread_mutex_t groups_lock;
    struct forming *forming;             /* what threads wait in (group/forming.h) */
    struct collrun_group *groups;        /* open ones, of job.yaml and made at run time */
    struct collrun_group *closed_groups; /* whose requests are not all freed */
    void *generations;                   /* group/generation.h */
    struct group_creation *creations;    /* groups that are being created, or not yet waited for */
    struct collrun_group *tombstones[ENGINE_TOMBSTONES]; /* the last ones that were closed */
    uint32_t ntombstones;

    struct collrun_ctx *tasks; /* the workloads of this rank, in file order */
    uint32_t ntasks;
};

/* The job stops, and a call of this process returns that: what the workloads do next may be a
 * consequence. */
static inline void engine_set_disturbed(struct engine *e)
{
    atomic_store(&e->disturbed, true);
    if (e->record)
        atomic_store(&e->record->disturbed, 1);
}

/* OK; INVALID: this process is not, or not any more, a member of the job. For functions that are
 * given a context; groups are closed then. */
static inline int engine_check_member(const struct engine *e, const char *what)
{
    if (fork_guard_in_child)
        return fork_guard_refuse(what);
    if (atomic_load_explicit(&e->finalized, memory_order_relaxed))
        return error_set(COLLRUN_ERR_INVALID, "%s: collrun_finalize has ended this rank", what);
    return COLLRUN_OK;
}

/* ---- the steps of a rank's life that collrun-engine and collrun_init share ---- */

/* Takes this process for an owner. NULL: it has one, and *owner is who. */
struct engine *engine_take(enum engine_owner *owner);
void engine_give_back(void); /* it has not been used */
bool engine_is_taken(enum engine_owner *owner);

/* The descriptors that the agent has opened for the rank. */
struct engine_sockets {
    int control, record, hostmem;
};

/* A step that failed: what FAILED reports, and the exit code of a process that ends because of it.
 */
struct engine_failure {
    uint32_t workload; /* index in the desc, or UINT32_MAX */
    uint32_t phase;    /* enum wire_phase */
    const char *group; /* "" = none */
    uint64_t number;
    enum wire_subject subject;
    int exit_code;
    struct diag diag;
    struct record_view_failure why; /* the failed call that may be the reason; status 0: none */
};

void engine_failure_init(struct engine_failure *f, uint32_t phase);
void engine_send_failed(struct engine *e, struct engine_failure *f);

/* Maps the memory of rank and host, receives WELCOME. */
int engine_connect(struct engine *e, const struct engine_sockets *fds, struct engine_failure *f);
/* Starts the service thread. A program adopts its task before it: GO may have arrived. */
int engine_serve(struct engine *e, struct engine_failure *f);
void engine_send_attached(struct engine *e);
/* Forms the groups of job.yaml that this rank is in, in file order, so that two groups cannot wait
 * for each other. */
int engine_form_groups(struct engine *e, struct engine_failure *f);
/* Local. Closes all groups, also those made at run time. */
void engine_close_groups(struct engine *e);

/* Waits until all members of this rank's groups have ended their use of them, so that closing them
 * disturbs no operation of a peer. A rank that exits is not waited for, nor is a group that has
 * failed. */
int engine_await_end(struct engine *e, struct diag *d);
/* The same without waiting, for members that run commands; the groups stay open until all ranks are
 * done. */
void engine_announce_end(struct engine *e);

#endif
