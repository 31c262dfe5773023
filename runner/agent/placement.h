/* SPDX-License-Identifier: Apache-2.0
 *
 * The devices of this host's ranks. The plan gives indices into the pool of a host, and where it
 * does not know the host, only the host itself can name them. Of each kind of memory that the job
 * has devices of, a rank sees its own ones alone, by id; a rank without one sees none. Devices are
 * listed only for jobs that use them. And with `bind: auto`, the cores of each rank.
 */
#ifndef RUNNER_AGENT_PLACEMENT_H
#define RUNNER_AGENT_PLACEMENT_H

#include "base/arena.h"
#include "base/devices.h"
#include "base/topology.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

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

/* The cores of this host, for `bind: auto`: each rank of the job gets an equal share of them, if
 * there is one for each and no other job of collrun uses them.
 *
 * - An agent claims the cores that it may use, by listening on an abstract Unix socket for each,
 *   which the kernel releases when the agent ends. Jobs in different network namespaces do not see
 *   each other's claims.
 * - A name that another program than an agent holds claims nothing: the next name of the core is
 *   used.
 * - Cores that another agent has claimed are no error: the ranks are not bound then. */

#define CORES_MAX 512u /* the cores of a larger host are not claimed */

struct cores {
    uint32_t n;
    bool claimed; /* all of them */
    bool large;   /* more than CORES_MAX cores, or CPUs with higher numbers than a cpu_set_t has */
    struct {
        cpu_set_t cpus; /* its hardware threads */
        int claim;      /* a socket; -1: none */
    } items[CORES_MAX];
};

/* Finds the cores that this process may use, and claims them; `name` begins those of the sockets.
 */
void cores_open(struct cores *c, const char *name);
void cores_close(struct cores *c);
/* From time to time: forgets the agents that have asked who holds a name. */
void cores_answer(struct cores *c);

/* The CPUs of rank `index` of `n`, such as "0,1"; "" = not bound: one rank alone, more ranks than
 * cores, or a core that another agent has claimed. NULL: out of memory. */
const char *cores_share(const struct cores *c, uint32_t n, uint32_t index, struct arena *arena);
/* Why it is "" for all of `n` ranks; "" if it is not. */
const char *cores_why_not(const struct cores *c, uint32_t n, struct arena *arena);

#endif
