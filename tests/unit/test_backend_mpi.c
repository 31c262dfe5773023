/* SPDX-License-Identifier: Apache-2.0
 *
 * The out-of-tree backend of examples/backend-mpi, through the harness: every collective with the
 * types and operators it does natively, on one host and on several simulated ones; messages; groups
 * over the same and over other ranks, one after the other and at once. What goes wrong is
 * test_backend_mpi_failures.c.
 */
#include "coll_sweeps.h"
#include "mpi_harness.h"
#include "progress/p2p.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- data ---- */

static int all_kinds(struct harness_rank *r)
{
    static const size_t counts[] = {0, 1, 7, 1000, 4099, 100003};
    return coll_every_variant(r, counts, 6, false);
}

static void every_kind_on_one_host(void **state)
{
    (void)state;
    const struct harness_options options = mpi_harness_options(8);
    assert_int_equal(harness_run_each(&options, 1, all_kinds), 0);
}

static void every_kind_on_several_hosts(void **state)
{
    (void)state;
    static const uint32_t hosts[] = {0, 0, 1, 0, 1, 2};
    struct harness_options options = mpi_harness_options(6);
    options.host_of = hosts;
    assert_int_equal(harness_run_each(&options, 2, all_kinds), 0);
}

/* ---- messages ---- */

static int wait_for_batch(struct p2p *p2p, struct p2p_batch *batch)
{
    int status;
    while ((status = p2p_check(p2p, batch)) == COLLRUN_AGAIN && (status = p2p_progress(p2p)) >= 0)
        ;
    return status;
}

/* All ranks to all ranks at once, at sizes below and above MPI's eager limit; two tags
 * that overtake. */
static int exchange(struct harness_rank *r)
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
                    mpi_harness_message(COLLRUN_SEND, out, count, (int)peer, tag ? 1u << 31 : 0);
                calls[ncalls++] =
                    mpi_harness_message(COLLRUN_RECV, at, count, (int)peer, tag ? 0 : 1u << 31);
            }
        HARNESS_CHECK(r, harness_exec(r->group, calls, ncalls) == COLLRUN_OK);
        for (uint32_t peer = 0; peer < n; peer++)
            for (size_t i = 0; i < 2 * (count + 1); i++) {
                const bool filled = peer != r->rank && i % (count + 1) < count;
                HARNESS_CHECK(r, in[2 * peer * (count + 1) + i] ==
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
        struct harness_options options = mpi_harness_options(n);
        assert_int_equal(harness_run(&options, exchange), 0);
        options.host_of = hosts;
        assert_int_equal(harness_run(&options, exchange), 0);
    }
}

/* Many small messages are in flight before rank 0 receives them from any source. */
static int from_any_source(struct harness_rank *r)
{
    enum { EACH = 200, AHEAD = 30 };
    if (r->rank > 0) {
        for (int i = 0; i < EACH; i++) {
            const struct collrun_call call = mpi_harness_message(COLLRUN_SEND, &i, 1, 0, 7);
            HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK);
            if (i == AHEAD)
                harness_sync(r);
        }
        return 0;
    }
    harness_sync(r);
    int next[8] = {0};
    for (uint32_t i = 0; i < EACH * (r->nranks - 1); i++) {
        int value = -1, source = -1;
        struct collrun_call call = mpi_harness_message(COLLRUN_RECV_ANY, &value, 1, 0, 7);
        call.source = &source;
        HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK);
        HARNESS_CHECK(r, source > 0 && source < (int)r->nranks && value == next[source]++);
    }
    return 0;
}

static void messages_keep_their_order(void **state)
{
    (void)state;
    static const uint32_t hosts[] = {0, 1, 0, 1};
    struct harness_options options = mpi_harness_options(4);
    assert_int_equal(harness_run(&options, from_any_source), 0);
    options.host_of = hosts;
    assert_int_equal(harness_run(&options, from_any_source), 0);
}

/* Two messages that are not eager, the second one sent when MPI has had time for the first, are
 * received in the other order. */
static int overtake(struct harness_rank *r)
{
    static const size_t counts[] = {600, 900, 5000, 300000};
    struct p2p_batch batches[2];
    struct collrun_call calls[2];
    for (size_t s = 0; s < 4; s++) {
        int *data[2] = {calloc(counts[s], sizeof(int)), calloc(counts[s], sizeof(int))};
        for (int i = 0; i < 2; i++) {
            data[i][counts[s] - 1] = r->rank ? -1 : i;
            calls[i] = mpi_harness_message(r->rank ? COLLRUN_RECV : COLLRUN_SEND, data[i],
                                           counts[s], !r->rank, (uint32_t)i);
            calls[i].timeout_ns = r->group->timeout_ns;
        }
        for (int i = 0; i < 2 && r->rank == 0; i++) {
            HARNESS_CHECK(r, p2p_start(r->group->p2p, &calls[i], 1, &batches[i]) == COLLRUN_OK);
            for (int k = 0; k < 1000; k++)
                HARNESS_CHECK(r, p2p_progress(r->group->p2p) >= 0);
            HARNESS_CHECK(r, p2p_check(r->group->p2p, &batches[i]) == COLLRUN_AGAIN);
        }
        harness_sync(r);
        for (int i = 1; i >= 0; i--) {
            HARNESS_CHECK(r, (r->rank ? harness_exec(r->group, &calls[i], 1)
                                      : wait_for_batch(r->group->p2p, &batches[i])) == COLLRUN_OK);
            HARNESS_CHECK(r, data[i][counts[s] - 1] == i);
            free(data[i]);
        }
    }
    return 0;
}

