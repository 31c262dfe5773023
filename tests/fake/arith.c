/* SPDX-License-Identifier: Apache-2.0
 *
 * Small floating types are computed in float32 and rounded at every step: to nearest, ties to even,
 * by arithmetic on the value rather than on bits.
 */
#include "arith.h"

#include "nccl_abi.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* ---- small floating types: sign, exponent and mantissa bits, bias ---- */

struct format {
    int mantissa, bias, top; /* top: the largest biased exponent that is a number */
    uint32_t nan, infinity;  /* infinity 0: none */
    int bits;
};
static const struct format half = {10, 15, 30, 0x7e00, 0x7c00, 16};
static const struct format bfloat = {7, 127, 254, 0x7fc0, 0x7f80, 16};
static const struct format e4m3 = {3, 7, 15, 0x7f, 0, 8};
static const struct format e5m2 = {2, 15, 30, 0x7e, 0x7c, 8};

static float widen(uint32_t v, const struct format *f)
{
    uint32_t sign = v >> (f->bits - 1), rest = v & ((1u << (f->bits - 1)) - 1);
    int exponent = (int)(rest >> f->mantissa);
    float fraction = (float)(rest & ((1u << f->mantissa) - 1)) / (float)(1u << f->mantissa);
    float value;
    if (f->infinity ? exponent > f->top : rest == f->nan)
        value = f->infinity && rest == f->infinity ? INFINITY : NAN;
    else if (exponent == 0)
        value = ldexpf(fraction, 1 - f->bias);
    else
        value = ldexpf(1 + fraction, exponent - f->bias);
    return sign ? -value : value;
}

static uint32_t narrow(float value, const struct format *f)
{
    uint32_t sign = (signbit(value) ? 1u : 0u) << (f->bits - 1);
    float magnitude = fabsf(value);
    int exponent;
    if (isnan(value))
        return sign | f->nan;
    if (isinf(value))
        return sign | (f->infinity ? f->infinity : f->nan);
    if (magnitude == 0)
        return sign;
    frexpf(magnitude, &exponent);
    exponent = exponent - 1 < 1 - f->bias ? 1 - f->bias : exponent - 1;
    /* in units of the last place; nearbyint rounds ties to even */
    uint32_t units = (uint32_t)nearbyintf(ldexpf(magnitude, f->mantissa - exponent));
    uint32_t one = 1u << f->mantissa;
    uint32_t bits = units < one ? units : units + (uint32_t)(exponent + f->bias - 1) * one;
    uint32_t most = f->infinity ? f->infinity - 1 : f->nan - 1;
    return sign | (bits <= most ? bits : f->infinity ? f->infinity : f->nan);
}

/* ---- one operator on two elements ---- */

#define COMBINE_INT(type)                                                                          \
    static type combine_##type(type a, type b, int op)                                             \
    {                                                                                              \
        switch (op) {                                                                              \
        case ncclProd:                                                                             \
            return (type)((uint64_t)a * (uint64_t)b);                                              \
        case ncclMax:                                                                              \
            return a > b ? a : b;                                                                  \
        case ncclMin:                                                                              \
            return a < b ? a : b;                                                                  \
        default:                                                                                   \
            return (type)((uint64_t)a + (uint64_t)b);                                              \
        }                                                                                          \
    }
COMBINE_INT(int8_t)
COMBINE_INT(uint8_t)
COMBINE_INT(int32_t)
COMBINE_INT(uint32_t)
COMBINE_INT(int64_t)
COMBINE_INT(uint64_t)

static float combine_float(float a, float b, int op)
{
    return op == ncclProd  ? a * b
           : op == ncclMax ? fmaxf(a, b)
           : op == ncclMin ? fminf(a, b)
                           : a + b;
}

static double combine_double(double a, double b, int op)
{
    return op == ncclProd ? a * b : op == ncclMax ? fmax(a, b) : op == ncclMin ? fmin(a, b) : a + b;
}

/* ---- vectors ---- */

