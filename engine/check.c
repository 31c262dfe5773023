/* SPDX-License-Identifier: Apache-2.0
 *
 * A table says for each kind what it needs; three passes (meaning, sizes, buffers) obey it. Sizes
 * are computed in bytes and bounded by PTRDIFF_MAX, so that nothing after this check can overflow.
 */
#include "check.h"

#include "backend.h"
#include "error.h"
#include "names.h"
#include "reduce.h"
#include "route.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* How many blocks of `count` elements a buffer holds. */
enum extent { NONE, ONE, PER_RANK };

struct rule {
    unsigned char send, recv;        /* enum extent; the v-forms have their own rules */
    bool send_at_root, recv_at_root; /* only the root has that buffer */
    bool root, peer, reduces;
};

static const struct rule rules[COLLRUN_KIND_COUNT] = {
    [COLLRUN_ALLREDUCE] = {.send = ONE, .recv = ONE, .reduces = true},
    [COLLRUN_REDUCE] =
        {.send = ONE, .recv = ONE, .recv_at_root = true, .root = true, .reduces = true},
    [COLLRUN_BROADCAST] = {.recv = ONE, .root = true},
    [COLLRUN_ALLGATHER] = {.send = ONE, .recv = PER_RANK},
    [COLLRUN_GATHER] = {.send = ONE, .recv = PER_RANK, .recv_at_root = true, .root = true},
    [COLLRUN_SCATTER] = {.send = PER_RANK, .recv = ONE, .send_at_root = true, .root = true},
    [COLLRUN_REDUCE_SCATTER] = {.send = PER_RANK, .recv = ONE, .reduces = true},
    [COLLRUN_ALLTOALL] = {.send = PER_RANK, .recv = PER_RANK},
    [COLLRUN_GATHERV] = {.root = true},
    [COLLRUN_SCATTERV] = {.root = true},
    [COLLRUN_REDUCE_SCATTERV] = {.reduces = true},
    [COLLRUN_SEND] = {.send = ONE, .peer = true},
    [COLLRUN_RECV] = {.recv = ONE, .peer = true},
    [COLLRUN_RECV_ANY] = {.recv = ONE},
};

/* A call as the communicator sees it that carries it: ranks are places there (group.h). */
struct view {
    const struct collrun_group *g;
    const struct group_side *side;
    uint32_t nplaces, place, root;
};

/* The sentence around a cause that is stored. */
static int complain(const struct collrun_group *g, const struct collrun_call *call, int status)
{
    char where[256];
    const char *kind = kind_name(call->kind);
    snprintf(where, sizeof where, "%s %s", kind ? kind : "call", g->name);
    return error_wrap(status, g->name, 0, where);
}

static int refuse(const struct collrun_group *g, const struct collrun_call *call, int status,
                  const char *format, ...) __attribute__((format(printf, 4, 5)));

static int refuse(const struct collrun_group *g, const struct collrun_call *call, int status,
                  const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_vcause(status, format, args);
    va_end(args);
    return complain(g, call, status);
}

/* More than any later version of struct collrun_call will have. */
enum { MOST_CALL_BYTES = 4096 };

#define REFUSE(v, call, ...) refuse((v)->g, (call), __VA_ARGS__)
#define INVALID(v, call, ...) REFUSE(v, call, COLLRUN_ERR_INVALID, __VA_ARGS__)

/* ---- meaning ---- */

static int check_rank(const struct view *v, const struct collrun_call *call, const char *what,
                      int rank)
{
    if (rank < 0 || (uint32_t)rank >= v->g->nranks)
        return INVALID(v, call, "%s %d is not a rank of this group of %u", what, rank,
                       v->g->nranks);
    return COLLRUN_OK;
}

static int check_message(const struct view *v, const struct collrun_call *call)
{
    int rc = call->kind == COLLRUN_RECV_ANY ? COLLRUN_OK : check_rank(v, call, "peer", call->peer);
    if (rc != COLLRUN_OK)
        return rc;
    bool to_self = (uint32_t)call->peer == v->g->rank &&
                   (!v->side->ndevices || call->peer_device == call->device);
    if (call->kind != COLLRUN_RECV_ANY && to_self)
        return INVALID(v, call, "peer %d is this rank itself", call->peer);
    if (call->tag >= TAG_ENGINE)
        return INVALID(v, call, "tag %u is more than the largest, %u", call->tag, TAG_ENGINE - 1);
    if (call->tag && !(v->side->backend->table.flags & COLLRUN_BACKEND_TAGS))
        return REFUSE(v, call, COLLRUN_ERR_UNSUPPORTED,
                      "backend \"%s\" does not match tags; only tag 0 works",
                      v->side->backend->name);
    return COLLRUN_OK;
}

