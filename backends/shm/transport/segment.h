/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared memory of a group: a part of the host's memory file, which every member lays out in
 * the same way from the number of ranks alone.
 *
 *   head | returned | doorbells | processes | cores | step_recs | slots ||
 *   rings || fifos | written | blocks || ... || heaps
 *
 *   head       how the group failed, how its ranks wait
 *   returned   per handle and rank: which of its blocks receivers have read
 *   doorbells  per handle and rank: where it sleeps (doorbell.h)
 *   processes  per rank: its process, whose memory others may read (cma.h)
 *   cores      per rank: where it waits (spread.h)
 *   step_recs  per step and rank: flag, signature and tiny payload of a collective (coll/step.h)
 *   slots      per rank and step: short data of a collective (coll/step.h)
 *   rings      per rank: longer data of a collective (coll/step.h)
 *   fifos      per handle and ordered pair of ranks: packets of messages (fifo.h)
 *   written    per handle, rank and block: how much of it can be read already (p2p.h)
 *   blocks     per handle and rank: point-to-point data that it sends (p2p.h)
 *   heaps      per rank: collrun_alloc
 *
 * - Both handles of a group use one segment: the second one for messages alone.
 * - A member maps what is left of the first || when the group opens: a few KiB for each rank. It
 *   maps the rings before the first collective that may need them, fifos and blocks of a handle
 *   before its first message, and heaps one by one (heap.h).
 * - The memory arrives zeroed, and zero is the valid first state of every part: no member has to
 *   initialise it, or to wait for one that does.
 * - The file is sparse: only pages that are touched cost memory.
 */
#ifndef SHM_TRANSPORT_SEGMENT_H
#define SHM_TRANSPORT_SEGMENT_H

#include <collrun/backend.h>

#include <stdatomic.h>
#include <stdbool.h>

#define SEGMENT_MAX_RANKS 2048u
#define LINE_BYTES 64u
#define SEGMENT_HANDLES 2u /* of a group: collectives, messages */
/* Steps whose records exist at the same time, and slots for their data: powers of two. With many, a
 * rank that does not have to wait can be far ahead. If ranks share cores, by hundreds of calls:
 * each time that it has to wait, the kernel switches between ranks. Few stay in a first-level
 * cache. */
#ifndef STEP_DEPTH
#define STEP_DEPTH 64u
#define STEP_DEPTH_OVERSUBSCRIBED 1024u /* at most: see segment_set_depth */
#define SLOT_COUNT 8u
#define SLOT_COUNT_OVERSUBSCRIBED 64u
#endif
#define STEP_RECORDS_OVERSUBSCRIBED 4096u  /* of all ranks: 1 MiB, as a second-level cache; */
#define STEP_DEPTH_OVERSUBSCRIBED_MIN 128u /* but so many in any case */
#define STEP_DEPTH_LARGE 16u               /* of groups of more ranks than */
#define STEP_DEPTH_MAX_RANKS 64u           /* which also have the lower number of slots */
#define RECORD_BYTES (4 * LINE_BYTES)
#define PAYLOAD_BYTES 232u
#define SLOT_BYTES 2048u
#define RING_BYTES (2u << 20)
#define FIFO_PACKETS 32u
#define BLOCK_BYTES (32u << 10)
#define BLOCK_COUNT 64u
#define HEAP_BYTES (64ull << 30)
/* How much of it is mapped in a process that cannot map so much at once, as under valgrind. */
#define HEAP_LIMITED_BYTES (4ull << 30)
#define FAILURE_TEXT 448u

/* Where ranks sleep: `seq` is the futex; a rank that wakes others does so only if `sleepers` > 0.
 * It may load that relaxed, and miss a rank that has just announced its sleep: wait.h bounds the
 * harm.
 */
struct doorbell {
    _Alignas(LINE_BYTES) _Atomic uint32_t seq;
    _Atomic uint32_t sleepers;
    _Atomic uint32_t elsewhere; /* 1: a sleeper that does not wait for `seq` (embed.h) */
};

enum failure_state { FAILURE_NONE, FAILURE_BEING_WRITTEN, FAILURE_SET };

/* The group's first failure. It is never overwritten. */
struct failure {
    _Alignas(LINE_BYTES) _Atomic uint32_t state; /* enum failure_state */
    int32_t status;                              /* enum collrun_status */
    char text[FAILURE_TEXT];
};

enum wait_mode {
    WAIT_UNDECIDED,
    WAIT_DEDICATED,
    WAIT_OVERSUBSCRIBED,
    WAIT_FEW_CORES /* oversubscribed, and at most two cores */
};

struct segment_head {
    struct failure failure;
    _Alignas(LINE_BYTES) _Atomic uint32_t mode; /* enum wait_mode; the first member decides */
    _Atomic uint32_t
        oversubscribed_yields;     /* for collectives of an oversubscribed group (policy.h) */
    struct doorbell step_doorbell; /* of all ranks that wait for a step */
    /* Oversubscribed groups count arrivals: one load shows whether a step is complete, and only the
     * last rank to arrive wakes the others. */
    struct {
        _Alignas(LINE_BYTES) _Atomic uint32_t count;
    } arrived[STEP_DEPTH_OVERSUBSCRIBED];
};

