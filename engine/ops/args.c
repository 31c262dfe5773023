/* SPDX-License-Identifier: Apache-2.0
 *
 * Three passes (values, sizes, buffers) follow the table of kinds (collrun_kind_row). Sizes
 * are computed in bytes and bounded by PTRDIFF_MAX, so later computations cannot overflow.
 */
#include "ops/args.h"

#include "base/names.h"
#include "core/backend.h"
#include "core/error.h"
#include "core/fingerprint.h"
#include "core/reduce.h"
#include "group/route.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A call with the ranks of the communicator that executes it (see struct group_backend). */
struct view {
    const struct collrun_group *g;
    const struct group_backend *gb;
    uint32_t comm_size, comm_rank, root;
    struct route *route;
};

/* Composes the error message from a stored cause. */
static int args_wrap(const struct collrun_group *g, const struct collrun_call *call, int status)
{
    char where[256];
    snprintf(where, sizeof where, "%s %s",
             kind_is_known(call->kind) ? kind_name(call->kind) : "call", g->id.name);
    return error_wrap(status, g->id.name, 0, where);
}

__attribute__((format(printf, 4, 5))) static int args_refuse(const struct collrun_group *g,
                                                             const struct collrun_call *call,
                                                             int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_vcause(status, format, args);
    va_end(args);
    return args_wrap(g, call, status);
}

enum { MOST_CALL_BYTES = 4096 }; /* of any later version of struct collrun_call */

#define REFUSE(v, call, ...) args_refuse((v)->g, (call), __VA_ARGS__)
#define INVALID(v, call, ...) REFUSE(v, call, COLLRUN_ERR_INVALID, __VA_ARGS__)

/* ---- meaning ---- */

static int args_check_rank(const struct view *v, const struct collrun_call *call, const char *what,
                           int rank)
{
    if (rank < 0 || (uint32_t)rank >= v->g->nranks)
        return INVALID(v, call, "%s %d is not a rank of this group of %u", what, rank,
                       v->g->nranks);
    return COLLRUN_OK;
}

/* What a backend that matches messages itself need not have. */
static int args_check_envelope(const struct view *v, const struct collrun_call *call)
{
    const struct backend *b = v->gb->backend;
    bool receives = call->kind != COLLRUN_SEND;
    if (!receives && call->tag == COLLRUN_ANY_TAG)
        return INVALID(v, call, "a send needs a tag; COLLRUN_ANY_TAG is for receives");
    if (call->tag != COLLRUN_ANY_TAG && call->tag >= TAG_ENGINE)
        return INVALID(v, call, "tag %u is larger than the maximum, %u", call->tag, TAG_ENGINE - 1);
    if (call->tag && !(b->table.flags & COLLRUN_BACKEND_TAGS))
        return REFUSE(v, call, COLLRUN_ERR_UNSUPPORTED,
                      "backend \"%s\" does not match tags; only tag 0 works", b->name);
    bool asks = receives && (call->received || call->received_tag || call->tag == COLLRUN_ANY_TAG);
    bool as_bytes = call->received && !b->has_transport && !b->native[call->kind][call->dtype];
    if (asks && (as_bytes || !(b->table.flags & COLLRUN_BACKEND_ENVELOPES)))
        return REFUSE(v, call, COLLRUN_ERR_UNSUPPORTED,
                      "backend \"%s\" does not report the %s of a message that a receive took",
                      b->name, call->received ? "size" : "tag");
    return COLLRUN_OK;
}

static int args_check_message(const struct view *v, const struct collrun_call *call)
{
    bool any = call->kind == COLLRUN_RECV_ANY;
    int rc = any ? COLLRUN_OK : args_check_rank(v, call, "peer", call->peer);
    if (rc != COLLRUN_OK)
        return rc;
    const struct backend *b = v->gb->backend;
    bool to_self = !any && (uint32_t)call->peer == v->g->rank &&
                   (!v->gb->ndevices || call->peer_device == call->device);
    if (to_self && !(b->table.flags & COLLRUN_BACKEND_ENVELOPES))
        return REFUSE(v, call, COLLRUN_ERR_UNSUPPORTED,
                      "peer %d is this rank itself, and backend \"%s\" has no such messages; "
                      "collrun_sendrecv copies",
                      call->peer, b->name);
    return args_check_envelope(v, call);
}

