/* SPDX-License-Identifier: Apache-2.0
 *
 * JOB: reads the description, resolves network.interface, and spawns every rank of this host.
 *
 *  - The agent of rank 0 reserves MASTER_PORT and sends MASTER. The others start their ranks when
 *    the runner has relayed it.
 *  - A rank that cannot be spawned is announced with the reason (SPAWNED with pid 0).
 *  - What concerns all ranks (no address, no workdir, too few GPUs) fails the JOB.
 */
#ifndef RUNNER_AGENT_JOB_H
#define RUNNER_AGENT_JOB_H

#include "agent/agent.h"

int job_start(struct agent *a, const struct wire_frame *f, struct diag *d);
/* PLACE: answers where the ranks of this host would run. */
void job_on_place(struct agent *a, const struct wire_frame *f);
int job_on_master(struct agent *a, const struct wire_frame *f, struct diag *d);

#endif
