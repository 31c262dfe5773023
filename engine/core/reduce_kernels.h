/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of the kernels, included once per instruction set by reduce_generic.c and reduce_avx2.c,
 * which set the target first and name the table KERNELS. Every kernel is a plain loop over elements
 * that the compiler vectorises: fold combines two vectors, divide finishes an AVG, widen and narrow
 * convert half precision to float32 and back. dst of a kernel may be one of its sources, element by
 * element, which is what IVDEP promises the compiler. Element types are declared with alignment 1:
 * a user's buffer may start at any byte.
 */
#ifndef ENGINE_CORE_REDUCE_KERNELS_H
#define ENGINE_CORE_REDUCE_KERNELS_H

#include <collrun/types.h>

#include <string.h>

typedef void reduce_fold_fn(void *dst, const void *a, const void *b, size_t count);
typedef void reduce_divide_fn(void *vec, size_t count, uint32_t divisor);
typedef void reduce_widen_fn(float *dst, const void *src, size_t count);
typedef void reduce_narrow_fn(void *dst, const float *src, size_t count);

/* NULL where an operator has no meaning; the rows of half precision are empty: those of FLOAT32
 * are used. */
struct reduce_kernels {
    reduce_fold_fn *fold[COLLRUN_DTYPE_COUNT][COLLRUN_OP_COUNT];
    reduce_divide_fn *divide[COLLRUN_DTYPE_COUNT];
    reduce_widen_fn *widen[COLLRUN_DTYPE_COUNT];
    reduce_narrow_fn *narrow[COLLRUN_DTYPE_COUNT];
};

extern const struct reduce_kernels reduce_kernels_generic;
#ifdef __x86_64__
extern const struct reduce_kernels reduce_kernels_avx2;
#endif

#endif

#ifdef KERNELS

#ifdef __clang__
#define IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define IVDEP _Pragma("GCC ivdep")
#endif

#define UNALIGNED __attribute__((aligned(1), may_alias))
typedef int8_t i8 UNALIGNED;
typedef uint8_t u8 UNALIGNED;
typedef int16_t i16 UNALIGNED;
typedef uint16_t u16 UNALIGNED;
typedef int32_t i32 UNALIGNED;
typedef uint32_t u32 UNALIGNED;
typedef int64_t i64 UNALIGNED;
typedef uint64_t u64 UNALIGNED;
typedef float f32 UNALIGNED;
typedef double f64 UNALIGNED;
typedef uint8_t b8 UNALIGNED;

/* Integers wrap: sums and products are taken in W, an unsigned type that no promotion turns into
 * int. */
#define INT_SUM(T, W, a, b) ((T)((W)(a) + (W)(b)))
#define INT_PROD(T, W, a, b) ((T)((W)(a) * (W)(b)))
#define INT_MIN_(T, W, a, b) ((a) < (b) ? (a) : (b))
#define INT_MAX_(T, W, a, b) ((a) > (b) ? (a) : (b))
#define INT_BAND(T, W, a, b) ((T)((a) & (b)))
#define INT_BOR(T, W, a, b) ((T)((a) | (b)))
#define INT_BXOR(T, W, a, b) ((T)((a) ^ (b)))
#define INT_LAND(T, W, a, b) ((T)(((a) != 0) & ((b) != 0)))
#define INT_LOR(T, W, a, b) ((T)(((a) != 0) | ((b) != 0)))
#define INT_LXOR(T, W, a, b) ((T)(((a) != 0) ^ ((b) != 0)))

/* A comparison with NaN is false, so the first test picks a NaN in b, and the second one in a. */
#define FLOAT_SUM(T, W, a, b) ((a) + (b))
#define FLOAT_PROD(T, W, a, b) ((a) * (b))
#define FLOAT_MIN(T, W, a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define FLOAT_MAX(T, W, a, b) ((a) > (b) || (a) != (a) ? (a) : (b))

#define FOLD(name, T, W, EXPR)                                                                     \
    static void name(void *dst, const void *src_a, const void *src_b, size_t count)                \
    {                                                                                              \
        T *d = dst;                                                                                \
        const T *a = src_a;                                                                        \
        const T *b = src_b;                                                                        \
        IVDEP for (size_t i = 0; i < count; i++) d[i] = EXPR(T, W, a[i], b[i]);                    \
    }

