/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce_vectors against an oracle that works on one element at a time, in 64-bit integers or
 * doubles, with its own decoder and encoder of half precision. Every type, every operator, several
 * numbers of sources, odd addresses, dst equal to each of the sources. Then the instruction sets
 * against each other, bit by bit.
 */
#include "core/reduce.h"
#include "core/reduce_kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_SRCS 5u
#define MAX_COUNT 5003u

union element {
    int64_t i; /* signed integers, sign-extended */
    uint64_t u;
    double f;
};

static bool is_float(enum collrun_dtype t)
{
    return t == COLLRUN_FLOAT16 || t == COLLRUN_BFLOAT16 || t == COLLRUN_FLOAT32 ||
           t == COLLRUN_FLOAT64;
}

static bool is_half(enum collrun_dtype t)
{
    return t == COLLRUN_FLOAT16 || t == COLLRUN_BFLOAT16;
}

static bool is_signed(enum collrun_dtype t)
{
    return t == COLLRUN_INT8 || t == COLLRUN_INT16 || t == COLLRUN_INT32 || t == COLLRUN_INT64;
}

/* ---- half precision, from its definition ---- */

static double half_decode(uint16_t bits, int exponent_bits)
{
    const int fraction_bits = 15 - exponent_bits;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = (bits & 0x7fff) >> fraction_bits;
    const int fraction = bits & ((1 << fraction_bits) - 1);
    double value;
    if (exponent == (1 << exponent_bits) - 1)
        value = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexp(fraction, 1 - bias - fraction_bits);
    else
        value = ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
    return bits & 0x8000 ? -value : value;
}

/* The nearest of all 2^15 magnitudes; between two, the even one. The step past the largest finite
 * value counts as one more ulp, as IEEE 754 rounds to infinity. */
