/* SPDX-License-Identifier: Apache-2.0
 *
 * The last cut of each rank, from frames as agents send them: what they prove, and what a second
 * look says about a proof. How proofs are found is in test_proof.c.
 */
#include "diagnose/cuts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, WORD = 4 * 7 + RECORD_INSIDE };

static const uint32_t world[] = {0, 1, 2};
static struct desc_rank desc_ranks[RANKS] = {{.host = 0}, {.host = 0}, {.host = 1}};
static const struct desc desc = {.ranks = desc_ranks, .nranks = RANKS, .nhosts = 2};
static struct cuts cuts;
static struct arena arena;
static struct cuts_proof proof;

static int setup(void **state)
{
    (void)state;
    cuts_init(&cuts, RANKS);
    arena_init(&arena);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cuts_fini(&cuts);
    arena_fini(&arena);
    return 0;
}

static struct cuts_news arrives(uint32_t host, const struct record_cut *cut, uint64_t look)
{
    struct buf b;
    buf_init(&b);
    cut_frame_put(&b, &(struct cut_frame){.look = look, .n = cut != NULL});
    if (cut)
        cut_frame_put_cut(&b, cut);
    const struct wire_frame f = {
        .type = WIRE_SNAPSHOT, .rank = WIRE_HOST, .payload = b.data, .len = b.len};
    const struct cuts_news news = cuts_take(&cuts, &desc, host, &f);
    buf_fini(&b);
    return news;
}

/* A cut of a rank whose thread is in this call, at word `word`. */
static struct cuts_news is_in(uint32_t rank, const struct record_cut_op *op, uint32_t word,
                              enum record_tap tap)
{
    struct record_cut_thread t = {.role = RECORD_CUT_BLOCKED,
                                  .mode = RECORD_ALL,
                                  .number = 1,
                                  .tid = 100 + rank,
                                  .word = word,
                                  .calls = true,
                                  .nops = 1,
                                  .ops = op};
    struct record_cut_group g = {
        .id = 9, .name = "world", .called = op->number, .nmembers = RANKS, .members = world};
    return arrives(desc_ranks[rank].host,
                   &(struct record_cut){.state = RECORD_CUT_STILL,
                                        .rank = rank,
                                        .tap = tap,
                                        .threads = &t,
                                        .groups = &g,
                                        .nthreads = 1,
                                        .ngroups = 1},
                   0);
}

static struct cuts_news receives(uint32_t rank, uint32_t from)
{
    const struct record_cut_op op = {
        .state = RECORD_OPEN, .kind = COLLRUN_RECV, .peer = (int32_t)from, .count = 1};
    return is_in(rank, &op, WORD, RECORD_TAP_MPI);
}

static struct cuts_news in_barrier(uint32_t rank, uint64_t number)
{
    const struct record_cut_op op = {
        .state = RECORD_OPEN, .kind = COLLRUN_BARRIER, .peer = -1, .number = number};
    return is_in(rank, &op, WORD, RECORD_TAP_MPI);
}

static void moves(uint32_t rank, uint32_t word)
{
    struct record_cut_thread t = {.number = 1, .tid = 100 + rank, .word = word};
    arrives(desc_ranks[rank].host,
            &(struct record_cut){.rank = rank, .threads = &t, .nthreads = word != 0}, 0);
}

static void ends(uint32_t rank)
{
    arrives(desc_ranks[rank].host, &(struct record_cut){.state = RECORD_CUT_ENDED, .rank = rank},
            0);
}

static bool proves(void)
{
    return cuts_prove(&cuts, &arena, &proof);
}

static void cycle(void)
{
    receives(0, 1);
    receives(1, 2);
    receives(2, 0);
    assert_true(proves());
}

