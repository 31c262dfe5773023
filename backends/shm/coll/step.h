/* SPDX-License-Identifier: Apache-2.0
 *
 * The step: the one building block of all collectives here. In a step each rank publishes one
 * record (segment.h), with data beside it if there is any, and then waits for the records of all
 * others. All members take the same steps, so steps are simply numbered. There are no other flags,
 * counters or acknowledgements.
 *
 * A rank that needs nothing of others (the root of a broadcast, a leaf of a reduce) does not wait:
 * its call returns once it has published. A rank that needs the data of one rank waits for that one
 * alone. The rules that make memory reusable:
 * - A rank that publishes step s has compared the signatures of all ranks in steps <= s -
 *   STEP_LEAD, so it is at most so far ahead of the others. A rank that has waited for step s -
 *   STEP_LEAD may thus overwrite its record of step s - depth (segment.h). step_begin waits if that
 *   is necessary.
 * - A rank that publishes step s has read the data of steps <= s - 2. A collective may thus publish
 *   one step ahead of the one it reads. Consequently a rank that has waited for step s - 2 may
 *   overwrite the data of steps <= s - 4: the ring holds the data of four steps. A rank that does
 *   not wait can be ahead: there are `nslots` slots for short data, and the ring holds more steps
 *   if they are short (step_lead_with_ring).
 *
 * Layout, for speed:
 * - A rank's four slots and those of a peer fit the first-level cache together. The address of a
 *   slot follows from rank and step, so a reader's CPU can fetch the data before it sees the
 *   record.
 * - The ring is used cyclically, not by step number. Storing to lines that the readers' caches
 *   still hold costs four times what it costs once they have been evicted, so the part of the ring
 *   in use grows with the traffic, up to twice a second-level cache.
 * - A rank never reads its published records again: once others have read a line, that costs as
 *   much as reading theirs. It takes the lines of a record back two steps before it writes them.
 *
 * The first step of every collective carries its signature. A rank delivers nothing before it has
 * compared the signatures of all ranks whose data it delivers, of this call and of all before. It
 * compares those of the others when it waits for them, in this call or in one of the next
 * STEP_LEAD.
 */
#ifndef SHM_COLL_STEP_H
#define SHM_COLL_STEP_H

#include "coll/signature.h"
#include "group.h"

/* step_rec.location, unless it is the number of a line of the ring. */
#define STEP_NO_DATA UINT32_MAX
#define STEP_IN_PAYLOAD (UINT32_MAX - 1) /* in the record itself */
#define STEP_IN_SLOT (UINT32_MAX - 2)    /* in the slot of the step */
#define STEP_IN_HEAP (UINT32_MAX - 3) /* in the sender's heap; the payload is a struct heap_ref */

/* One step's data takes at most this part of the ring in use: */
#define STEP_RING_PARTS 8u
#define STEP_MAX_BYTES (RING_BYTES / STEP_RING_PARTS)

/* How many steps a rank may be ahead of the slowest one that it has not waited for: at all, with
 * data in a slot, and with `len` bytes in the ring, at most STEP_MAX_BYTES. */
#define STEP_LEAD(g) ((g)->seg.depth / 2)
#define STEP_LEAD_WITH_SLOT(g) ((g)->seg.nslots - 2)
uint32_t step_lead_with_ring(const struct shm_group *g, size_t len);

/* To be called before the first step of a call: waits until this rank is fewer than `lead` steps
 * ahead of all others. Returns a status. */
int step_begin(struct shm_group *g, uint32_t lead);

/* Returns room for `len` bytes of the next step's data, at most STEP_MAX_BYTES: in the record
 * itself if they fit there, else in the slot, else in the ring. */
char *step_reserve(struct shm_group *g, size_t len);

/* Instead of step_reserve: the next step's data lies in this rank's heap. */
void step_set_heap_ref(struct shm_group *g, struct heap_ref ref);

/* Writes at most PAYLOAD_BYTES into the next record, whose data step_reserve has not placed there.
 */
void step_write_payload(struct shm_group *g, const void *payload, size_t len);

/* Publishes the next step with what was prepared above. `s` is NULL in all but a call's first step.
 */
void step_publish(struct shm_group *g, const struct signature *s);

/* Wakes ranks that wait for this rank alone, by step_wait_for. */
void step_wake(struct shm_group *g);

/* Waits for the records of all ranks in `step`. MISMATCH if a signature differs, in this step or in
 * an earlier one that this rank has not waited for. */
int step_wait(struct shm_group *g, uint64_t step);

/* The same for the record of one rank, in the last step that this rank has published. */
int step_wait_for(struct shm_group *g, uint32_t rank);

/* Among the records, signatures and arrival counters of the steps that exist at the same time. */
static inline size_t step_index(const struct shm_group *g, uint64_t step)
{
    return segment_turn(step, g->seg.depth);
}

static inline const struct step_rec *step_rec_of(const struct shm_group *g, uint32_t rank,
                                                 uint64_t step)
{
    return &g->seg.step_recs[step_index(g, step) * g->nranks + rank];
}

/* Where a rank's data of STEP_IN_SLOT lies. */
static inline char *step_slot(const struct shm_group *g, uint32_t rank, uint64_t step)
{
    return g->seg.slots +
           ((size_t)rank * g->seg.nslots + segment_turn(step, g->seg.nslots)) * SLOT_BYTES;
}

/* The data of a rank's step (not of STEP_IN_HEAP), of which the caller reads the first `len` bytes
 * or some of them. If the record is damaged, it lies somewhere in the segment. */
static inline const char *step_data(const struct shm_group *g, uint32_t rank, uint64_t step,
                                    size_t len)
{
    const struct step_rec *rec = step_rec_of(g, rank, step);
    const uint32_t location = rec->location;
    if (location == STEP_IN_PAYLOAD && len <= PAYLOAD_BYTES)
        return rec->payload;
    if (len <= SLOT_BYTES && (location == STEP_IN_SLOT || !g->seg.rings))
        return step_slot(g, rank, step);
    const size_t at = (size_t)location * LINE_BYTES;
    return g->seg.rings + (size_t)rank * RING_BYTES + (at + len <= RING_BYTES ? at : 0);
}

/* Ends a call in which ranks have read memory of others in place: a step which confirms that no
 * rank reads it any more. If a rank whose memory was read has aborted the group, what was read
 * counts for nothing, and this rank waits for it. Returns a status. */
int step_end_direct(struct shm_group *g);

#endif
