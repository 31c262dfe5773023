/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups: members in order, splits expanded, and a backend for each. Nothing here knows a backend
 * by name; `auto` goes by what they declare.
 */
#include "base/quote.h"
#include "plan/maker.h"

#include <stdio.h>
#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

/* One host that all members share, or -1. */
static int64_t common_host(const struct desc *desc, const struct desc_ranks *ranks)
{
    for (uint32_t i = 1; i < ranks->n; i++)
        if (desc->ranks[ranks->items[i]].host != desc->ranks[ranks->items[0]].host)
            return -1;
    return ranks->n ? (int64_t)desc->ranks[ranks->items[0]].host : -1;
}

/* ---- backends ---- */

/* The backend of this file in the description, added if it is not there yet. */
static uint32_t add_backend(struct maker *m, const char *path, const char *name,
                            struct diag_loc loc)
{
    struct desc *desc = m->desc;
    for (uint32_t i = 0; i < desc->nbackends; i++)
        if (!strcmp(desc->backends[i].path, path))
            return i;
    struct desc_backend *backend = &desc->backends[desc->nbackends];
    char *lower = arena_strdup(m->arena, name);
    for (char *p = lower; p && *p; p++)
        *p = (char)(*p >= 'A' && *p <= 'Z' ? *p + ('a' - 'A') : *p);
    *backend = (struct desc_backend){.name = lower, .path = path, .loc = loc};
    for (uint32_t i = 0; i < m->job->nbackends; i++)
        if (!strcasecmp(m->job->backends[i].name, name))
            maker_pairs(m, &m->job->backends[i].options, &backend->options);
    return desc->nbackends++;
}

/* Why a described backend cannot be used at all; NULL = it can. */
static const char *trouble(const struct described *b, struct arena *arena)
{
    if (b->error)
        return b->error;
    return b->available ? NULL : arena_printf(arena, "it is not available here: %s", b->reason);
}

/* What a group asks of its backend. */
struct wish {
    bool one_host, devices;
};

static const char *unfit(const struct described *b, const struct wish *wish)
{
    if (b->flags & COLLRUN_BACKEND_NEEDS_DEVICE && !wish->devices)
        return "needs a GPU for every member, and the group has gpus_per_process 0";
    if (b->flags & COLLRUN_BACKEND_ONE_HOST && !wish->one_host)
        return "works within one host, and the group has ranks on several";
    return NULL;
}

/* How well a backend that fits answers a wish; the larger the better. */
static int rank_fit(const struct described *b, const struct wish *wish)
{
    if (b->flags & COLLRUN_BACKEND_NEEDS_DEVICE)
        return wish->devices ? 2 : 0;
    return b->flags & COLLRUN_BACKEND_ONE_HOST ? 1 : 0;
}

/* The first of the best installed ones; NULL with the diag filled in. */
static const struct described *choose(struct maker *m, const struct wish *wish, struct diag *d)
{
    const struct described *best = NULL;
    const char *why = "";
    for (uint32_t i = 0; i < m->in->backends->n && why; i++) {
        const struct described *b =
            lookup_described(m->in, DESCRIBE_BACKEND, m->in->backends->items[i].path);
        if (!b)
            continue;
        const char *problem = trouble(b, m->arena);
        if (!problem && !unfit(b, wish) && (!best || rank_fit(b, wish) > rank_fit(best, wish)))
            best = b;
        problem = problem ? problem : unfit(b, wish);
        if (problem)
            why = arena_printf(m->arena, "%s%s%s %s", why, *why ? "; " : "",
                               m->in->backends->items[i].name, problem);
    }
    if (best)
        return best;
    diag_set(d, COLLRUN_ERR_UNAVAILABLE, "no backend of this build can carry it");
    diag_hint(d, "%s", why && *why ? why : "none is installed");
    return NULL;
}

static void backend_error(struct maker *m, const struct job_group *group, struct diag *d)
{
    bool written = group->backend.loc.line != 0;
    d->loc = written ? group->backend.loc : group->name_loc;
    if (!d->loc.line)
        d->loc = m->job->processes.count.loc;
    diag_wrap(d, "groups.%s%s", group->name, written ? ".backend" : "");
    maker_note(m, d);
}

static bool is_auto(const struct job_group *group)
{
    return !strcasecmp(group->backend.v, "auto");
}

