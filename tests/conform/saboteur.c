/* SPDX-License-Identifier: Apache-2.0
 *
 * A backend with one deliberate bug, to prove that the suite would notice. It wraps another
 * backend, the shared object named by the option `inner`, passes everything through, and spoils
 * what the option `bug` says:
 *
 *   none                  nothing: the control
 *   wrong_root            broadcast and reduce use the next rank as root
 *   world_root            roots are taken for world ranks
 *   off_by_one_block      allgather delivers every block one place further on
 *   swapped_ranks         allgather exchanges the blocks of ranks 0 and 1
 *   wrong_block           reduce_scatter hands out the next rank's block
 *   stale_tail            the last element of a result is not written
 *   truncated_count       from 16 elements on, one too few is moved
 *   missing_avg_division  AVG delivers the sum
 *   floor_avg             an integer AVG rounds down instead of toward zero
 *   forgotten_rank        reductions take the last rank's data twice and rank 0's never
 *   wrong_width           64-bit integers are summed as pairs of 32-bit ones
 *   lost_nan              MIN and MAX skip NaN
 *   scribbled_input       a reduction leaves its result in the send buffer too
 *   nonroot_write         reduce writes to the output of a rank that is not the root
 *   stray_write           one byte past the end of a result is written
 *   message_order         in a burst, every other message is overtaken by the next
 *   dropped_sync          barriers and operations of count 0 return at once
 *   lazy_barrier          a barrier of more than two ranks only waits for the neighbour
 *
 * Built like any third-party backend: against <collrun/backend.h> alone. Its inner backend must be
 * of one host, have exec, and do the operations of the table below.
 */
#include <collrun/backend.h>

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct saboteur {
    void *library;
    struct collrun_backend inner;
    void *inner_state;
    const char *bug;
};

struct group {
    struct saboteur *owner;
    const struct collrun_services *services;
    void *inner;
    uint32_t rank, nranks;
    uint32_t *world_rank;
    /* message_order: the message that waits for the next one of its burst. */
    struct collrun_call held;
    void *held_data;
    int last_peer, run_length;
};

static bool bug(const struct group *g, const char *name)
{
    return strcmp(g->owner->bug, name) == 0;
}

static int pass(struct group *g, const struct collrun_call *calls, uint32_t n)
{
    const struct collrun_backend *inner = &g->owner->inner;
    void *request = NULL;
    int status;
    if (inner->exec != NULL)
        return inner->exec(g->inner, calls, n);
    status = inner->start(g->inner, calls, n, &request);
    while (status == COLLRUN_OK && (status = inner->test(g->inner, request)) == COLLRUN_AGAIN)
        sched_yield();
    return status;
}

static size_t element(const struct group *g, const struct collrun_call *c)
{
    return g->services->dtype_size(c->dtype);
}

static bool reduces(const struct collrun_call *c)
{
    return c->kind == COLLRUN_ALLREDUCE || c->kind == COLLRUN_REDUCE ||
           c->kind == COLLRUN_REDUCE_SCATTER;
}

/* Bytes that this rank receives. */
static size_t received(const struct group *g, const struct collrun_call *c)
{
    size_t len = c->count * element(g, c);
    if (c->kind == COLLRUN_ALLGATHER)
        return len * g->nranks;
    if (c->kind == COLLRUN_BARRIER || c->kind == COLLRUN_SEND ||
        (c->kind == COLLRUN_REDUCE && (uint32_t)c->root != g->rank) ||
        (c->kind == COLLRUN_BROADCAST && (uint32_t)c->root == g->rank))
        return 0;
    return len;
}

/* ---- bugs that change the call ---- */
static void spoil_call(struct group *g, struct collrun_call *c)
{
    if (bug(g, "wrong_root"))
        c->root = (c->root + 1) % (int)g->nranks;
    for (uint32_t r = 0; bug(g, "world_root") && r < g->nranks; r++)
        if (g->world_rank[r] == (uint32_t)c->root) {
            c->root = (int)r;
            break;
        }
    if (bug(g, "truncated_count") && c->count >= 16)
        c->count--;
    if (bug(g, "missing_avg_division") && c->op == COLLRUN_AVG)
        c->op = COLLRUN_SUM;
    if (bug(g, "wrong_width") && c->dtype == COLLRUN_INT64 && reduces(c) && c->op == COLLRUN_SUM) {
        c->dtype = COLLRUN_INT32;
        c->count *= 2;
    }
}

