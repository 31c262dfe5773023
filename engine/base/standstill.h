/* SPDX-License-Identifier: Apache-2.0
 *
 * How long this process has stood still: stopped by a signal (Ctrl-Z), frozen with its cgroup, or
 * suspended with its machine. Time-outs do not pass meanwhile, since all ranks of a job are stopped
 * together.
 */
#ifndef ENGINE_BASE_STANDSTILL_H
#define ENGINE_BASE_STANDSTILL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Times that are no longer than this may be the scheduler's, and do not count. */
#define STANDSTILL_LEAST_NS 2000000000u

/* Called by one thread, at least every second. */
void standstill_tick(void);
/* How long this process has stood still up to `now`, in ns. Any thread may call it. 0 if no
 * thread ticks. */
uint64_t standstill_total(uint64_t now);

/* Whether a deadline has passed, after it has moved by what was added to the total since *seen. */
static inline bool standstill_expired(uint64_t now, uint64_t *seen, uint64_t *deadline_ns)
{
    if (now < *deadline_ns)
        return false;
    const uint64_t total = standstill_total(now);
    *deadline_ns += total - *seen;
    *seen = total;
    return now >= *deadline_ns;
}

/* struct child_time: for how long a child has run or slept, without the time in which it waited for
 * a CPU. A time limit of a child counts this time, so that a busy machine is not taken for a plugin
 * that hangs.
 * - It is sampled: the owner calls child_time_update about every CHILD_TIME_PERIOD_MS. A later call
 *   counts as two periods at most, since then the caller waited for a CPU itself, or both stood
 *   still (Ctrl-Z, a suspended machine).
 * - Between two calls, a child of which a thread is runnable has run as long as the clock of its
 *   CPU time says; of any other, the delays of its threads (/proc/PID/task/TID/schedstat) are
 *   subtracted.
 * - Where /proc cannot be read, all time counts. */

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
