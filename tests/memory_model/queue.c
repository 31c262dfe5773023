/* SPDX-License-Identifier: Apache-2.0
 *
 * What enters a queue without its lock. A plain word stands for the backend's handle.
 *
 * - Blocking calls while the group is closed: none is inside, or enters, once pq_evict has
 *   returned.
 * - A deferred request while the group is closed: the thread that closes it finds the request, or
 *   it is not deferred.
 * - A deferred request beside a thread that needs the queue: one of them executes it, once, and a
 *   worker that falls asleep meanwhile is woken.
 */
#include "memory_model/model.h"
#include "progress/progress_owner.h"
#include "progress/progress_queue.h"

static struct progress_queue queue;
static unsigned handle;

static void clear(void)
{
    queue = (struct progress_queue){.lock = PTHREAD_MUTEX_INITIALIZER};
    handle = 0;
}

static void call_directly(void)
{
    if (!pq_enter_direct(&queue))
        return;
    handle++;
    pq_leave_direct(&queue);
}

/* The last thread closes the group; the others call at the same time. */
static void evict(uint32_t self)
{
    if (self < 2) {
        call_directly();
        return;
    }
    pq_evict(&queue);
    handle++;
}

/* ---- deferred requests ---- */

static struct collrun_request request;
static unsigned nexecuted; /* with the handle */

static void admitted(struct collrun_request *r)
{
    (void)r;
}

static void clear_deferred(void)
{
    static const struct pq_ops ops = {.admitted = admitted};
    clear();
    queue.worker.started = true;
    queue.config.ops = &ops;
    queue.requests.queue_end = &queue.requests.queue;
    request = (struct collrun_request){.pq = &queue, .status = COLLRUN_AGAIN, .needs_exec = true};
    nexecuted = 0;
}

static void start_and_wait(void)
{
    request.number = 1;
    if (!pq_defer(&request) || !pq_enter_deferred(&request))
        return;
    handle++;
    nexecuted++;
    pq_leave_deferred(&request, COLLRUN_OK);
}

static void own_and_execute(void)
{
    pthread_mutex_lock(&queue.lock);
    if (pq_own(&queue)) {
        handle++;
        if (queue.requests.queue) {
            MODEL_CHECK(queue.requests.queue->number == 1);
            nexecuted++;
            queue.requests.queue = NULL;
            pq_count_queued(&queue.requests, -1);
            pq_remove_unfinished(&request);
        }
        pq_disown(&queue);
    }
    pthread_mutex_unlock(&queue.lock);
}

static void fall_asleep(void)
{
    pthread_mutex_lock(&queue.lock);
    atomic_store(&queue.worker.asleep, true);
    if (atomic_load(&queue.requests.deferred))
        atomic_store(&queue.worker.asleep, false);
    pthread_mutex_unlock(&queue.lock);
}

static void defer(uint32_t self)
{
    if (self == 0)
        start_and_wait();
    else if (self == 1)
        own_and_execute();
    else
        fall_asleep();
}

static void defer_and_leave(uint32_t self)
{
    if (self == 0)
        pq_defer(&request);
    else
        fall_asleep();
}

/* The last thread finishes what it finds. */
static void defer_while_closed(uint32_t self)
{
    if (self == 0) {
        start_and_wait();
        return;
    }
    pq_evict(&queue);
    handle++;
    if (queue.requests.queue) {
        nexecuted++;
        queue.requests.queue = NULL;
        pq_count_queued(&queue.requests, -1);
        pq_remove_unfinished(&request);
    }
}

static void check_closed(void)
{
    MODEL_CHECK(nexecuted <= 1 && !queue.requests.deferred && atomic_load(&queue.pending) == 0);
}

/* The thread that could not execute it directly waits for it as for any other request. */
static void check_deferred(void)
{
    const bool left = queue.requests.deferred || queue.requests.queue;
    MODEL_CHECK(nexecuted <= 1 && atomic_load(&queue.owner) == PQ_FREE);
    MODEL_CHECK(atomic_load(&queue.pending) == left);
    MODEL_CHECK(!queue.requests.deferred || !atomic_load(&queue.worker.asleep));
}

int main(int argc, char **argv)
{
    const struct model_test tests[] = {
        {.name = "calls beside an eviction", .nthreads = 3, .setup = clear, .thread = evict},
        {.name = "a deferred request beside an eviction",
         .nthreads = 2,
         .setup = clear_deferred,
         .thread = defer_while_closed,
         .check = check_closed},
        {.name = "a deferred request that another thread takes over",
         .nthreads = 3,
         .setup = clear_deferred,
         .thread = defer,
         .check = check_deferred},
        {.name = "a deferred request beside a worker that falls asleep",
         .nthreads = 2,
         .setup = clear_deferred,
         .thread = defer_and_leave,
         .check = check_deferred},
    };
    return model_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
