/* SPDX-License-Identifier: Apache-2.0
 *
 * The text that members of a group compare before they form it.
 */
#include "core/backend.h"
#include "group/group.h"
#include "group/group_open.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { BACKENDS = 3 };

/* A group on the first `n` of three backends, which all have this version. */
struct fixture {
    struct backend backends[BACKENDS];
    struct group_backend of_group[BACKENDS];
    struct collrun_group group;
};

static const struct collrun_group *fixture_init(struct fixture *f, uint32_t n, const char *version)
{
    static const char *const names[BACKENDS] = {"shm", "nccl", "hccl"};
    memset(f, 0, sizeof *f);
    for (uint32_t i = 0; i < BACKENDS; i++) {
        strcpy(f->backends[i].name, names[i]);
        f->backends[i].table.version = version;
        f->backends[i].table.abi = 1;
        f->of_group[i].backend = &f->backends[i];
    }
    f->group.backends = f->of_group;
    f->group.nbackends = n;
    return &f->group;
}

static void it_lists_backends_and_check(void **state)
{
    struct fixture f;
    char text[HOSTMEM_IDENTITY_LEN];
    (void)state;
    assert_true(group_identity(fixture_init(&f, 1, "1.0"), text));
    assert_string_equal(text, "shm 1.0, ABI 1");
    f.group.nbackends = 2;
    f.group.check = COLLRUN_CHECK_STRICT;
    assert_true(group_identity(&f.group, text));
    assert_string_equal(text, "shm 1.0, ABI 1; nccl 1.0, ABI 1, check: strict");
}

/* Versions are the backends' own texts, of any length. */
static void long_ones_differ_in_their_last_byte(void **state)
{
    struct fixture f;
    struct {
        char text[HOSTMEM_IDENTITY_LEN], behind[64];
    } first, second;
    char version[300];
    (void)state;
    memset(version, 'x', sizeof version);
    for (size_t len = 70; len < sizeof version; len++) {
        for (uint32_t n = 1; n <= BACKENDS; n++) {
            memset(&first, '#', sizeof first);
            version[len - 1] = 'a';
            version[len] = '\0';
            assert_true(group_identity(fixture_init(&f, n, version), first.text));
            assert_non_null(memchr(first.text, '\0', sizeof first.text));
            assert_non_null(strstr(first.text, "shm xxx"));
            assert_int_equal(first.behind[0], '#');
            version[len - 1] = 'b';
            assert_true(group_identity(&f.group, second.text));
            assert_string_not_equal(first.text, second.text);
            f.group.check = COLLRUN_CHECK_STRICT;
            assert_true(group_identity(&f.group, first.text));
            assert_string_not_equal(first.text, second.text);
            version[len - 1] = version[len] = 'x';
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_lists_backends_and_check),
        cmocka_unit_test(long_ones_differ_in_their_last_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
