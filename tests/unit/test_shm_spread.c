/* SPDX-License-Identifier: Apache-2.0
 *
 * backends/shm/transport/spread.h: which ranks share a core, and how one leaves it.
 */
#include "../../backends/shm/transport/spread.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void put(struct spread_core *cores, uint32_t rank, uint32_t core)
{
    atomic_store(&cores[rank].number, core + 1);
}

static void ranks_on_one_core_are_found(void **state)
{
    (void)state;
    struct spread_core cores[4] = {{0}};
    put(cores, 1, 5);
    assert_false(spread_is_shared(cores, 4, 1, false));
    assert_false(spread_is_shared(cores, 4, 0, false)); /* not known */
    put(cores, 3, 5);
    assert_true(spread_is_shared(cores, 4, 1, false));
    assert_false(spread_is_shared(cores, 4, 1, true)); /* the one of lower number stays */
    assert_true(spread_is_shared(cores, 4, 3, true));
    put(cores, 3, 6);
    assert_false(spread_is_shared(cores, 4, 1, false));
}

static void a_rank_moves_to_a_free_core(void **state)
{
    (void)state;
    cpu_set_t usable, after;
    struct spread_core cores[2] = {{0}};
    assert_int_equal(sched_getaffinity(0, sizeof usable, &usable), 0);
    if (CPU_COUNT(&usable) < 2)
        skip();
    spread_publish(cores, 1);
    const uint32_t core = atomic_load(&cores[1].number) - 1;
    put(cores, 0, core);
    assert_true(spread_move(cores, 2, 1));
    assert_int_not_equal(atomic_load(&cores[1].number) - 1, core);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&usable, &after));
}

static void a_rank_without_a_free_core_stays(void **state)
{
    (void)state;
    cpu_set_t usable, one;
    struct spread_core cores[2] = {{0}};
    assert_int_equal(sched_getaffinity(0, sizeof usable, &usable), 0);
    spread_publish(cores, 1);
    const uint32_t core = atomic_load(&cores[1].number) - 1;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (!CPU_ISSET(core, &usable) || sched_setaffinity(0, sizeof one, &one) != 0)
        skip();
    put(cores, 0, core);
    put(cores, 1, core);
    assert_false(spread_move(cores, 2, 1));
    sched_setaffinity(0, sizeof usable, &usable);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_on_one_core_are_found),
        cmocka_unit_test(a_rank_moves_to_a_free_core),
        cmocka_unit_test(a_rank_without_a_free_core_stays),
    };
    return cmocka_run_group_tests_name("shm_spread", tests, NULL, NULL);
}
