/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages on any backend: receives from any source, messages whose other end has left, and ends
 * that disagree. See p2p_suite.h.
 */
#include "p2p_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- any source ---- */

/* Workers send a number, then as much data as it says, on one tag; rank 0 receives the number from
 * any source and the data from its sender. */
static int from_any(struct harness_rank *r)
{
    enum { ROUNDS = 20 };
    char *data = malloc(LARGE);
    HARNESS_CHECK(r, data);
    if (r->rank != 0) {
        for (unsigned i = 0; i < ROUNDS; i++) {
            uint32_t bytes = i % 5 == 0 ? LARGE / 2 : i * 100;
            fill(data, bytes, r->rank + i);
            HARNESS_CHECK(r, send_to(r, &bytes, sizeof(bytes), 0, 0) == COLLRUN_OK);
            HARNESS_CHECK(r, send_to(r, data, bytes, 0, 0) == COLLRUN_OK);
        }
        free(data);
        return 0;
    }
    unsigned rounds[8] = {0};
    for (unsigned i = 0; i < ROUNDS * (r->nranks - 1); i++) {
        uint32_t bytes = 0;
        int source = -1;
        struct collrun_call any = harness_message(COLLRUN_RECV_ANY, &bytes, sizeof(bytes), 0, 0);
        any.source = &source;
        HARNESS_CHECK(r, harness_exec(r->group, &any, 1) == COLLRUN_OK);
        HARNESS_CHECK(r, source > 0 && source < (int)r->nranks && bytes <= LARGE);
        HARNESS_CHECK(r, recv_from(r, data, bytes, (uint32_t)source, 0) == COLLRUN_OK);
        HARNESS_CHECK(r, holds(data, bytes, (unsigned)source + rounds[source]++));
    }
    free(data);
    return 0;
}

static void receives_from_any_source(void **state)
{
    const struct harness_options options = options_for(state, 4);
    assert_int_equal(harness_run(&options, from_any), 0);
}

/* Large messages from any source, and small ones from ranks that have left. */
static int from_any_left(struct harness_rank *r)
{
    const uint32_t all[4] = {0, 1, 2, 3};
    char *data = malloc(LARGE);
    struct harness_group *g = NULL;
    HARNESS_CHECK(r, data && harness_group_open(r, "left", all, 4, &g) == COLLRUN_OK);
    fill(data, LARGE, r->rank);
    if (r->rank != 0) {
        const struct collrun_call calls[2] = {harness_message(COLLRUN_SEND, data, 100, 0, 1),
                                              harness_message(COLLRUN_SEND, data, LARGE, 0, 2)};
        HARNESS_CHECK(r, harness_exec(g, calls, 2) == COLLRUN_OK);
        harness_group_close(g);
        free(data);
        return 0;
    }
    for (uint32_t tag = 2; tag > 0; tag--) {
        unsigned seen = 0;
        for (unsigned i = 0; i < 3; i++) {
            int source = -1;
            const size_t bytes = tag == 2 ? LARGE : 100;
            struct collrun_call any = harness_message(COLLRUN_RECV_ANY, data, bytes, 0, tag);
            any.source = &source;
            HARNESS_CHECK(r, harness_exec(g, &any, 1) == COLLRUN_OK);
            HARNESS_CHECK(r, source > 0 && holds(data, bytes, (unsigned)source));
            seen |= 1u << source;
        }
        HARNESS_CHECK(r, seen == 14);
        HARNESS_UNTIL(r, harness_is_gone(r, 1) && harness_is_gone(r, 2) && harness_is_gone(r, 3));
    }
    harness_group_close(g);
    free(data);
    return 0;
}

static void receives_from_any_source_that_has_left(void **state)
{
    struct harness_options options = options_for(state, 4);
    options.no_group = true;
    assert_int_equal(harness_run(&options, from_any_left), 0);
}

/* As many receives from any source in one call as one rank sends messages: none waits for the
 * others, and the messages go to them in order. */
