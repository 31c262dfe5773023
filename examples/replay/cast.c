/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the traces of the ranks that a process plays, and makes the groups of the trace; see
 * cast.h.
 *
 * - All processes make the groups that they are in, in the order of their keys, so no two wait for
 *   each other.
 * - A single file is that of every rank (a program whose ranks all do the same), unless the path
 *   has {rank}, so that each process has a file of its rank: the paths then differ.
 */
#include "cast.h"

#include "format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t cast_hash(uint64_t h, const void *data, size_t len)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

/* True if all processes have the same path. */
static int cast_same_path(struct cast *c, const char *path, bool *same)
{
    uint64_t hash = cast_hash(0xcbf29ce484222325u, path, strlen(path));
    uint64_t *all = calloc((size_t)c->nprocesses, sizeof *all);
    if (!all)
        return collrun_fail(c->ctx, "out of memory for %d paths", c->nprocesses);
    int rc = collrun_allgather(c->group, &hash, all, 1, COLLRUN_UINT64);
    for (int i = 0; i < c->nprocesses; i++)
        *same = *same && all[i] == hash;
    free(all);
    return rc;
}

static int cast_read_rank(struct cast *c, const char *file, int rank, int world_size)
{
    struct trace *t = &c->traces[c->ntraces++];
    int format = collrun_param_enum(c->ctx, "format");
    if (format_read(t, file, (enum format)format, rank, world_size))
        return collrun_fail(c->ctx, "%s", t->error);
    if (c->world_size && t->world_size != c->world_size)
        return collrun_fail(c->ctx, "%s: a trace of %d ranks; there are %d", file, t->world_size,
                            c->world_size);
    if (c->times.n && c->times.n != t->world_size)
        return collrun_fail(c->ctx, "times: %d files for %d ranks", c->times.n, t->world_size);
    if (c->times.n && format_read_times(t, c->times.path[rank]))
        return collrun_fail(c->ctx, "times: %s", t->error);
    return 0;
}

/* One file: of all ranks, or of the rank of this process. */
static int cast_read_one(struct cast *c, bool same)
{
    const char *file = c->files.path[0];
    c->traces = calloc(1, sizeof *c->traces);
    if (!c->traces)
        return collrun_fail(c->ctx, "out of memory for the traces");
    int rc = cast_read_rank(c, file, c->rank, same ? 0 : c->nprocesses);
    int world_size = rc ? 0 : c->traces[0].world_size;
    c->world_size = world_size;
    if (!rc && world_size < c->nprocesses)
        return collrun_fail(c->ctx, "%s: a trace of %d ranks has no rank for process %d", file,
                            world_size, world_size);
    struct trace *traces =
        rc ? NULL
           : realloc(c->traces, ((size_t)world_size / (size_t)c->nprocesses + 1) * sizeof *traces);
    if (!rc && !traces)
        return collrun_fail(c->ctx, "out of memory for %d traces", world_size);
    c->traces = traces ? traces : c->traces;
    for (int r = c->rank + c->nprocesses; !rc && r < world_size; r += c->nprocesses)
        rc = cast_read_rank(c, file, r, world_size);
    return rc;
}

static int cast_read_files(struct cast *c)
{
    int rc = 0;
    if (c->files.n < c->nprocesses)
        return collrun_fail(c->ctx, "%s: %d traces for %d processes; a process plays one or more",
                            collrun_param_string(c->ctx, "trace"), c->files.n, c->nprocesses);
    c->world_size = c->files.n;
    c->traces = calloc((size_t)(c->files.n / c->nprocesses) + 1, sizeof *c->traces);
    if (!c->traces)
        return collrun_fail(c->ctx, "out of memory for the traces");
    for (int r = c->rank; !rc && r < c->files.n; r += c->nprocesses)
        rc = cast_read_rank(c, c->files.path[r], r, c->files.n);
    return rc;
}

int cast_read(struct cast *c, struct collrun_ctx *ctx)
{
    char error[4200];
    bool same = true;
    const char *path = collrun_param_string(ctx, "trace");
    *c = (struct cast){.ctx = ctx, .group = collrun_group_at(ctx, 0)};
    if (!c->group)
        return collrun_fail(ctx, "the workload has no group on this rank");
    c->rank = collrun_rank(c->group);
    c->nprocesses = collrun_size(c->group);
    if (collrun_devices(c->group))
        return collrun_fail(ctx, "group %s works on devices; replay needs one on host memory",
                            collrun_group_name(c->group));
    int rc = cast_same_path(c, path, &same);
    if (rc)
        return rc;
    if (files_find(&c->files, path, error, sizeof error))
        return collrun_fail(ctx, "trace: %s", error);
    const char *times = collrun_param_string(ctx, "times");
    if (times[0] && files_find(&c->times, times, error, sizeof error))
        return collrun_fail(ctx, "times: %s", error);
    return c->files.n == 1 ? cast_read_one(c, same) : cast_read_files(c);
}

