/* SPDX-License-Identifier: Apache-2.0
 *
 * Every emulated operation is a few rounds of messages. A round is gathered as an array of calls
 * and given to the backend as one, so its messages progress together and cannot block each other.
 * Reductions split the vector into one part per rank: everybody sends each rank its part, each rank
 * combines the parts it has received, and the results are handed on (to all, to the root, or to
 * nobody). This moves as little as a ring does, takes two rounds, and rounds once.
 */
#include "emulate.h"

#include "backend.h"
#include "base/loop.h"
#include "check.h"
#include "group.h"
#include "reduce.h"

#include <stdlib.h>
#include <string.h>

struct emulation {
    struct lane *lane;
    const struct collrun_group *g;
    const struct collrun_call *call;
    uint32_t me, n;
    size_t es; /* bytes of an element */
    uint64_t deadline_ns;
    struct collrun_call *messages; /* of this round; room for 2n */
    uint32_t nmessages;
    void *scratch;
};

/* ---- rounds ---- */

static void add(struct emulation *e, enum collrun_kind kind, uint32_t peer, void *bytes, size_t len)
{
    if (!len)
        return;
    bool tags = e->lane->backend->table.flags & COLLRUN_BACKEND_TAGS;
    struct collrun_call m = COLLRUN_CALL(kind);
    m.send = kind == COLLRUN_SEND ? bytes : NULL;
    m.recv = kind == COLLRUN_RECV ? bytes : NULL;
    m.count = len;
    m.dtype = COLLRUN_UINT8;
    m.peer = (int)peer;
    m.tag = tags ? TAG_ENGINE : 0;
    e->messages[e->nmessages++] = m;
}

static void add_send(struct emulation *e, uint32_t peer, const void *bytes, size_t len)
{
    add(e, COLLRUN_SEND, peer, (void *)(uintptr_t)bytes, len);
}

static void add_recv(struct emulation *e, uint32_t peer, void *bytes, size_t len)
{
    add(e, COLLRUN_RECV, peer, bytes, len);
}

static int exchange(struct emulation *e)
{
    uint32_t n = e->nmessages;
    uint64_t now = now_ns();
    e->nmessages = 0;
    if (!n)
        return COLLRUN_OK;
    if (now >= e->deadline_ns)
        return error_cause(COLLRUN_ERR_TIMEOUT, "timed out after %.1f s",
                           (double)e->call->timeout_ns / 1e9);
    for (uint32_t i = 0; i < n; i++)
        e->messages[i].timeout_ns = e->deadline_ns - now;
    return lane_exec(e->lane, e->messages, n);
}

static int need_scratch(struct emulation *e, size_t len)
{
    e->scratch = malloc(len ? len : 1);
    return e->scratch ? COLLRUN_OK
                      : error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for %zu bytes", len);
}

static void copy(void *to, const void *from, size_t len)
{
    if (len && to != from)
        memmove(to, from, len);
}

static void *at(const void *base, size_t bytes)
{
    return base ? (char *)(uintptr_t)base + bytes : NULL;
}

/* ---- which bytes are whose ---- */

/* A buffer cut into one block per rank: equal ones, or those of a v-form. */
struct cut {
    const void *base;
    size_t equal;                  /* elements, if counts is NULL */
    const size_t *counts, *displs; /* displs NULL = packed */
};

struct block {
    void *bytes;
    size_t len;
};

static struct block block_of(const struct emulation *e, const struct cut *c, uint32_t rank)
{
    size_t first = c->equal * rank, count = c->equal;
    if (c->counts) {
        count = c->counts[rank];
        first = c->displs ? c->displs[rank] : 0;
        for (uint32_t i = 0; !c->displs && i < rank; i++)
            first += c->counts[i];
    }
    return (struct block){.bytes = at(c->base, first * e->es), .len = count * e->es};
}

/* ---- operations that move ---- */

static int barrier(struct emulation *e)
{
    unsigned char out = 1, in = 0;
    int rc = COLLRUN_OK;
    for (uint32_t step = 1; rc == COLLRUN_OK && step < e->n; step *= 2) {
        add_send(e, (e->me + step) % e->n, &out, 1);
        add_recv(e, (e->me + e->n - step) % e->n, &in, 1);
        rc = exchange(e);
    }
    return rc;
}

/* A binomial tree, seen from the root. */
static int broadcast(struct emulation *e)
{
    const struct collrun_call *call = e->call;
    uint32_t root = (uint32_t)call->root, place = (e->me + e->n - root) % e->n, step = 1;
    size_t len = call->count * e->es;
    while (step <= place)
        step *= 2;
    if (place) {
        add_recv(e, (place - step / 2 + root) % e->n, call->recv, len);
        int rc = exchange(e);
        if (rc != COLLRUN_OK)
            return rc;
    }
    for (; place + step < e->n; step *= 2)
        add_send(e, (place + step + root) % e->n, call->recv, len);
    return exchange(e);
}

