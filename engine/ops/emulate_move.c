/* SPDX-License-Identifier: Apache-2.0
 *
 * All rounds of a collective share one deadline.
 */
#include "ops/emulate_move.h"

#include "base/loop.h"
#include "base/standstill.h"
#include "core/backend.h"
#include "core/error.h"
#include "core/memory_kind.h"
#include "ops/args.h"
#include "progress/progress.h"

#include <string.h>

static void emulate_add(struct emulation *e, enum collrun_kind kind, uint32_t peer, void *bytes,
                        size_t len)
{
    if (!len)
        return;
    bool tags = e->pq->config.backend->table.flags & COLLRUN_BACKEND_TAGS;
    struct collrun_call m = COLLRUN_CALL(kind);
    m.send = kind == COLLRUN_SEND ? bytes : NULL;
    m.recv = kind == COLLRUN_RECV ? bytes : NULL;
    m.count = len;
    m.dtype = COLLRUN_UINT8;
    m.peer = (int)peer;
    m.stream = emulate_call(e, 0)->stream; /* for a backend that does not know COLLRUN_ENGINE_TAG */
    m.tag = tags ? TAG_ENGINE : 0;
    e->messages[e->nmessages++] = m;
}

void emulate_add_send(struct emulation *e, uint32_t peer, const void *bytes, size_t len)
{
    emulate_add(e, COLLRUN_SEND, peer, (void *)(uintptr_t)bytes, len);
}

void emulate_add_recv(struct emulation *e, uint32_t peer, void *bytes, size_t len)
{
    emulate_add(e, COLLRUN_RECV, peer, bytes, len);
}

static int emulate_fail_timeout(const struct emulation *e)
{
    char text[128];
    const struct failure_wait wait = {.rank = e->me, .waited_ns = e->call->timeout_ns};
    failure_text_timeout(e->world_rank, &wait, text, sizeof text);
    return error_cause(COLLRUN_ERR_TIMEOUT, "%s", text);
}

int emulate_exchange(struct emulation *e)
{
    uint32_t n = e->nmessages;
    uint64_t now = now_ns();
    e->nmessages = 0;
    if (!n)
        return COLLRUN_OK;
    if (standstill_expired(now, &e->stopped_ns, &e->deadline_ns))
        return emulate_fail_timeout(e);
    for (uint32_t i = 0; i < n; i++)
        e->messages[i].timeout_ns = e->deadline_ns - now;
    if (e->p2p == e->pq)
        return progress_exec(e->pq, e->messages, n);
    pq_acquire(e->p2p);
    int rc = progress_exec(e->p2p, e->messages, n);
    pq_release(e->p2p);
    return rc;
}

void *emulate_scratch(struct emulation *e, size_t len)
{
    void *memory = e->nscratch < EMULATE_SCRATCH ? memory_kind_host_take(e->kind, len) : NULL;
    if (memory)
        e->scratch[e->nscratch++] = (struct block){.bytes = memory, .len = len};
    else
        error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for %zu bytes", len);
    return memory;
}

void emulate_scratch_drop(struct emulation *e, int status)
{
    while (e->nscratch) {
        const struct block *b = &e->scratch[--e->nscratch];
        if (!e->kind || status == COLLRUN_OK)
            memory_kind_host_give(e->kind, b->bytes, b->len);
    }
}

void emulate_copy(void *to, const void *from, size_t len)
{
    if (len && to != from)
        memmove(to, from, len);
}

struct block emulate_block_of(const struct emulation *e, const struct cut *c, uint32_t rank)
{
    size_t first = c->equal * rank, count = c->equal;
    if (c->counts) {
        count = c->counts[rank];
        first = c->displs ? c->displs[rank] : 0;
        for (uint32_t i = 0; !c->displs && i < rank; i++)
            first += c->counts[i];
    }
    return (struct block){.bytes = c->base ? (char *)(uintptr_t)c->base + first * e->es : NULL,
                          .len = count * e->es};
}

