/* SPDX-License-Identifier: Apache-2.0
 *
 * RTS, then what the receiver asks for: blocks, or a copy into its heap.
 */
#include "transport/sender.h"

#include "transport/copy.h"
#include "transport/fifo.h"

#include <string.h>

/* Blocks that are never used for a message whose receive may not have been posted. */
#define BLOCKS_FOR_MATCHED 32u

/* From this length on a message lies at another place in each lap over the blocks: so all of their
 * memory is in use, and the receiver's cache no longer holds the lines that are written. */
#define MOVING_BYTES 1025u
#define PLACE_BYTES 4096u

/* A receiver reads one part of a short message while the sender writes the next one. */
#define PARTS 4u
#define PART_BYTES 2048u

/* Of longer messages the CPU would drop what is prefetched. */
#define PREFETCHED_BYTES (8u << 10)

static bool sender_has_blocks(const struct p2p *p, uint32_t kept)
{
    return (uint32_t)__builtin_popcountll(p->free_blocks) > kept;
}

static void sender_pass_block(struct p2p *p)
{
    p->next_block = (p->next_block + 1) % BLOCK_COUNT;
    p->laps += p->next_block == 0;
}

/* The next of this rank's blocks, in turn; NO_BLOCK if no more than `kept` are free. */
static uint8_t sender_alloc_block(struct shm_group *g, uint32_t kept)
{
    struct p2p *p = &g->p2p;
    if (!sender_has_blocks(p, kept))
        p->free_blocks |=
            atomic_exchange_explicit(&g->seg.returned[g->rank].blocks, 0, memory_order_acquire);
    if (!sender_has_blocks(p, kept))
        return NO_BLOCK;
    const uint64_t in_turn = p->free_blocks & p->in_turn;
    while (!((in_turn ? in_turn : p->free_blocks) >> p->next_block & 1))
        sender_pass_block(p);
    const uint8_t block = (uint8_t)p->next_block;
    p->free_blocks &= ~(1ull << block);
    sender_pass_block(p);
    return block;
}

/* Where in its next block a message lies. */
static uint32_t sender_place(const struct p2p *p, size_t len)
{
    const size_t room = (len + PLACE_BYTES - 1) / PLACE_BYTES * PLACE_BYTES;
    if (len < MOVING_BYTES || room > BLOCK_BYTES / 2)
        return 0;
    return (uint32_t)(p->laps % (BLOCK_BYTES / room) * room);
}

static void sender_fill_block(struct shm_group *g, struct transfer *t, uint8_t block, uint32_t at)
{
    const size_t len = transfer_block_len(t->message.len, t->moved);
    copy_out(&g->copy_policy, transfer_block_at(g, g->rank, block) + at,
             (const char *)t->message.data + t->moved, len);
    t->moved += len;
    t->blocks |= 1ull << block;
}

static void sender_free_blocks(struct shm_group *g, struct transfer *t, uint64_t blocks)
{
    blocks &= t->blocks;
    t->blocks &= ~blocks;
    g->p2p.free_blocks |= blocks;
}

static void sender_write_envelope(const struct collrun_message *m, struct packet *rts)
{
    rts->type = PKT_RTS;
    rts->dtype = (uint8_t)m->envelope.dtype;
    rts->id = m->id;
    rts->tag = m->envelope.tag;
    rts->count = m->envelope.count;
}

static void sender_attach_inline(const struct collrun_message *m, struct packet *rts)
{
    rts->flags = RTS_INLINE | RTS_WHOLE;
    rts->payload_len = (uint8_t)m->len;
    if (m->len > 0)
        memcpy(rts->payload, m->data, m->len);
}

/* Writes the message as the only block, and pushes the RTS after the first part of it. */
static void sender_push_parts(struct shm_group *g, const struct collrun_message *m,
                              struct packet *rts)
{
    char *block = transfer_block_at(g, g->rank, rts->block) + rts->at;
    const size_t most = m->len / PARTS > PART_BYTES ? m->len / PARTS : PART_BYTES;
    rts->flags = m->len > most ? RTS_WHOLE | RTS_PARTS : RTS_WHOLE;
    for (size_t done = 0, len; done < m->len; done += len) {
        len = m->len - done < most ? m->len - done : most;
        copy_out(&g->copy_policy, block + done, (const char *)m->data + done, len);
        if (m->len > most)
            atomic_store_explicit(&rts->missing, (uint32_t)(m->len - done - len),
                                  memory_order_release);
        if (done == 0)
            fifo_push(g, m->peer, rts);
    }
}

bool sender_send_short(struct shm_group *g, const struct collrun_message *m)
{
    struct packet *rts = fifo_room(g, m->peer);
    if (!rts)
        return false;
    sender_write_envelope(m, rts);
    if (m->len <= PAYLOAD_BYTES) {
        sender_attach_inline(m, rts);
        fifo_push(g, m->peer, rts);
        return true;
    }
    if (m->len > BLOCK_BYTES || heap_ref_is_set(heap_find(g, m->data, m->len)))
        return false;
    rts->at = sender_place(&g->p2p, m->len);
    rts->block = sender_alloc_block(g, BLOCKS_FOR_MATCHED);
    if (rts->block == NO_BLOCK)
        return false;
    sender_push_parts(g, m, rts);
    return true;
}