static int args_check_device(const struct view *v, const struct collrun_call *call,
                             const char *what, int device)
{
    if (v->gb->ndevices && (device < 0 || (uint32_t)device >= v->gb->ndevices))
        return INVALID(v, call, "%s %d is not one of the %u %ss of each process", what, device,
                       v->gb->ndevices, v->gb->kind->title);
    return COLLRUN_OK;
}

/* A kernel that reduces faults at an element that is not aligned, and the fault ends all work of
 * devices of the process. Operations that only move data accept any alignment. */
static int args_check_alignment(const struct view *v, const struct collrun_call *call)
{
    size_t width = dtype_size(call->dtype);
    bool receives = collrun_kind_receives(call->kind, v->comm_rank == v->root, v->comm_rank == 0);
    if (!v->gb->ndevices ||
        ((uintptr_t)call->send % width == 0 && (!receives || (uintptr_t)call->recv % width == 0)))
        return COLLRUN_OK;
    return INVALID(v, call, "a buffer on the %s is not aligned to its type, %s", v->gb->kind->title,
                   dtype_name(call->dtype));
}

/* Counts of whole units; those of the v-form are checked with its blocks. */
static int args_check_unit(const struct view *v, const struct collrun_call *call, size_t count)
{
    size_t unit = user_op_unit(call->user_op);
    if (count % unit == 0)
        return COLLRUN_OK;
    return INVALID(v, call, "%zu elements are no multiple of the unit of user op %s, %zu", count,
                   call->user_op->name, unit);
}

enum {
    USER_OP_NAME_LEN = 64,
    MOST_USER_OP_BYTES = 4096 /* an upper bound for any later version of the struct */
};

/* NULL, or what is wrong with an operator of the caller: "it has no name". */
static const char *args_user_op_flaw(const struct collrun_user_op *op)
{
    if (op->size < offsetof(struct collrun_user_op, ctx) + sizeof op->ctx ||
        op->size > MOST_USER_OP_BYTES)
        return "its size is not sizeof(struct collrun_user_op)";
    if (!op->combine)
        return "combine is NULL";
    if (!op->name || !op->name[0])
        return "it has no name";
    if (strnlen(op->name, USER_OP_NAME_LEN) == USER_OP_NAME_LEN)
        return "its name is longer than 63 bytes";
    return op->unit > PTRDIFF_MAX ? "its unit exceeds the address space" : NULL;
}

static int args_check_operator(const struct view *v, const struct collrun_call *call)
{
    const char *flaw = call->user_op ? args_user_op_flaw(call->user_op) : NULL;
    if (flaw)
        return INVALID(v, call, "the user op: %s", flaw);
    if (call->user_op)
        return collrun_kind_is_vector(call->kind) ? COLLRUN_OK
                                                  : args_check_unit(v, call, call->count);
    if (!op_is_known(call->op))
        return INVALID(v, call, "%d is not an operator", (int)call->op);
    if (!op_valid_for(call->op, call->dtype))
        return INVALID(v, call, "operator %s is not defined for %s", op_name(call->op),
                       dtype_name(call->dtype));
    return args_check_alignment(v, call);
}

static int args_check_meaning(const struct view *v, const struct collrun_call *call)
{
    const unsigned flags = collrun_kind_row(call->kind).flags;
    int rc = args_check_device(v, call, "device", call->device);
    if (rc == COLLRUN_OK && flags & (COLLRUN_HAS_ROOT | COLLRUN_HAS_PEER))
        rc = args_check_device(v, call, "peer_device", call->peer_device);
    if (rc != COLLRUN_OK)
        return rc;
    if (!dtype_is_known(call->dtype))
        return INVALID(v, call, "%d is not an element type", (int)call->dtype);
    if (flags & COLLRUN_REDUCES_DATA && (rc = args_check_operator(v, call)) != COLLRUN_OK)
        return rc;
    if (flags & COLLRUN_HAS_ROOT)
        return args_check_rank(v, call, "root", call->root);
    return group_queue_of(call->kind) == GROUP_MESSAGES ? args_check_message(v, call) : COLLRUN_OK;
}

/* ---- one or n equal blocks ---- */

static bool args_overlap(const void *a, size_t alen, const void *b, size_t blen)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return alen && blen && x < y + blen && y < x + alen;
}

/* The offset of the shorter buffer in the longer one in the in-place form, in bytes: the one block
 * is that of the root, or else of this rank. */
