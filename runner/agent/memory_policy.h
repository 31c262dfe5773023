/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory follows the CPUs: a rank whose CPUs belong to one NUMA node takes its memory from that
 * node while it has some, and then from others (MPOL_PREFERRED). The policy is the process's, so it
 * holds for its heap, its threads and children, and for the pages of shared segments that it
 * touches first.
 *
 * A rank whose CPUs are on several nodes has the kernel's default: the node of the CPU that touches
 * a page. So has a rank where the kernel does not allow another policy, as in some containers. A
 * policy that collrun was started with (numactl) stays.
 */
#ifndef RUNNER_AGENT_MEMORY_POLICY_H
#define RUNNER_AGENT_MEMORY_POLICY_H

#include "base/cpus.h"

/* The node of all these CPUs, from `sys` ("/sys", or a copy in tests); -1: several, or not known.
 */
int memory_policy_node(const char *sys, const struct cpus *cpus);
/* True if memory_policy_set can change the policy of this process, which is the default one. */
bool memory_policy_is_open(void);
/* Prefers memory of the node, from now on, in this process and the program that it becomes. */
void memory_policy_set(int node);

#endif
