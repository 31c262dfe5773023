/* SPDX-License-Identifier: Apache-2.0
 *
 * The exact output for a diag: excerpts with tabs, wide lines and broken bytes, a second
 * place, errors without a place, colours, and the limit. And the command line.
 */
#include "base/quote.h"
#include "opts.h"
#include "report/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct printing {
    struct arena arena;
    struct source *sources;
    struct report report;
    char *text;
    size_t len;
};

static void print_init(struct printing *p, const char *text)
{
    *p = (struct printing){0};
    arena_init(&p->arena);
    source_add(&p->sources, &p->arena, "job.yaml", text, strlen(text));
    source_add(&p->sources, &p->arena, "--set #1", "a.b=c", 5);
    FILE *out = open_memstream(&p->text, &p->len);
    assert_non_null(out);
    report_init(&p->report, out, false, p->sources);
    assert_false(p->report.color); /* no terminal */
}

static void printed(struct printing *p, const char *want)
{
    fclose(p->report.out);
    assert_string_equal(p->text, want);
    free(p->text);
    arena_fini(&p->arena);
}

static void the_line_is_shown_with_a_caret(void **state)
{
    (void)state;
    struct printing p;
    struct diag d;
    print_init(&p, "one\n\tb\xff: x\n");
    diag_at(&d, (struct diag_loc){NULL, 2, 5, 9}, "wrong");
    diag_second(&d, (struct diag_loc){"--set #1", 1, 1, 3}, "set here");
    diag_hint(&d, "do better");
    report_diag(&p.report, &d);
    printed(&p, "job.yaml:2:5: error: wrong\n"
                "    2 |  b?: x\n"
                "      |     ^~\n" /* not past the line's end */
                "--set #1:1:1: note: set here\n"
                "    1 | a.b=c\n"
                "      | ^~~\n"
                "hint: do better\n");
}

static void a_diagnostic_without_a_text_has_no_excerpt(void **state)
{
    (void)state;
    struct printing p;
    struct diag d;
    print_init(&p, "one\n");
    diag_set(&d, COLLRUN_ERR_SYSTEM, "out of everything");
    report_diag(&p.report, &d);
    d.rank = 3;
    snprintf(d.host, sizeof d.host, "gpu02");
    report_diag(&p.report, &d);
    d.rank = -1;
    d.loc = (struct diag_loc){"job.yaml", 0, 0, 0};
    report_diag(&p.report, &d);
    d.loc = (struct diag_loc){"gone.yaml", 7, 1, 1}; /* a file that is not loaded */
    d.host[0] = '\0';
    report_diag(&p.report, &d);
    d.loc = (struct diag_loc){NULL, 99, 1, 1}; /* a line that is not there */
    report_diag(&p.report, &d);
    printed(&p, "collrun: error: out of everything\n"
                "collrun: error: rank 3 on gpu02: out of everything\n"
                "job.yaml: error: host gpu02: out of everything\n"
                "gone.yaml:7:1: error: out of everything\n"
                "job.yaml:99:1: error: out of everything\n");
}

static void quoted_output_cannot_control_the_terminal(void **state)
{
    (void)state;
    struct printing p;
    struct diag d;
    print_init(&p, "one\n");
    diag_at(&d, (struct diag_loc){"job.yaml", 1, 1, 1}, "\033[2J\x7f caf\xc3\xa9");
    diag_hint(&d, "it printed: \a\xc2\x9b"
                  "31m\ttab");
    report_diag(&p.report, &d);
    diag_at(&d, (struct diag_loc){"\033[1mjob.yaml", 0, 0, 0}, "%s",
            quote("\xe2\x80\xae\xc2\x9b x", (char[QUOTE_SIZE]){0}));
    report_diag(&p.report, &d);
    report_line(&p.report, "rank 1: \xe2\x81\xa6 \xff");
    printed(&p, "job.yaml:1:1: error: ?[2J? caf\xc3\xa9\n"
                "    1 | one\n"
                "      | ^\n"
                "hint: it printed: ??31m\ttab\n"
                "?[1mjob.yaml: error: \"\\u202e\\u009b x\"\n"
                "collrun: rank 1: ? ?\n");
}

/* Values as they are, in quotes with escapes, and cut; one that contains another one, and one that
 * ${env:NAME} contains. */
