/* SPDX-License-Identifier: Apache-2.0
 *
 * struct cpus: a set of CPUs for sched_getaffinity and sched_setaffinity, on hosts with more CPUs
 * than a cpu_set_t has, where the kernel refuses the smaller set.
 */
#ifndef ENGINE_BASE_CPUS_H
#define ENGINE_BASE_CPUS_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

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

#endif
