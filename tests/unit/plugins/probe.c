/* SPDX-License-Identifier: Apache-2.0
 *
 * The workload of the engine's tests: parameter `do` says what it does, the tests say on which
 * ranks.
 */
#include <collrun/workload.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(ctx, condition)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return collrun_fail((ctx), "line %d: %s does not hold (%s)", __LINE__, #condition,     \
                                collrun_error());                                                  \
    } while (0)

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* ---- collectives ---- */

static int do_sum(struct collrun_ctx *ctx, struct collrun_group *g)
{
    int n = collrun_size(g), me = collrun_rank(g);
    for (size_t count = 0; count < 3000; count = count * 3 + 1) {
        int32_t *in = calloc(count + 1, sizeof *in), *out = calloc(count + 1, sizeof *out);
        for (size_t i = 0; i < count; i++)
            in[i] = (int32_t)i + me;
        out[count] = 77;
        CHECK(ctx, collrun_allreduce(g, in, out, count, COLLRUN_INT32, COLLRUN_SUM) == COLLRUN_OK);
        for (size_t i = 0; i < count; i++)
            CHECK(ctx, out[i] == n * (int32_t)i + n * (n - 1) / 2 && in[i] == (int32_t)i + me);
        CHECK(ctx, out[count] == 77);
        CHECK(ctx, collrun_allreduce(g, in, in, count, COLLRUN_INT32, COLLRUN_MAX) == COLLRUN_OK);
        for (size_t i = 0; i < count; i++)
            CHECK(ctx, in[i] == (int32_t)i + n - 1);
        free(in);
        free(out);
    }
    return 0;
}

/* Every collective once, at every root, against what it must give. Value of rank r's element i:
 * 1000 r + i. */
static int one_root(struct collrun_ctx *ctx, struct collrun_group *g, int root)
{
    enum { N = 5, MOST = 8 };
    int n = collrun_size(g), me = collrun_rank(g);
    int16_t send[N * MOST], recv[N * MOST];
    for (int i = 0; i < N * MOST; i++)
        send[i] = (int16_t)(1000 * me + i);
    memset(recv, 0, sizeof recv);
    CHECK(ctx, collrun_reduce(g, send, recv, N, COLLRUN_INT16, COLLRUN_SUM, root) == COLLRUN_OK);
    for (int i = 0; i < N; i++)
        CHECK(ctx, recv[i] == (me == root ? n * i + 1000 * n * (n - 1) / 2 : 0));
    memcpy(recv, send, sizeof recv);
    CHECK(ctx, collrun_broadcast(g, recv, N, COLLRUN_INT16, root) == COLLRUN_OK);
    for (int i = 0; i < N; i++)
        CHECK(ctx, recv[i] == 1000 * root + i);
    memset(recv, 0, sizeof recv);
    CHECK(ctx, collrun_gather(g, send, recv, N, COLLRUN_INT16, root) == COLLRUN_OK);
    for (int i = 0; i < N * n; i++)
        CHECK(ctx, recv[i] == (me == root ? 1000 * (i / N) + i % N : 0));
    CHECK(ctx, collrun_scatter(g, send, recv, N, COLLRUN_INT16, root) == COLLRUN_OK);
    for (int i = 0; i < N; i++)
        CHECK(ctx, recv[i] == 1000 * root + N * me + i);
    size_t counts[MOST], displs[MOST], own = (size_t)me % 3 + 1;
    for (int r = 0; r < n; r++) {
        counts[r] = (size_t)r % 3 + 1;
        displs[r] = (size_t)(n - 1 - r) * N; /* back to front, with gaps */
    }
    memset(recv, 0, sizeof recv);
    CHECK(ctx,
          collrun_gatherv(g, send, own, recv, counts, displs, COLLRUN_INT16, root) == COLLRUN_OK);
    for (int r = 0; me == root && r < n; r++)
        for (size_t i = 0; i < N; i++)
            CHECK(ctx, recv[displs[r] + i] == (i < counts[r] ? 1000 * r + (int)i : 0));
    CHECK(ctx,
          collrun_scatterv(g, send, counts, displs, recv, own, COLLRUN_INT16, root) == COLLRUN_OK);
    for (size_t i = 0; i < own; i++)
        CHECK(ctx, recv[i] == 1000 * root + (int)(displs[me] + i));
    return 0;
}

