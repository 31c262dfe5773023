/* SPDX-License-Identifier: Apache-2.0
 *
 * The turn is the right to be inside the backend and to touch `flying`; it is given and taken under
 * the lock. Who has it starts or executes what is queued, then asks what is flying. A waiter stops
 * as soon as its own request is finished: what comes after may need something that its thread does
 * next. Between two rounds without any progress a thread first spins, then yields, then sleeps:
 * ranks often outnumber cores.
 */
#include "lane.h"

#include "backend.h"
#include "base/loop.h"
#include "group.h"
#include "names.h"
#include "reduce.h"
#include "stage.h"
#include "strict.h"
#include "threads.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SPIN_ROUNDS = 64, YIELD_ROUNDS = 1000, SLEEP_NS = 50000, LONGEST_NAP_NS = 2000000 };

/* How long the worker leaves a batch of messages open: as long as a thread that has more to add may
 * have lost its core. */
enum { BATCH_QUIET_NS = 100000000, BATCH_LONGEST_NS = 1000000000 };

/* ---- finishing ---- */

static bool is_message(const struct collrun_request *r)
{
    return group_lane_of(r->calls[0].kind) == GROUP_MESSAGES;
}

static void finish(struct collrun_request *r, int status)
{
    struct lane *lane = r->lane;
    if (r->stage)
        status = stage_out(r->stage, status);
    r->stage = NULL;
    if (status != COLLRUN_OK) {
        status = group_failed(r->group, r->calls[0].kind, r->number, status);
        r->failure = malloc(sizeof *r->failure);
        if (r->failure)
            *r->failure = *error_get();
    }
    if (status == COLLRUN_OK)
        record_end(r->group->record[group_lane_of(r->calls[0].kind)], r->number);
    for (uint32_t i = 0; status == COLLRUN_OK && is_message(r) && i < r->ncalls; i++)
        traffic_count(&lane->traffic, &r->calls[i]);
    pthread_mutex_lock(&lane->lock);
    *r->link = r->later;
    if (r->later)
        r->later->link = r->link;
    atomic_fetch_sub_explicit(&lane->pending, 1, memory_order_release);
    atomic_store_explicit(&r->status, status, memory_order_release);
    if (lane->sleepers)
        pthread_cond_broadcast(&lane->changed);
    pthread_mutex_unlock(&lane->lock);
}

/* ---- with the turn ---- */

/* Both sorts go through one handle. */
static bool lane_is_shared(const struct lane *lane)
{
    return lane->shared;
}

static struct collrun_request *pop(struct lane *lane)
{
    struct collrun_request *r = lane->queue;
    lane->queue = r->next;
    if (!lane->queue)
        lane->queue_end = &lane->queue;
    r->next = NULL;
    return r;
}

/* The next request, or a batch of messages: a list. `may_block` false: only what start can do. */
static struct collrun_request *take_next(struct lane *lane, bool may_block)
{
    bool has_start = lane->starts;
    struct collrun_request *first = NULL, **end = &first;
    pthread_mutex_lock(&lane->lock);
    while (lane->queue && (may_block || (has_start && !lane->queue->needs_exec))) {
        if (first && (has_start || !is_message(first) || !is_message(lane->queue)))
            break;
        *end = pop(lane);
        end = &(*end)->next;
    }
    pthread_mutex_unlock(&lane->lock);
    return first;
}

static void push_front(struct lane *lane, struct collrun_request *r)
{
    pthread_mutex_lock(&lane->lock);
    r->next = lane->queue;
    if (!lane->queue)
        lane->queue_end = &r->next;
    lane->queue = r;
    pthread_mutex_unlock(&lane->lock);
}

static uint32_t count_calls(const struct collrun_request *list)
{
    uint32_t n = 0;
    for (const struct collrun_request *r = list; r; r = r->next)
        n += r->ncalls;
    return n;
}

