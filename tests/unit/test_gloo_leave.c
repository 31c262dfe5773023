/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that leave a group of the Gloo backend one after the other: those that stay get all that
 * is theirs, and are told that the others have left, not that they died.
 */
#include "gloo_messages.h"
#include "progress/p2p.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

enum { LONG = EAGER_BYTES + 1000, PACKET_BYTES = 100, PACKET = 168 };

/* What the ranks of a test tell each other; zero at its start. */
struct board {
    _Atomic uint64_t mute_until_ns, deaf_until_ns; /* Gloo's threads neither send, nor read */
    _Atomic uint32_t slow_ms;                      /* the same, after each packet that they read */
    _Atomic uint32_t report_ms; /* from reading a packet to what they do with it */
    _Atomic uint64_t ns;
    atomic_bool sent;
};

static const uint32_t members[4] = {0, 1, 2, 3};

static struct harness_options without_group(uint32_t nranks)
{
    struct harness_options options = options_for(nranks);
    options.limit_s = 15;
    options.no_group = true;
    return options;
}

static int open_over(struct harness_rank *r, const char *name, uint32_t n,
                     struct harness_group **out)
{
    return harness_group_open(r, name, members, n, out);
}

/* Runs one operation of the calling rank. */
static int exec_one(struct harness_group *g, enum collrun_kind kind, void *buf, size_t bytes,
                    uint32_t peer, uint32_t tag)
{
    const struct collrun_call call = harness_message(kind, buf, bytes, peer, tag);
    return harness_exec(g, &call, 1);
}

/* Rank `to` waits for any source, since all that leave have left; then the last rank sends. */
static int late_message(struct harness_rank *r, struct harness_group *g, uint32_t from, uint32_t to)
{
    char byte = 0;
    if (r->rank == to)
        return exec_one(g, COLLRUN_RECV_ANY, &byte, 1, 0, 0);
    HARNESS_UNTIL(r, harness_inside_ms(r, to) >= 50 || harness_is_gone(r, to));
    return r->rank == from ? exec_one(g, COLLRUN_SEND, &byte, 1, to, 0) : COLLRUN_OK;
}

/* ---- those that stay know who has left ---- */

/* Rank 1 waits for the long message, has it, and leaves. */
static int receiver_leaves(struct harness_rank *r)
{
    static char data[LONG];
    struct harness_group *g = NULL;
    HARNESS_CHECK(r, open_over(r, "receiver", 3, &g) == COLLRUN_OK);
    if (r->rank == 1)
        HARNESS_CHECK(r, exec_one(g, COLLRUN_RECV, data, LONG, 0, 1) == COLLRUN_OK);
    if (r->rank == 0) {
        HARNESS_UNTIL(r, harness_inside_ms(r, 1) >= 30);
        HARNESS_CHECK(r, exec_one(g, COLLRUN_SEND, data, LONG, 1, 1) == COLLRUN_OK);
    }
    if (r->rank != 1) {
        HARNESS_UNTIL(r, harness_is_gone(r, 1));
        HARNESS_CHECK(r, late_message(r, g, 2, 0) == COLLRUN_OK);
    }
    harness_group_close(g);
    return 0;
}

static void a_rank_leaves_after_a_long_message(void **state)
{
    (void)state;
    struct harness_options options = without_group(3);
    assert_int_equal(harness_run(&options, receiver_leaves), 0);
}

/* Rank 0 leaves, then rank 1. */
static int two_leave(struct harness_rank *r)
{
    struct harness_group *g = NULL;
    HARNESS_CHECK(r, open_over(r, "two", 4, &g) == COLLRUN_OK);
    HARNESS_UNTIL(r, r->rank < 1 || harness_is_gone(r, 0));
    harness_lag_us(r->rank == 1 ? 100000 : 0); /* until Gloo knows it */
    HARNESS_UNTIL(r, r->rank < 2 || harness_is_gone(r, 1));
    if (r->rank >= 2)
        HARNESS_CHECK(r, late_message(r, g, 2, 3) == COLLRUN_OK);
    harness_group_close(g);
    return 0;
}

static void a_rank_leaves_after_another(void **state)
{
    (void)state;
    struct harness_options options = without_group(4);
    assert_int_equal(harness_run(&options, two_leave), 0);
}

