/* SPDX-License-Identifier: Apache-2.0
 *
 * Collects plugin files, each once; those that do not exist get their error here, with a hint that
 * knows what does; the rest are described by one child process.
 */
#include "plan/scout.h"

#include "base/quote.h"
#include "base/suggest.h"
#include "plan/maker.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct finder {
    const struct job *job;
    const struct plan_input *in;
    struct arena *arena;
    struct described *found, *missing; /* files that are there, and that are not */
    uint32_t nfound, nmissing;
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

static void explain_missing(struct finder *f, struct described *out, const char *written)
{
    struct stat st;
    bool there = stat(out->path, &st) == 0;
    out->error = there ? arena_printf(f->arena, "%s is not a file", out->path)
                       : arena_printf(f->arena, "%s: %s", out->path, strerror(errno));
    const char *similar = there ? NULL : similar_file(out->path, f->arena);
    const char *known =
        lookup_list(out->kind == DESCRIBE_WORKLOAD ? f->in->workloads : f->in->backends, f->arena);
    if (similar)
        out->hint =
            arena_printf(f->arena, "did you mean %.*s%s?",
                         (int)(strrchr(written, '/') ? strrchr(written, '/') - written + 1 : 0),
                         written, similar);
    else if (*written == '~')
        out->hint = "\"~\" is no folder here; write ${env:HOME}";
    else
        out->hint = arena_printf(f->arena, "a path is relative to the job file; installed %s: %s",
                                 out->kind == DESCRIBE_WORKLOAD ? "workloads" : "backends",
                                 known ? known : "");
    out->hint = out->hint ? out->hint : "";
    out->error = out->error ? out->error : "out of memory";
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
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        f->found[f->nfound++] = (struct described){.kind = kind, .path = path, .hint = ""};
        return;
    }
    struct described *out = &f->missing[f->nmissing++];
    *out = (struct described){.kind = kind, .path = path};
    explain_missing(f, out, written);
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

static void add_backends(struct finder *f)
{
    bool automatic = false;
    for (uint32_t i = 0; i < f->job->ngroups; i++) {
        const char *name = f->job->groups[i].backend.v;
        automatic = automatic || (name && !strcasecmp(name, "auto"));
        if (name && strcasecmp(name, "auto") != 0)
            add(f, DESCRIBE_BACKEND,
                lookup_backend(f->job, f->in->backends, name, f->arena, NULL, NULL), name);
    }
    if (automatic)
        add_installed(f);
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
        in->backends->n + (job ? (size_t)job->nbackends + job->ngroups + job->nworkloads : 0);
    *f = (struct finder){.job = job, .in = in, .arena = arena};
    f->found = arena_calloc(arena, 2 * most, sizeof *f->found);
    f->missing = arena_calloc(arena, most, sizeof *f->missing);
    return f->found && f->missing ? 0 : diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
}

static int ask(struct finder *f, const char *engine, struct plan_input *in, struct diag *d)
{
    int code = describe(engine, f->found, f->nfound, f->arena, d);
    if (code < 0)
        return code;
    if (f->nmissing)
        memcpy(f->found + f->nfound, f->missing, f->nmissing * sizeof *f->missing);
    in->plugins = f->found;
    in->nplugins = f->nfound + f->nmissing;
    return 0;
}

int scout(const struct job *job, const char *engine, struct arena *arena, struct plan_input *in,
          struct diag *d)
{
    struct finder f;
    int code = finder_init(&f, job, in, arena, d);
    if (code < 0)
        return code;
    add_backends(&f);
    add_declared(&f);
    add_workloads(&f);
    return ask(&f, engine, in, d);
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
    return ask(&f, engine, in, d);
}
