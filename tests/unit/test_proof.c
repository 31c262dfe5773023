/* SPDX-License-Identifier: Apache-2.0
 *
 * Proofs from cuts that are made by hand: what each kind of collective needs, what is not known and
 * therefore returns, and how a proof is explained. Interleavings are in test_proof_traces.c.
 */
#include "diagnose/proof.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 2000, WORLD = 9, OTHER = 12, TAG = 3 };

/* All ranks are in a group WORLD, index 0, of all of them. */
static struct job {
    uint32_t n;
    struct record_cut cuts[MOST];
    const struct record_cut *list[MOST];
    struct arena arena;
    struct proof proof;
} job;

static void *room(size_t n, size_t size)
{
    void *mem = arena_calloc(&job.arena, n, size);
    assert_non_null(mem);
    return mem;
}

static void job_of(uint32_t n)
{
    uint32_t *world;
    job.n = n;
    arena_init(&job.arena);
    world = room(n, sizeof *world);
    for (uint32_t r = 0; r < n; r++) {
        world[r] = r;
        struct record_cut *cut = &job.cuts[r];
        *cut = (struct record_cut){.state = RECORD_CUT_STILL, .rank = r};
        cut->groups = room(2, sizeof *cut->groups);
        cut->groups[0] = (struct record_cut_group){
            .id = WORLD, .name = "world", .nmembers = n, .members = world};
        cut->ngroups = 1;
        cut->threads = room(2, sizeof *cut->threads);
        cut->channels = room(8, sizeof *cut->channels);
        cut->receives = room(8, sizeof *cut->receives);
        job.list[r] = cut;
    }
}

static int teardown(void **state)
{
    (void)state;
    arena_fini(&job.arena);
    return 0;
}

/* The rank has one more thread, which waits for these operations. */
static struct record_cut_thread *waits(uint32_t rank, enum record_mode mode,
                                       const struct record_cut_op *ops, uint32_t n)
{
    struct record_cut *cut = &job.cuts[rank];
    struct record_cut_thread *t = &cut->threads[cut->nthreads];
    struct record_cut_op *copy = room(n, sizeof *copy);
    memcpy(copy, ops, n * sizeof *ops);
    for (uint32_t i = 0; i < n; i++) {
        copy[i].state = RECORD_OPEN;
        copy[i].thread = (uint16_t)(cut->nthreads + 1);
        if (ops[i].kind == COLLRUN_RECV || ops[i].kind == COLLRUN_RECV_ANY)
            cut->receives[cut->nreceives++] = copy[i];
    }
    *t = (struct record_cut_thread){.role = RECORD_CUT_BLOCKED,
                                    .mode = mode,
                                    .tid = 10 * rank + cut->nthreads,
                                    .calls = true,
                                    .nops = n,
                                    .ops = copy};
    cut->nthreads++;
    return t;
}

static struct record_cut_thread *receives(uint32_t rank, int from)
{
    const struct record_cut_op op = {.kind = from < 0 ? COLLRUN_RECV_ANY : COLLRUN_RECV,
                                     .dtype = COLLRUN_FLOAT32,
                                     .peer = from,
                                     .tag = TAG,
                                     .count = 4};
    return waits(rank, RECORD_ALL, &op, 1);
}

static struct record_cut_op collective(uint32_t rank, uint8_t kind, int root)
{
    struct record_cut_group *g = &job.cuts[rank].groups[0];
    return (struct record_cut_op){
        .kind = kind, .peer = root, .number = ++g->called, .count = 4, .dtype = COLLRUN_FLOAT32};
}

static struct record_cut_thread *calls(uint32_t rank, uint8_t kind, int root)
{
    const struct record_cut_op op = collective(rank, kind, root);
    return waits(rank, RECORD_ALL, &op, 1);
}

static void ends(uint32_t rank)
{
    job.cuts[rank].state = RECORD_CUT_ENDED;
}

static void counts(uint32_t rank, uint32_t peer, uint32_t tag, uint64_t sent, uint64_t taken)
{
    struct record_cut *cut = &job.cuts[rank];
    cut->channels[cut->nchannels++] =
        (struct record_cut_channel){.peer = peer, .tag = tag, .sent = sent, .taken = taken};
}

static uint32_t proven(void)
{
    assert_true(proof_solve(job.list, job.n, &job.arena, &job.proof));
    return job.proof.nblocked;
}