static void values_of_secrets_are_not_shown(void **state)
{
    (void)state;
    char longest[600], escaped[] = "pass\"w\\ord\n2";
    struct job_str names[] = {{.v = "SHORT"}, {.v = "LONG"}, {.v = "LONGEST"}, {.v = "ESCAPED"},
                              {.v = "WORD"},  {.v = "TINY"}, {.v = "NOT_SET"}, {.v = NULL}};
    const struct job_strs secrets = {.items = names, .n = sizeof names / sizeof *names};
    struct printing p;
    struct diag d;
    memset(longest, 'z', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    setenv("SHORT", "user", 1);
    setenv("LONG", "user:S3cret", 1);
    setenv("LONGEST", longest, 1);
    setenv("ESCAPED", escaped, 1);
    setenv("WORD", "{env", 1);
    setenv("TINY", "a", 1);
    unsetenv("NOT_SET");
    print_init(&p, "one\n");
    p.report.secrets = &secrets;
    diag_set(&d, COLLRUN_ERR_INVALID, "a user and user:S3cret, user:S3cre");
    diag_hint(&d, "%s, %s", quote(escaped, (char[QUOTE_SIZE]){0}),
              quote(longest, (char[QUOTE_SIZE]){0}));
    report_diag(&p.report, &d);
    diag_set(&d, COLLRUN_ERR_INVALID, "%500s%s", "", longest); /* longer than the text of a diag */
    report_line(&p.report, d.text + 500);
    printed(&p, "collrun: error: a ${env:SHORT} and ${env:LONG}, ${env:SHORT}:S3cre\n"
                "hint: \"${env:ESCAPED}\", \"${env:LONGEST}...\"\n"
                "collrun: ${env:LONGEST}...\n");
}

/* An error that a host sends may name any place. */
static void a_place_past_the_line_has_a_short_caret(void **state)
{
    (void)state;
    const uint32_t columns[] = {0, 4, 1000, UINT32_MAX - 1, UINT32_MAX};
    const uint32_t widths[] = {0, 1, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        for (size_t k = 0; k < sizeof widths / sizeof *widths; k++) {
            struct printing p;
            struct diag d;
            print_init(&p, "one\n");
            diag_at(&d, (struct diag_loc){NULL, 1, columns[i], widths[k]}, "wrong");
            report_diag(&p.report, &d);
            fclose(p.report.out);
            assert_true(p.len < 300);
            free(p.text);
            arena_fini(&p.arena);
        }
    }
}

static void a_wide_line_is_cut_around_the_caret(void **state)
{
    (void)state;
    struct printing p;
    struct diag d;
    char line[401], want[1024];
    memset(line, 'x', 400);
    line[400] = '\0';
    print_init(&p, line);
    diag_at(&d, (struct diag_loc){NULL, 1, 300, 2}, "here");
    report_diag(&p.report, &d);
    snprintf(want, sizeof want,
             "job.yaml:1:300: error: here\n    1 | ...%.100s...\n      | %53s^~\n", line, "");
    printed(&p, want);
}

static void color_marks_the_place_and_the_caret(void **state)
{
    (void)state;
    struct printing p;
    struct diag d;
    print_init(&p, "one\n");
    p.report.color = true;
    diag_at(&d, (struct diag_loc){NULL, 1, 1, 3}, "wrong");
    report_diag(&p.report, &d);
    printed(&p, "\033[1mjob.yaml:1:1: \033[0m\033[1;31merror:\033[0m wrong\n"
                "    1 | one\n"
                "      | \033[1;31m^~~\033[0m\n");
}

static void diagnostics_are_sorted_and_limited(void **state)
{
    (void)state;
    struct printing p;
    struct diag_list list;
    struct diag d;
    print_init(&p, "");
    diag_list_init(&list);
    diag_set(&d, COLLRUN_ERR_SYSTEM, "no place");
    diag_list_add(&list, &d);
    diag_at(&d, (struct diag_loc){"--set #1", 1, 1, 1}, "set");
    diag_list_add(&list, &d);
    for (uint32_t i = 0; i < 300; i++) {
        diag_at(&d, (struct diag_loc){NULL, 1000 - i, 1, 1}, "number %u", i);
        diag_list_add(&list, &d);
    }
    assert_int_equal(diag_list_count(&list), 302);
    report_diags(&p.report, &list);
    assert_string_equal(list.items[list.n - 1].text, "no place");
    assert_string_equal(list.items[list.n - 2].text, "set");
    diag_list_fini(&list);
    fflush(p.report.out);
    assert_true(strncmp(p.text, "job.yaml:747:1: error: number 253\n", 34) == 0);
    assert_non_null(strstr(p.text, "number 234\n... and 282 more errors\n"));
    assert_null(strstr(p.text, "number 233\n"));
    fclose(p.report.out);
    free(p.text);
    arena_fini(&p.arena);
}

/* ---- the command line ---- */

static int parse(struct arena *arena, struct opts *o, struct diag *d, const char *line)
{
    char *words = arena_strdup(arena, line);
    char **argv = arena_calloc(arena, 32, sizeof *argv);
    int argc = 0;
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    return opts_parse(argc, argv, arena, o, d);
}

static void options_are_read_in_any_order(void **state)
{
    (void)state;
    struct arena arena;
    struct opts o;
    struct diag d;
    arena_init(&arena);
    assert_int_equal(parse(&arena, &o, &d, "collrun job.yaml --set a=b -q --set=c=d"), 0);
    assert_int_equal(o.command, OPTS_RUN);
    assert_string_equal(o.job, "job.yaml");
    assert_int_equal(o.nsets, 2);
    assert_string_equal(o.sets[0], "a=b");
    assert_string_equal(o.sets[1], "c=d");
    assert_true(o.quiet && !o.verbose);
    assert_int_equal(parse(&arena, &o, &d, "collrun --json plan ./--odd-name.yaml"), 0);
    assert_int_equal(o.command, OPTS_PLAN);
    assert_string_equal(o.job, "./--odd-name.yaml");
    assert_true(o.json);
    assert_int_equal(parse(&arena, &o, &d, "collrun run run"), 0);
    assert_string_equal(o.job, "run");
    assert_int_equal(parse(&arena, &o, &d, "collrun --help"), 0);
    assert_int_equal(parse(&arena, &o, &d, "collrun -h check"), 0);
    assert_true(o.help);
    assert_int_equal(o.command, OPTS_CHECK);
    assert_int_equal(parse(&arena, &o, &d, "collrun backends"), 0);
    assert_int_equal(parse(&arena, &o, &d, "collrun describe -- --odd-name"), 0);
    assert_string_equal(o.job, "--odd-name");
    arena_fini(&arena);
}

static void a_program_stands_after_two_dashes(void **state)
{
    (void)state;
    struct arena arena;
    struct opts o;
    struct diag d;
    arena_init(&arena);
    assert_int_equal(parse(&arena, &o, &d, "collrun -q -n 4 -- ./prog -n -- --set"), 0);
    assert_int_equal(o.command, OPTS_RUN);
    assert_null(o.job);
    assert_string_equal(o.count, "4");
    assert_int_equal(o.nsets, 0);
    assert_string_equal(o.program[0], "./prog");
    assert_string_equal(o.program[3], "--set");
    assert_null(o.program[4]);
    assert_int_equal(parse(&arena, &o, &d, "collrun plan -n 4 --hosts a,b --hosts -- p"), 0);
    assert_string_equal(o.host_list, "a,b");
    assert_true(o.hosts);
    assert_int_equal(parse(&arena, &o, &d, "collrun plan --hosts a.yaml"), 0);
    assert_true(o.hosts && !o.host_list);
    assert_string_equal(o.job, "a.yaml");
    assert_int_equal(parse(&arena, &o, &d, "collrun -n 2 --wrap 1 gdb -x y -- p q"), 0);
    assert_string_equal(o.wrap[2], "y");
    assert_null(o.wrap[3]);
    assert_string_equal(o.program[1], "q");
    assert_int_equal(parse(&arena, &o, &d, "collrun a.yaml -n 2 --set processes.count=3"), 0);
    assert_int_equal(o.nsets, 1);
    assert_string_equal(o.count, "2");
    arena_fini(&arena);
}

static void options_that_are_wrong_are_refused(void **state)
{
    (void)state;
    struct arena arena;
    struct opts o;
    struct diag d;
    arena_init(&arena);
    static const char *const bad[] = {"collrun",
                                      "collrun run",
                                      "collrun nothing",
                                      "collrun a.yaml b.yaml",
                                      "collrun check a.yaml --json",
                                      "collrun a.yaml --set",
                                      "collrun a.yaml --sett a=b",
                                      "collrun a.yaml -x",
                                      "collrun a.yaml --quiet=1",
                                      "collrun schema a.yaml",
                                      "collrun a.yaml -qv",
                                      "collrun --",
                                      "collrun -- p",
                                      "collrun a.yaml -- p",
                                      "collrun a.yaml --gpus 1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(parse(&arena, &o, &d, bad[i]), COLLRUN_ERR_INVALID);
    arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_is_shown_with_a_caret),
        cmocka_unit_test(a_diagnostic_without_a_text_has_no_excerpt),
        cmocka_unit_test(a_wide_line_is_cut_around_the_caret),
        cmocka_unit_test(a_place_past_the_line_has_a_short_caret),
        cmocka_unit_test(quoted_output_cannot_control_the_terminal),
        cmocka_unit_test(values_of_secrets_are_not_shown),
        cmocka_unit_test(color_marks_the_place_and_the_caret),
        cmocka_unit_test(diagnostics_are_sorted_and_limited),
        cmocka_unit_test(options_are_read_in_any_order),
        cmocka_unit_test(a_program_stands_after_two_dashes),
        cmocka_unit_test(options_that_are_wrong_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
