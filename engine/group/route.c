/* SPDX-License-Identifier: Apache-2.0
 *
 * The first buffer that the call uses on this rank decides; NULL buffers (of empty calls) are
 * ignored. A process without device memory looks nothing up.
 */
#include "group/route.h"

#include "base/names.h"
#include "core/backend.h"
#include "core/error.h"
#include "group/group.h"

/* The buffers that a call uses on this rank, for any counts. */
static bool route_uses_send(const struct collrun_group *g, const struct collrun_call *call)
{
    const struct group_backend *s = group_device_backend(g);
    return collrun_kind_sends(call->kind, route_root(s, call) == route_comm_rank(s, call));
}

static bool route_uses_recv(const struct collrun_group *g, const struct collrun_call *call)
{
    const struct group_backend *s = group_device_backend(g);
    const uint32_t own = route_comm_rank(s, call);
    return collrun_kind_receives(call->kind, route_root(s, call) == own, own == 0);
}

/* A buffer of a call for one device must be on that device, or on none. */
static int route_check_device(const struct group_backend *gb, const struct collrun_call *call,
                              int device)
{
    if (device < 0 || call->device < 0 || (uint32_t)call->device >= gb->ndevices ||
        device == call->device)
        return COLLRUN_OK;
    return error_cause(COLLRUN_ERR_INVALID, "a buffer is on %s %d, but the call is for %s %d",
                       gb->kind->title, device, gb->kind->title, call->device);
}

/* Allocations of devices begin at multiples of 512 bytes, of a page, or of 2 MiB. */
static size_t route_slot(const void *ptr)
{
    uintptr_t at = (uintptr_t)ptr;
    return (at >> 9 ^ at >> 12 ^ at >> 21) % GROUP_KNOWN;
}

/* The kind of a buffer; NULL: host memory. Its backend's look-up takes longer than the rest of the
 * engine's work. In a group that works on device memory only, it just serves the error message, so
 * an address that was of the kind once is not looked up again. The key is the address with the
 * call's device in the bits above it, which no address uses. */
static int route_kind_of(struct collrun_group *g, const struct collrun_call *call, const void *ptr,
                         struct memory_kind **out)
{
    const struct group_backend *gb = group_device_backend(g);
    bool remembers = ptr && !(g->backends[0].backend->memory & COLLRUN_MEMORY_HOST);
    uintptr_t key = (uintptr_t)ptr ^ (uintptr_t)call->device << 58;
    atomic_uintptr_t *known = &g->on_device[route_slot(ptr)];
    int device, rc = COLLRUN_OK;
    *out = gb->kind;
    if (remembers && atomic_load_explicit(known, memory_order_relaxed) == key)
        return COLLRUN_OK;
    *out = memory_kind_of(&g->kinds, ptr, &device);
    if (*out == gb->kind)
        rc = route_check_device(gb, call, device);
    if (rc == COLLRUN_OK && remembers && *out && *out == gb->kind)
        atomic_store_explicit(known, key, memory_order_relaxed);
    return rc;
}

static const char *route_title(const struct memory_kind *kind)
{
    return kind ? kind->title : "host";
}

static int route_memory_of(struct collrun_group *g, const struct collrun_call *call,
                           struct memory_kind **out)
{
    const void *send = route_uses_send(g, call) ? call->send : NULL;
    const void *recv = route_uses_recv(g, call) ? call->recv : NULL;
    struct memory_kind *second = NULL;
    int rc = route_kind_of(g, call, send ? send : recv, out);
    if (rc != COLLRUN_OK || !send || !recv || send == recv)
        return rc;
    rc = route_kind_of(g, call, recv, &second);
    if (rc != COLLRUN_OK || second == *out)
        return rc;
    return error_cause(COLLRUN_ERR_INVALID,
                       "the send buffer is in %s memory, but the receive buffer in %s memory",
                       route_title(*out), route_title(second));
}

static bool route_has_buffer(const struct collrun_group *g, const struct collrun_call *call)
{
    return (route_uses_send(g, call) && call->send) || (route_uses_recv(g, call) && call->recv);
}

/* No backend of the group works on the memory of the buffers. */
static int route_refuse(const struct group_backend *gb, const struct memory_kind *kind)
{
    const struct backend *b = gb->backend;
    if (!kind)
        return error_cause(COLLRUN_ERR_UNSUPPORTED,
                           "the buffer is in host memory, and backend \"%s\" works on %s memory; "
                           "take it from collrun_alloc, or give the group a backend for each: "
                           "{host: gloo, %s: %s}",
                           b->name, b->kind.title, b->kind.name, b->name);
    return error_cause(COLLRUN_ERR_UNSUPPORTED,
                       "the buffer is in %s memory, and backend \"%s\" works on %s memory",
                       kind->title, b->name, b->kind.title);
}

