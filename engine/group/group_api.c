/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of collrun.h about groups that exist: finding those of job.yaml, ending those that
 * were made at run time (group_make.c), streams and copies, getters. Groups of job.yaml are closed
 * at the end of the job.
 */
#include "core/backend.h"
#include "core/process.h"
#include "group/group_make.h"
#include "group/table.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- finding ---- */

static bool group_may_use(const struct collrun_ctx *ctx, const struct desc_group *group)
{
    uint32_t index = (uint32_t)(group - ctx->process->desc.groups);
    for (uint32_t i = 0; i < ctx->desc->ngroups; i++) {
        if (ctx->desc->groups[i] == index)
            return true;
    }
    return false;
}

/* The open group of this name, or this rank's part of the group of the job. */
static struct collrun_group *group_find_own(const struct collrun_ctx *ctx, const char *name)
{
    struct collrun_group *g = group_find(ctx->groups, name);
    const struct desc_group *job =
        g ? NULL : desc_find_own_group(&ctx->process->desc, name, ctx->process->rank);
    return job ? group_find(ctx->groups, job->name) : g;
}

/* The error for a name that no open group has. */
static int group_unknown(struct collrun_ctx *ctx, const char *name)
{
    char known[256] = "";
    size_t used = 0;
    for (int i = 0; used < sizeof known; i++) {
        const struct collrun_group *g = collrun_group_at(ctx, i);
        if (!g)
            break;
        int n = snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", g->id.name);
        used += n > 0 ? (size_t)n : 0;
    }
    return error_set(COLLRUN_ERR_NOT_FOUND, "no group named \"%s\"; workload \"%s\" has %s%s", name,
                     ctx->desc->name, used ? known : "none", used >= sizeof known ? "..." : "");
}

static int group_first_of_job(struct collrun_ctx *ctx, struct collrun_group **out)
{
    struct collrun_group *g = collrun_group_at(ctx, 0);
    if (!g)
        return error_set(COLLRUN_ERR_NOT_MEMBER, "rank %u is not in any group of workload \"%s\"",
                         ctx->process->rank, ctx->desc->name);
    *out = g;
    return COLLRUN_OK;
}

int collrun_group_get(struct collrun_ctx *ctx, const char *name, struct collrun_group **out)
{
    if (!ctx || !name || !out)
        return error_set(COLLRUN_ERR_INVALID, "collrun_group_get: the %s is NULL",
                         !ctx    ? "context"
                         : !name ? "name"
                                 : "output pointer for the group");
    int rc = process_check_member(ctx->process, "collrun_group_get");
    if (rc != COLLRUN_OK)
        return rc;
    if (!*name)
        return group_first_of_job(ctx, out);
    const struct desc_group *job =
        desc_find_own_group(&ctx->process->desc, name, ctx->process->rank);
    if (job && desc_ranks_find(&job->ranks, ctx->process->rank) < 0)
        return error_set(COLLRUN_ERR_NOT_MEMBER, "rank %u is not in group \"%s\"",
                         ctx->process->rank, name);
    if (job && !group_may_use(ctx, job))
        return error_set(COLLRUN_ERR_NOT_FOUND, "workload \"%s\" does not list group \"%s\"",
                         ctx->desc->name, name);
    struct collrun_group *g = group_find_own(ctx, name);
    if (!g)
        return group_unknown(ctx, name);
    *out = g;
    return COLLRUN_OK;
}

struct collrun_group *collrun_group_at(struct collrun_ctx *ctx, int index)
{
    const struct desc *desc = &ctx->process->desc;
    for (uint32_t i = 0; index >= 0 && i < desc->ngroups; i++) {
        const struct desc_group *job = &desc->groups[i];
        if (desc_ranks_find(&job->ranks, ctx->process->rank) >= 0 && group_may_use(ctx, job) &&
            index-- == 0)
            return group_find(ctx->groups, job->name);
    }
    return NULL;
}

bool collrun_group_exists(const struct collrun_ctx *ctx, const char *name)
{
    return name && group_find_own(ctx, name);
}

int collrun_group_rank(const struct collrun_ctx *ctx, const char *name)
{
    const struct collrun_group *g = name ? group_find_own(ctx, name) : NULL;
    return g ? (int)g->rank : -1;
}

int collrun_group_size(const struct collrun_ctx *ctx, const char *name)
{
    const struct collrun_group *g = name ? group_find_own(ctx, name) : NULL;
    return g ? (int)g->nranks : -1;
}

/* ---- ending ---- */

int collrun_group_destroy(struct collrun_group *group)
{
    /* A group that was destroyed long ago is freed; the table shows that, without reading it. */
    if (!group || (thread_context && !group_is_open(thread_context->groups, group)) ||
        group_is_closed(group))
        return COLLRUN_OK;
    if (group->id.index != UINT32_MAX)
        return error_set(
            COLLRUN_ERR_INVALID,
            "group \"%s\" of job.yaml cannot be destroyed; it is closed when the job ends",
            group->id.name);
    struct group_table *t = group->table;
    int rc = group_enter(group, "destroy");
    if (rc != COLLRUN_OK)
        return rc;
    threads_busy(&t->process->busy, 1);
    group_mark_closed(group);
    group_close(group);
    threads_busy(&t->process->busy, -1);
    return COLLRUN_OK;
}

