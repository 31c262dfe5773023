/* SPDX-License-Identifier: Apache-2.0
 *
 * The YAML reader: places to the column, what quoting means, aliases, --set, and that no damage to
 * a text ends in anything but a tree or an error. The words of the errors are the golden cases'
 * matter.
 */
#include "spec/set.h"
#include "spec/yaml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct reading {
    struct arena arena;
    struct diag_list diags;
    struct source *sources;
    struct node *root;
    int code;
};

static void read_bytes(struct reading *r, const char *text, size_t len)
{
    *r = (struct reading){0};
    arena_init(&r->arena);
    diag_list_init(&r->diags);
    struct source *source = source_add(&r->sources, &r->arena, "t.yaml", text, len);
    assert_non_null(source);
    r->code = yaml_read(source, NULL, &r->arena, &r->root, &r->diags);
}

static void read_text(struct reading *r, const char *text)
{
    read_bytes(r, text, strlen(text));
}

static void done(struct reading *r)
{
    diag_list_fini(&r->diags);
    arena_fini(&r->arena);
}

static void at(struct diag_loc loc, uint32_t line, uint32_t column, uint32_t width)
{
    assert_int_equal(loc.line, line);
    assert_int_equal(loc.column, column);
    assert_int_equal(loc.width, width);
}

static void nodes_keep_their_places(void **state)
{
    (void)state;
    struct reading r;
    read_text(&r, "a: 12\ngr\xc3\xb6\xc3\x9f"
                  "e: {b: \"x y\", c: [1,  two]}\nd: |\n  text\n  more\ne:\n");
    assert_int_equal(r.code, 0);
    assert_int_equal(r.root->n, 4);
    at(r.root->entries[0].loc, 1, 1, 1);
    at(r.root->entries[0].value->loc, 1, 4, 2);
    assert_int_equal(r.root->entries[0].value->text_column, 4);
    const struct node *map = r.root->entries[1].value;
    at(map->loc, 2, 8, 1); /* columns count characters, not bytes */
    at(map->entries[0].value->loc, 2, 12, 5);
    assert_int_equal(map->entries[0].value->text_column, 13);
    assert_string_equal(map->entries[0].value->text, "x y");
    at(map->entries[1].value->items[1]->loc, 2, 27, 3);
    assert_string_equal(node_get(r.root, "d")->text, "text\nmore\n");
    assert_int_equal(node_get(r.root, "d")->text_column, 0);
    at(node_get(r.root, "e")->loc, 6, 3, 1);
    assert_true(node_is_null(node_get(r.root, "e")));
    assert_null(node_get(r.root, "f"));
    done(&r);
}

static void scalars_keep_their_quoting(void **state)
{
    (void)state;
    struct reading r;
    read_text(&r, "[12, '12', \"12\", !!str 12, !!int '12', ~, '~', null, '', \"a\\tb\", 'it''s']");
    assert_int_equal(r.code, 0);
    static const struct {
        bool plain, null;
        const char *text;
    } want[] = {{true, false, "12"},    {false, false, "12"},  {false, false, "12"},
                {false, false, "12"},   {true, false, "12"},   {true, true, "~"},
                {false, false, "~"},    {true, true, "null"},  {false, false, ""},
                {false, false, "a\tb"}, {false, false, "it's"}};
    assert_int_equal(r.root->n, sizeof want / sizeof want[0]);
    for (uint32_t i = 0; i < r.root->n; i++) {
        const struct node *item = r.root->items[i];
        assert_string_equal(item->text, want[i].text);
        assert_int_equal(item->plain, want[i].plain);
        assert_int_equal(node_is_null(item), want[i].null);
    }
    assert_int_equal(r.root->items[9]->text_column, 0); /* an escape: not letter by letter */
    assert_int_equal(r.root->items[10]->text_column, 0);
    done(&r);
}

static void an_alias_copies_what_it_names(void **state)
{
    (void)state;
    struct reading r;
    read_text(&r, "a: &x [1, 2]\nb: *x\nc: &x 7\nd: *x\n");
    assert_int_equal(r.code, 0);
    const struct node *b = node_get(r.root, "b");
    assert_int_equal(b->n, 2);
    at(b->loc, 2, 4, 2); /* where the alias stands */
    at(b->items[1]->loc, 1, 11, 1);
    assert_string_equal(node_get(r.root, "d")->text, "7"); /* the last one of a name counts */
    assert_int_equal(r.root->weight, 1 + 3 + 3 + 1 + 1);
    done(&r);
}

