/* SPDX-License-Identifier: Apache-2.0
 *
 * A workload that passes every struct of the public headers, arrays of them above all. The tests
 * compile it against the frozen headers (v1) and against headers of a later version; it is changed
 * only together with the frozen copy. Every rank checks its results and prints one line.
 */
#include <collrun/workload.h>

#include <stdio.h>
#include <string.h>

static const struct collrun_param params[] = {
    {.name = "times", .type = COLLRUN_PARAM_INT, .def = "3", .min = "1", .max = "9"},
    {.name = "op", .type = COLLRUN_PARAM_ENUM, .def = "sum", .choices = "sum|max"},
    {.name = "sizes", .type = COLLRUN_PARAM_LIST, .def = "1KiB", .item = COLLRUN_PARAM_SIZE},
    {0},
};

/* A struct that is wrong is a failure with its line. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return collrun_fail(ctx, "line %d: %s: %s", __LINE__, #condition, collrun_error());    \
    } while (0)

/* An array of collectives, of which each reads what the one before wrote. */
static int batch(struct collrun_ctx *ctx, struct collrun_group *g)
{
    int32_t in = collrun_rank(g) + 1, sum = 0, prefix = 0;
    struct collrun_call calls[3] = {COLLRUN_CALL(COLLRUN_ALLREDUCE), COLLRUN_CALL(COLLRUN_SCAN),
                                    COLLRUN_CALL(COLLRUN_BARRIER)};
    calls[0].send = &in, calls[0].recv = &sum;
    calls[1].send = &sum, calls[1].recv = &prefix;
    for (int i = 0; i < 2; i++)
        calls[i].count = 1, calls[i].dtype = COLLRUN_INT32, calls[i].op = COLLRUN_SUM;
    EXPECT(collrun_run(g, calls, 3) == COLLRUN_OK);
    const int n = collrun_size(g), total = n * (n + 1) / 2;
    EXPECT(sum == total && prefix == total * (collrun_rank(g) + 1));
    return 0;
}

/* An array of messages around the ring; the receive learns how much the message holds. */
static int ring(struct collrun_ctx *ctx, struct collrun_group *g)
{
    const int n = collrun_size(g), rank = collrun_rank(g);
    int32_t out[2] = {rank, -rank}, in[4] = {7, 7, 7, 7};
    size_t received = 0;
    uint32_t tag = 0;
    struct collrun_request *request;
    struct collrun_call calls[2] = {COLLRUN_CALL(COLLRUN_SEND), COLLRUN_CALL(COLLRUN_RECV)};
    calls[0].send = out, calls[0].count = 2, calls[0].peer = (rank + 1) % n, calls[0].tag = 5;
    calls[1].recv = in, calls[1].count = 4, calls[1].peer = (rank + n - 1) % n;
    calls[1].tag = COLLRUN_ANY_TAG, calls[1].received = &received, calls[1].received_tag = &tag;
    calls[0].dtype = calls[1].dtype = COLLRUN_INT32;
    EXPECT(collrun_start_many(g, calls, 2, &request) == COLLRUN_OK);
    EXPECT(collrun_wait(request) == COLLRUN_OK);
    EXPECT(received == 2 && tag == 5 && in[0] == calls[1].peer && in[1] == -in[0] && in[2] == 7);
    return 0;
}

static void largest(void *ctx, const void *left, void *right, size_t count,
                    enum collrun_dtype dtype)
{
    const int64_t *l = left;
    int64_t *r = right;
    (void)ctx, (void)dtype;
    for (size_t i = 0; i < count; i += 2)
        if (l[i] >= r[i])
            memcpy(&r[i], &l[i], 2 * sizeof *r);
}

/* An operator of the workload on pairs: the largest value and its rank. */
static int user_op(struct collrun_ctx *ctx, struct collrun_group *g)
{
    const struct collrun_user_op op = {
        .size = sizeof op, .commutative = 1, .name = "largest", .unit = 2, .combine = largest};
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    int64_t in[2] = {100 - collrun_rank(g), collrun_rank(g)}, out[2] = {0};
    call.send = in, call.recv = out, call.count = 2, call.dtype = COLLRUN_INT64;
    call.user_op = &op;
    EXPECT(collrun_run(g, &call, 1) == COLLRUN_OK);
    EXPECT(out[0] == 100 && out[1] == 0);
    return 0;
}

/* A group of this size, made from a struct of options, and a probe in it. */
static int group(struct collrun_ctx *ctx, const char *backend, int n)
{
    int ranks[8], rank;
    for (rank = 0; rank < n; rank++)
        ranks[rank] = n - 1 - rank;
    const struct collrun_group_options options = {
        .size = sizeof options, .name = "turned", .backend = backend, .ranks = ranks, .nranks = n};
    struct collrun_message_info info = {.size = sizeof info};
    struct collrun_group *g;
    EXPECT(collrun_group_create(ctx, &options, &g) == COLLRUN_OK);
    rank = collrun_rank(g);
    if (rank == 0)
        EXPECT(collrun_send(g, &rank, 1, COLLRUN_INT32, n - 1) == COLLRUN_OK);
    if (rank == n - 1) {
        EXPECT(collrun_probe(g, COLLRUN_ANY_PEER, COLLRUN_ANY_TAG, &info) == COLLRUN_OK);
        EXPECT(info.source == 0 && info.count == 1 && info.dtype == COLLRUN_INT32);
        EXPECT(collrun_recv(g, &rank, 1, COLLRUN_INT32, 0) == COLLRUN_OK && rank == 0);
    }
    EXPECT(collrun_barrier(g) == COLLRUN_OK);
    return collrun_group_destroy(g);
}

static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *g;
    (void)state;
    EXPECT(collrun_group_get(ctx, "world", &g) == COLLRUN_OK);
    for (int64_t i = 0; i < collrun_param_int(ctx, "times"); i++)
        if (batch(ctx, g) || ring(ctx, g) || user_op(ctx, g))
            return 1;
    if (group(ctx, collrun_group_backend(g), collrun_size(g)))
        return 1;
    printf("%s: op %d, %d sizes, the last %llu\n", collrun_group_backend(g),
           collrun_param_enum(ctx, "op"), collrun_param_count(ctx, "sizes"),
           (unsigned long long)collrun_param_size_at(ctx, "sizes", 1));
    return 0;
}

COLLRUN_WORKLOAD(.name = "abi", .params = params, .run = run);
