/* SPDX-License-Identifier: Apache-2.0
 *
 * How the ranks of a Gloo group connect: when they need each other and not before, both at once,
 * with strangers at the door, and to a rank that is stopped, dead or has left. Hosts that do not
 * reach each other are in tests/e2e/hosts/test_doctor.sh.
 */
#include "backend_rig.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define MS 1000000u

static struct rig_options options_for(uint32_t nranks)
{
    return (struct rig_options){.path = rig_backend_path("gloo"), .nranks = nranks};
}

/* ---- what is open ---- */

/* Calls `each` for every TCP socket of this process; how many there are of the kind. */
static int sockets(bool listening, void (*each)(const struct sockaddr_in *address))
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const int fd = atoi(e->d_name);
        int accepts = 0;
        struct sockaddr_in address;
        socklen_t len = sizeof accepts, address_len = sizeof address;
        if (e->d_name[0] == '.' ||
            getsockname(fd, (struct sockaddr *)&address, &address_len) != 0 ||
            address.sin_family != AF_INET ||
            getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &len) != 0)
            continue;
        if (accepts != listening)
            continue;
        n++;
        if (each)
            each(&address);
    }
    if (dir)
        closedir(dir);
    return n;
}

static struct collrun_call call_of(enum collrun_kind kind, void *in, void *out, size_t count)
{
    struct collrun_call call = COLLRUN_CALL(kind);
    call.send = in;
    call.recv = out;
    call.count = count;
    call.dtype = COLLRUN_INT32;
    return call;
}

/* Everybody sends its rank to everybody: every pair, both ends at the same time. */
static int everybody(struct rig_rank *r, struct rig_group *g)
{
    int32_t in[RIG_MAX_RANKS], out[RIG_MAX_RANKS];
    for (uint32_t i = 0; i < g->nranks; i++)
        in[i] = (int32_t)(g->rank * 1000 + i);
    const struct collrun_call call = call_of(COLLRUN_ALLTOALL, in, out, 1);
    RIG_CHECK(r, rig_exec(g, &call, 1) == COLLRUN_OK);
    for (uint32_t i = 0; i < g->nranks; i++)
        RIG_CHECK(r, out[i] == (int32_t)(i * 1000 + g->rank));
    return 0;
}

/* ---- as they are needed ---- */

/* Two that meet make one connection more than they keep: how many there are is waited for. */
static int as_needed(struct rig_rank *r)
{
    int32_t in = 1, out = 0;
    int few = 0;
    const struct collrun_call call = call_of(COLLRUN_ALLREDUCE, &in, &out, 1);
    RIG_CHECK(r, sockets(false, NULL) == 0);
    rig_sync(r);
    RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_OK && out == 12);
    rig_sync(r);
    RIG_UNTIL(r, (few = sockets(false, NULL)) < 11);
    RIG_CHECK(r, few > 0);
    rig_sync(r);
    RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_OK && out == 12);
    RIG_UNTIL(r, sockets(false, NULL) == few);
    rig_sync(r);
    if (everybody(r, r->group) != 0)
        return 1;
    rig_sync(r);
    RIG_UNTIL(r, sockets(false, NULL) == 11);
    RIG_CHECK(r, sockets(true, NULL) == 1);
    rig_sync(r); /* nobody leaves before */
    return 0;
}

static void a_connection_is_made_when_it_is_needed(void **state)
{
    (void)state;
    struct rig_options options = options_for(12);
    options.ncpus = 64; /* trees as ranks with a core each have them */
    assert_int_equal(rig_run(&options, as_needed), 0);
}

/* Each end of a pair begins at the same moment, again and again. */
static int both_at_once(struct rig_rank *r)
{
    uint32_t all[6] = {0, 1, 2, 3, 4, 5};
    for (unsigned turn = 0; turn < 60; turn++) {
        char name[16];
        struct rig_group *g = NULL;
        snprintf(name, sizeof name, "g%u", turn);
        RIG_CHECK(r, rig_group_open(r, name, all, 6, &g) == COLLRUN_OK);
        if (everybody(r, g) != 0)
            return 1;
        rig_group_close(g);
    }
    return 0;
}

static void both_ends_may_begin_at_once(void **state)
{
    (void)state;
    struct rig_options options = options_for(6);
    options.no_group = true;
    assert_int_equal(rig_run(&options, both_at_once), 0);
}

/* ---- at the door ---- */

static int strangers;

static void knock_as_a_stranger(const struct sockaddr_in *address)
{
    static const char words[][64] = {"GET / HTTP/1.0\r\n\r\n", "", "SSH-2.0-x", {0}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        const size_t len = i == 3 ? sizeof words[i] : strlen(words[i]);
        if (connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 &&
            send(fd, words[i], len, MSG_NOSIGNAL) == (ssize_t)len)
            strangers++;
        if (i == 0)
            close(fd); /* the others stay */
    }
}

