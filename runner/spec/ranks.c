/* SPDX-License-Identifier: Apache-2.0
 *
 * - Roles are placed before anything else is read, because every rank set may name them.
 * - Position i of a mesh has the coordinates of i in a mixed-radix notation whose last digit is
 *   the last axis. The ranks of a group of some axes agree in all other coordinates: these, as one
 *   number in the same notation, are the part of the group.
 * - A wrong role or mesh is reported once. Rank sets that name roles, and groups of the mesh, are
 *   then left out of later checks.
 */
#include "spec/ranks.h"

#include "base/quote.h"
#include "base/suggest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

/* ---- roles ---- */

/* Reports roles that do not cover the ranks of the job. `total`: their sizes without `rest`. */
static bool ranks_check_roles(const struct job *job, uint64_t total, const struct job_role *rest,
                              struct diag_list *diags)
{
    const uint64_t count = (uint64_t)job->processes.count.v;
    struct diag d;
    if (rest ? total < count : total == count)
        return true;
    if (rest)
        diag_at(&d, rest->size.loc, "roles.%s: no rank is left for it", rest->name);
    else
        diag_at(&d, job->roles[0].name_loc,
                "roles: %" PRIu64 " rank%s in all, but the job has %" PRIu64, total,
                total == 1 ? "" : "s", count);
    diag_second(&d, job->processes.count.loc, "%" PRIu64 " rank%s", count, count == 1 ? "" : "s");
    if (!rest)
        diag_hint(&d, "the size of one role may be `rest`");
    diag_list_add(diags, &d);
    return false;
}

/* The role whose size is `rest`; NULL: none. Two of them are an error. */
static bool ranks_find_rest(const struct job *job, const struct job_role **rest,
                            struct diag_list *diags)
{
    *rest = NULL;
    for (uint32_t i = 0; i < job->nroles; i++) {
        const struct job_role *role = &job->roles[i];
        struct diag d;
        if (role->size.v || !role->size.loc.line)
            continue;
        if (!*rest) {
            *rest = role;
            continue;
        }
        diag_at(&d, role->size.loc, "roles.%s: only one role can have the rest", role->name);
        diag_second(&d, (*rest)->size.loc, "first here");
        diag_list_add(diags, &d);
        return false;
    }
    return true;
}

void ranks_place_roles(struct job *job, struct arena *arena, struct diag_list *diags)
{
    const uint32_t count = (uint32_t)job->processes.count.v;
    const struct job_role *rest;
    uint64_t total = 0;
    job->rank_names = (struct parse_rank_names){.nranks = count};
    if (!job->nroles)
        return;
    job->rank_names.unknown = true;
    if (!ranks_find_rest(job, &rest, diags) || !count)
        return;
    for (uint32_t i = 0; i < job->nroles; i++) {
        if (!job->roles[i].size.loc.line)
            return; /* its size was refused */
        total += (uint64_t)job->roles[i].size.v;
    }
    if (!ranks_check_roles(job, total, rest, diags))
        return;
    struct parse_role *roles = arena_calloc(arena, job->nroles, sizeof *roles);
    uint32_t first = 0;
    for (uint32_t i = 0; i < job->nroles; i++) {
        const struct job_role *role = &job->roles[i];
        const uint32_t n = role == rest ? count - (uint32_t)total : (uint32_t)role->size.v;
        roles[i] = (struct parse_role){role->name, first, n};
        first += n;
    }
    job->rank_names =
        (struct parse_rank_names){.nranks = count, .roles = roles, .nroles = job->nroles};
}

/* ---- the tree of a mesh ---- */

static struct node *ranks_map_node(struct arena *arena, struct diag_loc loc)
{
    struct node *map = arena_calloc(arena, 1, sizeof *map);
    *map = (struct node){.kind = NODE_MAP, .weight = 1, .loc = loc};
    return map;
}

/* An entry of mesh.groups as a mapping: [dp, tp] is {axes: [dp, tp]}; nothing is all defaults. */
static struct node *ranks_group_node(struct node *value, struct arena *arena)
{
    if (!node_is_null(value) && value->kind != NODE_LIST)
        return value;
    struct node *map = ranks_map_node(arena, value->loc);
    if (value->kind == NODE_LIST) {
        map->entries = arena_calloc(arena, 1, sizeof *map->entries);
        map->entries[0] = (struct node_entry){"axes", value->loc, value};
        map->n = 1;
    }
    return map;
}

