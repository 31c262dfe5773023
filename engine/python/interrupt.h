/* SPDX-License-Identifier: Apache-2.0
 *
 * Ctrl-C in a call that waits. A thread watches the descriptor that Python writes when a signal has
 * arrived (signal.set_wakeup_fd). If a call of the main thread still waits 100 ms after a SIGINT
 * whose handler is Python's default, the thread aborts the group of that call: the call returns
 * ABORTED, and Python raises KeyboardInterrupt in its place. A call that ends meanwhile leaves
 * its group whole.
 *
 * A program may have its own handlers: the package tells (_collrun._handlers). Then operations
 * of the main thread are started and polled, and the handlers run meanwhile. One that raises ends
 * the call: a receive is withdrawn, another operation goes on.
 *
 * Where the program has set a wakeup descriptor (asyncio does for its signal handlers), none is
 * watched, and Ctrl-C takes effect when the call returns.
 */
#ifndef PYTHON_INTERRUPT_H
#define PYTHON_INTERRUPT_H

#include <Python.h>
#include <collrun/collrun.h>

/* Starts to watch. From the main thread of Python; from another one it does nothing. */
int interrupt_init(void);

/* Before a call that waits, with the interpreter's lock. -1: an exception: KeyboardInterrupt if a
 * SIGINT has arrived that no code of Python has seen yet. */
int interrupt_enter(struct collrun_group *g);
/* After the call, with or without that lock. */
void interrupt_leave(void);

/* True in the main thread of a program that has its own handlers. With the interpreter's lock. */
int interrupt_runs_handlers(void);
/* _collrun._handlers(any): whether there are such handlers. */
PyObject *interrupt_set_handlers(PyObject *module, PyObject *any);
/* _collrun._signal_harmless(number, harmless): collrun_signal_harmless. */
PyObject *interrupt_set_harmless(PyObject *module, PyObject *args);

/* Waits for an abort of the group that may be in progress; before the group is destroyed. */
void interrupt_sync(void);

#endif