static int visited(struct rig_rank *r)
{
    strangers = 0;
    RIG_CHECK(r, sockets(true, knock_as_a_stranger) == 1);
    RIG_CHECK(r, strangers == 4);
    rig_sync(r);
    return everybody(r, r->group);
}

static void strangers_do_no_harm(void **state)
{
    (void)state;
    const struct rig_options options = options_for(4);
    assert_int_equal(rig_run(&options, visited), 0);
}

/* ---- ranks that do not answer ---- */

static bool is_stopped(pid_t pid)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    const size_t len = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    const char *end = len ? strrchr(text, ')') : NULL;
    return end && end[1] && end[2] == 'T';
}

/* Rank 1 is stopped before anybody has connected to it. */
static int stopped(struct rig_rank *r)
{
    const bool abort = *(const bool *)r->arg;
    volatile pid_t *pid = r->scratch;
    int32_t in = 1, out = 0;
    struct collrun_call call = call_of(COLLRUN_ALLREDUCE, &in, &out, 1);
    if (r->rank == 1) {
        *pid = getpid();
        raise(SIGSTOP);
        return 0;
    }
    RIG_UNTIL(r, *pid && is_stopped(*pid));
    call.timeout_ns = abort ? 0 : 300 * MS;
    if (abort)
        rig_abort_after(r, 50);
    const uint64_t called = rig_now_ns();
    const int status = rig_exec(r->group, &call, 1);
    const uint64_t waited = rig_now_ns() - called;
    kill(*pid, SIGCONT);
    RIG_CHECK(r, status == (abort ? COLLRUN_ERR_ABORTED : COLLRUN_ERR_TIMEOUT));
    RIG_CHECK(r, waited > (abort ? 40 : 290) * MS && waited < RIG_AT_ONCE_NS);
    RIG_CHECK(r, abort || strstr(rig_error(), "rank 1 (world rank 1)"));
    return 0;
}

static void a_stopped_rank_holds_nobody(void **state)
{
    (void)state;
    for (unsigned abort = 0; abort < 2; abort++) {
        const bool arg = abort;
        struct rig_options options = options_for(2);
        options.arg = (void *)&arg;
        assert_int_equal(rig_run(&options, stopped), 0);
    }
}

static int killed(struct rig_rank *r)
{
    int32_t in = 1, out = 0;
    const struct collrun_call call = call_of(COLLRUN_ALLREDUCE, &in, &out, 1);
    rig_sync(r);
    if (r->rank == 1)
        rig_kill(r, 1);
    const uint64_t start = rig_now_ns();
    RIG_CHECK(r, rig_exec(r->group, &call, 1) == COLLRUN_ERR_PEER_FAILED);
    RIG_CHECK(r, rig_now_ns() - start < RIG_AT_ONCE_NS);
    RIG_CHECK(r, strstr(rig_error(), "rank 1 (world rank 1)"));
    return 0;
}

static void a_dead_rank_is_named(void **state)
{
    (void)state;
    const bool may_die[2] = {false, true};
    struct rig_options options = options_for(2);
    options.may_die = may_die;
    assert_int_equal(rig_run(&options, killed), 0);
}

/* A message to a rank that has closed the group. */
static int left(struct rig_rank *r)
{
    const uint32_t all[2] = {0, 1};
    int32_t in = 1;
    struct rig_group *g = NULL;
    struct collrun_call call = call_of(COLLRUN_SEND, &in, NULL, 1);
    call.peer = 1;
    RIG_CHECK(r, rig_group_open(r, "short", all, 2, &g) == COLLRUN_OK);
    if (r->rank == 1)
        rig_group_close(g);
    rig_sync(r);
    if (r->rank == 1)
        return 0;
    RIG_CHECK(r, rig_exec(g, &call, 1) == COLLRUN_ERR_PEER_FAILED);
    RIG_CHECK(r, strstr(rig_error(), "rank 1 (world rank 1) has left the group"));
    rig_group_close(g);
    return 0;
}

static void a_rank_that_has_left_is_named(void **state)
{
    (void)state;
    struct rig_options options = options_for(2);
    options.no_group = true;
    assert_int_equal(rig_run(&options, left), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_is_made_when_it_is_needed),
        cmocka_unit_test(both_ends_may_begin_at_once),
        cmocka_unit_test(strangers_do_no_harm),
        cmocka_unit_test(a_stopped_rank_holds_nobody),
        cmocka_unit_test(a_dead_rank_is_named),
        cmocka_unit_test(a_rank_that_has_left_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
