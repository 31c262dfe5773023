/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of desc.kinds: the kinds of memory that the job asks devices of, lists a backend for, or
 * whose backend a group uses. Reports kinds that no backend declares, and demands written twice, as
 * gpus_per_process and under devices.
 */
#include "plan/planner.h"

#include "base/quote.h"
#include "base/suggest.h"

#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

/* ---- unknown names ---- */

/* True if an entry of `backends` cannot be described: it may declare the kind, and its error is
 * reported elsewhere. */
static bool kind_may_be_hidden(struct planner *pl)
{
    const struct job *job = pl->job;
    for (uint32_t i = 0; i < job->nbackends; i++) {
        const char *path =
            lookup_backend(job, pl->in->backends, job->backends[i].name, pl->arena, NULL, NULL);
        const struct described *b = lookup_described(pl->in, DESCRIBE_BACKEND, path);
        if (!b || b->error)
            return true;
    }
    return false;
}

/* True if the backend that a group lists for a kind does not exist, which is reported elsewhere. */
static bool kind_has_bad_backend(struct planner *pl, const struct job_kind_backend *b)
{
    return b->backend.v && !job_is_auto(&b->backend) &&
           !lookup_backend(pl->job, pl->in->backends, b->backend.v, pl->arena, NULL, NULL);
}

/* Reports a name that is no kind; `host`: "host" is a valid name here. */
static void kind_check_name(struct planner *pl, const char *path, const char *kind,
                            struct diag_loc loc, bool host)
{
    const struct plan_input *in = pl->in;
    if ((host && strcmp(kind, "host") == 0) || kinds_find(in->plugins, in->nplugins, kind) ||
        kind_may_be_hidden(pl))
        return;
    const char **names = arena_calloc(pl->arena, (size_t)in->nplugins + 1, sizeof *names);
    const char *known = host ? "host" : "";
    size_t n = 0;
    if (host)
        names[n++] = "host";
    for (uint32_t i = 0; i < in->nplugins; i++) {
        const char *name = in->plugins[i].memory.name;
        if (!name || kinds_find(in->plugins, in->nplugins, name) != &in->plugins[i])
            continue;
        names[n++] = name;
        known = arena_printf(pl->arena, "%s%s%s", known, *known ? ", " : "", name);
    }
    struct diag d;
    const char *meant = suggest(kind, names, n);
    diag_at(&d, loc, "%s: no backend declares a kind of memory named %s", path, QUOTED(kind));
    diag_hint(&d, "%s%s%sknown here: %s", meant ? "did you mean \"" : "", meant ? meant : "",
              meant ? "\"? " : "", *known ? known : "none");
    planner_add_error(pl, &d);
}

static void kind_check_needs(struct planner *pl, const char *section, const struct job_needs *needs,
                             const struct job_num *gpus)
{
    const struct described *of_gpus = kinds_find(pl->in->plugins, pl->in->nplugins, NULL);
    const char *path = arena_printf(pl->arena, "%s.devices", section);
    struct diag d;
    for (uint32_t i = 0; i < needs->n; i++) {
        const struct job_need *need = &needs->items[i];
        kind_check_name(pl, path, need->kind, need->kind_loc, false);
        if (!gpus->v || !of_gpus || strcmp(need->kind, of_gpus->memory.name) != 0)
            continue;
        diag_at(&d, need->kind_loc, "%s.%s: the number of %ss is set twice", path, need->kind,
                of_gpus->memory.title);
        diag_second(&d, gpus->loc, "gpus_per_process is about the same devices");
        planner_add_error(pl, &d);
    }
    if (gpus->v <= 0 || of_gpus || kind_may_be_hidden(pl))
        return;
    diag_at(&d, gpus->loc, "%s.gpus_per_process: no backend declares a kind of memory with GPUs",
            section);
    diag_hint(&d, "collrun backends lists the backends and their kinds of memory");
    planner_add_error(pl, &d);
}

/* `inherited`: the place of `gpus` under hosts.defaults, whose value the host may have. */
static void kind_check_host(struct planner *pl, const char *path, const struct job_host *host,
                            struct diag_loc inherited)
{
    const struct described *of_gpus = kinds_find(pl->in->plugins, pl->in->nplugins, NULL);
    struct diag_loc gpus = kinds_written_at(&host->gpus);
    bool own = gpus.line && (gpus.line != inherited.line || gpus.column != inherited.column);
    for (uint32_t i = 0; i < host->ndevices; i++) {
        const struct job_host_devices *devices = &host->devices[i];
        struct diag d;
        kind_check_name(pl, path, devices->kind, devices->kind_loc, false);
        if (!own || !of_gpus || strcmp(devices->kind, of_gpus->memory.name) != 0)
            continue;
        diag_at(&d, devices->kind_loc, "%s.%s: the %ss of the host are set twice", path,
                devices->kind, of_gpus->memory.title);
        diag_second(&d, gpus, "gpus is about the same devices");
        planner_add_error(pl, &d);
    }
}

