/* SPDX-License-Identifier: Apache-2.0
 *
 * The fingerprints of all members are gathered with the backend's own allgather, or its emulation.
 * If v-forms differ, every rank knows it: all ranks then exchange their full counts, and the error
 * message names two ranks and their counts.
 */
#include "ops/consistency.h"

#include "base/call_text.h"
#include "base/loop.h"
#include "base/names.h"
#include "base/standstill.h"
#include "core/backend.h"
#include "core/error.h"
#include "group/route.h"
#include "ops/bounce.h"
#include "ops/emulate.h"
#include "progress/progress.h"
#include "progress/progress_queue.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- before an operation ---- */

/* The i-th device's call; a barrier has one for all of them. */
static struct collrun_call consistency_for_device(const struct group_backend *gb,
                                                  const struct collrun_call *calls, uint32_t ncalls,
                                                  uint32_t i)
{
    struct collrun_call call = calls[i < ncalls ? i : 0];
    if (i >= ncalls)
        call.device = (int)i;
    if (!gb->ndevices)
        call.peer_device = 0;
    return call;
}

/* Gathers `len` bytes of every communicator rank. `own` holds those of this process, one block for
 * each of its devices; for each of them, a block of comm_size * len bytes for the result follows.
 */
static int consistency_exchange(const struct group_backend *gb, struct progress_queue *pq,
                                const struct collrun_call *calls, uint32_t ncalls, void *own,
                                size_t len)
{
    uint32_t comm_size = gb->comm_size, n = group_devices(gb);
    char *all = (char *)own + n * len;
    struct collrun_call *gather = calloc(n, sizeof *gather);
    if (!gather)
        return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for %u calls", n);
    for (uint32_t i = 0; i < n; i++) {
        struct collrun_call call = consistency_for_device(gb, calls, ncalls, i);
        gather[i] = (struct collrun_call)COLLRUN_CALL(COLLRUN_ALLGATHER);
        gather[i].send = (const char *)own + i * len;
        gather[i].recv = all + (size_t)i * comm_size * len;
        gather[i].count = len;
        gather[i].dtype = COLLRUN_UINT8;
        if (gb->group->check != COLLRUN_CHECK_STRICT)
            gather[i].op = FAILURE_TEXT_BEGINS(calls->kind);
        gather[i].device = call.device;
        gather[i].stream = call.stream;
        gather[i].timeout_ns = call.timeout_ns;
    }
    int rc = emulate_exec(gb, pq, gather, n);
    free(gather);
    return rc;
}

/* After a failure a device may still write to memory of an exchange, so it is not reused. */
static void consistency_memory_give(struct memory_kind *kind, void *memory, size_t len, int status)
{
    if (!kind || status == COLLRUN_OK)
        memory_kind_host_give(kind, memory, len);
}

/* ---- which counts ---- */

/* All ranks called the same v-form with counts that differ, and all ranks know it. */
static int consistency_explain_counts(const struct group_backend *gb, struct progress_queue *pq,
                                      const struct collrun_call *calls, uint32_t ncalls,
                                      const struct fingerprint *any)
{
    struct memory_kind *kind = group_host_kind(gb);
    uint32_t n = group_devices(gb);
    size_t row = 2 * (size_t)gb->comm_size, len = n * (1 + (size_t)gb->comm_size) * row * 8;
    uint64_t *own = memory_kind_host_take(kind, len);
    if (!own)
        return COLLRUN_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        struct collrun_call call = consistency_for_device(gb, calls, ncalls, i);
        fingerprint_counts(&call, route_comm_rank(gb, &call), route_root(gb, &call), gb->comm_size,
                           own + i * row);
    }
    int rc = consistency_exchange(gb, pq, calls, ncalls, own, row * 8);
    if (rc == COLLRUN_OK)
        rc = fingerprint_compare_counts(any, own + n * row, gb->comm_size, n,
                                        gb->group->id.members.items);
    consistency_memory_give(kind, own, len, rc == COLLRUN_ERR_MISMATCH ? COLLRUN_OK : rc);
    return rc;
}

static bool consistency_same_calls(const struct fingerprint *all, uint32_t comm_size)
{
    for (uint32_t r = 1; r < comm_size; r++) {
        if (!fingerprint_same_call(&all[0], &all[r]))
            return false;
    }
    return true;
}

static int consistency_resolve(const struct group_backend *gb, struct progress_queue *pq,
                               const struct collrun_call *calls, uint32_t ncalls,
                               const struct fingerprint *all)
{
    uint32_t comm_size = gb->comm_size, n = group_devices(gb);
    const uint32_t *world_rank = gb->group->id.members.items;
    int rc = fingerprint_compare(all, comm_size, n, world_rank);
    if (rc == COLLRUN_OK || !consistency_same_calls(all, comm_size) ||
        consistency_explain_counts(gb, pq, calls, ncalls, all) == COLLRUN_ERR_MISMATCH)
        return rc;
    return fingerprint_compare(all, comm_size, n, world_rank); /* without counts */
}

static int consistency_check(const struct group_backend *gb, struct progress_queue *pq,
                             const struct collrun_call *calls, uint32_t ncalls, uint64_t number)
{
    struct memory_kind *kind = group_host_kind(gb);
    uint32_t n = group_devices(gb);
    size_t len = n * (1 + (size_t)gb->comm_size) * sizeof(struct fingerprint);
    struct fingerprint *own = memory_kind_host_take(kind, len);
    if (!own)
        return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for the fingerprints of %u ranks",
                           gb->comm_size);
    for (uint32_t i = 0; i < n; i++) {
        struct collrun_call call = consistency_for_device(gb, calls, ncalls, i);
        own[i] = fingerprint_of(&call, number, route_comm_rank(gb, &call), gb->comm_size);
    }
    int rc = consistency_exchange(gb, pq, calls, ncalls, own, sizeof *own);
    int verdict = rc == COLLRUN_OK ? consistency_resolve(gb, pq, calls, ncalls, own + n) : rc;
    consistency_memory_give(kind, own, len, rc);
    return verdict;
}

