/* SPDX-License-Identifier: Apache-2.0
 *
 * A backend between hosts when something goes wrong in a collective: ranks that disagree, are late,
 * are aborted, or are killed. Each rank counts as a host. See net_failures.h.
 */
#include "net_failures.h"

#include "coll_failures.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define MS 1000000u

/* `state`: of the test, which is the name of the backend. */
static struct harness_options options_for(void **state, uint32_t nranks)
{
    static const char *const network_only[] = {"local", "tcp", NULL};
    return (struct harness_options){
        .path = harness_backend_path(*state), .nranks = nranks, .settings = network_only};
}

/* ---- disagreement ---- */

/* Rank 1 differs from the others in one field, in small and in large calls. */
static int disagree(struct harness_rank *r)
{
    const int which = *(const int *)r->arg;
    const size_t count = which >= 10 ? 1u << 20 : 100;
    char *buf = calloc(2, count * 8 + 4096);
    HARNESS_CHECK(r, buf);
    struct collrun_call call = coll_call(COLLRUN_ALLREDUCE, buf, count);
    call.recv = buf + count * 8;
    const bool odd = r->rank == 1;
    if (odd && which % 10 == 0)
        call.count++;
    if (odd && which % 10 == 1)
        call.dtype = COLLRUN_INT32;
    if (odd && which % 10 == 2)
        call.op = COLLRUN_MAX;
    if (odd && which % 10 == 3)
        call.kind = COLLRUN_BARRIER;
    if (odd && which % 10 == 4)
        call.count = which >= 10 ? 1 : 1u << 17; /* another algorithm */
    if (odd && which % 10 == 4 && which < 10)
        call.send = call.recv = calloc(1, 4u << 17);
    const int status = harness_exec(r->group, &call, 1);
    if (call.send == call.recv)
        free(call.recv);
    free(buf);
    HARNESS_CHECK(r, status == COLLRUN_ERR_MISMATCH);
    HARNESS_CHECK(r, strstr(harness_error(), which % 10 == 3 ? "barrier" : "allreduce(1"));
    HARNESS_CHECK(r, strstr(harness_error(), "rank 1"));
    return coll_stays_failed(r, r->group, COLLRUN_ERR_MISMATCH);
}

static void disagreement_is_explained(void **state)
{
    for (int which = 0; which < 15; which = which == 4 ? 10 : which + 1) {
        struct harness_options options = options_for(state, which % 2 ? 2 : 3);
        options.arg = &which;
        assert_int_equal(harness_run(&options, disagree), 0);
    }
}

/* Each uneven kind, with one pair of ranks that disagrees about one count. */
static int disagree_uneven(struct harness_rank *r)
{
    struct coll_uneven u;
    coll_uneven_init(&u, *(const enum collrun_kind *)r->arg, r->rank);
    const int status = harness_exec(r->group, &u.call, 1);
    if (status == COLLRUN_ERR_UNSUPPORTED)
        return 0;
    _Atomic unsigned *noticed = r->scratch; /* some may be done without noticing */
    if (status == COLLRUN_ERR_MISMATCH)
        HARNESS_CHECK(r, strstr(harness_error(), " elements to rank ") && ++*noticed);
    HARNESS_CHECK(r, status == COLLRUN_OK || status == COLLRUN_ERR_MISMATCH);
    harness_sync(r);
    HARNESS_CHECK(r, *noticed > 0);
    return 0;
}

static void uneven_disagreement_is_explained(void **state)
{
    for (enum collrun_kind kind = COLLRUN_ALLGATHERV; kind <= COLLRUN_ALLTOALLV; kind++) {
        struct harness_options options = options_for(state, 3);
        options.arg = &kind;
        options.timeout_ns = 3000ull * MS;
        assert_int_equal(harness_run(&options, disagree_uneven), 0);
    }
}

/* ---- time-outs ---- */

/* "rank 0 waited 0.3 s for rank 2"; the limit may have passed for another rank first. */
static bool is_time_out(const char *text, uint32_t me, uint64_t waited)
{
    char mine[32];
    double s = 0;
    const char *says = strstr(text, "waited ");
    snprintf(mine, sizeof mine, "rank %u waited ", me);
    return says && sscanf(says, "waited %lf s for rank", &s) == 1 && s >= 0.3 &&
           (waited > 290 * MS || !strstr(text, mine));
}

