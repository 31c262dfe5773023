/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program does when a call has failed: a workload whose parameters say how the call fails
 * and how the workload answers. With -DPROGRAM, a program with the same words as arguments.
 */
#include <collrun/workload.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        int status_ = (call);                                                                      \
        if (status_ != COLLRUN_OK)                                                                 \
            return status_;                                                                        \
    } while (0)

static void combine(void *ctx, const void *in, void *inout, size_t n, enum collrun_dtype dtype)
{
    (void)ctx, (void)in, (void)inout, (void)n, (void)dtype;
}

static int reduce_with(struct collrun_group *world, const char *name)
{
    const struct collrun_user_op op = {
        .size = sizeof op, .name = name, .commutative = 1, .unit = 2, .combine = combine};
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    float in[8] = {0}, out[8];
    call.send = in;
    call.recv = out;
    call.count = 8;
    call.dtype = COLLRUN_FLOAT32;
    call.user_op = &op;
    CHECK(collrun_run(world, &call, 1));
    return collrun_barrier(world);
}

/* Rank 2 has no descriptors for the library of a backend. */
static int open_nothing(struct collrun_ctx *ctx, int rank)
{
    int ranks[4] = {0, 1, 2, 3};
    struct collrun_group *g;
    const struct collrun_group_options options = {
        .size = sizeof options, .name = "sub", .ranks = ranks, .nranks = 4, .backend = "gloo"};
    const struct rlimit few = {64, 64};
    if (rank == 2 && setrlimit(RLIMIT_NOFILE, &few) == 0)
        while (open("/dev/null", O_RDONLY) >= 0)
            ;
    return collrun_group_create(ctx, &options, &g);
}

/* Rank 2 makes the mistake. */
static int fail_in(struct collrun_group *world, const char *failure, int rank)
{
    float in[64] = {0}, out[64];
    enum collrun_op op = rank == 2 && strcmp(failure, "op") == 0 ? COLLRUN_MAX : COLLRUN_SUM;
    size_t count = rank == 2 && strcmp(failure, "count") == 0 ? 32 : 64;
    /* The others are in the call by then: a verdict needs their calls to know the majority. */
    if (op == COLLRUN_MAX || count != 64)
        usleep(300000);
    if (rank == 2 && strcmp(failure, "late") == 0)
        sleep(60);
    if (strcmp(failure, "user-op") == 0)
        return reduce_with(world, rank == 2 ? "argmin" : "argmax");
    if (strcmp(failure, "message") == 0 && rank > 1)
        return COLLRUN_OK;
    if (strcmp(failure, "message") == 0) {
        struct collrun_call call = COLLRUN_CALL(rank ? COLLRUN_RECV : COLLRUN_SEND);
        call.send = in;
        call.recv = out;
        call.count = rank ? 32 : 64;
        call.dtype = COLLRUN_FLOAT32;
        call.peer = !rank;
        return collrun_run(world, &call, 1);
    }
    return collrun_allreduce(world, in, out, count, COLLRUN_FLOAT32, op);
}

static int answer_with(struct collrun_ctx *ctx, const char *answer, int status)
{
    if (strcmp(answer, "fail") == 0)
        return collrun_fail(ctx, "step 2: %s", collrun_error());
    if (strcmp(answer, "words") == 0)
        return collrun_fail(ctx, "the step failed");
    if (strcmp(answer, "abort") == 0)
        abort();
    if (strcmp(answer, "exit") == 0)
        exit(1);
    if (strcmp(answer, "leave") == 0)
        _exit(9);
    if (strcmp(answer, "code") == 0)
        return 3;
    if (strcmp(answer, "call-null") == 0) {
        int (*volatile nothing)(void) = NULL;
        return nothing();
    }
    if (strcmp(answer, "wild") == 0) {
        char *volatile wild = (char *)(uintptr_t)0x4141414141414141;
        *wild = 1;
    }
    if (strcmp(answer, "ignore") == 0)
        return 0;
    if (strcmp(answer, "ignore for long") == 0) {
        sleep(2);
        return 0;
    }
    return status;
}

/* A time-out in a group that only it is in, which it handles; then the job goes on, and it fails.
 */
