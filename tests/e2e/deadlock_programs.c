/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of 3 ranks: some deadlock, the others only look as if they did. The parameter `program`
 * is the name of one.
 */
#include <collrun/workload.h>

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL = 1024, LARGE = 4 << 20, PAUSE_S = 3 };

struct rank {
    struct collrun_ctx *ctx;
    struct collrun_group *world, *other;
    int me;
    char *out, *in; /* LARGE */
};

static int send_to(struct rank *r, int peer, size_t count)
{
    return collrun_send(r->world, r->out, count, COLLRUN_UINT8, peer);
}

static int recv_from(struct rank *r, int peer, size_t count)
{
    return collrun_recv(r->world, r->in, count, COLLRUN_UINT8, peer);
}

static int exchange(struct rank *r, size_t count)
{
    if (r->me > 1)
        return 0;
    int rc = send_to(r, !r->me, count);
    return rc ? rc : recv_from(r, !r->me, count);
}

static struct collrun_call message(struct rank *r, enum collrun_kind kind, int peer, unsigned tag)
{
    struct collrun_call call = COLLRUN_CALL(kind);
    call.send = r->out;
    call.recv = r->in;
    call.count = LARGE;
    call.dtype = COLLRUN_UINT8;
    call.peer = peer;
    call.tag = tag;
    return call;
}

/* ---- programs that deadlock ---- */

static int cross(struct rank *r)
{
    return exchange(r, LARGE);
}

/* Sends below the eager limit, until what may leave before its receiver calls is used up. */
static int flood(struct rank *r)
{
    int rc = COLLRUN_OK;
    for (int i = 0; i < 200 && r->me < 2 && rc == COLLRUN_OK; i++)
        rc = send_to(r, 1 - r->me, LARGE / 32);
    return rc;
}

static int ring(struct rank *r)
{
    int rc = recv_from(r, (r->me + 2) % 3, LARGE);
    return rc ? rc : send_to(r, (r->me + 1) % 3, LARGE);
}

static int order(struct rank *r)
{
    int rc = collrun_barrier(r->me ? r->world : r->other);
    return rc ? rc : collrun_barrier(r->me ? r->other : r->world);
}

/* Rank 0 waits for a message that rank 1 does not send, in a probe; rank 1 for one of any tag. */
static int probe(struct rank *r)
{
    struct collrun_message_info info = {.size = sizeof info};
    struct collrun_call call = message(r, COLLRUN_RECV, 0, COLLRUN_ANY_TAG);
    if (r->me > 1)
        return 0;
    return r->me ? collrun_run(r->world, &call, 1) : collrun_probe(r->world, 1, 7, &info);
}

static int gone(struct rank *r)
{
    return r->me == 1 ? 0 : collrun_barrier(r->world);
}

static int tag(struct rank *r)
{
    struct collrun_call call =
        message(r, r->me ? COLLRUN_RECV : COLLRUN_SEND, !r->me, r->me ? 5 : 6);
    struct collrun_request *request;
    if (r->me > 1)
        return 0;
    int rc = collrun_start(r->world, &call, &request);
    return rc ? rc : collrun_wait(request);
}

static int many(struct rank *r)
{
    struct collrun_call calls[2] = {message(r, COLLRUN_SEND, !r->me, 0),
                                    message(r, COLLRUN_RECV, 2, 0)};
    struct collrun_request *request;
    if (r->me > 1)
        return 0;
    calls[0].kind = r->me ? COLLRUN_RECV : COLLRUN_SEND;
    int rc = collrun_start_many(r->world, calls, 2, &request);
    return rc ? rc : collrun_wait(request);
}

static int any_source(struct rank *r)
{
    return r->me ? 0 : collrun_recv_any(r->world, r->in, SMALL, COLLRUN_UINT8, NULL);
}

static void *receive(void *arg)
{
    return (void *)(intptr_t)recv_from(arg, 1, SMALL);
}

static int in_thread(struct rank *r)
{
    pthread_t thread;
    void *rc = NULL;
    if (r->me || pthread_create(&thread, NULL, receive, r) != 0)
        return r->me ? 0 : 1;
    pthread_join(thread, &rc);
    return (int)(intptr_t)rc;
}

static int first_time(struct rank *r)
{
    return collrun_attempt(r->ctx) == 0 ? cross(r) : 0;
}

/* ---- programs that end ---- */

static int late(struct rank *r)
{
    if (r->me == 1)
        sleep(PAUSE_S);
    return collrun_barrier(r->world);
}

static int late_in_thread(struct rank *r)
{
    if (r->me != 1)
        return in_thread(r);
    sleep(PAUSE_S);
    return send_to(r, 0, SMALL);
}

