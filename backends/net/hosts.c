/* SPDX-License-Identifier: Apache-2.0
 *
 * See hosts.h.
 */
#include "hosts.h"

#include <stdlib.h>

/* Numbers the hosts in the order of their lowest ranks. */
static void net_hosts_number(struct net_hosts *hosts, const struct collrun_group_desc *desc,
                             bool separate)
{
    for (uint32_t r = 0; r < hosts->nranks; r++) {
        uint32_t same = r;
        for (uint32_t k = 0; k < r && same == r && !separate; k++)
            if (desc->host_of[k] == desc->host_of[r])
                same = k;
        hosts->of[r] = same < r ? hosts->of[same] : hosts->n++;
    }
}

bool net_hosts_init(struct net_hosts *hosts, const struct collrun_group_desc *desc, bool separate)
{
    const uint32_t n = desc->nranks;
    *hosts = (struct net_hosts){.nranks = n};
    hosts->of = calloc(n, sizeof *hosts->of);
    hosts->first = calloc((size_t)n + 1, sizeof *hosts->first);
    hosts->members = calloc(n, sizeof *hosts->members);
    hosts->place = calloc(n, sizeof *hosts->place);
    if (!hosts->of || !hosts->first || !hosts->members || !hosts->place) {
        net_hosts_fini(hosts);
        return false;
    }
    net_hosts_number(hosts, desc, separate);
    for (uint32_t r = 0; r < n; r++)
        hosts->first[hosts->of[r] + 1]++;
    for (uint32_t h = 0; h < hosts->n; h++)
        hosts->first[h + 1] += hosts->first[h];
    for (uint32_t r = 0; r < n; r++) {
        uint32_t place = hosts->first[hosts->of[r]];
        for (uint32_t k = 0; k < r; k++)
            place += hosts->of[k] == hosts->of[r];
        hosts->place[r] = place;
        hosts->members[place] = r;
    }
    return true;
}

void net_hosts_fini(struct net_hosts *hosts)
{
    free(hosts->of);
    free(hosts->first);
    free(hosts->members);
    free(hosts->place);
    *hosts = (struct net_hosts){0};
}
