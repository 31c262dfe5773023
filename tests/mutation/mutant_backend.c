/* SPDX-License-Identifier: Apache-2.0
 *
 * A backend with one deliberate bug, which proves that the conformance suite detects it. It wraps
 * another backend (the shared object that the option `inner` names), forwards every call, and
 * applies the mutation that the option `mutation` names:
 *
 *   none                  nothing: the control, which must pass
 *   wrong_root            broadcast and reduce use the next rank as root
 *   world_root            roots are read as world ranks
 *   off_by_one_block      allgather delivers every block one position too far
 *   swapped_ranks         allgather exchanges the blocks of ranks 0 and 1
 *   wrong_block           reduce_scatter delivers the next rank's block
 *   stale_tail            the last element of a result is not written
 *   truncated_count       of 16 or more elements the last is not moved
 *   missing_avg_division  AVG delivers the sum, undivided
 *   floor_avg             an integer AVG rounds down instead of toward zero
 *   forgotten_rank        reductions use the last rank's data twice and rank 0's never
 *   wrong_width           64-bit integers are summed as pairs of 32-bit ones
 *   lost_nan              MIN and MAX skip NaN
 *   scribbled_input       an allreduce writes its result to the send buffer too
 *   nonroot_write         reduce writes to the output of a rank that is not the root
 *   stray_write           one byte past the end of a result is written
 *   message_order         in a burst, every other message arrives after the next
 *   dropped_sync          barriers and operations of count 0 return at once
 *   lazy_barrier          a barrier of more than two ranks waits for one neighbour only
 *
 * It is built as any third-party backend: against <collrun/backend.h> alone. The inner backend must
 * serve groups of one host, and do the operations of the table `native` below.
 */
#include <collrun/backend.h>

#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Room for the inner backend's struct; what it certainly sends in one packet. */
enum { MESSAGE_BYTES = 512, HELD_BYTES = 64 };

struct mutant {
    void *library;
    struct collrun_backend inner;
    void *inner_state;
    const char *mutation;
};

struct group {
    struct mutant *owner;
    const struct collrun_services *services;
    void *inner;
    uint32_t rank, nranks;
    uint32_t *world_rank;
    atomic_uint *barriers; /* shared, nranks: lazy barriers that each rank has come to */
    atomic_bool aborted;
    struct collrun_p2p p2p; /* what the inner backend gets */
    const struct collrun_p2p *engine;
    /* message_order: the message that is held until the next of its burst is sent; a copy, because
     * the engine thinks that it is done. */
    struct held_message {
        struct collrun_message message;
        char inner[MESSAGE_BYTES];
        char data[HELD_BYTES];
    } held;
    bool holds;
    uint32_t last_peer, run_length;
};

static bool mutates(const struct group *g, const char *name)
{
    return strcmp(g->owner->mutation, name) == 0;
}

static int forward(struct group *g, const struct collrun_call *calls, uint32_t n)
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

static size_t element_size(const struct group *g, const struct collrun_call *c)
{
    return g->services->dtype_size(c->dtype);
}

static bool is_reduction(const struct collrun_call *c)
{
    return c->kind == COLLRUN_ALLREDUCE || c->kind == COLLRUN_REDUCE ||
           c->kind == COLLRUN_REDUCE_SCATTER;
}

/* Bytes that this rank receives. */
static size_t received_bytes(const struct group *g, const struct collrun_call *c)
{
    size_t len = c->count * element_size(g, c);
    if (c->kind == COLLRUN_ALLGATHER)
        return len * g->nranks;
    if (c->kind == COLLRUN_BARRIER || c->kind == COLLRUN_SEND ||
        (c->kind == COLLRUN_REDUCE && (uint32_t)c->root != g->rank) ||
        (c->kind == COLLRUN_BROADCAST && (uint32_t)c->root == g->rank))
        return 0;
    return len;
}

/* ---- mutations of the call ---- */
static void mutate_call(struct group *g, struct collrun_call *c)
{
    if (mutates(g, "wrong_root"))
        c->root = (c->root + 1) % (int)g->nranks;
    for (uint32_t r = 0; mutates(g, "world_root") && r < g->nranks; r++)
        if (g->world_rank[r] == (uint32_t)c->root) {
            c->root = (int)r;
            break;
        }
    if (mutates(g, "truncated_count") && c->count >= 16)
        c->count--;
    if (mutates(g, "missing_avg_division") && c->op == COLLRUN_AVG)
        c->op = COLLRUN_SUM;
    if (mutates(g, "wrong_width") && c->dtype == COLLRUN_INT64 && is_reduction(c) &&
        c->op == COLLRUN_SUM) {
        c->dtype = COLLRUN_INT32;
        c->count *= 2;
    }
}

