/* SPDX-License-Identifier: Apache-2.0
 *
 * The step: what every collective of this backend is made of. In a step each rank posts one slip
 * (segment.h), with data beside it if there is any, and then waits for the posts of all others. All
 * members take the same steps, so steps are simply numbered; there are no other flags, counters or
 * acknowledgements.
 *
 * The rule that makes memory reusable: whoever posts step s has read everything of steps <= s - 2.
 * A collective may thus post one step ahead of the one it reads. Consequently a rank that has
 * waited for step s - 2 may overwrite all that was posted in steps <= s - 4: posts rotate
 * through four lanes, and so do the slots for short data; the ring holds that of four steps.
 *
 * A rank's four slots and those of a peer fit the first-level cache together. A slot's address
 * follows from rank and step, so a reader's CPU need not see the post before it asks for the data.
 *
 * The ring is used cyclically, not by lanes. Storing to lines that the readers' caches still
 * hold costs four times what it costs once they have been evicted, so the part of the ring in use
 * grows with the traffic, up to twice a second-level cache.
 *
 * Nobody reads a line of its own posts again: once others have read it, that costs as much as
 * reading theirs.
 *
 * The first step of every collective carries its signature, and nothing is delivered before all
 * have been compared.
 */
#ifndef SHM_STEP_H
#define SHM_STEP_H

#include "group.h"

/* post.at, unless it is the number of a line of the ring. */
enum post_place {
    POST_NOTHING = UINT32_MAX,
    POST_INLINE = UINT32_MAX - 1, /* in the payload */
    POST_SLOT = UINT32_MAX - 2,   /* in the step's slot */
    POST_DIRECT = UINT32_MAX - 3  /* in the sender's heap; the payload is a struct heap_ref */
};

/* The longest data of one step. */
#define RING_SHARE                                                                                 \
    8u /* of the part of the ring in use, at most one in so many belongs to one step */
#define STEP_MOST (RING_BYTES / RING_SHARE)

struct signature {
    uint64_t what; /* kind, dtype, operator, root; see signature_of */
    uint64_t count;
};

/* Room for `len` bytes of the next step's data, at most STEP_MOST: in the post itself if it fits
 * there, else in the slot, else in the ring. */
char *step_room(struct shm_group *g, size_t len);

/* Instead: the next step's data lies in this rank's heap. */
void step_refer(struct shm_group *g, struct heap_ref ref);

/* Adds at most PAYLOAD_BYTES to the next post, whose data step_room has not placed inline. */
void step_note(struct shm_group *g, const void *note, size_t len);

/* Posts the next step, with what step_room or step_refer prepared. `s` is NULL in all but a call's
 * first step. */
void step_post(struct shm_group *g, const struct signature *s);

/* Waits for everybody's post of `step`. */
int step_wait(struct shm_group *g, uint64_t step);

static inline const struct post *step_post_of(const struct shm_group *g, uint32_t rank,
                                              uint64_t step)
{
    return &g->seg.posts[(size_t)(step % STEP_LANES) * g->nranks + rank];
}

/* Where a rank's data of POST_SLOT lies. */
static inline char *step_slot(const struct shm_group *g, uint32_t rank, uint64_t step)
{
    return g->seg.slots + ((size_t)rank * STEP_LANES + step % STEP_LANES) * SLOT_BYTES;
}

/* The data of a rank's post (not of POST_DIRECT). */
static inline const char *step_data(const struct shm_group *g, uint32_t rank, uint64_t step)
{
    const struct post *p = step_post_of(g, rank, step);
    if (p->at == POST_INLINE)
        return p->payload;
    if (p->at == POST_SLOT)
        return step_slot(g, rank, step);
    return g->seg.rings + (size_t)rank * RING_BYTES + (size_t)p->at * LINE_BYTES;
}

/* What a kind's signature consists of. */
bool kind_reduces(enum collrun_kind kind);
bool kind_has_root(enum collrun_kind kind);
bool kind_is_uneven(enum collrun_kind kind); /* the forms with a count per rank */

/* What must be the same on all ranks. The count of uneven kinds is 0: those are compared pair by
 * pair. */
struct signature signature_of(const struct collrun_call *call);

/* Compares everybody's signature in `step`, the call's first; MISMATCH with both calls in the
 * sentence. */
int step_check(struct shm_group *g, uint64_t step, const struct signature *mine);

#endif
