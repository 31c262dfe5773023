/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations in flight, from their allocation to their end: started in request_start.c, freed by
 * the test or wait that returns their result. Those that are never tested or waited for are
 * reported when their group is closed.
 *
 * A spare is kept in a place of its group. A place holds NULL, a spare, or request_spare_closed.
 * Who takes a spare out acquires what the one who kept it has released.
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
#include "ops/bounce.h"
#include "ops/consistency.h"
#include "progress/progress.h"
#include "progress/progress_queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- allocation ---- */

/* The engine ends a request this long after its time-out if the backend does not. */
enum { SLACK_NS = 1000000000 };

/* The count arrays of a call: how many, and where the call points to them. */
struct request_arrays {
    uint32_t n;
    const size_t **of[4];
};

static struct request_arrays request_arrays_of(struct collrun_call *call)
{
    if (!collrun_kind_is_vector(call->kind))
        return (struct request_arrays){.n = 0};
    return (struct request_arrays){
        4, {&call->sendcounts, &call->senddispls, &call->recvcounts, &call->recvdispls}};
}

static size_t request_count_arrays(const struct collrun_call *calls, uint32_t ncalls)
{
    size_t n = 0;
    for (uint32_t i = 0; i < ncalls; i++) {
        struct request_arrays arrays =
            request_arrays_of((struct collrun_call *)(uintptr_t)&calls[i]);
        for (uint32_t k = 0; k < arrays.n; k++)
            n += *arrays.of[k] != NULL;
    }
    return n;
}

static void request_copy_arrays(struct collrun_request *r, size_t array_len)
{
    char *free_room = (char *)r->calls + r->ncalls * sizeof *r->calls;
    for (uint32_t i = 0; i < r->ncalls; i++) {
        struct request_arrays arrays = request_arrays_of(&r->calls[i]);
        for (uint32_t k = 0; k < arrays.n; k++) {
            if (!*arrays.of[k])
                continue;
            memcpy(free_room, *arrays.of[k], array_len);
            *arrays.of[k] = (const size_t *)(void *)free_room;
            free_room += array_len;
        }
    }
}

void request_op_attach_wild(struct request_op *op, struct collrun_call *call)
{
    *op = (struct request_op){
        .source = -1, .source_out = call->source, .tag_out = call->received_tag};
    if (call->kind == COLLRUN_RECV_ANY)
        call->source = &op->source;
    if (call->tag == COLLRUN_ANY_TAG)
        call->received_tag = &op->tag;
}

void request_op_deliver_wild(const struct request_op *op, const struct collrun_call *call,
                             int status)
{
    if (status != COLLRUN_OK)
        return;
    if (call->kind == COLLRUN_RECV_ANY && op->source_out)
        *op->source_out = op->source;
    if (call->tag == COLLRUN_ANY_TAG && op->tag_out)
        *op->tag_out = op->tag;
}

struct collrun_request *request_alloc(const struct route *route, const struct collrun_call *calls,
                                      uint32_t ncalls, uint64_t number)
{
    struct collrun_group *g = route->gb->group;
    size_t array_len = route->gb->comm_size * sizeof(size_t);
    size_t len =
        sizeof(struct collrun_request) + ncalls * (sizeof(struct request_op) + sizeof *calls);
    size_t more = ncalls == 1 && !collrun_kind_is_vector(calls->kind)
                      ? sizeof *calls /* for `given` */
                      : request_count_arrays(calls, ncalls) * array_len;
    struct collrun_request *r = malloc(len + more);
    if (!r)
        return NULL;
    memset(r, 0, len); /* a length that the compiler does not know: its own loop is slow */
    r->group = g;
    r->pq = route->gb->pq[group_queue_of(calls->kind)];
    r->ncalls = ncalls;
    r->number = number;
    r->starter = thread_context;
    r->posted = (struct request_op *)(r + 1);
    r->calls = (struct collrun_call *)(void *)(r->posted + ncalls);
    for (uint32_t i = 0; i < ncalls; i++) {
        r->calls[i] = calls[i];
        request_op_attach(&r->posted[i], &r->calls[i]);
    }
    request_copy_arrays(r, array_len);
    atomic_init(&r->status, COLLRUN_AGAIN);
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
    return r;
}

