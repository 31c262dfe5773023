/* SPDX-License-Identifier: Apache-2.0
 *
 * The Gloo backend when something goes wrong in a collective: ranks that disagree, are late,
 * are aborted, or are killed.
 */
#include "coll_failures.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

#define MS 1000000u

static struct harness_options options_for(uint32_t nranks)
{
    return (struct harness_options){.path = harness_backend_path("gloo"), .nranks = nranks};
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Whether this process uses less than a tenth of a core for 0.3 s. */
static bool is_quiet(void)
{
    const uint64_t cpu = cpu_ns(), start = harness_now_ns();
    harness_lag_us(300000);
    return (cpu_ns() - cpu) * 10 < harness_now_ns() - start;
}

/* ---- disagreement ---- */

/* Rank 1 differs from the others in one field, in small and in large calls. Such calls do not meet:
 * no rank is killed by a message of another length, and all wait until their time-outs. */
static int disagree(struct harness_rank *r)
{
    const int which = *(const int *)r->arg;
    const size_t count = which >= 10 ? 1u << 20 : 100;
    char *buf = calloc(2, count * 8 + 4096);
    HARNESS_CHECK(r, buf);
    struct collrun_call call = coll_call(COLLRUN_ALLREDUCE, buf, count);
    call.recv = buf + count * 8;
    call.timeout_ns = 200 * MS;
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
        call.count /= 2;
    const int status = harness_exec(r->group, &call, 1);
    free(buf);
    HARNESS_CHECK(r, status == COLLRUN_ERR_TIMEOUT);
    HARNESS_CHECK(r, strstr(harness_error(), "waited 0.2 s for rank"));
    harness_sync(r); /* no rank closes before all calls have returned */
    return coll_stays_failed(r, r->group, COLLRUN_ERR_TIMEOUT);
}

static void calls_that_disagree_do_not_meet(void **state)
{
    (void)state;
    for (int which = 0; which < 15; which = which == 4 ? 10 : which + 1) {
        struct harness_options options = options_for(which % 2 ? 2 : 3);
        options.arg = &which;
        assert_int_equal(harness_run(&options, disagree), 0);
    }
}

/* Each native uneven kind, with one pair of ranks that disagrees about one count. The other ranks
 * may complete. */
static int disagree_uneven(struct harness_rank *r)
{
    struct coll_uneven u;
    coll_uneven_init(&u, *(const enum collrun_kind *)r->arg, r->rank);
    u.call.timeout_ns = 200 * MS;
    const int status = harness_exec(r->group, &u.call, 1);
    harness_sync(r); /* no rank closes before all calls have returned */
    HARNESS_CHECK(r, status == COLLRUN_OK || status == COLLRUN_ERR_TIMEOUT ||
                         status == COLLRUN_ERR_MISMATCH);
    HARNESS_CHECK(r, r->rank != 1 || status != COLLRUN_OK);
    return 0;
}

static void uneven_calls_that_disagree_do_not_meet(void **state)
{
    static const enum collrun_kind kinds[] = {COLLRUN_ALLGATHERV, COLLRUN_ALLTOALLV};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        enum collrun_kind kind = kinds[i];
        struct harness_options options = options_for(3);
        options.arg = &kind;
        assert_int_equal(harness_run(&options, disagree_uneven), 0);
    }
}

/* ---- time-outs ---- */

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
    /* a neighbour of the ring, which may itself wait */
    HARNESS_CHECK(r, strstr(harness_error(), "waited 0.3 s for rank"));
    HARNESS_CHECK(r, waited > 290 * MS && waited < HARNESS_AT_ONCE_NS);
    return coll_stays_failed(r, r->group, COLLRUN_ERR_TIMEOUT);
}

static void time_outs_name_the_peer(void **state)
{
    (void)state;
    for (size_t count = 1; count <= 2000000; count += 1999999) {
        struct harness_options options = options_for(4);
        options.arg = &count;
        assert_int_equal(harness_run(&options, one_missing), 0);
    }
}

/* ---- aborts and deaths ---- */

