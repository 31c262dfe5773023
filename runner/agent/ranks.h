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

#endif
