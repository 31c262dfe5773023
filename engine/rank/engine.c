/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a rank's life that do not depend on who owns the process. They return a status; the
 * owner decides what a failure means.
 */
#include "rank/engine.h"

#include "base/debug.h"
#include "base/exit_codes.h"
#include "base/hostmem.h"
#include "base/record_writer.h"
#include "base/wire_fields.h"
#include "core/agreement.h"
#include "core/backend.h"
#include "core/fork_guard.h"
#include "group/group_open.h"
#include "ops/request.h"
#include "rank/crash.h"
#include "rank/task.h"

#include <collrun/collrun.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The members of a group wait for each other's end without a limit; the job has its limits. */
#define END_TIMEOUT_NS (UINT64_C(1) << 58)

static _Atomic int engine_owned; /* enum engine_owner */

struct engine *engine_take(enum engine_owner *owner)
{
    static struct engine engine;
    int before = ENGINE_UNUSED;
    if (!atomic_compare_exchange_strong(&engine_owned, &before, *owner)) {
        *owner = (enum engine_owner)before;
        return NULL;
    }
    engine.owner = *owner;
    return &engine;
}

void engine_give_back(void)
{
    atomic_store(&engine_owned, ENGINE_UNUSED);
}

bool engine_is_taken(enum engine_owner *owner)
{
    *owner = (enum engine_owner)atomic_load(&engine_owned);
    return *owner != ENGINE_UNUSED;
}

/* ---- failures ---- */

void engine_failure_init(struct engine_failure *f, uint32_t phase)
{
    *f = (struct engine_failure){
        .workload = UINT32_MAX, .phase = phase, .group = "", .exit_code = EXIT_INTERNAL};
    diag_init(&f->diag);
}

void engine_send_failed(struct engine *e, struct engine_failure *f)
{
    size_t mark;
    if (f->diag.rank < 0)
        f->diag.rank = (int)e->process.rank;
    struct buf *out = control_begin(&e->process.control, WIRE_FAILED, &mark);
    wire_put_failed(out, &(struct wire_failed){.workload = f->workload,
                                               .phase = f->phase,
                                               .group = f->group,
                                               .number = f->number,
                                               .subject = (uint8_t)f->subject,
                                               .why = f->diag,
                                               .last = f->why});
    control_end(&e->process.control, mark);
}

void engine_send_task_failed(struct engine *e, const struct task *task)
{
    struct engine_failure f = {.workload = task->ctx.index,
                               .phase = task->phase,
                               .group = task->group,
                               .number = task->number,
                               .subject = task->failure_subject,
                               .diag = task->failure,
                               .why = task->why};
    engine_send_failed(e, &f);
}

/* ---- WELCOME ---- */

static int engine_read_welcome(struct process *p, const struct wire_frame *f, struct diag *d)
{
    struct wire_welcome w;
    if (!wire_read_welcome(f, &p->arena, &w))
        return wire_malformed(d, "WELCOME frame");
    p->rank = w.rank;
    p->attempt = w.attempt;
    p->host = w.host;
    p->address = w.address;
    p->interface = w.interface;
    p->ncpus = w.cpus;
    int rc = desc_decode(&p->arena, &p->desc, w.desc.data, w.desc.len, d);
    if (rc == COLLRUN_OK && (p->rank >= p->desc.nranks || p->host >= p->desc.nhosts))
        rc = diag_set(d, COLLRUN_ERR_INVALID, "a WELCOME for rank %u of %u", p->rank,
                      p->desc.nranks);
    if (rc == COLLRUN_OK &&
        !(p->failed = arena_calloc(&p->arena, p->desc.nranks, sizeof *p->failed)))
        rc = diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for %u ranks", p->desc.nranks);
    p->host_scopes.desc = &p->desc;
    p->host_scopes.rank = p->rank;
    p->host_scopes.failed = p->failed;
    p->host_scopes.control = &p->control;
    p->host_scopes.oversubscribed = rc == COLLRUN_OK && p->desc.hosts[p->host].nranks > p->ncpus;
    p->control.rank = p->rank;
    p->control.attempt = p->attempt;
    return rc;
}

/* Before any operation fails: a workload that gets PEER_FAILED finds the rank in collrun_failed().
 */
