/* SPDX-License-Identifier: Apache-2.0
 *
 * The Gloo backend's collectives, through the harness: every kind, type and operator at sizes on
 * both sides of every border between algorithms, one to six ranks, on one simulated host and on
 * several; then many groups, and what goes wrong (net_failures.h). Point to point is
 * test_gloo_p2p.c.
 */
#include "coll_suite.h"
#include "coll_sweeps.h"
#include "net_failures.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

static struct harness_options options_for(uint32_t nranks)
{
    return (struct harness_options){.path = harness_backend_path("gloo"), .nranks = nranks};
}

/* Nine ranks on dedicated cores: a tree of two levels. */
static struct coll_suite suite = {
    .backend = "gloo",
    .counts = {0, 1, 7, 1000, 2100},
    .ncounts = 5,
    .processes = 6,
    .dedicated = 9,
    .long_count = 30001,
    .random_calls = 300,
    .oversubscribed = 24,
    .repetitions = 3,
};

/* ---- more data ---- */

/* Counts around messages, pieces and chunks; the last ones take several rounds. */
static int large(struct harness_rank *r)
{
    static const size_t counts[] = {2048, 2049, 65537, 262145, 1310720};
    uint32_t turn = r->options->host_of ? 1 : 0;
    for (size_t k = 0; k < COLL_NKINDS; k++)
        for (size_t s = 0; s < sizeof(counts) / sizeof(counts[0]); s++, turn++) {
            struct coll_case c = {.kind = coll_kinds[k], .count = counts[s], .salt = turn};
            c.dtype = turn % 5 == 4 ? COLLRUN_BFLOAT16 : COLLRUN_FLOAT32;
            c.root = turn % r->nranks;
            c.in_place = turn % 2 && coll_has_in_place(c.kind);
            c.shift = turn % 3 == 2;
            /* blocks per pair: keep the whole at the size of the others */
            if (s >= 3 && c.kind != COLLRUN_ALLREDUCE && c.kind != COLLRUN_REDUCE &&
                c.kind != COLLRUN_BROADCAST)
                c.count /= r->nranks;
            if (coll_run_native(r, r->group, &c) != 0)
                return 1;
        }
    return 0;
}

static void large_messages(void **state)
{
    (void)state;
    const struct harness_options options = options_for(6);
    assert_int_equal(harness_run_each(&options, 2, large), 0);
}

static int every_kind(struct harness_rank *r)
{
    return coll_every_variant(r, suite.counts, suite.ncounts, false);
}

/* Several ranks on each of several hosts, not in order: rings, and trees below the hosts. */
static void several_hosts(void **state)
{
    (void)state;
    const uint32_t hosts[6] = {0, 1, 0, 2, 1, 0};
    struct harness_options options = options_for(6);
    options.host_of = hosts;
    assert_int_equal(harness_run(&options, large), 0);
    assert_int_equal(harness_run(&options, every_kind), 0);
    options.nranks = 3;
    assert_int_equal(harness_run(&options, large), 0);
}

/* No rank leaves an operation of count 0 before the last one has called it. */
static int empty_operations(struct harness_rank *r)
{
    static const enum collrun_kind all_meet[] = {COLLRUN_BARRIER, COLLRUN_ALLREDUCE,
                                                 COLLRUN_ALLGATHER, COLLRUN_ALLTOALL};
    _Atomic uint32_t *come = r->scratch;
    for (uint32_t turn = 0; turn < 4 * r->nranks; turn++) {
        struct collrun_call call = COLLRUN_CALL(all_meet[turn % 4]);
        if (turn / 4 == r->rank)
            harness_lag_us(20000);
        (*come)++;
        HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK);
        HARNESS_CHECK(r, *come >= (turn + 1) * r->nranks);
    }
    return 0;
}

static void empty_operations_synchronise(void **state)
{
    (void)state;
    const struct harness_options options = options_for(4);
    assert_int_equal(harness_run_each(&options, 2, empty_operations), 0);
}

static int ipv6(struct harness_rank *r)
{
    const struct coll_case c = {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_INT64, .count = 5000};
    return coll_run_native(r, r->group, &c);
}

static void ipv6_addresses(void **state)
{
    (void)state;
    struct harness_options options = options_for(3);
    options.address = "::1";
    assert_int_equal(harness_run(&options, ipv6), 0);
}

static int bad_address(struct harness_rank *r)
{
    const uint32_t all[2] = {0, 1};
    struct harness_group *g = NULL;
    HARNESS_CHECK(r, harness_group_open(r, "x", all, 2, &g) == COLLRUN_ERR_SYSTEM);
    HARNESS_CHECK(r, strstr(harness_error(), "203.0.113.7"));
    return 0;
}

static void foreign_address_is_refused(void **state)
{
    (void)state;
    struct harness_options options = options_for(2);
    options.address = "203.0.113.7";
    options.no_group = true;
    assert_int_equal(harness_run(&options, bad_address), 0);
}

/* ---- groups ---- */

