/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations from start to end.
 *
 * Happy path
 *   - a collective is launched at once, or when the scheduler allows it (scheduler.c); messages go
 *     to p2p.c;
 *   - it is complete when the GPU has passed its events and NCCL reports no error.
 * Failures
 *   - after an error or an abort the kernels end early and their events prove nothing. The op is
 *     kept until the streams are idle, for a second at most, so that the caller does not free a
 *     buffer that a kernel still writes to. So is one that fails halfway when it is started;
 *   - its time is up: the group fails with TIMEOUT.
 *
 * A blocking call polls: at first without a pause, then between other threads that are ready, then
 * with sleeps of a tenth of the time that it has waited. So it is late by a tenth at most, and
 * burns no core for long. The kernel adds 50 us to a sleep, which is more than a short operation
 * takes on the GPU, so there is none in the first millisecond; and the wait starts over when
 * messages are launched.
 */
#include "request.h"

#include "capture.h"
#include "collectives.h"
#include "direct.h"
#include "group.h"
#include "issue.h"
#include "memory.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define SPIN_NS 20000u
#define YIELD_NS 1000000u
#define MAX_SLEEP_NS 200000u
#define QUIESCE_LIMIT_NS 1000000000u
enum { POLLS_PER_ERROR_CHECK = 64, POLLS_PER_CLOCK = 8 }; /* reading the clock costs a poll */

static void op_set_timeout(struct op *op, uint64_t timeout_ns)
{
    uint64_t now = context_now_ns(op->group->context);
    op->timeout_ns = timeout_ns;
    op->deadline_ns = timeout_ns < UINT64_MAX - now ? now + timeout_ns : UINT64_MAX;
}

struct op *op_new(struct nccl_group *g, uint64_t timeout_ns, uint32_t nmessages)
{
    const size_t len = sizeof(struct op) + g->ndevs * sizeof(struct event *);
    struct op *op = calloc(1, len + nmessages * sizeof(struct message));
    if (!op)
        return NULL;
    if (nmessages)
        op->messages = (struct message *)(void *)(op->after_evts + g->ndevs);
    op->group = g;
    op_set_timeout(op, timeout_ns);
    op->sched.launched = true;
    return op;
}

static void op_free(struct op *op)
{
    struct nccl_group *g = op->group;
    sched_retire(op);
    for (uint32_t i = 0; i < g->ndevs; i++) {
        struct dev_comm *dev = &g->devs[i];
        if (op->after_evts[i])
            atomic_fetch_sub(&dev->device->in_flight, 1);
        event_release(dev, op->after_evts[i]);
    }
    for (uint32_t i = 0; op->before_evts && i < op->ncalls; i++)
        event_release(&g->devs[op->calls[i].device], op->before_evts[i]);
    nccl_p2p_forget(op);
    free(op->before_evts);
    free(op);
    frees_sweep();
}

/* ---- failing ---- */

static int op_fail(struct op *op, int status)
{
    op->status = status;
    op->failed_ns = context_now_ns(op->group->context);
    return COLLRUN_AGAIN;
}

static const char *op_timeout_hint(const struct op *op)
{
    if (!nccl_group_is_formed(op->group))
        return "; NCCL has not connected the GPUs of the group, which this operation uses first";
    return op->sched.launched ? ""
                              : "; it could not start before unfinished collectives that this rank "
                                "had started earlier";
}

static void op_time_out(struct op *op)
{
    struct nccl_group *g = op->group;
    const struct collrun_services *s = g->services;
    char text[sizeof g->status.text], waited[200];
    if (op->messages) {
        nccl_p2p_timeout_text(op, text, sizeof text);
    } else {
        s->timeout_text(s->ctx, g->rank, NULL, 0, op->timeout_ns, waited, sizeof waited);
        snprintf(text, sizeof text, "%s%s", waited, op_timeout_hint(op));
    }
    nccl_group_fail(g, COLLRUN_ERR_TIMEOUT, text);
}