static int do_all(struct collrun_ctx *ctx, struct collrun_group *g)
{
    enum { N = 5, MOST = 8 };
    int n = collrun_size(g), me = collrun_rank(g);
    int16_t send[N * MOST], recv[N * MOST];
    CHECK(ctx, n <= MOST && collrun_barrier(g) == COLLRUN_OK);
    for (int root = 0; root < n; root++)
        if (one_root(ctx, g, root))
            return 1;
    for (int i = 0; i < N * MOST; i++)
        send[i] = (int16_t)(1000 * me + i);
    CHECK(ctx, collrun_allgather(g, send, recv, N, COLLRUN_INT16) == COLLRUN_OK);
    for (int i = 0; i < N * n; i++)
        CHECK(ctx, recv[i] == 1000 * (i / N) + i % N);
    CHECK(ctx, collrun_alltoall(g, send, recv, N, COLLRUN_INT16) == COLLRUN_OK);
    for (int i = 0; i < N * n; i++)
        CHECK(ctx, recv[i] == 1000 * (i / N) + N * me + i % N);
    CHECK(ctx, collrun_reduce_scatter(g, send, recv, N, COLLRUN_INT16, COLLRUN_MAX) == COLLRUN_OK);
    for (int i = 0; i < N; i++)
        CHECK(ctx, recv[i] == 1000 * (n - 1) + N * me + i);
    float half[2] = {(float)me, 1}, mean[2];
    CHECK(ctx, collrun_allreduce(g, half, mean, 2, COLLRUN_FLOAT32, COLLRUN_AVG) == COLLRUN_OK);
    CHECK(ctx, mean[0] == (float)(n - 1) / 2 && mean[1] == 1);
    size_t counts[MOST], to[MOST], from[MOST], at = 0;
    for (int r = 0; r < n; r++) {
        counts[r] = (size_t)r % 3;
        to[r] = (size_t)(me + 2 * r) % 4;
        from[r] = (size_t)(r + 2 * me) % 4;
        at += r < me ? counts[r] : 0;
    }
    CHECK(ctx,
          collrun_allgatherv(g, send, counts[me], recv, counts, NULL, COLLRUN_INT16) == COLLRUN_OK);
    for (int r = 0, k = 0; r < n; r++)
        for (size_t i = 0; i < counts[r]; i++)
            CHECK(ctx, recv[k++] == 1000 * r + (int)i);
    CHECK(ctx,
          collrun_reduce_scatterv(g, send, recv, counts, COLLRUN_INT16, COLLRUN_MIN) == COLLRUN_OK);
    for (size_t i = 0; i < counts[me]; i++)
        CHECK(ctx, recv[i] == (int)(at + i));
    CHECK(ctx, collrun_alltoallv(g, send, to, NULL, recv, from, NULL, COLLRUN_INT16) == COLLRUN_OK);
    for (int r = 0, k = 0; r < n; r++) {
        int first = 0; /* where rank r's block for me starts */
        for (int p = 0; p < me; p++)
            first += (r + 2 * p) % 4;
        for (size_t i = 0; i < from[r]; i++)
            CHECK(ctx, recv[k++] == 1000 * r + first + (int)i);
    }
    return 0;
}

/* ---- messages ---- */

