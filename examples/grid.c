/* SPDX-License-Identifier: Apache-2.0
 *
 * Grid: a toy training run on a mesh with the axes pp and dp, in which every rank is a member of
 * three groups:
 *
 *            dp=0    dp=1    dp=2   ...
 *     pp=0   rank 0  rank 1  rank 2
 *     pp=1   rank 3  rank 4  rank 5
 *     ...
 *
 * - pp: the pipeline of a column moves activations and gradients by send and receive.
 * - dp: the ranks with a copy of one stage sum their gradients by allreduce.
 * - world: all ranks sum the loss of each step.
 *
 * A step sends `micro` microbatches forward, then back; the gradient of each is summed over dp and
 * applied to the weights. With `threads: true` a second thread sums one gradient while the first
 * thread receives the next, so that each rank uses two groups at the same time. The layer adds its
 * weights to its input. All numbers are whole, so every activation, gradient and loss is known in
 * closed form, and each is checked on arrival.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <collrun/workload.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const struct collrun_param params[] = {
    {.name = "steps",
     .type = COLLRUN_PARAM_INT,
     .def = "10",
     .min = "1",
     .max = "10000",
     .help = "training steps"},
    {.name = "micro",
     .type = COLLRUN_PARAM_INT,
     .def = "4",
     .min = "1",
     .max = "64",
     .help = "microbatches per step"},
    {.name = "bytes",
     .type = COLLRUN_PARAM_SIZE,
     .def = "64KiB",
     .min = "8",
     .help = "size of an activation or a gradient"},
    {.name = "threads",
     .type = COLLRUN_PARAM_BOOL,
     .def = "false",
     .help = "sum gradients in a second thread, beside the pipeline"},
    {0},
};

/* The calls of this rank in one group: their number, and the time of each. */
struct timing {
    double *us;
    size_t n;
};

struct grid {
    struct collrun_ctx *ctx;
    struct collrun_group *pipe, *data, *world;
    int stages, width, stage, column;
    int steps, micro, step;
    bool threads;
    size_t count;
    double *weights, *activation, *gradients; /* gradients: one per microbatch */
    struct timing sent, summed, met;

    /* Shared by the two threads of a step. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ready;  /* gradients that may be summed; -1: stop */
    int failed; /* the status of the second thread, read after it has ended */
};

