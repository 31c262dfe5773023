/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/host_clock.h"

static int64_t host_clock_under_way(const struct host_clock_exchange *e)
{
    return (int64_t)(e->t4 - e->t1) - (int64_t)(e->t3 - e->t2);
}

void host_clock_take(struct host_clock *c, const struct host_clock_exchange *e)
{
    if (e->t1 && host_clock_under_way(e) >= 0)
        c->exchanges[c->n++ % HOST_CLOCK_EXCHANGES] = *e;
}

bool host_clock_offset(const struct host_clock *c, int64_t *ahead_ns)
{
    uint32_t n = c->n < HOST_CLOCK_EXCHANGES ? c->n : HOST_CLOCK_EXCHANGES;
    const struct host_clock_exchange *best = c->exchanges;
    for (uint32_t i = 1; i < n; i++) {
        if (host_clock_under_way(&c->exchanges[i]) < host_clock_under_way(best))
            best = &c->exchanges[i];
    }
    if (!n)
        return false;
    int64_t there = (int64_t)(best->t2 - best->t1), back = (int64_t)(best->t3 - best->t4);
    int64_t ahead = there / 2 + back / 2, error = host_clock_under_way(best) / 2;
    *ahead_ns = ahead >= -error && ahead <= error ? 0 : ahead;
    return true;
}
