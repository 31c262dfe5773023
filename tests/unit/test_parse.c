/* SPDX-License-Identifier: Apache-2.0
 *
 * base/parse, base/template, base/quote and base/suggest: tables of accepted texts, and of refused
 * ones with their errors.
 */
#include "base/parse.h"
#include "base/quote.h"
#include "base/suggest.h"
#include "base/template.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void integers_are_parsed(void **state)
{
    (void)state;
    static const struct {
        const char *s;
        int64_t v;
    } good[] = {{"0", 0},
                {"-0", 0},
                {"+7", 7},
                {"007", 7},
                {"0x1F", 31},
                {"0o17", 15},
                {"-12", -12},
                {"9223372036854775807", INT64_MAX},
                {"-9223372036854775808", INT64_MIN}};
    static const char *const bad[] = {"",
                                      "-",
                                      "1_000",
                                      "1.0",
                                      "0x",
                                      "0o8",
                                      "-0x1",
                                      " 1",
                                      "1 ",
                                      "ten",
                                      "12:30",
                                      "9223372036854775808",
                                      "99999999999999999999999",
                                      "0b1"};
    for (size_t i = 0; i < COUNT(good); i++) {
        int64_t v = -99;
        assert_int_equal(parse_int(good[i].s, &v, NULL), 0);
        assert_int_equal(v, good[i].v);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct diag d;
        int64_t v = -99;
        assert_int_equal(parse_int(bad[i], &v, &d), COLLRUN_ERR_INVALID);
        assert_int_equal(v, -99);
        assert_true(strstr(d.text, "integer") != NULL);
    }
}

static void floats_are_parsed(void **state)
{
    (void)state;
    static const struct {
        const char *s;
        double v;
    } good[] = {{"0", 0},     {"1.5", 1.5},       {".5", .5},
                {"5.", 5},    {"-1e3", -1000},    {"+.5E-1", .05},
                {"0x10", 16}, {".inf", INFINITY}, {"-.Inf", -INFINITY}};
    static const char *const bad[] = {"",    ".",     "e5",  "1e",    "1e+",  "nan",
                                      "inf", "0x1p3", "1,5", "1.5.2", "1e999"};
    for (size_t i = 0; i < COUNT(good); i++) {
        double v = -99;
        assert_int_equal(parse_float(good[i].s, &v, NULL), 0);
        assert_true(v == good[i].v);
    }
    double v = 0;
    assert_int_equal(parse_float(".NaN", &v, NULL), 0);
    assert_true(isnan(v));
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(parse_float(bad[i], &v, NULL), COLLRUN_ERR_INVALID);
}

static void booleans_are_parsed(void **state)
{
    (void)state;
    bool v = false;
    assert_int_equal(parse_bool("True", &v, NULL), 0);
    assert_true(v);
    assert_int_equal(parse_bool("FALSE", &v, NULL), 0);
    assert_false(v);
    static const char *const bad[] = {"yes", "no", "on", "off", "y", "1", "0", "tRUE", ""};
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(parse_bool(bad[i], &v, NULL), COLLRUN_ERR_INVALID);
}

