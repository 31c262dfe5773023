/* SPDX-License-Identifier: Apache-2.0
 *
 * Gets the Python frames of a process whose Python package of collrun serves them
 * (engine/python/traceback.h).
 *
 *  - The process has a memfd "collrun-python-stack.SIGNAL" and a thread "collrun/pystack". The
 *    memfd is emptied, the thread gets the signal, and what it writes is read up to the line "end".
 *  - Threads that run are stopped meanwhile, so that their frames do not change.
 *  - The signal is sent only if the thread has a handler for it and is not stopped.
 *  - There is no such memfd, or no answer within a second: there are no Python frames.
 */
#ifndef RUNNER_STACK_DUMP_H
#define RUNNER_STACK_DUMP_H

#include "stack/python.h"

/* *s has no threads if nothing is known. Ended by python_fini. */
void dump_take(pid_t pid, struct python_stacks *s);

#endif
