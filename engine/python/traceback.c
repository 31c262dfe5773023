/* SPDX-License-Identifier: Apache-2.0 */
#include "traceback.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

/* One process has one thread that writes. */
static struct {
    int signal, fd;
} traceback_to = {.fd = -1};

static void traceback_ignore(int signal)
{
    (void)signal;
}

static void *traceback_thread(void *arg)
{
    sigset_t others;
    ssize_t n = 0;
    (void)arg;
    pthread_setname_np(pthread_self(), "collrun/pystack");
    sigfillset(&others);
    sigdelset(&others, traceback_to.signal);
    while (n >= 0) {
        sigsuspend(&others);
        n = write(traceback_to.fd, "end\n", 4);
    }
    return NULL;
}

static int traceback_start(void)
{
    struct sigaction ignore = {.sa_handler = traceback_ignore, .sa_flags = SA_RESTART};
    sigset_t all, old;
    pthread_t thread;
    if (sigaction(traceback_to.signal, &ignore, NULL) < 0)
        return errno;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&thread, NULL, traceback_thread, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!error)
        pthread_detach(thread);
    return error;
}

PyObject *traceback_serve(PyObject *module, PyObject *args)
{
    int signal, fd;
    (void)module;
    if (!PyArg_ParseTuple(args, "ii:_serve_tracebacks", &signal, &fd))
        return NULL;
    if (traceback_to.fd >= 0)
        Py_RETURN_NONE;
    traceback_to.signal = signal;
    traceback_to.fd = fd;
    errno = traceback_start();
    if (errno)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}