static void durations_are_parsed(void **state)
{
    (void)state;
    const uint64_t s = 1000000000;
    const struct {
        const char *text;
        uint64_t ns;
    } good[] = {{"0", 0},
                {"0s", 0},
                {"500ms", s / 2},
                {"30s", 30 * s},
                {"5m", 300 * s},
                {"1h30m", 5400 * s},
                {"1.5s", 3 * s / 2},
                {"1h0m0.25s", 3600 * s + s / 4},
                {"7ns", 7},
                {"3us", 3000},
                {"0.000001s", 1000},
                {"2562047h", s * 2562047 * 3600}};
    static const struct {
        const char *text, *words;
    } bad[] = {{"", "is not a duration"},
               {"s", "is not a duration"},
               {"30", "has no unit"},
               {"5 s", "is not a duration"},
               {"-5s", "is not a duration"},
               {"30m1h", "is not a duration"},
               {"1s1s", "is not a duration"},
               {"5x", "is not a duration"},
               {"5S", "is not a duration"},
               {"1.s", "is not a duration"},
               {"1.1234567s", "more than six digits"},
               {"0.5ns", "whole number of nanoseconds"},
               {"2562048h", "too large"},
               {"99999999999999999999s", "too large"},
               {"2562047h9999999m", "too large"},
               {"1h30", "has no unit"}};
    for (size_t i = 0; i < COUNT(good); i++) {
        uint64_t v = 1;
        assert_int_equal(parse_duration(good[i].text, &v, NULL), 0);
        assert_int_equal(v, good[i].ns);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct diag d;
        uint64_t v = 1;
        assert_int_equal(parse_duration(bad[i].text, &v, &d), COLLRUN_ERR_INVALID);
        assert_int_equal(v, 1);
        if (!strstr(d.text, bad[i].words))
            fail_msg("%s: %s", bad[i].text, d.text);
    }
}

static void sizes_are_parsed(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},           {"1000", 1000},
                {"1000B", 1000},    {"64KiB", 65536},
                {"1GiB", 1u << 30}, {"1.5MiB", 1572864},
                {"2kB", 2000},      {"2KB", 2000},
                {"3MB", 3000000},   {"1TiB", UINT64_C(1) << 40},
                {"0.5KiB", 512}};
    static const struct {
        const char *text, *words;
    } bad[] = {{"", "is not a size"},
               {"KiB", "is not a size"},
               {"64 KiB", "is not a size"},
               {"64K", "is not a size"},
               {"64kib", "is not a size"},
               {"-1", "is not a size"},
               {"1.5", "whole number of bytes"},
               {"0.1KiB", "whole number"},
               {"0x40", "is not a size"},
               {"8388608TiB", "too large"},
               {"18446744073709551616", "too large"}};
    for (size_t i = 0; i < COUNT(good); i++) {
        uint64_t v = 1;
        assert_int_equal(parse_size(good[i].text, &v, NULL), 0);
        assert_int_equal(v, good[i].bytes);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct diag d;
        uint64_t v = 1;
        assert_int_equal(parse_size(bad[i].text, &v, &d), COLLRUN_ERR_INVALID);
        assert_int_equal(v, 1);
        if (!strstr(d.text, bad[i].words))
            fail_msg("%s: %s", bad[i].text, d.text);
    }
}

static void what_is_formatted_parses_back(void **state)
{
    (void)state;
    char out[32];
    static const uint64_t amounts[] = {
        0, 1, 999, 1000, 65536, 65537, 5400000000000, 600000000000, 1500000000, 1u << 30};
    for (size_t i = 0; i < COUNT(amounts); i++) {
        uint64_t v = 1;
        assert_int_equal(parse_duration(format_duration(amounts[i], out), &v, NULL), 0);
        assert_int_equal(v, amounts[i]);
        assert_int_equal(parse_size(format_size(amounts[i], out), &v, NULL), 0);
        assert_int_equal(v, amounts[i]);
    }
    assert_string_equal(format_duration(5400000000000, out), "1h30m");
    assert_string_equal(format_duration(600000000000, out), "10m");
    assert_string_equal(format_size(65536, out), "64KiB");
    assert_string_equal(format_offset(-49999, out), "+0.0 ms");
    assert_string_equal(format_offset(-50000, out), "-0.1 ms");
    assert_string_equal(format_offset(1234567890, out), "+1234.6 ms");
}

