/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes: one queue of slips per ordered pair of ranks, one writer and one reader. A cell's
 * number is stored last and makes it valid; the reader counts what it has taken, which the writer
 * looks at only when the box seems full. What the cells mean is p2p.c's business.
 */
#ifndef SHM_MAIL_H
#define SHM_MAIL_H

#include "group.h"

static inline struct box *mail_box(const struct shm_group *g, uint32_t to, uint32_t from)
{
    return &g->seg.boxes[(size_t)to * g->nranks + from];
}

/* The next free cell of the box to `peer`, to be filled in and then sent; NULL if the box is full.
 */
static inline struct cell *mail_room(struct shm_group *g, uint32_t peer)
{
    struct mail_side *side = &g->p2p.sides[peer];
    struct box *box = mail_box(g, peer, g->rank);
    if (side->put - side->seen_taken == BOX_CELLS) {
        side->seen_taken = atomic_load_explicit(&box->taken, memory_order_acquire);
        if (side->put - side->seen_taken == BOX_CELLS)
            return NULL;
    }
    return &box->cells[side->put % BOX_CELLS];
}

static inline void mail_send(struct shm_group *g, uint32_t peer, struct cell *cell)
{
    struct mail_side *side = &g->p2p.sides[peer];
    side->ring_due = true;
    atomic_store_explicit(&cell->seq, ++side->put, memory_order_release);
}

/* The oldest cell from `peer`, or NULL; valid until mail_take. */
static inline const struct cell *mail_peek(const struct shm_group *g, uint32_t peer)
{
    const uint32_t got = g->p2p.sides[peer].got;
    const struct cell *cell = &mail_box(g, g->rank, peer)->cells[got % BOX_CELLS];
    return atomic_load_explicit(&cell->seq, memory_order_acquire) == got + 1 ? cell : NULL;
}

static inline void mail_take(struct shm_group *g, uint32_t peer)
{
    struct mail_side *side = &g->p2p.sides[peer];
    side->ring_due = true;
    atomic_store_explicit(&mail_box(g, g->rank, peer)->taken, ++side->got, memory_order_release);
}

#endif
