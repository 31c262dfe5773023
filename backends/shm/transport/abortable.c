/* SPDX-License-Identifier: Apache-2.0
 *
 * See abortable.h. A streaming reduction goes through a small block that stays in the cache.
 */
#include "transport/abortable.h"

#include "transport/copy.h"

#define ABORTABLE_SLICE_BYTES (1u << 20)
#define ABORTABLE_STREAM_BYTES (16u << 10)

static size_t abortable_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void abortable_copy_slice(char *dst, const char *src, size_t len, bool stream)
{
    if (stream)
        copy_bytes(dst, src, len, true);
    else
        copy_in(dst, src, len);
}

int abortable_copy(struct shm_group *g, void *dst, const void *src, size_t len, bool stream)
{
    for (size_t i = 0; i < len; i += ABORTABLE_SLICE_BYTES) {
        if (shm_group_has_failed(g))
            return shm_group_report_failure(g);
        abortable_copy_slice((char *)dst + i, (const char *)src + i,
                             abortable_min(len - i, ABORTABLE_SLICE_BYTES), stream);
    }
    return COLLRUN_OK;
}

static void abortable_reduce_slice(const struct shm_group *g, void *dst, const void **srcs,
                                   size_t len, const struct collrun_call *call)
{
    const struct collrun_services *s = g->services;
    s->reduce(dst, srcs, g->nranks, len / s->dtype_size(call->dtype), call->dtype, call->op,
              g->nranks);
    for (uint32_t r = 0; r < g->nranks; r++)
        srcs[r] = (const char *)srcs[r] + len;
}

int abortable_reduce(struct shm_group *g, void *dst, const void **srcs, size_t len,
                     const struct collrun_call *call, bool stream)
{
    _Alignas(64) char block[ABORTABLE_STREAM_BYTES];
    for (size_t i = 0, n; i < len; i += n) {
        n = abortable_min(len - i, stream ? ABORTABLE_STREAM_BYTES : ABORTABLE_SLICE_BYTES);
        if (i % ABORTABLE_SLICE_BYTES == 0 && shm_group_has_failed(g))
            return shm_group_report_failure(g);
        abortable_reduce_slice(g, stream ? block : (char *)dst + i, srcs, n, call);
        if (stream)
            copy_bytes((char *)dst + i, block, n, true);
    }
    return COLLRUN_OK;
}
