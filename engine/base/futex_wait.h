/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a thread waits in futex(2), and who can end that, by what the kernel says about it.
 */
#ifndef ENGINE_BASE_FUTEX_WAIT_H
#define ENGINE_BASE_FUTEX_WAIT_H

#include <stdbool.h>
#include <sys/types.h>

struct futex_wait {
    unsigned long address;
    bool shared; /* the call lets other processes wake it, if they have mapped the address */
    bool timed;
};

/* `text`: that of /proc/PID/task/TID/syscall, "NUMBER ARG0 ... ARG5 SP PC". False: the thread is in
 * another call, or has a CPU. */
bool futex_wait_read(const char *text, struct futex_wait *out);

/* True if only threads of the process can wake it: its address is mapped privately, too. */
bool futex_wait_is_own(const struct futex_wait *f, pid_t pid);

#endif
