/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of open groups and their tombstones, and the handling of failures.
 */
#include "group/group.h"

#include "base/loop.h"
#include "base/names.h"
#include "core/backend.h"
#include "group/group_enter.h"
#include "rank/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a backend's error about a peer waits for the runner's message about that peer. */
enum { CULPRIT_WAIT_MS = 1000 };

/* ---- the table of open groups ---- */

struct memory_kind *group_host_kind(const struct group_backend *gb)
{
    return gb->backend->memory & COLLRUN_MEMORY_HOST ? NULL : gb->kind;
}

int group_rank_in(const struct desc_ranks *members, uint32_t rank)
{
    for (uint32_t i = 0; i < members->n; i++) {
        if (members->items[i] == rank)
            return (int)i;
    }
    return -1;
}

struct collrun_group *group_find(struct engine *e, const char *name)
{
    pthread_mutex_lock(&e->groups_lock);
    struct collrun_group *g = e->groups;
    while (g && strcmp(g->id.name, name) != 0)
        g = g->next;
    pthread_mutex_unlock(&e->groups_lock);
    return g;
}

bool group_is_open(struct engine *e, const struct collrun_group *g)
{
    pthread_mutex_lock(&e->groups_lock);
    const struct collrun_group *p = e->groups;
    while (p && p != g)
        p = p->next;
    pthread_mutex_unlock(&e->groups_lock);
    return p != NULL;
}

void group_table_add(struct engine *e, struct collrun_group *g)
{
    pthread_mutex_lock(&e->groups_lock);
    g->next = e->groups;
    e->groups = g;
    pthread_mutex_unlock(&e->groups_lock);
}

static void group_unlink(struct collrun_group **list, const struct collrun_group *g)
{
    while (*list && *list != g)
        list = &(*list)->next;
    if (*list)
        *list = g->next;
}

void group_table_close(struct engine *e, struct collrun_group *g)
{
    pthread_mutex_lock(&e->groups_lock);
    group_unlink(&e->groups, g);
    g->next = e->closed_groups;
    e->closed_groups = g;
    pthread_mutex_unlock(&e->groups_lock);
}

/* Under the lock. */
static bool group_name_is_taken(const struct engine *e, const char *name)
{
    const struct group_creation *c = e->creations;
    while (c && strcmp(c->name, name) != 0)
        c = c->next;
    const struct collrun_group *g = e->groups;
    while (g && strcmp(g->id.name, name) != 0)
        g = g->next;
    return *name && (c || g);
}

int group_creation_add(struct engine *e, struct group_creation *c)
{
    pthread_mutex_lock(&e->groups_lock);
    /* collrun_finalize sets it under the lock, once no thread creates a group: a creation that
     * began later would wait for members that the job no longer has. */
    const bool ended = atomic_load(&e->finalizing), taken = group_name_is_taken(e, c->name);
    if (!ended && !taken) {
        c->next = e->creations;
        e->creations = c;
    }
    pthread_mutex_unlock(&e->groups_lock);
    if (ended)
        return error_set(COLLRUN_ERR_INVALID,
                         "a group cannot be created: collrun_finalize has ended this rank");
    return taken ? error_set(COLLRUN_ERR_EXISTS, "a group \"%s\" is open or being created", c->name)
                 : COLLRUN_OK;
}

void group_creation_remove(struct engine *e, const struct group_creation *c)
{
    pthread_mutex_lock(&e->groups_lock);
    struct group_creation **p = &e->creations;
    while (*p && *p != c)
        p = &(*p)->next;
    if (*p)
        *p = c->next;
    pthread_mutex_unlock(&e->groups_lock);
}

bool group_is_being_created(struct engine *e, const char *name)
{
    pthread_mutex_lock(&e->groups_lock);
    const struct group_creation *c = e->creations;
    while (c && strcmp(c->name, name) != 0)
        c = c->next;
    pthread_mutex_unlock(&e->groups_lock);
    return *name && c;
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

/* Replaces the oldest tombstone. A thread that is late may have had a request of one, which was
 * refused. */
static void group_keep_tombstone(struct collrun_group *g)
{
    struct engine *e = g->engine;
    struct collrun_group *oldest = NULL;
    pthread_mutex_lock(&e->groups_lock);
    if (!g->is_tombstone) {
        g->is_tombstone = true;
        group_unlink(&e->closed_groups, g);
        struct collrun_group **slot = &e->tombstones[e->ntombstones++ % ENGINE_TOMBSTONES];
        oldest = *slot;
        *slot = g;
    }
    pthread_mutex_unlock(&e->groups_lock);
    if (oldest)
        group_free(oldest);
}

void group_unref(struct collrun_group *g)
{
    if (atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) == 1)
        group_keep_tombstone(g);
}

void group_free_tombstones(struct engine *e)
{
    for (uint32_t i = 0; i < ENGINE_TOMBSTONES; i++) {
        if (e->tombstones[i])
            group_free(e->tombstones[i]);
        e->tombstones[i] = NULL;
    }
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

void group_abort_all(struct engine *e, int status, const char *why)
{
    pthread_mutex_lock(&e->groups_lock);
    for (struct collrun_group *g = e->groups; g; g = g->next)
        group_abort(g, status, why);
    pthread_mutex_unlock(&e->groups_lock);
}

void group_abort_with(struct engine *e, uint32_t member, int status, const char *why)
{
    pthread_mutex_lock(&e->groups_lock);
    for (struct collrun_group *g = e->groups; g; g = g->next) {
        if (group_rank_in(&g->id.members, member) >= 0)
            group_abort(g, status, why);
    }
    pthread_mutex_unlock(&e->groups_lock);
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
    struct control *c = &g->engine->control;
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
        control_has(&g->engine->control, CONTROL_ABORT))
        engine_set_disturbed(g->engine);
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
    struct control *c = &g->engine->control;
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
