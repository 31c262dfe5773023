/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups: members in order, splits expanded, a backend for each.
 */
#include "plan/planner.h"
#include "spec/ranks.h"

#include <string.h>

enum { GROUPS_MAX = 65536 };

static bool group_on_one_host(const struct desc *desc, const struct desc_ranks *ranks)
{
    for (uint32_t i = 1; i < ranks->n; i++)
        if (desc->ranks[ranks->items[i]].host != desc->ranks[ranks->items[0]].host)
            return false;
    return true;
}

/* True if a member runs on this machine, so that the backend must work here. */
static bool group_any_here(const struct planner *pl, const struct desc_ranks *ranks)
{
    for (uint32_t i = 0; i < ranks->n; i++) {
        uint32_t host = pl->desc->ranks[ranks->items[i]].host;
        if (pl->job->hosts.nodes[host].transport.kind.v == JOB_TRANSPORT_LOCAL)
            return true;
    }
    return false;
}

/* False if a mapping of kinds to backends lacks the host, or a value. */
static bool group_has_backends(const struct job_group *group)
{
    bool all = job_backend_for(group, "host") != NULL;
    for (uint32_t i = 0; i < group->nbackends; i++)
        all = all && group->backends[i].backend.v;
    return all;
}

/* The backend for each kind of memory except host memory. False if one is missing. */
static bool group_add_kinds(struct planner *pl, const struct job_group *group,
                            struct backend_where where, struct desc_group *out)
{
    bool good = true;
    out->routes = arena_calloc(pl->arena, group->nbackends, sizeof *out->routes);
    for (uint32_t i = 0; i < group->nbackends; i++) {
        const char *name = group->backends[i].kind;
        uint32_t kind = plan_find_kind(pl, name);
        if (strcmp(name, "host") == 0 || kind == pl->desc->nkinds)
            continue; /* no kind: already reported */
        int64_t backend = plan_backend(pl, group, name, where);
        good = good && backend >= 0;
        if (backend >= 0)
            out->routes[out->nroutes++] =
                (struct desc_route){.kind = kind, .backend = (uint32_t)backend};
    }
    return good;
}

/* The devices of each member. */
static void group_add_devices(struct planner *pl, const struct job_group *group,
                              struct desc_group *out)
{
    const struct desc *desc = pl->desc;
    out->devices = arena_calloc(pl->arena, desc->nkinds, sizeof *out->devices);
    for (uint32_t i = 0; i < desc->nkinds; i++) {
        const struct desc_kind *kind = &desc->kinds[i];
        uint32_t count =
            kinds_of_group(pl->job, group, (struct kinds_kind){kind->name, kind->gpus}).count;
        if (count)
            out->devices[out->ndevices++] = (struct desc_need){.kind = i, .count = count};
    }
}

/* The backends of a group that need a device per member. */
static void group_check_own_devices(struct planner *pl, const struct job_group *group,
                                    struct desc_group *out)
{
    plan_check_own_devices(pl, group, out, out->backend);
    for (uint32_t i = 0; i < out->nroutes; i++)
        plan_check_own_devices(pl, group, out, out->routes[i].backend);
}

/* `world`, unless job.yaml has it under `groups`, or a workload lists it. */
static bool group_is_implicit(const struct job *job, const struct job_group *group)
{
    if (group->name_loc.line)
        return false;
    for (uint32_t i = 0; i < job->nworkloads; i++)
        for (uint32_t k = 0; k < job->workloads[i].groups.n; k++) {
            const char *listed = job->workloads[i].groups.items[k].v;
            if (job->workloads[i].groups.loc.line && listed && strcmp(listed, group->name) == 0)
                return false;
        }
    return true;
}

/* `first`: the first part of a split group; errors in its options are reported once. */
static bool group_add(struct planner *pl, const struct job_group *group, const char *name,
                      const struct desc_ranks *ranks, bool first)
{
    struct desc *desc = pl->desc;
    struct backend_where where = {.one_host = group_on_one_host(desc, ranks),
                                  .here = group_any_here(pl, ranks)};
    const char *host = group->nbackends ? "host" : NULL;
    const struct job_str *written = host ? &job_backend_for(group, host)->backend : &group->backend;
    int64_t backend = ranks->n ? plan_backend(pl, group, host, where) : -1;
    struct desc_group *out = &desc->groups[desc->ngroups++];
    *out = (struct desc_group){.name = name,
                               .backend = backend >= 0 ? (uint32_t)backend : 0,
                               .is_auto = job_is_auto(written),
                               .on_demand = group_is_implicit(pl->job, group),
                               .ranks = *ranks,
                               .timeout_ns = (uint64_t)group->timeout.v,
                               .check = (uint32_t)group->check.v,
                               .loc = group->name_loc};
    out->backend_rdma = out->backend_plain = out->backend;
    if (backend >= 0 && out->is_auto)
        out->backend_rdma = plan_backend_rdma(pl, group, out->backend, where);
    planner_pairs(pl, &group->options, &out->options);
    group_add_devices(pl, group, out);
    const bool good = ranks->n && group_add_kinds(pl, group, where, out) && backend >= 0;
    if (first && backend >= 0)
        plan_check_options(pl, group, out);
    if (backend >= 0)
        group_check_own_devices(pl, group, out);
    return good;
}

/* One group per host that has members, members in their order. */
static void group_split(struct planner *pl, const struct job_group *group,
                        const struct desc_ranks *all)
{
    const struct desc *desc = pl->desc;
    bool first = true;
    for (uint32_t h = 0; h < desc->nhosts; h++) {
        struct desc_ranks part = {
            .items = arena_calloc(pl->arena, desc->hosts[h].nranks, sizeof *part.items)};
        for (uint32_t i = 0; part.items && i < all->n; i++)
            if (desc->ranks[all->items[i]].host == h)
                part.items[part.n++] = all->items[i];
        const char *name = arena_printf(pl->arena, "%s/%s", group->name, desc->hosts[h].name);
        if (part.n && !group_add(pl, group, name, &part, first))
            return; /* the other parts would give the same error */
        first = first && !part.n;
    }
}