static int one_missing(struct harness_rank *r)
{
    const size_t count = *(const size_t *)r->arg;
    char *buf = calloc(2, count * 4 + 1);
    HARNESS_CHECK(r, buf);
    struct collrun_call call = coll_call(COLLRUN_ALLREDUCE, buf, count);
    call.recv = buf + count * 4;
    call.timeout_ns = 300 * MS;
    const uint64_t start = harness_now_ns();
    const int status = r->rank == 2 ? COLLRUN_OK : harness_exec(r->group, &call, 1);
    const uint64_t waited = harness_now_ns() - start;
    free(buf);
    harness_sync(r);
    if (r->rank == 2)
        return 0;
    HARNESS_CHECK(r, status == COLLRUN_ERR_TIMEOUT);
    HARNESS_CHECK(r, is_time_out(harness_error(), r->rank, waited));
    HARNESS_CHECK(r, waited < HARNESS_AT_ONCE_NS);
    return coll_stays_failed(r, r->group, COLLRUN_ERR_TIMEOUT);
}

static void time_outs_name_who_is_missing(void **state)
{
    for (size_t count = 1; count <= 2000000; count += 1999999) {
        struct harness_options options = options_for(state, 4);
        options.arg = &count;
        assert_int_equal(harness_run(&options, one_missing), 0);
    }
}

/* ---- aborts and deaths ---- */

/* Rank 0 broadcasts to ranks that never call, until rank 1 aborts the group on all ranks. */
static int aborted(struct harness_rank *r)
{
    const size_t bytes = *(const size_t *)r->arg;
    char *buf = calloc(1, bytes);
    HARNESS_CHECK(r, buf);
    struct collrun_call call = COLLRUN_CALL(COLLRUN_BROADCAST);
    call.recv = buf;
    call.count = bytes;
    call.dtype = COLLRUN_UINT8;
    harness_sync(r);
    if (r->rank == 1) {
        HARNESS_UNTIL(r, harness_inside_ms(r, 0) >= 30);
        harness_abort_everywhere(r);
    }
    const int status = r->rank == 0 ? harness_exec(r->group, &call, 1) : COLLRUN_ERR_ABORTED;
    uint64_t *delays = r->scratch;
    if (r->rank == 0)
        delays[0] = harness_now_ns() - harness_abort_ns(r);
    harness_sync(r); /* no rank closes before all calls have returned */
    free(buf);
    HARNESS_CHECK(r, status == COLLRUN_ERR_ABORTED);
    return r->rank == 0 ? coll_stays_failed(r, r->group, COLLRUN_ERR_ABORTED) : 0;
}

static void abort_unblocks_all(void **state)
{
    size_t bytes = 1u << 20; /* a shorter one has left when its root returns */
    struct harness_options options = options_for(state, 3);
    options.arg = &bytes;
    assert_int_equal(harness_run(&options, aborted), 0);
    const uint64_t *delays = harness_scratch();
    print_message("# %zu bytes: out after %.2f ms\n", bytes, (double)delays[0] / 1e6);
    assert_true(delays[0] < HARNESS_AT_ONCE_NS);
}

/* Ranks 0 and 1 transfer 1 GiB; the receiver's memory is shared with rank 2, which sees the
 * progress and aborts the group on all ranks in the middle. */
#define GIB (1ull << 30)

static int aborted_midway(struct harness_rank *r)
{
    volatile char *in = r->arg;
    uint64_t *delays = r->scratch;
    char *out = r->rank == 0 ? calloc(1, GIB) : NULL;
    if (out)
        out[GIB / 4] = out[GIB - 1] = 1;
    harness_sync(r);
    if (r->rank == 2) {
        HARNESS_UNTIL(r, in[GIB / 4]);
        harness_abort_everywhere(r);
        harness_sync(r);
        return 0;
    }
    struct collrun_call call = COLLRUN_CALL(r->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV);
    call.send = out;
    call.recv = r->arg;
    call.count = GIB;
    call.dtype = COLLRUN_UINT8;
    call.peer = 1 - (int)r->rank;
    const int status = harness_exec(r->group, &call, 1);
    delays[r->rank] = harness_now_ns() - harness_abort_ns(r);
    free(out);
    const bool all = in[GIB - 1];
    HARNESS_CHECK(r, status == COLLRUN_ERR_ABORTED);
    harness_sync(r); /* no rank closes before all calls have returned */
    HARNESS_CHECK(r, !all);
    return 0;
}

