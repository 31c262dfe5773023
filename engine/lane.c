/* SPDX-License-Identifier: Apache-2.0
 *
 * The turn is the right to be inside the backend and to touch `flying`; it is given and taken under
 * the lock. Who has it starts or executes what is queued, then asks what is flying. A waiter stops
 * as soon as its own request is finished: what comes after may need something that its thread does
 * next. This file is about who has the turn; turn.c is what is done with it.
 */
#include "lane.h"

#include "backend.h"
#include "base/loop.h"
#include "reduce.h"
#include "threads.h"
#include "turn.h"

#include <signal.h>
#include <time.h>

/* The worker's, while nothing moves. */
enum { SHORTEST_NAP_NS = 50000, LONGEST_NAP_NS = 2000000 };

/* How long the worker leaves a batch of messages open: as long as a thread that has more to add may
 * have lost its core. */
enum { BATCH_QUIET_NS = 100000000, BATCH_LONGEST_NS = 1000000000 };

/* ---- the turn ---- */

/* With the lock held; `flying` is only looked at when nobody has the turn. */
static bool turn_is_free(const struct lane *lane)
{
    return !lane->taken && (lane->queue || lane->flying);
}

/* Somebody who waits goes on with what is left, else the worker does. With the lock held. */
static void pass_turn(struct lane *lane)
{
    if (lane->sleepers)
        pthread_cond_broadcast(&lane->changed);
    else if (!lane->waiters && (turn_is_free(lane) || lane->stopping))
        pthread_cond_signal(&lane->work);
}

static void sleep_until_changed(struct lane *lane)
{
    lane->sleepers++;
    pthread_cond_wait(&lane->changed, &lane->lock);
    lane->sleepers--;
}

/* With the lock held before and after. True if something moved. */
static bool take_turn(struct lane *lane, const struct errand *errand)
{
    lane->taken = true;
    pthread_mutex_unlock(&lane->lock);
    bool queued = turn_drain_queue(lane, errand), moved = turn_ask_flying(lane) || queued;
    pthread_mutex_lock(&lane->lock);
    lane->taken = false;
    pass_turn(lane);
    return moved;
}

void lane_acquire(struct lane *lane)
{
    waits_busy(lane->group->engine, 1);
    pthread_mutex_lock(&lane->lock);
    while (lane->taken)
        sleep_until_changed(lane);
    lane->taken = true;
    pthread_mutex_unlock(&lane->lock);
}

void lane_release(struct lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    lane->taken = false;
    pass_turn(lane);
    pthread_mutex_unlock(&lane->lock);
    waits_busy(lane->group->engine, -1);
}

void lane_poke(struct lane *lane)
{
    if (!lane->starts)
        return;
    pthread_mutex_lock(&lane->lock);
    if (turn_is_free(lane))
        take_turn(lane, &(struct errand){.may_block = false});
    pthread_mutex_unlock(&lane->lock);
}

/* With the lock, both. */
static void add_waiter(struct lane *lane, struct lane_waiter *w)
{
    w->next = lane->waiting;
    lane->waiting = w;
    lane->waiters++;
    lane->waits++;
}

static void remove_waiter(struct lane *lane, const struct lane_waiter *w)
{
    struct lane_waiter **p = &lane->waiting;
    while (*p != w)
        p = &(*p)->next;
    *p = w->next;
    lane->waiters--;
}

/* With the lock, and the turn free: a turn of whoever waits for a request; `round` counts those in
 * which nothing has moved. */
static void wait_one_turn(struct lane *lane, const struct errand *errand, unsigned *round)
{
    *round = take_turn(lane, errand) ? 0 : *round + 1;
    if (*round == 0 || request_is_finished(errand->awaited))
        return;
    pthread_mutex_unlock(&lane->lock);
    turn_idle(*round);
    pthread_mutex_lock(&lane->lock);
}

void lane_wait(struct collrun_request *r)
{
    struct lane *lane = r->lane;
    struct errand errand = {.may_block = true, .awaited = r};
    struct lane_waiter self = {.thread = waits_thread(), .request = r};
    unsigned round = 0;
    pthread_mutex_lock(&lane->lock);
    add_waiter(lane, &self);
    while (!request_is_finished(r)) {
        if (!turn_is_free(lane)) {
            sleep_until_changed(lane);
            continue;
        }
        wait_one_turn(lane, &errand, &round);
    }
    remove_waiter(lane, &self);
    pass_turn(lane);
    pthread_mutex_unlock(&lane->lock);
}

/* With the lock, and the turn free. */
static int order_flying(struct lane *lane, const struct collrun_request *r, uint32_t device,
                        void *stream)
{
    lane->taken = true;
    pthread_mutex_unlock(&lane->lock);
    error_clear_cause();
    int rc = lane->backend->table.order(lane->handle, r->handle, device, stream);
    pthread_mutex_lock(&lane->lock);
    lane->taken = false;
    pass_turn(lane);
    return rc;
}

int lane_order(struct collrun_request *r, uint32_t device, void *stream)
{
    struct lane *lane = r->lane;
    struct errand errand = {.may_block = true, .awaited = r};
    unsigned round = 0;
    int rc = COLLRUN_OK;
    if (!lane->backend->has_order || r->staged) {
        lane_wait(r);
        return rc;
    }
    waits_busy(lane->group->engine, 1);
    pthread_mutex_lock(&lane->lock);
    lane->waiters++;
    while (!request_is_finished(r)) {
        if (lane->taken) {
            sleep_until_changed(lane);
            continue;
        }
        if (r->started && (rc = order_flying(lane, r, device, stream)) != COLLRUN_AGAIN)
            break;
        wait_one_turn(lane, &errand, &round);
    }
    lane->waiters--;
    pass_turn(lane);
    pthread_mutex_unlock(&lane->lock);
    waits_busy(lane->group->engine, -1);
    return rc == COLLRUN_AGAIN ? COLLRUN_OK : rc; /* it ended meanwhile */
}

