/* SPDX-License-Identifier: Apache-2.0
 *
 * The processors of a host that a job may use: those in the affinity mask, sorted by NUMA node,
 * then core. The plan takes this as an input; topology_read makes it for this machine from /sys.
 */
#ifndef PLAN_TOPOLOGY_H
#define PLAN_TOPOLOGY_H

#include "base/arena.h"
#include "base/diag.h"

struct topology_cpu {
    uint32_t cpu;  /* as the kernel numbers them */
    uint32_t core; /* cpus of one core have the same number; the first is 0, the next 1, ... */
    uint32_t numa; /* likewise */
};

struct topology {
    struct topology_cpu *cpus;
    uint32_t ncpus, ncores, nnumas;
};

/* `sys` is "/sys", or a copy of it in tests; `mask` names the usable cpus as a list such as
 * "0-3,8", NULL = this process's. */
int topology_read(struct topology *topology, const char *sys, const char *mask, struct arena *arena,
                  struct diag *d);

/* "0-3,8": the usable cpus that stand in one of `n` such lists; "" = none does. */
const char *topology_among(const struct topology *topology, const char *const *lists, uint32_t n,
                           struct arena *arena);

#endif
