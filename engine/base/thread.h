/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of runner, agent, engine and backends. All signals are blocked in them, so that signals
 * reach the thread that handles them (a signalfd, or the workload's main thread).
 */
#ifndef ENGINE_BASE_THREAD_H
#define ENGINE_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* Starts a joinable thread with all signals blocked. stack_len 0: the default. Returns 0 or an
 * errno; *thread is written on success only. */
int thread_start(pthread_t *thread, size_t stack_len, void *(*run)(void *), void *arg);

#endif
