/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between two ranks on the Gloo backend: order and tags, several calls that progress
 * together, senders that are early and receivers that are late (to the point that the sender has
 * left), receives from anyone, and messages whose two ends disagree.
 */
#include "backend_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS 1000000u
#define LARGE (3u << 20) /* bytes: several pieces */

static struct rig_options options_for(uint32_t nranks)
{
    return (struct rig_options){.path = rig_backend_path("gloo"), .nranks = nranks};
}

static int send_to(struct rig_rank *r, void *buf, size_t bytes, uint32_t peer, uint32_t tag)
{
    const struct collrun_call call = rig_message(COLLRUN_SEND, buf, bytes, peer, tag);
    return rig_exec(r->group, &call, 1);
}

static int recv_from(struct rig_rank *r, void *buf, size_t bytes, uint32_t peer, uint32_t tag)
{
    const struct collrun_call call = rig_message(COLLRUN_RECV, buf, bytes, peer, tag);
    return rig_exec(r->group, &call, 1);
}

static void fill(char *buf, size_t bytes, unsigned salt)
{
    for (size_t i = 0; i < bytes; i++)
        buf[i] = (char)(i * 7 + salt);
}

static bool holds(const char *buf, size_t bytes, unsigned salt)
{
    for (size_t i = 0; i < bytes; i++)
        if (buf[i] != (char)(i * 7 + salt))
            return false;
    return true;
}

/* ---- order ---- */

/* All pairs, all sizes, one after the other. */
static int every_pair(struct rig_rank *r)
{
    static const size_t sizes[] = {0, 1, 7, 8192, 8193, 1u << 20, (1u << 20) + 1, LARGE};
    char *buf = malloc(LARGE);
    RIG_CHECK(r, buf);
    for (uint32_t from = 0; from < r->nranks; from++)
        for (uint32_t to = 0; to < r->nranks; to++)
            for (unsigned s = 0; s < 8 && from != to; s++) {
                fill(buf, sizes[s], r->rank == from ? s + from : 99);
                if (r->rank == from)
                    RIG_CHECK(r, send_to(r, buf, sizes[s], to, s) == COLLRUN_OK);
                if (r->rank == to)
                    RIG_CHECK(r, recv_from(r, buf, sizes[s], from, s) == COLLRUN_OK);
                if (r->rank == to)
                    RIG_CHECK(r, holds(buf, sizes[s], s + from));
            }
    free(buf);
    return 0;
}

static void every_pair_and_size(void **state)
{
    (void)state;
    const struct rig_options options = options_for(3);
    assert_int_equal(rig_run(&options, every_pair), 0);
}

/* Early messages of three tags are taken in another order of tags; each tag stays in order. */
static int tags(struct rig_rank *r)
{
    char buf[100];
    if (r->rank == 0) {
        for (unsigned i = 0; i < 15; i++) {
            fill(buf, 50, i);
            RIG_CHECK(r, send_to(r, buf, 50, 1, i % 3) == COLLRUN_OK);
        }
        return 0;
    }
    for (unsigned tag = 3; tag-- > 0;)
        for (unsigned i = tag; i < 15; i += 3) {
            RIG_CHECK(r, recv_from(r, buf, 50, 0, tag) == COLLRUN_OK);
            RIG_CHECK(r, holds(buf, 50, i));
        }
    return 0;
}

static void tags_overtake_each_other(void **state)
{
    (void)state;
    const struct rig_options options = options_for(2);
    assert_int_equal(rig_run(&options, tags), 0);
}

/* One tag, sizes that change with every message: a later one of another shape never comes first. */
static int shapes(struct rig_rank *r)
{
    static char buf[20000];
    _Atomic unsigned *sent = r->scratch;
    for (unsigned i = 0; i < 60; i++) {
        const size_t bytes = i % 5 == 4 ? 20000 : 10 + i % 3;
        fill(buf, bytes, r->rank == 0 ? i : 77);
        if (r->rank == 0) {
            RIG_CHECK(r, send_to(r, buf, bytes, 1, 0) == COLLRUN_OK);
            ++*sent;
            continue;
        }
        if (i == 20)
            RIG_UNTIL(r, *sent == 24); /* the next one is large, and is waited for */
        RIG_CHECK(r, recv_from(r, buf, bytes, 0, 0) == COLLRUN_OK);
        RIG_CHECK(r, holds(buf, bytes, i));
    }
    return 0;
}

static void shapes_of_one_tag_stay_in_order(void **state)
{
    (void)state;
    const struct rig_options options = options_for(2);
    assert_int_equal(rig_run(&options, shapes), 0);
}

