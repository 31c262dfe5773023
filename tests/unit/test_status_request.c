/* SPDX-License-Identifier: Apache-2.0
 *
 * What the runner shows of a job of 65,536 ranks costs its only loop a bounded time: the text of
 * each rank is made once, the search for a stall is linear in the ranks, and `collrun top` gets a
 * share of the time. The linker's --wrap replaces the functions that are counted, and the clock.
 */
#include "run/status_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND UINT64_C(1000000000)
enum { RANKS = 65536, STALL_BYTES = RANKS * 2000, STALL_COMPARISONS = RANKS * 300 };

static struct {
    struct desc_rank places[RANKS];
    struct rank_state ranks[RANKS];
    struct desc_host host;
    struct desc desc;
    struct run_state run;
    struct stop stop;
    uint64_t texts, states, passed_ns, bytes, compared;
    struct group_snapshot slots[RANKS];
    uint32_t all[RANKS];
} job;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
uint64_t __real_now_ns(void);
uint64_t __wrap_now_ns(void);
void __wrap_rank_describe(const struct rank_state *rank, char *out, size_t size);
json_t *__wrap_top_json(const struct top_state *s, uint64_t now_ns);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
int __real_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b);

void *__wrap_calloc(size_t n, size_t size)
{
    job.bytes += n * size;
    return job.bytes > STALL_BYTES ? NULL : __real_calloc(n, size);
}

int __wrap_strcmp(const char *a, const char *b)
{
    job.compared++;
    return __real_strcmp(a, b);
}

uint64_t __wrap_now_ns(void)
{
    return __real_now_ns() + job.passed_ns;
}

/* As in a pipeline: each rank receives from the one before it. */
void __wrap_rank_describe(const struct rank_state *rank, char *out, size_t size)
{
    job.texts++;
    snprintf(out, size, "in recv world#12 (from %td)", rank - job.ranks - 1);
}

/* It takes a second. */
json_t *__wrap_top_json(const struct top_state *s, uint64_t now_ns)
{
    (void)s, (void)now_ns;
    job.states++;
    job.passed_ns += SECOND;
    return json_object();
}
/* NOLINTEND(bugprone-reserved-identifier) */

static int setup(void **state)
{
    (void)state;
    memset(&job, 0, sizeof job);
    job.host = (struct desc_host){.name = "node1", .nranks = RANKS};
    job.desc = (struct desc){
        .hosts = &job.host, .nhosts = 1, .ranks = job.places, .nranks = RANKS, .run_dir = ""};
    job.run = (struct run_state){.desc = &job.desc, .ranks = job.ranks};
    for (uint32_t r = 0; r < RANKS; r++)
        job.ranks[r] =
            (struct rank_state){.phase = PHASE_RUNNING, .pid = 7, .snapshot.known = true};
    return 0;
}

static void the_text_of_a_rank_is_made_once(void **state)
{
    struct bring_up bring_up = {.run = &job.run};
    const struct status_request s = {.run = &job.run, .stop = &job.stop, .bring_up = &bring_up};
    char *text = NULL;
    size_t len = 0, lines = 0;
    FILE *out = open_memstream(&text, &len);
    (void)state;
    status_request_print(&s, out);
    fclose(out);
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, RANKS);
    assert_int_equal(job.texts, RANKS);
    const char last[] = "\ncollrun: rank 65535: in recv world#12 (from 65534)\n";
    assert_string_equal(text + len - strlen(last), last);
    free(text);
}

/* ---- stalls ---- */

enum stall_kind { STALL_COLLECTIVE, STALL_FROM_PREVIOUS, STALL_FROM_ANY };

