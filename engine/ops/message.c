/* SPDX-License-Identifier: Apache-2.0
 *
 * See message.h.
 */
#include "ops/message.h"

#include "base/loop.h"
#include "base/names.h"
#include "base/standstill.h"
#include "core/backend.h"
#include "group/group.h"
#include "group/thread_record.h"
#include "observe/call_record.h"
#include "ops/args.h"
#include "ops/bounce.h"
#include "ops/consistency.h"
#include "ops/request.h"
#include "progress/progress.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- running ---- */

enum { MESSAGE_DIRECT = 2 }; /* calls of a blocking function, at most */

/* True: this thread is directly inside. */
static bool message_begin(const struct route *route, struct progress_queue *pq, uint32_t ncalls)
{
    bool can = pq->config.p2p ? ncalls <= MESSAGE_DIRECT : !pq->starts && ncalls == 1;
    return can && !route->bounced && !route->waits && pq_enter_direct(pq);
}

/* As a request; buffers in device memory are copied, or their streams waited for. */
static int message_run_queued(const struct route *route, struct collrun_call *calls,
                              uint32_t ncalls)
{
    struct collrun_group *g = route->gb->group;
    struct bounce *bounce = NULL;
    uint64_t number = group_number_shared(g);
    if (group_has_failed(g))
        return group_reject(g, calls->kind, number);
    for (uint32_t i = 0; i < ncalls; i++)
        call_complete(route, &calls[i]);
    error_clear_cause();
    int rc = bounce_in(route, calls, ncalls, &bounce);
    return rc == COLLRUN_OK ? request_run(route, calls, ncalls, number, bounce)
                            : request_refuse(route, calls, ncalls, number, rc);
}

/* A short send that leaves at once is recorded when it has left: its receiver does not wait for
 * that. False: it has to be executed. */
static bool message_send_short(const struct route *route, struct progress_queue *pq,
                               const struct collrun_call *call, uint64_t number)
{
    if (call->kind != COLLRUN_SEND || !request_send_now(route, pq, call, number))
        return false;
    pq_leave_direct(pq);
    return true;
}

/* The cause of a failure is stored. AGAIN: another thread needs the queue. */
static int message_run_now(struct progress_queue *pq, struct collrun_request *r)
{
    if (pq->config.p2p)
        return p2p_exec(pq->config.p2p, r->calls, r->ncalls, &r->batch, &pq->contended);
    error_clear_cause();
    return backend_exec(pq->config.backend, pq->config.handle, r->calls, r->ncalls);
}

/* The messages of this thread go on as a request, which has its calls and its batch. */
static int message_run_on(struct collrun_group *g, struct progress_queue *pq,
                          struct collrun_request *r, uint64_t number, uint64_t index)
{
    r->group = g;
    r->record = index;
    r->nrecord = r->ncalls;
    r->number = r->last_number = number;
    r->bounce = NULL;
    r->bounced = r->exec_batch = false;
    r->failure = NULL;
    r->posted = NULL;
    return request_run_adopted(pq, r);
}

/* The thread is directly inside. A receive from any rank, or with any tag, has places of this
 * thread for those of its message. */
static int message_run_direct(const struct route *route, struct progress_queue *pq,
                              struct collrun_call *calls, uint32_t ncalls, uint64_t number)
{
    struct collrun_group *g = route->gb->group;
    struct collrun_request r; /* of which the rest is set when another thread needs the queue */
    const uint64_t called = call_record_ticks(g);
    call_record_enter_message(g, calls, number, called);
    uint64_t index = call_record_messages_at(route, calls, ncalls, number, RECORD_STARTED, called);
    struct record_thread *t = thread_record_messages(g, calls, ncalls, number, called, route->site);
    r.calls = calls;
    r.ncalls = ncalls;
    int rc = message_run_now(pq, &r);
    if (rc == COLLRUN_AGAIN) {
        /* Another thread may destroy the group meanwhile; what it has in the record is needed. */
        atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
        rc = message_run_on(g, pq, &r, number, index);
        thread_record_messages_end(g, t, calls, ncalls, rc);
        group_unref(g);
        return rc;
    }
    if (rc != COLLRUN_OK)
        rc = group_op_failed(g, calls->kind, number, rc);
    else
        call_record_received(g, index, calls, ncalls);
    call_record_end(g, GROUP_MESSAGES, index, ncalls, number, rc);
    thread_record_messages_end(g, t, calls, ncalls, rc);
    pq_leave_direct(pq); /* the last use of the group: its end waits for this thread */
    return rc;
}

