/* SPDX-License-Identifier: Apache-2.0
 *
 * The stacks of threads that must not be stopped, because Linux does not restart their system call:
 * it would return EINTR without a signal handler (signal(7)). It restarts waits for a lock, a time,
 * poll, select, a child and a pipe. All others count as such a call: epoll_wait, semop, a socket
 * with a timeout, io_uring_enter, what a driver or FUSE does.
 *
 *  - A thread that is asleep has its program counter and its stack pointer in /proc. The other
 *    registers are unknown, so a stack ends at a function that is unwound by its frame pointer.
 *  - Unwinding takes less than a millisecond, in which the thread may wake: then it is repeated,
 *    and after that only the innermost frame is valid.
 */
#ifndef RUNNER_STACK_ASLEEP_H
#define RUNNER_STACK_ASLEEP_H

#include <elfutils/libdwfl.h>
#include <stdbool.h>
#include <sys/types.h>

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
