/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations in flight: made by collrun_start and collrun_start_many, freed by the test or wait
 * that returns their result. Those that are never tested or waited for are reported when their
 * group is closed.
 */
#include "comm/request.h"

#include "base/loop.h"
#include "base/names.h"
#include "base/standstill.h"
#include "comm/args.h"
#include "comm/batch.h"
#include "comm/call.h"
#include "comm/call_record.h"
#include "comm/consistency.h"
#include "comm/group_enter.h"
#include "comm/p2p_short.h"
#include "comm/progress.h"
#include "comm/progress_deferred.h"
#include "comm/request_short.h"
#include "comm/request_spare.h"
#include "core/backend.h"
#include "core/engine.h"
#include "core/failure_text.h"
#include "device/bounce.h"
#include "device/stream_events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- callbacks of the queue ---- */

/* A failure of the streams is reported by request_exec. */
static bool request_ready(struct collrun_request *r)
{
    return atomic_load_explicit(&r->group->status.code, memory_order_acquire) ||
           standstill_expired(now_ns(), &r->stopped_ns, &r->deadline_ns) ||
           stream_events_query(r->events) != COLLRUN_AGAIN;
}

/* The streams of a request that has events. */
static int request_settle(struct collrun_request *r)
{
    char text[128];
    int rc = stream_events_query(r->events);
    if (rc != COLLRUN_AGAIN)
        return rc;
    failure_text_expired("the work that its stream held before it", r->calls->timeout_ns, text,
                         sizeof text);
    return error_cause(COLLRUN_ERR_TIMEOUT, "%s", text);
}

static int request_exec(void *ctx, struct collrun_request *r)
{
    struct route route = {
        .gb = ctx, .bounced = r->bounces_late, .settled = r->events || r->settled};
    if (collrun_kind_is_message(r->calls->kind) && r->pq->config.p2p)
        return p2p_exec(r->pq->config.p2p, r->calls, r->ncalls, &r->batch, &r->pq->contended);
    if (!r->events && !r->bounces_late && consistency_is_plain(ctx, r->pq, r->calls, r->ncalls))
        return backend_exec(r->pq->config.backend, r->pq->config.handle, r->calls, 1);
    int rc = r->events ? request_settle(r) : COLLRUN_OK;
    if (rc == COLLRUN_OK)
        rc = bounce_in(&route, r->calls, r->ncalls, &r->bounce);
    return rc == COLLRUN_OK ? batch_exec(ctx, r, route.settled) : rc;
}

static int request_finished(struct collrun_request *r, int status)
{
    enum collrun_kind kind = r->calls[0].kind;
    if (r->bounce)
        status = bounce_out(r->bounce, status);
    r->bounce = NULL;
    if (status != COLLRUN_OK)
        status = group_op_failed(r->group, kind, r->number, status);
    else if (collrun_kind_is_message(kind))
        call_record_received(r->group, r->record, r->calls, r->ncalls);
    call_record_end(r->group, group_queue_of(kind), r->record, r->nrecord, r->last_number, status);
    if (status == COLLRUN_OK)
        return status;
    r->failure = malloc(sizeof *r->failure);
    if (r->failure)
        *r->failure = *error_get();
    return status;
}

static void request_expired(struct collrun_request *r)
{
    char operation[192], why[256];
    snprintf(operation, sizeof operation, "%s %s#%llu", kind_name(r->calls[0].kind),
             r->group->id.name, (unsigned long long)r->number);
    failure_text_expired(operation, r->calls[0].timeout_ns, why, sizeof why);
    group_abort(r->group, COLLRUN_ERR_TIMEOUT, why);
}

static void request_begin(const struct collrun_request *r)
{
    enum group_queue which = group_queue_of(r->calls->kind);
    if (which == GROUP_MESSAGES)
        call_record_enter_message(r->group, r->calls, r->number, call_record_ticks(r->group));
    call_record_start(r->group, which, r->record, r->nrecord);
}

/* Now that it may take long. */
static void request_admitted(struct collrun_request *r)
{
    request_list_add(r);
    request_set_deadline(r);
}

const struct pq_ops request_pq_ops = {.admitted = request_admitted,
                                      .begin = request_begin,
                                      .ready = request_ready,
                                      .exec = request_exec,
                                      .finished = request_finished,
                                      .expired = request_expired};

int request_refuse(const struct route *route, const struct collrun_call *calls, uint32_t ncalls,
                   uint64_t number, int status)
{
    status = group_op_failed(route->gb->group, calls->kind, number, status);
    call_record_not_begun(route, calls, ncalls, number, status);
    return status;
}