static uint16_t half_encode(double value, int exponent_bits)
{
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    const uint16_t infinity = (uint16_t)(((1 << exponent_bits) - 1) << (15 - exponent_bits));
    const double magnitude = fabs(value);
    if (isnan(value))
        return (uint16_t)(sign | infinity | 1);
    uint16_t low = 0;
    uint16_t high = infinity;
    while (high - low > 1) {
        const uint16_t middle = (uint16_t)((low + high) / 2);
        if (half_decode(middle, exponent_bits) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    const double below = half_decode(low, exponent_bits);
    const double above = high < infinity
                             ? half_decode(high, exponent_bits)
                             : 2 * below - half_decode((uint16_t)(low - 1), exponent_bits);
    if (isinf(magnitude))
        return (uint16_t)(sign | infinity);
    if (magnitude - below == above - magnitude)
        return (uint16_t)(sign | (low % 2 == 0 ? low : high));
    return (uint16_t)(sign | (magnitude - below < above - magnitude ? low : high));
}

/* ---- elements ---- */

static union element load(const void *at, enum collrun_dtype t)
{
    union element e = {.u = 0};
    memcpy(&e, at, dtype_size(t));
    if (t == COLLRUN_FLOAT16 || t == COLLRUN_BFLOAT16) {
        e.f = half_decode((uint16_t)e.u, t == COLLRUN_FLOAT16 ? 5 : 8);
    } else if (t == COLLRUN_FLOAT32) {
        float f;
        memcpy(&f, at, sizeof(f));
        e.f = (double)f;
    } else if (is_signed(t)) {
        const unsigned shift = 64 - 8 * (unsigned)dtype_size(t);
        e.i = (int64_t)(e.u << shift) >> shift;
    }
    return e;
}

static void store(void *at, union element e, enum collrun_dtype t)
{
    if (is_half(t)) {
        const uint16_t half = half_encode(e.f, t == COLLRUN_FLOAT16 ? 5 : 8);
        memcpy(at, &half, sizeof(half));
    } else if (t == COLLRUN_FLOAT32) {
        const float f = (float)e.f;
        memcpy(at, &f, sizeof(f));
    } else {
        memcpy(at, &e, dtype_size(t));
    }
}

/* float32 sums are rounded after every step, half precision sums likewise to float32. */
static double fold_float(double a, double b, enum collrun_dtype t, enum collrun_op op)
{
    double r = 0;
    switch (op) {
    case COLLRUN_PROD:
        r = a * b;
        break;
    case COLLRUN_MIN:
        return isnan(a) || isnan(b) ? NAN : fmin(a, b);
    case COLLRUN_MAX:
        return isnan(a) || isnan(b) ? NAN : fmax(a, b);
    default:
        r = a + b;
    }
    return t == COLLRUN_FLOAT64 ? r : (double)(float)r;
}

static uint64_t fold_integer(union element a, union element b, enum collrun_dtype t,
                             enum collrun_op op)
{
    const bool a_first = is_signed(t) ? a.i < b.i : a.u < b.u;
    const bool is_bool = t == COLLRUN_BOOL;
    switch (op) {
    case COLLRUN_PROD:
        return is_bool ? a.u & b.u : a.u * b.u;
    case COLLRUN_MIN:
        return a_first ? a.u : b.u;
    case COLLRUN_MAX:
        return a_first ? b.u : a.u;
    case COLLRUN_BAND:
        return a.u & b.u;
    case COLLRUN_BOR:
        return a.u | b.u;
    case COLLRUN_BXOR:
        return a.u ^ b.u;
    case COLLRUN_LAND:
        return a.u && b.u;
    case COLLRUN_LOR:
        return a.u || b.u;
    case COLLRUN_LXOR:
        return !a.u != !b.u;
    default:
        return is_bool ? a.u | b.u : a.u + b.u;
    }
}

static union element fold(union element a, union element b, enum collrun_dtype t,
                          enum collrun_op op)
{
    union element r;
    if (is_float(t)) {
        r.f = fold_float(a.f, b.f, t, op);
        return r;
    }
    r.u = fold_integer(a, b, t, op);
    return load(&r,
                t); /* wraps to the type's width (little endian, as every host collrun runs on) */
}

static union element finish(union element e, enum collrun_dtype t, enum collrun_op op,
                            uint32_t divisor)
{
    if (op == COLLRUN_LAND || op == COLLRUN_LOR || op == COLLRUN_LXOR)
        e.u = e.u != 0;
    if (op != COLLRUN_AVG || divisor == 0)
        return e;
    if (is_float(t))
        e.f = t == COLLRUN_FLOAT64 ? e.f / divisor : (double)(float)(e.f / divisor);
    else if (is_signed(t))
        e.i /= (int64_t)divisor;
    else
        e.u /= divisor;
    return e;
}

static void expect(void *out, char *const *srcs, uint32_t nsrcs, size_t count, enum collrun_dtype t,
                   enum collrun_op op, uint32_t divisor)
{
    const size_t size = dtype_size(t);
    for (size_t i = 0; i < count; i++) {
        union element e = load(srcs[0] + i * size, t);
        for (uint32_t s = 1; s < nsrcs; s++)
            e = fold(e, load(srcs[s] + i * size, t), t, op);
        store((char *)out + i * size, finish(e, t, op, divisor), t);
    }
}

/* ---- inputs ---- */

static uint64_t random_state = 88172645463325252u;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Random bits make wild floats; every third one is tame, and some are special. */
static void fill(char *at, size_t count, enum collrun_dtype t)
{
    static const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-7, 65504, -6e-8};
    const size_t size = dtype_size(t);
    for (size_t i = 0; i < count; i++) {
        union element e = {.u = next_random()};
        if (t == COLLRUN_BOOL)
            e.u &= 1;
        else if (!is_float(t) && next_random() % 4 == 0)
            e.u = 0;
        if (is_float(t) && i % 3 == 0)
            store(at + i * size, (union element){.f = (double)(next_random() % 2001) / 8 - 125}, t);
        else if (is_float(t) && i % 17 == 0)
            store(at + i * size, (union element){.f = special[next_random() % 8]}, t);
        else
            memcpy(at + i * size, &e, size);
    }
}

static bool same(const char *a, const char *b, size_t count, enum collrun_dtype t, size_t *where)
{
    const size_t size = dtype_size(t);
    for (*where = 0; *where < count; ++*where) {
        if (memcmp(a + *where * size, b + *where * size, size) == 0)
            continue;
        const union element x = load(a + *where * size, t);
        const union element y = load(b + *where * size, t);
        if (!is_float(t) || !((isnan(x.f) && isnan(y.f)) || x.f == y.f))
            return false;
    }
    return true;
}

/* ---- tests ---- */

struct bench {
    char *srcs[MAX_SRCS];
    char *out, *want, *kept;
};

static int setup(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));
    for (uint32_t s = 0; s < MAX_SRCS; s++)
        b->srcs[s] = malloc(MAX_COUNT * 8 + 64);
    b->out = malloc(MAX_COUNT * 8 + 64);
    b->want = malloc(MAX_COUNT * 8 + 64);
    b->kept = malloc(MAX_COUNT * 8 + 64);
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bench *b = *state;
    for (uint32_t s = 0; s < MAX_SRCS; s++)
        free(b->srcs[s]);
    free(b->out);
    free(b->want);
    free(b->kept);
    free(b);
    return 0;
}

