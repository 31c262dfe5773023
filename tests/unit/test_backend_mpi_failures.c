/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend of examples/backend-mpi when something goes wrong: time-outs, aborts, deaths, a
 * broken socket, an Open MPI that cannot start. The process lives, and nothing is left behind.
 */
#include "coll_failures.h"
#include "mpi_harness.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MS 1000000u

/* What a failure test knows: the kind of operation that cannot end, and where the ranks are. */
struct plight {
    enum collrun_kind kind;
    const uint32_t *hosts;
    size_t count;
};

static int stuck(struct harness_rank *r, struct harness_group *g)
{
    const struct plight *p = r->arg;
    int *buf = calloc(3 * p->count + 1, sizeof *buf);
    struct collrun_call call = mpi_harness_message(p->kind, buf, p->count, r->rank == 1 ? 2 : 1, 0);
    call.recv = buf + p->count;
    const int status = harness_exec(g, &call, 1);
    free(buf);
    return status;
}

/* Rank 0 stays away. The others' group ends; another one goes on, and the name can be used again.
 */
static int rank_0_is_missing(struct harness_rank *r)
{
    const uint32_t all[] = {0, 1, 2};
    struct harness_group *second, *third;
    HARNESS_CHECK(r, harness_group_open(r, "second", all, 3, &second) == COLLRUN_OK);
    r->group->timeout_ns = 200 * MS;
    if (r->rank > 0) {
        const uint64_t start = harness_now_ns();
        HARNESS_CHECK(r, stuck(r, r->group) == COLLRUN_ERR_TIMEOUT);
        HARNESS_CHECK(r, harness_now_ns() - start >= 200 * MS &&
                             harness_now_ns() - start < HARNESS_AT_ONCE_NS);
        HARNESS_CHECK(r, strstr(harness_error(), "0.2 s"));
        if (coll_stays_failed(r, r->group, COLLRUN_ERR_TIMEOUT) != 0)
            return 1;
    }
    harness_sync(r);
    if (mpi_harness_sum(r, second, 5) != 0)
        return 1;
    HARNESS_CHECK(r, harness_group_open(r, "third", all, 3, &third) == COLLRUN_OK);
    if (mpi_harness_sum(r, third, 6) != 0)
        return 1;
    harness_group_close(second);
    harness_group_close(third);
    return 0;
}

static const uint32_t apart[] = {0, 1, 2};
static const struct plight plights[] = {
    {COLLRUN_ALLREDUCE, NULL, 10}, {COLLRUN_BARRIER, NULL, 0},    {COLLRUN_ALLTOALL, NULL, 1000000},
    {COLLRUN_RECV, NULL, 10},      {COLLRUN_SEND, NULL, 100000},  {COLLRUN_ALLREDUCE, apart, 10},
    {COLLRUN_RECV, apart, 10},     {COLLRUN_SEND, apart, 100000},
};
#define NPLIGHTS (sizeof(plights) / sizeof(plights[0]))

static void try_plights(int (*fn)(struct harness_rank *r))
{
    for (size_t i = 0; i < NPLIGHTS; i++) {
        struct harness_options options = mpi_harness_options(3);
        options.host_of = plights[i].hosts;
        options.arg = (void *)(uintptr_t)&plights[i];
        if (harness_run(&options, fn) != 0)
            fail_msg("plight %zu", i);
    }
}

static void time_runs_out(void **state)
{
    (void)state;
    try_plights(rank_0_is_missing);
}

static int aborted(struct harness_rank *r)
{
    if (r->rank == 0) {
        HARNESS_UNTIL(r, harness_inside_ms(r, 1) >= 30 && harness_inside_ms(r, 2) >= 30);
        harness_abort_everywhere(r);
        return 0;
    }
    HARNESS_CHECK(r, stuck(r, r->group) == COLLRUN_ERR_ABORTED);
    HARNESS_CHECK(r, harness_now_ns() - harness_abort_ns(r) < HARNESS_AT_ONCE_NS);
    return coll_stays_failed(r, r->group, COLLRUN_ERR_ABORTED);
}

static void abort_ends_every_wait(void **state)
{
    (void)state;
    try_plights(aborted);
}

/* Rank 0 dies. No abort follows; the others have a socket to it, or shared memory. */
static int killed(struct harness_rank *r)
{
    r->group->timeout_ns = 500 * MS;
    if (r->rank == 0) {
        HARNESS_UNTIL(r, harness_inside_ms(r, 1) >= 30);
        harness_kill(r, 0);
    }
    const int status = stuck(r, r->group);
    HARNESS_CHECK(r, status == COLLRUN_ERR_TIMEOUT || status == COLLRUN_ERR_BACKEND);
    return coll_stays_failed(r, r->group, status);
}

static void death_of_a_peer_is_survived(void **state)
{
    (void)state;
    static const bool may_die[] = {true, false, false};
    for (size_t i = 0; i < NPLIGHTS; i++) {
        struct harness_options options = mpi_harness_options(3);
        options.host_of = plights[i].hosts;
        options.may_die = may_die;
        options.arg = (void *)(uintptr_t)&plights[i];
        if (harness_run(&options, killed) != 0)
            fail_msg("plight %zu", i);
    }
}

/* Open MPI 4.1 may go on forever in its event loop after a write to a dead peer; collrun then ends
 * the rank. It prints why, and the case passes. */
static void open_mpi_hangs(int signo)
{
    static const char text[] = "# Open MPI hangs after a write to a dead peer\n";
    ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
    (void)signo, (void)n;
    _exit(0);
}

