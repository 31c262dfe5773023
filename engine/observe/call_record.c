/* SPDX-License-Identifier: Apache-2.0
 *
 * The signature of a mark is a rolling hash of what all members must call alike. What only pairs of
 * ranks can compare, such as the counts of alltoallv, is in the sum `pairs`. Both are built from
 * the terms of fingerprint.h, so they differ if and only if `check: strict` would fail.
 */
#include "observe/call_record.h"

#include "base/names.h"
#include "core/fingerprint.h"
#include "core/reduce.h"

/* ---- one call ---- */

/* The arguments that a kind has, as a mask of record_call.what; the root has 32 bits. */
static inline uint64_t call_record_has(enum collrun_kind kind)
{
    const unsigned flags = collrun_kind_row(kind).flags;
    return (flags & COLLRUN_HAS_ROOT ? (uint64_t)UINT32_MAX : 0) |
           (uint64_t)UINT8_MAX << RECORD_WHAT_KIND |
           (kind != COLLRUN_BARRIER ? (uint64_t)UINT8_MAX << RECORD_WHAT_DTYPE : 0) |
           (flags & COLLRUN_REDUCES_DATA ? (uint64_t)UINT8_MAX << RECORD_WHAT_OP : 0);
}

static inline uint64_t call_record_what(const struct collrun_call *call, int root_or_peer)
{
    return (uint32_t)root_or_peer | (uint64_t)call->kind << RECORD_WHAT_KIND |
           (uint64_t)call->dtype << RECORD_WHAT_DTYPE;
}

static inline struct record_call call_record_of_collective(uint64_t site,
                                                           const struct collrun_call *call)
{
    uint64_t has = call_record_has(call->kind);
    uint64_t what = call_record_what(call, call->root) | (uint64_t)(uint8_t)call->op
                                                             << RECORD_WHAT_OP;
    return (struct record_call){.count = call->kind == COLLRUN_BARRIER ? 0 : call->count,
                                .site = site,
                                .what = (what & has) | (~has & UINT32_MAX)};
}

static inline struct record_call call_record_of_message(uint64_t site,
                                                        const struct collrun_call *call)
{
    int peer = call->kind == COLLRUN_RECV_ANY ? -1 : call->peer;
    return (struct record_call){
        .count = call->count, .site = site, .what = call_record_what(call, peer), .tag = call->tag};
}

/* ---- marks ---- */

static inline void call_record_sign(struct record_queue *q, const struct record_call *r,
                                    uint64_t counts, const struct collrun_user_op *op)
{
    q->signature = call_hash_mix(q->signature + r->what, counts);
    if (op)
        q->signature = call_hash_mix(q->signature, user_op_hash(op));
}

/* The checks have hashed the counts, unless there are several calls. `own`: room for the hashes. */
static inline const struct fingerprint_hashes *call_record_hashes(const struct route *route,
                                                                  const struct collrun_call *call,
                                                                  struct fingerprint_hashes *own)
{
    if (route->hashed == call)
        return &route->hashes;
    fingerprint_hash_arrays(call, route->gb->comm_size, own);
    return own;
}

/* Counts that are those of the last call are not kept twice. */
static uint32_t call_record_counts(struct record_queue *q, const struct collrun_call *call,
                                   uint32_t n, const struct fingerprint_hashes *hashes)
{
    uint64_t hash = call_hash_mix(hashes->sent, hashes->received);
    if (record_queue_has_counts(q, hash))
        return (uint32_t)q->counts_at;
    const struct record_counts counts = {.hash = hash,
                                         .sent = call->sendcounts,
                                         .expected = call->recvcounts,
                                         .nsent = call->sendcounts ? n : 0,
                                         .nexpected = call->recvcounts ? n : 0};
    return record_queue_keep_counts(q, &counts);
}

/* The calls of a process for its other devices, whose arrays must be those of the first call, too.
 */