/* A copy of a map in which `key` has another value; the key is added if it is not there. */
static struct node *ranks_with(const struct node *map, const char *key, struct diag_loc loc,
                               struct node *value, struct arena *arena)
{
    struct node *copy = arena_memdup(arena, map, sizeof *map);
    uint32_t at = 0;
    copy->entries = arena_calloc(arena, (size_t)map->n + 1, sizeof *copy->entries);
    if (map->n)
        memcpy(copy->entries, map->entries, map->n * sizeof *map->entries);
    while (at < map->n && strcmp(map->entries[at].key, key) != 0)
        at++;
    if (at == map->n)
        copy->entries[copy->n++] = (struct node_entry){.key = key, .loc = loc};
    copy->entries[at].value = value;
    return copy;
}

struct node *ranks_add_mesh_groups(struct node *root, struct arena *arena)
{
    const struct node *mesh = root->kind == NODE_MAP ? node_get(root, "mesh") : NULL;
    const struct node *axes = mesh && mesh->kind == NODE_MAP ? node_get(mesh, "axes") : NULL;
    if (!axes || axes->kind != NODE_MAP)
        return root;
    struct node *groups = node_get(mesh, "groups");
    if (groups && groups->kind != NODE_MAP && !node_is_null(groups))
        return root; /* the reader reports it */
    const struct node *written = groups && groups->kind == NODE_MAP ? groups : NULL;
    groups = ranks_map_node(arena, written ? written->loc : mesh->loc);
    for (uint32_t i = 0; i < axes->n; i++)
        groups = ranks_with(groups, axes->entries[i].key, axes->entries[i].loc,
                            ranks_map_node(arena, axes->entries[i].loc), arena);
    for (uint32_t i = 0; written && i < written->n; i++)
        groups = ranks_with(groups, written->entries[i].key, written->entries[i].loc,
                            ranks_group_node(written->entries[i].value, arena), arena);
    return ranks_with(root, "mesh", root->loc,
                      ranks_with(mesh, "groups", groups->loc, groups, arena), arena);
}

/* ---- the axes of a mesh ---- */

static void ranks_refuse_mesh(struct job *job, const struct diag *d, struct diag_list *diags)
{
    job->mesh.refused = true;
    diag_list_add(diags, d);
}

/* "pp 2 x tp 4" */
static const char *ranks_product_text(const struct job_mesh *mesh, struct arena *arena)
{
    const char *text = "";
    for (uint32_t i = 0; i < mesh->naxes; i++)
        if (mesh->axes[i].size.v)
            text = arena_printf(arena, "%s%s%s %" PRId64, text, *text ? " x " : "",
                                mesh->axes[i].name, mesh->axes[i].size.v);
    return *text ? text : "1";
}

/* The number of ranks of the mesh; 0: unknown. */
static uint32_t ranks_of_mesh(const struct job *job)
{
    const struct job_ranks *ranks = &job->mesh.ranks;
    uint64_t n = 0;
    if (!job->processes.count.v || ranks->refused)
        return 0;
    for (uint32_t i = 0; i < ranks->n; i++)
        n += parse_range_count(&ranks->parts[i].range);
    return ranks->all ? (uint32_t)job->processes.count.v : (uint32_t)n;
}

/* The axis whose size is `rest`; NULL: none. Two of them are an error. */
static struct job_axis *ranks_find_rest_axis(struct job *job, struct diag_list *diags)
{
    struct job_axis *rest = NULL;
    for (uint32_t i = 0; i < job->mesh.naxes; i++) {
        struct job_axis *axis = &job->mesh.axes[i];
        struct diag d;
        if (axis->size.v)
            continue;
        if (rest && axis->size.loc.line) {
            diag_at(&d, axis->size.loc, "mesh.axes.%s: only one axis can have the rest",
                    axis->name);
            diag_second(&d, rest->size.loc, "first here");
            ranks_refuse_mesh(job, &d, diags);
        }
        job->mesh.refused = job->mesh.refused || !axis->size.loc.line;
        rest = axis;
    }
    return rest;
}

