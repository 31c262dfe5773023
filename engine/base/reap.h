/* SPDX-License-Identifier: Apache-2.0
 *
 * Nothing stays: the end of a process tree, for programs that are child subreapers (agent and
 * runner).
 */
#ifndef BASE_REAP_H
#define BASE_REAP_H

#include <stdbool.h>
#include <stdint.h>

/* Kills every descendant of this process and reaps it; false if some survive the deadline
 * (monotonic ns). Returns at once when there is none. */
bool reap_descendants(uint64_t deadline_ns);

#endif
