/* SPDX-License-Identifier: Apache-2.0
 *
 * A workload for the engine's tests, as probe.c: getters, and calls about requests. Parameter `do`
 * says what it does.
 */
#include <collrun/workload.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(ctx, condition)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return collrun_fail((ctx), "line %d: %s does not hold (%s)", __LINE__, #condition,     \
                                collrun_error());                                                  \
    } while (0)

/* ---- getters ---- */

static int ask_about_group(struct collrun_ctx *ctx, struct collrun_group *g)
{
    int n = collrun_world_size(ctx), ranks[64] = {0};
    CHECK(ctx, collrun_group_members(g, ranks, 1) == n && ranks[0] == 0 && ranks[1] == 0);
    CHECK(ctx, collrun_group_members(g, NULL, 0) == n && collrun_group_members(NULL, ranks, 1) < 0);
    CHECK(ctx, collrun_group_members(g, ranks, 64) == n && ranks[n - 1] == n - 1);
    CHECK(ctx, collrun_group_rank_of(g, n - 1) == n - 1 && collrun_group_rank_of(g, n) == -1);
    CHECK(ctx, collrun_group_rank_of(g, -1) == -1 && collrun_group_rank_of(NULL, 0) == -1);
    CHECK(ctx, collrun_group_timeout(NULL) == 0 && collrun_group_timeout(g) > 0);
    CHECK(ctx, collrun_group_check(g) == COLLRUN_CHECK_ASYNC);
    CHECK(ctx, !collrun_group_native(g, "nccl_comm", 0) && !collrun_group_native(g, NULL, 0));
    CHECK(ctx, !collrun_group_native(NULL, "nccl_comm", 0));
    return 0;
}

static int ask_about_job(struct collrun_ctx *ctx, struct collrun_group *g)
{
    char why[256] = "unchanged", little[4];
    const char *mine = collrun_group_backend(g);
    int ranks[1] = {-1};
    CHECK(ctx, strcmp(collrun_version(), COLLRUN_VERSION) == 0 && *collrun_address(ctx));
    CHECK(ctx, collrun_failed(ctx, ranks, 1) == 0 && ranks[0] == -1);
    CHECK(ctx, collrun_device_synchronize(ctx, 0) == COLLRUN_ERR_INVALID);
    CHECK(ctx, strstr(collrun_error(), "device 0 is not one of the 0 devices"));
    CHECK(ctx, collrun_device_synchronize(NULL, 0) == COLLRUN_ERR_INVALID);
    CHECK(ctx, collrun_backend_available(ctx, mine, why, sizeof why) == COLLRUN_OK && !*why);
    CHECK(ctx, collrun_backend_available(ctx, mine, NULL, 0) == COLLRUN_OK);
    CHECK(ctx, collrun_backend_available(ctx, mine, NULL, 1) == COLLRUN_ERR_INVALID);
    CHECK(ctx, collrun_backend_available(ctx, "none", why, sizeof why) == COLLRUN_ERR_NOT_FOUND);
    CHECK(ctx, strstr(why, "no backend named \"none\"") && strcmp(why, collrun_error()) == 0);
    if (strcmp(mine, "msg") == 0)
        return 0; /* the other job has a "msg" that does not work */
    for (int i = 0; i < 2; i++) {
        int rc = collrun_backend_available(ctx, "msg", why, sizeof why);
        CHECK(ctx, rc == COLLRUN_ERR_UNAVAILABLE && strstr(why, "the moon is in the wrong phase"));
    }
    CHECK(ctx,
          collrun_backend_available(ctx, "msg", little, sizeof little) == COLLRUN_ERR_UNAVAILABLE);
    CHECK(ctx, strlen(little) == 3);
    return 0;
}

static int use_and_destroy(struct collrun_ctx *ctx, struct collrun_group *g)
{
    int32_t one = 1, sum = 0;
    CHECK(ctx, collrun_allreduce(g, &one, &sum, 1, COLLRUN_INT32, COLLRUN_SUM) == COLLRUN_OK);
    CHECK(ctx, sum == collrun_size(g) && collrun_group_destroy(g) == COLLRUN_OK);
    return 0;
}

