/* SPDX-License-Identifier: Apache-2.0
 *
 * How far the clock of a host is ahead of this one, from times that keepalives and heartbeats carry
 * (as in NTP, RFC 5905): a keepalive was sent at t1 and received at t2, a heartbeat sent at t3 and
 * received at t4. Neither was received before it was sent, so the host is ahead by at most t2 - t1
 * and at least t3 - t4. What the last exchanges leave of this range (older ones as far as clocks
 * may have drifted since) has the least of the delays in each direction at its ends; its middle
 * counts.
 */
#ifndef RUNNER_DIAGNOSE_HOST_CLOCK_H
#define RUNNER_DIAGNOSE_HOST_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

enum { HOST_CLOCK_EXCHANGES = 16 };

struct host_clock_exchange {
    uint64_t t1, t2, t3, t4; /* t1, t4: of this clock; t2, t3: of the host's; in ns */
};

struct host_clock {
    struct host_clock_exchange exchanges[HOST_CLOCK_EXCHANGES]; /* the last ones */
    uint32_t n;                                                 /* so far */
};

void host_clock_take(struct host_clock *c, const struct host_clock_exchange *e);
/* False: not known yet. 0 if both may be one clock, that of one machine. */
bool host_clock_offset(const struct host_clock *c, int64_t *ahead_ns);

#endif
