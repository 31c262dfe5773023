/* SPDX-License-Identifier: Apache-2.0
 *
 * Which threads of a rank matter, and which ones reports show.
 */
#include "diagnose/stacks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void the_thread_that_runs_matters_most(void **state)
{
    (void)state;
    char text[128];
    struct stacks_thread threads[3] = {
        {.name = "main", .call = "futex()", .state = 'S'},
        {.name = "work", .call = "nanosleep()", .state = 'S'},
        {.name = "spin", .call = "", .state = 'R', .use = 994},
    };
    const struct rank_stacks s = {.received = true, .threads = threads, .nthreads = 3};
    assert_ptr_equal(stacks_main(&s, false), &threads[2]);
    stacks_describe(&threads[2], text, sizeof text);
    assert_string_equal(text, "running (99 % CPU)");
    threads[2].use = 0;
    assert_ptr_equal(stacks_main(&s, false), &threads[1]);
    assert_ptr_equal(stacks_main(&s, true), &threads[0]);
    const char *frame = "blas (gemm.c:3)";
    threads[1].frames = &frame;
    threads[1].nframes = 1;
    assert_ptr_equal(stacks_main(&s, true), &threads[1]);
    threads[1].state = 'D';
    stacks_describe(&threads[1], text, sizeof text);
    assert_string_equal(text, "blocked in the kernel in nanosleep()");
}

static void the_first_thread_of_a_program_is_shown(void **state)
{
    (void)state;
    struct stacks_thread threads[2] = {{.name = "python3", .call = ""},
                                       {.name = "collrun/service", .call = ""}};
    struct rank_stacks s = {.received = true, .threads = threads, .nthreads = 2};
    assert_true(stacks_is_shown(&s, 0, true));
    assert_false(stacks_is_shown(&s, 1, true));
    assert_false(stacks_is_shown(&s, 0, false));
    s.nthreads = 1;
    assert_true(stacks_is_shown(&s, 0, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_thread_that_runs_matters_most),
        cmocka_unit_test(the_first_thread_of_a_program_is_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
