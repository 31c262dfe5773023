/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations in flight: made by collrun_start and collrun_start_many, freed by the test or wait
 * that learns of their end. A request is one allocation: itself, copies of its calls, copies of
 * their count arrays. It holds a reference to its group, so that it can be waited for after the
 * group was destroyed.
 */
#include "check.h"
#include "coll.h"
#include "names.h"
#include "stage.h"

#include "base/loop.h"

#include <stdlib.h>
#include <string.h>

/* How long after its time-out a request that its backend has forgotten is ended by the engine. */
enum { SLACK_NS = 1000000000 };

static const size_t **arrays_of(struct collrun_call *call, uint32_t i)
{
    const size_t **fields[4] = {&call->sendcounts, &call->senddispls, &call->recvcounts,
                                &call->recvdispls};
    return fields[i];
}

static size_t count_arrays(const struct collrun_call *calls, uint32_t ncalls)
{
    size_t n = 0;
    for (uint32_t i = 0; i < 4 * ncalls; i++) {
        struct collrun_call call = calls[i / 4];
        n += *arrays_of(&call, i % 4) != NULL;
    }
    return n;
}

struct collrun_request *request_new(struct collrun_group *g, const struct group_side *side,
                                    const struct collrun_call *calls, uint32_t ncalls,
                                    uint64_t number)
{
    size_t calls_len = ncalls * sizeof *calls, array_len = side->nplaces * sizeof(size_t);
    struct collrun_request *r =
        calloc(1, sizeof *r + calls_len + count_arrays(calls, ncalls) * array_len);
    if (!r)
        return NULL;
    uint64_t now = now_ns(), timeout = calls->timeout_ns;
    r->group = g;
    r->ncalls = ncalls;
    r->number = number;
    r->deadline_ns = timeout > UINT64_MAX - now - SLACK_NS ? UINT64_MAX : now + timeout + SLACK_NS;
    r->calls = (struct collrun_call *)(r + 1);
    memcpy(r->calls, calls, calls_len);
    char *free_room = (char *)r->calls + calls_len;
    for (uint32_t i = 0; i < ncalls; i++) {
        for (uint32_t k = 0; k < 4; k++) {
            const size_t **array = arrays_of(&r->calls[i], k);
            if (!*array)
                continue;
            memcpy(free_room, *array, array_len);
            *array = (const size_t *)(void *)free_room;
            free_room += array_len;
        }
    }
    atomic_init(&r->status, COLLRUN_AGAIN);
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
    return r;
}

void request_free(struct collrun_request *r)
{
    if (r->stage)
        stage_out(r->stage, COLLRUN_ERR_ABORTED);
    group_unref(r->group);
    free(r->failure);
    free(r);
}

/* The end of a finished request. */
static int collect(struct collrun_request *r)
{
    int status = atomic_load_explicit(&r->status, memory_order_acquire);
    if (status != COLLRUN_OK && r->failure)
        error_restore(r->failure);
    else if (status != COLLRUN_OK)
        error_set(status, "group %s: %s", r->group->name, collrun_strstatus(status));
    request_free(r);
    return status;
}

int request_wait(struct collrun_request *r)
{
    if (atomic_load_explicit(&r->status, memory_order_acquire) == COLLRUN_AGAIN)
        lane_wait(r);
    return collect(r);
}

int collrun_wait(struct collrun_request *request)
{
    if (!request)
        return error_set(COLLRUN_ERR_INVALID, "the request is NULL");
    return request_wait(request);
}

int collrun_wait_stream(struct collrun_request *request, int device, void *stream)
{
    if (!request)
        return error_set(COLLRUN_ERR_INVALID, "the request is NULL");
    const struct collrun_group *g = request->group;
    bool first = request->lane->backend == g->sides[0].backend;
    uint32_t devices = g->sides[first ? 0 : 1].ndevices;
    if (device < 0 || (devices && (uint32_t)device >= devices))
        return error_set(COLLRUN_ERR_INVALID, "group %s: device %d is not one of its %u GPUs",
                         g->name, device, devices);
    int rc = lane_order(request, (uint32_t)device, stream);
    if (rc != COLLRUN_OK)
        return error_wrap(rc, g->name, request->number, g->name);
    int status = atomic_load_explicit(&request->status, memory_order_acquire);
    if (status == COLLRUN_OK || status == COLLRUN_AGAIN)
        return COLLRUN_OK;
    if (request->failure)
        error_restore(request->failure);
    return status;
}

