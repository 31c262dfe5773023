/* SPDX-License-Identifier: Apache-2.0
 *
 * The oracle. An element is a function of (salt, rank, index), so every rank can compute what every
 * other rank sent and what the result must be, without communication. Data that is only
 * moved is any bit pattern. Integers are full-range and wrap; only AVG keeps its sums in range.
 * Floating values are chosen so that every order of evaluation is exact: small integers, powers of
 * two for PROD. Only a floating AVG may be off by one unit in the last place, as sum / n and sum *
 * (1 / n) are both honest divisions; on GPUs NCCL sums x * (1 / n), and may be off by more.
 */
#include "conform.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const dtype_names[] = {"int8",    "uint8",   "int16",  "uint16",  "int32",
                                   "uint32",  "int64",   "uint64", "float16", "bfloat16",
                                   "float32", "float64", "bool"};
const char *const op_names[] = {"sum", "prod", "min",  "max", "avg", "band",
                                "bor", "bxor", "land", "lor", "lxor"};
const char *const kind_names[] = {"barrier",         "allreduce",  "reduce",  "broadcast",
                                  "allgather",       "gather",     "scatter", "reduce_scatter",
                                  "alltoall",        "allgatherv", "gatherv", "scatterv",
                                  "reduce_scatterv", "alltoallv",  "send",    "recv",
                                  "recv_any",        "scan",       "exscan"};

/* A number on its way through a reduction: integers in `u` (two's complement), floating values in
 * `f`. */
union number {
    uint64_t u;
    double f;
};

uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

size_t width(enum collrun_dtype dtype)
{
    static const unsigned char widths[] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1};
    return widths[dtype];
}

bool is_float(enum collrun_dtype dtype)
{
    return dtype >= COLLRUN_FLOAT16 && dtype <= COLLRUN_FLOAT64;
}

static bool is_signed(enum collrun_dtype dtype)
{
    return dtype == COLLRUN_INT8 || dtype == COLLRUN_INT16 || dtype == COLLRUN_INT32 ||
           dtype == COLLRUN_INT64;
}

bool op_applies(enum collrun_dtype dtype, enum collrun_op op)
{
    return op < COLLRUN_BAND || !is_float(dtype);
}

/* ---- half precision, bit by bit ---- */
static float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

uint16_t bfloat_of(float x)
{
    uint32_t b = bits_of_float(x);
    if (isnan(x))
        return 0x7fc0;
    return (uint16_t)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}

uint16_t half_of(float x)
{
    uint16_t sign = (uint16_t)((bits_of_float(x) >> 16) & 0x8000u);
    float a = fabsf(x);
    if (isnan(x))
        return 0x7e00;
    if (a >= 65520.0f)
        return (uint16_t)(sign | 0x7c00u);
    int exponent = -14;
    if (a >= ldexpf(1.0f, -14))
        exponent = ilogbf(a);
    /* Units of the last place; nearbyint rounds half to even. A carry into the next exponent comes
     * out right. */
    float units = nearbyintf(ldexpf(a, 10 - exponent));
    uint32_t magnitude = (uint32_t)units;
    if (a >= ldexpf(1.0f, -14))
        magnitude += (uint32_t)(exponent + 14) << 10;
    return (uint16_t)(sign | magnitude);
}

static float float_of_half(uint16_t h)
{
    int exponent = (h >> 10) & 31;
    float fraction = (float)(h & 1023);
    float magnitude;
    if (exponent == 31)
        magnitude = (h & 1023) != 0 ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = ldexpf(fraction, -24);
    else
        magnitude = ldexpf(fraction + 1024.0f, exponent - 25);
    return (h & 0x8000) != 0 ? -magnitude : magnitude;
}

static void store_float(enum collrun_dtype dtype, double x, void *out)
{
    float f = (float)x;
    uint16_t h = 0;
    switch (dtype) {
    case COLLRUN_FLOAT16:
        h = half_of(f);
        memcpy(out, &h, sizeof h);
        break;
    case COLLRUN_BFLOAT16:
        h = bfloat_of(f);
        memcpy(out, &h, sizeof h);
        break;
    case COLLRUN_FLOAT32:
        memcpy(out, &f, sizeof f);
        break;
    default:
        memcpy(out, &x, sizeof x);
    }
}

static void store_int(enum collrun_dtype dtype, uint64_t u, void *out)
{
    uint8_t b = (uint8_t)u;
    uint16_t h = (uint16_t)u;
    uint32_t w = (uint32_t)u;
    switch (width(dtype)) {
    case 1:
        memcpy(out, &b, 1);
        break;
    case 2:
        memcpy(out, &h, 2);
        break;
    case 4:
        memcpy(out, &w, 4);
        break;
    default:
        memcpy(out, &u, 8);
    }
}