/* ---- groups ---- */

static uint64_t cast_key(const char *name, const int *ranks, int size)
{
    uint64_t h = cast_hash(0xcbf29ce484222325u, name, strlen(name));
    return cast_hash(h, ranks, (size_t)size * sizeof *ranks);
}

static int cast_find(const struct cast *c, uint64_t key)
{
    for (int i = 0; i < c->ngroups; i++)
        if (c->groups[i].key == key)
            return i;
    return -1;
}

/* Whether the trace has an operation in its group. */
static bool cast_uses(const struct trace *t, int group)
{
    for (size_t i = 0; i < t->nops; i++)
        if (t->ops[i].kind != TRACE_WAIT && t->ops[i].group == group)
            return true;
    return false;
}

/* Takes a copy of the group, if it is not known yet. */
static int cast_add(struct cast *c, const char *name, const int *ranks, int size)
{
    uint64_t key = cast_key(name, ranks, size);
    if (cast_find(c, key) >= 0)
        return 0;
    struct cast_group *groups = realloc(c->groups, ((size_t)c->ngroups + 1) * sizeof *groups);
    int *copy = calloc((size_t)size, sizeof *copy);
    if (groups)
        c->groups = groups;
    if (!groups || !copy) {
        free(copy);
        return collrun_fail(c->ctx, "out of memory for a group of %d", size);
    }
    memcpy(copy, ranks, (size_t)size * sizeof *copy);
    struct cast_group *g = &groups[c->ngroups++];
    *g = (struct cast_group){.key = key, .traced = {.ranks = copy, .size = size}};
    snprintf(g->traced.name, sizeof g->traced.name, "%s", name);
    return 0;
}

