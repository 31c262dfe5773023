/* SPDX-License-Identifier: Apache-2.0
 *
 * The version that the headers declare is that of the Makefile.
 */
#include "build_id.h"

#include <collrun/collrun.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>

static void headers_have_the_version_of_the_build(void **state)
{
    (void)state;
    assert_string_equal(COLLRUN_VERSION, BUILD_VERSION);
    assert_string_equal(collrun_version(), BUILD_VERSION);
}

static void the_number_is_the_same_version(void **state)
{
    char text[32];
    (void)state;
    snprintf(text, sizeof text, "%d.%d.%d", COLLRUN_VERSION_NUMBER / 10000,
             COLLRUN_VERSION_NUMBER / 100 % 100, COLLRUN_VERSION_NUMBER % 100);
    assert_string_equal(text, COLLRUN_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_have_the_version_of_the_build),
        cmocka_unit_test(the_number_is_the_same_version),
    };
    return cmocka_run_group_tests_name("version", tests, NULL, NULL);
}
