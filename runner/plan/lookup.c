/* SPDX-License-Identifier: Apache-2.0
 *
 * From the names in job.yaml to files. Backend names are case-insensitive, and no job can take a
 * built-in one's name for a file of its own.
 */
#include "base/quote.h"
#include "base/suggest.h"
#include "plan/maker.h"

#include <stdlib.h>
#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

const char *lookup_list(const struct prefix_plugins *installed, struct arena *arena)
{
    const char *list = "";
    for (uint32_t i = 0; list && i < installed->n; i++)
        list = arena_printf(arena, "%s%s%s", list, i ? ", " : "", installed->items[i].name);
    return list && *list ? list : "(none)";
}

static const struct prefix_plugin *find_installed(const struct prefix_plugins *installed,
                                                  const char *name)
{
    for (uint32_t i = 0; i < installed->n; i++)
        if (!strcasecmp(installed->items[i].name, name))
            return &installed->items[i];
    return NULL;
}

static const struct job_backend *find_declared(const struct job *job, const char *name)
{
    for (uint32_t i = 0; i < job->nbackends; i++)
        if (!strcasecmp(job->backends[i].name, name))
            return &job->backends[i];
    return NULL;
}

/* A path of job.yaml: the file it leads to, or, when there is none, where it was looked for. */
static const char *absolute(const struct job *job, const char *path, struct arena *arena)
{
    const char *joined = *path == '/' ? path : arena_printf(arena, "%s/%s", job->dir, path);
    char *real = joined ? realpath(joined, NULL) : NULL;
    const char *result = real ? arena_strdup(arena, real) : joined;
    if (joined && !real) {
        const char *base = strrchr(joined, '/');
        const char *folder = arena_strndup(arena, joined, (size_t)(base - joined) + 1);
        real = folder ? realpath(folder, NULL) : NULL;
        result = real ? arena_printf(arena, "%s%s", strcmp(real, "/") ? real : "", base) : joined;
    }
    free(real);
    return result;
}

static bool same_file(const char *a, const char *b)
{
    char *real_a = realpath(a, NULL), *real_b = realpath(b, NULL);
    bool same = real_a && real_b && !strcmp(real_a, real_b);
    free(real_a);
    free(real_b);
    return same;
}

static const char *unknown_backend(const struct job *job, const struct prefix_plugins *installed,
                                   const char *written, struct arena *arena, struct diag *d)
{
    uint32_t n = 0;
    const char **names =
        arena_calloc(arena, (size_t)installed->n + job->nbackends + 1, sizeof *names);
    const char *known = lookup_list(installed, arena);
    for (uint32_t i = 0; names && i < installed->n; i++)
        names[n++] = installed->items[i].name;
    for (uint32_t i = 0; names && known && i < job->nbackends; i++) {
        if (!job->backends[i].path.v || find_installed(installed, job->backends[i].name))
            continue;
        names[n++] = job->backends[i].name;
        known = arena_printf(arena, "%s, %s", known, job->backends[i].name);
    }
    if (names)
        names[n++] = "auto";
    const char *meant = names ? suggest(written, names, n) : NULL;
    diag_set(d, COLLRUN_ERR_INVALID, "no backend named %s", QUOTED(written));
    diag_hint(d, "%s%s%sknown here: %s", meant ? "did you mean \"" : "", meant ? meant : "",
              meant ? "\"? " : "", known ? known : "");
    return NULL;
}

const char *lookup_backend(const struct job *job, const struct prefix_plugins *installed,
                           const char *written, struct arena *arena, const char **name,
                           struct diag *d)
{
    const struct prefix_plugin *built_in = find_installed(installed, written);
    const struct job_backend *declared = find_declared(job, written);
    const char *path = declared && declared->path.v ? absolute(job, declared->path.v, arena) : NULL;
    if (built_in && path && !same_file(built_in->path, path)) {
        diag_set(d, COLLRUN_ERR_INVALID,
                 "the name %s is taken: %s is a backend of this build, %s is another file",
                 QUOTED(declared->name), built_in->path, path);
        diag_hint(
            d,
            "a backend's name is fixed in its shared object; two of one name cannot be used here");
        return NULL;
    }
    if (name && (built_in || path))
        *name = built_in ? built_in->name : declared->name;
    if (built_in)
        return built_in->path;
    return path ? path : unknown_backend(job, installed, written, arena, d);
}

static const char *unknown_workload(const struct job *job, const struct prefix_plugins *installed,
                                    const char *written, struct arena *arena, struct diag *d)
{
    const char **names = arena_calloc(arena, installed->n, sizeof *names);
    for (uint32_t i = 0; names && i < installed->n; i++)
        names[i] = installed->items[i].name;
    const char *meant = names ? suggest(written, names, installed->n) : NULL;
    const char *beside = arena_printf(arena, "%s/%s", job->dir, written);
    char *found = beside ? realpath(beside, NULL) : NULL;
    const char *known = lookup_list(installed, arena);
    diag_set(d, COLLRUN_ERR_INVALID, "no installed workload is named %s", QUOTED(written));
    if (found)
        diag_hint(d, "the file of that name beside this one is ./%.200s", written);
    else if (meant)
        diag_hint(d,
                  "did you mean \"%s\"? installed: %s; a file of your own is named by its path, as "
                  "in ./my.so",
                  meant, known ? known : "");
    else
        diag_hint(d, "installed: %s; a file of your own is named by its path, as in ./my.so",
                  known ? known : "");
    free(found);
    return NULL;
}

const char *lookup_workload(const struct job *job, const struct prefix_plugins *installed,
                            const char *written, struct arena *arena, struct diag *d)
{
    if (strchr(written, '/'))
        return absolute(job, written, arena);
    for (uint32_t i = 0; i < installed->n; i++)
        if (!strcmp(installed->items[i].name, written))
            return installed->items[i].path;
    return unknown_workload(job, installed, written, arena, d);
}

const struct described *lookup_described(const struct plan_input *in, enum describe_kind kind,
                                         const char *path)
{
    for (uint32_t i = 0; path && i < in->nplugins; i++)
        if (in->plugins[i].kind == kind && !strcmp(in->plugins[i].path, path))
            return &in->plugins[i];
    return NULL;
}