static int check_device(const struct view *v, const struct collrun_call *call, const char *what,
                        int device)
{
    if (v->side->ndevices && (device < 0 || (uint32_t)device >= v->side->ndevices))
        return INVALID(v, call, "%s %d is not one of the %u GPUs of each process", what, device,
                       v->side->ndevices);
    return COLLRUN_OK;
}

/* A GPU that meets an element across its natural boundary faults, and takes the process's other
 * work with it. What is only moved goes byte by byte. */
static int check_alignment(const struct view *v, const struct collrun_call *call)
{
    size_t width = dtype_size(call->dtype);
    bool receives = call->kind != COLLRUN_REDUCE || v->place == v->root;
    if (!v->side->ndevices ||
        ((uintptr_t)call->send % width == 0 && (!receives || (uintptr_t)call->recv % width == 0)))
        return COLLRUN_OK;
    return INVALID(v, call, "a buffer on the GPU is not aligned to its type, %s",
                   dtype_name(call->dtype));
}

static int check_meaning(const struct view *v, const struct collrun_call *call)
{
    const struct rule *rule = &rules[call->kind];
    int rc = check_device(v, call, "device", call->device);
    if (rc == COLLRUN_OK && (rule->root || rule->peer))
        rc = check_device(v, call, "peer_device", call->peer_device);
    if (rc != COLLRUN_OK)
        return rc;
    if (!dtype_name(call->dtype))
        return INVALID(v, call, "%d is no element type", (int)call->dtype);
    if (rule->reduces && !op_name(call->op))
        return INVALID(v, call, "%d is no operator", (int)call->op);
    if (rule->reduces && !op_valid_for(call->op, call->dtype))
        return INVALID(v, call, "operator %s has no meaning for %s", op_name(call->op),
                       dtype_name(call->dtype));
    if (rule->reduces && (rc = check_alignment(v, call)) != COLLRUN_OK)
        return rc;
    if (rule->root)
        return check_rank(v, call, "root", call->root);
    return group_lane_of(call->kind) == GROUP_MESSAGES ? check_message(v, call) : COLLRUN_OK;
}

/* ---- one or n equal blocks ---- */

static bool overlap(const void *a, size_t alen, const void *b, size_t blen)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return alen && blen && x < y + blen && y < x + alen;
}

/* Where, in bytes into the longer buffer, the shorter one lies in the in-place form. */
static size_t in_place_offset(const struct view *v, const struct collrun_call *call, size_t block)
{
    switch (call->kind) {
    case COLLRUN_ALLGATHER:
    case COLLRUN_REDUCE_SCATTER:
        return v->place * block;
    case COLLRUN_GATHER:
    case COLLRUN_SCATTER:
        return (size_t)v->root * block;
    default:
        return 0;
    }
}

static int check_overlap(const struct view *v, const struct collrun_call *call, size_t send_len,
                         size_t recv_len, size_t block)
{
    if (!overlap(call->send, send_len, call->recv, recv_len))
        return COLLRUN_OK;
    size_t offset = in_place_offset(v, call, block);
    bool send_is_longer = send_len > recv_len;
    uintptr_t longer = (uintptr_t)(send_is_longer ? call->send : call->recv);
    uintptr_t shorter = (uintptr_t)(send_is_longer ? call->recv : call->send);
    if (shorter == longer + offset)
        return COLLRUN_OK;
    return INVALID(v, call,
                   "the send and receive buffers overlap in another way than the in-place form");
}

/* blocks * block bytes, which must fit. */
static bool fits(size_t blocks, size_t block, size_t *out)
{
    return !__builtin_mul_overflow(blocks, block, out) && *out <= PTRDIFF_MAX;
}

static int check_plain(const struct view *v, const struct collrun_call *call)
{
    const struct rule *rule = &rules[call->kind];
    bool at_root = rule->root && v->root == v->place;
    size_t blocks[2] = {rule->send == PER_RANK ? v->nplaces : rule->send,
                        rule->recv == PER_RANK ? v->nplaces : rule->recv};
    size_t block, send_len, recv_len;
    if (!fits(call->count, dtype_size(call->dtype), &block) || !fits(blocks[0], block, &send_len) ||
        !fits(blocks[1], block, &recv_len))
        return INVALID(v, call, "%zu elements of %s are more than memory can hold", call->count,
                       dtype_name(call->dtype));
    if (rule->send_at_root && !at_root)
        send_len = 0;
    if (rule->recv_at_root && !at_root)
        recv_len = 0;
    if (send_len && !call->send)
        return INVALID(v, call, "the send buffer is NULL");
    if (recv_len && !call->recv)
        return INVALID(v, call, "the %sbuffer is NULL",
                       call->kind == COLLRUN_BROADCAST ? "" : "receive ");
    if (send_len && recv_len)
        return check_overlap(v, call, send_len, recv_len, block);
    return COLLRUN_OK;
}

