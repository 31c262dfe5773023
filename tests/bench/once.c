/* SPDX-License-Identifier: Apache-2.0
 *
 * What bench/launch.sh starts with collrun: one allreduce over the world, checked.
 */
#include <collrun/workload.h>

static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *world;
    int32_t rank = collrun_world_rank(ctx), size = collrun_world_size(ctx), sum = 0;
    (void)state;
    int rc = collrun_group_get(ctx, "world", &world);
    if (rc == COLLRUN_OK)
        rc = collrun_allreduce(world, &rank, &sum, 1, COLLRUN_INT32, COLLRUN_SUM);
    if (rc != COLLRUN_OK)
        return rc;
    return sum == size * (size - 1) / 2 ? 0 : collrun_fail(ctx, "the sum is %d", sum);
}

COLLRUN_WORKLOAD(.name = "once", .summary = "one allreduce", .run = run);
