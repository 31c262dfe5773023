/* SPDX-License-Identifier: Apache-2.0
 *
 * The main thread. It alone decides how the process ends: 0; a workload's own exit code; 1 for a
 * failed operation; 124 for a time-out; 125 for what should not happen; 126 for a plugin or backend
 * that cannot be loaded.
 */
#include "attach.h"

#include "backend.h"
#include "base/loop.h"
#include "base/parse.h"
#include "crash.h"
#include "engine.h"
#include "group.h"
#include "task.h"

#include <collrun/collrun.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_FAILED = 1, EXIT_TIMEOUT = 124, EXIT_INTERNAL = 125, EXIT_LOAD = 126 };

/* ---- ending badly ---- */

/* Other threads may be anywhere, so no destructors run; what was printed still goes out, unless
 * somebody holds stdout. */
_Noreturn static void leave(int code)
{
    FILE *streams[2] = {stdout, stderr};
    for (int i = 0; i < 2; i++) {
        if (ftrylockfile(streams[i]) == 0) {
            fflush_unlocked(streams[i]);
            funlockfile(streams[i]);
        }
    }
    _exit(code);
}

struct blame {
    uint32_t workload; /* index in the desc, or UINT32_MAX */
    uint32_t phase;
    const char *group; /* "" = none */
    uint64_t number;
};

static void send_failed(struct engine *e, const struct blame *where, const struct diag *d)
{
    size_t mark;
    struct buf *out = control_begin(&e->control, WIRE_FAILED, &mark);
    buf_put_u32(out, where->workload);
    buf_put_u32(out, where->phase);
    buf_put_str(out, where->group);
    buf_put_u64(out, where->number);
    wire_put_diag(out, d);
    control_end(&e->control, mark);
}

_Noreturn static void fail(struct engine *e, const struct blame *where, struct diag *d, int code)
{
    if (d->rank < 0)
        d->rank = (int)e->rank;
    send_failed(e, where, d);
    leave(code);
}

/* The runner hears of it at once; then the workload's fini gets its time. */
_Noreturn static void fail_task(struct engine *e, struct collrun_ctx *task)
{
    struct blame where = {.workload = task->index,
                          .phase = task->phase,
                          .group = task->group,
                          .number = task->number};
    if (task->failure.rank < 0)
        task->failure.rank = (int)e->rank;
    send_failed(e, &where, &task->failure);
    uint64_t deadline = now_ns() + e->desc.grace_ns;
    control_lock(&e->control);
    while (task->state != TASK_BURIED && now_ns() < deadline)
        control_wait_change(&e->control, deadline);
    bool buried = task->state == TASK_BURIED;
    control_unlock(&e->control);
    if (buried)
        task_join(task);
    leave(task->exit_code);
}

/* The job failed elsewhere; nothing of this rank's is worth telling. */
_Noreturn static void leave_aborted(void)
{
    leave(EXIT_FAILED);
}

/* How long workloads may go on once the job has failed. After the grace time the agent ends those
 * that do; this process does so by itself only if nobody comes. */
static uint64_t abort_patience(const struct engine *e)
{
    return e->desc.grace_ns + 1000000000u;
}

/* ---- WELCOME ---- */

static int read_welcome(struct engine *e, const struct wire_frame *f, struct diag *d)
{
    struct reader r;
    size_t len;
    reader_init(&r, f->payload, f->len);
    e->rank = read_u32(&r);
    e->attempt = read_u32(&r);
    e->host = read_u32(&r);
    e->address = read_str(&r, &e->arena);
    e->interface = read_str(&r, &e->arena);
    e->ncpus = read_u32(&r);
    const void *desc = read_blob(&r, &len);
    if (!reader_done(&r))
        return diag_set(d, COLLRUN_ERR_INVALID, "a WELCOME that cannot be read");
    int rc = desc_decode(&e->arena, &e->desc, desc, len, d);
    if (rc == COLLRUN_OK && (e->rank >= e->desc.nranks || e->host >= e->desc.nhosts))
        rc = diag_set(d, COLLRUN_ERR_INVALID, "a WELCOME for rank %u of %u", e->rank,
                      e->desc.nranks);
    e->ngpus = rc == COLLRUN_OK ? e->desc.ranks[e->rank].ngpus : 0;
    e->control.rank = e->rank;
    e->control.attempt = e->attempt;
    return rc;
}