/* All members get the same unique name. */
static int ask_unnamed(struct collrun_ctx *ctx, struct collrun_group *g)
{
    int n = collrun_world_size(ctx), ranks[64];
    char want[64], names[8][64] = {0}, mine[64] = "";
    struct collrun_group *unnamed[3];
    for (int i = 0; i < n; i++)
        ranks[i] = (i + 1) % n;
    struct collrun_group_options o = {.size = sizeof o, .ranks = ranks, .nranks = n};
    o.backend = collrun_group_backend(g), o.timeout_ns = 5000000000, o.check = COLLRUN_CHECK_STRICT;
    CHECK(ctx, collrun_group_create(ctx, &o, &unnamed[0]) == COLLRUN_OK);
    o.name = "";
    CHECK(ctx, collrun_group_create(ctx, &o, &unnamed[1]) == COLLRUN_OK);
    CHECK(ctx, collrun_group_split(unnamed[0], 0, 0, NULL, &unnamed[2]) == COLLRUN_OK);
    snprintf(want, sizeof want,
             n == 1   ? "group(0)."
             : n == 2 ? "group(1,0)."
                      : "group(1-%d,0).",
             n - 1);
    for (int i = 0; i < 3; i++) {
        const char *name = collrun_group_name(unnamed[i]);
        snprintf(mine, sizeof mine, "%s", name);
        CHECK(ctx, strncmp(name, want, strlen(want)) == 0);
        CHECK(ctx, strcmp(name + strlen(want), i == 0 ? "1" : i == 1 ? "2" : "1/1.0") == 0);
        CHECK(ctx, collrun_allgather(g, mine, names, sizeof mine, COLLRUN_UINT8) == COLLRUN_OK);
        for (int r = 0; r < n; r++)
            CHECK(ctx, strcmp(names[r], name) == 0);
        CHECK(ctx, collrun_group_timeout(unnamed[i]) == 5000000000);
        CHECK(ctx, collrun_group_check(unnamed[i]) == COLLRUN_CHECK_STRICT);
        CHECK(ctx, collrun_group_rank_of(unnamed[i], 0) == n - 1);
        CHECK(ctx, collrun_group_exists(ctx, name));
    }
    for (int i = 0; i < 3; i++)
        if (use_and_destroy(ctx, unnamed[i]))
            return 1;
    o.backend = "auto"; /* the others need not work here */
    CHECK(ctx, collrun_group_create(ctx, &o, &unnamed[0]) == COLLRUN_OK);
    CHECK(ctx, strcmp(collrun_group_backend(unnamed[0]), collrun_group_backend(g)) == 0);
    if (use_and_destroy(ctx, unnamed[0]))
        return 1;
    o.nranks = 0;
    CHECK(ctx, collrun_group_create(ctx, &o, &unnamed[0]) == COLLRUN_ERR_INVALID);
    CHECK(ctx, strstr(collrun_error(), "(no name)"));
    return 0;
}

static int do_ask(struct collrun_ctx *ctx, struct collrun_group *g)
{
    if (ask_about_group(ctx, g) || ask_about_job(ctx, g))
        return 1;
    return ask_unnamed(ctx, g);
}

/* ---- requests ---- */

static struct collrun_call message(enum collrun_kind kind, int32_t *word, int peer, uint32_t tag)
{
    struct collrun_call call = COLLRUN_CALL(kind);
    call.send = call.recv = word;
    call.count = 1;
    call.dtype = COLLRUN_INT32;
    call.peer = peer;
    call.tag = tag;
    return call;
}

static struct collrun_call sum_of(const int32_t *in, int32_t *out)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    call.send = in;
    call.recv = out;
    call.count = 1;
    call.dtype = COLLRUN_INT32;
    return call;
}

