/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun_probe and collrun_iprobe. Each look owns the progress queue for a moment, so that other
 * threads send and receive meanwhile. A thread that waits alone sleeps in the backend, as in a
 * receive; beside others, it polls. A group with two backends may get the message on either.
 */
#include "base/loop.h"
#include "base/names.h"
#include "base/standstill.h"
#include "core/backend.h"
#include "group/group_enter.h"
#include "observe/call_record.h"
#include "ops/args.h"
#include "progress/progress.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

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
    struct pq_waiter self = {.thread = threads_caller(),
                             .calls = &call,
                             .ncalls = 1,
                             .number = number,
                             .last_number = number};
    int rc = pq_wait_begin(pq, &self);
    if (rc != COLLRUN_OK)
        return group_op_failed(g, KIND_PROBE, number, rc);
    uint64_t index = probe_record_begin(g, &call, number, site);
    rc = probe_loop(g, probe);
    if (rc != COLLRUN_OK)
        rc = group_op_failed(g, KIND_PROBE, number, rc);
    call_record_end(g, GROUP_MESSAGES, index, 1, number, rc);
    pq_wait_end(pq, &self); /* the last use of the queue: group_close waits for it */
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
