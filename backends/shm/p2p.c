/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop that drives all transfers: handle what the watched FIFOs hold, send what is scheduled,
 * and wait when neither moved anything.
 */
#include "p2p.h"

#include "transport/doorbell.h"
#include "transport/fifo.h"
#include "transport/receiver.h"
#include "transport/sender.h"
#include "transport/wait.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The blocks that are used in turn, and the others while none of these is free. They are twice as
 * large as the cache of a core: what is written is then neither in the cache of the receiver, which
 * has read it some time ago, nor in memory only. */
static uint64_t shm_p2p_blocks_in_turn(void)
{
    const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE); /* 0 or -1: unknown */
    const uint64_t blocks = cache > 0 ? 2 * (uint64_t)cache / BLOCK_BYTES : BLOCK_COUNT / 2;
    return blocks < BLOCK_COUNT ? (1ull << blocks) - 1 : UINT64_MAX;
}

int shm_p2p_init(struct p2p *p, const struct collrun_p2p *engine, uint32_t nranks)
{
    *p = (struct p2p){.engine = engine,
                      .peers = calloc(nranks, sizeof *p->peers),
                      .watched = calloc(nranks, sizeof *p->watched),
                      .free_blocks = UINT64_MAX,
                      .in_turn = shm_p2p_blocks_in_turn()};
    return p->peers && p->watched ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

void shm_p2p_fini(struct p2p *p)
{
    free(p->peers);
    free(p->watched);
}

/* ---- notifying ---- */

static void shm_p2p_notify(struct shm_group *g, uint32_t peer)
{
    struct doorbell *doorbell = &g->seg.doorbells[peer];
    g->p2p.peers[peer].notify_due = false;
    if (!doorbell_has_sleepers(g, doorbell))
        return;
    if (g->embedder && atomic_load(&doorbell->elsewhere) &&
        atomic_exchange(&doorbell->elsewhere, 0))
        g->embedder->wake(g->embedder->ctx, peer);
    else
        doorbell_wake(doorbell);
}

/* ---- starting ---- */

static void shm_p2p_watch(struct p2p *p, uint32_t peer)
{
    if (p->peers[peer].watched)
        return;
    p->peers[peer].watched = true;
    p->watched[p->nwatched++] = peer;
}

/* Called for the first message after all others were done: only its peers are watched, and those
 * that flush has yet to notify. */
static void shm_p2p_unwatch_all(struct p2p *p)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->nwatched; i++) {
        struct peer *peer = &p->peers[p->watched[i]];
        peer->watched = peer->notify_due;
        if (peer->watched)
            p->watched[kept++] = p->watched[i];
    }
    p->nwatched = kept;
}

/* What every new message needs first. */
static int shm_p2p_check(struct shm_group *g)
{
    if (shm_group_has_failed(g))
        return shm_group_report_failure(g);
    if (segment_map_messages(&g->seg))
        return COLLRUN_OK;
    return shm_group_fail(g, COLLRUN_ERR_NO_MEMORY,
                          "rank %u cannot map the memory for messages: %s", g->rank,
                          strerror(errno));
}

static struct transfer *shm_p2p_begin(struct shm_group *g, struct collrun_message *message,
                                      enum transfer_state state)
{
    struct p2p *p = &g->p2p;
    struct transfer *t = (struct transfer *)(void *)message;
    if (p->active++ == 0)
        shm_p2p_unwatch_all(p);
    t->moved = 0;
    t->early.len = 0;
    t->begun_ns = 0;
    t->state = state;
    t->blocks = 0;
    t->scheduled = false;
    return t;
}

int shm_p2p_send(void *group, struct collrun_message *message)
{
    struct shm_group *g = group;
    const int status = shm_p2p_check(g);
    if (status != COLLRUN_OK)
        return status;
    struct transfer *t = shm_p2p_begin(g, message, SEND_NEW);
    shm_p2p_watch(&g->p2p, message->peer);
    if (g->p2p.first || !sender_advance(g, t))
        transfer_schedule(&g->p2p, t);
    return COLLRUN_OK;
}

int shm_p2p_post(void *group, struct collrun_message *message)
{
    struct shm_group *g = group;
    const int status = shm_p2p_check(g);
    if (status != COLLRUN_OK)
        return status;
    shm_p2p_begin(g, message, RECV_POSTED);
    if (message->peer != COLLRUN_ANY_SOURCE)
        shm_p2p_watch(&g->p2p, message->peer);
    for (uint32_t k = 1; message->peer == COLLRUN_ANY_SOURCE && k <= g->nranks; k++)
        shm_p2p_watch(&g->p2p, (g->rank + k) % g->nranks);
    return COLLRUN_OK;
}

void shm_p2p_unpost(void *group, struct collrun_message *message)
{
    struct shm_group *g = group;
    (void)message;
    g->p2p.active--;
}

int shm_p2p_recv(void *group, struct collrun_message *message, const void *packet, size_t len)
{
    (void)len;
    return receiver_match(group, (struct transfer *)(void *)message, packet);
}

