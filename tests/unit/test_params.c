/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters: a declared table and the texts of a job file give typed values, or one error at the
 * right place.
 */
#include "rank/params.h"

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
    {.name = "op", .type = COLLRUN_PARAM_ENUM, .def = "min", .choices = "sum|prod|min"},
    {.name = "sizes",
     .type = COLLRUN_PARAM_LIST,
     .item = COLLRUN_PARAM_SIZE,
     .def = "8, 1KiB ,2KiB",
     .min = "8",
     .max = "1MiB"},
    {.name = "words", .type = COLLRUN_PARAM_LIST, .item = COLLRUN_PARAM_STRING, .def = ""},
    {.name = "ops",
     .type = COLLRUN_PARAM_LIST,
     .item = COLLRUN_PARAM_ENUM,
     .def = "min",
     .choices = "sum|prod|min"},
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

static void values_replace_defaults(void **state)
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
    assert_int_equal(params_find(&f.params, "op")->as.choice.index, 2);
    assert_string_equal(params_find(&f.params, "op")->as.choice.text, "min");
    assert_null(params_find(&f.params, "nothing"));
    arena_fini(&f.arena);
}

static void give_list(struct desc_kvs *kvs, struct desc_kv *room, const char *key,
                      struct desc_item *items, uint32_t n)
{
    give(kvs, room, key, "", 7);
    room[kvs->n - 1].is_list = true;
    room[kvs->n - 1].items = items;
    room[kvs->n - 1].nitems = n;
}

static void lists_have_typed_items(void **state)
{
    struct fixture f = fixture();
    struct desc_item words[] = {{"r{rank}", {.line = 7}}, {"a, b", {.line = 8}}};
    (void)state;
    give(&f.w.params, f.kvs[0], "name", "n", 6);
    give_list(&f.w.params, f.kvs[0], "words", words, 2);
    give(&f.w.params, f.kvs[0], "ops", "sum", 7); /* a list of one */
    assert_int_equal(parse(&f), COLLRUN_OK);
    const struct param_value *sizes = params_find(&f.params, "sizes");
    assert_int_equal(sizes->type, COLLRUN_PARAM_LIST);
    assert_int_equal(sizes->as.list.n, 3);
    assert_int_equal(sizes->as.list.items[1].type, COLLRUN_PARAM_SIZE);
    assert_int_equal(sizes->as.list.items[2].as.amount, 2048);
    assert_int_equal(params_find(&f.params, "words")->as.list.n, 2);
    assert_string_equal(params_find(&f.params, "words")->as.list.items[0].as.string, "r3");
    assert_string_equal(params_find(&f.params, "words")->as.list.items[1].as.string, "a, b");
    assert_int_equal(params_find(&f.params, "ops")->as.list.n, 1);
    assert_int_equal(params_find(&f.params, "ops")->as.list.items[0].as.choice.index, 0);
    give_list(&f.w.params, f.kvs[0], "sizes", NULL, 0);
    assert_int_equal(parse(&f), COLLRUN_OK);
    assert_int_equal(params_find(&f.params, "sizes")->as.list.n, 0);
    arena_fini(&f.arena);
}

static void a_wrong_item_is_refused_at_its_place(void **state)
{
    struct fixture f = fixture();
    struct desc_item sizes[] = {{"8", {.line = 7}}, {"2MiB", {.line = 8}}};
    (void)state;
    give(&f.w.params, f.kvs[0], "name", "n", 6);
    give_list(&f.w.params, f.kvs[0], "sizes", sizes, 2);
    assert_int_equal(parse(&f), COLLRUN_ERR_INVALID);
    assert_string_equal(f.d.text,
                        "parameter \"sizes\": item 1: 2MiB is more than the maximum, 1MiB");
    assert_int_equal(f.d.loc.line, 8);
    f.w.params.n = 1;
    give_list(&f.w.params, f.kvs[0], "bytes", sizes, 1);
    assert_int_equal(parse(&f), COLLRUN_ERR_INVALID);
    assert_string_equal(f.d.text, "parameter \"bytes\": expected size, found a list");
    assert_int_equal(f.d.loc.line, 7);
    arena_fini(&f.arena);
}

/* The last override that names this rank has the last word. */
static void the_last_override_of_a_rank_wins(void **state)
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

static void wrong_values_are_refused_at_their_line(void **state)
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
        {"op", "prodd", "parameter \"op\": \"prodd\" is not one of sum, prod, min",
         "did you mean \"prod\"?", 7},
        {"op", "Sum", "parameter \"op\": \"Sum\" is not one of", "did you mean \"sum\"?", 7},
        {"op", "sum|prod", "is not one of", "", 7},
        {"op", "", "is not one of", "", 7},
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

static void wrong_tables_are_refused(void **state)
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
        {{{.name = "a", .type = 99}}, "its type is 99, which is unknown"},
        {{{.name = "a", .type = COLLRUN_PARAM_ENUM}}, "wrongly: it has no choices"},
        {{{.name = "a", .type = COLLRUN_PARAM_ENUM, .choices = "x|y|x"}},
         "it has the choice \"x\" twice"},
        {{{.name = "a", .type = COLLRUN_PARAM_ENUM, .choices = "x||y"}},
         "one of its choices is empty"},
        {{{.name = "a", .type = COLLRUN_PARAM_ENUM, .choices = "x|y", .def = "z"}},
         "its default: \"z\" is not one of x, y"},
        {{{.name = "a",
           .type = COLLRUN_PARAM_LIST,
           .item = COLLRUN_PARAM_INT,
           .max = "4",
           .def = "4, 5"}},
         "its default: item 1: 5 is more than the maximum, 4"},
        {{{.name = "a", .type = COLLRUN_PARAM_LIST, .item = COLLRUN_PARAM_INT, .def = "4,"}},
         "its default: item 1 of the list is empty"},
        {{{.name = "a", .type = COLLRUN_PARAM_LIST, .item = COLLRUN_PARAM_LIST}},
         "its items have the type 7, which a list cannot have"},
        {{{.name = "a", .type = COLLRUN_PARAM_LIST, .item = COLLRUN_PARAM_ENUM}},
         "it has no choices"},
        {{{.name = "a", .type = COLLRUN_PARAM_INT, .item = COLLRUN_PARAM_SIZE}},
         "it has a type of items, but is no list"},
    };
    struct diag d;
    (void)state;
    assert_int_equal(params_check_table(NULL, "workload", "w.so", &d), COLLRUN_OK);
    assert_int_equal(params_check_table(table, "workload", "w.so", &d), COLLRUN_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(params_check_table(cases[i].table, "workload", "w.so", &d),
                         COLLRUN_ERR_INVALID);
        if (!strstr(d.text, cases[i].text))
            fail_msg("\"%s\" does not say \"%s\"", d.text, cases[i].text);
    }
    const struct collrun_param list[] = {{.name = "a", .type = COLLRUN_PARAM_LIST, .def = ""}, {0}};
    assert_int_equal(params_check_table(list, "workload", "w.so", &d), COLLRUN_OK);
    assert_int_equal(params_check_table(list, "backend", "b.so", &d), COLLRUN_ERR_INVALID);
    assert_non_null(strstr(d.text, "an option cannot be a list"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_replace_defaults),
        cmocka_unit_test(lists_have_typed_items),
        cmocka_unit_test(a_wrong_item_is_refused_at_its_place),
        cmocka_unit_test(the_last_override_of_a_rank_wins),
        cmocka_unit_test(wrong_values_are_refused_at_their_line),
        cmocka_unit_test(wrong_tables_are_refused),
    };
    return cmocka_run_group_tests_name("params", tests, NULL, NULL);
}
