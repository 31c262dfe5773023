/* SPDX-License-Identifier: Apache-2.0
 *
 * All rounds of a collective share one deadline.
 */
#include "ops/emulate_rounds.h"

#include "base/loop.h"
#include "base/standstill.h"
#include "core/backend.h"
#include "core/failure_text.h"
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
