/* SPDX-License-Identifier: Apache-2.0
 *
 * GPUs for ranks. A rank owns as many as `processes` says, or as the greediest of its groups
 * brings. The ranks of a host take them in order, each GPU once. A host without `gpus:` offers its
 * whole pool; local hosts are one machine and share it. Where nobody has looked yet, numbers are
 * handed out all the same, and the agent there refuses those that do not exist.
 */
#include "plan/maker.h"

#include <stdio.h>
#include <string.h>

struct supply { /* what one host may still hand out */
    const struct gpus *known;
    const struct job_gpus *asked;
    uint32_t *next; /* shared by hosts that are one machine */
    uint32_t own;   /* where `next` points, if they are not */
};

/* ---- what is asked ---- */

static uint32_t greediest(const struct job *job)
{
    uint32_t most = (uint32_t)job->processes.gpus_per_process.v;
    for (uint32_t i = 0; i < job->ngroups; i++)
        if (job->groups[i].gpus_per_process.v > most)
            most = (uint32_t)job->groups[i].gpus_per_process.v;
    return most;
}

/* How many each rank owns. */
static uint32_t *count_needs(struct maker *m)
{
    const struct job *job = m->job;
    uint32_t *need = arena_calloc(m->arena, m->desc->nranks, sizeof *need);
    for (uint32_t rank = 0; need && rank < m->desc->nranks; rank++)
        need[rank] = (uint32_t)job->processes.gpus_per_process.v;
    for (uint32_t i = 0; need && i < job->ngroups; i++) {
        const struct job_num *brings = &job->groups[i].gpus_per_process;
        struct desc_ranks ranks;
        if (!brings->loc.line || brings->v <= job->processes.gpus_per_process.v)
            continue;
        maker_ranks(m, &job->groups[i].ranks, &ranks);
        for (uint32_t k = 0; k < ranks.n; k++)
            if (need[ranks.items[k]] < brings->v)
                need[ranks.items[k]] = (uint32_t)brings->v;
    }
    return need;
}

/* The key that asks for GPUs, for messages. */
static struct diag_loc asked_at(const struct job *job, const char **path)
{
    *path = "processes.gpus_per_process";
    for (uint32_t i = 0; !job->processes.gpus_per_process.v && i < job->ngroups; i++)
        if (job->groups[i].gpus_per_process.v) {
            *path = "gpus_per_process";
            return job->groups[i].gpus_per_process.loc;
        }
    return job->processes.gpus_per_process.loc;
}

/* ---- what is there ---- */

static struct diag_loc written_at(const struct job_gpus *gpus)
{
    return gpus->count.loc.line ? gpus->count.loc : gpus->list.loc;
}

/* How many GPUs a host offers; UINT32_MAX: nobody knows. */
static uint32_t offered(const struct supply *s)
{
    if (s->asked->list.loc.line)
        return s->asked->list.n;
    if (s->asked->count.loc.line)
        return (uint32_t)s->asked->count.v;
    return s->known ? s->known->n : UINT32_MAX;
}

/* Whether the machine has what `gpus` of the host says. */
static bool check_host(struct maker *m, uint32_t host, const struct supply *s)
{
    struct diag d;
    const struct job_gpus *asked = s->asked;
    uint32_t have = s->known ? s->known->n : UINT32_MAX, worst = 0;
    struct diag_loc loc = written_at(asked);
    for (uint32_t i = 0; i < asked->list.n; i++)
        if (asked->list.items[i].v >= have && !worst) {
            worst = (uint32_t)asked->list.items[i].v + 1;
            loc = asked->list.items[i].loc;
        }
    if (asked->count.v > have)
        worst = (uint32_t)asked->count.v;
    if (!worst)
        return true;
    const char *name = m->desc->hosts[host].name;
    if (asked->list.loc.line)
        diag_at(&d, loc, "gpus: there is no GPU %u on host \"%s\", which has %u", worst - 1, name,
                have);
    else
        diag_at(&d, loc, "gpus: host \"%s\" has %u GPU%s, not %u", name, have, have == 1 ? "" : "s",
                worst);
    if (*s->known->reason)
        diag_hint(&d, "%s", s->known->reason);
    maker_note(m, &d);
    return false;
}

static void too_few(struct maker *m, uint32_t host, const struct supply *s, uint32_t wanted)
{
    struct diag d;
    const char *path;
    struct diag_loc loc = asked_at(m->job, &path), where = written_at(s->asked);
    uint32_t have = offered(s);
    uint32_t nranks = m->desc->hosts[host].nranks;
    diag_at(&d, loc, "%s: host \"%s\" has %u GPU%s, its %u rank%s %u", path,
            m->desc->hosts[host].name, have, have == 1 ? "" : "s", nranks,
            nranks == 1 ? " needs" : "s need", wanted);
    if (where.line)
        diag_second(&d, where, "its GPUs");
    if (s->known && *s->known->reason)
        diag_hint(&d, "%s", s->known->reason);
    maker_note(m, &d);
}

/* ---- handing out ---- */

static struct desc_gpu take(const struct supply *s)
{
    uint32_t place = (*s->next)++;
    uint32_t index = s->asked->list.n ? (uint32_t)s->asked->list.items[place].v : place;
    bool known = s->known && index < s->known->n;
    return (struct desc_gpu){.index = index, .uuid = known ? s->known->items[index].uuid : ""};
}

