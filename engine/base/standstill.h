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

#endif
