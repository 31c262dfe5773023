/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies to a core far away stream, those to a near one do not:
 * backends/shm/transport/copy_policy.h on cores that the test makes up. A streaming copy takes the
 * sender little time on all of them.
 */
#include "../../backends/shm/transport/copy_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MIB (1u << 20)

/* Cycles that a plain copy of a KiB takes. Into lines that streaming has left in no cache, it takes
 * COLD on all machines, until it has come to lines that the reader has had meanwhile. */
struct cores {
    uint64_t plain;
};

enum { COLD = 440, STREAMED = 50, COLD_BYTES = 2 * MIB };

static const struct cores near = {100}, far = {1200};

static size_t cold_left;

static int all_is_warm(void **state)
{
    (void)state;
    cold_left = 0;
    return 0;
}

static size_t copy_some(struct copy_policy *p, struct cores c, size_t bytes, size_t len)
{
    size_t streamed = 0;
    for (size_t done = 0; done < bytes; done += len) {
        const bool streams = p->streams;
        const uint64_t per_kib = streams ? STREAMED : cold_left > 0 ? COLD : c.plain;
        if (streams)
            cold_left = COLD_BYTES;
        else
            cold_left -= cold_left < len ? cold_left : len;
        streamed += streams ? len : 0;
        copy_policy_measured(p, len, len * per_kib / 1024);
    }
    return streamed;
}

static void copies_to_a_near_core_are_plain(void **state)
{
    struct copy_policy p = {0};
    (void)state;
    assert_int_equal(copy_some(&p, near, 256 * MIB, 4096), 0);
    assert_int_equal(copy_some(&p, near, 256 * MIB, 131072), 0);
}

static void copies_to_a_core_far_away_stream(void **state)
{
    (void)state;
    for (size_t len = 4096; len <= 262144; len *= 4) {
        struct copy_policy p = {0};
        copy_some(&p, far, 512 * MIB, len);
        assert_true(copy_some(&p, far, 1024 * MIB, len) > 940 * MIB);
    }
}

/* As of memory that is touched for the first time. */
static void one_slow_window_does_not_count(void **state)
{
    struct copy_policy p = {0};
    (void)state;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(copy_some(&p, far, 131072, 32768), 0);
        assert_int_equal(copy_some(&p, near, MIB, 32768), 0);
    }
}

static void an_interrupted_copy_does_not_count(void **state)
{
    struct copy_policy p = {0};
    (void)state;
    for (int i = 0; i < 1000; i++) {
        copy_policy_measured(&p, 32768, 3000000);
        assert_int_equal(copy_some(&p, near, 32768, 32768), 0);
    }
}

/* A hypervisor moves the ranks. */
static void copies_follow_cores_that_change(void **state)
{
    struct copy_policy p = {0};
    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_true(copy_some(&p, far, 512 * MIB, 32768) > 430 * MIB);
        assert_true(copy_some(&p, near, 512 * MIB, 32768) <= 32 * MIB);
        assert_int_equal(copy_some(&p, near, 512 * MIB, 32768), 0);
    }
}

static void streaming_ends_soon_where_it_began_by_mistake(void **state)
{
    struct copy_policy p = {0};
    (void)state;
    copy_some(&p, near, MIB, 32768);
    copy_some(&p, far, 2 * 131072, 32768);
    assert_true(p.streams);
    assert_true(copy_some(&p, near, 64 * MIB, 32768) <= MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(copies_to_a_near_core_are_plain, all_is_warm),
        cmocka_unit_test_setup(copies_to_a_core_far_away_stream, all_is_warm),
        cmocka_unit_test_setup(one_slow_window_does_not_count, all_is_warm),
        cmocka_unit_test_setup(an_interrupted_copy_does_not_count, all_is_warm),
        cmocka_unit_test_setup(copies_follow_cores_that_change, all_is_warm),
        cmocka_unit_test_setup(streaming_ends_soon_where_it_began_by_mistake, all_is_warm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