static struct supply *make_supplies(struct maker *m)
{
    uint32_t nhosts = m->desc->nhosts;
    struct supply *supplies = arena_calloc(m->arena, nhosts, sizeof *supplies);
    for (uint32_t h = 0; supplies && h < nhosts; h++) {
        struct supply *s = &supplies[h];
        s->known = m->in->gpus ? m->in->gpus[h] : NULL;
        s->asked = &m->job->hosts.nodes[h].gpus;
        s->next = &s->own;
        for (uint32_t k = 0; k < h && !written_at(s->asked).line; k++)
            if (s->known && supplies[k].known == s->known && !written_at(supplies[k].asked).line)
                s->next = supplies[k].next;
    }
    return supplies;
}

/* Whether each host has enough for its ranks. */
static bool check_supplies(struct maker *m, const struct supply *supplies, const uint32_t *need)
{
    const struct desc *desc = m->desc;
    uint32_t *wanted = arena_calloc(m->arena, desc->nhosts, sizeof *wanted);
    bool good = wanted != NULL;
    for (uint32_t rank = 0; good && rank < desc->nranks; rank++)
        wanted[desc->ranks[rank].host] += need[rank];
    for (uint32_t h = 0; wanted && h < desc->nhosts; h++) {
        uint32_t before = 0; /* of hosts that draw from the same pool */
        for (uint32_t k = 0; k < h; k++)
            before += supplies[k].next == supplies[h].next ? wanted[k] : 0;
        if (!wanted[h])
            continue;
        if (!check_host(m, h, &supplies[h])) {
            good = false;
        } else if (before + wanted[h] > offered(&supplies[h])) {
            too_few(m, h, &supplies[h], before + wanted[h]);
            good = false;
        }
    }
    return good;
}

/* Setting the mask is collrun's work then. */
static bool check_mask(struct maker *m)
{
    static const char mask[] = "CUDA_VISIBLE_DEVICES";
    const struct job_pairs *set = &m->job->env.set;
    for (uint32_t i = 0; i < set->n; i++) {
        struct diag d;
        if (strcmp(set->items[i].key, mask) != 0)
            continue;
        diag_at(&d, set->items[i].loc, "env.set.%s: collrun sets it for each rank", mask);
        diag_hint(&d, "hosts.nodes[].gpus says which GPUs of a host may be used; a mask that "
                      "collrun itself is started with is respected");
        maker_note(m, &d);
        return false;
    }
    return true;
}

void maker_gpus(struct maker *m)
{
    struct desc *desc = m->desc;
    const char *path;
    struct diag_loc loc = asked_at(m->job, &path);
    uint32_t *need = greediest(m->job) ? count_needs(m) : NULL;
    struct supply *supplies = need ? make_supplies(m) : NULL;
    if (!supplies || !check_mask(m) || !check_supplies(m, supplies, need))
        return;
    for (uint32_t h = 0; h < desc->nhosts; h++)
        desc->hosts[h].gpus_loc =
            written_at(supplies[h].asked).line ? written_at(supplies[h].asked) : loc;
    for (uint32_t rank = 0; rank < desc->nranks; rank++) {
        struct desc_rank *out = &desc->ranks[rank];
        out->gpus = arena_calloc(m->arena, need[rank], sizeof *out->gpus);
        for (uint32_t i = 0; out->gpus && i < need[rank]; i++)
            out->gpus[out->ngpus++] = take(&supplies[out->host]);
    }
}

/* ---- groups ---- */

/* NCCL's own check compares hosts, and NCCL_HOSTID tells it otherwise: then sharing is meant. */
static bool sharing_is_meant(const struct job *job)
{
    for (uint32_t i = 0; i < job->env.set.n; i++)
        if (!strcmp(job->env.set.items[i].key, "NCCL_HOSTID"))
            return true;
    return false;
}

/* Whether two ranks have a GPU in common, as far as anybody knows. */
static const struct desc_gpu *shared_gpu(const struct desc_rank *a, const struct desc_rank *b)
{
    for (uint32_t i = 0; i < a->ngpus; i++)
        for (uint32_t k = 0; k < b->ngpus; k++) {
            bool same = *a->gpus[i].uuid ? !strcmp(a->gpus[i].uuid, b->gpus[k].uuid)
                                         : a->host == b->host && !*b->gpus[k].uuid &&
                                               a->gpus[i].index == b->gpus[k].index;
            if (same)
                return &a->gpus[i];
        }
    return NULL;
}

void maker_own_gpus(struct maker *m, const struct job_group *group, struct desc_group *planned,
                    uint32_t backend)
{
    const struct desc *desc = m->desc;
    planned->own_gpus = !sharing_is_meant(m->job);
    for (uint32_t i = 1; i < planned->ranks.n && planned->own_gpus; i++)
        for (uint32_t k = 0; k < i; k++) {
            uint32_t first = planned->ranks.items[k], second = planned->ranks.items[i];
            const struct desc_rank *a = &desc->ranks[first], *b = &desc->ranks[second];
            const struct desc_gpu *gpu = shared_gpu(a, b);
            struct diag d;
            if (!gpu)
                continue;
            diag_at(&d, group->name_loc.line ? group->name_loc : m->job->processes.count.loc,
                    "groups.%s: ranks %u and %u are both on GPU %u of host \"%s\"", planned->name,
                    first, second, gpu->index, desc->hosts[a->host].name);
            diag_hint(&d, "the backend \"%s\" needs a GPU of its own for every member",
                      desc->backends[backend].name);
            if (desc->hosts[b->host].gpus_loc.line)
                diag_second(&d, desc->hosts[b->host].gpus_loc, "the GPUs of rank %u", second);
            maker_note(m, &d);
            return;
        }
}