static const char *explained(struct proof_core *core)
{
    static struct diag d;
    diag_init(&d);
    assert_true(proof_explain(&job.proof, core));
    diag_set(&d, COLLRUN_ERR_ABORTED, "%s", "");
    proof_core_text(&job.proof, core, &d);
    return d.text;
}

/* ---- what an operation needs ---- */

/* Rank 1 waits for a message of rank 0; rank 0 is in such a collective, whose root is `root`. */
static bool needs_rank_1(uint8_t kind, int root, uint64_t count)
{
    job_of(2);
    struct record_cut_op op = collective(0, kind, root);
    op.count = count;
    waits(0, RECORD_ALL, &op, 1);
    receives(1, 0);
    const bool blocked = proven() == 2;
    arena_fini(&job.arena);
    return blocked;
}

static void collectives_need_what_is_certain(void **state)
{
    (void)state;
    const uint8_t all[] = {COLLRUN_ALLREDUCE, COLLRUN_ALLGATHER, COLLRUN_ALLTOALL,
                           COLLRUN_REDUCE_SCATTER};
    for (size_t i = 0; i < sizeof all; i++) {
        assert_true(needs_rank_1(all[i], -1, 4));
        assert_false(needs_rank_1(all[i], -1, 0));
    }
    assert_true(needs_rank_1(COLLRUN_BARRIER, -1, 0));
    assert_true(needs_rank_1(RECORD_FORM, -1, 0));
    assert_true(needs_rank_1(COLLRUN_BROADCAST, 1, 4));
    assert_false(needs_rank_1(COLLRUN_BROADCAST, 0, 4)); /* the root may return */
    assert_true(needs_rank_1(COLLRUN_SCATTER, 1, 4));
    assert_false(needs_rank_1(COLLRUN_SCATTER, 1, 0));
    assert_true(needs_rank_1(COLLRUN_SCATTERV, 1, 4));
    assert_true(needs_rank_1(COLLRUN_REDUCE, 0, 4));
    assert_false(needs_rank_1(COLLRUN_REDUCE, 1, 4)); /* others than the root may return */
    assert_true(needs_rank_1(COLLRUN_GATHER, 0, 4));
    assert_false(needs_rank_1(COLLRUN_SCAN, -1, 4));      /* rank 0 needs no lower rank */
    assert_false(needs_rank_1(COLLRUN_ALLTOALLV, -1, 4)); /* its counts are not known */
    assert_false(needs_rank_1(RECORD_OPAQUE, -1, 4));
    assert_false(needs_rank_1(RECORD_FINALIZE, -1, 4));
}

static void a_scan_needs_lower_ranks(void **state)
{
    (void)state;
    job_of(2);
    calls(1, COLLRUN_SCAN, -1);
    receives(0, 1);
    assert_int_equal(proven(), 2);
}

static void a_v_form_needs_ranks_from_which_it_expects_data(void **state)
{
    (void)state;
    const uint32_t from[] = {1, 2};
    job_of(3);
    struct record_cut_op op = collective(0, COLLRUN_ALLTOALLV, -1);
    op.needs = &from[1];
    op.nneeds = 1; /* rank 2, which can act */
    waits(0, RECORD_ALL, &op, 1);
    receives(1, 0);
    job.list[2] = NULL;
    assert_int_equal(proven(), 0);
    ((struct record_cut_op *)(uintptr_t)job.cuts[0].threads[0].ops)->needs = from;
    assert_int_equal(proven(), 2);
}

static void a_member_that_has_called_is_not_late(void **state)
{
    (void)state;
    job_of(2);
    calls(0, COLLRUN_BARRIER, -1);
    job.cuts[1].groups[0].called = 1; /* and has left it */
    receives(1, 0);
    assert_int_equal(proven(), 0);
}

static void a_message_on_the_way_can_be_received(void **state)
{
    (void)state;
    job_of(2);
    receives(0, 1);
    receives(1, 0);
    counts(1, 0, TAG, 2, 0);
    counts(0, 1, TAG, 0, 1);
    assert_int_equal(proven(), 0);
    job.cuts[0].channels[0].taken = 2;
    assert_int_equal(proven(), 2);
}

/* Tags that share a folded channel on one side are one on the other side, too. */
static void folded_tags_are_compared_by_their_sums(void **state)
{
    (void)state;
    uint32_t same = TAG + 1;
    while (record_fold(same) != record_fold(TAG))
        same++;
    job_of(2);
    receives(0, 1);
    receives(1, 0);
    counts(1, 0, record_fold(TAG), 5, 0);
    job.cuts[1].channels[0].folded = true;
    counts(0, 1, TAG, 0, 2);
    counts(0, 1, same, 0, 2);
    assert_int_equal(proven(), 0);
    job.cuts[0].channels[1].taken = 3;
    assert_int_equal(proven(), 2);
}

