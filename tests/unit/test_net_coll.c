/* SPDX-License-Identifier: Apache-2.0
 *
 * The collectives of backends/net, over threads and a stand-in for the network that delays and
 * reorders messages (plugins/net_threads.c), with the real local group: every kind, type, operator,
 * root and form, for one to nine ranks, on hosts of every shape.
 */
#include "coll_failures.h"
#include "coll_sweeps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_RANKS 9u

struct layout {
    const char *name;
    uint32_t nranks;
    uint32_t host_of[MAX_RANKS];
};

static const struct layout layouts[] = {
    {"one rank", 1, {0}},
    {"two hosts", 2, {0, 1}},
    {"one host", 3, {0, 0, 0}},
    {"three hosts", 3, {0, 1, 2}},
    {"one and two", 3, {7, 3, 3}},
    {"cyclic", 4, {0, 1, 0, 1}},
    {"five hosts", 5, {0, 1, 2, 3, 4}},
    {"uneven", 6, {0, 0, 0, 1, 2, 2}},
    {"seven hosts", 7, {0, 1, 2, 3, 4, 5, 6}},
    {"cyclic, uneven", 8, {2, 1, 0, 2, 1, 2, 2, 1}},
    {"four pairs", 8, {0, 0, 1, 1, 2, 2, 3, 3}},
    {"mixed", 9, {4, 0, 0, 1, 2, 4, 3, 5, 0}},
};
#define NLAYOUTS (sizeof layouts / sizeof layouts[0])

/* $BUILD/tests/plugins/net_threads.so. */
static const char *plugin(void)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s", harness_backend_path("shm")); /* $BUILD/tests/../lib/... */
    char *tests = strstr(path, "/../lib/");
    if (tests)
        snprintf(tests, sizeof path - (size_t)(tests - path), "/plugins/net_threads.so");
    return path;
}

static struct harness_options options_for(const struct layout *layout)
{
    return (struct harness_options){
        .path = plugin(), .nranks = layout->nranks, .host_of = layout->host_of, .threads = true};
}

static void run_on_all(int (*fn)(struct harness_rank *r))
{
    for (size_t i = 0; i < NLAYOUTS; i++) {
        const struct harness_options options = options_for(&layouts[i]);
        if (harness_run(&options, fn) != 0)
            fail_msg("on the layout \"%s\"", layouts[i].name);
    }
}

/* ---- correct calls ---- */

static int every_kind(struct harness_rank *r)
{
    static const size_t counts[] = {0, 1, 7, 1000, 4099};
    return coll_every_variant(r, counts, 5, false);
}

static void every_kind_on_every_layout(void **state)
{
    (void)state;
    run_on_all(every_kind);
}

static int every_type(struct harness_rank *r)
{
    return coll_every_type(r, 5003);
}

static void every_type_and_operator(void **state)
{
    (void)state;
    static const size_t some[] = {1, 3, 4, 5, 7};
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        const struct harness_options options = options_for(&layouts[some[i]]);
        assert_int_equal(harness_run(&options, every_type), 0);
    }
}

/* Long enough for several pieces, and for lengths that do not divide. */
static int every_long_kind(struct harness_rank *r)
{
    static const size_t counts[] = {20011, 140009};
    uint32_t turn = 0;
    for (size_t k = 0; k < COLL_NKINDS; k++)
        for (size_t s = 0; s < 2; s++)
            for (int variant = 0; variant < 4; variant++, turn++) {
                struct coll_case c = {.kind = coll_kinds[k], .count = counts[s], .salt = turn};
                c.dtype = variant < 2 ? COLLRUN_FLOAT16 : COLLRUN_INT32;
                c.op = variant == 1 ? COLLRUN_AVG : COLLRUN_SUM;
                c.root = turn % r->nranks;
                c.in_place = variant % 2 == 1 && coll_has_in_place(c.kind);
                /* blocks per rank: keep the whole at the size of the others */
                if (s == 1 && c.kind != COLLRUN_ALLREDUCE && c.kind != COLLRUN_REDUCE &&
                    c.kind != COLLRUN_BROADCAST)
                    c.count /= r->nranks;
                if (coll_case_run(r, r->group, &c) != 0)
                    return 1;
            }
    return 0;
}

