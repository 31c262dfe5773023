/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun-guard: the parent of collrun-agent, and the process that a transport starts. It waits for
 * the end of the agent and leaves no process behind, also if the agent was killed.
 *
 *  - The agent ends: the guard kills and reaps the descendants that are left, removes the files
 *    that they have left in shared memory (struct guard_files), and ends as the agent did, with the
 *    same exit code or by the same signal.
 *  - A signal asks the guard to end: it is passed on to the agent.
 *  - The guard is killed: SIGTERM ends the agent, which says so, stops its ranks and reaps its
 *    descendants.
 *
 * Only if both are killed at the same moment can children of ranks survive; ranks cannot. When
 * `flux exec` is killed, its broker kills the process group of the guard, which there does not
 * contain the agent.
 */
#ifndef RUNNER_AGENT_GUARD_H
#define RUNNER_AGENT_GUARD_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

/* Files of libraries of the ranks, which stay when these are killed. In memory that guard and agent
 * share: the agent adds, and either removes what is left once all ranks have ended. */
enum { GUARD_FILES = 1024 }; /* further ones stay */

struct guard_file {
    char path[64];
    dev_t dev;
    ino_t ino;
};

struct guard_files {
    _Atomic uint32_t n; /* released with the file */
    struct guard_file items[GUARD_FILES];
};

/* A regular file of this user; nothing happens if it is one that is known, or if `files` is NULL.
 */
void guard_files_add(struct guard_files *files, const char *path);
void guard_files_remove(struct guard_files *files);

/* Runs `agent` in a child process, and returns its exit code there and here. `files`: NULL if there
 * is no memory for them. */
int guard_run(int (*agent)(struct guard_files *files));

#endif
