/* SPDX-License-Identifier: Apache-2.0
 *
 * The devices of this host's ranks. The plan gives indices into the pool of a host, and where it
 * does not know the host, only the host itself can name them. Of each kind of memory that the job
 * has devices of, a rank sees its own ones alone, by id; a rank without one sees none. Devices are
 * listed only for jobs that use them. And with `bind: auto`, the cores of each rank (cores.h).
 */
#ifndef RUNNER_AGENT_PLACEMENT_H
#define RUNNER_AGENT_PLACEMENT_H

#include "base/devices.h"

struct agent;
struct rank_proc;

/* Claims the cores of this host. Fills in `masks`, `devices` and `near` of the ranks; fails if the
 * host lacks one of the devices.
 */
int placement_make(struct agent *a, const char *engine, struct diag *d);
/* What a rank is bound to, of which it gets the CPUs that this process may use; "" = any. */
const char *placement_cpus(const struct rank_proc *p);
/* The NUMA node from which it takes its memory; -1: of the CPU that touches a page. */
int placement_memory_node(const struct rank_proc *p);
/* The devices of the kind that `backend` declares which `mask`, a variable of the agent ("" =
 * none), leaves. A listing that fails is a pool without devices and with the reason. */
int placement_pool(struct agent *a, const char *engine, const char *backend, const char *mask,
                   struct devices *pool, struct diag *d);

#endif
