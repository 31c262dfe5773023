/* SPDX-License-Identifier: Apache-2.0
 *
 * Copying.
 *
 * - Plain copies leave the destination in the cache, where the next step finds it.
 * - Streaming copies bypass the cache. They are right for destinations that are too large to
 *   stay there, whose old contents would otherwise be read from memory only to be overwritten.
 * - copy_out writes what another core is going to read, into lines that it has read before. It does
 *   so in the way that is faster at present (policy.h).
 */
#ifndef SHM_TRANSPORT_COPY_H
#define SHM_TRANSPORT_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct copy_policy;

/* memcpy, at the same speed for all addresses. The buffers do not overlap. */
void copy_plain(void *dst, const void *src, size_t len);
/* The buffers do not overlap, or are the same. */
void copy_bytes(void *dst, const void *src, size_t len, bool stream);

/* Fetches the lines of a later copy_out together with their ownership, while this rank has time. */
static inline void copy_prefetch_out(char *dst, size_t len)
{
    for (size_t at = 0; at < len; at += 64) {
#ifdef __x86_64__
        __asm__ volatile("prefetchw %0" : : "m"(dst[at])); /* compilers give prefetcht0 */
#else
        __builtin_prefetch(dst + at, 1);
#endif
    }
}

/* memcpy of 8 to 16 bytes in two moves, without a call. */
static inline bool copy_few(void *dst, const void *src, size_t len)
{
    uint64_t first, last;
    if (len - sizeof first > sizeof last)
        return false;
    memcpy(&first, src, sizeof first);
    memcpy(&last, (const char *)src + len - sizeof last, sizeof last);
    memcpy(dst, &first, sizeof first);
    memcpy((char *)dst + len - sizeof last, &last, sizeof last);
    return true;
}

/* copy_out of other lengths. */
void copy_out_many(struct copy_policy *policy, void *dst, const void *src, size_t len);

/* Copies what another core has written. The buffers do not overlap, or are the same. */
static inline void copy_in(void *dst, const void *src, size_t len)
{
    if (dst != src && !copy_few(dst, src, len))
        copy_plain(dst, src, len);
}
/* The same for a part of something that the other core is still writing. */
void copy_behind(const struct copy_policy *policy, void *dst, const void *src, size_t len);
/* True: copy_out of `len` bytes bypasses the cache at present, and needs no lines in it. */
bool copy_out_streams(const struct copy_policy *policy, size_t len);
/* No other rank reads `src`. */
static inline void copy_out(struct copy_policy *policy, void *dst, const void *src, size_t len)
{
    if (!copy_few(dst, src, len))
        copy_out_many(policy, dst, src, len);
}

#endif
