/* SPDX-License-Identifier: Apache-2.0
 *
 * Selects how a call is executed: natively, natively as bytes, or by rounds of messages. The rounds
 * of each kind are in emulate_move.h and emulate_reduce.h.
 */
#include "ops/emulate.h"

#include "base/loop.h"
#include "base/standstill.h"
#include "core/backend.h"
#include "core/reduce.h"
#include "group/group.h"
#include "ops/emulate_move.h"
#include "ops/emulate_reduce.h"
#include "progress/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- by messages ---- */

/* The blocks of a buffer, by its extent in the table of kinds. */
static struct cut emulate_cut(const struct collrun_call *c, const void *base, unsigned char extent)
{
    switch (extent) {
    case COLLRUN_SENDCOUNTS_BLOCKS:
        return (struct cut){.base = base, .counts = c->sendcounts, .displs = c->senddispls};
    case COLLRUN_RECVCOUNTS_BLOCKS:
        return (struct cut){.base = base, .counts = c->recvcounts, .displs = c->recvdispls};
    case COLLRUN_RECVCOUNTS_PACKED:
        return (struct cut){.base = base, .counts = c->recvcounts};
    default:
        return (struct cut){.base = base, .equal = c->count};
    }
}

static int emulate_dispatch(struct emulation *e)
{
    const struct collrun_call *c = e->call;
    const struct collrun_kind_info info = collrun_kind_row(c->kind);
    const struct cut from = emulate_cut(c, c->send, info.send),
                     into = emulate_cut(c, c->recv, info.recv);
    const size_t own = info.recv == COLLRUN_RECVCOUNT_BLOCK ? c->recvcount : c->count;
    uint32_t root = (uint32_t)c->root;
    switch (c->kind) {
    case COLLRUN_BARRIER:
        return emulate_barrier(e);
    case COLLRUN_BROADCAST:
        return emulate_broadcast(e);
    case COLLRUN_ALLREDUCE:
    case COLLRUN_REDUCE:
        return emulate_reduce_all(e);
    case COLLRUN_ALLGATHER:
    case COLLRUN_ALLGATHERV:
        return emulate_all_gather(e, c->send, &into);
    case COLLRUN_GATHER:
    case COLLRUN_GATHERV:
        return emulate_gather(e, c->send, c->count * e->es, &into, root);
    case COLLRUN_SCATTER:
    case COLLRUN_SCATTERV:
        return emulate_scatter(e, &from, c->recv, own * e->es, root);
    case COLLRUN_REDUCE_SCATTER:
    case COLLRUN_REDUCE_SCATTERV:
        return emulate_reduce_block(e, &from, c->recv);
    case COLLRUN_ALLTOALL:
    case COLLRUN_ALLTOALLV:
        return emulate_all_to_all(e, from, &into);
    case COLLRUN_SCAN:
    case COLLRUN_EXSCAN:
        return emulate_scan(e);
    default:
        return COLLRUN_ERR_UNSUPPORTED;
    }
}

/* With a count of 0, forms with one count still synchronise. */
static bool emulate_is_empty(const struct collrun_call *call)
{
    return call->kind != COLLRUN_BARRIER && !collrun_kind_is_vector(call->kind) && !call->count;
}

/* The queue of the messages, which is another one if the backend wants that. */
static struct progress_queue *emulate_queue(const struct group_backend *gb,
                                            struct progress_queue *pq)
{
    bool separate = gb->backend->table.flags & COLLRUN_BACKEND_SEPARATE_P2P_HANDLE;
    return separate ? gb->pq[GROUP_MESSAGES] : pq;
}

void emulate_give_up(const struct group_backend *gb, struct progress_queue *pq, int status)
{
    struct progress_queue *queue = emulate_queue(gb, pq);
    struct p2p *p2p = queue->config.p2p;
    struct error_record cause = *error_get();
    char text[sizeof cause.cause + 32];
    snprintf(text, sizeof text, "%s", cause.cause);
    if (status != COLLRUN_ERR_TIMEOUT) /* that names the rank */
        snprintf(text, sizeof text, "rank %u: %s", gb->group->rank, cause.cause);
    if (queue != pq)
        pq_acquire(queue);
    if (p2p && p2p->status == COLLRUN_OK)
        p2p_fail_with_peer(p2p, COLLRUN_ANY_SOURCE, status, text);
    if (queue != pq)
        pq_release(queue);
    error_restore(&cause);
}

static int emulate_by_messages(const struct group_backend *gb, struct progress_queue *pq,
                               const struct collrun_call *calls, uint32_t ncalls)
{
    const struct collrun_group *g = gb->group;
    const struct collrun_call *call = &calls[0];
    struct emulation e = {.pq = pq,
                          .p2p = emulate_queue(gb, pq),
                          .kind = group_host_kind(gb),
                          .call = call,
                          .ndevices = ncalls,
                          .world_rank = g->id.members.items,
                          .me = g->rank,
                          .n = g->nranks,
                          .es = dtype_size(call->dtype),
                          .deadline_ns = deadline_after(now_ns(), call->timeout_ns),
                          .stopped_ns = standstill_total(now_ns())};
    e.messages = calloc(2 * (size_t)g->nranks, sizeof *e.messages);
    int rc = COLLRUN_OK;
    if (!e.messages)
        rc = error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for %u messages", 2 * g->nranks);
    else if (emulate_is_empty(call))
        rc = emulate_barrier(&e);
    else
        rc = ncalls > 1 ? emulate_devices(&e) : emulate_dispatch(&e);
    if (rc != COLLRUN_OK)
        emulate_give_up(gb, pq, rc);
    free(e.messages);
    emulate_scratch_drop(&e, rc);
    return rc;
}

