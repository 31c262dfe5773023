/* SPDX-License-Identifier: Apache-2.0
 *
 * The out-of-tree backend of examples/backend-mpi, through the rig: every collective with the types
 * and operators it does natively, on one host and on several simulated ones; messages; groups over
 * the same and over other ranks, one after the other and at once; then time-outs, aborts and
 * deaths. The test builds the backend first, in a folder of its own; without Open MPI's compiler it
 * is skipped. Its sources are looked for in the current folder, the top of the tree.
 */
#include "coll_sweeps.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MS 1000000u

/* Where this test is sanitized, so is the backend, and what is freed is kept for a while. Open MPI
 * leaves much to the end of a process. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED "CFLAGS='-O1 -g -fsanitize=address,undefined' LDFLAGS= "
enum { GROWTH_KIB = 1 << 16 };
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}
#else
#define SANITIZED ""
enum { GROWTH_KIB = 512 };
#endif

static char backend_path[1024];

static struct rig_options options_for(uint32_t nranks)
{
    return (struct rig_options){.path = backend_path, .nranks = nranks, .limit_s = 120};
}

/* ---- data ---- */

static int all_kinds(struct rig_rank *r)
{
    static const size_t counts[] = {0, 1, 7, 1000, 4099, 100003};
    return coll_every_variant(r, counts, 6, false);
}

static void every_kind_on_one_host(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 8; n++) {
        const struct rig_options options = options_for(n);
        assert_int_equal(rig_run(&options, all_kinds), 0);
    }
}

static void every_kind_on_several_hosts(void **state)
{
    (void)state;
    static const uint32_t hosts[] = {0, 0, 1, 0, 1, 2};
    for (uint32_t n = 2; n <= 6; n++) {
        struct rig_options options = options_for(n);
        options.host_of = hosts;
        assert_int_equal(rig_run(&options, all_kinds), 0);
    }
}

/* ---- messages ---- */

static struct collrun_call message(enum collrun_kind kind, void *buf, size_t count, int peer,
                                   uint32_t tag)
{
    struct collrun_call call = COLLRUN_CALL(kind);
    call.send = call.recv = buf;
    call.count = count;
    call.dtype = COLLRUN_INT32;
    call.peer = peer;
    call.tag = tag;
    return call;
}

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
                calls[ncalls++] = message(COLLRUN_SEND, out, count, (int)peer, tag ? 1u << 31 : 0);
                calls[ncalls++] = message(COLLRUN_RECV, at, count, (int)peer, tag ? 0 : 1u << 31);
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
        struct rig_options options = options_for(n);
        assert_int_equal(rig_run(&options, exchange), 0);
        options.host_of = hosts;
        assert_int_equal(rig_run(&options, exchange), 0);
    }
}

/* Many small ones are on their way before anyone receives; then from whoever comes first. */
static int from_anyone(struct rig_rank *r)
{
    enum { EACH = 200 };
    if (r->rank > 0) {
        for (int i = 0; i < EACH; i++) {
            const struct collrun_call call = message(COLLRUN_SEND, &i, 1, 0, 7);
            RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_OK);
        }
        return 0;
    }
    usleep(20000);
    int next[8] = {0};
    for (uint32_t i = 0; i < EACH * (r->nranks - 1); i++) {
        int value = -1, source = -1;
        struct collrun_call call = message(COLLRUN_RECV_ANY, &value, 1, 0, 7);
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
    struct rig_options options = options_for(4);
    assert_int_equal(rig_run(&options, from_anyone), 0);
    options.host_of = hosts;
    assert_int_equal(rig_run(&options, from_anyone), 0);
}

static int wrong_message(struct rig_rank *r)
{
    const int which = *(const int *)r->arg;
    int buf[4] = {1, 2, 3, 4};
    struct collrun_call call =
        message(r->rank ? COLLRUN_RECV : COLLRUN_SEND, buf, 2, r->rank ? 0 : 1, 0);
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
        struct rig_options options = options_for(2);
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
    int got = -1, mine = (int)r->rank, sums[20], ones[20], status;
    void *receive, *requests[20];
    struct collrun_call call = message(COLLRUN_RECV, &got, 1, before, 0);
    RIG_CHECK(r, start_call(g, &call, &receive) == COLLRUN_OK);
    for (int i = 0; i < 20; i++) {
        struct collrun_call sum = COLLRUN_CALL(COLLRUN_ALLREDUCE);
        ones[i] = i;
        sum.send = &ones[i], sum.recv = &sums[i], sum.count = 1, sum.dtype = COLLRUN_INT32;
        RIG_CHECK(r, start_call(g, &sum, &requests[i]) == COLLRUN_OK);
    }
    for (int i = 19; i >= 0; i--) {
        while ((status = g->backend->test(g->handle, requests[i])) == COLLRUN_AGAIN)
            usleep(10);
        RIG_CHECK(r, status == COLLRUN_OK && sums[i] == i * (int)r->nranks);
    }
    RIG_CHECK(r, g->backend->test(g->handle, receive) == COLLRUN_AGAIN && got == -1);
    call = message(COLLRUN_SEND, &mine, 1, next, 0);
    rig_sync(r);
    RIG_CHECK(r, rig_exec(g, &call, 1) == COLLRUN_OK);
    while ((status = g->backend->test(g->handle, receive)) == COLLRUN_AGAIN)
        usleep(10);
    RIG_CHECK(r, status == COLLRUN_OK && got == before);
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
            while ((status = g->backend->test(g->handle, request)) == COLLRUN_AGAIN)
                usleep(10);
        else
            call = message(r->rank ? COLLRUN_SEND : COLLRUN_RECV, &token, 1, !r->rank, 0),
            status = rig_exec(g, &call, 1);
        RIG_CHECK(r, status == COLLRUN_OK);
    }
    return 0;
}

