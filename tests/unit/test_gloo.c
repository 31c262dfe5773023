/* SPDX-License-Identifier: Apache-2.0
 *
 * The Gloo backend's collectives, through the rig: every kind, type and operator at sizes on both
 * sides of every border between algorithms, one to six ranks, on one simulated host and on several;
 * then many groups, disagreement, time-outs, aborts and deaths. Point to point is test_gloo_p2p.c.
 */
#include "coll_sweeps.h"
#include "reduce.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define MS 1000000u

static struct rig_options options_for(uint32_t nranks)
{
    return (struct rig_options){.path = rig_backend_path("gloo"), .nranks = nranks};
}

/* ---- data ---- */

static int all_kinds(struct rig_rank *r)
{
    static const size_t counts[] = {0, 1, 7, 1000, 2100};
    return coll_every_variant(r, counts, 5, false);
}

static void every_kind_in_processes(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 6; n++) {
        const struct rig_options options = options_for(n);
        assert_int_equal(rig_run(&options, all_kinds), 0);
    }
}

static void every_kind_in_threads(void **state)
{
    (void)state;
    struct rig_options options = options_for(3);
    options.threads = true;
    assert_int_equal(rig_run(&options, all_kinds), 0);
}

/* More cores than ranks: other borders between the algorithms. Nine ranks: a tree of two levels. */
static void every_kind_as_if_alone(void **state)
{
    (void)state;
    struct rig_options options = options_for(9);
    options.ncpus = 64;
    assert_int_equal(rig_run(&options, all_kinds), 0);
}

static int every_type(struct rig_rank *r)
{
    return coll_every_type(r, 30001);
}

static void every_type_and_operator(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 3; n++) {
        const struct rig_options options = options_for(n);
        assert_int_equal(rig_run(&options, every_type), 0);
    }
}

/* Counts around messages, pieces and chunks; the last ones take several rounds. */
static int large(struct rig_rank *r)
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
            if (coll_case_run(r, r->group, &c) != 0)
                return 1;
        }
    return 0;
}

static void large_messages(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 6; n++) {
        const struct rig_options options = options_for(n);
        assert_int_equal(rig_run(&options, large), 0);
    }
}

/* Several ranks on each of several hosts, not in order: rings, and trees below the hosts. */
static void several_hosts(void **state)
{
    (void)state;
    const uint32_t hosts[6] = {0, 1, 0, 2, 1, 0};
    struct rig_options options = options_for(6);
    options.host_of = hosts;
    assert_int_equal(rig_run(&options, large), 0);
    assert_int_equal(rig_run(&options, all_kinds), 0);
    options.nranks = 3;
    assert_int_equal(rig_run(&options, large), 0);
}

static int out_of_step(struct rig_rank *r)
{
    return coll_out_of_step(r, 300, false);
}

static void ranks_out_of_step(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 6; n += 2) {
        const struct rig_options options = options_for(n);
        assert_int_equal(rig_run(&options, out_of_step), 0);
    }
}

static int crowd(struct rig_rank *r)
{
    return coll_all_small(r, 3, 700);
}

static void many_ranks_on_few_cores(void **state)
{
    (void)state;
    const struct rig_options options = options_for(24);
    const uint64_t start = rig_now_ns();
    assert_int_equal(rig_run(&options, crowd), 0);
    print_message("# 24 ranks, 42 collectives: %.2f s\n", (double)(rig_now_ns() - start) / 1e9);
}

/* Nobody leaves an operation of count 0 before the last one has come. */
static int empty_operations(struct rig_rank *r)
{
    static const enum collrun_kind all_meet[] = {COLLRUN_BARRIER, COLLRUN_ALLREDUCE,
                                                 COLLRUN_ALLGATHER, COLLRUN_ALLTOALL};
    _Atomic uint32_t *come = r->scratch;
    for (uint32_t turn = 0; turn < 4 * r->nranks; turn++) {
        struct collrun_call call = COLLRUN_CALL(all_meet[turn % 4]);
        if (turn / 4 == r->rank)
            usleep(20000);
        (*come)++;
        RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_OK);
        RIG_CHECK(r, *come >= (turn + 1) * r->nranks);
    }
    return 0;
}

static void empty_operations_synchronise(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 4; n++) {
        const struct rig_options options = options_for(n);
        assert_int_equal(rig_run(&options, empty_operations), 0);
    }
}

static int ipv6(struct rig_rank *r)
{
    const struct coll_case c = {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_INT64, .count = 5000};
    return coll_case_run(r, r->group, &c);
}

static void ipv6_addresses(void **state)
{
    (void)state;
    struct rig_options options = options_for(3);
    options.address = "::1";
    assert_int_equal(rig_run(&options, ipv6), 0);
}

