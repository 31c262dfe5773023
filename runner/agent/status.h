/* SPDX-License-Identifier: Apache-2.0
 *
 * STATUS of a rank: the state of its process, and what its record holds for each group. The record
 * is shared memory, so that the status of a rank that hangs or has exited is known, too.
 */
#ifndef RUNNER_AGENT_STATUS_H
#define RUNNER_AGENT_STATUS_H

#include "agent/agent.h"

void status_send(struct agent *a, const struct rank_proc *p);

#endif