static void on_lost(void *ctx, uint32_t rank, const char *sentence)
{
    group_abort_with(ctx, rank, COLLRUN_ERR_PEER_FAILED, sentence);
}

static void on_abort(void *ctx)
{
    struct engine *e = ctx;
    group_abort_all(e, e->control.abort_reason.code, e->control.abort_reason.text);
}

static void on_look(void *ctx)
{
    waits_look(ctx);
}

/* Nothing can be told to anybody but whoever reads stderr. */
_Noreturn static void fail_alone(const struct diag *d)
{
    fprintf(stderr, "collrun-engine: %s\n", d->text);
    exit(EXIT_INTERNAL);
}

static void greet(struct engine *e)
{
    struct diag d;
    struct wire_frame welcome;
    const struct control_hooks hooks = {
        .abort = on_abort, .lost = on_lost, .look = on_look, .look_ms = WAITS_LOOK_MS, .ctx = e};
    diag_init(&d);
    arena_init(&e->arena);
    registry_init(&e->registry);
    pthread_mutex_init(&e->groups_lock, NULL);
    e->record = record_map(RECORD_FD);
    if (e->record)
        close(RECORD_FD);
    if (control_open(&e->control, WIRE_CONTROL_FD, WIRE_WELCOME, &welcome, &d) != COLLRUN_OK)
        fail_alone(&d);
    if (read_welcome(e, &welcome, &d) != COLLRUN_OK ||
        control_start(&e->control, hooks, &d) != COLLRUN_OK)
        fail(e, &(struct blame){.workload = UINT32_MAX, .group = ""}, &d, EXIT_INTERNAL);
    crash_install(e->rank);
}

/* ---- loading ---- */

static bool has_rank(const struct desc_ranks *ranks, uint32_t rank)
{
    return group_rank_in(ranks, rank) >= 0;
}

static void load_tasks(struct engine *e)
{
    struct diag d;
    diag_init(&d);
    e->tasks = arena_calloc(&e->arena, e->desc.nworkloads, sizeof *e->tasks);
    struct blame where = {.workload = UINT32_MAX, .phase = WIRE_PHASE_LOAD, .group = ""};
    if (!e->tasks) {
        diag_set(&d, COLLRUN_ERR_NO_MEMORY, "out of memory for %u workloads", e->desc.nworkloads);
        fail(e, &where, &d, EXIT_INTERNAL);
    }
    for (uint32_t i = 0; i < e->desc.nworkloads; i++) {
        where.workload = i;
        if (!has_rank(&e->desc.workloads[i].ranks, e->rank))
            continue;
        if (task_load(&e->tasks[e->ntasks], e, i, &d) != COLLRUN_OK)
            fail(e, &where, &d, EXIT_LOAD);
        e->ntasks++;
    }
}

static void send_attached(struct engine *e)
{
    size_t mark;
    struct buf *out = control_begin(&e->control, WIRE_ATTACHED, &mark);
    buf_put_u32(out, (uint32_t)getpid());
    control_end(&e->control, mark);
}

/* ---- groups ---- */

static void form_group(struct engine *e, uint32_t index)
{
    const struct desc_group *group = &e->desc.groups[index];
    const struct desc_backend *wanted = &e->desc.backends[group->backend];
    struct blame where = {.workload = UINT32_MAX, .phase = WIRE_PHASE_GROUPS, .group = group->name};
    struct collrun_group *out;
    struct diag d;
    struct group_spec spec = {.name = group->name,
                              .members = &group->ranks,
                              .timeout_ns = group->timeout_ns,
                              .check = (enum collrun_check)group->check,
                              .options = &group->options,
                              .index = index,
                              .gpus_per_process = group->gpus_per_process};
    diag_init(&d);
    if (registry_get(e, wanted->name, &spec.backend, &d) != COLLRUN_OK)
        fail(e, &where, &d, EXIT_LOAD);
    if (group->cuda_backend && registry_get(e, e->desc.backends[group->cuda_backend - 1].name,
                                            &spec.cuda_backend, &d) != COLLRUN_OK)
        fail(e, &where, &d, EXIT_LOAD);
    if (group_open(e, &spec, &out, &d) == COLLRUN_OK)
        return;
    if (d.loc.line == 0)
        d.loc = group->loc;
    fail(e, &where, &d, d.code == COLLRUN_ERR_TIMEOUT ? EXIT_TIMEOUT : EXIT_FAILED);
}