/* Reports the first part of a group in mesh.inside_host that has members on several hosts. */
static void group_check_inside_host(struct planner *pl, const struct job_group *group,
                                    const struct desc_ranks *part, uint32_t parts)
{
    const struct job_strs *inside = &pl->job->mesh.inside_host;
    const struct desc *desc = pl->desc;
    struct diag d;
    uint32_t name = 0, i = 0, other = 1;
    while (name < inside->n && strcmp(inside->items[name].v, group->name) != 0)
        name++;
    while (i < parts && group_on_one_host(desc, &part[i]))
        i++;
    if (name == inside->n || i == parts)
        return;
    const uint32_t *ranks = part[i].items, host = desc->ranks[ranks[0]].host;
    while (desc->ranks[ranks[other]].host == host)
        other++;
    diag_at(&d, inside->items[name].loc, "mesh.inside_host: %s has rank %u on %s and rank %u on %s",
            mesh_part_name(&pl->job->mesh, group, i, pl->arena), ranks[0], desc->hosts[host].name,
            ranks[other], desc->hosts[desc->ranks[ranks[other]].host].name);
    diag_hint(&d, "the last axis has neighbouring ranks; `slots` and processes.map place them");
    planner_add_error(pl, &d);
}

/* The groups of a mesh along some axes; each has its ranks in the order of the mesh. */
static void group_mesh(struct planner *pl, const struct job_group *group,
                       const struct desc_ranks *all)
{
    const struct job_mesh *mesh = &pl->job->mesh;
    const uint32_t parts = mesh_parts(mesh, group->mesh_axes), size = all->n / parts;
    if (all->n != mesh_parts(mesh, 0))
        return; /* a rank that does not exist, or is listed twice, was reported */
    struct desc_ranks *part = arena_calloc(pl->arena, parts, sizeof *part);
    for (uint32_t i = 0; i < parts; i++)
        part[i].items = arena_calloc(pl->arena, size, sizeof *part[i].items);
    for (uint32_t i = 0; i < all->n; i++) {
        struct desc_ranks *mine = &part[mesh_part_of(mesh, group->mesh_axes, i)];
        mine->items[mine->n++] = all->items[i];
    }
    group_check_inside_host(pl, group, part, parts);
    for (uint32_t i = 0; i < parts; i++)
        if (!group_add(pl, group, mesh_part_name(mesh, group, i, pl->arena), &part[i], i == 0))
            return; /* the other parts would give the same error */
}

/* The mesh, and the roles, for the ranks and for `collrun plan`. */
static void group_name_ranks(struct planner *pl)
{
    const struct job *job = pl->job;
    const struct job_mesh *mesh = &job->mesh;
    struct desc *desc = pl->desc;
    struct desc_ranks ranks;
    desc->roles = arena_calloc(pl->arena, job->rank_names.nroles, sizeof *desc->roles);
    for (; desc->nroles < job->rank_names.nroles; desc->nroles++) {
        const struct parse_role *role = &job->rank_names.roles[desc->nroles];
        desc->roles[desc->nroles] = (struct desc_role){role->name, role->first, role->n};
    }
    if (!mesh->naxes || mesh->refused)
        return;
    planner_ranks(pl, &mesh->ranks, &ranks);
    desc->mesh = (struct desc_mesh){
        .axes = arena_calloc(pl->arena, mesh->naxes, sizeof *desc->mesh.axes), .ranks = ranks};
    for (; desc->mesh.naxes < mesh->naxes; desc->mesh.naxes++) {
        const struct job_axis *axis = &mesh->axes[desc->mesh.naxes];
        desc->mesh.axes[desc->mesh.naxes] = (struct desc_axis){axis->name, (uint32_t)axis->size.v};
    }
}

/* The maximum number of groups after splitting. */
static uint64_t group_count(const struct job *job, const struct desc *desc)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < job->ngroups; i++) {
        const struct job_group *group = &job->groups[i];
        if (group->mesh_axes)
            n += job->mesh.refused ? 0 : mesh_parts(&job->mesh, group->mesh_axes);
        else
            n += group->split.v ? desc->nhosts : 1;
    }
    return n;
}

void plan_groups(struct planner *pl)
{
    const struct job *job = pl->job;
    struct desc *desc = pl->desc;
    plan_check_backends(pl);
    group_name_ranks(pl);
    uint64_t most = group_count(job, desc);
    if (most > GROUPS_MAX) {
        struct diag d;
        diag_at(
            &d, job->groups[0].name_loc,
            "groups: more than %d groups, counting one per host for split: host, and each group of "
            "the mesh",
            GROUPS_MAX);
        planner_add_error(pl, &d);
        return;
    }
    desc->groups = arena_calloc(pl->arena, most, sizeof *desc->groups);
    if (!desc->backends || !desc->nranks)
        return;
    for (uint32_t i = 0; i < job->ngroups; i++) {
        const struct job_group *group = &job->groups[i];
        struct desc_ranks ranks;
        if (group->mesh_axes && job->mesh.refused)
            continue; /* already reported */
        planner_ranks(pl, &group->ranks, &ranks);
        if (group->nbackends && !group_has_backends(group))
            continue; /* already reported */
        if (group->mesh_axes)
            group_mesh(pl, group, &ranks);
        else if (group->split.v == JOB_SPLIT_HOST)
            group_split(pl, group, &ranks);
        else
            group_add(pl, group, group->name, &ranks, true);
    }
}