static void long_data_on_several_layouts(void **state)
{
    (void)state;
    static const size_t some[] = {1, 3, 4, 7, 9, NLAYOUTS - 1};
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        const struct harness_options options = options_for(&layouts[some[i]]);
        assert_int_equal(harness_run(&options, every_long_kind), 0);
    }
}

static int out_of_step(struct harness_rank *r)
{
    return coll_out_of_step(r, 200, false);
}

static void random_calls_with_late_ranks(void **state)
{
    (void)state;
    run_on_all(out_of_step);
}

/* Random floating point values, where every order of additions gives other bits. */
static int same_bits(struct harness_rank *r)
{
    enum { COUNT = 70001 };
    static const size_t counts[] = {1, 999, COUNT};
    uint64_t random = 77 + r->rank;
    float *in = malloc(COUNT * sizeof *in), *out = malloc(COUNT * sizeof *out);
    float *all = malloc(COUNT * sizeof *all * r->nranks);
    int result = in && out && all ? 0 : 1;
    for (size_t i = 0; result == 0 && i < COUNT; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        in[i] = (float)(random >> 40) * 1e-3f * (random >> 39 & 1 ? 1 : -1e-4f);
        const uint32_t nan = 0x7fc00000u + r->rank + 1; /* of two, the first one is the sum */
        if (i % 50 == 49)
            memcpy(&in[i], &nan, sizeof nan);
    }
    for (size_t k = 0; result == 0 && k < 3; k++) {
        struct collrun_call calls[2] = {COLLRUN_CALL(COLLRUN_ALLREDUCE),
                                        COLLRUN_CALL(COLLRUN_ALLGATHER)};
        calls[0].send = in, calls[0].recv = out;
        calls[1].send = out, calls[1].recv = all;
        for (int i = 0; i < 2; i++)
            calls[i].count = counts[k], calls[i].dtype = COLLRUN_FLOAT32;
        if (harness_exec(r->group, &calls[0], 1) != COLLRUN_OK ||
            harness_exec(r->group, &calls[1], 1) != COLLRUN_OK)
            result = harness_fail(r, "%s", harness_error());
        for (uint32_t other = 0; result == 0 && other < r->nranks; other++)
            if (memcmp(all + other * counts[k], out, counts[k] * sizeof *out) != 0)
                result = harness_fail(r, "rank %u has other bits, count %zu", other, counts[k]);
    }
    free(in);
    free(out);
    free(all);
    return result;
}

static void sums_have_the_same_bits_on_all_ranks(void **state)
{
    (void)state;
    run_on_all(same_bits);
}

/* 2048 + 1 is 2048 in float16: only what is rounded once gets further. */
static int half_sums(struct harness_rank *r)
{
    enum { COUNT = 100003 };
    static const size_t counts[] = {3, COUNT};
    uint16_t *in = malloc(COUNT * sizeof *in), *out = malloc(COUNT * sizeof *out);
    int result = in && out ? 0 : 1;
    for (size_t i = 0; result == 0 && i < COUNT; i++)
        in[i] = r->rank == 0 ? 0x6800 : 0x3c00; /* 2048, 1 */
    const uint32_t ones = r->nranks - 1;
    const uint16_t even = (uint16_t)(0x6800 + ones / 2 + (ones % 4 == 3)); /* ties to even */
    for (int k = 0; result == 0 && k < 4; k++) {
        struct collrun_call call = COLLRUN_CALL(k < 2 ? COLLRUN_ALLREDUCE : COLLRUN_REDUCE);
        call.send = in, call.recv = out, call.count = counts[k % 2];
        call.dtype = COLLRUN_FLOAT16, call.root = 0;
        if (harness_exec(r->group, &call, 1) != COLLRUN_OK)
            result = harness_fail(r, "%s", harness_error());
        for (size_t i = 0; result == 0 && i < call.count && (k < 2 || r->rank == 0); i++)
            if (out[i] != even)
                result = harness_fail(r, "case %d, element %zu: %x, not %x", k, i, out[i], even);
    }
    free(in);
    free(out);
    return result;
}

static void half_precision_is_rounded_once(void **state)
{
    (void)state;
    run_on_all(half_sums);
}

