/* SPDX-License-Identifier: Apache-2.0
 *
 * Collects plugin files, each once; those that do not exist get their error here, with a hint that
 * knows what does; the rest are described by one child process.
 */
#include "plan/scout.h"

#include "base/suggest.h"
#include "plan/maker.h"
#include "plan/peek.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

struct finder {
    const struct job *job;
    const struct plan_input *in;
    struct arena *arena;
    struct described *found, *missing; /* files that are there, and that are not */
    uint32_t nfound, nmissing, nasked;
};

/* ---- files that are not there ---- */

/* A file in the folder of `path` whose name is close to it; NULL = none. */
static const char *similar_file(const char *path, struct arena *arena)
{
    const char *slash = strrchr(path, '/');
    const char *folder = arena_strndup(arena, path, (size_t)(slash - path) + 1);
    DIR *dir = folder ? opendir(folder) : NULL;
    const char *best = NULL;
    if (!dir)
        return NULL;
    for (struct dirent *entry = readdir(dir); entry && !best; entry = readdir(dir)) {
        const char *name = entry->d_name;
        size_t len = strlen(name);
        if (len > 3 && !strcmp(name + len - 3, ".so") && suggest(slash + 1, &name, 1))
            best = arena_strdup(arena, name);
    }
    closedir(dir);
    return best;
}

/* An installed plugin that a path seems to mean: ./hello.so, ./libhello.so. */
static const char *similar_installed(const struct prefix_plugins *installed, const char *path)
{
    const char *base = strrchr(path, '/') + 1;
    base += strncmp(base, "lib", 3) ? 0 : 3;
    size_t len = strcspn(base, ".");
    for (uint32_t i = 0; i < installed->n; i++)
        if (strlen(installed->items[i].name) == len &&
            !strncmp(installed->items[i].name, base, len))
            return installed->items[i].name;
    return NULL;
}

static const char *hint_missing(struct finder *f, const struct described *what, const char *written)
{
    bool workload = what->kind == DESCRIBE_WORKLOAD;
    const struct prefix_plugins *installed = workload ? f->in->workloads : f->in->backends;
    const char *similar = similar_file(what->path, f->arena);
    const char *slash = strrchr(written, '/');
    int folder = slash ? (int)(slash - written) + 1 : 0;
    if (similar)
        return arena_printf(f->arena, "did you mean %.*s%s?", folder, written, similar);
    if (*written == '~')
        return "\"~\" is no folder here; write ${env:HOME}";
    similar = workload ? similar_installed(installed, what->path) : NULL;
    if (similar)
        return arena_printf(
            f->arena, "did you mean the installed one? it goes by its bare name: %s", similar);
    const char *known = lookup_list(installed, f->arena);
    return arena_printf(f->arena, "a path is relative to the job file; installed %s: %s",
                        workload ? "workloads" : "backends", known ? known : "");
}

static void explain_missing(struct finder *f, struct described *what, const char *written, int err)
{
    if (!err)
        what->error = arena_printf(f->arena, "%s is not a file", what->path);
    else if (err == ENOENT)
        what->error = arena_printf(f->arena, "there is no file %s", what->path);
    else
        what->error = arena_printf(f->arena, "%s: %s", what->path, strerror(err));
    what->hint = hint_missing(f, what, written);
    what->hint = what->hint ? what->hint : "";
    what->error = what->error ? what->error : "out of memory";
}

static bool is_known(const struct described *items, uint32_t n, enum describe_kind kind,
                     const char *path)
{
    for (uint32_t i = 0; i < n; i++)
        if (items[i].kind == kind && !strcmp(items[i].path, path))
            return true;
    return false;
}

static void add(struct finder *f, enum describe_kind kind, const char *path, const char *written)
{
    struct stat st;
    if (!path || is_known(f->found, f->nfound, kind, path) ||
        is_known(f->missing, f->nmissing, kind, path))
        return;
    int err = stat(path, &st) == 0 ? 0 : errno;
    if (!err && S_ISREG(st.st_mode)) {
        f->found[f->nfound++] = (struct described){.kind = kind, .path = path, .hint = ""};
        return;
    }
    struct described *out = &f->missing[f->nmissing++];
    *out = (struct described){.kind = kind, .path = path};
    explain_missing(f, out, written, err);
}

/* ---- who may be asked ---- */

static void add_declared(struct finder *f)
{
    for (uint32_t i = 0; f->job && i < f->job->nbackends; i++) {
        const struct job_backend *backend = &f->job->backends[i];
        if (backend->path.v)
            add(f, DESCRIBE_BACKEND,
                lookup_backend(f->job, f->in->backends, backend->name, f->arena, NULL, NULL),
                backend->path.v);
    }
}

static void add_installed(struct finder *f)
{
    for (uint32_t i = 0; i < f->in->backends->n; i++)
        add(f, DESCRIBE_BACKEND, f->in->backends->items[i].path, "");
}

/* Whether a backend with these flags may be what `auto` chooses. */
static bool may_win(const struct job *job, uint64_t flags)
{
    if (flags & COLLRUN_BACKEND_ONE_HOST)
        return true;
    bool gpus = false;
    for (uint32_t i = 0; i < job->ngroups; i++)
        gpus = gpus || job->groups[i].gpus_per_process.v > 0;
    return flags & COLLRUN_BACKEND_NEEDS_DEVICE ? gpus : job->hosts.n > 1;
}