static int all_from_one(struct harness_rank *r)
{
    enum { N = 50 };
    static uint32_t numbers[N];
    struct collrun_call calls[N];
    for (uint32_t i = 0; i < N; i++) {
        numbers[i] = r->rank == 1 ? i : 99;
        calls[i] =
            harness_message(r->rank == 1 ? COLLRUN_SEND : COLLRUN_RECV_ANY, &numbers[i], 4, 0, 0);
    }
    const uint64_t start = harness_now_ns();
    if (r->rank == 0)
        HARNESS_CHECK(r, harness_exec(r->group, calls, N) == COLLRUN_OK);
    for (uint32_t i = 0; i < N && r->rank == 1; i++) {
        harness_lag_us(i < 5 ? 15000 : 0); /* while it waits in turns for one and another */
        HARNESS_CHECK(r, harness_exec(r->group, &calls[i], 1) == COLLRUN_OK);
    }
    HARNESS_CHECK(r, harness_now_ns() - start < HARNESS_AT_ONCE_NS);
    for (uint32_t i = 0; i < N && r->rank == 0; i++)
        HARNESS_CHECK(r, numbers[i] == i);
    return 0;
}

static void many_from_one_in_one_call(void **state)
{
    const struct harness_options options = options_for(state, 3);
    assert_int_equal(harness_run(&options, all_from_one), 0);
}

/* Several of one shape and another, some by name: each gets the message of its turn. */
static int in_turn(struct harness_rank *r)
{
    enum { N = 6 };
    static const size_t sizes[N] = {8, 100, 8, LARGE / 4, 12, 8};
    static char data[N][LARGE / 4];
    struct collrun_call calls[N];
    for (uint32_t tag = 0; tag < 20; tag++) {
        int sources[N] = {-1, -1, -1, -1, -1, -1};
        for (unsigned i = 0; i < N; i++) {
            const bool named = (i ^ tag) & 1;
            fill(data[i], sizes[i], r->rank == 1 ? tag + i : 99);
            calls[i] = harness_message(named ? COLLRUN_RECV : COLLRUN_RECV_ANY, data[i], sizes[i],
                                       1 - r->rank, tag);
            calls[i].source = &sources[i];
            if (r->rank == 1)
                calls[i].kind = COLLRUN_SEND;
        }
        HARNESS_UNTIL(r, r->rank == 0 || tag % 3 == 0 || harness_inside_ms(r, 0) >= 2);
        HARNESS_CHECK(r, harness_exec(r->group, calls, N) == COLLRUN_OK);
        for (unsigned i = 0; i < N && r->rank == 0; i++) {
            HARNESS_CHECK(r, holds(data[i], sizes[i], tag + i));
            HARNESS_CHECK(r, sources[i] == ((i ^ tag) & 1 ? -1 : 1));
        }
        harness_sync(r);
    }
    return 0;
}

static void from_one_source_and_from_any_in_turn(void **state)
{
    const struct harness_options options = options_for(state, 2);
    assert_int_equal(harness_run(&options, in_turn), 0);
}

/* Rank 1 sends a message and leaves, or is killed; then receives wait for it, and for any source.
 */
static int gone(struct harness_rank *r)
{
    const bool killed = *(const bool *)r->arg;
    const uint32_t all[3] = {0, 1, 2};
    struct harness_group *g = NULL;
    char buf[64] = {0};
    const struct collrun_call hello = harness_message(COLLRUN_SEND, buf, 8, 0, 5);
    HARNESS_CHECK(r, harness_group_open(r, "gone", all, 3, &g) == COLLRUN_OK);
    if (r->rank != 0) {
        HARNESS_CHECK(r, harness_exec(g, &hello, 1) == COLLRUN_OK);
        harness_sync(r);
        if (r->rank == 1 && killed)
            harness_kill(r, 1);
        if (r->rank == 2)
            HARNESS_UNTIL(r, harness_is_gone(r, 0));
        harness_group_close(g);
        return 0;
    }
    for (uint32_t from = 1; from < 3; from++) {
        const struct collrun_call recv = harness_message(COLLRUN_RECV, buf, 8, from, 5);
        HARNESS_CHECK(r, harness_exec(g, &recv, 1) == COLLRUN_OK);
    }
    harness_sync(r);
    HARNESS_UNTIL(r, harness_is_gone(r, 1));
    struct collrun_call any = harness_message(COLLRUN_RECV_ANY, buf, 64, 0, 0);
    any.timeout_ns = killed ? 30000ull * MS : 300 * MS;
    HARNESS_CHECK(r, harness_exec(g, &any, 1) ==
                         (killed ? COLLRUN_ERR_PEER_FAILED : COLLRUN_ERR_TIMEOUT));
    HARNESS_CHECK(r, !killed || strstr(harness_error(), "connection to rank 1: "));
    harness_group_close(g);
    return 0;
}

