/* SPDX-License-Identifier: Apache-2.0
 *
 * The shm backend's collectives, through the harness: every kind at small and large sizes, plain,
 * in place, in the shared heap and out of alignment, for one to eight ranks, in processes and in
 * threads; then oversubscribed ranks, disagreement, time-outs and aborts. Point to point is
 * test_shm_p2p.c.
 */
#include "coll_failures.h"
#include "coll_suite.h"
#include "coll_sweeps.h"
#include "core/reduce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct harness_options options_for(uint32_t nranks)
{
    return (struct harness_options){.path = harness_backend_path("shm"), .nranks = nranks};
}

static struct coll_suite suite = {
    .backend = "shm",
    .counts = {0, 1, 7, 10, 11, 1000, 4099},
    .ncounts = 7,
    .processes = 8,
    .threads = 4,
    .dedicated = 5,
    .long_count = 9001,
    .random_calls = 600,
    .oversubscribed = 64,
    .repetitions = 20,
    .heap = true,
};

/* ---- more data ---- */

/* Several turns of the ring, with lengths around the borders of chunks. */
static int large(struct harness_rank *r)
{
    static const size_t counts[] = {32767, 32768, 65537, 1310720};
    uint32_t turn = 0;
    for (size_t k = 0; k < COLL_NKINDS; k++)
        for (size_t s = 0; s < 4; s++)
            for (int variant = 0; variant < 3; variant++, turn++) {
                struct coll_case c = {.kind = coll_kinds[k], .count = counts[s], .salt = turn};
                c.dtype = COLLRUN_FLOAT32;
                c.root = turn % r->nranks;
                c.in_place = variant == 1 && coll_has_in_place(c.kind);
                c.memory = variant == 2 ? COLL_HEAP : COLL_PLAIN;
                /* blocks per pair: keep the whole at the size of the others */
                if (s == 3 && c.kind != COLLRUN_ALLREDUCE && c.kind != COLLRUN_REDUCE &&
                    c.kind != COLLRUN_BROADCAST)
                    c.count /= r->nranks;
                if (coll_case_run(r, r->group, &c) != 0)
                    return 1;
            }
    return 0;
}

static void large_messages(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 5};
    for (int i = 0; i < 4; i++) {
        struct harness_options options = options_for(worlds[i]);
        options.limit_s = 120; /* sanitizers on a busy machine */
        assert_int_equal(harness_run(&options, large), 0);
    }
}

/* Vectors of a few cache lines: each rank reduces one of these for all. */
static int short_vectors(struct harness_rank *r)
{
    static const size_t counts[] = {1, 41, 42, 45, 48, 49, 58, 64, 500};
    for (uint32_t turn = 0; turn < 36; turn++) {
        struct coll_case c = {.kind = turn % 2 ? COLLRUN_ALLREDUCE : COLLRUN_REDUCE,
                              .dtype = COLLRUN_FLOAT32,
                              .count = counts[turn / 4],
                              .root = turn % r->nranks,
                              .in_place = turn / 2 % 2,
                              .salt = turn};
        if (coll_case_run(r, r->group, &c) != 0)
            return 1;
    }
    return 0;
}

static void many_ranks_reduce_short_vectors(void **state)
{
    (void)state;
    const struct harness_options options = options_for(100);
    assert_int_equal(harness_run(&options, short_vectors), 0);
}

/* Two groups of the same ranks in different order, used in turn. */
static int two_groups(struct harness_rank *r)
{
    const uint32_t turned[3] = {2, 0, 1};
    struct harness_group *groups[2] = {r->group};
    HARNESS_CHECK(r, harness_group_open(r, "turned", turned, 3, &groups[1]) == COLLRUN_OK);
    if (coll_across_groups(r, groups, 2, 3, 30) != 0)
        return 1;
    harness_group_close(groups[1]);
    return 0;
}

static void groups_do_not_mix(void **state)
{
    (void)state;
    const struct harness_options options = options_for(3);
    assert_int_equal(harness_run(&options, two_groups), 0);
}

