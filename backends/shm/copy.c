/* SPDX-License-Identifier: Apache-2.0
 *
 * Streaming stores are part of every x86-64; elsewhere, streaming is a plain copy.
 */
#include "copy.h"

#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <emmintrin.h>

#define STREAM_LEAST 4096u

static void stream_lines(char *dst, const char *src, size_t lines)
{
    for (size_t i = 0; i < lines; i++, dst += 64, src += 64) {
        const __m128i a = _mm_loadu_si128((const void *)src);
        const __m128i b = _mm_loadu_si128((const void *)(src + 16));
        const __m128i c = _mm_loadu_si128((const void *)(src + 32));
        const __m128i d = _mm_loadu_si128((const void *)(src + 48));
        _mm_stream_si128((void *)dst, a);
        _mm_stream_si128((void *)(dst + 16), b);
        _mm_stream_si128((void *)(dst + 32), c);
        _mm_stream_si128((void *)(dst + 48), d);
    }
    _mm_sfence();
}

static void stream_bytes(char *dst, const char *src, size_t len)
{
    const size_t head = (64 - (uintptr_t)dst % 64) % 64;
    const size_t lines = (len - head) / 64;
    const size_t tail = len - head - lines * 64;
    memcpy(dst, src, head);
    stream_lines(dst + head, src + head, lines);
    memcpy(dst + len - tail, src + len - tail, tail);
}

void copy_bytes(void *dst, const void *src, size_t len, bool stream)
{
    if (len == 0 || dst == src)
        return;
    if (stream && len >= STREAM_LEAST)
        stream_bytes(dst, src, len);
    else
        memcpy(dst, src, len);
}
#else
void copy_bytes(void *dst, const void *src, size_t len, bool stream)
{
    (void)stream;
    if (len > 0 && dst != src)
        memcpy(dst, src, len);
}
#endif
