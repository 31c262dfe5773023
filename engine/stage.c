/* SPDX-License-Identifier: Apache-2.0
 *
 * Each call's buffers become one or two spans of bytes: one if they overlap, as in the in-place
 * forms. What a span may leave untouched (gaps between the blocks of a v-form, the other blocks of
 * an in-place gather) is copied along, so that copying back changes nothing else.
 */
#include "stage.h"

#include "base/loop.h"
#include "error.h"
#include "gpu.h"
#include "group.h"
#include "reduce.h"

#include <stdlib.h>

struct span {
    char *device, *host;
    size_t len;
    bool in;   /* its contents matter before the operation */
    bool back; /* something is received into it */
    bool lost; /* a copy that did not end in time may still touch `host` */
};

struct stage {
    uint64_t deadline_ns;
    uint32_t n;
    struct span spans[]; /* two for each call; len 0 = not used */
};

/* ---- where the buffers are ---- */

struct extent {
    const char *base;
    size_t from, to; /* bytes */
};

static struct extent plain(const void *base, size_t count, size_t width)
{
    return (struct extent){base, 0, base ? count * width : 0};
}

static struct extent uneven(const void *base, const size_t *counts, const size_t *displs,
                            uint32_t n, size_t width)
{
    struct extent e = {.base = base, .from = SIZE_MAX};
    size_t packed = 0;
    for (uint32_t i = 0; counts && i < n; i++) {
        size_t at = displs ? displs[i] : packed;
        packed += counts[i];
        if (!counts[i])
            continue;
        e.from = at < e.from ? at : e.from;
        e.to = at + counts[i] > e.to ? at + counts[i] : e.to;
    }
    e.from = e.to ? e.from * width : 0;
    e.to *= width;
    return e;
}

static size_t sum(const size_t *counts, uint32_t n)
{
    size_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += counts[i];
    return total;
}

static struct extent sent(const struct collrun_group *g, const struct collrun_call *c)
{
    size_t width = dtype_size(c->dtype);
    bool at_root = (uint32_t)c->root == g->rank;
    switch (c->kind) {
    case COLLRUN_BARRIER:
    case COLLRUN_BROADCAST: /* recv is the buffer, on every rank */
    case COLLRUN_RECV:
    case COLLRUN_RECV_ANY:
        return (struct extent){0};
    case COLLRUN_SCATTER:
        return plain(c->send, at_root ? c->count * g->nranks : 0, width);
    case COLLRUN_REDUCE_SCATTER:
    case COLLRUN_ALLTOALL:
        return plain(c->send, c->count * g->nranks, width);
    case COLLRUN_SCATTERV:
    case COLLRUN_ALLTOALLV:
        return uneven(c->send, c->sendcounts, c->senddispls, g->nranks, width);
    case COLLRUN_REDUCE_SCATTERV:
        return plain(c->send, sum(c->recvcounts, g->nranks), width);
    default:
        return plain(c->send, c->count, width);
    }
}

static struct extent received(const struct collrun_group *g, const struct collrun_call *c)
{
    size_t width = dtype_size(c->dtype);
    bool at_root = (uint32_t)c->root == g->rank;
    switch (c->kind) {
    case COLLRUN_BARRIER:
    case COLLRUN_SEND:
        return (struct extent){0};
    case COLLRUN_REDUCE:
        return plain(c->recv, at_root ? c->count : 0, width);
    case COLLRUN_GATHER:
        return plain(c->recv, at_root ? c->count * g->nranks : 0, width);
    case COLLRUN_ALLGATHER:
    case COLLRUN_ALLTOALL:
        return plain(c->recv, c->count * g->nranks, width);
    case COLLRUN_ALLGATHERV:
    case COLLRUN_GATHERV:
    case COLLRUN_ALLTOALLV:
        return uneven(c->recv, c->recvcounts, c->recvdispls, g->nranks, width);
    case COLLRUN_SCATTERV:
        return plain(c->recv, c->recvcount, width);
    case COLLRUN_REDUCE_SCATTERV:
        return plain(c->recv, c->recvcounts[g->rank], width);
    default:
        return plain(c->recv, c->count, width);
    }
}

