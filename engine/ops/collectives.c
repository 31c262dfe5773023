/* SPDX-License-Identifier: Apache-2.0
 *
 * The blocking collectives of collrun.h, and collrun_run. The life of a call, in the order that
 * matters:
 *
 * 1. Fill in a struct collrun_call (call_init_data). Every function of collrun.h does that and
 *    takes the same path.
 * 2. Enter the group (group_enter_kind). One thread at a time is inside: a second one is refused
 *    with INVALID. All that follows belongs to the thread inside, without a lock.
 * 3. Check the arguments and choose the backend (call_check_all, route_find), unless the last call
 *    was the same one (coll_is_known). A call that is refused here has no number: it was not made.
 * 4. Take the number (group_number). From here on the call counts: the n-th collective of the group
 *    has the number n on every rank. A group that has failed rejects it (group_reject).
 * 5. Complete it with the time-out and the stream of the group (call_complete), and copy buffers of
 *    devices to host memory where the backend needs that (bounce_in).
 * 6. Tell the observers, before anything can block: the flight recorder (call_record_collectives),
 *    then the call that this thread waits in (thread_record_collective). A rank
 *    that hangs or dies in step 7 is found with its call. The flight recorder comes first, as it
 *    keeps the counts of v-forms and the time.
 * 7. Run it (coll_run_now): in one call of the backend if it is plain, else compared first (check:
 *    strict) and emulated where the backend lacks it (consistency_exec). Behind unfinished requests
 *    it becomes a request and does not overtake them (request_run).
 * 8. End it: copy back (bounce_out), record the end (call_record_end). After a failure find the
 *    cause behind it, which may be another rank, and fail the group for all later calls
 *    (group_op_failed). Leave the group last: the next thread acquires what this one has done.
 */
#include "base/names.h"
#include "group/group.h"
#include "group/thread_record.h"
#include "observe/call_record.h"
#include "ops/args.h"
#include "ops/bounce.h"
#include "ops/consistency.h"
#include "ops/message.h"
#include "ops/request.h"

#include <stdlib.h>
#include <string.h>

/* In the caller's thread. The cause of a failure is stored. */
static int coll_run_now(const struct route *route, struct progress_queue *pq,
                        struct collrun_call *calls, uint32_t ncalls, uint64_t number)
{
    const struct group_backend *gb = route->gb;
    if (route->plain || consistency_is_plain(gb, pq, calls, ncalls))
        return backend_exec(gb->backend, pq->config.handle, calls, 1);
    error_clear_cause();
    return consistency_exec(gb, pq, calls, ncalls, number);
}

/* Other threads may submit messages to the queue meanwhile if it serves these, too. */
static bool coll_begin(struct progress_queue *pq)
{
    return pq->shared ? pq_enter_direct(pq) : pq_is_idle(pq);
}

static void coll_end(struct progress_queue *pq)
{
    if (pq->shared)
        pq_leave_direct(pq);
}

/* Checked calls, inside the group. Inlined, as nearly all are one call. */
static inline __attribute__((always_inline)) int coll_run_calls(struct collrun_group *g,
                                                                const struct route *route,
                                                                struct collrun_call *calls,
                                                                uint32_t ncalls)
{
    struct progress_queue *pq = route->gb->pq[GROUP_COLLECTIVES];
    struct bounce *bounce = NULL;
    uint64_t number = group_number(g, GROUP_COLLECTIVES, 1);
    if (group_has_failed(g))
        return group_reject(g, calls->kind, number);
    for (uint32_t i = 0; i < ncalls; i++)
        call_complete(route, &calls[i]);
    int rc = route->bounced || route->waits ? bounce_in(route, calls, ncalls, &bounce) : COLLRUN_OK;
    if (rc == COLLRUN_OK && !coll_begin(pq))
        return request_run(route, calls, ncalls, number, bounce);
    uint64_t index = call_record_collectives(route, calls, ncalls, number, RECORD_STARTED);
    if (rc == COLLRUN_OK) {
        struct record_thread *t = thread_record_collective(
            g, calls, call_record_counts_at(g, calls, index), number, route->site);
        rc = coll_run_now(route, pq, calls, ncalls, number);
        thread_record_return(t);
        coll_end(pq);
    }
    if (bounce)
        rc = bounce_out(bounce, rc);
    if (rc != COLLRUN_OK)
        rc = group_op_failed(g, calls->kind, number, rc);
    call_record_end(g, GROUP_COLLECTIVES, index, 1, number, rc);
    return rc;
}