/* ---- operations that only move data ---- */

int emulate_barrier(struct emulation *e)
{
    char *tokens = emulate_scratch(e, 2);
    int rc = tokens ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
    if (tokens)
        memset(tokens, 0, 2);
    for (uint32_t step = 1; rc == COLLRUN_OK && step < e->n; step *= 2) {
        emulate_add_send(e, (e->me + step) % e->n, tokens, 1);
        emulate_add_recv(e, (e->me + e->n - step) % e->n, tokens + 1, 1);
        rc = emulate_exchange(e);
    }
    return rc;
}

/* A binomial tree, seen from the root. */
int emulate_broadcast(struct emulation *e)
{
    const struct collrun_call *call = e->call;
    uint32_t root = (uint32_t)call->root, vrank = (e->me + e->n - root) % e->n, step = 1;
    size_t len = call->count * e->es;
    while (step <= vrank)
        step *= 2;
    if (vrank) {
        emulate_add_recv(e, (vrank - step / 2 + root) % e->n, call->recv, len);
        int rc = emulate_exchange(e);
        if (rc != COLLRUN_OK)
            return rc;
    }
    for (; vrank + step < e->n; step *= 2)
        emulate_add_send(e, (vrank + step + root) % e->n, call->recv, len);
    return emulate_exchange(e);
}

int emulate_all_gather(struct emulation *e, const void *mine, const struct cut *into)
{
    struct block own = emulate_block_of(e, into, e->me);
    emulate_copy(own.bytes, mine, own.len);
    for (uint32_t i = 1; i < e->n; i++) {
        uint32_t to = (e->me + i) % e->n, from = (e->me + e->n - i) % e->n;
        struct block b = emulate_block_of(e, into, from);
        emulate_add_send(e, to, own.bytes, own.len);
        emulate_add_recv(e, from, b.bytes, b.len);
    }
    return emulate_exchange(e);
}

int emulate_gather(struct emulation *e, const void *mine, size_t len, const struct cut *into,
                   uint32_t root)
{
    if (e->me != root) {
        emulate_add_send(e, root, mine, len);
        return emulate_exchange(e);
    }
    for (uint32_t i = 0; i < e->n; i++) {
        struct block b = emulate_block_of(e, into, i);
        if (i == root)
            emulate_copy(b.bytes, mine, b.len);
        else
            emulate_add_recv(e, i, b.bytes, b.len);
    }
    return emulate_exchange(e);
}

int emulate_scatter(struct emulation *e, const struct cut *from, void *mine, size_t len,
                    uint32_t root)
{
    if (e->me != root) {
        emulate_add_recv(e, root, mine, len);
        return emulate_exchange(e);
    }
    for (uint32_t i = 0; i < e->n; i++) {
        struct block b = emulate_block_of(e, from, i);
        if (i == root)
            emulate_copy(mine, b.bytes, b.len);
        else
            emulate_add_send(e, i, b.bytes, b.len);
    }
    return emulate_exchange(e);
}

int emulate_all_to_all(struct emulation *e, struct cut from, const struct cut *into)
{
    if (from.base == into->base && !from.counts) { /* in place */
        size_t len = from.equal * e->es * e->n;
        void *copy = emulate_scratch(e, len);
        if (!copy)
            return COLLRUN_ERR_NO_MEMORY;
        emulate_copy(copy, from.base, len);
        from.base = copy;
    }
    struct block own = emulate_block_of(e, &from, e->me);
    emulate_copy(emulate_block_of(e, into, e->me).bytes, own.bytes, own.len);
    for (uint32_t i = 1; i < e->n; i++) {
        uint32_t to = (e->me + i) % e->n, source = (e->me + e->n - i) % e->n;
        struct block out = emulate_block_of(e, &from, to), in = emulate_block_of(e, into, source);
        emulate_add_send(e, to, out.bytes, out.len);
        emulate_add_recv(e, source, in.bytes, in.len);
    }
    return emulate_exchange(e);
}
