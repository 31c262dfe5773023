/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups: members in order, splits expanded, a backend for each.
 */
#include "plan/maker.h"

enum { GROUPS_MAX = 65536 };

static bool on_one_host(const struct desc *desc, const struct desc_ranks *ranks)
{
    for (uint32_t i = 1; i < ranks->n; i++)
        if (desc->ranks[ranks->items[i]].host != desc->ranks[ranks->items[0]].host)
            return false;
    return true;
}

/* Whether a member runs on this machine: only then does it matter what works here. */
static bool any_here(const struct maker *m, const struct desc_ranks *ranks)
{
    for (uint32_t i = 0; i < ranks->n; i++) {
        uint32_t host = m->desc->ranks[ranks->items[i]].host;
        if (m->job->hosts.nodes[host].transport.kind.v == JOB_TRANSPORT_LOCAL)
            return true;
    }
    return false;
}

/* `first`: of the parts of a group; what is wrong with its options is said once. */
static bool add_group(struct maker *m, const struct job_group *group, const char *name,
                      const struct desc_ranks *ranks, bool first)
{
    struct desc *desc = m->desc;
    struct backend_where where = {.one_host = on_one_host(desc, ranks), .here = any_here(m, ranks)};
    bool by_memory = !group->backend.v;
    int64_t backend = -1, cuda = -1;
    if (ranks->n)
        backend = maker_backend(m, group, by_memory ? BACKEND_HOST : BACKEND_ALL, where);
    if (ranks->n && by_memory)
        cuda = maker_backend(m, group, BACKEND_CUDA, where);
    struct desc_group *out = &desc->groups[desc->ngroups++];
    *out = (struct desc_group){.name = name,
                               .backend = backend >= 0 ? (uint32_t)backend : 0,
                               .cuda_backend = cuda >= 0 ? (uint32_t)cuda + 1 : 0,
                               .chosen =
                                   job_is_auto(by_memory ? &group->backend_host : &group->backend),
                               .ranks = *ranks,
                               .timeout_ns = (uint64_t)group->timeout.v,
                               .check = (uint32_t)group->check.v,
                               .gpus_per_process = (uint32_t)group->gpus_per_process.v,
                               .loc = group->name_loc};
    maker_pairs(m, &group->options, &out->options);
    if (first && backend >= 0)
        maker_check_options(m, group, (uint32_t)backend, cuda);
    if (backend >= 0 && maker_needs_device(m, (uint32_t)backend))
        maker_own_gpus(m, group, out, (uint32_t)backend);
    else if (cuda >= 0 && maker_needs_device(m, (uint32_t)cuda))
        maker_own_gpus(m, group, out, (uint32_t)cuda);
    return backend >= 0 && (cuda >= 0 || !by_memory);
}

/* One group per host that has members, members in their order. */
static void split_group(struct maker *m, const struct job_group *group,
                        const struct desc_ranks *all)
{
    const struct desc *desc = m->desc;
    bool first = true;
    for (uint32_t h = 0; h < desc->nhosts; h++) {
        struct desc_ranks part = {
            .items = arena_calloc(m->arena, desc->hosts[h].nranks, sizeof *part.items)};
        for (uint32_t i = 0; part.items && i < all->n; i++)
            if (desc->ranks[all->items[i]].host == h)
                part.items[part.n++] = all->items[i];
        const char *name = arena_printf(m->arena, "%s/%s", group->name, desc->hosts[h].name);
        if (part.n && name && !add_group(m, group, name, &part, first))
            return; /* the other parts would say the same */
        first = first && !part.n;
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
    maker_check_backends(m);
    uint64_t most = count_groups(job, desc);
    if (most > GROUPS_MAX) {
        struct diag d;
        diag_at(&d, job->groups[0].name_loc, "groups: more than %d, with a part for every host",
                GROUPS_MAX);
        maker_note(m, &d);
        return;
    }
    desc->groups = arena_calloc(m->arena, most, sizeof *desc->groups);
    desc->backends = arena_calloc(m->arena, 2 * most, sizeof *desc->backends);
    if (!desc->groups || !desc->backends || !desc->nranks)
        return;
    for (uint32_t i = 0; i < job->ngroups; i++) {
        const struct job_group *group = &job->groups[i];
        struct desc_ranks ranks;
        maker_ranks(m, &group->ranks, &ranks);
        if (!group->backend.v && (!group->backend_host.v || !group->backend_cuda.v))
            continue; /* half a pair: refused already */
        if (group->split.v == JOB_SPLIT_HOST)
            split_group(m, group, &ranks);
        else
            add_group(m, group, group->name, &ranks, true);
    }
}