/* alias < nsrcs: dst is that source. Returns after checking that guard bytes and other sources are
 * unchanged. */
static void check_one(struct bench *b, uint32_t nsrcs, size_t count, enum collrun_dtype t,
                      enum collrun_op op, uint32_t divisor, uint32_t alias)
{
    const size_t shift = next_random() % 9;
    const size_t bytes = count * dtype_size(t);
    char *srcs[MAX_SRCS] = {0};
    const void *in[MAX_SRCS];
    size_t where;
    for (uint32_t s = 0; s < nsrcs; s++) {
        srcs[s] = b->srcs[s] + (shift + s) % 9;
        in[s] = srcs[s];
        fill(srcs[s], count, t);
        srcs[s][bytes] = 0x5a;
    }
    expect(b->want, srcs, nsrcs, count, t, op, divisor);
    const uint32_t other = (alias + 1) % nsrcs;
    memcpy(b->kept, srcs[other], bytes);
    char *dst = alias < nsrcs ? srcs[alias] : b->out + shift;
    dst[bytes] = 0x5a;
    reduce_vectors(dst, in, nsrcs, count, t, op, divisor);
    if (!same(dst, b->want, count, t, &where))
        fail_msg("dtype %d op %d: element %zu of %zu differs (%u sources, divisor %u, alias %u)",
                 (int)t, (int)op, where, count, nsrcs, divisor, alias);
    assert_int_equal(dst[bytes], 0x5a);
    if (dst != srcs[other])
        assert_memory_equal(srcs[other], b->kept, bytes);
}

static void every_type_and_operator(void **state)
{
    static const size_t counts[] = {0, 1, 7, 64, 1000, MAX_COUNT};
    static const uint32_t nsrcs[] = {1, 2, 3, 5};
    struct bench *b = *state;
    for (enum collrun_dtype t = 0; t < COLLRUN_DTYPE_COUNT; t++)
        for (enum collrun_op op = 0; op < COLLRUN_OP_COUNT; op++)
            for (size_t c = 0; c < 6; c++)
                for (size_t n = 0; n < 4 && op_valid_for(op, t); n++)
                    for (uint32_t divisor = 0; divisor <= (op == COLLRUN_AVG ? 5u : 0u);
                         divisor += 5)
                        check_one(b, nsrcs[n], counts[c], t, op, divisor, MAX_SRCS);
}

static void dst_may_be_any_source(void **state)
{
    struct bench *b = *state;
    for (enum collrun_dtype t = 0; t < COLLRUN_DTYPE_COUNT; t++)
        for (enum collrun_op op = 0; op < COLLRUN_OP_COUNT; op++)
            for (uint32_t nsrcs = 1; nsrcs <= MAX_SRCS && op_valid_for(op, t); nsrcs += 2)
                for (uint32_t alias = 0; alias < nsrcs; alias++)
                    check_one(b, nsrcs, 3001, t, op, 3, alias);
}

