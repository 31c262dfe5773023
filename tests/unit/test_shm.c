/* SPDX-License-Identifier: Apache-2.0
 *
 * The shm backend's collectives, through the rig: every kind at small and large sizes, plain, in
 * place, in the shared heap and out of alignment, for one to eight ranks, in processes and in
 * threads; then crowds, disagreement, time-outs and aborts. Point to point is test_shm_p2p.c.
 */
#include "coll_failures.h"
#include "coll_suite.h"
#include "coll_sweeps.h"
#include "reduce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct rig_options options_for(uint32_t nranks)
{
    return (struct rig_options){.path = rig_backend_path("shm"), .nranks = nranks};
}

static struct coll_suite suite = {
    .backend = "shm",
    .counts = {0, 1, 7, 10, 11, 1000, 4099},
    .ncounts = 7,
    .processes = 8,
    .threads = 4,
    .alone = 5,
    .many = 9001,
    .turns = 600,
    .crowd = 64,
    .rounds = 20,
    .heap = true,
};

/* ---- more data ---- */

/* Several turns of the ring, with lengths around the borders of chunks. */
static int large(struct rig_rank *r)
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
        struct rig_options options = options_for(worlds[i]);
        options.limit_s = 120; /* sanitizers on a busy machine */
        assert_int_equal(rig_run(&options, large), 0);
    }
}

/* Two groups of the same ranks in different order, used in turn. */
static int two_groups(struct rig_rank *r)
{
    const uint32_t turned[3] = {2, 0, 1};
    struct rig_group *groups[2] = {r->group};
    RIG_CHECK(r, rig_group_open(r, "turned", turned, 3, &groups[1]) == COLLRUN_OK);
    if (coll_across_groups(r, groups, 2, 3, 30) != 0)
        return 1;
    rig_group_close(groups[1]);
    return 0;
}

static void groups_do_not_mix(void **state)
{
    (void)state;
    const struct rig_options options = options_for(3);
    assert_int_equal(rig_run(&options, two_groups), 0);
}

/* ---- failures ---- */

/* Rank 1 differs from the others in one field; buffers stay as they are. */
static int disagree(struct rig_rank *r)
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
    RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_ERR_MISMATCH);
    RIG_CHECK(r, strstr(rig_error(), words));
    RIG_CHECK(r, strstr(rig_error(), "calls reduce(100 x float32, sum, root 0)"));
    RIG_CHECK(r, strstr(rig_error(), "rank 1 "));
    for (size_t i = 0; i < sizeof(buf); i++)
        RIG_CHECK(r, buf[i] == 1);
    return coll_stays_failed(r, r->group, COLLRUN_ERR_MISMATCH);
}

static void disagreement_is_explained(void **state)
{
    (void)state;
    for (int which = 0; which < 5; which++)
        for (uint32_t n = 2; n <= 4; n++) {
            struct rig_options options = options_for(n);
            options.arg = &which;
            assert_int_equal(rig_run(&options, disagree), 0);
        }
}

/* Each uneven kind, with one pair of ranks that disagrees about one count. */
static int disagree_uneven(struct rig_rank *r)
{
    struct coll_uneven u;
    coll_uneven_init(&u, *(const enum collrun_kind *)r->arg, r->rank);
    RIG_CHECK(r, rig_exec(r->group, &u.call, 1) == COLLRUN_ERR_MISMATCH);
    RIG_CHECK(r, strstr(rig_error(), "elements to rank"));
    for (size_t i = 0; i < sizeof(u.recv); i++)
        RIG_CHECK(r, u.recv[i] == 1);
    return coll_stays_failed(r, r->group, COLLRUN_ERR_MISMATCH);
}

static void uneven_disagreement_is_explained(void **state)
{
    (void)state;
    for (enum collrun_kind kind = COLLRUN_ALLGATHERV; kind <= COLLRUN_ALLTOALLV; kind++) {
        struct rig_options options = options_for(3);
        options.arg = &kind;
        assert_int_equal(rig_run(&options, disagree_uneven), 0);
    }
}

/* Ranks 3 and 5 do not come; rank 3 comes later and hears of it. */
static int two_missing(struct rig_rank *r)
{
    char buf[8192] = {0};
    char me[32];
    _Atomic unsigned *over = r->scratch;
    struct collrun_call call = coll_call(COLLRUN_ALLREDUCE, buf, 1);
    snprintf(me, sizeof(me), "rank %u waited", r->rank);
    rig_sync(r);
    if (r->rank == 5)
        return 0;
    if (r->rank == 3)
        RIG_UNTIL(r, *over == 4);
    else
        call.timeout_ns = 1000000000u;
    const uint64_t start = rig_now_ns();
    RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_ERR_TIMEOUT);
    const uint64_t waited = rig_now_ns() - start;
    ++*over;
    RIG_CHECK(r, strstr(rig_error(), "waited 1.0 s for ranks 3,5"));
    RIG_CHECK(r, waited < 10000000000u);
    RIG_CHECK(r, !strstr(rig_error(), me) || waited >= 1000000000u);
    return coll_stays_failed(r, r->group, COLLRUN_ERR_TIMEOUT);
}

