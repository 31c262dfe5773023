/* SPDX-License-Identifier: Apache-2.0
 *
 * A handler is known by its address. The C library keeps signals 32 and 33, with which threads of
 * one process reach each other, for itself: sigaction() refuses them.
 */
#include "core/signals.h"

#include "core/error.h"

#include <collrun/collrun.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

/* `harmless` may be written by any thread: a handler that is compared too early or too late makes a
 * report uncertain, or is declared by a thread that is not blocked. */
static struct {
    _Atomic(void *) harmless[SIGNALS + 1]; /* handlers; NULL: none */
    void *counted[SIGNALS + 1];            /* handlers that have made a report uncertain */
    bool replaced;                         /* one of them is gone */
} signals;

/* NULL: the default action, ignored, or no signal of programs. */
static void *signals_handler(int number)
{
    struct sigaction now;
    if (sigaction(number, NULL, &now) < 0)
        return NULL;
    if (now.sa_flags & SA_SIGINFO)
        return (void *)(uintptr_t)now.sa_sigaction;
    return now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN
               ? NULL
               : (void *)(uintptr_t)now.sa_handler;
}

void signals_begin(struct signals_before *before)
{
    for (int i = 1; i <= SIGNALS; i++)
        before->handlers[i] = signals_handler(i);
}

void signals_end(const struct signals_before *before)
{
    for (int i = 1; i <= SIGNALS; i++) {
        void *now = signals_handler(i);
        if (now && now != before->handlers[i])
            atomic_store(&signals.harmless[i], now);
    }
}

int collrun_signal_harmless(int number, int harmless)
{
    if (number < 1 || number > SIGNALS)
        return error_set(COLLRUN_ERR_INVALID, "collrun_signal_harmless: %d is no signal", number);
    atomic_store(&signals.harmless[number], harmless ? signals_handler(number) : NULL);
    return COLLRUN_OK;
}

/* The kernel raises these in the thread that causes them, and a blocked thread does not. */
static bool signals_is_synchronous(int number)
{
    static const int all[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGPIPE};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] == number)
            return true;
    return false;
}

/* True if this process has a child, also one that has ended and was not waited for. */
static bool signals_has_child(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0;
}

bool signals_may_release(uint64_t open)
{
    bool any = false;
    for (int i = 1; i <= SIGNALS; i++) {
        if (signals_is_synchronous(i) || (!(open >> (i - 1) & 1) && !signals.counted[i]))
            continue;
        void *now = signals_handler(i);
        bool counts = now && now != atomic_load(&signals.harmless[i]) && (open >> (i - 1) & 1) &&
                      (i != SIGCHLD || signals_has_child());
        signals.replaced = signals.replaced || (signals.counted[i] && now != signals.counted[i]);
        signals.counted[i] = counts ? now : signals.counted[i];
        any = any || counts;
    }
    return any || signals.replaced;
}
