/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of a workload in its thread.
 */
#include "rank/task.h"

#include "base/exit_codes.h"
#include "base/loop.h"
#include "base/names.h"
#include "base/standstill.h"
#include "core/control.h"
#include "core/error.h"
#include "core/plugin.h"
#include "core/threads.h"
#include "rank/crash.h"
#include "rank/engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static struct collrun_ctx task_context(struct engine *e, uint32_t index)
{
    return (struct collrun_ctx){.process = &e->process,
                                .groups = &e->groups,
                                .desc = &e->process.desc.workloads[index],
                                .index = index};
}

int task_load(struct task *task, struct engine *e, uint32_t index, struct diag *d)
{
    const struct desc_workload *w = &e->process.desc.workloads[index];
    const struct desc_rank *me = &e->process.desc.ranks[e->process.rank];
    struct template_values values = {.rank = e->process.rank,
                                     .local_rank = me->local_rank,
                                     .attempt = e->process.attempt,
                                     .host = e->process.desc.hosts[me->host].name,
                                     .run_id = e->process.desc.run_id};
    *task = (struct task){.ctx = task_context(e, index), .exit_code = EXIT_LOAD};
    diag_init(&task->failure);
    pthread_mutex_init(&task->report_lock, NULL);
    int rc = plugin_open_workload(w->plugin, &e->process.arena, &task->plugin, d);
    if (rc == COLLRUN_OK)
        rc = params_check_table(task->plugin.params, "workload", w->plugin, d);
    task->failure_subject = rc == COLLRUN_OK ? WIRE_SUBJECT_RANK : WIRE_SUBJECT_WORKLOAD;
    if (rc == COLLRUN_OK)
        rc = params_parse(&task->params, task->plugin.params, w, &values, &e->process.arena, d);
    if (rc != COLLRUN_OK && d->loc.line == 0)
        d->loc = w->loc;
    return rc;
}

static void task_set_state(struct task *task, enum task_state state)
{
    struct control *c = &task->ctx.process->control;
    control_lock(c);
    task->state = state;
    control_notify(c);
    control_unlock(c);
}

bool task_has(struct task *task, enum task_state at_least)
{
    struct control *c = &task->ctx.process->control;
    control_lock(c);
    bool has = task->state >= at_least;
    control_unlock(c);
    return has;
}

/* ---- what a return value means ---- */

/* The last failed call of the rank, of any thread, is the reason if the workload has not gone on
 * since; no matter what it returns. */
static void task_store_reason(struct task *task)
{
    error_last_of_rank(control_has(&task->ctx.process->control, CONTROL_ABORT), &task->why);
    snprintf(task->group, sizeof task->group, "%s", task->why.group);
    task->number = task->why.number;
}

/* The status of another rank's failure, if that can be why this thread failed. Else 0: a rank that
 * has not noticed the other's failure fails on its own, even if ABORT has arrived. */
static int task_peer_failure(const struct task *task)
{
    int why = task->why.status;
    if (why == COLLRUN_ERR_PEER_FAILED || why == COLLRUN_ERR_ABORTED)
        return why;
    return atomic_load(&task->ctx.process->disturbed) &&
                   control_has(&task->ctx.process->control, CONTROL_ABORT)
               ? task->ctx.process->control.abort_reason.code
               : 0;
}

/* run returned a status: exit code 1, with the error message of that status. */
static void task_fail_with_status(struct task *task, int status)
{
    const struct error_record *last = error_get();
    task->exit_code = 1;
    if (last->status == status) { /* however long ago that was */
        snprintf(task->group, sizeof task->group, "%s", last->group);
        task->number = last->number;
    }
    if (task->fail_text[0] || last->status == status)
        task->failure_subject = WIRE_SUBJECT_RANK;
    if (task->fail_text[0])
        diag_set(&task->failure, status, "%s", task->fail_text);
    else if (last->status == status)
        diag_set(&task->failure, status, "%s", last->text);
    else
        diag_set(&task->failure, status, "workload \"%s\" returned %d (%s)", task->ctx.desc->name,
                 status, status_text(status));
}

