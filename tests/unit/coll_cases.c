/* SPDX-License-Identifier: Apache-2.0
 *
 * Element i of the block that rank s sends to rank d is a small number made of s, d, i and the
 * salt, which every type holds exactly. It repeats in i with a period that no block, chunk or cache
 * line size shares, so buffers are made and expected results are written quickly, and a displaced
 * piece still shows.
 */
#include "coll_cases.h"

#include "core/reduce.h"
#include "core/reduce_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PERIOD 42u
#define GUARD 64u
#define POISON 0xa5

/* ---- elements ---- */

static bool is_signed(enum collrun_dtype t)
{
    return t == COLLRUN_INT8 || t == COLLRUN_INT16 || t == COLLRUN_INT32 || t == COLLRUN_INT64 ||
           (t >= COLLRUN_FLOAT16 && t <= COLLRUN_FLOAT64);
}

static bool is_half(enum collrun_dtype t)
{
    return t == COLLRUN_FLOAT16 || t == COLLRUN_BFLOAT16;
}

static void put(void *at, enum collrun_dtype t, double value)
{
    const float narrow = (float)value;
    const int64_t integer = (int64_t)value;
    if (is_half(t))
        reduce_kernels_generic.narrow[t](at, &narrow, 1);
    else if (t == COLLRUN_FLOAT32)
        memcpy(at, &narrow, sizeof(narrow));
    else if (t == COLLRUN_FLOAT64)
        memcpy(at, &value, sizeof(value));
    else
        memcpy(at, &integer, dtype_size(t)); /* little endian, as every host collrun runs on */
}

static double number(const struct coll_case *c, uint32_t from, uint32_t to, size_t i)
{
    const unsigned k = from * 5 + to * 11 + (unsigned)(i % PERIOD) * 3 + c->salt;
    if (c->dtype == COLLRUN_BOOL)
        return k % 3 != 0;
    if (collrun_kind_reduces(c->kind) && c->op == COLLRUN_PROD)
        return 1 + k % 2;
    return (double)(k % 7) - (is_signed(c->dtype) ? 2 : 0);
}

static double fold_bool(enum collrun_op op, int a, int b)
{
    switch (op) {
    case COLLRUN_PROD:
    case COLLRUN_MIN:
    case COLLRUN_BAND:
    case COLLRUN_LAND:
        return a & b;
    case COLLRUN_BXOR:
    case COLLRUN_LXOR:
        return a ^ b;
    default:
        return a | b;
    }
}

static double fold(const struct coll_case *c, double a, double b)
{
    const int64_t x = (int64_t)a;
    const int64_t y = (int64_t)b;
    if (c->dtype == COLLRUN_BOOL)
        return fold_bool(c->op, (int)a, (int)b);
    switch (c->op) {
    case COLLRUN_PROD:
        return a * b;
    case COLLRUN_MIN:
        return fmin(a, b);
    case COLLRUN_MAX:
        return fmax(a, b);
    case COLLRUN_BAND:
        return (double)(x & y);
    case COLLRUN_BOR:
        return (double)(x | y);
    case COLLRUN_BXOR:
        return (double)(x ^ y);
    case COLLRUN_LAND:
        return x && y;
    case COLLRUN_LOR:
        return x || y;
    case COLLRUN_LXOR:
        return !x != !y;
    default:
        return a + b;
    }
}

static double reduced(const struct coll_case *c, uint32_t nranks, uint32_t to, size_t i)
{
    const bool logical = c->op >= COLLRUN_LAND;
    double value = number(c, 0, to, i);
    if (logical)
        value = value != 0;
    for (uint32_t s = 1; s < nranks; s++)
        value = fold(c, value, number(c, s, to, i));
    if (c->op != COLLRUN_AVG)
        return value;
    if (c->dtype == COLLRUN_FLOAT64)
        return value / nranks;
    if (is_signed(c->dtype) && c->dtype >= COLLRUN_FLOAT16)
        return (double)((float)value / (float)nranks);
    return trunc(value / nranks);
}

/* ---- buffers ---- */

/* Guard, shifted data, guard. */
struct buffer {
    char *base, *data;
    size_t bytes;
    bool heap;
};

