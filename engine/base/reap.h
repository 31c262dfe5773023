/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a process tree, for programs that are child subreapers (agent and runner).
 */
#ifndef ENGINE_BASE_REAP_H
#define ENGINE_BASE_REAP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The children that this process has now, which it got from a program that it replaced (`helper &
 * exec collrun job.yaml`), are not reap_descendants()'s. At most 64; once, at the start. */
void reap_spare_children(void);

/* Kills and reaps all other descendants of this process. False if some are alive at the deadline
 * (monotonic ns). */
bool reap_descendants(uint64_t deadline_ns);

/* The state of a process as in /proc (R, S, D, T, ...), and its parent; 0 and 0 if it has ended. */
char reap_state(pid_t pid, pid_t *parent);

/* For a child that has closed its end of a stream, which the kernel does shortly before the child
 * can be reaped: reaps it if it exits within a short time. True if it was reaped. */
bool reap_closed(pid_t pid, int *status);

#endif
