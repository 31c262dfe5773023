/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks on hosts, and on the cpus of hosts. Without slots the ranks spread evenly, neighbours
 * together; with slots each host takes at most its own. Local hosts are one machine: what one of
 * them has bound, another does not get.
 */
#include "plan/maker.h"

#include <stdio.h>
#include <string.h>

/* ---- hosts ---- */

/* How many ranks each host may take; false when they are too few. */
static bool count_room(const struct job *job, uint32_t count, uint32_t *room)
{
    bool limited = false;
    uint64_t total = 0;
    for (uint32_t h = 0; h < job->hosts.n; h++)
        limited = limited || job->hosts.nodes[h].slots.v;
    for (uint32_t h = 0; h < job->hosts.n; h++) {
        int64_t slots = job->hosts.nodes[h].slots.v;
        room[h] = slots ? (uint32_t)slots : limited ? 1 : count;
        total += room[h];
    }
    if (limited)
        return total >= count;
    for (uint32_t h = 0; h < job->hosts.n; h++) /* block: the first ones take one more */
        if (job->processes.map.v == JOB_MAP_BLOCK)
            room[h] = count / job->hosts.n + (h < count % job->hosts.n);
    return true;
}

static void put_on_host(struct desc *desc, uint32_t rank, uint32_t host)
{
    desc->ranks[rank].host = host;
    desc->ranks[rank].local_rank = desc->hosts[host].nranks++;
    desc->ranks[rank].cpus = "";
}

static void map_ranks(const struct job *job, struct desc *desc, const uint32_t *room)
{
    uint32_t host = 0;
    bool cyclic = job->processes.map.v == JOB_MAP_CYCLIC;
    for (uint32_t rank = 0; rank < desc->nranks; rank++) {
        while (desc->hosts[host].nranks >= room[host])
            host = (host + 1) % desc->nhosts;
        put_on_host(desc, rank, host);
        if (cyclic)
            host = (host + 1) % desc->nhosts;
    }
}

/* ---- cpus ---- */

struct machine { /* one or more hosts that share a topology */
    const struct topology *topology;
    uint32_t nranks, next; /* how many ranks it has; how many of them are bound */
    const char *name;
};

/* "0-3,8" of the cpus from `first` to before `end` of a topology. */
static const char *list_cpus(struct maker *m, const struct topology *t, uint32_t first,
                             uint32_t end)
{
    const char *list = "";
    for (uint32_t i = first; list && i < end;) {
        uint32_t k = i + 1;
        while (k < end && t->cpus[k].cpu == t->cpus[k - 1].cpu + 1)
            k++;
        const char *comma = *list ? "," : "";
        list = k - i > 1 ? arena_printf(m->arena, "%s%s%u-%u", list, comma, t->cpus[i].cpu,
                                        t->cpus[k - 1].cpu)
                         : arena_printf(m->arena, "%s%s%u", list, comma, t->cpus[i].cpu);
        i = k;
    }
    return list ? list : "";
}

static uint32_t first_of_core(const struct topology *t, uint32_t core)
{
    uint32_t i = 0;
    while (i < t->ncpus && t->cpus[i].core < core)
        i++;
    return i;
}

static uint32_t first_of_numa(const struct topology *t, uint32_t numa)
{
    uint32_t i = 0;
    while (i < t->ncpus && t->cpus[i].numa < numa)
        i++;
    return i;
}

static const char *cpus_for(struct maker *m, struct machine *machine)
{
    const struct topology *t = machine->topology;
    uint32_t index = machine->next++, width = (uint32_t)m->job->processes.cpus_per_process.v;
    if (m->job->processes.bind.v == JOB_BIND_CORE)
        return list_cpus(m, t, first_of_core(t, index * width),
                         first_of_core(t, (index + 1) * width));
    uint32_t numa = (uint32_t)((uint64_t)index * t->nnumas / machine->nranks);
    return list_cpus(m, t, first_of_numa(t, numa), first_of_numa(t, numa + 1));
}

static bool has_room(struct maker *m, const struct machine *machine)
{
    const struct job_processes *p = &m->job->processes;
    uint64_t need = machine->nranks * (uint64_t)p->cpus_per_process.v;
    if (p->bind.v != JOB_BIND_CORE || need <= machine->topology->ncores)
        return true;
    struct diag d;
    uint32_t n = machine->nranks, cores = machine->topology->ncores;
    char each[40] = "";
    if (p->cpus_per_process.v > 1)
        snprintf(each, sizeof each, " of %u cores each", (uint32_t)p->cpus_per_process.v);
    diag_at(&d, p->bind.loc, "processes.bind: %s has %u core%s, too few for %u rank%s%s",
            machine->name, cores, cores == 1 ? "" : "s", n, n == 1 ? "" : "s", each);
    diag_hint(&d, "bind: none lets ranks share cores");
    diag_second(&d, p->count.loc, "%u rank%s in all", m->desc->nranks,
                m->desc->nranks == 1 ? "" : "s");
    maker_note(m, &d);
    return false;
}