static size_t args_in_place_offset(const struct view *v, const struct collrun_call *call,
                                   size_t block)
{
    const struct collrun_kind_info info = collrun_kind_row(call->kind);
    if (info.send == info.recv)
        return 0;
    return (info.flags & COLLRUN_HAS_ROOT ? v->root : v->comm_rank) * block;
}

static int args_check_overlap(const struct view *v, const struct collrun_call *call,
                              size_t send_len, size_t recv_len, size_t block)
{
    if (!args_overlap(call->send, send_len, call->recv, recv_len))
        return COLLRUN_OK;
    size_t offset = args_in_place_offset(v, call, block);
    bool send_is_longer = send_len > recv_len;
    uintptr_t longer = (uintptr_t)(send_is_longer ? call->send : call->recv);
    uintptr_t shorter = (uintptr_t)(send_is_longer ? call->recv : call->send);
    if (shorter == longer + offset)
        return COLLRUN_OK;
    return INVALID(v, call,
                   "the send and receive buffers overlap, but not as in the in-place form");
}

/* blocks * block bytes, which must fit. */
static bool args_fits(size_t blocks, size_t block, size_t *out)
{
    return !__builtin_mul_overflow(blocks, block, out) && *out <= PTRDIFF_MAX;
}

static int args_check_plain(const struct view *v, const struct collrun_call *call)
{
    const struct collrun_kind_info info = collrun_kind_row(call->kind);
    bool at_root = v->root == v->comm_rank;
    size_t blocks[2] = {info.send == COLLRUN_BLOCK_EACH ? v->comm_size : info.send,
                        info.recv == COLLRUN_BLOCK_EACH ? v->comm_size : info.recv};
    size_t block, send_len, recv_len;
    if (!args_fits(call->count, dtype_size(call->dtype), &block) ||
        !args_fits(blocks[0], block, &send_len) || !args_fits(blocks[1], block, &recv_len))
        return INVALID(v, call, "%zu elements of %s exceed the address space", call->count,
                       dtype_name(call->dtype));
    if (!collrun_kind_sends(call->kind, at_root))
        send_len = 0;
    if (!collrun_kind_receives(call->kind, at_root, v->comm_rank == 0))
        recv_len = 0;
    if (send_len && !call->send)
        return INVALID(v, call, "the send buffer is NULL");
    if (recv_len && !call->recv)
        return INVALID(v, call, "the %sbuffer is NULL",
                       call->kind == COLLRUN_BROADCAST ? "" : "receive ");
    if (send_len && recv_len)
        return args_check_overlap(v, call, send_len, recv_len, block);
    return COLLRUN_OK;
}

/* ---- the v-forms ---- */

/* The send or the receive buffer of a v-form: a block per rank. */
struct blocks {
    const char *what;    /* "send", "receive" */
    bool received, sent; /* sent: the counts are sendcounts */
    const void *base;
    const size_t *counts, *displs; /* displs NULL = packed */
    size_t lo, hi;                 /* the range of the blocks, in bytes from base */
    bool in_order;                 /* each starts at or after the end of all before */
};

static size_t args_block_at(const struct blocks *b, uint32_t i, size_t packed)
{
    return b->displs ? b->displs[i] : packed;
}

/* Sums up counts and displacements, in elements and then bytes, and checks the pointers. */
static int args_measure(const struct view *v, const struct collrun_call *call, struct blocks *b)
{
    size_t es = dtype_size(call->dtype), packed = 0, lo = SIZE_MAX, hi = 0;
    uint64_t hash = 0, power = 1;
    b->in_order = true;
    if (!b->counts)
        return INVALID(v, call, "the array of %s counts is NULL", b->what);
    for (uint32_t i = 0; i < v->comm_size; i++) {
        size_t at = args_block_at(b, i, packed), end;
        if (__builtin_add_overflow(at, b->counts[i], &end) ||
            __builtin_add_overflow(packed, b->counts[i], &packed) || end > PTRDIFF_MAX / es ||
            packed > PTRDIFF_MAX / es)
            return INVALID(v, call, "the %s counts for rank %u exceed the address space", b->what,
                           i);
        hash += b->counts[i] * power;
        power *= b->sent ? CALL_HASH_SENT : CALL_HASH_RECEIVED;
        if (!b->counts[i])
            continue;
        b->in_order = b->in_order && at >= hi;
        lo = at < lo ? at : lo;
        hi = end > hi ? end : hi;
    }
    b->lo = hi ? lo * es : 0;
    b->hi = hi * es;
    v->route->hashed = call;
    *(b->sent ? &v->route->hashes.sent : &v->route->hashes.received) = hash;
    v->route->hashes.total = b->sent ? packed : v->route->hashes.total;
    if (hi && !b->base)
        return INVALID(v, call, "the %s buffer is NULL", b->received ? "receive" : "send");
    return COLLRUN_OK;
}

