/* SPDX-License-Identifier: Apache-2.0
 *
 * What is remembered about the stalls of groups is bounded: groups that do not wait are forgotten,
 * those that wait and those with a report are not.
 */
#include "diagnose/stall.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static struct stall_episode *get(struct stall_episodes *e, unsigned n, bool messages)
{
    char scope[64] = "";
    snprintf(scope, sizeof scope, "g%u#0:1", n);
    return stall_episodes_get(e, scope, messages);
}

static void an_episode_is_of_one_kind_in_one_group(void **state)
{
    struct stall_episodes e = {0};
    (void)state;
    struct stall_episode *one = get(&e, 1, false);
    assert_ptr_equal(get(&e, 1, false), one);
    assert_ptr_not_equal(get(&e, 1, true), one);
    assert_ptr_not_equal(get(&e, 2, false), one);
    assert_int_equal(e.n, 3);
    stall_episodes_fini(&e);
}

static void groups_that_do_not_wait_are_forgotten(void **state)
{
    enum { GROUPS = 3 * STALL_EPISODES_MAX };
    struct stall_episodes e = {0};
    int report;
    (void)state;
    for (unsigned i = 0; i < GROUPS; i++) {
        struct stall_episode *new = get(&e, i, false);
        assert_int_equal(new->passed, 0);
        new->since_ns = i + 1;
        new->passed = 1;
        new->number = i == 0;
        new->present = i == 1;
        new->report = i == 2 ? (void *)&report : NULL;
    }
    assert_int_equal(e.n, STALL_EPISODES_MAX);
    assert_int_equal(e.left_out, GROUPS - STALL_EPISODES_MAX);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(get(&e, i, false)->passed, 1);
    assert_int_equal(get(&e, GROUPS - 1, false)->passed, 1);
    assert_int_equal(e.left_out, GROUPS - STALL_EPISODES_MAX);
    assert_int_equal(get(&e, 3, false)->passed, 0); /* was the first to be forgotten */
    stall_episodes_fini(&e);
}

static void groups_that_all_wait_are_kept(void **state)
{
    struct stall_episodes e = {0};
    (void)state;
    for (unsigned i = 0; i < STALL_EPISODES_MAX + 9; i++)
        get(&e, i, true)->present = true;
    assert_int_equal(e.n, STALL_EPISODES_MAX + 9);
    assert_int_equal(e.left_out, 0);
    stall_episodes_fini(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_episode_is_of_one_kind_in_one_group),
        cmocka_unit_test(groups_that_do_not_wait_are_forgotten),
        cmocka_unit_test(groups_that_all_wait_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