/* Nobody has looked at the processors of a host that is not this one. */
static void unknown_processors(struct maker *m, uint32_t host)
{
    const struct job_processes *p = &m->job->processes;
    struct diag d;
    diag_at(&d, p->bind.loc,
            "processes.bind: \"%s\" is supported by this build only for ranks of this machine",
            p->bind.v == JOB_BIND_CORE ? "core" : "numa");
    diag_hint(&d, "bind: none leaves it to the system");
    if (m->job->hosts.nodes[host].loc.line)
        diag_second(&d, m->job->hosts.nodes[host].loc, "the host \"%s\" is another one",
                    m->desc->hosts[host].name);
    maker_note(m, &d);
}

static struct machine *find_machine(struct machine *machines, uint32_t *n, const struct topology *t)
{
    for (uint32_t i = 0; i < *n; i++)
        if (machines[i].topology == t)
            return &machines[i];
    machines[*n].topology = t;
    return &machines[(*n)++];
}

static void bind_ranks(struct maker *m)
{
    struct desc *desc = m->desc;
    uint32_t n = 0;
    struct machine *machines = arena_calloc(m->arena, desc->nhosts, sizeof *machines);
    struct machine **of = arena_calloc(m->arena, desc->nhosts, sizeof(struct machine *));
    if (!machines || !of)
        return;
    for (uint32_t h = 0; h < desc->nhosts; h++) {
        if (!desc->hosts[h].nranks)
            continue;
        if (!m->in->topologies[h]) {
            unknown_processors(m, h);
            return;
        }
        of[h] = find_machine(machines, &n, m->in->topologies[h]);
        of[h]->nranks += desc->hosts[h].nranks;
        of[h]->name = of[h]->name ? "this machine" : desc->hosts[h].name;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!has_room(m, &machines[i]))
            return;
    for (uint32_t rank = 0; rank < desc->nranks; rank++) {
        desc->ranks[rank].cpus = cpus_for(m, of[desc->ranks[rank].host]);
    }
}

/* ---- cpus near GPUs ---- */

/* The cpus near a rank's GPUs, where they are known: of this machine. */
static const char *cpus_near(struct maker *m, const struct desc_rank *rank)
{
    const struct topology *t = m->in->topologies[rank->host];
    const struct gpus *gpus = m->in->gpus ? m->in->gpus[rank->host] : NULL;
    const char **lists = arena_calloc(m->arena, rank->ngpus, sizeof *lists);
    if (!rank->ngpus)
        return "";
    if (!t || !gpus || !lists)
        return DESC_CPUS_NEAR_GPUS;
    for (uint32_t i = 0; i < rank->ngpus; i++)
        lists[i] = gpus->items[rank->gpus[i].index].cpus;
    return topology_among(t, lists, rank->ngpus, m->arena);
}

static void bind_near_gpus(struct maker *m)
{
    const struct job_processes *p = &m->job->processes;
    struct diag d;
    bool any = false;
    for (uint32_t rank = 0; rank < m->desc->nranks; rank++) {
        struct desc_rank *out = &m->desc->ranks[rank];
        out->cpus = cpus_near(m, out);
        if (out->ngpus && !*out->cpus) {
            diag_at(&d, p->bind.loc,
                    "processes.bind: it is not known which cpus are near the GPUs of rank %u, or "
                    "none of them may be used",
                    rank);
            maker_note(m, &d);
            return;
        }
        any = any || out->ngpus;
    }
    if (any || diag_list_count(m->diags))
        return;
    diag_at(&d, p->bind.loc, "processes.bind: \"gpu\", but no rank has a GPU");
    diag_hint(&d, "processes.gpus_per_process gives every rank some");
    maker_note(m, &d);
}

void maker_place(struct maker *m)
{
    const struct job *job = m->job;
    struct desc *desc = m->desc;
    uint32_t count = (uint32_t)job->processes.count.v;
    desc->hosts = arena_calloc(m->arena, job->hosts.n, sizeof *desc->hosts);
    desc->ranks = arena_calloc(m->arena, count, sizeof *desc->ranks);
    uint32_t *room = arena_calloc(m->arena, job->hosts.n, sizeof *room);
    if (!desc->hosts || !desc->ranks || !room || !job->hosts.n)
        return;
    desc->nhosts = job->hosts.n;
    for (uint32_t h = 0; h < desc->nhosts; h++) {
        desc->hosts[h].name = job->hosts.nodes[h].name.v;
        desc->hosts[h].workdir = job->hosts.nodes[h].workdir.v ? job->hosts.nodes[h].workdir.v : "";
    }
    if (!count || !count_room(job, count, room))
        return;
    desc->nranks = count;
    map_ranks(job, desc, room);
    if (job->processes.bind.v == JOB_BIND_CORE || job->processes.bind.v == JOB_BIND_NUMA)
        bind_ranks(m);
    maker_gpus(m);
    if (job->processes.bind.v == JOB_BIND_GPU)
        bind_near_gpus(m);
}