/* Of several requests, side by side. NULL: out of memory, and that is the cause. */
static struct collrun_call *join_calls(const struct collrun_request *list, uint32_t n)
{
    struct collrun_call *calls = calloc(n, sizeof *calls);
    uint32_t at = 0;
    if (!calls)
        error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for %u messages", n);
    for (const struct collrun_request *r = list; calls && r; r = r->next) {
        for (uint32_t i = 0; i < r->ncalls; i++)
            calls[at++] = r->calls[i];
    }
    return calls;
}

static int exec_batch(struct lane *lane, const struct collrun_request *list)
{
    if (!list->next)
        return strict_exec(lane, list->calls, list->ncalls, list->number);
    uint32_t n = count_calls(list);
    struct collrun_call *calls = join_calls(list, n);
    int rc = calls ? lane_exec(lane, calls, n) : COLLRUN_ERR_NO_MEMORY;
    free(calls);
    return rc;
}

/* All of a list end alike; the cause of a failure is stored. */
static void finish_list(struct collrun_request *list, int rc)
{
    struct error_record cause = *error_get();
    for (struct collrun_request *r = list, *next; r; r = next) {
        next = r->next;
        if (rc != COLLRUN_OK)
            error_restore(&cause);
        finish(r, rc);
    }
}

static void append_flying(struct lane *lane, struct collrun_request *r)
{
    struct collrun_request **end = &lane->flying;
    while (*end)
        end = &(*end)->next;
    *end = r;
}

static void set_blocked(struct lane *lane, bool blocked)
{
    pthread_mutex_lock(&lane->lock);
    lane->blocked = blocked;
    if (lane->sleepers)
        pthread_cond_broadcast(&lane->changed);
    pthread_mutex_unlock(&lane->lock);
}

/* Executes a list; blocks. */
static void execute(struct lane *lane, struct collrun_request *list)
{
    error_clear_cause();
    int fate = atomic_load_explicit(&lane->group->fate, memory_order_acquire);
    if (lane->in_order)
        set_blocked(lane, true);
    finish_list(list, fate ? fate : exec_batch(lane, list));
    if (lane->in_order)
        set_blocked(lane, false);
}

/* False: start cannot do it, and the request is back in the queue. */
static bool start(struct lane *lane, struct collrun_request *r)
{
    int fate = atomic_load_explicit(&lane->group->fate, memory_order_acquire);
    if (fate != 0) {
        error_clear_cause();
        finish(r, fate);
        return true;
    }
    error_clear_cause();
    int rc = lane->backend->table.start(lane->handle, r->calls, r->ncalls, &r->handle);
    if (rc == COLLRUN_ERR_UNSUPPORTED && lane->backend->has_exec) {
        r->needs_exec = true;
        push_front(lane, r);
        return false;
    }
    r->started = rc == COLLRUN_OK;
    if (r->started)
        append_flying(lane, r);
    else
        finish(r, rc);
    return true;
}

static bool is_finished(const struct collrun_request *r)
{
    return atomic_load_explicit(&r->status, memory_order_acquire) != COLLRUN_AGAIN;
}

/* Who takes the turn, and what for. */
struct errand {
    bool may_block; /* also what only exec can do */
    const struct collrun_request
        *awaited; /* enough when this one is finished; NULL: all there is */
};

/* Starts or executes what is queued. True if there was something. */
static bool drain_queue(struct lane *lane, const struct errand *errand)
{
    bool any = false;
    struct collrun_request *list;
    while (!(errand->awaited && is_finished(errand->awaited)) &&
           (list = take_next(lane, errand->may_block))) {
        any = true;
        if (lane->starts && !list->needs_exec)
            start(lane, list);
        else
            execute(lane, list);
    }
    return any;
}

/* A backend that does not keep time is stopped; its request then ends like any other of an aborted
 * group. */
static void expire(struct collrun_request *r)
{
    char why[256];
    if (r->expired || now_ns() < r->deadline_ns)
        return;
    r->expired = true;
    snprintf(why, sizeof why, "%s %s#%llu timed out after %.1f s", kind_name(r->calls[0].kind),
             r->group->name, (unsigned long long)r->number, (double)r->calls[0].timeout_ns / 1e9);
    group_abort(r->group, COLLRUN_ERR_TIMEOUT, why);
}

