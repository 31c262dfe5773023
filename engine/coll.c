/* SPDX-License-Identifier: Apache-2.0
 *
 * The blocking operations. On an idle group they run in the caller's thread, through nothing but a
 * few comparisons and one atomic exchange; behind unfinished requests they queue like another
 * request.
 */
#include "coll.h"

#include "backend.h"
#include "check.h"
#include "gpu.h"
#include "names.h"
#include "reduce.h"
#include "stage.h"
#include "strict.h"
#include "task.h"

#include "base/loop.h"

#include <stdio.h>
#include <string.h>

/* Threads that a workload made by itself are all "another thread". */
static const struct collrun_ctx stranger;

/* Who is inside a destroyed group for ever. */
static const struct collrun_ctx nobody_again;

static const char *driver_name(const struct collrun_ctx *driver, char *out, size_t size)
{
    if (!driver || driver == &stranger)
        return "another thread";
    snprintf(out, size, "workload \"%s\"", driver->desc->name);
    return out;
}

int group_enter(struct collrun_group *g, const char *what)
{
    const struct collrun_ctx *nobody = NULL, *me = task_current ? task_current : &stranger;
    if (atomic_compare_exchange_strong_explicit(&g->driver, &nobody, me, memory_order_acquire,
                                                memory_order_relaxed))
        return COLLRUN_OK;
    char a[160], b[160], where[256];
    if (nobody == &nobody_again)
        error_cause(COLLRUN_ERR_INVALID, "the group was destroyed");
    else
        error_cause(COLLRUN_ERR_INVALID,
                    "%s calls while %s is inside; one thread at a time may use a group",
                    driver_name(me, a, sizeof a), driver_name(nobody, b, sizeof b));
    snprintf(where, sizeof where, "%s %s", what, g->name);
    return error_wrap(COLLRUN_ERR_INVALID, g->name, 0, where);
}

void group_seal(struct collrun_group *g)
{
    atomic_store_explicit(&g->driver, &nobody_again, memory_order_release);
}

bool group_is_sealed(const struct collrun_group *g)
{
    return atomic_load_explicit(&g->driver, memory_order_acquire) == &nobody_again;
}

void call_as_bytes(const struct group_side *side, struct collrun_call *call)
{
    if (side->backend->native[call->kind][call->dtype])
        return;
    call->count *= dtype_size(call->dtype);
    call->dtype = COLLRUN_UINT8;
}

void call_complete(const struct collrun_group *g, struct collrun_call *call)
{
    call->timeout_ns = call->timeout_ns ? call->timeout_ns : g->timeout_ns;
    if (!call->stream && g->has_gpus && call->device >= 0 && call->device < GROUP_MOST_DEVICES)
        call->stream = g->streams[call->device];
}

/* Behind unfinished requests. Takes the stage over. */
static int run_queued(struct collrun_group *g, struct group_side *side,
                      const struct collrun_call *calls, uint32_t ncalls, uint64_t number,
                      struct stage *stage)
{
    struct collrun_request *r = request_new(g, side, calls, ncalls, number);
    int rc = r ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
    if (r) {
        r->stage = stage;
        r->staged = stage != NULL;
        rc = lane_submit(side->lane[group_lane_of(calls->kind)], r);
    } else if (stage) {
        stage_out(stage, rc);
    }
    if (rc == COLLRUN_OK)
        return request_wait(r);
    if (r)
        request_free(r);
    error_clear_cause();
    return group_failed(g, calls->kind, number, rc);
}

/* In the caller's thread. The cause of a failure is stored. */
static int run_now(struct lane *lane, struct collrun_call *calls, uint32_t ncalls, uint64_t number)
{
    const struct backend *b = lane->backend;
    if (ncalls == 1 && b->has_exec && backend_is_native(b, calls) &&
        lane->group->check != COLLRUN_CHECK_STRICT)
        return b->table.exec(lane->handle, calls, 1);
    error_clear_cause();
    return strict_exec(lane, calls, ncalls, number);
}

int coll_run(struct collrun_group *g, const struct route *route, struct collrun_call *calls,
             uint32_t ncalls)
{
    enum group_lane which = group_lane_of(calls->kind);
    struct lane *lane = route->side->lane[which];
    struct stage *stage = NULL;
    uint64_t number = group_number(g, which);
    if (atomic_load_explicit(&g->fate, memory_order_acquire) != 0)
        return group_refuse(g, calls->kind, number);
    for (uint32_t i = 0; i < ncalls; i++)
        call_complete(g, &calls[i]);
    int rc = route->staged ? stage_in(g, calls, ncalls, &stage) : COLLRUN_OK;
    if (rc == COLLRUN_OK && !lane_is_idle(lane)) {
        waits_enter(&g->note, calls, ncalls, number);
        rc = run_queued(g, route->side, calls, ncalls, number, stage);
        waits_leave(&g->note);
        return rc;
    }
    record_begin(g->record[which], calls, number, calls->count * dtype_size(calls->dtype));
    if (rc == COLLRUN_OK) {
        waits_enter(&g->note, calls, ncalls, number);
        rc = run_now(lane, calls, ncalls, number);
        for (uint32_t i = 0; rc == COLLRUN_OK && which == GROUP_MESSAGES && i < ncalls; i++)
            traffic_count(&lane->traffic, &calls[i]);
        waits_leave(&g->note);
    }
    if (stage)
        rc = stage_out(stage, rc);
    if (rc != COLLRUN_OK)
        return group_failed(g, calls->kind, number, rc);
    record_end(g->record[which], number);
    return rc;
}

