/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups: members in order, splits expanded, a backend for each.
 */
#include "plan/params.h"
#include "plan/planner.h"

#include <string.h>

/* ---- the backend of a group ----
 *
 * The backend of each group. No backend is known by name here: `auto` selects by declared flags. An
 * error in an entry of `backends` is reported once, at that entry, not at every group that uses it.
 */

struct found {
    const struct described *what;
    const char *name, *path;
};

/* Finds the backend of a name. Fails if it cannot be loaded or declares another name; `d` then has
 * text and hint, but no place. 0 with `what` NULL: the file has not been described. */
static int backend_resolve(struct planner *pl, const char *written, struct found *out,
                           struct diag *d)
{
    *out = (struct found){0};
    out->path = lookup_backend(pl->job, pl->in->backends, written, pl->arena, &out->name, d);
    if (!out->path)
        return d->code;
    out->what = lookup_described(pl->in, DESCRIBE_BACKEND, out->path);
    if (!out->what)
        return 0;
    if (out->what->error && pl->in->examined)
        return 0;
    if (out->what->error) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "the backend \"%s\" cannot be loaded: %s", out->name,
                 out->what->error);
        return diag_hint(d, "%s", out->what->hint);
    }
    if (strcasecmp(out->what->name, out->name) != 0) {
        diag_set(d, COLLRUN_ERR_INVALID, "%s is named \"%s\", not \"%s\"", out->path,
                 out->what->name, out->name);
        return diag_hint(d, "use the name \"%s\" here and in the groups", out->what->name);
    }
    return 0;
}

static bool backend_is_declared(const struct job *job, const char *name)
{
    for (uint32_t i = 0; i < job->nbackends; i++)
        if (strcasecmp(job->backends[i].name, name) == 0)
            return true;
    return false;
}

void plan_check_backends(struct planner *pl)
{
    for (uint32_t i = 0; i < pl->job->nbackends; i++) {
        const struct job_backend *backend = &pl->job->backends[i];
        struct found found;
        struct diag d;
        if (backend_resolve(pl, backend->name, &found, &d) == 0) {
            const char *options = arena_printf(pl->arena, "backends.%s.options", backend->name);
            if (found.what)
                params_check_options(pl, options, &backend->options, &found.what, 1, false);
            continue;
        }
        bool path = backend->path.loc.line != 0;
        d.loc = path ? backend->path.loc : backend->name_loc;
        diag_wrap(&d, "backends.%s%s", backend->name, path ? ".path" : "");
        if (!path && !*lookup_left_out(backend->name, pl->arena))
            diag_hint(&d, "a backend that is not installed needs a path; installed: %s",
                      lookup_list(pl->in->backends, pl->arena));
        planner_add_error(pl, &d);
    }
}

/* ---- auto ---- */

/* What a group requires of its backend. */
struct requirement {
    const struct job_group *group;
    const char *kind; /* of the memory of the buffers; NULL: all */
    struct backend_where where;
};

/* The number of devices of each member that the backend can work on. */
static uint32_t backend_devices(const struct planner *pl, const struct described *b,
                                const struct requirement *need)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < pl->desc->nkinds; i++) {
        const struct desc_kind *kind = &pl->desc->kinds[i];
        if (b->memory.name && strcmp(b->memory.name, kind->name) == 0)
            n += kinds_of_group(pl->job, need->group, (struct kinds_kind){kind->name, kind->gpus})
                     .count;
    }
    return n;
}