static void which_operators_exist(void **state)
{
    (void)state;
    unsigned valid = 0;
    for (enum collrun_dtype t = 0; t < COLLRUN_DTYPE_COUNT; t++)
        for (enum collrun_op op = 0; op < COLLRUN_OP_COUNT; op++)
            valid += op_valid_for(op, t);
    assert_int_equal(valid, 9 * 11 + 4 * 5);
    assert_false(op_valid_for(COLLRUN_LXOR, COLLRUN_FLOAT64));
    assert_false(op_valid_for(COLLRUN_BAND, COLLRUN_BFLOAT16));
    assert_false(op_valid_for((enum collrun_op)COLLRUN_OP_COUNT, COLLRUN_INT8));
    assert_false(op_valid_for(COLLRUN_SUM, (enum collrun_dtype)COLLRUN_DTYPE_COUNT));
    assert_false(op_valid_for((enum collrun_op) - 1, COLLRUN_INT8));
    assert_int_equal(dtype_size((enum collrun_dtype)COLLRUN_DTYPE_COUNT), 0);
    assert_int_equal(dtype_size((enum collrun_dtype) - 1), 0);
}

/* What the oracle cannot know better: the words of types.h, spelt out. */
static void documented_cases(void **state)
{
    (void)state;
    const int8_t wrap[2] = {100, 100};
    const int32_t negative[2] = {-4, -3};
    const float nan_first[2] = {NAN, 1};
    const void *w[2] = {&wrap[0], &wrap[1]};
    const void *n[2] = {&negative[0], &negative[1]};
    const void *f[2] = {&nan_first[0], &nan_first[1]};
    const void *g[2] = {&nan_first[1], &nan_first[0]};
    int8_t sum;
    int32_t mean;
    float low;
    reduce_vectors(&sum, w, 2, 1, COLLRUN_INT8, COLLRUN_SUM, 0);
    assert_int_equal(sum, -56);
    reduce_vectors(&mean, n, 2, 1, COLLRUN_INT32, COLLRUN_AVG, 2);
    assert_int_equal(mean, -3);
    reduce_vectors(&low, f, 2, 1, COLLRUN_FLOAT32, COLLRUN_MIN, 0);
    assert_true(isnan(low));
    reduce_vectors(&low, g, 2, 1, COLLRUN_FLOAT32, COLLRUN_MAX, 0);
    assert_true(isnan(low));
    /* 2049 is no float16; 2048 + 1 + 1 in float32, rounded once, is 2050. */
    const uint16_t big = half_encode(2048, 5);
    const uint16_t one = half_encode(1, 5);
    const void *h[3] = {&big, &one, &one};
    uint16_t half;
    reduce_vectors(&half, h, 3, 1, COLLRUN_FLOAT16, COLLRUN_SUM, 0);
    assert_true(half_decode(half, 5) == 2050);
}

/* In two steps: the same as at once, for every type and operator. */
static void partial_results_give_the_same(void **state)
{
    struct bench *b = *state;
    enum { COUNT = 2500 };
    static char left[8 * COUNT], right[8 * COUNT];
    for (enum collrun_dtype t = 0; t < COLLRUN_DTYPE_COUNT; t++) {
        const void *both[2] = {b->srcs[0], b->srcs[1]}, *partial[2] = {left, right};
        for (enum collrun_op op = 0; op < COLLRUN_OP_COUNT; op++) {
            size_t where;
            uint32_t divisor = op == COLLRUN_AVG ? 2 : 0;
            if (!op_valid_for(op, t))
                continue;
            fill(b->srcs[0], COUNT, t);
            fill(b->srcs[1], COUNT, t);
            reduce_vectors(b->want, both, 2, COUNT, t, op, divisor);
            reduce_to_partial(left, b->srcs[0], COUNT, t, op);
            reduce_to_partial(right, b->srcs[1], COUNT, t, op);
            reduce_vectors(right, partial, 2, COUNT, reduce_partial_dtype(t), op, 0);
            reduce_from_partial(b->out, right, COUNT, t, divisor);
            assert_true(same(b->out, b->want, COUNT, t, &where));
            reduce_vectors(b->want, both, 1, COUNT, t, op, divisor);
            reduce_from_partial(b->out, left, COUNT, t, divisor);
            assert_true(same(b->out, b->want, COUNT, t, &where));
        }
    }
}