static int coll_run(struct collrun_group *g, const struct route *route, struct collrun_call *calls,
                    uint32_t ncalls)
{
    return coll_run_calls(g, route, calls, ncalls);
}

/* Compares the fields that the functions below set. Memory of devices may be of another kind today.
 */
static bool coll_is_known(const struct collrun_group *g, const struct collrun_call *call)
{
    const struct known_call *k = &g->calls.known;
    return k->is_set && k->kind == call->kind && k->dtype == call->dtype && k->op == call->op &&
           k->root == call->root && k->count == call->count && k->send == call->send &&
           k->recv == call->recv;
}

static void coll_keep_known(struct collrun_group *g, const struct collrun_call *call,
                            const struct route *route)
{
    g->calls.known = (struct known_call){
        .is_set = !g->kinds.n && !collrun_kind_is_vector(call->kind),
        .is_plain = consistency_is_plain(route->gb, route->gb->pq[GROUP_COLLECTIVES], call, 1),
        .kind = call->kind,
        .dtype = call->dtype,
        .op = call->op,
        .root = call->root,
        .count = call->count,
        .send = call->send,
        .recv = call->recv};
}

/* Inside the group. */
static int coll_run_unknown(struct collrun_group *g, struct collrun_call *call, uint64_t site)
{
    struct route route;
    int rc = call_check_all(g, call, 1, &route);
    if (rc != COLLRUN_OK)
        return rc;
    coll_keep_known(g, call, &route);
    if (collrun_kind_is_vector(call->kind))
        call_trim(route.gb, call);
    route.site = site;
    return coll_run(g, &route, call, 1);
}

static int coll_run_blocking(struct collrun_group *g, struct collrun_call *call, uint64_t site)
{
    int rc;
    if (!g)
        return error_set(COLLRUN_ERR_INVALID, "%s: the group is NULL", kind_name(call->kind));
    if ((rc = group_enter_kind(g, call->kind)) != COLLRUN_OK)
        return rc;
    if (coll_is_known(g, call)) {
        const struct route route = {
            .gb = &g->backends[0], .site = site, .plain = g->calls.known.is_plain};
        rc = coll_run_calls(g, &route, call, 1);
    } else {
        rc = coll_run_unknown(g, call, site);
    }
    group_leave(g);
    return rc;
}

/* The parameters are those of the public API. NOLINTBEGIN(readability-function-size) */

/* As blocking calls one by one, which fail with the names of their own operations. */
static int coll_run_batch(struct collrun_group *g, const struct route *route,
                          struct collrun_call *calls, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        int rc = coll_run(g, route, &calls[i], 1);
        if (rc == COLLRUN_OK)
            continue;
        uint32_t left_out = n - i - 1;
        uint64_t number = group_number(g, GROUP_COLLECTIVES, left_out);
        if (left_out && !group_has_failed(g))
            call_record_not_begun(route, &calls[i + 1], left_out, number, COLLRUN_ERR_ABORTED);
        return rc;
    }
    return COLLRUN_OK;
}

/* n > 1: messages, one collective on several devices, or a batch. */
static int coll_run_all(struct collrun_group *g, const struct route *route,
                        struct collrun_call *calls, uint32_t n)
{
    struct bounce *bounce = NULL;
    if (group_queue_of(calls->kind) == GROUP_MESSAGES)
        return message_run(route, calls, n);
    bool batch = batch_is(route->gb, calls, n);
    if (batch && !batch_is_native(route, calls, n))
        return coll_run_batch(g, route, calls, n);
    if (!batch)
        return coll_run(g, route, calls, n);
    uint64_t number = group_number(g, GROUP_COLLECTIVES, batch_numbers(route->gb, calls, n));
    if (group_has_failed(g))
        return group_reject(g, calls->kind, number);
    for (uint32_t i = 0; i < n; i++)
        call_complete(route, &calls[i]);
    error_clear_cause();
    int rc = bounce_in(route, calls, n, &bounce);
    return rc == COLLRUN_OK ? request_run(route, calls, n, number, bounce)
                            : request_refuse(route, calls, n, number, rc);
}