/* An exit code of the workload; `where` NULL: of the program. Its diag's code is that number:
 * positive, unlike any status. A call that failed before may be the cause, or the workload may have
 * handled it: it is only a hint. */
static void task_fail_with_code(struct task *task, int code, const char *where)
{
    const struct error_record *last = error_get();
    int why = task_peer_failure(task);
    task->exit_code = code;
    if (task->fail_text[0])
        task->failure_subject = WIRE_SUBJECT_RANK;
    if (task->fail_text[0])
        diag_set(&task->failure, why ? why : code, "%s", task->fail_text);
    else if (where)
        diag_set(&task->failure, why ? why : code, "workload \"%s\" returned %d from %s",
                 task->ctx.desc->name, code, where);
    else
        diag_set(&task->failure, why ? why : code, "program \"%s\" exited with code %d",
                 task->ctx.desc->name, code);
    if (last->status && !task->fail_text[0] && !error_is_past())
        diag_hint(&task->failure, "the last failed call: %s", last->text);
}

static void task_fail(struct task *task, uint32_t phase, int result)
{
    const char *where = phase == WIRE_PHASE_INIT ? "init" : "run";
    task_store_reason(task);
    task->failure_subject = WIRE_SUBJECT_WORKLOAD;
    if (result == 0) {
        task->exit_code = 1;
        diag_set(&task->failure, COLLRUN_ERR_INVALID, "%s", task->misuse);
    } else if (result < 0 && result >= COLLRUN_ERR_SYSTEM) {
        task_fail_with_status(task, result);
    } else if (result > 0 && result <= EXIT_LARGEST_OF_RANK) {
        task_fail_with_code(task, result, where);
    } else {
        task->exit_code = 1;
        diag_set(&task->failure, COLLRUN_ERR_INVALID,
                 "workload \"%s\" returned %d from %s, which is neither 0..%d nor a status",
                 task->ctx.desc->name, result, where, EXIT_LARGEST_OF_RANK);
    }
    task->failure.loc = task->ctx.desc->loc;
    task->failure.rank = (int)task->ctx.process->rank;
    task->phase = phase;
    task_set_state(task, TASK_FAILED);
}

/* A stopped background workload may end with the failure of an operation that cannot finish any
 * more. */
static bool task_may_fail(const struct task *task, int result)
{
    return task->ctx.desc->background &&
           control_has(&task->ctx.process->control, CONTROL_STOP_BACKGROUND) &&
           (result == COLLRUN_ERR_ABORTED || result == COLLRUN_ERR_PEER_FAILED);
}

/* ---- programs ---- */

int task_adopt(struct task *task, struct engine *e, struct diag *d)
{
    const struct desc *desc = &e->process.desc;
    uint32_t i = 0;
    while (i < desc->nworkloads &&
           (*desc->workloads[i].plugin ||
            desc_ranks_find(&desc->workloads[i].ranks, e->process.rank) < 0))
        i++;
    if (i == desc->nworkloads)
        return diag_set(d, COLLRUN_ERR_INVALID, "rank %u runs no command", e->process.rank);
    *task = (struct task){.ctx = task_context(e, i), .phase = WIRE_PHASE_RUN};
    diag_init(&task->failure);
    pthread_mutex_init(&task->report_lock, NULL);
    return COLLRUN_OK;
}

void task_fail_at_exit(struct task *task, int code)
{
    task_store_reason(task);
    task->failure_subject = WIRE_SUBJECT_WORKLOAD;
    if (!task->fail_text[0] && task->why.status) {
        task->failure_subject = WIRE_SUBJECT_RANK;
        diag_set(&task->failure, task->why.status, "%s", task->why.text);
    } else {
        task_fail_with_code(task, code, NULL);
    }
    task->exit_code = code;
    task->failure.loc = task->ctx.desc->loc;
    task->failure.rank = (int)task->ctx.process->rank;
}

/* ---- the thread ---- */

