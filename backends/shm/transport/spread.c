/* SPDX-License-Identifier: Apache-2.0
 *
 * Cores and affinity masks; see spread.h.
 */
#include "transport/spread.h"

#include <sched.h>

static uint32_t spread_core_of(const struct spread_core *cores, uint32_t rank)
{
    return atomic_load_explicit(&cores[rank].number, memory_order_relaxed);
}

void spread_publish(struct spread_core *cores, uint32_t rank)
{
    const uint32_t number = (uint32_t)(sched_getcpu() + 1); /* 0: the kernel does not say */
    if (spread_core_of(cores, rank) != number)
        atomic_store_explicit(&cores[rank].number, number, memory_order_relaxed);
}

bool spread_is_shared(const struct spread_core *cores, uint32_t nranks, uint32_t rank, bool lower)
{
    const uint32_t own = spread_core_of(cores, rank);
    for (uint32_t r = 0; own != 0 && r < (lower ? rank : nranks); r++)
        if (r != rank && spread_core_of(cores, r) == own)
            return true;
    return false;
}

bool spread_move(struct spread_core *cores, uint32_t nranks, uint32_t rank)
{
    cpu_set_t usable, others;
    if (sched_getaffinity(0, sizeof usable, &usable) != 0)
        return false;
    others = usable;
    for (uint32_t r = 0; r < nranks; r++) {
        const uint32_t number = spread_core_of(cores, r);
        if (number != 0 && number <= CPU_SETSIZE)
            CPU_CLR(number - 1, &others);
    }
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0)
        return false;
    sched_setaffinity(0, sizeof usable, &usable);
    spread_publish(cores, rank);
    return true;
}
