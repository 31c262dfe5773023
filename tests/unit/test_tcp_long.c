/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between hosts that leave with their data, of 64 to 512 KiB, and those around them: in
 * time and unexpected, many at once, of several groups and threads over one connection; and what is
 * left of the connection when a group ends or fails in the middle of one.
 */
#include "p2p_suite.h"
#include "progress/p2p.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LONGEST = 524289, NSIZES = 12, WINDOW = 64, NEVER = 99 /* a tag that is not sent */ };

static const size_t sizes[NSIZES] = {65537,  524288, 100,    65536,  524289, 131072,
                                     262143, 0,      100001, 524287, 65600,  400000};

/* Both members learn that the group is open at the other one. */
static int warm_up(struct harness_rank *r, struct harness_group *g)
{
    char in[8], out[8] = {0};
    for (unsigned i = 0; i < 600; i++) { /* credit is returned */
        const struct collrun_call calls[2] = {
            harness_message(COLLRUN_SEND, out, sizeof out, 1 - g->rank, 0),
            harness_message(COLLRUN_RECV, in, sizeof in, 1 - g->rank, 0)};
        HARNESS_CHECK(r, harness_exec(g, calls, 2) == COLLRUN_OK);
    }
    return 0;
}

static struct harness_options two_ranks(void **state)
{
    return options_for(state, 2);
}

/* ---- one after the other ---- */

/* Makes progress until a message with this tag waits, or until the counter is there. */
static int until(struct harness_rank *r, uint32_t tag, const _Atomic unsigned *counter,
                 unsigned value, size_t bytes)
{
    struct p2p_probe probe = {.source = 0, .tag = tag};
    const uint64_t start = harness_now_ns();
    int status = COLLRUN_AGAIN;
    while (status == COLLRUN_AGAIN && *counter < value) {
        status = p2p_probe(r->group->p2p, &probe, 1000000);
        HARNESS_CHECK(r, harness_now_ns() - start < 20000000000u);
    }
    HARNESS_CHECK(r, status == COLLRUN_OK || (status == COLLRUN_AGAIN && tag == NEVER));
    HARNESS_CHECK(r, status != COLLRUN_OK || probe.envelope.count == bytes);
    return 0;
}

/* Rank 1 posts its receive in time; finds the message by a probe; or when it has all arrived. */
static int every_way(struct harness_rank *r)
{
    _Atomic unsigned *sent = r->scratch;
    char *buf = malloc(LONGEST);
    HARNESS_CHECK(r, buf && warm_up(r, r->group) == 0);
    for (unsigned i = 0; i < 3 * NSIZES; i++) {
        const size_t bytes = sizes[i % NSIZES];
        const unsigned way = i / NSIZES;
        if (r->rank == 0 && way == 0)
            HARNESS_UNTIL(r, harness_inside_ms(r, 1) >= 3);
        if (r->rank == 0) {
            fill(buf, bytes, i);
            HARNESS_CHECK(r, p2p_progress(r->group->p2p) >= 0); /* credit that is on its way */
            HARNESS_CHECK(r, send_to(r, buf, bytes, 1, i) == COLLRUN_OK);
            ++*sent;
            HARNESS_UNTIL(r, sent[1] > i);
            continue;
        }
        memset(buf, 0, LONGEST);
        if (way == 1)
            HARNESS_CHECK(r, until(r, i, sent, UINT32_MAX, bytes) == 0);
        if (way == 2 && bytes <= 524288)
            HARNESS_CHECK(r, until(r, NEVER, sent, i + 1, bytes) == 0);
        int source = -1;
        struct collrun_call call = harness_message(i % 2 ? COLLRUN_RECV_ANY : COLLRUN_RECV, buf,
                                                   bytes, i % 2 ? UINT32_MAX : 0, i);
        call.source = i % 2 ? &source : NULL;
        HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK);
        HARNESS_CHECK(r, holds(buf, bytes, i) && source == (i % 2 ? 0 : -1));
        sent[1] = i + 1;
    }
    free(buf);
    return 0;
}

