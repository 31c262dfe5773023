/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of this process: which belong to the engine, and whether all others are blocked. The
 * names of the engine's threads, and of those that backends create, begin with "collrun/". A new
 * thread inherits the name of its creator; so a thread has such a name while it calls a backend
 * that may create threads.
 */
#ifndef ENGINE_CORE_THREADS_H
#define ENGINE_CORE_THREADS_H

#include "base/buf.h"

#include <stdatomic.h>

struct collrun_ctx;

/* On whose behalf this thread calls; NULL in a thread that a workload has created. */
#if defined(__GNUC__)
__attribute__((tls_model("initial-exec")))
#endif
extern _Thread_local const struct collrun_ctx *thread_context;

/* Names this thread "collrun/NAME". */
void thread_name(const char *name);

/* The main thread is one of a program: it may call this library. Without this it is that of
 * collrun-engine, which only waits. */
void threads_main_is_caller(void);

/* Threads that are created between the two get such a name, which they inherit from this thread.
 * With `renames`, those that get another one, as UCX's do, are renamed afterwards if nothing but
 * this thread can have created them: every other thread slept from the begin to the end.
 * The main thread of collrun-engine is not renamed, since its name is the process name; what exists
 * newly at the end is renamed, which is exact while no workload is running. */
struct thread_tag {
    char name[16], own[16];       /* of the children; of this thread */
    struct thread_seen *existing; /* at the begin */
    size_t nexisting;
};
/* `renames`: the threads may get other names, which costs some system calls for each thread. */
void thread_tag_begin(struct thread_tag *a, const char *name, bool renames);
void thread_tag_end(struct thread_tag *a);

/* Makes `tids`, of which a place without a thread is 0, those of the threads that call nothing of
 * this library: the engine's and the backends', as far as there is room. Readers may read it at the
 * same time. */
void threads_list_own(_Atomic uint32_t *tids, uint32_t n);

/* True if the thread is there, is none of the engine, and does not sleep until another one wakes
 * it.
 */
bool threads_may_call(int thread);

/* A thread begins (1) or ends (-1) a wait inside the engine that is not for an operation. No wait
 * report is certain in between. */
static inline void threads_busy(atomic_int *busy, int change)
{
    atomic_fetch_add_explicit(busy, change, memory_order_seq_cst);
}

/* True if every thread is blocked until another thread of this process acts, and nothing else can
 * wake one (diagnose/deadlock.h has the list). Threads of the engine are not considered. Any other
 * thread is blocked if `known` returns true for it, or if it is idle: it sleeps, without a
 * time-out, on a futex that no other process can wake. Scheduler statistics of the latter are added
 * to `evidence`: if they are equal at the next call, the thread did not run in between.
 * `callbacks`: a driver may call functions of the program, so that no thread is idle. False if
 * /proc cannot be read. */
bool threads_are_blocked(bool (*known)(void *ctx, int thread), void *ctx, bool callbacks,
                         struct buf *evidence);
/* True if the thread sleeps on a futex that any process may wake; its statistics are added, too. */
bool threads_sleeps(int thread, struct buf *evidence);

#endif
