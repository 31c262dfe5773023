/* SPDX-License-Identifier: Apache-2.0
 *
 * The cores of this host, for `bind: auto`: each rank of the job gets an equal share of them, if
 * there is one for each and no other job of collrun uses them.
 *
 * - An agent claims the cores that it may use, by listening on an abstract Unix socket for each,
 *   which the kernel releases when the agent ends. Jobs in different network namespaces do not see
 *   each other's claims.
 * - A name that another program than an agent holds claims nothing: the next name of the core is
 *   used.
 * - Cores that another agent has claimed are no error: the ranks are not bound then.
 */
#ifndef RUNNER_AGENT_CORES_H
#define RUNNER_AGENT_CORES_H

#include "base/arena.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

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
