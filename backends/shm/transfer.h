/* SPDX-License-Identifier: Apache-2.0
 *
 * One send or receive on its way: what p2p.c, send.c and recv.c share. A transfer is on the agenda
 * while it has something to say: it says as much as its box and the free blocks allow, and leaves
 * the agenda when nothing is left. What comes in ("hear") changes transfers and may put them on the
 * agenda, but never says anything itself. A transfer keeps its number, by which the peer addresses
 * it, until it is finished; then it is used again.
 */
#ifndef SHM_TRANSFER_H
#define SHM_TRANSFER_H

#include "group.h"

#define NO_BLOCK UINT8_MAX
#define BLOCKS_PER_MESSAGE 8   /* on their way at once */
#define BLOCKS_FOR_MATCHED 32u /* never used for messages that nobody may be waiting for */

enum mail_type { MAIL_SEND, MAIL_GO, MAIL_FRAG, MAIL_WRITTEN, MAIL_ACK };
/* What comes with an announcement: all of the message, in its payload or in a block; a heap_ref. */
enum send_flags { SEND_INLINE = 1, SEND_DIRECT = 2, SEND_WHOLE = 4 };
enum ack_flags { ACK_LAST = 1 };

/* The payload of a GO. */
struct go {
    uint64_t blocks;     /* these are free again */
    struct heap_ref ref; /* write the rest here; or HEAP_NOWHERE: send it in blocks */
};

enum transfer_state {
    SEND_NEW,       /* to be announced */
    SEND_ANNOUNCED, /* waits for GO or the last ACK */
    SEND_STREAMS,   /* has blocks to fill */
    SEND_WRITES,    /* writes into the receiver's heap */
    SEND_FLUSHED,   /* waits for the last ACK */
    RECV_POSTED,    /* not matched */
    RECV_MATCHED,   /* has to say GO */
    RECV_STREAMS,   /* takes what comes */
    RECV_COMPLETE,  /* has to say the last ACK */
    FINISHED
};

struct transfer {
    const struct collrun_call *call;
    size_t len, moved; /* bytes in all; put into blocks, or taken out of them */
    uint32_t peer;     /* once known */
    uint32_t peer_id;  /* the transfer's number at the peer, once known */
    enum transfer_state state;
    uint64_t blocks; /* sender: on their way; receiver: to be acknowledged */
    struct heap_ref ref;
    struct parcel *parcel;
    uint32_t id;
    bool on_agenda; /* has something to say */
    bool listed;    /* stands in the agenda's list, if only to be taken off it */
    struct transfer *next, *agenda_next; /* among the posted or the idle ones; on the agenda */
};

/* An announcement put by. */
struct letter {
    struct letter *next;
    uint32_t from;
    struct cell cell;
};

static inline bool transfer_sends(const struct transfer *t)
{
    return t->call->kind == COLLRUN_SEND;
}

/* p2p.c: it has something to say; it has no more to do. */
void transfer_has_news(struct p2p *p, struct transfer *t);
void transfer_finish(struct p2p *p, struct transfer *t);

static inline char *block_at(const struct shm_group *g, uint32_t rank, uint32_t block)
{
    return g->seg.blocks + ((size_t)rank * BLOCK_COUNT + block) * BLOCK_BYTES;
}

/* Bytes of the block that comes after `moved` of `len`. */
static inline size_t block_len(size_t len, size_t moved)
{
    return len - moved < BLOCK_BYTES ? len - moved : BLOCK_BYTES;
}

/* send.c: whether it got anything said; what a GO or an ACK means to it. */
bool send_say(struct shm_group *g, struct transfer *t);
void send_hear_go(struct shm_group *g, struct transfer *t, const struct cell *cell);
void send_hear_ack(struct shm_group *g, struct transfer *t, const struct cell *cell);

/* recv.c: likewise. The functions that return int return a status. */
int recv_start(struct shm_group *g, struct transfer *t);
bool recv_say(struct shm_group *g, struct transfer *t);
int recv_hear_announcement(struct shm_group *g, uint32_t from, const struct cell *cell);
int recv_hear_frag(struct shm_group *g, struct transfer *t, const struct cell *cell);
void recv_hear_written(struct shm_group *g, struct transfer *t);

#endif
