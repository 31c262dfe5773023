/* SPDX-License-Identifier: Apache-2.0
 *
 * A program as a rank, in C: every rank passes a number around a ring, then all sum it up. A first
 * program to copy:
 *
 *   cc ring.c $(pkg-config --cflags --libs collrun) -o ring
 *   collrun program.yaml
 */
#include <collrun/collrun.h>

#include <stdio.h>

static int ring(struct collrun_ctx *ctx)
{
    struct collrun_group *world;
    int rc = collrun_group_get(ctx, "world", &world);
    if (rc != COLLRUN_OK)
        return rc;
    int rank = collrun_rank(world), size = collrun_size(world);
    int64_t mine = rank, left = -1, sum = 0;
    rc = collrun_sendrecv(world, &mine, 1, (rank + 1) % size, &left, 1, (rank + size - 1) % size,
                          COLLRUN_INT64);
    if (rc == COLLRUN_OK)
        rc = collrun_allreduce(world, &left, &sum, 1, COLLRUN_INT64, COLLRUN_SUM);
    if (rc == COLLRUN_OK)
        printf("rank %d of %d: got %d, the sum is %d\n", rank, size, (int)left, (int)sum);
    return rc;
}

int main(void)
{
    struct collrun_ctx *ctx;
    if (collrun_init(&ctx) != COLLRUN_OK || ring(ctx) != COLLRUN_OK ||
        collrun_finalize(ctx) != COLLRUN_OK) {
        fprintf(stderr, "%s\n", collrun_error());
        return 1;
    }
    return 0;
}
