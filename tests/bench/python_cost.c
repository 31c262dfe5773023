/* SPDX-License-Identifier: Apache-2.0
 *
 * The allreduce of python_cost.py in C: microseconds per call, the median of 9 batches of CALLS.
 */
#include <collrun/collrun.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCHES = 9 };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    struct collrun_ctx *ctx;
    struct collrun_group *g;
    double x = 0, us[BATCHES];
    int calls = argc > 1 ? atoi(argv[1]) : 50000;
    if (collrun_init(&ctx) != COLLRUN_OK || collrun_group_get(ctx, "world", &g) != COLLRUN_OK)
        return 1;
    for (int b = 0; b < BATCHES; b++) {
        double start = now_us();
        for (int i = 0; i < calls; i++)
            if (collrun_allreduce(g, &x, &x, 1, COLLRUN_FLOAT64, COLLRUN_SUM) != COLLRUN_OK)
                return 1;
        us[b] = (now_us() - start) / calls;
    }
    qsort(us, BATCHES, sizeof *us, compare);
    if (collrun_rank(g) == 0)
        printf("%.4f\n", us[BATCHES / 2]);
    return collrun_finalize(ctx);
}
