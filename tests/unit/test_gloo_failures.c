/* SPDX-License-Identifier: Apache-2.0
 *
 * The Gloo backend when something goes wrong in a collective: ranks that disagree, that do not come
 * in time, that are told to give up, that die.
 */
#include "coll_failures.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define MS 1000000u

static struct rig_options options_for(uint32_t nranks)
{
    return (struct rig_options){.path = rig_backend_path("gloo"), .nranks = nranks};
}

/* ---- disagreement ---- */

/* Rank 1 differs from the others in one field, in small and in large calls. */
static int disagree(struct rig_rank *r)
{
    const int which = *(const int *)r->arg;
    const size_t count = which >= 10 ? 1u << 20 : 100;
    char *buf = calloc(2, count * 8 + 4096);
    RIG_CHECK(r, buf);
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
    const int status = rig_exec(r->group, &call, 1);
    if (call.send == call.recv)
        free(call.recv);
    free(buf);
    RIG_CHECK(r, status == COLLRUN_ERR_MISMATCH);
    RIG_CHECK(r, strstr(rig_error(), which % 10 == 3 ? "barrier" : "allreduce(1"));
    RIG_CHECK(r, strstr(rig_error(), "this rank"));
    RIG_CHECK(r, odd || strstr(rig_error(), "rank 1 (world rank 1)"));
    return coll_stays_failed(r, r->group, COLLRUN_ERR_MISMATCH);
}

static void disagreement_is_explained(void **state)
{
    (void)state;
    for (int which = 0; which < 15; which = which == 4 ? 10 : which + 1) {
        struct rig_options options = options_for(which % 2 ? 2 : 3);
        options.arg = &which;
        assert_int_equal(rig_run(&options, disagree), 0);
    }
}

/* Each uneven kind, with one pair of ranks that disagrees about one count. */
static int disagree_uneven(struct rig_rank *r)
{
    struct coll_uneven u;
    coll_uneven_init(&u, *(const enum collrun_kind *)r->arg, r->rank);
    /* who receives something that is not as expected; the others may be done without noticing */
    static const unsigned hit[] = {7, 4, 2, 5, 7};
    const int status = rig_exec(r->group, &u.call, 1);
    if (hit[u.call.kind - COLLRUN_ALLGATHERV] >> r->rank & 1)
        RIG_CHECK(r, status == COLLRUN_ERR_MISMATCH);
    if (status == COLLRUN_ERR_MISMATCH)
        RIG_CHECK(r, strstr(rig_error(), " bytes from "));
    return 0;
}

static void uneven_disagreement_is_explained(void **state)
{
    (void)state;
    for (enum collrun_kind kind = COLLRUN_ALLGATHERV; kind <= COLLRUN_ALLTOALLV; kind++) {
        struct rig_options options = options_for(3);
        options.arg = &kind;
        options.timeout_ns = 3000ull * MS;
        assert_int_equal(rig_run(&options, disagree_uneven), 0);
    }
}

/* ---- time-outs ---- */

static int one_missing(struct rig_rank *r)
{
    const size_t count = *(const size_t *)r->arg;
    char *buf = calloc(2, count * 4 + 1);
    RIG_CHECK(r, buf);
    struct collrun_call call = coll_call(COLLRUN_ALLREDUCE, buf, count);
    call.recv = buf + count * 4;
    call.timeout_ns = 300 * MS;
    const uint64_t start = rig_now_ns();
    const int status = r->rank == 2 ? COLLRUN_OK : rig_exec(r->group, &call, 1);
    const uint64_t waited = rig_now_ns() - start;
    free(buf);
    rig_sync(r);
    if (r->rank == 2)
        return 0;
    RIG_CHECK(r, status == COLLRUN_ERR_TIMEOUT);
    RIG_CHECK(r, strstr(rig_error(), "within 0.3 s"));
    /* the root of the tree knows who is missing; the others wait for the root */
    RIG_CHECK(r, strstr(rig_error(), r->rank == 0 || count > 100000 ? "rank 2" : "rank"));
    RIG_CHECK(r, waited > 290 * MS && waited < RIG_AT_ONCE_NS);
    return coll_stays_failed(r, r->group, COLLRUN_ERR_TIMEOUT);
}

static void time_outs_name_who_is_missing(void **state)
{
    (void)state;
    for (size_t count = 1; count <= 2000000; count += 1999999) {
        struct rig_options options = options_for(4);
        options.arg = &count;
        assert_int_equal(rig_run(&options, one_missing), 0);
    }
}

/* ---- aborts and deaths ---- */

/* Rank 0 broadcasts to ranks that never come, until rank 1 has everybody aborted. */
static int aborted(struct rig_rank *r)
{
    const size_t bytes = *(const size_t *)r->arg;
    char *buf = calloc(1, bytes);
    RIG_CHECK(r, buf);
    struct collrun_call call = COLLRUN_CALL(COLLRUN_BROADCAST);
    call.recv = buf;
    call.count = bytes;
    call.dtype = COLLRUN_UINT8;
    rig_sync(r);
    if (r->rank == 1) {
        RIG_UNTIL(r, rig_inside_ms(r, 0) >= 30);
        rig_abort_everywhere(r);
    }
    const int status = r->rank == 0 ? rig_exec(r->group, &call, 1) : COLLRUN_ERR_ABORTED;
    uint64_t *delays = r->scratch;
    if (r->rank == 0)
        delays[0] = rig_now_ns() - rig_abort_ns(r);
    rig_sync(r); /* nobody closes before all are out */
    free(buf);
    RIG_CHECK(r, status == COLLRUN_ERR_ABORTED);
    return r->rank == 0 ? coll_stays_failed(r, r->group, COLLRUN_ERR_ABORTED) : 0;
}

