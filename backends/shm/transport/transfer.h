/* SPDX-License-Identifier: Apache-2.0
 *
 * struct transfer: one message in this rank, as its sender or as its receiver. A transfer is
 * scheduled while it has a packet to send. Handling an incoming packet changes transfers and may
 * schedule them, but sends nothing: so packets leave in one place (p2p.c), as many at a time as
 * FIFOs and free blocks allow.
 */
#ifndef SHM_TRANSPORT_TRANSFER_H
#define SHM_TRANSPORT_TRANSFER_H

#include "group.h"

#define NO_BLOCK UINT8_MAX
/* A message of up to this length leaves at the call; of a longer one, so much of it does. */
#ifndef EAGER_BLOCKS
#define EAGER_BLOCKS 8u
#endif
#define EAGER_BYTES (EAGER_BLOCKS * BLOCK_BYTES)
/* In flight at a time: most of those that are used in turn (sender.c). */
#define BLOCKS_PER_MESSAGE 28
/* The first part of what comes with an RTS: little time passes before it is written. */
#define PART_BYTES_FIRST 4096u
/* The receiver may read a message of this length itself. For shorter ones two copies through a
 * cache are faster, and the sender does not have to wait for a receiver that shares its core. */
#define REMOTE_MIN_BYTES (4u << 20)

enum packet_type { PKT_RTS, PKT_CTS, PKT_FRAG, PKT_FIN, PKT_ACK };
/* What an RTS carries: INLINE, data in its payload; DIRECT, a heap_ref; WHOLE, all of the message;
 * REMOTE, the address of the message in the sender's memory; PARTS, blocks that are being written.
 */
enum rts_flags { RTS_INLINE = 1, RTS_DIRECT = 2, RTS_WHOLE = 4, RTS_REMOTE = 8, RTS_PARTS = 16 };
enum ack_flags { ACK_LAST = 1 };

/* The payload of a CTS. */
struct cts {
    uint64_t blocks;     /* these are free again */
    struct heap_ref ref; /* write the rest here; or HEAP_REF_NONE: send it in blocks */
    uint64_t moved;      /* bytes that the receiver has read itself, of a REMOTE message */
};

enum transfer_state {
    SEND_NEW,       /* sends RTS */
    SEND_ANNOUNCED, /* waits for CTS or the last ACK */
    SEND_STREAMS,   /* sends FRAGs */
    SEND_WRITES,    /* writes into the receiver's heap, then sends FIN */
    SEND_FLUSHED,   /* waits for the last ACK */
    RECV_POSTED,    /* not matched */
    RECV_READS,     /* reads the sender's memory */
    RECV_MATCHED,   /* sends CTS */
    RECV_PARTS,     /* takes what came with the RTS, while it is written */
    RECV_STREAMS,   /* takes FRAGs or FIN, sends ACKs */
    RECV_COMPLETE,  /* sends the last ACK */
};

/* Receiver: what came with the RTS in blocks. */
struct early {
    uint32_t block, at; /* where it begins; at: in that block */
    uint32_t len;       /* bytes; 0: nothing */
    bool in_parts;      /* it may still be written */
};

struct transfer {
    struct collrun_message message; /* first: the engine's part */
    size_t moved;                   /* bytes put into blocks, or taken out of them */
    uint32_t peer_id;               /* the message's id at the peer, once known */
    enum transfer_state state;
    uint64_t blocks; /* sender: in flight; receiver: to be acknowledged */
    struct heap_ref ref;
    struct early early;
    uint64_t remote;   /* receiver: the address of a REMOTE message, */
    uint64_t begun_ns; /* and when it began to take the message; 0: that is not measured */
    enum remote_way way;
    bool scheduled;
    struct transfer *next, *prev; /* among the scheduled ones */
};

static inline bool transfer_is_send(const struct transfer *t)
{
    return t->state <= SEND_FLUSHED;
}

void transfer_schedule(struct p2p *p, struct transfer *t);
void transfer_unschedule(struct p2p *p, struct transfer *t);
/* The transfer is the engine's again. */
/* Its RTS has left without the whole message: it waits for CTS or the last ACK. */
void transfer_announced(struct p2p *p, struct transfer *t);
void transfer_done(struct p2p *p, struct transfer *t);

static inline char *transfer_block_at(const struct shm_group *g, uint32_t rank, uint32_t block)
{
    return g->seg.blocks + ((size_t)rank * BLOCK_COUNT + block) * BLOCK_BYTES;
}

static inline struct written *transfer_written(const struct shm_group *g, uint32_t rank,
                                               uint32_t block)
{
    return &g->seg.written[(size_t)rank * BLOCK_COUNT + block];
}

/* A bit for each of the blocks that `len` bytes from `at` in `block` on take. */
static inline uint64_t transfer_block_bits(uint32_t block, uint32_t at, uint32_t len)
{
    const uint32_t n = (at + len + BLOCK_BYTES - 1) / BLOCK_BYTES;
    return (n < BLOCK_COUNT ? (1ull << n) - 1 : UINT64_MAX) << block;
}

/* Bytes of the block that comes after `moved` of `len`. */
static inline size_t transfer_block_len(size_t len, size_t moved)
{
    return len - moved < BLOCK_BYTES ? len - moved : BLOCK_BYTES;
}

/* ---- packets of a peer whose memory is damaged ---- */

/* `len` bytes of the sender's blocks, from `at` in the first one on. */
static inline bool packet_blocks_are_sane(uint32_t block, uint32_t at, uint32_t len)
{
    return block < BLOCK_COUNT && at < BLOCK_BYTES &&
           len <= (BLOCK_COUNT - block) * BLOCK_BYTES - at;
}

/* An RTS, for a message of `len` bytes. */
static inline bool packet_rts_is_sane(const struct packet *rts, size_t len)
{
    if (rts->flags & RTS_INLINE)
        return len <= PAYLOAD_BYTES && rts->flags & RTS_WHOLE;
    if (rts->flags & RTS_REMOTE && len < REMOTE_MIN_BYTES)
        return false;
    if (rts->flags & (RTS_DIRECT | RTS_REMOTE))
        return !(rts->flags & RTS_WHOLE);
    if (rts->block == NO_BLOCK)
        return !(rts->flags & RTS_WHOLE);
    return packet_blocks_are_sane(rts->block, rts->at, rts->len) &&
           (rts->flags & RTS_WHOLE ? rts->len == len : rts->len < len);
}

#endif