static void task_call_fini(struct task *task, void *state)
{
    struct record_head *record = task->ctx.process->record;
    const uint64_t bit = task->ctx.index < 64 ? UINT64_C(1) << task->ctx.index : 0;
    if (!task->plugin.fini)
        return;
    if (record) {
        atomic_store_explicit(&record->fini_since_ns, now_ns(), memory_order_relaxed);
        atomic_fetch_or(&record->in_fini, bit); /* releases the time */
    }
    task->plugin.fini(&task->ctx, state);
    if (record)
        atomic_fetch_and(&record->in_fini, ~bit);
}

static void task_run(struct task *task, void *state)
{
    struct control *c = &task->ctx.process->control;
    control_lock(c);
    task->state = TASK_RUNNING;
    task->started_ns = now_ns();
    task->stopped_ns = standstill_total(task->started_ns);
    control_notify(c);
    control_unlock(c);
    int result = task->plugin.run(&task->ctx, state);
    bool good = (result == 0 && !task->misuse[0]) || task_may_fail(task, result);
    if (!good)
        task_fail(task, WIRE_PHASE_RUN, result);
    task_call_fini(task, state);
    task_set_state(task, good ? TASK_ENDED : TASK_OVER);
}

/* A workload must not end its thread: the job would wait for it forever. */
static void task_thread_left(void *arg)
{
    struct task *task = arg;
    task->exit_code = 1;
    diag_set(&task->failure, COLLRUN_ERR_INVALID, "workload \"%s\" terminated its thread",
             task->ctx.desc->name);
    diag_hint(&task->failure, "a workload ends by returning from run, not by pthread_exit()");
    task->failure.loc = task->ctx.desc->loc;
    task->failure_subject = WIRE_SUBJECT_WORKLOAD;
    task->phase = WIRE_PHASE_RUN;
    task_set_state(task, TASK_OVER);
}

static void task_life(struct task *task)
{
    struct control *c = &task->ctx.process->control;
    void *state = NULL;
    int result = task->plugin.init ? task->plugin.init(&task->ctx, &state) : 0;
    if (result != 0 || task->misuse[0]) {
        task_fail(task, WIRE_PHASE_INIT, result);
        task_set_state(task, TASK_OVER);
        return;
    }
    task_set_state(task, TASK_READY);
    control_wait(c, CONTROL_GO | CONTROL_ABORT, UINT64_MAX);
    /* After GO every workload runs, even if one has failed by now. */
    if (!control_has(c, CONTROL_GO)) {
        task_call_fini(task, state);
        task_set_state(task, TASK_ENDED);
        return;
    }
    task_run(task, state);
}

/* pthread_cleanup_push nests. NOLINTNEXTLINE(readability-function-size) */
static void *task_main(void *arg)
{
    struct task *task = arg;
    thread_context = &task->ctx;
    crash_thread(task->ctx.index + 1);
    pthread_cleanup_push(task_thread_left, task);
    task_life(task);
    pthread_cleanup_pop(0);
    return NULL;
}

bool task_start(struct task *task)
{
    struct control *c = &task->ctx.process->control;
    task->state = TASK_IN_INIT;
    int rc = pthread_create(&task->thread, NULL, task_main, task);
    if (rc != 0) {
        diag_sys(&task->failure, rc, "start a thread for workload \"%s\"", task->ctx.desc->name);
        diag_hint_processes(&task->failure);
        task->exit_code = 1;
        task->state = TASK_OVER;
        return false;
    }
    task->has_thread = true;
    control_lock(c);
    while (task->state == TASK_IN_INIT && !control_has(c, CONTROL_ABORT))
        control_wait_change(c, UINT64_MAX);
    bool ready = task->state != TASK_IN_INIT && task->state < TASK_FAILED;
    control_unlock(c);
    return ready;
}

void task_misused(const struct collrun_ctx *ctx, const char *format, ...)
{
    struct task *task = task_of(ctx);
    char text[sizeof task->misuse];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    control_log(&ctx->process->control, COLLRUN_LOG_ERROR, text);
    pthread_mutex_lock(&task->report_lock);
    if (!task->misuse[0])
        memcpy(task->misuse, text, sizeof text);
    pthread_mutex_unlock(&task->report_lock);
}

void task_join(struct task *task)
{
    if (task->has_thread)
        pthread_join(task->thread, NULL);
    task->has_thread = false;
}
