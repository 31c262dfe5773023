/* SPDX-License-Identifier: Apache-2.0
 *
 * Values and moments that the sweep's streams leave out. Values: NaN spreads through MIN, MAX, SUM
 * and PROD; infinities; denormals survive; the extremes of integers; AVG of negatives; sums of
 * halves that only come out right when they accumulate in float32. Moments (suite_sync): an
 * operation of count 0 still waits for those whose data it would need, which shows by the clock
 * that ranks of one host share.
 */
#include "conform.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* More than a vector register holds of any type, and a tail. */
enum { MANY = 37 };

static bool is_nan(enum collrun_dtype dtype, const unsigned char *element)
{
    double d;
    float f;
    uint16_t h;
    memcpy(&d, element, sizeof d);
    memcpy(&f, element, sizeof f);
    memcpy(&h, element, sizeof h);
    if (dtype == COLLRUN_FLOAT64)
        return isnan(d);
    if (dtype == COLLRUN_FLOAT32)
        return isnan(f);
    return (h & 0x7fff) > (dtype == COLLRUN_FLOAT16 ? 0x7c00 : 0x7f80);
}

/* `count` elements alike; `want` must come out of each, on each rank. */
static void expect(struct team *team, enum collrun_dtype dtype, enum collrun_op op, int way,
                   size_t count, const void *mine, const void *want, bool nan, const char *what)
{
    static const char *const ways[] = {"allreduce", "reduce_scatter", "reduce"};
    unsigned char in[8 * MAX_RANKS * MANY], out[8 * MANY + 8];
    char got[48], text[48];
    size_t w = width(dtype);
    int root = team->size - 1;
    struct collrun_group *g = team->group;
    for (size_t i = 0; i < (size_t)team->size * count; i++)
        memcpy(in + i * w, mine, w);
    memset(out, 0x11, sizeof out);
    int status = way == 0   ? collrun_allreduce(g, in, out, count, dtype, op)
                 : way == 1 ? collrun_reduce_scatter(g, in, out, count, dtype, op)
                            : collrun_reduce(g, in, out, count, dtype, op, root);
    team_case(team);
    if (!team_want(team, status, COLLRUN_OK, what) || (way == 2 && team->rank != root))
        return;
    for (size_t i = 0; i < count; i++) {
        const unsigned char *at = out + i * w;
        if (nan ? is_nan(dtype, at) : memcmp(at, want, w) == 0)
            continue;
        stream_print(dtype, at, got, sizeof got);
        stream_print(dtype, want, text, sizeof text);
        team_fail(team, "%s by %s of %s: element %zu of %zu is %s, expected %s", what, ways[way],
                  dtype_names[dtype], i, count, got, nan ? "nan" : text);
        return;
    }
}

/* The same reduction by three ways, of one element and of several. */
static void expect_everywhere(struct team *team, enum collrun_dtype dtype, enum collrun_op op,
                              const void *mine, const void *want, bool nan, const char *what)
{
    for (int way = 0; way < 6 && !team->dead; way++)
        expect(team, dtype, op, way / 2, way % 2 != 0 ? MANY : 1, mine, want, nan, what);
}

/* Rank `odd` of the group brings `a`, all others `b`. */
static void floats(struct team *team, enum collrun_op op, double a, double b, double want,
                   const char *what)
{
    int odd = team->size - 1;
    double d = team->rank == odd ? a : b;
    float f = (float)d, want_f = (float)want;
    expect_everywhere(team, COLLRUN_FLOAT64, op, &d, &want, isnan(want), what);
    expect_everywhere(team, COLLRUN_FLOAT32, op, &f, &want_f, isnan(want), what);
    if (!team->run->full)
        return;
    uint16_t h = half_of(f), want_h = half_of(want_f);
    expect_everywhere(team, COLLRUN_FLOAT16, op, &h, &want_h, isnan(want), what);
    h = bfloat_of(f), want_h = bfloat_of(want_f);
    expect_everywhere(team, COLLRUN_BFLOAT16, op, &h, &want_h, isnan(want), what);
}

