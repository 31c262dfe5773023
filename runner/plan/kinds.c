/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/kinds.h"

#include <string.h>

/* ---- declarations ---- */

const struct described *kinds_find(const struct described *plugins, uint32_t n, const char *name)
{
    const struct described *found = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const struct described *b = &plugins[i];
        if (b->kind != DESCRIBE_BACKEND || b->error || !b->memory.declares)
            continue;
        if (name && strcmp(b->memory.name, name) == 0)
            return b;
        if (!name && b->memory.gpus && (!found || (b->available && !found->available)))
            found = b;
    }
    return found;
}

/* ---- demands ---- */

static const struct job_num *kinds_written(const struct job_needs *needs, const char *kind)
{
    for (uint32_t i = 0; i < needs->n; i++)
        if (strcmp(needs->items[i].kind, kind) == 0)
            return &needs->items[i].count;
    return NULL;
}

static struct kinds_need kinds_of_section(const char *group, const struct job_needs *needs,
                                          const struct job_num *gpus, struct kinds_kind kind)
{
    const struct job_num *written = kinds_written(needs, kind.name);
    bool as_gpus = !written && kind.gpus && gpus->loc.line;
    written = as_gpus ? gpus : written;
    if (!written)
        return (struct kinds_need){0};
    return (struct kinds_need){(uint32_t)written->v, written->loc, group, as_gpus};
}

struct kinds_need kinds_of_processes(const struct job *job, struct kinds_kind kind)
{
    return kinds_of_section(NULL, &job->processes.devices, &job->processes.gpus_per_process, kind);
}

struct kinds_need kinds_of_group(const struct job *job, const struct job_group *group,
                                 struct kinds_kind kind)
{
    struct kinds_need need =
        kinds_of_section(group->name, &group->devices, &group->gpus_per_process, kind);
    return need.loc.line ? need : kinds_of_processes(job, kind);
}

struct kinds_need kinds_of_job(const struct job *job, struct kinds_kind kind)
{
    struct kinds_need most = kinds_of_processes(job, kind);
    for (uint32_t i = 0; i < job->ngroups; i++) {
        struct kinds_need need = kinds_of_group(job, &job->groups[i], kind);
        if (need.count > most.count)
            most = need;
    }
    return most;
}

static bool kinds_any_of_section(const struct job_needs *needs, const struct job_num *gpus)
{
    bool any = gpus->v > 0;
    for (uint32_t i = 0; i < needs->n; i++)
        any = any || needs->items[i].count.v > 0;
    return any;
}

bool kinds_any_of_job(const struct job *job)
{
    bool any = kinds_any_of_section(&job->processes.devices, &job->processes.gpus_per_process);
    for (uint32_t i = 0; i < job->ngroups; i++)
        any =
            any || kinds_any_of_section(&job->groups[i].devices, &job->groups[i].gpus_per_process);
    return any;
}

bool kinds_gpus_of_job(const struct job *job)
{
    bool gpus = job->processes.gpus_per_process.v > 0;
    for (uint32_t i = 0; i < job->ngroups; i++)
        gpus = gpus || job->groups[i].gpus_per_process.v > 0;
    return gpus;
}

/* ---- missing declarations ---- */

static bool kinds_lacks(const struct described *plugins, uint32_t n, const struct job_needs *needs,
                        const struct job_num *gpus)
{
    bool lacks = gpus->v > 0 && !kinds_find(plugins, n, NULL);
    for (uint32_t i = 0; i < needs->n; i++)
        lacks = lacks || !kinds_find(plugins, n, needs->items[i].kind);
    return lacks;
}

static bool kinds_group_lacks(const struct described *plugins, uint32_t n,
                              const struct job_group *group)
{
    for (uint32_t i = 0; i < group->nbackends; i++)
        if (strcmp(group->backends[i].kind, "host") != 0 &&
            !kinds_find(plugins, n, group->backends[i].kind))
            return true;
    return kinds_lacks(plugins, n, &group->devices, &group->gpus_per_process);
}

static bool kinds_host_lacks(const struct described *plugins, uint32_t n,
                             const struct job_host *host)
{
    for (uint32_t i = 0; i < host->ndevices; i++)
        if (!kinds_find(plugins, n, host->devices[i].kind))
            return true;
    return false;
}

bool kinds_missing(const struct job *job, const struct described *plugins, uint32_t n)
{
    bool lacks =
        kinds_lacks(plugins, n, &job->processes.devices, &job->processes.gpus_per_process) ||
        kinds_host_lacks(plugins, n, &job->hosts.defaults);
    for (uint32_t i = 0; i < job->ngroups; i++)
        lacks = lacks || kinds_group_lacks(plugins, n, &job->groups[i]);
    for (uint32_t i = 0; i < job->hosts.n; i++)
        lacks = lacks || kinds_host_lacks(plugins, n, &job->hosts.nodes[i]);
    for (uint32_t i = 0; i < n; i++)
        lacks = lacks || (!plugins[i].error && plugins[i].memory.name &&
                          !kinds_find(plugins, n, plugins[i].memory.name));
    return lacks;
}

/* ---- hosts ---- */

static const struct job_pool *kinds_pool_of(const struct job_host *host, const char *kind)
{
    for (uint32_t i = 0; i < host->ndevices; i++)
        if (strcmp(host->devices[i].kind, kind) == 0)
            return &host->devices[i].pool;
    return NULL;
}

struct diag_loc kinds_written_at(const struct job_pool *pool)
{
    return pool->count.loc.line ? pool->count.loc : pool->list.loc;
}

struct kinds_pool kinds_of_host(const struct job *job, uint32_t host, struct kinds_kind kind)
{
    static const struct job_pool none;
    const struct job_host *written = &job->hosts.nodes[host];
    const struct job_pool *pool = kinds_pool_of(written, kind.name);
    bool gpus = kind.gpus && kinds_written_at(&written->gpus).line;
    if (!pool && gpus)
        return (struct kinds_pool){&written->gpus, "gpus"};
    if (!pool)
        pool = kinds_pool_of(&job->hosts.defaults, kind.name);
    return (struct kinds_pool){pool ? pool : &none, "devices"};
}