static int fail_later(struct collrun_ctx *ctx, struct collrun_group *world, const char *answer)
{
    int rank = collrun_world_rank(ctx);
    struct collrun_group *side;
    struct collrun_call call = COLLRUN_CALL(COLLRUN_RECV);
    char byte;
    CHECK(collrun_group_split(world, 0, rank, "side", &side));
    call.recv = &byte;
    call.count = 1;
    call.dtype = COLLRUN_UINT8;
    call.peer = 1;
    call.timeout_ns = 100000000;
    if (rank == 2 && collrun_run(side, &call, 1) != COLLRUN_ERR_TIMEOUT)
        return 98;
    for (int i = 0; i < 3; i++)
        CHECK(fail_in(world, "", rank));
    if (rank == 2)
        return strcmp(answer, "abort") == 0  ? (abort(), 0)
               : strcmp(answer, "code") == 0 ? 3
                                             : collrun_fail(ctx, "the disk is broken");
    return collrun_barrier(world);
}

/* Rank 0 sends a message with tag 5, rank 1 receives one with tag 6. */
static int confuse_tags(struct collrun_group *world, int rank, const char *answer)
{
    float data[100] = {0};
    struct collrun_call call = COLLRUN_CALL(rank ? COLLRUN_RECV : COLLRUN_SEND);
    call.send = call.recv = data;
    call.count = 100;
    call.dtype = COLLRUN_FLOAT32;
    call.peer = !rank;
    call.tag = rank ? 6 : 5;
    if (rank < 2)
        CHECK(collrun_run(world, &call, 1));
    if (rank != 1 && strcmp(answer, "sleep") == 0)
        sleep(60);
    return collrun_barrier(world);
}

static int run_with(struct collrun_ctx *ctx, const char *failure, const char *answer)
{
    struct collrun_group *world;
    if (strcmp(failure, "alone") == 0 && collrun_world_rank(ctx) == 2) /* without groups */
        return answer_with(ctx, answer, 0);
    while (strcmp(failure, "alone") == 0)
        usleep(10000);
    CHECK(collrun_group_get(ctx, "world", &world));
    CHECK(collrun_barrier(world));
    if (strcmp(failure, "handled") == 0)
        return fail_later(ctx, world, answer);
    if (strcmp(failure, "own") == 0) /* of rank 2, in the first attempt */
        return collrun_world_rank(ctx) == 2 && collrun_attempt(ctx) == 0
                   ? answer_with(ctx, answer, 0)
                   : collrun_barrier(world);
    if (strcmp(failure, "descriptors") == 0)
        return open_nothing(ctx, collrun_world_rank(ctx));
    if (strcmp(failure, "tag") == 0)
        return confuse_tags(world, collrun_world_rank(ctx), answer);
    if (strcmp(failure, "fini") == 0)
        return COLLRUN_OK;
    int status = fail_in(world, failure, collrun_world_rank(ctx));
    if (strcmp(failure, "message") == 0 && status == COLLRUN_OK)
        status = collrun_barrier(world);
    return status == COLLRUN_OK ? status : answer_with(ctx, answer, status);
}

#ifdef PROGRAM
int main(int argc, char **argv)
{
    struct collrun_ctx *ctx;
    if (argc < 3 || collrun_init(&ctx) != COLLRUN_OK)
        return 97;
    int code = run_with(ctx, argv[1], argv[2]);
    if (code == COLLRUN_OK)
        (void)collrun_finalize(ctx);
    return code < 0 ? 1 : code;
}
#else
static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    return run_with(ctx, collrun_param_string(ctx, "failure"), collrun_param_string(ctx, "answer"));
}

static void fini(struct collrun_ctx *ctx, void *state)
{
    const char *answer = collrun_param_string(ctx, "answer");
    (void)state;
    if (strcmp(collrun_param_string(ctx, "failure"), "fini") != 0 || collrun_world_rank(ctx) != 2)
        return;
    if (strcmp(answer, "sleep") == 0)
        sleep(60);
    (void)answer_with(ctx, answer, 0);
}

static const struct collrun_param params[] = {
    {.name = "failure", .type = COLLRUN_PARAM_STRING, .def = "op"},
    {.name = "answer", .type = COLLRUN_PARAM_STRING, .def = "return"},
    {0}};
COLLRUN_WORKLOAD(.name = "answers", .params = params, .run = run, .fini = fini);
#endif