/* The way of every blocking function but sendrecv. */
static int blocking(struct collrun_group *g, struct collrun_call *call)
{
    struct route route;
    if (!g)
        return error_set(COLLRUN_ERR_INVALID, "%s: the group is NULL", kind_name(call->kind));
    int rc = call_check_all(g, call, 1, &route);
    if (rc != COLLRUN_OK)
        return rc;
    if ((rc = group_enter(g, kind_name(call->kind))) != COLLRUN_OK)
        return rc;
    if (group_lane_of(call->kind) == GROUP_MESSAGES)
        call_as_bytes(route.side, call);
    else if (call->kind >= COLLRUN_ALLGATHERV)
        call_trim(route.side, call);
    rc = coll_run(g, &route, call, 1);
    group_leave(g);
    return rc;
}

int collrun_barrier(struct collrun_group *g)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_BARRIER);
    return blocking(g, &call);
}

int collrun_allreduce(struct collrun_group *g, const void *send, void *recv, size_t count,
                      enum collrun_dtype dtype, enum collrun_op op)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    call.send = send;
    call.recv = recv;
    call.count = count;
    call.dtype = dtype;
    call.op = op;
    return blocking(g, &call);
}

int collrun_reduce(struct collrun_group *g, const void *send, void *recv, size_t count,
                   enum collrun_dtype dtype, enum collrun_op op, int root)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_REDUCE);
    call.send = send;
    call.recv = recv;
    call.count = count;
    call.dtype = dtype;
    call.op = op;
    call.root = root;
    return blocking(g, &call);
}

int collrun_broadcast(struct collrun_group *g, void *buf, size_t count, enum collrun_dtype dtype,
                      int root)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_BROADCAST);
    call.recv = buf;
    call.count = count;
    call.dtype = dtype;
    call.root = root;
    return blocking(g, &call);
}

int collrun_allgather(struct collrun_group *g, const void *send, void *recv, size_t count,
                      enum collrun_dtype dtype)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLGATHER);
    call.send = send;
    call.recv = recv;
    call.count = count;
    call.dtype = dtype;
    return blocking(g, &call);
}

int collrun_gather(struct collrun_group *g, const void *send, void *recv, size_t count,
                   enum collrun_dtype dtype, int root)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_GATHER);
    call.send = send;
    call.recv = recv;
    call.count = count;
    call.dtype = dtype;
    call.root = root;
    return blocking(g, &call);
}

int collrun_scatter(struct collrun_group *g, const void *send, void *recv, size_t count,
                    enum collrun_dtype dtype, int root)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_SCATTER);
    call.send = send;
    call.recv = recv;
    call.count = count;
    call.dtype = dtype;
    call.root = root;
    return blocking(g, &call);
}

int collrun_reduce_scatter(struct collrun_group *g, const void *send, void *recv, size_t count,
                           enum collrun_dtype dtype, enum collrun_op op)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_REDUCE_SCATTER);
    call.send = send;
    call.recv = recv;
    call.count = count;
    call.dtype = dtype;
    call.op = op;
    return blocking(g, &call);
}

int collrun_alltoall(struct collrun_group *g, const void *send, void *recv, size_t count,
                     enum collrun_dtype dtype)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLTOALL);
    call.send = send;
    call.recv = recv;
    call.count = count;
    call.dtype = dtype;
    return blocking(g, &call);
}

int collrun_allgatherv(struct collrun_group *g, const void *send, size_t sendcount, void *recv,
                       const size_t *recvcounts, const size_t *displs, enum collrun_dtype dtype)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLGATHERV);
    call.send = send;
    call.count = sendcount;
    call.recv = recv;
    call.recvcounts = recvcounts;
    call.recvdispls = displs;
    call.dtype = dtype;
    return blocking(g, &call);
}

int collrun_gatherv(struct collrun_group *g, const void *send, size_t sendcount, void *recv,
                    const size_t *recvcounts, const size_t *displs, enum collrun_dtype dtype,
                    int root)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_GATHERV);
    call.send = send;
    call.count = sendcount;
    call.recv = recv;
    call.recvcounts = recvcounts;
    call.recvdispls = displs;
    call.dtype = dtype;
    call.root = root;
    return blocking(g, &call);
}

int collrun_scatterv(struct collrun_group *g, const void *send, const size_t *sendcounts,
                     const size_t *displs, void *recv, size_t recvcount, enum collrun_dtype dtype,
                     int root)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_SCATTERV);
    call.send = send;
    call.sendcounts = sendcounts;
    call.senddispls = displs;
    call.recv = recv;
    call.recvcount = recvcount;
    call.dtype = dtype;
    call.root = root;
    return blocking(g, &call);
}