static int run_refuses(struct collrun_ctx *ctx, struct collrun_group *g)
{
    int32_t word = 0;
    struct collrun_call calls[2] = {sum_of(&word, &word), message(COLLRUN_SEND, &word, 99, 0)};
    CHECK(ctx, collrun_run(NULL, calls, 1) == COLLRUN_ERR_INVALID);
    CHECK(ctx, collrun_run(g, NULL, 1) == COLLRUN_ERR_INVALID);
    CHECK(ctx, collrun_run(g, calls, 0) == COLLRUN_ERR_INVALID);
    CHECK(ctx, collrun_run(g, &calls[1], 1) == COLLRUN_ERR_INVALID);
    calls[0].size = 3;
    CHECK(ctx, collrun_run(g, calls, 1) == COLLRUN_ERR_INVALID);
    return 0;
}

/* Every rank sends to every rank, with a tag for each turn: more calls than fit on the stack. */
static int do_run(struct collrun_ctx *ctx, struct collrun_group *g)
{
    enum { MOST = 8, TURNS = 3 };
    int n = collrun_size(g), me = collrun_rank(g), source = -1;
    int32_t out = me + 1, all = 0, in[MOST * TURNS] = {0};
    struct collrun_call calls[2 * MOST * TURNS] = {0};
    int ncalls = 0;
    CHECK(ctx, run_refuses(ctx, g) == 0);
    calls[0] = sum_of(&out, &all);
    CHECK(ctx, collrun_run(g, calls, 1) == COLLRUN_OK && all == n * (n + 1) / 2);
    for (int i = 0; i < TURNS * n; i++) {
        int peer = i % n;
        if (peer == me)
            continue;
        calls[ncalls++] = message(COLLRUN_SEND, &out, peer, (uint32_t)(i / n));
        calls[ncalls++] = message(COLLRUN_RECV, &in[i], peer, (uint32_t)(i / n));
    }
    CHECK(ctx, ncalls == 0 || collrun_run(g, calls, ncalls) == COLLRUN_OK);
    for (int i = 0; i < TURNS * n; i++)
        CHECK(ctx, in[i] == (i % n == me ? 0 : i % n + 1));
    if (me == 1) {
        int32_t late = 55;
        calls[0] = message(COLLRUN_SEND, &out, 0, 4);
        calls[1] = message(COLLRUN_SEND, &late, 0, 5);
        CHECK(ctx, collrun_run(g, calls, 2) == COLLRUN_OK);
    } else if (me == 0 && n > 1) {
        calls[0] = message(COLLRUN_RECV_ANY, &in[0], -1, 4);
        calls[1] = message(COLLRUN_RECV_ANY, &in[1], -1, 5);
        calls[0].source = calls[1].source = &source;
        CHECK(ctx, collrun_run(g, calls, 2) == COLLRUN_OK);
        CHECK(ctx, in[0] == 2 && in[1] == 55 && source == 1);
    }
    return collrun_barrier(g) == COLLRUN_OK ? 0 : collrun_fail(ctx, "%s", collrun_error());
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

/* Polling returns the result as often as it is asked, and keeps the request. */
static int do_poll(struct collrun_ctx *ctx, struct collrun_group *g)
{
    int32_t in = 1, out = 0;
    struct collrun_call call = sum_of(&in, &out);
    struct collrun_request *r = NULL;
    int rc, n = collrun_size(g);
    CHECK(ctx, collrun_poll(NULL) == COLLRUN_ERR_INVALID);
    if (collrun_rank(g) == n - 1)
        nap();
    CHECK(ctx, collrun_start(g, &call, &r) == COLLRUN_OK);
    if (n > 1 && collrun_rank(g) == 0)
        CHECK(ctx, collrun_poll(r) == COLLRUN_AGAIN);
    while ((rc = collrun_poll(r)) == COLLRUN_AGAIN)
        sched_yield();
    CHECK(ctx, rc == COLLRUN_OK && out == n);
    CHECK(ctx, collrun_poll(r) == COLLRUN_OK && collrun_test(r) == COLLRUN_OK);
    if (collrun_rank(g) != 0 || n == 1)
        return 0;
    call = message(COLLRUN_RECV, &in, 1, 0);
    call.timeout_ns = 100000000;
    CHECK(ctx, collrun_start(g, &call, &r) == COLLRUN_OK);
    while ((rc = collrun_poll(r)) == COLLRUN_AGAIN)
        sched_yield();
    CHECK(ctx, rc == COLLRUN_ERR_TIMEOUT && strstr(collrun_error(), "recv world#1: "));
    CHECK(ctx, collrun_poll(r) == rc && collrun_wait(r) == rc);
    return 0;
}

/* Receives of two groups in one array; the messages are sent in another order, one by one. */
static int any_of_two_groups(struct collrun_ctx *ctx, struct collrun_group *const groups[2])
{
    enum { N = 8 };
    int me = collrun_rank(groups[0]), index = -7;
    int32_t words[N] = {0};
    struct collrun_request *requests[N + 1] = {NULL};
    if (me > 1 || collrun_size(groups[0]) < 2)
        return 0;
    for (int i = 0; me == 0 && i < N; i++) {
        struct collrun_call call = message(COLLRUN_RECV, &words[i], 1, (uint32_t)i);
        CHECK(ctx, collrun_start(groups[i % 2], &call, &requests[i]) == COLLRUN_OK);
    }
    for (int k = 0; k < N; k++) {
        int i = N - 1 - k;
        int32_t word = 100 + i, go = 0;
        struct collrun_call send = message(COLLRUN_SEND, &word, 0, (uint32_t)i);
        if (me == 1) {
            CHECK(ctx, collrun_run(groups[i % 2], &send, 1) == COLLRUN_OK);
            send = message(COLLRUN_RECV, &go, 0, N);
            CHECK(ctx, collrun_run(groups[0], &send, 1) == COLLRUN_OK);
            continue;
        }
        CHECK(ctx, collrun_wait_any(requests, N + 1, &index) == COLLRUN_OK && index == i);
        CHECK(ctx, requests[i] == NULL && words[i] == 100 + i);
        send = message(COLLRUN_SEND, &go, 1, N);
        CHECK(ctx, collrun_run(groups[0], &send, 1) == COLLRUN_OK);
    }
    if (me == 0)
        CHECK(ctx, collrun_wait_any(requests, N + 1, &index) == COLLRUN_OK && index == -1);
    return 0;
}

/* Collectives, which a backend with exec alone executes in the worker of the queue. */
static int any_of_collectives(struct collrun_ctx *ctx, struct collrun_group *const groups[2])
{
    enum { N = 6 };
    int index, n = collrun_size(groups[0]), seen[N] = {0};
    int32_t one = 1, sums[N] = {0};
    struct collrun_request *requests[N];
    for (int i = 0; i < N; i++) {
        struct collrun_call call = sum_of(&one, &sums[i]);
        CHECK(ctx, collrun_start(groups[i % 2], &call, &requests[i]) == COLLRUN_OK);
    }
    for (int i = 0; i < N; i++) {
        CHECK(ctx, collrun_wait_any(requests, N, &index) == COLLRUN_OK);
        CHECK(ctx, index >= 0 && index < N && !seen[index]++ && sums[index] == n);
    }
    return 0;
}

static int do_wait_any(struct collrun_ctx *ctx, struct collrun_group *g)
{
    struct collrun_group *groups[2] = {g, NULL};
    struct collrun_request *none[2] = {NULL, NULL};
    bool tags = strcmp(collrun_group_backend(g), "shm") == 0;
    int index = 5;
    CHECK(ctx, collrun_group_split(g, 0, 0, NULL, &groups[1]) == COLLRUN_OK);
    CHECK(ctx, collrun_wait_any(NULL, 1, &index) == COLLRUN_ERR_INVALID);
    CHECK(ctx, collrun_wait_any(none, -1, &index) == COLLRUN_ERR_INVALID);
    CHECK(ctx, collrun_wait_any(none, 2, NULL) == COLLRUN_ERR_INVALID && index == 5);
    CHECK(ctx, collrun_wait_any(NULL, 0, &index) == COLLRUN_OK && index == -1);
    index = 5;
    CHECK(ctx, collrun_wait_any(none, 2, &index) == COLLRUN_OK && index == -1);
    for (int i = 0; i < 20; i++)
        if ((tags && any_of_two_groups(ctx, groups)) || any_of_collectives(ctx, groups))
            return 1;
    return use_and_destroy(ctx, groups[1]);
}

/* The error of wait_all and the index of wait_any name the request that failed. */
static int do_which_failed(struct collrun_ctx *ctx, struct collrun_group *g)
{
    int32_t word = 1, sum = 0;
    int index = -7, rc, peer = (collrun_rank(g) + 1) % collrun_size(g);
    char want[128];
    for (int any = 0; any < 2; any++) {
        struct collrun_group *sub = NULL;
        struct collrun_request *requests[4] = {NULL};
        struct collrun_call call = sum_of(&word, &sum);
        CHECK(ctx, collrun_group_split(g, 0, 0, NULL, &sub) == COLLRUN_OK);
        snprintf(want, sizeof want,
                 "%srecv %s#1: ", any ? "" : "requests[2]: ", collrun_group_name(sub));
        CHECK(ctx, collrun_start(g, &call, &requests[3]) == COLLRUN_OK);
        CHECK(ctx, collrun_barrier(g) == COLLRUN_OK); /* behind it: requests[3] is over */
        call = message(COLLRUN_RECV, &word, peer, 3);
        call.timeout_ns = 500000000;
        CHECK(ctx, collrun_start(sub, &call, &requests[2]) == COLLRUN_OK);
        if (any) {
            CHECK(ctx, collrun_wait_any(requests, 4, &index) == COLLRUN_OK && index == 3);
            rc = collrun_wait_any(requests, 4, &index);
            CHECK(ctx, index == 2);
        } else {
            rc = collrun_wait_all(requests, 4);
        }
        CHECK(ctx, rc == COLLRUN_ERR_TIMEOUT && !requests[2] && !requests[3]);
        CHECK(ctx, strncmp(collrun_error(), want, strlen(want)) == 0);
        CHECK(ctx, sum == collrun_size(g) && collrun_barrier(g) == COLLRUN_OK);
        CHECK(ctx, collrun_group_destroy(sub) == COLLRUN_OK);
    }
    return 0;
}

static void *abort_it(void *group)
{
    collrun_group_abort(group, "enough is enough");
    return NULL;
}

/* A thread aborts the group of a call that waits; the parent remains usable. */
static int do_abort(struct collrun_ctx *ctx, struct collrun_group *g)
{
    int32_t word = 1, sum = 0;
    struct collrun_group *sub = NULL;
    struct collrun_request *request;
    pthread_t thread;
    struct collrun_call call = message(COLLRUN_RECV, &word, 0, 3);
    CHECK(ctx, collrun_group_split(g, collrun_rank(g), 0, "mine", &sub) == COLLRUN_OK);
    CHECK(ctx, collrun_start(sub, &call, &request) == COLLRUN_OK);
    CHECK(ctx, collrun_group_abort(NULL, "?") == COLLRUN_ERR_INVALID);
    CHECK(ctx, collrun_group_abort(sub, NULL) == COLLRUN_ERR_INVALID);
    CHECK(ctx, pthread_create(&thread, NULL, abort_it, sub) == 0);
    CHECK(ctx, collrun_run(sub, &call, 1) == COLLRUN_ERR_ABORTED);
    CHECK(ctx, strstr(collrun_error(), "has aborted the group: enough is enough"));
    pthread_join(thread, NULL);
    CHECK(ctx, collrun_wait(request) == COLLRUN_ERR_ABORTED);
    CHECK(ctx, collrun_group_abort(sub, "again") == COLLRUN_OK);
    CHECK(ctx, collrun_barrier(sub) == COLLRUN_ERR_ABORTED);
    CHECK(ctx, strstr(collrun_error(), "enough is enough"));
    CHECK(ctx, collrun_group_destroy(sub) == COLLRUN_OK);
    CHECK(ctx, collrun_group_abort(sub, "late") == COLLRUN_ERR_INVALID);
    CHECK(ctx, collrun_allreduce(g, &word, &sum, 1, COLLRUN_INT32, COLLRUN_SUM) == COLLRUN_OK);
    return 0;
}

/* ---- messages ---- */

static struct collrun_call any_receive(int *to, size_t room, size_t *received, uint32_t *tag)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_RECV);
    call.recv = to;
    call.count = room;
    call.dtype = COLLRUN_INT32;
    call.tag = COLLRUN_ANY_TAG;
    call.received = received;
    call.received_tag = tag;
    return call;
}

