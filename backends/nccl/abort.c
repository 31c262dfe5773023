/* SPDX-License-Identifier: Apache-2.0
 *
 * Stopping what runs on the GPUs.
 *
 * Happy path
 *   - nccl_group_fail queues the group, which wakes the aborter thread;
 *   - the aborter orders every communicator of every queued group to stop, with ncclCommRevoke,
 *     before anything is freed: freeing waits for the GPU, and so for kernels of groups that have
 *     not been stopped yet.
 * Failures
 *   - NCCL before 2.28, or a communicator that is still being formed: only ncclCommAbort exists.
 *     It also frees the communicator and may block, so each call gets a thread.
 *   - a thread holds the group's lock inside NCCL: after 200 ms the aborter continues without the
 *     lock, because stopping the communicator is what makes that thread return.
 */
#include "group.h"

#include <stdlib.h>
#include <time.h>

enum { ABORT_LOCK_WAIT_MS = 200 };

struct abort_arg {
    ncclResult_t (*abort)(ncclComm_t comm);
    ncclComm_t comm;
};

static void *aborter_abort_comm(void *arg)
{
    struct abort_arg *a = arg;
    a->abort(a->comm);
    free(a);
    return NULL;
}

static void aborter_abort_comm_in_thread(const struct context *context, ncclComm_t comm)
{
    pthread_t thread;
    struct abort_arg *a = malloc(sizeof *a);
    if (!a)
        return;
    *a = (struct abort_arg){context->lib.nccl.ncclCommAbort, comm};
    if (pthread_create(&thread, NULL, aborter_abort_comm, a) == 0)
        pthread_detach(thread);
    else
        aborter_abort_comm(a);
}

/* Not pthread_mutex_timedlock, whose time jumps with the clock of the machine. */
static bool aborter_lock(struct nccl_group *g)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int ms = 0; ms < ABORT_LOCK_WAIT_MS; ms++) {
        if (pthread_mutex_trylock(&g->lock) == 0)
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

static void aborter_abort_group(struct nccl_group *g)
{
    const struct nccl_api *nccl = &g->context->lib.nccl;
    bool locked = aborter_lock(g);
    bool revoke = nccl->ncclCommRevoke && nccl_group_is_formed(g);
    for (uint32_t i = 0; i < g->ndevs; i++) {
        struct dev_comm *dev = &g->devs[i];
        if (dev->comm && revoke) {
            nccl->ncclCommRevoke(dev->comm, 0);
        } else if (dev->comm) {
            aborter_abort_comm_in_thread(g->context, dev->comm);
            dev->comm = NULL;
        }
    }
    if (locked)
        pthread_mutex_unlock(&g->lock);
}

static void *aborter_thread(void *arg)
{
    struct aborter *a = arg;
    pthread_mutex_lock(&a->lock);
    while (!a->stopping || a->queue) {
        struct nccl_group *g = a->queue;
        if (!g) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        a->queue = g->abort.next;
        pthread_mutex_unlock(&a->lock);
        aborter_abort_group(g);
        pthread_mutex_lock(&a->lock);
        g->abort.stopped = true;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* ---- the interface ---- */

void aborter_queue(struct nccl_group *g)
{
    struct aborter *a = &g->context->aborter;
    pthread_mutex_lock(&a->lock);
    if (!g->abort.queued) {
        g->abort.queued = true;
        g->abort.next = a->queue;
        a->queue = g;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
}

void aborter_await(struct nccl_group *g)
{
    struct aborter *a = &g->context->aborter;
    pthread_mutex_lock(&a->lock);
    while (g->abort.queued && !g->abort.stopped)
        pthread_cond_wait(&a->changed, &a->lock);
    pthread_mutex_unlock(&a->lock);
}

void aborter_init(struct aborter *a)
{
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
}

void aborter_fini(struct aborter *a)
{
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
}

int aborter_start(struct context *context)
{
    const struct collrun_services *s = context->services;
    return s->thread_start(s->ctx, aborter_thread, &context->aborter, &context->aborter.thread);
}

void aborter_stop(struct context *context)
{
    struct aborter *a = &context->aborter;
    pthread_mutex_lock(&a->lock);
    a->stopping = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
}
