/* SPDX-License-Identifier: Apache-2.0
 *
 * How a group fails, and the error messages for failures of NCCL and CUDA.
 */
#include "group_status.h"

#include "group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define JOB_CHECK_NS 20000000u
/* CUDA's errors from this number on are about what runs on the GPU, not about the arguments of a
 * call. */
enum { FIRST_DEVICE_ERROR = 200 };

static bool nccl_group_set_failed(struct nccl_group *g, int status, const char *text)
{
    pthread_mutex_lock(&g->status.lock);
    bool first = atomic_load(&g->status.code) == 0;
    if (first) {
        snprintf(g->status.text, sizeof g->status.text, "%s", text);
        atomic_store_explicit(&g->status.code, status, memory_order_release);
    }
    pthread_mutex_unlock(&g->status.lock);
    return first;
}

/* Direct messages have communicators of two GPUs each (direct.c), which fail with the group,
 * and it with them. */
static void nccl_group_stop(struct nccl_group *g, int status, const char *text)
{
    aborter_queue(g);
    for (struct nccl_group *p = atomic_load(&g->parts); p; p = p->next_part)
        nccl_group_fail(p, status, text);
    if (g->whole)
        nccl_group_fail(g->whole, status, text);
}

void nccl_group_fail(struct nccl_group *g, int status, const char *text)
{
    if (nccl_group_set_failed(g, status, text))
        nccl_group_stop(g, status, text);
}

int nccl_group_report(struct nccl_group *g, int status, const char *text)
{
    pthread_mutex_lock(&g->status.lock);
    int reported = g->services->fail(g->services->ctx, status, "%s", text);
    pthread_mutex_unlock(&g->status.lock);
    return reported;
}

void nccl_group_end_services(struct nccl_group *g)
{
    pthread_mutex_lock(&g->status.lock);
    g->services = g->context->services;
    pthread_mutex_unlock(&g->status.lock);
}

int nccl_group_failure(struct nccl_group *g)
{
    return nccl_group_report(g, atomic_load(&g->status.code), g->status.text);
}

int nccl_group_out_of_memory(struct nccl_group *g)
{
    return nccl_group_report(g, COLLRUN_ERR_NO_MEMORY, "out of memory");
}

int nccl_group_fail_coordinator(struct nccl_group *g, int error, const char *task)
{
    char text[256];
    snprintf(text, sizeof text, "lost the connection to rank 0, which %s: %s", task,
             strerror(error));
    nccl_group_fail(g, COLLRUN_ERR_PEER_FAILED, text);
    return nccl_group_failure(g);
}

int nccl_group_fail_nccl(struct nccl_group *g, ncclComm_t comm, ncclResult_t result,
                         const char *what)
{
    const struct nccl_api *nccl = &g->context->lib.nccl;
    const char *detail = nccl->ncclGetLastError ? nccl->ncclGetLastError(comm) : NULL;
    int status = result == ncclRemoteError ? COLLRUN_ERR_PEER_FAILED : COLLRUN_ERR_BACKEND;
    char xid[160] = "", text[sizeof g->status.text];
    for (uint32_t i = 0; i < g->ndevs && !xid[0]; i++)
        if (g->devs[i].device)
            xid_text(g->devs[i].device, xid, sizeof xid);
    snprintf(text, sizeof text, "%s: %s%s%s%s", what, nccl->ncclGetErrorString(result),
             detail && *detail ? ": " : "", detail ? detail : "", xid);
    nccl_group_fail(g, status, text);
    return nccl_group_report(g, status, text);
}

int nccl_group_fail_cuda(struct nccl_group *g, const struct dev_comm *dev, cudaError_t error,
                         const char *what)
{
    const struct cuda_api *cuda = &g->context->lib.cuda;
    char xid[160], text[sizeof g->status.text];
    cuda->cudaGetLastError(); /* clears a non-sticky error, which a later call would return */
    if (error >= FIRST_DEVICE_ERROR)
        xid_await(g->context, dev->device);
    snprintf(text, sizeof text, "%s on GPU %d: %s%s", what, dev->ordinal,
             cuda->cudaGetErrorString(error), xid_text(dev->device, xid, sizeof xid));
    nccl_group_fail(g, COLLRUN_ERR_BACKEND, text);
    return nccl_group_report(g, COLLRUN_ERR_BACKEND, text);
}

int nccl_group_check_job(struct nccl_group *g)
{
    const struct collrun_rendezvous *r = g->forming.rendezvous;
    if (!r || context_now_ns(g->context) < g->forming.checked_ns + JOB_CHECK_NS)
        return COLLRUN_OK;
    g->forming.checked_ns = context_now_ns(g->context);
    return r->alive(r->ctx);
}

/* ---- another rank has failed ---- */

void nccl_group_fail_peer(struct nccl_group *g, uint32_t rank)
{
    char text[160];
    snprintf(text, sizeof text,
             "rank %u failed, or closed the group, while the communicators were being formed",
             rank);
    nccl_group_fail(g, COLLRUN_ERR_PEER_FAILED, text);
}

void nccl_group_note_failed_peer(struct nccl_group *part, uint32_t rank)
{
    struct nccl_group *g = part->whole ? part->whole : part;
    atomic_store(&g->status.failed_peer, rank + 1);
    if (!g->p2p || atomic_load(&g->status.closed))
        nccl_group_fail_peer(g, rank);
}

void nccl_group_note_closed(struct nccl_group *g)
{
    atomic_store(&g->status.closed, true);
    unsigned failed = atomic_load(&g->status.failed_peer);
    if (failed)
        nccl_group_fail_peer(g, failed - 1);
}

/* Stopping what runs on the GPUs.
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
 *     lock, because stopping the communicator is what makes that thread return. */

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
