/* SPDX-License-Identifier: Apache-2.0
 *
 * See request_spare.h. A place holds NULL, a spare, or request_spare_closed. Who takes a spare out
 * acquires what the one who kept it has released.
 */
#include "ops/request_spare.h"

#include "ops/request.h"

#define REQUEST_SPARE_MISSES 8u /* starts of other calls, after which a spare makes room */

static struct collrun_request request_spare_closed;

static bool request_spare_is_for(const struct collrun_group *g, const struct collrun_call *call)
{
    return !g->kinds.n && !collrun_kind_is_vector(call->kind) && !call->user_op && !call->stream;
}

static _Atomic(struct collrun_request *) *request_spare_place(struct collrun_group *g,
                                                              const struct collrun_call *call)
{
    const uintptr_t hash = (uintptr_t)call->send ^ (uintptr_t)call->recv ^
                           (uintptr_t)call->count << 4 ^ (uintptr_t)call->kind << 4;
    return &g->requests.spares[(hash >> 4 ^ hash >> 12) % REQUEST_SPARES];
}

/* Fields that messages alone have. */
static bool request_spare_is_same_message(const struct collrun_call *a,
                                          const struct collrun_call *b)
{
    return a->peer == b->peer && a->source == b->source && a->tag == b->tag &&
           a->received == b->received && a->received_tag == b->received_tag;
}

/* The fields of v-forms are left out. Neighbours of 32 bits are not compared one after the other:
 * the compiler would load them as one, which waits for the caller's stores if these were two. */
static bool request_spare_is_same(const struct collrun_call *a, const struct collrun_call *b)
{
    return a->kind == b->kind && a->send == b->send && a->size == b->size && a->recv == b->recv &&
           a->op == b->op && a->count == b->count && a->dtype == b->dtype &&
           a->device == b->device && a->stream == b->stream && a->root == b->root &&
           a->timeout_ns == b->timeout_ns && a->peer_device == b->peer_device &&
           a->user_op == b->user_op &&
           (kind_is_collective(a->kind) || request_spare_is_same_message(a, b));
}

void request_spare_prepare(struct collrun_request *r, const struct collrun_call *given)
{
    if (!request_spare_is_for(r->group, r->calls) || given->size != sizeof *given)
        return;
    struct collrun_call *own = r->calls + 1; /* request_alloc has left room for it */
    *own = *given;
    r->given = own;
    r->place = request_spare_place(r->group, own);
}

static bool request_spare_keep(struct collrun_request *r)
{
    struct collrun_request *none = NULL;
    return atomic_compare_exchange_strong_explicit(r->place, &none, r, memory_order_release,
                                                   memory_order_relaxed);
}

void request_spare_keep_or_free(struct collrun_request *r)
{
    const bool may = r->given && r->misses < REQUEST_SPARE_MISSES &&
                     atomic_load_explicit(&r->status, memory_order_relaxed) == COLLRUN_OK;
    if (may)
        request_list_remove(r);
    if (!may || !request_spare_keep(r))
        request_free(r);
}

void request_spare_keep_succeeded(struct collrun_request *r)
{
    if (!r->given || !request_spare_keep(r))
        request_free(r);
}

struct collrun_request *request_spare_take(struct collrun_group *g, const struct collrun_call *call)
{
    if (call->size != sizeof *call)
        return NULL;
    _Atomic(struct collrun_request *) *place = request_spare_place(g, call);
    struct collrun_request *r = atomic_load_explicit(place, memory_order_relaxed);
    if (!r || r == &request_spare_closed ||
        !atomic_compare_exchange_strong_explicit(place, &r, NULL, memory_order_acquire,
                                                 memory_order_relaxed))
        return NULL;
    const bool same = request_spare_is_same(r->given, call);
    r->misses = same ? 0 : r->misses + 1;
    if (same)
        return r;
    request_spare_keep_or_free(r); /* it stays where it is while it is likely to be started again */
    return NULL;
}

void request_spare_add(const struct route *route, const struct collrun_call *call,
                       const struct collrun_call *given)
{
    struct collrun_group *g = route->gb->group;
    if (atomic_load_explicit(request_spare_place(g, given), memory_order_relaxed))
        return;
    struct collrun_request *r = request_alloc(route, call, 1, 0);
    if (!r)
        return;
    request_spare_prepare(r, given);
    atomic_store_explicit(&r->status, COLLRUN_OK, memory_order_relaxed);
    request_spare_keep_or_free(r);
}

void request_spare_close(struct collrun_group *g)
{
    for (int i = 0; i < REQUEST_SPARES; i++) {
        struct collrun_request *r = atomic_exchange_explicit(
            &g->requests.spares[i], &request_spare_closed, memory_order_acquire);
        if (r && r != &request_spare_closed)
            request_free(r);
    }
}