/* Asks every started request once. True if one finished. */
static bool ask_flying(struct lane *lane)
{
    bool any = false;
    struct collrun_request **p = &lane->flying;
    while (*p) {
        struct collrun_request *r = *p;
        error_clear_cause();
        int rc = lane->backend->table.test(lane->handle, r->handle);
        if (rc == COLLRUN_AGAIN) {
            expire(r);
            p = &r->next;
            continue;
        }
        *p = r->next;
        finish(r, rc);
        any = true;
    }
    return any;
}

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
    bool queued = drain_queue(lane, errand), moved = ask_flying(lane) || queued;
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

static void idle_round(unsigned round)
{
    if (round < SPIN_ROUNDS) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    } else if (round < YIELD_ROUNDS) {
        sched_yield();
    } else {
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
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
    if (*round == 0 || is_finished(errand->awaited))
        return;
    pthread_mutex_unlock(&lane->lock);
    idle_round(*round);
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
    while (!is_finished(r)) {
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
    while (!is_finished(r)) {
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
    uint64_t ns = round < 8 ? (uint64_t)SLEEP_NS << round : LONGEST_NAP_NS;
    wait_until(lane, now_ns() + (ns < LONGEST_NAP_NS ? ns : LONGEST_NAP_NS));
}

/* When the batch at the head of the queue may run without a waiter; 0: now. */
static uint64_t batch_due(const struct lane *lane)
{
    if (lane->starts || !lane->queue || !is_message(lane->queue) || lane->stopping)
        return 0;
    uint64_t latest = lane->queue->submitted_ns + BATCH_LONGEST_NS;
    return lane->last_ns + BATCH_QUIET_NS < latest ? lane->last_ns + BATCH_QUIET_NS : latest;
}

static void *work(void *arg)
{
    struct lane *lane = arg;
    unsigned idle = 0;
    thread_name_set("worker", NULL);
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

/* The next message of the queue, wherever it stands; NULL: none that start can do. */
static struct collrun_request *take_message(struct lane *lane)
{
    struct collrun_request **p = &lane->queue, *r;
    pthread_mutex_lock(&lane->lock);
    while ((r = *p) && !is_message(r))
        p = &r->next;
    if (r && !r->needs_exec) {
        *p = r->next;
        if (!r->next)
            lane->queue_end = p;
        r->next = NULL;
    } else {
        r = NULL;
    }
    pthread_mutex_unlock(&lane->lock);
    return r;
}

/* Peers may need messages that were started before or behind a collective, before they come to it.
 * True if something moved. */
static bool move_messages(struct lane *lane)
{
    bool any = false;
    struct collrun_request *r;
    while (lane_is_shared(lane) && (r = take_message(lane)) && start(lane, r))
        any = true;
    return ask_flying(lane) || any;
}

/* Only the holder of the turn, or the one caller of an idle lane, comes here; `flying` is theirs.
 */
int lane_exec(struct lane *lane, const struct collrun_call *calls, uint32_t ncalls)
{
    const struct backend *b = lane->backend;
    void *request = NULL;
    bool blocks = lane_is_idle(lane) || !lane_is_shared(lane);
    if (b->has_exec && (!lane->starts || (blocks && !lane->flying)))
        return b->table.exec(lane->handle, calls, ncalls);
    int rc = b->table.start(lane->handle, calls, ncalls, &request);
    if (rc == COLLRUN_ERR_UNSUPPORTED && b->has_exec)
        return b->table.exec(lane->handle, calls, ncalls);
    if (rc != COLLRUN_OK)
        return rc;
    for (unsigned round = 0;; round++) {
        error_clear_cause();
        rc = b->table.test(lane->handle, request);
        if (rc != COLLRUN_AGAIN)
            return rc;
        if (move_messages(lane))
            round = 0;
        idle_round(round);
    }
}
