/* SPDX-License-Identifier: Apache-2.0
 *
 * A backend for each group. Nothing here knows one by name: `auto` goes by what they declare. What
 * is wrong with an entry of `backends` is said once, there, and not again at every group that uses
 * it.
 */
#include "plan/maker.h"
#include "plan/params.h"

#include <string.h>

struct found {
    const struct described *what;
    const char *name, *path;
};

/* The backend that a name stands for, if it can be loaded and agrees about its name. A negative
 * code comes with words and hint, but no place. 0 with `what` NULL: nobody has asked the file. */
static int resolve(struct maker *m, const char *written, struct found *out, struct diag *d)
{
    *out = (struct found){0};
    out->path = lookup_backend(m->job, m->in->backends, written, m->arena, &out->name, d);
    if (!out->path)
        return d->code;
    out->what = lookup_described(m->in, DESCRIBE_BACKEND, out->path);
    if (!out->what)
        return 0;
    if (out->what->error && m->in->examined)
        return 0;
    if (out->what->error) {
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "the backend \"%s\" cannot be loaded: %s", out->name,
                 out->what->error);
        return diag_hint(d, "%s", out->what->hint);
    }
    if (strcasecmp(out->what->name, out->name) != 0) {
        diag_set(d, COLLRUN_ERR_INVALID, "%s calls itself \"%s\", not \"%s\"", out->path,
                 out->what->name, out->name);
        return diag_hint(d, "name it \"%s\", here and in the groups that use it", out->what->name);
    }
    return 0;
}

static bool is_declared(const struct job *job, const char *name)
{
    for (uint32_t i = 0; i < job->nbackends; i++)
        if (!strcasecmp(job->backends[i].name, name))
            return true;
    return false;
}

void maker_check_backends(struct maker *m)
{
    for (uint32_t i = 0; i < m->job->nbackends; i++) {
        const struct job_backend *backend = &m->job->backends[i];
        struct found found;
        struct diag d;
        if (resolve(m, backend->name, &found, &d) == 0) {
            const char *options = arena_printf(m->arena, "backends.%s.options", backend->name);
            if (found.what && options)
                params_check_options(m, options, &backend->options, found.what, NULL);
            continue;
        }
        bool path = backend->path.loc.line != 0;
        d.loc = path ? backend->path.loc : backend->name_loc;
        diag_wrap(&d, "backends.%s%s", backend->name, path ? ".path" : "");
        if (!path)
            diag_hint(&d, "a backend that is not installed needs a path; installed: %s",
                      lookup_list(m->in->backends, m->arena));
        maker_note(m, &d);
    }
}

/* ---- auto ---- */

/* What a group asks of its backend. */
struct wish {
    enum backend_slot slot;
    struct backend_where where;
    bool devices;
};

static const char *unfit(const struct described *b, const struct wish *wish)
{
    if (b->flags & COLLRUN_BACKEND_NEEDS_DEVICE && wish->slot == BACKEND_HOST)
        return "works on GPU memory; this one is for buffers in host memory";
    if (b->flags & COLLRUN_BACKEND_NEEDS_DEVICE && !wish->devices)
        return "needs a GPU for every member, and the group has gpus_per_process 0";
    if (b->flags & COLLRUN_BACKEND_ONE_HOST && !wish->where.one_host)
        return "works within one host, and the group has ranks on several";
    return NULL;
}

/* Whether there are GPUs and their libraries on other hosts is for those to say. */
static bool may_work(const struct described *b, const struct wish *wish)
{
    return b->available || (b->flags & COLLRUN_BACKEND_NEEDS_DEVICE && !wish->where.here);
}

/* How well a backend that fits answers a wish; the larger the better. */
static int rank_fit(const struct described *b, const struct wish *wish)
{
    if (b->flags & COLLRUN_BACKEND_NEEDS_DEVICE)
        return wish->devices ? 2 : 0;
    return b->flags & COLLRUN_BACKEND_ONE_HOST ? 1 : 0;
}

/* Why an installed backend is out of the question; NULL = it is not. */
static const char *objection(const struct described *b, const struct wish *wish,
                             struct arena *arena)
{
    if (b->error)
        return b->error;
    const char *problem = unfit(b, wish);
    if (problem)
        return problem;
    return may_work(b, wish) ? NULL : arena_printf(arena, "is not available here (%s)", b->reason);
}

