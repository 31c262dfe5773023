/* SPDX-License-Identifier: Apache-2.0
 *
 * From start to end of an operation. A collective is launched at once, or when it is its turn
 * (traffic.c); messages are the mail's. It is done when the GPU has passed its marks and NCCL
 * reports no error: after an error or an abort the kernels leave early, and their marks mean
 * nothing. One that failed is kept until the streams are quiet, for a second at most, so that
 * nobody frees a buffer that a kernel still writes to.
 *
 * A blocking call asks again and again, at first at once, then after naps of a tenth of the time
 * that it has waited: late by a tenth, and no core is burnt. What the kernel adds to a nap is more
 * than a short message takes on the GPU, so a wait begins anew when messages are launched.
 */
#include "group.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SPIN_NS 20000u
#define LONGEST_NAP_NS 200000u
#define QUIET_NS 1000000000u
enum { POLLS_BETWEEN_ERROR_CHECKS = 64 };

uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void pause_ns(uint64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                                 .tv_nsec = (long)(ns % 1000000000u)},
              NULL);
}

struct flight *flight_new(struct nccl_group *g, uint64_t timeout_ns)
{
    struct flight *f = calloc(1, sizeof(*f) + g->nports * sizeof(f->done[0]));
    if (!f)
        return NULL;
    const uint64_t now = clock_ns();
    f->group = g;
    f->timeout_ns = timeout_ns;
    f->deadline_ns = timeout_ns < UINT64_MAX - now ? now + timeout_ns : UINT64_MAX;
    f->launched = true;
    return f;
}

static void flight_free(struct flight *f)
{
    struct nccl_group *g = f->group;
    traffic_leave(f);
    for (uint32_t i = 0; i < g->nports; i++) {
        struct port *p = &g->ports[i];
        if (f->done[i])
            atomic_fetch_sub(&p->device->flying, 1);
        port_take_back(p, f->done[i]);
        port_take_back(p, f->ready ? f->ready[i] : NULL);
    }
    mail_drop(f);
    free(f->ready);
    free(f);
}

/* ---- failing ---- */

static int fail_flight(struct flight *f, int status)
{
    f->status = status;
    f->failed_ns = clock_ns();
    return COLLRUN_AGAIN;
}

/* The first reason is the group's; the sentence is this thread's. */
static void time_out(struct flight *f)
{
    static const char *const hint =
        "; if that rank sends to this one too before it receives, use collrun_sendrecv or "
        "collrun_start_many";
    static const char *const held = "; it could not begin before others that this rank had started";
    const double seconds = (double)f->timeout_ns / 1e9;
    char why[sizeof(f->group->why)], reason[300];
    if (f->messages) {
        const bool unreceived = mail_explain(f, reason, sizeof(reason));
        snprintf(why, sizeof(why), "%s within %g s%s", reason, seconds, unreceived ? hint : "");
    } else {
        snprintf(why, sizeof(why), "timed out after %g s%s", seconds, f->launched ? "" : held);
    }
    group_doom(f->group, COLLRUN_ERR_TIMEOUT, why);
}

/* What NCCL found by itself: a peer that is gone, a network that broke. */
static int check_errors(struct nccl_group *g)
{
    int status = COLLRUN_OK;
    pthread_mutex_lock(&g->lock);
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->nports; i++) {
        ncclResult_t error = ncclSuccess;
        if (g->ports[i].comm)
            g->home->lib.nccl.ncclCommGetAsyncError(g->ports[i].comm, &error);
        if (error != ncclSuccess && error != ncclInProgress)
            status = nccl_failed(g, g->ports[i].comm, error, "NCCL");
    }
    pthread_mutex_unlock(&g->lock);
    return status;
}

/* OK: the GPU has passed all marks. */
static int ask_marks(struct flight *f)
{
    struct nccl_group *g = f->group;
    for (uint32_t i = 0; i < g->nports; i++) {
        if (!f->done[i])
            continue;
        const cudaError_t error = g->home->lib.cuda.cudaEventQuery(f->done[i]->event);
        if (error == cudaErrorNotReady)
            return COLLRUN_AGAIN;
        if (error != cudaSuccess)
            return cuda_failed(g, &g->ports[i], error, "an operation");
    }
    return COLLRUN_OK;
}

/* Failed: AGAIN until the streams are quiet, or have had their time. */
static int settle(struct flight *f)
{
    const bool in_time = clock_ns() < f->failed_ns + QUIET_NS;
    const int status = f->messages ? mail_settle(f->group, in_time) : ask_marks(f);
    if (status == COLLRUN_AGAIN && in_time)
        return COLLRUN_AGAIN;
    return group_failure(f->group);
}

static bool is_doomed(const struct nccl_group *g)
{
    return atomic_load_explicit(&g->fate, memory_order_acquire) != 0;
}

static int launch(struct flight *f)
{
    struct nccl_group *g = f->group;
    pthread_mutex_lock(&g->lock);
    const int status = is_doomed(g) ? group_failure(g) : issue(g, f);
    pthread_mutex_unlock(&g->lock);
    return status == COLLRUN_OK ? COLLRUN_AGAIN : status;
}

/* Of a collective that has not been launched: whether its callers' streams are there. */
static bool streams_have_come(const struct flight *f)
{
    const struct nccl_group *g = f->group;
    for (uint32_t i = 0; i < g->nports; i++)
        if (f->ready[i] && g->home->lib.cuda.cudaEventQuery(f->ready[i]->event) != cudaSuccess)
            return false;
    return true;
}

