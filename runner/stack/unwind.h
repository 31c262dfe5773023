/* SPDX-License-Identifier: Apache-2.0
 *
 * The stacks of the threads of another process.
 *
 *  - A thread that is asleep in a system call that Linux would not restart is not stopped, and its
 *    stack may end early: asleep.h.
 *  - Each other thread is stopped alone, by PTRACE_SEIZE, for the time that its stack is unwound.
 * If this process is killed meanwhile, the kernel lets the thread continue.
 *  - A thread that does not stop within a quarter of a second, because it is blocked in the kernel,
 *    has no stack.
 *  - Without permission (another user, a security module, a debugger that traces the process) there
 *    are no stacks; the reason is returned.
 */
#ifndef RUNNER_STACK_UNWIND_H
#define RUNNER_STACK_UNWIND_H

#include <elfutils/libdwfl.h>
#include <sys/types.h>

enum { UNWIND_FRAMES_MAX = 64 };

struct unwind_stack {
    Dwarf_Addr pcs[UNWIND_FRAMES_MAX]; /* of the calls, the innermost first */
    int n;
};

struct unwind {
    Dwfl *dwfl; /* attached by dwfl_linux_proc_attach, with threads that are stopped by unwind.c */
    Dwfl *asleep; /* made when it is needed */
};

/* Stops a thread until unwind_resume, and waits until it has stopped. Returns 0, or a positive
 * errno. *sig: a signal that arrived instead, which unwind_resume delivers; or 0. */
int unwind_stop(pid_t tid, int *sig);
void unwind_resume(pid_t tid, int sig);

/* The caller sets `dwfl`, and ends it after unwind_end. Returns 0, or a positive errno. */
int unwind_thread(struct unwind *u, pid_t tid, struct unwind_stack *stack);
void unwind_end(struct unwind *u);

#endif
