/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun_alloc: memory that the other ranks of the group read where it lies. Every rank owns one
 * window of the shared segment's sparse end and hands out pages of it; peers map a rank's window
 * when they first meet a reference to it. Freed pages go back to the system at once. What is
 * allocated, only its owner knows; a peer sees references that are valid while the call that
 * carried them runs.
 *
 * A group's two handles share one heap, so references travel with collectives and with messages.
 * Both may look up and map at the same time; only one at a time allocates and frees.
 */
#ifndef SHM_HEAP_H
#define SHM_HEAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct segment;
struct shm_group;

/* A place in the heap of the rank that says it. */
struct heap_ref {
    uint64_t offset;
};
#define HEAP_NOWHERE ((struct heap_ref){UINT64_MAX})

struct heap_span {
    size_t offset, len;
};

struct heap {
    const struct segment *seg;
    _Atomic(char *) *windows; /* per rank; NULL until mapped */
    struct heap_span *spans;  /* what is allocated, by offset */
    size_t nspans, capacity;
};

int heap_init(struct heap *h, const struct segment *seg, uint32_t nranks);
void heap_fini(struct heap *h, uint32_t nranks);

/* Both return a status whose sentence is stored. */
int heap_alloc(struct shm_group *g, size_t len, void **ptr);
int heap_free(struct shm_group *g, void *ptr);

/* HEAP_NOWHERE unless the whole buffer lies in this rank's heap. */
struct heap_ref heap_find(const struct shm_group *g, const void *ptr, size_t len);

/* Where a rank's reference is in this process; NULL, and the group has failed, if it cannot be
 * mapped. */
char *heap_at(struct shm_group *g, uint32_t rank, struct heap_ref ref);

#endif
