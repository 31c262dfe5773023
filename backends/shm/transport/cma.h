/* SPDX-License-Identifier: Apache-2.0
 *
 * Cross-memory attach: a rank copies from the memory of another one directly (process_vm_readv), so
 * that ordinary memory crosses in one copy.
 *
 * - Every rank publishes its process when it opens the group, and permits the others to read it
 *   where Yama asks for that (PR_SET_PTRACER), for good, unless the option `cma` is off.
 * - The first use tests whether the kernel permits it: it reads a random token that the other rank
 *   has published, so a process of another PID namespace is never mistaken for the rank. What Yama,
 *   seccomp, or a kernel without these calls refuses is no error: the caller copies through the
 *   segment.
 * - A rank of the same process (threads) is read in the same way. ThreadSanitizer would report a
 *   memcpy, since each rank maps the segment for itself and their order is not visible to it.
 * - The owner keeps the memory until it knows that it has been read, or that the group has failed.
 *   A read that ends after the group has failed is therefore never reported as done.
 * - The two handles of a group share one struct cma; both may use it at the same time.
 *
 * Cost: on the virtual machines of 2026 1.6 us for each call, then 13 GB/s, since the kernel finds
 * every page again; two copies through the cache reach 25 GB/s. So it pays for data that is longer
 * than the caches.
 */
#ifndef SHM_TRANSPORT_CMA_H
#define SHM_TRANSPORT_CMA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shm_group;

struct cma {
    uint64_t token; /* of this rank; its address is published */
    /* enum cma_access, per rank. Relaxed: it stands alone, and both handles find the same. */
    _Atomic uint8_t *access;
};

/* Returns a status. */
int cma_init(struct cma *c, uint32_t nranks);
void cma_fini(struct cma *c);

/* Publishes this rank's process; before its first step and message. */
void cma_publish(struct shm_group *g);

/* Whether this rank can read the memory of `rank`, which has opened the group. */
bool cma_can_read(struct shm_group *g, uint32_t rank);

/* Reads `len` bytes at the address `from` of `rank` into `to`. Returns a status: that of the group
 * if it has failed, else OK, with *moved bytes read from the start on. If these are less than
 * `len`, then the rest cannot be read: it has to be copied through the segment, and a process that
 * is gone, or memory that is not mapped, shows itself there. */
int cma_read(struct shm_group *g, uint32_t rank, void *to, uint64_t from, size_t len,
             size_t *moved);

#endif