int collrun_test(struct collrun_request *request)
{
    if (!request)
        return error_set(COLLRUN_ERR_INVALID, "the request is NULL");
    if (atomic_load_explicit(&request->status, memory_order_acquire) == COLLRUN_AGAIN) {
        lane_poke(request->lane);
        if (atomic_load_explicit(&request->status, memory_order_acquire) == COLLRUN_AGAIN)
            return COLLRUN_AGAIN;
    }
    return collect(request);
}

int collrun_wait_all(struct collrun_request **requests, int n)
{
    int first = COLLRUN_OK;
    struct error_record reason = {0};
    if (n < 0 || (n && !requests))
        return error_set(COLLRUN_ERR_INVALID, "wait_all of %d requests", n);
    for (int i = 0; i < n; i++) {
        int rc = requests[i] ? request_wait(requests[i]) : COLLRUN_OK;
        requests[i] = NULL;
        if (first == COLLRUN_OK && rc != COLLRUN_OK) {
            first = rc;
            reason = *error_get();
        }
    }
    if (first != COLLRUN_OK)
        error_restore(&reason);
    return first;
}

/* ---- starting ---- */

/* Inside the group. */
static int launch(struct collrun_group *g, const struct route *route, struct collrun_call *calls,
                  uint32_t n, struct collrun_request **out)
{
    struct stage *stage = NULL;
    enum group_lane which = group_lane_of(calls->kind);
    uint64_t number = group_number(g, which);
    if (atomic_load_explicit(&g->fate, memory_order_acquire) != 0)
        return group_refuse(g, calls->kind, number);
    for (uint32_t i = 0; i < n; i++)
        call_complete(g, &calls[i]);
    error_clear_cause();
    int rc = route->staged ? stage_in(g, calls, n, &stage) : COLLRUN_OK;
    if (rc != COLLRUN_OK)
        return group_failed(g, calls->kind, number, rc);
    struct collrun_request *r = request_new(g, route->side, calls, n, number);
    if (r) {
        r->stage = stage;
        r->staged = stage != NULL;
    } else if (stage) {
        stage_out(stage, COLLRUN_ERR_NO_MEMORY);
    }
    rc = r ? lane_submit(route->side->lane[which], r) : COLLRUN_ERR_NO_MEMORY;
    if (rc == COLLRUN_OK) {
        *out = r;
        return rc;
    }
    if (r)
        request_free(r);
    error_clear_cause();
    return group_failed(g, calls->kind, number, rc);
}

/* Takes over the callers' structs, checked. */
static int import_all(struct collrun_group *g, const char *calls, size_t stride, uint32_t n,
                      struct collrun_call *own, struct route *route)
{
    int rc = COLLRUN_OK;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < n; i++)
        rc = call_import(g, (const struct collrun_call *)(const void *)(calls + i * stride),
                         &own[i]);
    if (rc == COLLRUN_OK)
        rc = call_check_all(g, own, n, route);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < n; i++) {
        if (group_lane_of(own[i].kind) == GROUP_MESSAGES)
            call_as_bytes(route->side, &own[i]);
        call_trim(route->side, &own[i]);
    }
    return rc;
}

int collrun_start(struct collrun_group *g, const struct collrun_call *call,
                  struct collrun_request **out)
{
    return collrun_start_many(g, call, 1, out);
}

int collrun_start_many(struct collrun_group *g, const struct collrun_call *calls, int n,
                       struct collrun_request **out)
{
    struct collrun_call few[8], *own = few;
    struct route route;
    if (!g || !calls || !out)
        return error_set(COLLRUN_ERR_INVALID, "the %s is NULL",
                         !g       ? "group"
                         : !calls ? "call"
                                  : "place for the request");
    if (n < 1)
        return error_set(COLLRUN_ERR_INVALID, "group %s: a request of %d calls", g->name, n);
    if (n > (int)(sizeof few / sizeof *few) && !(own = calloc((size_t)n, sizeof *own)))
        return error_set(COLLRUN_ERR_NO_MEMORY, "group %s: out of memory for %d calls", g->name, n);
    /* An array of structs that were compiled with another size is stepped through with that size.
     */
    int rc = import_all(g, (const char *)calls, calls->size, (uint32_t)n, own, &route);
    if (rc == COLLRUN_OK && (rc = group_enter(g, kind_name(own->kind))) == COLLRUN_OK) {
        rc = launch(g, &route, own, (uint32_t)n, out);
        group_leave(g);
    }
    if (own != few)
        free(own);
    return rc;
}
