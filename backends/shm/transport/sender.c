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

/* A receiver reads one part of what comes with an RTS while its sender writes the next one. They
 * are small enough that little time passes after the last one, but each one is a hand-over: cores
 * that stream are far apart, and do with fewer. */
#define PARTS 8u
#define PART_BYTES_MIN 4096u
#define PART_BYTES_STREAMED_MIN 8192u
#define PART_BYTES_MAX 16384u

/* The CPU would drop what is prefetched of longer messages. */
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

static void sender_take_back(struct shm_group *g)
{
    g->p2p.free_blocks |=
        atomic_exchange_explicit(&g->seg.returned[g->rank].blocks, 0, memory_order_acquire);
}

/* The next of this rank's blocks, in turn; NO_BLOCK if no more than `kept` are free. */
static uint8_t sender_alloc_block(struct shm_group *g, uint32_t kept)
{
    struct p2p *p = &g->p2p;
    if (!sender_has_blocks(p, kept))
        sender_take_back(g);
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

static bool sender_run_is_free(const struct p2p *p, uint64_t run)
{
    const uint32_t n = (uint32_t)__builtin_popcountll(run);
    return (p->free_blocks & run) == run && sender_has_blocks(p, BLOCKS_FOR_MATCHED + n - 1);
}

/* Neighbouring blocks, the next ones in turn or the first ones. NO_BLOCK: they are not free. */
static uint8_t sender_alloc_run(struct shm_group *g, uint32_t n)
{
    struct p2p *p = &g->p2p;
    const uint32_t turn = (uint32_t)__builtin_popcountll(p->in_turn);
    const uint32_t first = p->next_block + n <= turn ? p->next_block : 0;
    const uint64_t run = ((1ull << n) - 1) << first;
    if (!sender_run_is_free(p, run))
        sender_take_back(g);
    if (!sender_run_is_free(p, run))
        return NO_BLOCK;
    p->free_blocks &= ~run;
    p->laps += first < p->next_block;
    p->next_block = (first + n) % BLOCK_COUNT;
    return (uint8_t)first;
}

/* Where in its next block a message lies. */
static uint32_t sender_place(const struct p2p *p, size_t len)
{
    const size_t room = (len + PLACE_BYTES - 1) / PLACE_BYTES * PLACE_BYTES;
    if (len < MOVING_BYTES || room > BLOCK_BYTES / 2)
        return 0;
    return (uint32_t)(p->laps % (BLOCK_BYTES / room) * room);
}

static void sender_fill_block(struct shm_group *g, struct transfer *t, uint8_t block)
{
    const size_t len = transfer_block_len(t->message.len, t->moved);
    copy_out(&g->copy_policy, transfer_block_at(g, g->rank, block),
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

/* Finds blocks for the first `len` bytes of the message. False: they are not free. */
static bool sender_alloc_early(struct shm_group *g, const struct collrun_message *m, size_t len,
                               struct packet *rts)
{
    rts->at = sender_place(&g->p2p, m->len);
    rts->len = (uint32_t)len;
    rts->block = len > BLOCK_BYTES
                     ? sender_alloc_run(g, (uint32_t)((len + BLOCK_BYTES - 1) / BLOCK_BYTES))
                     : sender_alloc_block(g, BLOCKS_FOR_MATCHED);
    return rts->block != NO_BLOCK;
}

/* The length of each part of `total` bytes but the first and the last one. */
static uint32_t sender_part_len(const struct shm_group *g, uint32_t total)
{
    const uint32_t least = copy_out_streams(&g->copy_policy, PART_BYTES_MIN)
                               ? PART_BYTES_STREAMED_MIN
                               : PART_BYTES_MIN;
    const uint32_t len = total / PARTS;
    return len < least ? least : len < PART_BYTES_MAX ? len : PART_BYTES_MAX;
}

/* Writes what leaves with the RTS into its blocks, and pushes the RTS after the first part. The
 * packet is the receiver's from then on. */
static void sender_push_early(struct shm_group *g, const struct collrun_message *m,
                              struct packet *rts)
{
    const uint32_t total = rts->len;
    const uint32_t most = sender_part_len(g, total);
    const bool in_parts = total > PART_BYTES_FIRST;
    char *at = transfer_block_at(g, g->rank, rts->block) + rts->at;
    struct written *written = transfer_written(g, g->rank, rts->block);
    rts->flags = (total == m->len ? RTS_WHOLE : 0) | (in_parts ? RTS_PARTS : 0);
    for (uint32_t done = 0, len; done < total; done += len) {
        len = done == 0 ? PART_BYTES_FIRST : most;
        len = len < total - done ? len : total - done;
        copy_out(&g->copy_policy, at + done, (const char *)m->data + done, len);
        if (in_parts)
            atomic_store_explicit(&written->len, done + len, memory_order_release);
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
    if (m->len > EAGER_BYTES || heap_ref_is_set(heap_find(g, m->data, m->len)))
        return false;
    if (!sender_alloc_early(g, m, m->len, rts))
        return false;
    sender_push_early(g, m, rts);
    return true;
}

void sender_prefetch(const struct shm_group *g, uint32_t peer, size_t len)
{
    const struct p2p *p = &g->p2p;
    const bool is_inline = len <= PAYLOAD_BYTES;
    fifo_prefetch_out(g, peer, is_inline ? len : 0);
    if (len > PART_BYTES_FIRST)
        copy_prefetch_out((char *)transfer_written(g, g->rank, p->next_block), 1);
    if (!is_inline && len <= PREFETCHED_BYTES && !copy_out_streams(&g->copy_policy, len))
        copy_prefetch_out(transfer_block_at(g, g->rank, p->next_block) + sender_place(p, len), len);
}

/* Puts into the RTS a reference to memory that the receiver can read. False: it cannot. */
static bool sender_attach_reference(const struct shm_group *g, const struct collrun_message *m,
                                    struct packet *rts)
{
    const struct heap_ref ref = heap_find(g, m->data, m->len);
    if (heap_ref_is_set(ref)) {
        rts->flags = RTS_DIRECT;
        rts->payload_len = sizeof ref;
        memcpy(rts->payload, &ref, sizeof ref);
        return true;
    }
    if (m->len < REMOTE_MIN_BYTES)
        return false;
    const uint64_t at = (uintptr_t)m->data;
    rts->flags = RTS_REMOTE;
    rts->payload_len = sizeof at;
    memcpy(rts->payload, &at, sizeof at);
    return true;
}

/* Writes the rest of an RTS, and pushes it. True: all of the message has left. */
static bool sender_push_rts(struct shm_group *g, struct transfer *t, struct packet *rts)
{
    const struct collrun_message *m = &t->message;
    const bool is_inline = m->len <= PAYLOAD_BYTES;
    if (is_inline) {
        sender_attach_inline(m, rts);
    } else if (!sender_attach_reference(g, m, rts)) {
        const size_t most = m->len < EAGER_BYTES ? m->len : EAGER_BYTES;
        if (sender_alloc_early(g, m, most, rts) ||
            (most > BLOCK_BYTES && sender_alloc_early(g, m, BLOCK_BYTES, rts))) {
            t->moved = rts->len;
            t->blocks = transfer_block_bits(rts->block, rts->at, rts->len);
            sender_push_early(g, m, rts);
            return t->moved == m->len;
        }
        rts->flags = 0;
    }
    fifo_push(g, m->peer, rts);
    return is_inline;
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
    t->state = SEND_ANNOUNCED;
    if (sender_push_rts(g, t, rts))
        transfer_done(&g->p2p, t);
    else
        transfer_announced(&g->p2p, t);
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
    sender_fill_block(g, t, block);
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
    if (!heap || !packet || shm_group_rank_has_aborted(g, m->peer)) /* it uses its memory again */
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
