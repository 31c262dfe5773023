/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests from their allocation to their end, and the list of those that a workload has to collect
 * by test or wait.
 */
#include "base/call_text.h"
#include "base/loop.h"
#include "base/standstill.h"
#include "core/process.h"
#include "observe/call_record.h"
#include "ops/batch.h"
#include "ops/bounce.h"
#include "ops/request.h"
#include "ops/stream_events.h"
#include "progress/progress_queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

struct collrun_request *request_alloc(const struct route *route, const struct collrun_call *calls,
                                      uint32_t ncalls, uint64_t number)
{
    struct collrun_group *g = route->gb->group;
    size_t array_len = route->gb->comm_size * sizeof(size_t);
    size_t len = sizeof(struct collrun_request) + ncalls * sizeof *calls;
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
    r->calls = (struct collrun_call *)(r + 1);
    for (uint32_t i = 0; i < ncalls; i++)
        r->calls[i] = calls[i];
    request_copy_arrays(r, array_len);
    atomic_init(&r->status, COLLRUN_AGAIN);
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
    return r;
}

static void request_record(const struct route *route, struct collrun_request *r)
{
    r->record = (kind_is_collective(r->calls->kind)
                     ? call_record_collectives
                     : call_record_messages)(route, r->calls, r->ncalls, r->number, RECORD_POSTED);
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
    request_record(route, r);
    return r;
}

/* What its last use has left. Its other members are those of a new request still. */
void request_renew(const struct route *route, struct collrun_request *r, uint64_t number)
{
    r->number = r->last_number = number;
    r->starter = thread_context;
    r->nrecord = 1;
    r->renewed = true;
    r->deferred = r->started = r->expired = r->queued = false;
    r->withdrawal = PQ_WITHDRAWAL_NONE;
    r->handle = NULL;
    r->batch = (struct p2p_batch){0};
    r->next = r->later = NULL;
    r->link = NULL;
    atomic_store_explicit(&r->status, COLLRUN_AGAIN, memory_order_relaxed);
    request_record(route, r);
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
    r->listed = r->queued = true;
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
    control_log(&g->process->control, COLLRUN_LOG_WARN, text);
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
