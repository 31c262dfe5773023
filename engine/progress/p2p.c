/* SPDX-License-Identifier: Apache-2.0
 *
 * See p2p.h. The short way matters here: a message that is posted in time costs one look-up in the
 * match, and neither memory nor a look at the clock.
 */
#include "progress/p2p.h"

#include "base/loop.h"
#include "base/standstill.h"
#include "core/error.h"
#include "core/match.h"
#include "core/reduce.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a wait takes without a look at the clock, and after how many rounds in which something
 * has moved the clock is read all the same. Where a transport cannot be woken: how long the first
 * wait takes while another thread may need the handle; later ones: up to 2 * SHORT_WAIT_NS. */
enum { SHORT_WAIT_NS = 10000000, ROUNDS_PER_CLOCK = 64, YIELD_WAIT_NS = 1000000 };

struct p2p_message {
    struct match_entry match; /* first: a posted receive is found by it */
    struct p2p_batch *batch;  /* NULL: the message is done */
    const struct collrun_call *call;
    struct p2p_message *next; /* while it is unused */
    bool is_matched, is_announced;
    _Alignas(16) struct collrun_message shared; /* and the rest of the backend's struct */
};

static struct p2p_message *p2p_message_of(struct collrun_message *shared)
{
    return (struct p2p_message *)(void *)((char *)shared - offsetof(struct p2p_message, shared));
}

/* ---- packets ---- */

/* The packet of an unexpected message, or the data of one from this rank itself. */
struct p2p_packet {
    struct match_entry match; /* first: the packet is found by it */
    struct p2p_packet *next;  /* while it is unused */
    size_t len;
    _Alignas(16) char bytes[];
};

/* Most packets are at most this long; such ones are used again. */
enum { PACKET_BYTES = 256 };

/* NULL: out of memory. *unused is the list of packets that are used again. */
static struct p2p_packet *p2p_packet_new(struct p2p_packet **unused, size_t len)
{
    struct p2p_packet *packet = len <= PACKET_BYTES ? *unused : NULL;
    if (packet)
        *unused = packet->next;
    else
        packet = malloc(sizeof *packet + (len < PACKET_BYTES ? PACKET_BYTES : len));
    if (!packet)
        return NULL;
    packet->len = len;
    return packet;
}

static void p2p_packet_release(struct p2p_packet **unused, struct p2p_packet *packet)
{
    if (packet->len > PACKET_BYTES) {
        free(packet);
        return;
    }
    packet->next = *unused;
    *unused = packet;
}

static void p2p_packet_free_unused(struct p2p_packet **unused)
{
    for (struct p2p_packet *packet; (packet = *unused);) {
        *unused = packet->next;
        free(packet);
    }
}

/* ---- failures ---- */

/* The stored failure, as this thread's cause. */
static int p2p_failure(const struct p2p *p)
{
    return p->services->fail(p->services->ctx, p->status, "%s", p->text);
}

/* The first failure stays. */
static int p2p_fail(struct p2p *p, int status, const char *text)
{
    if (p->status == COLLRUN_OK) {
        p->status = status;
        snprintf(p->text, sizeof p->text, "%s", text);
    }
    return p2p_failure(p);
}

/* The backend has failed, or arrived has, inside the backend; the cause is stored. */
static int p2p_failed(struct p2p *p, int status)
{
    if (p->status == COLLRUN_OK) {
        p->status = status;
        snprintf(p->text, sizeof p->text, "%s", error_get()->cause);
    }
    return p->status;
}

int p2p_fail_with_peer(struct p2p *p, uint32_t peer, int status, const char *text)
{
    /* What only this rank lacks is to the peers the failure of a peer. */
    const bool own = status == COLLRUN_ERR_NO_MEMORY || status == COLLRUN_ERR_SYSTEM;
    if (p->status == COLLRUN_OK && p->transport.fail)
        p->transport.fail(p->handle, peer, own ? COLLRUN_ERR_PEER_FAILED : status, text);
    return p2p_fail(p, status, text);
}