int message_run(const struct route *route, struct collrun_call *calls, uint32_t ncalls)
{
    struct collrun_group *g = route->gb->group;
    struct progress_queue *pq = route->gb->pq[GROUP_MESSAGES];
    struct request_op ops[MESSAGE_DIRECT];
    if (!message_begin(route, pq, ncalls))
        return message_run_queued(route, calls, ncalls);
    uint64_t number = group_number(g, GROUP_MESSAGES, 1);
    if (group_has_failed(g)) {
        pq_leave_direct(pq);
        return group_reject(g, calls->kind, number);
    }
    for (uint32_t i = 0; i < ncalls; i++)
        call_complete(route, &calls[i]);
    if (ncalls == 1 && message_send_short(route, pq, calls, number))
        return COLLRUN_OK;
    for (uint32_t i = 0; i < ncalls; i++)
        request_op_attach(&ops[i], &calls[i]);
    int rc = message_run_direct(route, pq, calls, ncalls, number);
    for (uint32_t i = 0; i < ncalls; i++)
        request_op_deliver(&ops[i], &calls[i], rc);
    return rc;
}

/* ---- send, recv ---- */

/* With the fields that the functions below set. */
static int message_run_blocking(struct collrun_group *g, struct collrun_call *call, uint64_t site)
{
    if (!g)
        return error_set(COLLRUN_ERR_INVALID, "%s: the group is NULL", kind_name(call->kind));
    struct route route = {.gb = &g->backends[0]};
    int rc = message_is_plain(g, call) ? COLLRUN_OK : call_check(g, call, &route);
    if (rc != COLLRUN_OK)
        return rc;
    if ((rc = group_enter_for(route.gb, call->kind)) != COLLRUN_OK)
        return rc;
    call_as_bytes(route.gb, call);
    route.site = site;
    rc = message_run(&route, call, 1);
    group_leave_after(route.gb, call->kind);
    return rc;
}

int collrun_send(struct collrun_group *g, const void *buf, size_t count, enum collrun_dtype dtype,
                 int peer)
{
    struct collrun_call call;
    call_init_data(&call, COLLRUN_SEND, buf, NULL, count, dtype);
    call.peer = peer;
    return message_run_blocking(g, &call, CALL_RECORD_SITE);
}

int collrun_recv(struct collrun_group *g, void *buf, size_t count, enum collrun_dtype dtype,
                 int peer)
{
    struct collrun_call call;
    call_init_data(&call, COLLRUN_RECV, NULL, buf, count, dtype);
    call.peer = peer;
    return message_run_blocking(g, &call, CALL_RECORD_SITE);
}

int collrun_recv_any(struct collrun_group *g, void *buf, size_t count, enum collrun_dtype dtype,
                     int *source)
{
    struct collrun_call call;
    call_init_data(&call, COLLRUN_RECV_ANY, NULL, buf, count, dtype);
    call.source = source;
    return message_run_blocking(g, &call, CALL_RECORD_SITE);
}

/* ---- sendrecv ---- */

/* To this rank itself, on a backend without such messages: a copy. */
static int message_check_copy(const struct collrun_group *g, const struct collrun_call *pair)
{
    size_t len;
    if (!dtype_size(pair[0].dtype))
        return error_set(COLLRUN_ERR_INVALID, "sendrecv %s: %d is not an element type", g->id.name,
                         (int)pair[0].dtype);
    if (pair[0].count != pair[1].count)
        return error_set(COLLRUN_ERR_INVALID,
                         "sendrecv %s: this rank sends %zu elements to itself, but receives %zu",
                         g->id.name, pair[0].count, pair[1].count);
    if (__builtin_mul_overflow(pair[0].count, dtype_size(pair[0].dtype), &len) || len > PTRDIFF_MAX)
        return error_set(COLLRUN_ERR_INVALID, "sendrecv %s: %zu elements exceed the address space",
                         g->id.name, pair[0].count);
    if (len && (!pair[0].send || !pair[1].recv))
        return error_set(COLLRUN_ERR_INVALID, "sendrecv %s: a buffer is NULL", g->id.name);
    return call_check_apart(g, &pair[0], &pair[1]);
}