/* ---- mutations of the result ---- */
static void swap_blocks(unsigned char *a, unsigned char *b, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = a[i];
        a[i] = b[i];
        b[i] = byte;
    }
}

static void mutate_blocks(struct group *g, const struct collrun_call *c)
{
    size_t len = c->count * element_size(g, c);
    unsigned char *at = c->recv;
    if (c->kind != COLLRUN_ALLGATHER || g->nranks < 2 || len == 0)
        return;
    if (mutates(g, "swapped_ranks"))
        swap_blocks(at, at + len, len);
    for (uint32_t r = g->nranks - 1; mutates(g, "off_by_one_block") && r > 0; r--)
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

static void mutate_result(struct group *g, const struct collrun_call *c, const unsigned char *tail)
{
    size_t w = element_size(g, c), len = received_bytes(g, c);
    unsigned char *recv = c->recv;
    mutate_blocks(g, c);
    if (mutates(g, "stale_tail") && len > w)
        memcpy(recv + len - w, tail, w);
    if (mutates(g, "floor_avg") && is_reduction(c) && len > 0)
        floor_avg(c);
    if (mutates(g, "scribbled_input") && c->kind == COLLRUN_ALLREDUCE && c->send != c->recv)
        memcpy((void *)(uintptr_t)c->send, recv, len);
    if (mutates(g, "nonroot_write") && c->kind == COLLRUN_REDUCE && (uint32_t)c->root != g->rank &&
        c->count > 0 && c->recv != NULL)
        recv[0] ^= 1u;
    if (mutates(g, "stray_write") && len > 0)
        recv[len] ^= 1u;
}

/* ---- mutations that replace the operation ---- */
/* A wrong reduction by allgather: it leaves out rank 0's data, or NaN. */
static int reduce_gathered(struct group *g, const struct collrun_call *c)
{
    size_t w = element_size(g, c), len = c->count * w;
    unsigned char *all = malloc(len * g->nranks + 1);
    const void *srcs[256];
    struct collrun_call gather = *c;
    if (all == NULL)
        return COLLRUN_ERR_NO_MEMORY;
    gather.kind = COLLRUN_ALLGATHER;
    gather.recv = all;
    int status = forward(g, &gather, 1);
    if (status == COLLRUN_OK && mutates(g, "forgotten_rank"))
        memcpy(all, all + (g->nranks - 1) * len, len);
    for (size_t i = 0; mutates(g, "lost_nan") && i < c->count * g->nranks; i++) {
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

static int lazy_barrier(struct group *g)
{
    const struct collrun_services *s = g->services;
    unsigned mine = atomic_fetch_add(&g->barriers[g->rank], 1) + 1;
    while (atomic_load(&g->barriers[(g->rank + 1) % g->nranks]) < mine) {
        if (atomic_load(&g->aborted))
            return s->fail(s->ctx, COLLRUN_ERR_ABORTED, "the group was aborted");
        sched_yield();
    }
    return COLLRUN_OK;
}

static bool mutate_operation(struct group *g, const struct collrun_call *c, int *status)
{
    bool skips_nan = mutates(g, "lost_nan") && c->dtype == COLLRUN_FLOAT32 &&
                     (c->op == COLLRUN_MIN || c->op == COLLRUN_MAX);
    if (c->kind == COLLRUN_ALLREDUCE && c->send != c->recv &&
        (skips_nan || mutates(g, "forgotten_rank"))) {
        *status = reduce_gathered(g, c);
        return true;
    }
    if (mutates(g, "dropped_sync") && !collrun_kind_is_message(c->kind) &&
        (c->kind == COLLRUN_BARRIER || c->count == 0)) {
        *status = COLLRUN_OK;
        return true;
    }
    if (mutates(g, "lazy_barrier") && c->kind == COLLRUN_BARRIER && g->nranks > 2) {
        *status = lazy_barrier(g);
        return true;
    }
    if (mutates(g, "wrong_block") && c->kind == COLLRUN_REDUCE_SCATTER && g->nranks > 1) {
        size_t len = c->count * element_size(g, c);
        unsigned char *rotated = malloc(len * g->nranks + 1);
        struct collrun_call other = *c;
        if (rotated == NULL)
            return false;
        memcpy(rotated, (const unsigned char *)c->send + len, len * (g->nranks - 1));
        memcpy(rotated + len * (g->nranks - 1), c->send, len);
        other.send = rotated;
        *status = forward(g, &other, 1);
        free(rotated);
        return true;
    }
    return false;
}

/* ---- messages ---- */
static const struct collrun_transport *inner_transport(const struct group *g)
{
    return g->owner->inner.transport;
}

static void message_done(void *ctx, struct collrun_message *message)
{
    struct group *g = ctx;
    if (message != &g->held.message)
        g->engine->done(g->engine->ctx, message);
}

static void message_announced(void *ctx, const struct collrun_message *message)
{
    struct group *g = ctx;
    if (message != &g->held.message)
        g->engine->announced(g->engine->ctx, message);
}

static int message_arrived(void *ctx, uint32_t source, const struct collrun_envelope *envelope,
                           const void *packet, size_t len)
{
    struct group *g = ctx;
    return g->engine->arrived(g->engine->ctx, source, envelope, packet, len);
}

static struct collrun_message *message_find(void *ctx, uint32_t id)
{
    struct group *g = ctx;
    return g->engine->find(g->engine->ctx, id);
}

static int send_held(struct group *g)
{
    bool holds = g->holds;
    g->holds = false;
    return holds ? inner_transport(g)->send(g->inner, &g->held.message) : COLLRUN_OK;
}

/* From the third successive message to one peer, each odd one is held until the next is sent. */
static int transport_send(void *group, struct collrun_message *message)
{
    struct group *g = group;
    g->run_length = message->peer == g->last_peer ? g->run_length + 1 : 1;
    g->last_peer = message->peer;
    if (!mutates(g, "message_order") || g->holds || g->run_length < 3 || g->run_length % 2 == 0 ||
        message->len > HELD_BYTES) {
        int status = inner_transport(g)->send(g->inner, message);
        return status == COLLRUN_OK ? send_held(g) : status;
    }
    g->held.message = *message;
    if (message->len > 0)
        memcpy(g->held.data, message->data, message->len);
    g->held.message.data = g->held.data;
    g->holds = true;
    g->engine->done(g->engine->ctx, message);
    return COLLRUN_OK;
}

static int transport_post(void *group, struct collrun_message *message)
{
    struct group *g = group;
    int status = send_held(g);
    g->last_peer = COLLRUN_ANY_SOURCE;
    return status == COLLRUN_OK ? inner_transport(g)->post(g->inner, message) : status;
}

static void transport_wake(void *group)
{
    struct group *g = group;
    inner_transport(g)->wake(g->inner);
}

static void transport_unpost(void *group, struct collrun_message *message)
{
    struct group *g = group;
    inner_transport(g)->unpost(g->inner, message);
}

static int transport_recv(void *group, struct collrun_message *message, const void *packet,
                          size_t len)
{
    struct group *g = group;
    return inner_transport(g)->recv(g->inner, message, packet, len);
}

static int transport_flush(void *group)
{
    struct group *g = group;
    return inner_transport(g)->flush(g->inner);
}

static int transport_progress(void *group, uint64_t wait_ns)
{
    struct group *g = group;
    return inner_transport(g)->progress(g->inner, wait_ns);
}

static void transport_fail(void *group, uint32_t peer, int status, const char *text)
{
    struct group *g = group;
    inner_transport(g)->fail(g->inner, peer, status, text);
}

static int exec(void *group, const struct collrun_call *calls, uint32_t ncalls)
{
    struct group *g = group;
    unsigned char tail[16] = {0};
    int status;
    if (ncalls != 1)
        return forward(g, calls, ncalls);
    struct collrun_call c = *calls;
    if (mutate_operation(g, &c, &status))
        return status;
    size_t w = c.kind == COLLRUN_BARRIER ? 0 : element_size(g, &c), len = received_bytes(g, &c);
    if (len > w)
        memcpy(tail, (unsigned char *)c.recv + len - w, w);
    mutate_call(g, &c);
    status = forward(g, &c, 1);
    if (status == COLLRUN_OK && calls->kind != COLLRUN_BARRIER)
        mutate_result(g, calls, tail);
    return status;
}

/* ---- everything else is forwarded ---- */
static int open_inner(struct mutant *m, const struct collrun_services *services, const char *path)
{
    m->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct collrun_backend *inner =
        m->library != NULL ? dlsym(m->library, "collrun_backend_v1") : NULL;
    if (inner == NULL)
        return services->fail(services->ctx, COLLRUN_ERR_BACKEND, "cannot wrap %s: %s", path,
                              dlerror());
    memcpy(&m->inner, inner, inner->size < sizeof m->inner ? inner->size : sizeof m->inner);
    if (m->inner.open != NULL)
        return m->inner.open(services, &m->inner_state);
    return COLLRUN_OK;
}

static int backend_open(const struct collrun_services *services, void **backend)
{
    const char *path = services->option(services->ctx, "inner"),
               *name = services->option(services->ctx, "mutation");
    struct mutant *m = calloc(1, sizeof *m);
    if (m == NULL)
        return COLLRUN_ERR_NO_MEMORY;
    if (path == NULL || name == NULL) {
        free(m);
        return services->fail(services->ctx, COLLRUN_ERR_INVALID,
                              "needs the options inner and mutation");
    }
    m->mutation = strdup(name);
    int status = open_inner(m, services, path);
    if (status != COLLRUN_OK) {
        free((void *)(uintptr_t)m->mutation);
        free(m);
        return status;
    }
    *backend = m;
    return COLLRUN_OK;
}

static void backend_close(void *backend)
{
    struct mutant *m = backend;
    if (m->inner.close != NULL)
        m->inner.close(m->inner_state);
    free((void *)(uintptr_t)m->mutation);
    free(m);
}

static int group_open(void *backend, const struct collrun_group_desc *desc, void **group)
{
    struct mutant *m = backend;
    struct group *g = calloc(1, sizeof *g);
    uint32_t *world = calloc(desc->nranks, sizeof *world);
    if (g == NULL || world == NULL) {
        free(g);
        free(world);
        return COLLRUN_ERR_NO_MEMORY;
    }
    memcpy(world, desc->world_rank, desc->nranks * sizeof *world);
    *g = (struct group){.owner = m,
                        .services = desc->services,
                        .rank = desc->rank,
                        .nranks = desc->nranks,
                        .world_rank = world,
                        .last_peer = COLLRUN_ANY_SOURCE,
                        .engine = desc->p2p};
    g->p2p = (struct collrun_p2p){.size = sizeof g->p2p,
                                  .ctx = g,
                                  .arrived = message_arrived,
                                  .done = message_done,
                                  .find = message_find,
                                  .announced = message_announced};
    uint64_t offset;
    int fd;
    if (mutates(g, "lazy_barrier") &&
        desc->rendezvous->segment(desc->rendezvous->ctx, 4096, &fd, &offset) == COLLRUN_OK) {
        g->barriers = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    }
    struct collrun_group_desc theirs = *desc;
    theirs.p2p = &g->p2p;
    theirs.collectives_handle =
        desc->collectives_handle ? ((struct group *)desc->collectives_handle)->inner : NULL;
    int status = m->inner.group_open(m->inner_state, &theirs, &g->inner);
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
    atomic_store(&g->aborted, true);
    g->owner->inner.group_abort(g->inner);
}

static void group_close(void *group)
{
    struct group *g = group;
    send_held(g);
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

static const struct collrun_transport transport = {
    .size = (uint32_t)sizeof(struct collrun_transport),
    .message_size = sizeof(struct collrun_message) + MESSAGE_BYTES,
    .send = transport_send,
    .post = transport_post,
    .unpost = transport_unpost,
    .wake = transport_wake,
    .recv = transport_recv,
    .flush = transport_flush,
    .progress = transport_progress,
    .fail = transport_fail,
};

const struct collrun_backend collrun_backend_v1 = {
    COLLRUN_BACKEND_HEAD,
    .name = "mutant",
    .version = "1.0",
    .flags = COLLRUN_BACKEND_ONE_HOST,
    .native = native,
    .open = backend_open,
    .close = backend_close,
    .group_open = group_open,
    .group_abort = group_abort,
    .group_close = group_close,
    .exec = exec,
    .transport = &transport,
};
