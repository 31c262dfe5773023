/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of jobs in layers, on generated trees: the merge is that of RFC 7386, which a few
 * lines over jansson do as well; it is associative; and what emit.c writes reads as the same tree.
 */
#include "spec/emit.h"
#include "spec/merge.h"
#include "spec/yaml.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TRIALS = 3000, KEYS = 3, DEPTH = 4 };

/* ---- generated values ---- */

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 16;
}

static json_t *generate(uint32_t *seed, int depth)
{
    static const char *const texts[] = {"a",  "",     "null", "1", "true", "$x",
                                        "${", "a: b", "\n",   "é", "- a"};
    const uint32_t kind = depth == 0 ? 0 : next(seed) % 8;
    if (kind == 1)
        return json_null();
    if (kind == 2)
        return json_integer((json_int_t)(next(seed) % 5));
    if (kind == 3)
        return json_string(texts[next(seed) % (sizeof texts / sizeof *texts)]);
    if (kind == 4) {
        json_t *list = json_array();
        for (uint32_t n = next(seed) % 3; n; n--)
            json_array_append_new(list, json_string(texts[next(seed) % 3]));
        return list;
    }
    json_t *map = json_object();
    for (uint32_t i = 0; i < KEYS && depth < DEPTH + 1; i++)
        if (next(seed) % 2)
            json_object_set_new(map, (const char *const[]){"x", "y", "z"}[i],
                                generate(seed, depth + 1));
    return map;
}

/* RFC 7386, section 2. */
static json_t *patched(json_t *target, json_t *patch)
{
    const char *key;
    json_t *value;
    if (!json_is_object(patch))
        return json_incref(patch);
    json_t *out = json_is_object(target) ? json_copy(target) : json_object();
    json_object_foreach(patch, key, value)
    {
        if (json_is_null(value))
            json_object_del(out, key);
        else
            json_object_set_new(out, key, patched(json_object_get(out, key), value));
    }
    return out;
}

/* ---- trees ---- */

static struct node *read_text(const char *text, struct arena *arena)
{
    struct source *sources = NULL;
    struct diag_list diags;
    struct node *root = NULL;
    diag_list_init(&diags);
    source_add(&sources, arena, "text", text, strlen(text));
    const int code = yaml_read(sources, NULL, arena, &root, &diags);
    if (code < 0 || diag_list_count(&diags))
        fail_msg("%s\n%s", diags.items[0].text, text);
    diag_list_fini(&diags);
    return root;
}

/* Dollar signs are doubled, as a job file has them. */
static char *doubled(const char *text)
{
    char *out = malloc(2 * strlen(text) + 1), *end = out;
    for (; *text; text++) {
        *end++ = *text;
        if (*text == '$')
            *end++ = '$';
    }
    *end = '\0';
    return out;
}

static struct node *tree_of(json_t *json, struct arena *arena)
{
    char *plain = json_dumps(json, 0), *text = doubled(plain);
    struct node *root = read_text(text, arena);
    free(plain);
    free(text);
    return root;
}

static char *text_of(const struct node *root, bool origins)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    if (origins)
        emit_with_origins(root, "job.yaml", out);
    else
        emit_tree(root, out);
    fclose(out);
    return text;
}

static void assert_same(const struct node *a, const struct node *b)
{
    char *one = text_of(a, false), *other = text_of(b, false);
    assert_string_equal(one, other);
    free(one);
    free(other);
}

static json_t *json_of(const struct node *node)
{
    if (node->kind == NODE_SCALAR && node_is_null(node))
        return json_null();
    if (node->kind == NODE_SCALAR)
        return node->plain && node->text[0] >= '0' && node->text[0] <= '9'
                   ? json_integer(atoi(node->text))
                   : json_string(node->text);
    json_t *out = node->kind == NODE_MAP ? json_object() : json_array();
    for (uint32_t i = 0; i < node->n; i++) {
        if (node->kind == NODE_MAP)
            json_object_set_new(out, node->entries[i].key, json_of(node->entries[i].value));
        else
            json_array_append_new(out, json_of(node->items[i]));
    }
    return out;
}

/* ---- cases ---- */

static void the_merge_is_that_of_rfc_7386(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (int i = 0; i < TRIALS; i++) {
        struct arena arena;
        arena_init(&arena);
        json_t *layers[3], *expected = json_object();
        struct node *merged = NULL;
        for (int k = 0; k < 3; k++) {
            layers[k] = generate(&seed, 0);
            merged = merge_over(merged, tree_of(layers[k], &arena), &arena);
            json_t *next_one = patched(expected, layers[k]);
            json_decref(expected);
            expected = next_one;
        }
        json_t *got = json_of(merge_finish(merged, NULL, &arena));
        if (!json_equal(got, expected)) {
            for (int k = 0; k < 3; k++)
                print_message("layer %s\n", json_dumps(layers[k], 0));
            fail_msg("got %s, expected %s", json_dumps(got, 0), json_dumps(expected, 0));
        }
        json_decref(got);
        json_decref(expected);
        for (int k = 0; k < 3; k++)
            json_decref(layers[k]);
        arena_fini(&arena);
    }
}

static void the_merge_is_associative(void **state)
{
    (void)state;
    uint32_t seed = 2;
    for (int i = 0; i < TRIALS; i++) {
        struct arena arena;
        struct node *layers[4];
        arena_init(&arena);
        for (int k = 0; k < 4; k++) {
            json_t *json = generate(&seed, 0);
            layers[k] = tree_of(json, &arena);
            json_decref(json);
        }
        struct node *left = merge_over(merge_over(layers[0], layers[1], &arena), layers[2], &arena);
        struct node *right = merge_over(layers[1], layers[2], &arena);
        left = merge_over(left, layers[3], &arena);
        right = merge_over(layers[0], merge_over(right, layers[3], &arena), &arena);
        assert_same(merge_finish(left, NULL, &arena), merge_finish(right, NULL, &arena));
        arena_fini(&arena);
    }
}

static void what_is_written_reads_as_the_same_tree(void **state)
{
    (void)state;
    uint32_t seed = 3;
    for (int i = 0; i < TRIALS; i++) {
        struct arena arena;
        arena_init(&arena);
        json_t *json = generate(&seed, 0);
        struct node *tree = tree_of(json, &arena);
        for (int origins = 0; origins <= 1 && tree->n; origins++) {
            char *text = text_of(tree, origins);
            json_t *back = json_of(read_text(text, &arena));
            if (!json_equal(back, json))
                fail_msg("%s\nis not %s", text, json_dumps(json, 0));
            json_decref(back);
            free(text);
        }
        json_decref(json);
        arena_fini(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_merge_is_that_of_rfc_7386),
        cmocka_unit_test(the_merge_is_associative),
        cmocka_unit_test(what_is_written_reads_as_the_same_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
