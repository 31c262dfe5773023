/* SPDX-License-Identifier: Apache-2.0
 *
 * struct net_hosts: which members of a group share a host. Hosts are numbered in the order of
 * their lowest ranks, and the members of a host are ordered by rank. Any placement works: block,
 * cyclic, uneven. With `local: tcp` each rank counts as a host.
 */
#ifndef NET_HOSTS_H
#define NET_HOSTS_H

#include <collrun/backend.h>
#include <stdbool.h>
#include <stdint.h>

struct net_hosts {
    uint32_t n, nranks;
    uint32_t *of;      /* nranks: the host of a rank */
    uint32_t *first;   /* n + 1: where the members of a host begin in `members` */
    uint32_t *members; /* nranks: the ranks, host by host */
    uint32_t *place;   /* nranks: the index of a rank in `members` */
};

/* `separate`: each rank counts as a host. False: out of memory. */
bool net_hosts_init(struct net_hosts *hosts, const struct collrun_group_desc *desc, bool separate);
void net_hosts_fini(struct net_hosts *hosts);

static inline uint32_t net_hosts_count(const struct net_hosts *hosts, uint32_t host)
{
    return hosts->first[host + 1] - hosts->first[host];
}

/* The i-th rank of a host. */
static inline uint32_t net_hosts_rank(const struct net_hosts *hosts, uint32_t host, uint32_t i)
{
    return hosts->members[hosts->first[host] + i];
}

/* The index of a rank among those of its host: its rank in the local group. */
static inline uint32_t net_hosts_local_rank(const struct net_hosts *hosts, uint32_t rank)
{
    return hosts->place[rank] - hosts->first[hosts->of[rank]];
}

#endif
