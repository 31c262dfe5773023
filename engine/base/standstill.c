/* SPDX-License-Identifier: Apache-2.0 */
#include "base/standstill.h"

#include "base/loop.h"

#include <stdatomic.h>

static struct {
    _Atomic uint64_t tick_ns;    /* the last one; 0: none yet */
    _Atomic uint64_t stopped_ns; /* before it */
} standstill;

/* A thread that looks before the first tick after a stop counts it, too. */
static uint64_t standstill_since(uint64_t tick_ns, uint64_t now)
{
    return tick_ns && now > tick_ns && now - tick_ns > STANDSTILL_LEAST_NS ? now - tick_ns : 0;
}

void standstill_tick(void)
{
    const uint64_t now = now_ns();
    const uint64_t tick_ns = atomic_load(&standstill.tick_ns);
    atomic_fetch_add(&standstill.stopped_ns, standstill_since(tick_ns, now));
    atomic_store(&standstill.tick_ns, now);
}

uint64_t standstill_total(uint64_t now)
{
    const uint64_t tick_ns = atomic_load(&standstill.tick_ns);
    return atomic_load(&standstill.stopped_ns) + standstill_since(tick_ns, now);
}
