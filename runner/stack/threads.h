/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of another process, from /proc.
 */
#ifndef RUNNER_STACK_THREADS_H
#define RUNNER_STACK_THREADS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { THREADS_MAX = 256, THREADS_NAME_LEN = 32 };

/* Returns how many; the first is the main thread. 0: the process has ended. */
int threads_list(pid_t pid, pid_t tids[THREADS_MAX]);
/* "?" without a name. */
void threads_name(pid_t pid, pid_t tid, char name[THREADS_NAME_LEN]);
/* True if the thread is one of collrun or of a backend ("collrun/..."). */
bool threads_is_engine(const char *name);

#endif
