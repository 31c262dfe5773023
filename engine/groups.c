/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups, as workloads see them: finding those of job.yaml, making new ones at run time (create,
 * split), and ending these. Groups of job.yaml belong to the job and end with it.
 */
#include "backend.h"
#include "base/loop.h"
#include "coll.h"
#include "engine.h"
#include "gpu.h"
#include "task.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t DEFAULT_TIMEOUT_NS = 600u * 1000000000ull;

/* ---- finding ---- */

static const struct desc_group *in_job(const struct engine *e, const char *name)
{
    for (uint32_t i = 0; i < e->desc.ngroups; i++) {
        if (strcmp(e->desc.groups[i].name, name) == 0)
            return &e->desc.groups[i];
    }
    return NULL;
}

static bool may_use(const struct collrun_ctx *ctx, const struct desc_group *group)
{
    uint32_t index = (uint32_t)(group - ctx->engine->desc.groups);
    for (uint32_t i = 0; i < ctx->desc->ngroups; i++) {
        if (ctx->desc->groups[i] == index)
            return true;
    }
    return false;
}

static int first_group(struct collrun_ctx *ctx, struct collrun_group **out)
{
    struct collrun_group *g = collrun_group_at(ctx, 0);
    if (!g)
        return error_set(COLLRUN_ERR_NOT_MEMBER, "rank %u is in no group of workload \"%s\"",
                         ctx->engine->rank, ctx->desc->name);
    *out = g;
    return COLLRUN_OK;
}

int collrun_group_get(struct collrun_ctx *ctx, const char *name, struct collrun_group **out)
{
    if (!ctx || !name || !out)
        return error_set(COLLRUN_ERR_INVALID, "collrun_group_get: the %s is NULL",
                         !ctx    ? "context"
                         : !name ? "name"
                                 : "place for the group");
    if (!*name)
        return first_group(ctx, out);
    const struct desc_group *job = in_job(ctx->engine, name);
    if (job && group_rank_in(&job->ranks, ctx->engine->rank) < 0)
        return error_set(COLLRUN_ERR_NOT_MEMBER, "rank %u is not in group \"%s\"",
                         ctx->engine->rank, name);
    if (job && !may_use(ctx, job))
        return error_set(COLLRUN_ERR_NOT_FOUND, "workload \"%s\" does not list group \"%s\"",
                         ctx->desc->name, name);
    struct collrun_group *g = group_find(ctx->engine, name);
    if (!g)
        return error_set(COLLRUN_ERR_NOT_FOUND, "there is no group \"%s\"", name);
    *out = g;
    return COLLRUN_OK;
}

struct collrun_group *collrun_group_at(struct collrun_ctx *ctx, int index)
{
    const struct desc *desc = &ctx->engine->desc;
    for (uint32_t i = 0; index >= 0 && i < desc->ngroups; i++) {
        const struct desc_group *job = &desc->groups[i];
        if (group_rank_in(&job->ranks, ctx->engine->rank) >= 0 && may_use(ctx, job) && index-- == 0)
            return group_find(ctx->engine, job->name);
    }
    return NULL;
}

bool collrun_group_exists(const struct collrun_ctx *ctx, const char *name)
{
    return name && group_find(ctx->engine, name);
}

int collrun_group_rank(const struct collrun_ctx *ctx, const char *name)
{
    const struct collrun_group *g = name ? group_find(ctx->engine, name) : NULL;
    return g ? (int)g->rank : -1;
}

int collrun_group_size(const struct collrun_ctx *ctx, const char *name)
{
    const struct collrun_group *g = name ? group_find(ctx->engine, name) : NULL;
    return g ? (int)g->nranks : -1;
}

int collrun_rank(const struct collrun_group *group)
{
    return group ? (int)group->rank : -1;
}

int collrun_size(const struct collrun_group *group)
{
    return group ? (int)group->nranks : -1;
}

int collrun_world_rank_of(const struct collrun_group *group, int rank)
{
    bool is_one = group && rank >= 0 && (uint32_t)rank < group->nranks;
    return is_one ? (int)group->members.items[rank] : -1;
}

