/* SPDX-License-Identifier: Apache-2.0
 *
 * How the ranks of a group on Gloo connect, and what a rank means for the others that is stopped,
 * was killed or has left. Hosts that cannot reach each other are tested by
 * tests/e2e/hosts/test_doctor.sh.
 *
 * Two properties Gloo does not have: connections when they are needed, and connections from other
 * programs that are ignored. CONNECT_BACKEND=NAME tests them, and all others here, on a backend
 * that has.
 */
#include "backend_harness.h"
#include "emulated.h"

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
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define MS 1000000u

static struct harness_options options_for(uint32_t nranks)
{
    const char *name = getenv("CONNECT_BACKEND");
    return (struct harness_options){.path = harness_backend_path(name ? name : "gloo"),
                                    .nranks = nranks};
}

static void skip_on_gloo(void)
{
    if (getenv("CONNECT_BACKEND"))
        return;
    print_message("# Gloo does not have this; CONNECT_BACKEND names a backend that has\n");
    skip();
}

/* The Gloo of 2022, whose connections the backend makes itself. */
static bool a_port_for_each_peer(void)
{
#if __has_include(<gloo/common/store.h>)
    return false;
#else
    return !getenv("CONNECT_BACKEND");
#endif
}

/* ---- open sockets ---- */

/* Calls `each` for every listening, or every other, TCP socket of this process. Returns their
 * number. */
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

/* Every pair of ranks exchanges a value, both ends at the same time. */
static int exchange_all(struct harness_rank *r, struct harness_group *g)
{
    int32_t in[HARNESS_MAX_RANKS], out[HARNESS_MAX_RANKS];
    for (uint32_t i = 0; i < g->nranks; i++)
        in[i] = (int32_t)(g->rank * 1000 + i);
    const struct collrun_call call = call_of(COLLRUN_ALLTOALL, in, out, 1);
    HARNESS_CHECK(r, harness_exec(g, &call, 1) == COLLRUN_OK);
    for (uint32_t i = 0; i < g->nranks; i++)
        HARNESS_CHECK(r, out[i] == (int32_t)(i * 1000 + g->rank));
    return 0;
}

/* ---- lazy connections ---- */

/* Two ranks that connect simultaneously close one of two connections, so the test waits until the
 * number is right. */
static int connect_lazily(struct harness_rank *r)
{
    int32_t in = 1, out = 0;
    int few = 0;
    const struct collrun_call call = call_of(COLLRUN_ALLREDUCE, &in, &out, 1);
    HARNESS_CHECK(r, sockets(false, NULL) == 0);
    harness_sync(r);
    HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK && out == 12);
    harness_sync(r);
    HARNESS_UNTIL(r, (few = sockets(false, NULL)) < 11);
    HARNESS_CHECK(r, few > 0);
    harness_sync(r);
    HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK && out == 12);
    HARNESS_UNTIL(r, sockets(false, NULL) == few);
    harness_sync(r);
    if (exchange_all(r, r->group) != 0)
        return 1;
    harness_sync(r);
    HARNESS_UNTIL(r, sockets(false, NULL) == 11);
    HARNESS_CHECK(r, sockets(true, NULL) == 1);
    harness_sync(r); /* no rank leaves before */
    return 0;
}

static void a_connection_is_made_when_it_is_needed(void **state)
{
    (void)state;
    skip_on_gloo();
    struct harness_options options = options_for(12);
    options.ncpus = 64; /* the trees of ranks that have a core each */
    assert_int_equal(harness_run(&options, connect_lazily), 0);
}

/* Both ends of each pair connect at the same moment, repeatedly. */
static int connect_simultaneously(struct harness_rank *r)
{
    uint32_t all[6] = {0, 1, 2, 3, 4, 5};
    for (unsigned turn = 0; turn < 60; turn++) {
        char name[16];
        struct harness_group *g = NULL;
        snprintf(name, sizeof name, "g%u", turn);
        HARNESS_CHECK(r, harness_group_open(r, name, all, 6, &g) == COLLRUN_OK);
        if (exchange_all(r, g) != 0)
            return 1;
        harness_group_close(g);
    }
    return 0;
}

static void both_ends_may_connect_simultaneously(void **state)
{
    (void)state;
    struct harness_options options = options_for(6);
    options.no_group = true;
    assert_int_equal(harness_run(&options, connect_simultaneously), 0);
}