/* ---- failures ---- */

/* Rank 1 differs from the others in one field; buffers stay as they are. */
static int disagree(struct harness_rank *r)
{
    const int which = *(const int *)r->arg;
    char buf[8192];
    memset(buf, 1, sizeof(buf));
    struct collrun_call call = coll_call(COLLRUN_REDUCE, buf, 100);
    const char *words = "";
    const bool odd = r->rank == 1;
    switch (which) {
    case 0:
        if (odd)
            call.count = 101;
        words = "calls reduce(101 x float32, sum, root 0)";
        break;
    case 1:
        if (odd)
            call.dtype = COLLRUN_INT32;
        words = "calls reduce(100 x int32, sum, root 0)";
        break;
    case 2:
        if (odd)
            call.op = COLLRUN_MAX;
        words = "calls reduce(100 x float32, max, root 0)";
        break;
    case 3:
        if (odd)
            call.root = 1;
        words = "calls reduce(100 x float32, sum, root 1)";
        break;
    default:
        if (odd)
            call = coll_call(COLLRUN_BARRIER, buf, 0);
        words = "calls barrier()";
    }
    int status = harness_exec(r->group, &call, 1);
    if (status == COLLRUN_OK) {
        /* A leaf of a reduce does not wait for the others: its next call fails. */
        HARNESS_CHECK(r, call.kind == COLLRUN_REDUCE && (uint32_t)call.root != r->rank);
        call = coll_call(COLLRUN_BARRIER, buf, 0);
        status = harness_exec(r->group, &call, 1);
    }
    HARNESS_CHECK(r, status == COLLRUN_ERR_MISMATCH);
    HARNESS_CHECK(r, strstr(harness_error(), words));
    HARNESS_CHECK(r, strstr(harness_error(), "calls reduce(100 x float32, sum, root 0)"));
    HARNESS_CHECK(r, strstr(harness_error(), "rank 1 "));
    for (size_t i = 0; i < sizeof(buf); i++)
        HARNESS_CHECK(r, buf[i] == 1);
    return coll_stays_failed(r, r->group, COLLRUN_ERR_MISMATCH);
}

static void disagreement_is_explained(void **state)
{
    (void)state;
    for (int which = 0; which < 5; which++)
        for (uint32_t n = 2; n <= 4; n++) {
            struct harness_options options = options_for(n);
            options.arg = &which;
            assert_int_equal(harness_run(&options, disagree), 0);
        }
}

/* Each of two ranks calls itself the root of a broadcast and returns. The next call that waits, or
 * one of the next ones that do not, reports them. */
static int disagree_unseen(struct harness_rank *r)
{
    const bool waits = *(const bool *)r->arg;
    char buf[8192] = {0};
    struct collrun_call call = coll_call(COLLRUN_BROADCAST, buf, 2);
    int status = COLLRUN_OK;
    call.root = (int)r->rank;
    HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK);
    if (waits)
        call = coll_call(COLLRUN_ALLREDUCE, buf, 2);
    for (int i = 0; status == COLLRUN_OK && i < (waits ? 1 : 1024);
         i++) /* at most step.h's STEP_LEAD */
        status = harness_exec(r->group, &call, 1);
    HARNESS_CHECK(r, status == COLLRUN_ERR_MISMATCH);
    HARNESS_CHECK(r, strstr(harness_error(), "calls broadcast(2 x float32, root 0)"));
    HARNESS_CHECK(r, strstr(harness_error(), "calls broadcast(2 x float32, root 1)"));
    return coll_stays_failed(r, r->group, COLLRUN_ERR_MISMATCH);
}

static void disagreement_of_ranks_that_do_not_wait_is_found(void **state)
{
    (void)state;
    for (int waits = 0; waits < 2; waits++)
        for (uint32_t cpus = 1; cpus <= 65; cpus += 64) {
            bool arg = waits != 0;
            struct harness_options options = options_for(2);
            options.arg = &arg;
            options.ncpus = cpus;
            assert_int_equal(harness_run(&options, disagree_unseen), 0);
        }
}

