/* SPDX-License-Identifier: Apache-2.0 */
#include "extension.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
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

/* ---- crashes ---- */

enum { CRASHES_MAX = 5, FRAMES_TEXT = 4096, FRAMES_SHOWN = 12 };

static const int crash_signals[CRASHES_MAX] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
static struct {
    struct sigaction next[CRASHES_MAX]; /* the handlers of the engine */
    pid_t pid;
    atomic_bool begun;
} crash;

static void traceback_print(const char *text, size_t len)
{
    while (len) {
        const ssize_t n = write(STDERR_FILENO, text, len);
        if (n <= 0)
            return;
        text += n;
        len -= (size_t)n;
    }
}

/* "  File "train.py", line 7 in step", most recent call first. */
static void traceback_print_frames(const char *text)
{
    static const char headline[] = "the Python functions of this thread:\n";
    const char *at = strstr(text, "Current thread");
    const char *first = at ? strchr(at, '\n') : NULL, *end = first;
    for (unsigned n = 0; end && strncmp(end + 1, "  File ", 7) == 0 && n < FRAMES_SHOWN; n++) {
        const char *newline = strchr(end + 1, '\n');
        if (!newline)
            break;
        end = newline;
    }
    if (end == first)
        return;
    traceback_print(headline, sizeof headline - 1);
    traceback_print(first + 1, (size_t)(end - first));
}

/* Only functions that may be called in a signal handler. */
static void traceback_on_crash(int sig, siginfo_t *info, void *context)
{
    static char text[FRAMES_TEXT];
    struct stat before;
    if (crash.pid == getpid() && !atomic_exchange(&crash.begun, true) &&
        fstat(traceback_to.fd, &before) == 0 && raise(traceback_to.signal) == 0) {
        const ssize_t n = pread(traceback_to.fd, text, sizeof text - 1, before.st_size);
        text[n > 0 ? n : 0] = '\0';
        traceback_print_frames(text);
    }
    for (size_t i = 0; i < CRASHES_MAX; i++)
        if (crash_signals[i] == sig)
            crash.next[i].sa_sigaction(sig, info, context);
}

void traceback_watch_crashes(void)
{
    struct sigaction action = {.sa_sigaction = traceback_on_crash};
    if (traceback_to.fd < 0 || crash.pid == getpid()) /* another thread has done it */
        return;
    crash.pid = getpid();
    for (size_t i = 0; i < CRASHES_MAX; i++) {
        struct sigaction *next = &crash.next[i];
        if (sigaction(crash_signals[i], NULL, next) < 0 || !(next->sa_flags & SA_SIGINFO))
            continue;
        action.sa_flags = next->sa_flags;
        action.sa_mask = next->sa_mask;
        sigaction(crash_signals[i], &action, NULL);
    }
}