/* Rank 0 broadcasts to ranks that never call, until rank 1 aborts the group on all ranks. */
static int aborted(struct harness_rank *r)
{
    const size_t bytes = *(const size_t *)r->arg;
    harness_sync(r);
    if (r->rank == 1) {
        HARNESS_UNTIL(r, harness_inside_ms(r, 0) >= 30);
        harness_abort_everywhere(r);
    }
    char *buf = calloc(1, bytes);
    HARNESS_CHECK(r, buf);
    struct collrun_call call = COLLRUN_CALL(COLLRUN_BROADCAST);
    call.recv = buf;
    call.count = bytes;
    call.dtype = COLLRUN_UINT8;
    const int status = r->rank == 0 ? harness_exec(r->group, &call, 1) : COLLRUN_ERR_ABORTED;
    uint64_t *delays = r->scratch;
    if (r->rank == 0)
        delays[0] = harness_now_ns() - harness_abort_ns(r);
    harness_sync(r); /* no rank closes before all calls have returned */
    free(buf);
    HARNESS_CHECK(r, status == COLLRUN_ERR_ABORTED);
    return r->rank == 0 ? coll_stays_failed(r, r->group, COLLRUN_ERR_ABORTED) : 0;
}

static void abort_unblocks_everyone(void **state)
{
    (void)state;
    for (size_t bytes = 8; bytes <= 1u << 20; bytes += (1u << 20) - 8) {
        struct harness_options options = options_for(3);
        options.arg = &bytes;
        assert_int_equal(harness_run(&options, aborted), 0);
        const uint64_t *delays = harness_scratch();
        print_message("# %zu bytes: out after %.2f ms\n", bytes, (double)delays[0] / 1e6);
        assert_true(delays[0] < HARNESS_AT_ONCE_NS);
    }
}

/* Ranks 0 and 1 transfer a large message; the receiver's memory is shared with rank 2, which aborts
 * the group on all ranks when it sees the byte at `sign`. */
#define GIB (1ull << 30)
struct transfer {
    volatile char *in;
    size_t bytes, sign;
};