/* Each rank has one block; everybody gets all. */
static int all_gather(struct emulation *e, const void *mine, const struct cut *into)
{
    struct block own = block_of(e, into, e->me);
    copy(own.bytes, mine, own.len);
    for (uint32_t i = 1; i < e->n; i++) {
        uint32_t to = (e->me + i) % e->n, from = (e->me + e->n - i) % e->n;
        struct block b = block_of(e, into, from);
        add_send(e, to, own.bytes, own.len);
        add_recv(e, from, b.bytes, b.len);
    }
    return exchange(e);
}

static int gather(struct emulation *e, const void *mine, size_t len, const struct cut *into,
                  uint32_t root)
{
    if (e->me != root) {
        add_send(e, root, mine, len);
        return exchange(e);
    }
    for (uint32_t i = 0; i < e->n; i++) {
        struct block b = block_of(e, into, i);
        if (i == root)
            copy(b.bytes, mine, b.len);
        else
            add_recv(e, i, b.bytes, b.len);
    }
    return exchange(e);
}

static int scatter(struct emulation *e, const struct cut *from, void *mine, size_t len,
                   uint32_t root)
{
    if (e->me != root) {
        add_recv(e, root, mine, len);
        return exchange(e);
    }
    for (uint32_t i = 0; i < e->n; i++) {
        struct block b = block_of(e, from, i);
        if (i == root)
            copy(mine, b.bytes, b.len);
        else
            add_send(e, i, b.bytes, b.len);
    }
    return exchange(e);
}

static int all_to_all(struct emulation *e, struct cut from, const struct cut *into)
{
    if (from.base == into->base) { /* in place: equal blocks */
        size_t len = from.equal * e->es * e->n;
        int rc = need_scratch(e, len);
        if (rc != COLLRUN_OK)
            return rc;
        copy(e->scratch, from.base, len);
        from.base = e->scratch;
    }
    struct block own = block_of(e, &from, e->me);
    copy(block_of(e, into, e->me).bytes, own.bytes, own.len);
    for (uint32_t i = 1; i < e->n; i++) {
        uint32_t to = (e->me + i) % e->n, source = (e->me + e->n - i) % e->n;
        struct block out = block_of(e, &from, to), in = block_of(e, into, source);
        add_send(e, to, out.bytes, out.len);
        add_recv(e, source, in.bytes, in.len);
    }
    return exchange(e);
}

/* ---- operations that reduce ---- */

/* Combines everybody's block for this rank into dst. */
static int reduce_block(struct emulation *e, const struct cut *from, void *dst)
{
    struct block own = block_of(e, from, e->me);
    const void **sources = calloc(e->n, sizeof *sources);
    int rc = sources ? need_scratch(e, own.len * (e->n - 1))
                     : error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory");
    char *free_room = e->scratch;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < e->n; i++) {
        struct block b = block_of(e, from, i);
        sources[i] = b.bytes;
        if (i == e->me)
            continue;
        add_send(e, i, b.bytes, b.len);
        add_recv(e, i, free_room, own.len);
        sources[i] = free_room;
        free_room += own.len;
    }
    if (rc == COLLRUN_OK)
        rc = exchange(e);
    if (rc == COLLRUN_OK && own.len)
        reduce_vectors(dst, sources, e->n, own.len / e->es, e->call->dtype, e->call->op,
                       e->call->op == COLLRUN_AVG ? e->n : 0);
    free(sources);
    return rc;
}

/* The whole vector, one part per rank: the first `count % n` parts have one element more. */
static size_t *even_parts(const struct emulation *e, size_t count)
{
    size_t *counts = calloc(e->n, sizeof *counts);
    for (uint32_t i = 0; counts && i < e->n; i++)
        counts[i] = count / e->n + (i < count % e->n);
    return counts;
}

static int reduce_parts(struct emulation *e, size_t *counts)
{
    const struct collrun_call *call = e->call;
    struct cut send = {.base = call->send, .counts = counts},
               recv = {.base = call->recv, .counts = counts};
    bool to_all = call->kind == COLLRUN_ALLREDUCE,
         receives = to_all || e->me == (uint32_t)call->root;
    struct block part = block_of(e, &send, e->me);
    void *own = receives ? NULL : malloc(part.len ? part.len : 1),
         *result = receives ? block_of(e, &recv, e->me).bytes : own;
    if (!receives && !own)
        return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for %zu bytes", part.len);
    int rc = reduce_block(e, &send, result);
    if (rc == COLLRUN_OK && to_all)
        rc = all_gather(e, result, &recv);
    else if (rc == COLLRUN_OK)
        rc = gather(e, result, part.len, &recv, (uint32_t)call->root);
    free(own);
    return rc;
}