static void engine_on_culprit(void *ctx, uint32_t rank)
{
    struct engine *e = ctx;
    if (rank < e->process.desc.nranks)
        atomic_store_explicit(&e->process.failed[rank], true, memory_order_release);
}

static void engine_on_lost(void *ctx, uint32_t rank, const char *text)
{
    struct engine *e = ctx;
    engine_on_culprit(e, rank);
    host_scope_wake_all(&e->process.host_scopes);
    group_abort_with(&e->groups, rank, COLLRUN_ERR_PEER_FAILED, text);
}

static void engine_on_abort(void *ctx)
{
    struct engine *e = ctx;
    const struct diag *why = &e->process.control.abort_reason;
    host_scope_wake_all(&e->process.host_scopes);
    group_abort_all(&e->groups, why->code, why->text);
}

/* The agent reads it when this process ends, since no frame can be sent any more. */
static void engine_on_closed(void *ctx)
{
    struct engine *e = ctx;
    if (e->process.record)
        atomic_store(&e->process.record->closed, 1);
}

/* Every workload runs, and the job goes on. *background: one in the background has not ended. */
static bool engine_runs(struct engine *e, bool *background)
{
    const struct control *c = &e->process.control;
    bool all = control_has(c, CONTROL_GO) && !control_has(c, CONTROL_ABORT | CONTROL_FINISH);
    *background = false;
    for (uint32_t i = 0; all && i < e->ntasks; i++) {
        struct task *task = &e->tasks[i];
        all = task_has(task, TASK_RUNNING);
        *background = *background || (task->ctx.desc->background && !task_has(task, TASK_ENDED));
    }
    return all;
}

/* Wait reports prove deadlocks of this rank. With COLLRUN_DEBUG=proof its cuts prove them a second
 * time, for developers. The calls of threads count as known while all workloads run. Before that,
 * threads wait for the job to begin, which no call shows; and a background workload is stopped at
 * the end. */
static void engine_show_calls(const struct engine *e, bool known)
{
    const uint32_t tap = known ? RECORD_TAP_ENGINE : RECORD_TAP_NONE;
    struct record_head *head = e->process.writer ? e->process.record : NULL;
    if (head && atomic_load_explicit(&head->tap, memory_order_relaxed) != tap)
        atomic_store(&head->tap, tap);
}

static void engine_on_tick(void *ctx)
{
    struct engine *e = ctx;
    bool background;
    forming_update(&e->groups); /* first: a wait report lists what has been sent */
    const bool runs = engine_runs(e, &background);
    if (runs && wait_report_update(&e->wait_report, background))
        threads_list_own(e->process.record->library, RECORD_LIBRARY);
    if (debug_on(DEBUG_PROOF))
        engine_show_calls(e, runs && !background);
}

/* ---- a forked child ---- */

/* The child has copies of the groups and of the connection, which belong to its parent. */
static void engine_on_fork(void *ctx)
{
    struct engine *e = ctx;
    group_table_abandon(&e->groups);
    e->process.record = NULL;
    e->process.writer = NULL;
    error_attach(NULL);
    control_abandon(&e->process.control);
    crash_forget();
}

/* ---- the connection ---- */

static void engine_init(struct engine *e)
{
    arena_init(&e->process.arena);
    registry_init(&e->process.registry);
    memory_kinds_init(&e->process.kinds);
    group_table_init(&e->groups, &e->process, &request_group_ops);
    e->wait_report.groups = &e->groups;
}

int engine_connect(struct engine *e, const struct engine_sockets *fds, struct engine_failure *f)
{
    struct wire_frame welcome;
    engine_init(e);
    e->process.record = record_map(fds->record);
    error_attach(e->process.record);
    debug_start_rank(e->process.record);
    if (e->process.record) {
        close(fds->record);
        record_calibrate(e->process.record);
        e->process.writer =
            record_writer_open(e->process.record, RECORD_TAP_NONE, RECORD_LEVEL_MULTIPLE);
    }
    if (hostmem_map(&e->process.host_scopes.mem, fds->hostmem))
        fcntl(fds->hostmem, F_SETFD, FD_CLOEXEC);
    int rc = control_open(&e->process.control, fds->control, WIRE_WELCOME, &welcome, &f->diag);
    e->connected = rc == COLLRUN_OK;
    debug_log(DEBUG_RANK, "pid %d: WELCOME: status %d%s", (int)getpid(), rc,
              e->process.record ? "" : ", without a flight record");
    if (rc == COLLRUN_OK)
        rc = engine_read_welcome(&e->process, &welcome, &f->diag);
    return rc;
}