/* Groups of the same members had no messages. Rank 1 leaves the last one. */
static int many_groups(struct harness_rank *r)
{
    enum { GROUPS = 64 };
    struct harness_group *g = NULL;
    for (unsigned i = 0; i < GROUPS; i++) {
        HARNESS_CHECK(r, open_over(r, "many", 3, &g) == COLLRUN_OK);
        harness_group_close(g);
    }
    HARNESS_CHECK(r, open_over(r, "many", 3, &g) == COLLRUN_OK);
    if (r->rank != 1) {
        HARNESS_UNTIL(r, harness_is_gone(r, 1));
        HARNESS_CHECK(r, late_message(r, g, 2, 0) == COLLRUN_OK);
    }
    harness_group_close(g);
    return 0;
}

static void a_rank_leaves_after_many_groups_without_messages(void **state)
{
    (void)state;
    struct harness_options options = without_group(3);
    assert_int_equal(harness_run(&options, many_groups), 0);
}

/* Rank 1 has sent its part of a collective, and leaves; then rank 2 dies. */
static int leave_before_a_death(struct harness_rank *r)
{
    struct harness_group *g = NULL;
    uint8_t in = 1, out[3];
    struct collrun_call call = COLLRUN_CALL(COLLRUN_GATHER);
    call.send = &in;
    call.recv = out;
    call.count = 1;
    call.dtype = COLLRUN_UINT8;
    HARNESS_CHECK(r, open_over(r, "death", 3, &g) == COLLRUN_OK);
    if (r->rank == 2) {
        HARNESS_UNTIL(r, harness_is_gone(r, 1) && harness_inside_ms(r, 0) >= 50);
        harness_kill(r, 2);
    }
    const int status = harness_exec(g, &call, 1);
    HARNESS_CHECK(r, status == (r->rank == 1 ? COLLRUN_OK : COLLRUN_ERR_PEER_FAILED));
    HARNESS_CHECK(r, r->rank == 1 ||
                         strstr(harness_error(), "rank 2 (world rank 2) closed its connection"));
    harness_group_close(g);
    return 0;
}

static void the_rank_that_dies_is_named_not_one_that_has_left(void **state)
{
    (void)state;
    static const bool may_die[3] = {false, false, true};
    struct harness_options options = without_group(3);
    options.may_die = may_die;
    assert_int_equal(harness_run(&options, leave_before_a_death), 0);
}

/* ---- the network ---- */

static const struct board *_Atomic network; /* of this process; NULL: it is as it should be */

static bool is_before(const _Atomic uint64_t *ns)
{
    return harness_now_ns() < atomic_load(ns);
}

/* Gloo's. */
__attribute__((visibility("default"))) ssize_t writev(int fd, const struct iovec *iov, int n)
{
    if (network && is_before(&network->mute_until_ns)) {
        errno = EAGAIN;
        return -1;
    }
    return syscall(SYS_writev, fd, iov, n);
}

/* Gloo's. */
__attribute__((visibility("default"))) ssize_t recv(int fd, void *buf, size_t len, int flags)
{
    static _Atomic uint64_t slow_until_ns;
    if (network && (is_before(&network->deaf_until_ns) || is_before(&slow_until_ns))) {
        errno = EAGAIN;
        return -1;
    }
    const ssize_t n = syscall(SYS_recvfrom, fd, buf, len, flags, NULL, NULL);
    if (network && n > 0 && len >= PACKET) {
        harness_lag_us(atomic_load(&network->report_ms) * 1000);
        atomic_store(&slow_until_ns, harness_now_ns() + atomic_load(&network->slow_ms) * MS);
    }
    return n;
}

/* ---- what has been sent arrives ---- */

