/* SPDX-License-Identifier: Apache-2.0 */
#include "rdv_frames.h"

#include <string.h>

static struct buf rdv_frames_scope(const char *scope)
{
    struct buf b;
    buf_init(&b);
    buf_put_str(&b, scope);
    return b;
}

static struct buf rdv_frames_group(const char *scope, uint64_t timeout_ns, uint32_t n,
                                   const uint32_t *ranks)
{
    struct buf b = rdv_frames_scope(scope);
    buf_put_str(&b, "g");
    buf_put_u64(&b, timeout_ns);
    buf_put_u32(&b, n);
    for (uint32_t i = 0; i < n; i++)
        buf_put_u32(&b, ranks[i]);
    return b;
}

struct buf rdv_frames_join(const char *scope, uint64_t timeout_ns, uint32_t n,
                           const uint32_t *ranks, const char *identity)
{
    struct buf b = rdv_frames_group(scope, timeout_ns, n, ranks);
    buf_put_str(&b, identity);
    buf_put_u32(&b, UINT32_MAX);
    return b;
}

struct buf rdv_frames_agree(const char *scope, uint64_t timeout_ns, uint32_t n,
                            const uint32_t *ranks, int status)
{
    struct buf b = rdv_frames_group(scope, timeout_ns, n, ranks);
    buf_put_u32(&b, (uint32_t)status);
    return b;
}

struct buf rdv_frames_put(const char *scope, const char *key, const char *value)
{
    struct buf b = rdv_frames_get(scope, key);
    buf_put_blob(&b, value, strlen(value));
    return b;
}

struct buf rdv_frames_get(const char *scope, const char *key)
{
    struct buf b = rdv_frames_scope(scope);
    buf_put_str(&b, key);
    return b;
}

struct buf rdv_frames_fence(const char *scope, uint32_t number)
{
    struct buf b = rdv_frames_scope(scope);
    buf_put_u32(&b, number);
    return b;
}

struct buf rdv_frames_leave(const char *scope)
{
    return rdv_frames_scope(scope);
}