struct collrun_request *request_new(const struct route *route, const struct collrun_call *calls,
                                    uint32_t ncalls, uint64_t number, struct bounce *bounce)
{
    struct collrun_request *r = request_alloc(route, calls, ncalls, number);
    if (!r) {
        if (bounce)
            bounce_out(bounce, COLLRUN_ERR_NO_MEMORY);
        return NULL;
    }
    r->last_number = number + batch_numbers(route->gb, calls, ncalls) - 1;
    r->exec_batch = batch_is(route->gb, calls, ncalls) && !batch_is_native(route, calls, ncalls);
    r->bounce = bounce;
    r->bounced = bounce != NULL;
    r->nrecord = call_record_entries(route->gb, calls, ncalls);
    r->record = request_record(route, r);
    return r;
}

void request_set_deadline(struct collrun_request *r)
{
    const uint64_t now = now_coarse_ns();
    r->deadline_ns =
        deadline_after(now + SLACK_NS, batch_timeout(r->pq->config.ctx, r->calls, r->ncalls));
    r->stopped_ns = standstill_total(now);
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
    thread_record_drop(r);
    request_free(r);
    error_clear_cause();
    if (rc == COLLRUN_ERR_ABORTED)
        error_cause(rc, "the group was destroyed");
    call_record_end(g, group_queue_of(kind), index, (uint32_t)nrecord, number, rc);
    rc = group_op_failed(g, kind, number, rc);
    return rc == COLLRUN_OK ? COLLRUN_ERR_ABORTED : rc; /* never OK: the request is freed */
}

void request_list_add(struct collrun_request *r)
{
    struct group_requests *list = &r->group->requests;
    r->listed = true;
    pthread_mutex_lock(&list->lock);
    r->older = list->newest;
    r->older_link = &list->newest;
    if (r->older)
        r->older->older_link = &r->older;
    list->newest = r;
    pthread_mutex_unlock(&list->lock);
}

void request_list_remove(struct collrun_request *r)
{
    if (!r->listed) /* that of a creation has no group */
        return;
    struct group_requests *list = &r->group->requests;
    r->listed = false;
    pthread_mutex_lock(&list->lock);
    *r->older_link = r->older;
    if (r->older)
        r->older->older_link = r->older_link;
    pthread_mutex_unlock(&list->lock);
}

void request_report_uncollected(struct collrun_group *g)
{
    char call[CALL_TEXT_LEN + 256], workload[160] = "", text[768];
    uint32_t n = 0;
    pthread_mutex_lock(&g->requests.lock);
    for (const struct collrun_request *r = g->requests.newest; r; r = r->older) {
        n++;
        if (r->older)
            continue;
        call_text_numbered(&r->calls[0], g->id.name, r->number, call, sizeof call);
        if (r->starter)
            snprintf(workload, sizeof workload, ", started by workload \"%s\"",
                     r->starter->desc->name);
    }
    pthread_mutex_unlock(&g->requests.lock);
    if (!n)
        return;
    snprintf(text, sizeof text,
             "group \"%s\" is closed, but %u request%s never waited for; the first is %s%s",
             g->id.name, n, n == 1 ? " was" : "s were", call, workload);
    control_warn(&g->process->control, COLLRUN_LOG_WARN, text);
}

void request_free(struct collrun_request *r)
{
    if (r->shared)
        return;
    request_list_remove(r);
    if (r->bounce)
        bounce_out(r->bounce, COLLRUN_ERR_ABORTED);
    if (r->release)
        r->release(r);
    if (r->group)
        group_unref(r->group);
    stream_events_free(r->events);
    free(r->failure);
    free(r);
}

/* ---- spares ---- */

#define REQUEST_SPARE_MISSES 8u /* starts of other calls, after which a spare makes room */

static struct collrun_request request_spare_closed;

static bool request_spare_is_for(const struct collrun_group *g, const struct collrun_call *call)
{
    return !g->kinds.n && !collrun_kind_is_vector(call->kind) && !call->user_op && !call->stream;
}

static _Atomic(struct collrun_request *) *request_spare_place(struct collrun_group *g,
                                                              const struct collrun_call *call)
{
    const uintptr_t hash = (uintptr_t)call->send ^ (uintptr_t)call->recv ^
                           (uintptr_t)call->count << 4 ^ (uintptr_t)call->kind << 4;
    return &g->requests.spares[(hash >> 4 ^ hash >> 12) % REQUEST_SPARES];
}

/* Fields that messages alone have. */
static bool request_spare_is_same_message(const struct collrun_call *a,
                                          const struct collrun_call *b)
{
    return a->peer == b->peer && a->source == b->source && a->tag == b->tag &&
           a->received == b->received && a->received_tag == b->received_tag;
}

