/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between two ranks, on any backend: order and tags, several calls that progress together,
 * early senders and late receivers, and senders that have left. See p2p_suite.h.
 */
#include "p2p_suite.h"

#include "progress/p2p.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void p2p_skip_ends(void **state)
{
    if (!suite_of(state)->no_ends)
        return;
    print_message("# %s: %s\n", suite_of(state)->backend, suite_of(state)->no_ends);
    skip();
}

/* ---- order ---- */

/* All pairs, all sizes, one after the other. */
static int every_pair(struct harness_rank *r)
{
    static const size_t sizes[] = {0,
                                   1,
                                   8193,
                                   EAGER_BYTES,
                                   EAGER_BYTES + 1,
                                   EAGER_NET,
                                   EAGER_NET + 1,
                                   1u << 20,
                                   (1u << 20) + 1,
                                   LARGE};
    char *buf = malloc(LARGE);
    HARNESS_CHECK(r, buf);
    for (uint32_t from = 0; from < r->nranks; from++)
        for (uint32_t to = 0; to < r->nranks; to++)
            for (unsigned s = 0; s < 8 && from != to; s++) {
                fill(buf, sizes[s], r->rank == from ? s + from : 99);
                if (r->rank == from)
                    HARNESS_CHECK(r, send_to(r, buf, sizes[s], to, s) == COLLRUN_OK);
                if (r->rank == to)
                    HARNESS_CHECK(r, recv_from(r, buf, sizes[s], from, s) == COLLRUN_OK);
                if (r->rank == to)
                    HARNESS_CHECK(r, holds(buf, sizes[s], s + from));
            }
    free(buf);
    return 0;
}

static void every_pair_and_size(void **state)
{
    const struct harness_options options = options_for(state, 3);
    assert_int_equal(harness_run(&options, every_pair), 0);
}

/* Early messages of three tags are taken in another order of tags; each tag stays in order. */
static int tags(struct harness_rank *r)
{
    char buf[100];
    if (r->rank == 0) {
        for (unsigned i = 0; i < 15; i++) {
            fill(buf, 50, i);
            HARNESS_CHECK(r, send_to(r, buf, 50, 1, i % 3) == COLLRUN_OK);
        }
        return 0;
    }
    for (unsigned tag = 3; tag-- > 0;)
        for (unsigned i = tag; i < 15; i += 3) {
            HARNESS_CHECK(r, recv_from(r, buf, 50, 0, tag) == COLLRUN_OK);
            HARNESS_CHECK(r, holds(buf, 50, i));
        }
    return 0;
}

static void tags_overtake_each_other(void **state)
{
    const struct harness_options options = options_for(state, 2);
    assert_int_equal(harness_run(&options, tags), 0);
}

/* One tag, sizes that change with every message: no message overtakes one of another size. */
static int shapes(struct harness_rank *r)
{
    static char buf[EAGER_LOCAL + 1];
    _Atomic unsigned *sent = r->scratch;
    for (unsigned i = 0; i < 60; i++) {
        const size_t bytes = i % 5 == 4 ? EAGER_LOCAL + 1 : 10 + i % 3;
        fill(buf, bytes, r->rank == 0 ? i : 77);
        if (r->rank == 0) {
            HARNESS_CHECK(r, send_to(r, buf, bytes, 1, 0) == COLLRUN_OK);
            ++*sent;
            continue;
        }
        if (i == 20)
            HARNESS_UNTIL(r, *sent == 24); /* the next one is large, and is waited for */
        HARNESS_CHECK(r, recv_from(r, buf, bytes, 0, 0) == COLLRUN_OK);
        HARNESS_CHECK(r, holds(buf, bytes, i));
    }
    return 0;
}

static void shapes_of_one_tag_stay_in_order(void **state)
{
    const struct harness_options options = options_for(state, 2);
    assert_int_equal(harness_run(&options, shapes), 0);
}

/* ---- several calls at once ---- */

