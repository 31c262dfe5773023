/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices of ranks. Each kind of memory is planned apart from the others.
 * - A rank owns as many devices as `processes` demands, or the largest demand of its groups.
 * - The ranks of a host take devices in order, each device once.
 * - A host without `gpus:` or `devices:` offers its whole pool; local hosts are one machine and
 *   share its pool.
 * - If the pool of a host is unknown, indices are assigned all the same; the agent rejects indices
 *   that do not exist.
 */
#include "plan/planner.h"

#include <stdio.h>
#include <string.h>

struct supply { /* the devices of one host that are still free */
    const struct devices *known;
    struct kinds_pool asked;
    uint32_t *next; /* shared by hosts that are the same machine */
    uint32_t own;   /* the target of `next` otherwise */
};

/* The pass for one kind. */
struct device_pass {
    struct planner *pl;
    uint32_t index; /* in desc.kinds */
    const struct desc_kind *kind;
    struct kinds_kind key;
    struct kinds_need most;
    uint32_t *need; /* per rank */
    struct supply *supplies;
};

static const char *device_plural(uint32_t n)
{
    return n == 1 ? "" : "s";
}

/* ---- the demand ---- */

/* The number of devices of each rank. */
static uint32_t *device_needs(struct planner *pl, struct kinds_kind kind)
{
    const struct job *job = pl->job;
    uint32_t *need = arena_calloc(pl->arena, pl->desc->nranks, sizeof *need);
    uint32_t least = kinds_of_processes(job, kind).count;
    for (uint32_t rank = 0; rank < pl->desc->nranks; rank++)
        need[rank] = least;
    for (uint32_t i = 0; i < job->ngroups; i++) {
        uint32_t demand = kinds_of_group(job, &job->groups[i], kind).count;
        struct desc_ranks ranks;
        if (demand <= least)
            continue;
        planner_ranks(pl, &job->groups[i].ranks, &ranks);
        for (uint32_t k = 0; k < ranks.n; k++)
            if (need[ranks.items[k]] < demand)
                need[ranks.items[k]] = demand;
    }
    return need;
}

/* ---- the supply ---- */

/* The number of devices that a host offers; UINT32_MAX: unknown. */
static uint32_t device_offered(const struct supply *s)
{
    const struct job_pool *pool = s->asked.pool;
    if (pool->list.loc.line)
        return pool->list.n;
    if (pool->count.loc.line)
        return (uint32_t)pool->count.v;
    return s->known ? s->known->n : UINT32_MAX;
}

/* Reports devices that job.yaml gives to the host and the machine does not have. */
static bool device_check_host(struct device_pass *pass, uint32_t host)
{
    struct diag d;
    const struct supply *s = &pass->supplies[host];
    const struct job_nums *list = &s->asked.pool->list;
    uint32_t have = s->known ? s->known->n : UINT32_MAX, worst = 0;
    struct diag_loc loc = kinds_written_at(s->asked.pool);
    for (uint32_t i = 0; i < list->n; i++)
        if (list->items[i].v >= have && !worst) {
            worst = (uint32_t)list->items[i].v + 1;
            loc = list->items[i].loc;
        }
    if (s->asked.pool->count.v > have)
        worst = (uint32_t)s->asked.pool->count.v;
    if (!worst)
        return true;
    const char *name = pass->pl->desc->hosts[host].name, *title = pass->kind->title;
    if (list->loc.line)
        diag_at(&d, loc, "%s: there is no %s %u on host \"%s\", which has %u", s->asked.path, title,
                worst - 1, name, have);
    else
        diag_at(&d, loc, "%s: host \"%s\" has %u %s%s, not %u", s->asked.path, name, have, title,
                device_plural(have), worst);
    if (*s->known->reason)
        diag_hint(&d, "%s", s->known->reason);
    pass->pl->lacks_devices = true;
    planner_add_error(pass->pl, &d);
    return false;
}

static void device_too_few(struct device_pass *pass, uint32_t host, uint32_t wanted)
{
    struct diag d;
    struct planner *pl = pass->pl;
    const struct supply *s = &pass->supplies[host];
    struct diag_loc where = kinds_written_at(s->asked.pool);
    uint32_t have = device_offered(s);
    uint32_t nranks = pl->desc->hosts[host].nranks;
    diag_at(&d, pass->most.loc, "%s: host \"%s\" has %u %s%s, but its %u rank%s %u",
            plan_need_path(pl, &pass->most, pass->kind->name), pl->desc->hosts[host].name, have,
            pass->kind->title, device_plural(have), nranks, nranks == 1 ? " needs" : "s need",
            wanted);
    if (where.line)
        diag_second(&d, where, "the %ss of the host", pass->kind->title);
    if (s->known && *s->known->reason)
        diag_hint(&d, "%s", s->known->reason);
    pl->lacks_devices = true;
    planner_add_error(pl, &d);
}