static void abort_in_the_middle_of_a_gibibyte(void **state)
{
    struct harness_options options = options_for(state, 3);
    options.timeout_ns = 60000ull * MS;
    options.limit_s = 90;
    options.arg = mmap(NULL, GIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(options.arg != MAP_FAILED);
    assert_int_equal(harness_run(&options, aborted_midway), 0);
    munmap(options.arg, GIB);
    const uint64_t *delays = harness_scratch();
    print_message("# sender out after %.2f ms, receiver after %.2f ms\n", (double)delays[0] / 1e6,
                  (double)delays[1] / 1e6);
    assert_true(delays[0] < HARNESS_AT_ONCE_NS && delays[1] < HARNESS_AT_ONCE_NS);
}

/* Rank 1 dies somewhere inside a long operation; the agent aborts; the others are out at once. */
static int killed(struct harness_rank *r)
{
    int status;
    uint64_t failed_ns, *delays = r->scratch;
    if (coll_until_killed(r, *(const size_t *)r->arg, &status, &failed_ns) != 0)
        return 1;
    /* the connection may end before the agent reports the death */
    HARNESS_CHECK(r, status == COLLRUN_ERR_ABORTED || status == COLLRUN_ERR_PEER_FAILED ||
                         (!r->options->abort_on_death && status == COLLRUN_ERR_TIMEOUT));
    if (status == COLLRUN_ERR_PEER_FAILED)
        HARNESS_CHECK(r, strstr(harness_error(), "rank "));
    HARNESS_UNTIL(r, !r->options->abort_on_death || harness_abort_ns(r));
    const uint64_t abort_ns = harness_abort_ns(r);
    delays[r->rank] = failed_ns > abort_ns ? failed_ns - abort_ns : 0;
    return coll_stays_failed(r, r->group, status);
}

static void a_killed_rank_blocks_no_rank(void **state)
{
    const bool may_die[4] = {false, true, false, false};
    for (size_t count = 1u << 20; count <= 16u << 20; count *= 16) {
        struct harness_options options = options_for(state, 4);
        options.may_die = may_die;
        options.abort_on_death = true;
        options.arg = &count;
        assert_int_equal(harness_run(&options, killed), 0);
        const uint64_t *delays = harness_scratch();
        print_message("# out %.1f, %.1f and %.1f ms after the abort\n", (double)delays[0] / 1e6,
                      (double)delays[2] / 1e6, (double)delays[3] / 1e6);
    }
}

/* Without an agent: a rank that waits for the dead one sees the end of the connection. */
static int killed_alone(struct harness_rank *r)
{
    char buf[8192] = {0};
    const struct collrun_call call = coll_call(COLLRUN_ALLREDUCE, buf, 10);
    HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK);
    if (r->rank == 1)
        harness_kill(r, 1);
    const uint64_t start = harness_now_ns();
    HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_ERR_PEER_FAILED);
    HARNESS_CHECK(r, harness_now_ns() - start < HARNESS_AT_ONCE_NS);
    HARNESS_CHECK(r, strstr(harness_error(), "connection to rank 1: "));
    return coll_stays_failed(r, r->group, COLLRUN_ERR_PEER_FAILED);
}

static void a_closed_connection_names_the_peer(void **state)
{
    const bool may_die[2] = {false, true};
    struct harness_options options = options_for(state, 2);
    options.may_die = may_die;
    assert_int_equal(harness_run(&options, killed_alone), 0);
}

int net_failures_run(const char *backend)
{
    void *const state = (void *)(uintptr_t)backend;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(disagreement_is_explained, state),
        cmocka_unit_test_prestate(uneven_disagreement_is_explained, state),
        cmocka_unit_test_prestate(time_outs_name_who_is_missing, state),
        cmocka_unit_test_prestate(abort_unblocks_all, state),
        cmocka_unit_test_prestate(abort_in_the_middle_of_a_gibibyte, state),
        cmocka_unit_test_prestate(a_killed_rank_blocks_no_rank, state),
        cmocka_unit_test_prestate(a_closed_connection_names_the_peer, state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