/* ---- several calls at once ---- */

/* Everyone sends to the right and receives from the left, head to head for two ranks. */
static int shift(struct rig_rank *r)
{
    static const size_t sizes[] = {0, 8, 8192, 8193, LARGE};
    const uint32_t right = (r->rank + 1) % r->nranks;
    const uint32_t left = (r->rank + r->nranks - 1) % r->nranks;
    char *out = malloc(LARGE);
    char *in = malloc(LARGE);
    RIG_CHECK(r, out && in);
    for (unsigned s = 0; s < 5; s++) {
        fill(out, sizes[s], r->rank);
        fill(in, sizes[s], 99);
        const struct collrun_call calls[2] = {rig_message(COLLRUN_SEND, out, sizes[s], right, 1),
                                              rig_message(COLLRUN_RECV, in, sizes[s], left, 1)};
        RIG_CHECK(r, rig_exec(r->group, calls, 2) == COLLRUN_OK);
        RIG_CHECK(r, holds(in, sizes[s], left));
    }
    free(out);
    free(in);
    return 0;
}

static void both_ways_at_once(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n += 2) { /* alone, it sends to itself */
        const struct rig_options options = options_for(n);
        assert_int_equal(rig_run(&options, shift), 0);
    }
    const struct rig_options options = options_for(2);
    assert_int_equal(rig_run(&options, shift), 0);
}

/* The first call of the batch waits for a rank that waits for the last one. One tag, all shapes
 * different, large and small, both ways. */
static int entangled(struct rig_rank *r)
{
    static const size_t sizes[] = {100, 30000, 5, 2u << 20, 0, 9000};
    enum { N = sizeof(sizes) / sizeof(sizes[0]) };
    char *out[N];
    char *in[N];
    struct collrun_call calls[2 * N];
    const uint32_t peer = 1 - r->rank;
    for (unsigned i = 0; i < N; i++) {
        out[i] = malloc(sizes[i] + 1);
        in[i] = malloc(sizes[i] + 1);
        fill(out[i], sizes[i], i + r->rank);
        /* rank 0 receives first, rank 1 sends first */
        calls[2 * i + r->rank] = rig_message(COLLRUN_RECV, in[i], sizes[i], peer, 4);
        calls[2 * i + 1 - r->rank] = rig_message(COLLRUN_SEND, out[i], sizes[i], peer, 4);
    }
    RIG_CHECK(r, rig_exec(r->group, calls, 2 * N) == COLLRUN_OK);
    for (unsigned i = 0; i < N; i++) {
        RIG_CHECK(r, holds(in[i], sizes[i], i + peer));
        free(out[i]);
        free(in[i]);
    }
    return 0;
}

static void batches_progress_together(void **state)
{
    (void)state;
    const struct rig_options options = options_for(2);
    assert_int_equal(rig_run(&options, entangled), 0);
}

/* Rank 0's first receive is served only after its second call has gone through rank 1 to rank 2. */
static int relay(struct rig_rank *r)
{
    char *a = calloc(1, LARGE);
    char *b = calloc(1, LARGE);
    RIG_CHECK(r, a && b);
    if (r->rank == 0) {
        const struct collrun_call calls[2] = {rig_message(COLLRUN_RECV, a, LARGE, 2, 0),
                                              rig_message(COLLRUN_SEND, b, LARGE, 1, 0)};
        RIG_CHECK(r, rig_exec(r->group, calls, 2) == COLLRUN_OK);
    } else {
        RIG_CHECK(r, recv_from(r, a, LARGE, r->rank - 1, 0) == COLLRUN_OK);
        RIG_CHECK(r, send_to(r, a, LARGE, (r->rank + 1) % 3, 0) == COLLRUN_OK);
    }
    free(a);
    free(b);
    return 0;
}

static void no_call_waits_for_an_earlier_one(void **state)
{
    (void)state;
    const struct rig_options options = options_for(3);
    assert_int_equal(rig_run(&options, relay), 0);
}

/* ---- early and late ---- */

/* Both send first, and at first wait 20 ms for each other. The pair learns not to. */
static int cross(struct rig_rank *r)
{
    char buf[1000];
    unsigned quick = 0;
    for (unsigned i = 0; i < 200; i++) {
        const uint64_t start = rig_now_ns();
        fill(buf, sizeof(buf), i + r->rank);
        RIG_CHECK(r, send_to(r, buf, sizeof(buf), 1 - r->rank, 0) == COLLRUN_OK);
        RIG_CHECK(r, recv_from(r, buf, sizeof(buf), 1 - r->rank, 0) == COLLRUN_OK);
        RIG_CHECK(r, holds(buf, sizeof(buf), i + 1 - r->rank));
        quick += i >= 150 && rig_now_ns() - start < 15 * MS;
    }
    RIG_CHECK(r, quick >= 10); /* of 50: the machine may be busy */
    return 0;
}

