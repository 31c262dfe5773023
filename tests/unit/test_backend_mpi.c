/* SPDX-License-Identifier: Apache-2.0
 *
 * The out-of-tree backend of examples/backend-mpi, through the rig: every collective with the types
 * and operators it does natively, on one host and on several simulated ones; messages; groups over
 * the same and over other ranks, one after the other and at once. What goes wrong is
 * test_backend_mpi_failures.c.
 */
#include "coll_sweeps.h"
#include "mpi_rig.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- data ---- */

static int all_kinds(struct rig_rank *r)
{
    static const size_t counts[] = {0, 1, 7, 1000, 4099, 100003};
    return coll_every_variant(r, counts, 6, false);
}

static void every_kind_on_one_host(void **state)
{
    (void)state;
    const struct rig_options options = mpi_rig_options(8);
    assert_int_equal(rig_run_each(&options, 1, all_kinds), 0);
}

static void every_kind_on_several_hosts(void **state)
{
    (void)state;
    static const uint32_t hosts[] = {0, 0, 1, 0, 1, 2};
    struct rig_options options = mpi_rig_options(6);
    options.host_of = hosts;
    assert_int_equal(rig_run_each(&options, 2, all_kinds), 0);
}

/* ---- messages ---- */

/* Everybody to everybody at once, at sizes below and above what MPI sends without asking; two tags
 * that overtake. */
static int exchange(struct rig_rank *r)
{
    static const size_t counts[] = {0, 1, 1000, 300000};
    const uint32_t n = r->nranks;
    for (size_t s = 0; s < 4; s++) {
        const size_t count = counts[s];
        int *out = malloc((count + 1) * sizeof(int)),
            *in = calloc((2 * n + 1) * (count + 1), sizeof(int));
        struct collrun_call calls[64];
        uint32_t ncalls = 0;
        for (size_t i = 0; i < count; i++)
            out[i] = (int)(r->rank * 1000000 + i);
        for (uint32_t peer = 0; peer < n; peer++)
            for (uint32_t tag = 0; tag < 2 && peer != r->rank; tag++) {
                int *at = in + (2 * peer + tag) * (count + 1);
                calls[ncalls++] =
                    mpi_rig_message(COLLRUN_SEND, out, count, (int)peer, tag ? 1u << 31 : 0);
                calls[ncalls++] =
                    mpi_rig_message(COLLRUN_RECV, at, count, (int)peer, tag ? 0 : 1u << 31);
            }
        RIG_CHECK(r, rig_exec(r->group, calls, ncalls) == COLLRUN_OK);
        for (uint32_t peer = 0; peer < n; peer++)
            for (size_t i = 0; i < 2 * (count + 1); i++) {
                const bool filled = peer != r->rank && i % (count + 1) < count;
                RIG_CHECK(r, in[2 * peer * (count + 1) + i] ==
                                 (filled ? (int)(peer * 1000000 + i % (count + 1)) : 0));
            }
        free(out);
        free(in);
    }
    return 0;
}

static void messages_of_a_batch_progress_together(void **state)
{
    (void)state;
    static const uint32_t hosts[] = {0, 1, 0, 1};
    for (uint32_t n = 1; n <= 4; n++) {
        struct rig_options options = mpi_rig_options(n);
        assert_int_equal(rig_run(&options, exchange), 0);
        options.host_of = hosts;
        assert_int_equal(rig_run(&options, exchange), 0);
    }
}

/* Many small ones are on their way before anyone receives; then from whoever comes first. */
static int from_anyone(struct rig_rank *r)
{
    enum { EACH = 200, AHEAD = 30 };
    if (r->rank > 0) {
        for (int i = 0; i < EACH; i++) {
            const struct collrun_call call = mpi_rig_message(COLLRUN_SEND, &i, 1, 0, 7);
            RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_OK);
            if (i == AHEAD)
                rig_sync(r);
        }
        return 0;
    }
    rig_sync(r);
    int next[8] = {0};
    for (uint32_t i = 0; i < EACH * (r->nranks - 1); i++) {
        int value = -1, source = -1;
        struct collrun_call call = mpi_rig_message(COLLRUN_RECV_ANY, &value, 1, 0, 7);
        call.source = &source;
        RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_OK);
        RIG_CHECK(r, source > 0 && source < (int)r->nranks && value == next[source]++);
    }
    return 0;
}