static void float_values(struct team *team)
{
    bool several = team->size > 1;
    floats(team, COLLRUN_MIN, NAN, 1, NAN, "min with a nan");
    floats(team, COLLRUN_MAX, NAN, 1, NAN, "max with a nan");
    floats(team, COLLRUN_MIN, 1, NAN, several ? (double)NAN : 1, "min with nans");
    floats(team, COLLRUN_MAX, 1, NAN, several ? (double)NAN : 1, "max with nans");
    floats(team, COLLRUN_SUM, NAN, 1, NAN, "sum with a nan");
    floats(team, COLLRUN_PROD, NAN, 1, NAN, "prod with a nan");
    floats(team, COLLRUN_AVG, NAN, 1, NAN, "avg with a nan");
    floats(team, COLLRUN_MIN, -INFINITY, INFINITY, -INFINITY, "min with infinities");
    floats(team, COLLRUN_MAX, INFINITY, -INFINITY, INFINITY, "max with infinities");
    floats(team, COLLRUN_SUM, INFINITY, 1, INFINITY, "sum with an infinity");
    floats(team, COLLRUN_SUM, -INFINITY, INFINITY, several ? (double)NAN : (double)-INFINITY,
           "sum of opposite infinities");
    floats(team, COLLRUN_PROD, INFINITY, 0, several ? (double)NAN : (double)INFINITY,
           "prod of infinity and zero");
    double n = team->size;
    double tiny = 4.9406564584124654e-324, want = tiny * n;
    expect_everywhere(team, COLLRUN_FLOAT64, COLLRUN_SUM, &tiny, &want, false, "sum of denormals");
    expect_everywhere(team, COLLRUN_FLOAT64, COLLRUN_MIN, &tiny, &tiny, false, "min of denormals");
    float tiny_f = 1.40129846e-45f, want_f = tiny_f * (float)n;
    expect_everywhere(team, COLLRUN_FLOAT32, COLLRUN_SUM, &tiny_f, &want_f, false,
                      "sum of denormals");
    expect_everywhere(team, COLLRUN_FLOAT32, COLLRUN_MAX, &tiny_f, &tiny_f, false,
                      "max of denormals");
    double huge = DBL_MAX, past = several ? (double)INFINITY : DBL_MAX;
    expect_everywhere(team, COLLRUN_FLOAT64, COLLRUN_SUM, &huge, &past, false,
                      "sum past the range");
}

/* AVG sums, then divides and rounds toward zero; extremes of MIN and MAX; sums that wrap. */
static void int_values(struct team *team)
{
    int n = team->size;
    int32_t mine = team->rank == 0 ? -(2 * n - 1) : 0, want = -(2 * n - 1) / n;
    expect_everywhere(team, COLLRUN_INT32, COLLRUN_AVG, &mine, &want, false, "avg of a negative");
    int64_t mine64 = team->rank == 0 ? -1 : 0, want64 = n == 1 ? -1 : 0;
    expect_everywhere(team, COLLRUN_INT64, COLLRUN_AVG, &mine64, &want64, false,
                      "avg of minus one");
    int64_t big = INT64_MAX, wrapped = (int64_t)((uint64_t)INT64_MAX * (uint64_t)n);
    expect_everywhere(team, COLLRUN_INT64, COLLRUN_SUM, &big, &wrapped, false, "sum that wraps");
    int32_t most32 = INT32_MAX, mean = (int32_t)((uint32_t)INT32_MAX * (uint32_t)n) / n;
    expect_everywhere(team, COLLRUN_INT32, COLLRUN_AVG, &most32, &mean, false,
                      "avg of a sum that wraps");
    int32_t low = team->rank == n - 1 ? INT32_MIN : INT32_MAX, lowest = INT32_MIN;
    expect_everywhere(team, COLLRUN_INT32, COLLRUN_MIN, &low, &lowest, false, "min of extremes");
    uint8_t byte = team->rank == 0 ? 200 : 100, most = 200;
    expect_everywhere(team, COLLRUN_UINT8, COLLRUN_MAX, &byte, &most, false,
                      "max of unsigned bytes");
    int64_t wide = team->rank == 0 ? ((int64_t)1 << 40) + 1 : ((int64_t)1 << 40),
            top = ((int64_t)1 << 40) + 1;
    expect_everywhere(team, COLLRUN_INT64, COLLRUN_MAX, &wide, &top, false, "max past 32 bits");
}

/* 2048 + 1 is 2048 in float16, 256 + 1 is 256 in bfloat16: only a float32 accumulator gets to the
 * sum. */