static void they_arrive_in_time_and_unexpected(void **state)
{
    const struct harness_options options = two_ranks(state);
    assert_int_equal(harness_run(&options, every_way), 0);
}

/* A receive may be longer than its message, which then does not fill it. */
static int shorter(struct harness_rank *r)
{
    char *buf = calloc(1, LONGEST);
    HARNESS_CHECK(r, buf && warm_up(r, r->group) == 0);
    fill(buf, r->rank == 0 ? 100000 : 0, 5);
    size_t received = 0;
    struct collrun_call call = harness_message(r->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV, buf,
                                               r->rank == 0 ? 100000 : LONGEST, 1 - r->rank, 0);
    call.received = r->rank == 0 ? NULL : &received;
    HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK);
    HARNESS_CHECK(r, holds(buf, 100000, 5) && buf[100000] == 0);
    HARNESS_CHECK(r, r->rank == 0 || received == 100000);
    free(buf);
    return 0;
}

static void one_may_be_shorter_than_its_receive(void **state)
{
    const struct harness_options options = two_ranks(state);
    assert_int_equal(harness_run(&options, shorter), 0);
}

/* ---- many at once ---- */

struct window {
    char *memory; /* 2 * WINDOW messages */
    struct collrun_call calls[2 * WINDOW];
};

static char *window_at(const struct window *w, unsigned i)
{
    return w->memory + (size_t)i * LONGEST;
}

static size_t window_bytes(unsigned i, unsigned salt)
{
    return sizes[(i * 5 + salt) % NSIZES];
}

/* Messages have one tag, so that one which overtakes another is seen by its length or its bytes.
 * Rank 0 sends `nsends` of them, rank 1 either none or as many. */
static int window_run(struct harness_rank *r, struct harness_group *g, struct window *w,
                      unsigned salt, bool both)
{
    const unsigned nsends = both || g->rank == 0 ? WINDOW : 0;
    const unsigned nreceives = both || g->rank == 1 ? WINDOW : 0;
    for (unsigned i = 0; i < nsends; i++) {
        fill(window_at(w, i), window_bytes(i, salt), i + salt + g->rank);
        w->calls[i] =
            harness_message(COLLRUN_SEND, window_at(w, i), window_bytes(i, salt), 1 - g->rank, 7);
    }
    for (unsigned i = 0; i < nreceives; i++) {
        memset(window_at(w, WINDOW + i), 0, LONGEST);
        w->calls[nsends + i] = harness_message(COLLRUN_RECV, window_at(w, WINDOW + i),
                                               window_bytes(i, salt), 1 - g->rank, 7);
    }
    const int status = harness_exec(g, w->calls, nsends + nreceives);
    for (unsigned i = 0; i < nreceives && status == COLLRUN_OK; i++)
        HARNESS_CHECK(
            r, holds(window_at(w, WINDOW + i), window_bytes(i, salt), i + salt + 1 - g->rank));
    return status;
}

static int windows(struct harness_rank *r)
{
    struct window w = {.memory = malloc(2ul * WINDOW * LONGEST)};
    HARNESS_CHECK(r, w.memory && warm_up(r, r->group) == 0);
    for (unsigned i = 0; i < 6; i++) {
        if (i % 3 == 2)
            harness_lag_us(r->rank == 1 ? 20000 : 0);
        HARNESS_CHECK(r, window_run(r, r->group, &w, i, i % 2) == COLLRUN_OK);
    }
    free(w.memory);
    return 0;
}

static void many_stay_in_order(void **state)
{
    const struct harness_options options = two_ranks(state);
    assert_int_equal(harness_run(&options, windows), 0);
}

/* ---- several groups over one connection ---- */

struct worker {
    struct harness_rank *rank;
    struct harness_group *group;
    unsigned rounds;
    int failed;
    _Atomic bool done;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct window window = {.memory = malloc(2ul * WINDOW * LONGEST)};
    w->failed = !window.memory;
    for (unsigned i = 0; i < w->rounds && !w->failed; i++)
        w->failed = window_run(w->rank, w->group, &window, i, i % 2) != COLLRUN_OK;
    free(window.memory);
    w->done = true;
    return NULL;
}

