/* SPDX-License-Identifier: Apache-2.0
 *
 * The stacks of the threads of another process.
 *
 *  - A thread that is asleep in a system call that Linux would not restart is not stopped, and its
 *    stack may end early: see below.
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
#include <stdbool.h>
#include <stddef.h>
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

/* The threads of another process, from /proc. */

enum { THREADS_MAX = 256, THREADS_NAME_LEN = 32 };

/* Returns how many; the first is the main thread. 0: the process has ended. */
int threads_list(pid_t pid, pid_t tids[THREADS_MAX]);
/* "?" without a name. */
void threads_name(pid_t pid, pid_t tid, char name[THREADS_NAME_LEN]);
/* True if the thread is one of collrun or of a backend ("collrun/..."). */
bool threads_is_engine(const char *name);

/* The stacks of threads that must not be stopped, because Linux does not restart their system call:
 * it would return EINTR without a signal handler (signal(7)). It restarts waits for a lock, a time,
 * poll, select, a child and a pipe. All others count as such a call: epoll_wait, semop, a socket
 * with a timeout, io_uring_enter, what a driver or FUSE does.
 *
 *  - A thread that is asleep has its program counter and its stack pointer in /proc. The other
 *    registers are unknown, so a stack ends at a function that is unwound by its frame pointer.
 *  - Unwinding takes less than a millisecond, in which the thread may wake: then it is repeated,
 *    and after that only the innermost frame is valid. */

struct asleep_state {
    char text[256]; /* of /proc/PID/task/TID/syscall */
    Dwarf_Addr sp, pc;
};

/* True if the thread is asleep in a system call that is not restarted. False also without
 * permission to know. */
bool asleep_unrestarted(pid_t pid, pid_t tid, struct asleep_state *state);

/* True if the thread runs. False also without permission to know. */
bool asleep_is_not(pid_t pid, pid_t tid);

/* True if the thread is still there, or again. */
bool asleep_still(pid_t pid, pid_t tid, const struct asleep_state *state);

/* The modules of the process, for asleep_frames; NULL if it is not possible. Ended by dwfl_end. */
Dwfl *asleep_begin(pid_t pid);

/* Calls `each` for the frames that can be found, at most until it returns DWARF_CB_ABORT. */
void asleep_frames(Dwfl *dwfl, pid_t tid, const struct asleep_state *state,
                   int (*each)(Dwfl_Frame *frame, void *arg), void *arg);

#endif