int request_submit(struct collrun_request *r)
{
    struct collrun_group *g = r->group;
    enum collrun_kind kind = r->calls->kind;
    uint64_t number = r->number;
    uint64_t index = r->record, nrecord = r->nrecord;
    request_set_deadline(r);
    int rc = pq_submit(r->pq, r);
    if (rc == COLLRUN_OK)
        return rc;
    request_free(r);
    error_clear_cause();
    call_record_end(g, group_queue_of(kind), index, (uint32_t)nrecord, number, rc);
    rc = group_op_failed(g, kind, number, rc);
    return rc == COLLRUN_OK ? COLLRUN_ERR_ABORTED : rc; /* never OK: the request is freed */
}

/* ---- waiting ---- */

static int request_status(const struct collrun_request *r)
{
    return atomic_load_explicit(&r->status, memory_order_acquire);
}

/* The error message of a finished request, if it has failed, becomes that of this thread. */
static void request_restore_failure(const struct collrun_request *r, int status)
{
    if (status != COLLRUN_OK && r->failure)
        error_restore(r->failure);
    else if (status != COLLRUN_OK)
        error_set(status, "group %s: %s", r->group ? r->group->id.name : "(new)",
                  status_text(status));
}

/* Ends the use of a finished request and returns its status. */
static int request_collect(struct collrun_request *r)
{
    int status = request_status(r);
    request_restore_failure(r, status);
    request_spare_keep_or_free(r);
    return status;
}

/* True: this thread has executed the request as a blocking call, and it is finished. */
static bool request_run_deferred(struct collrun_request *r)
{
    struct blocked_call *blocked = &r->group->calls.blocked[group_queue_of(r->calls->kind)];
    if (!pq_enter_deferred(r))
        return false;
    blocked_call_begin(blocked, r->calls, r->ncalls, r->number);
    const int status = progress_run(r->pq, r);
    blocked_call_end(blocked);
    pq_leave_deferred(r, status);
    return status != COLLRUN_AGAIN;
}

int request_wait(struct collrun_request *r)
{
    if (r->deferred && request_run_deferred(r))
        return request_collect(r);
    if (request_status(r) == COLLRUN_AGAIN && r->release)
        pq_await_finished(r);
    else if (request_status(r) == COLLRUN_AGAIN)
        pq_wait(r);
    return request_collect(r);
}

int request_run(const struct route *route, const struct collrun_call *calls, uint32_t ncalls,
                uint64_t number, struct bounce *bounce)
{
    struct collrun_request *r = request_new(route, calls, ncalls, number, bounce);
    if (!r) {
        error_clear_cause();
        return request_refuse(route, calls, ncalls, number, COLLRUN_ERR_NO_MEMORY);
    }
    int rc = request_submit(r);
    return rc == COLLRUN_OK ? request_wait(r) : rc;
}

int request_run_adopted(struct progress_queue *pq, struct collrun_request *r)
{
    pq_adopt(pq, r);
    pq_wait(r);
    int status = request_status(r);
    request_restore_failure(r, status);
    free(r->failure);
    return status;
}

int collrun_cancel(struct collrun_request *request)
{
    if (!request)
        return error_set(COLLRUN_ERR_INVALID, "cancel: the request is NULL");
    if (fork_guard_in_child)
        return fork_guard_refuse("cancel");
    if (request->release)
        return error_set(COLLRUN_ERR_INVALID,
                         "cancel: the request creates a group; only receives can be canceled");
    if (request->shared)
        return error_set(COLLRUN_ERR_INVALID,
                         "cancel: the request holds a send; only receives can be canceled");
    const struct collrun_group *g = request->group;
    for (uint32_t i = 0; i < request->ncalls; i++) {
        enum collrun_kind kind = request->calls[i].kind;
        if (kind != COLLRUN_RECV && kind != COLLRUN_RECV_ANY)
            return error_set(COLLRUN_ERR_INVALID,
                             "cancel %s: the request holds a %s; only receives can be canceled",
                             g->id.name, kind_name(kind));
    }
    if (request_status(request) != COLLRUN_AGAIN)
        return COLLRUN_AGAIN;
    int rc = pq_withdraw(request);
    if (rc == COLLRUN_OK) {
        call_record_cancel(request->group, request->record, request->nrecord, request->number);
        request_free(request);
    } else if (rc == COLLRUN_ERR_UNSUPPORTED) {
        bool busy = atomic_load(&request->pq->executing);
        error_set(rc, "cancel %s: backend \"%s\" cannot withdraw a receive that it has started%s",
                  g->id.name, request->pq->config.backend->name,
                  busy ? " while it executes a collective" : "");
    } else if (rc != COLLRUN_AGAIN) {
        error_wrap(rc, g->id.name, request->number, "cancel");
    }
    return rc;
}