static int two_threads(struct harness_rank *r)
{
    const uint32_t both[2] = {0, 1};
    struct worker workers[2] = {{.rank = r, .group = r->group, .rounds = 4},
                                {.rank = r, .rounds = 4}};
    pthread_t thread;
    HARNESS_CHECK(r, harness_group_open(r, "other", both, 2, &workers[1].group) == COLLRUN_OK);
    HARNESS_CHECK(r, warm_up(r, r->group) == 0 && warm_up(r, workers[1].group) == 0);
    HARNESS_CHECK(r, pthread_create(&thread, NULL, work, &workers[1]) == 0);
    work(&workers[0]);
    pthread_join(thread, NULL);
    HARNESS_CHECK(r, !workers[0].failed && !workers[1].failed);
    harness_sync(r);
    harness_group_close(workers[1].group);
    return 0;
}

static void threads_of_two_groups_share_a_connection(void **state)
{
    const struct harness_options options = two_ranks(state);
    assert_int_equal(harness_run(&options, two_threads), 0);
}

/* ---- ends ---- */

/* The second group of each round is aborted at some time; the connection still serves the first. */
static int abort_in_between(struct harness_rank *r)
{
    const uint32_t both[2] = {0, 1};
    struct window window = {.memory = malloc(2ul * WINDOW * LONGEST)};
    HARNESS_CHECK(r, window.memory && warm_up(r, r->group) == 0);
    for (unsigned i = 0; i < 12; i++) {
        struct worker w = {.rank = r, .rounds = UINT32_MAX};
        char name[16];
        pthread_t thread;
        snprintf(name, sizeof name, "aborted %u", i);
        HARNESS_CHECK(r, harness_group_open(r, name, both, 2, &w.group) == COLLRUN_OK);
        HARNESS_CHECK(r, warm_up(r, w.group) == 0);
        HARNESS_CHECK(r, pthread_create(&thread, NULL, work, &w) == 0);
        harness_lag_us(3000 + 1700 * ((i * 7 + r->rank * 3) % 12));
        w.group->backend->group_abort(w.group->handle);
        const uint64_t start = harness_now_ns();
        HARNESS_UNTIL(r, w.done);
        HARNESS_CHECK(r, harness_now_ns() - start < HARNESS_AT_ONCE_NS);
        pthread_join(thread, NULL);
        HARNESS_CHECK(r, window_run(r, r->group, &window, i, true) == COLLRUN_OK);
        harness_group_close(w.group);
    }
    free(window.memory);
    return 0;
}

static void an_abort_leaves_the_connection_to_other_groups(void **state)
{
    const struct harness_options options = two_ranks(state);
    assert_int_equal(harness_run(&options, abort_in_between), 0);
}

/* A message is matched with a receive of another length, with more of them behind it. */
static int mismatch(struct harness_rank *r)
{
    const uint32_t both[2] = {0, 1};
    struct harness_group *g = NULL;
    struct window window = {.memory = malloc(2ul * WINDOW * LONGEST)};
    HARNESS_CHECK(r, window.memory && warm_up(r, r->group) == 0);
    HARNESS_CHECK(r, harness_group_open(r, "mismatch", both, 2, &g) == COLLRUN_OK);
    HARNESS_CHECK(r, warm_up(r, g) == 0);
    struct collrun_call calls[4];
    for (unsigned i = 0; i < 4; i++)
        calls[i] =
            harness_message(r->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV, window_at(&window, i),
                            i == 0 && r->rank == 1 ? 200001 : 200000, 1 - r->rank, 0);
    const int status = harness_exec(g, calls, 4);
    HARNESS_CHECK(r, status == COLLRUN_ERR_MISMATCH || (status == COLLRUN_OK && r->rank == 0));
    HARNESS_CHECK(r, window_run(r, r->group, &window, 3, true) == COLLRUN_OK);
    harness_group_close(g);
    free(window.memory);
    return 0;
}

