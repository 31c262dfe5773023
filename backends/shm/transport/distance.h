/* SPDX-License-Identifier: Apache-2.0
 *
 * How far apart the cores of two ranks are. Where they share a cache, data that one core has
 * written reaches the other one at 25 GB/s, and two copies through the segment, in parts, are
 * faster than one copy by the kernel (cma.h). Where they do not, or where other virtual machines
 * use the same cores, each line takes 100 ns, and one copy from where the data already was is
 * several times as fast. No topology that a virtual machine reports shows that, and it changes
 * while a job runs.
 *
 * - So each rank measures how fast it reads what others have just written, and publishes whether
 *   that is slow (struct process). The sender asks: distance_is_far.
 * - While a rank's reads are slow, nothing long is read from the segment. After DISTANCE_READS it
 *   withdraws its verdict, and measures again.
 */
#ifndef SHM_TRANSPORT_DISTANCE_H
#define SHM_TRANSPORT_DISTANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shm_group;

/* Shorter data passes through the segment, wherever the ranks are. */
#define DISTANCE_MIN_BYTES (16u << 10)

struct distance {
    uint32_t slow;  /* reads in a row that were slow */
    uint32_t reads; /* of the memory of other ranks, since the verdict was published */
};

/* Around a read of `len` bytes that another rank has written into the segment; `begun` is from
 * distance_begin. */
uint64_t distance_begin(void);
void distance_end(struct shm_group *g, size_t len, uint64_t begun);

/* Copies what another rank has written into the segment. */
void distance_copy_in(struct shm_group *g, void *dst, const void *src, size_t len);

/* True if `rank` should read `len` bytes from this rank's memory, and can. */
bool distance_is_far(struct shm_group *g, uint32_t rank, size_t len);

/* This rank has read DISTANCE_MIN_BYTES or more from another rank's memory, on that one's advice.
 */
void distance_count_read(struct shm_group *g);

#endif
