/* SPDX-License-Identifier: Apache-2.0
 *
 * Starting operations: collrun_start and collrun_start_many. request.c has what follows.
 */
#include "ops/request.h"

#include "base/call_text.h"
#include "base/loop.h"
#include "base/names.h"
#include "base/standstill.h"
#include "core/backend.h"
#include "core/error.h"
#include "core/process.h"
#include "group/group.h"
#include "group/thread_record.h"
#include "observe/call_record.h"
#include "ops/args.h"
#include "ops/bounce.h"
#include "ops/consistency.h"
#include "ops/message.h"
#include "progress/p2p.h"
#include "progress/progress.h"
#include "progress/progress_queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sends that are done at once ---- */

bool request_send_now(const struct route *route, const struct progress_queue *pq,
                      const struct collrun_call *call, uint64_t number)
{
    struct collrun_group *g = route->gb->group;
    if (!p2p_short_may_send(pq->config.p2p, call))
        return false;
    struct record_thread *t = thread_record_send(g, call);
    uint64_t called = call_record_ticks_if_timed(g);
    const bool sent = p2p_short_exec(pq->config.p2p, call) == COLLRUN_OK;
    thread_record_sent(g, t, call, sent);
    if (!sent)
        return false;
    called = called ? called : call_record_ticks(g);
    number = number ? number : group_number(g, GROUP_MESSAGES, 1);
    call_record_enter_message(g, call, number, called);
    call_record_sent(route, call, number, called);
    return true;
}

/* It holds nothing: its send is done, and has no failure. */
static struct collrun_call request_sent_call = {.kind = COLLRUN_SEND};
static struct collrun_request request_sent = {
    .calls = &request_sent_call, .ncalls = 1, .status = COLLRUN_OK, .shared = true};

struct collrun_request *request_send_short(const struct route *route,
                                           const struct collrun_call *call, uint64_t number)
{
    struct progress_queue *pq = route->gb->pq[GROUP_MESSAGES];
    if (call->kind != COLLRUN_SEND || !p2p_short_may_send(pq->config.p2p, call) || route->bounced ||
        route->waits || !pq_enter_direct(pq))
        return NULL;
    const bool sent = request_send_now(route, pq, call, number);
    pq_leave_direct(pq);
    return sent ? &request_sent : NULL;
}

struct collrun_request *request_send_plain(struct collrun_group *g,
                                           const struct collrun_call *given, uint64_t site)
{
    const struct route route = {.gb = &g->backends[0], .site = site};
    if (given->kind != COLLRUN_SEND || given->size != sizeof *given || group_has_failed(g) ||
        group_enters(route.gb, COLLRUN_SEND) || group_is_closed(g) || !message_is_plain(g, given))
        return NULL;
    return request_send_short(&route, given, 0);
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

/* The fast path of requests. Programs start the same few calls again and again, and soon wait for
 * each. From the second start on such a call has a spare, which is complete (request_spare_take),
 * so that nothing is checked, copied or allocated. Most are deferred (pq_defer): the thread that
 * waits executes them as a blocking call is executed (request_run_deferred), and the queue's lock
 * is never taken. The exceptions:
 *
 * - A short send leaves at once, and needs no request (request_send_short).
 * - All others are queued (pq_submit, pq_wait): several calls in one request, calls behind streams
 *   or on copies of their buffers, what the backend starts, messages that are no short receive, and
 *   a request that is not alone in its queue. */

/* True: the thread that waits for it most likely finishes it, and it need not begin before: a
 * collective that the backend cannot start, or a receive of a short message, which no sender waits
 * for. */
static bool request_may_wait(const struct route *route, struct collrun_request *r)
{
    if (r->ncalls > 1 || r->events || r->bounced || route->waits)
        return false;
    r->needs_exec = pq_needs_exec(r->pq, r);
    if (kind_is_collective(r->calls->kind))
        return r->needs_exec;
    return r->calls->kind == COLLRUN_RECV && p2p_short_may_recv(r->pq->config.p2p, r->calls);
}

static int request_begin_or_submit(const struct route *route, struct collrun_request *r,
                                   struct collrun_request **out)
{
    struct record_thread *t = thread_record_post(r, route->site);
    int rc = COLLRUN_OK;
    r->deferred = r->may_wait && pq_defer(r);
    if (!r->deferred) {
        request_list_add(r);
        rc = request_submit(r);
    }
    thread_record_pass(t);
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
    struct collrun_request *sent = n == 1 ? request_send_short(route, calls, number) : NULL;
    if (sent) {
        *out = sent;
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
    r->may_wait = request_may_wait(route, r);
    r->plain = r->may_wait && kind_is_collective(calls->kind) &&
               consistency_is_plain(route->gb, r->pq, r->calls, 1);
    return request_begin_or_submit(route, r, out);
}

/* A spare that was taken becomes the request of its call. Its members that the queue uses are set
 * when it gets the request; the others are what they were. Inside the group, if a call of its kind
 * has to be. */
static int request_start_renewed(struct collrun_group *g, struct collrun_request *r, uint64_t site,
                                 struct collrun_request **out)
{
    const struct route route = {.gb = r->pq->config.ctx, .site = site};
    const struct collrun_call *call = r->calls;
    enum group_queue which = group_queue_of(call->kind);
    uint64_t number = which == GROUP_MESSAGES ? group_number_shared(g) : group_number(g, which, 1);
    int rc = group_has_failed(g) ? group_reject(g, call->kind, number) : COLLRUN_OK;
    struct collrun_request *sent =
        rc == COLLRUN_OK ? request_send_short(&route, call, number) : NULL;
    if (rc == COLLRUN_OK && !sent) {
        r->number = r->last_number = number;
        r->starter = thread_context;
        atomic_store_explicit(&r->status, COLLRUN_AGAIN, memory_order_relaxed);
        r->record = request_record(&route, r);
        return request_begin_or_submit(&route, r, out);
    }
    request_spare_keep_or_free(r);
    if (sent)
        *out = sent;
    return rc;
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

/* The spare of the call becomes its request. */
static int request_start_spare(struct collrun_group *g, struct collrun_request *r, uint64_t site,
                               struct collrun_request **out)
{
    const struct group_backend *gb = r->pq->config.ctx;
    enum collrun_kind kind = r->given->kind;
    int rc = group_enter_for(gb, kind);
    if (rc != COLLRUN_OK) {
        request_spare_keep_or_free(r);
        return rc;
    }
    rc = request_start_renewed(g, r, site, out);
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
    struct collrun_request *sent = request_send_plain(g, call, CALL_RECORD_SITE);
    if (sent) {
        *out = sent;
        return COLLRUN_OK;
    }
    struct collrun_request *spare = request_spare_take(g, call);
    return spare ? request_start_spare(g, spare, CALL_RECORD_SITE, out)
                 : request_start_all(g, call, 1, out, CALL_RECORD_SITE);
}

int collrun_start_many(struct collrun_group *g, const struct collrun_call *calls, int n,
                       struct collrun_request **out)
{
    int rc = request_check_start(g, calls, out);
    return rc == COLLRUN_OK ? request_start_all(g, calls, n, out, CALL_RECORD_SITE) : rc;
}
