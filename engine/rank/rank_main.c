/* SPDX-License-Identifier: Apache-2.0
 *
 * The main thread. It alone ends the process: with 0; the exit code of a workload; 1 for a failed
 * operation; 124 for a time-out; 125 for an internal error; 126 for a plugin or backend that cannot
 * be loaded.
 */
#include "rank/rank_main.h"

#include "base/exit_codes.h"
#include "base/hostmem.h"
#include "base/loop.h"
#include "base/parse.h"
#include "base/standstill.h"
#include "build_id.h"
#include "group/group.h"
#include "rank/crash.h"
#include "rank/describe.h"
#include "rank/engine.h"
#include "rank/task.h"

#include <collrun/collrun.h>
#include <collrun/types.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- failing ---- */

/* Other threads may be in any state, so destructors do not run. Buffered output is still written,
 * unless another thread holds the stream's lock. */
_Noreturn static void rank_leave(int code)
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

_Noreturn static void rank_fail(struct engine *e, struct engine_failure *f)
{
    engine_send_failed(e, f);
    rank_leave(f->exit_code);
}

/* A limit of this rank has passed: its threads are where they hang until ABORT comes, after the
 * runner has looked at them. */
_Noreturn static void rank_fail_late(struct engine *e, struct engine_failure *f)
{
    enum { LOOK_S = 3 };
    engine_send_failed(e, f);
    control_wait(&e->process.control, CONTROL_ABORT, now_ns() + LOOK_S * UINT64_C(1000000000));
    rank_leave(f->exit_code);
}

/* Reports the failure first; then the workload's fini may use the grace time. */
_Noreturn static void rank_fail_task(struct engine *e, struct task *task)
{
    engine_send_task_failed(e, task);
    uint64_t deadline = now_ns() + e->process.desc.grace_ns;
    control_lock(&e->process.control);
    while (task->state != TASK_OVER && now_ns() < deadline)
        control_wait_change(&e->process.control, deadline);
    bool over = task->state == TASK_OVER;
    control_unlock(&e->process.control);
    if (over)
        task_join(task);
    rank_leave(task->exit_code);
}

/* The job failed on another rank, so this rank reports nothing. */
_Noreturn static void rank_leave_aborted(struct engine *e)
{
    process_set_disturbed(&e->process);
    rank_leave(EXIT_FAILED);
}

/* How long workloads may continue after the job has failed. The agent kills them after the grace
 * time; this process exits a second later if the agent does not. */
static uint64_t rank_abort_wait_ns(const struct engine *e)
{
    return e->process.desc.grace_ns + 1000000000u;
}

/* ---- WELCOME ---- */

/* Without a control connection, stderr is the only place for an error. */
_Noreturn static void rank_fail_alone(const struct diag *d)
{
    fprintf(stderr, "collrun-engine: %s\n", d->text);
    exit(EXIT_INTERNAL);
}

static void rank_connect_agent(struct engine *e)
{
    static const struct engine_sockets fds = {WIRE_CONTROL_FD, RECORD_FD, HOSTMEM_FD};
    struct engine_failure f;
    engine_failure_init(&f, WIRE_PHASE_LOAD);
    if (engine_connect(e, &fds, &f) == COLLRUN_OK && engine_serve(e, &f) == COLLRUN_OK)
        return;
    if (!e->connected)
        rank_fail_alone(&f.diag);
    rank_fail(e, &f);
}

/* ---- loading ---- */

static void rank_load_tasks(struct engine *e)
{
    struct engine_failure f;
    engine_failure_init(&f, WIRE_PHASE_LOAD);
    e->tasks = arena_calloc(&e->process.arena, e->process.desc.nworkloads, sizeof *e->tasks);
    if (!e->tasks) {
        diag_set(&f.diag, COLLRUN_ERR_NO_MEMORY, "out of memory for %u workloads",
                 e->process.desc.nworkloads);
        rank_fail(e, &f);
    }
    for (uint32_t i = 0; i < e->process.desc.nworkloads; i++) {
        if (desc_ranks_find(&e->process.desc.workloads[i].ranks, e->process.rank) < 0)
            continue;
        if (task_load(&e->tasks[e->ntasks], e, i, &f.diag) != COLLRUN_OK) {
            f.workload = i;
            f.subject = e->tasks[e->ntasks].failure_subject;
            f.exit_code = EXIT_LOAD;
            rank_fail(e, &f);
        }
        e->ntasks++;
    }
}

/* ---- groups ---- */

static void rank_form_groups(struct engine *e)
{
    struct engine_failure f;
    engine_failure_init(&f, WIRE_PHASE_GROUPS);
    if (engine_form_groups(e, &f) != COLLRUN_OK)
        rank_fail(e, &f);
}

static void rank_close_groups(struct engine *e)
{
    engine_close_groups(e);
    group_table_fini(&e->groups);
}

/* ---- workloads ---- */

