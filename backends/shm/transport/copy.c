/* SPDX-License-Identifier: Apache-2.0
 *
 * Streaming stores exist on every x86-64; on other CPUs a streaming copy is a plain one.
 */
#include "transport/copy.h"

#include "transport/copy_policy.h"

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

#define COPY_STREAM_MIN 2048u
/* Shorter copies end in the store buffer. One of some is measured until that is empty, for all. */
#define COPY_MEASURE_MIN 16384u
#define COPY_BRIEF_EVERY 16u

/* The CPU's own prefetching stops at each page, and keeps few lines in flight. */
#define COPY_AHEAD 2048u

struct copy_line {
    __m128i part[4];
};

static inline struct copy_line copy_load_line(const char *src)
{
    return (struct copy_line){
        {_mm_loadu_si128((const void *)src), _mm_loadu_si128((const void *)(src + 16)),
         _mm_loadu_si128((const void *)(src + 32)), _mm_loadu_si128((const void *)(src + 48))}};
}

static void copy_stream_lines(char *dst, const char *src, size_t lines)
{
    for (size_t i = 0; i < lines; i++, dst += 64, src += 64) {
        __builtin_prefetch(src + COPY_AHEAD);
        const struct copy_line line = copy_load_line(src);
        for (int k = 0; k < 4; k++)
            _mm_stream_si128((void *)(dst + 16 * k), line.part[k]);
    }
    _mm_sfence();
}

static void copy_in_lines(char *dst, const char *src, size_t lines)
{
    for (size_t i = 0; i < lines; i++, dst += 64, src += 64) {
        __builtin_prefetch(src + COPY_AHEAD);
        const struct copy_line line = copy_load_line(src);
        for (int k = 0; k < 4; k++)
            _mm_storeu_si128((void *)(dst + 16 * k), line.part[k]);
    }
}

void copy_in_many(void *dst, const void *src, size_t len)
{
    if (len == 0 || dst == src)
        return;
    /* The last lines ahead would be beyond the end, where the other core may be writing. */
    const size_t lines = len > COPY_AHEAD ? (len - COPY_AHEAD) / 64 : 0;
    copy_in_lines(dst, src, lines);
    copy_plain((char *)dst + lines * 64, (const char *)src + lines * 64, len - lines * 64);
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

bool copy_out_streams(const struct copy_policy *policy, size_t len)
{
    return policy->streams && len >= COPY_STREAM_MIN;
}

void copy_out_many(struct copy_policy *policy, void *dst, const void *src, size_t len)
{
    const bool streams = policy->streams, brief = len < COPY_MEASURE_MIN;
    if (len < COPY_STREAM_MIN || (brief && !streams && ++policy->brief % COPY_BRIEF_EVERY != 0)) {
        copy_plain(dst, src, len);
        return;
    }
    const uint64_t start = __rdtsc();
    copy_bytes(dst, src, len, streams);
    if (brief && !streams)
        _mm_mfence();
    const uint64_t cycles = __rdtsc() - start;
    const uint32_t copies = brief && !streams ? COPY_BRIEF_EVERY : 1;
    copy_policy_measured(policy, copies * len, copies * cycles);
}
#else
void copy_in_many(void *dst, const void *src, size_t len)
{
    copy_bytes(dst, src, len, false);
}

bool copy_out_streams(const struct copy_policy *policy, size_t len)
{
    (void)policy, (void)len;
    return false;
}

void copy_bytes(void *dst, const void *src, size_t len, bool stream)
{
    (void)stream;
    if (len > 0 && dst != src)
        memcpy(dst, src, len);
}

void copy_out_many(struct copy_policy *policy, void *dst, const void *src, size_t len)
{
    (void)policy;
    copy_bytes(dst, src, len, false);
}
#endif
