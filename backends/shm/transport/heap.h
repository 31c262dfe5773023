/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun_alloc: memory that the other ranks of the group read and write in place.
 *
 * - Every rank owns one window in the sparse end of the segment and hands out pages of it. Freed
 *   pages go back to the system at once.
 * - A peer maps a rank's window when it first receives a reference to it. Only the owner knows what
 *   is allocated; a peer uses references only while the call that carried them runs.
 * - valgrind refuses (EINVAL) to map a whole window. Then windows are smaller in this process: no
 *   more is allocated, and what a peer has beyond is an error.
 * - The two handles of a group share one heap, so references travel with collectives and with
 *   messages. Both may look up and map at the same time; only one at a time allocates and frees.
 */
#ifndef SHM_TRANSPORT_HEAP_H
#define SHM_TRANSPORT_HEAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct segment;
struct shm_group;

/* An address in the heap of the rank that sends it. */
struct heap_ref {
    uint64_t offset;
};
#define HEAP_REF_NONE ((struct heap_ref){UINT64_MAX})

static inline bool heap_ref_is_set(struct heap_ref ref)
{
    return ref.offset != UINT64_MAX;
}

struct heap_span {
    size_t offset, len;
};

struct heap {
    const struct segment *seg;
    /* Per rank; NULL until mapped. Set once, after the mapping; the other handle acquires it. */
    _Atomic(char *) *windows;
    /* HEAP_BYTES, or HEAP_LIMITED_BYTES once that could not be mapped. Relaxed: it stands alone;
     * the other handle, which finds the greater one, cannot map that either. */
    atomic_size_t window_bytes;
    struct heap_span *spans; /* what is allocated, sorted by offset */
    size_t nspans, capacity;
};

int heap_init(struct heap *h, const struct segment *seg, uint32_t nranks);
void heap_fini(struct heap *h, uint32_t nranks);

/* Both return a status; its error message is stored. */
int heap_alloc(struct shm_group *g, size_t len, void **ptr);
int heap_free(struct shm_group *g, void *ptr);

/* HEAP_REF_NONE unless the whole buffer lies in this rank's heap. */
struct heap_ref heap_find(const struct shm_group *g, const void *ptr, size_t len);

/* The address of `len` bytes of a rank's reference in this process; NULL, and the group has failed,
 * if it cannot be mapped or lies outside the heap. */
char *heap_at(struct shm_group *g, uint32_t rank, struct heap_ref ref, size_t len);

#endif
