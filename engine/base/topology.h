/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPUs of a host that a job may use, those in the affinity mask, and the shares of ranks in
 * them. The plan uses that of this machine, and each agent that of its host.
 */
#ifndef ENGINE_BASE_TOPOLOGY_H
#define ENGINE_BASE_TOPOLOGY_H

#include "base/arena.h"
#include "base/diag.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- sets of CPUs ----
 *
 * struct cpus: a set of CPUs for sched_getaffinity and sched_setaffinity, on hosts with more CPUs
 * than a cpu_set_t has, where the kernel refuses the smaller set.
 */

enum { CPUS_MAX = 8192 };

struct cpus {
    cpu_set_t sets[CPUS_MAX / CPU_SETSIZE];
};

/* The CPUs that process `pid` may use; 0: this one. Returns 0, or -1 with errno. */
int cpus_read(struct cpus *c, pid_t pid);
void cpus_add(struct cpus *c, uint32_t cpu);
/* Adds those of a list such as "0-3,8". */
void cpus_add_list(struct cpus *c, const char *list);
/* Keeps those that are in `other`, too. */
void cpus_keep(struct cpus *c, const struct cpus *other);
bool cpus_has(const struct cpus *c, uint32_t cpu);
/* How many CPUs process `pid` may use; 1 if that is not known. */
uint32_t cpus_usable(pid_t pid);

/* ---- the topology ---- */

/* Parts of a host, from the smallest. */
enum topology_level {
    TOPOLOGY_CORE,
    TOPOLOGY_L3, /* the cores that share a level 3 cache; without one, those of a NUMA node */
    TOPOLOGY_NUMA,
    TOPOLOGY_SOCKET,
    TOPOLOGY_LEVELS
};

struct topology_cpu {
    uint32_t cpu;                   /* the kernel's number */
    uint32_t part[TOPOLOGY_LEVELS]; /* the first part is 0, the next 1, ... */
};

struct topology {
    struct topology_cpu *cpus; /* sorted by socket, NUMA node, cache and core */
    uint32_t ncpus;
    uint32_t nparts[TOPOLOGY_LEVELS];
};

/* "core", "l3", "numa", "socket"; parse: false for another word. */
const char *topology_level_name(enum topology_level level);
bool topology_parse_level(const char *name, enum topology_level *level);

/* `sys` is "/sys", or a copy of it in tests; `mask` names the usable cpus as a list such as
 * "0-3,8", NULL = this process's. */
int topology_read(struct topology *topology, const char *sys, const char *mask, struct arena *arena,
                  struct diag *d);

/* "0-3,8": the usable CPUs that are in one of `n` lists; "" if none is. */
const char *topology_among(const struct topology *topology, const char *const *lists, uint32_t n,
                           struct arena *arena);

/* "0-3,8": the CPUs of rank `index` of `n`: its `width` cores, or its cache, node or socket, over
 * which the ranks are spread evenly. */
const char *topology_share(const struct topology *topology, enum topology_level level,
                           uint32_t width, uint32_t n, uint32_t index, struct arena *arena);

#endif
