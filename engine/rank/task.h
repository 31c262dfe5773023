/* SPDX-License-Identifier: Apache-2.0
 *
 * struct task: one workload of this rank: its plugin, its parameters and its thread. The
 * thread calls init, waits until all ranks are ready, calls run, then fini. The main thread starts
 * the tasks in file order, each after init of the one before, and observes their state through the
 * control's condition. A task that fails writes `failure`; only the main thread ends the process.
 */
#ifndef ENGINE_RANK_TASK_H
#define ENGINE_RANK_TASK_H

#include "base/wire.h"
#include "core/process.h"
#include "rank/params.h"

#include <collrun/workload.h>
#include <pthread.h>
#include <stdatomic.h>

struct engine;

/* ENDED: run returned 0, and fini has returned. FAILED: `failure` is set; fini may still run. OVER:
 * FAILED, and the thread has finished. */
enum task_state {
    TASK_NEW,
    TASK_IN_INIT,
    TASK_READY,
    TASK_RUNNING,
    TASK_ENDED,
    TASK_FAILED,
    TASK_OVER
};

struct task {
    struct collrun_ctx ctx; /* first: what the workload gets */
    struct collrun_workload plugin;
    struct params params;

    pthread_t thread;
    bool has_thread;
    enum task_state state; /* under the control's lock */
    uint64_t started_ns;   /* when run was entered */
    uint64_t stopped_ns;   /* how long the process had stood still by then */

    /* Written by the task before it becomes TASK_FAILED. */
    struct diag failure;
    enum wire_subject failure_subject;
    struct record_view_failure why; /* the failed call that may be the reason; status 0: none */
    int exit_code;
    uint32_t phase; /* enum wire_phase */
    char group[128];
    uint64_t number;

    pthread_mutex_t report_lock; /* of what follows: several threads of the workload may report */
    char thread_text[512];       /* the exception that has ended a thread of a program; "" = none */
    char fail_text[512];         /* the text of collrun_fail; "" = none */
    char refused[64];            /* the parameter of collrun_refuse; "" = none */
    char misuse[512];            /* the first misuse of the interface; "" = none */
    uint64_t next_progress_ns;
};

/* The task of a context. Its members under report_lock, and `params`, are mutable. */
static inline struct task *task_of(const struct collrun_ctx *ctx)
{
    return (struct task *)(uintptr_t)ctx;
}

/* Loads the plugin and parses the parameters. The arena gets what they need. */
int task_load(struct task *task, struct engine *e, uint32_t index, struct diag *d);
/* Starts the thread, waits until init has returned. False: the task failed, or the job. */
bool task_start(struct task *task);
bool task_has(struct task *task, enum task_state at_least);
/* A task that misuses the interface fails when it returns, even if it returns 0. */
void task_misused(const struct collrun_ctx *ctx, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void task_join(struct task *task);

/* ---- programs ---- */

/* The context of a program: the command of this rank. Parameters are those of a plugin, so it has
 * none. INVALID: the rank runs no command. */
int task_adopt(struct task *task, struct engine *e, struct diag *d);
/* The program ends with this code, not 0, in this thread: fills in `failure`. */
void task_fail_at_exit(struct task *task, int code);

#endif
