/* SPDX-License-Identifier: Apache-2.0 */
#include "extension.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum { INTERRUPT_PATIENCE_MS = 100 };

/* One process is one rank, and has one main thread, which alone writes `waiting` and `calls`. It
 * releases `calls` after `waiting`: a thread that acquires an odd number reads the group of that
 * call, or of one that began meanwhile. Neither is destroyed while `abort` is held
 * (interrupt_sync). */
static struct {
    _Atomic(struct collrun_group *) waiting; /* the group whose call the main thread is in */
    atomic_uint calls;                       /* of the main thread; odd while it is in one */
    pthread_mutex_t abort;                   /* held while a group is being aborted */
    int pipe[2];                             /* read by the thread, written by Python */
} interrupt = {.abort = PTHREAD_MUTEX_INITIALIZER, .pipe = {-1, -1}};

static _Thread_local bool interrupt_is_main;
static bool interrupt_has_handlers; /* with the interpreter's lock */

int interrupt_runs_handlers(void)
{
    return interrupt_is_main && interrupt_has_handlers;
}

PyObject *interrupt_set_handlers(PyObject *module, PyObject *any)
{
    (void)module;
    interrupt_has_handlers = PyObject_IsTrue(any) == 1;
    Py_RETURN_NONE;
}

PyObject *interrupt_set_harmless(PyObject *module, PyObject *args)
{
    int number, harmless;
    (void)module;
    if (!PyArg_ParseTuple(args, "ip:_signal_harmless", &number, &harmless))
        return NULL;
    collrun_signal_harmless(number, harmless);
    Py_RETURN_NONE;
}

void interrupt_leave(void)
{
    if (!interrupt_is_main)
        return;
    unsigned calls = atomic_load_explicit(&interrupt.calls, memory_order_relaxed);
    atomic_store_explicit(&interrupt.calls, calls + 1, memory_order_release);
}

void interrupt_sync(void)
{
    pthread_mutex_lock(&interrupt.abort);
    pthread_mutex_unlock(&interrupt.abort);
}

/* Whether SIGINT raises KeyboardInterrupt. A program's handler may want the call to go on. */
static bool interrupt_is_default(void)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *module = PyImport_ImportModule("signal");
    PyObject *now = module ? PyObject_CallMethod(module, "getsignal", "i", SIGINT) : NULL;
    PyObject *def = now ? PyObject_GetAttrString(module, "default_int_handler") : NULL;
    bool same = def && now == def;
    Py_XDECREF(def);
    Py_XDECREF(now);
    Py_XDECREF(module);
    PyErr_Clear();
    PyGILState_Release(state);
    return same;
}

/* Python notes a signal before it writes to the pipe. So either the thread finds the main thread in
 * the call, or this function finds the signal; it would else be forgotten until the call ends. */
int interrupt_enter(struct collrun_group *g)
{
    if (!interrupt_is_main && interrupt_init()) /* another thread has begun to use the job */
        return -1;
    if (!interrupt_is_main)
        return 0;
    atomic_store_explicit(&interrupt.waiting, g, memory_order_relaxed);
    unsigned calls = atomic_load_explicit(&interrupt.calls, memory_order_relaxed);
    atomic_store_explicit(&interrupt.calls, calls + 1, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    if (!PyOS_InterruptOccurred())
        return 0;
    if (!interrupt_is_default()) {
        PyErr_SetInterrupt(); /* its handler runs when the call has returned */
        return 0;
    }
    interrupt_leave();
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    return -1;
}

static void interrupt_abort(void)
{
    atomic_thread_fence(memory_order_seq_cst); /* after the signal was noted */
    unsigned call = atomic_load_explicit(&interrupt.calls, memory_order_acquire);
    if (call % 2 == 0)
        return;
    poll(NULL, 0, INTERRUPT_PATIENCE_MS);
    if (atomic_load_explicit(&interrupt.calls, memory_order_acquire) != call ||
        !interrupt_is_default())
        return;
    pthread_mutex_lock(&interrupt.abort);
    if (atomic_load_explicit(&interrupt.calls, memory_order_acquire) == call)
        collrun_group_abort(atomic_load_explicit(&interrupt.waiting, memory_order_relaxed),
                            "the call was interrupted by SIGINT");
    pthread_mutex_unlock(&interrupt.abort);
}

/* The thread's name is that of a thread of the library, so a proof of a deadlock leaves it out: it
 * acts on signals alone. */
static void *interrupt_watch(void *arg)
{
    (void)arg;
    pthread_setname_np(pthread_self(), "collrun/signals");
    unsigned char signals[64];
    ssize_t n;
    pthread_setname_np(pthread_self(), "collrun/signals");
    while ((n = read(interrupt.pipe[0], signals, sizeof signals)) > 0 ||
           (n < 0 && errno == EINTR)) {
        for (ssize_t i = 0; i < n; i++) {
            if (signals[i] == SIGINT)
                interrupt_abort();
        }
    }
    return NULL;
}

/* A child of fork() shares the pipe, whose reader is in its parent: its signals do not concern
 * that. */
static void interrupt_in_child(void)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0)
        return;
    dup3(null, interrupt.pipe[1], O_CLOEXEC);
    close(null);
}

/* signal.set_wakeup_fd(fd): 1 if it is set, 0 if this is not the main thread or the program has set
 * one. */
static int interrupt_set_wakeup(int fd)
{
    PyObject *module = PyImport_ImportModule("signal");
    PyObject *old = module ? PyObject_CallMethod(module, "set_wakeup_fd", "i", fd) : NULL;
    int set = old != NULL;
    long before = old ? PyLong_AsLong(old) : -1;
    Py_XDECREF(old);
    if (!old && PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear();
        Py_XDECREF(module);
        return 0;
    }
    if (before >= 0) {
        old = PyObject_CallMethod(module, "set_wakeup_fd", "i", (int)before);
        Py_XDECREF(old);
        set = 0;
    }
    Py_XDECREF(module);
    return PyErr_Occurred() ? -1 : set;
}

int interrupt_init(void)
{
    static _Thread_local bool tried; /* which thread is the main thread, Python knows */
    int ends[2];
    if (tried || interrupt.pipe[0] >= 0)
        return 0;
    tried = true;
    if (pipe2(ends, O_CLOEXEC) || fcntl(ends[1], F_SETFL, O_NONBLOCK) < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    int set = interrupt_set_wakeup(ends[1]);
    if (set <= 0) {
        close(ends[0]);
        close(ends[1]);
        return set;
    }
    interrupt.pipe[0] = ends[0];
    interrupt.pipe[1] = ends[1];
    sigset_t all, old;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_atfork(NULL, NULL, interrupt_in_child);
    if (!error)
        error = pthread_create(&thread, NULL, interrupt_watch, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error) {
        errno = error;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    pthread_detach(thread);
    interrupt_is_main = true;
    return 0;
}
