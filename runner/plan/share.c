/* SPDX-License-Identifier: Apache-2.0
 *
 * The option `share` of a group, on a backend with COLLRUN_BACKEND_SHARES: the group takes what its
 * devices hold from an earlier one. That has to be the same processes with the same devices, so the
 * name is checked here, where every group of the job is known. Groups are formed in their order, so
 * a group cannot share with a later one, and no circle is possible.
 */
#include "plan/planner.h"

#include <string.h>

static const char OPTION[] = "share";

static const struct job_pair *share_find(const struct job_pairs *options)
{
    for (uint32_t i = 0; i < options->n; i++)
        if (strcmp(options->items[i].key, OPTION) == 0)
            return &options->items[i];
    return NULL;
}

static bool share_is_option_of(const struct planner *pl, uint32_t backend)
{
    const struct described *b =
        lookup_described(pl->in, DESCRIBE_BACKEND, pl->desc->backends[backend].path);
    return b && b->flags & COLLRUN_BACKEND_SHARES;
}

/* The backend of a group that has the option; NULL: none. */
static const struct desc_backend *share_backend(const struct planner *pl,
                                                const struct desc_group *group)
{
    for (uint32_t i = 0; i <= group->nroutes; i++) {
        uint32_t backend = i ? group->routes[i - 1].backend : group->backend;
        if (share_is_option_of(pl, backend))
            return &pl->desc->backends[backend];
    }
    return NULL;
}

static bool share_same_ranks(const struct desc_ranks *a, const struct desc_ranks *b)
{
    return a->n == b->n && memcmp(a->items, b->items, a->n * sizeof *a->items) == 0;
}

/* True for "dp", and for "dp/host1", which a split group `dp` has become. */
static bool share_is_part_of(const char *planned, const char *name)
{
    size_t len = strlen(name);
    return strncmp(planned, name, len) == 0 && (!planned[len] || planned[len] == '/');
}

/* The planned group of that name with the ranks of `group`; without one, any of that name. NULL:
 * none. */
static struct desc_group *share_parent(const struct desc *desc, const struct desc_group *group,
                                       const char *name)
{
    struct desc_group *any = NULL;
    for (uint32_t i = 0; &desc->groups[i] != group; i++) {
        struct desc_group *other = &desc->groups[i];
        if (!share_is_part_of(other->name, name))
            continue;
        if (share_same_ranks(&other->ranks, &group->ranks))
            return other;
        any = other;
    }
    return any;
}

static bool share_is_group(const struct job *job, const char *name)
{
    for (uint32_t i = 0; i < job->ngroups; i++)
        if (strcmp(job->groups[i].name, name) == 0)
            return true;
    return false;
}

/* Devices that each member drives, as the engine counts them. */
static uint32_t share_devices(const struct planner *pl, const struct desc_group *group,
                              const struct desc_backend *backend)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < pl->desc->nkinds; i++)
        if (strcmp(pl->desc->kinds[i].name, backend->device_kind) == 0)
            n = desc_group_devices(group, i);
    return n ? n : 1;
}

/* What is wrong with sharing with that group; NULL: nothing. */
static const char *share_objection(struct planner *pl, const struct desc_group *group,
                                   const struct desc_group *parent)
{
    const struct desc_backend *own = share_backend(pl, group), *other = share_backend(pl, parent);
    if (own != other)
        return arena_printf(pl->arena, "that group is on backend \"%s\"",
                            pl->desc->backends[parent->backend].name);
    if (!share_same_ranks(&parent->ranks, &group->ranks))
        return "that group has other ranks, or the same in another order";
    uint32_t devices = share_devices(pl, group, own), theirs = share_devices(pl, parent, own);
    if (devices != theirs)
        return arena_printf(pl->arena, "that group has %u devices per process, and this one has %u",
                            theirs, devices);
    return NULL;
}

static void share_refuse(struct planner *pl, const char *path, const struct job_pair *pair,
                         const char *why, const char *hint)
{
    struct diag d;
    diag_at(&d, pair->loc, "%s.%s: \"%s\": %s", path, OPTION, pair->value ? pair->value : "", why);
    diag_hint(&d, "%s", hint);
    planner_add_error(pl, &d);
}

void plan_check_share(struct planner *pl, const struct job_group *group, struct desc_group *planned)
{
    static const char same[] =
        "share names an earlier group on the same backend, with the same ranks in the same order "
        "and the same number of devices per process";
    const struct job_pair *pair = share_find(&group->options);
    const char *path = arena_printf(pl->arena, "groups.%s.options", group->name), *why;
    if (!pair || !pair->value || !share_backend(pl, planned))
        return; /* an unknown option, or no text: already reported */
    struct desc_group *parent = share_parent(pl->desc, planned, pair->value);
    if (strcmp(pair->value, group->name) == 0)
        share_refuse(pl, path, pair, "a group cannot share with itself", same);
    else if (!share_is_group(pl->job, pair->value))
        share_refuse(pl, path, pair, "there is no such group", same);
    else if (!parent)
        share_refuse(pl, path, pair, "that group is formed later",
                     "groups are formed in the order of job.yaml; write that one first");
    else if ((why = share_objection(pl, planned, parent)))
        share_refuse(pl, path, pair, why, same);
    else {
        planned->share = 1 + (uint32_t)(parent - pl->desc->groups);
        parent->on_demand = false; /* it is named here */
    }
}

void plan_refuse_share(struct planner *pl, const char *path, const struct job_pairs *options,
                       const struct described *backend)
{
    const struct job_pair *pair = share_find(options);
    if (pair && backend->flags & COLLRUN_BACKEND_SHARES)
        share_refuse(pl, path, pair, "it is an option of one group, not of all",
                     "write it as groups.NAME.options.share");
}