/* Peers may be reading buffers of messages that fail with this one. */
static int p2p_out_of_memory(struct p2p *p)
{
    return p2p_fail_with_peer(p, COLLRUN_ANY_SOURCE, COLLRUN_ERR_NO_MEMORY,
                              "out of memory for messages");
}

static int p2p_fail_mismatch(struct p2p *p, const struct match_entry *message,
                             const struct collrun_call *receive)
{
    char text[sizeof p->text];
    struct collrun_call send = COLLRUN_CALL(COLLRUN_SEND);
    send.count = message->count;
    send.dtype = (enum collrun_dtype)message->dtype;
    send.peer = (int)p->rank;
    send.tag = message->tag;
    p->services->mismatch_text(p->services->ctx, message->source, &send, p->rank, receive, text,
                               sizeof text);
    return p2p_fail_with_peer(p, message->source, COLLRUN_ERR_MISMATCH, text);
}

/* Whether a message that is not done waits for this rank. */
static bool p2p_waits_for(const struct p2p *p, const struct p2p_message *m, uint32_t rank)
{
    bool any = m->call->kind == COLLRUN_RECV_ANY && !m->is_matched;
    return any ? rank != p->rank : m->shared.peer == rank;
}

/* "; a message with tag 5 from it has arrived", of the one peer that a receive of this rank waits
 * for. */
static void p2p_add_arrived(const struct p2p *p, uint32_t peer, char *text, size_t size)
{
    const struct match_entry *m = p->match.oldest;
    const size_t len = strlen(text);
    while (m && (m->source != peer || m->tag >= MATCH_ENGINE_TAG))
        m = m->next;
    if (m)
        snprintf(text + len, size - len, "; a message with tag %u from it has arrived", m->tag);
}

/* `missing` may be NULL. `receives`: a receive or a probe waits, so it matters what has arrived. */
static int p2p_fail_timeout(struct p2p *p, const uint32_t *missing, uint32_t nmissing,
                            bool receives, uint64_t waited_ns)
{
    char text[sizeof p->text];
    p->services->timeout_text(p->services->ctx, p->rank, missing, missing ? nmissing : 0, waited_ns,
                              text, sizeof text);
    if (receives && missing && nmissing == 1)
        p2p_add_arrived(p, missing[0], text, sizeof text);
    return p2p_fail_with_peer(p, COLLRUN_ANY_SOURCE, COLLRUN_ERR_TIMEOUT, text);
}

static int p2p_batch_expired(struct p2p *p, const struct p2p_batch *batch)
{
    uint32_t n = 0, *missing = calloc(p->nranks, sizeof *missing);
    bool receives = false;
    for (uint32_t i = 0; i < p->nmessages; i++)
        receives |= p->messages[i]->batch == batch && p->messages[i]->call->kind != COLLRUN_SEND;
    for (uint32_t r = 0; missing && r < p->nranks; r++) {
        bool waited_for = false;
        for (uint32_t i = 0; i < p->nmessages && !waited_for; i++)
            waited_for = p->messages[i]->batch == batch && p2p_waits_for(p, p->messages[i], r);
        if (waited_for)
            missing[n++] = r;
    }
    int rc = p2p_fail_timeout(p, missing, n, receives, batch->timeout_ns);
    free(missing);
    return rc;
}

/* ---- messages ---- */

static struct p2p_message *p2p_message_new(struct p2p *p)
{
    if ((p->nmessages & (p->nmessages - 1)) == 0) { /* the array grows in powers of two */
        size_t room = p->nmessages ? 2 * (size_t)p->nmessages : 1;
        struct p2p_message **grown = realloc(p->messages, room * sizeof *grown);
        if (!grown)
            return NULL;
        p->messages = grown;
    }
    size_t len = offsetof(struct p2p_message, shared) + p->transport.message_size;
    struct p2p_message *m = malloc(len);
    if (!m)
        return NULL;
    m->shared.id = p->nmessages;
    p->messages[p->nmessages++] = m;
    return m;
}

