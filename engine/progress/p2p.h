/* SPDX-License-Identifier: Apache-2.0
 *
 * struct p2p: the sends and receives of one group handle whose backend only moves bytes; the engine
 * does the rest (struct collrun_p2p in <collrun/backend.h>). It owns the messages that are in
 * progress and the packets of unexpected messages, matches them (match.h), and fails the group.
 *
 * A batch is the calls of one exec or of one request; they progress together.
 *   - p2p_exec starts a batch and waits for its end in the backend's progress, or until another
 *     thread needs the handle
 *   - p2p_start starts a batch; p2p_progress moves all of them; p2p_check returns whether one is
 *     over; p2p_withdraw takes back a batch of receives
 *   - p2p_probe looks for a message that a receive would take
 *
 * A message to this rank itself never reaches the transport: its data is copied, at once into the
 * buffer of a receive that is posted, else into a packet.
 *
 * Failure modes, after which every batch fails with the same status and text:
 *   - MISMATCH: the type of a message is not that of its receive, or its count differs (with
 *     collrun_call.received: is larger)
 *   - TIMEOUT: a batch is not over in time; the text names the peers that are missing
 *   - BACKEND: the tag of a message is one that no sender uses
 *   - NO_MEMORY, any status that the backend returns, and that of a copy of a message to this rank
 * After a failure the backend's transport is not called again, because messages of batches that
 * have failed are still in it, and their buffers belong to the caller again.
 *
 * One thread at a time is inside: the one that makes progress in the handle (progress_queue.h).
 * Any thread may call p2p_wake.
 */
#ifndef ENGINE_PROGRESS_P2P_H
#define ENGINE_PROGRESS_P2P_H

#include "core/match.h"
#include "core/reduce.h"

#include <collrun/backend.h>
#include <stdatomic.h>

struct p2p_message;
struct p2p_packet;

/* The calls must not move until the batch is over. */
struct p2p_batch {
    uint32_t unfinished; /* messages; 0: the batch is over */
    uint32_t ncalls;
    uint64_t timeout_ns;
    uint64_t begun_ns;    /* when the time-out began; 0: at the first look at the clock */
    uint64_t deadline_ns; /* 0 before the first look */
    uint64_t stopped_ns;  /* how long the process had stood still then */
};

/* The sends to one member that are not done. Another thread may read them. */
struct p2p_sends {
    _Atomic uint32_t unfinished,
        announced; /* of them, those that wait for their receivers to call */
};

struct p2p {
    struct collrun_p2p table;           /* what the backend gets */
    struct collrun_transport transport; /* as much of the backend's as both sides know */
    const struct collrun_services *services;
    void *handle; /* the backend's group */
    /* Copies the data of a message to this rank itself where a buffer may be in device memory; on
     * failure the cause is stored. NULL: all are in host memory. */
    int (*copy)(void *ctx, void *dst, const void *src, size_t len);
    void *copy_ctx;
    uint32_t rank, nranks;
    struct match match;
    struct p2p_sends *sends;       /* by rank */
    struct p2p_message **messages; /* by id */
    uint32_t nmessages, nactive;   /* that exist; that are not done */
    bool flush_due;                /* the transport has been called since its last flush */
    struct p2p_message *unused;
    struct p2p_packet *unused_packets;
    int status; /* 0, or the failure */
    char text[768];
};

/* For the description of a group that is about to be opened; NULL: out of memory. */
struct p2p *p2p_new(const struct collrun_transport *transport,
                    const struct collrun_services *services, uint32_t rank, uint32_t nranks);
/* After the backend has closed the handle. A thread that is late may still ask what the transport
 * can, until the struct is freed, by free(). */
void p2p_close(struct p2p *p);
void p2p_free(struct p2p *p); /* both; accepts NULL */

/* A message that a receive from `source` (or MATCH_ANY_SOURCE) with `tag` (or MATCH_ANY_TAG) would
 * take, and its sender. */
struct p2p_probe {
    uint32_t source, tag;
    struct collrun_envelope envelope;
    uint32_t from;
    uint64_t nunexpected; /* all messages that wait for a receive; 0: not known */
};

/* True if there are sends to this rank that are not done, and all of them wait for their receiver
 * to call. From any thread, until p2p_close. */
static inline bool p2p_sends_await_receiver(const struct p2p *p, uint32_t peer)
{
    const uint32_t n = atomic_load_explicit(&p->sends[peer].unfinished, memory_order_relaxed);
    return n && n == atomic_load_explicit(&p->sends[peer].announced, memory_order_relaxed);
}

/* All return a status whose cause is stored. */

/* AGAIN: *yield became true first (it may be NULL), and the batch goes on. It is a hint, which is
 * loaded relaxed in every round. */
int p2p_exec(struct p2p *p, const struct collrun_call *calls, uint32_t ncalls,
             struct p2p_batch *batch, const atomic_bool *yield);
int p2p_start(struct p2p *p, const struct collrun_call *calls, uint32_t ncalls,
              struct p2p_batch *batch);
/* Without blocking. AGAIN: something has moved. */
int p2p_progress(struct p2p *p);
/* The same; if nothing moves, for up to `wait_ns`, or until p2p_wake. */
int p2p_wait(struct p2p *p, uint64_t wait_ns);
/* From any thread, at any time: where the transport can be woken, the thread in p2p_exec or
 * p2p_wait returns soon. p2p_exec does so if *yield is true. */
void p2p_wake(const struct p2p *p);
/* AGAIN: the batch is not over. */
int p2p_check(struct p2p *p, struct p2p_batch *batch);
/* OK: all messages of the batch were receives that had not been matched, and are withdrawn. AGAIN:
 * too late, nothing has changed. */
int p2p_withdraw(struct p2p *p, struct p2p_batch *batch);
/* OK: there is such a message. AGAIN: none, after up to `wait_ns` of progress. */
int p2p_probe(struct p2p *p, struct p2p_probe *probe, uint64_t wait_ns);
/* Fails the group here and, where the transport can, at the peer, or at all members
 * (COLLRUN_ANY_SOURCE). The first failure stays. */
int p2p_fail_with_peer(struct p2p *p, uint32_t peer, int status, const char *text);
/* The failure of a probe that has waited for `waited_ns`. */
int p2p_probe_expired(struct p2p *p, const struct p2p_probe *probe, uint64_t waited_ns);

/* ---- short messages ---- */

/* A blocking call of one short message: the transport moves it at once, where it can, without a
 * message of its queue, a look at the match or a flush.
 *
 * - The short way is open only while no message is in progress and none is unexpected, so messages
 *   keep their order, and a receive takes what the match would give it.
 * - Failure modes: none. What the transport refuses (a message that is long, does not arrive in
 *   time, or has another tag, type or count) takes the usual way, p2p_exec, which reports errors.
 */

/* No transport takes a copy of longer ones at once: the bound saves asking. */
enum { P2P_SHORT_MOST_BYTES = 256 << 10 };

/* False: p2p_short_exec would refuse the send; `p` may be NULL. */
static inline bool p2p_short_may_send(const struct p2p *p, const struct collrun_call *call)
{
    return p && p->transport.send_short &&
           call->count * dtype_size(call->dtype) <= P2P_SHORT_MOST_BYTES;
}

static inline bool p2p_short_may_recv(const struct p2p *p, const struct collrun_call *call)
{
    return p && p->transport.recv_short &&
           call->count * dtype_size(call->dtype) <= P2P_SHORT_MOST_BYTES;
}

/* OK: the message is done. AGAIN: nothing has happened. */
int p2p_short_exec(struct p2p *p, const struct collrun_call *call);

#endif