/* ---- bugs that change what came out ---- */
static void swap_blocks(unsigned char *a, unsigned char *b, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = a[i];
        a[i] = b[i];
        b[i] = byte;
    }
}

static void spoil_blocks(struct group *g, const struct collrun_call *c)
{
    size_t len = c->count * element(g, c);
    unsigned char *at = c->recv;
    if (c->kind != COLLRUN_ALLGATHER || g->nranks < 2 || len == 0)
        return;
    if (bug(g, "swapped_ranks"))
        swap_blocks(at, at + len, len);
    for (uint32_t r = g->nranks - 1; bug(g, "off_by_one_block") && r > 0; r--)
        swap_blocks(at + r * len, at + (r - 1) * len, len);
}

static void floor_avg(const struct collrun_call *c)
{
    int32_t *at = c->recv;
    for (size_t i = 0; c->dtype == COLLRUN_INT32 && c->op == COLLRUN_AVG && i < c->count; i++) {
        int32_t value;
        memcpy(&value, &at[i], sizeof value);
        value -= value < 0;
        memcpy(&at[i], &value, sizeof value);
    }
}

static void spoil_result(struct group *g, const struct collrun_call *c, const unsigned char *tail)
{
    size_t w = element(g, c), len = received(g, c);
    unsigned char *recv = c->recv;
    spoil_blocks(g, c);
    if (bug(g, "stale_tail") && len > w)
        memcpy(recv + len - w, tail, w);
    if (bug(g, "floor_avg") && reduces(c) && len > 0)
        floor_avg(c);
    if (bug(g, "scribbled_input") && c->kind == COLLRUN_ALLREDUCE && c->send != c->recv)
        memcpy((void *)(uintptr_t)c->send, recv, len);
    if (bug(g, "nonroot_write") && c->kind == COLLRUN_REDUCE && (uint32_t)c->root != g->rank &&
        c->count > 0 && c->recv != NULL)
        recv[0] ^= 1u;
    if (bug(g, "stray_write") && len > 0)
        recv[len] ^= 1u;
}

/* ---- bugs that replace the operation ---- */
/* Reduces all that is gathered, wrongly: rank 0's data is left out, or NaN is. */
static int reduce_gathered(struct group *g, const struct collrun_call *c)
{
    size_t w = element(g, c), len = c->count * w;
    unsigned char *all = malloc(len * g->nranks + 1);
    const void *srcs[256];
    struct collrun_call gather = *c;
    if (all == NULL)
        return COLLRUN_ERR_NO_MEMORY;
    gather.kind = COLLRUN_ALLGATHER;
    gather.recv = all;
    int status = pass(g, &gather, 1);
    if (status == COLLRUN_OK && bug(g, "forgotten_rank"))
        memcpy(all, all + (g->nranks - 1) * len, len);
    for (size_t i = 0; bug(g, "lost_nan") && i < c->count * g->nranks; i++) {
        float value, first;
        memcpy(&value, all + i * w, sizeof value);
        memcpy(&first, all + (i % c->count) * w, sizeof first);
        if (value != value)
            memcpy(all + i * w, &first, sizeof first);
    }
    for (uint32_t r = 0; r < g->nranks; r++)
        srcs[r] = all + r * len;
    if (status == COLLRUN_OK)
        g->services->reduce(c->recv, srcs, g->nranks, c->count, c->dtype, c->op, g->nranks);
    free(all);
    return status;
}