static void environment_variables_are_filled_in(void **state)
{
    (void)state;
    struct reading r;
    setenv("YAML_TEST_NAME", "va$ue", 1);
    setenv("YAML_TEST_EMPTY", "", 1);
    unsetenv("YAML_TEST_NONE");
    read_text(&r, "a: ${env:YAML_TEST_NAME}\nb: \"<${env:YAML_TEST_NONE:-d:-e}>$$\"\nc: "
                  "${env:YAML_TEST_EMPTY}\n"
                  "d: ${env:YAML_TEST_EMPTY:-x}\n${env:e}: $HOME $\nf: ${env:YAML_TEST_NONE:-}\n");
    assert_int_equal(r.code, 0);
    assert_int_equal(diag_list_count(&r.diags), 0);
    assert_string_equal(node_get(r.root, "a")->text, "va$ue");
    assert_string_equal(node_get(r.root, "b")->text, "<d:-e>$");
    assert_string_equal(node_get(r.root, "c")->text, "");
    assert_false(node_is_null(node_get(r.root, "c")));
    assert_string_equal(node_get(r.root, "d")->text, "x");
    assert_string_equal(node_get(r.root, "${env:e}")->text, "$HOME $"); /* keys are left alone */
    assert_string_equal(node_get(r.root, "f")->text, "");
    done(&r);
    read_text(&r, "[\"${env:YAML_TEST_NONE}\", \"${A}\", \"${env:}\", \"${env:A-b}\", "
                  "\"${env:9}\", \"${\", \"x${env:A\"]");
    assert_int_equal(r.code, 0);
    assert_int_equal(diag_list_count(&r.diags), 7);
    done(&r);
}

/* Each text is one error, and no tree. */
static void broken_texts_are_one_error(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",        "#\n",

        "a: b: c", "a: *x",  "a: &x {b: *x}", "a: b\n---\nc: d",        "[",       "{a: 1",  "'x",
        "\"\\q\"", "\ta: b", "a: @b",         "%YAML 3.0\n---\na: b\n", "a: \x01", "a: \xff"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct reading r;
        read_text(&r, texts[i]);
        assert_true(r.code < 0);
        assert_null(r.root);
        assert_int_equal(diag_list_count(&r.diags), 1);
        assert_true(r.diags.items[0].loc.line > 0);
        done(&r);
    }
}

/* Errors that leave a tree. */
static void smaller_errors_leave_a_tree(void **state)
{
    (void)state;
    struct reading r;
    read_text(&r, "a: 1\na: 2\nb: !x 3\n<<: {c: 4}\n? [d]\n: 5\ne: {f: 1, f: 2, f: 3}\n");
    assert_int_equal(r.code, 0);
    assert_int_equal(diag_list_count(&r.diags), 6);
    assert_int_equal(r.root->n, 3);
    assert_string_equal(node_get(r.root, "a")->text, "1"); /* the first one stays */
    assert_int_equal(node_get(r.root, "e")->n, 1);
    done(&r);
}

static void depth_and_size_are_limited(void **state)
{
    (void)state;
    struct reading r;
    char deep[2 * (YAML_DEPTH_MAX + 1) + 1];
    memset(deep, '[', YAML_DEPTH_MAX + 1);
    memset(deep + YAML_DEPTH_MAX + 1, ']', YAML_DEPTH_MAX + 1);
    read_bytes(&r, deep + 1, 2 * YAML_DEPTH_MAX);
    assert_int_equal(r.code, 0);
    done(&r);
    read_bytes(&r, deep, 2 * (YAML_DEPTH_MAX + 1));
    assert_true(r.code < 0);
    done(&r);
    size_t n = YAML_NODES_MAX - 1; /* and the list itself */
    char *wide = malloc(2 * n + 8);
    memset(wide, ' ', 2 * n + 8);
    wide[0] = '[';
    for (size_t i = 0; i < n; i++)
        memcpy(wide + 1 + 2 * i, "1,", 2);
    wide[2 * n] = ']';
    read_bytes(&r, wide, 2 * n + 1);
    assert_int_equal(r.code, 0);
    assert_int_equal(r.root->n, n);
    done(&r);
    memcpy(wide + 2 * n, ",1]", 3);
    read_bytes(&r, wide, 2 * n + 3);
    assert_true(r.code < 0);
    done(&r);
    free(wide);
}