static void one_source_is_gone(void **state)
{
    if (suite_of(state)->placement == P2P_ONE_HOST)
        skip(); /* the agent sees that a rank of its host is dead */
    static const bool may_die[3] = {false, true, false};
    for (unsigned killed = 0; killed < 2; killed++) {
        bool arg = killed;
        struct harness_options options = options_for(state, 3);
        if (killed)
            p2p_skip_ends(state);
        options.no_group = true;
        options.may_die = may_die;
        options.arg = &arg;
        assert_int_equal(harness_run(&options, gone), 0);
    }
}

/* Rank 0 sleeps before every message: from rank 3 of its host, from rank 1 of another one. */
static int asleep(struct harness_rank *r)
{
    enum { ROUNDS = 40 };
    _Atomic uint64_t *sent_ns = r->scratch;
    uint32_t number = 0, late = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        const uint32_t from = i % 4 == 0 ? 1 : 3;
        struct collrun_call any = harness_message(COLLRUN_RECV_ANY, &number, 4, 0, 0);
        const struct collrun_call send = harness_message(COLLRUN_SEND, &number, 4, 0, 0);
        int source = -1;
        any.source = &source;
        if (r->rank == from) {
            number = i;
            HARNESS_UNTIL(r, harness_inside_ms(r, 0) >= 15);
            *sent_ns = harness_now_ns();
            HARNESS_CHECK(r, harness_exec(r->group, &send, 1) == COLLRUN_OK);
        } else if (r->rank == 0) {
            HARNESS_CHECK(r, harness_exec(r->group, &any, 1) == COLLRUN_OK);
            HARNESS_CHECK(r, number == i && source == (int)from);
            late += harness_now_ns() - *sent_ns > 20 * MS;
        }
        harness_sync(r);
    }
    HARNESS_CHECK(r, late < ROUNDS / 2); /* without a wake-up, 50 ms on average */
    return 0;
}

static void a_sleeping_receiver_wakes_up(void **state)
{
    const struct harness_options options = options_for(state, 4);
    assert_int_equal(harness_run(&options, asleep), 0);
}

/* Rank 1 has only received when it leaves. */
static int left_without_a_message(struct harness_rank *r)
{
    const uint32_t all[3] = {0, 1, 2};
    struct harness_group *g = NULL;
    char buf[8] = {0};
    const struct collrun_call calls[3] = {harness_message(COLLRUN_SEND, buf, 8, 1, 5),
                                          harness_message(COLLRUN_RECV, buf, 8, 0, 5),
                                          harness_message(COLLRUN_SEND, buf, 8, 0, 0)};
    struct collrun_call any = harness_message(COLLRUN_RECV_ANY, buf, 8, 0, 0);
    HARNESS_CHECK(r, harness_group_open(r, "silent", all, 3, &g) == COLLRUN_OK);
    if (r->rank < 2)
        HARNESS_CHECK(r, harness_exec(g, &calls[r->rank], 1) == COLLRUN_OK);
    if (r->rank != 1)
        HARNESS_UNTIL(r, harness_is_gone(r, 1));
    if (r->rank == 2) {
        HARNESS_UNTIL(r, harness_inside_ms(r, 0) >= 20 || harness_is_gone(r, 0));
        HARNESS_CHECK(r, harness_exec(g, &calls[2], 1) == COLLRUN_OK);
    }
    if (r->rank == 0)
        HARNESS_CHECK(r, harness_exec(g, &any, 1) == COLLRUN_OK);
    harness_group_close(g);
    return 0;
}