static void kind_check_names(struct planner *pl)
{
    const struct job *job = pl->job;
    const struct job_hosts *hosts = &job->hosts;
    kind_check_needs(pl, "processes", &job->processes.devices, &job->processes.gpus_per_process);
    for (uint32_t i = 0; i < job->ngroups; i++) {
        const struct job_group *group = &job->groups[i];
        const char *section =
            arena_printf(pl->arena, "%sgroups.%s", job_group_section(group), group->name);
        const char *path =
            arena_printf(pl->arena, "%sgroups.%s.backend", job_group_section(group), group->name);
        for (uint32_t k = 0; k < group->nbackends; k++)
            if (!kind_has_bad_backend(pl, &group->backends[k]))
                kind_check_name(pl, path, group->backends[k].kind, group->backends[k].kind_loc,
                                true);
        kind_check_needs(pl, section, &group->devices, &group->gpus_per_process);
    }
    kind_check_host(pl, "hosts.defaults.devices", &hosts->defaults, (struct diag_loc){0});
    for (uint32_t i = 0; i < hosts->n; i++) /* the hosts of a range have one list */
        if (!i || hosts->nodes[i].devices != hosts->nodes[i - 1].devices)
            kind_check_host(pl, "devices", &hosts->nodes[i],
                            kinds_written_at(&hosts->defaults.gpus));
}

/* ---- rows ---- */

static void kind_add_row(struct planner *pl, const struct described *b, bool gpus)
{
    struct desc *desc = pl->desc;
    for (uint32_t i = 0; i < desc->nkinds; i++)
        if (strcmp(desc->kinds[i].name, b->memory.name) == 0)
            return;
    uint32_t backend = plan_add_backend(pl, b->name, b->path, (struct diag_loc){0}, true);
    desc->kinds[desc->nkinds++] = (struct desc_kind){.name = b->memory.name,
                                                     .title = b->memory.title,
                                                     .mask = b->memory.mask,
                                                     .backend = backend,
                                                     .gpus = gpus};
}

static bool kind_is_used(const struct planner *pl, struct kinds_kind kind)
{
    const struct job *job = pl->job;
    bool used = pl->in->examined || kinds_of_job(job, kind).count;
    for (uint32_t i = 0; i < job->ngroups; i++)
        used = used || job_backend_for(&job->groups[i], kind.name);
    return used;
}

void plan_kinds(struct planner *pl)
{
    const struct plan_input *in = pl->in;
    const struct described *of_gpus = kinds_find(in->plugins, in->nplugins, NULL);
    struct desc *desc = pl->desc;
    desc->kinds = arena_calloc(pl->arena, in->nplugins, sizeof *desc->kinds);
    desc->backends = arena_calloc(pl->arena, in->nplugins, sizeof *desc->backends);
    kind_check_names(pl);
    for (uint32_t i = 0; i < in->nplugins; i++) {
        const struct described *b = &in->plugins[i];
        struct kinds_kind kind = {b->memory.name, b == of_gpus};
        if (b->memory.name && kinds_find(in->plugins, in->nplugins, b->memory.name) == b &&
            kind_is_used(pl, kind))
            kind_add_row(pl, b, kind.gpus);
    }
}

void plan_kinds_of_backends(struct planner *pl)
{
    const struct plan_input *in = pl->in;
    for (uint32_t i = 0; i < pl->desc->nbackends; i++) {
        const struct described *b =
            lookup_described(in, DESCRIBE_BACKEND, pl->desc->backends[i].path);
        const struct described *declares =
            b && b->memory.name ? kinds_find(in->plugins, in->nplugins, b->memory.name) : NULL;
        if (declares)
            kind_add_row(pl, declares, declares == kinds_find(in->plugins, in->nplugins, NULL));
    }
}

uint32_t plan_find_kind(const struct planner *pl, const char *name)
{
    uint32_t i = 0;
    while (i < pl->desc->nkinds && strcmp(pl->desc->kinds[i].name, name) != 0)
        i++;
    return i;
}

const char *plan_need_path(struct planner *pl, const struct kinds_need *need, const char *kind)
{
    const char *section = need->group ? need->group : "processes";
    const char *path =
        arena_printf(pl->arena, "%s%s.%s%s", need->group ? "groups." : "", section,
                     need->gpus ? "gpus_per_process" : "devices.", need->gpus ? "" : kind);
    return path;
}
