/* SPDX-License-Identifier: Apache-2.0
 *
 * How a group fails, and the error messages for failures of NCCL and CUDA.
 */
#include "group.h"

#include <stdio.h>
#include <string.h>

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