static void one_source_has_never_sent(void **state)
{
    struct harness_options options = options_for(state, 3);
    options.no_group = true;
    assert_int_equal(harness_run(&options, left_without_a_message), 0);
}

/* In the middle of a long message, on both ends of it. */
static int killed_midway(struct harness_rank *r)
{
    const bool sender_dies = *(const bool *)r->arg;
    const size_t bytes = 512u << 20;
    const bool sends = (r->rank == 1) == sender_dies;
    if (r->rank == 2) {
        HARNESS_UNTIL(r, harness_inside_ms(r, 0) >= 20 && harness_inside_ms(r, 1) >= 20);
        harness_kill(r, 1);
        return 0;
    }
    char *buf = calloc(1, bytes);
    HARNESS_CHECK(r, buf);
    struct collrun_call call =
        harness_message(sends ? COLLRUN_SEND : COLLRUN_RECV, buf, bytes, 1 - r->rank, 0);
    HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_ERR_PEER_FAILED);
    free(buf);
    return 0;
}

static void a_death_in_the_middle_of_a_message(void **state)
{
    p2p_skip_ends(state);
    if (suite_of(state)->placement == P2P_ONE_HOST)
        skip(); /* as above */
    static const bool may_die[3] = {false, true, false};
    for (unsigned sender = 0; sender < 2; sender++) {
        bool arg = sender;
        struct harness_options options = options_for(state, 3);
        options.may_die = may_die;
        options.arg = &arg;
        assert_int_equal(harness_run(&options, killed_midway), 0);
    }
}

/* ---- disagreement ---- */

/* The two ends differ in count or type; small and large; one of them late. */
static int disagree(struct harness_rank *r)
{
    const unsigned which = *(const unsigned *)r->arg;
    const size_t bytes = which & 1 ? LARGE : 64;
    char *buf = calloc(2, LARGE);
    HARNESS_CHECK(r, buf);
    struct collrun_call call =
        harness_message(r->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV, buf, bytes, 1 - r->rank, 5);
    if (r->rank == 1 && which & 2)
        call.dtype = COLLRUN_INT8;
    else if (r->rank == 1)
        call.count = which & 8 ? LARGE - bytes : bytes + 1; /* the other protocol, or the same */
    if (which & 4)
        harness_lag_us(r->rank == (which >> 4) ? 8000 : 0);
    const uint64_t start = harness_now_ns();
    const int status = harness_exec(r->group, &call, 1);
    const uint64_t waited = harness_now_ns() - start;
    free(buf);
    char more = 0;
    if (r->rank == 0 && bytes == 64) /* gone, most often; its next calls say it */
        HARNESS_UNTIL(r,
                      status != COLLRUN_OK || send_to(r, &more, 1, 1, 9) == COLLRUN_ERR_MISMATCH);
    else
        HARNESS_CHECK(r, status == COLLRUN_ERR_MISMATCH);
    HARNESS_CHECK(r, strstr(harness_error(), "send(") && strstr(harness_error(), "recv("));
    HARNESS_CHECK(r, strstr(harness_error(), "rank 0 calls send(64 x") ||
                         strstr(harness_error(), "rank 0 calls send(3145728 x"));
    HARNESS_CHECK(r, waited < HARNESS_AT_ONCE_NS);
    HARNESS_CHECK(r, send_to(r, &more, 1, 1 - r->rank, 9) == COLLRUN_ERR_MISMATCH);
    return 0;
}

static void both_ends_get_a_mismatch(void **state)
{
    for (unsigned which = 0; which < 32; which += which < 12 ? 1 : 4) {
        struct harness_options options = options_for(state, 2);
        options.arg = &which;
        if (which != 9 && which != 13) /* LARGE against nothing would be count 0: also fine */
            assert_int_equal(harness_run(&options, disagree), 0);
    }
}

