/* SPDX-License-Identifier: Apache-2.0
 *
 * Places ranks on hosts and on the CPUs of hosts.
 * - Without slots, ranks are spread evenly and consecutive ranks stay together; with slots, each
 *   host takes at most that many.
 * - Local hosts are one machine: CPUs bound for one of them are not used for another.
 */
#include "plan/planner.h"

#include "spec/check.h"

#include <stdio.h>
#include <string.h>

/* ---- hosts ---- */

/* The maximum number of ranks of each host; false if the sum is too small. */
static bool place_room(const struct job *job, uint32_t count, uint32_t *room)
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
        if (job->processes.map.kind.v == JOB_MAP_BLOCK)
            room[h] = count / job->hosts.n + (h < count % job->hosts.n);
    return true;
}

static void place_rank(struct desc *desc, uint32_t rank, uint32_t host)
{
    desc->ranks[rank].host = host;
    desc->ranks[rank].local_rank = desc->hosts[host].nranks++;
    desc->ranks[rank].cpus = "";
}

/* processes.map as a list; it has been checked. */
static void place_rows(const struct job *job, struct desc *desc)
{
    const struct job_map *map = &job->processes.map;
    for (uint32_t rank = 0; rank < desc->nranks; rank++) {
        uint32_t i = 0;
        while (i < map->n - 1 && !job_ranks_has(&map->rows[i].ranks, rank))
            i++;
        uint32_t host = check_map_host(&job->hosts, &map->rows[i]);
        place_rank(desc, rank, host < desc->nhosts ? host : 0);
    }
}

/* Their CPUs, in place of processes.bind. */
static void place_cpus_of_rows(const struct job *job, struct desc *desc)
{
    const struct job_map *map = &job->processes.map;
    for (uint32_t rank = 0; rank < desc->nranks; rank++) {
        for (uint32_t i = 0; i < map->n; i++) {
            if (map->rows[i].cpus.v && job_ranks_has(&map->rows[i].ranks, rank))
                desc->ranks[rank].cpus = map->rows[i].cpus.v;
        }
    }
}

static void place_ranks(const struct job *job, struct desc *desc, const uint32_t *room)
{
    uint32_t host = 0;
    bool cyclic = job->processes.map.kind.v == JOB_MAP_CYCLIC;
    for (uint32_t rank = 0; rank < desc->nranks; rank++) {
        while (desc->hosts[host].nranks >= room[host])
            host = (host + 1) % desc->nhosts;
        place_rank(desc, rank, host);
        if (cyclic)
            host = (host + 1) % desc->nhosts;
    }
}

/* ---- cpus ---- */

struct machine { /* one or more hosts that share a topology */
    const struct topology *topology;
    uint32_t nranks, next; /* its ranks; how many of them are bound so far */
    const char *name;
};

static enum topology_level place_level(const struct planner *pl)
{
    static const enum topology_level levels[] = {[JOB_BIND_CORE] = TOPOLOGY_CORE,
                                                 [JOB_BIND_L3] = TOPOLOGY_L3,
                                                 [JOB_BIND_NUMA] = TOPOLOGY_NUMA,
                                                 [JOB_BIND_SOCKET] = TOPOLOGY_SOCKET};
    return levels[pl->job->processes.bind.v];
}

static bool place_has_cores(struct planner *pl, const struct machine *machine)
{
    const struct job_processes *p = &pl->job->processes;
    uint64_t need = machine->nranks * (uint64_t)p->cpus_per_process.v;
    if (p->bind.v != JOB_BIND_CORE || need <= machine->topology->nparts[TOPOLOGY_CORE])
        return true;
    struct diag d;
    uint32_t n = machine->nranks, cores = machine->topology->nparts[TOPOLOGY_CORE];
    char each[40] = "";
    if (p->cpus_per_process.v > 1)
        snprintf(each, sizeof each, " of %u cores each", (uint32_t)p->cpus_per_process.v);
    diag_at(&d, p->bind.loc, "processes.bind: %s has %u core%s, too few for %u rank%s%s",
            machine->name, cores, cores == 1 ? "" : "s", n, n == 1 ? "" : "s", each);
    diag_hint(&d, "bind: none lets ranks share cores");
    diag_second(&d, p->count.loc, "%u rank%s in all", pl->desc->nranks,
                pl->desc->nranks == 1 ? "" : "s");
    planner_add_error(pl, &d);
    return false;
}

static struct machine *place_find_machine(struct machine *machines, uint32_t *n,
                                          const struct topology *t)
{
    for (uint32_t i = 0; i < *n; i++)
        if (machines[i].topology == t)
            return &machines[i];
    machines[*n].topology = t;
    return &machines[(*n)++];
}

/* The agents of other hosts bind their ranks by their own topology. */
static void place_bind(struct planner *pl)
{
    struct desc *desc = pl->desc;
    const enum topology_level level = place_level(pl);
    uint32_t n = 0;
    struct machine *machines = arena_calloc(pl->arena, desc->nhosts, sizeof *machines);
    struct machine **of = arena_calloc(pl->arena, desc->nhosts, sizeof(struct machine *));
    for (uint32_t h = 0; h < desc->nhosts; h++) {
        if (!desc->hosts[h].nranks || !pl->in->topologies[h])
            continue;
        of[h] = place_find_machine(machines, &n, pl->in->topologies[h]);
        of[h]->nranks += desc->hosts[h].nranks;
        of[h]->name = of[h]->name ? "this machine" : desc->hosts[h].name;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!place_has_cores(pl, &machines[i]))
            return;
    for (uint32_t rank = 0; rank < desc->nranks; rank++) {
        struct machine *m = of[desc->ranks[rank].host];
        desc->ranks[rank].cpus = m ? topology_share(m->topology, level, desc->cpus_per_process,
                                                    m->nranks, m->next++, pl->arena)
                                   : topology_level_name(level);
    }
}