static void call_record_devices(struct record_queue *q, const struct group_backend *gb,
                                const struct collrun_call *calls, uint32_t n, uint64_t number,
                                uint64_t alike)
{
    for (uint32_t i = 1; i < n; i++) {
        struct fingerprint_hashes hashes;
        struct fingerprint_terms terms;
        fingerprint_hash_arrays(&calls[i], gb->comm_size, &hashes);
        fingerprint_vector_terms(&calls[i], number, route_comm_rank(gb, &calls[i]), &hashes,
                                 &terms);
        q->pairs += terms.pairs + (terms.alike - alike) * (2 * number + 1);
    }
}

/* Completes `r` for a v-form; returns what all members must call alike beside r->what. */
static inline uint64_t call_record_vector(struct record_queue *q, const struct route *route,
                                          const struct collrun_call *calls, uint32_t n,
                                          uint64_t number, struct record_call *r)
{
    const struct group_backend *gb = route->gb;
    struct fingerprint_hashes own;
    struct fingerprint_terms terms;
    const struct fingerprint_hashes *hashes = call_record_hashes(route, calls, &own);
    fingerprint_vector_terms(calls, number, route_comm_rank(gb, calls), hashes, &terms);
    q->pairs += terms.pairs;
    r->count = terms.contributed;
    r->tag = call_record_counts(q, calls, gb->comm_size, hashes);
    if (n > 1)
        call_record_devices(q, gb, calls, n, number, terms.alike);
    return terms.alike;
}

/* ---- collectives ---- */

struct call_record_begun {
    uint64_t number, index;
    enum record_state state;
};

/* One operation: its entry, its mark, and it is the current one. `n` calls: one for each device.
 * The clock is read last, as the CPU completes all earlier instructions before it does so. */
static inline __attribute__((always_inline)) void
call_record_collective(const struct route *route, const struct collrun_call *calls, uint32_t n,
                       const struct call_record_begun *begun)
{
    struct record_queue *q = &route->gb->group->calls.record[GROUP_COLLECTIVES];
    struct record_call r = call_record_of_collective(route->site, calls);
    uint64_t counts = r.count;
    if (collrun_kind_is_vector(calls->kind))
        counts = call_record_vector(q, route, calls, n, begun->number, &r);
    const struct collrun_user_op *op = collrun_kind_reduces(calls->kind) ? calls->user_op : NULL;
    if (op && !collrun_kind_is_vector(calls->kind))
        r.tag = record_queue_name_user_op(q->head, (uint32_t)user_op_hash(op) | 1, op->name);
    call_record_sign(q, &r, counts, op);
    uint64_t ticks = record_ticks(q->head);
    record_queue_write(q, begun->index, &r, begun->number, begun->state, ticks);
    record_queue_mark(q, begun->number, ticks);
    record_queue_enter(q, &r, begun->number, r.count * dtype_size(calls->dtype), ticks);
}

/* A batch: its operations have adjacent numbers and entries. */
static void call_record_batch(const struct route *route, const struct collrun_call *calls,
                              uint32_t n, struct call_record_begun begun)
{
    for (uint32_t i = 0; i < n; i++) {
        call_record_collective(route, &calls[i], 1, &begun);
        begun.number++;
        begun.index += begun.index != RECORD_QUEUE_NONE;
    }
}

uint64_t call_record_collectives(const struct route *route, const struct collrun_call *calls,
                                 uint32_t ncalls, uint64_t number, enum record_state state)
{
    const struct group_backend *gb = route->gb;
    const struct record_queue *q = &gb->group->calls.record[GROUP_COLLECTIVES];
    if (!q->head)
        return RECORD_QUEUE_NONE;
    uint32_t n = call_record_entries(gb, calls, ncalls);
    const struct call_record_begun begun = {
        .number = number, .index = record_queue_reserve(q, n), .state = state};
    if (n == 1)
        call_record_collective(route, calls, ncalls, &begun);
    else
        call_record_batch(route, calls, n, begun);
    return begun.index;
}

/* ---- messages ---- */

uint64_t call_record_messages_at(const struct route *route, const struct collrun_call *calls,
                                 uint32_t ncalls, uint64_t number, enum record_state state,
                                 uint64_t ticks)
{
    const struct record_queue *q = &route->gb->group->calls.record[GROUP_MESSAGES];
    uint64_t first = record_queue_reserve(q, ncalls);
    for (uint32_t i = 0; first != RECORD_QUEUE_NONE && i < ncalls; i++) {
        struct record_call r = call_record_of_message(route->site, &calls[i]);
        record_queue_write(q, first + i, &r, number, state, ticks);
    }
    return first;
}

