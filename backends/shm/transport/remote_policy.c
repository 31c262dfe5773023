/* SPDX-License-Identifier: Apache-2.0
 *
 * See remote_policy.h. A message that is faster than those before shows what is possible, and
 * counts at once: the first ones touch new memory. One that was delayed counts in part, and at most
 * twice what was known before.
 */
#include "transport/remote_policy.h"

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