int engine_serve(struct engine *e, struct engine_failure *f)
{
    const struct control_hooks hooks = {.culprit = engine_on_culprit,
                                        .abort = engine_on_abort,
                                        .lost = engine_on_lost,
                                        .closed = engine_on_closed,
                                        .tick = engine_on_tick,
                                        .tick_ms = WAIT_REPORT_TICK_MS,
                                        .in_program = e->owner == ENGINE_OF_PROGRAM,
                                        .ctx = e};
    int rc = control_start(&e->process.control, hooks, &f->diag);
    if (rc != COLLRUN_OK)
        return rc;
    crash_install(e->process.rank, e->owner == ENGINE_OF_PROGRAM, e->process.record);
    fork_guard_install(e->process.rank, engine_on_fork, e);
    return COLLRUN_OK;
}

void engine_send_attached(struct engine *e)
{
    size_t mark;
    struct buf *out = control_begin(&e->process.control, WIRE_ATTACHED, &mark);
    wire_put_attached(out, &(struct wire_attached){(uint32_t)getpid()});
    control_end(&e->process.control, mark);
}

void engine_send_done(struct engine *e, bool at_exit)
{
    size_t mark;
    struct buf *out = control_begin(&e->process.control, WIRE_DONE, &mark);
    wire_put_done(out, &(struct wire_done){at_exit});
    control_end(&e->process.control, mark);
}

/* ---- groups ---- */

/* Fills in the backends of a group: that of the job for host memory, then those for other kinds. */
static int engine_find_backends(struct engine *e, const struct desc_group *group,
                                struct group_spec *spec, struct diag *d)
{
    spec->nroutes = 1 + group->nroutes;
    if (group->nroutes >= GROUP_BACKENDS)
        return diag_set(d, COLLRUN_ERR_UNSUPPORTED, "group \"%s\": more than %d backends",
                        group->name, GROUP_BACKENDS);
    for (uint32_t i = 0; i < spec->nroutes; i++) {
        uint32_t index = i ? group->routes[i - 1].backend : group->backend;
        struct group_route *route = &spec->routes[i];
        int rc =
            registry_get(&e->process, e->process.desc.backends[index].name, &route->backend, d);
        if (rc != COLLRUN_OK)
            return rc;
        for (uint32_t k = 0; k < e->process.desc.nkinds; k++)
            if (route->backend->kind.name &&
                strcmp(e->process.desc.kinds[k].name, route->backend->kind.name) == 0)
                route->ndevices = desc_group_devices(group, k);
    }
    return COLLRUN_OK;
}

static int engine_form_group(struct engine *e, uint32_t index, struct engine_failure *f)
{
    const struct desc_group *group = &e->process.desc.groups[index];
    struct collrun_group *out;
    struct group_spec spec = {.name = group->name,
                              .members = &group->ranks,
                              .timeout_ns = group->timeout_ns,
                              .check = (enum collrun_check)group->check,
                              .options = &group->options,
                              .on_demand = group->on_demand,
                              .index = index};
    f->group = group->name;
    f->exit_code = EXIT_LOAD;
    int rc = engine_find_backends(e, group, &spec, &f->diag);
    if (rc != COLLRUN_OK)
        return rc;
    rc = group_open(&e->groups, &spec, &out, &f->diag);
    if (rc != COLLRUN_OK && f->diag.loc.line == 0)
        f->diag.loc = group->loc;
    f->exit_code = rc == COLLRUN_ERR_TIMEOUT ? EXIT_TIMEOUT : EXIT_FAILED;
    return rc;
}

