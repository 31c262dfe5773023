/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that share cores yield where that loses little time, and else sleep: the trials of
 * backends/shm/transport/yield_policy.h, with losses that the test makes up.
 */
#include "../../backends/shm/transport/yield_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

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
        cmocka_unit_test(cores_of_the_job_alone_are_yielded),
        cmocka_unit_test(where_yielding_loses_time_ranks_sleep),
        cmocka_unit_test(the_choice_follows_the_machine),
        cmocka_unit_test(one_loss_is_soon_over),
        cmocka_unit_test(all_ranks_sleep_if_one_loses_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
