/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce_vectors: chooses the kernels of this CPU and walks the vectors block by block, so that
 * every source is read once from memory while the partial result stays in the first-level cache. A
 * block's last fold writes straight to dst; since all other sources of that block have been read by
 * then, dst may be any of them.
 */
#include "core/reduce.h"

#include "core/reduce_kernels.h"

#define BLOCK_BYTES 8192u
#define HALF_BLOCK                                                                                 \
    1024u /* elements; two float32 blocks of it fit the first-level cache with room to spare */

static bool reduce_is_half(enum collrun_dtype dtype)
{
    return dtype == COLLRUN_FLOAT16 || dtype == COLLRUN_BFLOAT16;
}

bool op_valid_for(enum collrun_op op, enum collrun_dtype dtype)
{
    if ((size_t)op >= COLLRUN_OP_COUNT || (size_t)dtype >= COLLRUN_DTYPE_COUNT)
        return false;
    return reduce_kernels_generic.fold[reduce_is_half(dtype) ? COLLRUN_FLOAT32 : dtype][op] != NULL;
}

/* Every CPU with AVX2 has F16C, which not every compiler can test for. */
static const struct reduce_kernels *reduce_kernels_of_this_cpu(void)
{
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        return &reduce_kernels_avx2;
#endif
    return &reduce_kernels_generic;
}

static const void *reduce_offset(const void *vec, size_t offset)
{
    return (const char *)vec + offset;
}

/* The arguments of reduce_vectors, and the kernels of this CPU. */
struct reduction {
    const struct reduce_kernels *k;
    void *dst;
    const void *const *srcs;
    uint32_t nsrcs;
    enum collrun_dtype dtype;
    enum collrun_op op;
    uint32_t divisor;
};

/* One block of half precision: widened source by source, summed in float32, rounded once. */
static void reduce_half_block(const struct reduction *r, size_t offset, size_t count)
{
    float sum[HALF_BLOCK];
    float next[HALF_BLOCK];
    r->k->widen[r->dtype](sum, reduce_offset(r->srcs[0], offset), count);
    for (uint32_t s = 1; s < r->nsrcs; s++) {
        r->k->widen[r->dtype](next, reduce_offset(r->srcs[s], offset), count);
        r->k->fold[COLLRUN_FLOAT32][r->op](sum, sum, next, count);
    }
    if (r->op == COLLRUN_AVG && r->divisor > 1)
        r->k->divide[COLLRUN_FLOAT32](sum, count, r->divisor);
    r->k->narrow[r->dtype]((char *)r->dst + offset, sum, count);
}

/* One block of any other type. */
static void reduce_block(const struct reduction *r, size_t offset, size_t count)
{
    _Alignas(64) char sum[BLOCK_BYTES];
    reduce_fold_fn *fold = r->k->fold[r->dtype][r->op];
    char *out = (char *)r->dst + offset;
    const void *left = reduce_offset(r->srcs[0], offset);
    for (uint32_t s = 1; s + 1 < r->nsrcs; s++) {
        fold(sum, left, reduce_offset(r->srcs[s], offset), count);
        left = sum;
    }
    if (r->nsrcs > 1)
        fold(out, left, reduce_offset(r->srcs[r->nsrcs - 1], offset), count);
    else if (r->op == COLLRUN_LAND || r->op == COLLRUN_LOR || r->op == COLLRUN_LXOR)
        r->k->fold[r->dtype][COLLRUN_LOR](out, left, left, count); /* x or x: 0 or 1 */
    else if (out != left)
        memcpy(out, left, count * dtype_size(r->dtype));
    if (r->op == COLLRUN_AVG && r->divisor > 1)
        r->k->divide[r->dtype](out, count, r->divisor);
}

/* The parameters are those of collrun_services.reduce. NOLINTNEXTLINE(readability-function-size) */
void reduce_vectors(void *dst, const void *const *srcs, uint32_t nsrcs, size_t count,
                    enum collrun_dtype dtype, enum collrun_op op, uint32_t divisor)
{
    if (nsrcs == 0 || !op_valid_for(op, dtype))
        return;
    const struct reduction r = {reduce_kernels_of_this_cpu(), dst, srcs, nsrcs, dtype, op, divisor};
    const size_t size = dtype_size(dtype),
                 step = reduce_is_half(dtype) ? HALF_BLOCK : BLOCK_BYTES / size;
    for (size_t i = 0; i < count; i += step) {
        size_t n = count - i < step ? count - i : step;
        if (reduce_is_half(dtype))
            reduce_half_block(&r, i * size, n);
        else
            reduce_block(&r, i * size, n);
    }
}

enum collrun_dtype reduce_partial_dtype(enum collrun_dtype dtype)
{
    return reduce_is_half(dtype) ? COLLRUN_FLOAT32 : dtype;
}

void reduce_to_partial(void *dst, const void *src, size_t count, enum collrun_dtype dtype,
                       enum collrun_op op)
{
    if (reduce_is_half(dtype))
        reduce_kernels_of_this_cpu()->widen[dtype](dst, src, count);
    else
        reduce_vectors(dst, &src, 1, count, dtype, op, 0);
}

void reduce_from_partial(void *dst, const void *src, size_t count, enum collrun_dtype dtype,
                         uint32_t divisor)
{
    const struct reduce_kernels *k = reduce_kernels_of_this_cpu();
    float sum[HALF_BLOCK];
    if (!reduce_is_half(dtype)) {
        reduce_vectors(dst, &src, 1, count, dtype, divisor ? COLLRUN_AVG : COLLRUN_SUM, divisor);
        return;
    }
    for (size_t i = 0; i < count; i += HALF_BLOCK) {
        size_t n = count - i < HALF_BLOCK ? count - i : HALF_BLOCK;
        memcpy(sum, (const float *)src + i, n * sizeof *sum);
        if (divisor > 1)
            k->divide[COLLRUN_FLOAT32](sum, n, divisor);
        k->narrow[dtype]((char *)dst + i * dtype_size(dtype), sum, n);
    }
}
