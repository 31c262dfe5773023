/* SPDX-License-Identifier: Apache-2.0
 *
 * struct diag: what does not fit is cut, and every cut is marked.
 */
#include "base/diag.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static bool ends_in_dots(const char *text, size_t size)
{
    return strlen(text) == size - 1 && strcmp(text + size - 4, "...") == 0;
}

static void texts_that_fit_are_whole(void **state)
{
    (void)state;
    struct diag d;
    assert_int_equal(diag_set(&d, COLLRUN_ERR_NOT_FOUND, "no group \"%s\"", "x"),
                     COLLRUN_ERR_NOT_FOUND);
    assert_string_equal(d.text, "no group \"x\"");
    assert_int_equal(d.rank, -1);
    assert_int_equal(diag_wrap(&d, "rank %d", 3), COLLRUN_ERR_NOT_FOUND);
    assert_string_equal(d.text, "rank 3: no group \"x\"");
    assert_int_equal(diag_sys(&d, ENOENT, "open %s", "f"), COLLRUN_ERR_SYSTEM);
    assert_string_equal(d.text, "open f: No such file or directory");
    assert_int_equal(d.sys_errno, ENOENT);
    assert_int_equal(diag_sys(&d, ENOMEM, "map"), COLLRUN_ERR_NO_MEMORY);
}

/* For each length around the border, with each function that appends. */
static void cuts_are_marked(void **state)
{
    (void)state;
    char lengthy[sizeof(((struct diag *)0)->text) + 8];
    for (size_t len = sizeof lengthy - 48; len < sizeof lengthy; len++) {
        struct diag set, sys, wrap;
        memset(lengthy, 'x', len);
        lengthy[len] = '\0';
        diag_set(&set, COLLRUN_ERR_INVALID, "%s", lengthy);
        assert_true(ends_in_dots(set.text, sizeof set.text) == (len >= sizeof set.text));
        diag_sys(&sys, ENOENT, "%s", lengthy);
        assert_true(ends_in_dots(sys.text, sizeof sys.text) ==
                    (len + strlen(": No such file or directory") >= sizeof sys.text));
        diag_set(&wrap, COLLRUN_ERR_INVALID, "%s", lengthy);
        diag_wrap(&wrap, "rank 3");
        assert_true(ends_in_dots(wrap.text, sizeof wrap.text) ==
                    (len + strlen("rank 3: ") >= sizeof wrap.text));
    }
}

/* Each alignment of characters of two, three and four bytes. */
static void a_cut_is_between_characters(void **state)
{
    (void)state;
    static const char *const characters[] = {"\xc3\xa4", "\xe6\xbc\xa2", "\xf0\x9f\x98\x80"};
    char lengthy[2 * sizeof(((struct diag *)0)->text)];
    for (size_t i = 0; i < 3; i++) {
        for (size_t pad = 0; pad < 4; pad++) {
            const size_t n = strlen(characters[i]);
            struct diag d;
            memset(lengthy, 'x', pad);
            for (size_t at = pad; at + n < sizeof lengthy; at += n)
                memcpy(lengthy + at, characters[i], n + 1);
            diag_set(&d, COLLRUN_ERR_INVALID, "%s", lengthy);
            size_t len = strlen(d.text), kept = len - strlen("...") - pad;
            assert_string_equal(d.text + len - 3, "...");
            assert_int_equal(kept % n, 0);
            assert_true(len + n >= sizeof d.text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts_that_fit_are_whole),
                                       cmocka_unit_test(cuts_are_marked),
                                       cmocka_unit_test(a_cut_is_between_characters)};
    return cmocka_run_group_tests_name("diag", tests, NULL, NULL);
}
