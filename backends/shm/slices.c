/* SPDX-License-Identifier: Apache-2.0
 *
 * See slices.h. A streamed reduction goes through a small block that stays in the cache.
 */
#include "slices.h"

#include "copy.h"
#include "wait.h"

#define SLICE_BYTES (1u << 20)
#define STREAM_BLOCK (16u << 10)

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

int copy_slices(struct shm_group *g, void *dst, const void *src, size_t len, bool stream)
{
    for (size_t i = 0; i < len; i += SLICE_BYTES) {
        if (group_failed(g))
            return group_failure(g);
        copy_bytes((char *)dst + i, (const char *)src + i, least(len - i, SLICE_BYTES), stream);
    }
    return COLLRUN_OK;
}

static void reduce_sources(struct shm_group *g, void *dst, size_t len,
                           const struct collrun_call *call)
{
    const struct collrun_services *s = g->services;
    s->reduce(dst, g->srcs, g->nranks, len / s->dtype_size(call->dtype), call->dtype, call->op,
              g->nranks);
    for (uint32_t r = 0; r < g->nranks; r++)
        g->srcs[r] = (const char *)g->srcs[r] + len;
}

int reduce_slices(struct shm_group *g, void *dst, size_t len, const struct collrun_call *call,
                  bool stream)
{
    _Alignas(64) char block[STREAM_BLOCK];
    for (size_t i = 0, n; i < len; i += n) {
        n = least(len - i, stream ? STREAM_BLOCK : SLICE_BYTES);
        if (i % SLICE_BYTES == 0 && group_failed(g))
            return group_failure(g);
        reduce_sources(g, stream ? block : (char *)dst + i, n, call);
        if (stream)
            copy_bytes((char *)dst + i, block, n, true);
    }
    return COLLRUN_OK;
}