/* What a backend that matches messages itself and has no envelopes cannot do is refused by name. */
static int do_envelope_refused(struct collrun_ctx *ctx, struct collrun_group *g)
{
    struct collrun_message_info info = {.size = sizeof info};
    int x[2] = {0}, me = collrun_rank(g), peer = !me, y[2] = {0};
    size_t received = 7;
    uint32_t tag = 7;
    struct collrun_request *request = NULL;
    struct collrun_call call = any_receive(x, 2, &received, NULL);
    call.peer = peer;
    call.tag = 0;
    CHECK(ctx, collrun_run(g, &call, 1) == COLLRUN_ERR_UNSUPPORTED);
    CHECK(ctx, strstr(collrun_error(), "does not report the size of a message"));
    call = any_receive(x, 2, NULL, &tag);
    call.peer = peer;
    call.tag = 0;
    CHECK(ctx, collrun_start(g, &call, &request) == COLLRUN_ERR_UNSUPPORTED && !request);
    CHECK(ctx, strstr(collrun_error(), "does not report the tag of a message"));
    CHECK(ctx, collrun_send(g, x, 1, COLLRUN_INT32, me) == COLLRUN_ERR_UNSUPPORTED);
    CHECK(ctx, strstr(collrun_error(), "is this rank itself, and backend \"msg"));
    CHECK(ctx, collrun_probe(g, peer, 0, &info) == COLLRUN_ERR_UNSUPPORTED);
    CHECK(ctx, strstr(collrun_error(), "probe world: backend \"msg"));
    CHECK(ctx, collrun_iprobe(g, peer, 0, &info) == COLLRUN_ERR_UNSUPPORTED);
    x[0] = 5 + me;
    CHECK(ctx, collrun_sendrecv(g, x, 1, me, y, 1, me, COLLRUN_INT32) == COLLRUN_OK);
    CHECK(ctx, y[0] == 5 + me && received == 7 && tag == 7);
    return 0;
}

