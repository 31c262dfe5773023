/* SPDX-License-Identifier: Apache-2.0
 *
 * See copy_policy.h.
 */
#include "transport/copy_policy.h"

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
