/* SPDX-License-Identifier: Apache-2.0
 *
 * `hosts: slurm`: the nodes of the allocation that collrun stands in, as Slurm tells them in the
 * environment.
 */
#ifndef SPEC_SLURM_H
#define SPEC_SLURM_H

#include "spec/job.h"

/* `nodelist` as in SLURM_JOB_NODELIST, "n[1-3],m7"; `tasks` as in SLURM_TASKS_PER_NODE, "2(x3),1",
 * or NULL: slots are not known. Fills in hosts->nodes. */
int slurm_hosts(struct job_hosts *hosts, const char *nodelist, const char *tasks,
                struct arena *arena, struct diag *d);

#endif