static int reduce_all(struct emulation *e)
{
    size_t *counts = even_parts(e, e->call->count);
    int rc = counts ? reduce_parts(e, counts) : error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory");
    free(counts);
    return rc;
}

/* ---- choosing ---- */

static int run(struct emulation *e)
{
    const struct collrun_call *c = e->call;
    size_t len = c->count * e->es;
    struct cut send = {.base = c->send, .equal = c->count},
               recv = {.base = c->recv, .equal = c->count};
    struct cut vsend = {.base = c->send, .counts = c->sendcounts, .displs = c->senddispls};
    struct cut vrecv = {.base = c->recv, .counts = c->recvcounts, .displs = c->recvdispls};
    struct cut parts = {.base = c->send, .counts = c->recvcounts};
    uint32_t root = (uint32_t)c->root;
    switch (c->kind) {
    case COLLRUN_BARRIER:
        return barrier(e);
    case COLLRUN_BROADCAST:
        return broadcast(e);
    case COLLRUN_ALLREDUCE:
    case COLLRUN_REDUCE:
        return reduce_all(e);
    case COLLRUN_ALLGATHER:
        return all_gather(e, c->send, &recv);
    case COLLRUN_ALLGATHERV:
        return all_gather(e, c->send, &vrecv);
    case COLLRUN_GATHER:
        return gather(e, c->send, len, &recv, root);
    case COLLRUN_GATHERV:
        return gather(e, c->send, len, &vrecv, root);
    case COLLRUN_SCATTER:
        return scatter(e, &send, c->recv, len, root);
    case COLLRUN_SCATTERV:
        return scatter(e, &vsend, c->recv, c->recvcount * e->es, root);
    case COLLRUN_REDUCE_SCATTER:
        return reduce_block(e, &send, c->recv);
    case COLLRUN_REDUCE_SCATTERV:
        return reduce_block(e, &parts, c->recv);
    case COLLRUN_ALLTOALL:
        return all_to_all(e, send, &recv);
    case COLLRUN_ALLTOALLV:
        return all_to_all(e, vsend, &vrecv);
    default:
        return COLLRUN_ERR_UNSUPPORTED;
    }
}

/* With nothing to move, the equal forms still wait for everybody. */
static bool is_empty(const struct collrun_call *call)
{
    return call->kind != COLLRUN_BARRIER && call->kind < COLLRUN_ALLGATHERV && call->count == 0;
}

static int emulate(struct lane *lane, const struct collrun_call *call)
{
    const struct collrun_group *g = lane->group;
    uint64_t now = now_ns();
    struct emulation e = {.lane = lane,
                          .g = g,
                          .call = call,
                          .me = g->rank,
                          .n = g->nranks,
                          .es = dtype_size(call->dtype)};
    e.deadline_ns = call->timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + call->timeout_ns;
    e.messages = calloc(2 * (size_t)g->nranks, sizeof *e.messages);
    if (!e.messages)
        return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for %u messages", 2 * g->nranks);
    int rc = is_empty(call) ? barrier(&e) : run(&e);
    free(e.messages);
    free(e.scratch);
    return rc;
}

/* ---- moving as bytes ---- */

static void scale(size_t *to, const size_t *from, uint32_t n, size_t es)
{
    for (uint32_t i = 0; from && i < n; i++)
        to[i] = from[i] * es;
}

static int exec_as_bytes(struct lane *lane, const struct collrun_call *call)
{
    struct collrun_call c = *call;
    size_t es = dtype_size(c.dtype);
    uint32_t n = lane->group->nranks;
    size_t *arrays = calloc(4 * (size_t)n, sizeof *arrays);
    if (!arrays)
        return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for the counts of %u ranks", n);
    const size_t **fields[4] = {&c.sendcounts, &c.senddispls, &c.recvcounts, &c.recvdispls};
    for (uint32_t i = 0; i < 4; i++) {
        scale(arrays + i * n, *fields[i], n, es);
        *fields[i] = *fields[i] ? arrays + i * n : NULL;
    }
    c.dtype = COLLRUN_UINT8;
    c.count *= es;
    c.recvcount *= es;
    int rc = lane_exec(lane, &c, 1);
    free(arrays);
    return rc;
}

int emulate_exec(struct lane *lane, const struct collrun_call *calls, uint32_t ncalls)
{
    const struct backend *b = lane->backend;
    if (ncalls > 1 || group_lane_of(calls->kind) == GROUP_MESSAGES || backend_is_native(b, calls))
        return lane_exec(lane, calls, ncalls);
    if (!kind_reduces(calls->kind) && b->native[calls->kind][COLLRUN_UINT8])
        return exec_as_bytes(lane, calls);
    return emulate(lane, calls);
}