static struct p2p_message *p2p_message_get(struct p2p *p)
{
    struct p2p_message *m = p->unused;
    if (!m)
        return p2p_message_new(p);
    p->unused = m->next;
    return m;
}

static void p2p_message_release(struct p2p *p, struct p2p_message *m)
{
    m->batch = NULL;
    m->next = p->unused;
    p->unused = m;
}

/* What the caller of a receive wants to know. */
static void p2p_put_envelope(const struct collrun_call *call, const struct collrun_message *shared)
{
    if (call->kind == COLLRUN_RECV_ANY && call->source)
        *call->source = (int)shared->peer;
    if (call->received)
        *call->received = shared->envelope.count;
    if (call->received_tag)
        *call->received_tag = shared->envelope.tag;
}

/* Only the owner of the queue changes the counts. */
static void p2p_count_add(_Atomic uint32_t *count, uint32_t change)
{
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + change,
                          memory_order_relaxed);
}

static void p2p_message_announced(void *ctx, const struct collrun_message *shared)
{
    struct p2p *p = ctx;
    struct p2p_message *m = p2p_message_of((struct collrun_message *)(uintptr_t)shared);
    m->is_announced = true;
    p2p_count_add(&p->sends[shared->peer].announced, 1);
}

static void p2p_message_done(void *ctx, struct collrun_message *shared)
{
    struct p2p *p = ctx;
    struct p2p_message *m = p2p_message_of(shared);
    if (m->call->kind != COLLRUN_SEND) {
        p2p_put_envelope(m->call, shared);
    } else {
        p2p_count_add(&p->sends[shared->peer].unfinished, UINT32_MAX);
        if (m->is_announced)
            p2p_count_add(&p->sends[shared->peer].announced, UINT32_MAX);
    }
    m->batch->unfinished--;
    p->nactive--;
    p2p_message_release(p, m);
}

static struct collrun_message *p2p_message_find(void *ctx, uint32_t id)
{
    struct p2p *p = ctx;
    return id < p->nmessages && p->messages[id]->batch ? &p->messages[id]->shared : NULL;
}

/* ---- matching ---- */

static bool p2p_fits(const struct match_entry *message, const struct p2p_message *m)
{
    bool fits =
        m->call->received ? message->count <= m->match.count : message->count == m->match.count;
    return fits && message->dtype == m->match.dtype;
}

/* The data of a message of this rank itself; either buffer may be in device memory. */
static int p2p_copy(struct p2p *p, void *dst, const void *src, size_t len)
{
    char text[sizeof p->text];
    int rc = p->copy && len ? p->copy(p->copy_ctx, dst, src, len) : COLLRUN_OK;
    if (!p->copy && len)
        memmove(dst, src, len);
    if (rc != COLLRUN_OK)
        snprintf(text, sizeof text, "%s", error_get()->cause);
    return rc == COLLRUN_OK ? rc : p2p_fail_with_peer(p, COLLRUN_ANY_SOURCE, rc, text);
}

/* `packet`: of a message of this rank itself, its data. */
static int p2p_match_message(struct p2p *p, struct p2p_message *m,
                             const struct match_entry *message, const void *packet, size_t len)
{
    bool own = message->source == p->rank;
    if (own && p->transport.unpost && m->shared.peer != p->rank)
        p->transport.unpost(p->handle, &m->shared);
    m->is_matched = true;
    m->shared.peer = message->source;
    if (!p2p_fits(message, m))
        return p2p_fail_mismatch(p, message, m->call);
    m->shared.envelope.tag = message->tag;
    if (message->count != m->match.count) {
        m->shared.envelope.count = message->count;
        m->shared.len = message->count * dtype_size((enum collrun_dtype)message->dtype);
    }
    if (!own) {
        p->flush_due = true;
        return p->transport.recv(p->handle, &m->shared, packet, len);
    }
    int rc = p2p_copy(p, m->shared.data, packet, len);
    if (rc == COLLRUN_OK)
        p2p_message_done(p, &m->shared);
    return rc;
}

