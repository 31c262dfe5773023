/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes what came with the RTS, asks for the rest (CTS), acknowledges it (ACK).
 */
#include "transport/receiver.h"

#include "transport/abortable.h"
#include "transport/cma.h"
#include "transport/copy.h"
#include "transport/fifo.h"
#include "transport/wait.h"

#include <string.h>
#include <time.h>

/* What a receiver reads from the sender's memory between two rounds of progress. */
#define READ_BYTES (1u << 20)

/* A sender's blocks that all receivers together keep for a while after they were read, at most. */
#define BLOCKS_KEPT 16u

/* How long to wait for a part that a rank on another core writes: some microseconds. */
#define POLLS_PER_PART 5000u

/* A receiver of less than this finds the message in its cache afterwards. */
#define STREAM_FROM (8u << 20)

/* Takes the bytes that lie at `from`. */
static int receiver_copy_bytes(struct shm_group *g, struct transfer *t, const char *from,
                               size_t len)
{
    if (len == 0)
        return COLLRUN_OK; /* and the place may be NULL */
    const int status = abortable_copy(g, (char *)t->message.data + t->moved, from, len,
                                      t->message.len >= STREAM_FROM);
    t->moved += len;
    return status;
}

static int receiver_read_heap(struct shm_group *g, struct transfer *t, const struct packet *rts)
{
    struct heap_ref ref;
    memcpy(&ref, rts->payload, sizeof ref);
    const char *from = heap_at(g, t->message.peer, ref, t->message.len);
    const int status =
        from ? receiver_copy_bytes(g, t, from, t->message.len) : shm_group_report_failure(g);
    return status == COLLRUN_OK && shm_group_has_failed_meanwhile(g) ? shm_group_report_failure(g)
                                                                     : status;
}

/* Returns the blocks of a send that is over, without an ACK and some together, since the sender's
 * line is far away. */
static void receiver_return_blocks(struct shm_group *g, uint32_t peer, uint64_t blocks)
{
    struct peer *state = &g->p2p.peers[peer];
    state->to_return |= blocks;
    if ((uint32_t)__builtin_popcountll(state->to_return) * (g->nranks - 1) < BLOCKS_KEPT)
        return;
    atomic_fetch_or_explicit(&g->seg.returned[peer].blocks, state->to_return, memory_order_release);
    state->to_return = 0;
    state->notify_due = true;
}

int receiver_handle_rts(struct shm_group *g, uint32_t from, const struct packet *rts)
{
    const struct collrun_envelope envelope = {
        .count = rts->count, .tag = rts->tag, .dtype = rts->dtype};
    const size_t payload = rts->flags & (RTS_INLINE | RTS_DIRECT | RTS_REMOTE)
                               ? rts->payload_len
                               : sizeof rts->at + sizeof rts->len;
    if (payload > PAYLOAD_BYTES)
        return shm_group_fail_damaged(g, from, "a message that is longer than its packet");
    const size_t len = offsetof(struct packet, payload) + payload;
    return g->p2p.engine->arrived(g->p2p.engine->ctx, from, &envelope, rts, len);
}

/* More than `done` bytes, or how many there are after some polls: the sender has been interrupted.
 */
static uint32_t receiver_wait_for_part(const struct shm_group *g, const struct written *written,
                                       uint32_t done)
{
    const uint32_t most = g->wait.oversubscribed ? 1 : POLLS_PER_PART;
    uint32_t ready = done;
    for (uint32_t polls = 0; ready <= done && polls < most; polls++)
        ready = atomic_load_explicit(&written->len, memory_order_acquire);
    return ready;
}

/* Takes what a sender has written of the blocks that came with its RTS, from `*moved` on. False: it
 * has written more than all. */
static bool receiver_copy_early(const struct shm_group *g, uint32_t peer, const struct early *e,
                                void *to, size_t *moved)
{
    const char *from = transfer_block_at(g, peer, e->block) + e->at;
    const struct written *written = transfer_written(g, peer, e->block);
    uint32_t done = (uint32_t)*moved, ready = e->len;
    if (e->in_parts) {
        __builtin_prefetch(written);
        ready = PART_BYTES_FIRST;
    }
    while (done < e->len) {
        if (ready <= done)
            ready = receiver_wait_for_part(g, written, done);
        if (ready <= done || ready > e->len)
            break;
        if (e->in_parts)
            copy_behind(&g->copy_policy, (char *)to + done, from + done, ready - done);
        else
            copy_in((char *)to + done, from + done, ready - done);
        done = ready;
    }
    *moved = done;
    return ready <= e->len;
}

static struct early receiver_early_of(const struct packet *rts)
{
    return (struct early){rts->block, rts->at, rts->len, rts->flags & RTS_PARTS};
}

