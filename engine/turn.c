/* SPDX-License-Identifier: Apache-2.0
 *
 * Only the holder of the turn is here, or, in lane_exec, the one caller of an idle lane: `flying`
 * is theirs.
 */
#include "turn.h"

#include "backend.h"
#include "base/loop.h"
#include "names.h"
#include "reduce.h"
#include "stage.h"
#include "strict.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A thread that waits first spins, then yields, then sleeps: ranks often outnumber cores. */
enum { SPIN_ROUNDS = 64, YIELD_ROUNDS = 1000, SLEEP_NS = 50000 };

/* ---- finishing ---- */

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
    for (uint32_t i = 0; status == COLLRUN_OK && request_is_message(r) && i < r->ncalls; i++)
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
        if (first && (has_start || !request_is_message(first) || !request_is_message(lane->queue)))
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

/* Starts or executes what is queued. True if there was something. */
bool turn_drain_queue(struct lane *lane, const struct errand *errand)
{
    bool any = false;
    struct collrun_request *list;
    while (!(errand->awaited && request_is_finished(errand->awaited)) &&
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
bool turn_ask_flying(struct lane *lane)
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

/* ---- blocking ---- */

void turn_idle(unsigned round)
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

/* The next message of the queue, wherever it stands; NULL: none that start can do. */
static struct collrun_request *take_message(struct lane *lane)
{
    struct collrun_request **p = &lane->queue, *r;
    pthread_mutex_lock(&lane->lock);
    while ((r = *p) && !request_is_message(r))
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
    return turn_ask_flying(lane) || any;
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
        turn_idle(round);
    }
}
