/* SPDX-License-Identifier: Apache-2.0
 *
 * `collrun plan --hosts`: asks every host where the ranks of the job would run now. The agents
 * answer what they would do in a run: the CPUs of each rank by the topology of its host and by what
 * other jobs use there, the NUMA node of its memory, and its devices. No rank is started.
 */
#ifndef RUNNER_CONNECT_PLACED_H
#define RUNNER_CONNECT_PLACED_H

#include "base/desc.h"
#include "report/report.h"
#include "spec/job.h"

/* Puts the CPUs, the memory and the ids of the devices of each rank into `desc`, and prints to
 * stderr why the ranks of a host are not bound. Returns the exit code: EXIT_HOST if a host cannot
 * be reached, EXIT_JOB if it cannot place its ranks. */
int placed_ask(const struct job *job, struct desc *desc, struct arena *arena,
               const struct report *report, bool verbose);

#endif