/* The host binds the ranks when they start, unless another host of the job is the same machine, or
 * they have devices. */
static void place_bind_auto(struct planner *pl)
{
    struct desc *desc = pl->desc;
    for (uint32_t rank = 0; rank < desc->nranks; rank++) {
        const uint32_t h = desc->ranks[rank].host;
        bool alone = desc->ranks[rank].ndevices == 0;
        for (uint32_t i = 0; pl->in->topologies[h] && i < desc->nhosts; i++)
            if (i != h && desc->hosts[i].nranks && pl->in->topologies[i] == pl->in->topologies[h])
                alone = false;
        desc->ranks[rank].cpus = alone ? DESC_CPUS_AUTO : "";
    }
}

/* ---- cpus near devices ---- */

/* The CPUs near a rank's devices; they are known on this machine only. */
static const char *place_cpus_near_devices(struct planner *pl, const struct desc_rank *rank)
{
    const struct topology *t = pl->in->topologies[rank->host];
    const char **lists = arena_calloc(pl->arena, rank->ndevices, sizeof *lists);
    if (!rank->ndevices)
        return "";
    if (!t)
        return DESC_CPUS_NEAR_DEVICES;
    for (uint32_t i = 0; i < rank->ndevices; i++) {
        const struct desc_device *device = &rank->devices[i];
        const struct devices *known =
            plan_known_devices(pl, rank->host, pl->desc->kinds[device->kind].name);
        if (!known)
            return DESC_CPUS_NEAR_DEVICES;
        lists[i] = known->items[device->index].cpus;
    }
    return topology_among(t, lists, rank->ndevices, pl->arena);
}

static void place_bind_near_devices(struct planner *pl)
{
    const struct job_processes *p = &pl->job->processes;
    struct diag d;
    bool any = false;
    for (uint32_t rank = 0; rank < pl->desc->nranks; rank++) {
        struct desc_rank *out = &pl->desc->ranks[rank];
        out->cpus = place_cpus_near_devices(pl, out);
        if (out->ndevices && !*out->cpus) {
            diag_at(
                &d, p->bind.loc,
                "processes.bind: the CPUs near the devices of rank %u are unknown or not usable",
                rank);
            planner_add_error(pl, &d);
            return;
        }
        any = any || out->ndevices;
    }
    if (any || diag_list_count(pl->diags))
        return;
    diag_at(&d, p->bind.loc, "processes.bind: \"gpu\", but no rank has a device");
    diag_hint(&d, "set processes.gpus_per_process or processes.devices");
    planner_add_error(pl, &d);
}

/* The ranks that read the standard input of collrun. */
static void place_stdin(struct planner *pl)
{
    struct desc *desc = pl->desc;
    const int64_t rank = pl->job->processes.stdin_rank.v;
    uint32_t *items = arena_calloc(pl->arena, desc->nranks, sizeof *items);
    desc->with_stdin = (struct desc_ranks){items, 0};
    for (uint32_t i = 0; i < desc->nranks; i++) {
        if (rank == JOB_STDIN_ALL || rank == (int64_t)i)
            items[desc->with_stdin.n++] = i;
    }
}

void plan_place(struct planner *pl)
{
    const struct job *job = pl->job;
    struct desc *desc = pl->desc;
    uint32_t count = job->nranks;
    desc->hosts = arena_calloc(pl->arena, job->hosts.n, sizeof *desc->hosts);
    desc->ranks = arena_calloc(pl->arena, count, sizeof *desc->ranks);
    uint32_t *room = arena_calloc(pl->arena, job->hosts.n, sizeof *room);
    if (!job->hosts.n)
        return;
    desc->nhosts = job->hosts.n;
    for (uint32_t h = 0; h < desc->nhosts; h++) {
        desc->hosts[h].name = job->hosts.nodes[h].name.v;
        desc->hosts[h].workdir = job->hosts.nodes[h].workdir.v ? job->hosts.nodes[h].workdir.v : "";
        desc->hosts[h].workdir_loc = job->hosts.nodes[h].workdir.loc;
    }
    if (!count || (!job->processes.map.n && !place_room(job, count, room)))
        return;
    desc->nranks = count;
    if (job->processes.map.n)
        place_rows(job, desc);
    else
        place_ranks(job, desc, room);
    place_stdin(pl);
    if (!job->processes.count.v || job->hosts.refused)
        return; /* the real ranks and hosts decide whether CPUs and devices suffice */
    plan_devices(pl);
    if (job->processes.bind.v == JOB_BIND_AUTO)
        place_bind_auto(pl);
    else if (job->processes.bind.v == JOB_BIND_GPU)
        place_bind_near_devices(pl);
    else if (job->processes.bind.v != JOB_BIND_NONE)
        place_bind(pl);
    place_cpus_of_rows(job, desc);
}