/* Division in D, which holds every value of T and every divisor. For integers of up to 32 bits that
 * is double: it vectorises, and a quotient that is no integer is at least 2^-32 (relative) away
 * from one, so truncation is exact. */
#define DIVIDE(name, T, D)                                                                         \
    static void name(void *vec, size_t count, uint32_t divisor)                                    \
    {                                                                                              \
        T *v = vec;                                                                                \
        const D by = (D)divisor;                                                                   \
        IVDEP for (size_t i = 0; i < count; i++) v[i] = (T)((D)v[i] / by);                         \
    }

#define INTEGER_TYPES(X)                                                                           \
    X(i8, uint32_t, double, INT8)                                                                  \
    X(u8, uint32_t, double, UINT8)                                                                 \
    X(i16, uint32_t, double, INT16)                                                                \
    X(u16, uint32_t, double, UINT16)                                                               \
    X(i32, uint32_t, double, INT32)                                                                \
    X(u32, uint32_t, double, UINT32)                                                               \
    X(i64, uint64_t, int64_t, INT64)                                                               \
    X(u64, uint64_t, uint64_t, UINT64)

#define FLOAT_TYPES(X)                                                                             \
    X(f32, float, float, FLOAT32)                                                                  \
    X(f64, double, double, FLOAT64)

