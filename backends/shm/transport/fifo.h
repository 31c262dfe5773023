/* SPDX-License-Identifier: Apache-2.0
 *
 * FIFOs of packets: one per ordered pair of ranks, with one writer and one reader. The sequence
 * number of a packet is stored last and makes it valid. The reader publishes how many packets it
 * has taken out; the writer reads that only when the FIFO seems full.
 */
#ifndef SHM_TRANSPORT_FIFO_H
#define SHM_TRANSPORT_FIFO_H

#include "group.h"
#include "transport/copy.h"

static inline struct fifo *fifo_of(const struct shm_group *g, uint32_t to, uint32_t from)
{
    return &g->seg.fifos[(size_t)to * g->nranks + from];
}

/* The packet of the `n`th turn. */
static inline struct packet *fifo_packet(struct fifo *fifo, uint32_t n)
{
    return &fifo->packets[segment_turn(n, FIFO_PACKETS)];
}

/* The next free packet of the FIFO to `peer`, to be filled in and pushed; NULL: the FIFO is full.
 */
static inline struct packet *fifo_room(struct shm_group *g, uint32_t peer)
{
    struct peer *state = &g->p2p.peers[peer];
    struct fifo *fifo = fifo_of(g, peer, g->rank);
    if (state->pushed - state->seen_popped == FIFO_PACKETS) {
        state->seen_popped = atomic_load_explicit(&fifo->popped, memory_order_acquire);
        if (state->pushed - state->seen_popped == FIFO_PACKETS)
            return NULL;
    }
    return fifo_packet(fifo, state->pushed);
}

static inline void fifo_push(struct shm_group *g, uint32_t peer, struct packet *packet)
{
    struct peer *state = &g->p2p.peers[peer];
    state->notify_due = true;
    atomic_store_explicit(&packet->seq, ++state->pushed, memory_order_release);
}

/* Takes the lines of the next packet, with a payload of `len` bytes, from the peer's cache. */
static inline void fifo_prefetch_out(const struct shm_group *g, uint32_t peer, size_t len)
{
    struct fifo *fifo = fifo_of(g, peer, g->rank);
    copy_prefetch_out((char *)fifo_packet(fifo, g->p2p.peers[peer].pushed),
                      offsetof(struct packet, payload) + len);
}

/* The oldest packet from `peer`, or NULL; valid until fifo_pop. */
static inline const struct packet *fifo_peek(const struct shm_group *g, uint32_t peer)
{
    const uint32_t popped = g->p2p.peers[peer].popped;
    const struct packet *packet = fifo_packet(fifo_of(g, g->rank, peer), popped);
    return atomic_load_explicit(&packet->seq, memory_order_acquire) == popped + 1 ? packet : NULL;
}

/* Asks for the further lines of the oldest packet, which is not there yet and has a payload of
 * `len` bytes. */
static inline void fifo_prefetch(const struct shm_group *g, uint32_t peer, size_t len)
{
    const uint32_t popped = g->p2p.peers[peer].popped;
    const char *packet = (const char *)fifo_packet(fifo_of(g, g->rank, peer), popped);
    for (size_t at = LINE_BYTES; at < offsetof(struct packet, payload) + len; at += LINE_BYTES)
        __builtin_prefetch(packet + at);
}

static inline void fifo_pop(struct shm_group *g, uint32_t peer)
{
    struct peer *state = &g->p2p.peers[peer];
    state->notify_due = true;
    atomic_store_explicit(&fifo_of(g, g->rank, peer)->popped, ++state->popped,
                          memory_order_release);
}

#endif