const char *collrun_group_name(const struct collrun_group *group)
{
    return group ? group->name : "";
}

const char *collrun_group_backend(const struct collrun_group *group)
{
    return group ? group->backend_name : "";
}

/* ---- which backend ---- */

static bool share_a_host(const struct engine *e, const struct desc_ranks *members)
{
    for (uint32_t i = 1; i < members->n; i++) {
        if (e->desc.ranks[members->items[i]].host != e->desc.ranks[members->items[0]].host)
            return false;
    }
    return true;
}

static int merit(uint64_t flags)
{
    return flags & COLLRUN_BACKEND_NEEDS_DEVICE ? 2 : flags & COLLRUN_BACKEND_ONE_HOST ? 1 : 0;
}

/* Among the backends of the job, by what they declare: all ranks read the same job and come to the
 * same choice. On one host, one that is made for that is better. */
static int choose_backend(struct engine *e, const struct desc_ranks *members, struct backend **out,
                          struct diag *d)
{
    bool one_host = share_a_host(e, members);
    struct backend *best = NULL;
    for (uint32_t i = 0; i < e->desc.nbackends; i++) {
        struct backend *b;
        int rc = registry_get(e, e->desc.backends[i].name, &b, d);
        if (rc != COLLRUN_OK)
            return rc;
        uint64_t flags = b->table.flags;
        bool fits = (!(flags & COLLRUN_BACKEND_NEEDS_DEVICE) || e->ngpus) &&
                    (one_host || !(flags & COLLRUN_BACKEND_ONE_HOST));
        if (fits && (!best || merit(flags) > merit(best->table.flags)))
            best = b;
    }
    if (!best)
        return diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                        "no backend of this job suits these ranks; name one");
    *out = best;
    return COLLRUN_OK;
}

static int check_fits(struct engine *e, const struct backend *b, const struct desc_ranks *members,
                      struct diag *d)
{
    if ((b->table.flags & COLLRUN_BACKEND_ONE_HOST) && !share_a_host(e, members))
        return diag_set(d, COLLRUN_ERR_UNSUPPORTED,
                        "backend \"%s\" works on one host only, and these ranks are on several",
                        b->name);
    if (b->table.flags & COLLRUN_BACKEND_NEEDS_DEVICE && !e->ngpus)
        return diag_set(d, COLLRUN_ERR_UNSUPPORTED,
                        "backend \"%s\" needs GPUs, and this rank has none", b->name);
    return COLLRUN_OK;
}

static int find_backend(struct engine *e, const char *name, const struct desc_ranks *members,
                        struct backend **out, struct diag *d)
{
    if (!name || strcmp(name, "auto") == 0)
        return choose_backend(e, members, out, d);
    int rc = registry_get(e, name, out, d);
    return rc == COLLRUN_OK ? check_fits(e, *out, members, d) : rc;
}

/* ---- making ---- */

/* A workload that was compiled before there was this member has the default. */
static enum collrun_check check_of(const struct collrun_group_options *o)
{
    return o->size >= sizeof *o ? o->check : COLLRUN_CHECK_ASYNC;
}

enum {
    MOST_OPTION_BYTES = 4096, /* more than any later version of the struct will have */
    MOST_NAME_BYTES = 255
};

static int check_name(const char *whose, const char *name)
{
    const size_t len = name ? strnlen(name, MOST_NAME_BYTES + 1) : 0;
    if (len == 0)
        return error_set(COLLRUN_ERR_INVALID, "%s: a group needs a name", whose);
    if (len > MOST_NAME_BYTES)
        return error_set(COLLRUN_ERR_INVALID, "%s: the group's name is longer than %d bytes", whose,
                         MOST_NAME_BYTES);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 127)
            return error_set(COLLRUN_ERR_INVALID,
                             "%s: byte %zu of the group's name is a control character", whose, i);
    return COLLRUN_OK;
}