static int do_ring(struct collrun_ctx *ctx, struct collrun_group *g)
{
    int n = collrun_size(g), me = collrun_rank(g), next = (me + 1) % n, last = (me + n - 1) % n;
    size_t count = 20000;
    double *out = calloc(count, sizeof *out), *in = calloc(count, sizeof *in);
    for (size_t i = 0; i < count; i++)
        out[i] = me + (double)i;
    CHECK(ctx,
          collrun_sendrecv(g, out, count, next, in, count, last, COLLRUN_FLOAT64) == COLLRUN_OK);
    for (size_t i = 0; i < count; i++)
        CHECK(ctx, in[i] == last + (double)i);
    if (n > 1 && me == 0) {
        int source = -1;
        for (int i = 1; i < n; i++) {
            CHECK(ctx, collrun_recv_any(g, in, 3, COLLRUN_FLOAT64, &source) == COLLRUN_OK);
            CHECK(ctx, source > 0 && source < n && in[0] == source);
        }
    } else if (n > 1) {
        CHECK(ctx, collrun_send(g, out, 3, COLLRUN_FLOAT64, 0) == COLLRUN_OK);
    }
    free(out);
    free(in);
    return 0;
}

static struct collrun_call message(enum collrun_kind kind, void *buf, size_t count, int peer)
{
    struct collrun_call call = COLLRUN_CALL(kind);
    call.send = buf;
    call.recv = buf;
    call.count = count;
    call.dtype = COLLRUN_INT32;
    call.peer = peer;
    return call;
}

/* Requests that are never waited for: two of the group, one of a group made at run time. One of
 * another such group is waited for after the group was destroyed. */
static int do_forget(struct collrun_ctx *ctx, struct collrun_group *g)
{
    static int32_t one = 1, all[3];
    static struct collrun_request *kept[4]; /* no leak, for the checkers */
    int rank = collrun_world_rank(ctx);
    struct collrun_group *own;
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    call.send = &one;
    call.count = 1;
    call.dtype = COLLRUN_INT32;
    for (int i = 0; i < 2; i++) {
        call.recv = &all[i];
        CHECK(ctx, collrun_start(g, &call, &kept[i]) == COLLRUN_OK);
    }
    call.recv = &all[2];
    CHECK(ctx, collrun_start(g, &call, &kept[2]) == COLLRUN_OK);
    CHECK(ctx, collrun_wait(kept[2]) == COLLRUN_OK);
    struct collrun_group_options o = {.size = sizeof o, .name = "own", .ranks = &rank, .nranks = 1};
    CHECK(ctx, collrun_group_create(ctx, &o, &own) == COLLRUN_OK);
    CHECK(ctx, collrun_start(own, &call, &kept[3]) == COLLRUN_OK);
    CHECK(ctx, collrun_group_destroy(own) == COLLRUN_OK);
    struct collrun_group *late;
    struct collrun_request *request;
    o.name = "late";
    CHECK(ctx, collrun_group_create(ctx, &o, &late) == COLLRUN_OK);
    CHECK(ctx, collrun_start(late, &call, &request) == COLLRUN_OK);
    CHECK(ctx, collrun_group_destroy(late) == COLLRUN_OK);
    collrun_wait(request); /* with any result */
    return 0;
}

/* Requests: waited for in the opposite order, beside a collective, across each other, many. */
static int do_requests(struct collrun_ctx *ctx, struct collrun_group *g)
{
    enum { MANY = 60, LEN = 3000 };
    int n = collrun_size(g), me = collrun_rank(g), peer = me ^ 1;
    static int32_t out[MANY][LEN], in[MANY][LEN];
    struct collrun_request *r[2 * MANY], *sum;
    if (peer >= n)
        return collrun_fail(ctx, "needs an even number of ranks");
    for (int i = 0; i < MANY; i++) {
        out[i][0] = 100 * me + i;
        struct collrun_call call = message(COLLRUN_RECV, in[i], LEN, peer);
        CHECK(ctx, collrun_start(g, &call, &r[i]) == COLLRUN_OK);
    }
    int32_t one = 1, all = 0;
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    call.send = &one;
    call.recv = &all;
    call.count = 1;
    call.dtype = COLLRUN_INT32;
    CHECK(ctx, collrun_start(g, &call, &sum) == COLLRUN_OK);
    for (int i = 0; i < MANY; i++) {
        call = message(COLLRUN_SEND, out[i], LEN, peer);
        CHECK(ctx, collrun_start(g, &call, &r[MANY + i]) == COLLRUN_OK);
    }
    for (int i = 2 * MANY - 1; i >= MANY; i--)
        CHECK(ctx, collrun_wait(r[i]) == COLLRUN_OK);
    CHECK(ctx, collrun_wait_all(r, MANY) == COLLRUN_OK);
    for (int i = 0; i < MANY; i++)
        CHECK(ctx, in[i][0] == 100 * peer + i);
    int rc;
    while ((rc = collrun_test(sum)) == COLLRUN_AGAIN)
        sleep_ms(1);
    CHECK(ctx, rc == COLLRUN_OK && all == n);
    struct collrun_call pair[2] = {message(COLLRUN_SEND, out, MANY * LEN, peer),
                                   message(COLLRUN_RECV, in, MANY * LEN, peer)};
    CHECK(ctx, collrun_start_many(g, pair, 2, r) == COLLRUN_OK && collrun_wait(r[0]) == COLLRUN_OK);
    CHECK(ctx, in[MANY - 1][0] == 100 * peer + MANY - 1);
    return 0;
}