/* The fields of v-forms are left out. Neighbours of 32 bits are not compared one after the other:
 * the compiler would load them as one, which waits for the caller's stores if these were two. */
static bool request_spare_is_same(const struct collrun_call *a, const struct collrun_call *b)
{
    return a->kind == b->kind && a->send == b->send && a->size == b->size && a->recv == b->recv &&
           a->op == b->op && a->count == b->count && a->dtype == b->dtype &&
           a->device == b->device && a->stream == b->stream && a->root == b->root &&
           a->timeout_ns == b->timeout_ns && a->peer_device == b->peer_device &&
           a->user_op == b->user_op &&
           (kind_is_collective(a->kind) || request_spare_is_same_message(a, b));
}

void request_spare_prepare(struct collrun_request *r, const struct collrun_call *given)
{
    if (!request_spare_is_for(r->group, r->calls) || given->size != sizeof *given)
        return;
    struct collrun_call *own = r->calls + 1; /* request_alloc has left room for it */
    *own = *given;
    r->given = own;
    r->place = request_spare_place(r->group, own);
}

static bool request_spare_keep(struct collrun_request *r)
{
    struct collrun_request *none = NULL;
    return atomic_compare_exchange_strong_explicit(r->place, &none, r, memory_order_release,
                                                   memory_order_relaxed);
}

void request_spare_keep_or_free(struct collrun_request *r)
{
    const bool may = r->given && r->misses < REQUEST_SPARE_MISSES &&
                     atomic_load_explicit(&r->status, memory_order_relaxed) == COLLRUN_OK;
    if (may)
        request_list_remove(r);
    if (!may || !request_spare_keep(r))
        request_free(r);
}

struct collrun_request *request_spare_take(struct collrun_group *g, const struct collrun_call *call)
{
    if (call->size != sizeof *call)
        return NULL;
    _Atomic(struct collrun_request *) *place = request_spare_place(g, call);
    struct collrun_request *r = atomic_load_explicit(place, memory_order_relaxed);
    if (!r || r == &request_spare_closed ||
        !atomic_compare_exchange_strong_explicit(place, &r, NULL, memory_order_acquire,
                                                 memory_order_relaxed))
        return NULL;
    const bool same = request_spare_is_same(r->given, call);
    r->misses = same ? 0 : r->misses + 1;
    if (same)
        return r;
    request_spare_keep_or_free(r); /* it stays where it is while it is likely to be started again */
    return NULL;
}

void request_spare_add(const struct route *route, const struct collrun_call *call,
                       const struct collrun_call *given)
{
    struct collrun_group *g = route->gb->group;
    if (atomic_load_explicit(request_spare_place(g, given), memory_order_relaxed))
        return;
    struct collrun_request *r = request_alloc(route, call, 1, 0);
    if (!r)
        return;
    request_spare_prepare(r, given);
    atomic_store_explicit(&r->status, COLLRUN_OK, memory_order_relaxed);
    request_spare_keep_or_free(r);
}

void request_spare_close(struct collrun_group *g)
{
    for (int i = 0; i < REQUEST_SPARES; i++) {
        struct collrun_request *r = atomic_exchange_explicit(
            &g->requests.spares[i], &request_spare_closed, memory_order_acquire);
        if (r && r != &request_spare_closed)
            request_free(r);
    }
}

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

/* Behind the work on its streams, with copies of its buffers, compared or emulated. */
static int request_exec_any(const struct group_backend *gb, struct collrun_request *r)
{
    struct route route = {.gb = (struct group_backend *)(uintptr_t)gb,
                          .bounced = r->bounces_late,
                          .settled = r->events || r->settled};
    error_clear_cause();
    int rc = r->events ? request_settle(r) : COLLRUN_OK;
    if (rc == COLLRUN_OK)
        rc = bounce_in(&route, r->calls, r->ncalls, &r->bounce);
    return rc == COLLRUN_OK ? batch_exec(gb, r, route.settled) : rc;
}

static int request_exec(void *ctx, struct collrun_request *r)
{
    const struct progress_queue *pq = r->pq;
    if (collrun_kind_is_message(r->calls->kind) && pq->config.p2p)
        return p2p_exec(pq->config.p2p, r->calls, r->ncalls, &r->batch, &pq->contended);
    const bool plain = r->plain || (!r->events && !r->bounces_late &&
                                    consistency_is_plain(ctx, pq, r->calls, r->ncalls));
    if (plain && !pq->requests.in_flight)
        return backend_exec(pq->config.backend, pq->config.handle, r->calls, 1);
    return request_exec_any(ctx, r);
}

