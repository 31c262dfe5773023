/* SPDX-License-Identifier: Apache-2.0
 *
 * From records of ranks to findings: two ranks write marks as the engine does, the sender of the
 * agent packs frames at chosen moments, and the audit of the runner compares them.
 */
#include "agent/audit_sender.h"
#include "base/loop.h"
#include "base/record_queue.h"
#include "diagnose/audit.h"
#include "diagnose/host_clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 2 };

struct rank {
    struct record_head *head;
    struct record_queue queue;
    struct audit_sender_rank *sent;
    uint64_t called;
    uint64_t late_ns; /* the agent looks so long after the present */
    bool one_host;    /* all ranks are on one host */
    size_t last_len;  /* of the last frame */
    uint32_t last_groups;
};

static struct rank ranks[RANKS];
static struct audit *audit;

static void open_group(struct rank *r, const char *scope, enum collrun_check check)
{
    const struct record_queue_info info = {.name = "train",
                                           .scope = scope,
                                           .members = RANKS,
                                           .rank = (uint32_t)(r - ranks),
                                           .check = check};
    record_queue_open(&r->queue, r->head, &info);
    r->called = 0;
}

static int setup(void **state)
{
    (void)state;
    audit = audit_new(RANKS);
    for (uint32_t i = 0; i < RANKS; i++) {
        int fd = record_make(i, 0);
        assert_true(fd >= 0);
        ranks[i] = (struct rank){.head = record_map(fd), .sent = calloc(1, sizeof *ranks[i].sent)};
        close(fd);
        assert_non_null(ranks[i].head);
        assert_non_null(ranks[i].sent);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < RANKS; i++) {
        record_unmap(ranks[i].head, record_len(ranks[i].head));
        free(ranks[i].sent);
    }
    audit_free(audit);
    return 0;
}

/* `upto` operations in all; those from `other` on differ from those of the peers. */
static void call(struct rank *r, uint64_t upto, uint64_t other)
{
    const struct record_call c = {.kind = COLLRUN_BARRIER, .root_or_peer = -1};
    while (r->called < upto) {
        uint64_t number = ++r->called, what = number == other ? 2 : 1;
        r->queue.signature = (r->queue.signature ^ what) * 0x9e3779b97f4a7c15u;
        r->queue.signature ^= r->queue.signature >> 29;
        record_queue_mark(&r->queue, number, record_ticks(r->head));
        record_queue_enter(&r->queue, &c, number, 0, record_ticks(r->head));
        record_queue_leave(&r->queue, number);
    }
}

/* The agent looks at a rank. */
static void look(struct rank *r, bool ended)
{
    struct record_view v;
    struct diag d;
    struct buf b;
    diag_init(&d);
    buf_init(&b);
    record_calibrate(r->head);
    assert_int_equal(record_view_init(&v, r->head, record_len(r->head), &d), 0);
    const struct audit_sender_look now = {
        .now_ns = now_ns() + r->late_ns, .ended = ended, .one_host = r->one_host};
    r->last_groups = audit_sender_pack(r->sent, &v, &now, &b);
    r->last_len = b.len;
    const struct wire_frame f = {.rank = (uint32_t)(r - ranks), .payload = b.data, .len = b.len};
    assert_true(audit_take(audit, &f, &(int64_t){0}));
    buf_fini(&b);
}

/* ---- cases ---- */

static void each_of_a_few_operations_is_compared(void **state)
{
    struct audit_finding f;
    (void)state;
    for (uint32_t i = 0; i < RANKS; i++)
        open_group(&ranks[i], "train#0:1", COLLRUN_CHECK_ASYNC);
    for (uint64_t at = 10; at <= 50; at += 10) {
        call(&ranks[0], at, 0);
        call(&ranks[1], at + 3, 37);
        look(&ranks[0], false);
        look(&ranks[1], false);
        assert_int_equal(audit_find(audit, true, &f), at >= 40);
    }
    assert_int_equal(f.number, 37);
    assert_int_equal(f.after, 36);
    assert_string_equal(f.scope, "train#0:1");
}