static int envelope_arguments(struct collrun_ctx *ctx, struct collrun_group *g)
{
    struct collrun_message_info info = {.size = sizeof info, .count = 99}, old = {.size = 8};
    int x = 0, n = collrun_size(g);
    struct collrun_call call = COLLRUN_CALL(COLLRUN_SEND);
    CHECK(ctx, collrun_probe(NULL, 0, 0, &info) == COLLRUN_ERR_INVALID);
    CHECK(ctx, collrun_iprobe(NULL, 0, 0, &info) == COLLRUN_ERR_INVALID);
    CHECK(ctx, collrun_probe(g, 0, 0, NULL) == COLLRUN_ERR_INVALID);
    CHECK(ctx, collrun_iprobe(g, n, 0, &info) == COLLRUN_ERR_INVALID);
    CHECK(ctx, strstr(collrun_error(), "is not a rank of this group"));
    CHECK(ctx, collrun_iprobe(g, -2, 0, &info) == COLLRUN_ERR_INVALID);
    CHECK(ctx, collrun_iprobe(g, 0, 1u << 31, &info) == COLLRUN_ERR_INVALID);
    CHECK(ctx, collrun_iprobe(g, 0, 0, &old) == COLLRUN_ERR_INVALID);
    CHECK(ctx, strstr(collrun_error(), "has a size of 8 bytes"));
    CHECK(ctx, collrun_iprobe(g, COLLRUN_ANY_PEER, COLLRUN_ANY_TAG, &info) == COLLRUN_AGAIN);
    CHECK(ctx, info.count == 99);
    CHECK(ctx, collrun_cancel(NULL) == COLLRUN_ERR_INVALID);
    call.send = &x;
    call.count = 1;
    call.dtype = COLLRUN_INT32;
    call.tag = COLLRUN_ANY_TAG;
    CHECK(ctx, collrun_run(g, &call, 1) == COLLRUN_ERR_INVALID);
    CHECK(ctx, strstr(collrun_error(), "a send needs a tag"));
    return 0;
}

