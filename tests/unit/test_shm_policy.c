/* SPDX-License-Identifier: Apache-2.0
 *
 * backends/shm/transport/policy.h on cores, and with times, that the test makes up.
 */
#include "../../backends/shm/transport/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Copies to a core far away stream, those to a near one do not. A streaming copy takes the
 * sender little time on all of them.
 */

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

/* A receiver takes the faster way for long messages, notices when the other one has become faster,
 * and does not change its mind for one delay.
 */

enum { LEN = 3 << 20 };

/* `n` messages; returns how many of them were read. */
static unsigned receive(struct remote_policy *p, unsigned n, uint64_t read_ns, uint64_t blocks_ns)
{
    unsigned reads = 0;
    for (unsigned i = 0; i < n; i++) {
        const enum remote_way way = remote_policy_choose(p);
        reads += way == REMOTE_READ;
        remote_policy_measured(p, way, LEN, way == REMOTE_READ ? read_ns : blocks_ns);
    }
    return reads;
}

static void the_faster_way_is_taken(void **state)
{
    (void)state;
    struct remote_policy read = {0}, blocks = {0};
    assert_true(receive(&read, 1000, 200000, 300000) >= 980);
    assert_true(receive(&blocks, 1000, 300000, 200000) <= 20);
}

static void both_ways_are_tried_again(void **state)
{
    (void)state;
    struct remote_policy p = {0};
    receive(&p, 1000, 200000, 300000);
    receive(&p, 1000, 400000, 300000);
    assert_true(receive(&p, 1000, 400000, 300000) <= 20);
    receive(&p, 2000, 200000, 300000);
    assert_true(receive(&p, 1000, 200000, 300000) >= 980);
}

static void one_delay_changes_little(void **state)
{
    (void)state;
    struct remote_policy p = {0};
    receive(&p, 100, 200000, 300000);
    remote_policy_measured(&p, REMOTE_READ, LEN, 1000000000);
    assert_true(receive(&p, 100, 200000, 300000) >= 97);
}

/* The blocks, and the pages that the kernel has not looked up yet, are new. */
static void the_first_message_of_each_way_does_not_count(void **state)
{
    (void)state;
    struct remote_policy read = {0}, blocks = {0};
    receive(&read, 2, 2000000, 3000000);
    assert_true(receive(&read, 100, 200000, 300000) >= 96);
    receive(&blocks, 2, 1000000, 20000000);
    assert_true(receive(&blocks, 100, 300000, 200000) <= 4);
}

static void a_way_that_has_become_faster_is_taken_soon(void **state)
{
    (void)state;
    struct remote_policy p = {0};
    receive(&p, 128, 300000, 3000000);
    assert_true(receive(&p, 128, 300000, 200000) <= 66);
}

/* Ranks that share cores yield where that loses little time, and else sleep: the trials of
 * backends/shm/transport/policy.h, with losses that the test makes up.
 */

/* What a call takes, and what it loses if it yields: `every` calls lose it once. */
struct machine {
    uint64_t call_ns, lost_ns;
    unsigned every;
};

static const struct machine quiet = {5000, 0, 1};
static const struct machine disturbed = {5000, 4000000, 1000}; /* a slice, seldom */
static const struct machine busy = {30000, 4000000, 20};
static const struct machine long_waits = {10000000, 200000, 1};

static uint64_t now_ns;

static uint64_t now(void)
{
    return now_ns;
}

/* Makes `calls` calls; returns how many of them yielded. */
static unsigned run(struct yield_policy *c, _Atomic uint32_t *yields, struct machine m,
                    unsigned calls)
{
    unsigned yielded = 0;
    for (unsigned i = 0; i < calls; i++) {
        const bool yields_now = yield_policy_begin(c, true, now, yields);
        now_ns += m.call_ns;
        if (yields_now && ++yielded % m.every == 0) {
            c->lost_ns += m.lost_ns;
            now_ns += m.lost_ns;
        }
    }
    return yielded;
}

