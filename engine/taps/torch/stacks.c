/* SPDX-License-Identifier: Apache-2.0
 *
 * The Python frames of this rank for reports of a stall, as the package collrun serves them
 * (engine/python/traceback.c): collrun-stack sends a signal to the thread "collrun/pystack",
 * Python's faulthandler writes the frames of all threads into a memfd from the handler, without the
 * GIL, and the thread adds a last line.
 */
#include "taps/torch/tap.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

/* One process has one thread that writes. */
static struct {
    int signal, fd;
} stacks = {.fd = -1};

static void stacks_ignore(int signal)
{
    (void)signal;
}

static void *stacks_thread(void *arg)
{
    sigset_t others;
    ssize_t n = 0;
    (void)arg;
    pthread_setname_np(pthread_self(), "collrun/pystack");
    sigfillset(&others);
    sigdelset(&others, stacks.signal);
    while (n >= 0) {
        sigsuspend(&others);
        n = write(stacks.fd, "end\n", 4);
    }
    return NULL;
}

int tap_serve_stacks(int signal, int fd)
{
    struct sigaction ignore = {.sa_handler = stacks_ignore, .sa_flags = SA_RESTART};
    sigset_t all, old;
    pthread_t thread;
    if (stacks.fd >= 0)
        return EALREADY;
    stacks.signal = signal;
    stacks.fd = fd;
    if (sigaction(signal, &ignore, NULL) < 0)
        return errno;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int error = pthread_create(&thread, NULL, stacks_thread, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error)
        return error;
    pthread_detach(thread);
    return 0;
}