/* In file order, on every rank, so that two groups never wait for each other. */
static void form_groups(struct engine *e)
{
    for (uint32_t i = 0; i < e->desc.ngroups; i++) {
        if (has_rank(&e->desc.groups[i].ranks, e->rank))
            form_group(e, i);
    }
}

/* Groups end in the opposite order. */
static void close_groups(struct engine *e)
{
    while (e->groups)
        group_close(e->groups);
    group_forget_all(e);
    while (e->generations) {
        struct generation *next = e->generations->after;
        free(e->generations->name);
        free(e->generations);
        e->generations = next;
    }
}

/* ---- workloads ---- */

static void start_tasks(struct engine *e)
{
    for (uint32_t i = 0; i < e->ntasks; i++) {
        if (task_start(&e->tasks[i]))
            continue;
        if (task_has(&e->tasks[i], TASK_FAILED))
            fail_task(e, &e->tasks[i]);
        /* The job failed while init ran: it gets the time that a running workload gets. */
        uint64_t deadline = now_ns() + abort_patience(e);
        control_lock(&e->control);
        while (e->tasks[i].state == TASK_IN_INIT && now_ns() < deadline)
            control_wait_change(&e->control, deadline);
        control_unlock(&e->control);
        if (task_has(&e->tasks[i], TASK_FAILED))
            fail_task(e, &e->tasks[i]);
        leave_aborted();
    }
}

/* With the control's lock. The first that failed; NULL. */
static struct collrun_ctx *failed_task(struct engine *e)
{
    for (uint32_t i = 0; i < e->ntasks; i++) {
        if (e->tasks[i].state >= TASK_FAILED)
            return &e->tasks[i];
    }
    return NULL;
}

static bool has_ended(const struct engine *e, bool background)
{
    for (uint32_t i = 0; i < e->ntasks; i++) {
        if (e->tasks[i].desc->background == background && e->tasks[i].state < TASK_ENDED)
            return false;
    }
    return true;
}

/* The running workload whose time-out comes first, and when; NULL if none has one. */
static struct collrun_ctx *next_timeout(struct engine *e, uint64_t *at)
{
    struct collrun_ctx *first = NULL;
    for (uint32_t i = 0; i < e->ntasks; i++) {
        struct collrun_ctx *t = &e->tasks[i];
        uint64_t limit = t->desc->timeout_ns;
        if (t->state != TASK_RUNNING || !limit || limit > UINT64_MAX - t->started_ns ||
            t->started_ns + limit >= *at)
            continue;
        first = t;
        *at = t->started_ns + limit;
    }
    return first;
}

_Noreturn static void fail_timeout(struct engine *e, struct collrun_ctx *task)
{
    char limit[32];
    struct diag d;
    struct blame where = {.workload = task->index, .phase = WIRE_PHASE_RUN, .group = ""};
    diag_init(&d);
    diag_set(&d, COLLRUN_ERR_TIMEOUT, "workload \"%s\" ran longer than its time-out, %s",
             task->desc->name, format_duration(task->desc->timeout_ns, limit));
    d.loc = task->desc->loc;
    fail(e, &where, &d, EXIT_TIMEOUT);
}

/* Waits until the tasks of one sort have ended or the deadline passes; ends the process if one
 * fails. False: the deadline. */
