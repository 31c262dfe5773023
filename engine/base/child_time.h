/* SPDX-License-Identifier: Apache-2.0
 *
 * struct child_time: for how long a child has run or slept, without the time in which it waited for
 * a CPU. A time limit of a child counts this time, so that a busy machine is not taken for a plugin
 * that hangs.
 * - It is sampled: the owner calls child_time_update about every CHILD_TIME_PERIOD_MS. A later call
 *   counts as two periods at most, since then the caller waited for a CPU itself, or both stood
 *   still (Ctrl-Z, a suspended machine).
 * - Between two calls, a child of which a thread is runnable has run as long as the clock of its
 *   CPU time says; of any other, the delays of its threads (/proc/PID/task/TID/schedstat) are
 *   subtracted.
 * - Where /proc cannot be read, all time counts.
 */
#ifndef ENGINE_BASE_CHILD_TIME_H
#define ENGINE_BASE_CHILD_TIME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    CHILD_TIME_PERIOD_MS = 100,
    CHILD_TIME_WALL = 12 /* wall-clock time that ends any wait, in limits */
};

struct child_sample {
    bool runnable;             /* a thread runs or waits for a CPU */
    uint64_t cpu_ns, delay_ns; /* of all threads: CPU time, waiting for a CPU */
};

struct child_time {
    pid_t pid;
    uint64_t start_ns, last_ns; /* CLOCK_MONOTONIC */
    struct child_sample last;
    uint64_t counted_ns;
};

void child_time_start(struct child_time *t, pid_t pid);
void child_time_update(struct child_time *t);
/* As of the last update. */
bool child_time_is_over(const struct child_time *t, uint64_t limit_ns);

/* What a time of `wall_ns` between two samples counts. */
uint64_t child_time_between(const struct child_sample *from, const struct child_sample *to,
                            uint64_t wall_ns);

#endif