/* False: a buffer is in memory of another kind than that of the group's streams. */
static bool message_has_stream(const struct collrun_group *g, const struct collrun_call *pair)
{
    const struct memory_kind *kind = group_device_kind(g);
    const struct memory_kind *from = memory_kind_of(&g->kinds, pair[0].send, NULL);
    const struct memory_kind *to = memory_kind_of(&g->kinds, pair[1].recv, NULL);
    return (!from || from == kind) && (!to || to == kind);
}

static int message_copy(struct collrun_group *g, const struct collrun_call *pair, uint64_t site)
{
    const struct route route = {.gb = &g->backends[0], .site = site};
    size_t len = pair[0].count * dtype_size(pair[0].dtype);
    uint64_t number;
    bool has_stream = message_has_stream(g, pair);
    void *stream = has_stream ? g->calls.streams[0] : NULL;
    const struct memory_kind *kind = has_stream ? group_device_kind(g) : NULL;
    const struct collrun_memory_copy copy = {
        .size = sizeof copy,
        .ordered = 1,
        .dst = pair[1].recv,
        .src = pair[0].send,
        .len = len,
        .stream = stream,
        .stream_device = group_stream_device(group_device_backend(g), kind, 0, stream),
        .deadline_ns = deadline_after(now_ns(), g->timeout_ns)};
    int rc = message_check_copy(g, pair);
    if (rc == COLLRUN_OK && kind && (rc = route_check_stream(g, pair, kind)) != COLLRUN_OK)
        return error_wrap(rc, g->id.name, 0, "sendrecv");
    if (rc != COLLRUN_OK || (rc = group_enter_for(route.gb, COLLRUN_SEND)) != COLLRUN_OK)
        return rc;
    number = group_number_shared(g);
    error_clear_cause();
    uint64_t index = call_record_messages(&route, pair, 2, number, RECORD_STARTED);
    if (group_has_failed(g))
        rc = group_reject(g, COLLRUN_SEND, number);
    else if (g->kinds.n)
        rc = memory_kind_copy(&g->kinds, &copy);
    else if (len)
        memcpy(pair[1].recv, pair[0].send, len);
    if (rc != COLLRUN_OK && !group_has_failed(g))
        rc = group_op_failed(g, COLLRUN_SEND, number, rc);
    call_record_end(g, GROUP_MESSAGES, index, 2, 0, rc);
    group_leave_after(route.gb, COLLRUN_SEND);
    return rc;
}

static bool message_has_envelopes(const struct collrun_group *g)
{
    bool all = true;
    for (uint32_t i = 0; i < g->nbackends; i++)
        all = all && (g->backends[i].backend->table.flags & COLLRUN_BACKEND_ENVELOPES);
    return all;
}

/* The parameters are those of the public API. NOLINTBEGIN(readability-function-size) */

int collrun_sendrecv(struct collrun_group *g, const void *send, size_t sendcount, int dst,
                     void *recv, size_t recvcount, int src, enum collrun_dtype dtype)
{
    struct collrun_call pair[2];
    struct route route;
    call_init(&pair[0], COLLRUN_SEND);
    call_init(&pair[1], COLLRUN_RECV);
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
    if (to_self && !message_has_envelopes(g))
        return message_copy(g, pair, CALL_RECORD_SITE);
    int rc = call_check_all(g, pair, 2, &route);
    if (rc == COLLRUN_OK)
        rc = call_check_apart(g, &pair[0], &pair[1]);
    if (rc == COLLRUN_OK)
        rc = group_enter_for(route.gb, COLLRUN_SEND);
    if (rc != COLLRUN_OK)
        return rc;
    for (int i = 0; i < 2; i++)
        call_as_bytes(route.gb, &pair[i]);
    route.site = CALL_RECORD_SITE;
    rc = message_run(&route, pair, 2);
    group_leave_after(route.gb, COLLRUN_SEND);
    return rc;
}

/* NOLINTEND(readability-function-size) */

/* ---- probes ---- */

/* collrun_probe and collrun_iprobe. Each look owns the progress queue for a moment, so that other
 * threads send and receive meanwhile. A thread that waits alone sleeps in the backend, as in a
 * receive; beside others, it polls. A group with two backends may get the message on either. */

