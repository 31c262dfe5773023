/* SPDX-License-Identifier: Apache-2.0
 *
 * Ring: every rank makes a token and passes it to the right, hop by hop, until each token is home
 * again. After every hop a rank knows whose token it must hold, so every element of every hop is
 * checked.
 *
 * Two blocking calls that send first on every rank may wait for each other for ever: in a ring, all
 * of them do. There are two ways out, and the parameter `order` chooses: collrun_sendrecv, which
 * does both at once, or parity: even ranks send first, odd ranks receive first.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <collrun/workload.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct collrun_param params[] = {
    {"group", COLLRUN_PARAM_STRING, "", NULL, NULL,
     "the group that forms the ring; none named: the first one"},
    {"bytes", COLLRUN_PARAM_SIZE, "64KiB", "8", NULL, "size of a token"},
    {"laps", COLLRUN_PARAM_INT, "10", "1", NULL, "times each token goes round"},
    {"order", COLLRUN_PARAM_STRING, "sendrecv", NULL, NULL, "sendrecv or parity"},
    {0},
};

struct ring {
    struct collrun_group *group;
    int rank, size, laps;
    bool parity;
    size_t count;
    int64_t *token, *next; /* what this rank holds, and where the next one arrives */
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
    const char *order = collrun_param_string(ctx, "order");
    if (strcmp(order, "sendrecv") != 0 && strcmp(order, "parity") != 0)
        return collrun_fail(ctx, "order: \"%s\" is neither sendrecv nor parity", order);
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
    ring->parity = strcmp(order, "parity") == 0;
    ring->count = collrun_param_size(ctx, "bytes") / sizeof *ring->token;
    ring->token = calloc(ring->count, sizeof *ring->token);
    ring->next = calloc(ring->count, sizeof *ring->next);
    if (!ring->token || !ring->next) {
        fini(ctx, ring);
        return collrun_fail(ctx, "out of memory: two tokens");
    }
    *state = ring;
    return 0;
}

/* Element i of the token that `origin` made. */
static int64_t token_of(int origin, size_t i)
{
    return (int64_t)origin * 1000003 + (int64_t)i;
}

/* One hop: the token goes right, the left neighbour's arrives. */
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
            return collrun_fail(ctx, "hop %d: element %zu is %lld, rank %d had sent %lld", hops, i,
                                (long long)ring->token[i], origin, (long long)token_of(origin, i));
    return 0;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    struct ring *ring = state;
    const char *name = collrun_group_name(ring->group);
    if (ring->size < 2)
        return collrun_fail(ctx, "a ring needs two ranks; group %s has one", name);
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
                 .summary = "tokens go round a ring by send and receive; every hop is checked",
                 .params = params, .init = init, .run = run, .fini = fini);
