/* SPDX-License-Identifier: Apache-2.0
 *
 * struct known_call: which blocking collectives skip the checks of their arguments.
 */
#include "null_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { RANK = 1, N = 4 };
static int32_t space[128];
#define AT(i) (&space[i])
#define BIG (SIZE_MAX / 2)
#define I32 COLLRUN_INT32

/* A loop that makes one call again and again is checked once; a call that differs from it in one
 * argument is checked as any other, also after a call of another kind. */
static void each_argument_is_checked_again_when_it_changes(void **state)
{
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) {
            assert_int_equal(collrun_reduce(g, AT(0), AT(64), 8, I32, COLLRUN_SUM, 0), COLLRUN_OK);
            assert_int_equal(null_backend.last.count, 8);
        }
        const unsigned calls = null_backend.calls;
        assert_int_equal(collrun_reduce(g, NULL, AT(64), 8, I32, COLLRUN_SUM, 0),
                         COLLRUN_ERR_INVALID);
        assert_int_equal(collrun_reduce(g, AT(0), AT(64), BIG, I32, COLLRUN_SUM, 0),
                         COLLRUN_ERR_INVALID);
        assert_int_equal(
            collrun_reduce(g, AT(0), AT(64), 8, (enum collrun_dtype)99, COLLRUN_SUM, 0),
            COLLRUN_ERR_INVALID);
        assert_int_equal(collrun_reduce(g, AT(0), AT(64), 8, I32, (enum collrun_op)99, 0),
                         COLLRUN_ERR_INVALID);
        assert_int_equal(collrun_reduce(g, AT(0), AT(64), 8, I32, COLLRUN_SUM, N),
                         COLLRUN_ERR_INVALID);
        assert_int_equal(collrun_reduce(g, AT(0), AT(1), 8, I32, COLLRUN_SUM, RANK),
                         COLLRUN_ERR_INVALID); /* they overlap, at the root */
        assert_int_equal(collrun_allreduce(g, AT(0), NULL, 8, I32, COLLRUN_SUM),
                         COLLRUN_ERR_INVALID);
        assert_int_equal(null_backend.calls, calls);
        assert_int_equal(collrun_barrier(g), COLLRUN_OK);
    }
    null_group_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_argument_is_checked_again_when_it_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