static int p2p_keep_unexpected(struct p2p *p, uint32_t source,
                               const struct collrun_envelope *envelope, const void *packet,
                               size_t len)
{
    int rc = COLLRUN_OK;
    struct p2p_packet *unexpected = p2p_packet_new(&p->unused_packets, len);
    if (!unexpected)
        return p2p_out_of_memory(p);
    if (source == p->rank)
        rc = p2p_copy(p, unexpected->bytes, packet, len);
    else if (len)
        memcpy(unexpected->bytes, packet, len);
    if (rc != COLLRUN_OK) {
        p2p_packet_release(&p->unused_packets, unexpected);
        return rc;
    }
    unexpected->match.source = source;
    unexpected->match.tag = envelope->tag;
    unexpected->match.count = envelope->count;
    unexpected->match.dtype = envelope->dtype;
    match_add_unexpected(&p->match, &unexpected->match);
    return COLLRUN_OK;
}

/* A message has arrived, with the transport's packet or, from this rank itself, its data. */
static int p2p_message_arrived(void *ctx, uint32_t source, const struct collrun_envelope *envelope,
                               const void *packet, size_t len)
{
    struct p2p *p = ctx;
    if (p->status != COLLRUN_OK)
        return p2p_failure(p);
    if (envelope->tag == MATCH_ANY_TAG)
        return p2p_fail(p, COLLRUN_ERR_BACKEND, "malformed message: no sender uses its tag");
    struct match_entry *receive = match_take_posted(&p->match, source, envelope->tag);
    if (receive) {
        struct match_entry message = {.source = source, .tag = envelope->tag};
        message.count = envelope->count;
        message.dtype = envelope->dtype;
        return p2p_match_message(p, (struct p2p_message *)receive, &message, packet, len);
    }
    return p2p_keep_unexpected(p, source, envelope, packet, len);
}

static int p2p_begin_receive(struct p2p *p, struct p2p_message *m)
{
    m->match.source = m->shared.peer;
    m->match.tag = m->call->tag;
    m->match.count = m->call->count;
    m->match.dtype = m->call->dtype;
    bool posts = p->transport.post && m->shared.peer != p->rank;
    int rc = posts ? p->transport.post(p->handle, &m->shared) : COLLRUN_OK;
    if (rc != COLLRUN_OK)
        return rc;
    struct match_entry *found = match_take_unexpected(&p->match, m->match.source, m->match.tag);
    if (!found) {
        match_add_posted(&p->match, &m->match);
        return COLLRUN_OK;
    }
    struct p2p_packet *packet = (struct p2p_packet *)found;
    rc = p2p_match_message(p, m, found, packet->bytes, packet->len);
    p2p_packet_release(&p->unused_packets, packet);
    return rc;
}

/* ---- batches ---- */

/* The send is done when the data is in the buffer of a receive, or in a packet. */
static int p2p_send_to_self(struct p2p *p, const struct collrun_call *call, struct p2p_batch *batch)
{
    const struct collrun_envelope envelope = {
        .count = call->count, .tag = call->tag, .dtype = (uint32_t)call->dtype};
    int rc = p2p_message_arrived(p, p->rank, &envelope, call->send,
                                 call->count * dtype_size(call->dtype));
    batch->unfinished -= rc == COLLRUN_OK;
    return rc;
}