/* The product of the axes is the number of ranks. */
static void ranks_size_axes(struct job *job, struct arena *arena, struct diag_list *diags)
{
    struct job_mesh *mesh = &job->mesh;
    struct job_axis *rest = ranks_find_rest_axis(job, diags);
    const uint32_t n = ranks_of_mesh(job);
    uint64_t product = 1;
    struct diag d;
    for (uint32_t i = 0; i < mesh->naxes && product <= JOB_RANKS_MAX; i++)
        product *= mesh->axes[i].size.v ? (uint64_t)mesh->axes[i].size.v : 1;
    mesh->refused = mesh->refused || !n;
    if (mesh->refused)
        return;
    if (rest ? n % product == 0 && n >= product : n == product) {
        if (rest)
            rest->size.v = (int64_t)(n / product);
        return;
    }
    const char *text = ranks_product_text(mesh, arena);
    if (rest)
        diag_at(&d, rest->size.loc, "mesh.axes.%s: %s does not divide the %u rank%s", rest->name,
                text, n, n == 1 ? "" : "s");
    else
        diag_at(&d, mesh->axes[0].name_loc, "mesh.axes: %s is not %u, the number of ranks", text,
                n);
    if (mesh->ranks.all)
        diag_second(&d, job->processes.count.loc, "%u rank%s", n, n == 1 ? "" : "s");
    else
        diag_second(&d, mesh->ranks.loc, "%u rank%s", n, n == 1 ? "" : "s");
    if (!rest)
        diag_hint(&d, "the size of one axis may be `rest`");
    ranks_refuse_mesh(job, &d, diags);
}

/* ---- the groups of a mesh ---- */

static uint32_t ranks_find_axis(const struct job_mesh *mesh, const char *name)
{
    uint32_t i = 0;
    while (i < mesh->naxes && strcmp(mesh->axes[i].name, name) != 0)
        i++;
    return i;
}

static void ranks_unknown_axis(struct job *job, const char *path, const char *name,
                               struct diag_loc loc, struct diag_list *diags)
{
    const char *names[JOB_AXES_MAX];
    char text[SUGGEST_TEXT];
    struct diag d;
    for (uint32_t i = 0; i < job->mesh.naxes; i++)
        names[i] = job->mesh.axes[i].name;
    diag_at(&d, loc, "%s: the mesh has no axis %s", path, QUOTED(name));
    diag_hint(&d, "%s", suggest_text(name, "axes", names, job->mesh.naxes, text));
    ranks_refuse_mesh(job, &d, diags);
}

/* The bits of the axes of a group. 0: an error was reported. */
static uint32_t ranks_group_axes(struct job *job, const struct job_group *group,
                                 struct arena *arena, struct diag_list *diags)
{
    const struct job_mesh *mesh = &job->mesh;
    const char *path = arena_printf(arena, "mesh.groups.%s", group->name);
    const uint32_t own = ranks_find_axis(mesh, group->name);
    uint32_t bits = own < mesh->naxes ? 1u << own : 0;
    struct diag d;
    if (bits && group->axes.n) {
        diag_at(&d, group->axes.loc, "%s: it is the group of the axis, so it has no other axes",
                path);
        ranks_refuse_mesh(job, &d, diags);
        return 0;
    }
    if (!bits && !group->axes.loc.line)
        ranks_unknown_axis(job, path, group->name, group->name_loc, diags);
    for (uint32_t i = 0; i < group->axes.n; i++) {
        const struct job_str *name = &group->axes.items[i];
        const uint32_t axis = name->v ? ranks_find_axis(mesh, name->v) : mesh->naxes;
        if (axis == mesh->naxes) {
            if (name->v)
                ranks_unknown_axis(job, path, name->v, name->loc, diags);
            return 0;
        }
        if (bits & 1u << axis) {
            diag_at(&d, name->loc, "%s: the axis %s is listed twice", path, QUOTED(name->v));
            ranks_refuse_mesh(job, &d, diags);
            return 0;
        }
        bits |= 1u << axis;
    }
    return bits;
}