int shm_p2p_flush(void *group)
{
    struct shm_group *g = group;
    struct p2p *p = &g->p2p;
    for (uint32_t i = 0; i < p->nwatched; i++) {
        if (p->peers[p->watched[i]].notify_due)
            shm_p2p_notify(g, p->watched[i]);
    }
    return COLLRUN_OK;
}

/* ---- short messages of blocking calls ---- */

/* How often a receive polls before it is posted: some microseconds. */
#define POLLS_OF_SHORT 200u
#define YIELDS_OF_SHORT 8u

/* Polls of an oversubscribed group before the first yield: half a microsecond, or longer than the
 * kernel takes to switch between ranks; and some more for a message that has to be copied twice. */
#define POLLS_BRIEF 40u
#define POLLS_LONG 250u
#define BYTES_PER_POLL 64u
#define SPIN_BYTES_MAX 4096u
#define WAITS_WITHOUT_SPIN 8u
#define SPINS_PER_LONG_ONE 8u
/* Then the others may run, before their yields take so long that they sleep instead (wait.c). */
#define SPINS_IN_A_ROW 256u

static bool shm_p2p_is_idle(const struct shm_group *g)
{
    return g->seg.fifos && g->p2p.active == 0 && !shm_group_has_failed(g);
}

int shm_p2p_send_short(void *group, const struct collrun_message *message)
{
    struct shm_group *g = group;
    if (!shm_p2p_is_idle(g) || !sender_send_short(g, message))
        return COLLRUN_AGAIN;
    shm_p2p_notify(g, message->peer);
    sender_prefetch(g, message->peer, message->len);
    return COLLRUN_OK;
}

/* The next packet, whose lines arrive together; NULL: it takes longer. */
static const struct packet *shm_p2p_spin_for_packet(struct shm_group *g, uint32_t peer, size_t len)
{
    const size_t payload = len <= PAYLOAD_BYTES ? len : 0;
    const struct packet *packet = fifo_peek(g, peer);
    const uint32_t most = g->wait.spins < POLLS_OF_SHORT ? g->wait.spins : POLLS_OF_SHORT;
    for (uint32_t polls = 0; !packet && polls < most; polls++) {
        wait_pause(polls);
        fifo_prefetch(g, peer, payload);
        packet = fifo_peek(g, peer);
    }
    return packet;
}

/* In an oversubscribed group: while the two ranks of a conversation run, on two cores, their
 * messages need no switch of the kernel, each of which takes longer than ten messages. A spin that
 * has found something is repeated at the next wait; one in vain, only some waits later. Ranks whose
 * partners run at other times get into step by a long one. */
static const struct packet *shm_p2p_spin_before_yielding(struct shm_group *g, uint32_t peer,
                                                         size_t len)
{
    struct p2p *p = &g->p2p;
    const struct packet *packet = fifo_peek(g, peer);
    if (packet || len > SPIN_BYTES_MAX)
        return packet;
    if (p->waits_to_spin > 0) {
        p->waits_to_spin--;
        return NULL;
    }
    const uint32_t least = p->vain_spins % SPINS_PER_LONG_ONE == 0 ? POLLS_LONG : POLLS_BRIEF;
    const uint32_t most = least + (uint32_t)len / BYTES_PER_POLL;
    for (uint32_t polls = 0; !packet && polls < most; polls++) {
        wait_pause(polls);
        packet = fifo_peek(g, peer);
    }
    if (!packet) {
        p->waits_to_spin = WAITS_WITHOUT_SPIN;
        p->vain_spins++;
        p->spins_in_a_row = 0;
    } else if (++p->spins_in_a_row == SPINS_IN_A_ROW) {
        p->spins_in_a_row = 0;
        sched_yield();
    }
    return packet;
}

/* In an oversubscribed group the sender may have to run first. NULL: it takes longer, or this rank
 * should sleep. */
static const struct packet *shm_p2p_yield_for_packet(struct shm_group *g, uint32_t peer, size_t len)
{
    struct wait w = WAIT_FOR(g, &g->seg.doorbells[g->rank]);
    const struct packet *packet = shm_p2p_spin_before_yielding(g, peer, len);
    if (packet)
        return packet;
    wait_set_timeout(g, UINT64_MAX);
    for (uint32_t yields = 0; !packet && yields < YIELDS_OF_SHORT && !w.sleeping; yields++) {
        if (wait_more(&w, NULL, NULL) != COLLRUN_OK)
            return NULL; /* the group has failed */
        packet = fifo_peek(g, peer);
    }
    wait_end(&w);
    return packet;
}

