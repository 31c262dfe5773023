/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces in lists; see scratch.h.
 */
#include "scratch.h"

#include <stdlib.h>

/* Smaller pieces are not kept, nor is more than SCRATCH_KEPT in all. */
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

static void scratch_count_use(struct scratch_pool *pool, size_t len)
{
    pool->in_use += len;
    if (pool->in_use > pool->most)
        pool->most = pool->in_use < SCRATCH_KEPT ? pool->in_use : SCRATCH_KEPT;
}

/* Frees what was used longest ago, which is last in the list. */
static void scratch_trim(struct scratch_pool *pool)
{
    struct scratch_piece **at = &pool->unused;
    for (size_t kept = 0; *at && kept + (*at)->len <= pool->most; at = &(*at)->next)
        kept += (*at)->len;
    while (*at) {
        struct scratch_piece *piece = *at;
        *at = piece->next;
        pool->len -= piece->len;
        free(piece);
    }
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
    if (len >= SCRATCH_LARGE)
        scratch_count_use(pool, piece->len);
    piece->next = pieces->first;
    pieces->first = piece;
    return piece->bytes;
}

void scratch_release(struct scratch_pool *pool, struct scratch_pieces *pieces)
{
    for (struct scratch_piece *piece; (piece = pieces->first);) {
        pieces->first = piece->next;
        if (piece->len < SCRATCH_LARGE) {
            free(piece);
            continue;
        }
        pool->in_use -= piece->len;
        piece->next = pool->unused;
        pool->unused = piece;
        pool->len += piece->len;
    }
    scratch_trim(pool);
}

void scratch_fini(struct scratch_pool *pool)
{
    while (pool->unused) {
        struct scratch_piece *piece = pool->unused;
        pool->unused = piece->next;
        free(piece);
    }
}