/* The installed ones that `auto` may choose. */
static void add_candidates(struct finder *f)
{
    for (uint32_t i = 0; i < f->in->backends->n; i++) {
        const char *path = f->in->backends->items[i].path;
        uint64_t flags;
        if (!peek_backend_flags(path, &flags) || may_win(f->job, flags))
            add(f, DESCRIBE_BACKEND, path, "");
    }
}

static bool any_auto(const struct job *job)
{
    for (uint32_t i = 0; i < job->ngroups; i++)
        if (job_is_auto(&job->groups[i].backend) || job_is_auto(&job->groups[i].backend_host) ||
            job_is_auto(&job->groups[i].backend_cuda))
            return true;
    return false;
}

static void add_one(struct finder *f, const struct job_str *backend)
{
    if (backend->v && !job_is_auto(backend))
        add(f, DESCRIBE_BACKEND,
            lookup_backend(f->job, f->in->backends, backend->v, f->arena, NULL, NULL), backend->v);
}

static void add_named(struct finder *f)
{
    for (uint32_t i = 0; i < f->job->ngroups; i++) {
        add_one(f, &f->job->groups[i].backend);
        add_one(f, &f->job->groups[i].backend_host);
        add_one(f, &f->job->groups[i].backend_cuda);
    }
}

static void add_workloads(struct finder *f)
{
    for (uint32_t i = 0; i < f->job->nworkloads; i++) {
        const char *plugin = f->job->workloads[i].plugin.v;
        if (plugin)
            add(f, DESCRIBE_WORKLOAD,
                lookup_workload(f->job, f->in->workloads, plugin, f->arena, NULL), plugin);
    }
}

static int finder_init(struct finder *f, const struct job *job, const struct plan_input *in,
                       struct arena *arena, struct diag *d)
{
    size_t most =
        in->backends->n + (job ? (size_t)job->nbackends + 2 * job->ngroups + job->nworkloads : 0);
    *f = (struct finder){.job = job, .in = in, .arena = arena};
    f->found = arena_calloc(arena, 2 * most, sizeof *f->found);
    f->missing = arena_calloc(arena, most, sizeof *f->missing);
    return f->found && f->missing ? 0 : diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
}

static struct described *found_at(struct finder *f, const char *path)
{
    for (uint32_t i = 0; i < f->nfound; i++)
        if (!strcmp(f->found[i].path, path))
            return &f->found[i];
    return NULL;
}

/* Another installed backend of the same name, whose case does not count; NULL = none. */
static const char *twin_of(const struct prefix_plugins *installed, uint32_t index)
{
    for (uint32_t i = 0; i < installed->n; i++)
        if (i != index && !strcmp(installed->items[i].name, installed->items[index].name))
            return installed->items[i].path;
    return NULL;
}

/* An installed backend goes by the name of its file, which has to be its own and nobody else's. */
static void check_names(struct finder *f)
{
    const struct prefix_plugins *installed = f->in->backends;
    for (uint32_t i = 0; i < installed->n; i++) {
        const char *name = installed->items[i].name, *path = installed->items[i].path;
        const char *twin = twin_of(installed, i);
        struct described *b = found_at(f, path);
        if (b && twin)
            b->error = arena_printf(f->arena, "the name \"%s\" is taken twice: %s and %s", name,
                                    path, twin);
        else if (b && !b->error && strcmp(b->name, name) != 0)
            b->error =
                arena_printf(f->arena, "%s calls itself \"%s\", not \"%s\"", path, b->name, name);
        if (b && b->error)
            b->name = name;
    }
}

/* Describes what has been found since the last time. */
static int ask(struct finder *f, const char *engine, struct diag *d)
{
    int code = describe(engine, DESCRIBE_DEADLINE_MS, f->found + f->nasked, f->nfound - f->nasked,
                        f->arena, d);
    f->nasked = f->nfound;
    if (code == 0)
        check_names(f);
    return code;
}

/* Whether one that any group without GPUs could use is among those asked. */
static bool has_answer(const struct finder *f)
{
    for (uint32_t i = 0; i < f->nfound; i++) {
        const struct described *b = &f->found[i];
        if (b->kind == DESCRIBE_BACKEND && !b->error && b->available &&
            !(b->flags & COLLRUN_BACKEND_NEEDS_DEVICE))
            return true;
    }
    return false;
}

static void finish(struct finder *f, struct plan_input *in)
{
    if (f->nmissing)
        memcpy(f->found + f->nfound, f->missing, f->nmissing * sizeof *f->missing);
    in->plugins = f->found;
    in->nplugins = f->nfound + f->nmissing;
}

int scout(const struct job *job, const char *engine, struct arena *arena, struct plan_input *in,
          struct diag *d)
{
    struct finder f;
    int code = finder_init(&f, job, in, arena, d);
    if (code < 0)
        return code;
    bool automatic = any_auto(job);
    add_named(&f);
    add_declared(&f);
    if (automatic)
        add_candidates(&f);
    add_workloads(&f);
    code = ask(&f, engine, d);
    if (code == 0 && automatic && !has_answer(&f)) {
        add_installed(&f); /* the best ones do not work here: now the others count */
        code = ask(&f, engine, d);
    }
    finish(&f, in);
    return code;
}

int scout_backends(const struct job *job, const char *engine, struct arena *arena,
                   struct plan_input *in, struct diag *d)
{
    struct finder f;
    int code = finder_init(&f, job, in, arena, d);
    if (code < 0)
        return code;
    add_installed(&f);
    add_declared(&f);
    code = ask(&f, engine, d);
    finish(&f, in);
    return code;
}
