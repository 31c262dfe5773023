/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts the process behind a transport: an agent, a command that reaches a host, a proxy command.
 */
#ifndef RUNNER_CONNECT_SPAWN_H
#define RUNNER_CONNECT_SPAWN_H

#include <sys/types.h>

/* `file` is a path, or a name in PATH. `fds`: its standard input, output and error; -1: that of
 * this process. It runs in a new session, so that Ctrl-C reaches only collrun, with no signal
 * blocked or ignored. Returns 0 or an errno, also that of a failed exec. */
int spawn_process(const char *file, char *const *argv, const int fds[3], pid_t *pid);

/* Allows this process as many open files as its hard limit does: a host by SSH takes four, one by a
 * command three. Children have the limit from before. To be called once, without other threads. */
void spawn_raise_file_limit(void);

#endif
