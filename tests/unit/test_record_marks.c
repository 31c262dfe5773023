/* SPDX-License-Identifier: Apache-2.0
 *
 * Marks of a record that a rank has damaged, or whose slot another group has taken, are not read.
 * Counts of v-forms that do not change are kept once.
 */
#include "base/record_queue.h"
#include "base/record_view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct record_head *make_record(uint32_t entries)
{
    int fd = record_make(3, entries);
    assert_true(fd >= 0);
    struct record_head *head = record_map(fd);
    assert_non_null(head);
    close(fd);
    return head;
}

static struct record_queue open_queue(struct record_head *head)
{
    struct record_queue q;
    const struct record_queue_info info = {
        .name = "train", .scope = "train#1:abc", .members = 4, .rank = 2};
    record_queue_open(&q, head, &info);
    return q;
}

static struct record_view live_view(struct record_head *head)
{
    struct record_view v;
    assert_int_equal(record_view_init(&v, head, record_len(head), NULL), COLLRUN_OK);
    return v;
}

static void mark_operation(struct record_queue *q, uint64_t number)
{
    q->signature = 1000 + number;
    q->pairs = 2000 + number;
    record_queue_mark(q, number, record_ticks(q->head));
}

/* One bit, or all bytes of a word. */
static void a_damaged_mark_is_none(void **state)
{
    (void)state;
    struct record_head *head = make_record(0); /* marks need no entries */
    struct record_queue q = open_queue(head);
    struct record_view_group g;
    struct record_view_mark mark;
    struct record_view v = live_view(head);
    mark_operation(&q, 1);
    assert_true(record_view_group(&v, q.slot, &g));
    unsigned char *bytes = (void *)&q.marks->recent[1];
    for (size_t bit = 0; bit < 8 * sizeof q.marks->recent[1]; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_false(record_view_mark(&v, &g, 1, &mark));
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    assert_true(record_view_mark(&v, &g, 1, &mark));
    assert_int_equal(mark.signature, 1001);
    for (size_t word = 0; word < 4; word++) {
        unsigned char before[8];
        memcpy(before, bytes + 8 * word, 8);
        memset(bytes + 8 * word, 0x5a, 8);
        assert_false(record_view_mark(&v, &g, 1, &mark));
        memcpy(bytes + 8 * word, before, 8);
    }
    record_unmap(head, record_len(head));
}

/* Without entries there is no index of a first operation that tells two groups apart. */
static void marks_of_an_earlier_group_are_not_read(void **state)
{
    (void)state;
    struct record_head *head = make_record(0); /* marks need no entries */
    struct record_queue q;
    struct record_view_group g[2];
    struct record_view_mark mark;
    struct record_view v = live_view(head);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < RECORD_GROUPS; k++) { /* each slot once */
            q = open_queue(head);
            mark_operation(&q, 1);
            record_queue_close(&q);
        }
        assert_true(record_view_group(&v, RECORD_GROUPS - 1, &g[i]));
        assert_true(record_view_mark(&v, &g[i], 1, &mark));
    }
    assert_int_equal(g[0].first, g[1].first);
    assert_false(record_view_mark(&v, &g[0], 1, &mark));
    record_unmap(head, record_len(head));
}

/* Calls whose counts do not change take room in the ring once, until half of it is of others. */
static void the_last_counts_are_known_by_their_hash(void **state)
{
    (void)state;
    struct record_head *head = make_record(16);
    struct record_queue q = open_queue(head), other = open_queue(head);
    const size_t sent[3] = {1, 2, 3};
    const struct record_counts counts = {.sent = sent, .nsent = 3, .hash = 7},
                               others = {.sent = sent, .nsent = 3};
    assert_false(record_queue_has_counts(&q, 7));
    assert_false(record_queue_has_counts(&q, 0));
    assert_int_equal(record_queue_keep_counts(&q, &counts), 0);
    assert_true(record_queue_has_counts(&q, 7));
    assert_false(record_queue_has_counts(&q, 8));
    assert_false(record_queue_has_counts(&other, 7));
    for (int i = 0; i < RECORD_COUNTS / 2 / 4 - 2; i++)
        record_queue_keep_counts(&other, &others);
    assert_true(record_queue_has_counts(&q, 7));
    record_queue_keep_counts(&other, &others);
    assert_false(record_queue_has_counts(&q, 7));
    record_queue_keep_counts(&q, &others);
    assert_false(record_queue_has_counts(&q, 0)); /* 0: of unknown counts */
    record_unmap(head, record_len(head));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_damaged_mark_is_none),
        cmocka_unit_test(marks_of_an_earlier_group_are_not_read),
        cmocka_unit_test(the_last_counts_are_known_by_their_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
