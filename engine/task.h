/* SPDX-License-Identifier: Apache-2.0
 *
 * struct collrun_ctx: one workload of this rank: its plugin, its parameters, and the thread that it
 * lives in. The thread runs init, waits until all ranks are ready, runs run, then fini. The main
 * thread starts the tasks in file order, each after the init of the one before, and learns of every
 * step through the control's condition. A task that fails says so in `failure`; ending the process
 * is the main thread's business.
 */
#ifndef ENGINE_TASK_H
#define ENGINE_TASK_H

#include "params.h"

#include <collrun/workload.h>
#include <pthread.h>
#include <stdatomic.h>

struct engine;

/* ENDED: run returned 0, fini has returned. FAILED: what `failure` says; fini may still run.
 * BURIED: FAILED, and the thread does nothing any more. */
enum task_state {
    TASK_NEW,
    TASK_IN_INIT,
    TASK_READY,
    TASK_RUNNING,
    TASK_ENDED,
    TASK_FAILED,
    TASK_BURIED
};

struct collrun_ctx {
    struct engine *engine;
    uint32_t index; /* in desc.workloads */
    const struct desc_workload *desc;
    struct collrun_workload plugin;
    struct params params;

    pthread_t thread;
    bool has_thread;
    enum task_state state; /* under the control's lock */
    uint64_t started_ns;   /* when run was entered */

    /* Written by the task before it becomes TASK_FAILED. */
    struct diag failure;
    int exit_code;
    uint32_t phase; /* enum wire_phase */
    char group[128];
    uint64_t number;

    pthread_mutex_t words_lock; /* the workload may speak from several threads */
    char said[512];             /* collrun_fail's sentence; "" = none */
    char misuse[512];           /* the first misuse of the interface; "" = none */
    uint64_t next_progress_ns;
};

/* Whose thread this is; NULL in threads that a workload made by itself. */
#if defined(__GNUC__)
__attribute__((tls_model("initial-exec")))
#endif
extern _Thread_local const struct collrun_ctx *task_current;

/* Loads the plugin and parses the parameters. The arena gets what they need. */
int task_load(struct collrun_ctx *task, struct engine *e, uint32_t index, struct diag *d);
/* Starts the thread, waits until init has returned. False: the task failed, or the job. */
bool task_start(struct collrun_ctx *task);
bool task_has(struct collrun_ctx *task, enum task_state at_least);
/* A task that misuses the interface fails when it returns, whatever it returns. */
void task_misused(const struct collrun_ctx *task, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void task_join(struct collrun_ctx *task);

#endif
