/* SPDX-License-Identifier: Apache-2.0
 *
 * Allreduce: reduces a buffer over one group repeatedly, checks every element, and reports time and
 * bandwidth.
 *
 * - The input depends only on the rank and the index of the element, so every rank can compute the
 *   expected result without communication.
 * - The time of an iteration is that of its slowest rank. algbw is bytes / time; busbw is
 *   algbw * 2 (n - 1) / n, which does not depend on n on an ideal network (nccl-tests,
 *   doc/PERFORMANCE.md).
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <collrun/workload.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct collrun_param params[] = {
    {.name = "group",
     .type = COLLRUN_PARAM_STRING,
     .def = "",
     .help = "the group that reduces; default: the first one"},
    {.name = "bytes",
     .type = COLLRUN_PARAM_SIZE,
     .def = "1MiB",
     .min = "8",
     .help = "size of each rank's buffer"},
    {.name = "iters",
     .type = COLLRUN_PARAM_INT,
     .def = "20",
     .min = "1",
     .max = "1000000",
     .help = "timed calls"},
    {.name = "warmup",
     .type = COLLRUN_PARAM_INT,
     .def = "2",
     .min = "0",
     .max = "1000000",
     .help = "calls before the timed ones"},
    {.name = "dtype",
     .type = COLLRUN_PARAM_ENUM,
     .def = "float32",
     .help = "element type",
     .choices = "float32|float64|int32|int64|uint8|bfloat16"},
    {.name = "op",
     .type = COLLRUN_PARAM_ENUM,
     .def = "sum",
     .help = "operator",
     .choices = "sum|prod|min|max|avg"},
    {.name = "verify",
     .type = COLLRUN_PARAM_BOOL,
     .def = "true",
     .help = "check every element of every call"},
    {0},
};

/* In the order of the choices. */
static const enum collrun_dtype dtypes[] = {COLLRUN_FLOAT32, COLLRUN_FLOAT64, COLLRUN_INT32,
                                            COLLRUN_INT64,   COLLRUN_UINT8,   COLLRUN_BFLOAT16};
static const enum collrun_op operators[] = {COLLRUN_SUM, COLLRUN_PROD, COLLRUN_MIN, COLLRUN_MAX,
                                            COLLRUN_AVG};

struct job {
    struct collrun_group *group;
    enum collrun_dtype dtype;
    enum collrun_op op;
    size_t count;
    int rank, size, warmup, iters;
    bool verify;
    void *send, *recv;
    double *us; /* of each iteration */
};

static void fini(struct collrun_ctx *ctx, void *state)
{
    (void)ctx;
    struct job *job = state;
    collrun_free(job->group, job->send);
    collrun_free(job->group, job->recv);
    free(job->us);
    free(job);
}

static int allocate(struct job *job)
{
    size_t bytes = job->count * collrun_dtype_size(job->dtype);
    int rc = collrun_alloc(job->group, bytes, &job->send);
    if (!rc)
        rc = collrun_alloc(job->group, bytes, &job->recv);
    job->us = calloc((size_t)job->iters, sizeof *job->us);
    return rc ? rc : job->us ? 0 : COLLRUN_ERR_NO_MEMORY;
}

static int init(struct collrun_ctx *ctx, void **state)
{
    enum collrun_dtype dtype = dtypes[collrun_param_enum(ctx, "dtype")];
    struct collrun_group *group;
    int rc = collrun_group_get(ctx, collrun_param_string(ctx, "group"), &group);
    if (rc)
        return rc;
    if (dtype == COLLRUN_UINT8 && collrun_size(group) > 248)
        return collrun_fail(ctx, "dtype uint8 is limited to 248 ranks: larger sums do not fit");

    if (collrun_devices(group))
        return collrun_fail(ctx,
                            "group %s uses GPU memory, which this workload does not support; "
                            "use bench",
                            collrun_group_name(group));

    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return collrun_fail(ctx, "out of memory");
    job->group = group;
    job->dtype = dtype;
    job->op = operators[collrun_param_enum(ctx, "op")];
    job->count = collrun_param_size(ctx, "bytes") / collrun_dtype_size(job->dtype);
    job->rank = collrun_rank(group);
    job->size = collrun_size(group);
    job->warmup = (int)collrun_param_int(ctx, "warmup");
    job->iters = (int)collrun_param_int(ctx, "iters");
    job->verify = collrun_param_bool(ctx, "verify");
    rc = allocate(job);
    if (rc) {
        fini(ctx, job);
        return rc;
    }
    *state = job;
    return 0;
}

