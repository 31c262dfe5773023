/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank that runs a command, or under one: the child between fork and exec becomes the program.
 *
 *  - The working directory is `workdir` of the workload, of the host, or the folder of the job
 *    file.
 *  - The program is a file, or is looked up in PATH as the rank has it.
 *  - COLLRUN_CONTROL_FD names the control socket, for collrun_init. Programs find libcollrun by
 *    LD_LIBRARY_PATH and Python's package collrun by PYTHONPATH, after all other folders.
 *  - `ps e` shows its rank: COLLRUN_RANK in its environment. Its arguments are its own.
 */
#ifndef RUNNER_AGENT_COMMAND_H
#define RUNNER_AGENT_COMMAND_H

#include "agent/rank.h"

/* Changes to the working directory of a command. */
int command_enter_folder(const struct rank_proc *p, struct diag *d);
/* Returns only if the program cannot be executed. The environment of the rank has been set. */
int command_exec(const struct rank_proc *p, const char *engine, struct diag *d);

/* --wrap: whether the process of the rank runs under a command. */
bool command_is_wrapped(const struct rank_proc *p);
/* The same for the engine of a wrapped rank. */
int command_exec_engine(const struct rank_proc *p, const char *engine, struct diag *d);

/* The environment of a rank, set between fork and exec. Later ones replace earlier ones:
 *  - the environment of the agent, and env.pass and env.secrets of the job;
 *  - the rank's place in the job: COLLRUN_RANK and its like, and the names of torchrun, RANK,
 *    WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT;
 *  - env.unset, env.set, and `env` of the rank's command;
 *  - the variables that list its devices. */

int environment_apply(const struct rank_proc *p, struct diag *d);
/* Appends a folder to a variable such as LD_LIBRARY_PATH, unless it does not exist. */
void environment_append_folder(const char *variable, const char *folder);

#endif