static bool wait_for_tasks(struct engine *e, bool background, uint64_t deadline)
{
    struct control *c = &e->control;
    uint64_t aborted_at = 0;
    control_lock(c);
    while (!has_ended(e, background)) {
        uint64_t now = now_ns(), until = deadline;
        if (control_has(c, CONTROL_ABORT) && !aborted_at)
            aborted_at = now;
        if (aborted_at && now >= aborted_at + abort_patience(e))
            leave_aborted();
        until = aborted_at && aborted_at + abort_patience(e) < until
                    ? aborted_at + abort_patience(e)
                    : until;
        struct collrun_ctx *failed = failed_task(e), *slow = next_timeout(e, &until);
        bool over = now >= until;
        if (failed || over)
            control_unlock(c);
        if (failed)
            fail_task(e, failed);
        if (over && slow)
            fail_timeout(e, slow);
        if (over)
            return false;
        control_wait_change(c, until);
    }
    struct collrun_ctx *failed = failed_task(e);
    control_unlock(c);
    if (failed)
        fail_task(e, failed);
    return true;
}

static void join_tasks(struct engine *e)
{
    for (uint32_t i = 0; i < e->ntasks; i++)
        task_join(&e->tasks[i]);
}

/* Waits for the runner's word; a background workload may fail meanwhile. */
static void wait_for_word(struct engine *e, unsigned event)
{
    struct control *c = &e->control;
    control_lock(c);
    while (!control_has(c, event | CONTROL_ABORT) && !failed_task(e))
        control_wait_change(c, UINT64_MAX);
    struct collrun_ctx *failed = failed_task(e);
    control_unlock(c);
    if (failed)
        fail_task(e, failed);
    if (control_has(c, CONTROL_ABORT)) {
        wait_for_tasks(e, false, UINT64_MAX); /* for the grace, at most */
        wait_for_tasks(e, true, UINT64_MAX);
        join_tasks(e);
        leave_aborted();
    }
}

/* Those that sit in an operation which nobody will finish are thrown out of it after half of the
 * grace. */
static void stop_background(struct engine *e)
{
    struct diag d;
    diag_init(&d);
    if (wait_for_tasks(e, true, now_ns() + e->desc.grace_ns / 2))
        return;
    group_abort_all(e, COLLRUN_ERR_ABORTED, "the job is over");
    if (wait_for_tasks(e, true, now_ns() + e->desc.grace_ns / 2))
        return;
    struct blame where = {.workload = UINT32_MAX, .phase = WIRE_PHASE_RUN, .group = ""};
    diag_set(&d, COLLRUN_ERR_TIMEOUT, "a background workload did not stop");
    for (uint32_t i = 0; i < e->ntasks; i++) {
        char grace[32];
        if (!e->tasks[i].desc->background || task_has(&e->tasks[i], TASK_ENDED))
            continue;
        where.workload = e->tasks[i].index;
        diag_set(&d, COLLRUN_ERR_TIMEOUT, "background workload \"%s\" did not stop within %s",
                 e->tasks[i].desc->name, format_duration(e->desc.grace_ns, grace));
        diag_hint(&d, "it should return soon after collrun_stopping() becomes true");
        d.loc = e->tasks[i].desc->loc;
        break;
    }
    fail(e, &where, &d, EXIT_TIMEOUT);
}

/* ---- the story ---- */

int attach_run(void)
{
    static struct engine engine;
    struct engine *e = &engine;
    setvbuf(stdout, NULL, _IOLBF, 0);
    greet(e);
    load_tasks(e);
    send_attached(e);
    form_groups(e);
    start_tasks(e);
    control_send(&e->control, WIRE_READY);
    wait_for_word(e, CONTROL_GO);
    wait_for_tasks(e, false, UINT64_MAX);
    control_send(&e->control, WIRE_DONE);
    wait_for_word(e, CONTROL_STOP_BACKGROUND);
    stop_background(e);
    control_send(&e->control, WIRE_IDLE);
    wait_for_word(e, CONTROL_FINISH);
    join_tasks(e);
    close_groups(e);
    registry_fini(&e->registry);
    control_close(&e->control);
    arena_fini(&e->arena);
    return 0;
}
