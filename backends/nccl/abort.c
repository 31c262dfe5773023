/* SPDX-License-Identifier: Apache-2.0
 *
 * Stopping what runs on the GPUs. group_abort may come from any thread and must not block, so it
 * only marks the group and wakes the aborter, a thread that is there from the start. The aborter
 * tells every communicator of every marked group to stop before anything is freed: freeing waits
 * for the GPU, and so for the kernels of the groups that have not been told yet. ncclCommRevoke
 * does just that; before NCCL 2.28, and for one that is still being made, there is only
 * ncclCommAbort, which also frees, so each gets a thread.
 */
#include "group.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* How long a thread that is inside NCCL is waited for. */
enum { PATIENCE_MS = 200 };

int group_failure(const struct nccl_group *g)
{
    return g->services->fail(g->services->ctx, atomic_load(&g->fate), "%s", g->why);
}

static void queue(struct nccl_group *g)
{
    struct home *home = g->home;
    pthread_mutex_lock(&home->lock);
    if (!g->queued) {
        g->queued = true;
        g->next = home->doomed;
        home->doomed = g;
        pthread_cond_broadcast(&home->changed);
    }
    pthread_mutex_unlock(&home->lock);
}

void group_doom(struct nccl_group *g, int status, const char *why)
{
    pthread_mutex_lock(&g->why_lock);
    const bool first = atomic_load(&g->fate) == 0;
    if (first) {
        snprintf(g->why, sizeof(g->why), "%s", why);
        atomic_store_explicit(&g->fate, status, memory_order_release);
    }
    pthread_mutex_unlock(&g->why_lock);
    if (first)
        queue(g);
}

void nccl_group_abort(void *group)
{
    group_doom(group, COLLRUN_ERR_ABORTED, "the group was aborted");
}

/* ---- the aborter ---- */

struct last_word {
    ncclResult_t (*abort)(ncclComm_t comm);
    ncclComm_t comm;
};

static void *abort_alone(void *arg)
{
    struct last_word *w = arg;
    w->abort(w->comm);
    free(w);
    return NULL;
}

static void abort_in_a_thread(const struct home *home, ncclComm_t comm)
{
    pthread_t thread;
    struct last_word *w = malloc(sizeof(*w));
    if (!w)
        return;
    *w = (struct last_word){home->lib.nccl.ncclCommAbort, comm};
    if (pthread_create(&thread, NULL, abort_alone, w) == 0)
        pthread_detach(thread);
    else
        abort_alone(w);
}

static void stop(struct nccl_group *g)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += PATIENCE_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    /* Who holds the lock for longer is stuck in NCCL, and stopping its communicator frees it. */
    const bool locked = pthread_mutex_timedlock(&g->lock, &until) == 0;
    const bool revokes = g->home->lib.nccl.ncclCommRevoke && atomic_load(&g->formed);
    for (uint32_t i = 0; i < g->nports; i++) {
        struct port *p = &g->ports[i];
        if (p->comm && revokes) {
            g->home->lib.nccl.ncclCommRevoke(p->comm, 0);
        } else if (p->comm) {
            abort_in_a_thread(g->home, p->comm);
            p->comm = NULL;
        }
    }
    if (locked)
        pthread_mutex_unlock(&g->lock);
}

static void *work(void *arg)
{
    struct home *home = arg;
    pthread_mutex_lock(&home->lock);
    while (!home->stopping || home->doomed) {
        struct nccl_group *g = home->doomed;
        if (!g) {
            pthread_cond_wait(&home->changed, &home->lock);
            continue;
        }
        home->doomed = g->next;
        pthread_mutex_unlock(&home->lock);
        stop(g);
        pthread_mutex_lock(&home->lock);
        g->stopped = true;
        pthread_cond_broadcast(&home->changed);
    }
    pthread_mutex_unlock(&home->lock);
    return NULL;
}

int aborter_start(struct home *home)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&home->aborter, NULL, work, home);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

void aborter_stop(struct home *home)
{
    pthread_mutex_lock(&home->lock);
    home->stopping = true;
    pthread_cond_broadcast(&home->changed);
    pthread_mutex_unlock(&home->lock);
    pthread_join(home->aborter, NULL);
}
