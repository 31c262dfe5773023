/* SPDX-License-Identifier: Apache-2.0
 *
 * `hosts: slurm | pbs | lsf | sge | flux`: the nodes of the allocation that collrun runs in, from
 * the environment and files of its resource manager (Flux: from `flux getattr hostlist`).
 *
 *   manager  nodes and slots                          start of the agent on another node
 *   slurm    SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE srun
 *   pbs      the file PBS_NODEFILE, a line per slot   ssh: pbs_tmrsh carries no standard input or
 * output lsf      LSB_MCPU_HOSTS, or LSB_DJOB_HOSTFILE     blaunch sge      the file PE_HOSTFILE
 * qrsh -inherit flux     the hostlist of the instance             flux exec
 *
 * The node that collrun runs on is reached without any of them, but for Slurm's.
 */
#ifndef RUNNER_SPEC_ALLOCATION_H
#define RUNNER_SPEC_ALLOCATION_H

#include "spec/host_table.h"

/* Appends the nodes of the allocation hosts->all. */
int allocation_read(struct host_table *table, struct diag *d);

#endif