bool receiver_take_short(struct shm_group *g, const struct collrun_message *m,
                         const struct packet *rts)
{
    const struct collrun_envelope *e = &m->envelope;
    if (rts->type != PKT_RTS || !(rts->flags & RTS_WHOLE) || rts->tag != e->tag ||
        rts->count != e->count || rts->dtype != e->dtype || !packet_rts_is_sane(rts, m->len))
        return false;
    if (rts->flags & RTS_INLINE) {
        if (m->len > 0)
            memcpy(m->data, rts->payload, m->len);
        return true;
    }
    const struct early early = receiver_early_of(rts);
    size_t done = 0;
    if (!receiver_copy_early(g, m->peer, &early, m->data, &done) || done < m->len)
        return false;
    receiver_return_blocks(g, m->peer, transfer_block_bits(early.block, early.at, early.len));
    return true;
}

/* Takes what has been written of the blocks that came with the RTS. */
static int receiver_take_parts(struct shm_group *g, struct transfer *t)
{
    if (shm_group_has_failed(g))
        return shm_group_report_failure(g);
    if (receiver_copy_early(g, t->message.peer, &t->early, t->message.data, &t->moved))
        return COLLRUN_OK;
    return shm_group_fail_damaged(g, t->message.peer, "more than a message holds");
}

/* If they have all been taken, they go back: with the next ACK or, after all of a message, at once.
 */
static void receiver_end_parts(struct shm_group *g, struct transfer *t)
{
    const struct early e = t->early;
    if (t->moved < e.len)
        return;
    t->early.len = 0;
    t->blocks = transfer_block_bits(e.block, e.at, e.len);
    if (t->moved == t->message.len) {
        receiver_return_blocks(g, t->message.peer, t->blocks);
        transfer_done(&g->p2p, t);
    } else if (t->state == RECV_PARTS) {
        t->state = RECV_STREAMS;
    }
}

/* The sender of a longer message learns first that it may fill further blocks. */
static int receiver_match_early(struct shm_group *g, struct transfer *t, const struct packet *rts)
{
    t->early = receiver_early_of(rts);
    t->state = rts->flags & RTS_WHOLE ? RECV_PARTS : RECV_MATCHED;
    if (t->state == RECV_MATCHED)
        receiver_advance(g, t);
    transfer_schedule(&g->p2p, t);
    const int status = receiver_take_parts(g, t);
    if (status == COLLRUN_OK)
        receiver_end_parts(g, t);
    return status;
}

/* All bytes have been taken; the last ACK is sent next. */
static void receiver_complete(struct shm_group *g, struct transfer *t)
{
    if (t->begun_ns != 0)
        remote_policy_measured(&g->p2p.peers[t->message.peer].remote, t->way, t->message.len,
                               shm_group_now_ns(g) - t->begun_ns);
    t->state = RECV_COMPLETE;
}

/* What has been read may be anything: the sender has aborted the group, and sends no more. The
 * receive waits for it, until its time-out. */
static bool receiver_is_stuck(const struct shm_group *g, struct transfer *t)
{
    if (!shm_group_rank_has_aborted(g, t->message.peer))
        return false;
    t->state = RECV_STREAMS;
    return true;
}

/* Into its heap a receiver lets the sender write. */
static enum transfer_state receiver_begin_remote(struct shm_group *g, struct transfer *t,
                                                 const struct packet *rts)
{
    const bool heap = heap_ref_is_set(heap_find(g, t->message.data, t->message.len));
    memcpy(&t->remote, rts->payload, sizeof t->remote);
    if (heap || !cma_can_read(g, t->message.peer))
        return RECV_MATCHED;
    t->way = remote_policy_choose(&g->p2p.peers[t->message.peer].remote);
    t->begun_ns = shm_group_now_ns(g);
    return t->way == REMOTE_READ ? RECV_READS : RECV_MATCHED;
}

/* All of the message is in the packet. */
static int receiver_match_inline(struct shm_group *g, struct transfer *t, const struct packet *rts)
{
    const int status = receiver_copy_bytes(g, t, rts->payload, t->message.len);
    transfer_done(&g->p2p, t);
    return status;
}

int receiver_match(struct shm_group *g, struct transfer *t, const struct packet *rts)
{
    int status = COLLRUN_OK;
    if (!packet_rts_is_sane(rts, t->message.len))
        return shm_group_fail_damaged(g, t->message.peer, "a message without its data");
    if (rts->flags & RTS_INLINE)
        return receiver_match_inline(g, t, rts);
    t->peer_id = rts->id;
    t->state = RECV_MATCHED;
    if (rts->flags & RTS_DIRECT) {
        status = receiver_read_heap(g, t, rts);
        t->state = RECV_COMPLETE;
        if (receiver_is_stuck(g, t))
            return status;
    } else if (rts->flags & RTS_REMOTE) {
        t->state = receiver_begin_remote(g, t, rts);
    } else if (rts->block != NO_BLOCK) {
        return receiver_match_early(g, t, rts);
    }
    transfer_schedule(&g->p2p, t);
    return status;
}