/* ---- moving as bytes ---- */

static void emulate_scale(size_t *to, const size_t *from, uint32_t n, size_t es)
{
    for (uint32_t i = 0; from && i < n; i++)
        to[i] = from[i] * es;
}

/* `arrays` has room for four of n counts. */
static void emulate_to_bytes(struct collrun_call *c, uint32_t n, size_t *arrays)
{
    size_t es = dtype_size(c->dtype);
    const size_t **fields[4] = {&c->sendcounts, &c->senddispls, &c->recvcounts, &c->recvdispls};
    for (uint32_t i = 0; i < 4; i++) {
        emulate_scale(arrays + i * n, *fields[i], n, es);
        *fields[i] = *fields[i] ? arrays + i * n : NULL;
    }
    c->dtype = COLLRUN_UINT8;
    c->count *= es;
    c->recvcount *= es;
}

/* A call for each device of this process. */
static int emulate_exec_as_bytes(const struct group_backend *gb, struct progress_queue *pq,
                                 const struct collrun_call *calls, uint32_t ncalls)
{
    const uint32_t n = gb->comm_size;
    struct collrun_call *own = calloc(ncalls, sizeof *own);
    size_t *arrays = calloc(4 * (size_t)n * ncalls, sizeof *arrays);
    int rc = own && arrays ? COLLRUN_OK
                           : error_cause(COLLRUN_ERR_NO_MEMORY,
                                         "out of memory for the counts of %u ranks", n);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < ncalls; i++) {
        own[i] = calls[i];
        emulate_to_bytes(&own[i], n, arrays + 4 * (size_t)n * i);
    }
    if (rc == COLLRUN_OK)
        rc = progress_exec(pq, own, ncalls);
    free(arrays);
    free(own);
    return rc;
}

/* ---- alltoallv in place ---- */

/* The range of the send buffer that has blocks, in bytes. */
struct range {
    size_t from, to;
};

static struct range emulate_sent_range(const struct collrun_call *call, uint32_t n)
{
    size_t es = dtype_size(call->dtype), packed = 0;
    struct range r = {.from = SIZE_MAX};
    for (uint32_t i = 0; i < n; i++) {
        size_t at = call->senddispls ? call->senddispls[i] : packed, len = call->sendcounts[i];
        packed += len;
        r.from = len && at < r.from ? at : r.from;
        r.to = len && at + len > r.to ? at + len : r.to;
    }
    return r.to ? (struct range){r.from * es, r.to * es} : (struct range){0};
}

/* Backends want the two buffers apart: the blocks are sent from a copy. `copies` get one for each
 * call that needs it. */
static int emulate_set_apart(const struct group_backend *gb, struct collrun_call *calls,
                             uint32_t ncalls, struct block *copies)
{
    struct memory_kind *kind = group_host_kind(gb);
    for (uint32_t i = 0; i < ncalls; i++) {
        struct range sent = emulate_sent_range(&calls[i], gb->comm_size);
        if (!call_is_in_place_alltoallv(&calls[i]))
            continue;
        char *copy = memory_kind_host_take(kind, sent.to);
        if (!copy)
            return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for %zu bytes", sent.to);
        copies[i] = (struct block){copy, sent.to};
        memcpy(copy + sent.from, (const char *)calls[i].send + sent.from, sent.to - sent.from);
        calls[i].send = copy;
    }
    return COLLRUN_OK;
}

static int emulate_exec_apart(const struct group_backend *gb, struct progress_queue *pq,
                              const struct collrun_call *calls, uint32_t ncalls)
{
    struct memory_kind *kind = group_host_kind(gb);
    struct collrun_call *own = calloc(ncalls, sizeof *own);
    struct block *copies = calloc(ncalls, sizeof *copies);
    int rc = own && copies
                 ? COLLRUN_OK
                 : error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for %u calls", ncalls);
    if (rc == COLLRUN_OK) {
        memcpy(own, calls, ncalls * sizeof *own);
        rc = emulate_set_apart(gb, own, ncalls, copies);
    }
    if (rc == COLLRUN_OK)
        rc = emulate_exec(gb, pq, own, ncalls);
    for (uint32_t i = 0; copies && i < ncalls; i++)
        if (copies[i].bytes && (!kind || rc == COLLRUN_OK)) /* else a device may still read it */
            memory_kind_host_give(kind, copies[i].bytes, copies[i].len);
    free(copies);
    free(own);
    return rc;
}

/* The calls are alike in all but their buffers. */
static bool emulate_has_in_place_alltoallv(const struct collrun_call *calls, uint32_t ncalls)
{
    bool found = false;
    for (uint32_t i = 0; i < ncalls; i++)
        found = found || call_is_in_place_alltoallv(&calls[i]);
    return found;
}

int emulate_exec(const struct group_backend *gb, struct progress_queue *pq,
                 const struct collrun_call *calls, uint32_t ncalls)
{
    const struct backend *b = pq->config.backend;
    if (collrun_kind_is_message(calls->kind))
        return progress_exec(pq, calls, ncalls);
    if (emulate_has_in_place_alltoallv(calls, ncalls))
        return emulate_exec_apart(gb, pq, calls, ncalls);
    if (backend_is_native(b, calls))
        return progress_exec(pq, calls, ncalls);
    if (!collrun_kind_reduces(calls->kind) && b->native[calls->kind][COLLRUN_UINT8])
        return emulate_exec_as_bytes(gb, pq, calls, ncalls);
    return emulate_by_messages(gb, pq, calls, ncalls);
}
