/* SPDX-License-Identifier: Apache-2.0
 *
 * What a blocking call costs above its backend: argument checks, numbering, entering and leaving,
 * recording. Prints nanoseconds; fails only when it is off by an order of magnitude, for the
 * machine may be busy.
 */
#include "backend.h"
#include "base/loop.h"
#include "base/record.h"
#include "null_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <unistd.h>

enum { CALLS = 200000, ROUNDS = 15, BUDGET_NS = 50, LIMIT_NS = 1000 };

static double best_ns(struct collrun_group *g, int (*call)(struct collrun_group *))
{
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start = now_ns();
        for (int i = 0; i < CALLS; i++)
            assert_int_equal(call(g), COLLRUN_OK);
        double ns = (double)(now_ns() - start) / CALLS;
        best = ns < best ? ns : best;
    }
    return best;
}

static float in[4], out[4];

static int allreduce(struct collrun_group *g)
{
    return collrun_allreduce(g, in, out, 4, COLLRUN_FLOAT32, COLLRUN_SUM);
}

static int barrier(struct collrun_group *g)
{
    return collrun_barrier(g);
}

static int to_peer(struct collrun_group *g)
{
    return collrun_send(g, in, 4, COLLRUN_FLOAT32, 1);
}

static int through_table(struct collrun_group *g)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_BARRIER);
    return g->sides[0].backend->table.exec(g->sides[0].lanes[0].handle, &call, 1);
}

static void test_overhead(void **state)
{
    (void)state;
    struct collrun_group *g = null_group_new(0, 4, 0);
    int fd = record_make();
    struct record_page *page = record_map(fd);
    g->record[0] = record_open(page, "test");
    g->record[1] = record_open(page, "test");
    double bare = best_ns(g, through_table);
    const struct {
        const char *name;
        int (*call)(struct collrun_group *);
    } cases[] = {{"allreduce", allreduce}, {"barrier", barrier}, {"send", to_peer}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double ns = best_ns(g, cases[i].call) - bare;
        printf("# %-9s %5.1f ns above the backend (budget %d)\n", cases[i].name, ns, BUDGET_NS);
        assert_true(ns < LIMIT_NS);
    }
    null_group_free(g);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_overhead)};
    return cmocka_run_group_tests_name("engine overhead", tests, NULL, NULL);
}