void call_record_enter_message(struct collrun_group *g, const struct collrun_call *call,
                               uint64_t number, uint64_t ticks)
{
    const struct record_queue *q = &g->calls.record[GROUP_MESSAGES];
    if (!q->head)
        return;
    struct record_call r = call_record_of_message(0, call);
    record_queue_enter(q, &r, number, call->count * dtype_size(call->dtype), ticks);
}

void call_record_sent(const struct route *route, const struct collrun_call *call, uint64_t number,
                      uint64_t called)
{
    const struct record_queue *q = &route->gb->group->calls.record[GROUP_MESSAGES];
    record_queue_leave(q, number);
    uint64_t index = record_queue_reserve(q, 1);
    if (index == RECORD_QUEUE_NONE)
        return;
    struct record_call r = call_record_of_message(route->site, call);
    record_queue_write(q, index, &r, number, RECORD_STARTED, called);
    record_queue_end(q, index, RECORD_DONE, record_ticks_if_timed(q->head));
}

/* ---- start, end ---- */

static inline void call_record_finish(struct collrun_group *g, enum group_queue which,
                                      uint64_t first, uint32_t n, enum record_state state)
{
    const struct record_queue *q = &g->calls.record[which];
    if (first == RECORD_QUEUE_NONE)
        return;
    uint64_t ticks = record_ticks_if_timed(q->head);
    record_queue_end(q, first, state, ticks);
    for (uint32_t i = 1; i < n; i++)
        record_queue_end(q, first + i, state, ticks);
}

static enum record_state call_record_state(int status)
{
    if (status == COLLRUN_OK)
        return RECORD_DONE;
    return status == COLLRUN_ERR_ABORTED || status == COLLRUN_ERR_PEER_FAILED ? RECORD_ABORTED
                                                                              : RECORD_FAILED;
}

void call_record_end_all(struct collrun_group *g, enum group_queue which, uint64_t first,
                         uint32_t n, uint64_t number, int status)
{
    if (number && group_survives(which, status))
        record_queue_leave(&g->calls.record[which], number);
    call_record_finish(g, which, first, n, call_record_state(status));
}

void call_record_received(struct collrun_group *g, uint64_t first, const struct collrun_call *calls,
                          uint32_t n)
{
    const struct record_queue *q = &g->calls.record[GROUP_MESSAGES];
    for (uint32_t i = 0; first != RECORD_QUEUE_NONE && i < n; i++) {
        const struct collrun_call *call = &calls[i];
        bool any_source = call->kind == COLLRUN_RECV_ANY && call->source;
        bool any_tag =
            call->kind != COLLRUN_SEND && call->tag == COLLRUN_ANY_TAG && call->received_tag;
        struct record_entry *e = any_source || any_tag ? record_queue_find(q, first + i) : NULL;
        if (e && any_source)
            e->root_or_peer = *call->source;
        if (e && any_tag)
            e->tag = *call->received_tag;
    }
}

void call_record_cancel(struct collrun_group *g, uint64_t first, uint32_t n, uint64_t number)
{
    record_queue_leave(&g->calls.record[GROUP_MESSAGES], number);
    call_record_finish(g, GROUP_MESSAGES, first, n, RECORD_CANCELED);
}

void call_record_not_begun(const struct route *route, const struct collrun_call *calls,
                           uint32_t ncalls, uint64_t number, int status)
{
    struct collrun_group *g = route->gb->group;
    enum group_queue which = group_queue_of(calls->kind);
    uint64_t first = which == GROUP_MESSAGES
                         ? call_record_messages(route, calls, ncalls, number, RECORD_POSTED)
                         : call_record_collectives(route, calls, ncalls, number, RECORD_POSTED);
    call_record_finish(g, which, first, call_record_entries(route->gb, calls, ncalls),
                       call_record_state(status));
    if (which == GROUP_COLLECTIVES && !group_has_failed(g))
        record_queue_leave(&g->calls.record[which],
                           number + batch_numbers(route->gb, calls, ncalls) - 1);
}