static void long_messages_overtake(void **state)
{
    (void)state;
    static const uint32_t hosts[] = {0, 1};
    struct harness_options options = mpi_harness_options(2);
    assert_int_equal(harness_run(&options, overtake), 0);
    options.host_of = hosts;
    assert_int_equal(harness_run(&options, overtake), 0);
}

static int wrong_message(struct harness_rank *r)
{
    const int which = *(const int *)r->arg;
    int buf[4] = {1, 2, 3, 4};
    struct collrun_call call =
        mpi_harness_message(r->rank ? COLLRUN_RECV : COLLRUN_SEND, buf, 2, r->rank ? 0 : 1, 0);
    if (r->rank == 0) {
        call.count = which == 0 ? 3 : which == 1 ? 1 : 2;
        call.dtype = which == 2 ? COLLRUN_FLOAT32 : COLLRUN_INT32;
        HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK);
        return 0;
    }
    buf[0] = 77;
    HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_ERR_MISMATCH);
    HARNESS_CHECK(r, strstr(harness_error(), "rank 0 calls send(") &&
                         strstr(harness_error(), "calls recv(2 x int32"));
    HARNESS_CHECK(r, buf[0] == 77 && buf[2] == 3);
    HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_ERR_MISMATCH);
    return 0;
}

static void wrong_messages_are_reported(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        struct harness_options options = mpi_harness_options(2);
        options.arg = &which;
        assert_int_equal(harness_run(&options, wrong_message), 0);
    }
}

/* ---- several requests of one group ---- */

static int start_call(struct harness_group *g, struct collrun_call *call, void **request)
{
    call->timeout_ns = g->timeout_ns;
    return g->backend->start(g->handle, call, 1, request);
}

/* A receive without a sender yet does not block collectives, of which several are
 * under way. */
static int several_requests(struct harness_rank *r)
{
    struct harness_group *g = r->group;
    const int next = (int)((r->rank + 1) % r->nranks),
              before = (int)((r->rank + r->nranks - 1) % r->nranks);
    int got = -1, mine = (int)r->rank, sums[20], ones[20];
    void *requests[20];
    struct p2p_batch batch;
    struct collrun_call receive = mpi_harness_message(COLLRUN_RECV, &got, 1, before, 0);
    receive.timeout_ns = g->timeout_ns;
    HARNESS_CHECK(r, p2p_start(g->p2p, &receive, 1, &batch) == COLLRUN_OK);
    for (int i = 0; i < 20; i++) {
        struct collrun_call sum = COLLRUN_CALL(COLLRUN_ALLREDUCE);
        ones[i] = i;
        sum.send = &ones[i], sum.recv = &sums[i], sum.count = 1, sum.dtype = COLLRUN_INT32;
        HARNESS_CHECK(r, start_call(g, &sum, &requests[i]) == COLLRUN_OK);
    }
    for (int i = 19; i >= 0; i--)
        HARNESS_CHECK(r,
                      harness_wait(g, requests[i]) == COLLRUN_OK && sums[i] == i * (int)r->nranks);
    HARNESS_CHECK(r, p2p_progress(g->p2p) >= 0 && p2p_check(g->p2p, &batch) == COLLRUN_AGAIN);
    HARNESS_CHECK(r, got == -1);
    harness_sync(r);
    const struct collrun_call call = mpi_harness_message(COLLRUN_SEND, &mine, 1, next, 0);
    HARNESS_CHECK(r, harness_exec(g, &call, 1) == COLLRUN_OK);
    HARNESS_CHECK(r, wait_for_batch(g->p2p, &batch) == COLLRUN_OK && got == before);
    return 0;
}

/* Who waits for a message takes part in a collective that needs this rank twice. */
static int wait_beside_a_collective(struct harness_rank *r)
{
    struct harness_group *g = r->group;
    const size_t counts[] = {2, 2};
    int out[] = {1, 2, 3, 4}, in[4], token = 5, status = COLLRUN_OK;
    void *request;
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLTOALLV);
    call.send = out, call.recv = in, call.dtype = COLLRUN_INT32;
    call.sendcounts = call.recvcounts = counts;
    HARNESS_CHECK(r, start_call(g, &call, &request) == COLLRUN_OK);
    harness_sync(r);
    for (int i = 0; i < 2; i++) {
        if (i == (r->rank == 0))
            status = harness_wait(g, request);
        else
            call =
                mpi_harness_message(r->rank ? COLLRUN_SEND : COLLRUN_RECV, &token, 1, !r->rank, 0),
            status = harness_exec(g, &call, 1);
        HARNESS_CHECK(r, status == COLLRUN_OK);
    }
    return 0;
}