/* A backend that lacks the operation on its device memory: the engine builds it from messages, and
 * its own reductions, on copies in host memory that the devices reach. */
static int route_emulated(const struct group_backend *gb, const struct collrun_call *call,
                          struct route *out)
{
    const struct backend *b = gb->backend;
    bool host = b->memory & COLLRUN_MEMORY_HOST;
    bool bytes = !collrun_kind_reduces(call->kind) && b->native[call->kind][COLLRUN_UINT8];
    bool engine = call->user_op || call_is_in_place_alltoallv(call);
    if (!dtype_is_known(call->dtype) || (!call->user_op && !op_is_known(call->op)))
        return COLLRUN_OK;
    if (!engine && (host ? backend_works_on_device(b, call) : backend_is_native(b, call) || bytes))
        return COLLRUN_OK;
    out->bounced = true;
    bool several = engine || call->kind == COLLRUN_SCAN || call->kind == COLLRUN_EXSCAN;
    if (host || (gb->kind->table.host_alloc && (gb->ndevices <= 1 || several)))
        return COLLRUN_OK;
    return error_cause(COLLRUN_ERR_UNSUPPORTED,
                       "backend \"%s\" has no %s for this type and operator, and it cannot be "
                       "emulated %s",
                       b->name, kind_name(call->kind),
                       gb->kind->table.host_alloc ? "on several devices of a process"
                                                  : "without host memory that the device reaches");
}

int route_check_stream(const struct collrun_group *g, const struct collrun_call *call,
                       const struct memory_kind *kind)
{
    const struct group_backend *gb = group_device_backend(g);
    if (!kind && !route_has_buffer(g, call) &&
        !(g->backends[0].backend->memory & COLLRUN_MEMORY_HOST))
        kind = gb->kind;
    if (!kind || !kind->table.stream_check || call->device < 0 ||
        call->device >= GROUP_MOST_DEVICES)
        return COLLRUN_OK;
    void *stream = call->stream;
    if (!stream && kind == group_device_kind(g))
        stream = g->calls.streams[call->device];
    int32_t device = group_stream_device(gb, kind, call->device, stream);
    return kind->table.stream_check(kind->state, device, stream);
}

int route_check_receive(const struct group_backend *gb, const struct collrun_call *call,
                        bool probes)
{
    const struct collrun_backend *b = &gb->backend->table;
    error_clear_cause();
    struct progress_queue *pq = gb->pq[GROUP_MESSAGES];
    if (!b->check_receive || !pq_hold(pq)) /* the group was destroyed, which the caller finds */
        return COLLRUN_OK;
    const int rc = b->check_receive(pq->config.handle, call, probes);
    pq_let_go(pq);
    return rc;
}

int route_check(const struct collrun_group *g, const struct collrun_call *call,
                const struct route *route)
{
    bool receives = call->kind == COLLRUN_RECV || call->kind == COLLRUN_RECV_ANY;
    int rc = route_check_stream(g, call, route->kind);
    return rc == COLLRUN_OK && receives ? route_check_receive(route->gb, call, false) : rc;
}

int route_find(struct collrun_group *g, const struct collrun_call *call, struct route *out)
{
    struct memory_kind *kind = NULL;
    *out = (struct route){.gb = &g->backends[0]};
    if (!g->kinds.n)
        return COLLRUN_OK;
    int rc = route_memory_of(g, call, &kind);
    if (rc != COLLRUN_OK)
        return rc;
    out->kind = kind;
    out->foreign = kind && kind != group_device_kind(g);
    for (uint32_t i = 0; kind && i < g->nbackends; i++)
        if (g->backends[i].kind == kind) {
            out->gb = &g->backends[i];
            out->waits = out->gb->backend->has_transport && collrun_kind_is_message(call->kind);
            return route_emulated(out->gb, call, out);
        }
    if (!route_has_buffer(g, call))
        return COLLRUN_OK;
    out->bounced = kind && out->gb->backend->memory & COLLRUN_MEMORY_HOST;
    if (out->bounced || (!kind && out->gb->backend->memory & COLLRUN_MEMORY_HOST))
        return COLLRUN_OK;
    return route_refuse(out->gb, kind);
}