static void rank_start_tasks(struct engine *e)
{
    for (uint32_t i = 0; i < e->ntasks; i++) {
        if (task_start(&e->tasks[i]))
            continue;
        if (task_has(&e->tasks[i], TASK_FAILED))
            rank_fail_task(e, &e->tasks[i]);
        /* The job failed during init, which gets as much time as a running workload. */
        uint64_t deadline = now_ns() + rank_abort_wait_ns(e);
        control_lock(&e->process.control);
        while (e->tasks[i].state == TASK_IN_INIT && now_ns() < deadline)
            control_wait_change(&e->process.control, deadline);
        control_unlock(&e->process.control);
        if (task_has(&e->tasks[i], TASK_FAILED))
            rank_fail_task(e, &e->tasks[i]);
        rank_leave_aborted(e);
    }
}

/* With the control's lock. The first that failed; NULL. */
static struct task *rank_failed_task(struct engine *e)
{
    for (uint32_t i = 0; i < e->ntasks; i++) {
        if (e->tasks[i].state >= TASK_FAILED)
            return &e->tasks[i];
    }
    return NULL;
}

static bool rank_has_ended(const struct engine *e, bool background)
{
    for (uint32_t i = 0; i < e->ntasks; i++) {
        if (e->tasks[i].ctx.desc->background == background && e->tasks[i].state < TASK_ENDED)
            return false;
    }
    return true;
}

static bool rank_has_background(const struct engine *e)
{
    bool any = false;
    for (uint32_t i = 0; i < e->ntasks; i++)
        any = any || e->tasks[i].ctx.desc->background;
    return any;
}

/* The running workload whose time-out is next, and when; NULL if none has one. No time passes while
 * the job stands still. */
static struct task *rank_next_timeout(struct engine *e, uint64_t now, uint64_t *at)
{
    struct task *first = NULL;
    const uint64_t stopped = standstill_total(now);
    for (uint32_t i = 0; i < e->ntasks; i++) {
        struct task *t = &e->tasks[i];
        if (t->state != TASK_RUNNING || !t->ctx.desc->timeout_ns)
            continue;
        const uint64_t due =
            deadline_after(t->started_ns + stopped - t->stopped_ns, t->ctx.desc->timeout_ns);
        if (due >= *at)
            continue;
        first = t;
        *at = due;
    }
    return first;
}

_Noreturn static void rank_fail_timeout(struct engine *e, struct task *task)
{
    char limit[32];
    struct engine_failure f;
    engine_failure_init(&f, WIRE_PHASE_RUN);
    f.workload = task->ctx.index;
    f.subject = WIRE_SUBJECT_WORKLOAD;
    f.exit_code = EXIT_TIMEOUT;
    diag_set(&f.diag, COLLRUN_ERR_TIMEOUT, "workload \"%s\" exceeded its time-out of %s",
             task->ctx.desc->name, format_duration(task->ctx.desc->timeout_ns, limit));
    f.diag.loc = task->ctx.desc->loc;
    rank_fail_late(e, &f);
}

/* Waits until all (or all background) tasks have ended. Ends the process if one fails. False: the
 * deadline has passed. */
static bool rank_wait_for_tasks(struct engine *e, bool background, uint64_t deadline)
{
    struct control *c = &e->process.control;
    uint64_t aborted_at = 0, stopped = standstill_total(now_ns());
    control_lock(c);
    while (!rank_has_ended(e, background)) {
        const uint64_t now = now_ns();
        standstill_expired(now, &stopped, &deadline); /* may move it */
        uint64_t until = deadline;
        if (control_has(c, CONTROL_ABORT) && !aborted_at)
            aborted_at = now;
        if (aborted_at && now >= aborted_at + rank_abort_wait_ns(e))
            rank_leave_aborted(e);
        until = aborted_at && aborted_at + rank_abort_wait_ns(e) < until
                    ? aborted_at + rank_abort_wait_ns(e)
                    : until;
        struct task *failed = rank_failed_task(e), *slow = rank_next_timeout(e, now, &until);
        bool over = now >= until;
        if (failed || over)
            control_unlock(c);
        if (failed)
            rank_fail_task(e, failed);
        if (over && slow)
            rank_fail_timeout(e, slow);
        if (over)
            return false;
        control_wait_change(c, until);
    }
    struct task *failed = rank_failed_task(e);
    control_unlock(c);
    if (failed)
        rank_fail_task(e, failed);
    return true;
}

static void rank_join_tasks(struct engine *e)
{
    for (uint32_t i = 0; i < e->ntasks; i++)
        task_join(&e->tasks[i]);
}

/* Waits for an event from the runner; a background workload may fail meanwhile. */
static void rank_wait_for_event(struct engine *e, unsigned event)
{
    struct control *c = &e->process.control;
    control_lock(c);
    while (!control_has(c, event | CONTROL_ABORT) && !rank_failed_task(e))
        control_wait_change(c, UINT64_MAX);
    struct task *failed = rank_failed_task(e);
    control_unlock(c);
    if (failed)
        rank_fail_task(e, failed);
    if (control_has(c, CONTROL_ABORT)) {
        rank_wait_for_tasks(e, false, UINT64_MAX); /* for the grace time, at most */
        rank_wait_for_tasks(e, true, UINT64_MAX);
        rank_join_tasks(e);
        rank_leave_aborted(e);
    }
}

