/* SPDX-License-Identifier: Apache-2.0
 *
 * One handler of pthread_atfork for the process; it cannot be removed.
 */
#include "core/fork_guard.h"

#include "core/error.h"

#include <collrun/types.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

bool fork_guard_in_child;

static struct {
    char reason[160];
    void (*in_child)(void *ctx);
    void *ctx;
} fork_guard;

static void fork_guard_on_fork(void)
{
    if (!fork_guard_in_child)
        fork_guard.in_child(fork_guard.ctx);
    fork_guard_in_child = true;
}

void fork_guard_install(uint32_t rank, void (*in_child)(void *ctx), void *ctx)
{
    snprintf(fork_guard.reason, sizeof fork_guard.reason,
             "this process was forked by rank %u (pid %d), and only that process is a member of "
             "the groups",
             rank, (int)getpid());
    fork_guard.in_child = in_child;
    fork_guard.ctx = ctx;
    pthread_atfork(NULL, NULL, fork_guard_on_fork);
}

const char *fork_guard_reason(void)
{
    return fork_guard.reason;
}

int fork_guard_refuse(const char *what)
{
    return error_set(COLLRUN_ERR_INVALID, "%s: %s", what, fork_guard.reason);
}