/* The first of the best installed ones. */
static int choose(struct maker *m, const struct wish *wish, struct found *out, struct diag *d)
{
    const char *why = "";
    *out = (struct found){0};
    for (uint32_t i = 0; i < m->in->backends->n && why; i++) {
        const struct prefix_plugin *plugin = &m->in->backends->items[i];
        const struct described *b = lookup_described(m->in, DESCRIBE_BACKEND, plugin->path);
        if (!b)
            continue;
        const char *problem = objection(b, wish, m->arena);
        if (problem)
            why = arena_printf(m->arena, "%s%s%s %s", why, *why ? "; " : "", plugin->name, problem);
        else if (!out->what || rank_fit(b, wish) > rank_fit(out->what, wish))
            *out = (struct found){b, plugin->name, plugin->path};
    }
    if (out->what)
        return 0;
    diag_set(d, COLLRUN_ERR_UNAVAILABLE, "no installed backend can carry this group");
    return diag_hint(d, "%s", why && *why ? why : "none is installed");
}

/* ---- groups ---- */

static const struct job_str *written_in(const struct job_group *group, enum backend_slot slot)
{
    return slot == BACKEND_ALL    ? &group->backend
           : slot == BACKEND_HOST ? &group->backend_host
                                  : &group->backend_cuda;
}

static void say(struct maker *m, const struct job_group *group, enum backend_slot slot,
                struct diag *d)
{
    static const char *const keys[] = {".backend", ".backend.host", ".backend.cuda"};
    const struct job_str *name = written_in(group, slot);
    bool written = name->loc.line != 0;
    d->loc = written ? name->loc : group->name_loc;
    if (!d->loc.line)
        d->loc = m->job->processes.count.loc;
    diag_wrap(d, "groups.%s%s", group->name, written ? keys[slot] : "");
    maker_note(m, d);
}

/* Where a backend of this name stands in the description, added if it is not there yet. */
static uint32_t add(struct maker *m, const struct found *found, struct diag_loc loc)
{
    struct desc *desc = m->desc;
    for (uint32_t i = 0; i < desc->nbackends; i++)
        if (!strcmp(desc->backends[i].path, found->path)) {
            if (!desc->backends[i].loc.line)
                desc->backends[i].loc = loc;
            return i;
        }
    struct desc_backend *backend = &desc->backends[desc->nbackends];
    char *lower = arena_strdup(m->arena, found->name);
    for (char *p = lower; p && *p; p++)
        *p = (char)(*p >= 'A' && *p <= 'Z' ? *p + ('a' - 'A') : *p);
    *backend = (struct desc_backend){.name = lower, .path = found->path, .loc = loc};
    for (uint32_t i = 0; i < m->job->nbackends; i++)
        if (!strcasecmp(m->job->backends[i].name, found->name))
            maker_pairs(m, &m->job->backends[i].options, &backend->options);
    return desc->nbackends++;
}

int64_t maker_backend(struct maker *m, const struct job_group *group, enum backend_slot slot,
                      struct backend_where where)
{
    const struct wish wish = {
        .slot = slot, .where = where, .devices = group->gpus_per_process.v > 0};
    const struct job_str *name = written_in(group, slot);
    const char *written = name->v;
    struct found found;
    struct diag d;
    int code;
    if (job_is_auto(name))
        code = choose(m, &wish, &found, &d);
    else
        code = resolve(m, written, &found, &d);
    if (code < 0 && is_declared(m->job, written))
        return -1; /* said already */
    if (code == 0 && !found.what)
        return -1;
    if (code == 0 && !m->in->examined && !may_work(found.what, &wish)) {
        code = diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "the backend \"%s\" is not available here: %s",
                        found.name, found.what->reason);
    } else if (code == 0 && unfit(found.what, &wish)) {
        code = diag_set(&d, COLLRUN_ERR_INVALID, "the backend \"%s\" %s", found.name,
                        unfit(found.what, &wish));
        if (!where.one_host)
            diag_hint(&d, "leave it to auto, or make one group per host with split: host");
    }
    if (code == 0)
        return add(m, &found, name->loc);
    say(m, group, slot, &d);
    return -1;
}

void maker_check_options(struct maker *m, const struct job_group *group, uint32_t backend,
                         int64_t cuda)
{
    const struct desc_backend *backends = m->desc->backends;
    const struct described *what =
        lookup_described(m->in, DESCRIBE_BACKEND, backends[backend].path);
    const struct described *other =
        cuda >= 0 ? lookup_described(m->in, DESCRIBE_BACKEND, backends[cuda].path) : NULL;
    const char *path = arena_printf(m->arena, "groups.%s.options", group->name);
    if (what && path)
        params_check_options(m, path, &group->options, what, other);
}

bool maker_needs_device(const struct maker *m, uint32_t backend)
{
    const struct described *what =
        lookup_described(m->in, DESCRIBE_BACKEND, m->desc->backends[backend].path);
    return what && what->flags & COLLRUN_BACKEND_NEEDS_DEVICE;
}
