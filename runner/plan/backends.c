/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend of each group. No backend is known by name here: `auto` selects by declared flags. An
 * error in an entry of `backends` is reported once, at that entry, not at every group that uses it.
 */
#include "plan/params.h"
#include "plan/planner.h"

#include <string.h>

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
    diag_wrap(d, "%sgroups.%s%s%s%s", job_group_section(group), group->name,
              written ? ".backend" : "", written && need->kind ? "." : "",
              written && need->kind ? need->kind : "");
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
    const char *path =
        arena_printf(pl->arena, "%sgroups.%s.options", job_group_section(group), group->name);
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