/* Errors that NCCL detects in the background: a peer that is gone, a network failure. */
static int op_check_handle(struct nccl_group *g)
{
    int status = COLLRUN_OK;
    pthread_mutex_lock(&g->lock);
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->ndevs; i++) {
        ncclResult_t error = ncclSuccess;
        if (g->devs[i].comm)
            g->context->lib.nccl.ncclCommGetAsyncError(g->devs[i].comm, &error);
        if (error != ncclSuccess && error != ncclInProgress)
            status = nccl_group_fail_nccl(g, g->devs[i].comm, error, "NCCL");
    }
    pthread_mutex_unlock(&g->lock);
    return status;
}

/* Checks the handle, and the communicators of direct messages. */
static int op_check_errors(const struct op *op)
{
    int status = op_check_handle(op->group);
    const struct nccl_group *before = NULL;
    for (uint32_t i = 0; op->messages && status == COLLRUN_OK && i < op->ncalls; i++) {
        const struct message *m = &op->messages[i];
        struct nccl_group *part = m->direct ? direct_part(m) : NULL;
        if (part && part != before)
            status = op_check_handle(part);
        before = part;
    }
    return status;
}

/* ---- progress ---- */

/* OK: the GPUs have passed all events of the collective. */
static int op_query_events(struct op *op)
{
    struct nccl_group *g = op->group;
    for (uint32_t i = 0; i < g->ndevs; i++) {
        if (!op->after_evts[i])
            continue;
        cudaError_t error = event_query(&g->context->lib.cuda, op->after_evts[i]);
        if (error == cudaErrorNotReady)
            return COLLRUN_AGAIN;
        if (error != cudaSuccess)
            return nccl_group_fail_cuda(g, &g->devs[i], error, "an operation");
    }
    return COLLRUN_OK;
}

/* True if a failed op may still be on a GPU. */
static bool op_is_busy(const struct op *op)
{
    if (op->messages)
        return nccl_p2p_is_busy(op->group);
    return op->sched.launched && comm_is_busy(op->group);
}

/* Returns AGAIN for a failed op until the streams are idle or have had their time. */
static int op_quiesce(const struct op *op)
{
    if (context_now_ns(op->group->context) < op->failed_ns + QUIESCE_LIMIT_NS && op_is_busy(op))
        return COLLRUN_AGAIN;
    if (op->messages)
        nccl_p2p_give_up(op->group);
    return nccl_group_failure(op->group);
}

static int op_launch(struct op *op)
{
    struct nccl_group *g = op->group;
    pthread_mutex_lock(&g->lock);
    int status = nccl_group_has_failed(g) ? nccl_group_failure(g) : issue_collective(g, op);
    pthread_mutex_unlock(&g->lock);
    return status == COLLRUN_OK ? COLLRUN_AGAIN : status;
}

/* True if the GPUs have finished what the callers' streams held before a collective that is not
 * launched yet. */
static bool op_streams_are_ready(const struct op *op)
{
    const struct nccl_group *g = op->group;
    for (uint32_t i = 0; i < op->ncalls; i++)
        if (op->before_evts[i] &&
            event_query(&g->context->lib.cuda, op->before_evts[i]) != cudaSuccess)
            return false;
    return true;
}

/* Reports this rank's commitments, and takes the number that all ranks have committed to. Without a
 * coordinator nothing is stacked, which is slower and otherwise the same. */
static void op_exchange_commitments(struct nccl_group *g)
{
    if (g->coord && g->size > 1)
        sched_set_ready(g, coord_commit(g->coord, sched_committed(g)));
}

/* The next kernel of a collective whose turn it is. */
static int op_launch_next(struct op *op)
{
    int status = batch_is(op) ? batch_join_cuts(op) : COLLRUN_OK;
    return status == COLLRUN_OK ? op_launch(op) : status;
}

static int op_try_launch(struct op *op)
{
    if (!nccl_group_is_formed(op->group)) {
        on_demand_want(op->group);
        return COLLRUN_AGAIN;
    }
    op_exchange_commitments(op->group);
    op->sched.cross_dep = op->sched.cross_dep && !op_streams_are_ready(op);
    bool launches = sched_try_launch(op);
    int status = launches ? op_launch_next(op) : COLLRUN_AGAIN;
    if (!launches)
        op_exchange_commitments(op->group);
    return status;
}

