/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory file of a flight recorder: its size is valid and cannot be changed.
 */
#include "base/record.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static void only_rings_of_a_power_of_two_are_made(void **state)
{
    (void)state;
    assert_true(record_make(0, 3) < 0);
    assert_true(record_make(0, 2 * RECORD_ENTRIES_MAX) < 0);
    assert_null(record_map(-1));
}

/* A rank that truncates its record cannot crash the agent, which has mapped it. */
static void the_size_of_a_record_is_sealed(void **state)
{
    (void)state;
    int fd = record_make(0, 16);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(fd, 1 << 30), -1);
    assert_int_equal(errno, EPERM);
    close(fd);
}

static void a_record_of_another_size_is_not_mapped(void **state)
{
    (void)state;
    struct record_head head;
    int fd = record_make(0, 16), other = memfd_create("other", MFD_CLOEXEC);
    assert_true(fd >= 0 && other >= 0);
    assert_int_equal(pread(fd, &head, sizeof head, 0), sizeof head);
    assert_int_equal(pwrite(other, &head, sizeof head, 0), sizeof head);
    assert_int_equal(ftruncate(other, 5000), 0);
    assert_null(record_map(other));
    close(other);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_rings_of_a_power_of_two_are_made),
        cmocka_unit_test(the_size_of_a_record_is_sealed),
        cmocka_unit_test(a_record_of_another_size_is_not_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