static bool replaced(struct group *g, const struct collrun_call *c, int *status)
{
    bool skips_nan = bug(g, "lost_nan") && c->dtype == COLLRUN_FLOAT32 &&
                     (c->op == COLLRUN_MIN || c->op == COLLRUN_MAX);
    if (c->kind == COLLRUN_ALLREDUCE && c->send != c->recv &&
        (skips_nan || bug(g, "forgotten_rank"))) {
        *status = reduce_gathered(g, c);
        return true;
    }
    if (bug(g, "dropped_sync") && c->kind < COLLRUN_SEND &&
        (c->kind == COLLRUN_BARRIER || c->count == 0)) {
        *status = COLLRUN_OK;
        return true;
    }
    if (bug(g, "lazy_barrier") && c->kind == COLLRUN_BARRIER && g->nranks > 2) {
        struct collrun_call pair[2] = {*c, *c};
        unsigned char out = 0, in = 0;
        pair[0].kind = COLLRUN_SEND, pair[0].send = &out,
        pair[0].peer = (int)((g->rank + 1) % g->nranks);
        pair[1].kind = COLLRUN_RECV, pair[1].recv = &in,
        pair[1].peer = (int)((g->rank + g->nranks - 1) % g->nranks);
        pair[0].count = pair[1].count = 1;
        pair[0].dtype = pair[1].dtype = COLLRUN_UINT8;
        *status = pass(g, pair, 2);
        return true;
    }
    if (bug(g, "wrong_block") && c->kind == COLLRUN_REDUCE_SCATTER && g->nranks > 1) {
        size_t len = c->count * element(g, c);
        unsigned char *rotated = malloc(len * g->nranks + 1);
        struct collrun_call other = *c;
        if (rotated == NULL)
            return false;
        memcpy(rotated, (const unsigned char *)c->send + len, len * (g->nranks - 1));
        memcpy(rotated + len * (g->nranks - 1), c->send, len);
        other.send = rotated;
        *status = pass(g, &other, 1);
        free(rotated);
        return true;
    }
    return false;
}

/* ---- message_order ---- */
static int release(struct group *g)
{
    int status = COLLRUN_OK;
    if (g->held_data != NULL)
        status = pass(g, &g->held, 1);
    free(g->held_data);
    g->held_data = NULL;
    return status;
}

/* From the third message in a row to one peer on, each odd one waits until the next is out. */
static int send_out_of_order(struct group *g, const struct collrun_call *c)
{
    size_t len = c->count * element(g, c);
    g->run_length = c->peer == g->last_peer ? g->run_length + 1 : 1;
    g->last_peer = c->peer;
    if (g->held_data != NULL || g->run_length < 3 || g->run_length % 2 == 0) {
        int status = pass(g, c, 1);
        return status == COLLRUN_OK ? release(g) : status;
    }
    g->held = *c;
    g->held_data = malloc(len + 1);
    if (g->held_data == NULL)
        return COLLRUN_ERR_NO_MEMORY;
    if (len != 0)
        memcpy(g->held_data, c->send, len);
    g->held.send = g->held_data;
    return COLLRUN_OK;
}

static int exec(void *group, const struct collrun_call *calls, uint32_t ncalls)
{
    struct group *g = group;
    unsigned char tail[16] = {0};
    int status;
    if (ncalls != 1)
        return pass(g, calls, ncalls);
    struct collrun_call c = *calls;
    if (bug(g, "message_order") && c.kind == COLLRUN_SEND)
        return send_out_of_order(g, &c);
    g->last_peer = -1;
    status = release(g);
    if (status != COLLRUN_OK || replaced(g, &c, &status))
        return status;
    size_t w = c.kind == COLLRUN_BARRIER ? 0 : element(g, &c), len = received(g, &c);
    if (len > w)
        memcpy(tail, (unsigned char *)c.recv + len - w, w);
    spoil_call(g, &c);
    status = pass(g, &c, 1);
    if (status == COLLRUN_OK && calls->kind != COLLRUN_BARRIER)
        spoil_result(g, calls, tail);
    return status;
}

/* ---- the rest goes through ---- */
static int open_inner(struct saboteur *s, const struct collrun_services *services, const char *path)
{
    s->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct collrun_backend *inner =
        s->library != NULL ? dlsym(s->library, "collrun_backend_v1") : NULL;
    if (inner == NULL)
        return services->fail(services->ctx, COLLRUN_ERR_BACKEND, "cannot wrap %s: %s", path,
                              dlerror());
    memcpy(&s->inner, inner, inner->size < sizeof s->inner ? inner->size : sizeof s->inner);
    if (s->inner.open != NULL)
        return s->inner.open(services, &s->inner_state);
    return COLLRUN_OK;
}