static void time_outs_name_who_is_missing(void **state)
{
    (void)state;
    struct rig_options options = options_for(6);
    assert_int_equal(rig_run(&options, two_missing), 0);
    options.ncpus = 64;
    assert_int_equal(rig_run(&options, two_missing), 0);
}

static int aborted(struct rig_rank *r)
{
    char buf[8192] = {0};
    const struct collrun_call call = coll_call(COLLRUN_BARRIER, buf, 0);
    if (r->rank == 1) {
        for (uint32_t other = 0; other < 4; other++)
            RIG_UNTIL(r, other == 1 || rig_inside_ms(r, other) >= 30);
        rig_abort_after(r, 0);
        return 0;
    }
    const uint64_t start = rig_now_ns();
    RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_ERR_ABORTED);
    RIG_CHECK(r, rig_now_ns() - start < 10000000000u);
    return coll_stays_failed(r, r->group, COLLRUN_ERR_ABORTED);
}

static void abort_unblocks_everyone(void **state)
{
    (void)state;
    for (uint32_t cpus = 1; cpus <= 65; cpus += 64) {
        struct rig_options options = options_for(4);
        options.ncpus = cpus;
        assert_int_equal(rig_run(&options, aborted), 0);
        options.threads = true;
        assert_int_equal(rig_run(&options, aborted), 0);
    }
}

/* Rank 1 dies somewhere inside a long allreduce; its host's agent aborts; the others are out within
 * milliseconds. */
static int killed(struct rig_rank *r)
{
    int status;
    uint64_t failed_ns, *delays = r->scratch;
    if (coll_until_killed(r, 4u << 20, &status, &failed_ns) != 0)
        return 1;
    delays[r->rank] = failed_ns - rig_abort_ns(r);
    RIG_CHECK(r, status == COLLRUN_ERR_ABORTED);
    return 0;
}

static void a_killed_rank_blocks_nobody(void **state)
{
    (void)state;
    const bool may_die[4] = {false, true, false, false};
    struct rig_options options = options_for(4);
    options.may_die = may_die;
    options.abort_on_death = true;
    assert_int_equal(rig_run(&options, killed), 0);
    const uint64_t *delays = rig_scratch();
    print_message("# out after %.1f, %.1f and %.1f ms\n", (double)delays[0] / 1e6,
                  (double)delays[2] / 1e6, (double)delays[3] / 1e6);
}

static int refused(struct rig_rank *r)
{
    const uint32_t all[2] = {0, 1};
    struct rig_group *g = NULL;
    RIG_CHECK(r, rig_group_open(r, "far", all, 2, &g) == COLLRUN_ERR_UNSUPPORTED);
    RIG_CHECK(r, strstr(rig_error(), "on one host"));
    return 0;
}

static void several_hosts_are_refused(void **state)
{
    (void)state;
    const uint32_t hosts[2] = {0, 1};
    struct rig_options options = options_for(2);
    options.host_of = hosts;
    options.no_group = true;
    assert_int_equal(rig_run(&options, refused), 0);
}

/* ---- memory ---- */

static int heap_use(struct rig_rank *r)
{
    const struct collrun_backend *b = r->backend;
    void *group = r->group->handle;
    void *p[100];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 100; i++) {
            RIG_CHECK(r, b->alloc(group, (size_t)(i * 777 % 9000), &p[i]) == COLLRUN_OK);
            memset(p[i], i, (size_t)(i * 777 % 9000));
        }
        for (int i = 0; i < 100; i++) {
            const char *bytes = p[i * 37 % 100];
            for (int k = 0; k < i * 37 % 100 * 777 % 9000; k++)
                RIG_CHECK(r, bytes[k] == (char)(i * 37 % 100));
            RIG_CHECK(r, b->free(group, p[i * 37 % 100]) == COLLRUN_OK);
        }
    }
    RIG_CHECK(r, b->free(group, p) == COLLRUN_ERR_INVALID);
    RIG_CHECK(r, b->alloc(group, SIZE_MAX / 2, &p[0]) == COLLRUN_ERR_NO_MEMORY);
    return 0;
}

static void heap_gives_and_takes(void **state)
{
    (void)state;
    const struct rig_options options = options_for(2);
    assert_int_equal(rig_run(&options, heap_use), 0);
}

/* With an argument: only the tests whose names match that pattern. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        COLL_SUITE(&suite),
        cmocka_unit_test(large_messages),
        cmocka_unit_test(groups_do_not_mix),
        cmocka_unit_test(disagreement_is_explained),
        cmocka_unit_test(uneven_disagreement_is_explained),
        cmocka_unit_test(time_outs_name_who_is_missing),
        cmocka_unit_test(abort_unblocks_everyone),
        cmocka_unit_test(a_killed_rank_blocks_nobody),
        cmocka_unit_test(several_hosts_are_refused),
        cmocka_unit_test(heap_gives_and_takes),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