static struct buffer buffer_new(struct harness_group *g, const struct coll_case *c, size_t bytes)
{
    struct buffer b = {.bytes = bytes};
    void *base = NULL;
    const size_t all = 2 * GUARD + c->shift + bytes;
    b.heap = c->memory == COLL_HEAP && g->backend->alloc;
    if (!b.heap)
        base = malloc(all);
    else if (g->backend->alloc(g->handle, all, &base) != COLLRUN_OK)
        base = NULL;
    if (!base)
        return b;
    memset(base, POISON, all);
    b.base = base;
    b.data = b.base + GUARD + c->shift;
    return b;
}

static void buffer_free(struct harness_group *g, struct buffer *b)
{
    if (b->heap && b->base)
        g->backend->free(g->handle, b->base);
    else
        free(b->base);
}

/* Repeats the first PERIOD elements at `at` up to `count`. */
static void repeat(char *at, size_t count, size_t size)
{
    for (size_t done = PERIOD; done < count;) {
        const size_t n = count - done < done ? count - done : done;
        memcpy(at + done * size, at, n * size);
        done += n;
    }
}

static void write_block(const struct coll_case *c, char *at, uint32_t from, uint32_t to,
                        size_t count)
{
    const size_t size = dtype_size(c->dtype);
    for (size_t i = 0; i < count && i < PERIOD; i++)
        put(at + i * size, c->dtype, number(c, from, to, i));
    repeat(at, count, size);
}

static void write_reduced(const struct coll_case *c, char *at, uint32_t nranks, uint32_t to,
                          size_t count)
{
    const size_t size = dtype_size(c->dtype);
    for (size_t i = 0; i < count && i < PERIOD; i++)
        put(at + i * size, c->dtype, reduced(c, nranks, to, i));
    repeat(at, count, size);
}

/* ---- what each kind sends and receives ---- */

bool coll_has_in_place(enum collrun_kind kind)
{
    return kind == COLLRUN_ALLREDUCE || kind == COLLRUN_REDUCE || kind == COLLRUN_ALLTOALL ||
           kind == COLLRUN_ALLGATHER || kind == COLLRUN_REDUCE_SCATTER || kind == COLLRUN_GATHER ||
           kind == COLLRUN_SCATTER;
}

static bool sends_personal(enum collrun_kind kind)
{
    return kind == COLLRUN_SCATTER || kind == COLLRUN_SCATTERV || kind == COLLRUN_ALLTOALL ||
           kind == COLLRUN_ALLTOALLV || kind == COLLRUN_REDUCE_SCATTER ||
           kind == COLLRUN_REDUCE_SCATTERV;
}

/* Elements that `from` sends to `to`. */
static size_t pair_count(const struct coll_case *c, uint32_t from, uint32_t to)
{
    if (!collrun_kind_is_vector(c->kind))
        return c->count;
    if (c->kind == COLLRUN_ALLTOALLV)
        return (c->count + 3 * from + 5 * to + c->salt) % (c->count + 2);
    return (c->count + 3 * (sends_personal(c->kind) ? to : from) + c->salt) % (c->count + 2);
}

static bool sends(const struct coll_case *c, uint32_t rank)
{
    const bool from_root = c->kind == COLLRUN_SCATTER || c->kind == COLLRUN_SCATTERV;
    return c->kind != COLLRUN_BROADCAST && (!from_root || rank == c->root);
}

static bool receives(const struct coll_case *c, uint32_t rank)
{
    const bool at_root =
        c->kind == COLLRUN_REDUCE || c->kind == COLLRUN_GATHER || c->kind == COLLRUN_GATHERV;
    return !at_root || rank == c->root;
}

/* Counts and displacements of one side: blocks lie in reverse order with a gap of one element,
 * where that may be. */
struct layout {
    size_t counts[HARNESS_MAX_RANKS], displs[HARNESS_MAX_RANKS];
    size_t total;
};

