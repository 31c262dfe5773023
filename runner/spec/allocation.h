/* SPDX-License-Identifier: Apache-2.0
 *
 * `hosts: slurm | pbs | lsf | sge | flux`: the nodes of the allocation that collrun runs in, from
 * the environment and files of its resource manager (Flux: from `flux getattr hostlist`).
 *
 * - slurm: SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE; the other nodes are reached by srun
 * - pbs: the file PBS_NODEFILE, a line per slot; by ssh, as pbs_tmrsh carries no stdin and stdout
 * - lsf: LSB_MCPU_HOSTS, or the file LSB_DJOB_HOSTFILE; by blaunch
 * - sge: the file PE_HOSTFILE; by qrsh -inherit
 * - flux: the hostlist of the instance, in the order of its brokers; by flux exec, as lines of text
 *
 * The node that collrun runs on is reached without any of them, but for Slurm's.
 */
#ifndef RUNNER_SPEC_ALLOCATION_H
#define RUNNER_SPEC_ALLOCATION_H

#include "base/arena.h"
#include "base/diag.h"
#include "spec/host_table.h"

/* Appends the nodes of the allocation hosts->all. */
int allocation_read(struct host_table *table, struct diag *d);

/* ---- the output of a command ---- */

/* For what a resource manager tells only by a command: runs `argv` (ends with NULL) with /dev/null
 * as its stdin and stderr; `out` is its stdout, NUL-terminated, in the arena. An error: it cannot
 * be started, fails, prints 1 MiB, or takes longer than 10 seconds, and is killed then. */
int command_output(char *const *argv, struct arena *arena, char **out, struct diag *d);

#endif