int collrun_group_abort(struct collrun_group *group, const char *reason)
{
    if (!group || !reason)
        return error_set(COLLRUN_ERR_INVALID, "collrun_group_abort: the %s is NULL",
                         group ? "reason" : "group");
    struct group_table *t = group->table;
    int rc = process_check_member(group->process, "collrun_group_abort");
    if (rc != COLLRUN_OK)
        return rc;
    char why[256];
    snprintf(why, sizeof why, "rank %u has aborted the group: %s", t->process->rank, reason);
    /* The lock keeps the group in the table, so that its backends stay open meanwhile. */
    pthread_mutex_lock(&t->lock);
    struct collrun_group *g = t->open;
    while (g && g != group)
        g = g->next;
    if (g)
        group_abort(g, COLLRUN_ERR_ABORTED, why);
    pthread_mutex_unlock(&t->lock);
    return g ? COLLRUN_OK
             : error_set(COLLRUN_ERR_INVALID, "collrun_group_abort: the group was destroyed");
}

/* ---- devices ---- */

int collrun_set_stream(struct collrun_group *group, int device, void *stream)
{
    if (!group)
        return error_set(COLLRUN_ERR_INVALID, "collrun_set_stream: the group is NULL");
    const struct memory_kind *kind = group_device_kind(group);
    uint32_t owned = kind ? kind->ndevices : 0;
    if (device < 0 || (uint32_t)device >= owned)
        return error_set(COLLRUN_ERR_INVALID,
                         "group %s: device %d is not one of the %u %ss of this rank",
                         group->id.name, device, owned, kind ? kind->title : "device");
    int rc = group_enter(group, "set_stream");
    if (rc != COLLRUN_OK)
        return rc;
    group->calls.streams[device] = stream;
    group_leave(group);
    return COLLRUN_OK;
}

int collrun_copy(struct collrun_group *g, void *to, const void *from, size_t bytes)
{
    if (!g || (bytes && (!to || !from)))
        return error_set(COLLRUN_ERR_INVALID, "collrun_copy: the %s is NULL",
                         g ? "memory" : "group");
    if (!g->kinds.n) {
        if (bytes)
            memmove(to, from, bytes);
        return COLLRUN_OK;
    }
    error_clear_cause();
    int rc = memory_kind_copy_bytes(&g->kinds, to, from, bytes, g->timeout_ns);
    return rc == COLLRUN_OK ? rc : error_wrap(rc, g->id.name, 0, "copy");
}

/* ---- properties ---- */

/* The getters of collrun.h for a group. What they return does not change while the group is open,
 * so any thread may call them at any time. */

int collrun_rank(const struct collrun_group *group)
{
    return group ? (int)group->rank : -1;
}

int collrun_size(const struct collrun_group *group)
{
    return group ? (int)group->nranks : -1;
}

int collrun_world_rank_of(const struct collrun_group *group, int rank)
{
    bool is_one = group && rank >= 0 && (uint32_t)rank < group->nranks;
    return is_one ? (int)group->id.members.items[rank] : -1;
}

const char *collrun_group_name(const struct collrun_group *group)
{
    return group ? group->id.name : "";
}

const char *collrun_group_backend(const struct collrun_group *group)
{
    return group ? group->id.backend_name : "";
}

uint64_t collrun_group_timeout(const struct collrun_group *group)
{
    return group ? group->timeout_ns : 0;
}

enum collrun_check collrun_group_check(const struct collrun_group *group)
{
    return group ? group->check : COLLRUN_CHECK_OFF;
}

int collrun_group_members(const struct collrun_group *group, int *ranks, int max)
{
    for (int i = 0; group && ranks && i < max && (uint32_t)i < group->nranks; i++)
        ranks[i] = (int)group->id.members.items[i];
    return collrun_size(group);
}

int collrun_group_rank_of(const struct collrun_group *group, int world_rank)
{
    return group && world_rank >= 0 ? desc_ranks_find(&group->id.members, (uint32_t)world_rank)
                                    : -1;
}

/* ---- devices ---- */

void *collrun_group_native(const struct collrun_group *group, const char *what, int device)
{
    void *found = NULL;
    if (!group || !what || device < 0 || group_is_closed(group))
        return NULL;
    for (uint32_t i = 0; !found && i < group->nbackends; i++) {
        const struct group_backend *gb = &group->backends[i];
        if (gb->backend->table.native_handle && (uint32_t)device < group_devices(gb))
            found = gb->backend->table.native_handle(gb->pq[GROUP_COLLECTIVES]->config.handle, what,
                                                     (uint32_t)device);
    }
    return found;
}

int collrun_devices(const struct collrun_group *group)
{
    return group ? (int)group_device_backend(group)->ndevices : 0;
}

int collrun_device(const struct collrun_group *group, int index)
{
    const struct group_backend *gb = group ? group_device_backend(group) : NULL;
    bool is_one = gb && index >= 0 && (uint32_t)index < gb->ndevices;
    return is_one ? gb->kind->numbers[index] : -1;
}

const char *collrun_memory_of(const struct collrun_group *group, const void *ptr, int *device)
{
    int index = -1;
    const struct memory_kind *kind = group ? memory_kind_of(&group->kinds, ptr, &index) : NULL;
    if (device)
        *device = index;
    return !group ? NULL : kind ? kind->name : "host";
}