static void messages_keep_their_order(void **state)
{
    (void)state;
    static const uint32_t hosts[] = {0, 1, 0, 1};
    struct rig_options options = mpi_rig_options(4);
    assert_int_equal(rig_run(&options, from_anyone), 0);
    options.host_of = hosts;
    assert_int_equal(rig_run(&options, from_anyone), 0);
}

static int wrong_message(struct rig_rank *r)
{
    const int which = *(const int *)r->arg;
    int buf[4] = {1, 2, 3, 4};
    struct collrun_call call =
        mpi_rig_message(r->rank ? COLLRUN_RECV : COLLRUN_SEND, buf, 2, r->rank ? 0 : 1, 0);
    if (r->rank == 0) {
        call.count = which == 0 ? 3 : which == 1 ? 1 : 2;
        call.dtype = which == 2 ? COLLRUN_FLOAT32 : COLLRUN_INT32;
        RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_OK);
        return 0;
    }
    buf[0] = 77;
    RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_ERR_MISMATCH);
    RIG_CHECK(r, strstr(rig_error(), "rank 0 sent") && strstr(rig_error(), "expects 2 x int32"));
    RIG_CHECK(r, buf[0] == 77 && buf[2] == 3);
    RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_ERR_MISMATCH);
    return 0;
}

static void wrong_messages_are_told(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        struct rig_options options = mpi_rig_options(2);
        options.arg = &which;
        assert_int_equal(rig_run(&options, wrong_message), 0);
    }
}

/* ---- several requests of one group ---- */

static int start_call(struct rig_group *g, struct collrun_call *call, void **request)
{
    call->timeout_ns = g->timeout_ns;
    return g->backend->start(g->handle, call, 1, request);
}

/* A receive that nobody serves yet does not stand in the way of collectives, of which several are
 * under way. */
static int several_requests(struct rig_rank *r)
{
    struct rig_group *g = r->group;
    const int next = (int)((r->rank + 1) % r->nranks),
              before = (int)((r->rank + r->nranks - 1) % r->nranks);
    int got = -1, mine = (int)r->rank, sums[20], ones[20];
    void *receive, *requests[20];
    struct collrun_call call = mpi_rig_message(COLLRUN_RECV, &got, 1, before, 0);
    RIG_CHECK(r, start_call(g, &call, &receive) == COLLRUN_OK);
    for (int i = 0; i < 20; i++) {
        struct collrun_call sum = COLLRUN_CALL(COLLRUN_ALLREDUCE);
        ones[i] = i;
        sum.send = &ones[i], sum.recv = &sums[i], sum.count = 1, sum.dtype = COLLRUN_INT32;
        RIG_CHECK(r, start_call(g, &sum, &requests[i]) == COLLRUN_OK);
    }
    for (int i = 19; i >= 0; i--)
        RIG_CHECK(r, rig_wait(g, requests[i]) == COLLRUN_OK && sums[i] == i * (int)r->nranks);
    RIG_CHECK(r, g->backend->test(g->handle, receive) == COLLRUN_AGAIN && got == -1);
    call = mpi_rig_message(COLLRUN_SEND, &mine, 1, next, 0);
    rig_sync(r);
    RIG_CHECK(r, rig_exec(g, &call, 1) == COLLRUN_OK);
    RIG_CHECK(r, rig_wait(g, receive) == COLLRUN_OK && got == before);
    return 0;
}

/* Who waits for a message takes part in a collective that needs this rank twice. */
static int wait_beside_a_collective(struct rig_rank *r)
{
    struct rig_group *g = r->group;
    const size_t counts[] = {2, 2};
    int out[] = {1, 2, 3, 4}, in[4], token = 5, status = COLLRUN_OK;
    void *request;
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLTOALLV);
    call.send = out, call.recv = in, call.dtype = COLLRUN_INT32;
    call.sendcounts = call.recvcounts = counts;
    RIG_CHECK(r, start_call(g, &call, &request) == COLLRUN_OK);
    rig_sync(r);
    for (int i = 0; i < 2; i++) {
        if (i == (r->rank == 0))
            status = rig_wait(g, request);
        else
            call = mpi_rig_message(r->rank ? COLLRUN_SEND : COLLRUN_RECV, &token, 1, !r->rank, 0),
            status = rig_exec(g, &call, 1);
        RIG_CHECK(r, status == COLLRUN_OK);
    }
    return 0;
}

static void requests_overlap(void **state)
{
    (void)state;
    const struct rig_options options = mpi_rig_options(3);
    assert_int_equal(rig_run(&options, several_requests), 0);
    const struct rig_options two = mpi_rig_options(2);
    assert_int_equal(rig_run(&two, wait_beside_a_collective), 0);
}

