/* SPDX-License-Identifier: Apache-2.0
 *
 * The measuring loop as a workload, on collrun's public API. Parameters: the plan, the number of
 * the library in it, and whether the buffers are from collrun_alloc.
 */
#include "loop.h"

#include <collrun/workload.h>
#include <stdio.h>
#include <stdlib.h>

static const enum collrun_kind kinds[] = {
    COLLRUN_BARRIER,  COLLRUN_ALLREDUCE, COLLRUN_BROADCAST,
    COLLRUN_REDUCE,   COLLRUN_ALLGATHER, COLLRUN_REDUCE_SCATTER,
    COLLRUN_ALLTOALL, COLLRUN_GATHER,    COLLRUN_SCATTER,
};

static void check(int status)
{
    if (status == COLLRUN_OK)
        return;
    fprintf(stderr, "%s\n", collrun_error());
    exit(1);
}

static void wait_for(struct collrun_group *g, const struct collrun_call *calls, int n)
{
    struct collrun_request *request;
    check(n == 1 ? collrun_start(g, calls, &request) : collrun_start_many(g, calls, n, &request));
    check(collrun_wait(request));
}

static struct collrun_call message(enum collrun_kind kind, const struct loop_call *c)
{
    struct collrun_call call = COLLRUN_CALL(kind);
    call.send = c->send;
    call.recv = c->recv;
    call.count = c->count;
    call.dtype = COLLRUN_FLOAT32;
    call.peer = c->peer;
    return call;
}

static void run_pingpong(struct loop_port *p, const struct loop_call *c)
{
    struct collrun_group *g = p->state;
    for (int leg = 0; leg < 2; leg++) {
        const bool sends = loop_is_first(p, c) == (leg == 0);
        if (c->started) {
            const struct collrun_call call = message(sends ? COLLRUN_SEND : COLLRUN_RECV, c);
            wait_for(g, &call, 1);
        } else if (sends) {
            check(collrun_send(g, c->send, c->count, COLLRUN_FLOAT32, c->peer));
        } else {
            check(collrun_recv(g, c->recv, c->count, COLLRUN_FLOAT32, c->peer));
        }
    }
}

static void run_sendrecv(struct loop_port *p, const struct loop_call *c)
{
    if (c->started) {
        const struct collrun_call calls[] = {message(COLLRUN_RECV, c), message(COLLRUN_SEND, c)};
        wait_for(p->state, calls, 2);
    } else {
        check(collrun_sendrecv(p->state, c->send, c->count, c->peer, c->recv, c->count, c->peer,
                               COLLRUN_FLOAT32));
    }
}

static void run_started(struct loop_port *p, const struct loop_call *c)
{
    struct collrun_call call = message(kinds[c->op], c);
    call.op = COLLRUN_SUM;
    if (c->op == LOOP_BROADCAST && p->rank == 0)
        call.recv = c->send;
    wait_for(p->state, &call, 1);
}

static void run_blocking(struct loop_port *p, const struct loop_call *c)
{
    const enum collrun_dtype f = COLLRUN_FLOAT32;
    struct collrun_group *g = p->state;
    float *s = c->send, *r = c->recv;
    switch (c->op) {
    case LOOP_BARRIER:
        return check(collrun_barrier(g));
    case LOOP_ALLREDUCE:
        return check(collrun_allreduce(g, s, r, c->count, f, COLLRUN_SUM));
    case LOOP_BROADCAST:
        return check(collrun_broadcast(g, p->rank == 0 ? s : r, c->count, f, 0));
    case LOOP_REDUCE:
        return check(collrun_reduce(g, s, r, c->count, f, COLLRUN_SUM, 0));
    case LOOP_ALLGATHER:
        return check(collrun_allgather(g, s, r, c->count, f));
    case LOOP_REDUCE_SCATTER:
        return check(collrun_reduce_scatter(g, s, r, c->count, f, COLLRUN_SUM));
    case LOOP_ALLTOALL:
        return check(collrun_alltoall(g, s, r, c->count, f));
    case LOOP_GATHER:
        return check(collrun_gather(g, s, r, c->count, f, 0));
    default:
        return check(collrun_scatter(g, s, r, c->count, f, 0));
    }
}

static void run_call(struct loop_port *p, const struct loop_call *c)
{
    if (c->op >= LOOP_PINGPONG && c->peer < 0)
        return;
    if (c->op == LOOP_PINGPONG)
        run_pingpong(p, c);
    else if (c->op == LOOP_SENDRECV)
        run_sendrecv(p, c);
    else if (c->started)
        run_started(p, c);
    else
        run_blocking(p, c);
}

static double slowest(struct loop_port *p, double us)
{
    double most;
    check(collrun_allreduce(p->state, &us, &most, 1, COLLRUN_FLOAT64, COLLRUN_MAX));
    return most;
}

static void *alloc_shared(struct loop_port *p, size_t bytes)
{
    void *memory;
    check(collrun_alloc(p->state, bytes, &memory));
    return memory;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *g;
    (void)state;
    const int status = collrun_group_get(ctx, "", &g);
    if (status != COLLRUN_OK)
        return status;
    struct loop_port port = {.rank = collrun_rank(g),
                             .nranks = collrun_size(g),
                             .state = g,
                             .run = run_call,
                             .alloc = collrun_param_bool(ctx, "shared") ? alloc_shared : NULL,
                             .slowest = slowest};
    return loop_main(&port, collrun_param_string(ctx, "plan"),
                     (unsigned)collrun_param_int(ctx, "library"));
}

static const struct collrun_param params[] = {
    {.name = "plan", .type = COLLRUN_PARAM_STRING, .help = "a file; see loop.h"},
    {.name = "library", .type = COLLRUN_PARAM_INT, .def = "0", .help = "the number in the plan"},
    {.name = "shared", .type = COLLRUN_PARAM_BOOL, .def = "false", .help = "use collrun_alloc"},
    {0},
};
COLLRUN_WORKLOAD(.name = "loop", .summary = "the measuring loop", .params = params, .run = run);
