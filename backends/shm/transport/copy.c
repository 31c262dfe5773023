/* SPDX-License-Identifier: Apache-2.0
 *
 * Long copies write whole, aligned cache lines. With AVX2 a line takes two loads and two stores, so
 * that twice as many lines are under way as with vectors of 16 bytes: on Zen 4 a copy of what
 * another core has written takes 10 to 25 % less, and fetching lines early adds nothing, unless the
 * other core is nearby and still writing. Writing for another core is the opposite. Streaming
 * stores exist on every x86-64; on other CPUs a streaming copy is a plain one.
 */
#include "transport/copy.h"

#include "transport/policy.h"

#include <string.h>

/* Up to this length memcpy is as fast. Longer ones of glibc take a third to three times longer than
 * a loop over lines from the second-level cache on: they begin with the end of the block, which the
 * CPU's prefetching does not follow, or use rep movsb, which on Zen 3 and 4 takes up to ten times
 * as long if the destination lies a few bytes behind the source, modulo 4096 (glibc bug 30995), as
 * a large buffer of malloc does, 16 bytes behind a page, behind one of the segment. */
#define COPY_SHORT_MAX 2048u

#ifdef __x86_64__
#include <immintrin.h>

#define COPY_LINE 64u
#define COPY_STREAM_MIN 2048u
/* Shorter copies end in the store buffer. One of some is measured until that is empty, for all. */
#define COPY_MEASURE_MIN 16384u
#define COPY_BRIEF_EVERY 16u

/* Streaming copies are of memory that no cache holds, which the CPU's own prefetching brings in one
 * page at a time. */
#define COPY_AHEAD 1024u

/* A reader that follows a writer asks for this much early, but not for lines of the next part,
 * which it would take from the writer. */
#define COPY_BEHIND 2048u

/* `dst` is aligned to a line. */
typedef void copy_lines_fn(char *dst, const char *src, size_t len);

__attribute__((target("avx2"))) static void copy_lines_avx2(char *dst, const char *src, size_t len)
{
    for (size_t i = 0; i < len; i += COPY_LINE) {
        const __m256i low = _mm256_loadu_si256((const void *)(src + i));
        const __m256i high = _mm256_loadu_si256((const void *)(src + i + 32));
        _mm256_store_si256((void *)(dst + i), low);
        _mm256_store_si256((void *)(dst + i + 32), high);
    }
}

__attribute__((target("avx2"))) static void copy_stream_avx2(char *dst, const char *src, size_t len)
{
    for (size_t i = 0; i < len; i += COPY_LINE) {
        __builtin_prefetch(src + i + COPY_AHEAD);
        const __m256i low = _mm256_loadu_si256((const void *)(src + i));
        const __m256i high = _mm256_loadu_si256((const void *)(src + i + 32));
        _mm256_stream_si256((void *)(dst + i), low);
        _mm256_stream_si256((void *)(dst + i + 32), high);
    }
}

static inline void copy_line_sse2(char *dst, const char *src)
{
    const __m128i a = _mm_loadu_si128((const void *)src);
    const __m128i b = _mm_loadu_si128((const void *)(src + 16));
    const __m128i c = _mm_loadu_si128((const void *)(src + 32));
    const __m128i d = _mm_loadu_si128((const void *)(src + 48));
    _mm_storeu_si128((void *)dst, a);
    _mm_storeu_si128((void *)(dst + 16), b);
    _mm_storeu_si128((void *)(dst + 32), c);
    _mm_storeu_si128((void *)(dst + 48), d);
}

static void copy_lines_sse2(char *dst, const char *src, size_t len)
{
    for (size_t i = 0; i < len; i += COPY_LINE)
        copy_line_sse2(dst + i, src + i);
}

static void copy_stream_sse2(char *dst, const char *src, size_t len)
{
    for (size_t i = 0; i < len; i += 16)
        _mm_stream_si128((void *)(dst + i), _mm_loadu_si128((const void *)(src + i)));
}