/* A rank dies while it receives large messages through a socket: what breaks then is Open MPI
 * itself. All sends have begun before. */
static int dies_in_mid_message(struct harness_rank *r)
{
    enum { N = 16, COUNT = 1 << 20 };
    int *buf = calloc(COUNT, sizeof *buf);
    struct collrun_call calls[N];
    r->group->timeout_ns = 2000 * MS;
    for (int i = 0; i < N; i++)
        calls[i] = mpi_harness_message(r->rank ? COLLRUN_SEND : COLLRUN_RECV, buf, COUNT,
                                       1 - (int)r->rank, 0);
    if (r->rank == 0) {
        HARNESS_UNTIL(r, harness_inside_ms(r, 1) >= 300);
        harness_abort_after(r, 1);
    }
    signal(SIGALRM, open_mpi_hangs);
    alarm(r->rank ? 20 : 0);
    const int status = harness_exec(r->group, calls, N);
    if (r->rank == 0)
        harness_kill(r, 0);
    HARNESS_CHECK(r, status == COLLRUN_ERR_TIMEOUT || status == COLLRUN_ERR_BACKEND);
    free(buf);
    return coll_stays_failed(r, r->group, status);
}

static void a_broken_socket_is_survived(void **state)
{
    (void)state;
    static const bool may_die[] = {true, false};
    struct harness_options options = mpi_harness_options(2);
    options.host_of = apart;
    options.may_die = may_die;
    assert_int_equal(harness_run(&options, dies_in_mid_message), 0);
}

/* MPI_Init ends the process when it fails, since no error handler can be set before it. */
static int cannot_start(struct harness_rank *r)
{
    const uint32_t all[] = {0, 1};
    struct harness_group *g;
    for (int i = 0; i < 2; i++) {
        HARNESS_CHECK(r, harness_group_open(r, "world", all, 2, &g) == COLLRUN_ERR_BACKEND);
        HARNESS_CHECK(r, strstr(harness_error(), "Open MPI gave up"));
        harness_sync(r);
    }
    return 0;
}

static void open_mpi_cannot_start_but_the_process_lives(void **state)
{
    (void)state;
    struct harness_options options = mpi_harness_options(2);
    options.no_group = true;
    setenv("OMPI_MCA_btl", "self", 1); /* no way to any other rank */
    const int failed = harness_run(&options, cannot_start);
    unsetenv("OMPI_MCA_btl");
    assert_int_equal(failed, 0);
}

/* What a rank's process was like before, it is like while MPI runs: environment, signal handlers,
 * files that others see. */
static int is_discreet(struct harness_rank *r)
{
    const uint32_t all[] = {0, 1};
    struct harness_group *g;
    struct sigaction before[32], after;
    for (int i = 1; i < 32; i++)
        sigaction(i, NULL, &before[i]);
    setenv("FLUX_JOB_ID", "mine", 1);
    HARNESS_CHECK(r, harness_group_open(r, "world", all, 2, &g) == COLLRUN_OK);
    for (int i = 1; i < 32; i++) {
        sigaction(i, NULL, &after);
        HARNESS_CHECK(r, after.sa_handler == before[i].sa_handler);
    }
    HARNESS_CHECK(r, strcmp(getenv("FLUX_JOB_ID"), "mine") == 0);
    HARNESS_CHECK(r, !getenv("FLUX_PMI_LIBRARY_PATH") && !getenv("OMPI_MCA_pmix") &&
                         !getenv("OMPI_MCA_op"));
    if (mpi_harness_sum(r, g, 3) != 0)
        return 1;
    harness_sync(r);
    harness_kill(r, r->rank);
    return 1;
}

/* Names in /dev/shm, /tmp, and memory of System V, one a line. */
static void names(char *out, size_t len)
{
    FILE *f = popen(
        "ls /dev/shm; ls -d /tmp/ompi* /tmp/openmpi* 2>/dev/null; cut -c1-21 /proc/sysvipc/shm",
        "r");
    assert_non_null(f);
    out[fread(out, 1, len - 1, f)] = '\0';
    pclose(f);
}

static bool has_line(const char *text, const char *line, size_t len)
{
    for (const char *at = text; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
        if (strncmp(at, line, len) == 0 && at[len] == '\n')
            return true;
    }
    return false;
}

/* Other programs make and remove names meanwhile: only one that stays has been left. */
static bool new_names_stay(const char *before, const char *after)
{
    char now[65536];
    names(now, sizeof now);
    size_t len = 0;
    for (const char *line = after; *line; line += len + (line[len] == '\n')) {
        len = strcspn(line, "\n");
        if (!has_line(before, line, len) && has_line(now, line, len))
            return true;
    }
    return false;
}

static void nothing_is_left_of_a_killed_rank(void **state)
{
    (void)state;
    static const bool may_die[] = {true, true};
    static char before[65536], after[65536];
    struct harness_options options = mpi_harness_options(2);
    options.no_group = true;
    options.may_die = may_die;
    names(before, sizeof before);
    assert_int_equal(harness_run(&options, is_discreet), 0);
    names(after, sizeof after);
    for (int i = 0; i < 300 && new_names_stay(before, after); i++)
        usleep(100000);
    assert_false(new_names_stay(before, after));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_runs_out),
        cmocka_unit_test(abort_ends_every_wait),
        cmocka_unit_test(death_of_a_peer_is_survived),
        cmocka_unit_test(a_broken_socket_is_survived),
        cmocka_unit_test(open_mpi_cannot_start_but_the_process_lives),
        cmocka_unit_test(nothing_is_left_of_a_killed_rank),
    };
    return mpi_harness_run(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