/* ---- several groups ---- */

struct driver {
    pthread_t thread;
    struct rig_rank *r;
    struct rig_group *group;
    uint32_t salt;
    int failed;
};

static void *drive_group(void *arg)
{
    struct driver *d = arg;
    for (uint32_t i = 0; i < 100 && !d->failed; i++)
        d->failed = mpi_rig_sum(d->r, d->group, d->salt + i);
    return NULL;
}

/* The groups of this test: nobody has all ranks, so MPI starts in several of them. */
static const struct {
    const char *name;
    uint32_t members[4], n;
} teams[] = {
    {"a", {0, 1}, 2},    {"b", {2, 3}, 2},       {"c", {3, 1}, 2},
    {"d", {4, 2, 0}, 3}, {"e", {1, 2, 3, 0}, 4}, {"f", {4}, 1},
};
#define NTEAMS (sizeof(teams) / sizeof(teams[0]))

static int overlapping(struct rig_rank *r)
{
    struct driver drivers[NTEAMS];
    uint32_t n = 0;
    int failed = 0;
    for (uint32_t t = 0; t < NTEAMS; t++)
        for (uint32_t i = 0; i < teams[t].n; i++)
            if (teams[t].members[i] == r->rank) {
                struct driver *d = &drivers[n++];
                *d = (struct driver){.r = r, .salt = t * 1000};
                RIG_CHECK(r, rig_group_open(r, teams[t].name, teams[t].members, teams[t].n,
                                            &d->group) == COLLRUN_OK);
            }
    for (uint32_t i = 0; i < n; i++)
        pthread_create(&drivers[i].thread, NULL, drive_group, &drivers[i]);
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(drivers[i].thread, NULL);
        failed |= drivers[i].failed;
        rig_group_close(drivers[i].group);
    }
    rig_sync(r);
    return failed;
}

static void groups_overlap_and_run_at_once(void **state)
{
    (void)state;
    struct rig_options options = mpi_rig_options(5);
    options.no_group = true;
    assert_int_equal(rig_run(&options, overlapping), 0);
}

static long open_files(void)
{
    long n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

/* Of this process alone: the rig's store grows with every rendezvous. */
static long memory_kib(void)
{
    char line[256];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "RssAnon: %ld", &kib);
    if (f)
        fclose(f);
    return kib;
}

/* In turns of two names over the same ranks, with a message that stays behind every time. */
static int again_and_again(struct rig_rank *r)
{
    const uint32_t members[] = {1, 0, 2};
    long files = 0, kib = 0;
    for (uint32_t i = 0; i < 400; i++) {
        struct rig_group *g;
        RIG_CHECK(r, rig_group_open(r, i % 2 ? "odd" : "even", members, 3, &g) == COLLRUN_OK);
        if (mpi_rig_sum(r, g, i) != 0)
            return 1;
        int value = (int)i, got = -1;
        struct collrun_call call = mpi_rig_message(COLLRUN_SEND, &value, 1, 1, 3);
        if (r->rank == 2 && i % 2 == 0) /* group rank 2 to 1, which is rank 0 */
            RIG_CHECK(r, rig_exec(g, &call, 1) == COLLRUN_OK);
        if (r->rank == 2 && i % 2 == 1)
            RIG_CHECK(r, rig_exec(g, &call, 1) == COLLRUN_OK);
        call = mpi_rig_message(COLLRUN_RECV, &got, 1, 2, 3);
        if (r->rank == 0 && i % 2 == 1)
            RIG_CHECK(r, rig_exec(g, &call, 1) == COLLRUN_OK && got == (int)i);
        rig_group_close(g);
        if (i == 100)
            files = open_files(), kib = memory_kib();
    }
    RIG_CHECK(r, open_files() == files);
    RIG_CHECK(r, kib > 0 && memory_kib() < kib + 512);
    return 0;
}

static void names_are_used_again(void **state)
{
    (void)state;
    const struct rig_options options = mpi_rig_options(3);
    assert_int_equal(rig_run(&options, again_and_again), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_on_one_host),
        cmocka_unit_test(every_kind_on_several_hosts),
        cmocka_unit_test(messages_of_a_batch_progress_together),
        cmocka_unit_test(messages_keep_their_order),
        cmocka_unit_test(wrong_messages_are_told),
        cmocka_unit_test(requests_overlap),
        cmocka_unit_test(groups_overlap_and_run_at_once),
        cmocka_unit_test(names_are_used_again),
    };
    return mpi_rig_run(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
