/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that writes the run directory. A FIFO without a reader is a disk that stalls.
 */
#include "report/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIMIT_MS = 60000, PART = 1 << 16 };

struct folder {
    char path[64];
    int dir;
    struct disk *disk;
};

static int setup(void **state)
{
    struct folder *f = test_calloc(1, sizeof *f);
    strcpy(f->path, "/tmp/test_disk.XXXXXX");
    assert_non_null(mkdtemp(f->path));
    f->dir = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    f->disk = disk_open(dup(f->dir), 3);
    assert_non_null(f->disk);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    static const char *const names[] = {"a", "b", "folder/a", "folder"};
    struct folder *f = *state;
    if (f->disk)
        disk_close(f->disk, LIMIT_MS);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlinkat(f->dir, names[i], strcmp(names[i], "folder") == 0 ? AT_REMOVEDIR : 0);
    close(f->dir);
    assert_int_equal(rmdir(f->path), 0);
    test_free(f);
    return 0;
}

/* What the file has, as text. */
static const char *content(const struct folder *f, const char *name)
{
    static char text[256];
    int fd = openat(f->dir, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    text[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
    return n < 0 ? "(none)" : text;
}

static void calls_are_done_in_order(void **state)
{
    struct folder *f = *state;
    struct disk_error error;
    disk_append(f->disk, 0, "a", "one ", 4);
    disk_append(f->disk, 0, "a", "two", 3);
    disk_replace(f->disk, "b", "first", 5);
    disk_replace(f->disk, "b", "second", 6);
    disk_make_folder(f->disk, "folder");
    disk_end_files(f->disk, 0, 1);
    disk_append(f->disk, 0, "folder/a", "three", 5);
    assert_true(disk_wait(f->disk, LIMIT_MS));
    assert_true(disk_is_idle(f->disk));
    assert_string_equal(content(f, "a"), "one two");
    assert_string_equal(content(f, "b"), "second");
    assert_string_equal(content(f, "folder/a"), "three");
    disk_rename(f->disk, "b", "a");
    disk_create(f->disk, "b");
    disk_create(f->disk, "a");
    assert_true(disk_wait(f->disk, LIMIT_MS));
    assert_string_equal(content(f, "a"), "second");
    assert_string_equal(content(f, "b"), "");
    assert_false(disk_take_error(f->disk, &error));
}

static void an_error_ends_one_file(void **state)
{
    struct folder *f = *state;
    struct disk_error error;
    struct pollfd event = {.fd = disk_event(f->disk), .events = POLLIN};
    assert_int_equal(symlinkat("/dev/null", f->dir, "a"), 0);
    disk_append(f->disk, 0, "a", "lost", 4);
    disk_append(f->disk, 0, "a", "lost", 4);
    disk_append(f->disk, 1, "b", "kept", 4);
    assert_true(disk_wait(f->disk, LIMIT_MS));
    assert_int_equal(poll(&event, 1, LIMIT_MS), 1);
    disk_acknowledge(f->disk);
    assert_int_equal(poll(&event, 1, 0), 0);
    assert_true(disk_take_error(f->disk, &error));
    assert_string_equal(error.name, "a");
    assert_int_equal(error.err, ELOOP);
    assert_false(disk_take_error(f->disk, &error));
    assert_string_equal(content(f, "b"), "kept");
}

/* Reads the FIFO to its end; each part must be of the next number. */
static void read_parts(int fd, unsigned n)
{
    static unsigned char part[PART];
    for (unsigned i = 0; i < n; i++) {
        for (size_t at = 0; at < PART;) {
            ssize_t got = read(fd, part + at, PART - at);
            assert_true(got > 0);
            at += (size_t)got;
        }
        assert_int_equal(part[0], i & 0xff);
        assert_int_equal(part[PART - 1], i & 0xff);
    }
}

static void a_stall_delays_only_the_files(void **state)
{
    static unsigned char part[PART];
    struct folder *f = *state;
    struct pollfd event = {.fd = disk_event(f->disk), .events = POLLIN};
    unsigned n = 0;
    assert_int_equal(mkfifoat(f->dir, "a", 0600), 0);
    while (!disk_full(f->disk)) {
        memset(part, (int)(n++ & 0xff), sizeof part);
        disk_append(f->disk, 0, "a", part, sizeof part);
    }
    assert_true(n >= DISK_QUEUE / PART / 2 && n <= DISK_QUEUE / PART + 1);
    assert_false(disk_wait(f->disk, 20));
    assert_int_equal(poll(&event, 1, 0), 0);
    int fd = openat(f->dir, "a", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    read_parts(fd, n);
    assert_int_equal(poll(&event, 1, LIMIT_MS), 1);
    assert_true(disk_wait(f->disk, LIMIT_MS));
    assert_false(disk_full(f->disk));
    close(fd);
}

static void memory_is_bounded_and_the_end_does_not_wait(void **state)
{
    static unsigned char part[PART];
    struct folder *f = *state;
    struct disk_error error;
    assert_int_equal(mkfifoat(f->dir, "a", 0600), 0);
    for (unsigned i = 0; i < 2u * DISK_QUEUE_MAX / PART + 2; i++)
        disk_append(f->disk, 0, "a", part, sizeof part);
    assert_true(disk_take_error(f->disk, &error));
    assert_int_equal(error.err, ENOBUFS);
    assert_false(disk_close(f->disk, 10));
    f->disk = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_are_done_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(an_error_ends_one_file, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stall_delays_only_the_files, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_is_bounded_and_the_end_does_not_wait, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
