/* SPDX-License-Identifier: Apache-2.0
 *
 * Workloads: which plugin or command, which ranks, which groups, which parameters.
 */
#include "base/quote.h"
#include "plan/params.h"
#include "plan/planner.h"

#include <stdio.h>
#include <string.h>

/* True if a group of the description is a group of job.yaml or a part of it. */
static bool workload_group_matches(const char *group, const char *name)
{
    size_t len = strlen(name);
    return strncmp(group, name, len) == 0 && (!group[len] || group[len] == '/');
}

static bool workload_lists_group(const struct job_workload *workload, const char *group)
{
    if (!workload->groups.loc.line)
        return true;
    for (uint32_t i = 0; i < workload->groups.n; i++)
        if (workload->groups.items[i].v &&
            workload_group_matches(group, workload->groups.items[i].v))
            return true;
    return false;
}

/* The groups that the workload lists, or all, if one of its ranks is a member. */
static void workload_find_groups(struct planner *pl, const struct job_workload *workload,
                                 struct desc_workload *out)
{
    const struct desc *desc = pl->desc;
    bool *mine = arena_calloc(pl->arena, desc->nranks, sizeof *mine);
    out->groups = arena_calloc(pl->arena, desc->ngroups, sizeof *out->groups);
    for (uint32_t i = 0; i < out->ranks.n; i++)
        mine[out->ranks.items[i]] = true;
    for (uint32_t g = 0; g < desc->ngroups; g++) {
        const struct desc_ranks *ranks = &desc->groups[g].ranks;
        uint32_t i = 0;
        while (i < ranks->n && !mine[ranks->items[i]])
            i++;
        if (i < ranks->n && workload_lists_group(workload, desc->groups[g].name))
            out->groups[out->ngroups++] = g;
    }
}

static void workload_plugin_error(struct planner *pl, uint32_t index, struct diag *d)
{
    d->loc = pl->job->workloads[index].plugin.loc;
    diag_wrap(d, "workloads[%u].plugin", index);
    planner_add_error(pl, d);
}

/* Finds the plugin and puts its path into the description. NULL: unknown, or an error was reported.
 */
static const struct described *workload_plugin(struct planner *pl, uint32_t index,
                                               struct desc_workload *out)
{
    const struct job_workload *workload = &pl->job->workloads[index];
    struct diag d;
    if (!workload->plugin.v)
        return NULL;
    out->plugin = lookup_workload(pl->job, pl->in->workloads, workload->plugin.v, pl->arena, &d);
    if (!out->plugin) {
        workload_plugin_error(pl, index, &d);
        return NULL;
    }
    const struct described *what = lookup_described(pl->in, DESCRIBE_WORKLOAD, out->plugin);
    if (!what || !what->error)
        return what;
    if (pl->in->examined)
        return NULL;
    diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "%s", what->error);
    diag_hint(&d, "%s", what->hint);
    workload_plugin_error(pl, index, &d);
    return NULL;
}

static void workload_copy_overrides(struct planner *pl, const struct job_workload *workload,
                                    struct desc_workload *out)
{
    out->overrides = arena_calloc(pl->arena, workload->noverrides, sizeof *out->overrides);
    out->noverrides = workload->noverrides;
    for (uint32_t i = 0; i < out->noverrides; i++) {
        planner_ranks(pl, &workload->overrides[i].ranks, &out->overrides[i].ranks);
        planner_pairs(pl, &workload->overrides[i].params, &out->overrides[i].params);
    }
}

void plan_workloads(struct planner *pl)
{
    const struct job *job = pl->job;
    struct desc *desc = pl->desc;
    desc->workloads = arena_calloc(pl->arena, job->nworkloads, sizeof *desc->workloads);
    for (uint32_t i = 0; i < job->nworkloads; i++) {
        const struct job_workload *workload = &job->workloads[i];
        struct desc_workload *out = &desc->workloads[desc->nworkloads++];
        *out = (struct desc_workload){.name = workload->name.v,
                                      .background = workload->background.v,
                                      .timeout_ns = (uint64_t)workload->timeout.v,
                                      .plugin = "",
                                      .loc = workload->plugin.loc};
        const struct described *what = workload->command.n ? NULL : workload_plugin(pl, i, out);
        planner_ranks(pl, &workload->ranks, &out->ranks);
        if (workload->command.n)
            plan_command(pl, i, out);
        workload_find_groups(pl, workload, out);
        planner_pairs(pl, &workload->params, &out->params);
        workload_copy_overrides(pl, workload, out);
        if (what)
            params_check(pl, i, what);
    }
}
