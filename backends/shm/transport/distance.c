/* SPDX-License-Identifier: Apache-2.0
 *
 * See distance.h. Where there is no cheap clock, no rank is far.
 */
#include "transport/distance.h"

#include "group.h"
#include "transport/cma.h"

#include <string.h>

#define DISTANCE_READS 512u
#define DISTANCE_MEASURE_MIN 4096u
#define DISTANCE_SLOW_RUN 3u /* single reads may have been interrupted */
/* A read is slow below DISTANCE_SLOW_BYTES per DISTANCE_SLOW_CYCLES of the time stamp counter: 6 to
 * 8 GB/s on the machines of 2026, with the time in which the other core writes. */
#define DISTANCE_SLOW_BYTES 5u
#define DISTANCE_SLOW_CYCLES 2u

static void distance_publish(struct shm_group *g, uint32_t slow)
{
    atomic_store_explicit(&g->seg.processes[g->rank].reads_slowly, slow, memory_order_relaxed);
}

uint64_t distance_begin(void)
{
#ifdef __x86_64__
    return __builtin_ia32_rdtsc();
#else
    return 0;
#endif
}

void distance_end(struct shm_group *g, size_t len, uint64_t begun)
{
    struct distance *d = &g->distance;
    const uint64_t cycles = distance_begin() - begun;
    if (len < DISTANCE_MEASURE_MIN)
        return;
    d->slow = cycles * DISTANCE_SLOW_BYTES > len * DISTANCE_SLOW_CYCLES ? d->slow + 1 : 0;
    if (d->slow != DISTANCE_SLOW_RUN)
        return;
    d->reads = 0;
    distance_publish(g, 1);
}

void distance_copy_in(struct shm_group *g, void *dst, const void *src, size_t len)
{
    const uint64_t begun = len < DISTANCE_MEASURE_MIN ? 0 : distance_begin();
    if (len > 0)
        memcpy(dst, src, len);
    if (len >= DISTANCE_MEASURE_MIN)
        distance_end(g, len, begun);
}

bool distance_is_far(struct shm_group *g, uint32_t rank, size_t len)
{
    const struct process *p = &g->seg.processes[rank];
    return len >= DISTANCE_MIN_BYTES &&
           atomic_load_explicit(&p->reads_slowly, memory_order_relaxed) && cma_can_read(g, rank);
}

void distance_count_read(struct shm_group *g)
{
    struct distance *d = &g->distance;
    if (++d->reads < DISTANCE_READS)
        return;
    d->slow = DISTANCE_SLOW_RUN - 1; /* one slow read is enough then */
    d->reads = 0;
    distance_publish(g, 0);
}