/* The results of one group, sent to rank 0 at the end. */
struct row {
    char group[32], backend[32], ranks[64], operation[16];
    double bytes, busbw_factor, calls, fastest_us, median_us;
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- the closed form ---- */

/* The gradient of microbatch `m` in `column`. */
static double gradient(int column, int m, size_t i)
{
    return column + m + 1 + (double)(i % 7);
}

/* The gradient of microbatch `m`, summed over the columns. */
static double summed_gradient(const struct grid *grid, int m, size_t i)
{
    double n = grid->width;
    return n * gradient(0, m, i) + n * (n - 1) / 2;
}

/* The change of all weights of a stage in one step. */
static double update(const struct grid *grid, size_t i)
{
    double n = grid->micro;
    return n * summed_gradient(grid, 0, i) + grid->width * n * (n - 1) / 2;
}

/* The input of stage `stage`: the sample plus the weights of the stages before, which begin as 1,
 * 2, 3, ... */
static double input(const struct grid *grid, int stage, int column, int m, size_t i)
{
    double weights = stage * (stage + 1) / 2.0 - stage * (grid->step * update(grid, i));
    return column + m + (double)(i % 7) + weights;
}

/* The sum of the first outputs of the last stages, over all columns and microbatches. */
static double expected_loss(const struct grid *grid)
{
    double w = grid->width, m = grid->micro;
    return w * m * input(grid, grid->stages, 0, 0, 0) + m * w * (w - 1) / 2 + w * m * (m - 1) / 2;
}

static int wrong(const struct grid *grid, const char *what, int m, size_t i, double got,
                 double want)
{
    return collrun_fail(grid->ctx,
                        "step %d, stage %d, column %d: %s %d, element %zu is %.17g, expected %.17g",
                        grid->step, grid->stage, grid->column, what, m, i, got, want);
}

/* ---- one step ---- */

static void timing_add(struct timing *timing, double start)
{
    timing->us[timing->n++] = now_us() - start;
}

static int send_to(struct grid *grid, const double *buf, int stage)
{
    double start = now_us();
    int rc = collrun_send(grid->pipe, buf, grid->count, COLLRUN_FLOAT64, stage);
    timing_add(&grid->sent, start);
    return rc;
}

static int forward(struct grid *grid, int m, double *loss)
{
    double *x = grid->activation;
    if (grid->stage > 0) {
        int rc = collrun_recv(grid->pipe, x, grid->count, COLLRUN_FLOAT64, grid->stage - 1);
        if (rc)
            return rc;
    }
    for (size_t i = 0; i < grid->count; i++) {
        double want = input(grid, grid->stage, grid->column, m, i);
        if (grid->stage == 0)
            x[i] = want;
        else if (x[i] != want)
            return wrong(grid, "activation", m, i, x[i], want);
        x[i] += grid->weights[i];
    }
    if (grid->stage < grid->stages - 1)
        return send_to(grid, x, grid->stage + 1);
    *loss += x[0];
    return 0;
}

/* The layer only adds, so the gradient passes through it unchanged. */
static int backward(struct grid *grid, int m)
{
    double *g = grid->gradients + (size_t)m * grid->count;
    bool last = grid->stage == grid->stages - 1;
    if (!last) {
        int rc = collrun_recv(grid->pipe, g, grid->count, COLLRUN_FLOAT64, grid->stage + 1);
        if (rc)
            return rc;
    }
    for (size_t i = 0; i < grid->count; i++) {
        double want = gradient(grid->column, m, i);
        if (last)
            g[i] = want;
        else if (g[i] != want)
            return wrong(grid, "gradient", m, i, g[i], want);
    }
    return grid->stage > 0 ? send_to(grid, g, grid->stage - 1) : 0;
}

static int sum_gradient(struct grid *grid, int m)
{
    double *g = grid->gradients + (size_t)m * grid->count, start = now_us();
    int rc = collrun_allreduce(grid->data, g, g, grid->count, COLLRUN_FLOAT64, COLLRUN_SUM);
    if (rc)
        return rc;
    timing_add(&grid->summed, start);
    for (size_t i = 0; i < grid->count; i++) {
        double want = summed_gradient(grid, m, i);
        if (g[i] != want)
            return wrong(grid, "summed gradient", m, i, g[i], want);
        grid->weights[i] -= g[i];
    }
    return 0;
}

/* The second thread: sums each gradient as soon as it is ready. collrun_error() belongs to the
 * thread in which the error happened, so this thread reports it. */
static void *sum_gradients(void *arg)
{
    struct grid *grid = arg;
    for (int m = 0; m < grid->micro && !grid->failed; m++) {
        pthread_mutex_lock(&grid->lock);
        while (grid->ready >= 0 && grid->ready <= m)
            pthread_cond_wait(&grid->changed, &grid->lock);
        bool stop = grid->ready < 0;
        pthread_mutex_unlock(&grid->lock);
        if (stop)
            break;
        grid->failed = sum_gradient(grid, m);
        if (grid->failed < 0)
            grid->failed = collrun_fail(grid->ctx, "%s", collrun_error());
    }
    return NULL;
}

static void set_ready(struct grid *grid, int ready)
{
    pthread_mutex_lock(&grid->lock);
    grid->ready = ready;
    pthread_cond_signal(&grid->changed);
    pthread_mutex_unlock(&grid->lock);
}

static int backward_in_two_threads(struct grid *grid)
{
    pthread_t summer;
    grid->ready = 0;
    if (pthread_create(&summer, NULL, sum_gradients, grid) != 0)
        return collrun_fail(grid->ctx, "cannot start a thread");
    int rc = 0;
    for (int m = 0; m < grid->micro && !rc; m++) {
        rc = backward(grid, m);
        set_ready(grid, rc ? -1 : m + 1);
    }
    pthread_join(summer, NULL);
    return grid->failed ? grid->failed : rc;
}

static int backward_in_one_thread(struct grid *grid)
{
    for (int m = 0; m < grid->micro; m++) {
        int rc = backward(grid, m);
        if (!rc)
            rc = sum_gradient(grid, m);
        if (rc)
            return rc;
    }
    return 0;
}

static int step(struct grid *grid)
{
    double loss = 0;
    for (int m = 0; m < grid->micro; m++) {
        int rc = forward(grid, m, &loss);
        if (rc)
            return rc;
    }
    int rc = grid->threads ? backward_in_two_threads(grid) : backward_in_one_thread(grid);
    if (rc)
        return rc;

    double start = now_us(), want = expected_loss(grid);
    rc = collrun_allreduce(grid->world, &loss, &loss, 1, COLLRUN_FLOAT64, COLLRUN_SUM);
    timing_add(&grid->met, start);
    if (!rc && loss != want)
        return wrong(grid, "loss", 0, 0, loss, want);
    return rc;
}

/* ---- the whole run ---- */

static void fini(struct collrun_ctx *ctx, void *state)
{
    (void)ctx;
    struct grid *grid = state;
    free(grid->weights);
    free(grid->activation);
    free(grid->gradients);
    free(grid->sent.us);
    free(grid->summed.us);
    free(grid->met.us);
    pthread_cond_destroy(&grid->changed);
    pthread_mutex_destroy(&grid->lock);
    free(grid);
}

static int allocate(struct grid *grid)
{
    size_t steps = (size_t)grid->steps, micro = (size_t)grid->micro;
    grid->weights = calloc(grid->count, sizeof(double));
    grid->activation = calloc(grid->count, sizeof(double));
    grid->gradients = calloc(grid->count, micro * sizeof(double));
    grid->sent.us = calloc(steps * micro * 2, sizeof(double));
    grid->summed.us = calloc(steps * micro, sizeof(double));
    grid->met.us = calloc(steps, sizeof(double));
    if (!grid->weights || !grid->activation || !grid->gradients || !grid->sent.us ||
        !grid->summed.us || !grid->met.us)
        return collrun_fail(grid->ctx, "out of memory for %d buffers of %zu values",
                            grid->micro + 2, grid->count);
    for (size_t i = 0; i < grid->count; i++)
        grid->weights[i] = grid->stage + 1;
    return 0;
}

/* The place of this rank in the mesh is its rank in the two groups. */
static int lay_out(struct grid *grid)
{
    int rc = collrun_group_get(grid->ctx, "pp", &grid->pipe);
    if (!rc)
        rc = collrun_group_get(grid->ctx, "dp", &grid->data);
    if (!rc)
        rc = collrun_group_get(grid->ctx, "world", &grid->world);
    if (rc)
        return rc;
    grid->stages = collrun_size(grid->pipe);
    grid->width = collrun_size(grid->data);
    grid->stage = collrun_rank(grid->pipe);
    grid->column = collrun_rank(grid->data);
    if (grid->stages < 2)
        return collrun_fail(grid->ctx, "a pipeline needs at least two stages");
    if (collrun_world_rank(grid->ctx) != grid->stage * grid->width + grid->column)
        return collrun_fail(grid->ctx, "the mesh is not {pp: ..., dp: ...} of all ranks");
    return 0;
}

static int init(struct collrun_ctx *ctx, void **state)
{
    struct grid *grid = calloc(1, sizeof *grid);
    if (!grid)
        return collrun_fail(ctx, "out of memory");
    pthread_mutex_init(&grid->lock, NULL);
    pthread_cond_init(&grid->changed, NULL);
    grid->ctx = ctx;
    grid->steps = (int)collrun_param_int(ctx, "steps");
    grid->micro = (int)collrun_param_int(ctx, "micro");
    grid->threads = collrun_param_bool(ctx, "threads");
    grid->count = collrun_param_size(ctx, "bytes") / sizeof(double);
    int rc = lay_out(grid);
    if (!rc)
        rc = allocate(grid);
    if (rc) {
        fini(ctx, grid);
        return rc;
    }
    *state = grid;
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Writes the world ranks of a group as "0-3", or "0 4 8". */
static void list_ranks(struct collrun_group *group, char *text, size_t len)
{
    int n = collrun_size(group), first = collrun_world_rank_of(group, 0), run = 1;
    while (run < n && collrun_world_rank_of(group, run) == first + run)
        run++;
    if (run == n && n > 1) {
        snprintf(text, len, "%d-%d", first, first + n - 1);
        return;
    }
    size_t used = 0;
    for (int i = 0; i < n && used < len; i++)
        used += (size_t)snprintf(text + used, len - used, "%s%d", i ? " " : "",
                                 collrun_world_rank_of(group, i));
}

static struct row make_row(struct collrun_group *group, const char *operation, size_t bytes,
                           double busbw_factor, struct timing *timing)
{
    struct row row = {
        .bytes = (double)bytes, .busbw_factor = busbw_factor, .calls = (double)timing->n};
    snprintf(row.group, sizeof row.group, "%s", collrun_group_name(group));
    snprintf(row.backend, sizeof row.backend, "%s", collrun_group_backend(group));
    snprintf(row.operation, sizeof row.operation, "%s", operation);
    list_ranks(group, row.ranks, sizeof row.ranks);
    if (timing->n > 0) {
        qsort(timing->us, timing->n, sizeof *timing->us, by_value);
        row.fastest_us = timing->us[0];
        row.median_us = timing->us[timing->n / 2];
    }
    return row;
}

static void print_heading(const struct grid *grid, double seconds)
{
    printf(
        "grid: %d pipelines of %d stages, %d steps of %d microbatches in %.2f s, %s per rank\n\n",
        grid->width, grid->stages, grid->steps, grid->micro, seconds,
        grid->threads ? "two threads" : "one thread");
    printf("  %-7s %-12s %-8s %-10s %8s %13s %12s %13s %12s\n", "group", "ranks", "backend",
           "operation", "message", "verified", "median", "fastest", "busbw");
}

/* A call may wait for ranks that are still computing; the fastest call shows the speed of the
 * backend. */
static void print_row(const struct row *row)
{
    const char *unit = row->bytes >= 1048576 ? "MiB" : row->bytes >= 1024 ? "KiB" : "B";
    double scale = row->bytes >= 1048576 ? 1048576 : row->bytes >= 1024 ? 1024 : 1;
    char busbw[32] = "-"; /* shown for large messages only */
    if (row->bytes >= 1024)
        snprintf(busbw, sizeof busbw, "%.2f GB/s",
                 row->bytes / row->fastest_us / 1e3 * row->busbw_factor);
    printf("  %-7s %-12s %-8s %-10s %4.4g %-3s %6.0f of %-4.0f %9.1f us %10.1f us %12s\n",
           row->group, row->ranks, row->backend, row->operation, row->bytes / scale, unit,
           row->calls, row->calls, row->median_us, row->fastest_us, busbw);
}

/* The first rank of each group sends its results to rank 0 of the world, which prints them. */
static int report_row(struct grid *grid, struct row *row, int leader)
{
    int rank = collrun_rank(grid->world), rc = 0;
    if (leader != 0 && rank == leader)
        return collrun_send(grid->world, row, sizeof *row, COLLRUN_UINT8, 0);
    if (rank != 0)
        return 0;
    if (leader != 0)
        rc = collrun_recv(grid->world, row, sizeof *row, COLLRUN_UINT8, leader);
    if (!rc)
        print_row(row);
    return rc;
}

static int report(struct grid *grid, double seconds)
{
    int width = grid->width, stages = grid->stages, rc = 0;
    size_t bytes = grid->count * sizeof(double);
    struct row pipe = make_row(grid->pipe, "send/recv", bytes, 1, &grid->sent);
    struct row data =
        make_row(grid->data, "allreduce", bytes, 2.0 * (width - 1) / width, &grid->summed);
    struct row world = make_row(grid->world, "allreduce", sizeof(double),
                                2.0 * (width * stages - 1) / (width * stages), &grid->met);
    if (collrun_rank(grid->world) == 0)
        print_heading(grid, seconds);
    for (int column = 0; column < width && !rc; column++)
        rc = report_row(grid, &pipe, column);
    for (int stage = 0; stage < stages && !rc; stage++)
        rc = report_row(grid, &data, stage * width);
    return rc ? rc : report_row(grid, &world, 0);
}

static int run(struct collrun_ctx *ctx, void *state)
{
    struct grid *grid = state;
    double start = now_us();
    for (grid->step = 0; grid->step < grid->steps; grid->step++) {
        int rc = step(grid);
        if (rc)
            return rc;
        collrun_progress(ctx, (uint64_t)grid->step + 1, (uint64_t)grid->steps, "steps");
    }
    double seconds = (now_us() - start) / 1e6;
    collrun_metric(ctx, "steps_per_s", grid->steps / seconds);
    return report(grid, seconds);
}

COLLRUN_WORKLOAD(
        .name = "grid",
        .summary = "data-parallel and pipeline groups over the same ranks; every value is checked",
        .params = params, .init = init, .run = run, .fini = fini);
