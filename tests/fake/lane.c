/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of one device of this process, in the order in which the host launched them. A kernel
 * starts when it is first in its stream, the communicator's previous kernel is done, and fewer than
 * FAKE_NCCL_CONCURRENCY (8) kernels run; with NCCL_LAUNCH_ORDER_IMPLICIT=1 also only after all that
 * were launched before it. So ranks that launch the kernels of two communicators in different
 * orders get stuck, as they may on GPUs, and lane_explain says so.
 */
#include "comm.h"

#include <stdlib.h>

static struct lane {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct kernel *first; /* launched and not finished */
    long running;
    _Atomic int launching; /* threads that are about to launch */
} lanes[FAKE_GPUS_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool implicit;
static long concurrency, stall_ms;

static void prepare(void)
{
    for (int i = 0; i < FAKE_GPUS_MAX; i++) {
        pthread_mutex_init(&lanes[i].lock, NULL);
        pthread_cond_init(&lanes[i].changed, NULL);
    }
    implicit = fake_setting("NCCL_LAUNCH_ORDER_IMPLICIT", 0) != 0;
    concurrency = fake_setting("FAKE_NCCL_CONCURRENCY", 8);
    stall_ms = fake_setting("FAKE_NCCL_STALL_MS", 5000);
}

static struct lane *lane_of(int device)
{
    pthread_once(&once, prepare);
    return &lanes[device];
}

static struct line *own_line(const struct ncclComm *comm)
{
    return &comm->board->lines[comm->rank];
}

/* ---- launching ---- */

bool lane_enter(int device)
{
    struct lane *lane = lane_of(device);
    bool first = atomic_fetch_add(&lane->launching, 1) == 0;
    if (first || !implicit || !fake_setting("NCCL_LAUNCH_RACE_FATAL", 1))
        return true;
    lane_leave(device);
    return false;
}

void lane_leave(int device)
{
    atomic_fetch_sub(&lane_of(device)->launching, 1);
}

int lane_launch(struct kernel *kernel, struct CUstream_st *stream)
{
    struct ncclComm *comm = kernel->comm;
    struct lane *lane = lane_of(comm->device);
    pthread_mutex_lock(&lane->lock);
    struct kernel **end = &lane->first;
    while (*end)
        end = &(*end)->next;
    kernel->number = atomic_load(&comm->launched) + 1;
    *end = kernel; /* before its stream can run it */
    int code = fake_launch(stream, comm->device, kernel_run, kernel);
    if (code == cudaSuccess) {
        atomic_store(&comm->launched, kernel->number);
        atomic_store(&own_line(comm)->launched, kernel->number);
    } else {
        *end = NULL;
        free(kernel);
    }
    pthread_mutex_unlock(&lane->lock);
    return code;
}

/* ---- running ---- */

void lane_wake(int device)
{
    struct lane *lane = lane_of(device);
    pthread_mutex_lock(&lane->lock);
    pthread_cond_broadcast(&lane->changed);
    pthread_mutex_unlock(&lane->lock);
}

/* The kernel that keeps this one from starting: one that is to start first, one of those that fill
 * the device, or, for its communicator's previous kernel, this one itself. NULL: none. */
static const struct kernel *in_the_way(const struct lane *lane, const struct kernel *kernel)
{
    const struct kernel *running = NULL;
    bool before = true;
    if (kernel->comm->done + 1 < kernel->number)
        return kernel;
    for (const struct kernel *k = lane->first; k; k = k->next) {
        before = before && k != kernel;
        if (k->started)
            running = running ? running : k;
        else if (before && implicit)
            return k;
    }
    return lane->running >= concurrency ? running : NULL;
}

bool lane_start(struct kernel *kernel)
{
    struct ncclComm *comm = kernel->comm;
    struct lane *lane = lane_of(comm->device);
    const struct kernel *other;
    pthread_mutex_lock(&lane->lock);
    while (!comm_stopped(comm) && (other = in_the_way(lane, kernel))) {
        atomic_store(&own_line(comm)->behind, other == kernel ? 0 : other->comm->id);
        board_ring(comm->board);
        pthread_cond_wait(&lane->changed, &lane->lock);
    }
    kernel->started = true;
    kernel->since = fake_seconds();
    lane->running++;
    atomic_store(&own_line(comm)->behind, 0);
    atomic_store(&own_line(comm)->started, kernel->number);
    pthread_cond_broadcast(&lane->changed);
    pthread_mutex_unlock(&lane->lock);
    return !comm_stopped(comm);
}

void lane_finish(struct kernel *kernel)
{
    struct ncclComm *comm = kernel->comm;
    struct lane *lane = lane_of(comm->device);
    pthread_mutex_lock(&lane->lock);
    struct kernel **link = &lane->first;
    while (*link != kernel)
        link = &(*link)->next;
    *link = kernel->next;
    lane->running--;
    atomic_store(&own_line(comm)->finished, kernel->number);
    board_ring(comm->board);
    atomic_fetch_add(&comm->done, 1); /* from here on the communicator may be freed */
    pthread_cond_broadcast(&lane->changed);
    pthread_mutex_unlock(&lane->lock);
    free(kernel);
}

/* ---- explaining ---- */

/* The line on another board of the rank that `line` is. */
static const struct line *same_gpu(const struct ncclComm *comm, const struct line *line)
{
    for (int r = 0; r < comm->nranks; r++)
        if (comm->board->lines[r].gpu == line->gpu && comm->board->lines[r].host == line->host)
            return &comm->board->lines[r];
    return NULL;
}

/* A kernel that cannot start here because of another that runs, and that runs on the device of
 * `late` and keeps that other one from starting there. */
static const struct kernel *inverted(const struct lane *lane, const struct line *late)
{
    uint64_t behind = atomic_load(&late->behind);
    for (const struct kernel *k = lane->first; behind && k; k = k->next) {
        const struct line *there = k->comm->id == behind ? same_gpu(k->comm, late) : NULL;
        bool all_take_part = k->tasks[0].call.operation < SEND; /* so that kernels' numbers agree */
        if (there && !k->started && all_take_part && atomic_load(&there->started) >= k->number &&
            in_the_way(lane, k) && in_the_way(lane, k) != k)
            return k;
    }
    return NULL;
}

static const char *state_of(const struct line *line)
{
    if (atomic_load(&line->left))
        return "has left";
    if (atomic_load(&line->behind))
        return "has its next kernel behind another communicator's that does not end";
    if (atomic_load(&line->started) > atomic_load(&line->finished))
        return "is in a kernel, too";
    return atomic_load(&line->launched) > atomic_load(&line->finished)
               ? "has launched its next kernel, which has not started"
               : "has launched nothing more";
}

/* Kernels in different orders may be about to end: those that stay so for a while are not. */
static bool is_sure(struct kernel *kernel, const struct kernel *other)
{
    const double now = fake_seconds();
    if (kernel->doubted != other)
        kernel->doubted_since = now;
    kernel->doubted = other;
    return other && now - kernel->doubted_since > 1.0;
}

void lane_explain(struct kernel *kernel, int rank)
{
    struct ncclComm *comm = kernel->comm;
    const struct line *late = &comm->board->lines[rank];
    double waited = fake_seconds() - kernel->since;
    if (kernel->explained || waited < 0.3)
        return;
    struct lane *lane = lane_of(comm->device);
    pthread_mutex_lock(&lane->lock);
    const struct kernel *other = inverted(lane, late);
    if (!is_sure(kernel, other))
        other = NULL;
    if (other)
        fake_say(
            "libnccl",
            "LAUNCH ORDER: %s rank %d runs kernel %llu, and kernel %llu of %s waits behind it; "
            "rank %d launched them in the other order",
            comm->name, comm->rank, (unsigned long long)kernel->number,
            (unsigned long long)other->number, other->comm->name, rank);
    else if (waited * 1000 >= (double)stall_ms)
        fake_say("libnccl", "STALL: %s rank %d, kernel %llu (%s), waits for rank %d, which %s",
                 comm->name, comm->rank, (unsigned long long)kernel->number,
                 operation_names[kernel->tasks[0].call.operation], rank, state_of(late));
    kernel->explained = other || waited * 1000 >= (double)stall_ms;
    pthread_mutex_unlock(&lane->lock);
}
