/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of runner, agent, engine and backends. All signals are blocked in them, so that signals
 * reach the thread that handles them (a signalfd, or the workload's main thread).
 */
#ifndef ENGINE_BASE_THREAD_H
#define ENGINE_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Starts a joinable thread with all signals blocked. stack_len 0: the default. Returns 0 or an
 * errno; *thread is written on success only. */
int thread_start(pthread_t *thread, size_t stack_len, void *(*run)(void *), void *arg);

/* Short scheduler slices for threads that sleep most of the time and must react fast: the agent's,
 * which detects the end of a rank, and the service thread of each rank, which aborts operations
 * that wait for it. On an oversubscribed host these threads would otherwise wait for a core as long
 * as the ranks do. */

/* Asks the kernel (6.12 and later; others ignore it) to run this thread in short slices, and
 * therefore earlier. Its share of the CPU does not grow, and no privilege is needed. Its children
 * have ordinary slices, and a negative nice value of this thread becomes 0 in them. */
void sched_slice_shorten(void);

/* Whether a thread waits in futex(2), and who can end that, by what the kernel says about it. */

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