static int p2p_begin(struct p2p *p, const struct collrun_call *call, struct p2p_batch *batch)
{
    bool sends = call->kind == COLLRUN_SEND;
    if (sends && (uint32_t)call->peer == p->rank)
        return p2p_send_to_self(p, call, batch);
    struct p2p_message *m = p2p_message_get(p);
    if (!m)
        return p2p_out_of_memory(p);
    m->batch = batch;
    m->call = call;
    m->is_matched = m->is_announced = false;
    m->shared.envelope = (struct collrun_envelope){
        .count = call->count, .tag = call->tag, .dtype = (uint32_t)call->dtype};
    m->shared.data = sends ? (void *)(uintptr_t)call->send : call->recv;
    m->shared.len = call->count * dtype_size(call->dtype);
    m->shared.peer = call->kind == COLLRUN_RECV_ANY ? COLLRUN_ANY_SOURCE : (uint32_t)call->peer;
    p->nactive++;
    if (!sends)
        return p2p_begin_receive(p, m);
    p->flush_due = true;
    p2p_count_add(&p->sends[m->shared.peer].unfinished, 1);
    return p->transport.send(p->handle, &m->shared);
}

int p2p_start(struct p2p *p, const struct collrun_call *calls, uint32_t ncalls,
              struct p2p_batch *batch)
{
    int rc = COLLRUN_OK;
    *batch = (struct p2p_batch){
        .timeout_ns = calls[0].timeout_ns, .ncalls = ncalls, .unfinished = ncalls};
    if (p->status != COLLRUN_OK)
        return p2p_failure(p);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < ncalls; i++)
        rc = p2p_begin(p, &calls[i], batch);
    if (rc == COLLRUN_OK && p->flush_due && p->transport.flush)
        rc = p->transport.flush(p->handle);
    p->flush_due = false;
    return rc == COLLRUN_OK ? rc : p2p_failed(p, rc);
}

static int p2p_transport_progress(struct p2p *p, uint64_t wait_ns)
{
    int rc = p->transport.progress(p->handle, wait_ns);
    if (p->status != COLLRUN_OK)
        return p2p_failure(p);
    return rc == COLLRUN_OK || rc == COLLRUN_AGAIN ? rc : p2p_failed(p, rc);
}

int p2p_wait(struct p2p *p, uint64_t wait_ns)
{
    return p->status == COLLRUN_OK ? p2p_transport_progress(p, wait_ns) : p2p_failure(p);
}

int p2p_progress(struct p2p *p)
{
    return p2p_wait(p, 0);
}

void p2p_wake(const struct p2p *p)
{
    if (p->transport.wake)
        p->transport.wake(p->handle);
}

/* *left: how long the batch may wait, ns. */
static int p2p_check_deadline(struct p2p *p, struct p2p_batch *batch, uint64_t now, uint64_t *left)
{
    if (batch->deadline_ns == 0) {
        const uint64_t begun = batch->begun_ns ? batch->begun_ns : now;
        batch->deadline_ns = deadline_after(begun, batch->timeout_ns);
        batch->stopped_ns = standstill_total(begun);
    }
    if (standstill_expired(now, &batch->stopped_ns, &batch->deadline_ns))
        return p2p_batch_expired(p, batch);
    *left = batch->deadline_ns - now;
    return COLLRUN_OK;
}

int p2p_check(struct p2p *p, struct p2p_batch *batch)
{
    uint64_t left;
    if (batch->unfinished == 0)
        return COLLRUN_OK;
    if (p->status != COLLRUN_OK)
        return p2p_failure(p);
    int rc = p2p_check_deadline(p, batch, batch->begun_ns ? now_coarse_ns() : now_ns(), &left);
    return rc == COLLRUN_OK ? COLLRUN_AGAIN : rc;
}