static void cores_of_the_job_alone_are_yielded(void **state)
{
    static const struct machine *const machines[] = {&quiet, &disturbed};
    (void)state;
    for (unsigned k = 0; k < 2; k++) {
        struct yield_policy c = {0};
        _Atomic uint32_t yields = 0;
        now_ns = YIELD_RETRY_MOST_NS;
        run(&c, &yields, quiet, 1); /* the first call sleeps */
        assert_int_equal(run(&c, &yields, *machines[k], 20000), 20000);
    }
}

/* Less than a tenth of the time is lost. */
static void where_yielding_loses_time_ranks_sleep(void **state)
{
    static const struct machine *const machines[] = {&busy, &long_waits};
    (void)state;
    for (unsigned k = 0; k < 2; k++) {
        struct yield_policy c = {0};
        _Atomic uint32_t yields = 0;
        now_ns = YIELD_RETRY_MOST_NS;
        const unsigned yielded = run(&c, &yields, *machines[k], 20000);
        assert_true(yielded >= 1 && yielded <= 20000);
        assert_true(yielded / machines[k]->every * machines[k]->lost_ns < now_ns / 10);
    }
}

static void the_choice_follows_the_machine(void **state)
{
    struct yield_policy c = {0};
    _Atomic uint32_t yields = 0;
    (void)state;
    now_ns = YIELD_RETRY_MOST_NS;
    run(&c, &yields, quiet, 3 * YIELD_BLOCK);
    unsigned yielded = run(&c, &yields, busy, 8 * YIELD_BLOCK);
    assert_true(yielded >= 1 && yielded <= YIELD_BLOCK);
    run(&c, &yields, quiet, (unsigned)(YIELD_RETRY_MOST_NS / quiet.call_ns) + 1);
    assert_int_equal(run(&c, &yields, quiet, YIELD_BLOCK), YIELD_BLOCK);
}

/* Something else has run for one slice, at the beginning. */
static void one_loss_is_soon_over(void **state)
{
    struct yield_policy c = {0};
    _Atomic uint32_t yields = 0;
    (void)state;
    now_ns = YIELD_RETRY_MOST_NS;
    run(&c, &yields, quiet, 2);
    c.lost_ns = 4000000;
    run(&c, &yields, quiet, 1 + (unsigned)(2 * YIELD_RETRY_NS / quiet.call_ns));
    assert_int_equal(run(&c, &yields, quiet, YIELD_BLOCK), YIELD_BLOCK);
}

/* The leader has no loss itself, since the others wait for it. */
static void all_ranks_sleep_if_one_loses_time(void **state)
{
    struct yield_policy leader = {0}, second = {0};
    _Atomic uint32_t yields = 0;
    unsigned yielded = 0;
    (void)state;
    now_ns = YIELD_RETRY_MOST_NS;
    for (unsigned i = 0; i < 1000; i++) {
        yield_policy_begin(&leader, true, now, &yields);
        if (yield_policy_begin(&second, false, now, &yields)) {
            second.lost_ns += long_waits.lost_ns;
            yielded++;
        }
        now_ns += long_waits.call_ns;
    }
    assert_true(yielded >= 1 && yielded <= 1000 / 4);
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
        cmocka_unit_test(the_faster_way_is_taken),
        cmocka_unit_test(both_ways_are_tried_again),
        cmocka_unit_test(one_delay_changes_little),
        cmocka_unit_test(the_first_message_of_each_way_does_not_count),
        cmocka_unit_test(a_way_that_has_become_faster_is_taken_soon),
        cmocka_unit_test(cores_of_the_job_alone_are_yielded),
        cmocka_unit_test(where_yielding_loses_time_ranks_sleep),
        cmocka_unit_test(the_choice_follows_the_machine),
        cmocka_unit_test(one_loss_is_soon_over),
        cmocka_unit_test(all_ranks_sleep_if_one_loses_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