/* ---- the v-forms ---- */

/* One side of a v-form: a block per rank. */
struct blocks {
    const char *what; /* "send", "receive" */
    bool received;
    const void *base;
    const size_t *counts, *displs; /* displs NULL = packed */
    size_t lo, hi;                 /* bytes from base that the blocks lie between */
    bool in_order;                 /* each starts at or after the end of all before */
};

static size_t block_at(const struct blocks *b, uint32_t i, size_t packed)
{
    return b->displs ? b->displs[i] : packed;
}

/* Sums up counts and displacements, in elements and then bytes, and looks at the pointers. */
static int measure(const struct view *v, const struct collrun_call *call, struct blocks *b)
{
    size_t es = dtype_size(call->dtype), packed = 0, lo = SIZE_MAX, hi = 0;
    b->in_order = true;
    if (!b->counts)
        return INVALID(v, call, "the array of %s counts is NULL", b->what);
    for (uint32_t i = 0; i < v->nplaces; i++) {
        size_t at = block_at(b, i, packed), end;
        if (__builtin_add_overflow(at, b->counts[i], &end) ||
            __builtin_add_overflow(packed, b->counts[i], &packed) || end > PTRDIFF_MAX / es ||
            packed > PTRDIFF_MAX / es)
            return INVALID(v, call, "the %s counts for rank %u are more than memory can hold",
                           b->what, i);
        if (!b->counts[i])
            continue;
        b->in_order = b->in_order && at >= hi;
        lo = at < lo ? at : lo;
        hi = end > hi ? end : hi;
    }
    b->lo = hi ? lo * es : 0;
    b->hi = hi * es;
    if (hi && !b->base)
        return INVALID(v, call, "the %s buffer is NULL", b->received ? "receive" : "send");
    return COLLRUN_OK;
}

/* Blocks that are received into must not share a byte. */
static int check_disjoint(const struct view *v, const struct collrun_call *call,
                          const struct blocks *b)
{
    if (b->in_order || !b->displs)
        return COLLRUN_OK;
    for (uint32_t i = 0; i < v->nplaces; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (b->counts[i] && b->counts[k] && b->displs[i] < b->displs[k] + b->counts[k] &&
                b->displs[k] < b->displs[i] + b->counts[i])
                return INVALID(v, call, "the blocks received from ranks %u and %u overlap", k, i);
        }
    }
    return COLLRUN_OK;
}

/* A plain buffer of `len` bytes against blocks: it may be the block of rank `own`, exactly. */
static int check_apart(const struct view *v, const struct collrun_call *call, const void *plain,
                       size_t len, const struct blocks *b, int own)
{
    size_t es = dtype_size(call->dtype), packed = 0;
    const char *base = b->base;
    if (!base || !overlap(plain, len, base + b->lo, b->hi - b->lo))
        return COLLRUN_OK;
    for (uint32_t i = 0; i < v->nplaces; packed += b->counts[i++]) {
        const char *at = base + block_at(b, i, packed) * es;
        bool in_place = (int)i == own && at == plain;
        if (!in_place && overlap(plain, len, at, b->counts[i] * es))
            return INVALID(
                v, call,
                "the send and receive buffers overlap in another way than the in-place form");
    }
    return COLLRUN_OK;
}

static int check_own(const struct view *v, const struct collrun_call *call, size_t sent,
                     size_t received)
{
    if (sent != received)
        return INVALID(v, call, "this rank sends itself %zu elements and receives %zu", sent,
                       received);
    return COLLRUN_OK;
}

/* allgatherv, gatherv at its root, scatterv at its root: a plain buffer on one side, blocks on the
 * other. */
static int check_plain_against_blocks(const struct view *v, const struct collrun_call *call,
                                      struct blocks *b, const void *plain, size_t count,
                                      const char *plain_what)
{
    size_t len;
    if (!fits(count, dtype_size(call->dtype), &len))
        return INVALID(v, call, "%zu elements of %s are more than memory can hold", count,
                       dtype_name(call->dtype));
    if (len && !plain)
        return INVALID(v, call, "the %s buffer is NULL", plain_what);
    if (!b)
        return COLLRUN_OK;
    int rc = measure(v, call, b);
    if (rc == COLLRUN_OK)
        rc = b->received ? check_own(v, call, count, b->counts[v->place])
                         : check_own(v, call, b->counts[v->place], count);
    if (rc == COLLRUN_OK && b->received)
        rc = check_disjoint(v, call, b);
    return rc == COLLRUN_OK ? check_apart(v, call, plain, len, b, (int)v->place) : rc;
}

