/* SPDX-License-Identifier: Apache-2.0
 *
 * See cma.h. A long read is done in slices, between which it checks whether the group has failed.
 */
#include "transport/cma.h"

#include "group.h"

#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#define CMA_SLICE_BYTES (1u << 20)

enum cma_access { CMA_UNKNOWN, CMA_REFUSED, CMA_PERMITTED };

int cma_init(struct cma *c, uint32_t nranks)
{
    *c = (struct cma){.access = calloc(nranks, sizeof *c->access)};
    return c->access ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

void cma_fini(struct cma *c)
{
    free((void *)c->access);
}

/* Without a token other ranks copy. */
void cma_publish(struct shm_group *g)
{
    struct process *own = &g->seg.processes[g->rank];
    struct cma *c = g->cma;
    if (getrandom(&c->token, sizeof c->token, GRND_NONBLOCK) != (ssize_t)sizeof c->token)
        return;
#ifdef PR_SET_PTRACER
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* fails without Yama, which needs none */
#endif
    own->token = c->token;
    own->token_at = (uintptr_t)&c->token;
    atomic_store_explicit(&own->pid, (uint32_t)getpid(), memory_order_release);
}

/* Bytes that were read; 0: refused, or nothing is there. */
static size_t cma_read_slice(uint32_t pid, void *to, uint64_t from, size_t len)
{
    const struct iovec local = {.iov_base = to, .iov_len = len};
    const struct iovec remote = {.iov_base = (void *)(uintptr_t)from, .iov_len = len};
    const ssize_t n = process_vm_readv((pid_t)pid, &local, 1, &remote, 1, 0);
    return n > 0 ? (size_t)n : 0;
}

static enum cma_access cma_test(const struct shm_group *g, uint32_t rank)
{
    const struct process *p = &g->seg.processes[rank];
    const uint32_t pid = atomic_load_explicit(&p->pid, memory_order_acquire);
    uint64_t token = ~p->token;
    if (pid == 0)
        return CMA_REFUSED;
    if (cma_read_slice(pid, &token, p->token_at, sizeof token) != sizeof token || token != p->token)
        return CMA_REFUSED;
    return CMA_PERMITTED;
}

static enum cma_access cma_access_of(struct shm_group *g, uint32_t rank)
{
    _Atomic uint8_t *known = &g->cma->access[rank];
    enum cma_access access = atomic_load_explicit(known, memory_order_relaxed);
    if (access == CMA_UNKNOWN) {
        access = cma_test(g, rank);
        atomic_store_explicit(known, (uint8_t)access, memory_order_relaxed);
    }
    return access;
}

bool cma_can_read(struct shm_group *g, uint32_t rank)
{
    return cma_access_of(g, rank) != CMA_REFUSED;
}

int cma_read(struct shm_group *g, uint32_t rank, void *to, uint64_t from, size_t len, size_t *moved)
{
    /* Its rank published it before it sent what asks for this read. */
    const uint32_t pid = atomic_load_explicit(&g->seg.processes[rank].pid, memory_order_relaxed);
    size_t done = 0;
    bool reads = cma_can_read(g, rank);
    while (reads && done < len && !shm_group_has_failed(g)) {
        const size_t left = len - done;
        const size_t slice = left < CMA_SLICE_BYTES ? left : CMA_SLICE_BYTES;
        const size_t n = cma_read_slice(pid, (char *)to + done, from + done, slice);
        done += n;
        reads = n > 0;
    }
    *moved = done;
    return shm_group_has_failed_meanwhile(g) ? shm_group_report_failure(g) : COLLRUN_OK;
}
