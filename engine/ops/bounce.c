/* SPDX-License-Identifier: Apache-2.0
 *
 * Each call's buffers become one or two spans of bytes: one if they overlap, as in the in-place
 * forms. Bytes of a span that the operation does not write (gaps between the blocks of a v-form,
 * the other blocks of an in-place gather) are copied to the host and back, unchanged.
 */
#include "ops/bounce.h"

#include "base/loop.h"
#include "base/standstill.h"
#include "core/error.h"
#include "core/reduce.h"
#include "group/group.h"
#include "group/route.h"

#include <stdlib.h>

struct span {
    char *device, *host;
    size_t len;
    struct memory_kind *kind; /* that has allocated `host`; NULL: plain memory */
    bool in;                  /* copied to `host` before the operation */
    bool back;                /* copied to `device` after the operation */
    bool lost;                /* a copy that did not end in time may still touch `host` */
    /* How many elements, of `width` bytes, a receive that may get less has got; NULL for others. */
    const size_t *received;
    size_t width;
};

struct bounce {
    const struct group_backend *gb; /* that runs the calls */
    bool settled;                   /* nothing to wait for */
    uint64_t deadline_ns;
    uint64_t stopped_ns; /* how long the process had stood still when the deadline was set */
    uint32_t n;
    struct span spans[]; /* two for each call; len 0 = not used */
};

/* ---- where the buffers are ---- */

struct extent {
    const char *base;
    size_t from, to; /* bytes */
};

static struct extent bounce_extent(const struct group_backend *gb, const struct collrun_call *c,
                                   const void *base, unsigned char extent)
{
    const size_t width = dtype_size(c->dtype);
    const struct collrun_range used =
        collrun_call_range(c, extent, gb->comm_size, route_comm_rank(gb, c));
    return base ? (struct extent){base, used.from * width, used.to * width} : (struct extent){0};
}

static struct extent bounce_sent(const struct group_backend *gb, const struct collrun_call *c)
{
    if (!collrun_kind_sends(c->kind, route_root(gb, c) == route_comm_rank(gb, c)))
        return (struct extent){0};
    return bounce_extent(gb, c, c->send, collrun_kind_row(c->kind).send);
}

static struct extent bounce_received(const struct group_backend *gb, const struct collrun_call *c)
{
    const uint32_t own = route_comm_rank(gb, c);
    if (!collrun_kind_receives(c->kind, route_root(gb, c) == own, own == 0))
        return (struct extent){0};
    return bounce_extent(gb, c, c->recv, collrun_kind_row(c->kind).recv);
}

/* ---- one call ---- */

/* An extent of no bytes may have no buffer. */
static char *bounce_at(const void *base, size_t offset)
{
    return base ? (char *)(uintptr_t)base + offset : NULL;
}

static void bounce_find_spans(const struct group_backend *gb, const struct collrun_call *c,
                              struct span span[2])
{
    struct extent s = bounce_sent(gb, c), r = bounce_received(gb, c);
    char *s0 = bounce_at(s.base, s.from), *s1 = bounce_at(s.base, s.to);
    char *r0 = bounce_at(r.base, r.from), *r1 = bounce_at(r.base, r.to);
    bool sends = c->kind == COLLRUN_BROADCAST && route_root(gb, c) == route_comm_rank(gb, c);
    span[0] = (struct span){.device = s0, .len = s.to - s.from, .in = true};
    span[1] = (struct span){
        .device = r0, .len = r.to - r.from, .in = sends || c->recvdispls, .back = true};
    if (collrun_kind_is_message(c->kind)) {
        span[1].received = c->received;
        span[1].width = dtype_size(c->dtype);
    }
    if (!span[0].len || !span[1].len || s1 <= r0 || r1 <= s0)
        return;
    char *from = s0 < r0 ? s0 : r0, *to = s1 > r1 ? s1 : r1;
    span[0] = (struct span){.device = from, .len = (size_t)(to - from), .in = true, .back = true};
    span[1].len = 0;
}

