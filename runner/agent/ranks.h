/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames and signals to the ranks of this host. `rank` is a world rank, or WIRE_HOST for all.
 */
#ifndef RUNNER_AGENT_RANKS_H
#define RUNNER_AGENT_RANKS_H

#include "agent/agent.h"

struct rank_proc *ranks_find(struct agent *a, uint32_t rank); /* NULL: not on this host */
void ranks_send(struct agent *a, uint32_t rank, uint16_t type, const struct buf *payload);
/* A MULTICAST from the runner. */
void ranks_send_multicast(struct agent *a, const struct wire_frame *f);
/* SIGTERM to all processes of the commands that are no members of any group: they do not receive
 * ABORT. A rank gets it once. */
void ranks_end_commands(struct agent *a);
/* ABORT to all; `culprit` is a rank or WIRE_HOST. */
void ranks_abort(struct agent *a, int status, uint32_t culprit, const char *text);
/* To all processes of the rank. */
void ranks_signal(struct agent *a, uint32_t rank, int sig);
/* To one process of each rank: the member of its groups, else the first below its command that
 * handles the signal, else that of the command. */
void ranks_warn(struct agent *a, int sig);
/* Before ranks are killed: the shared memory that they cannot remove then (pmi.h). */
void ranks_note_memory(struct agent *a);
/* Whether processes are left that were sent SIGTERM, and may go on until timeouts.grace has
 * passed. */
bool ranks_await_terminated(struct agent *a);

/* The processes of the ranks of this host, as /proc shows them: a rank may have started others, in
 * the same process group, in other groups, or in other sessions.
 *
 *  - A process belongs to the rank whose process group or session it is in, else to the rank of its
 *    parent. A process whose parent has ended is a child of the agent, and belongs to the rank that
 *    its environment names.
 *  - What another collrun below a rank has started belongs to no rank: that collrun stops it.
 *  - Processes that start during the look may be missing. */

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