static void set_changes_one_value(void **state)
{
    (void)state;
    struct reading r;
    read_text(&r, "a: &x {b: 1}\nc: *x\nd: [{name: one, v: 1}, {name: two}]\n");
    static const char *const good[] = {"a.b=2", "e.f.g=[1, {h: i}]", "d[0].v=\"=\"", "d.two.w=x=y",
                                       "d.one.name=uno"};
    for (uint32_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(set_apply(&r.root, good[i], i + 1, &r.sources, &r.arena, &r.diags), 0);
    assert_string_equal(node_get(node_get(r.root, "a"), "b")->text, "2");
    assert_string_equal(node_get(node_get(r.root, "c"), "b")->text,
                        "1"); /* the alias keeps what it had */
    const struct node *g = node_get(node_get(node_get(r.root, "e"), "f"), "g");
    assert_int_equal(g->n, 2);
    at(g->items[1]->loc, 1, 11, 1);
    assert_string_equal(g->loc.file, "--set #2");
    const struct node *d = node_get(r.root, "d");
    assert_string_equal(node_get(d->items[0], "v")->text, "=");
    assert_string_equal(node_get(d->items[1], "w")->text, "x=y");
    assert_string_equal(node_get(d->items[0], "name")->text, "uno");
    static const char *const bad[] = {"",       "a",         "=1",        "a.=1",
                                      ".a=1",   "a..b=1",    "a[=1",      "a[]=1",
                                      "a[0]=1", "d[2]=1",    "d.three=1", "a.b.c=1",
                                      "a=[",    "a=b: c: d", "d[0]x=1",   "d[99999999]=1"};
    struct node *before = r.root;
    for (uint32_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint32_t errors = diag_list_count(&r.diags);
        assert_true(set_apply(&r.root, bad[i], i + 10, &r.sources, &r.arena, &r.diags) < 0);
        assert_int_equal(diag_list_count(&r.diags), errors + 1);
    }
    assert_ptr_equal(r.root, before);
    done(&r);
}

static void damaged_texts_do_no_harm(void **state)
{
    (void)state;
    static const char text[] =
        "version: 1\nhosts:\n  nodes: [\"a[1-3]\", {name: &n b}]\nx: {? k : v, <<: *n, !!str y: "
        "|-\n z}\n"
        "t: >\n  folded\n\n  text\nq: \"\\x41\\u00e9\"\nl:\n- 1\n-\n  - [a, b]\n";
    enum { LEN = sizeof text - 1 };
    static const char marks[] = "{}[]:,-?&*!|>'\"%@`#\t\n \\\r<~0\xc3";
    uint64_t seed = 42;
    unsigned trees = 0;
    for (int round = 0; round < 30000; round++) {
        char copy[LEN];
        memcpy(copy, text, LEN);
        for (int k = 0; k < 1 + round % 4; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            copy[(seed >> 33) % LEN] = marks[(seed >> 20) % (sizeof marks - 1)];
        }
        struct reading r;
        read_bytes(&r, copy, LEN);
        assert_true(r.code == 0 ? r.root != NULL : diag_list_count(&r.diags) > 0);
        trees += r.code == 0;
        done(&r);
    }
    assert_true(trees >= 100 && trees <= 29900);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_keep_their_places),
        cmocka_unit_test(scalars_keep_their_quoting),
        cmocka_unit_test(an_alias_copies_what_it_names),
        cmocka_unit_test(environment_variables_are_filled_in),
        cmocka_unit_test(broken_texts_are_one_error),
        cmocka_unit_test(smaller_errors_leave_a_tree),
        cmocka_unit_test(depth_and_size_are_limited),
        cmocka_unit_test(set_changes_one_value),
        cmocka_unit_test(damaged_texts_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