static int cast_by_key(const void *a, const void *b)
{
    const struct cast_group *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

/* Groups in a list of numbers: for each the name, the size and the members. */
static size_t cast_pack(const struct cast *c, int *list)
{
    const size_t name = TRACE_NAME_MAX / sizeof *list;
    size_t n = 0;
    for (int i = 0; i < c->ngroups; i++) {
        const struct trace_group *g = &c->groups[i].traced;
        if (list) {
            memcpy(list + n, g->name, TRACE_NAME_MAX);
            list[n + name] = g->size;
            memcpy(list + n + name + 1, g->ranks, (size_t)g->size * sizeof *list);
        }
        n += name + 1 + (size_t)g->size;
    }
    return n;
}

static int cast_unpack(struct cast *c, const int *list, size_t n)
{
    const size_t name = TRACE_NAME_MAX / sizeof *list;
    int rc = 0;
    for (size_t i = 0; !rc && i < n; i += name + 1 + (size_t)list[i + name])
        rc = cast_add(c, (const char *)(list + i), list + i + name + 1, list[i + name]);
    return rc;
}

/* Tells every process the groups of all traces: a member whose trace does not use one is needed to
 * make it. */
static int cast_share(struct cast *c)
{
    size_t own = cast_pack(c, NULL), all = 0;
    size_t *counts = calloc((size_t)c->nprocesses, sizeof *counts);
    int *list = calloc(own + 1, sizeof *list), *lists = NULL;
    int rc = counts && list ? 0 : collrun_fail(c->ctx, "out of memory for %zu members", own);
    if (!rc)
        rc = collrun_allgather(c->group, &own, counts, 1, COLLRUN_UINT64);
    for (int i = 0; !rc && i < c->nprocesses; i++)
        all += counts[i];
    if (!rc && (lists = calloc(all + 1, sizeof *lists)) == NULL)
        rc = collrun_fail(c->ctx, "out of memory for %zu members", all);
    if (!rc) {
        cast_pack(c, list);
        rc = collrun_allgatherv(c->group, list, own, lists, counts, NULL, COLLRUN_INT32);
    }
    if (!rc)
        rc = cast_unpack(c, lists, all);
    free(lists);
    free(list);
    free(counts);
    return rc;
}

int cast_find_groups(struct cast *c)
{
    int rc = 0;
    for (int i = 0; !rc && i < c->ntraces; i++)
        for (int k = 0; !rc && k < c->traces[i].ngroups; k++) {
            const struct trace_group *g = &c->traces[i].groups[k];
            if (cast_uses(&c->traces[i], k))
                rc = cast_add(c, g->name, g->ranks, g->size);
        }
    if (!rc)
        rc = cast_share(c);
    if (!rc && c->ngroups)
        qsort(c->groups, (size_t)c->ngroups, sizeof *c->groups, cast_by_key);
    c->group_of = calloc((size_t)c->ntraces + 1, sizeof *c->group_of);
    if (!c->group_of)
        return collrun_fail(c->ctx, "out of memory for %d groups", c->ngroups);
    for (int i = 0; !rc && i < c->ntraces; i++) {
        c->group_of[i] = calloc((size_t)c->traces[i].ngroups + 1, sizeof **c->group_of);
        if (!c->group_of[i])
            return collrun_fail(c->ctx, "out of memory for %d groups", c->ngroups);
        for (int k = 0; k < c->traces[i].ngroups; k++) {
            const struct trace_group *g = &c->traces[i].groups[k];
            c->group_of[i][k] = cast_find(c, cast_key(g->name, g->ranks, g->size));
        }
    }
    return rc;
}

/* Which processes play the members; their numbers in the workload's group go to `processes`. */
static void cast_place(const struct cast *c, struct cast_group *g, int *processes)
{
    for (int m = 0; m < g->traced.size; m++) {
        int process = g->traced.ranks[m] % c->nprocesses, k = 0;
        while (k < g->nprocesses && processes[k] != process)
            k++;
        if (k == g->nprocesses)
            processes[g->nprocesses++] = process;
        g->process[m] = k;
        g->members[k]++;
        g->folded = g->folded || g->members[k] > 1;
        g->here += process == c->rank;
    }
}

static int cast_make_group(struct cast *c, struct cast_group *g, const int *world)
{
    char name[TRACE_NAME_MAX + 64], backend[64];
    size_t size = (size_t)g->traced.size;
    int *processes = calloc(size, sizeof *processes), rc = 0;
    g->process = calloc(size, sizeof *g->process);
    g->members = calloc(size, sizeof *g->members);
    if (!processes || !g->process || !g->members) {
        free(processes);
        return collrun_fail(c->ctx, "out of memory for a group of %zu", size);
    }
    cast_place(c, g, processes);
    for (int i = 0; i < g->nprocesses; i++)
        processes[i] = world[processes[i]];
    snprintf(name, sizeof name, "replay/%s/%08x", g->traced.name, (unsigned)(g->key >> 32));
    snprintf(backend, sizeof backend, "%s", collrun_group_backend(c->group));
    backend[strcspn(backend, " ")] = '\0'; /* that of host memory, of several */
    const struct collrun_group_options options = {.size = sizeof options,
                                                  .name = name,
                                                  .backend = backend,
                                                  .ranks = processes,
                                                  .nranks = g->nprocesses};
    if (g->here)
        rc = collrun_group_create(c->ctx, &options, &g->group);
    free(processes);
    return rc;
}

int cast_make_groups(struct cast *c)
{
    int rank = collrun_world_rank(c->ctx);
    int *world = calloc((size_t)c->nprocesses, sizeof *world);
    if (!world)
        return collrun_fail(c->ctx, "out of memory for %d ranks", c->nprocesses);
    int rc = collrun_allgather(c->group, &rank, world, 1, COLLRUN_INT32);
    for (int i = 0; !rc && i < c->ngroups; i++)
        rc = cast_make_group(c, &c->groups[i], world);
    free(world);
    return rc;
}

void cast_fini(struct cast *c)
{
    for (int i = 0; i < c->ngroups; i++) {
        if (c->groups[i].group)
            (void)collrun_group_destroy(c->groups[i].group);
        free(c->groups[i].traced.ranks);
        free(c->groups[i].process);
        free(c->groups[i].members);
    }
    free(c->groups);
    for (int i = 0; i < c->ntraces && c->group_of; i++)
        free(c->group_of[i]);
    free(c->group_of);
    for (int i = 0; i < c->ntraces; i++)
        trace_fini(&c->traces[i]);
    free(c->traces);
    files_fini(&c->files);
    files_fini(&c->times);
}
