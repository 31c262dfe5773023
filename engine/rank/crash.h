/* SPDX-License-Identifier: Apache-2.0
 *
 * The crash report of a rank: signal, address and a backtrace on stderr, before the default action
 * of the signal. Frames have file and line if the object has debug information and collrun-stack is
 * installed. An overflow of a stack is named. A workload that installs signal handlers replaces it;
 * a program's own handlers are kept.
 */
#ifndef ENGINE_RANK_CRASH_H
#define ENGINE_RANK_CRASH_H

#include <stdbool.h>
#include <stdint.h>

struct record_head;

/* For the process. `record` gets the workload whose thread crashes; it may be NULL. */
void crash_install(uint32_t rank, bool in_program, struct record_head *record);
/* For a process that loads plugins for the runner. A group separator (035) comes before its report.
 */
void crash_install_query(void);
void crash_forget(void); /* in a forked child, which is not the rank */
/* For every thread that runs workloads or backends: a stack for the signal handler, freed when the
 * thread ends. `workload`: its index + 1; 0: none. */
void crash_thread(uint32_t workload);
/* This thread ends the rank, by a crash or by exit: the record gets its workload. */
void crash_ends_rank(void);

#endif