int collrun_reduce_scatterv(struct collrun_group *g, const void *send, void *recv,
                            const size_t *recvcounts, enum collrun_dtype dtype, enum collrun_op op)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_REDUCE_SCATTERV);
    call.send = send;
    call.recv = recv;
    call.recvcounts = recvcounts;
    call.dtype = dtype;
    call.op = op;
    return blocking(g, &call);
}

int collrun_alltoallv(struct collrun_group *g, const void *send, const size_t *sendcounts,
                      const size_t *senddispls, void *recv, const size_t *recvcounts,
                      const size_t *recvdispls, enum collrun_dtype dtype)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLTOALLV);
    call.send = send;
    call.sendcounts = sendcounts;
    call.senddispls = senddispls;
    call.recv = recv;
    call.recvcounts = recvcounts;
    call.recvdispls = recvdispls;
    call.dtype = dtype;
    return blocking(g, &call);
}

int collrun_send(struct collrun_group *g, const void *buf, size_t count, enum collrun_dtype dtype,
                 int peer)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_SEND);
    call.send = buf;
    call.count = count;
    call.dtype = dtype;
    call.peer = peer;
    return blocking(g, &call);
}

int collrun_recv(struct collrun_group *g, void *buf, size_t count, enum collrun_dtype dtype,
                 int peer)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_RECV);
    call.recv = buf;
    call.count = count;
    call.dtype = dtype;
    call.peer = peer;
    return blocking(g, &call);
}

int collrun_recv_any(struct collrun_group *g, void *buf, size_t count, enum collrun_dtype dtype,
                     int *source)
{
    int who;
    struct collrun_call call = COLLRUN_CALL(COLLRUN_RECV_ANY);
    call.recv = buf;
    call.count = count;
    call.dtype = dtype;
    call.source = source ? source : &who;
    return blocking(g, &call);
}

/* Both ends are this rank: a copy. */
static int check_self(const struct collrun_group *g, const struct collrun_call *pair)
{
    size_t len;
    if (!dtype_size(pair[0].dtype))
        return error_set(COLLRUN_ERR_INVALID, "sendrecv %s: %d is no element type", g->name,
                         (int)pair[0].dtype);
    if (pair[0].count != pair[1].count)
        return error_set(COLLRUN_ERR_INVALID,
                         "sendrecv %s: this rank sends itself %zu elements and receives %zu",
                         g->name, pair[0].count, pair[1].count);
    if (__builtin_mul_overflow(pair[0].count, dtype_size(pair[0].dtype), &len) || len > PTRDIFF_MAX)
        return error_set(COLLRUN_ERR_INVALID,
                         "sendrecv %s: %zu elements are more than memory can hold", g->name,
                         pair[0].count);
    if (len && (!pair[0].send || !pair[1].recv))
        return error_set(COLLRUN_ERR_INVALID, "sendrecv %s: a buffer is NULL", g->name);
    return COLLRUN_OK;
}

static int send_to_self(struct collrun_group *g, const struct collrun_call *pair)
{
    size_t len = pair[0].count * dtype_size(pair[0].dtype);
    uint64_t number = g->numbers[GROUP_MESSAGES] + 1, now = now_ns();
    if (atomic_load_explicit(&g->fate, memory_order_acquire) != 0)
        return group_refuse(g, COLLRUN_SEND, number);
    if (!g->has_gpus && len)
        memcpy(pair[1].recv, pair[0].send, len);
    if (!g->has_gpus)
        return COLLRUN_OK;
    error_clear_cause();
    int rc = gpu_copy_after(g->streams[0], pair[1].recv, pair[0].send, len,
                            g->timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + g->timeout_ns);
    return rc == COLLRUN_OK ? rc : group_failed(g, COLLRUN_SEND, number, rc);
}

int collrun_sendrecv(struct collrun_group *g, const void *send, size_t sendcount, int dst,
                     void *recv, size_t recvcount, int src, enum collrun_dtype dtype)
{
    struct collrun_call pair[2] = {COLLRUN_CALL(COLLRUN_SEND), COLLRUN_CALL(COLLRUN_RECV)};
    pair[0].send = send;
    pair[0].count = sendcount;
    pair[0].peer = dst;
    pair[1].recv = recv;
    pair[1].count = recvcount;
    pair[1].peer = src;
    pair[0].dtype = pair[1].dtype = dtype;
    if (!g)
        return error_set(COLLRUN_ERR_INVALID, "sendrecv: the group is NULL");
    bool to_self = dst == src && dst == (int)g->rank;
    struct route route;
    int rc = to_self ? check_self(g, pair) : call_check_all(g, pair, 2, &route);
    if (rc == COLLRUN_OK)
        rc = call_check_apart(g, &pair[0], &pair[1]);
    if (rc == COLLRUN_OK)
        rc = group_enter(g, "sendrecv");
    if (rc != COLLRUN_OK)
        return rc;
    for (int i = 0; !to_self && i < 2; i++)
        call_as_bytes(route.side, &pair[i]);
    rc = to_self ? send_to_self(g, pair) : coll_run(g, &route, pair, 2);
    group_leave(g);
    return rc;
}