static const char *backend_unfit(struct planner *pl, const struct described *b,
                                 const struct requirement *need)
{
    const char *kind = b->memory.name ? b->memory.name : "unknown";
    const struct described *declares = kinds_find(pl->in->plugins, pl->in->nplugins, kind);
    const struct describe_memory *memory = declares ? &declares->memory : &b->memory;
    bool on_devices = b->flags & COLLRUN_BACKEND_NEEDS_DEVICE;
    if (on_devices && need->kind && strcmp(need->kind, kind) != 0)
        return arena_printf(pl->arena, "works only on %s memory, but backend.%s is for %s memory",
                            kind, need->kind, need->kind);
    if (on_devices && !backend_devices(pl, b, need))
        return arena_printf(pl->arena,
                            "needs a separate %s for every member, but the group has %s%s 0",
                            memory->title, memory->gpus ? "gpus_per_process" : "devices.",
                            memory->gpus ? "" : kind);
    if (b->flags & COLLRUN_BACKEND_ONE_HOST && !need->where.one_host)
        return "works only within one host, but the group has ranks on several hosts";
    return NULL;
}

/* A backend for devices that is unavailable here may be available on the other hosts. */
static bool backend_may_work(const struct described *b, const struct requirement *need)
{
    return b->available || (b->flags & COLLRUN_BACKEND_NEEDS_DEVICE && !need->where.here);
}

/* True if the group has devices, or lists buffers, of the backend's kind of memory. */
static bool backend_is_for_devices(const struct planner *pl, const struct described *b,
                                   const struct requirement *need)
{
    if (!b->memory.name || (need->kind && strcmp(need->kind, b->memory.name) != 0))
        return false;
    return need->kind || backend_devices(pl, b, need);
}

/* The preference among backends that fit; the largest wins. */
static int backend_rank_fit(const struct planner *pl, const struct described *b,
                            const struct requirement *need)
{
    if (backend_is_for_devices(pl, b, need))
        return 3;
    if (b->flags & COLLRUN_BACKEND_ONE_HOST)
        return 2;
    return b->flags & COLLRUN_BACKEND_HOST_AWARE && !(b->flags & COLLRUN_BACKEND_RDMA) ? 1 : 0;
}

/* Why an installed backend cannot be selected; NULL: it can. */
static const char *backend_objection(struct planner *pl, const struct described *b,
                                     const struct requirement *need)
{
    if (b->error)
        return b->error;
    const char *problem = backend_unfit(pl, b, need);
    if (problem)
        return problem;
    return backend_may_work(b, need)
               ? NULL
               : arena_printf(pl->arena, "is not available here (%s)", b->reason);
}

/* The backends of job.yaml that work on the devices of the group, if an installed one does not. */
static void backend_choose_declared(struct planner *pl, const struct requirement *need,
                                    struct found *out)
{
    for (uint32_t i = 0; i < pl->job->nbackends; i++) {
        const char *name;
        const char *path = lookup_backend(pl->job, pl->in->backends, pl->job->backends[i].name,
                                          pl->arena, &name, NULL);
        const struct described *b = lookup_described(pl->in, DESCRIBE_BACKEND, path);
        if (b && !backend_objection(pl, b, need) && backend_rank_fit(pl, b, need) == 3 &&
            (!out->what || backend_rank_fit(pl, out->what, need) < 3))
            *out = (struct found){b, name, path};
    }
}

/* Selects the backend with the highest preference; of equals the first. Those that are not
 * installed count only if they work on devices of the group. */
static int backend_choose(struct planner *pl, const struct requirement *need, struct found *out,
                          struct diag *d)
{
    const char *why = "";
    *out = (struct found){0};
    for (uint32_t i = 0; i < pl->in->backends->n; i++) {
        const struct prefix_plugin *plugin = &pl->in->backends->items[i];
        const struct described *b = lookup_described(pl->in, DESCRIBE_BACKEND, plugin->path);
        if (!b)
            continue;
        const char *problem = backend_objection(pl, b, need);
        if (problem)
            why =
                arena_printf(pl->arena, "%s%s%s %s", why, *why ? "; " : "", plugin->name, problem);
        else if (!out->what ||
                 backend_rank_fit(pl, b, need) > backend_rank_fit(pl, out->what, need))
            *out = (struct found){b, plugin->name, plugin->path};
    }
    backend_choose_declared(pl, need, out);
    if (out->what)
        return 0;
    diag_set(d, COLLRUN_ERR_UNAVAILABLE, "no installed backend can serve this group");
    return diag_hint(d, "%s", why && *why ? why : "no backend is installed");
}