/* A message that waits for its peer must not stand in the way of a collective, or of a blocking
 * message. */
static int do_overtake(struct collrun_ctx *ctx, struct collrun_group *g)
{
    int me = collrun_rank(g);
    int32_t a = 5, b = 0, c = 0;
    struct collrun_request *r = NULL;
    struct collrun_call call = message(COLLRUN_RECV, &b, 1, 1 - me);
    if (me == 0) {
        CHECK(ctx, collrun_start(g, &call, &r) == COLLRUN_OK);
        sleep_ms(50); /* it is in flight now */
        CHECK(ctx, collrun_barrier(g) == COLLRUN_OK);
        if (strcmp(collrun_group_backend(g), "msgstart") == 0)
            CHECK(ctx, collrun_send(g, &a, 1, COLLRUN_INT32, 1) == COLLRUN_OK);
        CHECK(ctx, collrun_wait(r) == COLLRUN_OK && b == 5);
    } else if (me == 1) {
        CHECK(ctx, collrun_barrier(g) == COLLRUN_OK);
        if (strcmp(collrun_group_backend(g), "msgstart") == 0)
            CHECK(ctx, collrun_recv(g, &c, 1, COLLRUN_INT32, 0) == COLLRUN_OK);
        CHECK(ctx, collrun_send(g, &a, 1, COLLRUN_INT32, 0) == COLLRUN_OK);
    } else {
        CHECK(ctx, collrun_barrier(g) == COLLRUN_OK);
    }
    return 0;
}

/* Waiting for the first of two collectives must not wait for the second, which others enter later.
 */
static int do_ahead(struct collrun_ctx *ctx, struct collrun_group *g)
{
    struct collrun_request *r[2];
    struct collrun_call call = COLLRUN_CALL(COLLRUN_BARRIER);
    int32_t word = 9;
    int n = collrun_size(g);
    if (collrun_rank(g) == 0) {
        CHECK(ctx, collrun_start(g, &call, &r[0]) == COLLRUN_OK);
        CHECK(ctx, collrun_start(g, &call, &r[1]) == COLLRUN_OK);
        CHECK(ctx, collrun_wait(r[0]) == COLLRUN_OK);
        for (int i = 1; i < n; i++)
            CHECK(ctx, collrun_send(g, &word, 1, COLLRUN_INT32, i) == COLLRUN_OK);
        CHECK(ctx, collrun_wait(r[1]) == COLLRUN_OK);
    } else {
        CHECK(ctx, collrun_barrier(g) == COLLRUN_OK);
        CHECK(ctx, collrun_recv(g, &word, 1, COLLRUN_INT32, 0) == COLLRUN_OK);
        CHECK(ctx, collrun_barrier(g) == COLLRUN_OK);
    }
    return 0;
}

/* ---- groups made at run time ---- */