/* After half of the grace time, operations of background workloads are aborted: their peers may
 * have ended. */
static void rank_stop_background(struct engine *e)
{
    struct engine_failure f;
    if (rank_wait_for_tasks(e, true, now_ns() + e->process.desc.grace_ns / 2))
        return;
    group_abort_all(&e->groups, COLLRUN_ERR_ABORTED, "the job has ended");
    if (rank_wait_for_tasks(e, true, now_ns() + e->process.desc.grace_ns / 2))
        return;
    engine_failure_init(&f, WIRE_PHASE_RUN);
    f.exit_code = EXIT_TIMEOUT;
    diag_set(&f.diag, COLLRUN_ERR_TIMEOUT, "a background workload did not stop");
    for (uint32_t i = 0; i < e->ntasks; i++) {
        char grace[32];
        if (!e->tasks[i].ctx.desc->background || task_has(&e->tasks[i], TASK_ENDED))
            continue;
        f.workload = e->tasks[i].ctx.index;
        diag_set(&f.diag, COLLRUN_ERR_TIMEOUT, "background workload \"%s\" did not stop within %s",
                 e->tasks[i].ctx.desc->name, format_duration(e->process.desc.grace_ns, grace));
        diag_hint(&f.diag, "it should return soon after collrun_stopping() becomes true");
        f.diag.loc = e->tasks[i].ctx.desc->loc;
        break;
    }
    rank_fail_late(e, &f);
}

/* ---- the life of a rank ---- */

int rank_main(void)
{
    enum engine_owner owner = ENGINE_OF_WORKLOADS;
    struct engine *e = engine_take(&owner);
    setvbuf(stdout, NULL, _IOLBF, 0);
    rank_connect_agent(e);
    rank_load_tasks(e);
    atexit(crash_ends_rank); /* a workload may call exit in its thread */
    engine_send_attached(e);
    rank_form_groups(e);
    rank_start_tasks(e);
    control_send(&e->process.control, WIRE_READY);
    rank_wait_for_event(e, CONTROL_GO);
    rank_wait_for_tasks(e, false, UINT64_MAX);
    engine_send_done(e, false);
    /* A background workload may call operations until all ranks are done. */
    bool calls_more = rank_has_background(e);
    if (!calls_more)
        engine_announce_end(e);
    rank_wait_for_event(e, CONTROL_STOP_BACKGROUND);
    rank_stop_background(e);
    if (calls_more)
        engine_announce_end(e);
    /* All ranks have returned from fini, so nothing is received any more. No group is closed. */
    engine_report_unreceived(e);
    control_send(&e->process.control, WIRE_IDLE);
    rank_wait_for_event(e, CONTROL_FINISH);
    rank_join_tasks(e);
    rank_close_groups(e);
    memory_kinds_fini(&e->process.kinds);
    registry_fini(&e->process.registry);
    control_close(&e->process.control);
    arena_fini(&e->process.arena);
    return 0;
}

/* The command line. The agent starts collrun-engine as a rank. Runner and agent start it to
 * describe plugins, to list devices and to check parameters. Users do not, so its usage text is one
 * line. */

static int entry_check(char *const *args, int nargs, FILE *out)
{
    return check_workloads(args, nargs, stdin, out);
}

static int entry_devices(char *const *args, int nargs, FILE *out)
{
    return nargs == 1 ? devices_print(args[0], out) : 2;
}

/* What the process prints instead of running a rank. */
static const struct entry_query {
    const char *option;
    int (*print)(char *const *args, int nargs, FILE *out); /* returns the exit code */
} entry_queries[] = {
    {"--describe", describe_plugins},
    {"--devices", entry_devices},
    {"--check", entry_check},
};

/* Plugins may print when they are loaded: their stdout becomes stderr, so that ours stays ours. */
static int entry_print(const struct entry_query *query, char *const *args, int nargs)
{
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        perror("collrun-engine: stdout");
        return 2;
    }
    crash_install_query();
    int rc = query->print(args, nargs, out);
    fclose(out);
    return rc;
}

int collrun_engine_main(int argc, char **argv)
{
    for (size_t i = 0; argc >= 2 && i < sizeof entry_queries / sizeof entry_queries[0]; i++)
        if (strcmp(argv[1], entry_queries[i].option) == 0)
            return entry_print(&entry_queries[i], argv + 2, argc - 2);
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("collrun-engine %s (%s)\n", COLLRUN_VERSION, COLLRUN_BUILD_ID);
        return 0;
    }
    if (argc != 1) {
        fprintf(stderr, "usage: collrun-engine [--describe KIND:PATH... | --devices PATH | "
                        "--check INDEX... | --version]\n");
        return 2;
    }
    return rank_main();
}
