/* SPDX-License-Identifier: Apache-2.0
 *
 * What the members of a group share: one memory file, laid out the same way by every member from
 * the number of ranks alone. It arrives zeroed, and zero is every part's valid first state, so
 * nobody initialises and nobody waits. The file is sparse: only what is touched costs memory.
 *
 *   head | bells | posts | slots | boxes | rings | blocks | returned | heaps
 *
 *   head      how the group failed, how its waiters wait
 *   bells     where a rank sleeps when what it waits for takes long (wait.h)
 *   posts     per rank and step a slip: flag, signature, tiny payload of a collective (step.h)
 *   slots     per rank and step: short data of a collective (step.h)
 *   boxes     per ordered pair of ranks: a queue of slips, point to point control (mail.h)
 *   rings     per rank: the longer data (step.h)
 *   blocks    per rank: the point-to-point data it sends (p2p.h)
 *   returned  per rank: which of its blocks receivers have emptied
 *   heaps     per rank: collrun_alloc; mapped one by one, when first used (heap.h)
 */
#ifndef SHM_SEGMENT_H
#define SHM_SEGMENT_H

#include <collrun/backend.h>

#include <stdatomic.h>

#define LINE_BYTES 64u
#define STEP_LANES 4u
#define SLIP_BYTES (4 * LINE_BYTES)
#define PAYLOAD_BYTES 232u
#define SLOT_BYTES 2048u
#define RING_BYTES (2u << 20)
#define BOX_CELLS 32u
#define BLOCK_BYTES (32u << 10)
#define BLOCK_COUNT 64u
#define HEAP_BYTES (64ull << 30)
#define FAILURE_TEXT 448u

/* A place to sleep: `seq` is the futex, and whoever has news rings only if somebody sleeps. */
struct bell {
    _Alignas(LINE_BYTES) _Atomic uint32_t seq;
    _Atomic uint32_t sleepers;
};

enum failure_state { FAILURE_NONE, FAILURE_BEING_WRITTEN, FAILURE_SET };

/* The group's first failure; it stays. */
struct failure {
    _Alignas(LINE_BYTES) _Atomic uint32_t state; /* enum failure_state */
    int32_t status;                              /* enum collrun_status */
    char text[FAILURE_TEXT];
};

enum wait_mode { WAIT_UNDECIDED, WAIT_DEDICATED, WAIT_CROWDED };

struct segment_head {
    struct failure failure;
    _Alignas(LINE_BYTES) _Atomic uint32_t mode; /* enum wait_mode; the first member decides */
    struct bell steps;                          /* of all who wait for a step */
    /* Crowded groups count arrivals, so that one look tells and the last to come wakes all. */
    struct {
        _Alignas(LINE_BYTES) _Atomic uint32_t count;
    } arrived[STEP_LANES];
};

/* Posts and cells are slips of four neighbouring cache lines. Up to 40 bytes of payload share the
 * flag's own line; more is found without having to know the flag first. */

/* What a rank says in one step of a collective. */
struct post {
    _Alignas(SLIP_BYTES) _Atomic uint32_t seq; /* the step; written last */
    uint32_t at;        /* where the step's data is: enum post_place or a ring line */
    uint64_t signature; /* kind, dtype, operator, root (step.h) */
    uint64_t count;
    char payload[PAYLOAD_BYTES];
};

/* A message of point to point control. */
struct cell {
    _Alignas(SLIP_BYTES) _Atomic uint32_t seq; /* written last */
    uint8_t type, dtype, block, flags;
    uint32_t id, tag;
    uint64_t count;
    char payload[PAYLOAD_BYTES];
};

/* Cells from one rank to one other. */
struct box {
    struct cell cells[BOX_CELLS];
    _Alignas(LINE_BYTES) _Atomic uint32_t taken; /* how many the receiver has taken out */
};

/* A bit for each block of a sender that a receiver has emptied and nobody has collected yet. */
struct returned {
    _Alignas(LINE_BYTES) _Atomic uint64_t blocks;
};

struct segment {
    uint32_t nranks;
    int fd;
    char *base;
    size_t mapped; /* bytes at base: everything but the heaps */
    size_t heaps;  /* offset of the first heap in the file */
    struct segment_head *head;
    struct bell *bells;        /* [rank] */
    struct post *posts;        /* [lane][rank] */
    char *slots;               /* [rank][lane][SLOT_BYTES] */
    struct box *boxes;         /* [receiver][sender] */
    char *rings;               /* [rank][RING_BYTES] */
    char *blocks;              /* [rank][BLOCK_COUNT][BLOCK_BYTES] */
    struct returned *returned; /* [rank] */
};

/* Maps the group's segment. Returns a status whose sentence is stored. */
int segment_open(struct segment *seg, const struct collrun_group_desc *desc);
void segment_close(struct segment *seg);

/* Maps the heap of one rank; NULL with errno if the address space is used up. */
char *segment_map_heap(const struct segment *seg, uint32_t rank);
void segment_unmap_heap(char *heap);

#endif