int collrun_wait(struct collrun_request *request)
{
    if (!request)
        return error_set(COLLRUN_ERR_INVALID, "the request is NULL");
    if (fork_guard_in_child)
        return fork_guard_refuse("wait");
    return request_wait(request);
}

static int request_check_stream(const struct group_backend *gb, int device, void *stream)
{
    const struct memory_kind *kind = gb->kind;
    if (!kind || !kind->usable || !kind->table.stream_check)
        return COLLRUN_OK;
    return kind->table.stream_check(kind->state, group_stream_device(gb, kind, device, stream),
                                    stream);
}

int collrun_wait_stream(struct collrun_request *request, int device, void *stream)
{
    if (!request)
        return error_set(COLLRUN_ERR_INVALID, "the request is NULL");
    if (fork_guard_in_child)
        return fork_guard_refuse("wait_stream");
    if (request->release)
        return error_set(
            COLLRUN_ERR_INVALID,
            "collrun_wait_stream: the request creates a group; no stream can wait for it");
    if (request->shared) /* it has read host memory, and is done */
        return device >= 0 ? COLLRUN_OK
                           : error_set(COLLRUN_ERR_INVALID,
                                       "collrun_wait_stream: %d is not a device", device);
    const struct collrun_group *g = request->group;
    const struct group_backend *gb = request->pq->config.ctx;
    if (device < 0 || (gb->ndevices && (uint32_t)device >= gb->ndevices))
        return error_set(COLLRUN_ERR_INVALID, "group %s: device %d is not one of its %u %ss",
                         g->id.name, device, gb->ndevices, gb->kind ? gb->kind->title : "device");
    int rc = request_check_stream(gb, device, stream);
    if (rc == COLLRUN_OK)
        rc = pq_order_stream(request, (uint32_t)device, stream);
    if (rc != COLLRUN_OK)
        return error_wrap(rc, g->id.name, request->number, g->id.name);
    int status = request_status(request);
    if (status == COLLRUN_OK || status == COLLRUN_AGAIN)
        return COLLRUN_OK;
    if (request->failure)
        error_restore(request->failure);
    return status;
}

int collrun_test(struct collrun_request *request)
{
    int status = collrun_poll(request);
    return status == COLLRUN_AGAIN || !request || fork_guard_in_child ? status
                                                                      : request_collect(request);
}

int collrun_poll(struct collrun_request *request)
{
    if (!request)
        return error_set(COLLRUN_ERR_INVALID, "the request is NULL");
    if (fork_guard_in_child)
        return fork_guard_refuse("test");
    if (request_status(request) == COLLRUN_AGAIN)
        pq_poll(request->pq);
    int status = request_status(request);
    if (status != COLLRUN_AGAIN)
        request_restore_failure(request, status);
    return status;
}

int collrun_wait_all(struct collrun_request **requests, int n)
{
    int first = COLLRUN_OK;
    struct error_record reason = {0};
    if (n < 0 || (n && !requests))
        return error_set(COLLRUN_ERR_INVALID, "wait_all of %d requests", n);
    if (fork_guard_in_child)
        return fork_guard_refuse("wait_all");
    for (int i = 0; i < n; i++) {
        int rc = requests[i] ? request_wait(requests[i]) : COLLRUN_OK;
        requests[i] = NULL;
        if (first == COLLRUN_OK && rc != COLLRUN_OK) {
            first = rc;
            reason = *error_get();
            snprintf(reason.text, sizeof reason.text, "requests[%u]: %.*s", (unsigned)i,
                     (int)(sizeof reason.text - sizeof "requests[2147483647]: "),
                     error_get()->text);
        }
    }
    if (first != COLLRUN_OK)
        error_restore(&reason);
    return first;
}

/* The index of the first request that is finished; -1: none. */
static int request_find_finished(struct collrun_request **requests, int n)
{
    for (int i = 0; i < n; i++)
        if (requests[i] && request_status(requests[i]) != COLLRUN_AGAIN)
            return i;
    return -1;
}

/* One round of progress in the queues of all requests; neighbours often share one. */
static bool request_poll_all(struct collrun_request **requests, int n)
{
    bool moved = false;
    const struct progress_queue *last = NULL;
    for (int i = 0; i < n; i++) {
        if (!requests[i] || requests[i]->pq == last)
            continue;
        last = requests[i]->pq;
        moved = pq_poll(requests[i]->pq) || moved;
    }
    return moved;
}