static int check_reduce_scatterv(const struct view *v, const struct collrun_call *call)
{
    struct blocks b = {.what = "receive", .base = call->send, .counts = call->recvcounts};
    int rc = measure(v, call, &b);
    if (rc != COLLRUN_OK)
        return rc;
    if (call->recvcounts[v->place] && !call->recv)
        return INVALID(v, call, "the receive buffer is NULL");
    return check_apart(v, call, call->recv, call->recvcounts[v->place] * dtype_size(call->dtype),
                       &b, (int)v->place);
}

static int check_alltoallv(const struct view *v, const struct collrun_call *call)
{
    struct blocks s = {
        .what = "send", .base = call->send, .counts = call->sendcounts, .displs = call->senddispls};
    struct blocks r = {.what = "receive",
                       .received = true,
                       .base = call->recv,
                       .counts = call->recvcounts,
                       .displs = call->recvdispls};
    int rc = measure(v, call, &s);
    if (rc == COLLRUN_OK)
        rc = measure(v, call, &r);
    if (rc == COLLRUN_OK)
        rc = check_own(v, call, s.counts[v->place], r.counts[v->place]);
    if (rc == COLLRUN_OK)
        rc = check_disjoint(v, call, &r);
    size_t es = dtype_size(call->dtype), packed = 0;
    for (uint32_t i = 0; rc == COLLRUN_OK && s.base && i < v->nplaces; packed += s.counts[i++])
        rc = check_apart(v, call, (const char *)s.base + block_at(&s, i, packed) * es,
                         s.counts[i] * es, &r, -1);
    return rc;
}

static int check_uneven(const struct view *v, const struct collrun_call *call)
{
    struct blocks r = {.what = "receive",
                       .received = true,
                       .base = call->recv,
                       .counts = call->recvcounts,
                       .displs = call->recvdispls};
    struct blocks s = {
        .what = "send", .base = call->send, .counts = call->sendcounts, .displs = call->senddispls};
    bool at_root = v->root == v->place;
    switch (call->kind) {
    case COLLRUN_ALLGATHERV:
        return check_plain_against_blocks(v, call, &r, call->send, call->count, "send");
    case COLLRUN_GATHERV:
        return check_plain_against_blocks(v, call, at_root ? &r : NULL, call->send, call->count,
                                          "send");
    case COLLRUN_SCATTERV:
        return check_plain_against_blocks(v, call, at_root ? &s : NULL, call->recv, call->recvcount,
                                          "receive");
    case COLLRUN_REDUCE_SCATTERV:
        return check_reduce_scatterv(v, call);
    default:
        return check_alltoallv(v, call);
    }
}

/* ---- all of it ---- */

static bool is_uneven(enum collrun_kind kind)
{
    return kind >= COLLRUN_ALLGATHERV && kind <= COLLRUN_ALLTOALLV;
}

static int check_backend(const struct view *v, const struct collrun_call *call)
{
    const struct backend *b = v->side->backend;
    if (backend_supports(b, call->kind) != BACKEND_UNSUPPORTED)
        return COLLRUN_OK;
    return REFUSE(v, call, COLLRUN_ERR_UNSUPPORTED, "not supported by backend \"%s\"", b->name);
}

static struct view view_of(const struct collrun_group *g, const struct group_side *side,
                           const struct collrun_call *call)
{
    return (struct view){.g = g,
                         .side = side,
                         .nplaces = side->nplaces,
                         .place = route_place(side, call),
                         .root = route_root(side, call)};
}

int call_check(struct collrun_group *g, const struct collrun_call *call, struct route *route)
{
    if (!kind_name(call->kind))
        return refuse(g, call, COLLRUN_ERR_INVALID, "%d is no kind of operation", (int)call->kind);
    int rc = route_find(g, call, route);
    if (rc != COLLRUN_OK)
        return complain(g, call, rc);
    struct view v = view_of(g, route->side, call);
    if (call->kind != COLLRUN_BARRIER) {
        rc = check_meaning(&v, call);
        if (rc == COLLRUN_OK)
            rc = is_uneven(call->kind) ? check_uneven(&v, call) : check_plain(&v, call);
    }
    const struct backend *b = route->side->backend;
    bool native =
        rc == COLLRUN_OK && b->native[call->kind][call->kind == COLLRUN_BARRIER ? 0 : call->dtype];
    return rc != COLLRUN_OK || native ? rc : check_backend(&v, call);
}