static void small_cross_sends_do_not_block(void **state)
{
    (void)state;
    const struct rig_options options = options_for(2);
    assert_int_equal(rig_run(&options, cross), 0);
}

/* Rank 0 sends, closes its group and ends; rank 1 receives later, in another order of tags. */
static int leave_early(struct rig_rank *r)
{
    const uint32_t both[2] = {0, 1};
    char buf[8192];
    struct rig_group *g = NULL;
    RIG_CHECK(r, rig_group_open(r, "brief", both, 2, &g) == COLLRUN_OK);
    if (r->rank == 0) {
        for (unsigned i = 0; i < 12; i++) {
            fill(buf, 100 * i, i);
            const struct collrun_call call = rig_message(COLLRUN_SEND, buf, 100 * i, 1, i % 4);
            RIG_CHECK(r, rig_exec(g, &call, 1) == COLLRUN_OK);
        }
        const uint64_t start = rig_now_ns();
        rig_group_close(g);
        RIG_CHECK(r, rig_now_ns() - start < RIG_AT_ONCE_NS);
        return 0;
    }
    RIG_UNTIL(r, rig_is_gone(r, 0));
    for (unsigned tag = 4; tag-- > 0;)
        for (unsigned i = tag; i < 12; i += 4) {
            const struct collrun_call call = rig_message(COLLRUN_RECV, buf, 100 * i, 0, tag);
            RIG_CHECK(r, rig_exec(g, &call, 1) == COLLRUN_OK);
            RIG_CHECK(r, holds(buf, 100 * i, i));
        }
    const struct collrun_call more = rig_message(COLLRUN_RECV, buf, 10, 0, 0);
    RIG_CHECK(r, rig_exec(g, &more, 1) == COLLRUN_ERR_PEER_FAILED);
    rig_group_close(g);
    return 0;
}

static void what_was_sent_outlives_the_sender(void **state)
{
    (void)state;
    struct rig_options options = options_for(2);
    options.no_group = true;
    assert_int_equal(rig_run(&options, leave_early), 0);
}

/* As above, but some messages were taken before the sender left: none comes twice. */
static int leave_halfway(struct rig_rank *r)
{
    const uint32_t both[2] = {0, 1};
    char buf[64];
    _Atomic unsigned *sent = r->scratch;
    struct rig_group *g = NULL;
    RIG_CHECK(r, rig_group_open(r, "half", both, 2, &g) == COLLRUN_OK);
    for (unsigned i = 0; i < 40; i++) {
        fill(buf, sizeof(buf), r->rank == 0 ? i : 99);
        const struct collrun_call call = rig_message(r->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV,
                                                     buf, sizeof(buf), 1 - r->rank, 0);
        if (r->rank == 1 && i == 0)
            RIG_UNTIL(r, *sent >= 10);
        if (r->rank == 1 && i == 20)
            RIG_UNTIL(r, rig_is_gone(r, 0));
        RIG_CHECK(r, rig_exec(g, &call, 1) == COLLRUN_OK);
        RIG_CHECK(r, holds(buf, sizeof(buf), i));
        *sent += r->rank == 0;
    }
    if (r->rank == 1) {
        const struct collrun_call more = rig_message(COLLRUN_RECV, buf, sizeof(buf), 0, 0);
        RIG_CHECK(r, rig_exec(g, &more, 1) == COLLRUN_ERR_PEER_FAILED);
    }
    rig_group_close(g);
    return 0;
}

static void nothing_comes_twice(void **state)
{
    (void)state;
    struct rig_options options = options_for(2);
    options.no_group = true;
    assert_int_equal(rig_run(&options, leave_halfway), 0);
}

/* A large message to a rank that never receives ends by its time-out. */
static int unwanted(struct rig_rank *r)
{
    char *buf = calloc(1, LARGE);
    RIG_CHECK(r, buf);
    struct collrun_call call = rig_message(COLLRUN_SEND, buf, LARGE, 1, 0);
    call.timeout_ns = 200 * MS;
    const uint64_t start = rig_now_ns();
    if (r->rank == 0) {
        RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_ERR_TIMEOUT);
        RIG_CHECK(r, strstr(rig_error(), "rank 1 (world rank 1)"));
        const uint64_t waited = rig_now_ns() - start;
        RIG_CHECK(r, waited > 190 * MS && waited < RIG_AT_ONCE_NS);
    }
    rig_sync(r);
    free(buf);
    return 0;
}

