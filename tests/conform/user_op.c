/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators of the workload, in every kind that reduces. The oracle combines what all ranks send,
 * one rank after the other, without the operator's function:
 *
 *   concat   (unit 2, not commutative): a string is (hash, 31^length); the order of the operands is
 *            part of the result
 *   matrix   (unit 4, not commutative): the product of 2 x 2 matrices of integers that wrap
 *   argmax   (unit 2, commutative): the largest value, and the lowest rank that has it
 *   xor      (unit 1, commutative): of bytes
 */
#include "conform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_UNIT = 4, MOST_UNITS = 3001 };

/* One unit on its way through the oracle. */
struct unit {
    uint64_t u[MOST_UNIT];
    double f[MOST_UNIT];
};

struct operation {
    struct collrun_user_op op;
    enum collrun_dtype dtype;
    void (*make)(uint64_t h, int rank, struct unit *out);
    void (*fold)(struct unit *left, const struct unit *right); /* left = left op right */
};

/* ---- what the ranks send ---- */

static void concat_make(uint64_t h, int rank, struct unit *out)
{
    (void)rank;
    out->u[0] = h;
    out->u[1] = 31;
}

static void matrix_make(uint64_t h, int rank, struct unit *out)
{
    (void)rank;
    for (int i = 0; i < 4; i++)
        out->u[i] = (uint32_t)mix(h + (uint64_t)i);
}

static void argmax_make(uint64_t h, int rank, struct unit *out)
{
    out->f[0] = (double)(h % 5); /* often equal */
    out->f[1] = rank;
}

static void xor_make(uint64_t h, int rank, struct unit *out)
{
    (void)rank;
    out->u[0] = (uint8_t)h;
}

/* ---- the oracle ---- */

static void concat_fold(struct unit *left, const struct unit *right)
{
    left->u[0] = left->u[0] * right->u[1] + right->u[0];
    left->u[1] *= right->u[1];
}

static void matrix_fold(struct unit *left, const struct unit *right)
{
    const struct unit a = *left;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++)
            left->u[2 * i + k] =
                (uint32_t)(a.u[2 * i] * right->u[k] + a.u[2 * i + 1] * right->u[2 + k]);
}

static void argmax_fold(struct unit *left, const struct unit *right)
{
    if (right->f[0] > left->f[0])
        *left = *right;
}

static void xor_fold(struct unit *left, const struct unit *right)
{
    left->u[0] ^= right->u[0];
}

/* ---- the operators ---- */

/* `ctx` of an operator: what combine is called with. Several threads may be inside. */
struct seen {
    bool overlap, partial, wrong_dtype;
};

static void look(void *ctx, const void *left, const void *right, size_t count, size_t unit,
                 enum collrun_dtype dtype, enum collrun_dtype want)
{
    struct seen *seen = ctx;
    uintptr_t a = (uintptr_t)left, b = (uintptr_t)right, len = count * width(want);
    if (a < b + len && b < a + len)
        seen->overlap = true;
    if (count % unit != 0)
        seen->partial = true;
    if (dtype != want)
        seen->wrong_dtype = true;
}

static void concat_combine(void *ctx, const void *left, void *right, size_t count,
                           enum collrun_dtype dtype)
{
    look(ctx, left, right, count, 2, dtype, COLLRUN_UINT64);
    for (size_t i = 0; i < count; i += 2) {
        uint64_t a[2], b[2];
        memcpy(a, (const char *)left + 8 * i, sizeof a);
        memcpy(b, (char *)right + 8 * i, sizeof b);
        b[0] = a[0] * b[1] + b[0];
        b[1] = a[1] * b[1];
        memcpy((char *)right + 8 * i, b, sizeof b);
    }
}

static void matrix_combine(void *ctx, const void *left, void *right, size_t count,
                           enum collrun_dtype dtype)
{
    look(ctx, left, right, count, 4, dtype, COLLRUN_UINT32);
    for (size_t i = 0; i < count; i += 4) {
        uint32_t a[4], b[4], c[4];
        memcpy(a, (const char *)left + 4 * i, sizeof a);
        memcpy(b, (char *)right + 4 * i, sizeof b);
        c[0] = a[0] * b[0] + a[1] * b[2], c[1] = a[0] * b[1] + a[1] * b[3];
        c[2] = a[2] * b[0] + a[3] * b[2], c[3] = a[2] * b[1] + a[3] * b[3];
        memcpy((char *)right + 4 * i, c, sizeof c);
    }
}

static void argmax_combine(void *ctx, const void *left, void *right, size_t count,
                           enum collrun_dtype dtype)
{
    look(ctx, left, right, count, 2, dtype, COLLRUN_FLOAT64);
    for (size_t i = 0; i < count; i += 2) {
        double a[2], b[2];
        memcpy(a, (const char *)left + 8 * i, sizeof a);
        memcpy(b, (char *)right + 8 * i, sizeof b);
        if (a[0] > b[0] || (a[0] == b[0] && a[1] < b[1]))
            memcpy((char *)right + 8 * i, a, sizeof a);
    }
}