/* All ranks of groups of `size` ranks wait in an operation, but rank `late`. */
static void stall_is_found(uint32_t size, enum stall_kind kind, uint32_t late)
{
    struct desc_group world = {.name = "world", .ranks = {job.all, RANKS}};
    struct stall_watch watch;
    struct stall s;
    job.desc.groups = &world;
    job.desc.ngroups = 1;
    for (uint32_t r = 0; r < RANKS; r++) {
        const uint32_t number = r != late;
        struct group_snapshot *g = &job.slots[r];
        *g = (struct group_snapshot){.messages = kind != STALL_COLLECTIVE,
                                     .kind = kind == STALL_COLLECTIVE ? COLLRUN_ALLREDUCE
                                                                      : COLLRUN_RECV,
                                     .rank = r % size,
                                     .members = size,
                                     .started = number,
                                     .age_ns = 9 * SECOND};
        g->root_or_peer = kind == STALL_FROM_PREVIOUS ? (int)((r + size - 1) % size) : -1;
        snprintf(g->name, sizeof g->name, size == RANKS ? "world" : "part");
        snprintf(g->scope, sizeof g->scope, "%s.%u#0", g->name, r / size);
        job.all[r] = r;
        job.ranks[r].snapshot = (struct rank_snapshot){.known = true, .groups = g, .n = 1};
    }
    stall_watch_init(&watch, &job.desc);
    for (uint32_t r = 0; r < RANKS; r++)
        stall_watch_update(&watch, r, &job.ranks[r].snapshot, 100 * SECOND);
    job.bytes = job.compared = 0;
    assert_true(stall_find(&watch, job.ranks, 100 * SECOND, 5 * SECOND, &s));
    assert_true(job.compared < STALL_COMPARISONS);
    assert_int_equal(s.nculprits, 1);
    assert_int_equal(s.culprits[0], late);
    job.bytes = 0;
    stall_fini(&s);
    stall_watch_fini(&watch);
}

static void a_stall_is_found_in_linear_time(void **state)
{
    (void)state;
    for (enum stall_kind kind = STALL_COLLECTIVE; kind <= STALL_FROM_ANY; kind++)
        stall_is_found(RANKS, kind, 4711);
    for (enum stall_kind kind = STALL_COLLECTIVE; kind <= STALL_FROM_PREVIOUS; kind++)
        stall_is_found(8, kind, 4711);
}

/* ---- collrun top ---- */

static int top_connect(struct top_server *s)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%s/top.sock", job.desc.run_dir);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    s->watch.ready(&s->watch, EPOLLIN);
    return fd;
}

static void top_leave(struct top_server *s, int fd)
{
    close(fd);
    for (struct top_client *c = s->clients; c < s->clients + TOP_SERVER_CLIENTS; c++)
        if (c->fd >= 0)
            c->watch.ready(&c->watch, EPOLLIN | EPOLLHUP);
}

static uint64_t top_next_ns(const struct top_server *s)
{
    assert_true(s->timer.at_ns != 0);
    return s->timer.at_ns - __wrap_now_ns();
}

static void top_fire(struct top_server *s)
{
    loop_timer_clear(s->run->loop, &s->timer);
    s->timer.fired(&s->timer);
}

static void top_is_made_for_a_tenth_of_the_time(void **state)
{
    struct live live = {.desc = &job.desc, .ranks = job.ranks};
    struct stall_monitor stalls = {.run = &job.run};
    struct audit *audit = NULL;
    struct top_server s = {.run = &job.run, .live = &live, .stalls = &stalls, .audit = &audit};
    char dir[] = "/tmp/collrun-top.XXXXXX";
    (void)state;
    job.desc.run_dir = mkdtemp(dir);
    job.desc.nhosts = 0;
    job.run.loop = loop_new();
    job.run.rundir = (struct rundir *)&job; /* top_server asks only whether there is one */
    top_server_start(&s);
    int fd = top_connect(&s);
    assert_true(top_next_ns(&s) <= SECOND);
    top_fire(&s);
    assert_int_equal(job.states, 1);
    assert_true(top_next_ns(&s) > 9 * SECOND);
    top_leave(&s, fd);
    fd = top_connect(&s); /* a client that comes again waits, too */
    assert_true(top_next_ns(&s) > 8 * SECOND);
    top_leave(&s, fd);
    top_fire(&s);
    assert_int_equal(job.states, 1); /* no client is connected */
    assert_int_equal(s.timer.at_ns, 0);
    top_server_stop(&s);
    loop_free(job.run.loop);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_text_of_a_rank_is_made_once, setup),
        cmocka_unit_test_setup(a_stall_is_found_in_linear_time, setup),
        cmocka_unit_test_setup(top_is_made_for_a_tenth_of_the_time, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
