/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds of messages: what an emulated collective consists of. The messages of a round are one call
 * of the backend, so they progress together and cannot block each other.
 */
#ifndef ENGINE_OPS_EMULATE_MOVE_H
#define ENGINE_OPS_EMULATE_MOVE_H

#include <collrun/types.h>

struct memory_kind;
struct progress_queue;

struct block {
    void *bytes;
    size_t len;
};

enum { EMULATE_SCRATCH = 8 };

/* One emulated collective on this rank. */
struct emulation {
    struct progress_queue *pq;       /* of the collective; owned */
    struct progress_queue *p2p;      /* of its messages: the same, or one to be acquired */
    const struct collrun_call *call; /* the first of `ndevices`, one for each device here */
    uint32_t ndevices;               /* without devices: 1 */
    const uint32_t *world_rank;      /* by rank in the group; borrowed */
    uint32_t me, n;
    size_t es; /* bytes of an element */
    uint64_t deadline_ns;
    uint64_t stopped_ns; /* how long the process had stood still when the deadline was set */
    struct collrun_call *messages; /* of this round; room for 2n */
    uint32_t nmessages;
    struct memory_kind *kind; /* whose host memory messages need; NULL: any */
    struct block scratch[EMULATE_SCRATCH];
    uint32_t nscratch;
};

/* The call of a device of this process; without devices, the one call. */
static inline const struct collrun_call *emulate_call(const struct emulation *e, uint32_t device)
{
    uint32_t i = 0;
    while (i + 1 < e->ndevices && (uint32_t)e->call[i].device != device)
        i++;
    return &e->call[i];
}

/* Adds a message to the round; of 0 bytes: adds nothing. */
void emulate_add_send(struct emulation *e, uint32_t peer, const void *bytes, size_t len);
void emulate_add_recv(struct emulation *e, uint32_t peer, void *bytes, size_t len);
/* Executes the round; blocks. On failure the cause is stored. */
int emulate_exchange(struct emulation *e);

/* Memory until the end of the collective, at most EMULATE_SCRATCH times. NULL: out of memory, and
 * the cause is stored. */
void *emulate_scratch(struct emulation *e, size_t len);
/* Gives it all back, at the end. After a failure a device may still write to it, so it is lost. */
void emulate_scratch_drop(struct emulation *e, int status);

void emulate_copy(void *to, const void *from, size_t len); /* nothing if they are the same */

/* A buffer cut into one block per rank: equal ones, or those of a v-form. */
struct cut {
    const void *base;
    size_t equal;                  /* elements, if counts is NULL */
    const size_t *counts, *displs; /* displs NULL = packed */
};

struct block emulate_block_of(const struct emulation *e, const struct cut *c, uint32_t rank);

/* ---- operations that only move data ---- */

/* Emulated collectives that only move data. Each returns a status; on failure the cause is stored.
 */

int emulate_barrier(struct emulation *e);
int emulate_broadcast(struct emulation *e);
/* Each rank has one block; all ranks get all blocks. */
int emulate_all_gather(struct emulation *e, const void *mine, const struct cut *into);
int emulate_gather(struct emulation *e, const void *mine, size_t len, const struct cut *into,
                   uint32_t root);
int emulate_scatter(struct emulation *e, const struct cut *from, void *mine, size_t len,
                    uint32_t root);
int emulate_all_to_all(struct emulation *e, struct cut from, const struct cut *into);

#endif