/* ---- groups ---- */

static const struct job_str *backend_key(const struct job_group *group, const char *kind)
{
    return kind ? &job_backend_for(group, kind)->backend : &group->backend;
}

static void backend_report(struct planner *pl, const struct requirement *need, struct diag *d)
{
    const struct job_group *group = need->group;
    const struct job_str *name = backend_key(group, need->kind);
    bool written = name->loc.line != 0;
    d->loc = written ? name->loc : group->name_loc;
    if (!d->loc.line)
        d->loc = pl->job->processes.count.loc;
    diag_wrap(d, "groups.%s%s%s%s", group->name, written ? ".backend" : "",
              written && need->kind ? "." : "", written && need->kind ? need->kind : "");
    planner_add_error(pl, d);
}

/* One of the backend's library per handle: see group_open.c of the engine. */
static void backend_note_communicators(const struct planner *pl, struct desc_backend *out)
{
    const uint64_t one_handle = COLLRUN_BACKEND_START_COLLECTIVES | COLLRUN_BACKEND_TAGS;
    const struct described *b = lookup_described(pl->in, DESCRIBE_BACKEND, out->path);
    if (!b || !(b->flags & COLLRUN_BACKEND_NEEDS_DEVICE) || !b->memory.name)
        return;
    bool one =
        (b->flags & one_handle) == one_handle && !(b->flags & COLLRUN_BACKEND_SEPARATE_P2P_HANDLE);
    out->device_kind = b->memory.name;
    out->communicators = one ? 1 : 2;
    out->on_demand = b->flags & COLLRUN_BACKEND_ON_DEMAND;
    for (uint32_t i = 0; i < b->nparams; i++)
        if (b->params[i].per_direction) {
            out->direction_option = b->params[i].name;
            out->direction_value = b->params[i].per_direction;
        }
}

uint32_t plan_add_backend(struct planner *pl, const char *name, const char *path,
                          struct diag_loc loc, bool unused)
{
    struct desc *desc = pl->desc;
    for (uint32_t i = 0; i < desc->nbackends; i++)
        if (strcmp(desc->backends[i].path, path) == 0) {
            if (!desc->backends[i].loc.line)
                desc->backends[i].loc = loc;
            desc->backends[i].unused = desc->backends[i].unused && unused;
            return i;
        }
    struct desc_backend *backend = &desc->backends[desc->nbackends];
    char *lower = arena_strdup(pl->arena, name);
    for (char *p = lower; *p; p++)
        *p = (char)(*p >= 'A' && *p <= 'Z' ? *p + ('a' - 'A') : *p);
    *backend = (struct desc_backend){.name = lower,
                                     .path = path,
                                     .loc = loc,
                                     .unused = unused,
                                     .device_kind = "",
                                     .direction_option = "",
                                     .direction_value = ""};
    backend_note_communicators(pl, backend);
    for (uint32_t i = 0; i < pl->job->nbackends; i++)
        if (strcasecmp(pl->job->backends[i].name, name) == 0)
            planner_pairs(pl, &pl->job->backends[i].options, &backend->options);
    return desc->nbackends++;
}

