/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts of a mismatch and of a time-out: ranks with and without their rank in the job, ranges
 * of ranks, and lists that do not fit.
 */
#include "base/network.h"
#include "core/error.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
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

/* What the engine writes, the runner reads. */
static void a_connection_without_an_answer(void **state)
{
    const struct network_fault cases[] = {
        {.attempts = 3, .bytes = 65536, .silent_s = 5.9, .address = "10.2.0.7", .port = 4711},
        {.attempts = 1, .bytes = 1, .silent_s = 61.0, .address = "fd00::7", .port = 65535},
        {.attempts = 1, .probed = true, .silent_s = 1.2, .address = "10.2.0.7", .port = 1},
        {.attempts = 2, .opening = true, .address = "fd00::7", .port = 4711},
        {.error = EHOSTUNREACH, .opening = true, .address = "10.2.0.7", .port = 4711},
        {.error = ETIMEDOUT, .opening = true, .address = "fd00::7", .port = 1},
        {.error = ENETUNREACH, .opening = true, .address = "fd00::"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[NETWORK_TEXT], message[512];
        struct network_fault f;
        const char *end;
        network_fault_text(&cases[i], text);
        snprintf(message, sizeof message, "rank 2 waited 6.0 s for rank 0; %s: the rest", text);
        assert_true(network_fault_read(message, &f, &end));
        assert_string_equal(end, ": the rest");
        assert_string_equal(f.address, cases[i].address);
        assert_int_equal(f.port, cases[i].port);
        assert_int_equal(f.attempts, cases[i].attempts);
        assert_int_equal(f.bytes, cases[i].bytes);
        assert_int_equal((int)(10 * f.silent_s + 0.5), (int)(10 * cases[i].silent_s + 0.5));
        assert_int_equal(f.probed, cases[i].probed);
        assert_int_equal(f.opening, cases[i].opening);
        assert_int_equal(f.error, cases[i].error);
        for (size_t len = strlen(message) - strlen(end); len-- > 0;) { /* cut short */
            message[len] = '\0';
            assert_false(network_fault_read(message, &f, &end));
            assert_false(f.found);
        }
    }
}

/* The network refuses connect(). What the host of the peer answers is no cut. */
static void a_connection_that_cannot_be_made(void **state)
{
    struct network_fault f;
    const char *end;
    (void)state;
    assert_true(network_fault_read(
        "cannot connect to rank 3 at fd00::7 port 5: Network is unreachable; more", &f, &end));
    assert_string_equal(end, "; more");
    assert_string_equal(f.address, "fd00::7");
    assert_int_equal(f.port, 5);
    assert_int_equal(f.error, ENETUNREACH);
    assert_false(
        network_fault_read("cannot connect to 10.2.0.7 port 5: nothing listens there", &f, &end));
    assert_false(network_fault_read("cannot connect to h2 port 5: No route to host", &f, &end));
    assert_false(network_is_cut(ECONNREFUSED));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mismatch_names_two_ranks_and_their_calls),
        cmocka_unit_test(a_timeout_lists_the_missing_ranks),
        cmocka_unit_test(a_list_that_does_not_fit_is_cut),
        cmocka_unit_test(an_operation_expires),
        cmocka_unit_test(a_connection_without_an_answer),
        cmocka_unit_test(a_connection_that_cannot_be_made),
    };
    return cmocka_run_group_tests_name("failure texts", tests, NULL, NULL);
}
