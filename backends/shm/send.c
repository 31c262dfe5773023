/* SPDX-License-Identifier: Apache-2.0
 *
 * The sender's side of a message; see p2p.h for the protocol.
 */
#include "mail.h"
#include "transfer.h"

#include <string.h>

static bool has_blocks(const struct p2p *p, uint32_t kept)
{
    return (uint32_t)__builtin_popcountll(p->free_blocks) > kept;
}

/* The next of the own blocks, in turn; NO_BLOCK if no more than `kept` are free. */
static uint8_t block_take(struct shm_group *g, uint32_t kept)
{
    struct p2p *p = &g->p2p;
    if (!has_blocks(p, kept))
        p->free_blocks |=
            atomic_exchange_explicit(&g->seg.returned[g->rank].blocks, 0, memory_order_acquire);
    if (!has_blocks(p, kept))
        return NO_BLOCK;
    while (!(p->free_blocks >> p->next_block & 1))
        p->next_block = (p->next_block + 1) % BLOCK_COUNT;
    const uint8_t block = (uint8_t)p->next_block;
    p->free_blocks &= ~(1ull << block);
    p->next_block = (p->next_block + 1) % BLOCK_COUNT;
    return block;
}

static void fill_block(struct shm_group *g, struct transfer *t, uint8_t block)
{
    const size_t len = block_len(t->len, t->moved);
    copy_out(&g->pace, block_at(g, g->rank, block), (const char *)t->call->send + t->moved, len);
    t->moved += len;
    t->blocks |= 1ull << block;
}

/* What goes along with the announcement: the message, a reference to it, its first block, or
 * nothing yet. */
static void enclose(struct shm_group *g, struct transfer *t, struct cell *cell)
{
    cell->flags = 0;
    cell->block = NO_BLOCK;
    if (t->len <= PAYLOAD_BYTES) {
        cell->flags = SEND_INLINE | SEND_WHOLE;
        if (t->len > 0)
            memcpy(cell->payload, t->call->send, t->len);
        return;
    }
    const struct heap_ref ref = heap_find(g, t->call->send, t->len);
    if (ref.offset != HEAP_NOWHERE.offset) {
        cell->flags = SEND_DIRECT;
        memcpy(cell->payload, &ref, sizeof(ref));
        return;
    }
    cell->block = block_take(g, BLOCKS_FOR_MATCHED);
    if (cell->block == NO_BLOCK)
        return;
    fill_block(g, t, cell->block);
    if (t->moved == t->len)
        cell->flags = SEND_WHOLE;
}

/* Announcements leave in the order of the calls, so one that finds no room holds back those behind
 * it. */
static bool say_announcement(struct shm_group *g, struct transfer *t)
{
    struct mail_side *side = &g->p2p.sides[t->peer];
    struct cell *cell = side->full_round == g->p2p.round ? NULL : mail_room(g, t->peer);
    if (!cell) {
        side->full_round = g->p2p.round;
        return false;
    }
    cell->type = MAIL_SEND;
    cell->dtype = (uint8_t)t->call->dtype;
    cell->id = t->id;
    cell->tag = t->call->tag;
    cell->count = t->call->count;
    enclose(g, t, cell);
    t->state = SEND_ANNOUNCED;
    t->on_agenda = false;
    if (cell->flags & SEND_WHOLE)
        transfer_finish(&g->p2p, t);
    mail_send(g, t->peer, cell);
    return true;
}

static bool say_frag(struct shm_group *g, struct transfer *t)
{
    if (__builtin_popcountll(t->blocks) >= BLOCKS_PER_MESSAGE)
        return false;
    struct cell *cell = mail_room(g, t->peer);
    const uint8_t block = cell ? block_take(g, 0) : NO_BLOCK;
    if (block == NO_BLOCK)
        return false;
    fill_block(g, t, block);
    cell->type = MAIL_FRAG;
    cell->id = t->peer_id;
    cell->block = block;
    if (t->moved == t->len) {
        t->state = SEND_FLUSHED;
        t->on_agenda = false;
    }
    mail_send(g, t->peer, cell);
    return true;
}

/* Writes a slice into the receiver's heap; after the last one, says so. */
static bool write_direct(struct shm_group *g, struct transfer *t)
{
    const size_t len = block_len(t->len, t->moved);
    char *heap = heap_at(g, t->peer, t->ref);
    struct cell *cell = mail_room(g, t->peer);
    if (!heap || !cell)
        return false;
    memcpy(heap + t->moved, (const char *)t->call->send + t->moved, len);
    t->moved += len;
    if (t->moved < t->len)
        return true;
    cell->type = MAIL_WRITTEN;
    cell->id = t->peer_id;
    t->state = SEND_FLUSHED;
    t->on_agenda = false;
    mail_send(g, t->peer, cell);
    return true;
}

bool send_say(struct shm_group *g, struct transfer *t)
{
    switch (t->state) {
    case SEND_NEW:
        return say_announcement(g, t);
    case SEND_STREAMS:
        return say_frag(g, t);
    default:
        return write_direct(g, t);
    }
}

static void blocks_back(struct shm_group *g, struct transfer *t, uint64_t blocks)
{
    t->blocks &= ~blocks;
    g->p2p.free_blocks |= blocks;
}

void send_hear_go(struct shm_group *g, struct transfer *t, const struct cell *cell)
{
    struct go go;
    memcpy(&go, cell->payload, sizeof(go));
    blocks_back(g, t, go.blocks);
    t->peer_id = (uint32_t)cell->count;
    t->ref = go.ref;
    t->state = go.ref.offset == HEAP_NOWHERE.offset ? SEND_STREAMS : SEND_WRITES;
    transfer_has_news(&g->p2p, t);
}

void send_hear_ack(struct shm_group *g, struct transfer *t, const struct cell *cell)
{
    blocks_back(g, t, cell->count);
    if (cell->flags & ACK_LAST)
        transfer_finish(&g->p2p, t);
}