int engine_form_groups(struct engine *e, struct engine_failure *f)
{
    f->exit_code = EXIT_LOAD;
    int rc = memory_kinds_open_owned(&e->process, &f->diag);
    if (rc != COLLRUN_OK && !f->diag.loc.line)
        f->diag.loc = e->process.desc.hosts[e->process.host].devices_loc;
    if (e->process.record && e->process.kinds.nowned)
        atomic_store(&e->process.record->callbacks, 1);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < e->process.desc.ngroups; i++)
        if (desc_ranks_find(&e->process.desc.groups[i].ranks, e->process.rank) >= 0 &&
            desc_group_is_used(&e->process.desc, i))
            rc = engine_form_group(e, i, f);
    return rc;
}

void engine_report_unreceived(struct engine *e)
{
    pthread_mutex_lock(&e->groups.lock);
    for (struct collrun_group *g = e->groups.open; g; g = g->next)
        group_report_unreceived(g, true);
    pthread_mutex_unlock(&e->groups.lock);
}

/* Groups that were made at run time, and that the workloads have not destroyed. */
static void engine_report_open(struct engine *e)
{
    const struct collrun_group *first = NULL;
    uint32_t n = 0;
    char text[512];
    for (const struct collrun_group *g = e->groups.open; g; g = g->next) {
        n += g->id.index == UINT32_MAX;
        first = g->id.index == UINT32_MAX ? g : first;
    }
    if (!n || control_has(&e->process.control, CONTROL_ABORT))
        return;
    snprintf(text, sizeof text, "%u group%s never destroyed; the first is \"%s\"", n,
             n == 1 ? " was" : "s were", first->id.name);
    control_warn(&e->process.control, COLLRUN_LOG_INFO, text);
}

void engine_close_groups(struct engine *e)
{
    group_start_end_all(&e->groups);
    engine_report_open(e);
    while (e->groups.open)
        group_close(e->groups.open);
    for (struct collrun_group *g = e->groups.closed; g; g = g->next)
        request_report_uncollected(g);
}

/* ---- the end of programs ---- */

/* True if the rank runs a command, so that it may end before the others. */
static bool engine_rank_runs_command(const struct engine *e, uint32_t rank)
{
    for (uint32_t i = 0; i < e->process.desc.nworkloads; i++)
        if (!*e->process.desc.workloads[i].plugin &&
            desc_ranks_find(&e->process.desc.workloads[i].ranks, rank) >= 0)
            return true;
    return false;
}

static bool engine_group_has_commands(const struct engine *e, const struct desc_group *group)
{
    bool any = false;
    for (uint32_t i = 0; i < group->ranks.n && !any; i++)
        any = engine_rank_runs_command(e, group->ranks.items[i]);
    return any;
}

static struct agreement_spec engine_end_spec(const struct desc_group *group, char name[512])
{
    snprintf(name, 512, "%s, end", group->name);
    return (struct agreement_spec){
        .name = name, .members = &group->ranks, .timeout_ns = END_TIMEOUT_NS};
}

void engine_announce_end(struct engine *e)
{
    char name[512];
    for (uint32_t i = 0; i < e->process.desc.ngroups; i++) {
        const struct desc_group *group = &e->process.desc.groups[i];
        if (desc_ranks_find(&group->ranks, e->process.rank) < 0 ||
            !engine_group_has_commands(e, group))
            continue;
        struct agreement_spec spec = engine_end_spec(group, name);
        agreement_state(&e->process.control, &spec, COLLRUN_OK);
    }
}

static int engine_await_end_of(struct engine *e, const struct desc_group *group, struct diag *d)
{
    char name[512];
    struct agreement left = {0};
    const struct collrun_group *g = group_find(&e->groups, group->name);
    if (!g || group->ranks.n == 1 || atomic_load(&g->status.code))
        return COLLRUN_OK;
    struct agreement_spec spec = engine_end_spec(group, name);
    struct forming forming = {
        .kind = WIRE_FORMING_FINALIZE, .name = group->name, .members = &group->ranks};
    forming_begin(&e->groups, &forming);
    int rc = agreement_reach(&e->process.control, &spec, COLLRUN_OK, &left, d);
    forming_end(&e->groups, &forming);
    agreement_fini(&left);
    return rc;
}

int engine_await_end(struct engine *e, struct diag *d)
{
    int rc = COLLRUN_OK;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < e->process.desc.ngroups; i++)
        rc = engine_await_end_of(e, &e->process.desc.groups[i], d);
    return rc;
}
