/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a core file is, by the pattern of the kernel.
 */
#include "agent/process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void patterns(void **state)
{
    static const struct {
        const char *pattern;
        bool with_pid;
        const char *text;
    } rows[] = {
        {"core", false, "core file: /data/core"},
        {"core", true, "core file: /data/core.7"},
        {"core.%p", true, "core file: /data/core.7"},
        {"/var/cores/%e.%P.%%", false, "core file: /var/cores/*.7.%"},
        {"|/lib/systemd/systemd-coredump %P", false,
         "its core was given to /lib/systemd/systemd-coredump"},
        {"100%", false, "core file: /data/100%"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[200], few[16];
        core_file_describe(rows[i].pattern, rows[i].with_pid, 7, "/data", text, sizeof text);
        assert_string_equal(text, rows[i].text);
        core_file_describe(rows[i].pattern, rows[i].with_pid, 7, "/data", few, sizeof few);
        assert_memory_equal(few, text, 14);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(patterns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
