/* SPDX-License-Identifier: Apache-2.0
 *
 * The processes of the ranks of this host, as /proc shows them: a rank may have started others, in
 * the same process group, in other groups, or in other sessions.
 *
 *  - A process belongs to the rank whose process group or session it is in, else to the rank of its
 *    parent. A process whose parent has ended is a child of the agent, and belongs to the rank that
 *    its environment names.
 *  - What another collrun below a rank has started belongs to no rank: that collrun stops it.
 *  - Processes that start during the look may be missing.
 */
#ifndef RUNNER_AGENT_TREE_H
#define RUNNER_AGENT_TREE_H

#include "agent/agent.h"

struct tree_process {
    pid_t pid, parent, group, session;
    bool other;             /* guard or agent of a collrun below a rank */
    struct rank_proc *rank; /* NULL: of no rank */
};

struct tree {
    struct tree_process *items; /* ascending by pid; zombies are left out */
    uint32_t n;
};

/* Reads all processes of this host. On failure the tree is empty. */
void tree_read(struct tree *t, const struct agent *a);
void tree_fini(struct tree *t);
/* The process nearest to `pid`, or `pid` itself, that has a handler for the signal, or blocks it to
 * wait for it; 0: none of the descendants has. */
pid_t tree_find_handler(const struct tree *t, pid_t pid, int sig);

/* Reads /proc/PID/NAME, cut to size - 1 bytes, and ends it with a NUL. Returns its length, 0 if it
 * cannot be read. */
size_t tree_read_file(pid_t pid, const char *name, char *text, size_t size);

#endif