/* ---- one call ---- */

static void find_spans(const struct collrun_group *g, const struct collrun_call *c,
                       struct span span[2])
{
    struct extent s = sent(g, c), r = received(g, c);
    char *s0 = (char *)(uintptr_t)s.base + s.from, *s1 = (char *)(uintptr_t)s.base + s.to;
    char *r0 = (char *)(uintptr_t)r.base + r.from, *r1 = (char *)(uintptr_t)r.base + r.to;
    bool sends = c->kind == COLLRUN_BROADCAST && (uint32_t)c->root == g->rank;
    span[0] = (struct span){.device = s0, .len = s.to - s.from, .in = true};
    span[1] = (struct span){
        .device = r0, .len = r.to - r.from, .in = sends || c->recvdispls, .back = true};
    if (!span[0].len || !span[1].len || s1 <= r0 || r1 <= s0)
        return;
    char *from = s0 < r0 ? s0 : r0, *to = s1 > r1 ? s1 : r1;
    span[0] = (struct span){.device = from, .len = (size_t)(to - from), .in = true, .back = true};
    span[1].len = 0;
}

/* The copy of a buffer that begins at `base`, or before the span that it needs. */
static void *moved(const struct span span[2], const void *base, bool receives)
{
    const struct span *s = receives && span[1].len ? &span[1] : &span[0];
    bool used = s->len && (receives ? s->back : true);
    return used && base ? s->host + ((const char *)base - s->device) : NULL;
}

/* What the stream still writes to a buffer that is only received into must not come later. */
static int fill(struct span *s, void *stream, uint64_t deadline_ns)
{
    if (!s->len)
        return COLLRUN_OK;
    s->host = gpu_pinned_take(s->len);
    if (!s->host)
        return error_cause(COLLRUN_ERR_NO_MEMORY,
                           "no pinned memory for a copy of %zu bytes from the GPU", s->len);
    int rc = gpu_copy_after(stream, s->host, s->device, s->in ? s->len : 0, deadline_ns);
    s->lost = rc != COLLRUN_OK;
    return rc;
}

int stage_in(const struct collrun_group *g, struct collrun_call *calls, uint32_t n,
             struct stage **out)
{
    struct stage *stage = calloc(1, sizeof *stage + 2 * (size_t)n * sizeof *stage->spans);
    uint64_t now = now_ns(), timeout = calls->timeout_ns;
    int rc = stage ? COLLRUN_OK : error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory");
    if (!stage)
        return rc;
    stage->n = n;
    stage->deadline_ns = timeout > UINT64_MAX - now ? UINT64_MAX : now + timeout;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < n; i++) {
        struct span *span = &stage->spans[2 * i];
        find_spans(g, &calls[i], span);
        rc = fill(&span[0], calls[i].stream, stage->deadline_ns);
        if (rc == COLLRUN_OK)
            rc = fill(&span[1], calls[i].stream, stage->deadline_ns);
        calls[i].send = moved(span, calls[i].send, false);
        calls[i].recv = moved(span, calls[i].recv, true);
    }
    if (rc != COLLRUN_OK)
        return stage_out(stage, rc);
    *out = stage;
    return rc;
}

int stage_out(struct stage *stage, int status)
{
    for (uint32_t i = 0; i < 2 * stage->n; i++) {
        struct span *s = &stage->spans[i];
        if (status == COLLRUN_OK && s->len && s->back) {
            status = gpu_copy(s->device, s->host, s->len, stage->deadline_ns);
            s->lost = status != COLLRUN_OK;
        }
        if (!s->lost)
            gpu_pinned_give(s->host, s->len);
    }
    free(stage);
    return status;
}