static void a_send_needs_a_receive_that_fits(void **state)
{
    (void)state;
    const struct record_cut_op send = {
        .kind = COLLRUN_SEND, .flags = RECORD_SYNC, .peer = 1, .tag = TAG, .count = 4};
    job_of(2);
    waits(0, RECORD_ALL, &send, 1);
    receives(1, 0);
    assert_int_equal(proven(), 0); /* it is what rank 1 waits for */
    job.cuts[1].receives[0].tag = TAG + 1;
    struct record_cut_op *op = (struct record_cut_op *)(uintptr_t)job.cuts[1].threads[0].ops;
    op->tag = TAG + 1;
    counts(0, 1, TAG, 1, 0);
    assert_int_equal(proven(), 2);
    job.cuts[1].lost = RECORD_LOST_REQUESTS;
    assert_int_equal(proven(), 0);
}

/* ---- what is not known ---- */

static void what_is_not_known_returns(void **state)
{
    (void)state;
    job_of(2);
    struct record_cut_thread *t = receives(0, 1);
    receives(1, 0);
    assert_int_equal(proven(), 2);
    t->timeout_ns = PROOF_MIN_TIMEOUT_NS - 1;
    assert_int_equal(proven(), 0);
    t->timeout_ns = PROOF_MIN_TIMEOUT_NS;
    assert_int_equal(proven(), 2);
    job.cuts[1].lost = RECORD_LOST_CHANNELS;
    assert_int_equal(proven(), 0);
    job.cuts[1].lost = 0;
    job.cuts[0].groups[0].unordered = true;
    assert_int_equal(proven(), 0);
    job.cuts[0].groups[0].unordered = false;
    job.cuts[1].forgotten = 1;
    assert_int_equal(proven(), 2); /* rank 1 has the group */
    job.cuts[1].state = RECORD_CUT_MOVING;
    assert_int_equal(proven(), 0);
}

static void a_group_that_was_closed_or_forgotten_is_satisfied(void **state)
{
    (void)state;
    job_of(2);
    calls(0, COLLRUN_BARRIER, -1);
    ends(1);
    assert_int_equal(proven(), 1);
    job.cuts[1].groups[0].closed = true;
    assert_int_equal(proven(), 0);
    job.cuts[1].ngroups = 0; /* it has not opened the group yet */
    assert_int_equal(proven(), 1);
    job.cuts[1].forgotten = 1;
    assert_int_equal(proven(), 0);
}

static void nothing_is_proven_with_members_that_differ(void **state)
{
    (void)state;
    static const uint32_t others[] = {1, 0};
    job_of(2);
    receives(0, 1);
    receives(1, 0);
    job.cuts[1].groups[0].members = others;
    assert_int_equal(proven(), 0);
}

static void a_thread_that_sleeps_wakes_with_its_process(void **state)
{
    (void)state;
    job_of(2);
    receives(0, 1);
    receives(1, 0);
    job.cuts[1].threads[1] = (struct record_cut_thread){.role = RECORD_CUT_ASLEEP, .calls = true};
    job.cuts[1].nthreads = 2;
    assert_int_equal(proven(), 2);
    counts(0, 1, TAG, 1, 0); /* rank 1 receives, and may then wake its thread, which may send */
    assert_int_equal(proven(), 0);
}

/* ---- explanations ---- */

static void a_cycle_is_named_and_the_others_counted(void **state)
{
    (void)state;
    struct proof_core core;
    job_of(6);
    receives(0, 1);
    receives(1, 2);
    receives(2, 1);
    receives(3, 0);
    receives(4, 3);
    job.list[5] = NULL; /* it goes on */
    assert_int_equal(proven(), 5);
    const char *text = explained(&core);
    assert_int_equal(core.shape, PROOF_CYCLE);
    assert_int_equal(core.n, 2);
    assert_int_equal(core.behind, 3);
    assert_string_equal(
        text, "rank 1 waits in recv(4 x float32, from 2, tag 3) in world for rank 2; rank "
              "2 waits in recv(4 x float32, from 1, tag 3) in world for rank 1; 3 more "
              "ranks wait behind them");
}