static void half_values(struct team *team)
{
    if (!team->run->full)
        return;
    float n = (float)(team->size - 1), one = team->rank == 0 ? 2048.0f : 1.0f;
    uint16_t mine = half_of(one), want = half_of(2048.0f + n);
    expect_everywhere(team, COLLRUN_FLOAT16, COLLRUN_SUM, &mine, &want, false, "sum of halves");
    one = team->rank == 0 ? 256.0f : 1.0f;
    mine = bfloat_of(one), want = bfloat_of(256.0f + n);
    expect_everywhere(team, COLLRUN_BFLOAT16, COLLRUN_SUM, &mine, &want, false, "sum of halves");
    mine = half_of(5.9604645e-8f), want = half_of(5.9604645e-8f * (float)team->size);
    expect_everywhere(team, COLLRUN_FLOAT16, COLLRUN_SUM, &mine, &want, false,
                      "sum of denormal halves");
    expect_everywhere(team, COLLRUN_FLOAT16, COLLRUN_MIN, &mine, &mine, false,
                      "min of denormal halves");
    mine = half_of(65504.0f), want = half_of(65504.0f * (float)team->size);
    expect_everywhere(team, COLLRUN_FLOAT16, COLLRUN_SUM, &mine, &want, false,
                      "sum past the range of halves");
}

void suite_special(struct team *team)
{
    float_values(team);
    int_values(team);
    half_values(team);
}

/* ---- count 0 and barriers still synchronise ---- */
static int empty_call(struct team *team, enum collrun_kind kind, int root)
{
    char a = 0, b = 0;
    struct collrun_group *g = team->group;
    switch (kind) {
    case COLLRUN_BARRIER:
        return collrun_barrier(g);
    case COLLRUN_ALLREDUCE:
        return collrun_allreduce(g, &a, &b, 0, COLLRUN_UINT8, COLLRUN_SUM);
    case COLLRUN_ALLGATHER:
        return collrun_allgather(g, &a, &b, 0, COLLRUN_UINT8);
    case COLLRUN_REDUCE_SCATTER:
        return collrun_reduce_scatter(g, &a, &b, 0, COLLRUN_UINT8, COLLRUN_SUM);
    case COLLRUN_REDUCE:
        return collrun_reduce(g, &a, &b, 0, COLLRUN_UINT8, COLLRUN_SUM, root);
    case COLLRUN_BROADCAST:
        return collrun_broadcast(g, &a, 0, COLLRUN_UINT8, root);
    case COLLRUN_GATHER:
        return collrun_gather(g, &a, &b, 0, COLLRUN_UINT8, root);
    case COLLRUN_SCATTER:
        return collrun_scatter(g, &a, &b, 0, COLLRUN_UINT8, root);
    default:
        return collrun_alltoall(g, &a, &b, 0, COLLRUN_UINT8);
    }
}

/* Whether this rank may not leave before `late` has entered. */
static bool must_wait(const struct team *team, enum collrun_kind kind, int root, int late)
{
    if (kind == COLLRUN_BROADCAST || kind == COLLRUN_SCATTER)
        return late == root;
    if (kind == COLLRUN_REDUCE || kind == COLLRUN_GATHER)
        return team->rank == root;
    return true;
}

static void sync_once(struct team *team, enum collrun_kind kind, int root, int late)
{
    int status = collrun_barrier(team->group);
    if (!team_want(team, status, COLLRUN_OK, "barrier before an empty operation"))
        return;
    if (team->rank == late) {
        struct timespec pause = {.tv_nsec = 3000000};
        nanosleep(&pause, NULL);
    }
    double entered = now_s();
    status = empty_call(team, kind, root);
    double left = now_s();
    team_case(team);
    if (!team_want(team, status, COLLRUN_OK, kind_names[kind]))
        return;
    status = collrun_broadcast(team->group, &entered, 1, COLLRUN_FLOAT64, late);
    if (!team_want(team, status, COLLRUN_OK, "broadcast of the time of entry"))
        return;
    if (must_wait(team, kind, root, late) && left < entered)
        team_fail(team, "%s of count 0, root %d: returned %.0f us before rank %d came",
                  kind_names[kind], root, (entered - left) * 1e6, late);
}

void suite_sync(struct team *team)
{
    for (int kind = COLLRUN_BARRIER; kind <= COLLRUN_ALLTOALL; kind++) {
        if (!kind_in_scope(team->run, (enum collrun_kind)kind))
            continue;
        for (int late = 0; late < team->size && !team->dead; late++)
            sync_once(team, (enum collrun_kind)kind, (late + kind) % 2 == 0 ? late : 0, late);
    }
}