static int check_options(const struct collrun_ctx *ctx, const struct collrun_group_options *o,
                         struct collrun_group **out)
{
    if (!ctx || !o || !out)
        return error_set(COLLRUN_ERR_INVALID, "collrun_group_create: the %s NULL",
                         !ctx ? "context is"
                         : !o ? "options are"
                              : "place for the group is");
    if (o->size < offsetof(struct collrun_group_options, check) || o->size > MOST_OPTION_BYTES)
        return error_set(COLLRUN_ERR_INVALID,
                         "collrun_group_create: options of %u bytes; set .size = sizeof options",
                         o->size);
    if (check_name("collrun_group_create", o->name) != COLLRUN_OK)
        return COLLRUN_ERR_INVALID;
    if (!o->ranks || o->nranks < 1)
        return error_set(COLLRUN_ERR_INVALID, "group \"%s\": it has no ranks", o->name);
    if ((unsigned)check_of(o) > COLLRUN_CHECK_OFF)
        return error_set(COLLRUN_ERR_INVALID, "group \"%s\": %d is no check", o->name,
                         (int)check_of(o));
    int world = (int)ctx->engine->desc.nranks;
    for (int i = 0; i < o->nranks; i++) {
        if (o->ranks[i] < 0 || o->ranks[i] >= world)
            return error_set(COLLRUN_ERR_INVALID, "group \"%s\": rank %d is not in 0..%d", o->name,
                             o->ranks[i], world - 1);
    }
    return COLLRUN_OK;
}

/* The member is younger than the struct. */
static uint32_t gpus_of(const struct collrun_group_options *o)
{
    bool has = o->size >= offsetof(struct collrun_group_options, gpus_per_process) +
                              sizeof o->gpus_per_process;
    return has && o->gpus_per_process > 0 ? (uint32_t)o->gpus_per_process : 0;
}

static int copy_ranks(const struct collrun_ctx *ctx, const struct collrun_group_options *o,
                      struct desc_ranks *out)
{
    bool *seen = calloc(ctx->engine->desc.nranks, sizeof *seen);
    uint32_t *ranks = calloc((size_t)o->nranks, sizeof *ranks);
    int rc = seen && ranks
                 ? COLLRUN_OK
                 : error_set(COLLRUN_ERR_NO_MEMORY, "group \"%s\": out of memory", o->name);
    for (int i = 0; rc == COLLRUN_OK && i < o->nranks; i++) {
        if (seen[o->ranks[i]])
            rc = error_set(COLLRUN_ERR_INVALID, "group \"%s\": rank %d stands in it twice", o->name,
                           o->ranks[i]);
        seen[o->ranks[i]] = true;
        ranks[i] = (uint32_t)o->ranks[i];
    }
    free(seen);
    if (rc == COLLRUN_OK)
        *out = (struct desc_ranks){.items = ranks, .n = (uint32_t)o->nranks};
    else
        free(ranks);
    return rc;
}

static int make(struct engine *e, struct group_spec *spec, struct collrun_group **out)
{
    struct diag d;
    diag_init(&d);
    spec->timeout_ns = spec->timeout_ns ? spec->timeout_ns : DEFAULT_TIMEOUT_NS;
    spec->index = UINT32_MAX;
    waits_busy(e, 1);
    int rc = group_open(e, spec, out, &d);
    waits_busy(e, -1);
    return rc == COLLRUN_OK ? COLLRUN_OK : error_from_diag(&d);
}