static void a_large_send_times_out(void **state)
{
    (void)state;
    const struct rig_options options = options_for(2);
    assert_int_equal(rig_run(&options, unwanted), 0);
}

/* ---- from anyone ---- */

/* Workers send a number, then as much data as it says, on one tag; the master takes the number from
 * anyone and the data from the sender. */
static int anyone(struct rig_rank *r)
{
    enum { ROUNDS = 20 };
    char *data = malloc(LARGE);
    RIG_CHECK(r, data);
    if (r->rank != 0) {
        for (unsigned i = 0; i < ROUNDS; i++) {
            uint32_t bytes = i % 5 == 0 ? LARGE / 2 : i * 100;
            fill(data, bytes, r->rank + i);
            RIG_CHECK(r, send_to(r, &bytes, sizeof(bytes), 0, 0) == COLLRUN_OK);
            RIG_CHECK(r, send_to(r, data, bytes, 0, 0) == COLLRUN_OK);
        }
        free(data);
        return 0;
    }
    unsigned rounds[8] = {0};
    for (unsigned i = 0; i < ROUNDS * (r->nranks - 1); i++) {
        uint32_t bytes = 0;
        int source = -1;
        struct collrun_call any = rig_message(COLLRUN_RECV_ANY, &bytes, sizeof(bytes), 0, 0);
        any.source = &source;
        RIG_CHECK(r, rig_exec(r->group, &any, 1) == COLLRUN_OK);
        RIG_CHECK(r, source > 0 && source < (int)r->nranks && bytes <= LARGE);
        RIG_CHECK(r, recv_from(r, data, bytes, (uint32_t)source, 0) == COLLRUN_OK);
        RIG_CHECK(r, holds(data, bytes, (unsigned)source + rounds[source]++));
    }
    free(data);
    return 0;
}

static void receives_from_anyone(void **state)
{
    (void)state;
    const struct rig_options options = options_for(4);
    assert_int_equal(rig_run(&options, anyone), 0);
}

/* Large ones from anyone, and small ones from ranks that have left. */
static int anyone_left(struct rig_rank *r)
{
    const uint32_t all[4] = {0, 1, 2, 3};
    char *data = malloc(LARGE);
    struct rig_group *g = NULL;
    RIG_CHECK(r, data && rig_group_open(r, "left", all, 4, &g) == COLLRUN_OK);
    fill(data, LARGE, r->rank);
    if (r->rank != 0) {
        const struct collrun_call calls[2] = {rig_message(COLLRUN_SEND, data, 100, 0, 1),
                                              rig_message(COLLRUN_SEND, data, LARGE, 0, 2)};
        RIG_CHECK(r, rig_exec(g, calls, 2) == COLLRUN_OK);
        rig_group_close(g);
        free(data);
        return 0;
    }
    for (uint32_t tag = 2; tag > 0; tag--) {
        unsigned seen = 0;
        for (unsigned i = 0; i < 3; i++) {
            int source = -1;
            const size_t bytes = tag == 2 ? LARGE : 100;
            struct collrun_call any = rig_message(COLLRUN_RECV_ANY, data, bytes, 0, tag);
            any.source = &source;
            RIG_CHECK(r, rig_exec(g, &any, 1) == COLLRUN_OK);
            RIG_CHECK(r, source > 0 && holds(data, bytes, (unsigned)source));
            seen |= 1u << source;
        }
        RIG_CHECK(r, seen == 14);
        RIG_UNTIL(r, rig_is_gone(r, 1) && rig_is_gone(r, 2) && rig_is_gone(r, 3));
    }
    rig_group_close(g);
    free(data);
    return 0;
}

static void receives_from_anyone_who_has_left(void **state)
{
    (void)state;
    struct rig_options options = options_for(4);
    options.no_group = true;
    assert_int_equal(rig_run(&options, anyone_left), 0);
}

/* ---- disagreement ---- */