/* How long a thread sleeps in the backend before it looks at the clock. */
enum { LONGEST_LOOK_NS = 10000000 };

/* ---- arguments ---- */

static int probe_refuse(const struct collrun_group *g, int status)
{
    char where[256];
    snprintf(where, sizeof where, "probe %s", g->id.name);
    return error_wrap(status, g->id.name, 0, where);
}

static int probe_check_backends(const struct collrun_group *g, int peer, uint32_t tag)
{
    const struct collrun_call call = {.kind = peer == COLLRUN_ANY_PEER ? COLLRUN_RECV_ANY
                                                                       : COLLRUN_RECV,
                                      .peer = peer,
                                      .tag = tag};
    for (uint32_t i = 0; i < g->nbackends; i++) {
        const struct backend *b = g->backends[i].backend;
        if (!b->has_transport && !b->table.probe_message)
            return error_cause(COLLRUN_ERR_UNSUPPORTED,
                               "backend \"%s\" cannot look for messages before they are received",
                               b->name);
        error_clear_cause();
        int rc = route_check_receive(&g->backends[i], &call, true);
        if (rc != COLLRUN_OK)
            return rc;
    }
    return COLLRUN_OK;
}

static int probe_check(const struct collrun_group *g, int peer, uint32_t tag,
                       const struct collrun_message_info *out)
{
    if (!out)
        return error_cause(COLLRUN_ERR_INVALID, "the output pointer is NULL");
    if (out->size < offsetof(struct collrun_message_info, count) + sizeof out->count)
        return error_cause(COLLRUN_ERR_INVALID,
                           "the struct for the message has a size of %u bytes; set its member "
                           "`size` to sizeof(struct collrun_message_info)",
                           out->size);
    if (peer != COLLRUN_ANY_PEER && (peer < 0 || (uint32_t)peer >= g->nranks))
        return error_cause(COLLRUN_ERR_INVALID, "peer %d is not a rank of this group of %u", peer,
                           g->nranks);
    if (tag != COLLRUN_ANY_TAG && tag >= TAG_ENGINE)
        return error_cause(COLLRUN_ERR_INVALID, "tag %u is larger than the maximum, %u", tag,
                           TAG_ENGINE - 1);
    return probe_check_backends(g, peer, tag);
}

static void probe_put(const struct p2p_probe *found, struct collrun_message_info *out)
{
    out->source = (int)found->from;
    out->tag = found->envelope.tag;
    out->dtype = (enum collrun_dtype)found->envelope.dtype;
    out->count = (size_t)found->envelope.count;
}

/* ---- looking ---- */

/* OK, AGAIN, or a failure whose cause is stored. */
static int probe_look(struct collrun_group *g, struct p2p_probe *probe)
{
    int rc = COLLRUN_AGAIN;
    for (uint32_t i = 0; rc == COLLRUN_AGAIN && i < g->nbackends; i++)
        rc = pq_probe(g->backends[i].pq[GROUP_MESSAGES], probe);
    return rc;
}

/* The same; may sleep if this thread is alone. */
static int probe_look_long(struct collrun_group *g, struct p2p_probe *probe, uint64_t left_ns,
                           unsigned *round)
{
    struct progress_queue *pq = g->backends[0].pq[GROUP_MESSAGES];
    if (g->nbackends > 1 || !pq->config.p2p || !pq_enter_direct(pq)) {
        int rc = probe_look(g, probe);
        if (rc == COLLRUN_AGAIN)
            progress_idle((*round)++);
        return rc;
    }
    error_clear_cause();
    int rc =
        p2p_probe(pq->config.p2p, probe, left_ns < LONGEST_LOOK_NS ? left_ns : LONGEST_LOOK_NS);
    pq_leave_direct(pq);
    return rc;
}

static int probe_expired(struct collrun_group *g, const struct p2p_probe *probe)
{
    struct group_backend *gb = &g->backends[0];
    struct progress_queue *pq = gb->pq[GROUP_MESSAGES];
    const struct collrun_services *s = &gb->services.table;
    bool named = probe->source != COLLRUN_ANY_SOURCE;
    error_clear_cause();
    if (!pq->config.p2p)
        return s->fail_timeout(s->ctx, g->rank, named ? &probe->source : NULL, named,
                               g->timeout_ns);
    pq_acquire(pq);
    int rc = p2p_probe_expired(pq->config.p2p, probe, g->timeout_ns);
    pq_release(pq);
    return rc;
}

