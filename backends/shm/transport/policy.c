/* SPDX-License-Identifier: Apache-2.0
 *
 * The measurements behind the choices of policy.h.
 */
#include "transport/policy.h"

#define WINDOW_BYTES (128u << 10)
/* A window is slow below SLOW_BYTES per SLOW_CYCLES: 6 GB/s on the machines of 2026, whose copies
 * reach 2 to 6 GB/s to a core far away, and 8 to 40 to a near one. */
#define SLOW_BYTES 5u
#define SLOW_CYCLES 2u
#define SLOW_RUN 2u
#define STREAMED_MIN (1u << 20)
#define STREAMED_MAX (32u << 20)
/* A trial: a lap over the memory that is written, in which its lines are in no cache and even a
 * near core takes up to COLD times as long; and some windows that count. */
#define LAP_BYTES (2u << 20)
#define COLD 2u
#define JUDGED_BYTES (4 * WINDOW_BYTES)
/* A copy that takes longer has been interrupted. */
#define CYCLES_PER_BYTE_MAX 8u

static void copy_policy_stream(struct copy_policy *p)
{
    const size_t twice = p->trial ? 2 * p->streamed : STREAMED_MIN;
    p->streamed = twice < STREAMED_MAX ? twice : STREAMED_MAX;
    p->left = p->streamed;
    p->streams = true;
    p->trial = false;
    p->slow = 0;
}

static void copy_policy_try_plain(struct copy_policy *p)
{
    p->streams = false;
    p->trial = true;
    p->left = LAP_BYTES + JUDGED_BYTES;
}

static void copy_policy_window(struct copy_policy *p)
{
    const bool cold = p->left > JUDGED_BYTES;
    const bool slow = (uint64_t)p->len * SLOW_CYCLES * (cold ? COLD : 1) < p->cycles * SLOW_BYTES;
    p->left -= p->left < p->len ? p->left : p->len;
    p->len = 0;
    p->cycles = 0;
    p->slow = slow ? p->slow + 1 : 0;
    if (p->slow >= SLOW_RUN)
        copy_policy_stream(p);
    else
        p->trial = p->left > 0;
}

void copy_policy_measured(struct copy_policy *p, size_t len, uint64_t cycles)
{
    if (p->streams && p->left > len) {
        p->left -= len;
    } else if (p->streams) {
        copy_policy_try_plain(p);
    } else if (cycles <= (uint64_t)len * CYCLES_PER_BYTE_MAX) {
        p->len += len;
        p->cycles += cycles;
        if (p->len >= WINDOW_BYTES)
            copy_policy_window(p);
    }
}

/* A message that is faster than those before shows what is possible, and
 * counts at once: the first ones touch new memory. One that was delayed counts in part, and at most
 * twice what was known before. */

enum remote_way remote_policy_choose(struct remote_policy *p)
{
    const uint32_t n = p->messages++;
    const uint64_t read = p->ns_per_mib[REMOTE_READ], blocks = p->ns_per_mib[REMOTE_BLOCKS];
    if (n < REMOTE_FIRST_TRIALS || read == 0 || blocks == 0)
        return n % 2 == 0 ? REMOTE_READ : REMOTE_BLOCKS;
    const enum remote_way faster = read <= blocks ? REMOTE_READ : REMOTE_BLOCKS;
    if (n % REMOTE_TRIAL_EVERY != 0)
        return faster;
    return faster == REMOTE_READ ? REMOTE_BLOCKS : REMOTE_READ;
}

void remote_policy_measured(struct remote_policy *p, enum remote_way way, size_t len, uint64_t ns)
{
    uint64_t *known = &p->ns_per_mib[way];
    uint64_t now = ns / (len >> 20) + 1;
    if (*known == 0 || now < *known)
        *known = now;
    if (now > 2 * *known)
        now = 2 * *known;
    *known = (3 * *known + now) / 4;
}

/* The choice between yielding and sleeping at once. */

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
