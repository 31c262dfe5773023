/* SPDX-License-Identifier: Apache-2.0
 *
 * The environment of a rank, set between fork and exec. Later ones replace earlier ones:
 *  - the environment of the agent, and env.pass and env.secrets of the job;
 *  - the rank's place in the job: COLLRUN_RANK and its like, and the names of torchrun, RANK,
 *    WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT;
 *  - env.unset, env.set, and `env` of the rank's command;
 *  - the variables that list its devices.
 */
#ifndef RUNNER_AGENT_ENVIRONMENT_H
#define RUNNER_AGENT_ENVIRONMENT_H

#include "agent/rank.h"

int environment_apply(const struct rank_proc *p, struct diag *d);
/* Appends a folder to a variable such as LD_LIBRARY_PATH, unless it does not exist. */
void environment_append_folder(const char *variable, const char *folder);

#endif
