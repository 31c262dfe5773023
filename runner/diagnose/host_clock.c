/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/host_clock.h"

/* No clock shows more: differences of times up to it do not overflow. */
#define HOST_CLOCK_MOST_NS (UINT64_MAX >> 3)

static int64_t host_clock_under_way(const struct host_clock_exchange *e)
{
    return (int64_t)(e->t4 - e->t1) - (int64_t)(e->t3 - e->t2);
}

void host_clock_take(struct host_clock *c, const struct host_clock_exchange *e)
{
    bool times = e->t1 <= HOST_CLOCK_MOST_NS && e->t2 <= HOST_CLOCK_MOST_NS &&
                 e->t3 <= HOST_CLOCK_MOST_NS && e->t4 <= HOST_CLOCK_MOST_NS;
    if (e->t1 && times && host_clock_under_way(e) >= 0)
        c->exchanges[c->n++ % HOST_CLOCK_EXCHANGES] = *e;
}

/* How far two clocks may drift apart since an exchange. */
static int64_t host_clock_drift(const struct host_clock_exchange *e, uint64_t now)
{
    return now > e->t4 ? (int64_t)((now - e->t4) / 20000) : 0; /* 50 ppm */
}

bool host_clock_offset(const struct host_clock *c, int64_t *ahead_ns)
{
    uint32_t n = c->n < HOST_CLOCK_EXCHANGES ? c->n : HOST_CLOCK_EXCHANGES;
    if (!n)
        return false;
    const struct host_clock_exchange *last = &c->exchanges[(c->n - 1) % HOST_CLOCK_EXCHANGES];
    int64_t least = (int64_t)(last->t3 - last->t4), most = (int64_t)(last->t2 - last->t1);
    for (uint32_t i = 0; i < n; i++) {
        const struct host_clock_exchange *e = &c->exchanges[i];
        int64_t drift = host_clock_drift(e, last->t4);
        int64_t low = (int64_t)(e->t3 - e->t4) - drift, high = (int64_t)(e->t2 - e->t1) + drift;
        if (low > most || high < least) /* one of the clocks was set, or drifts more */
            continue;
        least = low > least ? low : least;
        most = high < most ? high : most;
    }
    *ahead_ns = least <= 0 && most >= 0 ? 0 : least + (most - least) / 2;
    return true;
}