static int count_open(const char *dir)
{
    char command[64];
    int n = -1;
    snprintf(command, sizeof command, "ls /proc/%d/%s | wc -l", (int)getpid(), dir);
    FILE *p = popen(command, "r");
    if (!p || fscanf(p, "%d", &n) != 1)
        n = -1;
    if (p)
        pclose(p);
    return n;
}

/* A thread that was joined may still be seen for a moment. */
static bool has_grown(const char *dir, int before)
{
    for (int i = 0; i < 50; i++) {
        if (count_open(dir) <= before)
            return false;
        sleep_ms(20);
    }
    return true;
}

static int use_and_destroy(struct collrun_ctx *ctx, struct collrun_group *sub, bool ask)
{
    int32_t one = 1, sum = 0;
    CHECK(ctx, collrun_allreduce(sub, &one, &sum, 1, COLLRUN_INT32, COLLRUN_SUM) == COLLRUN_OK);
    CHECK(ctx, sum == collrun_size(sub));
    if (ask) {
        struct collrun_request *r;
        struct collrun_call call = COLLRUN_CALL(COLLRUN_BARRIER);
        CHECK(ctx, collrun_start(sub, &call, &r) == COLLRUN_OK && collrun_wait(r) == COLLRUN_OK);
    }
    CHECK(ctx,
          collrun_group_destroy(sub) == COLLRUN_OK && collrun_group_destroy(sub) == COLLRUN_OK);
    return 0;
}

static int do_groups(struct collrun_ctx *ctx, struct collrun_group *g)
{
    int me = collrun_world_rank(ctx), n = collrun_world_size(ctx), fds = 0, threads = 0, ranks[64];
    struct collrun_group *sub = NULL;
    for (int i = 0; i < n; i++)
        ranks[i] = n - 1 - i;
    struct collrun_group_options o = {
        .size = sizeof o, .name = "again", .ranks = ranks, .nranks = n};
    for (int i = 0; i < 60; i++) {
        CHECK(ctx, collrun_group_create(ctx, &o, &sub) == COLLRUN_OK);
        CHECK(ctx, collrun_rank(sub) == n - 1 - me && collrun_group_exists(ctx, "again"));
        CHECK(ctx, collrun_world_rank_of(sub, 0) == n - 1 && collrun_world_rank_of(sub, n) == -1);
        struct collrun_group *twice = NULL;
        CHECK(ctx, collrun_group_create(ctx, &o, &twice) == COLLRUN_ERR_EXISTS && !twice);
        if (use_and_destroy(ctx, sub, i % 2))
            return 1;
        CHECK(ctx, !collrun_group_exists(ctx, "again"));
        if (i == 5) {
            fds = count_open("fd");
            threads = count_open("task");
        }
    }
    CHECK(ctx, !has_grown("fd", fds) && !has_grown("task", threads));
    CHECK(ctx, collrun_group_split(g, me % 2, -me, "half", &sub) == COLLRUN_OK);
    CHECK(ctx,
          collrun_size(sub) == (n + (me % 2 == 0)) / 2 && collrun_world_rank_of(sub, 0) >= n - 2);
    if (use_and_destroy(ctx, sub, true))
        return 1;
    CHECK(ctx, collrun_group_split(g, me ? -1 : 3, 0, "alone", &sub) == COLLRUN_OK && !sub == !!me);
    if (sub && use_and_destroy(ctx, sub, true))
        return 1;
    CHECK(ctx, collrun_group_destroy(g) == COLLRUN_ERR_INVALID);
    if (me == 0) { /* no other rank takes part in these */
        int bad[2] = {0, n};
        CHECK(ctx,
              collrun_group_create(ctx,
                                   &(struct collrun_group_options){
                                       .size = sizeof o, .name = "x", .ranks = bad, .nranks = 2},
                                   &sub) == COLLRUN_ERR_INVALID);
        bad[1] = 0;
        CHECK(ctx,
              collrun_group_create(ctx,
                                   &(struct collrun_group_options){
                                       .size = sizeof o, .name = "x", .ranks = bad, .nranks = 2},
                                   &sub) == COLLRUN_ERR_INVALID);
        bad[0] = 1;
        if (n > 1)
            CHECK(ctx, collrun_group_create(
                           ctx,
                           &(struct collrun_group_options){
                               .size = sizeof o, .name = "x", .ranks = bad, .nranks = 1},
                           &sub) == COLLRUN_ERR_NOT_MEMBER);
        bad[0] = 0;
        CHECK(ctx,
              collrun_group_create(
                  ctx,
                  &(struct collrun_group_options){
                      .size = sizeof o, .name = "x", .backend = "none", .ranks = bad, .nranks = 1},
                  &sub) == COLLRUN_ERR_NOT_FOUND);
        CHECK(ctx, collrun_group_create(
                       ctx,
                       &(struct collrun_group_options){
                           .size = sizeof o, .name = "world", .ranks = bad, .nranks = 1},
                       &sub) == COLLRUN_ERR_EXISTS);
        CHECK(ctx, collrun_group_get(ctx, "nowhere", &sub) == COLLRUN_ERR_NOT_FOUND &&
                       collrun_group_rank(ctx, "nowhere") == -1);
    }
    return 0;
}