/* A time-out that is as short as a wait begins before it. */
static int p2p_wait_for_batch(struct p2p *p, struct p2p_batch *batch, const atomic_bool *yield)
{
    uint64_t wait_ns = SHORT_WAIT_NS;
    uint64_t longest_ns = yield && !p->transport.wake ? YIELD_WAIT_NS : UINT64_MAX / 2;
    int rc = batch->timeout_ns <= SHORT_WAIT_NS ? p2p_check_deadline(p, batch, now_ns(), &wait_ns)
                                                : COLLRUN_OK;
    uint64_t short_ns = wait_ns;
    for (unsigned round = 1; rc == COLLRUN_OK; round++) {
        rc = p2p_transport_progress(p, wait_ns < longest_ns ? wait_ns : longest_ns);
        if (rc < 0 || batch->unfinished == 0)
            return rc < 0 ? rc : COLLRUN_OK;
        if (yield && atomic_load_explicit(yield, memory_order_relaxed))
            return COLLRUN_AGAIN;
        bool moved = rc == COLLRUN_AGAIN && round % ROUNDS_PER_CLOCK != 0;
        wait_ns = short_ns, longest_ns *= longest_ns < SHORT_WAIT_NS ? 2 : 1;
        rc = moved ? COLLRUN_OK : p2p_check_deadline(p, batch, now_ns(), &wait_ns);
    }
    return rc;
}

/* Batches that were started before make progress, too, even if this one is over at once. */
int p2p_exec(struct p2p *p, const struct collrun_call *calls, uint32_t ncalls,
             struct p2p_batch *batch, const atomic_bool *yield)
{
    if (ncalls == 1 && p2p_short_exec(p, calls) == COLLRUN_OK)
        return COLLRUN_OK;
    int rc = p2p_start(p, calls, ncalls, batch);
    if (rc != COLLRUN_OK)
        return rc;
    if (batch->unfinished)
        return p2p_wait_for_batch(p, batch, yield);
    rc = p->nactive ? p2p_transport_progress(p, 0) : COLLRUN_OK;
    return rc < 0 ? rc : COLLRUN_OK;
}

/* ---- withdrawing ---- */

static bool p2p_batch_is_unmatched(const struct p2p *p, const struct p2p_batch *batch)
{
    uint32_t posted = 0;
    for (uint32_t i = 0; i < p->nmessages; i++) {
        const struct p2p_message *m = p->messages[i];
        posted += m->batch == batch && m->call->kind != COLLRUN_SEND && !m->is_matched;
    }
    return posted == batch->ncalls;
}

int p2p_withdraw(struct p2p *p, struct p2p_batch *batch)
{
    if (p->status != COLLRUN_OK || !p2p_batch_is_unmatched(p, batch))
        return COLLRUN_AGAIN;
    for (uint32_t i = 0; i < p->nmessages; i++) {
        struct p2p_message *m = p->messages[i];
        if (m->batch != batch)
            continue;
        match_withdraw_posted(&p->match, &m->match);
        if (p->transport.unpost && m->shared.peer != p->rank)
            p->transport.unpost(p->handle, &m->shared);
        p2p_message_release(p, m);
        p->nactive--;
    }
    batch->unfinished = 0;
    return COLLRUN_OK;
}

/* ---- probing ---- */

static bool p2p_find_unexpected(struct p2p *p, struct p2p_probe *probe)
{
    const struct match_entry *found = match_find_unexpected(&p->match, probe->source, probe->tag);
    if (!found)
        return false;
    probe->envelope =
        (struct collrun_envelope){.count = found->count, .tag = found->tag, .dtype = found->dtype};
    probe->from = found->source;
    probe->nunexpected = p->match.nunexpected;
    return true;
}

/* A transport that looks only at the peers of its receives gets one meanwhile. */
static int p2p_progress_for_probe(struct p2p *p, const struct p2p_probe *probe, uint64_t wait_ns)
{
    if (!p->transport.post || probe->source == p->rank)
        return p2p_transport_progress(p, wait_ns);
    struct p2p_message *m = p2p_message_get(p);
    if (!m)
        return p2p_out_of_memory(p);
    m->batch = NULL;
    m->shared.envelope = (struct collrun_envelope){.tag = probe->tag};
    m->shared.data = NULL;
    m->shared.len = 0;
    m->shared.peer = probe->source;
    int rc = p->transport.post(p->handle, &m->shared);
    if (rc == COLLRUN_OK) {
        rc = p2p_transport_progress(p, wait_ns);
        p->transport.unpost(p->handle, &m->shared);
    }
    p2p_message_release(p, m);
    return rc < 0 ? p2p_failed(p, rc) : rc;
}

