/* SPDX-License-Identifier: Apache-2.0
 *
 * Folding of equal lines, with a simulated clock, and the labels of the ranks that wrote them.
 */
#include "report/fold.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MS = 1000000 };

static char shown[1 << 16]; /* "0,1:text " for each line */
static size_t shown_len;
static struct fold *fold;
static uint64_t now_ms;

static void show(void *ctx, const struct fold_line *line, const uint32_t *ranks, uint32_t n)
{
    (void)ctx;
    for (uint32_t i = 0; i < n && shown_len < sizeof shown - 64; i++)
        shown_len += (size_t)snprintf(shown + shown_len, sizeof shown - shown_len, "%s%u",
                                      i ? "," : "", ranks[i]);
    if (shown_len < sizeof shown - 64)
        shown_len += (size_t)snprintf(shown + shown_len, sizeof shown - shown_len, "%s%.*s ",
                                      line->stream == 1 ? ":" : "!", (int)line->len, line->text);
}

static int begin(void **state)
{
    (void)state;
    fold = fold_new(3, show, NULL);
    shown_len = 0;
    shown[0] = '\0';
    now_ms = 1000;
    return fold ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    fold_free(fold);
    return 0;
}

static void add_to(uint32_t rank, uint8_t stream, const char *text)
{
    const struct fold_line line = {stream, 0, text, strlen(text)};
    fold_add(fold, rank, &line, now_ms * MS);
}

static void add(uint32_t rank, const char *text)
{
    add_to(rank, 1, text);
}

static void wait_ms(uint64_t ms)
{
    now_ms += ms;
    fold_expire(fold, now_ms * MS);
}

static void expect(const char *want)
{
    assert_string_equal(shown, want);
    shown_len = 0;
    shown[0] = '\0';
}

static void a_line_of_all_ranks_is_shown_at_once(void **state)
{
    (void)state;
    add(1, "a");
    add(0, "a");
    expect("");
    add(2, "a");
    expect("0,1,2:a ");
    assert_int_equal(fold_due_ns(fold), 0);
}

static void a_line_waits_for_the_window_and_no_longer(void **state)
{
    (void)state;
    add(0, "a");
    wait_ms(60);
    add(2, "a");
    assert_int_equal(fold_due_ns(fold), 1100u * MS);
    wait_ms(39);
    expect("");
    wait_ms(1);
    expect("0,2:a ");
    add(1, "a"); /* too late */
    wait_ms(100);
    expect("1:a ");
}

static void the_order_within_a_rank_never_changes(void **state)
{
    (void)state;
    add(0, "a");
    add(0, "b");
    add(1, "b"); /* joins the second line, */
    add(1, "a"); /* and so cannot join the first */
    wait_ms(100);
    expect("0:a 0,1:b 1:a ");
}

static void a_repeated_line_is_counted_once_per_rank(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        add(0, "a");
    add(1, "a");
    wait_ms(100);
    expect("0,1:a 0:a ");
}

static void lines_that_no_rank_can_join_do_not_wait(void **state)
{
    (void)state;
    add(0, "only 0");
    add(0, "a");
    add(1, "a");
    expect("");
    add(2, "a"); /* all ranks are past the first line */
    expect("0:only 0 0,1,2:a ");
}

static void streams_stay_apart(void **state)
{
    (void)state;
    add_to(0, 1, "a");
    add_to(1, 2, "a");
    wait_ms(100);
    expect("0:a 1!a ");
}

/* Rank 2's line to stderr came through its pipe after its later one to stdout. */
static void streams_have_no_order_between_them(void **state)
{
    (void)state;
    add_to(0, 2, "err");
    add_to(1, 2, "err");
    add(2, "out");
    add_to(2, 2, "err");
    expect("0,1,2!err ");
    add(0, "out");
    add(1, "out");
    expect("0,1,2:out ");
}

static void nothing_waits_for_a_rank_that_left(void **state)
{
    (void)state;
    add(0, "a");
    fold_leave(fold, 2);
    expect("");
    add(1, "a");
    expect("0,1:a ");
    add(0, "b");
    add(1, "c");
    fold_leave(fold, 1);
    expect("0:b "); /* rank 0 may still join the other line */
    fold_flush(fold);
    expect("1:c ");
    add(2, "late");
    add(0, "late");
    expect("0,2:late ");
    fold_leave(fold, 0);
    fold_leave(fold, 0);
    add(1, "end");
    expect("1:end ");
}

static void flushing(void **state)
{
    (void)state;
    add(0, "a");
    add(1, "b");
    add(2, "c");
    fold_flush_rank(fold, 1);
    expect("0:a 1:b ");
    fold_flush_rank(fold, 1);
    expect("");
    fold_flush(fold);
    expect("2:c ");
    add(0, "d");
    fold_forget(fold);
    wait_ms(100);
    expect("");
}

