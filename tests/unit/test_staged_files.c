/* SPDX-License-Identifier: Apache-2.0 */
#include "connect/staging.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void paths_lose_dots(void **state)
{
    static const char *const rows[][2] = {
        {"/a/./b/../c/", "/a/c"}, {"/", "/"},       {"/..", "/"}, {"//a//b", "/a/b"},
        {"/a/..", "/"},           {"a", "/a"},      {"", "/"},    {"/a/.../.b", "/a/.../.b"},
        {"/../../a", "/a"},       {"/a/b/", "/a/b"}};
    struct arena arena;
    (void)state;
    arena_init(&arena);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(staged_files_normalize(rows[i][0], &arena), rows[i][1]);
    arena_fini(&arena);
}

static void make_file(const char *path, mode_t mode)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("text", f);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
}

/* A folder with b/, a, b/c, b/__pycache__/d and a link to a. */
static void make_tree(char folder[64])
{
    snprintf(folder, 64, "/tmp/staged-files.XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    mkdir("b", 0755);
    mkdir("b/__pycache__", 0755);
    make_file("a", 0644);
    make_file("b/c", 0755);
    make_file("b/__pycache__/d", 0644);
    assert_int_equal(symlink("../a", "b/link"), 0);
}

static void remove_tree(const char *folder)
{
    static const char *const paths[] = {"b/__pycache__/d", "b/c", "b/link", "b/loop", "a", "gone"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        unlink(paths[i]);
    rmdir("b/__pycache__");
    rmdir("b");
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void folders_are_read_in_order(void **state)
{
    struct arena arena;
    struct staged_files files = {0};
    struct diag d;
    char folder[64];
    static const char *const names[] = {"/a", "/b/c", "/b/link"};
    (void)state;
    arena_init(&arena);
    make_tree(folder);
    assert_int_equal(staged_files_add(&files, folder, &arena, &d), 0);
    assert_int_equal(files.n, 3);
    assert_int_equal(files.bytes, 12);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(files.items[i].source + strlen(folder), names[i]);
        assert_string_equal(files.items[i].name, files.items[i].source + 1);
        assert_int_equal(files.items[i].executable, i == 1);
    }
    remove_tree(folder);
    arena_fini(&arena);
}

static void links_that_end_nowhere_are_errors(void **state)
{
    struct arena arena;
    struct staged_files files = {0};
    struct diag d;
    char folder[64];
    (void)state;
    arena_init(&arena);
    make_tree(folder);
    assert_int_equal(symlink("..", "b/loop"), 0);
    assert_int_not_equal(staged_files_add(&files, folder, &arena, &d), 0);
    assert_non_null(strstr(d.text, "/b/loop is a link to a folder that contains it"));
    assert_int_equal(unlink("b/loop"), 0);
    assert_int_equal(symlink("nothing", "gone"), 0);
    assert_int_not_equal(staged_files_add(&files, folder, &arena, &d), 0);
    assert_non_null(strstr(d.text, "/gone: No such file"));
    remove_tree(folder);
    arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_lose_dots),
        cmocka_unit_test(folders_are_read_in_order),
        cmocka_unit_test(links_that_end_nowhere_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
