/* SPDX-License-Identifier: Apache-2.0
 *
 * Ring: every rank creates a token and sends it to its right neighbour, hop by hop, until each
 * token is back at its origin. After every hop a rank knows which token it must hold, so it checks
 * every element.
 *
 * A ring in which every rank calls send first and then receive may deadlock: each send may wait for
 * its receive. The parameter `order` selects one of two solutions:
 * - sendrecv: collrun_sendrecv does both at the same time;
 * - parity: even ranks send first, odd ranks receive first.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <collrun/workload.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct collrun_param params[] = {
    {.name = "group",
     .type = COLLRUN_PARAM_STRING,
     .def = "",
     .help = "the group that forms the ring; default: the first one"},
    {.name = "bytes",
     .type = COLLRUN_PARAM_SIZE,
     .def = "64KiB",
     .min = "8",
     .help = "size of a token"},
    {.name = "laps",
     .type = COLLRUN_PARAM_INT,
     .def = "10",
     .min = "1",
     .help = "how often each token travels around the ring"},
    {.name = "order",
     .type = COLLRUN_PARAM_ENUM,
     .def = "sendrecv",
     .help = "order of the calls of a rank",
     .choices = "sendrecv|parity"},
    {0},
};

struct ring {
    struct collrun_group *group;
    int rank, size, laps;
    bool parity;
    size_t count;
    int64_t *token, *next; /* the token that this rank holds; receive buffer of the next one */
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void fini(struct collrun_ctx *ctx, void *state)
{
    (void)ctx;
    struct ring *ring = state;
    free(ring->token);
    free(ring->next);
    free(ring);
}

static int init(struct collrun_ctx *ctx, void **state)
{
    struct collrun_group *group;
    int rc = collrun_group_get(ctx, collrun_param_string(ctx, "group"), &group);
    if (rc)
        return rc;

    struct ring *ring = calloc(1, sizeof *ring);
    if (!ring)
        return collrun_fail(ctx, "out of memory");
    ring->group = group;
    ring->rank = collrun_rank(group);
    ring->size = collrun_size(group);
    ring->laps = (int)collrun_param_int(ctx, "laps");
    ring->parity = collrun_param_enum(ctx, "order") == 1;
    ring->count = collrun_param_size(ctx, "bytes") / sizeof *ring->token;
    ring->token = calloc(ring->count, sizeof *ring->token);
    ring->next = calloc(ring->count, sizeof *ring->next);
    if (!ring->token || !ring->next) {
        fini(ctx, ring);
        return collrun_fail(ctx, "out of memory for two tokens");
    }
    *state = ring;
    return 0;
}

/* Element i of the token of rank `origin`. */
static int64_t token_of(int origin, size_t i)
{
    return (int64_t)origin * 1000003 + (int64_t)i;
}

/* One hop: sends the token to the right and receives that of the left neighbour. */
static int hop(struct ring *ring)
{
    struct collrun_group *g = ring->group;
    int right = (ring->rank + 1) % ring->size, left = (ring->rank + ring->size - 1) % ring->size;
    int rc;
    if (!ring->parity) {
        rc = collrun_sendrecv(g, ring->token, ring->count, right, ring->next, ring->count, left,
                              COLLRUN_INT64);
    } else if (ring->rank % 2 == 0) {
        rc = collrun_send(g, ring->token, ring->count, COLLRUN_INT64, right);
        if (!rc)
            rc = collrun_recv(g, ring->next, ring->count, COLLRUN_INT64, left);
    } else {
        rc = collrun_recv(g, ring->next, ring->count, COLLRUN_INT64, left);
        if (!rc)
            rc = collrun_send(g, ring->token, ring->count, COLLRUN_INT64, right);
    }
    int64_t *arrived = ring->next;
    ring->next = ring->token;
    ring->token = arrived;
    return rc;
}

static int check(struct collrun_ctx *ctx, const struct ring *ring, int hops)
{
    int origin = (ring->rank + ring->size - hops % ring->size) % ring->size;
    for (size_t i = 0; i < ring->count; i++)
        if (ring->token[i] != token_of(origin, i))
            return collrun_fail(ctx, "hop %d: element %zu is %lld, expected %lld of rank %d", hops,
                                i, (long long)ring->token[i], (long long)token_of(origin, i),
                                origin);
    return 0;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    struct ring *ring = state;
    const char *name = collrun_group_name(ring->group);
    if (ring->size < 2)
        return collrun_fail(ctx, "a ring needs at least two ranks; group %s has one", name);
    for (size_t i = 0; i < ring->count; i++)
        ring->token[i] = token_of(ring->rank, i);

    int hops = ring->laps * ring->size;
    double spent = 0;
    for (int i = 1; i <= hops; i++) {
        double start = now_us();
        int rc = hop(ring);
        if (rc)
            return rc;
        spent += now_us() - start;
        rc = check(ctx, ring, i);
        if (rc)
            return rc;
        collrun_progress(ctx, (uint64_t)i, (uint64_t)hops, "hops");
    }
    if (ring->rank == 0)
        printf("ring %s: %d ranks on %s, %d laps of %zu B tokens by %s: %d hops verified, %.2f us "
               "a hop\n",
               name, ring->size, collrun_group_backend(ring->group), ring->laps,
               ring->count * sizeof *ring->token, ring->parity ? "parity" : "sendrecv", hops,
               spent / hops);
    collrun_metric(ctx, "hop_us", spent / hops);
    return 0;
}

COLLRUN_WORKLOAD(.name = "ring",
                 .summary = "tokens travel around a ring by send and receive; every hop is checked",
                 .params = params, .init = init, .run = run, .fini = fini);