static void what_waits_is_bounded(void **state)
{
    static char text[FOLD_BYTES_MAX / 2 + 1];
    char line[16];
    (void)state;
    for (int i = 0; i < FOLD_LINES_MAX + 2; i++) {
        snprintf(line, sizeof line, "%d", i);
        add(0, line);
    }
    expect("0:0 0:1 ");
    fold_forget(fold);
    memset(text, 'x', sizeof text - 1);
    add(0, "first");
    add(0, text);
    add(1, "second");
    add(0, text); /* two of them are too many */
    assert_memory_equal(shown, "0:first 0:xxx", 13);
    fold_flush(fold);
    fold_forget(fold);
}

/* Random lines of three ranks: each rank's lines come out in its order, none is lost or doubled. */
static void nothing_is_lost(void **state)
{
    enum { LINES = 30000, KINDS = 7 };
    static char wrote[3][LINES], got[3][LINES];
    size_t nwrote[3] = {0}, ngot[3] = {0};
    (void)state;
    srand(7);
    for (int i = 0; i < LINES; i++) {
        const uint32_t rank = (uint32_t)rand() % 3;
        const char text[2] = {(char)('a' + rand() % KINDS), '\0'};
        add(rank, text);
        wrote[rank][nwrote[rank]++] = text[0];
        wait_ms((uint64_t)rand() % 3);
        if (i + 1 == LINES)
            fold_flush(fold);
        for (const char *p = shown; *p; p = strchr(p, ' ') + 1) {
            for (const char *r = p, *colon = strchr(p, ':'); r < colon; r += 2)
                got[*r - '0'][ngot[*r - '0']++] = colon[1];
        }
        shown_len = 0;
        shown[0] = '\0';
    }
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ngot[r], nwrote[r]);
        assert_memory_equal(got[r], wrote[r], nwrote[r]);
    }
}

static void labels(void **state)
{
    struct desc_host hosts[] = {
        {.name = "n1"}, {.name = "n2"}, {.name = "n3"}, {.name = "n4"}, {.name = "n5"}};
    struct desc_rank ranks[10];
    const struct desc desc = {
        .nranks = 10, .ranks = ranks, .nhosts = 5, .hosts = hosts, .run_id = "r", .attempt = 1};
    static const struct {
        const char *template;
        uint32_t ranks[10], n;
        const char *want;
    } cases[] = {
        {"[{rank}]", {3}, 1, "[3] "},
        {"[{rank}]", {0, 1, 2, 3, 6}, 5, "[0-3,6] "},
        {"{rank}@{host}", {0, 1}, 2, "0-1@n1 "},
        {"{rank}@{host}", {1, 2, 5}, 3, "1-2,5@n1,n2,n3 "},
        {"{host}", {0, 2, 4, 6, 8}, 5, "5 hosts "},
        {"{local_rank} {run_id} {attempt}", {0, 1, 2, 5}, 4, "0-1 r 1 "},
        {"{local_rank}", {1, 3, 5}, 3, "1 "},
        {"", {0, 1}, 2, ""},
    };
    (void)state;
    memset(ranks, 0, sizeof ranks);
    for (uint32_t r = 0; r < 10; r++) {
        ranks[r].host = r / 2;
        ranks[r].local_rank = r % 2;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena arena;
        const char *label = NULL;
        arena_init(&arena);
        assert_int_equal(
            label_make(&desc, cases[i].template, cases[i].ranks, cases[i].n, &arena, &label),
            COLLRUN_OK);
        assert_string_equal(label, cases[i].want);
        arena_fini(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line_of_all_ranks_is_shown_at_once, begin, end),
        cmocka_unit_test_setup_teardown(a_line_waits_for_the_window_and_no_longer, begin, end),
        cmocka_unit_test_setup_teardown(the_order_within_a_rank_never_changes, begin, end),
        cmocka_unit_test_setup_teardown(a_repeated_line_is_counted_once_per_rank, begin, end),
        cmocka_unit_test_setup_teardown(lines_that_no_rank_can_join_do_not_wait, begin, end),
        cmocka_unit_test_setup_teardown(streams_stay_apart, begin, end),
        cmocka_unit_test_setup_teardown(streams_have_no_order_between_them, begin, end),
        cmocka_unit_test_setup_teardown(nothing_waits_for_a_rank_that_left, begin, end),
        cmocka_unit_test_setup_teardown(flushing, begin, end),
        cmocka_unit_test_setup_teardown(what_waits_is_bounded, begin, end),
        cmocka_unit_test_setup_teardown(nothing_is_lost, begin, end),
        cmocka_unit_test(labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