void sender_prefetch(const struct shm_group *g, uint32_t peer, size_t len)
{
    const struct p2p *p = &g->p2p;
    const bool is_inline = len <= PAYLOAD_BYTES;
    fifo_prefetch_out(g, peer, is_inline ? len : 0);
    if (!is_inline && len <= PREFETCHED_BYTES && !copy_out_streams(&g->copy_policy, len))
        copy_prefetch_out(transfer_block_at(g, g->rank, p->next_block) + sender_place(p, len), len);
}

/* Puts into the RTS a reference to the message, its first block, or nothing yet. */
static void sender_attach_payload(struct shm_group *g, struct transfer *t, struct packet *rts)
{
    const struct collrun_message *m = &t->message;
    const struct heap_ref ref = heap_find(g, m->data, m->len);
    if (heap_ref_is_set(ref)) {
        rts->flags = RTS_DIRECT;
        rts->payload_len = sizeof ref;
        memcpy(rts->payload, &ref, sizeof ref);
        return;
    }
    if (m->len >= REMOTE_MIN_BYTES) {
        const uint64_t at = (uintptr_t)m->data;
        rts->flags = RTS_REMOTE;
        rts->payload_len = sizeof at;
        memcpy(rts->payload, &at, sizeof at);
        return;
    }
    rts->flags = 0;
    rts->at = sender_place(&g->p2p, m->len);
    rts->block = sender_alloc_block(g, BLOCKS_FOR_MATCHED);
    if (rts->block == NO_BLOCK)
        return;
    sender_fill_block(g, t, rts->block, rts->at);
    if (t->moved == m->len)
        rts->flags = RTS_WHOLE;
}

/* The RTS of a peer leave in the order of the calls, so one that finds no room holds back those
 * behind it. */
static bool sender_send_rts(struct shm_group *g, struct transfer *t)
{
    const struct collrun_message *m = &t->message;
    const uint32_t peer = m->peer;
    struct peer *state = &g->p2p.peers[peer];
    struct packet *rts = state->blocked_round == g->p2p.round ? NULL : fifo_room(g, peer);
    if (!rts) {
        state->blocked_round = g->p2p.round;
        return false;
    }
    sender_write_envelope(m, rts);
    if (m->len <= PAYLOAD_BYTES)
        sender_attach_inline(m, rts);
    else
        sender_attach_payload(g, t, rts);
    t->state = SEND_ANNOUNCED;
    const bool whole = rts->flags & RTS_WHOLE;
    fifo_push(g, peer, rts);
    if (whole)
        transfer_done(&g->p2p, t);
    else
        transfer_unschedule(&g->p2p, t);
    return true;
}

static bool sender_send_frag(struct shm_group *g, struct transfer *t)
{
    if (__builtin_popcountll(t->blocks) >= BLOCKS_PER_MESSAGE)
        return false;
    struct packet *packet = fifo_room(g, t->message.peer);
    const uint8_t block = packet ? sender_alloc_block(g, 0) : NO_BLOCK;
    if (block == NO_BLOCK)
        return false;
    sender_fill_block(g, t, block, 0);
    packet->type = PKT_FRAG;
    packet->id = t->peer_id;
    packet->block = block;
    if (t->moved == t->message.len) {
        t->state = SEND_FLUSHED;
        transfer_unschedule(&g->p2p, t);
    }
    fifo_push(g, t->message.peer, packet);
    return true;
}

/* Writes a slice into the receiver's heap; after the last one, sends FIN. */
static bool sender_write_heap(struct shm_group *g, struct transfer *t)
{
    const struct collrun_message *m = &t->message;
    const size_t len = transfer_block_len(m->len, t->moved);
    char *heap = heap_at(g, m->peer, t->ref, m->len);
    struct packet *packet = fifo_room(g, m->peer);
    if (!heap || !packet)
        return false;
    copy_plain(heap + t->moved, (const char *)m->data + t->moved, len);
    t->moved += len;
    if (t->moved < m->len)
        return true;
    packet->type = PKT_FIN;
    packet->id = t->peer_id;
    t->state = SEND_FLUSHED;
    transfer_unschedule(&g->p2p, t);
    fifo_push(g, m->peer, packet);
    return true;
}

bool sender_advance(struct shm_group *g, struct transfer *t)
{
    switch (t->state) {
    case SEND_NEW:
        return sender_send_rts(g, t);
    case SEND_STREAMS:
        return sender_send_frag(g, t);
    default:
        return sender_write_heap(g, t);
    }
}

void sender_handle_cts(struct shm_group *g, struct transfer *t, const struct packet *packet)
{
    struct cts cts;
    memcpy(&cts, packet->payload, sizeof cts);
    sender_free_blocks(g, t, cts.blocks);
    t->peer_id = (uint32_t)packet->count;
    t->ref = cts.ref;
    if (t->moved == 0)
        t->moved = cts.moved;
    t->state = heap_ref_is_set(cts.ref) ? SEND_WRITES : SEND_STREAMS;
    transfer_schedule(&g->p2p, t);
}

void sender_handle_ack(struct shm_group *g, struct transfer *t, const struct packet *packet)
{
    sender_free_blocks(g, t, packet->count);
    if (packet->flags & ACK_LAST)
        transfer_done(&g->p2p, t);
}
