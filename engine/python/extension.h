/* SPDX-License-Identifier: Apache-2.0
 *
 * The extension module collrun._collrun: what its files declare for each other.
 */
#ifndef PYTHON_EXTENSION_H
#define PYTHON_EXTENSION_H

#include "dlpack.h"

#include <Python.h>
#include <collrun/collrun.h>
#include <stdbool.h>

/* ---- job.c ----
 *
 * The job as this rank sees it: the functions of the module. The first of them that needs the job
 * calls collrun_init(); an exit with code 0 calls collrun_finalize().
 */

/* The context, after collrun_init(). NULL: an exception. */
struct collrun_ctx *job_get(void);
/* Devices of that kind of memory (NULL: of all) that this rank owns; -1: an exception. */
int job_device_count(const char *kind);
/* True after collrun_finalize(), and in a child of fork(): groups must not be touched. */
bool job_is_over(void);
/* 0; or -1, with an exception, after collrun.finalize(). */
int job_check(void);
/* `n` more arrays have memory of a group. */
void job_count_arrays(int n);

/* The functions of the module about the job. */
extern PyMethodDef job_methods[];

/* ---- errors.c ----
 *
 * Failures as Python exceptions: collrun.Error and the classes below it, one per status, which the
 * package defines (collrun/_errors.py).
 */

/* Sets the exception for a status, with the error message of the thread's last failing call. If a
 * Python signal handler has to run, it runs first, and its exception (KeyboardInterrupt) is set
 * instead. Returns -1. */
int errors_set(int status);
/* The same with a message. */
int errors_set_text(int status, const char *text);

/* The job whose failed ranks are the culprits of an error. */
void errors_init(const struct collrun_ctx *ctx);

/* ---- group.c ----
 *
 * collrun.Group: this rank's membership in one group. calls.c has the operations.
 */

struct group {
    PyObject_HEAD struct collrun_group *handle; /* NULL: destroyed */
    int rank, size;
    unsigned arrays;              /* that are alive, or are being made */
    struct array_memory *unfreed; /* array.c */
    bool at_run_time;             /* made at run time: destroy() is allowed */
    PyObject *name;               /* owned */
};

/* Creates the type; adds it to the module. */
int group_init(PyObject *module);

/* Functions of the module. */
PyObject *group_get(PyObject *module, PyObject *args, PyObject *kwargs);    /* group(name) */
PyObject *group_create(PyObject *module, PyObject *args, PyObject *kwargs); /* new_group(...) */
extern const char group_get_doc[], group_create_doc[];

/* ---- array.c ----
 *
 * collrun.Array: memory of collrun_alloc with a shape and an element type. The buffer protocol and
 * DLPack give views of it; the memory is freed with the last of them. An index gives an element, or
 * an Array that is a view of a part; collrun/_arrays.py has what indices mean. Where numpy is
 * installed, programs get an ndarray of the memory instead (array_share).
 */

enum { ARRAY_MAX_DIM = 32 };

struct array {
    PyObject_HEAD struct group *group; /* owned */
    struct array *whole;               /* owned: whose memory a view is part of; NULL: it is none */
    void *data;
    size_t len; /* bytes */
    enum collrun_dtype dtype;
    struct dlpack_device device;
    int ndim;
    int64_t shape[ARRAY_MAX_DIM], strides[ARRAY_MAX_DIM]; /* in elements */
    Py_ssize_t view_shape[ARRAY_MAX_DIM], view_strides[ARRAY_MAX_DIM];
};

/* Creates the type; adds it to the module. */
int array_init(PyObject *module);
/* New memory of the group; `shape` is a tuple of integers. */
PyObject *array_new(struct group *g, PyObject *shape, enum collrun_dtype dtype);
/* What a program gets for a new array: an ndarray if numpy is installed and knows memory and type,
 * else the Array. Takes `array`. */
PyObject *array_share(PyObject *array);
/* Whether the elements lie one after the other, in C order. */
bool array_is_packed(const struct array *a);
/* The group's object is about to end. */
void array_forget(struct group *g);
bool array_is(PyObject *object);

/* ---- request.c ----
 *
 * collrun.Request: an operation in flight. It keeps the buffers alive until the operation has
 * ended, also if the program drops the request before.
 */

struct operation;

/* Creates the type; adds it to the module. */
int request_init(PyObject *module);
/* Takes `op`, which was started. NULL: an exception, and the operation is detached. */
PyObject *request_new(struct operation *op);

/* ---- calls.c ----
 *
 * The operations of collrun.Group: each method reads its arguments into an operation, and runs or
 * starts it.
 */

/* The entries of the type's method table; the last is zeroed. */
extern PyMethodDef calls_methods[];

/* ---- interrupt.c ----
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

/* ---- traceback.c ----
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

/* _collrun._serve_tracebacks(signal, fd): installs the handler that does nothing, and starts the
 * thread. Raises OSError. Once per process. */
PyObject *traceback_serve(PyObject *module, PyObject *args);
/* After collrun_init: goes before the engine's handlers of SIGSEGV, SIGBUS, SIGFPE, SIGILL and
 * SIGABRT. */
void traceback_watch_crashes(void);

#endif
