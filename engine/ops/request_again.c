/* SPDX-License-Identifier: Apache-2.0
 *
 * See request_again.h.
 */
#include "ops/request_again.h"

#include "core/backend.h"
#include "group/group_enter.h"
#include "observe/call_record.h"
#include "ops/request.h"
#include "ops/request_spare.h"
#include "progress/progress.h"
#include "progress/progress_deferred.h"

/* What request_renew resets is as it was: the request was not in the queue. */
int request_again_start(struct collrun_request *r, uint64_t site)
{
    const struct route route = {.gb = r->pq->config.ctx, .site = site};
    r->number = r->last_number = group_number(r->group, GROUP_COLLECTIVES, 1);
    r->starter = thread_context;
    r->renewed = true;
    atomic_store_explicit(&r->status, COLLRUN_AGAIN, memory_order_relaxed);
    r->record = call_record_collectives(&route, r->calls, 1, r->number, RECORD_POSTED);
    r->deferred = pq_defer(r);
    if (r->deferred)
        return COLLRUN_OK;
    request_list_add(r);
    return request_submit(r);
}

/* By the thread that is directly inside. Returns the status of the request. */
static int request_again_exec(struct collrun_request *r)
{
    const struct progress_queue *pq = r->pq;
    call_record_start(r->group, GROUP_COLLECTIVES, r->record, 1);
    int rc = backend_exec(pq->config.backend, pq->config.handle, r->calls, 1);
    if (rc != COLLRUN_OK)
        return pq->config.ops->finished(r, rc);
    call_record_done(r->group, GROUP_COLLECTIVES, r->record, r->number);
    return rc;
}

bool request_again_wait(struct collrun_request *r)
{
    if (!r->plain || !r->deferred || group_has_failed(r->group) || !pq_enter_deferred(r))
        return false;
    struct blocked_call *blocked = &r->group->calls.blocked[GROUP_COLLECTIVES];
    blocked_call_begin(blocked, r->calls, 1, r->number);
    const int status = request_again_exec(r);
    blocked_call_end(blocked);
    pq_leave_deferred(r, status);
    if (status != COLLRUN_OK)
        return false;
    request_spare_keep_succeeded(r);
    return true;
}