int collrun_group_create(struct collrun_ctx *ctx, const struct collrun_group_options *options,
                         struct collrun_group **out)
{
    struct desc_ranks members = {0};
    struct backend *b = NULL;
    struct diag d;
    diag_init(&d);
    int rc = check_options(ctx, options, out);
    if (rc == COLLRUN_OK)
        rc = copy_ranks(ctx, options, &members);
    if (rc != COLLRUN_OK)
        return rc;
    struct engine *e = ctx->engine;
    if (group_rank_in(&members, e->rank) < 0)
        rc = error_set(COLLRUN_ERR_NOT_MEMBER,
                       "rank %u is not in group \"%s\"; only members create it", e->rank,
                       options->name);
    else if (in_job(e, options->name))
        rc = error_set(COLLRUN_ERR_EXISTS, "job.yaml has a group \"%s\"", options->name);
    else if (find_backend(e, options->backend, &members, &b, &d) != COLLRUN_OK)
        rc = error_set(d.code, "group \"%s\": %s", options->name, d.text);
    else
        rc = make(e,
                  &(struct group_spec){.name = options->name,
                                       .backend = b,
                                       .members = &members,
                                       .timeout_ns = options->timeout_ns,
                                       .check = check_of(options),
                                       .gpus_per_process = gpus_of(options)},
                  out);
    free(members.items);
    return rc;
}

/* ---- splitting ---- */

struct part {
    uint32_t rank; /* in the parent */
    int32_t color, key;
};

static int by_key(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int exchange_parts(struct rendezvous *r, const struct collrun_group *parent,
                          struct part *parts)
{
    char key[16];
    const struct collrun_rendezvous *lent = &r->lent;
    struct part *mine = &parts[parent->rank];
    snprintf(key, sizeof key, "%" PRIu32, parent->rank);
    int rc =
        lent->put(lent->ctx, key, (const int32_t[2]){mine->color, mine->key}, 2 * sizeof(int32_t));
    if (rc == COLLRUN_OK)
        rc = lent->fence(lent->ctx);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < parent->nranks; i++) {
        int32_t said[2] = {-1, 0};
        size_t len;
        snprintf(key, sizeof key, "%" PRIu32, i);
        rc = lent->get(lent->ctx, key, said, sizeof said, &len);
        parts[i] = (struct part){.rank = i, .color = said[0], .key = said[1]};
    }
    return rc;
}

/* What all members of the parent chose; collective over the parent, through the runner's store, so
 * that it works on any backend. */
static int learn_parts(struct collrun_group *parent, struct part *parts)
{
    char name[512]; /* one of job.yaml may end in a host's name */
    struct diag d;
    struct rendezvous r;
    struct rendezvous_spec spec = {.name = name,
                                   .generation = parent->splits++,
                                   .members = &parent->members,
                                   .identity = "split",
                                   .index = UINT32_MAX,
                                   .timeout_ns = parent->engine->desc.rendezvous_timeout_ns};
    diag_init(&d);
    snprintf(name, sizeof name, "%s, split", parent->name);
    if (rendezvous_open(&r, &parent->engine->control, &spec, &d) != COLLRUN_OK)
        return error_from_diag(&d);
    int rc = exchange_parts(&r, parent, parts);
    if (rc != COLLRUN_OK)
        rc = error_wrap(rc, parent->name, 0, "split");
    rendezvous_leave(&r);
    return rc;
}

/* The members with my color, ordered by key, then by rank in the parent. */
static uint32_t select_members(const struct collrun_group *parent, struct part *parts, int color,
                               uint32_t *ranks)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < parent->nranks; i++) {
        if (parts[i].color == color)
            parts[n++] = parts[i];
    }
    qsort(parts, n, sizeof *parts, by_key);
    for (uint32_t i = 0; i < n; i++)
        ranks[i] = parent->members.items[parts[i].rank];
    return n;
}

static int split(struct collrun_group *parent, int color, int key, const char *name,
                 struct collrun_group **out)
{
    struct part *parts = calloc(parent->nranks, sizeof *parts);
    uint32_t *ranks = calloc(parent->nranks, sizeof *ranks);
    int rc = parts && ranks
                 ? COLLRUN_OK
                 : error_set(COLLRUN_ERR_NO_MEMORY, "split %s: out of memory", parent->name);
    if (rc == COLLRUN_OK) {
        parts[parent->rank] =
            (struct part){.rank = parent->rank, .color = color < 0 ? -1 : color, .key = key};
        rc = learn_parts(parent, parts);
    }
    if (rc == COLLRUN_OK && color < 0)
        *out = NULL;
    else if (rc == COLLRUN_OK) {
        struct desc_ranks members = {.items = ranks,
                                     .n = select_members(parent, parts, color, ranks)};
        rc = make(parent->engine,
                  &(struct group_spec){.name = name,
                                       .backend = parent->sides[0].backend,
                                       .cuda_backend = parent->sides[1].backend,
                                       .members = &members,
                                       .timeout_ns = parent->timeout_ns,
                                       .check = parent->check,
                                       .gpus_per_process = parent->gpus_per_process},
                  out);
    }
    free(parts);
    free(ranks);
    return rc;
}

