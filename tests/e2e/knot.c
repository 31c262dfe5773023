/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that can never go on, and some that only look like it, for 3 ranks; the parameter `how`
 * is the name of one.
 */
#include <collrun/workload.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL = 1024, LARGE = 4 << 20, PAUSE_S = 3 };

struct knot {
    struct collrun_ctx *ctx;
    struct collrun_group *world, *other;
    int me;
    char *out, *in; /* LARGE */
};

static int send_to(struct knot *k, int peer, size_t count)
{
    return collrun_send(k->world, k->out, count, COLLRUN_UINT8, peer);
}

static int recv_from(struct knot *k, int peer, size_t count)
{
    return collrun_recv(k->world, k->in, count, COLLRUN_UINT8, peer);
}

static int exchange(struct knot *k, size_t count)
{
    if (k->me > 1)
        return 0;
    int rc = send_to(k, !k->me, count);
    return rc ? rc : recv_from(k, !k->me, count);
}

static struct collrun_call message(struct knot *k, enum collrun_kind kind, int peer, unsigned tag)
{
    struct collrun_call call = COLLRUN_CALL(kind);
    call.send = k->out;
    call.recv = k->in;
    call.count = LARGE;
    call.dtype = COLLRUN_UINT8;
    call.peer = peer;
    call.tag = tag;
    return call;
}

/* ---- knots ---- */

static int cross(struct knot *k)
{
    return exchange(k, LARGE);
}

static int ring(struct knot *k)
{
    int rc = recv_from(k, (k->me + 2) % 3, LARGE);
    return rc ? rc : send_to(k, (k->me + 1) % 3, LARGE);
}

static int order(struct knot *k)
{
    int rc = collrun_barrier(k->me ? k->world : k->other);
    return rc ? rc : collrun_barrier(k->me ? k->other : k->world);
}

static int gone(struct knot *k)
{
    return k->me == 1 ? 0 : collrun_barrier(k->world);
}

static int tag(struct knot *k)
{
    struct collrun_call call =
        message(k, k->me ? COLLRUN_RECV : COLLRUN_SEND, !k->me, k->me ? 5 : 6);
    struct collrun_request *request;
    if (k->me > 1)
        return 0;
    int rc = collrun_start(k->world, &call, &request);
    return rc ? rc : collrun_wait(request);
}

static int many(struct knot *k)
{
    struct collrun_call calls[2] = {message(k, COLLRUN_SEND, !k->me, 0),
                                    message(k, COLLRUN_RECV, 2, 0)};
    struct collrun_request *request;
    if (k->me > 1)
        return 0;
    calls[0].kind = k->me ? COLLRUN_RECV : COLLRUN_SEND;
    int rc = collrun_start_many(k->world, calls, 2, &request);
    return rc ? rc : collrun_wait(request);
}

static int anyone(struct knot *k)
{
    return k->me ? 0 : collrun_recv_any(k->world, k->in, SMALL, COLLRUN_UINT8, NULL);
}

static void *receive(void *arg)
{
    return (void *)(intptr_t)recv_from(arg, 1, SMALL);
}

static int in_thread(struct knot *k)
{
    pthread_t thread;
    void *rc = NULL;
    if (k->me || pthread_create(&thread, NULL, receive, k) != 0)
        return k->me ? 0 : 1;
    pthread_join(thread, &rc);
    return (int)(intptr_t)rc;
}

static int first_time(struct knot *k)
{
    return collrun_attempt(k->ctx) == 0 ? cross(k) : 0;
}

/* ---- no knots ---- */

static int late(struct knot *k)
{
    if (k->me == 1)
        sleep(PAUSE_S);
    return collrun_barrier(k->world);
}

static int late_in_thread(struct knot *k)
{
    if (k->me != 1)
        return in_thread(k);
    sleep(PAUSE_S);
    return send_to(k, 0, SMALL);
}

static int small(struct knot *k)
{
    return exchange(k, SMALL);
}

static int child(struct knot *k)
{
    if (k->me == 1 && system("sleep 3") != 0)
        return 1;
    return collrun_barrier(k->world);
}

static int doze(struct knot *k)
{
    if (k->me == 2)
        sleep(PAUSE_S);
    return 0;
}

/* Rank 1 looks after a message now and then, and sends what the others wait for when it likes. */
static int polls(struct knot *k)
{
    struct collrun_call call = message(k, COLLRUN_RECV, 0, 0);
    struct collrun_request *request;
    if (k->me == 0)
        sleep(PAUSE_S);
    if (k->me == 0)
        return send_to(k, 1, LARGE);
    if (k->me == 2)
        return recv_from(k, 1, LARGE);
    int rc = collrun_start(k->world, &call, &request);
    while (!rc && (rc = collrun_test(request)) == COLLRUN_AGAIN) {
        rc = 0;
        usleep(1000);
    }
    return rc ? rc : send_to(k, 2, LARGE);
}

static int both_ways(struct knot *k)
{
    return k->me > 1 ? 0
                     : collrun_sendrecv(k->world, k->out, LARGE, !k->me, k->in, LARGE, !k->me,
                                        COLLRUN_UINT8);
}

/* A time-out that is counted on. */
static int patience(struct knot *k)
{
    struct collrun_call call = message(k, COLLRUN_RECV, 2, 0);
    struct collrun_request *request;
    if (k->me == 2)
        return collrun_barrier(k->other);
    call.timeout_ns = 2000000000;
    int rc = k->me ? 0 : collrun_start(k->world, &call, &request);
    if (!rc && !k->me && (rc = collrun_wait(request)) == COLLRUN_ERR_TIMEOUT)
        rc = 0;
    return rc ? rc : collrun_barrier(k->other);
}

static const struct {
    const char *name;
    int (*run)(struct knot *k);
} knots[] = {{"cross", cross},
             {"ring", ring},
             {"order", order},
             {"gone", gone},
             {"tag", tag},
             {"many", many},
             {"anyone", anyone},
             {"in_thread", in_thread},
             {"first_time", first_time},
             {"late", late},
             {"late_in_thread", late_in_thread},
             {"small", small},
             {"child", child},
             {"polls", polls},
             {"both_ways", both_ways},
             {"patience", patience},
             {"pause", doze}};

static const struct collrun_param params[] = {
    {"how", COLLRUN_PARAM_STRING, NULL, NULL, NULL, "which one"}, {0}};

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    struct knot k = {.ctx = ctx, .me = collrun_world_rank(ctx)};
    const char *how = collrun_param_string(ctx, "how");
    int rc = collrun_group_get(ctx, "world", &k.world);
    if (!rc)
        rc = collrun_group_get(ctx, "other", &k.other);
    k.out = calloc(LARGE, 1);
    k.in = calloc(LARGE, 1);
    for (size_t i = 0; !rc && i < sizeof knots / sizeof *knots; i++) {
        if (strcmp(how, knots[i].name) == 0)
            rc = knots[i].run(&k);
    }
    free(k.out);
    free(k.in);
    return rc;
}

COLLRUN_WORKLOAD(.name = "knot", .summary = "ties ranks into a knot", .params = params, .run = run);
