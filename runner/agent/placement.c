/* SPDX-License-Identifier: Apache-2.0
 *
 * From numbers to GPUs: the plan hands out places in this host's pool, which only this host can
 * name. A rank sees its own GPUs alone, by UUID; in a job that uses GPUs, a rank that owns none
 * sees none. Machines are looked at only for jobs that use GPUs.
 */
#include "agent/agent.h"

#include <stdlib.h>
#include <string.h>

int placement_pool(struct gpus *pool, struct arena *arena, struct diag *d)
{
    struct gpus all;
    int rc = gpus_find(&all, "/proc/driver/nvidia", "/sys", arena, d);
    return rc < 0 ? rc : gpus_pool(&all, getenv("CUDA_VISIBLE_DEVICES"), arena, pool, d);
}

static bool uses_gpus(const struct desc *desc)
{
    for (uint32_t i = 0; i < desc->nranks; i++)
        if (desc->ranks[i].ngpus)
            return true;
    return false;
}

static int missing(const struct agent *a, uint32_t rank, uint32_t index, const struct gpus *pool,
                   struct diag *d)
{
    const struct desc_host *host = &a->desc.hosts[a->host];
    diag_at(d, host->gpus_loc, "rank %u needs GPU %u of host %s, which has %u GPU%s to give", rank,
            index, host->name, pool->n, pool->n == 1 ? "" : "s");
    return *pool->reason ? diag_hint(d, "%s", pool->reason) : d->code;
}

/* "GPU-a,GPU-b" of a rank, and the cpus near any of them. */
static int place(struct agent *a, struct rank_proc *p, const struct gpus *pool, struct diag *d)
{
    const struct desc_rank *me = &a->desc.ranks[p->rank];
    bool bound = !strcmp(me->cpus, DESC_CPUS_NEAR_GPUS);
    p->gpus = "";
    for (uint32_t i = 0; i < me->ngpus; i++) {
        if (me->gpus[i].index >= pool->n)
            return missing(a, p->rank, me->gpus[i].index, pool, d);
        const struct gpu *gpu = &pool->items[me->gpus[i].index];
        p->gpus = arena_printf(&a->arena, "%s%s%s", p->gpus, i ? "," : "", gpu->uuid);
        if (bound && !*gpu->cpus)
            return diag_at(d, a->desc.hosts[a->host].gpus_loc,
                           "bind: gpu: host %s does not say which cpus are near its GPU %u",
                           a->desc.hosts[a->host].name, me->gpus[i].index);
        if (bound)
            p->near = arena_printf(&a->arena, "%s%s%s", p->near, *p->near ? "," : "", gpu->cpus);
        if (!p->gpus || !p->near)
            return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    }
    return COLLRUN_OK;
}

int placement_make(struct agent *a, struct diag *d)
{
    struct gpus pool = {0};
    bool used = uses_gpus(&a->desc);
    uint32_t next = 0;
    int rc = used ? placement_pool(&pool, &a->arena, d) : COLLRUN_OK;
    for (uint32_t rank = 0; rc == COLLRUN_OK && rank < a->desc.nranks; rank++) {
        if (a->desc.ranks[rank].host != a->host)
            continue;
        struct rank_proc *p = &a->ranks[next++];
        p->rank = rank;
        p->near = "";
        rc = used ? place(a, p, &pool, d) : COLLRUN_OK;
    }
    return rc;
}