/* Rank 0 waits for both: the shorter of two cycles is shown. */
static void the_shortest_cycle_is_found(void **state)
{
    (void)state;
    struct proof_core core;
    struct record_cut_op both[2] = {{.kind = COLLRUN_RECV, .peer = 1, .tag = TAG},
                                    {.kind = COLLRUN_RECV, .peer = 3, .tag = TAG}};
    job_of(4);
    waits(0, RECORD_ALL, both, 2);
    receives(1, 2);
    receives(2, 0);
    receives(3, 0);
    assert_int_equal(proven(), 4);
    explained(&core);
    assert_int_equal(core.shape, PROOF_CYCLE);
    assert_int_equal(core.n, 2);
    assert_int_equal(core.ranks[0] + core.ranks[1], 3);
    assert_int_equal(core.behind, 2);
}

static void ranks_wait_for_one_that_has_ended(void **state)
{
    (void)state;
    struct proof_core core;
    job_of(5);
    for (uint32_t r = 0; r < 4; r++)
        calls(r, COLLRUN_BARRIER, -1);
    ends(4);
    assert_int_equal(proven(), 4);
    const char *text = explained(&core);
    assert_int_equal(core.shape, PROOF_MISSING);
    assert_int_equal(core.missing, 4);
    assert_int_equal(core.behind, 0);
    assert_string_equal(text, "ranks 0-3 wait in barrier world#1 for rank 4");
}

static void a_receive_from_any_source_is_explained_by_a_set(void **state)
{
    (void)state;
    struct proof_core core;
    job_of(3);
    receives(0, -1);
    receives(1, 0);
    receives(2, 0);
    assert_int_equal(proven(), 3);
    const char *text = explained(&core);
    assert_int_equal(core.shape, PROOF_SET);
    assert_int_equal(core.n, 3);
    assert_string_equal(text,
                        "rank 0 waits in recv_any(4 x float32, tag 3) in world for any of ranks "
                        "1-2; ranks 1-2 wait in recv(4 x float32, from 0, tag 3) in world for "
                        "rank 0");
}

static void a_rank_may_wait_for_itself(void **state)
{
    (void)state;
    struct proof_core core;
    job_of(2);
    receives(0, 0);
    job.list[1] = NULL;
    assert_int_equal(proven(), 1);
    assert_string_equal(explained(&core),
                        "rank 0 waits in recv(4 x float32, from 0, tag 3) in world for rank 0");
    assert_int_equal(core.n, 1);
}

/* All but the last two are in one barrier: each pair of a rank and a node is visited once. */
static void many_ranks_are_solved(void **state)
{
    (void)state;
    struct proof_core core;
    job_of(MOST);
    for (uint32_t r = 0; r < MOST - 2; r++)
        calls(r, COLLRUN_BARRIER, -1);
    receives(MOST - 2, -1);
    receives(MOST - 1, MOST - 2);
    assert_int_equal(proven(), MOST);
    assert_int_equal(job.proof.nnodes < 4, 1);
    explained(&core);
    assert_int_equal(core.n + core.behind, MOST);
    job.list[MOST - 1] = NULL;
    assert_int_equal(proven(), 0);
}

static void without_a_proof_there_is_nothing_to_explain(void **state)
{
    (void)state;
    struct proof_core core;
    job_of(2);
    receives(0, 1);
    job.list[1] = NULL;
    assert_int_equal(proven(), 0);
    assert_true(proof_explain(&job.proof, &core));
    assert_int_equal(core.n, 0);
}

#define TEST(name) cmocka_unit_test_teardown(name, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_need_what_is_certain),
        TEST(a_scan_needs_lower_ranks),
        TEST(a_v_form_needs_ranks_from_which_it_expects_data),
        TEST(a_member_that_has_called_is_not_late),
        TEST(a_message_on_the_way_can_be_received),
        TEST(folded_tags_are_compared_by_their_sums),
        TEST(a_send_needs_a_receive_that_fits),
        TEST(what_is_not_known_returns),
        TEST(a_group_that_was_closed_or_forgotten_is_satisfied),
        TEST(nothing_is_proven_with_members_that_differ),
        TEST(a_thread_that_sleeps_wakes_with_its_process),
        TEST(a_cycle_is_named_and_the_others_counted),
        TEST(the_shortest_cycle_is_found),
        TEST(ranks_wait_for_one_that_has_ended),
        TEST(a_receive_from_any_source_is_explained_by_a_set),
        TEST(a_rank_may_wait_for_itself),
        TEST(many_ranks_are_solved),
        TEST(without_a_proof_there_is_nothing_to_explain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