static void abort_unblocks_everyone(void **state)
{
    (void)state;
    for (size_t bytes = 8; bytes <= 1u << 20; bytes += (1u << 20) - 8) {
        struct rig_options options = options_for(3);
        options.arg = &bytes;
        assert_int_equal(rig_run(&options, aborted), 0);
        const uint64_t *delays = rig_scratch();
        print_message("# %zu bytes: out after %.2f ms\n", bytes, (double)delays[0] / 1e6);
        assert_true(delays[0] < RIG_AT_ONCE_NS);
    }
}

/* Ranks 0 and 1 have 1 GiB under way; the receiver's memory is shared with rank 2, which sees how
 * far it has come and has everybody aborted in the middle. */
#define GIB (1ull << 30)

static int aborted_midway(struct rig_rank *r)
{
    volatile char *in = r->arg;
    uint64_t *delays = r->scratch;
    char *out = r->rank == 0 ? calloc(1, GIB) : NULL;
    if (out)
        out[GIB / 4] = out[GIB - 1] = 1;
    rig_sync(r);
    if (r->rank == 2) {
        RIG_UNTIL(r, in[GIB / 4]);
        rig_abort_everywhere(r);
        rig_sync(r);
        return 0;
    }
    struct collrun_call call = COLLRUN_CALL(r->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV);
    call.send = out;
    call.recv = r->arg;
    call.count = GIB;
    call.dtype = COLLRUN_UINT8;
    call.peer = 1 - (int)r->rank;
    const int status = rig_exec(r->group, &call, 1);
    delays[r->rank] = rig_now_ns() - rig_abort_ns(r);
    free(out);
    const bool all = in[GIB - 1];
    RIG_CHECK(r, status == COLLRUN_ERR_ABORTED);
    rig_sync(r); /* nobody closes before all are out */
    RIG_CHECK(r, !all);
    return 0;
}

static void abort_in_the_middle_of_a_gibibyte(void **state)
{
    (void)state;
    struct rig_options options = options_for(3);
    options.timeout_ns = 60000ull * MS;
    options.limit_s = 90;
    options.arg = mmap(NULL, GIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(options.arg != MAP_FAILED);
    assert_int_equal(rig_run(&options, aborted_midway), 0);
    munmap(options.arg, GIB);
    const uint64_t *delays = rig_scratch();
    print_message("# sender out after %.2f ms, receiver after %.2f ms\n", (double)delays[0] / 1e6,
                  (double)delays[1] / 1e6);
    assert_true(delays[0] < RIG_AT_ONCE_NS && delays[1] < RIG_AT_ONCE_NS);
}

/* Rank 1 dies somewhere inside a long operation; the agent aborts; the others are out at once. */
static int killed(struct rig_rank *r)
{
    int status;
    uint64_t failed_ns, *delays = r->scratch;
    if (coll_until_killed(r, *(const size_t *)r->arg, &status, &failed_ns) != 0)
        return 1;
    /* the connection may tell before the agent does */
    RIG_CHECK(r, status == COLLRUN_ERR_ABORTED || status == COLLRUN_ERR_PEER_FAILED ||
                     (!r->options->abort_on_death && status == COLLRUN_ERR_TIMEOUT));
    if (status == COLLRUN_ERR_PEER_FAILED)
        RIG_CHECK(r, strstr(rig_error(), "(world rank "));
    RIG_UNTIL(r, !r->options->abort_on_death || rig_abort_ns(r));
    const uint64_t abort_ns = rig_abort_ns(r);
    delays[r->rank] = failed_ns > abort_ns ? failed_ns - abort_ns : 0;
    return coll_stays_failed(r, r->group, status);
}

static void a_killed_rank_blocks_nobody(void **state)
{
    (void)state;
    const bool may_die[4] = {false, true, false, false};
    for (size_t count = 1u << 20; count <= 16u << 20; count *= 16) {
        struct rig_options options = options_for(4);
        options.may_die = may_die;
        options.abort_on_death = true;
        options.arg = &count;
        assert_int_equal(rig_run(&options, killed), 0);
        const uint64_t *delays = rig_scratch();
        print_message("# out %.1f, %.1f and %.1f ms after the abort\n", (double)delays[0] / 1e6,
                      (double)delays[2] / 1e6, (double)delays[3] / 1e6);
    }
}

/* Without an agent: who waits for the dead rank hears of it from the connection. */
static int killed_alone(struct rig_rank *r)
{
    char buf[8192] = {0};
    const struct collrun_call call = coll_call(COLLRUN_ALLREDUCE, buf, 10);
    RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_OK);
    if (r->rank == 1)
        rig_kill(r, 1);
    const uint64_t start = rig_now_ns();
    RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_ERR_PEER_FAILED);
    RIG_CHECK(r, rig_now_ns() - start < RIG_AT_ONCE_NS);
    RIG_CHECK(r, strstr(rig_error(), "rank 1 (world rank 1) closed its connection"));
    return coll_stays_failed(r, r->group, COLLRUN_ERR_PEER_FAILED);
}

static void a_closed_connection_names_the_peer(void **state)
{
    (void)state;
    const bool may_die[2] = {false, true};
    struct rig_options options = options_for(2);
    options.may_die = may_die;
    assert_int_equal(rig_run(&options, killed_alone), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(disagreement_is_explained),
        cmocka_unit_test(uneven_disagreement_is_explained),
        cmocka_unit_test(time_outs_name_who_is_missing),
        cmocka_unit_test(abort_unblocks_everyone),
        cmocka_unit_test(abort_in_the_middle_of_a_gibibyte),
        cmocka_unit_test(a_killed_rank_blocks_nobody),
        cmocka_unit_test(a_closed_connection_names_the_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