static void requests_overlap(void **state)
{
    (void)state;
    const struct rig_options options = options_for(3);
    assert_int_equal(rig_run(&options, several_requests), 0);
    const struct rig_options two = options_for(2);
    assert_int_equal(rig_run(&two, wait_beside_a_collective), 0);
}

/* ---- several groups ---- */

static int sum_in(struct rig_rank *r, struct rig_group *g, uint32_t salt)
{
    const struct coll_case c = {
        .kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_INT64, .count = 1 + salt % 2000, .salt = salt};
    return coll_case_run(r, g, &c);
}

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
        d->failed = sum_in(d->r, d->group, d->salt + i);
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
    struct rig_options options = options_for(5);
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
        if (sum_in(r, g, i) != 0)
            return 1;
        int value = (int)i, got = -1;
        struct collrun_call call = message(COLLRUN_SEND, &value, 1, 1, 3);
        if (r->rank == 2 && i % 2 == 0) /* group rank 2 to 1, which is rank 0 */
            RIG_CHECK(r, rig_exec(g, &call, 1) == COLLRUN_OK);
        if (r->rank == 2 && i % 2 == 1)
            RIG_CHECK(r, rig_exec(g, &call, 1) == COLLRUN_OK);
        call = message(COLLRUN_RECV, &got, 1, 2, 3);
        if (r->rank == 0 && i % 2 == 1)
            RIG_CHECK(r, rig_exec(g, &call, 1) == COLLRUN_OK && got == (int)i);
        rig_group_close(g);
        if (i == 100)
            files = open_files(), kib = memory_kib();
    }
    RIG_CHECK(r, open_files() == files);
    RIG_CHECK(r, kib > 0 && memory_kib() < kib + GROWTH_KIB);
    return 0;
}

static void names_are_used_again(void **state)
{
    (void)state;
    const struct rig_options options = options_for(3);
    assert_int_equal(rig_run(&options, again_and_again), 0);
}
/* ---- failures ---- */

/* What a failure test knows: the kind of operation that cannot end, and where the ranks are. */
struct plight {
    enum collrun_kind kind;
    const uint32_t *hosts;
    size_t count;
};

static int stuck(struct rig_rank *r, struct rig_group *g)
{
    const struct plight *p = r->arg;
    int *buf = calloc(3 * p->count + 1, sizeof *buf);
    struct collrun_call call = message(p->kind, buf, p->count, r->rank == 1 ? 2 : 1, 0);
    call.recv = buf + p->count;
    const int status = rig_exec(g, &call, 1);
    free(buf);
    return status;
}

static int stays_failed(struct rig_rank *r, struct rig_group *g, int status)
{
    char first[512];
    snprintf(first, sizeof(first), "%s", rig_error());
    const struct collrun_call again = COLLRUN_CALL(COLLRUN_BARRIER);
    const uint64_t start = rig_now_ns();
    RIG_CHECK(r, rig_exec(g, &again, 1) == status);
    RIG_CHECK(r, rig_now_ns() - start < 100 * MS && strcmp(first, rig_error()) == 0);
    return 0;
}

/* Rank 0 stays away. The others' group ends; another one goes on, and the name can be used again.
 */