/* Cut to the type's width, then widened again by its sign. */
static uint64_t wrap(enum collrun_dtype dtype, uint64_t u)
{
    unsigned shift = (unsigned)(64 - 8 * width(dtype));
    if (is_signed(dtype))
        return (uint64_t)((int64_t)(u << shift) >> shift);
    return u << shift >> shift;
}

static double float_value(const struct stream *s, uint64_t h)
{
    static const double factors[] = {1, -1, 2, 0.5};
    bool narrow = s->dtype == COLLRUN_FLOAT16 || s->dtype == COLLRUN_BFLOAT16;
    if (s->op == COLLRUN_PROD)
        return factors[h & 3];
    if (narrow)
        return (double)(h % 31) - 15;
    if (s->op == COLLRUN_MIN || s->op == COLLRUN_MAX)
        return ((double)(h % 2000001) - 1000000) / 4;
    return (double)(h % 200001) - 100000;
}

static uint64_t int_value(const struct stream *s, uint64_t h)
{
    if (s->dtype == COLLRUN_BOOL)
        return h >> 7 & 1;
    if (s->op == COLLRUN_AVG) {
        uint64_t range = width(s->dtype) == 1 ? 16 : 4000;
        return is_signed(s->dtype) ? wrap(s->dtype, h % (2 * range - 1) - (range - 1))
                                   : h % (2 * range);
    }
    if (s->op >= COLLRUN_LAND && (h & 3) == 0)
        return 0;
    return wrap(s->dtype, h);
}

static uint64_t base_of(const struct stream *s, int rank)
{
    return mix(s->salt * 0x2545f4914f6cdd1du + (uint64_t)rank + 1);
}

static uint64_t hash_at(uint64_t base, uint64_t index)
{
    return mix(base ^ (index * 0x9e3779b97f4a7c15u));
}

void stream_input(const struct stream *s, int rank, uint64_t first, size_t count, void *out)
{
    size_t w = width(s->dtype);
    uint64_t base = base_of(s, rank);
    for (size_t i = 0; i < count; i++) {
        unsigned char *at = (unsigned char *)out + i * w;
        uint64_t h = hash_at(base, first + i);
        if (is_float(s->dtype) && s->op != OP_NONE)
            store_float(s->dtype, float_value(s, h), at);
        else
            store_int(s->dtype, s->op == OP_NONE && s->dtype != COLLRUN_BOOL ? h : int_value(s, h),
                      at);
    }
}

static double fold_float(int op, double a, double b)
{
    switch (op) {
    case COLLRUN_PROD:
        return a * b;
    case COLLRUN_MIN:
        return a < b ? a : b;
    case COLLRUN_MAX:
        return a > b ? a : b;
    default:
        return a + b;
    }
}

static uint64_t fold_bool(int op, uint64_t a, uint64_t b)
{
    switch (op) {
    case COLLRUN_PROD:
    case COLLRUN_MIN:
    case COLLRUN_BAND:
    case COLLRUN_LAND:
        return a & b;
    case COLLRUN_BXOR:
    case COLLRUN_LXOR:
        return a ^ b;
    default:
        return a | b;
    }
}

static uint64_t fold_int(const struct stream *s, uint64_t a, uint64_t b)
{
    bool less = is_signed(s->dtype) ? (int64_t)a < (int64_t)b : a < b;
    switch (s->op) {
    case COLLRUN_PROD:
        return wrap(s->dtype, a * b);
    case COLLRUN_MIN:
        return less ? a : b;
    case COLLRUN_MAX:
        return less ? b : a;
    case COLLRUN_BAND:
        return a & b;
    case COLLRUN_BOR:
        return a | b;
    case COLLRUN_BXOR:
        return a ^ b;
    case COLLRUN_LAND:
        return a != 0 && b != 0;
    case COLLRUN_LOR:
        return a != 0 || b != 0;
    case COLLRUN_LXOR:
        return (a != 0) != (b != 0);
    default:
        return wrap(s->dtype, a + b);
    }
}

static union number fold(const struct stream *s, union number a, union number b)
{
    if (is_float(s->dtype))
        return (union number){.f = fold_float(s->op, a.f, b.f)};
    if (s->dtype == COLLRUN_BOOL)
        return (union number){.u = fold_bool(s->op, a.u, b.u)};
    return (union number){.u = fold_int(s, a.u, b.u)};
}