static void all_ranks_have_to_be_known(void **state)
{
    (void)state;
    assert_true(receives(0, 1).blocked);
    assert_false(proves());
    receives(1, 2);
    assert_false(proves()); /* rank 2 may send */
    receives(2, 0);
    assert_true(proves());
    assert_int_equal(proof.shape, PROOF_CYCLE);
    assert_string_equal(proof.diag.text,
                        "deadlock: rank 0 waits in recv(1 x int8, from 1) in world for rank 1; "
                        "rank 1 waits in recv(1 x int8, from 2) in world for rank 2; rank 2 waits "
                        "in recv(1 x int8, from 0) in world for rank 0");
    assert_int_equal(proof.waits.n, 3);
    assert_int_equal(proof.waits.waits[1].rank, 1);
    assert_int_equal(proof.waits.waits[1].waited_for.items[0], 2);
    assert_int_equal(proof.ncalls, 3);
    assert_false(proof.engine);
}

static void a_rank_that_goes_on_takes_the_proof_away(void **state)
{
    (void)state;
    cycle();
    moves(1, WORD + 2);
    assert_false(proves());
    receives(1, 2);
    assert_true(proves());
}

static void each_cut_replaces_the_last_one(void **state)
{
    (void)state;
    in_barrier(0, 1);
    in_barrier(1, 1);
    receives(2, 0);
    assert_true(proves());
    assert_int_equal(proof.core.n, 2); /* rank 0 needs rank 2, and the other way round */
    assert_int_equal(proof.waits.waits[0].number, 1);
    in_barrier(2, 1);
    assert_false(proves());
}

static void ranks_of_another_host_are_dropped(void **state)
{
    (void)state;
    cycle();
    const struct cuts_news news =
        arrives(1, &(struct record_cut){.state = RECORD_CUT_MOVING, .rank = 0}, 0);
    assert_false(news.malformed);
    assert_true(proves());
}

static void answers_have_their_number(void **state)
{
    (void)state;
    assert_int_equal(arrives(0, NULL, 5).look, 5);
    assert_int_equal(receives(0, 1).look, 0);
}

static void other_bytes_are_malformed(void **state)
{
    const struct wire_frame f = {.payload = (const unsigned char *)"cut", .len = 3};
    (void)state;
    assert_true(cuts_take(&cuts, &desc, 0, &f).malformed);
}

/* Rank 1 has sent `n` messages with tag 5 to rank 0, which receives one with tag 6. */
static void sends_with_another_tag(uint64_t n)
{
    const struct record_cut_op op = {
        .state = RECORD_OPEN, .kind = COLLRUN_RECV, .peer = 0, .count = 1};
    struct record_cut_thread t = {.role = RECORD_CUT_BLOCKED,
                                  .mode = RECORD_ALL,
                                  .number = 1,
                                  .tid = 101,
                                  .word = WORD,
                                  .calls = true,
                                  .nops = 1,
                                  .ops = &op};
    struct record_cut_group g = {.id = 9, .name = "world", .nmembers = RANKS, .members = world};
    struct record_cut_channel c = {.peer = 0, .tag = 5, .sent = n};
    arrives(0,
            &(struct record_cut){.state = RECORD_CUT_STILL,
                                 .rank = 1,
                                 .threads = &t,
                                 .groups = &g,
                                 .channels = &c,
                                 .nthreads = 1,
                                 .ngroups = 1,
                                 .nchannels = 1},
            0);
}

static void a_message_with_another_tag_is_named(void **state)
{
    static const char text[] = "; rank 1 has sent 2 messages with tag 5 to rank 0, which receives "
                               "one with tag 6";
    const struct record_cut_op op = {
        .state = RECORD_OPEN, .kind = COLLRUN_RECV, .peer = 1, .tag = 6, .count = 1};
    (void)state;
    is_in(0, &op, WORD, RECORD_TAP_MPI);
    sends_with_another_tag(2);
    assert_true(proves());
    assert_non_null(strstr(proof.diag.text, text));
    assert_string_equal(proof.diag.hint, "the tag of the receive must be the tag of the send");
    sends_with_another_tag(0);
    assert_true(proves());
    assert_null(strstr(proof.diag.text, "has sent"));
}

/* ---- the second look ---- */

static void nothing_new_confirms_the_proof(void **state)
{
    (void)state;
    cycle();
    assert_int_equal(cuts_check(&cuts, &proof), CUTS_HOLDS);
    receives(1, 2); /* the same once more */
    moves(2, WORD); /* another thread of the rank has called, and this one has not returned */
    assert_int_equal(cuts_check(&cuts, &proof), CUTS_HOLDS);
}

