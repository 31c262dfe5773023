/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces in lists; see scratch.h.
 */
#include "scratch.h"

#include <stdlib.h>

/* Pieces below SCRATCH_LARGE are not kept; nor is more than SCRATCH_KEPT in all. */
enum { SCRATCH_ALIGN = 64, SCRATCH_LARGE = 4096, SCRATCH_KEPT = 64 << 20 };

struct scratch_piece {
    struct scratch_piece *next;
    size_t len;
    _Alignas(SCRATCH_ALIGN) char bytes[];
};

/* The smallest unused piece that is long enough, but not much longer. */
static struct scratch_piece *scratch_find(struct scratch_pool *pool, size_t len)
{
    struct scratch_piece **best = NULL;
    for (struct scratch_piece **at = &pool->unused; *at; at = &(*at)->next) {
        if ((*at)->len >= len && (*at)->len / 4 <= len && (!best || (*at)->len < (*best)->len))
            best = at;
    }
    if (!best)
        return NULL;
    struct scratch_piece *piece = *best;
    *best = piece->next;
    pool->len -= piece->len;
    return piece;
}

void *scratch_get(struct scratch_pool *pool, struct scratch_pieces *pieces, size_t len)
{
    struct scratch_piece *piece = len >= SCRATCH_LARGE ? scratch_find(pool, len) : NULL;
    if (!piece) {
        const size_t total = sizeof *piece + len + SCRATCH_ALIGN;
        if (total < len)
            return NULL;
        piece = aligned_alloc(SCRATCH_ALIGN, total & ~(size_t)(SCRATCH_ALIGN - 1));
        if (!piece)
            return NULL;
        piece->len = len;
    }
    piece->next = pieces->first;
    pieces->first = piece;
    return piece->bytes;
}

void scratch_release(struct scratch_pool *pool, struct scratch_pieces *pieces)
{
    for (struct scratch_piece *piece; (piece = pieces->first);) {
        pieces->first = piece->next;
        if (piece->len < SCRATCH_LARGE || pool->len + piece->len > SCRATCH_KEPT) {
            free(piece);
            continue;
        }
        piece->next = pool->unused;
        pool->unused = piece;
        pool->len += piece->len;
    }
}

void scratch_fini(struct scratch_pool *pool)
{
    while (pool->unused) {
        struct scratch_piece *piece = pool->unused;
        pool->unused = piece->next;
        free(piece);
    }
}