int collrun_run(struct collrun_group *g, const struct collrun_call *calls, int n)
{
    struct collrun_call few[8], *own = few;
    struct route route;
    if (!g || !calls)
        return error_set(COLLRUN_ERR_INVALID, "run: the %s NULL", g ? "calls are" : "group is");
    if (n < 1)
        return error_set(COLLRUN_ERR_INVALID, "group %s: a run of %d calls", g->id.name, n);
    if (n > (int)(sizeof few / sizeof *few) && !(own = calloc((size_t)n, sizeof *own)))
        return error_set(COLLRUN_ERR_NO_MEMORY, "group %s: out of memory for %d calls", g->id.name,
                         n);
    int rc = request_import_all(g, calls, (uint32_t)n, own, &route);
    if (rc == COLLRUN_OK && (rc = group_enter_for(route.gb, own->kind)) == COLLRUN_OK) {
        route.site = CALL_RECORD_SITE;
        rc = coll_run_all(g, &route, own, (uint32_t)n);
        group_leave_after(route.gb, own->kind);
    }
    if (own != few)
        free(own);
    return rc;
}

int collrun_barrier(struct collrun_group *g)
{
    struct collrun_call call;
    call_init(&call, COLLRUN_BARRIER);
    return coll_run_blocking(g, &call, CALL_RECORD_SITE);
}

int collrun_allreduce(struct collrun_group *g, const void *send, void *recv, size_t count,
                      enum collrun_dtype dtype, enum collrun_op op)
{
    struct collrun_call call;
    call_init_data(&call, COLLRUN_ALLREDUCE, send, recv, count, dtype);
    call.op = op;
    return coll_run_blocking(g, &call, CALL_RECORD_SITE);
}

int collrun_reduce(struct collrun_group *g, const void *send, void *recv, size_t count,
                   enum collrun_dtype dtype, enum collrun_op op, int root)
{
    struct collrun_call call;
    call_init_data(&call, COLLRUN_REDUCE, send, recv, count, dtype);
    call.op = op;
    call.root = root;
    return coll_run_blocking(g, &call, CALL_RECORD_SITE);
}

int collrun_broadcast(struct collrun_group *g, void *buf, size_t count, enum collrun_dtype dtype,
                      int root)
{
    struct collrun_call call;
    call_init_data(&call, COLLRUN_BROADCAST, NULL, buf, count, dtype);
    call.root = root;
    return coll_run_blocking(g, &call, CALL_RECORD_SITE);
}

int collrun_allgather(struct collrun_group *g, const void *send, void *recv, size_t count,
                      enum collrun_dtype dtype)
{
    struct collrun_call call;
    call_init_data(&call, COLLRUN_ALLGATHER, send, recv, count, dtype);
    return coll_run_blocking(g, &call, CALL_RECORD_SITE);
}

int collrun_gather(struct collrun_group *g, const void *send, void *recv, size_t count,
                   enum collrun_dtype dtype, int root)
{
    struct collrun_call call;
    call_init_data(&call, COLLRUN_GATHER, send, recv, count, dtype);
    call.root = root;
    return coll_run_blocking(g, &call, CALL_RECORD_SITE);
}

int collrun_scatter(struct collrun_group *g, const void *send, void *recv, size_t count,
                    enum collrun_dtype dtype, int root)
{
    struct collrun_call call;
    call_init_data(&call, COLLRUN_SCATTER, send, recv, count, dtype);
    call.root = root;
    return coll_run_blocking(g, &call, CALL_RECORD_SITE);
}

