/* SPDX-License-Identifier: Apache-2.0
 *
 * From the names in job.yaml to files. Names of backends are case-insensitive. A job cannot use the
 * name of an installed backend for another file.
 */
#include "base/quote.h"
#include "base/suggest.h"
#include "plan/planner.h"
#include "spec/path.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

const char *lookup_list(const struct prefix_plugins *installed, struct arena *arena)
{
    const char *list = "";
    for (uint32_t i = 0; i < installed->n; i++)
        list = arena_printf(arena, "%s%s%s", list, i ? ", " : "", installed->items[i].name);
    return *list ? list : "(none)";
}

static const struct prefix_plugin *lookup_find_installed(const struct prefix_plugins *installed,
                                                         const char *name)
{
    for (uint32_t i = 0; i < installed->n; i++)
        if (strcasecmp(installed->items[i].name, name) == 0)
            return &installed->items[i];
    return NULL;
}

static const struct job_backend *lookup_find_declared(const struct job *job, const char *name)
{
    for (uint32_t i = 0; i < job->nbackends; i++)
        if (strcasecmp(job->backends[i].name, name) == 0)
            return &job->backends[i];
    return NULL;
}

/* The real path of a file named in job.yaml; if it does not exist, the path where it was searched.
 */
static const char *lookup_absolute(const struct job *job, const char *path, struct arena *arena)
{
    const char *joined = path_join(job->dir, path, arena);
    char *real = realpath(joined, NULL);
    const char *result = real ? arena_strdup(arena, real) : joined;
    if (!real) {
        const char *base = strrchr(joined, '/');
        const char *folder = arena_strndup(arena, joined, (size_t)(base - joined) + 1);
        real = realpath(folder, NULL);
        result = real ? arena_printf(arena, "%s%s", strcmp(real, "/") ? real : "", base) : joined;
    }
    free(real);
    return result;
}

static bool lookup_same_file(const char *a, const char *b)
{
    char *real_a = realpath(a, NULL), *real_b = realpath(b, NULL);
    bool same = real_a && real_b && strcmp(real_a, real_b) == 0;
    free(real_a);
    free(real_b);
    return same;
}

/* How to get a backend that this build has left out, as the build has noted it; "": it knows none
 * of this name. */
const char *lookup_left_out(const char *written, struct arena *arena)
{
    char *name = arena_strdup(arena, written), text[256] = "";
    for (char *c = name; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    if (strchr(name, '/'))
        return "";
    const char *path = prefix_path(
        arena, arena_printf(arena, "lib/collrun/backends/libcollrun_%s.missing", name), NULL);
    FILE *f = path ? fopen(path, "re") : NULL;
    if (!f)
        return "";
    if (!fgets(text, sizeof text, f))
        text[0] = '\0';
    fclose(f);
    text[strcspn(text, "\n")] = '\0';
    const char *copy = arena_printf(arena, "this build has no %s: %s", name, text);
    return copy;
}

static const char *lookup_unknown_backend(const struct job *job,
                                          const struct prefix_plugins *installed,
                                          const char *written, struct arena *arena, struct diag *d)
{
    uint32_t n = 0;
    const char **names =
        arena_calloc(arena, (size_t)installed->n + job->nbackends + 1, sizeof *names);
    const char *known = lookup_list(installed, arena);
    for (uint32_t i = 0; i < installed->n; i++)
        names[n++] = installed->items[i].name;
    for (uint32_t i = 0; i < job->nbackends; i++) {
        if (!job->backends[i].path.v || lookup_find_installed(installed, job->backends[i].name))
            continue;
        names[n++] = job->backends[i].name;
        known = arena_printf(arena, "%s, %s", known, job->backends[i].name);
    }
    names[n++] = "auto";
    const char *meant = suggest(written, names, n);
    diag_set(d, COLLRUN_ERR_INVALID, "no backend named %s", QUOTED(written));
    const char *left_out = lookup_left_out(written, arena);
    if (*left_out)
        diag_hint(d, "%s; known here: %s", left_out, known);
    else
        diag_hint(d, "%s%s%sknown here: %s", meant ? "did you mean \"" : "", meant ? meant : "",
                  meant ? "\"? " : "", known);
    return NULL;
}

const char *lookup_backend(const struct job *job, const struct prefix_plugins *installed,
                           const char *written, struct arena *arena, const char **name,
                           struct diag *d)
{
    const struct prefix_plugin *built_in = lookup_find_installed(installed, written);
    const struct job_backend *declared = lookup_find_declared(job, written);
    const char *path =
        declared && declared->path.v ? lookup_absolute(job, declared->path.v, arena) : NULL;
    if (built_in && path && !lookup_same_file(built_in->path, path)) {
        diag_set(d, COLLRUN_ERR_INVALID,
                 "the name %s is used twice: %s is an installed backend, %s is another file",
                 QUOTED(declared->name), built_in->path, path);
        diag_hint(d, "a backend's name is fixed in its shared object; two backends of one name "
                     "cannot be used together");
        return NULL;
    }
    if (name && (built_in || path))
        *name = built_in ? built_in->name : declared->name;
    if (built_in)
        return built_in->path;
    return path ? path : lookup_unknown_backend(job, installed, written, arena, d);
}

static const char *lookup_unknown_workload(const struct job *job,
                                           const struct prefix_plugins *installed,
                                           const char *written, struct arena *arena, struct diag *d)
{
    const char **names = arena_calloc(arena, installed->n, sizeof *names);
    for (uint32_t i = 0; i < installed->n; i++)
        names[i] = installed->items[i].name;
    const char *meant = suggest(written, names, installed->n);
    const char *beside = arena_printf(arena, "%s/%s", job->dir, written);
    char *found = realpath(beside, NULL);
    const char *known = lookup_list(installed, arena);
    diag_set(d, COLLRUN_ERR_INVALID, "no installed workload is named %s", QUOTED(written));
    if (found)
        diag_hint(d, "for the file next to the job file, write ./%.200s", written);
    else if (meant)
        diag_hint(d,
                  "did you mean \"%s\"? installed: %s; for a file, write its path, as in ./my.so",
                  meant, known);
    else
        diag_hint(d, "installed: %s; for a file, write its path, as in ./my.so", known);
    free(found);
    return NULL;
}

const char *lookup_workload(const struct job *job, const struct prefix_plugins *installed,
                            const char *written, struct arena *arena, struct diag *d)
{
    if (strchr(written, '/'))
        return lookup_absolute(job, written, arena);
    for (uint32_t i = 0; i < installed->n; i++)
        if (strcmp(installed->items[i].name, written) == 0)
            return installed->items[i].path;
    return lookup_unknown_workload(job, installed, written, arena, d);
}

const struct described *lookup_described(const struct plan_input *in, enum describe_kind kind,
                                         const char *path)
{
    for (uint32_t i = 0; path && i < in->nplugins; i++)
        if (in->plugins[i].kind == kind && strcmp(in->plugins[i].path, path) == 0)
            return &in->plugins[i];
    return NULL;
}
