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

/* How long to wait for a part that another core writes: some microseconds. */
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
        from ? receiver_copy_bytes(g, t, from, t->message.len) : group_report_failure(g);
    return status == COLLRUN_OK && group_has_failed_meanwhile(g) ? group_report_failure(g) : status;
}

/* Of a send that is over: without an ACK. */
static void receiver_return_blocks(struct shm_group *g, uint32_t peer, uint64_t blocks)
{
    atomic_fetch_or_explicit(&g->seg.returned[peer].blocks, blocks, memory_order_release);
    g->p2p.peers[peer].notify_due = true;
}

static void receiver_finish_eager(struct shm_group *g, struct transfer *t)
{
    if (t->blocks)
        receiver_return_blocks(g, t->message.peer, t->blocks);
    transfer_done(&g->p2p, t);
}

int receiver_handle_rts(struct shm_group *g, uint32_t from, const struct packet *rts)
{
    const struct collrun_envelope envelope = {
        .count = rts->count, .tag = rts->tag, .dtype = rts->dtype};
    const size_t payload =
        rts->flags & (RTS_INLINE | RTS_DIRECT | RTS_REMOTE) ? rts->payload_len : sizeof rts->at;
    if (payload > PAYLOAD_BYTES)
        return group_fail_damaged(g, from, "a message that is longer than its packet");
    const size_t len = offsetof(struct packet, payload) + payload;
    return g->p2p.engine->arrived(g->p2p.engine->ctx, from, &envelope, rts, len);
}

/* False: the sender has been interrupted in mid-block. */
static bool receiver_take_parts(const struct collrun_message *m, const struct packet *rts,
                                const char *block)
{
    size_t done = 0;
    for (uint32_t polls = 0; done < m->len && polls < POLLS_PER_PART; polls++) {
        const size_t missing = atomic_load_explicit(&rts->missing, memory_order_acquire);
        const size_t ready = m->len - missing;
        if (ready <= done || missing > m->len)
            continue;
        copy_in((char *)m->data + done, block + done, ready - done);
        done = ready;
        polls = 0;
    }
    return done == m->len;
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
    const char *block = transfer_block_at(g, m->peer, rts->block) + rts->at;
    if (!(rts->flags & RTS_PARTS))
        copy_in(m->data, block, m->len);
    else if (!receiver_take_parts(m, rts, block))
        return false;
    receiver_return_blocks(g, m->peer, 1ull << rts->block);
    return true;
}

/* The first block of a longer message. The sender learns first that it may fill further ones. */
static int receiver_take_first_block(struct shm_group *g, struct transfer *t,
                                     const struct packet *rts)
{
    const uint32_t from = t->message.peer;
    t->state = RECV_MATCHED;
    if (!(rts->flags & RTS_WHOLE))
        receiver_advance(g, t);
    t->blocks = 1ull << rts->block;
    return receiver_copy_bytes(g, t, transfer_block_at(g, from, rts->block) + rts->at,
                               transfer_block_len(t->message.len, 0));
}

static uint64_t receiver_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* All bytes have been taken; the last ACK is sent next. */
static void receiver_complete(struct shm_group *g, struct transfer *t)
{
    if (t->begun_ns != 0)
        remote_policy_measured(&g->p2p.peers[t->message.peer].remote, t->way, t->message.len,
                               receiver_now_ns() - t->begun_ns);
    t->state = RECV_COMPLETE;
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
    t->begun_ns = receiver_now_ns();
    return t->way == REMOTE_READ ? RECV_READS : RECV_MATCHED;
}

int receiver_match(struct shm_group *g, struct transfer *t, const struct packet *rts)
{
    int status = COLLRUN_OK;
    if (!packet_rts_is_sane(rts, t->message.len))
        return group_fail_damaged(g, t->message.peer, "a message without its data");
    t->peer_id = rts->id;
    t->state = RECV_MATCHED;
    if (rts->flags & RTS_INLINE) {
        status = receiver_copy_bytes(g, t, rts->payload, t->message.len);
    } else if (rts->flags & RTS_DIRECT) {
        status = receiver_read_heap(g, t, rts);
    } else if (rts->flags & RTS_REMOTE) {
        t->state = receiver_begin_remote(g, t, rts);
    } else if (rts->block != NO_BLOCK) {
        status = receiver_take_first_block(g, t, rts);
    }
    if (t->moved == t->message.len)
        t->state = RECV_COMPLETE;
    if (rts->flags & RTS_WHOLE)
        receiver_finish_eager(g, t);
    else
        transfer_schedule(&g->p2p, t);
    return status;
}

int receiver_handle_frag(struct shm_group *g, struct transfer *t, const struct packet *packet)
{
    const int status =
        receiver_copy_bytes(g, t, transfer_block_at(g, t->message.peer, packet->block),
                            transfer_block_len(t->message.len, t->moved));
    t->blocks |= 1ull << packet->block;
    if (t->moved == t->message.len)
        receiver_complete(g, t);
    transfer_schedule(&g->p2p, t);
    return status;
}

int receiver_handle_fin(struct shm_group *g, struct transfer *t)
{
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
    t->state = RECV_STREAMS;
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
    t->moved += moved;
    if (moved < len) {
        t->begun_ns = 0;
        t->state = RECV_MATCHED;
    } else if (t->moved == t->message.len) {
        receiver_complete(g, t);
    }
    return true;
}

bool receiver_advance(struct shm_group *g, struct transfer *t)
{
    if (t->state == RECV_READS)
        return receiver_read_remote(g, t);
    const bool last = t->state == RECV_COMPLETE;
    struct packet *packet = fifo_room(g, t->message.peer);
    if (!packet)
        return false;
    if (t->state == RECV_MATCHED)
        receiver_write_cts(g, t, packet);
    else
        receiver_write_ack(t, packet);
    t->blocks = 0;
    transfer_unschedule(&g->p2p, t);
    fifo_push(g, t->message.peer, packet);
    if (last)
        transfer_done(&g->p2p, t);
    return true;
}