/* Blocks that are received into must not share a byte. */
static int args_check_disjoint(const struct view *v, const struct collrun_call *call,
                               const struct blocks *b)
{
    if (b->in_order || !b->displs)
        return COLLRUN_OK;
    for (uint32_t i = 0; i < v->comm_size; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (b->counts[i] && b->counts[k] && b->displs[i] < b->displs[k] + b->counts[k] &&
                b->displs[k] < b->displs[i] + b->counts[i])
                return INVALID(v, call, "the blocks received from ranks %u and %u overlap", k, i);
        }
    }
    return COLLRUN_OK;
}

/* A plain buffer of `len` bytes against blocks: it may be the block of rank `own`, exactly. */
static int args_check_apart(const struct view *v, const struct collrun_call *call,
                            const void *plain, size_t len, const struct blocks *b, int own)
{
    size_t es = dtype_size(call->dtype), packed = 0;
    const char *base = b->base;
    if (!base || !args_overlap(plain, len, base + b->lo, b->hi - b->lo))
        return COLLRUN_OK;
    for (uint32_t i = 0; i < v->comm_size; packed += b->counts[i++]) {
        const char *at = base + args_block_at(b, i, packed) * es;
        bool in_place = (int)i == own && at == plain;
        if (!in_place && args_overlap(plain, len, at, b->counts[i] * es))
            return INVALID(v, call,
                           "the send and receive buffers overlap, but not as in the in-place form");
    }
    return COLLRUN_OK;
}

static int args_check_own(const struct view *v, const struct collrun_call *call, size_t sent,
                          size_t received)
{
    if (sent != received)
        return INVALID(v, call, "this rank sends %zu elements to itself, but receives %zu", sent,
                       received);
    return COLLRUN_OK;
}

/* allgatherv, gatherv at its root, scatterv at its root: a plain buffer and one of blocks. */
static int args_check_plain_against_blocks(const struct view *v, const struct collrun_call *call,
                                           struct blocks *b, const void *plain, size_t count,
                                           const char *plain_what)
{
    size_t len;
    if (!args_fits(count, dtype_size(call->dtype), &len))
        return INVALID(v, call, "%zu elements of %s exceed the address space", count,
                       dtype_name(call->dtype));
    if (len && !plain)
        return INVALID(v, call, "the %s buffer is NULL", plain_what);
    if (!b)
        return COLLRUN_OK;
    int rc = args_measure(v, call, b);
    if (rc == COLLRUN_OK)
        rc = b->received ? args_check_own(v, call, count, b->counts[v->comm_rank])
                         : args_check_own(v, call, b->counts[v->comm_rank], count);
    if (rc == COLLRUN_OK && b->received)
        rc = args_check_disjoint(v, call, b);
    return rc == COLLRUN_OK ? args_check_apart(v, call, plain, len, b, (int)v->comm_rank) : rc;
}

static int args_check_reduce_scatterv(const struct view *v, const struct collrun_call *call)
{
    struct blocks b = {.what = "receive", .base = call->send, .counts = call->recvcounts};
    int rc = args_measure(v, call, &b);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < v->comm_size; i++)
        rc = args_check_unit(v, call, call->recvcounts[i]);
    if (rc != COLLRUN_OK)
        return rc;
    if (call->recvcounts[v->comm_rank] && !call->recv)
        return INVALID(v, call, "the receive buffer is NULL");
    return args_check_apart(v, call, call->recv,
                            call->recvcounts[v->comm_rank] * dtype_size(call->dtype), &b,
                            (int)v->comm_rank);
}

/* In place: the blocks that are received are those that are sent. */
static bool args_same_blocks(const struct blocks *a, const struct blocks *b, uint32_t n)
{
    size_t packed_a = 0, packed_b = 0;
    bool same = a->base == b->base;
    for (uint32_t i = 0; same && i < n; i++) {
        same = a->counts[i] == b->counts[i] &&
               (!a->counts[i] || args_block_at(a, i, packed_a) == args_block_at(b, i, packed_b));
        packed_a += a->counts[i];
        packed_b += b->counts[i];
    }
    return same;
}