/* Every rank sends to the right and receives from the left. */
static int shift(struct harness_rank *r)
{
    static const size_t sizes[] = {0,    8, EAGER_BYTES, EAGER_BYTES + 1, EAGER_NET, EAGER_NET + 1,
                                   LARGE};
    const uint32_t right = (r->rank + 1) % r->nranks;
    const uint32_t left = (r->rank + r->nranks - 1) % r->nranks;
    char *out = malloc(LARGE);
    char *in = malloc(LARGE);
    HARNESS_CHECK(r, out && in);
    for (unsigned s = 0; s < 5; s++) {
        fill(out, sizes[s], r->rank);
        fill(in, sizes[s], 99);
        const struct collrun_call calls[2] = {
            harness_message(COLLRUN_SEND, out, sizes[s], right, 1),
            harness_message(COLLRUN_RECV, in, sizes[s], left, 1)};
        HARNESS_CHECK(r, harness_exec(r->group, calls, 2) == COLLRUN_OK);
        HARNESS_CHECK(r, holds(in, sizes[s], left));
    }
    free(out);
    free(in);
    return 0;
}

static void both_ways_at_once(void **state)
{
    for (uint32_t n = 1; n <= 5; n += 2) { /* alone, it sends to itself */
        const struct harness_options options = options_for(state, n);
        assert_int_equal(harness_run(&options, shift), 0);
    }
    const struct harness_options options = options_for(state, 2);
    assert_int_equal(harness_run(&options, shift), 0);
}

/* The first call of the batch waits for a rank that waits for the last one. One tag, all shapes
 * different, large and small, both ways. */
static int entangled(struct harness_rank *r)
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
        calls[2 * i + r->rank] = harness_message(COLLRUN_RECV, in[i], sizes[i], peer, 4);
        calls[2 * i + 1 - r->rank] = harness_message(COLLRUN_SEND, out[i], sizes[i], peer, 4);
    }
    HARNESS_CHECK(r, harness_exec(r->group, calls, 2 * N) == COLLRUN_OK);
    for (unsigned i = 0; i < N; i++) {
        HARNESS_CHECK(r, holds(in[i], sizes[i], i + peer));
        free(out[i]);
        free(in[i]);
    }
    return 0;
}

static void batches_progress_together(void **state)
{
    const struct harness_options options = options_for(state, 2);
    assert_int_equal(harness_run(&options, entangled), 0);
}

/* Rank 0's first receive is served only after its second call has gone through rank 1 to rank 2. */
static int relay(struct harness_rank *r)
{
    char *a = calloc(1, LARGE);
    char *b = calloc(1, LARGE);
    HARNESS_CHECK(r, a && b);
    if (r->rank == 0) {
        const struct collrun_call calls[2] = {harness_message(COLLRUN_RECV, a, LARGE, 2, 0),
                                              harness_message(COLLRUN_SEND, b, LARGE, 1, 0)};
        HARNESS_CHECK(r, harness_exec(r->group, calls, 2) == COLLRUN_OK);
    } else {
        HARNESS_CHECK(r, recv_from(r, a, LARGE, r->rank - 1, 0) == COLLRUN_OK);
        HARNESS_CHECK(r, send_to(r, a, LARGE, (r->rank + 1) % 3, 0) == COLLRUN_OK);
    }
    free(a);
    free(b);
    return 0;
}

static void no_call_waits_for_an_earlier_one(void **state)
{
    const struct harness_options options = options_for(state, 3);
    assert_int_equal(harness_run(&options, relay), 0);
}

/* A ring. The second message is started while the first one waits: it moves at once. */
static int start_second(struct harness_rank *r)
{
    const bool send_first = *(const bool *)r->arg;
    struct p2p *p2p = r->group->p2p;
    struct p2p_batch batches[2];
    char *out = malloc(LARGE), *in = malloc(LARGE);
    HARNESS_CHECK(r, p2p && out && in);
    fill(out, LARGE, r->rank);
    struct collrun_call calls[2] = {
        harness_message(COLLRUN_RECV, in, LARGE, (r->rank + r->nranks - 1) % r->nranks, 0),
        harness_message(COLLRUN_SEND, out, LARGE, (r->rank + 1) % r->nranks, 0)};
    calls[0].timeout_ns = calls[1].timeout_ns = r->group->timeout_ns;
    HARNESS_CHECK(r, p2p_start(p2p, &calls[send_first], 1, &batches[0]) == COLLRUN_OK);
    for (unsigned i = 0; i < 1000; i++)
        HARNESS_CHECK(r, p2p_progress(p2p) >= 0);
    harness_sync(r);
    HARNESS_CHECK(r, p2p_check(p2p, &batches[0]) == COLLRUN_AGAIN);
    harness_sync(r);
    HARNESS_CHECK(r, p2p_start(p2p, &calls[!send_first], 1, &batches[1]) == COLLRUN_OK);
    for (unsigned i = 0; i < 2; i++)
        while (p2p_check(p2p, &batches[i]) == COLLRUN_AGAIN)
            HARNESS_CHECK(r, p2p_progress(p2p) >= 0);
    HARNESS_CHECK(r, p2p_check(p2p, &batches[0]) == COLLRUN_OK);
    HARNESS_CHECK(r, p2p_check(p2p, &batches[1]) == COLLRUN_OK);
    HARNESS_CHECK(r, holds(in, LARGE, (r->rank + r->nranks - 1) % r->nranks));
    free(out);
    free(in);
    return 0;
}