static void xor_combine(void *ctx, const void *left, void *right, size_t count,
                        enum collrun_dtype dtype)
{
    look(ctx, left, right, count, 1, dtype, COLLRUN_UINT8);
    for (size_t i = 0; i < count; i++)
        ((unsigned char *)right)[i] ^= ((const unsigned char *)left)[i];
}

#define OPERATOR(name_, commutative_, unit_, dtype_)                                               \
    {                                                                                              \
        .op = {.size = sizeof(struct collrun_user_op),                                             \
               .commutative = (commutative_),                                                      \
               .name = #name_,                                                                     \
               .unit = (unit_),                                                                    \
               .combine = name_##_combine},                                                        \
        .dtype = (dtype_), .make = name_##_make, .fold = name_##_fold                              \
    }
static const struct operation operators[] = {
    OPERATOR(concat, 0, 2, COLLRUN_UINT64), OPERATOR(matrix, 0, 4, COLLRUN_UINT32),
    OPERATOR(argmax, 1, 2, COLLRUN_FLOAT64), OPERATOR(xor, 1, 0, COLLRUN_UINT8)};

/* ---- one case ---- */

enum { MOST_DEVICES = 4 };

/* The buffers of one device of this rank; without GPUs a rank is one device. */
struct part {
    struct guarded send, recv, want;
    void *lent_send, *lent_recv;
    int comm_rank;
};

struct user_case {
    struct team *team;
    const struct operation *operation;
    struct collrun_user_op op; /* with the case's own ctx */
    struct seen seen;
    enum collrun_kind kind;
    size_t units, unit;      /* of the vector; of a block for reduce_scatter */
    int size, devices, root; /* root: a comm_rank */
    bool in_place;
    uint64_t salt;
    size_t counts[MAX_RANKS]; /* reduce_scatterv, in elements */
    struct part parts[MOST_DEVICES];
};

static void unit_store(const struct user_case *c, const struct unit *from, unsigned char *at)
{
    size_t w = width(c->operation->dtype);
    for (size_t i = 0; i < c->unit; i++) {
        if (is_float(c->operation->dtype))
            memcpy(at + i * w, &from->f[i], w);
        else
            memcpy(at + i * w, &from->u[i], w); /* little-endian, as all hosts of collrun */
    }
}

static void unit_of(const struct user_case *c, int rank, uint64_t index, struct unit *out)
{
    *out = (struct unit){0};
    c->operation->make(mix(mix(c->salt + (uint64_t)rank) ^ index), rank, out);
}

/* Units first.. of what `rank` sends, or (ranks > 0) combined over ranks 0 to ranks - 1. */
static void render(const struct user_case *c, int rank, int ranks, uint64_t first, size_t units,
                   unsigned char *at)
{
    size_t len = c->unit * width(c->operation->dtype);
    for (size_t i = 0; i < units; i++) {
        struct unit all, one;
        unit_of(c, ranks ? 0 : rank, first + i, &all);
        for (int r = 1; r < ranks; r++) {
            unit_of(c, r, first + i, &one);
            c->operation->fold(&all, &one);
        }
        unit_store(c, &all, at + i * len);
    }
}

static bool scatters(enum collrun_kind kind)
{
    return kind == COLLRUN_REDUCE_SCATTER || kind == COLLRUN_REDUCE_SCATTERV;
}

/* Units of rank r's block of a scattered result; uneven in the v-form. */
static size_t block_units(const struct user_case *c, int r)
{
    return c->kind == COLLRUN_REDUCE_SCATTERV ? c->units * (size_t)(r % 3) / 2 : c->units;
}

static uint64_t block_first(const struct user_case *c, int r)
{
    uint64_t first = 0;
    for (int i = 0; scatters(c->kind) && i < r; i++)
        first += block_units(c, i);
    return first;
}

/* How many ranks a result combines; 0: this one gets none. */
static int combined(const struct user_case *c, int rank)
{
    if (c->kind == COLLRUN_REDUCE && rank != c->root)
        return 0;
    return c->kind == COLLRUN_SCAN ? rank + 1 : c->kind == COLLRUN_EXSCAN ? rank : c->size;
}

/* The expected receive buffer: what was there, and the result. */
static void expect(const struct user_case *c, struct part *p, size_t out_at)
{
    uint64_t first = block_first(c, p->comm_rank);
    size_t units = scatters(c->kind) ? block_units(c, p->comm_rank) : c->units;
    guarded_set(&p->want, p->recv.len, 0);
    if (p->recv.len)
        memcpy(p->want.at, p->recv.at, p->recv.len);
    if (combined(c, p->comm_rank))
        render(c, 0, combined(c, p->comm_rank), first, units, p->want.at + out_at);
}

static struct collrun_call prepare(struct user_case *c, int device)
{
    struct part *p = &c->parts[device];
    struct collrun_call call = COLLRUN_CALL(c->kind);
    size_t len = c->unit * width(c->operation->dtype);
    p->comm_rank = c->team->rank * c->devices + device;
    size_t sent = scatters(c->kind) ? (size_t)block_first(c, c->size) : c->units;
    size_t received = scatters(c->kind) ? block_units(c, p->comm_rank) : c->units;
    size_t out_at = c->in_place && received ? (size_t)block_first(c, p->comm_rank) * len : 0;
    guarded_set(&p->send, c->in_place ? 0 : sent * len, 0);
    guarded_set(&p->recv, (c->in_place ? sent : received) * len, 0);
    render(c, p->comm_rank, 0, 0, sent, c->in_place ? p->recv.at : p->send.at);
    expect(c, p, out_at);
    p->lent_send = lend(c->team, device, p->send.at, p->send.len);
    p->lent_recv = lend(c->team, device, p->recv.at, p->recv.len);
    call.send = c->in_place ? p->lent_recv : p->lent_send;
    call.recv = p->lent_recv ? (char *)p->lent_recv + out_at : NULL;
    call.count = c->units * c->unit;
    call.recvcounts = c->counts;
    call.dtype = c->operation->dtype, call.user_op = &c->op;
    call.root = c->root / c->devices, call.peer_device = c->root % c->devices;
    call.device = device;
    return call;
}

static int execute(struct user_case *c)
{
    struct collrun_call calls[MOST_DEVICES];
    struct collrun_request *request = NULL;
    for (int r = 0; r < c->size; r++)
        c->counts[r] = block_units(c, r) * c->unit;
    for (int d = 0; d < c->devices; d++)
        calls[d] = prepare(c, d);
    if (!c->team->run->async)
        return collrun_run(c->team->group, calls, c->devices);
    int status = collrun_start_many(c->team->group, calls, c->devices, &request);
    return status == COLLRUN_OK ? collrun_wait(request) : status;
}

static void verify(struct user_case *c, struct part *p, const char *what)
{
    struct guarded input = {0};
    take_back(c->team, p->send.at, p->lent_send, p->send.len);
    take_back(c->team, p->recv.at, p->lent_recv, p->recv.len);
    if (!guarded_intact(&p->send) || !guarded_intact(&p->recv))
        team_fail(c->team, "%s: wrote outside its buffer", what);
    for (size_t i = 0; i < p->want.len; i++) {
        if (p->recv.at[i] == p->want.at[i])
            continue;
        team_fail(c->team, "%s: byte %zu of %zu is wrong", what, i, p->want.len);
        break;
    }
    size_t len = c->unit * width(c->operation->dtype);
    guarded_set(&input, p->send.len, 0);
    render(c, p->comm_rank, 0, 0, p->send.len / len, input.at);
    if (p->send.len && memcmp(input.at, p->send.at, p->send.len) != 0)
        team_fail(c->team, "%s: changed its input", what);
    guarded_free(&input);
}

static void run_case(struct user_case *c)
{
    char what[128];
    struct team *team = c->team;
    c->salt = mix(team->run->seed) + ++team->serial;
    c->op = c->operation->op;
    c->op.ctx = &c->seen;
    c->unit = c->op.unit ? c->op.unit : 1;
    snprintf(what, sizeof what, "%s(%zu units, user op %s, root %d%s)", kind_names[c->kind],
             c->units, c->op.name, c->root, c->in_place ? ", in place" : "");
    team_case(team);
    int status = execute(c);
    bool good = team_want(team, status, COLLRUN_OK, what);
    for (int d = 0; d < c->devices; d++) {
        if (good)
            verify(c, &c->parts[d], what);
        guarded_free(&c->parts[d].send);
        guarded_free(&c->parts[d].recv);
        guarded_free(&c->parts[d].want);
    }
    if (c->seen.overlap || c->seen.partial || c->seen.wrong_dtype)
        team_fail(team, "%s: combine gets %s", what,
                  c->seen.overlap   ? "buffers that overlap"
                  : c->seen.partial ? "a part of a unit"
                                    : "another dtype");
}

void suite_user_op(struct team *team)
{
    static const enum collrun_kind kinds[] = {COLLRUN_ALLREDUCE,      COLLRUN_REDUCE,
                                              COLLRUN_REDUCE_SCATTER, COLLRUN_REDUCE_SCATTERV,
                                              COLLRUN_SCAN,           COLLRUN_EXSCAN};
    static const size_t units[] = {0, 1, 2, 7, 64, MOST_UNITS};
    int devices = team->run->cuda ? collrun_devices(team->group) : 1;
    devices = devices ? devices : 1; /* on a backend for host memory */
    for (size_t o = 0; o < ARRAY_LEN(operators); o++)
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
            for (size_t u = 0; u < ARRAY_LEN(units); u++)
                for (int i = 0; i < 2 && !team->dead; i++) {
                    struct user_case c = {.team = team,
                                          .operation = &operators[o],
                                          .kind = kinds[k],
                                          .units = units[u],
                                          .size = team->size * devices,
                                          .devices = devices,
                                          .root = (int)(o + u) % (team->size * devices),
                                          .in_place = i != 0};
                    run_case(&c);
                }
}
