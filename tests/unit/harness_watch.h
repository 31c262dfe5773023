/* SPDX-License-Identifier: Apache-2.0
 *
 * The parent of a harness run: it waits until all processes have exited, kills them at the time
 * limit, and reports unexpected exits on stderr.
 */
#ifndef TESTS_UNIT_HARNESS_WATCH_H
#define TESTS_UNIT_HARNESS_WATCH_H

#include "backend_harness.h"

#include <poll.h>
#include <sys/types.h>

struct harness_watch {
    const struct harness_options *options;
    void (*died)(void *ctx); /* called with abort_on_death when a process dies */
    void *ctx;
    pid_t pids[HARNESS_MAX_RANKS];
    struct pollfd fds[HARNESS_MAX_RANKS];
    uint32_t nprocs, running;
    int failed;
};

/* Adds a process; `pid` is the result of fork. */
void harness_watch_add(struct harness_watch *w, pid_t pid);
void harness_watch_until_end(struct harness_watch *w);

#endif