static void a_mismatch_leaves_the_connection_to_other_groups(void **state)
{
    const struct harness_options options = two_ranks(state);
    assert_int_equal(harness_run(&options, mismatch), 0);
}

/* Rank 1 closes the group, to which messages are on their way that it has read or not. */
static int close_unmatched(struct harness_rank *r)
{
    const uint32_t both[2] = {0, 1};
    struct window window = {.memory = calloc(2ul * WINDOW, LONGEST)};
    HARNESS_CHECK(r, window.memory && warm_up(r, r->group) == 0);
    for (unsigned i = 0; i < 6; i++) {
        struct harness_group *g = NULL;
        char name[16];
        snprintf(name, sizeof name, "closed %u", i);
        HARNESS_CHECK(r, harness_group_open(r, name, both, 2, &g) == COLLRUN_OK);
        HARNESS_CHECK(r, warm_up(r, g) == 0);
        struct collrun_call calls[2];
        for (unsigned k = 0; k < 2; k++)
            calls[k] = harness_message(COLLRUN_SEND, window_at(&window, k), 524288, 1, 0);
        struct p2p_probe probe = {.source = 0, .tag = i < 3 ? 0 : NEVER};
        if (r->rank == 0) /* the second one may not have left in time */
            harness_exec(g, calls, 2);
        for (unsigned k = 0; r->rank == 1 && k < 20 * i; k++)
            HARNESS_CHECK(r, p2p_probe(g->p2p, &probe, 100000) >= 0);
        harness_group_close(g);
        HARNESS_CHECK(r, window_run(r, r->group, &window, i, true) == COLLRUN_OK);
    }
    free(window.memory);
    return 0;
}

static void a_group_is_closed_with_unmatched_ones(void **state)
{
    const struct harness_options options = two_ranks(state);
    assert_int_equal(harness_run(&options, close_unmatched), 0);
}

/* Rank 1 dies while they are on their way, or when all have been taken by its kernel. Rank 0 gets
 * some of them, whole and in order; then a receive fails. */
static int killed(struct harness_rank *r)
{
    const unsigned n = *(const unsigned *)r->arg;
    char *buf = malloc(LONGEST);
    int status = COLLRUN_OK;
    HARNESS_CHECK(r, buf && warm_up(r, r->group) == 0);
    for (unsigned i = 0; i < n && r->rank == 1; i++) {
        fill(buf, sizes[i % NSIZES], i);
        HARNESS_CHECK(r, send_to(r, buf, sizes[i % NSIZES], 0, 0) == COLLRUN_OK);
    }
    if (r->rank == 1)
        harness_kill(r, 1);
    for (unsigned i = 0; status == COLLRUN_OK; i++) {
        status = recv_from(r, buf, sizes[i % NSIZES], 1, 0);
        HARNESS_CHECK(r, status != COLLRUN_OK || (i < n && holds(buf, sizes[i % NSIZES], i)));
    }
    HARNESS_CHECK(r, status == COLLRUN_ERR_PEER_FAILED);
    free(buf);
    return 0;
}

static void those_of_a_killed_sender_are_whole_or_fail(void **state)
{
    const bool may_die[2] = {false, true};
    for (unsigned n = 1; n < 16; n += 3) {
        struct harness_options options = two_ranks(state);
        options.may_die = may_die;
        options.arg = &n;
        assert_int_equal(harness_run(&options, killed), 0);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_arrive_in_time_and_unexpected),
        cmocka_unit_test(one_may_be_shorter_than_its_receive),
        cmocka_unit_test(many_stay_in_order),
        cmocka_unit_test(threads_of_two_groups_share_a_connection),
        cmocka_unit_test(an_abort_leaves_the_connection_to_other_groups),
        cmocka_unit_test(a_mismatch_leaves_the_connection_to_other_groups),
        cmocka_unit_test(a_group_is_closed_with_unmatched_ones),
        cmocka_unit_test(those_of_a_killed_sender_are_whole_or_fail),
    };
    return cmocka_run_group_tests_name("each rank alone", tests, each_alone, NULL);
}
