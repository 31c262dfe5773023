/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice between yielding and sleeping at once; see yield_policy.h.
 */
#include "transport/yield_policy.h"

static void yield_policy_count_call(struct yield_policy *c, _Atomic uint32_t *yields)
{
    const uint32_t part = c->calls++ < YIELD_TRIAL ? YIELD_TRIAL : YIELD_BLOCK;
    if (c->lost_ns >= part * (uint64_t)YIELD_LOSS_NS)
        atomic_store_explicit(yields, 0, memory_order_relaxed);
    if (c->calls % part == 0)
        c->lost_ns = 0;
}

/* The ranks have begun to sleep at once. */
static void yield_policy_set_retry(struct yield_policy *c)
{
    const bool lost_at_once = c->calls <= YIELD_TRIAL && c->retry_ns != 0;
    c->retry_ns = lost_at_once ? 2 * c->retry_ns : YIELD_RETRY_NS;
    if (c->retry_ns > YIELD_RETRY_MOST_NS)
        c->retry_ns = YIELD_RETRY_MOST_NS;
}

bool yield_policy_begin(struct yield_policy *c, bool leads, uint64_t (*now_ns)(void),
                        _Atomic uint32_t *yields)
{
    const bool yielded = c->yielding;
    if (yielded)
        yield_policy_count_call(c, yields);
    c->yielding = atomic_load_explicit(yields, memory_order_relaxed) != 0;
    if (c->yielding && !yielded) {
        c->calls = 0;
        c->lost_ns = 0;
    } else if (yielded && !c->yielding) {
        c->since_ns = now_ns();
        yield_policy_set_retry(c);
    } else if (!c->yielding && leads && now_ns() - c->since_ns >= c->retry_ns) {
        atomic_store_explicit(yields, 1, memory_order_relaxed);
    }
    return c->yielding;
}