/* ---- going wrong ---- */

static int wait_forever(struct collrun_ctx *ctx, struct collrun_group *g)
{
    int rc = collrun_barrier(g);
    CHECK(ctx, rc != COLLRUN_OK);
    int again = collrun_barrier(g);
    CHECK(ctx, again == rc && strstr(collrun_error(), "barrier"));
    int failed = -1;
    if (rc == COLLRUN_ERR_PEER_FAILED)
        CHECK(ctx, collrun_failed(ctx, &failed, 1) == 1 && failed == 0);
    else
        CHECK(ctx, collrun_failed(ctx, NULL, 0) == 0);
    fprintf(stderr, "%s\n", collrun_error());
    return rc;
}

struct intruder {
    struct collrun_group *group;
    int rc;
    char words[256];
};

static void *intrude(void *arg)
{
    struct intruder *i = arg;
    sleep_ms(100);
    i->rc = collrun_barrier(i->group);
    snprintf(i->words, sizeof i->words, "%s", collrun_error());
    return NULL;
}

static int do_two_threads(struct collrun_ctx *ctx, struct collrun_group *g)
{
    struct intruder i = {.group = g};
    pthread_t t;
    if (collrun_rank(g) == 0) {
        pthread_create(&t, NULL, intrude, &i);
        CHECK(ctx, collrun_barrier(g) == COLLRUN_OK);
        pthread_join(t, NULL);
        CHECK(ctx, i.rc == COLLRUN_ERR_INVALID && strstr(i.words, "one thread at a time"));
        CHECK(ctx, strstr(i.words, "another thread calls while workload \"probe\""));
    } else {
        sleep_ms(300);
        CHECK(ctx, collrun_barrier(g) == COLLRUN_OK);
    }
    return 0;
}

static int do_background(struct collrun_ctx *ctx)
{
    uint64_t beats = 0;
    while (!collrun_stopping(ctx)) {
        collrun_progress(ctx, ++beats, 0, "beats");
        sleep_ms(1);
    }
    collrun_metric(ctx, "beats", (double)beats);
    return 0;
}

static int do_params(struct collrun_ctx *ctx)
{
    CHECK(ctx, collrun_param_int(ctx, "count") == 7 + (collrun_world_rank(ctx) == 1));
    CHECK(ctx, collrun_param_size(ctx, "bytes") == 65536 &&
                   collrun_param_duration(ctx, "nap") == 1500000000);
    CHECK(ctx, collrun_param_bool(ctx, "loud") && collrun_param_float(ctx, "ratio") == 0.25);
    char expect[64];
    snprintf(expect, sizeof expect, "rank-%d", collrun_world_rank(ctx));
    CHECK(ctx, strcmp(collrun_param_string(ctx, "label"), expect) == 0);
    collrun_log(ctx, COLLRUN_LOG_INFO, "label %s", collrun_param_string(ctx, "label"));
    printf("ran %s\n", collrun_run_id(ctx));
    CHECK(ctx, collrun_local_size(ctx) == collrun_world_size(ctx) && collrun_attempt(ctx) == 3);
    return 0;
}