static void what_has_not_changed_is_not_sent(void **state)
{
    (void)state;
    open_group(&ranks[0], "train#0:1", COLLRUN_CHECK_ASYNC);
    look(&ranks[0], false);
    assert_int_equal(ranks[0].last_groups, 0);
    call(&ranks[0], 10, 0);
    look(&ranks[0], false);
    assert_int_equal(ranks[0].last_groups, 1);
    look(&ranks[0], false);
    assert_int_equal(ranks[0].last_groups, 0);
    call(&ranks[0], 100000, 0);
    look(&ranks[0], false);
    assert_int_equal(ranks[0].last_groups, 1);
    assert_true(ranks[0].last_len < 1200);
    look(&ranks[0], false); /* what was left out */
    assert_int_equal(ranks[0].last_groups, 1);
    assert_true(ranks[0].last_len > 120 * 32);
    look(&ranks[0], false);
    assert_int_equal(ranks[0].last_groups, 0);
    look(&ranks[0], true);
    assert_int_equal(ranks[0].last_groups, 1);
    look(&ranks[0], true);
    assert_int_equal(ranks[0].last_groups, 0);
}

static void ranks_that_wait_are_compared_to_the_last_operation(void **state)
{
    struct audit_finding f;
    (void)state;
    for (uint32_t i = 0; i < RANKS; i++) {
        open_group(&ranks[i], "train#0:1", COLLRUN_CHECK_ASYNC);
        call(&ranks[i], 20000 + 30 * i, i ? 19990 : 0);
    }
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t r = 0; r < RANKS; r++)
            look(&ranks[r], false);
    assert_true(audit_find(audit, true, &f));
    assert_int_equal(f.number, 19990);
    assert_int_equal(f.after, 19989);
    for (uint32_t r = 0; r < RANKS; r++) { /* it stays, whatever they call then */
        call(&ranks[r], 40000, 0);
        look(&ranks[r], false);
        look(&ranks[r], false);
    }
    assert_true(audit_find(audit, true, &f));
    assert_int_equal(f.number, 19990);
}

/* 100,000 operations a second on two hosts, whose agents look at different times. */
static void hosts_that_look_at_different_times_meet(void **state)
{
    struct audit_finding f;
    uint64_t called = 0, found = 0;
    (void)state;
    for (uint32_t i = 0; i < RANKS; i++)
        open_group(&ranks[i], "train#0:1", COLLRUN_CHECK_ASYNC);
    for (uint32_t ms = 0; !found && ms < 1000; ms++) {
        called += 100;
        call(&ranks[0], called, 0);
        call(&ranks[1], called - called % 7, 50001);
        if (ms % AUDIT_SENDER_SOON_MS == 0)
            look(&ranks[0], false);
        if (ms % AUDIT_SENDER_SOON_MS == 13)
            look(&ranks[1], false);
        assert_int_equal(ranks[1].sent->soon, ms >= 13);
        found = audit_find(audit, true, &f) ? called : 0;
    }
    assert_true(found >= 50001 && found < 50001 + 10000); /* 100 ms */
    assert_true(f.after <= 50000 && f.number >= 50001);
}

/* The host of all ranks looks every 100 ms, at a million operations a second, whose ranks are
 * apart. */
static void ranks_of_one_host_need_no_more_looks(void **state)
{
    (void)state;
    for (uint64_t apart = 0; apart <= 3000; apart += 1500) {
        struct audit_finding f;
        uint64_t found = 0;
        for (uint32_t i = 0; i < RANKS; i++) {
            open_group(&ranks[i], "train#0:1", COLLRUN_CHECK_ASYNC);
            ranks[i].one_host = true;
        }
        for (uint64_t called = 0; !found && called < 3000000;) {
            called += 100000;
            for (uint32_t r = 0; r < RANKS; r++) {
                call(&ranks[r], called - (r ? 0 : apart), r == 1 ? 150001 : 0);
                look(&ranks[r], false);
                assert_false(ranks[r].sent->soon);
            }
            found = audit_find(audit, true, &f) ? called : 0;
        }
        assert_true(found >= 200000 && found <= (apart ? 400000 : 200000));
        assert_true(f.after <= 150000);
        teardown(state);
        setup(state);
    }
}

/* The last operation of each rank is in flight, and differs. */
static bool find_in_flight(uint64_t late_ns, enum collrun_check check, int status)
{
    const struct record_call c = {.kind = COLLRUN_BARRIER, .root_or_peer = -1};
    struct audit_finding f;
    void *none = NULL;
    setup(&none);
    for (uint32_t i = 0; i < RANKS; i++) {
        open_group(&ranks[i], "train#0:1", check);
        call(&ranks[i], 5, i ? 5 : 0);
        ranks[i].late_ns = late_ns;
        atomic_store(&ranks[i].queue.group->done, 4);
        record_queue_enter(&ranks[i].queue, &c, 5, 0, record_ticks(ranks[i].head));
        if (status && i)
            record_queue_fail(&ranks[i].queue, status);
        look(&ranks[i], false);
    }
    bool found = audit_find(audit, true, &f), soon = ranks[0].sent->soon;
    assert_int_equal(soon, late_ns == 0);
    teardown(&none);
    return found;
}