static int bad_address(struct rig_rank *r)
{
    const uint32_t all[2] = {0, 1};
    struct rig_group *g = NULL;
    RIG_CHECK(r, rig_group_open(r, "x", all, 2, &g) == COLLRUN_ERR_SYSTEM);
    RIG_CHECK(r, strstr(rig_error(), "203.0.113.7"));
    return 0;
}

static void foreign_address_is_refused(void **state)
{
    (void)state;
    struct rig_options options = options_for(2);
    options.address = "203.0.113.7";
    options.no_group = true;
    assert_int_equal(rig_run(&options, bad_address), 0);
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
static int twenty_groups(struct rig_rank *r)
{
    struct rig_group *groups[20];
    const uint32_t order[2][3] = {{0, 1, 2}, {2, 1, 0}};
    char name[16];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "g%d", i);
        RIG_CHECK(r, rig_group_open(r, name, order[i % 2], 3, &groups[i]) == COLLRUN_OK);
    }
    if (coll_across_groups(r, groups, 20, 3, 100) != 0)
        return 1;
    /* main, the rig's service thread, Gloo's loop, the clock */
    const uint32_t threads = entries_of("/proc/self/task") - 2;
    for (int i = 0; i < 20; i++)
        rig_group_close(groups[i]);
    RIG_CHECK(r, threads <= 4);
    return 0;
}

static void twenty_groups_in_one_process(void **state)
{
    (void)state;
    const struct rig_options options = options_for(3);
    assert_int_equal(rig_run(&options, twenty_groups), 0);
}

static int reopen(struct rig_rank *r)
{
    uint32_t fds = 0;
    uint32_t threads = 0;
    const uint32_t all[3] = {0, 1, 2};
    for (uint32_t i = 0; i < 200; i++) {
        const struct coll_case c = {
            .kind = coll_kinds[i % COLL_NKINDS], .count = i * 20, .salt = i};
        struct rig_group *g = NULL;
        RIG_CHECK(r, rig_group_open(r, "again", all, 3, &g) == COLLRUN_OK);
        if (coll_case_run(r, g, &c) != 0)
            return 1;
        rig_group_close(g);
        if (i == 10) {
            fds = entries_of("/proc/self/fd");
            threads = entries_of("/proc/self/task");
        }
    }
    RIG_CHECK(r, entries_of("/proc/self/fd") <= fds);
    RIG_CHECK(r, entries_of("/proc/self/task") <= threads);
    return 0;
}

static void groups_reopen_without_growth(void **state)
{
    (void)state;
    struct rig_options options = options_for(3);
    options.no_group = true;
    const uint64_t start = rig_now_ns();
    assert_int_equal(rig_run(&options, reopen), 0);
    print_message("# 200 groups of 3: %.2f s\n", (double)(rig_now_ns() - start) / 1e9);
}

/* ---- disagreement ---- */

static struct collrun_call call_of(enum collrun_kind kind, void *buf, size_t count)
{
    struct collrun_call call = COLLRUN_CALL(kind);
    call.send = buf;
    call.recv = (char *)buf + 4096;
    call.count = count;
    call.dtype = COLLRUN_FLOAT32;
    return call;
}

/* After a failure the group only fails, at once, with the same sentence. */
static int stays_failed(struct rig_rank *r, int status)
{
    char first[512];
    char buf[8192];
    snprintf(first, sizeof(first), "%s", rig_error());
    const struct collrun_call again = call_of(COLLRUN_BARRIER, buf, 0);
    const uint64_t start = rig_now_ns();
    RIG_CHECK(r, rig_exec(r->group, &again, 1) == status);
    RIG_CHECK(r, rig_now_ns() - start < 100 * MS);
    RIG_CHECK(r, strcmp(first, rig_error()) == 0);
    return 0;
}