int shm_p2p_recv_short(void *group, const struct collrun_message *message)
{
    struct shm_group *g = group;
    if (message->len > EAGER_BYTES || !shm_p2p_is_idle(g))
        return COLLRUN_AGAIN;
    const struct packet *packet = g->wait.oversubscribed
                                      ? shm_p2p_yield_for_packet(g, message->peer, message->len)
                                      : shm_p2p_spin_for_packet(g, message->peer, message->len);
    if (!packet || !receiver_take_short(g, message, packet))
        return COLLRUN_AGAIN;
    fifo_pop(g, message->peer);
    shm_p2p_notify(g, message->peer);
    return COLLRUN_OK;
}

/* ---- progress ---- */

/* After the RTS. */
static bool shm_p2p_more_may_come(const struct transfer *t)
{
    return t->state == RECV_STREAMS || (t->state == RECV_PARTS && t->early.len < t->message.len);
}

/* False for what a peer never sends in this state of the transfer. */
static bool shm_p2p_packet_fits(const struct transfer *t, const struct packet *packet)
{
    struct cts cts;
    switch ((enum packet_type)packet->type) {
    case PKT_CTS:
        memcpy(&cts, packet->payload, sizeof cts);
        return t->state == SEND_ANNOUNCED && cts.moved <= t->message.len;
    case PKT_ACK:
        return transfer_is_send(t) && t->state != SEND_NEW;
    case PKT_FRAG:
        return shm_p2p_more_may_come(t) && t->moved < t->message.len && packet->block < BLOCK_COUNT;
    case PKT_FIN:
        return shm_p2p_more_may_come(t);
    default:
        return false;
    }
}

static int shm_p2p_handle_packet(struct shm_group *g, uint32_t from, const struct packet *packet)
{
    const struct collrun_p2p *engine = g->p2p.engine;
    if (packet->type == PKT_RTS)
        return receiver_handle_rts(g, from, packet);
    struct transfer *t = (struct transfer *)(void *)engine->find(engine->ctx, packet->id);
    if (!t || t->message.peer != from || !shm_p2p_packet_fits(t, packet))
        return shm_group_fail_damaged(g, from, "a packet of an unknown message");
    switch ((enum packet_type)packet->type) {
    case PKT_CTS:
        sender_handle_cts(g, t, packet);
        return COLLRUN_OK;
    case PKT_ACK:
        sender_handle_ack(g, t, packet);
        return COLLRUN_OK;
    case PKT_FIN:
        return receiver_handle_fin(g, t);
    default:
        return receiver_handle_frag(g, t, packet);
    }
}

static int shm_p2p_handle_packets(struct shm_group *g, bool *moved)
{
    const struct p2p *p = &g->p2p;
    int status = COLLRUN_OK;
    for (uint32_t i = 0; i < p->nwatched; i++) {
        const uint32_t from = p->watched[i];
        const struct packet *packet;
        while (status == COLLRUN_OK && (packet = fifo_peek(g, from))) {
            status = shm_p2p_handle_packet(g, from, packet);
            fifo_pop(g, from);
            *moved = true;
        }
    }
    return status;
}

/* One packet of each scheduled transfer. */
static void shm_p2p_send_packets(struct shm_group *g, bool *moved)
{
    struct p2p *p = &g->p2p;
    p->round++;
    for (struct transfer *t = p->first, *next; t; t = next) {
        next = t->next;
        *moved |= transfer_is_send(t) ? sender_advance(g, t) : receiver_advance(g, t);
    }
}

static int shm_p2p_progress_once(struct shm_group *g, bool *moved)
{
    const int status = shm_p2p_handle_packets(g, moved);
    if (g->p2p.first)
        shm_p2p_send_packets(g, moved);
    if (*moved)
        shm_p2p_flush(g);
    return status == COLLRUN_OK && shm_group_has_failed(g) ? shm_group_report_failure(g) : status;
}

/* A thread that is about to sleep has counted itself among the sleepers before it reads `woken`. So
 * either it sees that, or this thread sees the sleeper. */
void shm_p2p_wake(void *group)
{
    struct shm_group *g = group;
    struct doorbell *own = &g->seg.doorbells[g->rank];
    if (!atomic_exchange(&g->p2p.woken, true) && atomic_load(&own->sleepers) != 0)
        doorbell_wake(own);
}

static bool shm_p2p_take_wake(struct p2p *p)
{
    return atomic_load(&p->woken) && atomic_exchange(&p->woken, false);
}

int shm_p2p_progress(void *group, uint64_t wait_ns)
{
    struct shm_group *g = group;
    struct wait w = WAIT_FOR(g, &g->seg.doorbells[g->rank]);
    bool moved = false;
    wait_set_timeout(g, wait_ns);
    int status = shm_p2p_progress_once(g, &moved);
    while (status == COLLRUN_OK && !moved && wait_ns > 0 && !shm_p2p_take_wake(&g->p2p)) {
        status = wait_more(&w, NULL, NULL);
        if (status == COLLRUN_AGAIN) /* wait_ns have passed */
            return COLLRUN_OK;
        if (status == COLLRUN_OK)
            status = shm_p2p_progress_once(g, &moved);
    }
    wait_end(&w);
    return status == COLLRUN_OK && moved ? COLLRUN_AGAIN : status;
}