/* ---- the assignment ---- */

const struct devices *plan_known_devices(const struct planner *pl, uint32_t host, const char *kind)
{
    const struct plan_pools *pools = pl->in->pools ? pl->in->pools[host] : NULL;
    for (uint32_t i = 0; pools && i < pools->n; i++)
        if (strcmp(pools->items[i].kind, kind) == 0)
            return &pools->items[i].devices;
    return NULL;
}

static struct desc_device device_take(const struct device_pass *pass, uint32_t host)
{
    const struct supply *s = &pass->supplies[host];
    const struct job_nums *list = &s->asked.pool->list;
    uint32_t place = (*s->next)++;
    uint32_t index = list->n ? (uint32_t)list->items[place].v : place;
    bool known = s->known && index < s->known->n;
    return (struct desc_device){
        .kind = pass->index, .index = index, .id = known ? s->known->items[index].id : ""};
}

static struct supply *device_supplies(struct planner *pl, struct kinds_kind kind)
{
    uint32_t nhosts = pl->desc->nhosts;
    struct supply *supplies = arena_calloc(pl->arena, nhosts, sizeof *supplies);
    for (uint32_t h = 0; h < nhosts; h++) {
        struct supply *s = &supplies[h];
        s->known = plan_known_devices(pl, h, kind.name);
        s->asked = kinds_of_host(pl->job, h, kind);
        s->next = &s->own;
        for (uint32_t k = 0; k < h && !kinds_written_at(s->asked.pool).line; k++)
            if (s->known && supplies[k].known == s->known &&
                !kinds_written_at(supplies[k].asked.pool).line)
                s->next = supplies[k].next;
    }
    return supplies;
}

/* Whether each host has enough for its ranks. */
static bool device_check_supplies(struct device_pass *pass)
{
    const struct desc *desc = pass->pl->desc;
    const struct supply *supplies = pass->supplies;
    uint32_t *wanted = arena_calloc(pass->pl->arena, desc->nhosts, sizeof *wanted);
    bool good = wanted != NULL;
    for (uint32_t rank = 0; good && rank < desc->nranks; rank++)
        wanted[desc->ranks[rank].host] += pass->need[rank];
    for (uint32_t h = 0; h < desc->nhosts; h++) {
        uint32_t before = 0; /* of hosts that draw from the same pool */
        for (uint32_t k = 0; k < h; k++)
            before += supplies[k].next == supplies[h].next ? wanted[k] : 0;
        if (!wanted[h])
            continue;
        if (!device_check_host(pass, h)) {
            good = false;
        } else if (before + wanted[h] > device_offered(&supplies[h])) {
            device_too_few(pass, h, before + wanted[h]);
            good = false;
        }
    }
    return good;
}

/* A job with devices must not set the mask, since collrun sets it. */
static bool device_check_mask(const struct device_pass *pass)
{
    const struct job_pairs *set = &pass->pl->job->env.set;
    const struct desc_kind *kind = pass->kind;
    for (uint32_t i = 0; i < set->n; i++) {
        struct diag d;
        if (!*kind->mask || strcmp(set->items[i].key, kind->mask) != 0)
            continue;
        diag_at(&d, set->items[i].loc, "env.set.%s: collrun sets this variable for each rank",
                kind->mask);
        diag_hint(&d,
                  "hosts.nodes[].%s%s selects the %ss of a host; the value in collrun's own "
                  "environment is respected",
                  kind->gpus ? "gpus" : "devices.", kind->gpus ? "" : kind->name, kind->title);
        planner_add_error(pass->pl, &d);
        return false;
    }
    return true;
}

/* Appends the devices of one kind to those of each rank. */
static void device_assign(const struct device_pass *pass)
{
    struct desc *desc = pass->pl->desc;
    for (uint32_t h = 0; h < desc->nhosts; h++) {
        struct diag_loc written = kinds_written_at(pass->supplies[h].asked.pool);
        if (!desc->hosts[h].devices_loc.line)
            desc->hosts[h].devices_loc = written.line ? written : pass->most.loc;
    }
    for (uint32_t rank = 0; rank < desc->nranks; rank++) {
        struct desc_rank *out = &desc->ranks[rank];
        uint32_t n = out->ndevices + pass->need[rank];
        struct desc_device *all =
            pass->need[rank] ? arena_calloc(pass->pl->arena, n, sizeof *all) : NULL;
        if (!all)
            continue;
        if (out->ndevices)
            memcpy(all, out->devices, out->ndevices * sizeof *all);
        out->devices = all;
        while (out->ndevices < n)
            all[out->ndevices++] = device_take(pass, out->host);
    }
}

