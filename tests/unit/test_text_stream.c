/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts in memory: whole, or none when memory runs out.
 */
#include "base/quote.h"
#include "emulated.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LIMITED = 0 }; /* a sanitizer maps more than any limit */
#else
enum { LIMITED = 1 };
#endif
enum { LINES = 1 << 20 };

static bool write_lines(char **text, size_t *len)
{
    FILE *f = text_stream_open(text, len);
    for (int i = 0; f && i < LINES; i++)
        fputs("a line of 16 B.\n", f);
    return text_stream_close(f, text);
}

static void a_text_is_whole(void **state)
{
    char *text;
    size_t len;
    (void)state;
    assert_true(write_lines(&text, &len));
    assert_int_equal(len, 16 * LINES);
    assert_int_equal(strlen(text), len);
    free(text);
    assert_true(text_stream_close(text_stream_open(&text, &len), &text));
    assert_string_equal(text, "");
    free(text);
    text = NULL;
    assert_false(text_stream_close(NULL, &text));
}

static void without_memory_there_is_none(void **state)
{
    struct rlimit before;
    char *text;
    size_t len;
    (void)state;
    if (!LIMITED || emulated())
        skip();
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    struct rlimit few = {.rlim_cur = 20u << 20, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &few), 0);
    const bool whole = write_lines(&text, &len);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_false(whole);
    assert_null(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_is_whole),
        cmocka_unit_test(without_memory_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
