/* SPDX-License-Identifier: Apache-2.0
 *
 * The time-out of each call counts from its beginning.
 */
#include "ops/batch.h"

#include "base/call_text.h"
#include "base/names.h"
#include "core/backend.h"
#include "core/error.h"
#include "group/route.h"
#include "ops/bounce.h"
#include "ops/consistency.h"
#include "progress/progress.h"

#include <stdio.h>

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