/* With check: strict, and where a backend that compares its own collectives cannot see the call. */
static bool consistency_is_checked(const struct group_backend *gb, const struct collrun_call *calls)
{
    const struct backend *b = gb->backend;
    bool compares = b->table.flags & COLLRUN_BACKEND_INLINE_CHECK &&
                    b->native[COLLRUN_ALLGATHER][COLLRUN_UINT8];
    bool unseen = collrun_kind_reduces(calls->kind) && !backend_is_native(b, calls);
    return gb->comm_size > 1 && !collrun_kind_is_message(calls->kind) &&
           (gb->group->check == COLLRUN_CHECK_STRICT || (compares && unseen));
}

bool consistency_is_plain(const struct group_backend *gb, const struct progress_queue *pq,
                          const struct collrun_call *calls, uint32_t ncalls)
{
    const struct backend *b = gb->backend;
    return ncalls == 1 && b->has_exec && !pq->shared && gb->group->check != COLLRUN_CHECK_STRICT &&
           backend_is_native(b, calls);
}

int consistency_exec(const struct group_backend *gb, struct progress_queue *pq,
                     const struct collrun_call *calls, uint32_t ncalls, uint64_t number)
{
    if (!consistency_is_checked(gb, calls))
        return emulate_exec(gb, pq, calls, ncalls);
    const uint64_t begun = now_ns(), stopped = standstill_total(begun);
    int rc = consistency_check(gb, pq, calls, ncalls, number);
    if (rc != COLLRUN_OK)
        return rc;
    struct collrun_call own[GROUP_MOST_DEVICES]; /* a wait report may be reading `calls` */
    const uint64_t now = now_ns(), stood = standstill_total(now) - stopped;
    const uint64_t took = now - begun > stood ? now - begun - stood : 0;
    for (uint32_t i = 0; i < ncalls; i++) {
        own[i] = calls[i];
        own[i].timeout_ns = own[i].timeout_ns > took ? own[i].timeout_ns - took : 1;
    }
    rc = emulate_exec(gb, pq, own, ncalls);
    /* The others have passed the check, and are in the collective. */
    if (rc == COLLRUN_ERR_NO_MEMORY)
        emulate_give_up(gb, pq, rc);
    return rc;
}

/* ---- batches ---- */

uint64_t batch_timeout(const struct group_backend *gb, const struct collrun_call *calls,
                       uint32_t ncalls)
{
    uint64_t sum = calls->timeout_ns;
    for (uint32_t i = 1; batch_is(gb, calls, ncalls) && i < ncalls; i++)
        sum = calls[i].timeout_ns > UINT64_MAX - sum ? UINT64_MAX : sum + calls[i].timeout_ns;
    return sum;
}

/* Copies in host memory are made call by call. */
bool batch_is_native(const struct route *route, const struct collrun_call *calls, uint32_t ncalls)
{
    const struct backend *b = route->gb->backend;
    bool strict = route->gb->group->check == COLLRUN_CHECK_STRICT;
    bool native = b->table.flags & COLLRUN_BACKEND_BATCHES && !strict && !route->bounced;
    for (uint32_t i = 0; native && i < ncalls; i++)
        native = backend_is_native(b, &calls[i]);
    return native;
}

/* One call, whose buffers are copied to host memory if it is executed there. The copies of a later
 * call are made when the earlier ones are complete: it may read what they have written. */
static int batch_exec_one(const struct group_backend *gb, struct collrun_request *r, uint32_t i,
                          bool settled)
{
    struct collrun_group *g = gb->group;
    struct collrun_call *call = &r->calls[i];
    struct bounce *bounce = NULL;
    struct route route;
    int rc = atomic_load_explicit(&g->status.code, memory_order_acquire);
    error_clear_cause();
    rc = rc ? rc : route_find(g, call, &route);
    if (rc == COLLRUN_OK) {
        route.settled = settled;
        rc = bounce_in(&route, call, 1, &bounce);
    }
    if (rc == COLLRUN_OK)
        rc = consistency_exec(gb, r->pq, call, 1, r->number + i);
    return bounce ? bounce_out(bounce, rc) : rc;
}

/* Prepends the call that failed: "calls[2], reduce(8 x int32, sum, root 0): ...". */
static int batch_fail(const struct collrun_call *calls, uint32_t i, int status)
{
    char call[CALL_TEXT_LEN], cause[sizeof error_get()->cause];
    call_text(&calls[i], call, sizeof call);
    snprintf(cause, sizeof cause, "%s",
             error_get()->cause[0] ? error_get()->cause : status_text(status));
    return error_cause(status, "calls[%u], %s: %s", i, call, cause);
}

int batch_exec(const struct group_backend *gb, struct collrun_request *r, bool settled)
{
    if (!batch_is(gb, r->calls, r->ncalls))
        return consistency_exec(gb, r->pq, r->calls, r->ncalls, r->number);
    if (!r->exec_batch)
        return progress_exec(r->pq, r->calls, r->ncalls);
    for (uint32_t i = 0; i < r->ncalls; i++) {
        int rc = batch_exec_one(gb, r, i, settled);
        if (rc != COLLRUN_OK)
            return batch_fail(r->calls, i, rc);
    }
    return COLLRUN_OK;
}
