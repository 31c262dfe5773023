/* SPDX-License-Identifier: Apache-2.0
 *
 * USAGE of a rank: CPU time and memory of its process, and how long its latest operations took, by
 * group. Sent on request (MEASURE) only, since it reads the ring of operations.
 */
#ifndef RUNNER_AGENT_USAGE_H
#define RUNNER_AGENT_USAGE_H

#include "agent/agent.h"

void usage_send(struct agent *a, const struct rank_proc *p);

#endif
