/* SPDX-License-Identifier: Apache-2.0
 *
 * A program for tests/unit/test_program.c: a rank that is no plugin. Its argument says what it
 * does. It exits with 99 at the first check that fails.
 */
#include <collrun/collrun.h>

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void check_at(int line, bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "member.c:%d: %s; the last error: %s\n", line, what, collrun_error());
    _exit(99);
}
#define CHECK(x) check_at(__LINE__, (x), #x)

/* The call failed with this status, and its message has this text. */
static void check_failed(int line, int rc, int expected, const char *text)
{
    char what[512];
    snprintf(what, sizeof what, "status %d, not %d with \"%s\"", rc, expected, text);
    check_at(line, rc == expected && strstr(collrun_error(), text), what);
}
#define FAILS(rc, expected, text) check_failed(__LINE__, (rc), (expected), (text))

static struct collrun_ctx *ctx;
static struct collrun_group *world;

static void join(void)
{
    if (collrun_init(&ctx) != COLLRUN_OK) {
        fprintf(stderr, "%s\n", collrun_error());
        exit(4);
    }
    CHECK(collrun_group_get(ctx, "world", &world) == COLLRUN_OK);
}

static void sum(void)
{
    float x = 1;
    CHECK(collrun_allreduce(world, &x, &x, 1, COLLRUN_FLOAT32, COLLRUN_SUM) == COLLRUN_OK);
    CHECK(x == (float)collrun_size(world));
}

static int do_good(void)
{
    struct collrun_group *made, *again;
    struct collrun_request *request = NULL;
    struct collrun_ctx *other = NULL;
    float x = 0;
    join();
    CHECK(!getenv("COLLRUN_CONTROL_FD"));
    FAILS(collrun_init(&other), COLLRUN_ERR_EXISTS, "was called before");
    CHECK(!other);
    sum();
    CHECK(collrun_group_split(world, 0, 0, "half", &made) == COLLRUN_OK);
    CHECK(collrun_barrier(made) == COLLRUN_OK);
    if (collrun_rank(world) == 0 && collrun_size(world) > 1) {
        struct collrun_call call = COLLRUN_CALL(COLLRUN_RECV);
        call.recv = &x;
        call.count = 1;
        call.dtype = COLLRUN_FLOAT32;
        call.peer = collrun_size(world) - 1;
        call.tag = 0;
        CHECK(collrun_start(made, &call, &request) == COLLRUN_OK);
    }
    collrun_progress(ctx, 1, 1, "step");
    collrun_metric(ctx, "loss", 0.5);
    collrun_log(ctx, COLLRUN_LOG_INFO, "a member");
    FAILS(collrun_finalize(NULL), COLLRUN_ERR_INVALID, "NULL");
    CHECK(collrun_finalize(ctx) == COLLRUN_OK);
    FAILS(collrun_finalize(ctx), COLLRUN_ERR_INVALID, "was called before");
    FAILS(collrun_init(&other), COLLRUN_ERR_EXISTS, "only once");
    FAILS(collrun_barrier(world), COLLRUN_ERR_INVALID, "collrun_finalize has closed the group");
    FAILS(collrun_barrier(made), COLLRUN_ERR_INVALID, "collrun_finalize has closed the group");
    if (collrun_size(world) > 1)
        FAILS(collrun_send(world, &x, 1, COLLRUN_FLOAT32, collrun_rank(world) ? 0 : 1),
              COLLRUN_ERR_INVALID, "finalize");
    FAILS(collrun_group_get(ctx, "world", &again), COLLRUN_ERR_INVALID, "ended this rank");
    if (request)
        FAILS(collrun_wait(request), COLLRUN_ERR_ABORTED, "");
    collrun_log(ctx, COLLRUN_LOG_INFO, "dropped");
    CHECK(collrun_world_size(ctx) > 0);
    return 0;
}

static void *init_in_thread(void *arg)
{
    struct collrun_ctx *mine = NULL;
    int *rc = arg;
    *rc = collrun_init(&mine);
    if (*rc == COLLRUN_OK)
        ctx = mine;
    else
        FAILS(*rc, COLLRUN_ERR_EXISTS, "collrun_init");
    return NULL;
}

static int do_threads(void)
{
    enum { N = 4 };
    pthread_t threads[N];
    int rc[N], good = 0;
    for (int i = 0; i < N; i++)
        CHECK(pthread_create(&threads[i], NULL, init_in_thread, &rc[i]) == 0);
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        good += rc[i] == COLLRUN_OK;
    }
    CHECK(good == 1);
    CHECK(collrun_group_get(ctx, "", &world) == COLLRUN_OK);
    sum();
    return collrun_finalize(ctx);
}