int collrun_group_split(struct collrun_group *parent, int color, int key, const char *name,
                        struct collrun_group **out)
{
    if (!parent || !out)
        return error_set(COLLRUN_ERR_INVALID, "collrun_group_split: the %s is NULL",
                         parent ? "place for the group" : "group");
    if (color >= 0 && check_name("collrun_group_split", name) != COLLRUN_OK)
        return COLLRUN_ERR_INVALID;
    if (color >= 0 && in_job(parent->engine, name))
        return error_set(COLLRUN_ERR_EXISTS, "split %s: job.yaml has a group \"%s\"", parent->name,
                         name);
    int rc = group_enter(parent, "split");
    if (rc != COLLRUN_OK)
        return rc;
    waits_busy(parent->engine, 1);
    rc = split(parent, color, key, name, out);
    waits_busy(parent->engine, -1);
    group_leave(parent);
    return rc;
}

/* ---- ending ---- */

int collrun_group_destroy(struct collrun_group *group)
{
    /* One that was destroyed long ago is no memory to look at; the table knows. */
    if (!group || (task_current && !group_is_open(task_current->engine, group)) ||
        group_is_sealed(group))
        return COLLRUN_OK;
    if (group->index != UINT32_MAX)
        return error_set(COLLRUN_ERR_INVALID,
                         "group \"%s\" belongs to job.yaml and ends with the job", group->name);
    struct engine *e = group->engine;
    int rc = group_enter(group, "destroy");
    if (rc != COLLRUN_OK)
        return rc;
    waits_busy(e, 1);
    group_seal(group);
    group_close(group);
    waits_busy(e, -1);
    return COLLRUN_OK;
}

/* ---- GPUs ---- */

int collrun_devices(const struct collrun_group *group)
{
    return group ? (int)group_gpu_side(group)->ndevices : 0;
}

int collrun_device(const struct collrun_group *group, int index)
{
    bool is_one = group && index >= 0 && (uint32_t)index < group_gpu_side(group)->ndevices;
    return is_one ? index : -1;
}

int collrun_set_stream(struct collrun_group *group, int device, void *stream)
{
    if (!group)
        return error_set(COLLRUN_ERR_INVALID, "collrun_set_stream: the group is NULL");
    if (device < 0 || (uint32_t)device >= group->engine->ngpus || device >= GROUP_MOST_DEVICES)
        return error_set(COLLRUN_ERR_INVALID,
                         "group %s: device %d is not one of the %u GPUs of this rank", group->name,
                         device, group->engine->ngpus);
    int rc = group_enter(group, "set_stream");
    if (rc != COLLRUN_OK)
        return rc;
    group->streams[device] = stream;
    group_leave(group);
    return COLLRUN_OK;
}

int collrun_copy(struct collrun_group *g, void *to, const void *from, size_t bytes)
{
    if (!g || (bytes && (!to || !from)))
        return error_set(COLLRUN_ERR_INVALID, "collrun_copy: the %s is NULL",
                         g ? "memory" : "group");
    if (!g->has_gpus) {
        if (bytes)
            memmove(to, from, bytes);
        return COLLRUN_OK;
    }
    uint64_t now = now_ns();
    error_clear_cause();
    int rc = gpu_copy(to, from, bytes,
                      g->timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + g->timeout_ns);
    return rc == COLLRUN_OK ? rc : error_wrap(rc, g->name, 0, "copy");
}