/* ---- the worker ---- */

static void wait_until(struct lane *lane, uint64_t ns)
{
    struct timespec at = {.tv_sec = (time_t)(ns / 1000000000u),
                          .tv_nsec = (long)(ns % 1000000000u)};
    pthread_cond_timedwait(&lane->work, &lane->lock, &at);
}

/* Longer and longer, while nothing moves; ended by any change. */
static void nap(struct lane *lane, unsigned round)
{
    uint64_t ns = round < 8 ? (uint64_t)SHORTEST_NAP_NS << round : LONGEST_NAP_NS;
    wait_until(lane, now_ns() + (ns < LONGEST_NAP_NS ? ns : LONGEST_NAP_NS));
}

/* When the batch at the head of the queue may run without a waiter; 0: now. */
static uint64_t batch_due(const struct lane *lane)
{
    if (lane->starts || !lane->queue || !request_is_message(lane->queue) || lane->stopping)
        return 0;
    uint64_t latest = lane->queue->submitted_ns + BATCH_LONGEST_NS;
    return lane->last_ns + BATCH_QUIET_NS < latest ? lane->last_ns + BATCH_QUIET_NS : latest;
}

static void *work(void *arg)
{
    struct lane *lane = arg;
    unsigned idle = 0;
    thread_name("worker");
    pthread_mutex_lock(&lane->lock);
    for (;;) {
        while (lane->taken || (!lane->stopping && (lane->waiters || !turn_is_free(lane))))
            pthread_cond_wait(&lane->work, &lane->lock);
        if (lane->stopping && !turn_is_free(lane))
            break;
        uint64_t due = batch_due(lane);
        if (now_ns() < due) {
            wait_until(lane, due);
            continue;
        }
        idle = take_turn(lane, &(struct errand){.may_block = true}) ? 0 : idle + 1;
        if (idle && !lane->waiters)
            nap(lane, idle);
    }
    pthread_mutex_unlock(&lane->lock);
    return NULL;
}

static int start_worker(struct lane *lane)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&lane->worker, NULL, work, lane);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    lane->has_worker = rc == 0;
    return rc == 0 ? COLLRUN_OK : COLLRUN_ERR_SYSTEM;
}

/* ---- life ---- */

void lane_init(struct lane *lane, struct collrun_group *group, struct backend *backend,
               void *handle)
{
    pthread_condattr_t monotonic;
    *lane = (struct lane){
        .group = group, .backend = backend, .handle = handle, .starts = backend->has_start};
    lane->queue_end = &lane->queue;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&lane->changed, &monotonic);
    pthread_cond_init(&lane->work, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&lane->lock, NULL);
}

/* Emulated and checked ones take several calls, and some backends start nothing but messages. */
static bool needs_exec(const struct lane *lane, const struct collrun_call *call)
{
    const struct backend *b = lane->backend;
    if (group_lane_of(call->kind) == GROUP_MESSAGES)
        return !backend_is_native(b, call);
    bool starts = !b->has_exec || (b->table.flags & COLLRUN_BACKEND_STARTS_ALL);
    return !starts || !backend_is_native(b, call) || lane->group->check == COLLRUN_CHECK_STRICT;
}

int lane_submit(struct lane *lane, struct collrun_request *r)
{
    if (!lane->has_worker && start_worker(lane) != COLLRUN_OK)
        return COLLRUN_ERR_SYSTEM;
    r->lane = lane;
    r->next = NULL;
    r->needs_exec = needs_exec(lane, r->calls);
    atomic_init(&r->status, COLLRUN_AGAIN);
    atomic_fetch_add_explicit(&lane->pending, 1, memory_order_relaxed);
    const struct collrun_call *call = &r->calls[0];
    record_begin(r->group->record[group_lane_of(call->kind)], call, r->number,
                 call->count * dtype_size(call->dtype));
    pthread_mutex_lock(&lane->lock);
    waits_busy(lane->group->engine, 1);
    while (lane->in_order && lane->taken && !lane->blocked)
        sleep_until_changed(lane); /* for a moment */
    waits_busy(lane->group->engine, -1);
    r->submitted_ns = lane->last_ns = now_ns();
    r->later = lane->unfinished;
    r->link = &lane->unfinished;
    if (r->later)
        r->later->link = &r->later;
    lane->unfinished = r;
    *lane->queue_end = r;
    lane->queue_end = &r->next;
    if (lane->starts && turn_is_free(lane))
        take_turn(lane, &(struct errand){.may_block = false});
    else
        pass_turn(lane);
    pthread_mutex_unlock(&lane->lock);
    return COLLRUN_OK;
}

void lane_fini(struct lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    lane->stopping = true;
    pthread_cond_signal(&lane->work);
    pthread_mutex_unlock(&lane->lock);
    if (lane->has_worker)
        pthread_join(lane->worker, NULL);
    traffic_fini(&lane->traffic);
    pthread_cond_destroy(&lane->changed);
    pthread_cond_destroy(&lane->work);
    pthread_mutex_destroy(&lane->lock);
}