static bool is_child;

/* The sanitizer asks at exit. What the threads of the parent hold looks like a leak in the child.
 */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return is_child;
}

static void be_a_child(struct collrun_request *request)
{
    const char *why = "was forked by rank";
    struct collrun_group *g = world;
    struct collrun_ctx *other;
    float x = 1;
    int index, peer = (collrun_rank(world) + 1) % collrun_size(world);
    is_child = true;
    FAILS(collrun_barrier(world), COLLRUN_ERR_INVALID, why);
    FAILS(collrun_allreduce(world, &x, &x, 1, COLLRUN_FLOAT32, COLLRUN_SUM), COLLRUN_ERR_INVALID,
          why);
    FAILS(collrun_send(world, &x, 1, COLLRUN_FLOAT32, peer), COLLRUN_ERR_INVALID, why);
    FAILS(collrun_recv(world, &x, 1, COLLRUN_FLOAT32, peer), COLLRUN_ERR_INVALID, why);
    FAILS(collrun_group_get(ctx, "world", &g), COLLRUN_ERR_INVALID, why);
    FAILS(collrun_group_split(world, 0, 0, NULL, &g), COLLRUN_ERR_INVALID, why);
    FAILS(collrun_group_abort(world, "x"), COLLRUN_ERR_INVALID, why);
    FAILS(collrun_wait(request), COLLRUN_ERR_INVALID, why);
    FAILS(collrun_test(request), COLLRUN_ERR_INVALID, why);
    FAILS(collrun_cancel(request), COLLRUN_ERR_INVALID, why);
    FAILS(collrun_wait_all(&request, 1), COLLRUN_ERR_INVALID, why);
    FAILS(collrun_wait_any(&request, 1, &index), COLLRUN_ERR_INVALID, why);
    FAILS(collrun_finalize(ctx), COLLRUN_ERR_INVALID, why);
    FAILS(collrun_init(&other), COLLRUN_ERR_INVALID, why);
    collrun_log(ctx, COLLRUN_LOG_INFO, "dropped");
    collrun_metric(ctx, "dropped", 1);
    exit(42); /* not the exit of the rank */
}

static int do_fork(void)
{
    struct collrun_request *request;
    struct collrun_call call = COLLRUN_CALL(COLLRUN_RECV);
    float x = 0, one = 1;
    int status = 0, size;
    join();
    size = collrun_size(world);
    call.recv = &x;
    call.count = 1;
    call.dtype = COLLRUN_FLOAT32;
    call.peer = (collrun_rank(world) + 1) % size;
    CHECK(collrun_start(world, &call, &request) == COLLRUN_OK);
    pid_t child = fork();
    if (child == 0)
        be_a_child(request);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    CHECK(collrun_send(world, &one, 1, COLLRUN_FLOAT32, (collrun_rank(world) + size - 1) % size) ==
          COLLRUN_OK);
    CHECK(collrun_wait(request) == COLLRUN_OK && x == 1);
    sum();
    return collrun_finalize(ctx);
}