/* An eager send has returned before the mismatch is found: the next call of the sender, which may
 * be a collective, reports it. */
static int disagree_late(struct harness_rank *r)
{
    char buf[64] = {0};
    const bool collective = *(const bool *)r->arg;
    struct collrun_call barrier = COLLRUN_CALL(COLLRUN_BARRIER);
    if (r->rank == 0) {
        HARNESS_CHECK(r, send_to(r, buf, 10, 1, 0) == COLLRUN_OK);
        harness_sync(r);
        harness_sync(r);
        if (collective)
            HARNESS_CHECK(r, harness_exec(r->group, &barrier, 1) == COLLRUN_ERR_MISMATCH);
        else
            HARNESS_UNTIL(r, send_to(r, buf, 10, 1, 1) == COLLRUN_ERR_MISMATCH);
        HARNESS_CHECK(r, strstr(harness_error(), "11 x uint8") &&
                             strstr(harness_error(), "10 x uint8"));
        return 0;
    }
    harness_sync(r);
    HARNESS_CHECK(r, recv_from(r, buf, 11, 0, 0) == COLLRUN_ERR_MISMATCH);
    harness_sync(r);
    HARNESS_CHECK(r,
                  strstr(harness_error(), "11 x uint8") && strstr(harness_error(), "10 x uint8"));
    return 0;
}

static void a_late_mismatch_is_reported_later(void **state)
{
    for (unsigned collective = 0; collective < 2; collective++) {
        bool arg = collective;
        struct harness_options options = options_for(state, 2);
        options.arg = &arg;
        assert_int_equal(harness_run(&options, disagree_late), 0);
    }
}

/* Blocked, but not mistaken: the matching message comes later, after others of other shapes. */
static int slow_but_right(struct harness_rank *r)
{
    char buf[256];
    for (unsigned i = 0; i < 6; i++) {
        if (r->rank == 0) {
            HARNESS_UNTIL(r, i % 2 == 0 || harness_inside_ms(r, 1) >= 130);
            fill(buf, 20 + i, i);
            HARNESS_CHECK(r, send_to(r, buf, 20 + i, 1, 0) == COLLRUN_OK);
            HARNESS_CHECK(r, send_to(r, buf, 20, 1, 1) == COLLRUN_OK);
        } else {
            HARNESS_CHECK(r, recv_from(r, buf, 20 + i, 0, 0) == COLLRUN_OK);
            HARNESS_CHECK(r, holds(buf, 20 + i, i));
            harness_lag_us(i % 3 ? 0 : 130000);
            HARNESS_CHECK(r, recv_from(r, buf, 20, 0, 1) == COLLRUN_OK);
        }
    }
    return 0;
}

static void waiting_long_is_no_mismatch(void **state)
{
    const struct harness_options options = options_for(state, 2);
    assert_int_equal(harness_run(&options, slow_but_right), 0);
}

int p2p_sources_run(const struct p2p_suite *suite)
{
    void *const state = (void *)(uintptr_t)suite;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(receives_from_any_source, state),
        cmocka_unit_test_prestate(receives_from_any_source_that_has_left, state),
        cmocka_unit_test_prestate(many_from_one_in_one_call, state),
        cmocka_unit_test_prestate(from_one_source_and_from_any_in_turn, state),
        cmocka_unit_test_prestate(one_source_is_gone, state),
        cmocka_unit_test_prestate(one_source_has_never_sent, state),
        cmocka_unit_test_prestate(a_sleeping_receiver_wakes_up, state),
        cmocka_unit_test_prestate(a_death_in_the_middle_of_a_message, state),
        cmocka_unit_test_prestate(both_ends_get_a_mismatch, state),
        cmocka_unit_test_prestate(a_late_mismatch_is_reported_later, state),
        cmocka_unit_test_prestate(waiting_long_is_no_mismatch, state),
    };
    return cmocka_run_group_tests_name(suite->backend, tests, NULL, NULL);
}
