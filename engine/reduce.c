/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce_vectors: chooses the kernels of this CPU and walks the vectors block by block, so that
 * every source is read once from memory while the partial result stays in the first-level cache. A
 * block's last fold writes straight to dst; since all other sources of that block have been read by
 * then, dst may be any of them.
 */
#include "reduce.h"

#include "reduce_kernels.h"

#define BLOCK_BYTES 8192u
#define HALF_BLOCK                                                                                 \
    1024u /* elements; two float32 blocks of it fit the first-level cache with room to spare */

size_t dtype_size(enum collrun_dtype dtype)
{
    static const uint8_t sizes[COLLRUN_DTYPE_COUNT] = {
        [COLLRUN_INT8] = 1,    [COLLRUN_UINT8] = 1,    [COLLRUN_INT16] = 2,   [COLLRUN_UINT16] = 2,
        [COLLRUN_INT32] = 4,   [COLLRUN_UINT32] = 4,   [COLLRUN_INT64] = 8,   [COLLRUN_UINT64] = 8,
        [COLLRUN_FLOAT16] = 2, [COLLRUN_BFLOAT16] = 2, [COLLRUN_FLOAT32] = 4, [COLLRUN_FLOAT64] = 8,
        [COLLRUN_BOOL] = 1,
    };
    return (size_t)dtype < COLLRUN_DTYPE_COUNT ? sizes[dtype] : 0;
}

static bool is_half(enum collrun_dtype dtype)
{
    return dtype == COLLRUN_FLOAT16 || dtype == COLLRUN_BFLOAT16;
}

bool op_valid_for(enum collrun_op op, enum collrun_dtype dtype)
{
    if ((size_t)op >= COLLRUN_OP_COUNT || (size_t)dtype >= COLLRUN_DTYPE_COUNT)
        return false;
    return reduce_kernels_generic.fold[is_half(dtype) ? COLLRUN_FLOAT32 : dtype][op] != NULL;
}

/* Every CPU with AVX2 has F16C, for which not every compiler has a question. */
static const struct reduce_kernels *kernels_of_this_cpu(void)
{
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        return &reduce_kernels_avx2;
#endif
    return &reduce_kernels_generic;
}

static const void *at(const void *vec, size_t offset)
{
    return (const char *)vec + offset;
}

/* One block of half precision: widened source by source, summed in float32, rounded once. */
static void reduce_half_block(const struct reduce_kernels *k, void *dst, const void *const *srcs,
                              uint32_t nsrcs, size_t offset, size_t count, enum collrun_dtype dtype,
                              enum collrun_op op, uint32_t divisor)
{
    float sum[HALF_BLOCK];
    float next[HALF_BLOCK];
    k->widen[dtype](sum, at(srcs[0], offset), count);
    for (uint32_t s = 1; s < nsrcs; s++) {
        k->widen[dtype](next, at(srcs[s], offset), count);
        k->fold[COLLRUN_FLOAT32][op](sum, sum, next, count);
    }
    if (op == COLLRUN_AVG && divisor > 1)
        k->divide[COLLRUN_FLOAT32](sum, count, divisor);
    k->narrow[dtype]((char *)dst + offset, sum, count);
}

/* One block of any other type. */
static void reduce_block(const struct reduce_kernels *k, void *dst, const void *const *srcs,
                         uint32_t nsrcs, size_t offset, size_t count, enum collrun_dtype dtype,
                         enum collrun_op op, uint32_t divisor)
{
    _Alignas(64) char sum[BLOCK_BYTES];
    reduce_fold_fn *fold = k->fold[dtype][op];
    char *out = (char *)dst + offset;
    const void *left = at(srcs[0], offset);
    for (uint32_t s = 1; s + 1 < nsrcs; s++) {
        fold(sum, left, at(srcs[s], offset), count);
        left = sum;
    }
    if (nsrcs > 1)
        fold(out, left, at(srcs[nsrcs - 1], offset), count);
    else if (op == COLLRUN_LAND || op == COLLRUN_LOR || op == COLLRUN_LXOR)
        k->fold[dtype][COLLRUN_LOR](out, left, left, count); /* x or x: 0 or 1 */
    else if (out != left)
        memcpy(out, left, count * dtype_size(dtype));
    if (op == COLLRUN_AVG && divisor > 1)
        k->divide[dtype](out, count, divisor);
}

void reduce_vectors(void *dst, const void *const *srcs, uint32_t nsrcs, size_t count,
                    enum collrun_dtype dtype, enum collrun_op op, uint32_t divisor)
{
    if (nsrcs == 0 || !op_valid_for(op, dtype))
        return;
    const struct reduce_kernels *k = kernels_of_this_cpu();
    const size_t size = dtype_size(dtype);
    if (is_half(dtype)) {
        for (size_t i = 0; i < count; i += HALF_BLOCK)
            reduce_half_block(k, dst, srcs, nsrcs, i * size,
                              count - i < HALF_BLOCK ? count - i : HALF_BLOCK, dtype, op, divisor);
        return;
    }
    const size_t step = BLOCK_BYTES / size;
    for (size_t i = 0; i < count; i += step)
        reduce_block(k, dst, srcs, nsrcs, i * size, count - i < step ? count - i : step, dtype, op,
                     divisor);
}
