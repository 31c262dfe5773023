/* SPDX-License-Identifier: Apache-2.0
 *
 * The parent's watch over the processes of a run of the rig: until all have ended, or the time
 * limit has passed and they are killed. What may not be is said on stderr.
 */
#ifndef TESTS_UNIT_RIG_WATCH_H
#define TESTS_UNIT_RIG_WATCH_H

#include "backend_rig.h"

#include <poll.h>
#include <sys/types.h>

struct rig_watch {
    const struct rig_options *options;
    void (*died)(void *ctx); /* with abort_on_death: a process was killed */
    void *ctx;
    pid_t pids[RIG_MAX_RANKS];
    struct pollfd fds[RIG_MAX_RANKS];
    uint32_t nprocs, running;
    int failed;
};

/* The next process, as fork returned it. */
void rig_watch_add(struct rig_watch *w, pid_t pid);
void rig_watch_until_end(struct rig_watch *w);

#endif