/* ---- connections from other programs ---- */

static int unknown;

static void connect_without_hello(const struct sockaddr_in *address)
{
    static const char words[][64] = {"GET / HTTP/1.0\r\n\r\n", "", "SSH-2.0-x", {0}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        const size_t len = i == 3 ? sizeof words[i] : strlen(words[i]);
        if (connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 &&
            send(fd, words[i], len, MSG_NOSIGNAL) == (ssize_t)len)
            unknown++;
        if (i == 0)
            close(fd); /* the others stay open */
    }
}

static int unknown_connections(struct harness_rank *r)
{
    unknown = 0;
    HARNESS_CHECK(r, sockets(true, connect_without_hello) == 1);
    HARNESS_CHECK(r, unknown == 4);
    harness_sync(r);
    return exchange_all(r, r->group);
}

/* An unknown connection comes first at every N-th port; 0: at none. */
static unsigned early;

/* Instead of that of libc, also for Gloo: before any other thread accepts, there is a connection,
 * which stays. */
__attribute__((visibility("default"))) int listen(int fd, int backlog)
{
    static unsigned ports;
    struct sockaddr_in address;
    socklen_t len = sizeof address;
    const int rc = (int)syscall(SYS_listen, fd, backlog);
    if (rc == 0 && early > 0 && ++ports % early == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &len) == 0)
        unknown += connect(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0),
                           (const struct sockaddr *)&address, len) == 0 ||
                   errno == EINPROGRESS;
    return rc;
}

/* Each group makes its connections, as the earlier ones stay open. */
static int early_connections(struct harness_rank *r)
{
    const uint32_t all[3] = {0, 1, 2};
    struct harness_group *groups[20] = {NULL};
    early = 4 + r->rank;
    for (unsigned i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "g%u", i);
        HARNESS_CHECK(r, harness_group_open(r, name, all, 3, &groups[i]) == COLLRUN_OK);
        if (exchange_all(r, groups[i]) != 0)
            return 1;
    }
    HARNESS_CHECK(r, unknown > 5 || !a_port_for_each_peer());
    for (unsigned i = 0; i < 20; i++)
        harness_group_close(groups[i]);
    return 0;
}

static int always_early(struct harness_rank *r)
{
    const uint32_t both[2] = {0, 1};
    struct harness_group *group;
    early = 1;
    HARNESS_CHECK(r, harness_group_open(r, "g", both, 2, &group) == COLLRUN_ERR_BACKEND);
    HARNESS_CHECK(r, strstr(harness_error(), "another process connects to the ports of Gloo"));
    return 0;
}

static void unknown_connections_take_no_place_while_a_group_forms(void **state)
{
    (void)state;
    struct harness_options options = options_for(3);
    options.no_group = true;
    assert_int_equal(harness_run(&options, early_connections), 0);
}

static void a_group_whose_ports_are_always_taken_fails(void **state)
{
    (void)state;
    struct harness_options options = options_for(2);
    if (!a_port_for_each_peer())
        skip();
    options.no_group = true;
    assert_int_equal(harness_run(&options, always_early), 0);
}

static void unknown_connections_are_ignored(void **state)
{
    (void)state;
    skip_on_gloo();
    const struct harness_options options = options_for(4);
    assert_int_equal(harness_run(&options, unknown_connections), 0);
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

/* Rank 1 is stopped before any rank has connected to it. */
static int stopped(struct harness_rank *r)
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
    HARNESS_UNTIL(r, *pid && is_stopped(*pid));
    call.timeout_ns = abort ? 0 : 300 * MS;
    if (abort)
        harness_abort_after(r, 50);
    const uint64_t called = harness_now_ns();
    const int status = harness_exec(r->group, &call, 1);
    const uint64_t waited = harness_now_ns() - called;
    kill(*pid, SIGCONT);
    HARNESS_CHECK(r, status == (abort ? COLLRUN_ERR_ABORTED : COLLRUN_ERR_TIMEOUT));
    HARNESS_CHECK(r, waited > (abort ? 40 : 290) * MS && waited < HARNESS_AT_ONCE_NS);
    HARNESS_CHECK(r, abort || strstr(harness_error(), "rank 1"));
    return 0;
}