/* Before what comes after the blocks of the RTS, which have been written then. */
static int receiver_take_all_parts(struct shm_group *g, struct transfer *t)
{
    if (t->state != RECV_PARTS)
        return COLLRUN_OK;
    const int status = receiver_take_parts(g, t);
    if (status != COLLRUN_OK)
        return status;
    if (t->moved < t->early.len)
        return shm_group_fail_damaged(g, t->message.peer, "a message without its beginning");
    receiver_end_parts(g, t);
    return COLLRUN_OK;
}

/* The sender goes on writing the next block meanwhile. */
static int receiver_copy_block(struct shm_group *g, struct transfer *t, uint32_t block)
{
    const struct collrun_message *m = &t->message;
    const size_t len = transfer_block_len(m->len, t->moved);
    const char *from = transfer_block_at(g, m->peer, block);
    if (m->len >= STREAM_FROM)
        return receiver_copy_bytes(g, t, from, len);
    copy_behind(&g->copy_policy, (char *)m->data + t->moved, from, len);
    t->moved += len;
    return shm_group_has_failed(g) ? shm_group_report_failure(g) : COLLRUN_OK;
}

int receiver_handle_frag(struct shm_group *g, struct transfer *t, const struct packet *packet)
{
    int status = receiver_take_all_parts(g, t);
    if (status != COLLRUN_OK)
        return status;
    status = receiver_copy_block(g, t, packet->block);
    t->blocks |= 1ull << packet->block;
    if (t->moved == t->message.len)
        receiver_complete(g, t);
    transfer_schedule(&g->p2p, t);
    return status;
}

int receiver_handle_fin(struct shm_group *g, struct transfer *t)
{
    const int status = receiver_take_all_parts(g, t);
    if (status != COLLRUN_OK)
        return status;
    t->moved = t->message.len;
    t->state = RECV_COMPLETE;
    transfer_schedule(&g->p2p, t);
    return COLLRUN_OK;
}

static void receiver_write_cts(struct shm_group *g, struct transfer *t, struct packet *packet)
{
    const struct cts cts = {
        .blocks = t->blocks,
        .ref = heap_find(g, t->message.data, t->message.len),
        .moved = t->moved,
    };
    packet->type = PKT_CTS;
    packet->id = t->peer_id;
    packet->count = t->message.id;
    memcpy(packet->payload, &cts, sizeof cts);
    t->state = t->early.len > 0 ? RECV_PARTS : RECV_STREAMS;
}

static void receiver_write_ack(const struct transfer *t, struct packet *packet)
{
    packet->type = PKT_ACK;
    packet->id = t->peer_id;
    packet->count = t->blocks;
    packet->flags = t->state == RECV_COMPLETE ? ACK_LAST : 0;
}

/* A failure of the group is reported by the progress that this is part of. */
static bool receiver_read_remote(struct shm_group *g, struct transfer *t)
{
    const size_t left = t->message.len - t->moved;
    const size_t len = left < READ_BYTES ? left : READ_BYTES;
    size_t moved;
    const int status = cma_read(g, t->message.peer, (char *)t->message.data + t->moved,
                                t->remote + t->moved, len, &moved);
    if (status != COLLRUN_OK)
        return false;
    if (receiver_is_stuck(g, t)) {
        transfer_unschedule(&g->p2p, t);
        return false;
    }
    t->moved += moved;
    if (moved < len) {
        t->begun_ns = 0;
        t->state = RECV_MATCHED;
    } else if (t->moved == t->message.len) {
        receiver_complete(g, t);
    }
    return true;
}

/* As above. */
static bool receiver_read_parts(struct shm_group *g, struct transfer *t)
{
    const size_t moved = t->moved;
    if (receiver_take_parts(g, t) != COLLRUN_OK || t->moved == moved)
        return false;
    receiver_end_parts(g, t);
    return true;
}

bool receiver_advance(struct shm_group *g, struct transfer *t)
{
    if (t->state == RECV_READS)
        return receiver_read_remote(g, t);
    if (t->state == RECV_PARTS)
        return receiver_read_parts(g, t);
    const bool last = t->state == RECV_COMPLETE;
    struct packet *packet = fifo_room(g, t->message.peer);
    if (!packet)
        return false;
    if (t->state == RECV_MATCHED)
        receiver_write_cts(g, t, packet);
    else
        receiver_write_ack(t, packet);
    t->blocks = 0;
    if (t->state != RECV_PARTS)
        transfer_unschedule(&g->p2p, t);
    fifo_push(g, t->message.peer, packet);
    if (last)
        transfer_done(&g->p2p, t);
    return true;
}