/* The copy of a buffer that begins at `base`, or before the span that it needs. */
static void *bounce_moved(const struct span span[2], const void *base, bool receives)
{
    const struct span *s = receives && span[1].len ? &span[1] : &span[0];
    bool used = s->len && (receives ? s->back : true);
    return used && base ? s->host + ((const char *)base - s->device) : NULL;
}

static int bounce_copy(const struct bounce *bounce, const struct collrun_memory_copy *copy)
{
    struct collrun_memory_copy complete = *copy;
    complete.size = sizeof complete;
    complete.deadline_ns = bounce->deadline_ns;
    return memory_kind_copy(&bounce->gb->group->kinds, &complete);
}

/* Waits for the stream even if nothing is copied: it may still write to the buffer. */
static int bounce_fill(const struct bounce *bounce, struct span *s, const struct collrun_call *call)
{
    if (!s->len)
        return COLLRUN_OK;
    s->kind = memory_kind_of(&bounce->gb->group->kinds, s->device, NULL);
    s->host = memory_kind_host_take(s->kind, s->len);
    if (!s->host)
        return error_cause(COLLRUN_ERR_NO_MEMORY,
                           "no host memory for a copy of %zu bytes from the %s", s->len,
                           s->kind ? s->kind->title : "host");
    int rc = bounce_copy(bounce, &(struct collrun_memory_copy){
                                     .ordered = s->kind && !bounce->settled,
                                     .dst = s->host,
                                     .src = s->device,
                                     .len = s->in ? s->len : 0,
                                     .stream = call->stream,
                                     .stream_device = group_stream_device(
                                         bounce->gb, s->kind, call->device, call->stream)});
    s->lost = rc != COLLRUN_OK;
    return rc;
}

/* Waits for the work on the call's stream, if the call has a buffer. */
static int bounce_await_stream(const struct bounce *bounce, const struct collrun_call *call)
{
    const void *buffer = call->send ? call->send : call->recv;
    const struct memory_kind *kind = memory_kind_of(&bounce->gb->group->kinds, buffer, NULL);
    char nothing;
    const struct collrun_memory_copy wait = {
        .ordered = 1,
        .dst = call->send ? &nothing : call->recv,
        .src = call->send ? call->send : &nothing,
        .stream = call->stream,
        .stream_device = group_stream_device(bounce->gb, kind, call->device, call->stream)};
    return buffer && !bounce->settled ? bounce_copy(bounce, &wait) : COLLRUN_OK;
}

int bounce_await_streams(const struct group_backend *gb, const struct collrun_call *calls,
                         uint32_t n)
{
    const struct bounce limits = {.gb = gb,
                                  .deadline_ns = deadline_after(now_ns(), calls->timeout_ns)};
    int rc = COLLRUN_OK;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < n; i++)
        rc = bounce_await_stream(&limits, &calls[i]);
    return rc;
}

/* `in_use`: devices may still access the host memory, so it is not reused. */
static void bounce_free(struct bounce *bounce, bool in_use)
{
    for (uint32_t i = 0; !in_use && i < 2 * bounce->n; i++) {
        const struct span *s = &bounce->spans[i];
        if (!s->lost)
            memory_kind_host_give(s->kind, s->host, s->len);
    }
    free(bounce);
}

int bounce_in(const struct route *route, struct collrun_call *calls, uint32_t n,
              struct bounce **out)
{
    if (!route->bounced)
        return route->waits ? bounce_await_streams(route->gb, calls, n) : COLLRUN_OK;
    struct bounce *bounce = calloc(1, sizeof *bounce + 2 * (size_t)n * sizeof *bounce->spans);
    int rc = bounce ? COLLRUN_OK : error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory");
    if (!bounce)
        return rc;
    bounce->gb = route->gb;
    bounce->settled = route->settled;
    bounce->n = n;
    const uint64_t now = now_ns();
    bounce->deadline_ns = deadline_after(now, calls->timeout_ns);
    bounce->stopped_ns = standstill_total(now);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < n; i++) {
        struct span *span = &bounce->spans[2 * i];
        bounce_find_spans(route->gb, &calls[i], span);
        if (!span[0].len && !span[1].len)
            rc = bounce_await_stream(bounce, &calls[i]);
        if (rc == COLLRUN_OK)
            rc = bounce_fill(bounce, &span[0], &calls[i]);
        if (rc == COLLRUN_OK)
            rc = bounce_fill(bounce, &span[1], &calls[i]);
        calls[i].send = bounce_moved(span, calls[i].send, false);
        calls[i].recv = bounce_moved(span, calls[i].recv, true);
    }
    if (rc == COLLRUN_OK)
        *out = bounce;
    else
        bounce_free(bounce, false);
    return rc;
}