static const struct reduce_kernels *sets[] = {
    &reduce_kernels_generic,
#ifdef __x86_64__
    &reduce_kernels_avx2,
#endif
};

static size_t usable_sets(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx2") ? 2 : 1;
#else
    return 1;
#endif
}

/* All 65536 halves, and the floats halfway between neighbours, just below and just above. */
static void half_conversions(void **state)
{
    (void)state;
    for (size_t k = 0; k < usable_sets(); k++) {
        for (uint32_t bits = 0; bits < 65536; bits++) {
            for (enum collrun_dtype t = COLLRUN_FLOAT16; t <= COLLRUN_BFLOAT16; t++) {
                const int exponent_bits = t == COLLRUN_FLOAT16 ? 5 : 8;
                const uint16_t half = (uint16_t)bits;
                const double exact = half_decode(half, exponent_bits);
                float wide[8];
                uint16_t back;
                sets[k]->widen[t](wide, &half, 1);
                assert_true(isnan(exact) ? isnan(wide[0]) : (double)wide[0] == exact);
                const float middle = (float)((exact + half_decode(half ^ 1u, exponent_bits)) / 2);
                const float probes[4] = {wide[0], middle, nextafterf(middle, 1e38f),
                                         nextafterf(middle, -1e38f)};
                for (int p = 0; p < 4; p++) {
                    const uint16_t want = half_encode((double)probes[p], exponent_bits);
                    sets[k]->narrow[t](&back, &probes[p], 1);
                    if (isnan(probes[p]))
                        assert_true(isnan(half_decode(back, exponent_bits)));
                    else
                        assert_int_equal(back, want);
                }
            }
        }
    }
}

static void instruction_sets_agree(void **state)
{
    struct bench *b = *state;
    for (size_t k = 1; k < usable_sets(); k++) {
        for (enum collrun_dtype t = 0; t < COLLRUN_DTYPE_COUNT; t++) {
            fill(b->srcs[0], 3001, t);
            fill(b->srcs[1], 3001, t);
            for (enum collrun_op op = 0; op < COLLRUN_OP_COUNT; op++) {
                size_t where;
                if (!sets[0]->fold[t][op]) {
                    assert_null(sets[k]->fold[t][op]);
                    continue;
                }
                sets[0]->fold[t][op](b->want, b->srcs[0], b->srcs[1], 3001);
                sets[k]->fold[t][op](b->out, b->srcs[0], b->srcs[1], 3001);
                assert_true(same(b->out, b->want, 3001, t, &where));
            }
        }
        for (enum collrun_dtype t = COLLRUN_FLOAT16; t <= COLLRUN_BFLOAT16; t++) {
            size_t where;
            fill(b->srcs[0], 3001, COLLRUN_FLOAT32);
            sets[0]->narrow[t](b->want, (const float *)(void *)b->srcs[0], 3001);
            sets[k]->narrow[t](b->out, (const float *)(void *)b->srcs[0], 3001);
            assert_true(same(b->out, b->want, 3001, t, &where));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_and_operator),       cmocka_unit_test(dst_may_be_any_source),
        cmocka_unit_test(which_operators_exist),         cmocka_unit_test(documented_cases),
        cmocka_unit_test(partial_results_give_the_same), cmocka_unit_test(half_conversions),
        cmocka_unit_test(instruction_sets_agree),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
