/* SPDX-License-Identifier: Apache-2.0
 *
 * A receiver takes the faster way for long messages, notices when the other one has become faster,
 * and does not change its mind for one delay: backends/shm/transport/remote_policy.h, with times
 * that the test makes up.
 */
#include "../../backends/shm/transport/remote_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { LEN = 3 << 20 };

/* `n` messages; returns how many of them were read. */
static unsigned receive(struct remote_policy *p, unsigned n, uint64_t read_ns, uint64_t blocks_ns)
{
    unsigned reads = 0;
    for (unsigned i = 0; i < n; i++) {
        const enum remote_way way = remote_policy_choose(p);
        reads += way == REMOTE_READ;
        remote_policy_measured(p, way, LEN, way == REMOTE_READ ? read_ns : blocks_ns);
    }
    return reads;
}

static void the_faster_way_is_taken(void **state)
{
    (void)state;
    struct remote_policy read = {0}, blocks = {0};
    assert_true(receive(&read, 1000, 200000, 300000) >= 980);
    assert_true(receive(&blocks, 1000, 300000, 200000) <= 20);
}

static void both_ways_are_tried_again(void **state)
{
    (void)state;
    struct remote_policy p = {0};
    receive(&p, 1000, 200000, 300000);
    receive(&p, 1000, 400000, 300000);
    assert_true(receive(&p, 1000, 400000, 300000) <= 20);
    receive(&p, 2000, 200000, 300000);
    assert_true(receive(&p, 1000, 200000, 300000) >= 980);
}

static void one_delay_changes_little(void **state)
{
    (void)state;
    struct remote_policy p = {0};
    receive(&p, 100, 200000, 300000);
    remote_policy_measured(&p, REMOTE_READ, LEN, 1000000000);
    assert_true(receive(&p, 100, 200000, 300000) >= 97);
}

/* The blocks, and the pages that the kernel has not looked up yet, are new. */
static void the_first_message_of_each_way_does_not_count(void **state)
{
    (void)state;
    struct remote_policy read = {0}, blocks = {0};
    receive(&read, 2, 2000000, 3000000);
    assert_true(receive(&read, 100, 200000, 300000) >= 96);
    receive(&blocks, 2, 1000000, 20000000);
    assert_true(receive(&blocks, 100, 300000, 200000) <= 4);
}

static void a_way_that_has_become_faster_is_taken_soon(void **state)
{
    (void)state;
    struct remote_policy p = {0};
    receive(&p, 128, 300000, 3000000);
    assert_true(receive(&p, 128, 300000, 200000) <= 66);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_faster_way_is_taken),
        cmocka_unit_test(both_ways_are_tried_again),
        cmocka_unit_test(one_delay_changes_little),
        cmocka_unit_test(the_first_message_of_each_way_does_not_count),
        cmocka_unit_test(a_way_that_has_become_faster_is_taken_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
