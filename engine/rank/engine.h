/* SPDX-License-Identifier: Apache-2.0
 *
 * struct engine: the life of one rank. There is one; it lives from WELCOME to exit. It owns the
 * parts and hands each what it needs: the facts of the process (struct process), the groups (struct
 * group_table), the wait reports and the workloads. No part knows it.
 */
#ifndef ENGINE_RANK_ENGINE_H
#define ENGINE_RANK_ENGINE_H

#include "base/wire.h"
#include "core/process.h"
#include "group/table.h"
#include "observe/wait_report.h"

struct task;

/* Who owns the process: collrun-engine, or a program that has called collrun_init. */
enum engine_owner { ENGINE_UNUSED, ENGINE_OF_WORKLOADS, ENGINE_OF_PROGRAM };

struct engine {
    enum engine_owner owner;
    bool connected; /* WELCOME has arrived: failures can be reported */
    struct process process;
    struct group_table groups;
    struct wait_reporter wait_report; /* used by the service thread alone */
    struct task *tasks;               /* the workloads of this rank, in file order */
    uint32_t ntasks;
};

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
void engine_send_task_failed(struct engine *e, const struct task *task);

/* Maps the memory of rank and host, receives WELCOME. */
int engine_connect(struct engine *e, const struct engine_sockets *fds, struct engine_failure *f);
/* Starts the service thread. A program adopts its task before it: GO may have arrived. */
int engine_serve(struct engine *e, struct engine_failure *f);
void engine_send_attached(struct engine *e);
/* at_exit: the rank is a program, which exits. */
void engine_send_done(struct engine *e, bool at_exit);
/* Forms the groups of job.yaml that this rank is in, in file order, so that two groups cannot wait
 * for each other. */
int engine_form_groups(struct engine *e, struct engine_failure *f);
/* After the last operation of all members of the groups: messages that have arrived, and will never
 * be received. */
void engine_report_unreceived(struct engine *e);
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