static struct layout layout_of(const struct coll_case *c, uint32_t nranks, uint32_t rank,
                               bool sending)
{
    struct layout l = {.total = 0};
    const bool spread = collrun_kind_is_vector(c->kind) && c->kind != COLLRUN_REDUCE_SCATTERV;
    for (uint32_t k = 0; k < nranks; k++) {
        const uint32_t peer = spread ? nranks - 1 - k : k;
        l.counts[peer] = sending ? pair_count(c, rank, peer) : pair_count(c, peer, rank);
        l.displs[peer] = l.total;
        l.total += l.counts[peer] + (spread ? 1 : 0);
    }
    return l;
}

/* ---- one case ---- */

struct running {
    struct harness_rank *r;
    struct harness_group *g;
    const struct coll_case *c;
    size_t size;
    struct layout out, in;
    struct buffer send, recv, want;
    char *send_data, *recv_data; /* as passed; NULL where the rank has none */
};

static void fill_send(struct running *u)
{
    const struct coll_case *c = u->c;
    const uint32_t rank = u->g->rank;
    if (!sends(c, rank))
        return;
    if (!sends_personal(c->kind)) {
        write_block(c, u->send_data, rank, 0, pair_count(c, rank, 0));
        return;
    }
    for (uint32_t to = 0; to < u->g->nranks; to++)
        write_block(c, u->send_data + u->out.displs[to] * u->size, rank, to, u->out.counts[to]);
}

/* Writes what the receive buffer must hold afterwards; `at` already holds what it held before. */
static void write_expected(struct running *u, char *at)
{
    const struct coll_case *c = u->c;
    const uint32_t rank = u->g->rank;
    const uint32_t n = u->g->nranks;
    if (!receives(c, rank))
        return;
    switch (c->kind) {
    case COLLRUN_BARRIER:
        return;
    case COLLRUN_ALLREDUCE:
    case COLLRUN_REDUCE:
        write_reduced(c, at, n, 0, c->count);
        return;
    case COLLRUN_REDUCE_SCATTER:
    case COLLRUN_REDUCE_SCATTERV:
        write_reduced(c, at, n, rank, pair_count(c, 0, rank));
        return;
    case COLLRUN_BROADCAST:
        write_block(c, at, c->root, 0, c->count);
        return;
    case COLLRUN_SCATTER:
    case COLLRUN_SCATTERV:
        write_block(c, at, c->root, rank, pair_count(c, c->root, rank));
        return;
    default:
        for (uint32_t from = 0; from < n; from++)
            write_block(c, at + u->in.displs[from] * u->size, from,
                        sends_personal(c->kind) ? rank : 0, u->in.counts[from]);
    }
}

static size_t recv_elements(const struct running *u)
{
    const struct coll_case *c = u->c;
    switch (c->kind) {
    case COLLRUN_BARRIER:
        return 0;
    case COLLRUN_ALLREDUCE:
    case COLLRUN_REDUCE:
    case COLLRUN_BROADCAST:
    case COLLRUN_REDUCE_SCATTER:
    case COLLRUN_SCATTER:
        return c->count;
    case COLLRUN_SCATTERV:
        return pair_count(c, c->root, u->g->rank);
    case COLLRUN_REDUCE_SCATTERV:
        return pair_count(c, 0, u->g->rank);
    default:
        return u->in.total;
    }
}

/* In place, one buffer serves for both: sets where the call sends from and receives into. */
static void place(struct running *u)
{
    const struct coll_case *c = u->c;
    const size_t own = u->g->rank * c->count * u->size;
    const bool shared = c->in_place &&
                        (receives(c, u->g->rank) || c->kind == COLLRUN_REDUCE_SCATTER) &&
                        (c->kind != COLLRUN_SCATTER || u->g->rank == c->root);
    u->send_data = u->send.data;
    u->recv_data = u->recv.data;
    if (!shared)
        return;
    switch (c->kind) {
    case COLLRUN_ALLGATHER:
    case COLLRUN_GATHER:
        u->send_data = u->recv.data + own;
        break;
    case COLLRUN_REDUCE_SCATTER:
    case COLLRUN_SCATTER:
        u->recv_data = u->send.data + own;
        break;
    default:
        u->send_data = u->recv.data;
    }
}