int collrun_reduce_scatter(struct collrun_group *g, const void *send, void *recv, size_t count,
                           enum collrun_dtype dtype, enum collrun_op op)
{
    struct collrun_call call;
    call_init_data(&call, COLLRUN_REDUCE_SCATTER, send, recv, count, dtype);
    call.op = op;
    return coll_run_blocking(g, &call, CALL_RECORD_SITE);
}

int collrun_scan(struct collrun_group *g, const void *send, void *recv, size_t count,
                 enum collrun_dtype dtype, enum collrun_op op)
{
    struct collrun_call call;
    call_init_data(&call, COLLRUN_SCAN, send, recv, count, dtype);
    call.op = op;
    return coll_run_blocking(g, &call, CALL_RECORD_SITE);
}

int collrun_exscan(struct collrun_group *g, const void *send, void *recv, size_t count,
                   enum collrun_dtype dtype, enum collrun_op op)
{
    struct collrun_call call;
    call_init_data(&call, COLLRUN_EXSCAN, send, recv, count, dtype);
    call.op = op;
    return coll_run_blocking(g, &call, CALL_RECORD_SITE);
}

int collrun_alltoall(struct collrun_group *g, const void *send, void *recv, size_t count,
                     enum collrun_dtype dtype)
{
    struct collrun_call call;
    call_init_data(&call, COLLRUN_ALLTOALL, send, recv, count, dtype);
    return coll_run_blocking(g, &call, CALL_RECORD_SITE);
}

int collrun_allgatherv(struct collrun_group *g, const void *send, size_t sendcount, void *recv,
                       const size_t *recvcounts, const size_t *displs, enum collrun_dtype dtype)
{
    struct collrun_call call;
    call_init_data(&call, COLLRUN_ALLGATHERV, send, recv, sendcount, dtype);
    call.recvcounts = recvcounts;
    call.recvdispls = displs;
    return coll_run_blocking(g, &call, CALL_RECORD_SITE);
}

int collrun_gatherv(struct collrun_group *g, const void *send, size_t sendcount, void *recv,
                    const size_t *recvcounts, const size_t *displs, enum collrun_dtype dtype,
                    int root)
{
    struct collrun_call call;
    call_init_data(&call, COLLRUN_GATHERV, send, recv, sendcount, dtype);
    call.recvcounts = recvcounts;
    call.recvdispls = displs;
    call.root = root;
    return coll_run_blocking(g, &call, CALL_RECORD_SITE);
}

int collrun_scatterv(struct collrun_group *g, const void *send, const size_t *sendcounts,
                     const size_t *displs, void *recv, size_t recvcount, enum collrun_dtype dtype,
                     int root)
{
    struct collrun_call call;
    call_init_data(&call, COLLRUN_SCATTERV, send, recv, 0, dtype);
    call.sendcounts = sendcounts;
    call.senddispls = displs;
    call.recvcount = recvcount;
    call.root = root;
    return coll_run_blocking(g, &call, CALL_RECORD_SITE);
}

int collrun_reduce_scatterv(struct collrun_group *g, const void *send, void *recv,
                            const size_t *recvcounts, enum collrun_dtype dtype, enum collrun_op op)
{
    struct collrun_call call;
    call_init_data(&call, COLLRUN_REDUCE_SCATTERV, send, recv, 0, dtype);
    call.recvcounts = recvcounts;
    call.op = op;
    return coll_run_blocking(g, &call, CALL_RECORD_SITE);
}

int collrun_alltoallv(struct collrun_group *g, const void *send, const size_t *sendcounts,
                      const size_t *senddispls, void *recv, const size_t *recvcounts,
                      const size_t *recvdispls, enum collrun_dtype dtype)
{
    struct collrun_call call;
    call_init_data(&call, COLLRUN_ALLTOALLV, send, recv, 0, dtype);
    call.sendcounts = sendcounts;
    call.senddispls = senddispls;
    call.recvcounts = recvcounts;
    call.recvdispls = recvdispls;
    return coll_run_blocking(g, &call, CALL_RECORD_SITE);
}

/* NOLINTEND(readability-function-size) */
