/* SPDX-License-Identifier: Apache-2.0
 *
 * How the ranks of an oversubscribed group (more ranks than cores) wait: whether they yield the
 * core before they sleep, or sleep at once. A yield runs another rank of the core within a
 * microsecond or two, while waking a rank that sleeps takes tens of them. But where other threads
 * compute on the same cores, a yield lets one of them run for a time slice of milliseconds; and on
 * an idle core, a rank that waits for long yields in vain.
 *
 * - So each rank counts the time that its yields lose. Ranks yield while that stays below
 *   YIELD_LOSS_NS for each call, about what a sleep and a wake-up take.
 * - If one of them loses more, all sleep at once: a rank that sleeps delays those that yield. Some
 *   time later their leader lets them yield again, to find out whether it still loses time: soon,
 *   since one slice of anything makes them sleep, and after twice the time whenever it does.
 */
#ifndef SHM_TRANSPORT_YIELD_POLICY_H
#define SHM_TRANSPORT_YIELD_POLICY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Numbers of calls over which the loss is counted, the first time and later. */
enum { YIELD_TRIAL = 32, YIELD_BLOCK = 512 };
#define YIELD_LOSS_NS 30000u
#define YIELD_RETRY_NS 1000000u /* at first, and at most: */
#define YIELD_RETRY_MOST_NS 200000000u

struct yield_policy {
    bool yielding;     /* at the last call */
    uint32_t calls;    /* since ranks began to yield */
    uint64_t lost_ns;  /* in this trial or block; the owner adds to it */
    uint64_t since_ns; /* when ranks began to sleep at once, */
    uint64_t retry_ns; /* and how long they do; 0: they have not yet */
};

/* To be called at each call of the group. True if its waits yield. *yields, 0 at first, is shared
 * by the ranks that wait alike; one of them leads. It is relaxed: a rank that misses a change waits
 * once more as before, which is right, too. `now_ns` is called while ranks sleep at once. */
bool yield_policy_begin(struct yield_policy *c, bool leads, uint64_t (*now_ns)(void),
                        _Atomic uint32_t *yields);

#endif