static struct collrun_call call_of(const struct running *u)
{
    const struct coll_case *c = u->c;
    const uint32_t rank = u->g->rank;
    struct collrun_call call = COLLRUN_CALL(c->kind);
    call.dtype = c->dtype;
    call.op = c->op;
    call.root = (int)c->root;
    call.count = collrun_kind_is_vector(c->kind) ? pair_count(c, rank, 0) : c->count;
    call.recvcount = pair_count(c, c->root, rank);
    call.send = sends(c, rank) ? u->send_data : NULL;
    call.recv = receives(c, rank) || c->kind == COLLRUN_REDUCE ? u->recv_data : NULL;
    call.sendcounts = u->out.counts;
    call.senddispls = u->out.displs;
    call.recvcounts = c->kind == COLLRUN_REDUCE_SCATTERV ? u->out.counts : u->in.counts;
    call.recvdispls = u->in.displs;
    return call;
}

static int compare(struct running *u, const struct buffer *have, const char *want, const char *what)
{
    const size_t all = 2 * GUARD + u->c->shift + have->bytes;
    if (memcmp(have->base, want, all) == 0)
        return 0;
    for (size_t i = 0; i < all; i++)
        if (have->base[i] != want[i])
            return harness_fail(
                u->r,
                "kind %d dtype %d op %d count %zu root %u in_place %d heap %d shift %zu "
                "of %u ranks: rank %u %s byte %zd of %zu: %02x, not %02x",
                (int)u->c->kind, (int)u->c->dtype, (int)u->c->op, u->c->count, u->c->root,
                u->c->in_place, (int)u->c->memory, u->c->shift, u->g->nranks, u->g->rank, what,
                (ssize_t)i - (ssize_t)(GUARD + u->c->shift), have->bytes,
                (unsigned char)have->base[i], (unsigned char)want[i]);
    return 0;
}

/* Runs the call between a copy of both buffers as they must be afterwards and the comparison with
 * it. */
static int run(struct running *u)
{
    const size_t shift = GUARD + u->c->shift;
    char *want_send = malloc(2 * shift + u->send.bytes);
    char *want_recv = malloc(2 * shift + u->recv.bytes);
    place(u);
    if (u->c->kind == COLLRUN_BROADCAST && u->g->rank == u->c->root)
        write_block(u->c, u->recv_data, u->c->root, 0, u->c->count);
    fill_send(u);
    memcpy(want_send, u->send.base, shift + u->send.bytes + GUARD);
    memcpy(want_recv, u->recv.base, shift + u->recv.bytes + GUARD);
    if (u->recv_data >= u->send.data && u->recv_data < u->send.data + u->send.bytes)
        write_expected(u, want_send + (u->recv_data - u->send.base));
    else
        write_expected(u, want_recv + (u->recv_data - u->recv.base));
    const struct collrun_call call = call_of(u);
    const int status = harness_exec(u->g, &call, 1);
    int result =
        status == COLLRUN_OK
            ? 0
            : harness_fail(u->r, "kind %d count %zu of %u ranks: status %d: %s", (int)u->c->kind,
                           u->c->count, u->g->nranks, status, harness_error());
    if (result == 0)
        result = compare(u, &u->send, want_send, "send");
    if (result == 0)
        result = compare(u, &u->recv, want_recv, "recv");
    free(want_send);
    free(want_recv);
    return result;
}

int coll_case_run(struct harness_rank *r, struct harness_group *g, const struct coll_case *c)
{
    struct running u = {.r = r, .g = g, .c = c, .size = dtype_size(c->dtype)};
    u.out = layout_of(c, g->nranks, g->rank, true);
    u.in = layout_of(c, g->nranks, g->rank, false);
    const size_t out = sends_personal(c->kind) ? u.out.total : pair_count(c, g->rank, 0);
    u.send = buffer_new(g, c, (sends(c, g->rank) ? out : 0) * u.size);
    u.recv = buffer_new(g, c, recv_elements(&u) * u.size);
    const int result = u.send.base && u.recv.base ? run(&u) : harness_fail(r, "no memory");
    buffer_free(g, &u.send);
    buffer_free(g, &u.recv);
    return result;
}