#define DEFINE_INTEGER(T, W, D, NAME)                                                              \
    FOLD(T##_sum, T, W, INT_SUM)                                                                   \
    FOLD(T##_prod, T, W, INT_PROD)                                                                 \
    FOLD(T##_min, T, W, INT_MIN_)                                                                  \
    FOLD(T##_max, T, W, INT_MAX_)                                                                  \
    FOLD(T##_band, T, W, INT_BAND)                                                                 \
    FOLD(T##_bor, T, W, INT_BOR)                                                                   \
    FOLD(T##_bxor, T, W, INT_BXOR)                                                                 \
    FOLD(T##_land, T, W, INT_LAND)                                                                 \
    FOLD(T##_lor, T, W, INT_LOR)                                                                   \
    FOLD(T##_lxor, T, W, INT_LXOR)                                                                 \
    DIVIDE(T##_divide, T, D)
INTEGER_TYPES(DEFINE_INTEGER)

#define DEFINE_FLOAT(T, W, D, NAME)                                                                \
    FOLD(T##_sum, T, W, FLOAT_SUM)                                                                 \
    FOLD(T##_prod, T, W, FLOAT_PROD)                                                               \
    FOLD(T##_min, T, W, FLOAT_MIN)                                                                 \
    FOLD(T##_max, T, W, FLOAT_MAX)                                                                 \
    DIVIDE(T##_divide, T, D)
FLOAT_TYPES(DEFINE_FLOAT)

FOLD(b8_and, b8, uint32_t, INT_LAND)
FOLD(b8_or, b8, uint32_t, INT_LOR)
FOLD(b8_xor, b8, uint32_t, INT_LXOR)
DIVIDE(b8_divide, b8, double)

static inline float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static void bfloat16_widen(float *dst, const void *src, size_t count)
{
    const u16 *s = src;
    IVDEP for (size_t i = 0; i < count; i++) dst[i] = float_of_bits((uint32_t)s[i] << 16);
}

/* Adding just under half of the lowest kept bit, plus that bit itself, carries exactly when nearest
 * even rounds up. */
static void bfloat16_narrow(void *dst, const float *src, size_t count)
{
    u16 *d = dst;
    IVDEP for (size_t i = 0; i < count; i++)
    {
        const uint32_t bits = bits_of_float(src[i]);
        const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
        const uint32_t quiet_nan = (bits >> 16) | 0x40u;
        d[i] = (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
    }
}

#ifdef __F16C__
static void float16_widen(float *dst, const void *src, size_t count)
{
    const u16 *s = src;
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(s + i))));
    for (; i < count; i++)
        dst[i] = _cvtsh_ss(s[i]);
}

static void float16_narrow(void *dst, const float *src, size_t count)
{
    u16 *d = dst;
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128((void *)(d + i), _mm256_cvtps_ph(_mm256_loadu_ps(src + i), 0));
    for (; i < count; i++)
        d[i] = _cvtss_sh(src[i], 0);
}
#else
/* Shifting the binary16 fields into place leaves the exponent 112 too small; one exact
 * multiplication corrects it, also for subnormals. Infinity and NaN then only lack the top exponent
 * bits. */
static void float16_widen(float *dst, const void *src, size_t count)
{
    const u16 *s = src;
    IVDEP for (size_t i = 0; i < count; i++)
    {
        const uint32_t half = s[i];
        const uint32_t scaled = bits_of_float(float_of_bits((half & 0x7fffu) << 13) * 0x1p112f);
        const uint32_t special = (half & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
        dst[i] = float_of_bits(scaled | special | (half & 0x8000u) << 16);
    }
}

/* Three ranges: NaN and what overflows; results that are subnormal, where adding 0.5 makes the
 * float unit round at the right bit; and the rest, rounded as bfloat16_narrow does, with the
 * exponent rebiased by 112. */
static void float16_narrow(void *dst, const float *src, size_t count)
{
    u16 *d = dst;
    IVDEP for (size_t i = 0; i < count; i++)
    {
        const uint32_t bits = bits_of_float(src[i]);
        const uint32_t magnitude = bits & 0x7fffffffu;
        const uint32_t odd = (magnitude >> 13) & 1u;
        const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
        const uint32_t tiny = bits_of_float(float_of_bits(magnitude) + 0.5f) - bits_of_float(0.5f);
        const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
        uint32_t half = magnitude < (113u << 23) ? tiny : normal;
        half = magnitude >= 0x477ff000u ? 0x7c00u : half;
        half = magnitude > 0x7f800000u ? nan : half;
        d[i] = (uint16_t)(half | (bits & 0x80000000u) >> 16);
    }
}
#endif

#define INTEGER_ROW(T, W, D, NAME)                                                                 \
    [COLLRUN_##NAME] = {                                                                           \
        [COLLRUN_SUM] = T##_sum, [COLLRUN_PROD] = T##_prod, [COLLRUN_MIN] = T##_min,               \
        [COLLRUN_MAX] = T##_max, [COLLRUN_AVG] = T##_sum,   [COLLRUN_BAND] = T##_band,             \
        [COLLRUN_BOR] = T##_bor, [COLLRUN_BXOR] = T##_bxor, [COLLRUN_LAND] = T##_land,             \
        [COLLRUN_LOR] = T##_lor, [COLLRUN_LXOR] = T##_lxor,                                        \
    },
#define FLOAT_ROW(T, W, D, NAME)                                                                   \
    [COLLRUN_##NAME] = {                                                                           \
        [COLLRUN_SUM] = T##_sum, [COLLRUN_PROD] = T##_prod, [COLLRUN_MIN] = T##_min,               \
        [COLLRUN_MAX] = T##_max, [COLLRUN_AVG] = T##_sum,                                          \
    },
#define DIVIDE_CELL(T, W, D, NAME) [COLLRUN_##NAME] = T##_divide,

const struct reduce_kernels KERNELS = {
    .fold =
        {
            INTEGER_TYPES(INTEGER_ROW) FLOAT_TYPES(FLOAT_ROW)[COLLRUN_BOOL] =
                {
                    [COLLRUN_SUM] = b8_or,
                    [COLLRUN_PROD] = b8_and,
                    [COLLRUN_MIN] = b8_and,
                    [COLLRUN_MAX] = b8_or,
                    [COLLRUN_AVG] = b8_or,
                    [COLLRUN_BAND] = b8_and,
                    [COLLRUN_BOR] = b8_or,
                    [COLLRUN_BXOR] = b8_xor,
                    [COLLRUN_LAND] = b8_and,
                    [COLLRUN_LOR] = b8_or,
                    [COLLRUN_LXOR] = b8_xor,
                },
        },
    .divide = {INTEGER_TYPES(DIVIDE_CELL) FLOAT_TYPES(DIVIDE_CELL)[COLLRUN_BOOL] = b8_divide},
    .widen = {[COLLRUN_FLOAT16] = float16_widen, [COLLRUN_BFLOAT16] = bfloat16_widen},
    .narrow = {[COLLRUN_FLOAT16] = float16_narrow, [COLLRUN_BFLOAT16] = bfloat16_narrow},
};

#endif
