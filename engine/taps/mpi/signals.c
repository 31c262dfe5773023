/* SPDX-License-Identifier: Apache-2.0
 *
 * Which handlers of signals cannot let a blocked thread go on, for proofs of deadlock
 * (record_head.harmless):
 *
 * - those that MPI and the libraries below it install while MPI starts, such as UCX's of SIGUSR1;
 * - those of UCX that it installs when it is loaded, such as that of SIGHUP, which prints;
 * - Python's of SIGINT. It sets a flag, and only a person sends the signal, to end the program.
 *
 * A handler that is installed later counts: sigaction, signal and their like take the signal back
 * before it is installed. One that is installed by the system call alone is not seen.
 */
#include "taps/mpi/tap.h"

#include <dlfcn.h>
#include <signal.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { SIGNALS = 64 };

typedef void signals_handler(int); /* of signal() */

/* 0: the default action, ignored, or no signal of programs. */
static uintptr_t signals_before[SIGNALS + 1];

static int signals_call_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
    static int (*function)(int, const struct sigaction *, struct sigaction *);
    if (!function)
        *(void **)(void *)&function = dlsym(RTLD_NEXT, "sigaction");
    return function ? function(sig, act, old) : -1;
}

static uintptr_t signals_get(int sig)
{
    struct sigaction now;
    if (signals_call_sigaction(sig, NULL, &now) < 0)
        return 0;
    if (now.sa_flags & SA_SIGINFO)
        return (uintptr_t)now.sa_sigaction;
    return now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN ? 0 : (uintptr_t)now.sa_handler;
}

/* True if the file that has the handler is so called, as libpython3.11.so.1.0 and python3.11. */
static bool signals_is_of(uintptr_t handler, const char *const *prefixes)
{
    bool found = false;
    Dl_info info;
    if (!handler || !dladdr((void *)handler, &info) || !info.dli_fname)
        return false;
    const char *name = strrchr(info.dli_fname, '/');
    name = name ? name + 1 : info.dli_fname;
    for (; *prefixes; prefixes++)
        found = found || strncmp(name, *prefixes, strlen(*prefixes)) == 0;
    return found;
}

void tap_signals_begin(void)
{
    for (int sig = 1; sig <= SIGNALS; sig++)
        signals_before[sig] = signals_get(sig);
}

void tap_signals_end(struct record_head *head)
{
    static const char *const python[] = {"libpython", "python", NULL};
    static const char *const ucx[] = {"libucs", "libucm", "libuct", "libucp", NULL};
    uint64_t harmless = 0;
    for (int sig = 1; sig <= SIGNALS; sig++) {
        const uintptr_t now = signals_get(sig);
        if (now && (now != signals_before[sig] || signals_is_of(now, ucx) ||
                    (sig == SIGINT && signals_is_of(now, python))))
            harmless |= UINT64_C(1) << (sig - 1);
    }
    atomic_store(&head->harmless, harmless);
}

/* ---- what installs handlers ---- */

/* The program installs a handler; in a child of the rank there is no record. */
static void signals_take_back(int sig)
{
    struct record_head *head = tap_record();
    if (head && sig >= 1 && sig <= SIGNALS)
        atomic_fetch_and(&head->harmless, ~(UINT64_C(1) << (sig - 1)));
}

EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
    if (act)
        signals_take_back(sig);
    return signals_call_sigaction(sig, act, old);
}

/* signal(), and its names of other standards. */
#define SIGNALS_OF(name)                                                                           \
    EXPORT signals_handler *name(int sig, signals_handler *handler);                               \
    EXPORT signals_handler *name(int sig, signals_handler *handler)                                \
    {                                                                                              \
        static signals_handler *(*function)(int, signals_handler *);                               \
        if (!function)                                                                             \
            *(void **)(void *)&function = dlsym(RTLD_NEXT, #name);                                 \
        signals_take_back(sig);                                                                    \
        return function ? function(sig, handler) : SIG_ERR;                                        \
    }
SIGNALS_OF(signal)
SIGNALS_OF(bsd_signal)
SIGNALS_OF(sysv_signal)
SIGNALS_OF(__sysv_signal)
SIGNALS_OF(sigset)
