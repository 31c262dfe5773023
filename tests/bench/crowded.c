/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks cost that do not have their cores to themselves. A workload; the parameter `mode`:
 *   calls    an allreduce of 8 bytes and one of 8 KiB, again and again, after the ranks have slept:
 *            us per call
 *   wait     rank 0 sleeps for a second, the others wait for it in a barrier: their CPU time
 *   compute  each rank computes for 1 ms and calls an allreduce, `pieces` times: the whole time,
 * and the CPU time of all ranks Rank 0 prints the line.
 */
#include <collrun/workload.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { WINDOWS = 9, LARGE_BYTES = 8192 };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* CPU time of this process, in us. */
static double cpu_us(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1e6 +
           (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The others sleep meanwhile, and wake up on any core. */
static void sleep_rank_0(const struct collrun_ctx *ctx, struct collrun_group *g, long ns)
{
    const struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    if (collrun_world_rank(ctx) == 0)
        nanosleep(&t, NULL);
    collrun_barrier(g);
}

/* One window, until the slowest rank finds that it has lasted long enough. */
static double us_per_call(struct collrun_ctx *ctx, struct collrun_group *g, size_t bytes, char *in,
                          char *out)
{
    const double window_us = 1e3 * (double)collrun_param_int(ctx, "window_ms");
    const double start = now_us();
    double us = 0, longest = 0;
    long calls = 0;
    while (longest < window_us) {
        for (int i = 0; i < 50; i++, calls++)
            collrun_allreduce(g, in, out, bytes / sizeof(float), COLLRUN_FLOAT32, COLLRUN_SUM);
        us = now_us() - start;
        collrun_allreduce(g, &us, &longest, 1, COLLRUN_FLOAT64, COLLRUN_MAX);
    }
    return us / (double)calls;
}

static void run_calls(struct collrun_ctx *ctx, struct collrun_group *g)
{
    static char in[LARGE_BYTES], out[LARGE_BYTES];
    static const size_t sizes[] = {8, LARGE_BYTES};
    double us[2][WINDOWS];
    for (int w = 0; w < WINDOWS; w++)
        for (int s = 0; s < 2; s++) {
            sleep_rank_0(ctx, g, 30000000);
            us[s][w] = us_per_call(ctx, g, sizes[s], in, out);
        }
    for (int s = 0; s < 2; s++)
        qsort(us[s], WINDOWS, sizeof us[s][0], compare);
    if (collrun_world_rank(ctx) == 0)
        printf("allreduce of 8 B %.3f us (%.3f to %.3f), of 8 KiB %.3f us (%.3f to %.3f)\n",
               us[0][WINDOWS / 2], us[0][1], us[0][WINDOWS - 2], us[1][WINDOWS / 2], us[1][1],
               us[1][WINDOWS - 2]);
}

static double most_of_all(struct collrun_group *g, double value)
{
    double most = 0;
    collrun_allreduce(g, &value, &most, 1, COLLRUN_FLOAT64, COLLRUN_MAX);
    return most;
}

static void run_wait(struct collrun_ctx *ctx, struct collrun_group *g)
{
    collrun_barrier(g);
    const double before = cpu_us();
    sleep_rank_0(ctx, g, 1000000000);
    const double most = most_of_all(g, cpu_us() - before);
    if (collrun_world_rank(ctx) == 0)
        printf("a second in a barrier: %.2f ms of CPU time in the rank that took most\n",
               most / 1e3);
}

/* Always the same work, which takes 1 ms on a core that it has to itself. */
static double work(long steps)
{
    volatile double x = 1;
    for (long i = 0; i < steps; i++)
        x = x * 1.0000001;
    return x;
}

static long steps_of_a_millisecond(void)
{
    const long steps = 100000;
    double best = 1e9;
    for (int i = 0; i < 20; i++) {
        const double start = now_us();
        work(steps);
        const double us = now_us() - start;
        best = us < best ? us : best;
    }
    return (long)((double)steps * 1e3 / best);
}

static void run_compute(struct collrun_ctx *ctx, struct collrun_group *g)
{
    const int ranks = collrun_world_size(ctx), pieces = (int)collrun_param_int(ctx, "pieces");
    float one = 1, sum;
    int64_t steps = collrun_world_rank(ctx) == 0 ? steps_of_a_millisecond() : 0;
    collrun_broadcast(g, &steps, 1, COLLRUN_INT64, 0);
    collrun_barrier(g);
    const double start = now_us(), before = cpu_us();
    for (int i = 0; i < pieces; i++) {
        work(steps);
        collrun_allreduce(g, &one, &sum, 1, COLLRUN_FLOAT32, COLLRUN_SUM);
    }
    const double seconds = (now_us() - start) / 1e6;
    double own = (cpu_us() - before) / 1e6, all = 0;
    collrun_allreduce(g, &own, &all, 1, COLLRUN_FLOAT64, COLLRUN_SUM);
    if (collrun_world_rank(ctx) == 0)
        printf("%d x 1 ms on each rank: %.2f s, %.2f s of CPU time, of %g s of work\n", pieces,
               seconds, all, ranks * pieces / 1e3);
}

static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *world;
    const char *mode = collrun_param_string(ctx, "mode");
    const int rc = collrun_group_get(ctx, "world", &world);
    (void)state;
    if (rc != COLLRUN_OK)
        return rc;
    if (strcmp(mode, "wait") == 0)
        run_wait(ctx, world);
    else if (strcmp(mode, "compute") == 0)
        run_compute(ctx, world);
    else
        run_calls(ctx, world);
    return 0;
}

static const struct collrun_param params[] = {
    {.name = "mode",
     .type = COLLRUN_PARAM_STRING,
     .def = "calls",
     .help = "calls, wait or compute"},
    {.name = "window_ms", .type = COLLRUN_PARAM_INT, .def = "200", .help = "of calls"},
    {.name = "pieces", .type = COLLRUN_PARAM_INT, .def = "1000", .help = "of work, 1 ms each"},
    {0},
};
COLLRUN_WORKLOAD(.name = "crowded", .params = params, .run = run);
