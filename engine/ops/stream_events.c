/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that follow each other on one stream share an event.
 */
#include "ops/stream_events.h"

#include "core/error.h"
#include "group/group.h"

#include <stdlib.h>

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