/* Rank 0 sends all that it may. Gloo of rank 1 reads it slowly, or that of rank 0 begins late. */
static int flood(struct harness_rank *r, struct harness_group *g, bool late)
{
    enum { N = 16 };
    struct board *board = r->scratch;
    static char data[EAGER_BYTES];
    network = board;
    atomic_store(&board->slow_ms, late ? 0 : 5);
    if (r->rank == 0 && late)
        atomic_store(&board->mute_until_ns, harness_now_ns() + 300ull * MS);
    for (unsigned i = 0; i < N; i++) {
        const enum collrun_kind kind = r->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV;
        fill(data, sizeof data, r->rank == 0 ? i : 99);
        HARNESS_CHECK(r, exec_one(g, kind, data, sizeof data, 1 - r->rank, 0) == COLLRUN_OK);
        HARNESS_CHECK(r, holds(data, sizeof data, i));
    }
    return 0;
}

/* Rank 2 has left before. */
static int flood_after_another(struct harness_rank *r)
{
    struct harness_group *g = NULL;
    HARNESS_CHECK(r, open_over(r, "flood", 3, &g) == COLLRUN_OK);
    if (r->rank < 2) {
        HARNESS_UNTIL(r, harness_is_gone(r, 2));
        harness_lag_us(100000); /* until Gloo knows it */
        HARNESS_CHECK(r, flood(r, g, *(const bool *)r->arg) == 0);
    }
    harness_group_close(g);
    return 0;
}

static void all_arrives_from_a_rank_that_leaves_after_another(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        bool late = i == 1;
        struct harness_options options = without_group(3);
        options.arg = &late;
        assert_int_equal(harness_run(&options, flood_after_another), 0);
    }
}

/* Rank 0 closes the group, and the next one cannot be opened. */
static int flood_before_a_group(struct harness_rank *r)
{
    struct harness_group *g = NULL, *next = NULL;
    HARNESS_CHECK(r, open_over(r, "before", 2, &g) == COLLRUN_OK);
    if (r->rank == 1)
        atomic_store(&((struct board *)r->scratch)->deaf_until_ns, harness_now_ns() + 600ull * MS);
    harness_sync(r);
    HARNESS_CHECK(r, flood(r, g, false) == 0);
    harness_group_close(g);
    if (r->rank == 0)
        HARNESS_CHECK(r, open_over(r, "never", 2, &next) == COLLRUN_ERR_TIMEOUT);
    return 0;
}

static void all_arrives_if_the_next_group_fails(void **state)
{
    (void)state;
    struct harness_options options = without_group(2);
    options.rendezvous_ns = 300ull * MS;
    assert_int_equal(harness_run(&options, flood_before_a_group), 0);
}

/* Rank 0 finds that the ranks disagree, and leaves at once. The network is slow. */
static int disagree_and_leave(struct harness_rank *r)
{
    struct board *board = r->scratch;
    struct harness_group *g = NULL;
    char data[PACKET_BYTES] = {0};
    HARNESS_CHECK(r, open_over(r, "disagree", 2, &g) == COLLRUN_OK);
    if (r->rank == 1) {
        HARNESS_CHECK(r, exec_one(g, COLLRUN_SEND, data, 10, 0, 0) == COLLRUN_OK);
        HARNESS_CHECK(r, exec_one(g, COLLRUN_RECV, data, 10, 0, 1) == COLLRUN_ERR_MISMATCH);
    } else {
        HARNESS_UNTIL(r, harness_inside_ms(r, 1) >= 20);
        network = board;
        atomic_store(&board->mute_until_ns, harness_now_ns() + 50ull * MS);
        HARNESS_CHECK(r, exec_one(g, COLLRUN_RECV, data, 11, 1, 0) == COLLRUN_ERR_MISMATCH);
    }
    harness_group_close(g);
    return 0;
}

static void a_mismatch_is_told_by_a_rank_that_ends(void **state)
{
    (void)state;
    struct harness_options options = without_group(2);
    assert_int_equal(harness_run(&options, disagree_and_leave), 0);
}

/* ---- how long it takes ---- */

