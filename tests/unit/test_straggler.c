/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rank is last, how often and by how much; which rank is named; and the list of the groups of
 * a job, which is bounded.
 */
#include "diagnose/straggler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 5 };

static uint32_t seed;

static uint32_t random_below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

enum { TIMED = 60 };

/* What the header says, by other means: no sums, no order of arrival, all numbers at once. */
static void check_stragglers(const struct straggler_group *g, uint32_t n, uint64_t (*times)[RANKS],
                             uint32_t step)
{
    uint64_t last[RANKS] = {0}, late[RANKS] = {0}, compared = 0, begin = 0, end = 0;
    for (uint32_t i = 0; i < TIMED; i++) {
        uint32_t slowest = 0;
        uint64_t median = 0;
        for (uint32_t r = 0; r < n; r++) {
            uint32_t before = 0;
            slowest = times[i][r] > times[i][slowest] ? r : slowest;
            for (uint32_t k = 0; k < n; k++)
                before += times[i][k] < times[i][r] || (times[i][k] == times[i][r] && k < r);
            median = before == (n - 1) / 2 ? times[i][r] : median;
        }
        end = times[i][slowest];
        begin = i ? begin : end;
        compared += i > 0;
        last[slowest] += i > 0;
        late[slowest] += i ? times[i][slowest] - median : 0;
    }
    assert_int_equal(g->compared, compared);
    assert_int_equal(g->operations, (TIMED - 1) * step);
    for (uint32_t r = 0; r < n; r++) {
        double all = (double)late[r] / (double)compared * (TIMED - 1) * step;
        double cost = all / (double)(end - begin);
        assert_int_equal(g->ranks[r].last, last[r]);
        assert_int_equal(g->ranks[r].late_ns, late[r]);
        assert_true(straggler_cost(g, r) - (cost < 1 ? cost : 1) < 1e-9 &&
                    (cost < 1 ? cost : 1) - straggler_cost(g, r) < 1e-9);
    }
}

static void the_last_rank_is_counted(void **state)
{
    (void)state;
    for (uint32_t i = 1; i < 300; i++) {
        static uint64_t times[TIMED][RANKS];
        struct straggler_group g;
        seed = i;
        uint32_t n = 2 + random_below(RANKS - 1), step = 1 + random_below(64);
        straggler_init(&g, n);
        for (uint32_t k = 0; k < TIMED; k++) {
            for (uint32_t r = 0; r < n; r++)
                times[k][r] = 1000000 + k * 1000 + random_below(900);
            straggler_add(&g, 5 + k * step, times[k]);
        }
        check_stragglers(&g, n, times, step);
        straggler_fini(&g);
    }
}

/* 100 operations of 10 ms; in `late` of 10, rank 2 calls late_ns later than the others. */
static bool find_straggler(uint32_t late, uint64_t late_ns, struct straggler_finding *f)
{
    struct straggler_group g;
    straggler_init(&g, 3);
    for (uint32_t r = 0; r < 3; r++)
        g.ranks[r].rank = 10 + r;
    for (uint64_t i = 1; i <= 101; i++) {
        uint64_t at = i * 10000000, times[3] = {at + 1000, at, at};
        times[2] += i % 10 < late ? late_ns : 0;
        straggler_add(&g, i, times);
    }
    bool found = straggler_find(&g, f);
    straggler_fini(&g);
    return found;
}

static void a_straggler_is_last_in_most_operations_and_costs_time(void **state)
{
    struct straggler_finding f;
    (void)state;
    assert_true(find_straggler(9, 4000000, &f));
    assert_int_equal(f.rank, 12);
    assert_int_equal(f.last, 90);
    assert_int_equal(f.compared, 100);
    assert_true(f.late_ms > 3.9 && f.late_ms < 4.1);
    assert_true(f.cost > 0.35 && f.cost < 0.37);
    assert_true(find_straggler(7, 9000000, &f));
    assert_false(find_straggler(6, 9000000, &f)); /* rank 0 is last in 4 of 10 */
    assert_false(find_straggler(3, 9000000, &f)); /* not in most */
    assert_false(find_straggler(9, 900000, &f));  /* 8 % */
}