int bounce_out(struct bounce *bounce, int status)
{
    /* A failed call of devices returns before they stop. */
    const bool in_use = status != COLLRUN_OK && group_host_kind(bounce->gb);
    standstill_expired(now_ns(), &bounce->stopped_ns, &bounce->deadline_ns); /* may move it */
    for (uint32_t i = 0; i < 2 * bounce->n; i++) {
        struct span *s = &bounce->spans[i];
        if (status != COLLRUN_OK || !s->len || !s->back)
            continue;
        size_t len = s->received ? *s->received * s->width : s->len;
        status = bounce_copy(
            bounce, &(struct collrun_memory_copy){
                        .dst = s->device, .src = s->host, .len = len, .stream_device = -1});
        s->lost = status != COLLRUN_OK;
    }
    bounce_free(bounce, in_use);
    return status;
}

/* ---- events of streams ---- */

struct stream_event {
    const struct memory_kind *kind;
    void *event; /* NULL: it has passed */
    /* What it was recorded on. */
    void *stream;
    int32_t device;
};

struct stream_events {
    uint32_t n;
    struct stream_event items[];
};

void stream_events_free(struct stream_events *events)
{
    for (uint32_t i = 0; events && i < events->n; i++) {
        const struct stream_event *e = &events->items[i];
        if (e->event)
            e->kind->table.event_free(e->kind->state, e->event);
    }
    free(events);
}

/* The stream of a call, and the kind of memory that it belongs to; false: the call uses none. */
static bool stream_events_find(const struct group_backend *gb, const struct collrun_call *call,
                               struct stream_event *out)
{
    const struct memory_kind_set *kinds = &gb->group->kinds;
    const void *buffer = call->send;
    const struct memory_kind *kind = memory_kind_of(kinds, buffer, NULL);
    if (!kind)
        kind = memory_kind_of(kinds, buffer = call->recv, NULL);
    if (!kind)
        return false;
    *out = (struct stream_event){.kind = kind, .stream = call->stream};
    out->device = group_stream_device(gb, kind, call->device, call->stream);
    if (out->device < 0)
        kind->table.locate(kind->state, buffer, &out->device);
    return true;
}

static bool stream_events_has(const struct stream_events *events, const struct stream_event *e)
{
    const struct stream_event *last = events->n ? &events->items[events->n - 1] : NULL;
    return last && last->kind == e->kind && last->stream == e->stream && last->device == e->device;
}

int stream_events_record(const struct group_backend *gb, const struct collrun_call *calls,
                         uint32_t n, struct stream_events **out)
{
    struct stream_events *events = calloc(1, sizeof *events + n * sizeof *events->items);
    int rc = events ? COLLRUN_OK : error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; rc == COLLRUN_OK && i < n; i++) {
        struct stream_event e;
        if (!stream_events_find(gb, &calls[i], &e) || stream_events_has(events, &e))
            continue;
        rc = e.kind->table.event_record
                 ? e.kind->table.event_record(e.kind->state, e.device, e.stream, &e.event)
                 : COLLRUN_ERR_UNSUPPORTED;
        if (rc == COLLRUN_OK)
            events->items[events->n++] = e;
    }
    if (rc == COLLRUN_OK)
        *out = events;
    else
        stream_events_free(events);
    return rc;
}

int stream_events_query(struct stream_events *events)
{
    int rc = COLLRUN_OK;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < events->n; i++) {
        struct stream_event *e = &events->items[i];
        if (!e->event)
            continue;
        rc = e->kind->table.event_query(e->kind->state, e->event);
        if (rc != COLLRUN_OK)
            break;
        e->kind->table.event_free(e->kind->state, e->event);
        e->event = NULL;
    }
    return rc;
}