static void a_stopped_rank_blocks_no_other(void **state)
{
    (void)state;
    for (unsigned abort = 0; abort < 2; abort++) {
        const bool arg = abort;
        struct harness_options options = options_for(2);
        options.arg = (void *)&arg;
        assert_int_equal(harness_run(&options, stopped), 0);
    }
}

static int killed(struct harness_rank *r)
{
    int32_t in = 1, out = 0;
    const struct collrun_call call = call_of(COLLRUN_ALLREDUCE, &in, &out, 1);
    harness_sync(r);
    if (r->rank == 1)
        harness_kill(r, 1);
    const uint64_t start = harness_now_ns();
    HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_ERR_PEER_FAILED);
    HARNESS_CHECK(r, harness_now_ns() - start < HARNESS_AT_ONCE_NS);
    HARNESS_CHECK(r, strstr(harness_error(), "rank 1 (world rank 1)"));
    return 0;
}

static void a_dead_rank_is_named(void **state)
{
    (void)state;
    const bool may_die[2] = {false, true};
    struct harness_options options = options_for(2);
    options.may_die = may_die;
    assert_int_equal(harness_run(&options, killed), 0);
}

/* Rank 2 kills rank 1 somewhere in the middle of connecting to rank 0, which may also be done. */
static int dies_while_connecting(struct harness_rank *r)
{
    const uint32_t all[2] = {0, 1};
    struct harness_group *g = NULL;
    harness_sync(r);
    if (r->rank == 2) {
        harness_lag_us(*(const unsigned *)r->arg);
        harness_kill(r, 1);
        return 0;
    }
    const int status = harness_group_open(r, "g", all, 2, &g);
    HARNESS_CHECK(r, status == COLLRUN_OK || status == COLLRUN_ERR_PEER_FAILED ||
                         status == COLLRUN_ERR_ABORTED);
    if (status != COLLRUN_OK)
        return 0;
    HARNESS_UNTIL(r, harness_abort_ns(r));
    harness_group_close(g);
    return 0;
}

/* The Gloo of 2023 asks for the address of a peer that has just connected, in a thread of its own,
 * and ends the process if that is dead by then. */
#if __has_include(<gloo/common/store.h>) && !__has_include(<gloo/transport/remote_key.h>)
enum { PEERS_MAY_END = true };
#else
enum { PEERS_MAY_END = false };
#endif

static void a_death_while_connecting_is_named(void **state)
{
    (void)state;
    if (emulated()) /* the rank may hold the lock of the harness's store */
        skip();
    const bool may_die[3] = {PEERS_MAY_END, true, false};
    for (unsigned us = 0; us < 4000; us += 50) {
        struct harness_options options = options_for(3);
        options.may_die = may_die;
        options.no_group = true;
        options.abort_on_death = true;
        options.arg = &us;
        assert_int_equal(harness_run(&options, dies_while_connecting), 0);
    }
}

/* A message of a rank that has closed the group. */
static int left(struct harness_rank *r)
{
    const uint32_t all[2] = {0, 1};
    int32_t in = 1;
    struct harness_group *g = NULL;
    struct collrun_call call = call_of(COLLRUN_RECV, NULL, &in, 1);
    call.peer = 1;
    HARNESS_CHECK(r, harness_group_open(r, "short", all, 2, &g) == COLLRUN_OK);
    if (r->rank == 1)
        harness_group_close(g);
    harness_sync(r);
    if (r->rank == 1)
        return 0;
    HARNESS_CHECK(r, harness_exec(g, &call, 1) == COLLRUN_ERR_PEER_FAILED);
    HARNESS_CHECK(r, strstr(harness_error(), "rank 1 (world rank 1) has left the group"));
    harness_group_close(g);
    return 0;
}

static void a_rank_that_has_left_is_named(void **state)
{
    (void)state;
    struct harness_options options = options_for(2);
    options.no_group = true;
    assert_int_equal(harness_run(&options, left), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_is_made_when_it_is_needed),
        cmocka_unit_test(both_ends_may_connect_simultaneously),
        cmocka_unit_test(unknown_connections_take_no_place_while_a_group_forms),
        cmocka_unit_test(a_group_whose_ports_are_always_taken_fails),
        cmocka_unit_test(unknown_connections_are_ignored),
        cmocka_unit_test(a_stopped_rank_blocks_no_other),
        cmocka_unit_test(a_dead_rank_is_named),
        cmocka_unit_test(a_death_while_connecting_is_named),
        cmocka_unit_test(a_rank_that_has_left_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