void plan_devices(struct planner *pl)
{
    for (uint32_t i = 0; i < pl->desc->nkinds; i++) {
        const struct desc_kind *kind = &pl->desc->kinds[i];
        struct device_pass pass = {
            .pl = pl, .index = i, .kind = kind, .key = {kind->name, kind->gpus}};
        pass.most = kinds_of_job(pl->job, pass.key);
        if (!pass.most.count || !device_check_mask(&pass))
            continue;
        pass.need = device_needs(pl, pass.key);
        pass.supplies = device_supplies(pl, pass.key);
        if (pass.need && pass.supplies && device_check_supplies(&pass))
            device_assign(&pass);
    }
}

/* ---- groups ---- */

/* NCCL refuses two ranks on one GPU of one host; NCCL_HOSTID disables that check, so a job that
 * sets it shares GPUs on purpose. */
static bool device_sharing_allowed(const struct job *job)
{
    for (uint32_t i = 0; i < job->env.set.n; i++)
        if (strcmp(job->env.set.items[i].key, "NCCL_HOSTID") == 0)
            return true;
    return false;
}

/* Whether two hosts have the same devices. An id is unique on one machine only. */
static bool device_same_machine(const struct planner *pl, uint32_t a, uint32_t b, uint32_t kind)
{
    const char *name = pl->desc->kinds[kind].name;
    const struct devices *known = plan_known_devices(pl, a, name);
    return a == b || (known && known == plan_known_devices(pl, b, name));
}

/* A device of the kind that two ranks share; NULL: none is known. */
static const struct desc_device *device_shared(const struct planner *pl, const struct desc_rank *a,
                                               const struct desc_rank *b, uint32_t kind)
{
    if (!device_same_machine(pl, a->host, b->host, kind))
        return NULL;
    for (uint32_t i = 0; i < a->ndevices; i++)
        for (uint32_t k = 0; k < b->ndevices; k++) {
            const struct desc_device *mine = &a->devices[i], *other = &b->devices[k];
            bool same = *mine->id ? strcmp(mine->id, other->id) == 0
                                  : !*other->id && mine->index == other->index;
            if (same && mine->kind == kind && other->kind == kind)
                return mine;
        }
    return NULL;
}

/* Reports the first two members that share a device. */
static void device_check_members(struct planner *pl, const struct job_group *group,
                                 const struct desc_group *planned, uint32_t kind, uint32_t backend)
{
    const struct desc *desc = pl->desc;
    const char *title = desc->kinds[kind].title;
    for (uint32_t i = 1; i < planned->ranks.n; i++)
        for (uint32_t k = 0; k < i; k++) {
            uint32_t first = planned->ranks.items[k], second = planned->ranks.items[i];
            const struct desc_rank *a = &desc->ranks[first], *b = &desc->ranks[second];
            const struct desc_device *device = device_shared(pl, a, b, kind);
            struct diag d;
            if (!device)
                continue;
            diag_at(&d, group->name_loc.line ? group->name_loc : pl->job->processes.count.loc,
                    "groups.%s: ranks %u and %u share %s %u of host \"%s\"", planned->name, first,
                    second, title, device->index, desc->hosts[a->host].name);
            diag_hint(&d, "the backend \"%s\" needs a separate %s for every member",
                      desc->backends[backend].name, title);
            if (desc->hosts[b->host].devices_loc.line)
                diag_second(&d, desc->hosts[b->host].devices_loc, "the %ss of rank %u", title,
                            second);
            planner_add_error(pl, &d);
            return;
        }
}

void plan_check_own_devices(struct planner *pl, const struct job_group *group,
                            struct desc_group *planned, uint32_t backend)
{
    const struct described *b =
        lookup_described(pl->in, DESCRIBE_BACKEND, pl->desc->backends[backend].path);
    bool needed = b && b->flags & COLLRUN_BACKEND_NEEDS_DEVICE && b->memory.name;
    uint32_t kind = needed ? plan_find_kind(pl, b->memory.name) : pl->desc->nkinds;
    for (uint32_t i = 0; i < planned->ndevices; i++) {
        struct desc_need *need = &planned->devices[i];
        if (need->kind != kind || device_sharing_allowed(pl->job))
            continue;
        need->own = true;
        device_check_members(pl, group, planned, kind, backend);
    }
}