/* Ranks that are delayed at random, by up to a whole operation, are no stragglers. */
static void jitter_is_no_straggler(void **state)
{
    (void)state;
    for (uint32_t i = 1; i < 3000; i++) {
        struct straggler_group g;
        struct straggler_finding f;
        seed = i;
        uint32_t nranks = 2 + random_below(3), n = 51 + random_below(30);
        straggler_init(&g, nranks);
        for (uint64_t k = 1, at = 0; k <= n; k++, at += 100000000) {
            uint64_t times[RANKS];
            for (uint32_t r = 0; r < nranks; r++)
                times[r] = at + random_below(10000) * 10000;
            straggler_add(&g, k, times);
        }
        assert_false(straggler_find(&g, &f));
        straggler_fini(&g);
    }
}

/* A formation of two ranks, given in this order; the second rank is last in its two operations. */
static void end_formation(struct straggler_list *list, const char *name, uint32_t a, uint32_t b)
{
    struct straggler_group g;
    straggler_init(&g, 2);
    g.ranks[0].rank = a;
    g.ranks[1].rank = b;
    for (uint64_t k = 1; k <= 3; k++)
        straggler_add(&g, k, (const uint64_t[]){k * 100, k * 100 + 7});
    straggler_list_take(list, name, &g);
    assert_null(g.ranks);
}

static const struct straggler_sums *find_group(const struct straggler_list *list, const char *name)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (strcmp(list->items[i].group, name) == 0)
            return &list->items[i];
    }
    return NULL;
}

/* Under new names, as of groups that are made at run time. */
static void groups_that_ended_long_ago_are_left_out(void **state)
{
    enum { NAMES = 3 * STRAGGLER_LIST_MAX };
    struct straggler_list list = {0};
    (void)state;
    for (uint32_t i = 0; i < NAMES; i++) {
        char name[32];
        snprintf(name, sizeof name, "g%u", i);
        end_formation(&list, name, 4, 2);
        end_formation(&list, "again", 2, 4); /* never the one that ended longest ago */
    }
    assert_int_equal(list.n, STRAGGLER_LIST_MAX);
    assert_int_equal(list.left_out, NAMES + 1 - STRAGGLER_LIST_MAX);
    assert_null(find_group(&list, "g0"));
    assert_non_null(find_group(&list, "g3071"));
    const struct straggler_sums *s = find_group(&list, "again");
    assert_non_null(s);
    assert_int_equal(s->sums.compared, 2 * NAMES);
    assert_int_equal(s->sums.ranks[0].rank, 2);
    assert_int_equal(s->sums.ranks[1].last, 2 * NAMES);
    straggler_list_fini(&list);
    assert_int_equal(list.n, 0);
}

static void equal_names_of_other_ranks_are_other_groups(void **state)
{
    struct straggler_list list = {0};
    (void)state;
    end_formation(&list, "half", 0, 2);
    end_formation(&list, "half", 1, 3);
    end_formation(&list, "half", 2, 0);
    assert_int_equal(list.n, 2);
    assert_int_equal(list.items[0].sums.compared, 4);
    assert_int_equal(list.items[0].sums.ranks[0].last, 2);
    assert_int_equal(list.items[0].sums.ranks[1].last, 2);
    straggler_list_fini(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_rank_is_counted),
        cmocka_unit_test(a_straggler_is_last_in_most_operations_and_costs_time),
        cmocka_unit_test(jitter_is_no_straggler),
        cmocka_unit_test(groups_that_ended_long_ago_are_left_out),
        cmocka_unit_test(equal_names_of_other_ranks_are_other_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