static int all_kinds_once(struct harness_rank *r)
{
    static const size_t counts[] = {5, 5000};
    return coll_every_variant(r, counts, 2, false);
}

/* The option `local: tcp`: each rank counts as a host. */
static void ranks_of_a_host_use_the_network(void **state)
{
    (void)state;
    static const char *const settings[] = {"local", "tcp", NULL};
    struct harness_options options = options_for(&layouts[NLAYOUTS - 1]);
    options.settings = settings;
    assert_int_equal(harness_run(&options, all_kinds_once), 0);
}

/* ---- failures ---- */

/* Rank 1, on a host with rank 0, differs from the others. */
static int disagree(struct harness_rank *r)
{
    char buf[8192] = {0};
    struct collrun_call call = coll_call(COLLRUN_ALLREDUCE, buf, 100);
    if (r->rank == 1)
        call = coll_call(*(const int *)r->arg ? COLLRUN_BARRIER : COLLRUN_REDUCE, buf, 100);
    int status = harness_exec(r->group, &call, 1);
    if (status == COLLRUN_OK) {
        /* A leaf of a reduce does not wait for the others: its next call fails. */
        HARNESS_CHECK(r, call.kind == COLLRUN_REDUCE);
        call = coll_call(COLLRUN_BARRIER, buf, 0);
        status = harness_exec(r->group, &call, 1);
    }
    HARNESS_CHECK(r, status == COLLRUN_ERR_MISMATCH);
    if (r->rank < 2) {
        HARNESS_CHECK(r, strstr(harness_error(), "calls allreduce(100 x float32, sum)"));
        HARNESS_CHECK(r, strstr(harness_error(), *(const int *)r->arg
                                                     ? "rank 1 calls barrier()"
                                                     : "rank 1 calls reduce(100 x float32, sum"));
    }
    return 0;
}

static void disagreement_on_one_host_shows_the_calls(void **state)
{
    (void)state;
    static const struct layout pairs = {"pairs", 4, {0, 0, 1, 1}};
    struct harness_options options = options_for(&pairs);
    for (int other = 0; other < 2; other++) {
        options.arg = &other;
        assert_int_equal(harness_run(&options, disagree), 0);
    }
}

/* Rank 5 does not call: the others of its host name it. */
static int one_missing(struct harness_rank *r)
{
    char buf[8192] = {0};
    struct collrun_call call = coll_call(COLLRUN_BARRIER, buf, 0);
    call.timeout_ns = 1000000000u;
    if (r->rank != 3 && r->rank != 4)
        return 0;
    HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_ERR_TIMEOUT);
    const char *waited = strstr(harness_error(), " waited ");
    HARNESS_CHECK(r, waited && strtod(waited + strlen(" waited "), NULL) >= 1);
    HARNESS_CHECK(r, strstr(waited, " s for rank 5"));
    return 0;
}

static void a_missing_rank_is_named_on_its_host(void **state)
{
    (void)state;
    static const struct layout triples = {"triples", 6, {0, 0, 0, 1, 1, 1}};
    const struct harness_options options = options_for(&triples);
    assert_int_equal(harness_run(&options, one_missing), 0);
}

static int aborted(struct harness_rank *r)
{
    char buf[8192] = {0};
    const struct collrun_call call = coll_call(COLLRUN_ALLREDUCE, buf, 10);
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
    static const struct layout pairs = {"pairs", 4, {0, 0, 1, 1}};
    const struct harness_options options = options_for(&pairs);
    assert_int_equal(harness_run(&options, aborted), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_on_every_layout),
        cmocka_unit_test(every_type_and_operator),
        cmocka_unit_test(long_data_on_several_layouts),
        cmocka_unit_test(random_calls_with_late_ranks),
        cmocka_unit_test(sums_have_the_same_bits_on_all_ranks),
        cmocka_unit_test(half_precision_is_rounded_once),
        cmocka_unit_test(ranks_of_a_host_use_the_network),
        cmocka_unit_test(disagreement_on_one_host_shows_the_calls),
        cmocka_unit_test(a_missing_rank_is_named_on_its_host),
        cmocka_unit_test(abort_unblocks_all_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
