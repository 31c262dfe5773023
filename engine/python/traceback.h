/* SPDX-License-Identifier: Apache-2.0
 *
 * The Python frames of all threads, for the stall report of collrun (runner/stack/dump.h), and of
 * the thread that crashes.
 *
 *  - The package registers faulthandler with a signal and a memfd (_traceback.py). A thread of this
 *    file, "collrun/pystack", sleeps until it gets the signal: faulthandler's handler, which needs
 *    neither the interpreter's lock nor memory, writes the frames of all threads into the memfd,
 *    and the thread appends a last line, "end".
 *  - No other thread gets the signal, so no system call of the program is interrupted.
 *  - faulthandler restores the handler that it found when the interpreter ends. That is one of this
 *    file, which does nothing: the signal never ends the process.
 *  - A thread that crashes sends the signal to itself, prints its own frames, and goes on in the
 *    handler of the engine. A program that has its handlers, as those of faulthandler.enable(),
 *    keeps them.
 *  - A child that the rank forks has no such thread, and nothing sends the signal there.
 */
#ifndef ENGINE_PYTHON_TRACEBACK_H
#define ENGINE_PYTHON_TRACEBACK_H

#include <Python.h>

/* _collrun._serve_tracebacks(signal, fd): installs the handler that does nothing, and starts the
 * thread. Raises OSError. Once per process. */
PyObject *traceback_serve(PyObject *module, PyObject *args);
/* After collrun_init: goes before the engine's handlers of SIGSEGV, SIGBUS, SIGFPE, SIGILL and
 * SIGABRT. */
void traceback_watch_crashes(void);

#endif