static void an_operation_in_flight_counts_later(void **state)
{
    (void)state;
    assert_false(find_in_flight(0, COLLRUN_CHECK_ASYNC, 0));
    assert_false(find_in_flight(1000000000, COLLRUN_CHECK_STRICT, 0));
    assert_false(find_in_flight(0, COLLRUN_CHECK_ASYNC, COLLRUN_ERR_MISMATCH));
    assert_false(find_in_flight(1000000000, COLLRUN_CHECK_ASYNC, COLLRUN_ERR_MISMATCH));
    assert_true(find_in_flight(1000000000, COLLRUN_CHECK_ASYNC, COLLRUN_ERR_TIMEOUT));
    assert_true(find_in_flight(AUDIT_SENDER_HOLD_MS * 1000000ull, COLLRUN_CHECK_ASYNC, 0));
}

static void closed_groups_are_compared_until_their_slot_is_used(void **state)
{
    struct audit_finding f;
    (void)state;
    for (uint32_t n = 0; n < 2; n++) {
        for (uint32_t i = 0; i < RANKS; i++) {
            char scope[32];
            snprintf(scope, sizeof scope, "train#%u:1", n);
            open_group(&ranks[i], scope, COLLRUN_CHECK_ASYNC);
            call(&ranks[i], 5, i && n == 1 ? 3 : 0);
            record_queue_close(&ranks[i].queue);
        }
    }
    look(&ranks[0], false);
    assert_int_equal(ranks[0].last_groups, 2);
    look(&ranks[0], false);
    assert_int_equal(ranks[0].last_groups, 0);
    look(&ranks[1], false);
    assert_true(audit_find(audit, true, &f));
    assert_string_equal(f.scope, "train#1:1");
    assert_int_equal(f.number, 3);
}

static void check_off_is_not_audited(void **state)
{
    (void)state;
    open_group(&ranks[0], "train#0:1", COLLRUN_CHECK_OFF);
    call(&ranks[0], 5, 0);
    look(&ranks[0], true);
    assert_int_equal(ranks[0].last_groups, 0);
}

/* A rank writes at random into its record. */
static void a_number_out_of_range_is_not_sent(void **state)
{
    static const uint64_t damaged[] = {UINT64_MAX, UINT64_MAX - 100, RECORD_NUMBER_MAX + 1};
    (void)state;
    open_group(&ranks[0], "train#0:1", COLLRUN_CHECK_ASYNC);
    call(&ranks[0], 5, 0);
    struct record_group *g = ranks[0].queue.group;
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        g->started = damaged[i];
        look(&ranks[0], false);
        assert_int_equal(ranks[0].last_groups, 0);
        g->started = 5;
        g->done = damaged[i];
        look(&ranks[0], true);
        assert_int_equal(ranks[0].last_groups, 0);
        g->done = 5;
    }
    g->done = RECORD_NUMBER_MAX;
    g->started = RECORD_NUMBER_MAX;
    look(&ranks[0], false);
    assert_int_equal(ranks[0].last_groups, 1);
    assert_true(ranks[0].last_len < 120); /* no marks */
    look(&ranks[0], true);
    assert_true(ranks[0].last_len < 120);
}

/* ---- texts ---- */

static void texts(void **state)
{
    struct audit_finding_rank found[] = {
        {.rank = 0}, {.rank = 1, .class = 1}, {.rank = 2}, {.rank = 3}};
    struct audit_finding f = {.group = "train",
                              .number = 501,
                              .after = 500,
                              .completed = true,
                              .ranks = found,
                              .nranks = 4,
                              .nclasses = 2,
                              .nmembers = 4};
    struct diag d;
    (void)state;
    diag_init(&d);
    audit_text(&f, &d);
    assert_string_equal(d.text, "rank 1 and ranks 0 and 2-3 differ in operation 501 of group "
                                "train; results of the group may be wrong since operation 501");
    assert_int_equal(d.code, COLLRUN_ERR_MISMATCH);
    f.after = 448;
    f.completed = false;
    f.nranks = 2;
    f.majority = UINT32_MAX;
    audit_text(&f, &d);
    assert_string_equal(
        d.text, "rank 0 and rank 1 differ in one of the operations 449 to 501 of group train");
    f.difference = AUDIT_COUNTS;
    f.after = 500;
    found[1].class = 0;
    f.nclasses = 1;
    audit_text(&f, &d);
    assert_string_equal(d.text, "ranks 0-1 differ in the counts of operation 501 of group train: "
                                "what ranks send is not what their peers expect");
}