/* To itself, so that it works in a group of any size. */
static int do_envelope(struct collrun_ctx *ctx, struct collrun_group *g)
{
    int x[3] = {1, 2, 3}, y[5] = {0}, me = collrun_rank(g);
    size_t received = 0;
    uint32_t tag = 0;
    struct collrun_message_info info = {.size = sizeof info};
    struct collrun_request *requests[2] = {NULL};
    if (envelope_arguments(ctx, g))
        return 1;
    struct collrun_call send = COLLRUN_CALL(COLLRUN_SEND);
    struct collrun_call recv = any_receive(y, 5, &received, &tag);
    send.send = x;
    send.count = 3;
    send.dtype = COLLRUN_INT32;
    send.peer = recv.peer = me;
    send.tag = 12;
    CHECK(ctx, collrun_run(g, &send, 1) == COLLRUN_OK);
    CHECK(ctx, collrun_probe(g, COLLRUN_ANY_PEER, 12, &info) == COLLRUN_OK);
    CHECK(ctx, info.source == me && info.tag == 12 && info.count == 3);
    CHECK(ctx, collrun_iprobe(g, me, 11, &info) == COLLRUN_AGAIN);
    CHECK(ctx, collrun_run(g, &recv, 1) == COLLRUN_OK && received == 3 && tag == 12 && y[2] == 3);
    /* Withdrawn behind another request, which is then matched. */
    for (int i = 0; i < 2; i++)
        CHECK(ctx, collrun_start(g, &recv, &requests[i]) == COLLRUN_OK);
    CHECK(ctx, collrun_cancel(requests[0]) == COLLRUN_OK);
    CHECK(ctx, collrun_run(g, &send, 1) == COLLRUN_OK);
    CHECK(ctx, collrun_wait(requests[1]) == COLLRUN_OK && tag == 12);
    CHECK(ctx, collrun_start(g, &recv, &requests[0]) == COLLRUN_OK);
    CHECK(ctx, collrun_run(g, &send, 1) == COLLRUN_OK);
    CHECK(ctx, collrun_cancel(requests[0]) == COLLRUN_AGAIN);
    CHECK(ctx, collrun_wait(requests[0]) == COLLRUN_OK);
    return 0;
}