/* Rank 1 calls only after the root of broadcasts and scatters, and all leaves of reduces and
 * gathers, have returned from several. */
static int return_early(struct harness_rank *r)
{
    enum { CALLS = 6, COUNT = 3 };
    static const enum collrun_kind kinds[] = {COLLRUN_BROADCAST, COLLRUN_SCATTER, COLLRUN_REDUCE,
                                              COLLRUN_GATHER};
    _Atomic unsigned *over = r->scratch;
    const bool out = r->rank != 1;
    unsigned due = 0;
    for (int k = 0; k < 4; k++) {
        const int root = k < 2 ? 0 : 1;
        due += k < 2 ? 1 : r->nranks - 1;
        if (!out)
            HARNESS_UNTIL(r, *over >= due);
        for (int i = 0; i < CALLS; i++) {
            struct coll_case c = {.kind = kinds[k], .count = COUNT, .root = (uint32_t)root};
            c.dtype = COLLRUN_INT32;
            c.salt = (uint32_t)(k * CALLS + i);
            if (coll_case_run(r, r->group, &c) != 0)
                return 1;
        }
        if (k < 2 ? r->rank == 0 : out)
            ++*over;
    }
    return 0;
}

static void ranks_that_need_nothing_return_first(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 4; n++)
        for (uint32_t cpus = 1; cpus <= 65; cpus += 64) {
            struct harness_options options = options_for(n);
            options.ncpus = cpus;
            assert_int_equal(harness_run(&options, return_early), 0);
        }
}

/* Rank 1 is late at times, in rows of operations for which the others do not need it: they are as
 * far ahead as they may be. The data travels in the ring. */
static int run_ahead(struct harness_rank *r)
{
    enum { ROW = 100, ROWS = 16 };
    static const enum collrun_kind kinds[2][2] = {{COLLRUN_BROADCAST, COLLRUN_SCATTER},
                                                  {COLLRUN_REDUCE, COLLRUN_GATHER}};
    unsigned same = 1;
    for (int i = 0; i < ROW * ROWS; i++) {
        const int row = i / ROW;
        const unsigned least = 300u << row / 2;
        struct coll_case c = {.kind = kinds[row % 2][rand_r(&same) % 2], .dtype = COLLRUN_INT32};
        c.count = least + (unsigned)rand_r(&same) % least;
        c.root = (uint32_t)row % 2;
        c.salt = (uint32_t)i;
        if (r->rank == 1 && i % 50 == 0)
            harness_lag_us(10000);
        if (coll_case_run(r, r->group, &c) != 0)
            return 1;
    }
    return 0;
}

static void ranks_that_are_ahead_overwrite_nothing(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 3; n++)
        for (uint32_t cpus = 1; cpus <= 65; cpus += 64) {
            struct harness_options options = options_for(n);
            options.ncpus = cpus;
            assert_int_equal(harness_run(&options, run_ahead), 0);
        }
}

/* Each uneven kind, with one pair of ranks that disagrees about one count. */
static int disagree_uneven(struct harness_rank *r)
{
    struct coll_uneven u;
    coll_uneven_init(&u, *(const enum collrun_kind *)r->arg, r->rank);
    HARNESS_CHECK(r, harness_exec(r->group, &u.call, 1) == COLLRUN_ERR_MISMATCH);
    HARNESS_CHECK(r, strstr(harness_error(), "elements to rank"));
    for (size_t i = 0; i < sizeof(u.recv); i++)
        HARNESS_CHECK(r, u.recv[i] == 1);
    return coll_stays_failed(r, r->group, COLLRUN_ERR_MISMATCH);
}

static void uneven_disagreement_is_explained(void **state)
{
    (void)state;
    for (enum collrun_kind kind = COLLRUN_ALLGATHERV; kind <= COLLRUN_ALLTOALLV; kind++) {
        struct harness_options options = options_for(3);
        options.arg = &kind;
        assert_int_equal(harness_run(&options, disagree_uneven), 0);
    }
}