static union number finish(const struct stream *s, union number sum, int size)
{
    if (s->op == COLLRUN_AVG && s->dtype == COLLRUN_FLOAT64)
        return (union number){.f = sum.f / size};
    if (s->op == COLLRUN_AVG && is_float(s->dtype))
        return (union number){.f = (double)((float)sum.f / (float)size)};
    if (s->op == COLLRUN_AVG && is_signed(s->dtype))
        return (union number){.u = (uint64_t)((int64_t)sum.u / size)};
    if (s->op == COLLRUN_AVG)
        return (union number){.u = sum.u / (uint64_t)size};
    if (s->op >= COLLRUN_LAND && s->dtype != COLLRUN_BOOL)
        return (union number){.u = sum.u != 0};
    return sum;
}

void stream_reduced(const struct stream *s, int size, uint64_t first, size_t count, void *out)
{
    size_t w = width(s->dtype);
    uint64_t bases[MAX_RANKS];
    for (int r = 0; r < size; r++)
        bases[r] = base_of(s, r);
    for (size_t i = 0; i < count; i++) {
        union number total = {.u = 0};
        for (int r = 0; r < size; r++) {
            uint64_t h = hash_at(bases[r], first + i);
            union number x = {.u = 0};
            if (is_float(s->dtype))
                x.f = float_value(s, h);
            else
                x.u = int_value(s, h);
            total = r == 0 ? x : fold(s, total, x);
        }
        total = finish(s, total, size);
        if (is_float(s->dtype))
            store_float(s->dtype, total.f, (unsigned char *)out + i * w);
        else
            store_int(s->dtype, total.u, (unsigned char *)out + i * w);
    }
}

/* Neighbouring floating values have neighbouring bit patterns. */
static bool one_ulp(enum collrun_dtype dtype, const unsigned char *a, const unsigned char *b)
{
    uint64_t x = 0, y = 0;
    memcpy(&x, a, width(dtype));
    memcpy(&y, b, width(dtype));
    return x - y + 1 <= 2;
}

static double widen(enum collrun_dtype dtype, const void *element)
{
    uint16_t h;
    float f;
    double d;
    memcpy(&h, element, sizeof h);
    if (dtype == COLLRUN_FLOAT16)
        return (double)float_of_half(h);
    if (dtype == COLLRUN_BFLOAT16)
        return (double)float_of_bits((uint32_t)h << 16);
    memcpy(&f, element, sizeof f);
    if (dtype == COLLRUN_FLOAT32)
        return (double)f;
    memcpy(&d, element, sizeof d);
    return d;
}

/* A sum of n shares: each is rounded, and each partial sum, all to the places of the largest input.
 */
static bool near(const struct stream *s, const unsigned char *a, const unsigned char *b)
{
    bool narrow = s->dtype == COLLRUN_FLOAT16 || s->dtype == COLLRUN_BFLOAT16;
    int digits = s->dtype == COLLRUN_FLOAT16    ? 10
                 : s->dtype == COLLRUN_BFLOAT16 ? 7
                 : s->dtype == COLLRUN_FLOAT32  ? 23
                                                : 52;
    double largest = narrow ? 15 : 100000;
    double off = fabs(widen(s->dtype, a) - widen(s->dtype, b));
    return off <= ldexp(largest * (1 + s->shares / 2.0), -digits);
}

size_t stream_differs(const struct stream *s, const void *got, const void *want, size_t count)
{
    size_t w = width(s->dtype);
    const unsigned char *a = got, *b = want;
    if (memcmp(a, b, count * w) == 0)
        return count;
    bool loose = s->op == COLLRUN_AVG && is_float(s->dtype);
    for (size_t i = 0; i < count; i++)
        if (memcmp(a + i * w, b + i * w, w) != 0 &&
            !(loose && (one_ulp(s->dtype, a + i * w, b + i * w) ||
                        (s->shares && near(s, a + i * w, b + i * w)))))
            return i;
    return count;
}

void stream_print(enum collrun_dtype dtype, const void *element, char *out, size_t len)
{
    uint64_t u = 0;
    memcpy(&u, element, width(dtype));
    if (is_float(dtype))
        snprintf(out, len, "%.9g (0x%llx)", widen(dtype, element), (unsigned long long)u);
    else if (is_signed(dtype))
        snprintf(out, len, "%lld", (long long)wrap(dtype, u));
    else
        snprintf(out, len, "%llu", (unsigned long long)u);
}