static void the_text_of_an_operation_too_many_says_how_many(void **state)
{
    struct audit_finding_rank found[] = {{.rank = 0, .value = 6},
                                         {.rank = 1, .class = 1, .value = 3}};
    struct audit_finding f = {.difference = AUDIT_EXTRA,
                              .group = "half",
                              .number = 4,
                              .after = 3,
                              .completed = true,
                              .ranks = found,
                              .nranks = 2,
                              .nclasses = 2,
                              .nmembers = 2,
                              .majority = UINT32_MAX};
    struct diag d;
    (void)state;
    diag_init(&d);
    audit_text(&f, &d);
    assert_string_equal(d.text, "rank 0 called 6 operations in group half, rank 1 called 3");
    struct audit_finding_rank more[] = {
        {.rank = 0, .value = 8}, {.rank = 1, .class = 1, .value = 1}, {.rank = 2, .value = 8}};
    f.ranks = more;
    f.nranks = 3;
    f.majority = 0;
    audit_text(&f, &d);
    assert_string_equal(d.text, "rank 1 called 1 operation in group half, ranks 0 and 2 called 8");
}

/* ---- clocks of hosts ---- */

static uint32_t seed = 1;

static uint64_t random_below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static void the_clock_of_a_host_is_known_to_half_of_the_shortest_ways(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2000; i++) {
        struct host_clock c = {0};
        int64_t ahead = (int64_t)random_below(2000000000) - 1000000000, got;
        uint64_t now = 5000000000u, out = UINT64_MAX, home = UINT64_MAX;
        uint64_t n = 1 + i % HOST_CLOCK_EXCHANGES;
        assert_false(host_clock_offset(&c, &got));
        for (uint32_t k = 0; k < n; k++) {
            uint64_t there = 1 + random_below(3000000), back = 1 + random_below(3000000);
            struct host_clock_exchange e = {.t1 = now};
            e.t2 = now + there + (uint64_t)ahead;
            e.t3 = e.t2 + random_below(1000000000);
            e.t4 = e.t3 - (uint64_t)ahead + back;
            host_clock_take(&c, &e);
            now += 1000000000;
            out = there < out ? there : out;
            home = back < home ? back : home;
        }
        int64_t error = (int64_t)((out + home) / 2 + 2 + (n - 1) * 2000000000u / 20000);
        assert_true(host_clock_offset(&c, &got));
        assert_true(got - ahead <= error && ahead - got <= error);
    }
}

static void an_exchange_before_a_clock_was_set_does_not_count(void **state)
{
    (void)state;
    struct host_clock c = {0};
    int64_t got;
    host_clock_take(&c, &(struct host_clock_exchange){1000, 1100, 1200, 1300});
    host_clock_take(&c, &(struct host_clock_exchange){2000, 9000000, 9000100, 2200});
    assert_true(host_clock_offset(&c, &got));
    assert_true(got > 8997000 && got < 8999000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_of_a_few_operations_is_compared, setup, teardown),
        cmocka_unit_test_setup_teardown(what_has_not_changed_is_not_sent, setup, teardown),
        cmocka_unit_test_setup_teardown(ranks_that_wait_are_compared_to_the_last_operation, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(ranks_of_one_host_need_no_more_looks, setup, teardown),
        cmocka_unit_test_setup_teardown(hosts_that_look_at_different_times_meet, setup, teardown),
        cmocka_unit_test_setup_teardown(closed_groups_are_compared_until_their_slot_is_used, setup,
                                        teardown),
        cmocka_unit_test(an_operation_in_flight_counts_later),
        cmocka_unit_test_setup_teardown(check_off_is_not_audited, setup, teardown),
        cmocka_unit_test_setup_teardown(a_number_out_of_range_is_not_sent, setup, teardown),
        cmocka_unit_test(texts),
        cmocka_unit_test(the_text_of_an_operation_too_many_says_how_many),
        cmocka_unit_test(an_exchange_before_a_clock_was_set_does_not_count),
        cmocka_unit_test(the_clock_of_a_host_is_known_to_half_of_the_shortest_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