/* Two processes of a rank ask, and one of them is its member. */
static int do_claim(void)
{
    int status = 0, joined[2];
    char byte = 0;
    CHECK(pipe(joined) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(read(joined[0], &byte, 1) == 1);
        FAILS(collrun_init(&ctx), COLLRUN_ERR_EXISTS, "one member process");
        FAILS(collrun_init(&ctx), COLLRUN_ERR_EXISTS, "one member process");
        _exit(0);
    }
    join();
    CHECK(write(joined[1], &byte, 1) == 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    sum();
    return collrun_finalize(ctx);
}

/* The last member has long ended its part when the others use what it sent. */
static int do_late(void)
{
    float x[3] = {0};
    join();
    int rank = collrun_rank(world), last = collrun_size(world) - 1;
    for (int i = 0; rank == last && i < last; i++)
        CHECK(collrun_send(world, x, 3, COLLRUN_FLOAT32, i) == COLLRUN_OK);
    if (rank != last) {
        usleep(100000 * (unsigned)(rank + 1));
        CHECK(collrun_recv(world, x, 3, COLLRUN_FLOAT32, last) == COLLRUN_OK);
    }
    return collrun_finalize(ctx);
}

/* Rank 1 exits, which the others get to know. */
static int do_exit(void)
{
    join();
    if (collrun_rank(world) == 1)
        exit(7);
    FAILS(collrun_barrier(world), COLLRUN_ERR_PEER_FAILED, "rank 1");
    return 1;
}

static int do_fail(void)
{
    join();
    if (collrun_rank(world) == 1)
        return collrun_fail(ctx, "the loss is not a number");
    return collrun_barrier(world) == COLLRUN_OK ? 99 : 1;
}

/* The thread sleeps. */
static bool is_asleep(pid_t thread)
{
    char path[64], stat[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(stat, 1, sizeof stat - 1, f) : 0;
    if (f)
        fclose(f);
    return n && strstr(stat, ") S ");
}

/* Another thread is inside a group, once it has set its number and sleeps. */
static _Atomic pid_t waiting;
static void *wait_in_barrier(void *arg)
{
    (void)arg;
    waiting = gettid();
    CHECK(collrun_barrier(world) == COLLRUN_OK);
    return NULL;
}

static int do_inside(void)
{
    pthread_t thread;
    join();
    if (collrun_rank(world) == 0) {
        CHECK(pthread_create(&thread, NULL, wait_in_barrier, NULL) == 0);
        while (!waiting || !is_asleep(waiting))
            usleep(1000);
        FAILS(collrun_finalize(ctx), COLLRUN_ERR_INVALID, "finalize world");
        CHECK(collrun_send(world, NULL, 0, COLLRUN_INT8, 1) == COLLRUN_OK);
        pthread_join(thread, NULL);
    } else {
        CHECK(collrun_recv(world, NULL, 0, COLLRUN_INT8, 0) == COLLRUN_OK);
        CHECK(collrun_barrier(world) == COLLRUN_OK);
    }
    return collrun_finalize(ctx);
}

/* Groups that are being created, or have just been, and that the program has not waited for. */
static int do_creates(void)
{
    enum { N = 20 };
    static struct collrun_group *made[N];
    struct collrun_request *requests[N];
    int ranks[] = {0, 1};
    const struct collrun_group_options options = {
        .size = sizeof options, .ranks = ranks, .nranks = 2};
    join();
    for (int i = 0; i < N; i++)
        CHECK(collrun_group_create_start(ctx, &options, &made[i], &requests[i]) == COLLRUN_OK);
    CHECK(collrun_finalize(ctx) == COLLRUN_OK);
    for (int i = 0; i < N; i++)
        if (made[i])
            FAILS(collrun_barrier(made[i]), COLLRUN_ERR_INVALID,
                  "collrun_finalize has closed the group");
    return 0;
}

/* It closes a descriptor that is not its own. */
static int do_close(void)
{
    join();
    close(3);
    int rc;
    while ((rc = collrun_barrier(world)) == COLLRUN_OK)
        usleep(1000);
    FAILS(rc, COLLRUN_ERR_ABORTED, "was closed by the program");
    CHECK(collrun_finalize(ctx) != COLLRUN_ERR_INVALID);
    return 3;
}

/* Its part has ended; the rest of the program fails. */
static int do_end(void)
{
    join();
    sum();
    CHECK(collrun_finalize(ctx) == COLLRUN_OK);
    return collrun_world_rank(ctx) == 0 ? 5 : 0;
}

static int do_alone(void)
{
    FAILS(collrun_init(NULL), COLLRUN_ERR_INVALID, "NULL");
    FAILS(collrun_init(&ctx), COLLRUN_ERR_UNAVAILABLE, "was not started by collrun");
    CHECK(strstr(collrun_error(), "collrun job.yaml") && strstr(collrun_error(), "command: ["));
    CHECK(setenv("COLLRUN_CONTROL_FD", "3", 1) == 0);
    close(3);
    FAILS(collrun_init(&ctx), COLLRUN_ERR_UNAVAILABLE, "not a connection");
    CHECK(setenv("COLLRUN_CONTROL_FD", "3x", 1) == 0);
    FAILS(collrun_init(&ctx), COLLRUN_ERR_UNAVAILABLE, "not a connection");
    CHECK(unsetenv("COLLRUN_CONTROL_FD") == 0 && setenv("COLLRUN_RANK", "2", 1) == 0);
    FAILS(collrun_init(&ctx), COLLRUN_ERR_UNAVAILABLE, "another process of the rank has it");
    FAILS(collrun_finalize(NULL), COLLRUN_ERR_INVALID, "NULL");
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } cases[] = {{"good", do_good},   {"threads", do_threads}, {"fork", do_fork},
                 {"claim", do_claim}, {"late", do_late},       {"exit", do_exit},
                 {"fail", do_fail},   {"inside", do_inside},   {"close", do_close},
                 {"end", do_end},     {"alone", do_alone},     {"creates", do_creates}};
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(argv[1], cases[i].name) == 0)
            return cases[i].run();
    return 98;
}