/* Rank 0 leaves while a message that it does not want is on its way to it. */
static int leave_early(struct harness_rank *r)
{
    struct board *board = r->scratch;
    struct harness_group *g = NULL;
    char data[PACKET_BYTES] = {0};
    HARNESS_CHECK(r, open_over(r, "early", 2, &g) == COLLRUN_OK);
    network = r->rank == 0 ? board : NULL;
    const uint64_t begin = harness_now_ns();
    if (r->rank == 0)
        atomic_store(&board->deaf_until_ns, begin + 300ull * MS);
    harness_sync(r);
    if (r->rank == 1) {
        HARNESS_CHECK(r, exec_one(g, COLLRUN_SEND, data, sizeof data, 0, 0) == COLLRUN_OK);
        atomic_store(&board->sent, true);
        HARNESS_UNTIL(r, harness_is_gone(r, 0));
        atomic_store(&board->ns, harness_now_ns() - begin);
    } else {
        HARNESS_UNTIL(r, atomic_load(&board->sent));
    }
    harness_group_close(g);
    return 0;
}

/* Rank 1 fails alone, and its connections end; then rank 0 leaves. */
static int leave_after_a_failure(struct harness_rank *r)
{
    struct board *board = r->scratch;
    struct harness_group *g = NULL;
    char byte = 0;
    HARNESS_CHECK(r, open_over(r, "failure", 2, &g) == COLLRUN_OK);
    if (r->rank == 1) {
        harness_abort_after(r, 10);
        HARNESS_CHECK(r, exec_one(g, COLLRUN_RECV, &byte, 1, 0, 0) == COLLRUN_ERR_ABORTED);
    } else {
        HARNESS_UNTIL(r, harness_is_gone(r, 1));
        harness_lag_us(100000); /* until Gloo knows it */
    }
    const uint64_t begin = harness_now_ns();
    harness_group_close(g);
    if (r->rank == 0)
        atomic_store(&board->ns, harness_now_ns() - begin);
    return 0;
}

static uint64_t fastest(uint32_t nranks, int (*fn)(struct harness_rank *r))
{
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < 3; i++) {
        struct harness_options options = without_group(nranks);
        assert_int_equal(harness_run(&options, fn), 0);
        const struct board *board = harness_scratch();
        least = board->ns < least ? board->ns : least;
    }
    print_message("# %.0f ms\n", (double)least / 1e6);
    return least;
}

static void a_message_on_its_way_does_not_hold_up_the_end(void **state)
{
    (void)state;
    assert_true(fastest(2, leave_early) < 900ull * MS);
}

static void a_failed_peer_does_not_hold_up_the_end(void **state)
{
    (void)state;
    assert_true(fastest(2, leave_after_a_failure) < 900ull * MS);
}

/* Gloo has read a packet, and reports it late: its thread had no core. Rank 1 has left. */
static int late_report(struct harness_rank *r)
{
    struct board *board = r->scratch;
    struct harness_group *g = NULL;
    char data[PACKET_BYTES] = {0};
    HARNESS_CHECK(r, open_over(r, "report", 3, &g) == COLLRUN_OK);
    network = r->rank == 0 ? board : NULL;
    atomic_store(&board->report_ms, 2000);
    if (r->rank != 1) {
        HARNESS_UNTIL(r, harness_is_gone(r, 1));
        HARNESS_UNTIL(r, r->rank == 0 || harness_inside_ms(r, 0) >= 50);
        const enum collrun_kind kind = r->rank == 0 ? COLLRUN_RECV : COLLRUN_SEND;
        HARNESS_CHECK(r, exec_one(g, kind, data, sizeof data, 2 - r->rank, 0) == COLLRUN_OK);
    }
    harness_group_close(g);
    return 0;
}

static void a_packet_that_is_reported_late_is_no_failure(void **state)
{
    (void)state;
    struct harness_options options = without_group(3);
    assert_int_equal(harness_run(&options, late_report), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_leaves_after_a_long_message),
        cmocka_unit_test(a_rank_leaves_after_another),
        cmocka_unit_test(a_rank_leaves_after_many_groups_without_messages),
        cmocka_unit_test(the_rank_that_dies_is_named_not_one_that_has_left),
        cmocka_unit_test(all_arrives_from_a_rank_that_leaves_after_another),
        cmocka_unit_test(all_arrives_if_the_next_group_fails),
        cmocka_unit_test(a_mismatch_is_told_by_a_rank_that_ends),
        cmocka_unit_test(a_message_on_its_way_does_not_hold_up_the_end),
        cmocka_unit_test(a_failed_peer_does_not_hold_up_the_end),
        cmocka_unit_test(a_packet_that_is_reported_late_is_no_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