static uint32_t entries_of(const char *path)
{
    DIR *d = opendir(path);
    uint32_t n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* Twenty groups over the same ranks, every other one in reverse order, used in turn. */
static int twenty_groups(struct harness_rank *r)
{
    struct harness_group *groups[20];
    const uint32_t order[2][3] = {{0, 1, 2}, {2, 1, 0}};
    const uint32_t before = entries_of("/proc/self/task");
    char name[16];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "g%d", i);
        HARNESS_CHECK(r, harness_group_open(r, name, order[i % 2], 3, &groups[i]) == COLLRUN_OK);
    }
    if (coll_across_groups(r, groups, 20, 3, 100) != 0)
        return 1;
    const uint32_t threads = entries_of("/proc/self/task");
    for (int i = 0; i < 20; i++)
        harness_group_close(groups[i]);
    HARNESS_CHECK(r, threads <= before + 1); /* the service thread of the endpoint */
    return 0;
}

static void twenty_groups_in_one_process(void **state)
{
    (void)state;
    const struct harness_options options = options_for(3);
    assert_int_equal(harness_run(&options, twenty_groups), 0);
}

static int reopen(struct harness_rank *r)
{
    uint32_t fds = 0;
    uint32_t threads = 0;
    const uint32_t all[3] = {0, 1, 2};
    for (uint32_t i = 0; i < 200; i++) {
        const struct coll_case c = {
            .kind = coll_kinds[i % COLL_NKINDS], .count = i * 20, .salt = i};
        struct harness_group *g = NULL;
        HARNESS_CHECK(r, harness_group_open(r, "again", all, 3, &g) == COLLRUN_OK);
        if (coll_run_native(r, g, &c) != 0)
            return 1;
        harness_group_close(g);
        if (i == 10) {
            fds = entries_of("/proc/self/fd");
            threads = entries_of("/proc/self/task");
        }
    }
    HARNESS_CHECK(r, entries_of("/proc/self/fd") <= fds);
    HARNESS_CHECK(r, entries_of("/proc/self/task") <= threads);
    return 0;
}

static void groups_reopen_without_growth(void **state)
{
    (void)state;
    struct harness_options options = options_for(3);
    options.no_group = true;
    const uint64_t start = harness_now_ns();
    assert_int_equal(harness_run(&options, reopen), 0);
    print_message("# 200 groups of 3: %.2f s\n", (double)(harness_now_ns() - start) / 1e9);
}

/* ---- memory ---- */

/* A rank that is not the root needs memory of that size for Gloo; and the root, in place. */
static int again_and_again(struct harness_rank *r)
{
    const size_t count = 12u << 20; /* more than malloc keeps, which is 32 MiB */
    float *data = calloc(count, sizeof(*data));
    HARNESS_CHECK(r, data);
    struct collrun_call call = COLLRUN_CALL(r->arg ? COLLRUN_ALLTOALL : COLLRUN_REDUCE);
    call.send = call.recv = data;
    call.count = r->arg ? count / r->nranks : count;
    call.dtype = COLLRUN_FLOAT32;
    struct rusage before, after;
    HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK);
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < 4; i++)
        HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK);
    getrusage(RUSAGE_SELF, &after);
    free(data);
    /* one call's worth of pages is enough for whatever else faults */
    HARNESS_CHECK(r, after.ru_minflt - before.ru_minflt < (long)(count * sizeof(*data) / 4096));
    return 0;
}

static void memory_of_a_call_serves_the_next(void **state)
{
    (void)state;
    struct harness_options options = options_for(2);
    assert_int_equal(harness_run(&options, again_and_again), 0);
    options.arg = &options;
    assert_int_equal(harness_run(&options, again_and_again), 0);
}

/* ---- failures ---- */

/* What a rank sends to itself is compared, too. */
static int own_block(struct harness_rank *r)
{
    const size_t out[2] = {1, 2}, in[2] = {2, r->rank == 0 ? 1 : 2};
    char buf[8] = {0};
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLTOALLV);
    call.send = buf;
    call.recv = buf + 4;
    call.sendcounts = out;
    call.recvcounts = in;
    call.dtype = COLLRUN_UINT8;
    HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_ERR_MISMATCH);
    HARNESS_CHECK(r,
                  strstr(harness_error(), "rank 0 sends 1 elements to rank 0, which receives 2"));
    return 0;
}

static void a_block_to_oneself_is_compared(void **state)
{
    (void)state;
    const struct harness_options options = options_for(2);
    assert_int_equal(harness_run(&options, own_block), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        COLL_SUITE_IN_PROCESSES(&suite),
        cmocka_unit_test(large_messages),
        cmocka_unit_test(several_hosts),
        cmocka_unit_test(empty_operations_synchronise),
        cmocka_unit_test(ipv6_addresses),
        cmocka_unit_test(foreign_address_is_refused),
        cmocka_unit_test(twenty_groups_in_one_process),
        cmocka_unit_test(groups_reopen_without_growth),
        cmocka_unit_test(memory_of_a_call_serves_the_next),
        cmocka_unit_test(a_block_to_oneself_is_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) + net_failures_run("gloo");
}