/* No queue is waited for, since another one may finish first: what cannot be polled is executed by
 * the worker of its queue. The deadlock proof knows only threads that wait for one request, so no
 * report is certain meanwhile. */
static int request_await_any(struct collrun_request **requests, int n, struct wait_reporter *report)
{
    int done = -1;
    wait_report_busy(report, 1);
    for (unsigned round = 0; done < 0; round++) {
        if (request_poll_all(requests, n))
            round = 0;
        done = request_find_finished(requests, n);
        if (done < 0)
            progress_idle(round);
    }
    wait_report_busy(report, -1);
    return done;
}

int collrun_wait_any(struct collrun_request **requests, int n, int *index)
{
    int first = 0;
    if (n < 0 || (n && !requests))
        return error_set(COLLRUN_ERR_INVALID, "wait_any of %d requests", n);
    if (fork_guard_in_child)
        return fork_guard_refuse("wait_any");
    if (!index)
        return error_set(COLLRUN_ERR_INVALID, "wait_any: the output pointer for the index is NULL");
    while (first < n && !requests[first])
        first++;
    *index = -1;
    if (first == n)
        return COLLRUN_OK;
    *index = request_find_finished(requests, n);
    if (*index < 0)
        *index = request_await_any(requests, n, requests[first]->pq->config.report);
    int status = request_collect(requests[*index]);
    requests[*index] = NULL;
    return status;
}

/* ---- starting ---- */

/* The request begins after the work on the streams of its calls. If it waits in the queue until it
 * is executed, the copies of its buffers are made then, after what earlier requests have written:
 * it gets events, or of a kind of memory without any waits for the streams now. Else the copies are
 * made now. Those of a batch are made call by call. */
static int request_follow_streams(const struct route *route, struct collrun_request *r)
{
    if (!route->bounced || !r->pq->starts || !pq_needs_exec(r->pq, r)) {
        int now = r->exec_batch ? COLLRUN_OK : bounce_in(route, r->calls, r->ncalls, &r->bounce);
        r->bounced = r->bounce != NULL;
        return now;
    }
    int rc = stream_events_record(route->gb, r->calls, r->ncalls, &r->events);
    if (rc == COLLRUN_ERR_UNSUPPORTED) {
        rc = bounce_await_streams(route->gb, r->calls, r->ncalls);
        r->settled = rc == COLLRUN_OK;
    }
    r->bounces_late = rc == COLLRUN_OK && !r->exec_batch;
    r->bounced = rc == COLLRUN_OK;
    return rc;
}

/* True: it is finished by the thread that waits for it, most likely, and need not begin before: a
 * collective that the backend cannot start, or a receive of a short message, which no sender waits
 * for. */
static bool request_may_wait(struct collrun_request *r)
{
    r->needs_exec = pq_needs_exec(r->pq, r);
    if (kind_is_collective(r->calls->kind))
        return r->needs_exec;
    return r->calls->kind == COLLRUN_RECV && p2p_short_may_recv(r->pq->config.p2p, r->calls);
}

/* Deferred, if it may be. A request that is started again is the same in that. */
static bool request_defer(const struct route *route, struct collrun_request *r)
{
    if (r->ncalls > 1 || r->events || r->bounced || route->waits)
        return false;
    if (!r->renewed)
        r->may_wait = request_may_wait(r);
    r->deferred = r->may_wait && pq_defer(r);
    return r->deferred;
}

static int request_begin_or_submit(const struct route *route, struct collrun_request *r,
                                   struct collrun_request **out)
{
    int rc = COLLRUN_OK;
    if (!request_defer(route, r)) {
        request_list_add(r);
        rc = request_submit(r);
    }
    if (rc == COLLRUN_OK)
        *out = r;
    return rc;
}

/* Inside the group. `given`: one call as the caller gave it. */
static int request_start(struct collrun_group *g, const struct route *route,
                         struct collrun_call *calls, uint32_t n, const struct collrun_call *given,
                         struct collrun_request **out)
{
    enum group_queue which = group_queue_of(calls->kind);
    uint64_t number = which == GROUP_MESSAGES
                          ? group_number_shared(g)
                          : group_number(g, which, batch_numbers(route->gb, calls, n));
    if (group_has_failed(g))
        return group_reject(g, calls->kind, number);
    for (uint32_t i = 0; i < n; i++)
        call_complete(route, &calls[i]);
    error_clear_cause();
    if (n == 1 && (*out = request_send_short(route, calls, number))) {
        request_spare_add(route, calls, given);
        return COLLRUN_OK;
    }
    struct collrun_request *r = request_new(route, calls, n, number, NULL);
    int rc = r ? request_follow_streams(route, r) : COLLRUN_ERR_NO_MEMORY;
    if (rc != COLLRUN_OK) {
        if (r)
            request_free(r);
        return request_refuse(route, calls, n, number, rc);
    }
    if (n == 1)
        request_spare_prepare(r, given);
    return request_begin_or_submit(route, r, out);
}