static int backend_open(const struct collrun_services *services, void **backend)
{
    const char *path = services->option(services->ctx, "inner"),
               *name = services->option(services->ctx, "bug");
    struct saboteur *s = calloc(1, sizeof *s);
    if (s == NULL)
        return COLLRUN_ERR_NO_MEMORY;
    if (path == NULL || name == NULL) {
        free(s);
        return services->fail(services->ctx, COLLRUN_ERR_INVALID,
                              "needs the options inner and bug");
    }
    s->bug = strdup(name);
    int status = open_inner(s, services, path);
    if (status != COLLRUN_OK) {
        free((void *)(uintptr_t)s->bug);
        free(s);
        return status;
    }
    *backend = s;
    return COLLRUN_OK;
}

static void backend_close(void *backend)
{
    struct saboteur *s = backend;
    if (s->inner.close != NULL)
        s->inner.close(s->inner_state);
    free((void *)(uintptr_t)s->bug);
    free(s);
}

static int group_open(void *backend, const struct collrun_group_desc *desc, void **group)
{
    struct saboteur *s = backend;
    struct group *g = calloc(1, sizeof *g);
    uint32_t *world = calloc(desc->nranks, sizeof *world);
    if (g == NULL || world == NULL) {
        free(g);
        free(world);
        return COLLRUN_ERR_NO_MEMORY;
    }
    memcpy(world, desc->world_rank, desc->nranks * sizeof *world);
    *g = (struct group){.owner = s,
                        .services = desc->services,
                        .rank = desc->rank,
                        .nranks = desc->nranks,
                        .world_rank = world,
                        .last_peer = -1};
    struct collrun_group_desc theirs = *desc;
    theirs.sibling = desc->sibling ? ((struct group *)desc->sibling)->inner : NULL;
    int status = s->inner.group_open(s->inner_state, &theirs, &g->inner);
    if (status != COLLRUN_OK) {
        free(world);
        free(g);
        return status;
    }
    *group = g;
    return COLLRUN_OK;
}

static void group_abort(void *group)
{
    struct group *g = group;
    g->owner->inner.group_abort(g->inner);
}

static void group_close(void *group)
{
    struct group *g = group;
    release(g);
    g->owner->inner.group_close(g->inner);
    free(g->world_rank);
    free(g);
}

#define TYPES                                                                                      \
    (1u << COLLRUN_FLOAT32 | 1u << COLLRUN_FLOAT64 | 1u << COLLRUN_INT32 | 1u << COLLRUN_INT64 |   \
     1u << COLLRUN_UINT8)
#define OPS                                                                                        \
    (1u << COLLRUN_SUM | 1u << COLLRUN_PROD | 1u << COLLRUN_MIN | 1u << COLLRUN_MAX |              \
     1u << COLLRUN_AVG)

static const struct collrun_capability native[] = {
    {.kind = COLLRUN_BARRIER, .memory = COLLRUN_MEMORY_HOST},
    {.kind = COLLRUN_ALLREDUCE, .memory = COLLRUN_MEMORY_HOST, .dtypes = TYPES, .ops = OPS},
    {.kind = COLLRUN_REDUCE, .memory = COLLRUN_MEMORY_HOST, .dtypes = TYPES, .ops = OPS},
    {.kind = COLLRUN_REDUCE_SCATTER, .memory = COLLRUN_MEMORY_HOST, .dtypes = TYPES, .ops = OPS},
    {.kind = COLLRUN_BROADCAST, .memory = COLLRUN_MEMORY_HOST, .dtypes = UINT64_MAX},
    {.kind = COLLRUN_ALLGATHER, .memory = COLLRUN_MEMORY_HOST, .dtypes = UINT64_MAX},
    {.kind = COLLRUN_SEND, .memory = COLLRUN_MEMORY_HOST, .dtypes = UINT64_MAX},
    {.kind = COLLRUN_RECV, .memory = COLLRUN_MEMORY_HOST, .dtypes = UINT64_MAX},
    {0},
};

const struct collrun_backend collrun_backend_v1 = {
    .abi = COLLRUN_BACKEND_ABI,
    .size = (uint32_t)sizeof(struct collrun_backend),
    .name = "saboteur",
    .version = "1.0",
    .flags = COLLRUN_BACKEND_ONE_HOST,
    .native = native,
    .open = backend_open,
    .close = backend_close,
    .group_open = group_open,
    .group_abort = group_abort,
    .group_close = group_close,
    .exec = exec,
};
