/* SPDX-License-Identifier: Apache-2.0
 *
 * struct scratch_pool: scratch memory of the operations of a group. Large pieces are kept when an
 * operation ends, because fresh memory from the system costs a page fault for each 4 KiB: as many
 * bytes as were in use at a time, those that were used last.
 */
#ifndef NET_SCRATCH_H
#define NET_SCRATCH_H

#include <stddef.h>

struct scratch_piece;

/* The pieces of one operation. */
struct scratch_pieces {
    struct scratch_piece *first;
};

struct scratch_pool {
    struct scratch_piece *unused;
    size_t len;          /* bytes of `unused`; of large pieces, as all here: */
    size_t in_use, most; /* at present, and the most until now */
};

/* Aligned to 64 bytes; not initialised. NULL: out of memory. */
void *scratch_get(struct scratch_pool *pool, struct scratch_pieces *pieces, size_t len);
/* The operation ends. */
void scratch_release(struct scratch_pool *pool, struct scratch_pieces *pieces);
void scratch_fini(struct scratch_pool *pool);

#endif