int64_t plan_backend(struct planner *pl, const struct job_group *group, const char *kind,
                     struct backend_where where)
{
    const struct requirement need = {.group = group, .kind = kind, .where = where};
    const struct job_str *name = backend_key(group, kind);
    const char *written = name->v;
    struct found found;
    struct diag d;
    int code;
    if (job_is_auto(name))
        code = backend_choose(pl, &need, &found, &d);
    else
        code = backend_resolve(pl, written, &found, &d);
    if (code < 0 && backend_is_declared(pl->job, written))
        return -1; /* already reported */
    if (code == 0 && !found.what)
        return -1;
    if (code == 0 && !pl->in->examined && !backend_may_work(found.what, &need)) {
        code = diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "the backend \"%s\" is not available here: %s",
                        found.name, found.what->reason);
    } else if (code == 0 && backend_unfit(pl, found.what, &need)) {
        code = diag_set(&d, COLLRUN_ERR_INVALID, "the backend \"%s\" %s", found.name,
                        backend_unfit(pl, found.what, &need));
        if (!where.one_host)
            diag_hint(&d, "use backend: auto, or one group per host with split: host");
    }
    if (code == 0)
        return plan_add_backend(pl, found.name, found.path, name->loc, false);
    backend_report(pl, &need, &d);
    return -1;
}

uint32_t plan_backend_rdma(struct planner *pl, const struct job_group *group, uint32_t backend,
                           struct backend_where where)
{
    const struct requirement need = {.group = group, .where = where};
    const struct described *plain =
        lookup_described(pl->in, DESCRIBE_BACKEND, pl->desc->backends[backend].path);
    /* Options are those of one backend, and so are not for a choice. */
    if (!plain || backend_rank_fit(pl, plain, &need) > 1 || group->options.n)
        return backend;
    for (uint32_t i = 0; i < pl->in->backends->n; i++) {
        const struct prefix_plugin *plugin = &pl->in->backends->items[i];
        const struct described *b = lookup_described(pl->in, DESCRIBE_BACKEND, plugin->path);
        if (b && b->flags & COLLRUN_BACKEND_RDMA && !backend_objection(pl, b, &need))
            return plan_add_backend(pl, plugin->name, plugin->path, (struct diag_loc){0}, true);
    }
    return backend;
}

void plan_check_options(struct planner *pl, const struct job_group *group,
                        const struct desc_group *planned)
{
    const struct desc_backend *backends = pl->desc->backends;
    const char *path = arena_printf(pl->arena, "groups.%s.options", group->name);
    const struct described **tables =
        arena_calloc(pl->arena, (size_t)planned->nroutes + 1, sizeof *tables);
    /* Without the devices, auto has selected another backend than the options are meant for. */
    if (planned->is_auto && pl->lacks_devices)
        return;
    tables[0] = lookup_described(pl->in, DESCRIBE_BACKEND, backends[planned->backend].path);
    for (uint32_t i = 0; i < planned->nroutes; i++)
        tables[i + 1] =
            lookup_described(pl->in, DESCRIBE_BACKEND, backends[planned->routes[i].backend].path);
    params_check_options(pl, path, &group->options, tables, planned->nroutes + 1, planned->is_auto);
}

/* ---- groups ---- */

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

/* The maximum number of groups after splitting. */
static uint64_t group_count(const struct job *job, const struct desc *desc)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < job->ngroups; i++)
        n += job->groups[i].split.v ? desc->nhosts : 1;
    return n;
}

void plan_groups(struct planner *pl)
{
    const struct job *job = pl->job;
    struct desc *desc = pl->desc;
    plan_check_backends(pl);
    uint64_t most = group_count(job, desc);
    if (most > GROUPS_MAX) {
        struct diag d;
        diag_at(&d, job->groups[0].name_loc,
                "groups: more than %d groups, counting one per host for split: host", GROUPS_MAX);
        planner_add_error(pl, &d);
        return;
    }
    desc->groups = arena_calloc(pl->arena, most, sizeof *desc->groups);
    if (!desc->backends || !desc->nranks)
        return;
    for (uint32_t i = 0; i < job->ngroups; i++) {
        const struct job_group *group = &job->groups[i];
        struct desc_ranks ranks;
        planner_ranks(pl, &group->ranks, &ranks);
        if (group->nbackends && !group_has_backends(group))
            continue; /* already reported */
        if (group->split.v == JOB_SPLIT_HOST)
            group_split(pl, group, &ranks);
        else
            group_add(pl, group, group->name, &ranks, true);
    }
}