/* A name of `groups`, and so of `world`, is taken. */
static bool ranks_check_group_name(struct job *job, const struct job_group *group,
                                   struct diag_list *diags)
{
    struct diag d;
    for (uint32_t i = 0; i < job->ngroups; i++) {
        if (strcmp(job->groups[i].name, group->name) != 0)
            continue;
        diag_at(&d, group->name_loc, "mesh: the job has another group %s", QUOTED(group->name));
        if (job->groups[i].name_loc.line)
            diag_second(&d, job->groups[i].name_loc, "this one");
        ranks_refuse_mesh(job, &d, diags);
        return false;
    }
    return true;
}

static void ranks_check_inside_host(struct job *job, struct diag_list *diags)
{
    const struct job_mesh *mesh = &job->mesh;
    for (uint32_t i = 0; i < mesh->inside_host.n; i++) {
        const struct job_str *name = &mesh->inside_host.items[i];
        const char *names[64];
        uint32_t k = 0, n = 0;
        struct diag d;
        while (name->v && k < mesh->ngroups && strcmp(mesh->groups[k].name, name->v) != 0)
            k++;
        if (!name->v || k < mesh->ngroups)
            continue;
        for (; n < mesh->ngroups && n < sizeof names / sizeof *names; n++)
            names[n] = mesh->groups[n].name;
        const char *meant = suggest(name->v, names, n);
        diag_at(&d, name->loc, "mesh.inside_host: no axis and no group of the mesh is named %s",
                QUOTED(name->v));
        if (meant)
            diag_hint(&d, "did you mean \"%s\"?", meant);
        ranks_refuse_mesh(job, &d, diags);
    }
}

void ranks_resolve_mesh(struct job *job, struct arena *arena, struct diag_list *diags)
{
    struct job_mesh *mesh = &job->mesh;
    struct diag d;
    if (!mesh->naxes)
        return;
    if (mesh->naxes > JOB_AXES_MAX) {
        diag_at(&d, mesh->axes[JOB_AXES_MAX].name_loc, "mesh.axes: more than %d axes",
                JOB_AXES_MAX);
        mesh->naxes = 0;
        ranks_refuse_mesh(job, &d, diags);
        return;
    }
    ranks_size_axes(job, arena, diags);
    ranks_check_inside_host(job, diags);
    struct job_group *groups =
        arena_calloc(arena, (size_t)job->ngroups + mesh->ngroups, sizeof *groups);
    if (job->ngroups)
        memcpy(groups, job->groups, job->ngroups * sizeof *groups);
    uint32_t n = job->ngroups;
    for (uint32_t i = 0; i < mesh->ngroups; i++) {
        struct job_group *group = &mesh->groups[i];
        group->ranks = mesh->ranks;
        group->mesh_axes = ranks_group_axes(job, group, arena, diags);
        if (group->mesh_axes && ranks_check_group_name(job, group, diags))
            groups[n++] = *group;
    }
    job->groups = groups;
    job->ngroups = n;
}

/* ---- positions ---- */

uint32_t mesh_parts(const struct job_mesh *mesh, uint32_t axes)
{
    uint32_t n = 1;
    for (uint32_t i = 0; i < mesh->naxes; i++)
        if (!(axes & 1u << i))
            n *= (uint32_t)mesh->axes[i].size.v;
    return n;
}

uint32_t mesh_part_of(const struct job_mesh *mesh, uint32_t axes, uint32_t position)
{
    uint32_t part = 0, factor = 1;
    for (uint32_t i = mesh->naxes; i-- > 0;) {
        const uint32_t size = (uint32_t)mesh->axes[i].size.v;
        if (!(axes & 1u << i)) {
            part += position % size * factor;
            factor *= size;
        }
        position /= size;
    }
    return part;
}

const char *mesh_part_name(const struct job_mesh *mesh, const struct job_group *group,
                           uint32_t part, struct arena *arena)
{
    const char *text = "";
    for (uint32_t i = mesh->naxes; i-- > 0;) {
        const uint32_t size = (uint32_t)mesh->axes[i].size.v;
        if (group->mesh_axes & 1u << i)
            continue;
        text = arena_printf(arena, "%s=%u%s%s", mesh->axes[i].name, part % size, *text ? "," : "",
                            text);
        part /= size;
    }
    return *text ? arena_printf(arena, "%s/%s", group->name, text) : group->name;
}
