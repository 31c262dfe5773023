/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives on the TCP backend between ranks that each count as a host, so that all data crosses
 * sockets: lengths around the limit of eager data, whose first part leaves without a grant in
 * operations with a root, with ranks in step and late at random. Then what goes wrong
 * (net_failures.h).
 */
#include "coll_sweeps.h"
#include "net_failures.h"
#include "p2p_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int lengths(struct harness_rank *r)
{
    static const size_t counts[] = {0,     1,     8192,  8193,  16384, 16385,
                                    32768, 32769, 65536, 65537, 200000};
    return coll_every_variant(r, counts, sizeof counts / sizeof *counts, false);
}

static int late(struct harness_rank *r)
{
    return coll_out_of_step(r, 150, false);
}

/* Rank 0 broadcasts 128 KiB before another rank calls. */
static int root_is_early(struct harness_rank *r)
{
    static unsigned char buf[128 << 10];
    struct collrun_call call = COLLRUN_CALL(COLLRUN_BROADCAST);
    call.recv = buf;
    call.count = sizeof buf;
    call.dtype = COLLRUN_UINT8;
    if (r->rank == 0) {
        memset(buf, 7, sizeof buf);
        HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK);
    }
    harness_sync(r);
    if (r->rank != 0)
        HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK);
    HARNESS_CHECK(r, buf[0] == 7 && buf[sizeof buf - 1] == 7);
    harness_sync(r);
    return 0;
}

static void every_kind_and_length(void **state)
{
    struct harness_options options = options_for(state, 3);
    assert_int_equal(harness_run(&options, lengths), 0);
    options.nranks = 2;
    assert_int_equal(harness_run(&options, lengths), 0);
}

static void ranks_may_be_late(void **state)
{
    const struct harness_options options = options_for(state, 4);
    assert_int_equal(harness_run(&options, late), 0);
}

static void a_root_need_not_wait_for_short_blocks_to_be_asked_for(void **state)
{
    struct harness_options options = options_for(state, 2);
    options.timeout_ns = 5000000000u;
    assert_int_equal(harness_run(&options, root_is_early), 0);
}

/* A rank that waits for no other in this kind of operation calls it again and again, and another
 * one is late: that rank waits before much is under way. The message with its value arrives all the
 * same. */
static int far_ahead(struct harness_rank *r)
{
    enum { OPERATIONS = 400, BYTES = 64 << 10 };
    const enum collrun_kind kind = *(const enum collrun_kind *)r->arg;
    const unsigned most = collrun_kind_is_vector(kind) ? 270 : 20;
    const uint32_t early = kind == COLLRUN_BROADCAST || kind == COLLRUN_SCATTER ? 0 : 1;
    const size_t counts[2] = {BYTES, BYTES};
    _Atomic unsigned *completed = r->scratch;
    unsigned char *in = malloc(2 * BYTES), *out = calloc(2, BYTES);
    HARNESS_CHECK(r, in && out);
    if (r->rank != early) {
        HARNESS_UNTIL(r, *completed == OPERATIONS || harness_inside_ms(r, early) >= 50);
        HARNESS_CHECK(r, *completed <= most);
    }
    for (unsigned i = 0; i < OPERATIONS; i++) {
        struct collrun_call call = COLLRUN_CALL(kind);
        memset(in, (int)i, 2 * BYTES);
        call.send = in;
        call.recv = kind == COLLRUN_BROADCAST && r->rank == 0 ? in : out;
        call.count = BYTES;
        call.recvcounts = kind == COLLRUN_GATHERV ? counts : NULL;
        call.dtype = COLLRUN_UINT8;
        call.op = COLLRUN_MAX;
        HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK);
        if (r->rank == early)
            ++*completed;
        else
            HARNESS_CHECK(r, out[0] == (unsigned char)i && out[BYTES - 1] == (unsigned char)i);
    }
    free(in);
    free(out);
    return 0;
}

static void no_rank_is_far_ahead(void **state)
{
    static const enum collrun_kind kinds[] = {COLLRUN_BROADCAST, COLLRUN_SCATTER, COLLRUN_REDUCE,
                                              COLLRUN_GATHER, COLLRUN_GATHERV};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct harness_options options = options_for(state, 2);
        options.arg = (void *)(uintptr_t)&kinds[i];
        assert_int_equal(harness_run(&options, far_ahead), 0);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_and_length),
        cmocka_unit_test(ranks_may_be_late),
        cmocka_unit_test(a_root_need_not_wait_for_short_blocks_to_be_asked_for),
        cmocka_unit_test(no_rank_is_far_ahead),
    };
    return cmocka_run_group_tests(tests, each_alone, NULL) + net_failures_run("tcp");
}
