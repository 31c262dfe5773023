/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of the live line, with a simulated clock.
 */
#include "report/live.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECOND UINT64_C(1000000000)

static uint32_t all_ranks[] = {0, 1};
static struct desc_group groups[] = {{.name = "dp", .ranks = {all_ranks, 2}},
                                     {.name = "sync", .ranks = {all_ranks, 2}}};
static struct desc_workload workloads[] = {{.name = "train"}, {.name = "eval"}};
static const struct desc desc = {
    .nranks = 2, .groups = groups, .ngroups = 2, .workloads = workloads, .nworkloads = 2};

static struct rank_state ranks[2];
static struct live live;
static uint64_t t0;

static int begin(void **state)
{
    (void)state;
    ranks[0] = ranks[1] = (struct rank_state){.pid = 7};
    live_init(&live, NULL, &desc, ranks, NULL, true);
    t0 = live.begin_ns;
    return 0;
}

static int end(void **state)
{
    (void)state;
    live.loop = NULL;
    live_fini(&live);
    return 0;
}

static void shows(double seconds, size_t width, const char *want)
{
    char line[1024];
    live_format(&live, t0 + (uint64_t)(seconds * 1e9), width, line, sizeof line);
    assert_string_equal(line, want);
}

static void see(double seconds, const char *group, uint64_t done, uint64_t bytes)
{
    struct group_snapshot g = {.started = done, .done = done, .bytes = bytes};
    struct rank_snapshot seen = {.known = true, .groups = &g, .n = 1};
    snprintf(g.name, sizeof g.name, "%s", group);
    live_snapshot(&live, t0 + (uint64_t)(seconds * 1e9), &seen);
}

static void progress(double seconds, uint32_t rank, uint32_t workload, uint64_t done,
                     uint64_t total, const char *what)
{
    live_progress(&live, t0 + (uint64_t)(seconds * 1e9),
                  &(struct live_step){rank, workload, done, total, what});
}

static void ranks_that_run_are_counted(void **state)
{
    (void)state;
    ranks[0] = ranks[1] = (struct rank_state){0};
    shows(1, 80, "1s | 0/2 ranks up");
    ranks[0].end = RANK_EXITED; /* it could not be started */
    shows(1, 80, "1s | 0/2 ranks up");
    ranks[1].pid = 7;
    shows(1, 80, "1s | 1/2 ranks up");
    ranks[1].end = RANK_LOST;
    shows(1, 80, "1s | 0/2 ranks up");
}

static void ranks_and_rates(void **state)
{
    (void)state;
    shows(3, 80, "3s | 2/2 ranks up");
    see(1, "dp", 1000, 64000000);
    shows(1.5, 80, "2s | 2/2 ranks up"); /* not known yet */
    see(2, "dp", 3000, 192000000);
    see(2.001, "dp", 3000, 191000000); /* the other rank, at the same time: no second window */
    shows(2, 80, "2s | 2/2 ranks up | dp 2.0 k op/s 128 MB/s");
    see(3, "sync", 50, 0);
    see(4, "sync", 70, 0);
    shows(4, 80, "4s | 2/2 ranks up | dp 2.0 k op/s 128 MB/s | sync 20 op/s");
    see(5, "dp", 3000, 192000000); /* it stands still: that is shown, too */
    shows(75, 80, "1m15s | 2/2 ranks up | dp 0 op/s 0B/s | sync 20 op/s");
    ranks[0].end = RANK_EXITED;
    shows(7200, 80, "2h00m | 1/2 ranks up | dp 0 op/s 0B/s | sync 20 op/s");
}

static void progress_and_what_is_left(void **state)
{
    (void)state;
    progress(0, 0, 0, 0, 100, "epoch 1");
    progress(0, 1, 0, 0, 100, "epoch 1");
    shows(0.2, 80, "0s | 2/2 ranks up | train 0% epoch 1");
    progress(10, 0, 0, 20, 100, "epoch 2");
    progress(10, 1, 0, 20, 100, "epoch 2");
    shows(10, 80, "10s | 2/2 ranks up | train 20% epoch 2, 40s left");
    progress(10, 0, 1, 1, 4, "");
    shows(10, 80, "10s | 2/2 ranks up | train 20% epoch 2, 40s left | eval 25%");
    progress(400, 0, 0, 100, 100, "epoch 2");
    progress(400, 1, 0, 100, 100, "epoch 2");
    progress(20, 0, 1, 2, 4, "");
    shows(20, 80, "20s | 2/2 ranks up | train 100% epoch 2 | eval 50%, 20s left");
}

/* A workload that goes on from step 900 of 1000 is not nine times as fast. */
static void resumed(void **state)
{
    (void)state;
    progress(0, 0, 0, 900, 1000, "");
    progress(100, 0, 0, 950, 1000, "");
    shows(100, 80, "1m40s | 2/2 ranks up | train 95%, 1m40s left");
}

static void strange_words(void **state)
{
    (void)state;
    progress(0, 0, 0, 1, 10, "a\033[2J\rb\nc\xff");
    shows(0, 80, "0s | 2/2 ranks up | train 10% a?[2J?b?c?");
    progress(0, 0, 0, 1, 10, "\xc3\xa9t\xc3\xa9");
    shows(0, 80, "0s | 2/2 ranks up | train 10% \xc3\xa9t\xc3\xa9");
    progress(0, 0, 0, 1, 10,
             "\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2"
             "\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2"
             "\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2"); /* longer than there is room */
    char line[1024];
    live_format(&live, t0, 200, line, sizeof line);
    assert_string_equal(line + strlen(line) - 3, "\xe6\xbc\xa2"); /* no half of one */
    progress(0, 9, 0, 1, 10, "of a rank that is not");
    progress(0, 0, 9, 1, 10, "of a workload that is not");
    progress(0, 1, 0, 20, 10, "more than all");
    shows(0, 80, "0s | 2/2 ranks up | train 55% more than all");
}

static void narrow(void **state)
{
    (void)state;
    progress(0, 0, 0, 1, 10, "\xc3\xa9t\xc3\xa9");
    shows(0, 38, "0s | 2/2 ranks up | train 10% \xc3\xa9t\xc3\xa9");
    shows(0, 33, "0s | 2/2 ranks up | train 10% \xc3\xa9t\xc3\xa9");
    shows(0, 32, "0s | 2/2 ranks up | train 10% \xc3\xa9>");
    shows(0, 31, "0s | 2/2 ranks up | train 10% >");
    shows(0, 10, "0s | 2/2 >");
    shows(0, 1, "");
    shows(0, 0, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ranks_that_run_are_counted, begin, end),
        cmocka_unit_test_setup_teardown(ranks_and_rates, begin, end),
        cmocka_unit_test_setup_teardown(progress_and_what_is_left, begin, end),
        cmocka_unit_test_setup_teardown(resumed, begin, end),
        cmocka_unit_test_setup_teardown(strange_words, begin, end),
        cmocka_unit_test_setup_teardown(narrow, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
