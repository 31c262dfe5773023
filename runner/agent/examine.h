/* SPDX-License-Identifier: Apache-2.0
 *
 * EXAMINE and PROBE, for `collrun doctor`: what this host offers a job, without starting a rank.
 *
 *  - Each plugin is loaded by its own `collrun-engine --describe` process, under a deadline.
 *  - The agent listens at the address of network.interface; the agents of the other hosts connect.
 */
#ifndef RUNNER_AGENT_EXAMINE_H
#define RUNNER_AGENT_EXAMINE_H

#include "agent/agent.h"

void examine_host(struct agent *a, const struct wire_frame *f);
void examine_probe(struct agent *a, const struct wire_frame *f);

#endif