/* OK: it is complete. */
static int op_progress(struct op *op)
{
    if (op->messages) {
        nccl_p2p_progress(op->group);
        return op->nopen ? COLLRUN_AGAIN : COLLRUN_OK;
    }
    if (!op->sched.launched)
        return op_try_launch(op);
    int status = op_query_events(op);
    return status == COLLRUN_OK && op->kernels.more ? op_launch_next(op) : status;
}

/* The deadline moves if the process has stood still since the first look. */
static bool op_is_overdue(struct op *op)
{
    const struct collrun_services *s = op->group->services;
    const uint64_t now = s->now_ns();
    if (op->looked && now < op->deadline_ns)
        return false;
    const uint64_t stopped_ns = s->stopped_ns(s->ctx);
    if (op->looked)
        op->deadline_ns += stopped_ns - op->stopped_ns;
    op->stopped_ns = stopped_ns;
    op->looked = true;
    return now >= op->deadline_ns;
}

static int op_poll(struct op *op)
{
    struct nccl_group *g = op->group;
    if (op->status)
        return op_quiesce(op);
    int status = op_progress(op);
    if (nccl_group_has_failed(g))
        return op_fail(op, COLLRUN_ERR_ABORTED);
    if (status == COLLRUN_OK || op->polls++ % POLLS_PER_ERROR_CHECK == 0) {
        int error = op_check_errors(op);
        status = error == COLLRUN_OK ? status : error;
    }
    if (status < 0)
        return op_fail(op, status);
    bool looks = status == COLLRUN_AGAIN && op->polls % POLLS_PER_CLOCK == 0;
    if (looks && op_is_overdue(op)) {
        op_time_out(op);
        return op_fail(op, COLLRUN_ERR_TIMEOUT);
    }
    return status;
}

int op_wait(struct op *op)
{
    struct nccl_group *g = op->group;
    uint64_t since = context_now_ns(g->context), launches = nccl_p2p_launches(g);
    int status;
    while ((status = op_poll(op)) == COLLRUN_AGAIN) {
        uint64_t now = context_now_ns(g->context), waited = now - since;
        if (nccl_p2p_launches(g) != launches) { /* it may end soon */
            launches = nccl_p2p_launches(g);
            since = now;
            continue;
        }
        if (waited < SPIN_NS)
            continue;
        int job = nccl_group_check_job(g);
        if (job != COLLRUN_OK)
            nccl_group_fail(g, job, "the job has failed");
        if (waited < YIELD_NS) {
            sched_yield();
            continue;
        }
        uint64_t sleep_ns = waited / 10 < MAX_SLEEP_NS ? waited / 10 : MAX_SLEEP_NS;
        op->messages ? nccl_p2p_wait(g, sleep_ns) : context_sleep_ns(sleep_ns);
    }
    op_free(op);
    return status;
}

/* ---- starting ---- */

/* Records what the callers' streams hold now, for a launch later. */
static int op_record_callers(struct op *op)
{
    struct nccl_group *g = op->group;
    op->before_evts = calloc(op->ncalls, sizeof(struct event *));
    if (!op->before_evts)
        return nccl_group_out_of_memory(g);
    for (uint32_t i = 0; i < op->ncalls; i++) {
        const struct collrun_call *c = &op->calls[i];
        if (i && c->device == c[-1].device && c->stream == c[-1].stream)
            continue;
        if (!(op->before_evts[i] = event_record(g, &g->devs[c->device], c->stream)))
            return COLLRUN_ERR_BACKEND;
    }
    return COLLRUN_OK;
}

/* With the group's lock. */
static int op_submit(struct op *op)
{
    struct nccl_group *g = op->group;
    if (nccl_group_has_failed(g))
        return nccl_group_failure(g);
    bool batch = batch_is(op), several = batch || emulate_is_needed(op->calls);
    op->sched.class = several ? SCHED_MULTI_KERNEL : SCHED_ONE_KERNEL;
    op->sched.launched = false;
    op->kernels.more = batch; /* its first kernel is launched when the cuts are known */
    if (sched_submit(op))
        return batch ? op_record_callers(op) : issue_collective(g, op);
    op_exchange_commitments(g);
    return op_record_callers(op);
}