/* In all that its kind makes the same on every rank. */
static bool same_collective(const struct collrun_call *a, const struct collrun_call *b)
{
    if (a->kind != b->kind)
        return false;
    const struct rule *rule = &rules[a->kind];
    if (a->kind == COLLRUN_BARRIER)
        return true;
    return a->dtype == b->dtype && (is_uneven(a->kind) || a->count == b->count) &&
           (!rule->reduces || a->op == b->op) &&
           (!rule->root || (a->root == b->root && a->peer_device == b->peer_device));
}

/* The calls of one collective, one for each device of the side. */
static int check_set(struct collrun_group *g, const struct collrun_call *calls, uint32_t n,
                     const struct group_side *side)
{
    uint64_t seen = 0;
    if (n == 1 && group_devices(side) == 1)
        return COLLRUN_OK;
    if (group_devices(side) == 1)
        return refuse(g, calls, COLLRUN_ERR_INVALID,
                      "several calls in one request have to be messages");
    if (n != group_devices(side) && !(n == 1 && calls->kind == COLLRUN_BARRIER))
        return refuse(g, calls, COLLRUN_ERR_INVALID,
                      "%u call%s, and each process drives %u GPUs in this group: "
                      "collrun_start_many takes one call for each",
                      n, n == 1 ? "" : "s", group_devices(side));
    for (uint32_t i = 0; i < n; i++) {
        const struct collrun_call *c = &calls[i];
        if (!same_collective(c, &calls[0]))
            return refuse(g, c, COLLRUN_ERR_INVALID,
                          "the calls for devices %d and %d differ in more than their buffers",
                          calls->device, c->device);
        if (side->ndevices && seen >> c->device & 1)
            return refuse(g, c, COLLRUN_ERR_INVALID, "two calls for device %d", c->device);
        seen |= 1ull << (side->ndevices ? c->device : 0);
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
        if (rc == COLLRUN_OK && group_lane_of(calls[i].kind) != group_lane_of(calls->kind))
            rc = refuse(g, &calls[i], COLLRUN_ERR_INVALID,
                        "several calls in one request have to be messages");
        else if (rc == COLLRUN_OK && other.side != route->side)
            rc = refuse(g, &calls[i], COLLRUN_ERR_INVALID,
                        "the calls of one request have buffers in host memory and on a GPU");
        route->staged = route->staged || other.staged;
    }
    if (rc == COLLRUN_OK && group_lane_of(calls->kind) == GROUP_COLLECTIVES)
        rc = check_set(g, calls, n, route->side);
    return rc;
}

int call_check_apart(const struct collrun_group *g, const struct collrun_call *send,
                     const struct collrun_call *recv)
{
    if (overlap(send->send, send->count * dtype_size(send->dtype), recv->recv,
                recv->count * dtype_size(recv->dtype)))
        return error_set(COLLRUN_ERR_INVALID, "sendrecv %s: the send and receive buffers overlap",
                         g->name);
    return COLLRUN_OK;
}

int call_import(const struct collrun_group *g, const struct collrun_call *theirs,
                struct collrun_call *out)
{
    if (!theirs)
        return error_set(COLLRUN_ERR_INVALID, "group %s: the call is NULL", g->name);
    if (theirs->size < offsetof(struct collrun_call, timeout_ns) + sizeof theirs->timeout_ns ||
        theirs->size > MOST_CALL_BYTES)
        return refuse(g, theirs, COLLRUN_ERR_INVALID,
                      "a call structure of %u bytes; COLLRUN_CALL(kind) fills in the right size",
                      theirs->size);
    *out = (struct collrun_call){0};
    memcpy(out, theirs, theirs->size < sizeof *out ? theirs->size : sizeof *out);
    out->size = (uint32_t)sizeof *out;
    return COLLRUN_OK;
}

void call_trim(const struct group_side *side, struct collrun_call *call)
{
    bool at_root = route_root(side, call) == route_place(side, call);
    bool sends = call->kind == COLLRUN_ALLTOALLV || (call->kind == COLLRUN_SCATTERV && at_root);
    bool receives = call->kind == COLLRUN_ALLTOALLV || call->kind == COLLRUN_ALLGATHERV ||
                    call->kind == COLLRUN_REDUCE_SCATTERV ||
                    (call->kind == COLLRUN_GATHERV && at_root);
    if (!sends)
        call->sendcounts = call->senddispls = NULL;
    if (!receives)
        call->recvcounts = call->recvdispls = NULL;
    if (call->kind == COLLRUN_REDUCE_SCATTERV)
        call->recvdispls = NULL;
}