/* The same for the spare of the call. */
static int request_start_spare(struct collrun_group *g, struct collrun_request *r, uint64_t site,
                               struct collrun_request **out)
{
    const struct route route = {.gb = r->pq->config.ctx, .site = site};
    struct collrun_call *call = r->calls;
    enum group_queue which = group_queue_of(call->kind);
    uint64_t number = which == GROUP_MESSAGES ? group_number_shared(g) : group_number(g, which, 1);
    int rc = group_has_failed(g) ? group_reject(g, call->kind, number) : COLLRUN_OK;
    call->timeout_ns = r->given->timeout_ns;
    call_complete(&route, call);
    error_clear_cause();
    if (rc != COLLRUN_OK || (*out = request_send_short(&route, call, number))) {
        request_spare_keep_or_free(r);
        return rc;
    }
    request_renew(&route, r, number);
    return request_begin_or_submit(&route, r, out);
}

int request_import_all(struct collrun_group *g, const struct collrun_call *calls, uint32_t n,
                       struct collrun_call *own, struct route *route)
{
    int rc = COLLRUN_OK;
    /* An array of structs that were compiled with another size is stepped through with that size.
     */
    for (uint32_t i = 0; rc == COLLRUN_OK && i < n; i++)
        rc = call_import(g, (const void *)((const char *)calls + i * (size_t)calls->size), &own[i]);
    if (rc == COLLRUN_OK)
        rc = call_check_all(g, own, n, route);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < n; i++) {
        if (group_queue_of(own[i].kind) == GROUP_MESSAGES)
            call_as_bytes(route->gb, &own[i]);
        call_trim(route->gb, &own[i]);
    }
    return rc;
}

static int request_start_all(struct collrun_group *g, const struct collrun_call *calls, int n,
                             struct collrun_request **out, uint64_t site)
{
    struct collrun_call few[8], *own = few;
    struct route route;
    if (n < 1)
        return error_set(COLLRUN_ERR_INVALID, "group %s: a request of %d calls", g->id.name, n);
    if (n > (int)(sizeof few / sizeof *few) && !(own = calloc((size_t)n, sizeof *own)))
        return error_set(COLLRUN_ERR_NO_MEMORY, "group %s: out of memory for %d calls", g->id.name,
                         n);
    int rc = request_import_all(g, calls, (uint32_t)n, own, &route);
    if (rc == COLLRUN_OK && (rc = group_enter_for(route.gb, own->kind)) == COLLRUN_OK) {
        route.site = site;
        rc = request_start(g, &route, own, (uint32_t)n, calls, out);
        group_leave_after(route.gb, own->kind);
    }
    if (own != few)
        free(own);
    return rc;
}

static int request_start_again(struct collrun_group *g, struct collrun_request *r, uint64_t site,
                               struct collrun_request **out)
{
    const struct group_backend *gb = r->pq->config.ctx;
    enum collrun_kind kind = r->given->kind;
    int rc = group_enter_for(gb, kind);
    if (rc != COLLRUN_OK) {
        request_spare_keep_or_free(r);
        return rc;
    }
    rc = request_start_spare(g, r, site, out);
    group_leave_after(gb, kind);
    return rc;
}

static int request_check_start(const struct collrun_group *g, const struct collrun_call *calls,
                               struct collrun_request **out)
{
    return g && calls && out ? COLLRUN_OK
                             : error_set(COLLRUN_ERR_INVALID, "the %s is NULL",
                                         !g       ? "group"
                                         : !calls ? "call"
                                                  : "output pointer for the request");
}

int collrun_start(struct collrun_group *g, const struct collrun_call *call,
                  struct collrun_request **out)
{
    int rc = request_check_start(g, call, out);
    if (rc != COLLRUN_OK)
        return rc;
    struct collrun_request *spare = request_spare_take(g, call);
    return spare ? request_start_again(g, spare, CALL_RECORD_SITE, out)
                 : request_start_all(g, call, 1, out, CALL_RECORD_SITE);
}

int collrun_start_many(struct collrun_group *g, const struct collrun_call *calls, int n,
                       struct collrun_request **out)
{
    int rc = request_check_start(g, calls, out);
    return rc == COLLRUN_OK ? request_start_all(g, calls, n, out, CALL_RECORD_SITE) : rc;
}