int p2p_probe(struct p2p *p, struct p2p_probe *probe, uint64_t wait_ns)
{
    if (p->status != COLLRUN_OK)
        return p2p_failure(p);
    if (p2p_find_unexpected(p, probe))
        return COLLRUN_OK;
    int rc = p2p_progress_for_probe(p, probe, wait_ns);
    return rc < 0 ? rc : p2p_find_unexpected(p, probe) ? COLLRUN_OK : COLLRUN_AGAIN;
}

int p2p_probe_expired(struct p2p *p, const struct p2p_probe *probe, uint64_t waited_ns)
{
    uint32_t n = 0, *missing = calloc(p->nranks, sizeof *missing);
    for (uint32_t r = 0; missing && r < p->nranks; r++) {
        if (probe->source == MATCH_ANY_SOURCE ? r != p->rank : r == probe->source)
            missing[n++] = r;
    }
    int rc = p2p_fail_timeout(p, missing, n, true, waited_ns);
    free(missing);
    return rc;
}

/* ---- short messages ---- */

static bool p2p_short_is_open(const struct p2p *p, const struct collrun_call *call)
{
    return p->nactive == 0 && p->match.nunexpected == 0 && p->status == COLLRUN_OK &&
           (uint32_t)call->peer != p->rank && call->kind != COLLRUN_RECV_ANY;
}

int p2p_short_exec(struct p2p *p, const struct collrun_call *call)
{
    const bool sends = call->kind == COLLRUN_SEND;
    int (*const move)(void *, const struct collrun_message *) =
        sends ? p->transport.send_short : p->transport.recv_short;
    if (!move || !p2p_short_is_open(p, call))
        return COLLRUN_AGAIN;
    const struct collrun_message message = {
        .envelope = {.count = call->count, .tag = call->tag, .dtype = (uint32_t)call->dtype},
        .data = sends ? (void *)(uintptr_t)call->send : call->recv,
        .len = call->count * dtype_size(call->dtype),
        .peer = (uint32_t)call->peer};
    if (move(p->handle, &message) != COLLRUN_OK)
        return COLLRUN_AGAIN;
    if (!sends && call->received)
        *call->received = call->count;
    if (!sends && call->received_tag)
        *call->received_tag = call->tag;
    return COLLRUN_OK;
}

/* ---- life ---- */

struct p2p *p2p_new(const struct collrun_transport *transport,
                    const struct collrun_services *services, uint32_t rank, uint32_t nranks)
{
    struct p2p *p = calloc(1, sizeof *p);
    struct p2p_sends *sends = calloc(nranks, sizeof *sends);
    if (!p || !sends) {
        free(sends);
        free(p);
        return NULL;
    }
    p->sends = sends;
    p->table = (struct collrun_p2p){.size = (uint32_t)sizeof p->table,
                                    .ctx = p,
                                    .arrived = p2p_message_arrived,
                                    .done = p2p_message_done,
                                    .find = p2p_message_find,
                                    .announced = p2p_message_announced};
    COLLRUN_COPY(&p->transport, transport);
    p->services = services;
    p->rank = rank;
    p->nranks = nranks;
    match_init(&p->match);
    return p;
}

static void p2p_drop_packet(struct match_entry *entry, void *ctx)
{
    p2p_packet_release(ctx, (struct p2p_packet *)entry);
}

void p2p_close(struct p2p *p)
{
    match_fini(&p->match, NULL, p2p_drop_packet, &p->unused_packets);
    p2p_packet_free_unused(&p->unused_packets);
    for (uint32_t i = 0; i < p->nmessages; i++)
        free(p->messages[i]);
    free(p->messages);
    free(p->sends);
}

void p2p_free(struct p2p *p)
{
    if (p)
        p2p_close(p);
    free(p);
}