static void a_thread_that_has_returned_refutes_it(void **state)
{
    const struct record_cut_op op = {
        .state = RECORD_OPEN, .kind = COLLRUN_RECV, .peer = 2, .count = 1};
    (void)state;
    cycle();
    moves(1, WORD + 2);
    assert_int_equal(cuts_check(&cuts, &proof), CUTS_MOVED);
    receives(1, 2);
    assert_int_equal(cuts_check(&cuts, &proof), CUTS_HOLDS);
    is_in(1, &op, WORD + 4, RECORD_TAP_MPI); /* in the next call of the same kind */
    assert_int_equal(cuts_check(&cuts, &proof), CUTS_MOVED);
}

static void a_rank_that_has_ended_does_not(void **state)
{
    (void)state;
    cycle();
    ends(1);
    assert_int_equal(cuts_check(&cuts, &proof), CUTS_GONE);
    moves(2, WORD + 2);
    assert_int_equal(cuts_check(&cuts, &proof), CUTS_MOVED); /* rank 2 did before that */
}

static void a_rank_of_which_nothing_is_known_does_not(void **state)
{
    (void)state;
    cycle();
    moves(1, 0);
    assert_int_equal(cuts_check(&cuts, &proof), CUTS_GONE);
}

/* The library of a rank may return an error when a peer has ended. */
static void who_waits_for_a_rank_that_has_ended_may_return(void **state)
{
    (void)state;
    receives(0, 1);
    receives(2, 1);
    ends(1);
    assert_true(proves());
    assert_int_equal(proof.shape, PROOF_MISSING);
    assert_int_equal(proof.missing, 1);
    assert_false(proof.missing_sleeps);
    assert_string_equal(proof.diag.text, "ranks 0 and 2 wait in recv(1 x int8, from 1) in world "
                                         "for rank 1; rank 1 calls nothing more: it has ended");
    moves(0, WORD + 2);
    assert_int_equal(cuts_check(&cuts, &proof), CUTS_GONE);
}

/* ---- beside wait reports ---- */

static bool differs(const struct graph *by_reports, const char *text)
{
    char out[200] = "";
    const bool found = proves();
    const bool differ = cuts_differ(&cuts, by_reports, found ? &proof : NULL, out, sizeof out);
    assert_string_equal(out, text);
    return differ;
}

static void proofs_are_compared_by_their_ranks(void **state)
{
    const struct record_cut_op op = {
        .state = RECORD_OPEN, .kind = COLLRUN_RECV, .peer = 1, .count = 1};
    const struct graph_wait all[] = {{.rank = 0}, {.rank = 1}, {.rank = 2}};
    (void)state;
    is_in(0, &op, WORD, RECORD_TAP_ENGINE);
    receives(1, 0);
    moves(2, WORD);
    assert_false(differs(&(struct graph){all, 2, RANKS}, ""));
    assert_true(proof.engine);
    assert_false(differs(&(struct graph){all, 3, RANKS}, "")); /* rank 2 is not known */
    receives(2, 2);
    assert_true(differs(&(struct graph){all, 2, RANKS},
                        "blocked by wait reports: ranks 0-1; by cuts: ranks 0-2"));
    moves(0, WORD);
    in_barrier(1, 1);
    in_barrier(2, 1);
    assert_true(differs(&(struct graph){all + 2, 1, RANKS},
                        "blocked by wait reports: ranks 2; by cuts: none"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(all_ranks_have_to_be_known),
        TEST(a_rank_that_goes_on_takes_the_proof_away),
        TEST(each_cut_replaces_the_last_one),
        TEST(ranks_of_another_host_are_dropped),
        TEST(answers_have_their_number),
        TEST(other_bytes_are_malformed),
        TEST(a_message_with_another_tag_is_named),
        TEST(nothing_new_confirms_the_proof),
        TEST(a_thread_that_has_returned_refutes_it),
        TEST(a_rank_that_has_ended_does_not),
        TEST(a_rank_of_which_nothing_is_known_does_not),
        TEST(who_waits_for_a_rank_that_has_ended_may_return),
        TEST(proofs_are_compared_by_their_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
