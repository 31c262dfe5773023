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
#include "base/diag.h"

void examine_host(struct agent *a, const struct wire_frame *f);
void examine_probe(struct agent *a, const struct wire_frame *f);

/* Whether this host can execute the program of a command, for `collrun doctor`: it exists, is
 * executable, and its interpreter exists: that of a script's first line, also behind /usr/bin/env,
 * or the dynamic loader of an ELF file. Nothing is executed. */

/* `program`: absolute, or a name that is looked up in `path` ("": PATH of this process). */
int program_check(const char *program, const char *path, struct diag *d);

#endif