/* "... rank 0 waited 1.0 s for ranks 3, 5": a second, or longer on a busy machine. */
static bool names_two_missing(const char *text)
{
    const char *waited = strstr(text, "rank 0 waited ");
    double s = 0;
    return waited && sscanf(waited, "rank 0 waited %lf s", &s) == 1 && s >= 1 && s < 30 &&
           strstr(waited, " s for ranks 3, 5");
}

/* Ranks 3 and 5 do not call; rank 3 calls later and gets the same error. All others are inside
 * before the time of rank 0 begins. */
static int two_missing(struct harness_rank *r)
{
    char buf[8192] = {0};
    _Atomic unsigned *over = r->scratch;
    struct collrun_call call = coll_call(COLLRUN_ALLREDUCE, buf, 1);
    harness_sync(r);
    if (r->rank == 5)
        return 0;
    if (r->rank == 3)
        HARNESS_UNTIL(r, *over == 4);
    for (uint32_t other = 1; r->rank == 0 && other < 5; other++)
        HARNESS_UNTIL(r, other == 3 || harness_inside_ms(r, other) >= 30);
    if (r->rank == 0)
        call.timeout_ns = 1000000000u;
    const uint64_t start = harness_now_ns();
    HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_ERR_TIMEOUT);
    const uint64_t waited = harness_now_ns() - start;
    ++*over;
    HARNESS_CHECK(r, names_two_missing(harness_error()));
    HARNESS_CHECK(r, r->rank != 0 || waited >= 1000000000u);
    HARNESS_CHECK(r, waited < 30000000000u);
    return coll_stays_failed(r, r->group, COLLRUN_ERR_TIMEOUT);
}

static void time_outs_name_who_is_missing(void **state)
{
    (void)state;
    struct harness_options options = options_for(6);
    assert_int_equal(harness_run(&options, two_missing), 0);
    options.ncpus = 64;
    assert_int_equal(harness_run(&options, two_missing), 0);
}

static int aborted(struct harness_rank *r)
{
    char buf[8192] = {0};
    const struct collrun_call call = coll_call(COLLRUN_BARRIER, buf, 0);
    if (r->rank == 1) {
        for (uint32_t other = 0; other < 4; other++)
            HARNESS_UNTIL(r, other == 1 || harness_inside_ms(r, other) >= 30);
        harness_abort_everywhere(r);
        return 0;
    }
    const uint64_t start = harness_now_ns();
    HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_ERR_ABORTED);
    HARNESS_CHECK(r, harness_now_ns() - start < 10000000000u);
    return coll_stays_failed(r, r->group, COLLRUN_ERR_ABORTED);
}

static void abort_unblocks_all_ranks(void **state)
{
    (void)state;
    for (uint32_t cpus = 1; cpus <= 65; cpus += 64) {
        struct harness_options options = options_for(4);
        options.ncpus = cpus;
        assert_int_equal(harness_run(&options, aborted), 0);
        options.threads = true;
        assert_int_equal(harness_run(&options, aborted), 0);
    }
}

/* Rank 1 dies somewhere inside a long allreduce; its host's agent aborts; the others are out within
 * milliseconds. */
static int killed(struct harness_rank *r)
{
    int status;
    uint64_t failed_ns, *delays = r->scratch;
    if (coll_until_killed(r, 4u << 20, &status, &failed_ns) != 0)
        return 1;
    delays[r->rank] = failed_ns - harness_abort_ns(r);
    HARNESS_CHECK(r, status == COLLRUN_ERR_ABORTED);
    return 0;
}

static void a_killed_rank_blocks_no_other(void **state)
{
    (void)state;
    const bool may_die[4] = {false, true, false, false};
    struct harness_options options = options_for(4);
    options.may_die = may_die;
    options.abort_on_death = true;
    assert_int_equal(harness_run(&options, killed), 0);
    const uint64_t *delays = harness_scratch();
    print_message("# out after %.1f, %.1f and %.1f ms\n", (double)delays[0] / 1e6,
                  (double)delays[2] / 1e6, (double)delays[3] / 1e6);
}

