/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun_start and collrun_wait beside the blocking call: an allreduce of each size, in windows of
 * both in turn. A workload; rank 0 prints a line per size: medians, and the median of the ratios of
 * neighbouring windows with its quartiles.
 */
#include <collrun/workload.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WINDOWS = 41, SIZE_MAX_BYTES = 16 << 20 };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void call_blocking(struct collrun_group *g, const float *in, float *out, size_t count)
{
    collrun_allreduce(g, in, out, count, COLLRUN_FLOAT32, COLLRUN_SUM);
}

static void call_started(struct collrun_group *g, const float *in, float *out, size_t count)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    struct collrun_request *request;
    call.send = in;
    call.recv = out;
    call.count = count;
    call.dtype = COLLRUN_FLOAT32;
    call.op = COLLRUN_SUM;
    if (collrun_start(g, &call, &request) == COLLRUN_OK)
        collrun_wait(request);
}

static double us_per_call(struct collrun_group *g, bool started, const float *in, float *out,
                          size_t count, int calls)
{
    collrun_barrier(g);
    const double start = now_us();
    for (int i = 0; i < calls; i++)
        (started ? call_started : call_blocking)(g, in, out, count);
    return (now_us() - start) / calls;
}

/* About `window_us` each. */
static void measure(struct collrun_group *g, const float *in, float *out, size_t bytes,
                    double window_us)
{
    const size_t count = bytes / sizeof *in;
    double us[2][WINDOWS], ratios[WINDOWS];
    float calls = (float)(window_us / us_per_call(g, false, in, out, count, 20)), most;
    collrun_allreduce(g, &calls, &most, 1, COLLRUN_FLOAT32, COLLRUN_MAX);
    for (int w = 0; w < WINDOWS; w++) {
        for (int k = 0; k < 2; k++) {
            const int started = (w + k) % 2;
            us[started][w] = us_per_call(g, started != 0, in, out, count, 1 + (int)most);
        }
        ratios[w] = us[1][w] / us[0][w];
    }
    qsort(us[0], WINDOWS, sizeof us[0][0], compare);
    qsort(us[1], WINDOWS, sizeof us[1][0], compare);
    qsort(ratios, WINDOWS, sizeof ratios[0], compare);
    printf("%10zu %10.3f %10.3f %8.2f   %.2f-%.2f\n", bytes, us[0][WINDOWS / 2], us[1][WINDOWS / 2],
           ratios[WINDOWS / 2], ratios[WINDOWS / 4], ratios[3 * WINDOWS / 4]);
}

static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *world;
    int rc = collrun_group_get(ctx, "world", &world);
    float *in = calloc(2, SIZE_MAX_BYTES);
    (void)state;
    if (rc != COLLRUN_OK || !in)
        return 1;
    memset(in, 0, (size_t)2 * SIZE_MAX_BYTES); /* its pages differ from now on */
    if (collrun_world_rank(ctx) != 0 && !freopen("/dev/null", "w", stdout))
        return 1;
    printf("%10s %10s %10s %8s\n", "bytes", "blocking", "started", "ratio");
    for (size_t bytes = 8; bytes <= SIZE_MAX_BYTES; bytes *= 8)
        measure(world, in, in + SIZE_MAX_BYTES / sizeof *in, bytes,
                1e3 * (double)collrun_param_int(ctx, "window_ms"));
    free(in);
    return 0;
}

static const struct collrun_param params[] = {
    {.name = "window_ms", .type = COLLRUN_PARAM_INT, .def = "4", .help = "of each measurement"},
    {0},
};
COLLRUN_WORKLOAD(.name = "start_wait", .params = params, .run = run);