static void rank_sets_are_parsed(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    struct parse_ranks set;
    assert_int_equal(parse_ranks("0-3,8-15:2, 20", NULL, &arena, &set, NULL), 0);
    assert_int_equal(set.n, 3);
    assert_int_equal(set.ranges[1].first, 8);
    assert_int_equal(set.ranges[1].last, 15);
    assert_int_equal(set.ranges[1].step, 2);
    assert_int_equal(set.ranges[1].at, 4);
    assert_int_equal(set.ranges[1].len, 6);
    assert_int_equal(set.ranges[2].first, 20);
    assert_int_equal(set.ranges[2].at, 12);
    assert_int_equal(parse_range_count(&set.ranges[1]), 4);
    assert_int_equal(parse_ranks("all", NULL, &arena, &set, NULL), 0);
    assert_true(set.all);
    static const char *const bad[] = {"",    ",",     "0,",         "0-",      "-3",  "3-0",
                                      "0:2", "0-3:0", "0-3:",       "a",       "0 1", "0--3",
                                      "ALL", "*",     "4294967296", "0-3,all", "1.5"};
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(parse_ranks(bad[i], NULL, &arena, &set, NULL), COLLRUN_ERR_INVALID);
    arena_fini(&arena);
}

/* "0-3 5-9:2", of a set that names roles. */
static const char *set_text(const char *text, const struct parse_rank_names *names, char out[128])
{
    struct arena arena;
    struct parse_ranks set;
    size_t used = 0;
    arena_init(&arena);
    out[0] = '\0';
    if (parse_ranks(text, names, &arena, &set, NULL) != 0)
        snprintf(out, 128, "refused");
    else
        for (uint32_t i = 0; i < set.n; i++)
            used += (size_t)snprintf(out + used, 128 - used, "%s%u-%u:%u", i ? " " : "",
                                     set.ranges[i].first, set.ranges[i].last, set.ranges[i].step);
    arena_fini(&arena);
    return out;
}

static void rank_sets_name_roles(void **state)
{
    (void)state;
    static const struct parse_role roles[] = {{"ps", 0, 2}, {"worker", 2, 6}, {"last_one", 8, 1}};
    static const struct parse_rank_names names = {.nranks = 9, .roles = roles, .nroles = 3};
    static const struct {
        const char *text, *ranges;
    } cases[] = {{"last", "8-8:1"},
                 {"0-last:2,ps", "0-8:2 0-1:1"},
                 {"worker", "2-7:1"},
                 {"worker[0]", "2-2:1"},
                 {"worker[ 1-last:2 , 0 ] , last_one", "3-7:2 2-2:1 8-8:1"},
                 {"last_one[last]", "8-8:1"},
                 {"worker[6]", "refused"},
                 {"worker[0-6]", "refused"},
                 {"worker[last-0]", "refused"},
                 {"worker[all]", "refused"},
                 {"worker[ps]", "refused"},
                 {"worker[0", "refused"},
                 {"worker[0]]", "refused"},
                 {"worker[]", "refused"},
                 {"worker [0]", "refused"},
                 {"worker[0]1", "refused"},
                 {"0-worker", "refused"},
                 {"Worker", "refused"},
                 {"lastly", "refused"},
                 {"0-lasts", "refused"},
                 {"all,ps", "refused"}};
    char out[128];
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_string_equal(set_text(cases[i].text, &names, out), cases[i].ranges);
    assert_string_equal(set_text("last", NULL, out), "refused");
    assert_string_equal(set_text("last", &(struct parse_rank_names){0}, out), "refused");
    assert_true(parse_is_role_name("_a9") && !parse_is_role_name("9a") && !parse_is_role_name(""));
    assert_false(parse_is_role_name("last") || parse_is_role_name("a-b"));
}