/* The two ends differ in count or type; small and large; one of them late. */
static int disagree(struct rig_rank *r)
{
    const unsigned which = *(const unsigned *)r->arg;
    const size_t bytes = which & 1 ? LARGE : 64;
    char *buf = calloc(2, LARGE);
    RIG_CHECK(r, buf);
    struct collrun_call call =
        rig_message(r->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV, buf, bytes, 1 - r->rank, 5);
    if (r->rank == 1 && which & 2)
        call.dtype = COLLRUN_INT8;
    else if (r->rank == 1)
        call.count = which & 8 ? LARGE - bytes : bytes + 1; /* the other protocol, or the same */
    if (which & 4)
        rig_lag_us(r->rank == (which >> 4) ? 8000 : 0);
    const uint64_t start = rig_now_ns();
    const int status = rig_exec(r->group, &call, 1);
    const uint64_t waited = rig_now_ns() - start;
    free(buf);
    RIG_CHECK(r, status == COLLRUN_ERR_MISMATCH);
    RIG_CHECK(r, strstr(rig_error(), "send(") && strstr(rig_error(), "recv("));
    RIG_CHECK(r, strstr(rig_error(), r->rank == 0 ? "rank 1 (" : "rank 0 ("));
    RIG_CHECK(r, waited < RIG_AT_ONCE_NS);
    char more = 0;
    RIG_CHECK(r, send_to(r, &more, 1, 1 - r->rank, 9) == COLLRUN_ERR_MISMATCH);
    return 0;
}

static void both_ends_hear_of_a_mismatch(void **state)
{
    (void)state;
    for (unsigned which = 0; which < 32; which += which < 12 ? 1 : 4) {
        struct rig_options options = options_for(2);
        options.arg = &which;
        if (which != 9 && which != 13) /* LARGE against nothing would be count 0: also fine */
            assert_int_equal(rig_run(&options, disagree), 0);
    }
}

/* The sender of a small message is long gone on; its next call tells it. */
static int disagree_late(struct rig_rank *r)
{
    char buf[64] = {0};
    if (r->rank == 0) {
        RIG_CHECK(r, send_to(r, buf, 10, 1, 0) == COLLRUN_OK);
        rig_sync(r);
        rig_sync(r);
        RIG_UNTIL(r, send_to(r, buf, 10, 1, 1) == COLLRUN_ERR_MISMATCH);
        return 0;
    }
    rig_sync(r);
    RIG_CHECK(r, recv_from(r, buf, 11, 0, 0) == COLLRUN_ERR_MISMATCH);
    rig_sync(r);
    RIG_CHECK(r, strstr(rig_error(), "11 x uint8") && strstr(rig_error(), "10 x uint8"));
    return 0;
}

static void a_late_mismatch_is_told_later(void **state)
{
    (void)state;
    const struct rig_options options = options_for(2);
    assert_int_equal(rig_run(&options, disagree_late), 0);
}

/* Blocked, but not mistaken: the matching message comes later, after others of other shapes. */
static int slow_but_right(struct rig_rank *r)
{
    char buf[256];
    for (unsigned i = 0; i < 6; i++) {
        if (r->rank == 0) {
            RIG_UNTIL(r, i % 2 == 0 || rig_inside_ms(r, 1) >= 130);
            fill(buf, 20 + i, i);
            RIG_CHECK(r, send_to(r, buf, 20 + i, 1, 0) == COLLRUN_OK);
            RIG_CHECK(r, send_to(r, buf, 20, 1, 1) == COLLRUN_OK);
        } else {
            RIG_CHECK(r, recv_from(r, buf, 20 + i, 0, 0) == COLLRUN_OK);
            RIG_CHECK(r, holds(buf, 20 + i, i));
            rig_lag_us(i % 3 ? 0 : 130000);
            RIG_CHECK(r, recv_from(r, buf, 20, 0, 1) == COLLRUN_OK);
        }
    }
    return 0;
}

static void waiting_long_is_no_mismatch(void **state)
{
    (void)state;
    const struct rig_options options = options_for(2);
    assert_int_equal(rig_run(&options, slow_but_right), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_and_size),
        cmocka_unit_test(tags_overtake_each_other),
        cmocka_unit_test(shapes_of_one_tag_stay_in_order),
        cmocka_unit_test(both_ways_at_once),
        cmocka_unit_test(batches_progress_together),
        cmocka_unit_test(no_call_waits_for_an_earlier_one),
        cmocka_unit_test(small_cross_sends_do_not_block),
        cmocka_unit_test(what_was_sent_outlives_the_sender),
        cmocka_unit_test(nothing_comes_twice),
        cmocka_unit_test(a_large_send_times_out),
        cmocka_unit_test(receives_from_anyone),
        cmocka_unit_test(receives_from_anyone_who_has_left),
        cmocka_unit_test(both_ends_hear_of_a_mismatch),
        cmocka_unit_test(a_late_mismatch_is_told_later),
        cmocka_unit_test(waiting_long_is_no_mismatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