static void a_message_starts_while_another_waits(void **state)
{
    for (unsigned send_first = 0; send_first < 2; send_first++) {
        bool arg = send_first;
        struct harness_options options = options_for(state, 3);
        options.arg = &arg;
        assert_int_equal(harness_run(&options, start_second), 0);
    }
}

/* ---- early and late ---- */

/* Both send first: a send that waited for its receive would never return. */
static int cross(struct harness_rank *r)
{
    char buf[1000];
    for (unsigned i = 0; i < 200; i++) {
        fill(buf, sizeof(buf), i + r->rank);
        HARNESS_CHECK(r, send_to(r, buf, sizeof(buf), 1 - r->rank, 0) == COLLRUN_OK);
        HARNESS_CHECK(r, recv_from(r, buf, sizeof(buf), 1 - r->rank, 0) == COLLRUN_OK);
        HARNESS_CHECK(r, holds(buf, sizeof(buf), i + 1 - r->rank));
    }
    return 0;
}

/* More than may wait at the receiver: then the sender waits, and all messages arrive in order, for
 * receives of all sorts. */
static int flood(struct harness_rank *r)
{
    const size_t bytes = *(const size_t *)r->arg;
    const unsigned n = 300, left = r->nranks - 1;
    _Atomic unsigned *sent = r->scratch;
    char *buf = malloc(EAGER_BYTES);
    unsigned next[4] = {0};
    HARNESS_CHECK(r, buf);
    for (unsigned i = 0; i < n && r->rank != 0; i++) {
        fill(buf, bytes, i + r->rank);
        HARNESS_CHECK(r, send_to(r, buf, bytes, 0, 0) == COLLRUN_OK);
        ++sent[r->rank];
    }
    for (unsigned i = 0; i < n * left && r->rank == 0; i++) {
        struct collrun_call call = harness_message(COLLRUN_RECV_ANY, buf, bytes, 0, 0);
        int source = 1 + (int)(i % left);
        if (i % 5 < 2 || i >= n) { /* some by name; none of a rank that has sent all */
            for (unsigned k = 0; k < left && next[source] == n; k++)
                source = 1 + source % (int)left;
            call = harness_message(COLLRUN_RECV, buf, bytes, (uint32_t)source, 0);
        } else {
            call.source = &source;
        }
        if (i == 0)
            HARNESS_UNTIL(r, sent[1] >= 5 && harness_inside_ms(r, 1) >= 50 &&
                                 harness_inside_ms(r, 2) >= 50);
        if (i == 0)
            HARNESS_CHECK(r, sent[1] <= 64 && sent[2] <= 64);
        HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK);
        HARNESS_CHECK(r, holds(buf, bytes, next[source]++ + (unsigned)source));
    }
    free(buf);
    return 0;
}

static void a_flood_waits_for_its_receiver(void **state)
{
    for (size_t bytes = EAGER_BYTES / 2; bytes <= EAGER_BYTES; bytes += EAGER_BYTES / 2) {
        struct harness_options options = options_for(state, 3);
        options.arg = &bytes;
        assert_int_equal(harness_run(&options, flood), 0);
    }
}

/* The same both ways at once, in one call. */
static int cross_flood(struct harness_rank *r)
{
    enum { N = 400, BYTES = 3000 };
    static struct collrun_call calls[2 * N];
    char *out = malloc(N * BYTES), *in = malloc(N * BYTES);
    HARNESS_CHECK(r, out && in);
    for (unsigned i = 0; i < N; i++) {
        fill(out + i * BYTES, BYTES, i + r->rank);
        calls[i] = harness_message(COLLRUN_SEND, out + i * BYTES, BYTES, 1 - r->rank, i % 7);
        calls[N + i] = harness_message(COLLRUN_RECV, in + i * BYTES, BYTES, 1 - r->rank, i % 7);
    }
    HARNESS_CHECK(r, harness_exec(r->group, calls, 2 * N) == COLLRUN_OK);
    for (unsigned i = 0; i < N; i++)
        HARNESS_CHECK(r, holds(in + i * BYTES, BYTES, i + 1 - r->rank));
    free(out);
    free(in);
    return 0;
}