static void store(enum collrun_dtype dtype, void *buf, size_t i, double value)
{
    switch (dtype) {
    case COLLRUN_FLOAT32:
        ((float *)buf)[i] = (float)value;
        break;
    case COLLRUN_FLOAT64:
        ((double *)buf)[i] = value;
        break;
    case COLLRUN_INT32:
        ((int32_t *)buf)[i] = (int32_t)value;
        break;
    case COLLRUN_INT64:
        ((int64_t *)buf)[i] = (int64_t)value;
        break;
    case COLLRUN_UINT8:
        ((uint8_t *)buf)[i] = (uint8_t)value;
        break;
    default: { /* bfloat16: the upper half of a float32, rounded to nearest even */
        float f = (float)value;
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        ((uint16_t *)buf)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    }
}

static double load(enum collrun_dtype dtype, const void *buf, size_t i)
{
    switch (dtype) {
    case COLLRUN_FLOAT32:
        return ((const float *)buf)[i];
    case COLLRUN_FLOAT64:
        return ((const double *)buf)[i];
    case COLLRUN_INT32:
        return ((const int32_t *)buf)[i];
    case COLLRUN_INT64:
        return (double)((const int64_t *)buf)[i];
    case COLLRUN_UINT8:
        return ((const uint8_t *)buf)[i];
    default: {
        uint32_t bits = (uint32_t)((const uint16_t *)buf)[i] << 16;
        float f;
        memcpy(&f, &bits, sizeof f);
        return f;
    }
    }
}

/* Element i of the input of `rank`: small whole numbers, exact in every dtype. In a product one
 * rank contributes 2 and the others 1, so that nothing overflows. */
static double contribution(const struct job *job, int rank, size_t i)
{
    if (job->op == COLLRUN_PROD)
        return i % (size_t)job->size == (size_t)rank ? 2 : 1;
    return rank + 1 + (double)(i % 7);
}

/* The reduction of the inputs of all ranks, in closed form. Integers wrap; an average of integers
 * is rounded toward zero. */
static double expected(const struct job *job, size_t i)
{
    bool whole =
        job->dtype == COLLRUN_INT32 || job->dtype == COLLRUN_INT64 || job->dtype == COLLRUN_UINT8;
    double n = job->size, first = 1 + (double)(i % 7), sum = n * first + n * (n - 1) / 2;
    if (job->dtype == COLLRUN_UINT8)
        sum = (double)((uint64_t)sum % 256);
    switch (job->op) {
    case COLLRUN_PROD:
        return 2;
    case COLLRUN_MIN:
        return first;
    case COLLRUN_MAX:
        return first + n - 1;
    case COLLRUN_AVG:
        return whole ? (double)(int64_t)(sum / n) : sum / n;
    default:
        return sum;
    }
}

/* The permitted error: an average is rounded once, and partial sums in bfloat16 have 8 bits each.
 */
static double tolerance(const struct job *job, double want)
{
    if (job->dtype == COLLRUN_BFLOAT16)
        return want * job->size / 256;
    return job->op == COLLRUN_AVG ? want * 1e-6 : 0;
}

static int check(struct collrun_ctx *ctx, const struct job *job, int iteration)
{
    for (size_t i = 0; i < job->count; i++) {
        double got = load(job->dtype, job->recv, i), want = expected(job, i);
        double off = got > want ? got - want : want - got;
        if (!(off <= tolerance(job, want))) /* true for NaN as well */
            return collrun_fail(
                ctx, "allreduce in %s, call %d: element %zu of %zu is %.9g, expected %.9g",
                collrun_group_name(job->group), iteration, i, job->count, got, want);
    }
    return 0;
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(struct collrun_ctx *ctx, const struct job *job)
{
    const char *rows[] = {"best", "median", "worst"};
    const double us[] = {job->us[0], job->us[job->iters / 2], job->us[job->iters - 1]};
    double bytes = (double)(job->count * collrun_dtype_size(job->dtype));
    double bus_factor = 2.0 * (job->size - 1) / job->size;
    printf("allreduce in group %s: %d ranks on %s, %zu x %s (%.0f B), %s, %d calls%s\n"
           "          time (us)  algbw (GB/s)  busbw (GB/s)\n",
           collrun_group_name(job->group), job->size, collrun_group_backend(job->group), job->count,
           collrun_param_string(ctx, "dtype"), bytes, collrun_param_string(ctx, "op"), job->iters,
           job->verify ? ", all verified" : ", not verified");
    for (int i = 0; i < 3; i++) {
        double algbw = bytes / us[i] / 1e3;
        printf("  %-6s %10.2f  %12.3f  %12.3f\n", rows[i], us[i], algbw, algbw * bus_factor);
    }
    collrun_metric(ctx, "time_us", us[1]);
    collrun_metric(ctx, "busbw_GBps", bytes / us[1] / 1e3 * bus_factor);
}

/* One timed call. The barrier excludes the time in which other ranks still check the last result.
 */
static int step(struct collrun_ctx *ctx, struct job *job, int iteration, double *us)
{
    memset(job->recv, 0xff, job->count * collrun_dtype_size(job->dtype));
    int rc = collrun_barrier(job->group);
    if (rc)
        return rc;
    double start = now_us();
    rc = collrun_allreduce(job->group, job->send, job->recv, job->count, job->dtype, job->op);
    if (rc)
        return rc;
    *us = now_us() - start;
    return job->verify ? check(ctx, job, iteration) : 0;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    struct job *job = state;
    for (size_t i = 0; i < job->count; i++)
        store(job->dtype, job->send, i, contribution(job, job->rank, i));

    for (int i = -job->warmup; i < job->iters; i++) {
        double us;
        int rc = step(ctx, job, i, &us);
        if (rc)
            return rc;
        if (i < 0)
            continue;
        job->us[i] = us;
        collrun_progress(ctx, (uint64_t)i + 1, (uint64_t)job->iters, "calls");
    }
    int rc = collrun_allreduce(job->group, job->us, job->us, (size_t)job->iters, COLLRUN_FLOAT64,
                               COLLRUN_MAX); /* in place: the slowest rank of every call */
    if (rc)
        return rc;
    qsort(job->us, (size_t)job->iters, sizeof *job->us, by_value);
    if (job->rank == 0)
        report(ctx, job);
    return 0;
}

COLLRUN_WORKLOAD(.name = "allreduce",
                 .summary = "allreduce in one group: verified and timed, with bus bandwidth",
                 .params = params, .init = init, .run = run, .fini = fini);
