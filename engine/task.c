/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of a workload in its thread.
 */
#include "task.h"

#include "base/loop.h"
#include "control.h"
#include "crash.h"
#include "engine.h"
#include "error.h"
#include "plugin.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LARGEST_EXIT_CODE = 119, LOAD_EXIT_CODE = 126 };

_Thread_local const struct collrun_ctx *task_current;

int task_load(struct collrun_ctx *task, struct engine *e, uint32_t index, struct diag *d)
{
    const struct desc_workload *w = &e->desc.workloads[index];
    const struct desc_rank *me = &e->desc.ranks[e->rank];
    struct template_values values = {.rank = e->rank,
                                     .local_rank = me->local_rank,
                                     .attempt = e->attempt,
                                     .host = e->desc.hosts[me->host].name,
                                     .run_id = e->desc.run_id};
    *task =
        (struct collrun_ctx){.engine = e, .index = index, .desc = w, .exit_code = LOAD_EXIT_CODE};
    diag_init(&task->failure);
    pthread_mutex_init(&task->words_lock, NULL);
    int rc = plugin_open_workload(w->plugin, &task->plugin, d);
    if (rc == COLLRUN_OK)
        rc = params_check_table(task->plugin.params, w->plugin, d);
    if (rc == COLLRUN_OK)
        rc = params_parse(&task->params, task->plugin.params, w, &values, &e->arena, d);
    if (rc != COLLRUN_OK && d->loc.line == 0)
        d->loc = w->loc;
    return rc;
}

static void set_state(struct collrun_ctx *task, enum task_state state)
{
    struct control *c = &task->engine->control;
    control_lock(c);
    task->state = state;
    control_notify(c);
    control_unlock(c);
}

bool task_has(struct collrun_ctx *task, enum task_state at_least)
{
    struct control *c = &task->engine->control;
    control_lock(c);
    bool has = task->state >= at_least;
    control_unlock(c);
    return has;
}

/* ---- what a return value means ---- */

static void remember_operation(struct collrun_ctx *task)
{
    const struct error_record *last = error_get();
    snprintf(task->group, sizeof task->group, "%s", last->group);
    task->number = last->number;
}

/* Did this thread fail because somebody else did? Then that is the cause, whatever the workload
 * makes of it. */
static int consequence(const struct collrun_ctx *task)
{
    int last = error_get()->status;
    if (last == COLLRUN_ERR_PEER_FAILED || last == COLLRUN_ERR_ABORTED)
        return last;
    return control_has(&task->engine->control, CONTROL_ABORT)
               ? task->engine->control.abort_reason.code
               : 0;
}

/* A status: 1, with the sentence that goes with it. */
static void fail_with_status(struct collrun_ctx *task, int status)
{
    const struct error_record *last = error_get();
    task->exit_code = 1;
    if (task->said[0])
        diag_set(&task->failure, status, "%s", task->said);
    else if (last->status == status)
        diag_set(&task->failure, status, "%s", last->text);
    else
        diag_set(&task->failure, status, "workload \"%s\" returned %d (%s)", task->desc->name,
                 status, collrun_strstatus(status));
}

/* An exit code of the workload's own. Its diag's code is that number: positive, unlike any status.
 * A call that failed before may be why, or may have been dealt with long ago: it is only a hint. */
static void fail_with_code(struct collrun_ctx *task, int code, const char *where)
{
    const struct error_record *last = error_get();
    int why = consequence(task);
    task->exit_code = code;
    if (task->said[0])
        diag_set(&task->failure, why ? why : code, "%s", task->said);
    else
        diag_set(&task->failure, why ? why : code, "workload \"%s\" returned %d from %s",
                 task->desc->name, code, where);
    if (last->status && !task->said[0])
        diag_hint(&task->failure, "its last call that failed: %s", last->text);
}