/* Step records and packets take four neighbouring cache lines. Up to 40 bytes of payload share the
 * line of the flag; the rest is found without knowing the flag first. */

/* Among `count` places that are used in turn, a power of two, the one of the `n`th use: in Gray's
 * order, so that those of uses one after the other lie at changing distances. With constant ones
 * the reader's CPU would fetch the next place early, and take the line from the rank that is
 * about to write it: short operations between far cores then take twice as long. */
static inline size_t segment_turn(uint64_t n, uint32_t count)
{
    const size_t turn = n & (count - 1);
    return turn ^ turn >> 1;
}

/* What a rank publishes in one step of a collective. */
struct step_rec {
    /* The step. Released last, after the rest and the step's data; acquired by those that wait. */
    _Alignas(RECORD_BYTES) _Atomic uint32_t seq;
    uint32_t location;  /* of the step's data: STEP_... or a line of the ring */
    uint64_t signature; /* kind, dtype, operator, root (coll/signature.h) */
    uint64_t count;
    char payload[PAYLOAD_BYTES];
};

/* A packet of a message (p2p.h). */
struct packet {
    _Atomic uint32_t seq; /* released last, after the rest; acquired by the receiver */
    uint8_t type, dtype, flags;
    union {
        uint8_t block;       /* the block that belongs to the packet, or NO_BLOCK */
        uint8_t payload_len; /* of an RTS with a payload */
    };
    uint32_t id, tag;
    uint64_t count;
    union {
        char payload[PAYLOAD_BYTES];
        struct {          /* of an RTS with blocks */
            uint32_t at;  /* where in the first one the message begins */
            uint32_t len; /* bytes of the message in all of them */
        };
    };
};

/* Packets from one rank to one other. */
struct fifo {
    _Alignas(RECORD_BYTES) struct packet packets[FIFO_PACKETS];
    /* Packets that the receiver has taken out. Released after it has read them; the sender acquires
     * it before it writes there again. */
    _Alignas(LINE_BYTES) _Atomic uint32_t popped;
};

/* Bytes of a message that are in the block and those behind it, while they are written (RTS_PARTS).
 * Released after each part, which the receiver acquires; reset before the RTS. */
struct written {
    _Alignas(LINE_BYTES) _Atomic uint32_t len;
};

/* A bit for each block of a sender that a receiver has read and the sender has not taken back. The
 * receiver releases it after its reads; the sender acquires it before it writes there again. */
struct returned {
    _Alignas(LINE_BYTES) _Atomic uint64_t blocks;
};

/* The process of a rank, as cma.h finds it. */
struct process {
    _Atomic uint32_t pid; /* released last, after the token; 0: not known yet */
    uint64_t token;       /* the value that lies at `token_at` in the process */
    uint64_t token_at;
    /* 1: the rank has aborted the group, and uses its memory again. Stored before its calls end;
     * acquired after its memory was read. */
    _Atomic uint32_t aborted;
};

struct spread_core;

struct segment {
    uint32_t nranks, handle; /* handle 1: the second one of the group */
    int fd;                  /* borrowed, as is what is mapped at `base` of handle 1 */
    char *base;
    size_t base_len;
    uint64_t rings_at, messages_at, heaps_at; /* in the file */
    struct segment_head *head;
    struct returned *returned;  /* [rank] */
    struct doorbell *doorbells; /* [rank]; those of both handles begin at all_doorbells */
    struct doorbell *all_doorbells;
    struct process *processes;  /* [rank] */
    struct spread_core *cores;  /* [rank] */
    struct step_rec *step_recs; /* [step % depth][rank] */
    char *slots;                /* [rank][step % nslots][SLOT_BYTES] */
    uint32_t depth, nslots;
    char *rings;        /* [rank][RING_BYTES]; NULL: not mapped */
    struct fifo *fifos; /* [receiver][sender]; NULL: not mapped */
    /* Both are mapped with the FIFOs: */
    struct written *written; /* [rank][BLOCK_COUNT] */
    char *blocks;            /* [rank][BLOCK_COUNT][BLOCK_BYTES] */
};

/* Gets and maps the group's segment; `first` is that of the group's first handle, NULL for this
 * one. Returns a status; its error message is stored. */
int segment_open(struct segment *seg, const struct segment *first,
                 const struct collrun_group_desc *desc);
void segment_close(struct segment *seg);

/* To be called before the first step, with the same value in all members. */
void segment_set_depth(struct segment *seg, bool oversubscribed);

/* Both map what is not mapped yet. False, with errno: the address space is used up. */
bool segment_map_rings(struct segment *seg);
bool segment_map_messages(struct segment *seg);

/* Maps the first bytes of the heap of one rank; NULL with errno if the address space is used up. */
char *segment_map_heap(const struct segment *seg, uint32_t rank, size_t len);
void segment_unmap_heap(char *heap, size_t len); /* NULL-safe */

#endif