static void templates_are_filled_in(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    const struct template_values values = {
        .rank = 7, .local_rank = 3, .attempt = 1, .host = "gpu01", .run_id = "k3f9"};
    static const struct {
        const char *text, *result;
    } good[] = {{"", ""},
                {"plain", "plain"},
                {"[{rank}]", "[7]"},
                {"{host}:{local_rank}/{run_id}.{attempt}", "gpu01:3/k3f9.1"},
                {"{{rank}}", "{rank}"},
                {"{{{rank}}}", "{7}"}};
    for (size_t i = 0; i < COUNT(good); i++) {
        const char *out = NULL;
        assert_int_equal(template_expand(good[i].text, &values, &arena, &out, NULL), 0);
        assert_string_equal(out, good[i].result);
        const char *literal = template_literal(good[i].text, &arena);
        assert_int_equal(template_expand(literal, &values, &arena, &out, NULL), 0);
        assert_string_equal(out, good[i].text);
    }
    static const char *const bad[] = {"{",      "}",     "{}",       "{rank",       "rank}",
                                      "{Rank}", "{gpu}", "{ rank }", "{rank{host}}"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        const char *out = "untouched";
        assert_int_equal(template_expand(bad[i], &values, &arena, &out, NULL), COLLRUN_ERR_INVALID);
        assert_string_equal(out, "untouched");
        assert_int_equal(template_check(bad[i], TEMPLATE_ALL, NULL), COLLRUN_ERR_INVALID);
    }
    struct diag d;
    assert_int_equal(template_check("{run_id}", TEMPLATE_RUN_ID, &d), 0);
    assert_int_equal(template_check("{rank}", TEMPLATE_RUN_ID | TEMPLATE_ATTEMPT, &d),
                     COLLRUN_ERR_INVALID);
    assert_string_equal(d.text, "\"{rank}\" has no meaning here");
    assert_true(strstr(d.hint, "known here: {run_id} {attempt}") != NULL);
    arena_fini(&arena);
}

static void quotes_escape_what_is_not_printable(void **state)
{
    (void)state;
    char out[QUOTE_SIZE];
    assert_string_equal(quote("plain", out), "\"plain\"");
    assert_string_equal(quote("a\"b\\c\n\t\x01", out), "\"a\\\"b\\\\c\\n\\t\\x01\"");
    assert_string_equal(quote("gr\xc3\xbc\xc3\x9f", out), "\"gr\xc3\xbc\xc3\x9f\"");
    assert_string_equal(quote("\xc3(\xff", out), "\"\\xc3(\\xff\"");
    char longer[300] = {0};
    memset(longer, 'x', sizeof longer - 1);
    quote(longer, out);
    assert_true(strlen(out) >= QUOTE_SIZE - 8 && strlen(out) <= QUOTE_SIZE - 1);
    assert_string_equal(out + strlen(out) - 4, "...\"");
    static const char *const broken[] = {"\xc0\x80",         "\xe0\x80\x80", "\xed\xa0\x80",
                                         "\xf4\x90\x80\x80", "\xf5",         "\x80"};
    for (size_t i = 0; i < COUNT(broken); i++)
        assert_int_equal(utf8_len(broken[i], strlen(broken[i])), 0);
    assert_int_equal(utf8_len("\xf0\x9f\x98\x80", 4), 4);
    assert_int_equal(utf8_len("\xf0\x9f\x98\x80", 3), 0);
}

static void the_nearest_name_is_suggested(void **state)
{
    (void)state;
    static const char *const names[] = {"backend", "ranks", "world_size", "split",
                                        "nccl",    "gloo",  "shm"};
    assert_string_equal(suggest("bakend", names, COUNT(names)), "backend");
    assert_string_equal(suggest("rnaks", names, COUNT(names)), "ranks");
    assert_string_equal(suggest("WorldSize", names, COUNT(names)), "world_size");
    assert_string_equal(suggest("nccll", names, COUNT(names)), "nccl");
    assert_null(suggest("mpi", names, COUNT(names)));
    assert_null(suggest("", names, COUNT(names)));
    assert_null(suggest("zzzzzz", names, COUNT(names)));
    assert_null(suggest("ranks", NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_parsed),
        cmocka_unit_test(floats_are_parsed),
        cmocka_unit_test(booleans_are_parsed),
        cmocka_unit_test(durations_are_parsed),
        cmocka_unit_test(sizes_are_parsed),
        cmocka_unit_test(what_is_formatted_parses_back),
        cmocka_unit_test(rank_sets_are_parsed),
        cmocka_unit_test(rank_sets_name_roles),
        cmocka_unit_test(templates_are_filled_in),
        cmocka_unit_test(quotes_escape_what_is_not_printable),
        cmocka_unit_test(the_nearest_name_is_suggested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