static void fail(struct collrun_ctx *task, uint32_t phase, int result)
{
    const char *where = phase == WIRE_PHASE_INIT ? "init" : "run";
    remember_operation(task);
    if (result == 0) {
        task->exit_code = 1;
        diag_set(&task->failure, COLLRUN_ERR_INVALID, "%s", task->misuse);
    } else if (result < 0 && result >= COLLRUN_ERR_SYSTEM) {
        fail_with_status(task, result);
    } else if (result > 0 && result <= LARGEST_EXIT_CODE) {
        fail_with_code(task, result, where);
    } else {
        task->exit_code = 1;
        diag_set(&task->failure, COLLRUN_ERR_INVALID,
                 "workload \"%s\" returned %d from %s, which is neither 0..%d nor a status",
                 task->desc->name, result, where, LARGEST_EXIT_CODE);
    }
    task->failure.loc = task->desc->loc;
    task->failure.rank = (int)task->engine->rank;
    task->phase = phase;
    set_state(task, TASK_FAILED);
}

/* A background workload that was asked to stop may stop by an operation that cannot finish any
 * more. */
static bool is_excused(const struct collrun_ctx *task, int result)
{
    return task->desc->background && control_has(&task->engine->control, CONTROL_STOP_BACKGROUND) &&
           (result == COLLRUN_ERR_ABORTED || result == COLLRUN_ERR_PEER_FAILED);
}

/* ---- the thread ---- */

static void run(struct collrun_ctx *task, void *state)
{
    struct control *c = &task->engine->control;
    control_lock(c);
    task->state = TASK_RUNNING;
    task->started_ns = now_ns();
    control_notify(c);
    control_unlock(c);
    int result = task->plugin.run(task, state);
    bool good = (result == 0 && !task->misuse[0]) || is_excused(task, result);
    if (!good)
        fail(task, WIRE_PHASE_RUN, result);
    if (task->plugin.fini)
        task->plugin.fini(task, state);
    set_state(task, good ? TASK_ENDED : TASK_BURIED);
}

/* A workload's thread is not the workload's to end: nobody would ever hear of it. */
static void left_thread(void *arg)
{
    struct collrun_ctx *task = arg;
    task->exit_code = 1;
    diag_set(&task->failure, COLLRUN_ERR_INVALID, "workload \"%s\" ended its thread",
             task->desc->name);
    diag_hint(&task->failure, "a workload ends by returning from run, not by pthread_exit()");
    task->failure.loc = task->desc->loc;
    task->phase = WIRE_PHASE_RUN;
    set_state(task, TASK_BURIED);
}

static void act(struct collrun_ctx *task)
{
    struct control *c = &task->engine->control;
    void *state = NULL;
    int result = task->plugin.init ? task->plugin.init(task, &state) : 0;
    if (result != 0 || task->misuse[0]) {
        fail(task, WIRE_PHASE_INIT, result);
        set_state(task, TASK_BURIED);
        return;
    }
    set_state(task, TASK_READY);
    control_wait(c, CONTROL_GO | CONTROL_ABORT, UINT64_MAX);
    /* Once everybody was told to run, everybody runs, even if the first of them has failed by now.
     */
    if (!control_has(c, CONTROL_GO)) {
        if (task->plugin.fini)
            task->plugin.fini(task, state);
        set_state(task, TASK_ENDED);
        return;
    }
    run(task, state);
}

static void *live(void *arg)
{
    struct collrun_ctx *task = arg;
    task_current = task;
    crash_thread();
    pthread_cleanup_push(left_thread, task);
    act(task);
    pthread_cleanup_pop(0);
    return NULL;
}

bool task_start(struct collrun_ctx *task)
{
    struct control *c = &task->engine->control;
    task->state = TASK_IN_INIT;
    int rc = pthread_create(&task->thread, NULL, live, task);
    if (rc != 0) {
        diag_sys(&task->failure, rc, "start a thread for workload \"%s\"", task->desc->name);
        task->exit_code = 1;
        task->state = TASK_BURIED;
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

void task_misused(const struct collrun_ctx *task, const char *format, ...)
{
    struct collrun_ctx *t =
        (struct collrun_ctx *)(uintptr_t)task; /* the words are not part of what `const` promises */
    char text[sizeof t->misuse];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    control_log(&t->engine->control, COLLRUN_LOG_ERROR, text);
    pthread_mutex_lock(&t->words_lock);
    if (!t->misuse[0])
        memcpy(t->misuse, text, sizeof text);
    pthread_mutex_unlock(&t->words_lock);
}

void task_join(struct collrun_ctx *task)
{
    if (task->has_thread)
        pthread_join(task->thread, NULL);
    task->has_thread = false;
}