static int await_turn(struct flight *f)
{
    tally_exchange(f->group);
    f->bound = f->bound && !streams_have_come(f);
    if (traffic_turn(f))
        return launch(f);
    tally_exchange(f->group);
    return COLLRUN_AGAIN;
}

/* OK when it is done. */
static int advance(struct flight *f)
{
    if (f->messages) {
        mail_progress(f->group);
        return f->nopen ? COLLRUN_AGAIN : COLLRUN_OK;
    }
    if (!f->launched)
        return await_turn(f);
    const int status = ask_marks(f);
    return status == COLLRUN_OK && f->unlaunched ? launch(f) : status;
}

static int poll_flight(struct flight *f)
{
    struct nccl_group *g = f->group;
    if (f->status)
        return settle(f);
    int status = advance(f);
    if (is_doomed(g))
        return fail_flight(f, COLLRUN_ERR_ABORTED);
    if (status == COLLRUN_OK || f->polls++ % POLLS_BETWEEN_ERROR_CHECKS == 0) {
        const int error = check_errors(g);
        status = error == COLLRUN_OK ? status : error;
    }
    if (status < 0)
        return fail_flight(f, status);
    if (status == COLLRUN_AGAIN && clock_ns() >= f->deadline_ns) {
        time_out(f);
        return fail_flight(f, COLLRUN_ERR_TIMEOUT);
    }
    return status;
}

/* ---- the interface ---- */

/* What the callers' streams hold now, for later. */
static int remember_streams(struct flight *f)
{
    struct nccl_group *g = f->group;
    f->ready = calloc(g->nports, sizeof(struct mark *));
    if (!f->ready)
        return g->services->fail(g->services->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < f->ncalls; i++) {
        const struct collrun_call *c = &f->calls[i];
        if (!(f->ready[c->device] = port_mark(g, &g->ports[c->device], c->stream)))
            return COLLRUN_ERR_BACKEND;
    }
    return COLLRUN_OK;
}

/* With the group's lock. */
static int begin(struct flight *f)
{
    struct nccl_group *g = f->group;
    if (is_doomed(g))
        return group_failure(g);
    if (f->calls->kind >= COLLRUN_SEND)
        return mail_post(g, f);
    f->class = is_heavy(f->calls) ? HEAVY : LIGHT;
    f->launched = false;
    if (traffic_enter(f))
        return issue(g, f);
    tally_exchange(g);
    return remember_streams(f);
}

static int start(struct nccl_group *g, const struct collrun_call *calls, uint32_t ncalls,
                 struct flight **out)
{
    struct flight *f = flight_new(g, calls->timeout_ns);
    if (!f)
        return g->services->fail(g->services->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    f->calls = calls;
    f->ncalls = ncalls;
    pthread_mutex_lock(&g->lock);
    const int status = begin(f);
    pthread_mutex_unlock(&g->lock);
    if (status == COLLRUN_OK) {
        *out = f;
        return status;
    }
    group_doom(g, status, "an operation could not be started");
    flight_free(f);
    return status;
}

int flight_wait(struct flight *f)
{
    uint64_t since = clock_ns(), launched = mail_launched(f->group);
    int status;
    while ((status = poll_flight(f)) == COLLRUN_AGAIN) {
        const uint64_t now = clock_ns(), waited = now - since;
        if (mail_launched(f->group) != launched) { /* soon, perhaps */
            launched = mail_launched(f->group);
            since = now;
            continue;
        }
        if (waited < SPIN_NS)
            continue;
        const int gone = forming_goes_on(f->group);
        if (gone != COLLRUN_OK)
            group_doom(f->group, gone, "the job has failed");
        const uint64_t nap = waited / 10 < LONGEST_NAP_NS ? waited / 10 : LONGEST_NAP_NS;
        f->messages ? mail_listen(f->group, nap) : pause_ns(nap);
    }
    flight_free(f);
    return status;
}

int nccl_exec(void *group, const struct collrun_call *calls, uint32_t ncalls)
{
    struct flight *f = NULL;
    const int status = start(group, calls, ncalls, &f);
    return status == COLLRUN_OK ? flight_wait(f) : status;
}

int nccl_start(void *group, const struct collrun_call *calls, uint32_t ncalls, void **request)
{
    struct flight *f = NULL;
    const int status = start(group, calls, ncalls, &f);
    if (status == COLLRUN_OK)
        *request = f;
    return status;
}

int nccl_test(void *group, void *request)
{
    (void)group;
    const int status = poll_flight(request);
    if (status != COLLRUN_AGAIN)
        flight_free(request);
    return status;
}

int nccl_order(void *group, void *request, uint32_t device, void *stream)
{
    struct nccl_group *g = group;
    struct flight *f = request;
    struct port *p = &g->ports[device];
    cudaError_t error = cudaSuccess;
    int status = COLLRUN_OK;
    const int before = device_enter(g->home, p->ordinal);
    if (f->messages) {
        status = mail_order(f, device, stream, &error);
    } else if (!f->launched || f->unlaunched) {
        status = COLLRUN_AGAIN;
    } else if (f->done[device]) {
        traffic_await(f);
        error = g->home->lib.cuda.cudaStreamWaitEvent(stream, f->done[device]->event, 0);
    }
    device_leave(g->home, before);
    return error == cudaSuccess ? status : cuda_failed(g, p, error, "order a stream");
}
