/* SPDX-License-Identifier: Apache-2.0
 *
 * struct process: the facts of the process of one rank, and the facilities that it has once. There
 * is one, from WELCOME to exit; the owner of the process (rank/engine.h) fills it in and hands it
 * to the parts that need more than their own state. What the groups have in common is theirs:
 * struct group_table.
 */
#ifndef ENGINE_CORE_PROCESS_H
#define ENGINE_CORE_PROCESS_H

#include "base/desc.h"
#include "base/record.h"
#include "core/control.h"
#include "core/error.h"
#include "core/fork_guard.h"
#include "core/host_scope.h"
#include "core/memory_kinds.h"
#include "core/registry.h"

#include <stdatomic.h>

struct group_table;
struct record_writer;

struct process {
    struct control control;
    struct arena arena; /* data that lives as long as the process */
    struct desc desc;
    uint32_t rank, attempt, host;
    const char *address, *interface;
    uint32_t ncpus; /* of this host, for all its ranks together */
    struct registry registry;
    struct memory_kinds kinds;
    struct host_scopes host_scopes;
    struct record_head *record;   /* read by the agent; NULL: there is no agent that reads it */
    struct record_writer *writer; /* of the calls of threads, in it; NULL with it */
    /* Indexed by world rank: the runner has reported its failure. Nothing but the flag is
     * published. It is set first, so a thread that acquires the failure of a group or of the job
     * finds it. */
    atomic_bool *failed;
    atomic_bool disturbed; /* process_set_disturbed */
    atomic_int busy;       /* threads_busy */
    /* collrun_finalize has ended this rank. It publishes nothing, as the groups are closed one by
     * one after it. A call beside collrun_finalize that misses it counts as one before. */
    atomic_bool finalized;
};

/* On whose behalf a thread calls: a workload, or the program of the rank. rank/task.h has the rest
 * of it. */
struct collrun_ctx {
    struct process *process;
    struct group_table *groups;
    const struct desc_workload *desc;
    uint32_t index; /* in desc.workloads */
};

/* The job stops, and a call of this process returns that: what the workloads do next may be a
 * consequence. */
static inline void process_set_disturbed(struct process *p)
{
    atomic_store(&p->disturbed, true);
    if (p->record)
        atomic_store(&p->record->disturbed, 1);
}

/* OK; INVALID: this process is not, or not any more, a member of the job. For functions that are
 * given a context; groups are closed then. */
static inline int process_check_member(const struct process *p, const char *what)
{
    if (fork_guard_in_child)
        return fork_guard_refuse(what);
    if (atomic_load_explicit(&p->finalized, memory_order_relaxed))
        return error_set(COLLRUN_ERR_INVALID, "%s: collrun_finalize has ended this rank", what);
    return COLLRUN_OK;
}

#endif