static void floods_that_cross_pass(void **state)
{
    const struct harness_options options = options_for(state, 2);
    assert_int_equal(harness_run(&options, cross_flood), 0);
}

static void small_cross_sends_do_not_block(void **state)
{
    const struct harness_options options = options_for(state, 2);
    assert_int_equal(harness_run(&options, cross), 0);
}

/* A receive from a rank that has left the group. shm leaves it to its time-out: ranks of one host
 * have an agent that sees them end. */
static int recv_from_left(struct harness_rank *r, struct harness_group *g,
                          struct collrun_call *call)
{
    const bool sees_it = strcmp(r->backend->name, "shm") != 0;
    call->timeout_ns = sees_it ? 0 : 200 * MS;
    HARNESS_CHECK(r, harness_exec(g, call, 1) ==
                         (sees_it ? COLLRUN_ERR_PEER_FAILED : COLLRUN_ERR_TIMEOUT));
    return 0;
}

/* Rank 0 sends, closes its group and ends; rank 1 receives later, in another order of tags. */
static int leave_early(struct harness_rank *r)
{
    const uint32_t both[2] = {0, 1};
    char buf[8192];
    struct harness_group *g = NULL;
    HARNESS_CHECK(r, harness_group_open(r, "brief", both, 2, &g) == COLLRUN_OK);
    if (r->rank == 0) {
        for (unsigned i = 0; i < 12; i++) {
            fill(buf, 100 * i, i);
            const struct collrun_call call = harness_message(COLLRUN_SEND, buf, 100 * i, 1, i % 4);
            HARNESS_CHECK(r, harness_exec(g, &call, 1) == COLLRUN_OK);
        }
        const uint64_t start = harness_now_ns();
        harness_group_close(g);
        HARNESS_CHECK(r, harness_now_ns() - start < HARNESS_AT_ONCE_NS);
        return 0;
    }
    HARNESS_UNTIL(r, harness_is_gone(r, 0));
    for (unsigned tag = 4; tag-- > 0;)
        for (unsigned i = tag; i < 12; i += 4) {
            const struct collrun_call call = harness_message(COLLRUN_RECV, buf, 100 * i, 0, tag);
            HARNESS_CHECK(r, harness_exec(g, &call, 1) == COLLRUN_OK);
            HARNESS_CHECK(r, holds(buf, 100 * i, i));
        }
    struct collrun_call more = harness_message(COLLRUN_RECV, buf, 10, 0, 0);
    HARNESS_CHECK(r, recv_from_left(r, g, &more) == 0);
    harness_group_close(g);
    return 0;
}

static void messages_outlive_their_sender(void **state)
{
    p2p_skip_ends(state);
    struct harness_options options = options_for(state, 2);
    options.no_group = true;
    assert_int_equal(harness_run(&options, leave_early), 0);
}

/* As above, but some messages were taken before the sender left: none arrives twice. */
static int leave_halfway(struct harness_rank *r)
{
    const uint32_t both[2] = {0, 1};
    char buf[64];
    _Atomic unsigned *sent = r->scratch;
    struct harness_group *g = NULL;
    HARNESS_CHECK(r, harness_group_open(r, "half", both, 2, &g) == COLLRUN_OK);
    for (unsigned i = 0; i < 40; i++) {
        fill(buf, sizeof(buf), r->rank == 0 ? i : 99);
        const struct collrun_call call = harness_message(r->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV,
                                                         buf, sizeof(buf), 1 - r->rank, 0);
        if (r->rank == 1 && i == 0)
            HARNESS_UNTIL(r, *sent >= 10);
        if (r->rank == 1 && i == 20)
            HARNESS_UNTIL(r, harness_is_gone(r, 0));
        HARNESS_CHECK(r, harness_exec(g, &call, 1) == COLLRUN_OK);
        HARNESS_CHECK(r, holds(buf, sizeof(buf), i));
        *sent += r->rank == 0;
    }
    if (r->rank == 1) {
        struct collrun_call more = harness_message(COLLRUN_RECV, buf, sizeof(buf), 0, 0);
        HARNESS_CHECK(r, recv_from_left(r, g, &more) == 0);
    }
    harness_group_close(g);
    return 0;
}

