/* SPDX-License-Identifier: Apache-2.0 */
#include "run/replace.h"

#include "base/rank_list.h"

#include <string.h>

struct replace {
    struct job *job;
    struct desc *desc;
    struct arena *arena;
    FILE *out;
};

static const char *replace_ranks_text(struct replace *r, uint32_t host, char *out, size_t size)
{
    uint32_t n = 0, *list = arena_calloc(r->arena, r->desc->nranks, sizeof *list);
    for (uint32_t i = 0; i < r->desc->nranks; i++) {
        if (r->desc->ranks[i].host == host)
            list[n++] = i;
    }
    rank_list_format(out, size, list, n);
    return n == 1 ? "rank" : "ranks";
}

static void replace_name_host(struct replace *r, uint32_t host)
{
    const struct job_host *node = &r->job->hosts.nodes[host];
    struct desc_host *to = &r->desc->hosts[host];
    to->name = node->name.v;
    to->workdir = node->workdir.v ? node->workdir.v : "";
    to->workdir_loc = node->workdir.loc;
}

/* The host that it replaces becomes the last spare if it is `kept`. */
static void replace_by_spare(struct replace *r, uint32_t host, bool kept)
{
    struct job_hosts *hosts = &r->job->hosts;
    const struct job_host lost = hosts->nodes[host];
    char text[128];
    const char *ranks = replace_ranks_text(r, host, text, sizeof text);
    hosts->nodes[host] = hosts->spares[0];
    hosts->nspares--;
    memmove(hosts->spares, hosts->spares + 1, hosts->nspares * sizeof *hosts->spares);
    if (kept)
        hosts->spares[hosts->nspares++] = lost;
    replace_name_host(r, host);
    fprintf(r->out, "collrun: host %s takes the place of %s, with %s %s\n",
            hosts->nodes[host].name.v, lost.name.v, ranks, text);
}

/* The host with the fewest ranks that has room for `n` more; nhosts: none has. */
static uint32_t replace_find_room(const struct replace *r, uint32_t lost, uint32_t n)
{
    const struct desc *desc = r->desc;
    uint32_t best = desc->nhosts;
    for (uint32_t h = 0; h < desc->nhosts; h++) {
        const int64_t slots = r->job->hosts.nodes[h].slots.v;
        if (h == lost || (slots && desc->hosts[h].nranks + (int64_t)n > slots))
            continue;
        if (best == desc->nhosts || desc->hosts[h].nranks < desc->hosts[best].nranks)
            best = h;
    }
    return best;
}

static bool replace_has_devices(const struct desc *desc, uint32_t host)
{
    for (uint32_t i = 0; i < desc->nranks; i++) {
        if (desc->ranks[i].host == host && desc->ranks[i].ndevices)
            return true;
    }
    return false;
}

/* Whether the other hosts have slots for all ranks of this one. */
static bool replace_has_room(const struct replace *r, uint32_t lost)
{
    uint64_t room = 0;
    for (uint32_t h = 0; h < r->desc->nhosts; h++) {
        const int64_t slots = r->job->hosts.nodes[h].slots.v;
        if (h != lost)
            room += slots ? (uint64_t)slots - r->desc->hosts[h].nranks : r->desc->nranks;
    }
    return room >= r->desc->hosts[lost].nranks;
}

static void replace_number_local_ranks(struct desc *desc)
{
    for (uint32_t h = 0; h < desc->nhosts; h++)
        desc->hosts[h].nranks = 0;
    for (uint32_t i = 0; i < desc->nranks; i++)
        desc->ranks[i].local_rank = desc->hosts[desc->ranks[i].host].nranks++;
}

/* Removes a host without ranks. */
static void replace_remove(struct replace *r, uint32_t host)
{
    struct job_hosts *hosts = &r->job->hosts;
    struct desc *desc = r->desc;
    memmove(hosts->nodes + host, hosts->nodes + host + 1,
            (hosts->n - host - 1) * sizeof *hosts->nodes);
    hosts->n--;
    memmove(desc->hosts + host, desc->hosts + host + 1,
            (desc->nhosts - host - 1) * sizeof *desc->hosts);
    desc->nhosts--;
    for (uint32_t i = 0; i < desc->nranks; i++)
        desc->ranks[i].host -= desc->ranks[i].host > host;
    replace_number_local_ranks(desc);
}

/* Ranks that share a host with one that moves are not bound: their shares were computed without it.
 */
static void replace_unbind(struct desc *desc, uint32_t host)
{
    for (uint32_t i = 0; i < desc->nranks; i++) {
        if (desc->ranks[i].host == host)
            desc->ranks[i].cpus = "";
    }
}

/* One host takes all, if it has room: groups whose members shared the lost host share it. */
static void replace_by_others(struct replace *r, uint32_t lost)
{
    struct desc *desc = r->desc;
    const uint32_t one = replace_find_room(r, lost, desc->hosts[lost].nranks);
    char text[128];
    const char *name = desc->hosts[lost].name;
    const char *ranks = replace_ranks_text(r, lost, text, sizeof text);
    for (uint32_t i = 0; i < desc->nranks; i++) {
        if (desc->ranks[i].host != lost)
            continue;
        const uint32_t to = one < desc->nhosts ? one : replace_find_room(r, lost, 1);
        desc->ranks[i].host = to;
        desc->hosts[to].nranks++;
        replace_unbind(desc, to);
    }
    replace_remove(r, lost);
    fprintf(r->out, "collrun: host %s is left out; the other hosts run %s %s\n", name, ranks, text);
}

/* Arrays that may change, in place of those that the caller shares with others. */
static void replace_copy(struct replace *r)
{
    struct job_hosts *hosts = &r->job->hosts;
    struct desc *desc = r->desc;
    hosts->nodes = arena_memdup(r->arena, hosts->nodes, hosts->n * sizeof *hosts->nodes);
    hosts->spares = arena_memdup(r->arena, hosts->spares, hosts->nspares * sizeof *hosts->spares);
    desc->hosts = arena_memdup(r->arena, desc->hosts, desc->nhosts * sizeof *desc->hosts);
    desc->ranks = arena_memdup(r->arena, desc->ranks, desc->nranks * sizeof *desc->ranks);
}

void replace_lost_hosts(struct job *job, struct desc *desc, const enum replace_loss *losses,
                        struct arena *arena, FILE *out)
{
    struct replace r = {job, desc, arena, out};
    uint32_t usable = job->hosts.nspares; /* without those that are lost with this attempt */
    replace_copy(&r);
    for (uint32_t h = desc->nhosts; h-- > 0;) { /* removal moves those behind it */
        if (!losses[h] || job->hosts.nodes[h].transport.kind.v == JOB_TRANSPORT_LOCAL)
            continue;
        if (usable) {
            replace_by_spare(&r, h, losses[h] == REPLACE_LOST);
            usable--;
        } else if (desc->nhosts > 1 && !replace_has_devices(desc, h) && replace_has_room(&r, h))
            replace_by_others(&r, h);
    }
}
