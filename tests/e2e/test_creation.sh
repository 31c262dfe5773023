#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# collrun_group_create_start and collrun_group_split_start: groups that are created beside other work.
. "$(dirname "$0")/lib.sh"
cat >begin.c <<'END'
#include <collrun/workload.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                              \
    do {                                                                                              \
        if (!(condition))                                                                             \
            return collrun_fail(ctx, "line %d: %s (%s)", __LINE__, #condition, collrun_error());      \
    } while (0)
enum { SPLITS = 6 };

static int sums(struct collrun_ctx *ctx, struct collrun_group *g)
{
    int64_t one = 1, sum = 0;
    CHECK(collrun_allreduce(g, &one, &sum, 1, COLLRUN_INT64, COLLRUN_SUM) == COLLRUN_OK);
    CHECK(sum == collrun_size(g));
    return 0;
}

/* The last rank starts late: meanwhile the others work in the parent with it, and may not wait. */
static int overlap(struct collrun_ctx *ctx, struct collrun_group *world)
{
    struct collrun_group *half = NULL, *pair[SPLITS] = {NULL}, *none = world;
    struct collrun_request *request, *requests[SPLITS + 1];
    int me = collrun_rank(world), n = collrun_size(world), index;
    if (me < n - 1)
        CHECK(collrun_group_split_start(world, me % 2, -me, "half", &half, &request) == COLLRUN_OK);
    for (int i = 0; i < 20; i++)
        CHECK(sums(ctx, world) == 0);
    if (me < n - 1) {
        CHECK(collrun_test(request) == COLLRUN_AGAIN && collrun_poll(request) == COLLRUN_AGAIN && !half);
        CHECK(collrun_wait_stream(request, 0, NULL) == COLLRUN_ERR_INVALID);
        CHECK(collrun_cancel(request) == COLLRUN_ERR_INVALID);
        CHECK(collrun_group_create(ctx, &(struct collrun_group_options){.size = sizeof(struct collrun_group_options),
              .name = "half", .ranks = &me, .nranks = 1}, &none) == COLLRUN_ERR_EXISTS);
    }
    CHECK(collrun_barrier(world) == COLLRUN_OK);
    if (me == n - 1)
        CHECK(collrun_group_split_start(world, me % 2, -me, "half", &half, &request) == COLLRUN_OK);
    CHECK(collrun_wait(request) == COLLRUN_OK && half && sums(ctx, half) == 0);
    CHECK(!strcmp(collrun_group_name(half), "half") && collrun_size(half) == (n + 1 - me % 2) / 2);
    CHECK(collrun_rank(half) == (n - 1 - me) / 2);
    /* Several at once, without names, and one color that gets none. */
    for (int i = 0; i < SPLITS; i++)
        CHECK(collrun_group_split_start(world, i == 3 && me == 1 ? -1 : (me + i) % 2, 0, i % 2 ? NULL : "", &pair[i], &requests[i]) == COLLRUN_OK);
    int all[64];
    for (int i = 0; i < n; i++)
        all[i] = n - 1 - i;
    struct collrun_group_options options = {.size = sizeof options, .ranks = all, .nranks = n};
    struct collrun_group *back = NULL;
    CHECK(collrun_group_create_start(ctx, &options, &back, &requests[SPLITS]) == COLLRUN_OK);
    for (int i = 0; i <= SPLITS; i++)
        CHECK(collrun_wait_any(requests, SPLITS + 1, &index) == COLLRUN_OK && index >= 0);
    CHECK(collrun_rank(back) == n - 1 - me && sums(ctx, back) == 0);
    for (int i = 0; i < SPLITS; i++) {
        char name[64];
        snprintf(name, sizeof name, "world/%d.%d", i + 2, (me + i) % 2);
        CHECK(!pair[i] == (i == 3 && me == 1));
        CHECK(!pair[i] || (!strcmp(collrun_group_name(pair[i]), name) && sums(ctx, pair[i]) == 0));
        CHECK(collrun_group_destroy(pair[i]) == COLLRUN_OK);
    }
    return collrun_group_destroy(half) || collrun_group_destroy(back);
}

/* A parent that is destroyed while its split is in flight. */
static int orphan(struct collrun_ctx *ctx, struct collrun_group *world)
{
    struct collrun_group *parent, *child = NULL;
    struct collrun_request *request;
    CHECK(collrun_group_split(world, 0, 0, NULL, &parent) == COLLRUN_OK);
    CHECK(collrun_group_split_start(parent, 0, 0, NULL, &child, &request) == COLLRUN_OK);
    CHECK(collrun_group_destroy(parent) == COLLRUN_OK);
    CHECK(collrun_wait_all(&request, 1) == COLLRUN_OK && child && !request);
    CHECK(sums(ctx, child) == 0);
    return collrun_group_destroy(child);
}

/* One member never calls. */
static int missing(struct collrun_ctx *ctx, struct collrun_group *world)
{
    struct collrun_group *g = world;
    struct collrun_request *request;
    if (collrun_rank(world) == 0)
        return 0;
    CHECK(collrun_group_split_start(world, 0, 0, "late", &g, &request) == COLLRUN_OK);
    CHECK(collrun_wait(request) == COLLRUN_ERR_TIMEOUT && g == world);
    return !strstr(collrun_error(), "rank 0 did not join ");
}

static int refused(struct collrun_ctx *ctx, struct collrun_group *world)
{
    struct collrun_group *g = world;
    struct collrun_request *request = NULL;
    int rank = collrun_world_size(ctx);
    struct collrun_group_options options = {.size = sizeof options, .ranks = &rank, .nranks = 1};
    CHECK(collrun_group_create_start(ctx, &options, &g, &request) == COLLRUN_ERR_INVALID);
    CHECK(collrun_group_split_start(world, 0, 0, "world", &g, &request) == COLLRUN_ERR_EXISTS);
    CHECK(collrun_group_split_start(NULL, 0, 0, NULL, &g, &request) == COLLRUN_ERR_INVALID);
    CHECK(!request && g == world);
    return 0;
}

/* A thread of rank 0 creates a group, for which the other ranks are late; its name is taken meanwhile. */
static struct collrun_ctx *thread_ctx;
static int make_twice(struct collrun_ctx *ctx, int n, const int *ranks, struct collrun_group **out)
{
    struct collrun_group_options options = {.size = sizeof options, .name = "twice", .ranks = ranks, .nranks = n};
    return collrun_group_create(ctx, &options, out);
}
static int all_ranks[] = {0, 1, 2};
static void *create(void *arg)
{
    return (void *)(intptr_t)make_twice(thread_ctx, 3, all_ranks, arg);
}
static int twice(struct collrun_ctx *ctx, struct collrun_group *world)
{
    struct collrun_group *g, *other;
    pthread_t thread;
    void *rc;
    thread_ctx = ctx;
    if (collrun_rank(world) == 0) {
        CHECK(pthread_create(&thread, NULL, create, &g) == 0);
        for (int i = 0; i < 10000 && make_twice(ctx, 0, NULL, &other) == COLLRUN_ERR_INVALID; i++)
            usleep(1000); /* it has not begun */
        CHECK(make_twice(ctx, 1, all_ranks, &other) == COLLRUN_ERR_EXISTS);
    }
    CHECK(collrun_barrier(world) == COLLRUN_OK);
    if (collrun_rank(world) == 0)
        CHECK(pthread_join(thread, &rc) == 0 && !rc);
    else
        CHECK(make_twice(ctx, 3, all_ranks, &g) == COLLRUN_OK);
    CHECK(sums(ctx, g) == 0 && collrun_group_destroy(g) == COLLRUN_OK);
    CHECK(make_twice(ctx, 3, all_ranks, &g) == COLLRUN_OK && sums(ctx, g) == 0);
    return collrun_group_destroy(g);
}

/* Never waited for: rank 1 does not even call. */
static int forgotten(struct collrun_ctx *ctx, struct collrun_group *world)
{
    static struct collrun_group *g;
    struct collrun_request *request;
    if (collrun_rank(world) != 1)
        CHECK(collrun_group_split_start(world, 0, 0, "forgotten", &g, &request) == COLLRUN_OK);
    return 0;
}

/* Groups with and without names of their own, made again and again: what is allocated stays the same. */
static int many(struct collrun_ctx *ctx, struct collrun_group *world)
{
    size_t before = 0;
    for (int i = 0; i < 1200; i++) {
        struct collrun_group *all, *named, *part;
        CHECK(collrun_group_split(world, 0, 0, "again", &named) == COLLRUN_OK);
        CHECK(collrun_group_split(named, 0, 0, "", &all) == COLLRUN_OK);
        CHECK(collrun_group_split(all, collrun_rank(all) % 2, 0, NULL, &part) == COLLRUN_OK && sums(ctx, part) == 0);
        CHECK(collrun_barrier(all) == COLLRUN_OK);
        CHECK(!collrun_group_destroy(part) && !collrun_group_destroy(all) && !collrun_group_destroy(named));
        if (i == 200)
            before = mallinfo2().uordblks;
    }
    CHECK(mallinfo2().uordblks < before + 16384);
    return 0;
}

/* A thread waits for a message, or looks for one again and again, in a group of this rank that is destroyed. */
struct prober {
    struct collrun_group *group;
    atomic_bool begun;
    bool waits;
    int status;
};
static void *look(void *arg)
{
    struct prober *p = arg;
    struct collrun_message_info info = {.size = sizeof info};
    do {
        p->status = p->waits ? collrun_probe(p->group, COLLRUN_ANY_PEER, COLLRUN_ANY_TAG, &info)
                             : collrun_iprobe(p->group, COLLRUN_ANY_PEER, COLLRUN_ANY_TAG, &info);
        p->begun = true;
    } while (p->status == COLLRUN_AGAIN);
    return NULL;
}
static int probed(struct collrun_ctx *ctx, struct collrun_group *world)
{
    for (int i = 0; i < 200; i++) {
        struct prober p = {.waits = i % 2};
        pthread_t thread;
        CHECK(collrun_group_split(world, collrun_rank(world), 0, NULL, &p.group) == COLLRUN_OK);
        CHECK(pthread_create(&thread, NULL, look, &p) == 0);
        for (int n = 0; p.waits ? n < i % 8 * 100 : !p.begun; n++)
            usleep(10);
        CHECK(collrun_group_destroy(p.group) == COLLRUN_OK && pthread_join(thread, NULL) == 0);
        CHECK(p.status < 0);
    }
    return 0;
}

/* A thread tests a receive again and again, or waits for it, in a group of this rank that is destroyed. */
struct receiver {
    struct collrun_request *request;
    atomic_bool begun;
    bool waits;
    int status;
};
static void *finish(void *arg)
{
    struct receiver *r = arg;
    r->begun = true;
    do {
        r->status = r->waits ? collrun_wait(r->request) : collrun_test(r->request);
    } while (r->status == COLLRUN_AGAIN);
    return NULL;
}
static int tested(struct collrun_ctx *ctx, struct collrun_group *world)
{
    for (int i = 0; i < 200; i++) {
        struct receiver r = {.waits = i % 2};
        struct collrun_group *g;
        struct collrun_call receive = COLLRUN_CALL(COLLRUN_RECV);
        pthread_t thread;
        char in;
        receive.recv = &in;
        receive.count = 1;
        receive.dtype = COLLRUN_UINT8;
        CHECK(collrun_group_split(world, collrun_rank(world), 0, NULL, &g) == COLLRUN_OK);
        CHECK(collrun_start(g, &receive, &r.request) == COLLRUN_OK);
        CHECK(pthread_create(&thread, NULL, finish, &r) == 0);
        while (!r.begun)
            usleep(10);
        CHECK(collrun_group_destroy(g) == COLLRUN_OK && pthread_join(thread, NULL) == 0);
        CHECK(r.status == COLLRUN_ERR_ABORTED);
    }
    return 0;
}

/* A thread exchanges messages with the next rank, in a group that all ranks destroy. */
struct sender {
    struct collrun_group *group;
    atomic_bool begun;
    int i, count, status;
};
static void *exchange(void *arg)
{
    static char in[1 << 18], out[sizeof in];
    struct sender *s = arg;
    const int n = collrun_size(s->group), to = (collrun_rank(s->group) + 1) % n, from = (collrun_rank(s->group) + n - 1) % n;
    struct collrun_call calls[2] = {COLLRUN_CALL(COLLRUN_SEND), COLLRUN_CALL(COLLRUN_RECV)};
    calls[0].send = out, calls[1].recv = in;
    calls[0].peer = to, calls[1].peer = from;
    for (int k = 0; k < 2; k++)
        calls[k].count = s->count, calls[k].dtype = COLLRUN_UINT8;
    do {
        struct collrun_request *r[2] = {NULL, NULL};
        if (s->i % 3 == 0)
            s->status = collrun_sendrecv(s->group, out, s->count, to, in, s->count, from, COLLRUN_UINT8);
        else if (s->i % 3 == 1)
            s->status = collrun_start_many(s->group, calls, 2, &r[0]);
        else if ((s->status = collrun_start(s->group, &calls[1], &r[1])) == COLLRUN_OK)
            s->status = collrun_start(s->group, &calls[0], &r[0]);
        for (int k = 0; k < 2; k++) {
            int status = r[k] ? collrun_wait(r[k]) : COLLRUN_OK;
            s->status = s->status ? s->status : status;
        }
        s->begun = true;
    } while (s->status == COLLRUN_OK);
    return NULL;
}
static int moved(struct collrun_ctx *ctx, struct collrun_group *world)
{
    for (int i = 0; i < 600; i++) {
        struct sender s = {.i = i, .count = i % 2 ? 8 : 1 << 18};
        pthread_t thread;
        CHECK(collrun_group_split(world, i % 4 < 2 ? 0 : collrun_rank(world), 0, NULL, &s.group) == COLLRUN_OK);
        CHECK(pthread_create(&thread, NULL, exchange, &s) == 0);
        while (!s.begun)
            usleep(i % 8 * 10);
        CHECK(collrun_group_destroy(s.group) == COLLRUN_OK && pthread_join(thread, NULL) == 0);
        if (s.status != COLLRUN_ERR_ABORTED && s.status != COLLRUN_ERR_INVALID && s.status != COLLRUN_ERR_PEER_FAILED) {
            printf("%d: %s\n", i, collrun_strstatus(s.status));
            return 1;
        }
    }
    return 0;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    const char *what = collrun_param_string(ctx, "do");
    struct collrun_group *world;
    int rc = collrun_group_get(ctx, "world", &world);
    if (rc == 0)
        rc = !strcmp(what, "overlap") ? overlap(ctx, world) || orphan(ctx, world) || refused(ctx, world)
             : !strcmp(what, "many") ? many(ctx, world)
             : !strcmp(what, "probed") ? probed(ctx, world)
             : !strcmp(what, "tested") ? tested(ctx, world)
             : !strcmp(what, "moved") ? moved(ctx, world)
             : !strcmp(what, "twice") ? twice(ctx, world)
             : !strcmp(what, "missing") ? missing(ctx, world) : forgotten(ctx, world);
    if (rc == 0)
        printf("fine\n");
    return rc;
}
static const struct collrun_param params[] = {{.name = "do", .type = COLLRUN_PARAM_STRING}, {0}};
COLLRUN_WORKLOAD(.name = "begin", .params = params, .run = run);
END
plugin begin.c begin.so
# begin WHAT RANKS BACKEND
begin() {
    job begin <<END
version: 1
processes: {count: $2}
groups: {world: {ranks: all, backend: $3}}
timeouts: {rendezvous: ${4:-20s}}
workloads: [{plugin: ./begin.so, params: {do: $1}}]
END
    run run begin.yaml
}
for backend in ${BACKENDS:-shm tcp gloo}; do
    begin overlap 5 $backend
    is "$backend: groups are created beside work in their parent, several at once" "$code $(grep -c fine out) $(err)" "0 5 "
    begin missing 3 $backend 300ms
    is "$backend: a missing member is named when the request is waited for" "$code $(grep -c fine out) $(err)" "0 3 "
done
for backend in ${BACKENDS:-shm tcp gloo}; do
    begin probed 2 $backend
    is "$backend: a group is destroyed beside a thread that probes in it" "$code $(grep -c fine out) $(err)" "0 2 "
    begin tested 2 $backend
    is "$backend: a group is destroyed beside a thread that tests a request of it" "$code $(grep -c fine out) $(err)" "0 2 "
    begin moved 2 $backend
    is "$backend: a group is destroyed beside a thread that sends and receives in it" "$code $(grep -c fine out) $(err)" "0 2 "
done
begin twice 3 shm
is "a name is taken while a thread creates a group of this name" "$code $(grep -c fine out) $(err)" "0 3 "
begin many 4 shm
is "3,600 groups, one after the other, leave nothing behind in a rank" "$code $(grep -c fine out) $(err)" "0 4 "
begin forgotten 3 shm
is "a creation that is never waited for ends with the job" "$code $(grep -c fine out)" "0 3"
is "with a warning on each rank that has started it" "$(err | grep -c 'warning: the creation of group "forgotten" was never waited for')" 2
check "and soon" [ "$elapsed" -lt $((30000 * slow)) ]
done_testing