/* A message that is longer than its receive ends the group. */
static int do_too_long(struct collrun_ctx *ctx, struct collrun_group *g)
{
    int x[3] = {1, 2, 3}, me = collrun_rank(g);
    size_t received = 77;
    struct collrun_call recv = any_receive(x, 2, &received, NULL);
    recv.peer = me;
    CHECK(ctx, collrun_send(g, x, 3, COLLRUN_INT32, me) == COLLRUN_OK);
    CHECK(ctx, collrun_run(g, &recv, 1) == COLLRUN_ERR_MISMATCH && received == 77);
    CHECK(ctx, strstr(collrun_error(), "recv(up to 2 x int32, from 0, any tag)"));
    return 0;
}

/* ---- a backend that works on some ranks only ---- */

/* Backend "msg" does not work on rank 1: its calls fail at once, those of the others wait for it.
 * Then all members form the group on another backend. */
static int do_fallback(struct collrun_ctx *ctx, struct collrun_group *g)
{
    int ranks[2] = {0, 1},
        failure = collrun_rank(g) ? COLLRUN_ERR_UNAVAILABLE : COLLRUN_ERR_TIMEOUT;
    struct collrun_group_options o = {.size = sizeof o, .ranks = ranks, .nranks = 2};
    for (int i = 0; i < 4; i++) {
        struct collrun_group *made = NULL;
        o.name = i % 2 ? NULL : "late";
        o.backend = "msg";
        CHECK(ctx, collrun_group_create(ctx, &o, &made) == failure && !made);
        CHECK(ctx, collrun_barrier(g) == COLLRUN_OK);
        o.backend = collrun_group_backend(g);
        CHECK(ctx, collrun_group_create(ctx, &o, &made) == COLLRUN_OK);
        if (use_and_destroy(ctx, made))
            return 1;
    }
    return 0;
}

