/* SPDX-License-Identifier: Apache-2.0
 *
 * Streaming stores are part of every x86-64; elsewhere, streaming is a plain copy.
 */
#include "copy.h"

#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>

#define STREAM_LEAST 1024u
#define PACE_LEAST 4096u   /* shorter copies end in the store buffer: their speed says nothing */
#define PACE_SLOW_TURNS 2u /* one slow copy may have been interrupted */
#define PACE_STREAMED 64u  /* between two tries of plain stores */
#define PACE_LEAST_BYTES                                                                           \
    10 /* in PACE_CYCLES of the time stamp counter; 3 to 6 GB/s on today's machines */
#define PACE_CYCLES 6

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

void copy_out(struct pace *pace, void *dst, const void *src, size_t len)
{
    if (pace->streamed > 0 && len >= STREAM_LEAST) {
        pace->streamed--;
        stream_bytes(dst, src, len);
        return;
    }
    if (len < PACE_LEAST) {
        copy_bytes(dst, src, len, false);
        return;
    }
    const uint64_t start = __rdtsc();
    memcpy(dst, src, len);
    const bool slow = (__rdtsc() - start) * PACE_LEAST_BYTES > len * PACE_CYCLES;
    pace->slow = slow ? pace->slow + 1 : 0;
    if (pace->slow >= PACE_SLOW_TURNS)
        pace->streamed = PACE_STREAMED;
}
#else
void copy_bytes(void *dst, const void *src, size_t len, bool stream)
{
    (void)stream;
    if (len > 0 && dst != src)
        memcpy(dst, src, len);
}

void copy_out(struct pace *pace, void *dst, const void *src, size_t len)
{
    (void)pace;
    copy_bytes(dst, src, len, false);
}
#endif