static int rank_0_is_missing(struct rig_rank *r)
{
    const uint32_t all[] = {0, 1, 2};
    struct rig_group *second, *third;
    RIG_CHECK(r, rig_group_open(r, "second", all, 3, &second) == COLLRUN_OK);
    r->group->timeout_ns = 200 * MS;
    if (r->rank > 0) {
        const uint64_t start = rig_now_ns();
        RIG_CHECK(r, stuck(r, r->group) == COLLRUN_ERR_TIMEOUT);
        RIG_CHECK(r, rig_now_ns() - start >= 200 * MS && rig_now_ns() - start < 1500 * MS);
        RIG_CHECK(r, strstr(rig_error(), "0.2 s"));
        if (stays_failed(r, r->group, COLLRUN_ERR_TIMEOUT) != 0)
            return 1;
    }
    rig_sync(r);
    if (sum_in(r, second, 5) != 0)
        return 1;
    RIG_CHECK(r, rig_group_open(r, "third", all, 3, &third) == COLLRUN_OK);
    if (sum_in(r, third, 6) != 0)
        return 1;
    rig_group_close(second);
    rig_group_close(third);
    return 0;
}

static const uint32_t apart[] = {0, 1, 2};
static const struct plight plights[] = {
    {COLLRUN_ALLREDUCE, NULL, 10}, {COLLRUN_BARRIER, NULL, 0},    {COLLRUN_ALLTOALL, NULL, 1000000},
    {COLLRUN_RECV, NULL, 10},      {COLLRUN_SEND, NULL, 100000},  {COLLRUN_ALLREDUCE, apart, 10},
    {COLLRUN_RECV, apart, 10},     {COLLRUN_SEND, apart, 100000},
};
#define NPLIGHTS (sizeof(plights) / sizeof(plights[0]))

static void try_plights(int (*fn)(struct rig_rank *r))
{
    for (size_t i = 0; i < NPLIGHTS; i++) {
        struct rig_options options = options_for(3);
        options.host_of = plights[i].hosts;
        options.arg = (void *)(uintptr_t)&plights[i];
        if (rig_run(&options, fn) != 0)
            fail_msg("plight %zu", i);
    }
}

static void time_runs_out(void **state)
{
    (void)state;
    try_plights(rank_0_is_missing);
}

static int aborted(struct rig_rank *r)
{
    if (r->rank == 0) {
        usleep(50000);
        rig_abort_everywhere(r);
        return 0;
    }
    RIG_CHECK(r, stuck(r, r->group) == COLLRUN_ERR_ABORTED);
    RIG_CHECK(r, rig_now_ns() - rig_abort_ns(r) < 2000 * MS);
    return stays_failed(r, r->group, COLLRUN_ERR_ABORTED);
}

static void abort_ends_every_wait(void **state)
{
    (void)state;
    try_plights(aborted);
}

/* Rank 0 dies. Nobody tells the others; they have a socket to it, or memory. */
static int killed(struct rig_rank *r)
{
    r->group->timeout_ns = 500 * MS;
    if (r->rank == 0)
        usleep(50000), rig_kill(r, 0);
    const int status = stuck(r, r->group);
    RIG_CHECK(r, status == COLLRUN_ERR_TIMEOUT || status == COLLRUN_ERR_BACKEND);
    return stays_failed(r, r->group, status);
}

static void death_of_a_peer_is_survived(void **state)
{
    (void)state;
    static const bool may_die[] = {true, false, false};
    for (size_t i = 0; i < NPLIGHTS; i++) {
        struct rig_options options = options_for(3);
        options.host_of = plights[i].hosts;
        options.may_die = may_die;
        options.arg = (void *)(uintptr_t)&plights[i];
        if (rig_run(&options, killed) != 0)
            fail_msg("plight %zu", i);
    }
}

/* A rank dies in the middle of large messages that come to it through a socket: what breaks then is
 * Open MPI itself. */
static int dies_in_mid_message(struct rig_rank *r)
{
    enum { N = 64, COUNT = 1 << 20 };
    int *buf = calloc(COUNT, sizeof *buf);
    struct collrun_call calls[N];
    r->group->timeout_ns = 2000 * MS;
    for (int i = 0; i < N; i++)
        calls[i] = message(r->rank ? COLLRUN_SEND : COLLRUN_RECV, buf, COUNT, 1 - (int)r->rank, 0);
    if (r->rank == 0)
        rig_abort_after(r, 1);
    const int status = rig_exec(r->group, calls, N);
    if (r->rank == 0)
        rig_kill(r, 0);
    RIG_CHECK(r, status == COLLRUN_ERR_TIMEOUT || status == COLLRUN_ERR_BACKEND);
    free(buf);
    return stays_failed(r, r->group, status);
}

static void a_broken_socket_is_survived(void **state)
{
    (void)state;
    static const bool may_die[] = {true, false};
    struct rig_options options = options_for(2);
    options.host_of = apart;
    options.may_die = may_die;
    assert_int_equal(rig_run(&options, dies_in_mid_message), 0);
}
/* MPI_Init ends a process when it fails, since nobody could have set an error handler yet. */
static int cannot_start(struct rig_rank *r)
{
    const uint32_t all[] = {0, 1};
    struct rig_group *g;
    for (int i = 0; i < 2; i++) {
        RIG_CHECK(r, rig_group_open(r, "world", all, 2, &g) == COLLRUN_ERR_BACKEND);
        RIG_CHECK(r, strstr(rig_error(), "Open MPI gave up"));
        rig_sync(r);
    }
    return 0;
}

