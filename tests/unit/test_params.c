/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters: a declared table and the texts of a job file make typed values, or one sentence at
 * the right place.
 */
#include "params.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

static const struct collrun_param table[] = {
    {.name = "bytes", .type = COLLRUN_PARAM_SIZE, .def = "1KiB", .min = "8", .max = "1MiB"},
    {.name = "iters", .type = COLLRUN_PARAM_INT, .def = "-3", .min = "-5"},
    {.name = "ratio", .type = COLLRUN_PARAM_FLOAT, .def = "0.5", .min = "0", .max = "1"},
    {.name = "on", .type = COLLRUN_PARAM_BOOL, .def = "false"},
    {.name = "wait", .type = COLLRUN_PARAM_DURATION, .def = "10ms", .max = "1s"},
    {.name = "name", .type = COLLRUN_PARAM_STRING},
    {0},
};
static const struct template_values values = {
    .rank = 3, .local_rank = 1, .attempt = 0, .host = "h", .run_id = "r"};

struct fixture {
    struct arena arena;
    struct desc_workload w;
    struct desc_override overrides[2];
    struct desc_kv kvs[3][4];
    struct params params;
    struct diag d;
};

static struct fixture fixture(void)
{
    return (struct fixture){.w = {.name = "w", .loc = {.line = 5}}};
}

static void give(struct desc_kvs *kvs, struct desc_kv *room, const char *key, const char *value,
                 uint32_t line)
{
    kvs->items = room;
    room[kvs->n++] = (struct desc_kv){.key = key, .value = value, .loc = {.line = line}};
}

static int parse(struct fixture *f)
{
    diag_init(&f->d);
    f->w.overrides = f->overrides;
    return params_parse(&f->params, table, &f->w, &values, &f->arena, &f->d);
}

static void test_defaults_and_values(void **state)
{
    struct fixture f = fixture();
    (void)state;
    give(&f.w.params, f.kvs[0], "name", "r{rank}.{local_rank}", 7);
    give(&f.w.params, f.kvs[0], "wait", "1s", 8);
    assert_int_equal(parse(&f), COLLRUN_OK);
    assert_int_equal(params_find(&f.params, "bytes")->as.amount, 1024);
    assert_int_equal(params_find(&f.params, "iters")->as.number, -3);
    assert_true(params_find(&f.params, "ratio")->as.real == 0.5);
    assert_false(params_find(&f.params, "on")->as.truth);
    assert_int_equal(params_find(&f.params, "wait")->as.amount, 1000000000);
    assert_string_equal(params_find(&f.params, "name")->as.string, "r3.1");
    assert_null(params_find(&f.params, "nothing"));
    arena_fini(&f.arena);
}

/* The last override that names this rank has the last word. */
static void test_overrides(void **state)
{
    struct fixture f = fixture();
    uint32_t me[] = {3}, others[] = {0, 1, 2};
    (void)state;
    give(&f.w.params, f.kvs[0], "name", "all", 7);
    give(&f.w.params, f.kvs[0], "iters", "1", 8);
    f.overrides[0].ranks = (struct desc_ranks){.items = me, .n = 1};
    give(&f.overrides[0].params, f.kvs[1], "iters", "2", 9);
    f.overrides[1].ranks = (struct desc_ranks){.items = others, .n = 3};
    give(&f.overrides[1].params, f.kvs[2], "iters", "nonsense", 10);
    f.w.noverrides = 2;
    assert_int_equal(parse(&f), COLLRUN_OK);
    assert_int_equal(params_find(&f.params, "iters")->as.number, 2);
    f.overrides[1].ranks.n = 0;
    f.overrides[1].ranks = (struct desc_ranks){.items = me, .n = 1};
    assert_int_equal(parse(&f), COLLRUN_ERR_INVALID);
    assert_int_equal(f.d.loc.line, 10);
    arena_fini(&f.arena);
}

static void test_errors(void **state)
{
    static const struct {
        const char *key, *value, *text, *hint;
        uint32_t line;
    } cases[] = {
        {"name", NULL, "parameter \"name\" is required and not given", "", 5},
        {"iter", "1", "the workload has no parameter \"iter\"", "did you mean \"iters\"?", 7},
        {"bytes", "7", "parameter \"bytes\": 7 is less than the minimum, 8", "", 7},
        {"bytes", "1025KiB", "parameter \"bytes\": 1025KiB is more than the maximum, 1MiB", "", 7},
        {"iters", "-6", "parameter \"iters\": -6 is less than the minimum, -5", "", 7},
        {"iters", "1.5", "parameter \"iters\": \"1.5\" is not an integer", "", 7},
        {"ratio", "1.01", "parameter \"ratio\": 1.01 is more than the maximum, 1", "", 7},
        {"ratio", ".nan", "parameter \"ratio\": .nan is less than the minimum, 0", "", 7},
        {"wait", "1001ms", "parameter \"wait\": 1001ms is more than the maximum, 1s", "", 7},
        {"on", "1", "parameter \"on\": ", "", 7},
        {"name", "{rnak}", "parameter \"name\": ", "", 7},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f = fixture();
        if (cases[i].value)
            give(&f.w.params, f.kvs[0], cases[i].key, cases[i].value, 7);
        assert_int_equal(parse(&f), COLLRUN_ERR_INVALID);
        if (!strstr(f.d.text, cases[i].text))
            fail_msg("\"%s\" does not say \"%s\"", f.d.text, cases[i].text);
        if (cases[i].hint[0])
            assert_string_equal(f.d.hint, cases[i].hint);
        assert_int_equal(f.d.loc.line, cases[i].line);
        assert_null(f.params.values); /* untouched */
        arena_fini(&f.arena);
    }
}

static void test_bad_tables(void **state)
{
    static const struct {
        struct collrun_param table[3];
        const char *text;
    } cases[] = {
        {{{.name = "a", .type = COLLRUN_PARAM_INT, .def = "x"}},
         "parameter \"a\" wrongly: its default"},
        {{{.name = "a", .type = COLLRUN_PARAM_INT, .def = "5", .max = "4"}},
         "its default: 5 is more than the maximum, 4"},
        {{{.name = "a", .type = COLLRUN_PARAM_INT, .def = "5", .max = "tall"}},
         "its default: its maximum"},
        {{{.name = "a", .type = COLLRUN_PARAM_INT}, {.name = "a", .type = COLLRUN_PARAM_INT}},
         "it is declared twice"},
        {{{.name = "a", .type = 6}}, "its type is 6, which does not exist"},
    };
    struct diag d;
    (void)state;
    assert_int_equal(params_check_table(NULL, "w.so", &d), COLLRUN_OK);
    assert_int_equal(params_check_table(table, "w.so", &d), COLLRUN_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(params_check_table(cases[i].table, "w.so", &d), COLLRUN_ERR_INVALID);
        if (!strstr(d.text, cases[i].text))
            fail_msg("\"%s\" does not say \"%s\"", d.text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_and_values),
        cmocka_unit_test(test_overrides),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_bad_tables),
    };
    return cmocka_run_group_tests_name("params", tests, NULL, NULL);
}