#define REDUCE(name, type, combine, first, last)                                                   \
    static void reduce_##name(void *out, const char *const *srcs, int n, size_t count, int op)     \
    {                                                                                              \
        for (size_t i = 0; i < count; i++) {                                                       \
            type x, sum;                                                                           \
            memcpy(&x, srcs[0] + i * sizeof x, sizeof x);                                          \
            sum = first(x);                                                                        \
            for (int k = 1; k < n; k++) {                                                          \
                memcpy(&x, srcs[k] + i * sizeof x, sizeof x);                                      \
                sum = combine(sum, first(x), op);                                                  \
            }                                                                                      \
            sum = last(sum);                                                                       \
            memcpy((char *)out + i * sizeof sum, &sum, sizeof sum);                                \
        }                                                                                          \
    }

#define AS_IS(x) (x)
#define QUOTIENT_INT8(x) ((int8_t)(op == ncclAvg ? (x) / n : (x)))
#define QUOTIENT_UINT8(x) ((uint8_t)(op == ncclAvg ? (x) / n : (x)))
#define QUOTIENT_INT(x) (op == ncclAvg ? (x) / n : (x))
#define QUOTIENT_UINT(x) (op == ncclAvg ? (x) / (unsigned)n : (x))
#define SHARE_FLOAT(x) (op == ncclAvg ? (x) * (1.0f / (float)n) : (x))
#define SHARE_DOUBLE(x) (op == ncclAvg ? (x) * (1.0 / n) : (x))
REDUCE(int8, int8_t, combine_int8_t, AS_IS, QUOTIENT_INT8)
REDUCE(uint8, uint8_t, combine_uint8_t, AS_IS, QUOTIENT_UINT8)
REDUCE(int32, int32_t, combine_int32_t, AS_IS, QUOTIENT_INT)
REDUCE(uint32, uint32_t, combine_uint32_t, AS_IS, QUOTIENT_UINT)
REDUCE(int64, int64_t, combine_int64_t, AS_IS, QUOTIENT_INT)
REDUCE(uint64, uint64_t, combine_uint64_t, AS_IS, QUOTIENT_UINT)
REDUCE(float32, float, combine_float, SHARE_FLOAT, AS_IS)
REDUCE(float64, double, combine_double, SHARE_DOUBLE, AS_IS)

static uint32_t load(const char *at, const struct format *f)
{
    uint16_t wide;
    if (f->bits == 8)
        return (unsigned char)*at;
    memcpy(&wide, at, sizeof wide);
    return wide;
}

static void reduce_small(void *out, const char *const *srcs, int n, size_t count, int op,
                         const struct format *f)
{
    size_t size = (size_t)f->bits / 8;
    float share = widen(narrow(1.0f / (float)n, f), f);
    for (size_t i = 0; i < count; i++) {
        uint32_t sum = 0;
        for (int k = 0; k < n; k++) {
            float x = widen(load(srcs[k] + i * size, f), f);
            if (op == ncclAvg)
                x = widen(narrow(x * share, f), f);
            sum = narrow(k ? combine_float(widen(sum, f), x, op) : x, f);
        }
        uint16_t wide = (uint16_t)sum;
        uint8_t byte = (uint8_t)sum;
        memcpy((char *)out + i * size, size == 1 ? (void *)&byte : (void *)&wide, size);
    }
}

size_t arith_size(int type)
{
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && type < ncclNumTypes ? sizes[type] : 0;
}

void arith_reduce(void *out, const char *const *srcs, int n, size_t count, int type, int op)
{
    switch (type) {
    case ncclInt8:
        reduce_int8(out, srcs, n, count, op);
        break;
    case ncclUint8:
        reduce_uint8(out, srcs, n, count, op);
        break;
    case ncclInt32:
        reduce_int32(out, srcs, n, count, op);
        break;
    case ncclUint32:
        reduce_uint32(out, srcs, n, count, op);
        break;
    case ncclInt64:
        reduce_int64(out, srcs, n, count, op);
        break;
    case ncclUint64:
        reduce_uint64(out, srcs, n, count, op);
        break;
    case ncclFloat32:
        reduce_float32(out, srcs, n, count, op);
        break;
    case ncclFloat64:
        reduce_float64(out, srcs, n, count, op);
        break;
    case ncclFloat16:
        reduce_small(out, srcs, n, count, op, &half);
        break;
    case ncclBfloat16:
        reduce_small(out, srcs, n, count, op, &bfloat);
        break;
    case ncclFloat8e4m3:
        reduce_small(out, srcs, n, count, op, &e4m3);
        break;
    default:
        reduce_small(out, srcs, n, count, op, &e5m2);
    }
}
