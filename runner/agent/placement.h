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
#include "base/topology.h"

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

/* ---- the memory of a rank ---- */

/* Memory follows the CPUs: a rank whose CPUs belong to one NUMA node takes its memory from that
 * node while it has some, and then from others (MPOL_PREFERRED). The policy is the process's, so it
 * holds for its heap, its threads and children, and for the pages of shared segments that it
 * touches first.
 *
 * A rank whose CPUs are on several nodes has the kernel's default: the node of the CPU that touches
 * a page. So has a rank where the kernel does not allow another policy, as in some containers. A
 * policy that collrun was started with (numactl) stays. */

/* The node of all these CPUs, from `sys` ("/sys", or a copy in tests); -1: several, or not known.
 */
int memory_policy_node(const char *sys, const struct cpus *cpus);
/* True if memory_policy_set can change the policy of this process, which is the default one. */
bool memory_policy_is_open(void);
/* Prefers memory of the node, from now on, in this process and the program that it becomes. */
void memory_policy_set(int node);

#endif
