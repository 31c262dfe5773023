/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of open groups and their tombstones, and the handling of failures.
 */
#include "group/group.h"

#include "base/loop.h"
#include "base/names.h"
#include "core/backend.h"
#include "core/error.h"
#include "core/fork_guard.h"
#include "core/process.h"
#include "progress/progress_queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a backend's error about a peer waits for the runner's message about that peer. */
enum { CULPRIT_WAIT_MS = 1000 };

/* ---- life ---- */

struct memory_kind *group_host_kind(const struct group_backend *gb)
{
    return gb->backend->memory & COLLRUN_MEMORY_HOST ? NULL : gb->kind;
}

void group_free(struct collrun_group *g)
{
    for (uint32_t i = 0; i < g->nbackends; i++)
        for (uint32_t k = 0; k < g->backends[i].nqueues; k++) {
            pq_fini(&g->backends[i].queues[k]);
            free(g->backends[i].queues[k].config.p2p);
        }
    pthread_mutex_destroy(&g->requests.lock);
    pthread_mutex_destroy(&g->status.lock);
    free(g->status.text);
    free(g->id.members.items);
    free(g->id.name);
    free(g->backends);
    free(g);
}

/* ---- failing ---- */

/* True if this is the first error of the group. */
static bool group_set_failed(struct collrun_group *g, int status, const char *why)
{
    pthread_mutex_lock(&g->status.lock);
    bool first = atomic_load_explicit(&g->status.code, memory_order_relaxed) == 0;
    if (first) {
        g->status.text = strdup(why);
        for (int i = 0; i < 2; i++)
            record_queue_fail(&g->calls.record[i], status);
        atomic_store_explicit(&g->status.code, status, memory_order_release);
    }
    pthread_mutex_unlock(&g->status.lock);
    return first;
}

void group_abort(struct collrun_group *g, int status, const char *why)
{
    group_set_failed(g, status, why);
    for (uint32_t i = 0; i < g->nbackends; i++)
        for (uint32_t k = 0; k < g->backends[i].nqueues; k++)
            g->backends[i].backend->table.group_abort(g->backends[i].queues[k].config.handle);
}

/* Requests in flight through another handle fail with the group, not at their own time-outs. An
 * idle handle is not aborted: that could notify peers that are about to find the cause themselves.
 */
static void group_abort_others(struct collrun_group *g, enum group_queue failed)
{
    for (uint32_t i = 0; i < g->nbackends; i++) {
        struct group_backend *gb = &g->backends[i];
        for (uint32_t k = 0; k < gb->nqueues; k++) {
            struct progress_queue *pq = &gb->queues[k];
            if (pq != gb->pq[failed] && !pq_is_idle(pq))
                gb->backend->table.group_abort(pq->config.handle);
        }
    }
}

/* Waits for the runner's message about a failed peer, for a limited time. */
static void group_await_culprit(const struct collrun_group *g)
{
    struct control *c = &g->process->control;
    uint64_t until = now_ns() + (uint64_t)CULPRIT_WAIT_MS * 1000000u;
    for (uint64_t now = now_ns(); now < until && !group_has_failed(g); now = now_ns()) {
        if (control_wait(c, CONTROL_ABORT, now + 2000000))
            return;
    }
}

/* "allreduce train#17: CAUSE" */
static int group_error(const struct collrun_group *g, enum collrun_kind kind, uint64_t number,
                       int status)
{
    char where[256];
    if ((status == COLLRUN_ERR_PEER_FAILED || status == COLLRUN_ERR_ABORTED) &&
        control_has(&g->process->control, CONTROL_ABORT))
        process_set_disturbed(g->process);
    snprintf(where, sizeof where, "%s %s#%llu", kind_name(kind), g->id.name,
             (unsigned long long)number);
    return error_wrap(status, g->id.name, number, where);
}

int group_reject(struct collrun_group *g, enum collrun_kind kind, uint64_t number)
{
    int status = atomic_load_explicit(&g->status.code, memory_order_acquire);
    error_cause(status, "%s", g->status.text ? g->status.text : status_text(status));
    return group_error(g, kind, number, status);
}

int group_op_failed(struct collrun_group *g, enum collrun_kind kind, uint64_t number, int status)
{
    struct control *c = &g->process->control;
    bool closed = group_is_closed(g); /* by this rank: there is no culprit */
    bool about_peer = status == COLLRUN_ERR_ABORTED || status == COLLRUN_ERR_PEER_FAILED ||
                      status == COLLRUN_ERR_BACKEND;
    if (about_peer && !closed)
        group_await_culprit(g);
    if (about_peer && control_has(c, CONTROL_ABORT)) {
        status = c->abort_reason.code;
        error_cause(status, "%s", c->abort_reason.text);
    } else if (group_has_failed(g)) {
        return group_reject(g, kind, number);
    }
    group_error(g, kind, number, status);
    const enum group_queue which = group_queue_of(kind);
    if (!closed && !group_survives(which, status) && group_set_failed(g, status, error_get()->text))
        group_abort_others(g, which);
    return status;
}

/* ---- the thread inside ---- */

const struct collrun_ctx group_unknown_thread, group_closed_driver;

static const char *group_driver_name(const struct collrun_ctx *driver, char *out, size_t size)
{
    if (!driver || driver == &group_unknown_thread)
        return "another thread";
    snprintf(out, size, "workload \"%s\"", driver->desc->name);
    return out;
}

int group_enter_rejected(struct collrun_group *g, const struct collrun_ctx *inside,
                         const char *what)
{
    char a[160], b[160], where[256];
    if (fork_guard_in_child)
        error_cause(COLLRUN_ERR_INVALID, "%s", fork_guard_reason());
    else if (inside == &group_closed_driver && atomic_load(&g->process->finalized))
        error_cause(COLLRUN_ERR_INVALID, "collrun_finalize has closed the group");
    else if (inside == &group_closed_driver)
        error_cause(COLLRUN_ERR_INVALID, "the group was destroyed");
    else
        error_cause(
            COLLRUN_ERR_INVALID,
            "%s calls while %s is inside; one thread at a time may use a group%s",
            group_driver_name(thread_context, a, sizeof a), group_driver_name(inside, b, sizeof b),
            g->backends[0].pq[GROUP_MESSAGES]->starts ? ", except to send and receive" : "");
    snprintf(where, sizeof where, "%s %s", what, g->id.name);
    return error_wrap(COLLRUN_ERR_INVALID, g->id.name, 0, where);
}