static void requests_overlap(void **state)
{
    (void)state;
    const struct harness_options options = mpi_harness_options(3);
    assert_int_equal(harness_run(&options, several_requests), 0);
    const struct harness_options two = mpi_harness_options(2);
    assert_int_equal(harness_run(&two, wait_beside_a_collective), 0);
}

/* ---- several groups ---- */

struct driver {
    pthread_t thread;
    struct harness_rank *r;
    struct harness_group *group;
    uint32_t salt;
    int failed;
};

static void *drive_group(void *arg)
{
    struct driver *d = arg;
    for (uint32_t i = 0; i < 100 && !d->failed; i++)
        d->failed = mpi_harness_sum(d->r, d->group, d->salt + i);
    return NULL;
}

/* The groups of this test: none has all ranks, so MPI starts in several of them. */
static const struct {
    const char *name;
    uint32_t members[4], n;
} teams[] = {
    {"a", {0, 1}, 2},    {"b", {2, 3}, 2},       {"c", {3, 1}, 2},
    {"d", {4, 2, 0}, 3}, {"e", {1, 2, 3, 0}, 4}, {"f", {4}, 1},
};
#define NTEAMS (sizeof(teams) / sizeof(teams[0]))

static int overlapping(struct harness_rank *r)
{
    struct driver drivers[NTEAMS];
    uint32_t n = 0;
    int failed = 0;
    for (uint32_t t = 0; t < NTEAMS; t++)
        for (uint32_t i = 0; i < teams[t].n; i++)
            if (teams[t].members[i] == r->rank) {
                struct driver *d = &drivers[n++];
                *d = (struct driver){.r = r, .salt = t * 1000};
                HARNESS_CHECK(r, harness_group_open(r, teams[t].name, teams[t].members, teams[t].n,
                                                    &d->group) == COLLRUN_OK);
            }
    for (uint32_t i = 0; i < n; i++)
        pthread_create(&drivers[i].thread, NULL, drive_group, &drivers[i]);
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(drivers[i].thread, NULL);
        failed |= drivers[i].failed;
        harness_group_close(drivers[i].group);
    }
    harness_sync(r);
    return failed;
}

static void groups_overlap_and_run_at_once(void **state)
{
    (void)state;
    struct harness_options options = mpi_harness_options(5);
    options.no_group = true;
    assert_int_equal(harness_run(&options, overlapping), 0);
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

/* Memory of this process alone: the harness's store grows with every rendezvous. */
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
static int again_and_again(struct harness_rank *r)
{
    const uint32_t members[] = {1, 0, 2};
    long files = 0, kib = 0;
    for (uint32_t i = 0; i < 400; i++) {
        struct harness_group *g;
        HARNESS_CHECK(r,
                      harness_group_open(r, i % 2 ? "odd" : "even", members, 3, &g) == COLLRUN_OK);
        if (mpi_harness_sum(r, g, i) != 0)
            return 1;
        int value = (int)i, got = -1;
        struct collrun_call call = mpi_harness_message(COLLRUN_SEND, &value, 1, 1, 3);
        if (r->rank == 2 && i % 2 == 0) /* group rank 2 to 1, which is rank 0 */
            HARNESS_CHECK(r, harness_exec(g, &call, 1) == COLLRUN_OK);
        if (r->rank == 2 && i % 2 == 1)
            HARNESS_CHECK(r, harness_exec(g, &call, 1) == COLLRUN_OK);
        call = mpi_harness_message(COLLRUN_RECV, &got, 1, 2, 3);
        if (r->rank == 0 && i % 2 == 1)
            HARNESS_CHECK(r, harness_exec(g, &call, 1) == COLLRUN_OK && got == (int)i);
        harness_group_close(g);
        if (i == 100)
            files = open_files(), kib = memory_kib();
    }
    HARNESS_CHECK(r, open_files() == files);
    HARNESS_CHECK(r, kib > 0 && memory_kib() < kib + 512);
    return 0;
}

static void names_are_used_again(void **state)
{
    (void)state;
    const struct harness_options options = mpi_harness_options(3);
    assert_int_equal(harness_run(&options, again_and_again), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_on_one_host),
        cmocka_unit_test(every_kind_on_several_hosts),
        cmocka_unit_test(messages_of_a_batch_progress_together),
        cmocka_unit_test(messages_keep_their_order),
        cmocka_unit_test(long_messages_overtake),
        cmocka_unit_test(wrong_messages_are_reported),
        cmocka_unit_test(requests_overlap),
        cmocka_unit_test(groups_overlap_and_run_at_once),
        cmocka_unit_test(names_are_used_again),
    };
    return mpi_harness_run(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