/* The backend of a group (one part of it, when split); negative = none, and said so. */
static int64_t find_backend(struct maker *m, const struct job_group *group, const struct wish *wish)
{
    struct diag d;
    diag_init(&d);
    const struct described *b;
    const char *path = NULL, *name = NULL;
    if (is_auto(group)) {
        b = choose(m, wish, &d);
        path = b ? b->path : NULL;
        for (uint32_t i = 0; b && i < m->in->backends->n; i++)
            if (!strcmp(m->in->backends->items[i].path, b->path))
                name = m->in->backends->items[i].name;
    } else {
        path = lookup_backend(m->job, m->in->backends, group->backend.v, m->arena, &name, &d);
        b = lookup_described(m->in, DESCRIBE_BACKEND, path);
    }
    const char *problem = b ? trouble(b, m->arena) : NULL;
    if (problem) {
        diag_set(&d, COLLRUN_ERR_UNAVAILABLE, "the backend \"%s\" cannot be used: %s", name,
                 problem);
        diag_hint(&d, "%s", b->hint ? b->hint : "");
    } else if (b && strcasecmp(b->name, name) != 0) {
        diag_set(&d, COLLRUN_ERR_INVALID, "%s calls itself \"%s\", not \"%s\"", path, b->name,
                 name);
        diag_hint(&d, "name it \"%s\" under backends and here", b->name);
    } else if (b && unfit(b, wish)) {
        diag_set(&d, COLLRUN_ERR_INVALID, "the backend \"%s\" %s", name, unfit(b, wish));
        if (b->flags & COLLRUN_BACKEND_ONE_HOST && !wish->one_host)
            diag_hint(&d, "leave it to auto, or make one group per host with split: host");
    } else if (b) {
        return add_backend(m, path, name, group->backend.loc);
    }
    if (d.code)
        backend_error(m, group, &d);
    return -1;
}

/* ---- groups ---- */

static bool add_group(struct maker *m, const struct job_group *group, const char *name,
                      const struct desc_ranks *ranks)
{
    struct desc *desc = m->desc;
    struct wish wish = {.one_host = common_host(desc, ranks) >= 0,
                        .devices = group->gpus_per_process.v > 0};
    int64_t backend = ranks->n ? find_backend(m, group, &wish) : -1;
    struct desc_group *out = &desc->groups[desc->ngroups++];
    *out = (struct desc_group){.name = name,
                               .backend = backend >= 0 ? (uint32_t)backend : 0,
                               .ranks = *ranks,
                               .timeout_ns = (uint64_t)group->timeout.v,
                               .check = (uint32_t)group->check.v,
                               .gpus_per_process = (uint32_t)group->gpus_per_process.v,
                               .loc = group->name_loc};
    maker_pairs(m, &group->options, &out->options);
    return backend >= 0;
}

/* One group per host that has members, members in their order. */
static void split_group(struct maker *m, const struct job_group *group,
                        const struct desc_ranks *all)
{
    const struct desc *desc = m->desc;
    for (uint32_t h = 0; h < desc->nhosts; h++) {
        struct desc_ranks part = {
            .items = arena_calloc(m->arena, desc->hosts[h].nranks, sizeof *part.items)};
        for (uint32_t i = 0; part.items && i < all->n; i++)
            if (desc->ranks[all->items[i]].host == h)
                part.items[part.n++] = all->items[i];
        const char *name = arena_printf(m->arena, "%s/%s", group->name, desc->hosts[h].name);
        if (part.n && name && !add_group(m, group, name, &part))
            return; /* the other parts would say the same */
    }
}

/* How many groups there will be at most. */
static uint64_t count_groups(const struct job *job, const struct desc *desc)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < job->ngroups; i++)
        n += job->groups[i].split.v ? desc->nhosts : 1;
    return n;
}

void maker_groups(struct maker *m)
{
    const struct job *job = m->job;
    struct desc *desc = m->desc;
    uint64_t most = count_groups(job, desc);
    desc->groups = arena_calloc(m->arena, most, sizeof *desc->groups);
    desc->backends = arena_calloc(m->arena, most, sizeof *desc->backends);
    if (!desc->groups || !desc->backends || !desc->nranks)
        return;
    for (uint32_t i = 0; i < job->ngroups; i++) {
        const struct job_group *group = &job->groups[i];
        struct desc_ranks ranks;
        maker_ranks(m, &group->ranks, &ranks);
        if (!group->backend.v) /* by memory: refused already */
            continue;
        if (group->split.v == JOB_SPLIT_HOST)
            split_group(m, group, &ranks);
        else
            add_group(m, group, group->name, &ranks);
    }
}
