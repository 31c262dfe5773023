/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of shm, with AVX2 where the CPU has it, and as on one that has not: what arrives is what
 * memcpy brings, at each alignment, and nothing beside the destination is touched.
 */
#include "../../backends/shm/transport/copy.h"
#include "../../backends/shm/transport/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* The same code for a CPU without AVX2. */
#define copy_plain narrow_plain
#define copy_bytes narrow_bytes
#define copy_behind narrow_behind
#define copy_out_streams narrow_out_streams
#define copy_out_many narrow_out_many
#define __builtin_cpu_supports(feature) (0)
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#include "../../backends/shm/transport/copy.c"
#undef copy_plain
#undef copy_bytes
#undef copy_behind

enum { MOST = 40000, MARGIN = 256, ROOM = MOST + 2 * MARGIN };

static char source[ROOM], room[ROOM], expected[ROOM];

static const struct copy_policy near = {0}, far = {.streams = true};

static void plain(void *dst, const void *src, size_t len)
{
    copy_plain(dst, src, len);
}
static void streaming(void *dst, const void *src, size_t len)
{
    copy_bytes(dst, src, len, true);
}
static void behind(void *dst, const void *src, size_t len)
{
    copy_behind(&near, dst, src, len);
}
static void behind_far(void *dst, const void *src, size_t len)
{
    copy_behind(&far, dst, src, len);
}
static void plain_without_avx2(void *dst, const void *src, size_t len)
{
    narrow_plain(dst, src, len);
}
static void streaming_without_avx2(void *dst, const void *src, size_t len)
{
    narrow_bytes(dst, src, len, true);
}

static void out(void *dst, const void *src, size_t len)
{
    struct copy_policy policy = {0};
    copy_out(&policy, dst, src, len);
}
static void out_streaming(void *dst, const void *src, size_t len)
{
    struct copy_policy policy = {.streams = true, .left = 1u << 30};
    copy_out(&policy, dst, src, len);
}

static void (*const copies[])(void *, const void *, size_t) = {
    plain, streaming,     behind, behind_far, plain_without_avx2, streaming_without_avx2,
    out,   out_streaming,
};

static void copy_once(size_t way, size_t to, size_t from, size_t len)
{
    memset(room, 1, sizeof room);
    memset(expected, 1, sizeof expected);
    memcpy(expected + MARGIN + to, source + MARGIN + from, len);
    copies[way](room + MARGIN + to, source + MARGIN + from, len);
    if (memcmp(room, expected, sizeof room) != 0)
        fail_msg("copy %zu of %zu bytes from %zu to %zu", way, len, from, to);
}

static void what_arrives_is_what_was_there(void **state)
{
    (void)state;
    static const size_t lens[] = {0,    1,    17,   63,   64,   2047, 2048, 2049,
                                  2112, 2175, 4096, 4160, 4223, 6143, 8192, MOST - 64};
    for (size_t i = 0; i < sizeof source; i++)
        source[i] = (char)(i * 2654435761u >> 7);
    for (size_t way = 0; way < sizeof copies / sizeof *copies; way++)
        for (size_t k = 0; k < sizeof lens / sizeof *lens; k++)
            for (size_t to = 0; to < 64; to += 3)
                for (size_t from = 0; from < 64; from += 21)
                    copy_once(way, to, from, lens[k]);
}

static void a_block_onto_itself_stays(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof room; i++)
        expected[i] = room[i] = (char)i;
    copy_bytes(room, room, MOST, true);
    copy_bytes(room, room, MOST, false);
    copy_in(room, room, MOST);
    assert_memory_equal(room, expected, sizeof room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_arrives_is_what_was_there),
        cmocka_unit_test(a_block_onto_itself_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