static int op_submit_collective(struct op *op)
{
    struct nccl_group *g = op->group;
    pthread_mutex_lock(&g->lock);
    int status = op_submit(op);
    pthread_mutex_unlock(&g->lock);
    return status;
}

/* False if the group had failed before: nothing of the op is on a GPU. */
static bool op_was_entered(const struct op *op)
{
    return op->messages ? op->nopen > 0 : op->sched.class != SCHED_NONE;
}

/* Nothing that was launched runs any more when it returns an error. */
static int op_start(struct nccl_group *g, const struct collrun_call *calls, uint32_t ncalls,
                    struct op **out)
{
    const bool messages = collrun_kind_is_message(calls->kind);
    struct op *op = op_new(g, calls->timeout_ns, messages ? ncalls : 0);
    if (!op)
        return nccl_group_out_of_memory(g);
    op->calls = op->next = calls;
    op->ncalls = ncalls;
    if (batch_is(op))
        op_set_timeout(op, batch_timeout(op));
    int status = messages ? nccl_p2p_submit(g, op) : op_submit_collective(op);
    if (status == COLLRUN_OK) {
        *out = op;
        return status;
    }
    nccl_group_fail(g, status, "an operation could not be started");
    op_fail(op, status);
    while (op_was_entered(op) && op_quiesce(op) == COLLRUN_AGAIN)
        context_sleep_ns(MAX_SLEEP_NS);
    op_free(op);
    return status;
}

/* ---- the backend's table ---- */

/* All of them in the thread mode that disturbs no capture. */

int nccl_exec(void *group, const struct collrun_call *calls, uint32_t ncalls)
{
    const struct cuda_api *cuda = &((struct nccl_group *)group)->context->lib.cuda;
    const enum cudaStreamCaptureMode mode = capture_relax(cuda);
    struct op *op = NULL;
    int status = op_start(group, calls, ncalls, &op);
    status = status == COLLRUN_OK ? op_wait(op) : status;
    capture_restore(cuda, mode);
    return status;
}

int nccl_start(void *group, const struct collrun_call *calls, uint32_t ncalls, void **request)
{
    const struct cuda_api *cuda = &((struct nccl_group *)group)->context->lib.cuda;
    const enum cudaStreamCaptureMode mode = capture_relax(cuda);
    struct op *op = NULL;
    int status = op_start(group, calls, ncalls, &op);
    capture_restore(cuda, mode);
    if (status == COLLRUN_OK)
        *request = op;
    return status;
}

int nccl_test(void *group, void *request)
{
    const struct cuda_api *cuda = &((struct nccl_group *)group)->context->lib.cuda;
    const enum cudaStreamCaptureMode mode = capture_relax(cuda);
    int status = op_poll(request);
    if (status != COLLRUN_AGAIN)
        op_free(request);
    capture_restore(cuda, mode);
    return status;
}

int nccl_withdraw(void *group, void *request)
{
    struct op *op = request;
    (void)group;
    int status = op->status ? COLLRUN_AGAIN : nccl_p2p_withdraw(op);
    if (status == COLLRUN_OK)
        op_free(op);
    return status;
}

int nccl_order(void *group, void *request, uint32_t device, void *stream)
{
    struct nccl_group *g = group;
    struct op *op = request;
    struct dev_comm *dev = &g->devs[device];
    cudaError_t error = cudaSuccess;
    int status = COLLRUN_OK;
    const enum cudaStreamCaptureMode mode = capture_relax(&g->context->lib.cuda);
    int before = device_enter(g->context, dev->ordinal);
    if (nccl_group_has_failed(g)) { /* its events prove nothing, or are gone: the op ends soon */
        status = COLLRUN_AGAIN;
    } else if (op->messages) {
        status = nccl_p2p_order(op, device, stream, &error);
    } else if (!op->sched.launched || op->kernels.more) {
        status = COLLRUN_AGAIN;
    } else if (op->after_evts[device]) {
        sched_pin(op);
        error = g->context->lib.cuda.cudaStreamWaitEvent(stream, op->after_evts[device]->handle, 0);
    }
    device_leave(g->context, before);
    capture_restore(&g->context->lib.cuda, mode);
    return error == cudaSuccess ? status : nccl_group_fail_cuda(g, dev, error, "order a stream");
}
