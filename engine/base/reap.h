/* SPDX-License-Identifier: Apache-2.0
 *
 * Nothing stays: the end of a process tree, for programs that are child subreapers (agent and
 * runner).
 */
#ifndef BASE_REAP_H
#define BASE_REAP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Kills every descendant of this process and reaps it; false if some survive the deadline
 * (monotonic ns). Returns at once when there is none. */
bool reap_descendants(uint64_t deadline_ns);

/* The state of a process as /proc tells it (R, S, D, T, ...), and its parent; 0 and 0 if it is
 * gone. */
char reap_look(pid_t pid, pid_t *parent);

/* Whether a child whose end of a stream has just been closed has ended as well, or does so within
 * the moment that a process takes from the one to the other. Reaps it. */
bool reap_closed(pid_t pid, int *status);

#endif