/* ---- threads ---- */

enum { CALLERS = 3, ROUNDS = 200 };

struct caller {
    struct collrun_group *g;
    pthread_t id;
    int number, rc;
};

/* Numbers go back and forth between two ranks, one more each time, with the thread's tag. */
static void *caller_run(void *arg)
{
    struct caller *c = arg;
    bool begins = (collrun_rank(c->g) + c->number) % 2;
    int x = 0;
    struct collrun_call send = COLLRUN_CALL(COLLRUN_SEND), recv = COLLRUN_CALL(COLLRUN_RECV);
    send.send = recv.recv = &x;
    send.count = recv.count = 1;
    send.dtype = recv.dtype = COLLRUN_INT32;
    send.peer = recv.peer = !collrun_rank(c->g);
    send.tag = recv.tag = (uint32_t)c->number;
    for (int i = begins ? 0 : -1; c->rc == COLLRUN_OK && i < ROUNDS; i += 2) {
        if (i >= 0)
            c->rc = collrun_run(c->g, &send, 1);
        if (c->rc == COLLRUN_OK && i + 1 < ROUNDS)
            c->rc = collrun_run(c->g, &recv, 1);
        c->rc = c->rc == COLLRUN_OK && i + 1 < ROUNDS && x != i + 1 ? 1 : c->rc;
        x++;
    }
    return NULL;
}

/* Threads block in messages while the main thread calls collectives, with pauses in which a thread
 * is alone inside. */
static int do_threads(struct collrun_ctx *ctx, struct collrun_group *g)
{
    struct caller callers[CALLERS];
    int n = strcmp(collrun_group_backend(g), "shm") == 0 ? CALLERS : 1; /* the others lack tags */
    for (int i = 0; i < n; i++) {
        callers[i] = (struct caller){.g = g, .number = i};
        CHECK(ctx, pthread_create(&callers[i].id, NULL, caller_run, &callers[i]) == 0);
    }
    for (int i = 0; i < 50; i++)
        CHECK(ctx, collrun_barrier(g) == COLLRUN_OK);
    for (int i = 0; i < n; i++) {
        CHECK(ctx, pthread_join(callers[i].id, NULL) == 0);
        CHECK(ctx, callers[i].rc == COLLRUN_OK);
    }
    return 0;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    static const struct {
        const char *name;
        int (*run)(struct collrun_ctx *ctx, struct collrun_group *g);
    } cases[] = {{"ask", do_ask},
                 {"run", do_run},
                 {"poll", do_poll},
                 {"wait-any", do_wait_any},
                 {"which-failed", do_which_failed},
                 {"abort", do_abort},
                 {"envelope", do_envelope},
                 {"envelope-refused", do_envelope_refused},
                 {"too-long", do_too_long},
                 {"fallback", do_fallback},
                 {"threads", do_threads}};
    const char *what = collrun_param_string(ctx, "do");
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, what) == 0)
            return cases[i].run(ctx, collrun_group_at(ctx, 0));
    return collrun_fail(ctx, "unknown: do: %s", what);
}

static const struct collrun_param params[] = {
    {.name = "do", .type = COLLRUN_PARAM_STRING, .help = "what to do"},
    {0},
};

COLLRUN_WORKLOAD(.name = "api", .summary = "getters and requests", .params = params, .run = run);