/* Returns the status that waiters get. */
static int request_failed(struct collrun_request *r, int status)
{
    status = group_op_failed(r->group, r->calls->kind, r->number, status);
    call_record_end(r->group, group_queue_of(r->calls->kind), r->record, r->nrecord, r->last_number,
                    status);
    if (status == COLLRUN_OK)
        return status;
    r->failure = malloc(sizeof *r->failure);
    if (r->failure)
        error_hand_over(r->failure);
    return status;
}

static int request_finished(struct collrun_request *r, int status)
{
    const enum collrun_kind kind = r->calls->kind;
    if (r->bounce)
        status = bounce_out(r->bounce, status);
    r->bounce = NULL;
    if (status != COLLRUN_OK)
        return request_failed(r, status);
    for (uint32_t i = 0; collrun_kind_is_message(kind) && r->posted && i < r->ncalls; i++)
        request_op_deliver(&r->posted[i], &r->calls[i], status);
    if (collrun_kind_is_message(kind))
        call_record_received(r->group, r->record, r->calls, r->ncalls);
    call_record_end(r->group, group_queue_of(kind), r->record, r->nrecord, r->last_number, status);
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

static inline void request_begin(const struct collrun_request *r)
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

const struct group_ops request_group_ops = {.requests = &request_pq_ops,
                                            .closing = request_spare_close};

int request_refuse(const struct route *route, const struct collrun_call *calls, uint32_t ncalls,
                   uint64_t number, int status)
{
    status = group_op_failed(route->gb->group, calls->kind, number, status);
    call_record_not_begun(route, calls, ncalls, number, status);
    return status;
}

/* ---- waiting ---- */

/* NULL: none, or the request is one that holds nothing. */
static struct record_writer *request_writer(const struct collrun_request *r)
{
    return r->group ? r->group->process->writer : r->writer;
}

static int request_status(const struct collrun_request *r)
{
    return atomic_load_explicit(&r->status, memory_order_acquire);
}

/* The error message of a finished request, if it has failed, becomes that of this thread. */
static void request_restore_failure(const struct collrun_request *r, int status)
{
    if (status != COLLRUN_OK && r->failure)
        error_deliver(r->failure);
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

/* A request that was deferred; called by the thread that is directly inside. AGAIN: another thread
 * needs the queue, and the messages of the request have begun. */
static int request_run_direct(struct collrun_request *r)
{
    int status = atomic_load_explicit(&r->group->status.code, memory_order_acquire);
    assert(r->ncalls == 1);
    request_begin(r);
    if (status == COLLRUN_OK)
        status = request_exec(r->pq->config.ctx, r);
    if (status == COLLRUN_OK && r->plain) /* nothing is copied back or delivered */
        call_record_end(r->group, GROUP_COLLECTIVES, r->record, 1, r->number, status);
    else if (status != COLLRUN_AGAIN)
        status = request_finished(r, status);
    return status;
}

/* True: this thread has executed the request as a blocking call, and it is finished. */
static bool request_run_deferred(struct collrun_request *r)
{
    if (!pq_enter_deferred(r))
        return false;
    const int status = request_run_direct(r);
    pq_leave_deferred(r, status);
    return status != COLLRUN_AGAIN;
}

static void request_await(struct collrun_request *r)
{
    if (r->deferred && request_run_deferred(r))
        return;
    if (request_status(r) == COLLRUN_AGAIN && r->release)
        pq_await_finished(r);
    else if (request_status(r) == COLLRUN_AGAIN)
        pq_wait(r);
}

/* The call that has entered, or has posted the request, waits for it, and returns its status. */
static int request_wait_entered(struct record_writer *w, struct record_thread *t,
                                struct collrun_request *r, uint64_t site)
{
    thread_record_await(w, t, r);
    thread_record_inside(t, RECORD_ALL, r, site);
    request_await(r);
    thread_record_leave(w, t, r);
    return request_collect(r);
}

static int request_wait(struct collrun_request *r, uint64_t site)
{
    struct record_writer *w = request_writer(r);
    return request_wait_entered(w, r->shared ? NULL : thread_record_enter(w), r, site);
}

int request_run(const struct route *route, const struct collrun_call *calls, uint32_t ncalls,
                uint64_t number, struct bounce *bounce)
{
    struct record_writer *w = route->gb->group->process->writer;
    struct collrun_request *r = request_new(route, calls, ncalls, number, bounce);
    if (!r) {
        error_clear_cause();
        return request_refuse(route, calls, ncalls, number, COLLRUN_ERR_NO_MEMORY);
    }
    struct record_thread *t = thread_record_post(r, route->site);
    int rc = request_submit(r);
    if (rc == COLLRUN_OK)
        return request_wait_entered(w, t, r, route->site);
    thread_record_pass(t);
    return rc;
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
    struct record_thread *t = thread_record_withdraw(request);
    int rc = pq_withdraw(request);
    thread_record_withdrawn(t, request, rc);
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
    return request_wait(request, CALL_RECORD_SITE);
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
    if (rc == COLLRUN_OK) {
        struct record_thread *t = thread_record_enter_other(request_writer(request));
        rc = pq_order_stream(request, (uint32_t)device, stream);
        thread_record_return(t);
    }
    if (rc != COLLRUN_OK)
        return error_wrap(rc, g->id.name, request->number, g->id.name);
    int status = request_status(request);
    if (status == COLLRUN_OK || status == COLLRUN_AGAIN)
        return COLLRUN_OK;
    if (request->failure)
        error_deliver(request->failure);
    return status;
}

int collrun_test(struct collrun_request *request)
{
    int status = collrun_poll(request);
    if (status == COLLRUN_AGAIN || !request || fork_guard_in_child)
        return status;
    struct record_writer *w = request_writer(request);
    struct record_thread *t = request->shared ? NULL : thread_record_enter(w);
    thread_record_inside(t, RECORD_NONE, request, CALL_RECORD_SITE);
    thread_record_leave(w, t, request);
    return request_collect(request);
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

/* The requests of an array: the first that is not NULL, nor a send that is done; NULL: none. */
static struct collrun_request *request_first(struct collrun_request **requests, int n)
{
    for (int i = 0; i < n; i++)
        if (requests[i] && !requests[i]->shared)
            return requests[i];
    return NULL;
}

/* Inside a wait for all of them, or any. NULL: it is not recorded. */
static struct record_thread *request_enter_all(struct collrun_request **requests, int n,
                                               enum record_mode mode, uint64_t site)
{
    const struct collrun_request *first = request_first(requests, n);
    struct record_writer *w = first ? request_writer(first) : NULL;
    struct record_thread *t = thread_record_enter(w);
    for (int i = 0; t && i < n; i++)
        if (requests[i] && !requests[i]->shared)
            thread_record_await(w, t, requests[i]);
    if (t)
        thread_record_inside(t, mode, first, site);
    return t;
}

static void request_await_all(struct collrun_request **requests, int n, uint64_t site)
{
    struct record_thread *t = request_enter_all(requests, n, RECORD_ALL, site);
    for (int i = 0; i < n; i++)
        if (requests[i])
            request_await(requests[i]);
    if (!t)
        return;
    record_leave(t);
    for (int i = 0; i < n; i++)
        if (requests[i])
            thread_record_complete(request_writer(requests[i]), t, requests[i]);
    record_outside(t);
}

int collrun_wait_all(struct collrun_request **requests, int n)
{
    int first = COLLRUN_OK;
    struct error_record reason = {0};
    if (n < 0 || (n && !requests))
        return error_set(COLLRUN_ERR_INVALID, "wait_all of %d requests", n);
    if (fork_guard_in_child)
        return fork_guard_refuse("wait_all");
    request_await_all(requests, n, CALL_RECORD_SITE);
    for (int i = 0; i < n; i++) {
        int rc = requests[i] ? request_collect(requests[i]) : COLLRUN_OK;
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
        error_deliver(&reason);
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
 * the worker of its queue. Wait reports list no thread that waits for one of several requests, so
 * none is certain meanwhile. */
static int request_await_any(struct collrun_request **requests, int n, atomic_int *busy)
{
    int done = -1;
    threads_busy(busy, 1);
    for (unsigned round = 0; done < 0; round++) {
        if (request_poll_all(requests, n))
            round = 0;
        done = request_find_finished(requests, n);
        if (done < 0)
            progress_idle(round);
    }
    threads_busy(busy, -1);
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
    if (*index < 0 || !requests[*index]->shared) {
        struct record_thread *t = request_enter_all(requests, n, RECORD_ANY, CALL_RECORD_SITE);
        if (*index < 0)
            *index = request_await_any(requests, n, requests[first]->pq->config.busy);
        thread_record_leave(request_writer(requests[*index]), t, requests[*index]);
    }
    int status = request_collect(requests[*index]);
    requests[*index] = NULL;
    return status;
}
