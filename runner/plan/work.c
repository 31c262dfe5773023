/* SPDX-License-Identifier: Apache-2.0
 *
 * Workloads: which plugin, which ranks, which groups, which parameters.
 */
#include "base/quote.h"
#include "plan/maker.h"
#include "plan/params.h"

#include <stdio.h>
#include <string.h>

/* Whether a group of the description is, or is a part of, a group of job.yaml. */
static bool is_part_of(const char *group, const char *name)
{
    size_t len = strlen(name);
    return !strncmp(group, name, len) && (!group[len] || group[len] == '/');
}

static bool is_listed(const struct job_workload *workload, const char *group)
{
    if (!workload->groups.loc.line)
        return true;
    for (uint32_t i = 0; i < workload->groups.n; i++)
        if (workload->groups.items[i].v && is_part_of(group, workload->groups.items[i].v))
            return true;
    return false;
}

/* The groups that it lists, or all, as far as one of its ranks is in them. */
static void find_groups(struct maker *m, const struct job_workload *workload,
                        struct desc_workload *out)
{
    const struct desc *desc = m->desc;
    bool *mine = arena_calloc(m->arena, desc->nranks, sizeof *mine);
    out->groups = arena_calloc(m->arena, desc->ngroups, sizeof *out->groups);
    if (!mine || !out->groups)
        return;
    for (uint32_t i = 0; i < out->ranks.n; i++)
        mine[out->ranks.items[i]] = true;
    for (uint32_t g = 0; g < desc->ngroups; g++) {
        const struct desc_ranks *ranks = &desc->groups[g].ranks;
        uint32_t i = 0;
        while (i < ranks->n && !mine[ranks->items[i]])
            i++;
        if (i < ranks->n && is_listed(workload, desc->groups[g].name))
            out->groups[out->ngroups++] = g;
    }
}

static void plugin_error(struct maker *m, uint32_t index, struct diag *d)
{
    d->loc = m->job->workloads[index].plugin.loc;
    diag_wrap(d, "workloads[%u].plugin", index);
    maker_note(m, d);
}

/* Whether the plugin is there and can be loaded; its path goes into the description. */
static const struct described *find_plugin(struct maker *m, uint32_t index,
                                           struct desc_workload *out)
{
    const struct job_workload *workload = &m->job->workloads[index];
    struct diag d;
    if (!workload->plugin.v)
        return NULL;
    out->plugin = lookup_workload(m->job, m->in->workloads, workload->plugin.v, m->arena, &d);
    if (!out->plugin) {
        plugin_error(m, index, &d);
        return NULL;
    }
    const struct described *what = lookup_described(m->in, DESCRIBE_WORKLOAD, out->plugin);
    if (!what || !what->error)
        return what;
    if (m->in->examined)
        return NULL;
    diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "%s", what->error);
    diag_hint(&d, "%s", what->hint);
    plugin_error(m, index, &d);
    return NULL;
}

static void copy_overrides(struct maker *m, const struct job_workload *workload,
                           struct desc_workload *out)
{
    out->overrides = arena_calloc(m->arena, workload->noverrides, sizeof *out->overrides);
    out->noverrides = out->overrides ? workload->noverrides : 0;
    for (uint32_t i = 0; i < out->noverrides; i++) {
        maker_ranks(m, &workload->overrides[i].ranks, &out->overrides[i].ranks);
        maker_pairs(m, &workload->overrides[i].params, &out->overrides[i].params);
    }
}

void maker_workloads(struct maker *m)
{
    const struct job *job = m->job;
    struct desc *desc = m->desc;
    desc->workloads = arena_calloc(m->arena, job->nworkloads, sizeof *desc->workloads);
    for (uint32_t i = 0; desc->workloads && i < job->nworkloads; i++) {
        const struct job_workload *workload = &job->workloads[i];
        struct desc_workload *out = &desc->workloads[desc->nworkloads++];
        *out = (struct desc_workload){.name = workload->name.v,
                                      .background = workload->background.v,
                                      .timeout_ns = (uint64_t)workload->timeout.v,
                                      .loc = workload->plugin.loc};
        const struct described *what = find_plugin(m, i, out);
        maker_ranks(m, &workload->ranks, &out->ranks);
        find_groups(m, workload, out);
        maker_pairs(m, &workload->params, &out->params);
        copy_overrides(m, workload, out);
        if (what)
            params_check(m, i, what);
    }
}
