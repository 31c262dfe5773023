/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the kernel killed a process of this host for lack of memory. A SIGKILL does not show
 * its sender, but the cgroup of the agent, which its ranks share, counts the processes that the
 * kernel killed: `oom_kill` in memory.events (cgroup 2) or memory.oom_control (cgroup 1). Where
 * neither file can be read, no kill is attributed to the kernel.
 *
 * The kernel also kills processes that are no ranks, such as the children of one. What no rank has
 * asked for within a minute was one of these, and explains no later SIGKILL.
 */
#ifndef RUNNER_AGENT_MEMORY_WATCH_H
#define RUNNER_AGENT_MEMORY_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct memory_watch {
    char dir[4096];             /* of the agent's cgroup; "": no such file can be read */
    const char *events, *limit; /* files in it */
    uint64_t kills;             /* that are explained */
    uint64_t seen, seen_ns;     /* the number at the last memory_watch_expire(), and its time */
};

/* `proc_cgroup` is /proc/self/cgroup and `root` /sys/fs/cgroup, except in tests. */
void memory_watch_init(struct memory_watch *w, const char *proc_cgroup, const char *root);
/* True if the kernel has killed one more process than this function has counted. `text`: the limit
 * that was reached. */
bool memory_watch_claim_kill(struct memory_watch *w, char *text, size_t size);
/* Forgets kills that have not been claimed for 30 to 60 s; call it every second or so. A rank with
 * much memory takes some of them to exit. */
void memory_watch_expire(struct memory_watch *w, uint64_t now_ns);

#endif