static char *map(size_t bytes, int sharing)
{
    const int flags = sharing | MAP_ANONYMOUS | MAP_NORESERVE;
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static int aborted_midway(struct harness_rank *r)
{
    const struct transfer *t = r->arg;
    uint64_t *delays = r->scratch;
    char *out = r->rank == 0 ? map(t->bytes, MAP_PRIVATE) : NULL;
    if (out)
        out[t->sign] = out[t->bytes - 1] = 1;
    harness_sync(r);
    if (r->rank == 2) {
        HARNESS_UNTIL(r, t->in[t->sign]);
        harness_abort_everywhere(r);
        harness_sync(r);
        return 0;
    }
    struct collrun_call call = COLLRUN_CALL(r->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV);
    call.send = out;
    call.recv = (void *)(uintptr_t)t->in;
    call.count = t->bytes;
    call.dtype = COLLRUN_UINT8;
    call.peer = 1 - (int)r->rank;
    const int status = harness_exec(r->group, &call, 1);
    delays[r->rank] = harness_now_ns() - harness_abort_ns(r);
    static const char last[8] = {[7] = 1}; /* until then the backend's mark may be there */
    const bool all = memcmp((const char *)t->in + t->bytes - 8, last, 8) == 0;
    HARNESS_CHECK(r, status == COLLRUN_ERR_ABORTED);
    HARNESS_UNTIL(r, is_quiet());
    harness_sync(r); /* no rank closes before all calls have returned */
    HARNESS_CHECK(r, !all);
    return 0;
}

static void abort_transfer(size_t bytes, size_t sign)
{
    char *in = map(bytes, MAP_SHARED);
    assert_non_null(in);
    struct transfer t = {.in = in, .bytes = bytes, .sign = sign};
    struct harness_options options = options_for(3);
    options.timeout_ns = 60000ull * MS;
    options.limit_s = 90;
    options.arg = &t;
    assert_int_equal(harness_run(&options, aborted_midway), 0);
    munmap(in, bytes);
    const uint64_t *delays = harness_scratch();
    print_message("# sender out after %.2f ms, receiver after %.2f ms\n", (double)delays[0] / 1e6,
                  (double)delays[1] / 1e6);
    assert_true(delays[0] < HARNESS_AT_ONCE_NS && delays[1] < HARNESS_AT_ONCE_NS);
}

static void abort_in_the_middle_of_a_gibibyte(void **state)
{
    (void)state;
    abort_transfer(GIB, GIB / 16);
}

/* The first pieces arrive while both ranks still give Gloo the memory of the others. */
static void abort_at_the_first_piece(void **state)
{
    (void)state;
    for (int run = 0; run < 4; run++)
        abort_transfer(4 * GIB, 0);
}

/* Rank 0 fails alone, by its time-out or an abort, in the middle of what rank 1 begins only then:
 * Gloo has data for buffers that are gone. Rank 0 uses no CPU time while it keeps the group; rank 1
 * waits until its own time-out, and does not take rank 0 for dead. */
static int fails_alone(struct harness_rank *r)
{
    const bool is_abort = *(const bool *)r->arg;
    volatile char *has_begun = r->scratch;
    const size_t count = 1u << 20;
    char *buf = calloc(2, count * 4);
    HARNESS_CHECK(r, buf);
    struct collrun_call call = coll_call(COLLRUN_ALLREDUCE, buf, count);
    call.recv = buf + count * 4;
    call.timeout_ns = (r->rank == 1 ? 3000ull : is_abort ? 60000ull : 200ull) * MS;
    if (r->rank == 0 && is_abort)
        harness_abort_after(r, 100);
    if (r->rank == 1) {
        harness_sync(r);
        *has_begun = 1;
    }
    const int status = harness_exec(r->group, &call, 1);
    free(buf);
    if (r->rank == 0) {
        HARNESS_CHECK(r, status == (is_abort ? COLLRUN_ERR_ABORTED : COLLRUN_ERR_TIMEOUT));
        harness_sync(r);
        HARNESS_UNTIL(r, *has_begun);
        HARNESS_UNTIL(r, is_quiet());
    } else {
        HARNESS_CHECK(r, status == COLLRUN_ERR_TIMEOUT);
        HARNESS_CHECK(r, strstr(harness_error(), "waited 3.0 s for rank 0"));
        HARNESS_CHECK(r, cpu_ns() < 1000 * MS);
    }
    harness_sync(r);
    return 0;
}

static void a_failed_group_burns_no_core(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool is_abort = i == 1;
        struct harness_options options = options_for(2);
        options.arg = &is_abort;
        assert_int_equal(harness_run(&options, fails_alone), 0);
    }
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
        HARNESS_CHECK(r, strstr(harness_error(), "(world rank "));
    HARNESS_UNTIL(r, !r->options->abort_on_death || harness_abort_ns(r));
    const uint64_t abort_ns = harness_abort_ns(r);
    delays[r->rank] = failed_ns > abort_ns ? failed_ns - abort_ns : 0;
    return coll_stays_failed(r, r->group, status);
}

static void a_killed_rank_blocks_nobody(void **state)
{
    (void)state;
    const bool may_die[4] = {false, true, false, false};
    for (size_t count = 1u << 20; count <= 16u << 20; count *= 16) {
        struct harness_options options = options_for(4);
        options.may_die = may_die;
        options.abort_on_death = true;
        options.arg = &count;
        assert_int_equal(harness_run(&options, killed), 0);
        const uint64_t *delays = harness_scratch();
        print_message("# out %.1f, %.1f and %.1f ms after the abort\n", (double)delays[0] / 1e6,
                      (double)delays[2] / 1e6, (double)delays[3] / 1e6);
    }
}

/* Without an agent: who waits for the dead rank hears of it from the connection. */
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
    HARNESS_CHECK(r, strstr(harness_error(), "rank 1 (world rank 1) closed its connection"));
    return coll_stays_failed(r, r->group, COLLRUN_ERR_PEER_FAILED);
}

static void a_closed_connection_names_the_peer(void **state)
{
    (void)state;
    const bool may_die[2] = {false, true};
    struct harness_options options = options_for(2);
    options.may_die = may_die;
    assert_int_equal(harness_run(&options, killed_alone), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_disagree_do_not_meet),
        cmocka_unit_test(uneven_calls_that_disagree_do_not_meet),
        cmocka_unit_test(time_outs_name_the_peer),
        cmocka_unit_test(abort_unblocks_everyone),
        cmocka_unit_test(abort_in_the_middle_of_a_gibibyte),
        cmocka_unit_test(abort_at_the_first_piece),
        cmocka_unit_test(a_failed_group_burns_no_core),
        cmocka_unit_test(a_killed_rank_blocks_nobody),
        cmocka_unit_test(a_closed_connection_names_the_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