/* Behind a writer on a core nearby. `dst` may lie anywhere. */
static void copy_behind_lines(char *dst, const char *src, size_t len)
{
    for (size_t i = 0; i < len; i += COPY_LINE) {
        __builtin_prefetch(src + i + COPY_BEHIND);
        copy_line_sse2(dst + i, src + i);
    }
}

/* At least a line. */
static void copy_many(char *dst, const char *src, size_t len, copy_lines_fn *copy_lines)
{
    const size_t head = (COPY_LINE - (uintptr_t)dst % COPY_LINE) % COPY_LINE;
    const size_t tail = (len - head) % COPY_LINE;
    memcpy(dst, src, head);
    copy_lines(dst + head, src + head, len - head - tail);
    memcpy(dst + len - tail, src + len - tail, tail);
}

/* No release orders streaming stores: the fence does, before whatever the caller releases. */
static void copy_stream(char *dst, const char *src, size_t len)
{
    const bool wide = __builtin_cpu_supports("avx2");
    copy_many(dst, src, len, wide ? copy_stream_avx2 : copy_stream_sse2);
    _mm_sfence();
}

void copy_plain(void *dst, const void *src, size_t len)
{
    if (len > COPY_SHORT_MAX)
        copy_many(dst, src, len,
                  __builtin_cpu_supports("avx2") ? copy_lines_avx2 : copy_lines_sse2);
    else if (len > 0)
        memcpy(dst, src, len);
}

void copy_bytes(void *dst, const void *src, size_t len, bool stream)
{
    if (dst == src)
        return;
    if (stream && len >= COPY_STREAM_MIN)
        copy_stream(dst, src, len);
    else
        copy_plain(dst, src, len);
}

void copy_behind(const struct copy_policy *policy, void *dst, const void *src, size_t len)
{
    const bool near = !policy->streams && len > COPY_BEHIND;
    const size_t early = near ? (len - COPY_BEHIND) / COPY_LINE * COPY_LINE : 0;
    copy_behind_lines(dst, src, early);
    copy_plain((char *)dst + early, (const char *)src + early, len - early);
}

bool copy_out_streams(const struct copy_policy *policy, size_t len)
{
    return policy->streams && len >= COPY_STREAM_MIN;
}

/* Into lines that the other core has had. 16 bytes at a time take 5 to 25 % less than 32. */
static void copy_out_plain(void *dst, const void *src, size_t len)
{
    if (len > COPY_SHORT_MAX)
        copy_many(dst, src, len, copy_lines_sse2);
    else
        memcpy(dst, src, len);
}

void copy_out_many(struct copy_policy *policy, void *dst, const void *src, size_t len)
{
    if (len == 0 || dst == src)
        return;
    const bool streams = policy->streams, brief = len < COPY_MEASURE_MIN;
    if (len < COPY_STREAM_MIN || (brief && !streams && ++policy->brief % COPY_BRIEF_EVERY != 0)) {
        copy_out_plain(dst, src, len);
        return;
    }
    const uint64_t start = __rdtsc();
    if (streams)
        copy_stream(dst, src, len);
    else
        copy_out_plain(dst, src, len);
    if (brief && !streams)
        _mm_mfence();
    const uint64_t cycles = __rdtsc() - start;
    const uint32_t copies = brief && !streams ? COPY_BRIEF_EVERY : 1;
    copy_policy_measured(policy, copies * len, copies * cycles);
}
#else
void copy_plain(void *dst, const void *src, size_t len)
{
    if (len > 0)
        memcpy(dst, src, len);
}

void copy_behind(const struct copy_policy *policy, void *dst, const void *src, size_t len)
{
    (void)policy;
    copy_plain(dst, src, len);
}

bool copy_out_streams(const struct copy_policy *policy, size_t len)
{
    (void)policy, (void)len;
    return false;
}

void copy_bytes(void *dst, const void *src, size_t len, bool stream)
{
    (void)stream;
    if (dst != src)
        copy_plain(dst, src, len);
}

void copy_out_many(struct copy_policy *policy, void *dst, const void *src, size_t len)
{
    (void)policy;
    copy_plain(dst, src, len);
}
#endif