static void no_message_arrives_twice(void **state)
{
    struct harness_options options = options_for(state, 2);
    options.no_group = true;
    assert_int_equal(harness_run(&options, leave_halfway), 0);
}

struct last_words {
    size_t bytes;
    bool warm; /* the ranks are connected */
    bool late; /* the receiver calls when the sender is dead */
};

/* Rank 1 sends, and dies as soon as its last send has returned. Rank 0 gets some of the messages,
 * whole and in order; then a receive fails. */
static int send_and_die(struct harness_rank *r)
{
    enum { N = 20 };
    const struct last_words *how = r->arg;
    char buf[EAGER_BYTES];
    struct collrun_call barrier = COLLRUN_CALL(COLLRUN_BARRIER);
    int status = how->warm ? harness_exec(r->group, &barrier, 1) : COLLRUN_OK;
    HARNESS_CHECK(r, status == COLLRUN_OK);
    harness_sync(r); /* no rank dies inside of the barrier */
    for (unsigned i = 0; i < N && r->rank == 1; i++) {
        fill(buf, how->bytes, i);
        HARNESS_CHECK(r, send_to(r, buf, how->bytes, 0, 0) == COLLRUN_OK);
    }
    if (r->rank == 1)
        harness_kill(r, 1);
    if (how->late)
        HARNESS_UNTIL(r, harness_is_gone(r, 1));
    for (unsigned i = 0; (status = recv_from(r, buf, how->bytes, 1, 0)) == COLLRUN_OK; i++)
        HARNESS_CHECK(r, i < N && holds(buf, how->bytes, i));
    HARNESS_CHECK(r, status == COLLRUN_ERR_PEER_FAILED ||
                         (status == COLLRUN_ERR_ABORTED && r->options->abort_on_death));
    return 0;
}

static void messages_of_a_killed_sender_are_whole_or_fail(void **state)
{
    p2p_skip_ends(state);
    const bool may_die[2] = {false, true};
    for (unsigned i = 0; i < 12; i++) {
        struct last_words how = {
            .bytes = (size_t)(i / 4) * (EAGER_BYTES / 2), .warm = i & 1, .late = i & 2};
        struct harness_options options = options_for(state, 2);
        options.may_die = may_die;
        /* The receiver knows of no connection. */
        options.abort_on_death = !how.warm || suite_of(state)->placement == P2P_ONE_HOST;
        options.arg = &how;
        assert_int_equal(harness_run(&options, send_and_die), 0);
    }
}

/* A receive from a rank that has closed the group, of which a message is still there. */
static int leave_unasked(struct harness_rank *r)
{
    const uint32_t all[4] = {0, 1, 2, 3};
    struct harness_group *g = NULL;
    char buf[8] = {0};
    HARNESS_CHECK(r, harness_group_open(r, "left", all, 4, &g) == COLLRUN_OK);
    const struct collrun_call to_0 = harness_message(COLLRUN_SEND, buf, 8, 0, 0);
    if (r->rank != 0) {
        HARNESS_CHECK(r, harness_exec(g, &to_0, 1) == COLLRUN_OK);
        harness_group_close(g);
        harness_sync(r);
        return 0;
    }
    harness_sync(r);
    const uint32_t from = *(const uint32_t *)r->arg;
    struct collrun_call recv = harness_message(COLLRUN_RECV, buf, 8, from, 0);
    const uint64_t start = harness_now_ns();
    HARNESS_CHECK(r, harness_exec(g, &recv, 1) == COLLRUN_OK);
    HARNESS_CHECK(r, recv_from_left(r, g, &recv) == 0);
    HARNESS_CHECK(r, strstr(harness_error(), from == 3 ? "rank 3" : "rank 1"));
    HARNESS_CHECK(r, harness_now_ns() - start < HARNESS_AT_ONCE_NS);
    harness_group_close(g);
    return 0;
}

static void a_sender_that_has_left_is_named(void **state)
{
    for (uint32_t from = 1; from < 4; from += 2) {
        struct harness_options options = options_for(state, 4);
        options.no_group = true;
        options.arg = &from;
        assert_int_equal(harness_run(&options, leave_unasked), 0);
    }
}

