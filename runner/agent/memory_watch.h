/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the kernel killed a process of this host for lack of memory. A SIGKILL does not show
 * its sender, but the cgroup of the agent, which its ranks share, counts the processes that the
 * kernel killed: `oom_kill` in memory.events (cgroup 2) or memory.oom_control (cgroup 1). Where
 * neither file can be read, no kill is attributed to the kernel.
 */
#ifndef RUNNER_AGENT_MEMORY_WATCH_H
#define RUNNER_AGENT_MEMORY_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct memory_watch {
    char dir[4096];             /* of the agent's cgroup; "": no such file can be read */
    const char *events, *limit; /* files in it */
    uint64_t kills;             /* counted so far */
};

/* `proc_cgroup` is /proc/self/cgroup and `root` /sys/fs/cgroup, except in tests. */
void memory_watch_init(struct memory_watch *w, const char *proc_cgroup, const char *root);
/* True if the kernel has killed one more process than this function has counted. `text`: the limit
 * that was reached. */
bool memory_watch_claim_kill(struct memory_watch *w, char *text, size_t size);

#endif