static struct blocks args_sent_blocks(const struct collrun_call *call)
{
    return (struct blocks){.what = "send",
                           .sent = true,
                           .base = call->send,
                           .counts = call->sendcounts,
                           .displs = call->senddispls};
}

static struct blocks args_received_blocks(const struct collrun_call *call)
{
    return (struct blocks){.what = "receive",
                           .received = true,
                           .base = call->recv,
                           .counts = call->recvcounts,
                           .displs = call->recvdispls};
}

static int args_check_alltoallv(const struct view *v, const struct collrun_call *call)
{
    struct blocks s = args_sent_blocks(call), r = args_received_blocks(call);
    int rc = args_measure(v, call, &s);
    if (rc == COLLRUN_OK)
        rc = args_measure(v, call, &r);
    if (rc == COLLRUN_OK)
        rc = args_check_own(v, call, s.counts[v->comm_rank], r.counts[v->comm_rank]);
    if (rc == COLLRUN_OK)
        rc = args_check_disjoint(v, call, &r);
    if (rc == COLLRUN_OK && args_same_blocks(&s, &r, v->comm_size))
        return COLLRUN_OK;
    size_t es = dtype_size(call->dtype), packed = 0;
    for (uint32_t i = 0; rc == COLLRUN_OK && s.base && i < v->comm_size; packed += s.counts[i++])
        rc = args_check_apart(v, call, (const char *)s.base + args_block_at(&s, i, packed) * es,
                              s.counts[i] * es, &r, -1);
    return rc;
}

static int args_check_uneven(const struct view *v, const struct collrun_call *call)
{
    struct blocks s = args_sent_blocks(call), r = args_received_blocks(call);
    bool at_root = v->root == v->comm_rank;
    switch (call->kind) {
    case COLLRUN_ALLGATHERV:
        return args_check_plain_against_blocks(v, call, &r, call->send, call->count, "send");
    case COLLRUN_GATHERV:
        return args_check_plain_against_blocks(v, call, at_root ? &r : NULL, call->send,
                                               call->count, "send");
    case COLLRUN_SCATTERV:
        return args_check_plain_against_blocks(v, call, at_root ? &s : NULL, call->recv,
                                               call->recvcount, "receive");
    case COLLRUN_REDUCE_SCATTERV:
        return args_check_reduce_scatterv(v, call);
    default:
        return args_check_alltoallv(v, call);
    }
}

/* ---- the whole call ---- */

static int args_check_backend(const struct view *v, const struct collrun_call *call)
{
    const struct backend *b = v->gb->backend;
    if (call->user_op && !backend_emulates(b))
        return REFUSE(v, call, COLLRUN_ERR_UNSUPPORTED,
                      "a user op needs messages, which backend \"%s\" does not have", b->name);
    if (backend_supports(b, call->kind) != BACKEND_UNSUPPORTED)
        return COLLRUN_OK;
    return REFUSE(v, call, COLLRUN_ERR_UNSUPPORTED, "not supported by backend \"%s\"", b->name);
}

static struct view args_view_of(const struct collrun_group *g, struct route *route,
                                const struct collrun_call *call)
{
    const struct group_backend *gb = route->gb;
    return (struct view){.g = g,
                         .gb = gb,
                         .route = route,
                         .comm_size = gb->comm_size,
                         .comm_rank = route_comm_rank(gb, call),
                         .root = route_root(gb, call)};
}

int call_check(struct collrun_group *g, const struct collrun_call *call, struct route *route)
{
    if (!kind_is_known(call->kind))
        return args_refuse(g, call, COLLRUN_ERR_INVALID, "%d is not a kind of operation",
                           (int)call->kind);
    int rc = route_find(g, call, route);
    if (rc != COLLRUN_OK || (g->kinds.n && (rc = route_check(g, call, route)) != 0))
        return args_wrap(g, call, rc);
    struct view v = args_view_of(g, route, call);
    if (call->kind != COLLRUN_BARRIER) {
        rc = args_check_meaning(&v, call);
        if (rc == COLLRUN_OK)
            rc = collrun_kind_is_vector(call->kind) ? args_check_uneven(&v, call)
                                                    : args_check_plain(&v, call);
    }
    const struct backend *b = route->gb->backend;
    bool native = rc == COLLRUN_OK && !call->user_op &&
                  b->native[call->kind][call->kind == COLLRUN_BARRIER ? 0 : call->dtype];
    return rc != COLLRUN_OK || native ? rc : args_check_backend(&v, call);
}