/* ---- the workload ---- */

static bool is(struct collrun_ctx *ctx, const char *what)
{
    return strcmp(collrun_param_string(ctx, "do"), what) == 0;
}

static int init(struct collrun_ctx *ctx, void **state)
{
    *state = ctx;
    if (is(ctx, "fail-init"))
        return collrun_fail(ctx, "no fuel") + 40;
    if (is(ctx, "hang-init"))
        sleep_ms(600000);
    return 0;
}

static int misbehave(struct collrun_ctx *ctx, struct collrun_group *g)
{
    if (is(ctx, "return-3"))
        return 3;
    if (is(ctx, "return-500"))
        return 500;
    if (is(ctx, "say-late"))
        sleep_ms(300);
    if (is(ctx, "say") || is(ctx, "say-late"))
        return collrun_fail(ctx, "the sum is %d, not %d", 5, 4);
    if (is(ctx, "undeclared"))
        return collrun_param_int(ctx, "nonsense") != 0;
    if (is(ctx, "wrong-type"))
        return collrun_param_int(ctx, "label") != 0;
    if (is(ctx, "bad-root"))
        return collrun_broadcast(g, &g, 1, COLLRUN_INT8, 99);
    if (is(ctx, "sleep"))
        sleep_ms(600000);
    if (is(ctx, "die")) {
        sleep_ms(300); /* the others are inside their barrier by then */
        abort();
    }
    if (is(ctx, "barrier"))
        return wait_forever(ctx, g);
    return collrun_fail(ctx, "unknown: do: %s", collrun_param_string(ctx, "do"));
}

static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *g = collrun_group_at(ctx, 0);
    if (state != ctx)
        return collrun_fail(ctx, "init's state is lost");
    if (is(ctx, "nothing"))
        return 0;
    if (is(ctx, "sum"))
        return do_sum(ctx, g);
    if (is(ctx, "all"))
        return do_all(ctx, g);
    if (is(ctx, "ring"))
        return do_ring(ctx, g);
    if (is(ctx, "forget"))
        return do_forget(ctx, g);
    if (is(ctx, "requests"))
        return do_requests(ctx, g);
    if (is(ctx, "overtake"))
        return do_overtake(ctx, g);
    if (is(ctx, "ahead"))
        return do_ahead(ctx, g);
    if (is(ctx, "groups"))
        return do_groups(ctx, g);
    if (is(ctx, "two-threads"))
        return do_two_threads(ctx, g);
    if (is(ctx, "background"))
        return do_background(ctx);
    if (is(ctx, "params"))
        return do_params(ctx);
    return misbehave(ctx, g);
}

static void fini(struct collrun_ctx *ctx, void *state)
{
    if (state == ctx)
        collrun_metric(ctx, "fini", 1);
}

static const struct collrun_param params[] = {
    {.name = "do", .type = COLLRUN_PARAM_STRING, .def = "nothing", .help = "what to do"},
    {.name = "count", .type = COLLRUN_PARAM_INT, .def = "7", .min = "1", .max = "100"},
    {.name = "bytes", .type = COLLRUN_PARAM_SIZE, .def = "64KiB"},
    {.name = "nap", .type = COLLRUN_PARAM_DURATION, .def = "1.5s"},
    {.name = "loud", .type = COLLRUN_PARAM_BOOL, .def = "true"},
    {.name = "ratio", .type = COLLRUN_PARAM_FLOAT, .def = "0.25"},
    {.name = "label", .type = COLLRUN_PARAM_STRING, .def = "none"},
    {0},
};

COLLRUN_WORKLOAD(.name = "probe", .summary = "what the engine's \"tests\" need\n", .params = params,
                 .init = init, .run = run, .fini = fini);