static void open_mpi_cannot_start_but_the_process_lives(void **state)
{
    (void)state;
    struct rig_options options = options_for(2);
    options.no_group = true;
    setenv("OMPI_MCA_btl", "self", 1); /* no way to any other rank */
    const int failed = rig_run(&options, cannot_start);
    unsetenv("OMPI_MCA_btl");
    assert_int_equal(failed, 0);
}

/* What a rank's process was like before, it is like while MPI runs: environment, signal handlers,
 * files that others see. */
static int is_discreet(struct rig_rank *r)
{
    const uint32_t all[] = {0, 1};
    struct rig_group *g;
    struct sigaction before[32], after;
    for (int i = 1; i < 32; i++)
        sigaction(i, NULL, &before[i]);
    setenv("FLUX_JOB_ID", "mine", 1);
    RIG_CHECK(r, rig_group_open(r, "world", all, 2, &g) == COLLRUN_OK);
    for (int i = 1; i < 32; i++) {
        sigaction(i, NULL, &after);
        RIG_CHECK(r, after.sa_handler == before[i].sa_handler);
    }
    RIG_CHECK(r, strcmp(getenv("FLUX_JOB_ID"), "mine") == 0);
    RIG_CHECK(r, !getenv("FLUX_PMI_LIBRARY_PATH") && !getenv("OMPI_MCA_pmix") &&
                     !getenv("OMPI_MCA_op"));
    if (sum_in(r, g, 3) != 0)
        return 1;
    rig_sync(r);
    rig_kill(r, r->rank);
    return 1;
}

/* Names in /dev/shm, /tmp, and memory of System V. */
static void names(char *out, size_t len)
{
    FILE *f = popen(
        "ls /dev/shm; ls -d /tmp/ompi* /tmp/openmpi* 2>/dev/null; cut -c1-21 /proc/sysvipc/shm",
        "r");
    assert_non_null(f);
    out[fread(out, 1, len - 1, f)] = '\0';
    pclose(f);
}

static void nothing_is_left_of_a_killed_rank(void **state)
{
    (void)state;
    static const bool may_die[] = {true, true};
    static char before[65536], after[65536];
    struct rig_options options = options_for(2);
    options.no_group = true;
    options.may_die = may_die;
    names(before, sizeof before);
    assert_int_equal(rig_run(&options, is_discreet), 0);
    names(after, sizeof after);
    assert_string_equal(before, after);
}

/* 0, or 1 if there is no compiler for it. */
static int build_backend(char *dir, size_t len)
{
    char command[1024];
    snprintf(dir, len, "%s/test_backend_mpi.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (system("command -v mpicc.openmpi >/dev/null") != 0 || !mkdtemp(dir))
        return 1;
    snprintf(command, sizeof command,
             "make -s -C '%s' -f \"$PWD/examples/backend-mpi/Makefile\" "
             "CPPFLAGS=-I\"$PWD/engine/include\" PKG_CONFIG=: " SANITIZED "MPICC=mpicc.openmpi",
             dir);
    assert_int_equal(system(command), 0);
    snprintf(backend_path, sizeof backend_path, "%s/libcollrun_mpi.so", dir);
    return 0;
}

int main(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    puts("1..1\nok 1 - the MPI backend under a sanitizer # SKIP Open MPI itself leaks and races");
    return 0;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_on_one_host),
        cmocka_unit_test(every_kind_on_several_hosts),
        cmocka_unit_test(messages_of_a_batch_progress_together),
        cmocka_unit_test(messages_keep_their_order),
        cmocka_unit_test(wrong_messages_are_told),
        cmocka_unit_test(requests_overlap),
        cmocka_unit_test(groups_overlap_and_run_at_once),
        cmocka_unit_test(names_are_used_again),
        cmocka_unit_test(time_runs_out),
        cmocka_unit_test(abort_ends_every_wait),
        cmocka_unit_test(death_of_a_peer_is_survived),
        cmocka_unit_test(a_broken_socket_is_survived),
        cmocka_unit_test(open_mpi_cannot_start_but_the_process_lives),
        cmocka_unit_test(nothing_is_left_of_a_killed_rank),
    };
    char dir[512];
    if (build_backend(dir, sizeof dir) != 0) {
        printf("1..1\nok 1 - backend-mpi # SKIP Open MPI is not installed\n");
        return 0;
    }
    cmocka_set_test_filter(getenv("TEST_FILTER"));
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(backend_path);
    rmdir(dir);
    return failed;
}