/* Rank 1 differs from the others in one field, in small and in large calls. */
static int disagree(struct rig_rank *r)
{
    const int which = *(const int *)r->arg;
    const size_t count = which >= 10 ? 1u << 20 : 100;
    char *buf = calloc(2, count * 8 + 4096);
    RIG_CHECK(r, buf);
    struct collrun_call call = call_of(COLLRUN_ALLREDUCE, buf, count);
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
    return stays_failed(r, COLLRUN_ERR_MISMATCH);
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
    char send[4096] = {0};
    char recv[4096];
    size_t out[3] = {4, 5, 6};
    size_t in[3] = {4, 5, 6};
    struct collrun_call call = COLLRUN_CALL(*(const enum collrun_kind *)r->arg);
    call.dtype = COLLRUN_FLOAT32;
    call.send = send;
    call.recv = recv;
    call.root = 2;
    call.count = out[r->rank];
    call.recvcount = in[r->rank];
    call.sendcounts = out;
    call.recvcounts = in;
    if (call.kind == COLLRUN_ALLTOALLV)
        in[0] = in[1] = in[2] = out[r->rank];
    if (r->rank == 1) { /* sends, and expects, one more than the others think */
        call.count++;
        call.recvcount++;
        out[0]++;
        out[2]++;
        in[0]++;
        in[2]++;
    }
    /* who receives something that is not as expected; the others may be done without noticing */
    static const unsigned hit[] = {7, 4, 2, 5, 7};
    const int status = rig_exec(r->group, &call, 1);
    if (hit[call.kind - COLLRUN_ALLGATHERV] >> r->rank & 1)
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
    struct collrun_call call = call_of(COLLRUN_ALLREDUCE, buf, count);
    call.recv = buf + count * 4;
    call.timeout_ns = 300 * MS;
    if (r->rank == 2) {
        usleep(700000);
        free(buf);
        return 0;
    }
    const uint64_t start = rig_now_ns();
    const int status = rig_exec(r->group, &call, 1);
    const uint64_t waited = rig_now_ns() - start;
    free(buf);
    RIG_CHECK(r, status == COLLRUN_ERR_TIMEOUT);
    RIG_CHECK(r, strstr(rig_error(), "within 0.3 s"));
    /* the root of the tree knows who is missing; the others wait for the root */
    RIG_CHECK(r, strstr(rig_error(), r->rank == 0 || count > 100000 ? "rank 2" : "rank"));
    RIG_CHECK(r, waited > 290 * MS && waited < 600 * MS);
    return stays_failed(r, COLLRUN_ERR_TIMEOUT);
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
        usleep(50000);
        rig_abort_everywhere(r);
    }
    const int status = r->rank == 0 ? rig_exec(r->group, &call, 1) : COLLRUN_ERR_ABORTED;
    uint64_t *delays = r->scratch;
    if (r->rank == 0)
        delays[0] = rig_now_ns() - rig_abort_ns(r);
    rig_sync(r); /* nobody closes before all are out */
    free(buf);
    RIG_CHECK(r, status == COLLRUN_ERR_ABORTED);
    return r->rank == 0 ? stays_failed(r, COLLRUN_ERR_ABORTED) : 0;
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
        assert_true(delays[0] < 1000 * MS);
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
        while (!in[GIB / 4])
            usleep(100);
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
    assert_true(delays[0] < 1000 * MS && delays[1] < 1000 * MS);
}

/* Rank 1 dies somewhere inside a long operation; the agent aborts; the others are out at once. */
static int killed(struct rig_rank *r)
{
    const size_t count = *(const size_t *)r->arg;
    float *send = calloc(count, sizeof(*send));
    float *recv = calloc(count, sizeof(*recv));
    RIG_CHECK(r, send && recv);
    struct collrun_call call = call_of(COLLRUN_ALLREDUCE, send, count);
    call.recv = recv;
    int status = COLLRUN_OK;
    for (int i = 0; status == COLLRUN_OK && i < 1000; i++) {
        if (r->rank == 0 && i == 2)
            rig_kill(r, 1);
        status = rig_exec(r->group, &call, 1);
    }
    const uint64_t now = rig_now_ns();
    uint64_t *delays = r->scratch;
    delays[r->rank] = now;
    free(send);
    free(recv);
    /* the connection may tell before the agent does */
    RIG_CHECK(r, status == COLLRUN_ERR_ABORTED || status == COLLRUN_ERR_PEER_FAILED ||
                     (!r->options->abort_on_death && status == COLLRUN_ERR_TIMEOUT));
    if (status == COLLRUN_ERR_PEER_FAILED)
        RIG_CHECK(r, strstr(rig_error(), "(world rank "));
    while (r->options->abort_on_death && !rig_abort_ns(r))
        usleep(1000);
    const uint64_t abort_ns = rig_abort_ns(r);
    delays[r->rank] = now > abort_ns ? now - abort_ns : 0;
    return stays_failed(r, status);
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
    const struct collrun_call call = call_of(COLLRUN_ALLREDUCE, buf, 10);
    RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_OK);
    if (r->rank == 1)
        rig_kill(r, 1);
    const uint64_t start = rig_now_ns();
    RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_ERR_PEER_FAILED);
    RIG_CHECK(r, rig_now_ns() - start < 1000 * MS);
    RIG_CHECK(r, strstr(rig_error(), "rank 1 (world rank 1) closed its connection"));
    return stays_failed(r, COLLRUN_ERR_PEER_FAILED);
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
        cmocka_unit_test(every_kind_in_processes),
        cmocka_unit_test(every_kind_in_threads),
        cmocka_unit_test(every_kind_as_if_alone),
        cmocka_unit_test(every_type_and_operator),
        cmocka_unit_test(large_messages),
        cmocka_unit_test(several_hosts),
        cmocka_unit_test(ranks_out_of_step),
        cmocka_unit_test(many_ranks_on_few_cores),
        cmocka_unit_test(empty_operations_synchronise),
        cmocka_unit_test(ipv6_addresses),
        cmocka_unit_test(foreign_address_is_refused),
        cmocka_unit_test(twenty_groups_in_one_process),
        cmocka_unit_test(groups_reopen_without_growth),
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
