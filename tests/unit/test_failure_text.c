/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts of a mismatch and of a time-out: ranks with and without their rank in the job, ranges
 * of ranks, and lists that do not fit.
 */
#include "core/failure_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { SECOND_NS = 1000000000 };

static void a_mismatch_names_two_ranks_and_their_calls(void **state)
{
    static const uint32_t world_rank[] = {0, 1, 5};
    const struct collrun_call barrier = {.kind = COLLRUN_BARRIER},
                              reduce = {.kind = COLLRUN_ALLREDUCE, .count = 1};
    const struct failure_call a = {0, &barrier}, b = {2, &reduce};
    char text[256];
    (void)state;
    failure_text_mismatch(NULL, &a, &b, text, sizeof text);
    assert_string_equal(text, "rank 0 calls barrier(), rank 2 calls allreduce(1 x int8, sum)");
    failure_text_mismatch(world_rank, &a, &b, text, sizeof text);
    assert_string_equal(
        text, "rank 0 calls barrier(), rank 2 (world rank 5) calls allreduce(1 x int8, sum)");
    const struct collrun_call begins = {.kind = COLLRUN_ALLGATHER,
                                        .op = FAILURE_TEXT_BEGINS(COLLRUN_SCAN)};
    const struct failure_call c = {0, &begins};
    failure_text_mismatch(NULL, &c, &b, text, sizeof text);
    assert_string_equal(text, "rank 0 calls scan, rank 2 calls allreduce(1 x int8, sum)");
    failure_text_mismatch(world_rank, &a, &b, text, 16);
    assert_string_equal(text, "rank 0 calls ba");
}

static void a_timeout_lists_the_missing_ranks(void **state)
{
    static const struct {
        uint32_t missing[5], n;
        const char *text;
    } cases[] = {{{0}, 0, "rank 1 timed out after 2.5 s"},
                 {{3}, 1, "rank 1 waited 2.5 s for rank 3"},
                 {{0, 3}, 2, "rank 1 waited 2.5 s for ranks 0, 3"},
                 {{2, 3, 4, 6, 7}, 5, "rank 1 waited 2.5 s for ranks 2-4, 6-7"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct failure_wait wait = {.rank = 1,
                                          .nmissing = cases[i].n,
                                          .missing = cases[i].missing,
                                          .waited_ns = SECOND_NS * 5ull / 2};
        char text[256];
        failure_text_timeout(NULL, &wait, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
}

static void a_list_that_does_not_fit_is_cut(void **state)
{
    enum { N = 500 };
    uint32_t odd[N];
    char text[512];
    (void)state;
    for (uint32_t i = 0; i < N; i++)
        odd[i] = 2 * i + 1;
    const struct failure_wait wait = {
        .rank = 0, .nmissing = N, .missing = odd, .waited_ns = SECOND_NS};
    failure_text_timeout(NULL, &wait, text, sizeof text);
    assert_non_null(strstr(text, "rank 0 waited 1.0 s for ranks 1, 3, 5, "));
    assert_string_equal(text + strlen(text) - 3, "...");
}

static void an_operation_expires(void **state)
{
    char text[64];
    (void)state;
    failure_text_expired("allreduce train#7", 2ull * SECOND_NS, text, sizeof text);
    assert_string_equal(text, "allreduce train#7 timed out after 2.0 s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mismatch_names_two_ranks_and_their_calls),
        cmocka_unit_test(a_timeout_lists_the_missing_ranks),
        cmocka_unit_test(a_list_that_does_not_fit_is_cut),
        cmocka_unit_test(an_operation_expires),
    };
    return cmocka_run_group_tests_name("failure texts", tests, NULL, NULL);
}