static int small(struct rank *r)
{
    return exchange(r, SMALL);
}

static int child(struct rank *r)
{
    if (r->me == 1 && system("sleep 3") != 0)
        return 1;
    return collrun_barrier(r->world);
}

static int doze(struct rank *r)
{
    if (r->me == 2)
        sleep(PAUSE_S);
    return 0;
}

/* Rank 1 polls for a message, and sends what rank 2 waits for when that has arrived. */
static int polls(struct rank *r)
{
    struct collrun_call call = message(r, COLLRUN_RECV, 0, 0);
    struct collrun_request *request;
    if (r->me == 0)
        sleep(PAUSE_S);
    if (r->me == 0)
        return send_to(r, 1, LARGE);
    if (r->me == 2)
        return recv_from(r, 1, LARGE);
    int rc = collrun_start(r->world, &call, &request);
    while (!rc && (rc = collrun_test(request)) == COLLRUN_AGAIN) {
        rc = 0;
        usleep(1000);
    }
    return rc ? rc : send_to(r, 2, LARGE);
}

static int both_ways(struct rank *r)
{
    return r->me > 1 ? 0
                     : collrun_sendrecv(r->world, r->out, LARGE, !r->me, r->in, LARGE, !r->me,
                                        COLLRUN_UINT8);
}

/* One of the two messages of rank 2 has come, from a rank that has returned; the other one waits
 * for a rank that computes. */
static int half(struct rank *r)
{
    if (r->me == 1)
        return send_to(r, 2, SMALL);
    if (r->me == 2)
        return collrun_sendrecv(r->world, r->out, LARGE, 0, r->in, SMALL, 1, COLLRUN_UINT8);
    sleep(PAUSE_S);
    return recv_from(r, 2, LARGE);
}

/* The program relies on a time-out. */
static int patience(struct rank *r)
{
    struct collrun_call call = message(r, COLLRUN_RECV, 2, 0);
    struct collrun_request *request;
    if (r->me == 2)
        return collrun_barrier(r->other);
    call.timeout_ns = 2000000000;
    int rc = r->me ? 0 : collrun_start(r->world, &call, &request);
    if (!rc && !r->me && (rc = collrun_wait(request)) == COLLRUN_ERR_TIMEOUT)
        rc = 0;
    return rc ? rc : collrun_barrier(r->other);
}

static void *send_later(void *arg)
{
    sleep(1);
    return (void *)(intptr_t)send_to(arg, 0, SMALL);
}

/* For a second, ranks 0 and 1 wait for each other. Then another thread of rank 1 sends, and both go
 * on. They never call what rank 2 waits in. */
static int moved_on(struct rank *r)
{
    pthread_t thread;
    int rc = 0;
    if (r->me == 2)
        return collrun_barrier(r->other);
    if (r->me == 1)
        pthread_create(&thread, NULL, send_later, r);
    rc = recv_from(r, !r->me, SMALL);
    if (r->me == 1)
        pthread_join(thread, NULL);
    else if (!rc)
        rc = send_to(r, 1, SMALL);
    while (!rc && !collrun_stopping(r->ctx))
        usleep(1000);
    return rc;
}

static const struct {
    const char *name;
    int (*run)(struct rank *r);
} programs[] = {{"cross", cross},
                {"flood", flood},
                {"ring", ring},
                {"order", order},
                {"probe", probe},
                {"gone", gone},
                {"tag", tag},
                {"many", many},
                {"any_source", any_source},
                {"in_thread", in_thread},
                {"first_time", first_time},
                {"late", late},
                {"late_in_thread", late_in_thread},
                {"small", small},
                {"child", child},
                {"polls", polls},
                {"both_ways", both_ways},
                {"half", half},
                {"patience", patience},
                {"pause", doze},
                {"moved_on", moved_on}};

static const struct collrun_param params[] = {
    {.name = "program", .type = COLLRUN_PARAM_STRING, .help = "its name"}, {0}};

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    struct rank r = {.ctx = ctx, .me = collrun_world_rank(ctx)};
    const char *name = collrun_param_string(ctx, "program");
    int rc = collrun_group_get(ctx, "world", &r.world);
    if (!rc)
        rc = collrun_group_get(ctx, "other", &r.other);
    r.out = calloc(LARGE, 1);
    r.in = calloc(LARGE, 1);
    for (size_t i = 0; !rc && i < sizeof programs / sizeof *programs; i++) {
        if (strcmp(name, programs[i].name) == 0)
            rc = programs[i].run(&r);
    }
    free(r.out);
    free(r.in);
    return rc;
}

COLLRUN_WORKLOAD(.name = "deadlock_programs", .summary = "runs one program", .params = params,
                 .run = run);
