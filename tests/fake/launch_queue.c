/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of one device of this process, in the order in which the host launched them. A kernel
 * starts when it is first in its stream, the previous kernels of the communicator, and of those
 * that share its resources, are done, and fewer than FAKE_NCCL_CONCURRENCY (8) kernels run; with
 * NCCL_LAUNCH_ORDER_IMPLICIT=1 also only after all kernels that were launched before it. So ranks
 * that launch the kernels of two communicators in different orders block each other, as they may on
 * GPUs; launch_queue_explain reports it.
 */
#include "comm.h"

#include <stdlib.h>

static struct launch_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct kernel *first; /* launched and not finished */
    long running;
    _Atomic int launching; /* threads that are about to launch */
} launch_queues[FAKE_GPUS_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool implicit;
static long concurrency, stall_ms;

static void prepare(void)
{
    for (int i = 0; i < FAKE_GPUS_MAX; i++) {
        pthread_mutex_init(&launch_queues[i].lock, NULL);
        pthread_cond_init(&launch_queues[i].changed, NULL);
    }
    implicit = fake_setting("NCCL_LAUNCH_ORDER_IMPLICIT", 0) != 0;
    concurrency = fake_setting("FAKE_NCCL_CONCURRENCY", 8);
    stall_ms = fake_setting("FAKE_NCCL_STALL_MS", 5000);
}

static struct launch_queue *launch_queue_of(int device)
{
    pthread_once(&once, prepare);
    return &launch_queues[device];
}

static struct rank_state *own_state(const struct ncclComm *comm)
{
    return &comm->shared->ranks[comm->rank];
}

/* ---- launching ---- */

bool launch_queue_enter(int device)
{
    struct launch_queue *queue = launch_queue_of(device);
    bool first = atomic_fetch_add(&queue->launching, 1) == 0;
    if (first || !implicit || !fake_setting("NCCL_LAUNCH_RACE_FATAL", 1))
        return true;
    launch_queue_leave(device);
    return false;
}

void launch_queue_leave(int device)
{
    atomic_fetch_sub(&launch_queue_of(device)->launching, 1);
}

int launch_queue_launch(struct kernel *kernel, struct CUstream_st *stream)
{
    struct ncclComm *comm = kernel->comm;
    struct launch_queue *queue = launch_queue_of(comm->device);
    fake_await_frees(); /* without the lock, which a kernel needs to end */
    pthread_mutex_lock(&queue->lock);
    struct kernel **end = &queue->first;
    while (*end)
        end = &(*end)->next;
    kernel->number = atomic_load(&comm->launched) + 1;
    *end = kernel; /* before its stream can run it */
    int code = fake_launch(stream, comm->device, kernel_run, kernel);
    if (code == cudaSuccess) {
        atomic_store(&comm->launched, kernel->number);
        atomic_store(&own_state(comm)->launched, kernel->number);
    } else {
        *end = NULL;
        free(kernel);
    }
    pthread_mutex_unlock(&queue->lock);
    return code;
}

/* ---- running ---- */

void launch_queue_wake(int device)
{
    struct launch_queue *queue = launch_queue_of(device);
    pthread_mutex_lock(&queue->lock);
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

/* The kernel that keeps this one from starting: one that must start first, or one that occupies the
 * device. This kernel itself stands for its communicator's previous one. NULL: none. */
static const struct kernel *blocking_kernel(const struct launch_queue *queue,
                                            const struct kernel *kernel)
{
    const struct kernel *running = NULL;
    bool before = true;
    if (kernel->comm->done + 1 < kernel->number)
        return kernel;
    for (const struct kernel *k = queue->first; k; k = k->next) {
        before = before && k != kernel;
        if (before && k->comm == kernel->comm)
            return k; /* it has one stream inside the library */
        if (k->started)
            running = running ? running : k;
        else if (before && implicit)
            return k;
    }
    return queue->running >= concurrency ? running : NULL;
}

bool launch_queue_start(struct kernel *kernel)
{
    struct ncclComm *comm = kernel->comm;
    struct launch_queue *queue = launch_queue_of(comm->device);
    const struct kernel *other;
    pthread_mutex_lock(&queue->lock);
    while (!comm_stopped(comm) && (other = blocking_kernel(queue, kernel))) {
        atomic_store(&own_state(comm)->blocked_by, other == kernel ? 0 : other->comm->id);
        shared_notify(comm->shared);
        pthread_cond_wait(&queue->changed, &queue->lock);
    }
    kernel->started = true;
    kernel->since = fake_seconds();
    queue->running++;
    atomic_store(&own_state(comm)->blocked_by, 0);
    atomic_store(&own_state(comm)->started, kernel->number);
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    return !comm_stopped(comm);
}

void launch_queue_finish(struct kernel *kernel)
{
    struct ncclComm *comm = kernel->comm;
    struct launch_queue *queue = launch_queue_of(comm->device);
    pthread_mutex_lock(&queue->lock);
    struct kernel **link = &queue->first;
    while (*link != kernel)
        link = &(*link)->next;
    *link = kernel->next;
    queue->running--;
    atomic_store(&own_state(comm)->finished, kernel->number);
    shared_notify(comm->shared);
    atomic_fetch_add(&comm->done, 1); /* from here on the communicator may be freed */
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    free(kernel);
}

/* ---- explaining ---- */

/* The state, in another communicator, of the rank on the same GPU; NULL: none. */
static const struct rank_state *same_gpu(const struct ncclComm *comm,
                                         const struct rank_state *state)
{
    for (int r = 0; r < comm->nranks; r++)
        if (comm->shared->ranks[r].gpu == state->gpu && comm->shared->ranks[r].host == state->host)
            return &comm->shared->ranks[r];
    return NULL;
}

/* A kernel that cannot start here because another one runs, but that runs on the device of `late`,
 * where it keeps that other one from starting. */
static const struct kernel *inverted(const struct launch_queue *queue,
                                     const struct rank_state *late)
{
    uint64_t blocked_by = atomic_load(&late->blocked_by);
    for (const struct kernel *k = queue->first; blocked_by && k; k = k->next) {
        const struct rank_state *there = k->comm->id == blocked_by ? same_gpu(k->comm, late) : NULL;
        bool all_take_part =
            k->tasks[0].call.operation < SEND; /* so the numbers of kernels agree */
        if (there && !k->started && all_take_part && atomic_load(&there->started) >= k->number &&
            blocking_kernel(queue, k) && blocking_kernel(queue, k) != k)
            return k;
    }
    return NULL;
}

static const char *state_of(const struct rank_state *state)
{
    if (atomic_load(&state->left))
        return "has left";
    if (atomic_load(&state->blocked_by))
        return "has its next kernel behind another communicator's that does not end";
    if (atomic_load(&state->started) > atomic_load(&state->finished))
        return "is in a kernel";
    return atomic_load(&state->launched) > atomic_load(&state->finished)
               ? "has launched its next kernel, which has not started"
               : "has launched no further kernel";
}

/* Kernels in different orders may be about to end; after a second they are not. */
static bool is_certain(struct kernel *kernel, const struct kernel *other)
{
    const double now = fake_seconds();
    if (kernel->suspect != other)
        kernel->suspect_since = now;
    kernel->suspect = other;
    return other && now - kernel->suspect_since > 1.0;
}

void launch_queue_explain(struct kernel *kernel, int rank)
{
    struct ncclComm *comm = kernel->comm;
    const struct rank_state *late = &comm->shared->ranks[rank];
    double waited = fake_seconds() - kernel->since;
    if (kernel->explained || waited < 0.3)
        return;
    struct launch_queue *queue = launch_queue_of(comm->device);
    pthread_mutex_lock(&queue->lock);
    const struct kernel *other = inverted(queue, late);
    if (!is_certain(kernel, other))
        other = NULL;
    if (other)
        fake_log(
            "libnccl",
            "LAUNCH ORDER: %s rank %d runs kernel %llu, and kernel %llu of %s waits behind it; "
            "rank %d launched them in the other order",
            comm->name, comm->rank, (unsigned long long)kernel->number,
            (unsigned long long)other->number, other->comm->name, rank);
    else if (waited * 1000 >= (double)stall_ms)
        fake_log("libnccl", "STALL: %s rank %d, kernel %llu (%s), waits for rank %d, which %s",
                 comm->name, comm->rank, (unsigned long long)kernel->number,
                 operation_names[kernel->tasks[0].call.operation], rank, state_of(late));
    kernel->explained = other || waited * 1000 >= (double)stall_ms;
    pthread_mutex_unlock(&queue->lock);
}
