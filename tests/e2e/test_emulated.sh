#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A collective with an operator of the workload, which the engine builds from messages: it fails on one rank between two of them.
. "$(dirname "$0")/lib.sh"
cat >late.c <<'END'
#include <collrun/workload.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Rank 0 is slow with it. */
static void combine(void *ctx, const void *left, void *right, size_t count, enum collrun_dtype dtype)
{
    (void)dtype;
    for (size_t i = 0; i < count; i++)
        ((int32_t *)right)[i] += ((const int32_t *)left)[i];
    if (*(int *)ctx == 0)
        usleep(700000);
}

/* The time-out of rank 0 passes while it combines; the others have more time. */
static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *world;
    int32_t in[8] = {0}, out[8];
    (void)state;
    if (collrun_group_get(ctx, "world", &world) != COLLRUN_OK || collrun_barrier(world) != COLLRUN_OK)
        return COLLRUN_ERR_BACKEND;
    int rank = collrun_rank(world);
    const struct collrun_user_op add = {.size = sizeof add, .name = "add", .combine = combine, .ctx = &rank};
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    call.send = in;
    call.recv = out;
    call.count = 8;
    call.dtype = COLLRUN_INT32;
    call.user_op = &add;
    call.timeout_ns = rank ? 60000000000u : 1000000000u;
    int rc = collrun_run(world, &call, 1);
    printf("%s %s\n", collrun_strstatus(rc), strstr(collrun_error(), ": rank 0 ") ? "of rank 0" : collrun_error());
    return 0;
}
COLLRUN_WORKLOAD(.name = "late", .run = run);
END
plugin late.c late.so
for backend in ${BACKENDS:-shm tcp gloo}; do
    job late <<END
version: 1
processes: {count: 3}
groups: {world: {ranks: all, backend: $backend}}
workloads: [{plugin: ./late.so}]
END
    run run late.yaml
    is "$backend: a time-out between two messages of one rank reaches the others" "$code $(out | sort)" "0 [0] timed out of rank 0
[1] timed out of rank 0
[2] timed out of rank 0"
done
done_testing
