/* SPDX-License-Identifier: Apache-2.0
 *
 * Streaming stores exist on every x86-64; on other CPUs a streaming copy is a plain one.
 */
#include "transport/copy.h"

#include <string.h>

/* From 4 KiB on glibc's memcpy uses rep movsb where the CPU claims that to be fast. On Zen 3 and 4
 * that takes up to ten times as long if the destination lies a few bytes behind the source, modulo
 * 4096 (glibc bug 30995), and it does between a page of the segment and a large buffer of malloc,
 * which begins 16 bytes behind a page. Shorter copies use vectors. */
#define COPY_VECTORS_MAX 2048u

void copy_plain(void *dst, const void *src, size_t len)
{
    char *to = dst;
    const char *from = src;
    size_t most = COPY_VECTORS_MAX;
    __asm__("" : "+r"(most)); /* for a constant length, gcc writes rep movsq */
    for (; len > most; len -= most) {
        memcpy(to, from, most);
        to += most;
        from += most;
    }
    if (len > 0)
        memcpy(to, from, len);
}

#ifdef __x86_64__
#include <immintrin.h>

#define COPY_STREAM_MIN 1024u
#define COPY_MEASURE_MIN                                                                           \
    4096u                /* shorter copies end in the store buffer: their speed proves nothing */
#define COPY_SLOW_RUN 2u /* one slow copy may have been interrupted */
#define COPY_STREAMED_RUN 64u /* between two attempts with plain stores */
/* A copy is slow below COPY_SLOW_BYTES per COPY_SLOW_CYCLES of the time stamp counter: 3 to 6 GB/s
 * on the machines of 2026. */
#define COPY_SLOW_BYTES 10
#define COPY_SLOW_CYCLES 6

/* The CPU's own prefetching stops at each page. */
#define COPY_STREAM_AHEAD 2048

static void copy_stream_lines(char *dst, const char *src, size_t lines)
{
    for (size_t i = 0; i < lines; i++, dst += 64, src += 64) {
        __builtin_prefetch(src + COPY_STREAM_AHEAD);
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

static void copy_stream_bytes(char *dst, const char *src, size_t len)
{
    const size_t head = (64 - (uintptr_t)dst % 64) % 64;
    const size_t lines = (len - head) / 64;
    const size_t tail = len - head - lines * 64;
    memcpy(dst, src, head);
    copy_stream_lines(dst + head, src + head, lines);
    memcpy(dst + len - tail, src + len - tail, tail);
}

void copy_bytes(void *dst, const void *src, size_t len, bool stream)
{
    if (len == 0 || dst == src)
        return;
    if (stream && len >= COPY_STREAM_MIN)
        copy_stream_bytes(dst, src, len);
    else
        copy_plain(dst, src, len);
}

void copy_out(struct copy_policy *policy, void *dst, const void *src, size_t len)
{
    if (policy->streamed > 0 && len >= COPY_STREAM_MIN) {
        policy->streamed--;
        copy_stream_bytes(dst, src, len);
        return;
    }
    if (len < COPY_MEASURE_MIN) {
        copy_bytes(dst, src, len, false);
        return;
    }
    const uint64_t start = __rdtsc();
    copy_plain(dst, src, len);
    const bool slow = (__rdtsc() - start) * COPY_SLOW_BYTES > len * COPY_SLOW_CYCLES;
    policy->slow = slow ? policy->slow + 1 : 0;
    if (policy->slow >= COPY_SLOW_RUN)
        policy->streamed = COPY_STREAMED_RUN;
}
#else
void copy_bytes(void *dst, const void *src, size_t len, bool stream)
{
    (void)stream;
    if (len > 0 && dst != src)
        memcpy(dst, src, len);
}

void copy_out(struct copy_policy *policy, void *dst, const void *src, size_t len)
{
    (void)policy;
    copy_bytes(dst, src, len, false);
}
#endif