/* A large message to a rank that never receives ends by its time-out. */
static int unwanted(struct harness_rank *r)
{
    char *buf = calloc(1, LARGE);
    HARNESS_CHECK(r, buf);
    struct collrun_call call = harness_message(COLLRUN_SEND, buf, LARGE, 1, 0);
    call.timeout_ns = 200 * MS;
    const uint64_t start = harness_now_ns();
    if (r->rank == 0) {
        HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_ERR_TIMEOUT);
        HARNESS_CHECK(r, strstr(harness_error(), "for rank 1"));
        const uint64_t waited = harness_now_ns() - start;
        HARNESS_CHECK(r, waited > 190 * MS && waited < HARNESS_AT_ONCE_NS);
    }
    harness_sync(r);
    free(buf);
    return 0;
}

static void a_large_send_times_out(void **state)
{
    const struct harness_options options = options_for(state, 2);
    assert_int_equal(harness_run(&options, unwanted), 0);
}

/* Rank 2 aborts while it waits, and rank 1 waits for rank 0: these two go on. */
static int abort_of_one(struct harness_rank *r)
{
    _Atomic bool *aborted = r->scratch;
    char *buf = malloc(LARGE);
    HARNESS_CHECK(r, buf);
    if (r->rank == 2) {
        harness_abort_after(r, 20);
        HARNESS_CHECK(r, recv_from(r, buf, 10, 0, 1) == COLLRUN_ERR_ABORTED);
        atomic_store(aborted, true);
    } else if (r->rank == 1) {
        HARNESS_CHECK(r, recv_from(r, buf, LARGE, 0, 0) == COLLRUN_OK && holds(buf, LARGE, 5));
        HARNESS_CHECK(r, send_to(r, buf, 100, 0, 2) == COLLRUN_OK);
    } else {
        fill(buf, LARGE, 5);
        HARNESS_UNTIL(r, atomic_load(aborted) && harness_inside_ms(r, 1) >= 20);
        HARNESS_CHECK(r, send_to(r, buf, LARGE, 1, 0) == COLLRUN_OK);
        HARNESS_CHECK(r, recv_from(r, buf, 100, 1, 2) == COLLRUN_OK);
    }
    free(buf);
    harness_sync(r);
    return 0;
}

static void an_abort_ends_the_messages_of_its_rank_only(void **state)
{
    const struct harness_options options = options_for(state, 3);
    assert_int_equal(harness_run(&options, abort_of_one), 0);
}

static int run(const struct p2p_suite *suite)
{
    void *const state = (void *)(uintptr_t)suite;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(every_pair_and_size, state),
        cmocka_unit_test_prestate(tags_overtake_each_other, state),
        cmocka_unit_test_prestate(shapes_of_one_tag_stay_in_order, state),
        cmocka_unit_test_prestate(both_ways_at_once, state),
        cmocka_unit_test_prestate(batches_progress_together, state),
        cmocka_unit_test_prestate(no_call_waits_for_an_earlier_one, state),
        cmocka_unit_test_prestate(a_message_starts_while_another_waits, state),
        cmocka_unit_test_prestate(a_flood_waits_for_its_receiver, state),
        cmocka_unit_test_prestate(floods_that_cross_pass, state),
        cmocka_unit_test_prestate(small_cross_sends_do_not_block, state),
        cmocka_unit_test_prestate(messages_outlive_their_sender, state),
        cmocka_unit_test_prestate(messages_of_a_killed_sender_are_whole_or_fail, state),
        cmocka_unit_test_prestate(no_message_arrives_twice, state),
        cmocka_unit_test_prestate(a_sender_that_has_left_is_named, state),
        cmocka_unit_test_prestate(an_abort_ends_the_messages_of_its_rank_only, state),
        cmocka_unit_test_prestate(a_large_send_times_out, state),
    };
    return cmocka_run_group_tests_name(suite->backend, tests, NULL, NULL);
}

int p2p_suites_run(const struct p2p_suite *suites, size_t n, const char *filter)
{
    int failed = 0;
    cmocka_set_test_filter(filter);
    for (size_t i = 0; i < n; i++)
        failed += run(&suites[i]) + p2p_sources_run(&suites[i]);
    return failed;
}