static int refused(struct harness_rank *r)
{
    const uint32_t all[2] = {0, 1};
    struct harness_group *g = NULL;
    HARNESS_CHECK(r, harness_group_open(r, "far", all, 2, &g) == COLLRUN_ERR_UNSUPPORTED);
    HARNESS_CHECK(r, strstr(harness_error(), "on one host"));
    return 0;
}

static void several_hosts_are_refused(void **state)
{
    (void)state;
    const uint32_t hosts[2] = {0, 1};
    struct harness_options options = options_for(2);
    options.host_of = hosts;
    options.no_group = true;
    assert_int_equal(harness_run(&options, refused), 0);
}

static void a_description_of_an_older_engine_is_understood(void **state)
{
    (void)state;
    struct harness_options options = options_for(3);
    options.desc_size = offsetof(struct collrun_group_desc, collectives_handle);
    assert_int_equal(harness_run(&options, two_groups), 0);
}

/* A struct of another size: what is missing is zero, what is unknown is left out. */
static void sized_structs_are_copied(void **state)
{
    (void)state;
    struct collrun_group_desc desc;
    struct {
        uint32_t size, rank, later[200];
    } other;
    memset(&other, 7, sizeof other);
    other.size = 8;
    COLLRUN_COPY(&desc, &other);
    assert_int_equal(desc.rank, 0x07070707);
    assert_int_equal(desc.nranks, 0);
    assert_null(desc.collectives_handle);
    other.size = sizeof other;
    COLLRUN_COPY(&desc, &other);
    assert_int_equal(desc.deadline_ns, 0x0707070707070707);
}

/* ---- memory ---- */

static int heap_use(struct harness_rank *r)
{
    const struct collrun_backend *b = r->backend;
    void *group = r->group->handle;
    void *p[100];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 100; i++) {
            HARNESS_CHECK(r, b->alloc(group, (size_t)(i * 777 % 9000), &p[i]) == COLLRUN_OK);
            memset(p[i], i, (size_t)(i * 777 % 9000));
        }
        for (int i = 0; i < 100; i++) {
            const char *bytes = p[i * 37 % 100];
            for (int k = 0; k < i * 37 % 100 * 777 % 9000; k++)
                HARNESS_CHECK(r, bytes[k] == (char)(i * 37 % 100));
            HARNESS_CHECK(r, b->free(group, p[i * 37 % 100]) == COLLRUN_OK);
        }
    }
    HARNESS_CHECK(r, b->free(group, p) == COLLRUN_ERR_INVALID);
    HARNESS_CHECK(r, b->alloc(group, SIZE_MAX / 2, &p[0]) == COLLRUN_ERR_NO_MEMORY);
    return 0;
}

static void heap_gives_and_takes(void **state)
{
    (void)state;
    const struct harness_options options = options_for(2);
    assert_int_equal(harness_run(&options, heap_use), 0);
}

/* With an argument: only the tests whose names match that pattern. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        COLL_SUITE(&suite),
        cmocka_unit_test(large_messages),
        cmocka_unit_test(many_ranks_reduce_short_vectors),
        cmocka_unit_test(groups_do_not_mix),
        cmocka_unit_test(disagreement_is_explained),
        cmocka_unit_test(disagreement_of_ranks_that_do_not_wait_is_found),
        cmocka_unit_test(ranks_that_need_nothing_return_first),
        cmocka_unit_test(ranks_that_are_ahead_overwrite_nothing),
        cmocka_unit_test(uneven_disagreement_is_explained),
        cmocka_unit_test(time_outs_name_who_is_missing),
        cmocka_unit_test(abort_unblocks_all_ranks),
        cmocka_unit_test(a_killed_rank_blocks_no_other),
        cmocka_unit_test(several_hosts_are_refused),
        cmocka_unit_test(a_description_of_an_older_engine_is_understood),
        cmocka_unit_test(sized_structs_are_copied),
        cmocka_unit_test(heap_gives_and_takes),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