/* True if all fields are equal that must be equal on every rank. */
static bool args_same_collective(const struct collrun_call *a, const struct collrun_call *b)
{
    if (a->kind != b->kind)
        return false;
    const unsigned flags = collrun_kind_row(a->kind).flags;
    if (a->kind == COLLRUN_BARRIER)
        return true;
    return a->dtype == b->dtype && (flags & COLLRUN_IS_VECTOR || a->count == b->count) &&
           (!(flags & COLLRUN_REDUCES_DATA) || (a->op == b->op && a->user_op == b->user_op)) &&
           (!(flags & COLLRUN_HAS_ROOT) ||
            (a->root == b->root && a->peer_device == b->peer_device));
}

/* The calls of one collective, one for each device of this process. */
static int args_check_set(struct collrun_group *g, const struct collrun_call *calls, uint32_t n,
                          const struct group_backend *gb)
{
    uint64_t seen = 0;
    if (group_devices(gb) == 1)
        return COLLRUN_OK; /* one collective, or a batch */
    if (n != group_devices(gb) && !(n == 1 && calls->kind == COLLRUN_BARRIER))
        return args_refuse(g, calls, COLLRUN_ERR_INVALID,
                           "%u call%s for the %u %ss of each process: "
                           "a collective takes one call per %s",
                           n, n == 1 ? "" : "s", group_devices(gb), gb->kind->title,
                           gb->kind->title);
    for (uint32_t i = 0; i < n; i++) {
        const struct collrun_call *c = &calls[i];
        if (!args_same_collective(c, &calls[0]))
            return args_refuse(g, c, COLLRUN_ERR_INVALID,
                               "the calls for devices %d and %d differ in more than their buffers",
                               calls->device, c->device);
        if (gb->ndevices && seen >> c->device & 1)
            return args_refuse(g, c, COLLRUN_ERR_INVALID, "two calls for device %d", c->device);
        seen |= 1ull << (gb->ndevices ? c->device : 0);
    }
    return COLLRUN_OK;
}

int call_check_all(struct collrun_group *g, const struct collrun_call *calls, uint32_t n,
                   struct route *route)
{
    int rc = call_check(g, &calls[0], route);
    for (uint32_t i = 1; rc == COLLRUN_OK && i < n; i++) {
        struct route other = {0};
        rc = call_check(g, &calls[i], &other);
        if (rc == COLLRUN_OK && group_queue_of(calls[i].kind) != group_queue_of(calls->kind))
            rc = args_refuse(g, &calls[i], COLLRUN_ERR_INVALID,
                             "a request has messages or collectives, but not both");
        else if (rc == COLLRUN_OK && other.gb != route->gb)
            rc = args_refuse(g, &calls[i], COLLRUN_ERR_INVALID,
                             "the calls of one request use buffers in different kinds of memory");
        route_join(route, &other);
    }
    if (rc == COLLRUN_OK && group_queue_of(calls->kind) == GROUP_COLLECTIVES)
        rc = args_check_set(g, calls, n, route->gb);
    return rc;
}

int call_check_apart(const struct collrun_group *g, const struct collrun_call *send,
                     const struct collrun_call *recv)
{
    if (args_overlap(send->send, send->count * dtype_size(send->dtype), recv->recv,
                     recv->count * dtype_size(recv->dtype)))
        return error_set(COLLRUN_ERR_INVALID, "sendrecv %s: the send and receive buffers overlap",
                         g->id.name);
    return COLLRUN_OK;
}

int call_import(const struct collrun_group *g, const struct collrun_call *theirs,
                struct collrun_call *out)
{
    if (!theirs)
        return error_set(COLLRUN_ERR_INVALID, "group %s: the call is NULL", g->id.name);
    if (theirs->size < offsetof(struct collrun_call, timeout_ns) + sizeof theirs->timeout_ns ||
        theirs->size > MOST_CALL_BYTES)
        return args_refuse(g, theirs, COLLRUN_ERR_INVALID,
                           "the call has a size of %u bytes; initialize it with COLLRUN_CALL(kind)",
                           theirs->size);
    if (theirs->size < sizeof *out)
        *out = (struct collrun_call){0};
    memcpy(out, theirs, theirs->size < sizeof *out ? theirs->size : sizeof *out);
    out->size = (uint32_t)sizeof *out;
    if (!collrun_kind_reduces(out->kind))
        out->user_op = NULL;
    if (out->user_op)
        out->op = (enum collrun_op)OP_USER;
    return COLLRUN_OK;
}
