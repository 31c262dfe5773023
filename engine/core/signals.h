/* SPDX-License-Identifier: Apache-2.0
 *
 * Which signals could let a blocked thread of this process continue. A handler can post what a
 * thread waits for, make its system call return EINTR, leave the call by longjmp or an exception,
 * or call this library itself; a signal without a handler ends the process or does nothing.
 *
 * A handler does not count if
 * - the kernel raises its signal in the thread that causes it (SIGSEGV, SIGBUS, SIGFPE, SIGILL,
 *   SIGABRT, SIGTRAP, SIGSYS, SIGPIPE): a blocked thread does not;
 * - a backend installed it while it was opened, or it was declared with collrun_signal_harmless;
 * - every thread blocks its signal;
 * - it is that of SIGCHLD, and the process has no child.
 *
 * A handler that counted and was replaced since may have left a call, which would be listed as
 * blocked until its thread calls again: nothing is certain in that process any more.
 */
#ifndef ENGINE_CORE_SIGNALS_H
#define ENGINE_CORE_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

enum { SIGNALS = 64 };

/* The handlers that are installed between the two are harmless. */
struct signals_before {
    void *handlers[SIGNALS + 1];
};
void signals_begin(struct signals_before *before);
void signals_end(const struct signals_before *before);

/* `open`: the signals that some thread does not block; bit N - 1 is signal N. True: a handler of
 * one of them may let a thread continue. For the service thread alone. */
bool signals_may_release(uint64_t open);

#endif