static int probe_loop(struct collrun_group *g, struct p2p_probe *probe)
{
    uint64_t now = now_ns(), stopped = standstill_total(now);
    uint64_t deadline = deadline_after(now, g->timeout_ns);
    unsigned round = 0;
    int rc;
    while ((rc = probe_look_long(g, probe, deadline - now, &round)) == COLLRUN_AGAIN) {
        now = now_ns();
        if (standstill_expired(now, &stopped, &deadline))
            return probe_expired(g, probe);
    }
    return rc;
}

/* The current operation of the queue belongs to its owner. */
static uint64_t probe_record_begin(struct collrun_group *g, const struct collrun_call *call,
                                   uint64_t number, uint64_t site)
{
    struct progress_queue *pq = g->backends[0].pq[GROUP_MESSAGES];
    const struct route route = {.gb = &g->backends[0], .site = site};
    pq_acquire(pq);
    const uint64_t called = call_record_ticks(g);
    call_record_enter_message(g, call, number, called);
    pq_release(pq);
    return call_record_messages_at(&route, call, 1, number, RECORD_STARTED, called);
}

static int probe_wait(struct collrun_group *g, struct p2p_probe *probe, int peer, uint64_t site)
{
    struct progress_queue *pq = g->backends[0].pq[GROUP_MESSAGES];
    uint64_t number = group_number_shared(g);
    const struct collrun_call call = {
        .kind = KIND_PROBE, .peer = peer, .tag = probe->tag, .timeout_ns = g->timeout_ns};
    int rc = pq_wait_begin(pq);
    if (rc != COLLRUN_OK)
        return group_op_failed(g, KIND_PROBE, number, rc);
    uint64_t index = probe_record_begin(g, &call, number, site);
    struct record_thread *t = thread_record_probe(g, &call, number, site);
    rc = probe_loop(g, probe);
    if (rc != COLLRUN_OK)
        rc = group_op_failed(g, KIND_PROBE, number, rc);
    call_record_end(g, GROUP_MESSAGES, index, 1, number, rc);
    thread_record_return(t);
    pq_wait_end(pq); /* the last use of the queue: group_close waits for it */
    return rc;
}

/* ---- the functions ---- */

/* `site`: of a call that waits; else 0. */
static int probe_run(struct collrun_group *g, int peer, uint32_t tag, uint64_t site,
                     struct collrun_message_info *out)
{
    struct p2p_probe probe = {.source = (uint32_t)peer, .tag = tag};
    int rc = probe_check(g, peer, tag, out);
    if (rc != COLLRUN_OK)
        return probe_refuse(g, rc);
    if ((rc = group_enter_for(&g->backends[0], KIND_PROBE)) != COLLRUN_OK)
        return rc;
    /* For error messages; other threads may take numbers at the same time. */
    uint64_t number = atomic_load_explicit(&g->calls.numbers[GROUP_MESSAGES], memory_order_relaxed);
    if (group_has_failed(g))
        rc = group_reject(g, KIND_PROBE, number + 1);
    else if ((rc = probe_look(g, &probe)) < 0)
        rc = group_op_failed(g, KIND_PROBE, number + 1, rc);
    else if (rc == COLLRUN_AGAIN && site)
        rc = probe_wait(g, &probe, peer, site);
    group_leave_after(&g->backends[0], KIND_PROBE);
    if (rc == COLLRUN_OK)
        probe_put(&probe, out);
    return rc;
}

int collrun_probe(struct collrun_group *g, int peer, uint32_t tag, struct collrun_message_info *out)
{
    if (!g)
        return error_set(COLLRUN_ERR_INVALID, "probe: the group is NULL");
    return probe_run(g, peer, tag, CALL_RECORD_SITE, out);
}

int collrun_iprobe(struct collrun_group *g, int peer, uint32_t tag,
                   struct collrun_message_info *out)
{
    if (!g)
        return error_set(COLLRUN_ERR_INVALID, "iprobe: the group is NULL");
    return probe_run(g, peer, tag, 0, out);
}
