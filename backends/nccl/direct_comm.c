/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicators of direct messages: made when on_demand.c begins to form one, closed with the
 * group.
 */
#include "direct_comm.h"

#include "group.h"

#include <stdlib.h>
#include <string.h>

struct nccl_group *direct_comm_get(const struct nccl_group *whole, uint32_t from, uint32_t to)
{
    struct nccl_group *p = atomic_load_explicit(&whole->parts, memory_order_acquire);
    while (p && (p->from != from || p->to != to))
        p = p->next_part;
    return p;
}

static void direct_comm_free(struct nccl_group *p)
{
    for (uint32_t i = 0; p->devs && i < p->ndevs; i++)
        if (p->devs[i].device)
            dev_comm_fini(p, &p->devs[i]);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->status.lock);
    free(p->devs);
    free(p->name);
    free(p);
}

/* Its place among the two ranks, and the GPUs of this process. */
static int direct_comm_open_devs(struct nccl_group *p)
{
    const struct nccl_group *whole = p->whole;
    const uint32_t ends[] = {p->from, p->to};
    int status = COLLRUN_OK;
    for (uint32_t i = p->rank; status == COLLRUN_OK && i < p->rank + p->ndevs; i++) {
        int ordinal = whole->devs[ends[i] % whole->ndevs].ordinal;
        int before = device_enter(p->context, ordinal);
        status = dev_comm_init(p, &p->devs[i - p->rank], ordinal);
        device_leave(p->context, before);
    }
    return status;
}

static struct nccl_group *direct_comm_alloc(struct nccl_group *whole, uint32_t from, uint32_t to)
{
    bool sends = from / whole->ndevs == whole->rank, receives = to / whole->ndevs == whole->rank;
    struct nccl_group *p = sends || receives ? calloc(1, sizeof *p) : NULL;
    if (!p)
        return NULL;
    p->whole = whole;
    p->from = from;
    p->to = to;
    p->context = whole->context;
    p->services = whole->context->services;
    p->config = whole->config;
    p->size = 2;
    p->ndevs = sends && receives ? 2 : 1;
    p->nranks = 2 / p->ndevs;
    p->rank = sends ? 0 : 1;
    p->name = strdup(whole->name);
    p->devs = calloc(p->ndevs, sizeof *p->devs);
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->status.lock, NULL);
    if (p->name && p->devs)
        return p;
    direct_comm_free(p);
    return NULL;
}

/* Those of the whole, which may be ended meanwhile: it is among the parts already. */
static void direct_comm_take_services(struct nccl_group *p)
{
    pthread_mutex_lock(&p->status.lock);
    pthread_mutex_lock(&p->whole->status.lock);
    p->services = p->whole->services;
    pthread_mutex_unlock(&p->whole->status.lock);
    pthread_mutex_unlock(&p->status.lock);
}

struct nccl_group *direct_comm_new(struct nccl_group *whole, uint32_t from, uint32_t to)
{
    if (from >= whole->size || to >= whole->size || from == to)
        return NULL;
    struct nccl_group *p = direct_comm_alloc(whole, from, to);
    if (!p) {
        group_fail(whole, COLLRUN_ERR_NO_MEMORY, "out of memory for a communicator");
        return NULL;
    }
    p->next_part = atomic_load(&whole->parts);
    atomic_store(&whole->parts, p);
    direct_comm_take_services(p);
    int status =
        group_has_failed(whole) ? atomic_load(&whole->status.code) : direct_comm_open_devs(p);
    if (status != COLLRUN_OK)
        group_fail(p, status, "the communicator could not be formed");
    return status == COLLRUN_OK ? p : NULL;
}

void direct_comm_end_services(struct nccl_group *whole)
{
    for (struct nccl_group *p = atomic_load(&whole->parts); p; p = p->next_part)
        group_end_services(p);
}

/* Takes out the part with the lowest direction. Each closing waits for the other rank; in one order
 * on all ranks none of them waits for another closing. */
static struct nccl_group *direct_comm_take_lowest(struct nccl_group *whole)
{
    struct nccl_group *lowest = atomic_load(&whole->parts), *before = NULL;
    for (struct nccl_group *p = lowest; p && p->next_part; p = p->next_part) {
        const struct nccl_group *next = p->next_part;
        if (next->from < lowest->from || (next->from == lowest->from && next->to < lowest->to)) {
            before = p;
            lowest = p->next_part;
        }
    }
    if (before)
        before->next_part = lowest->next_part;
    else if (lowest)
        atomic_store(&whole->parts, lowest->next_part);
    return lowest;
}

void direct_comm_close_all(struct nccl_group *whole)
{
    struct nccl_group *p;
    while ((p = direct_comm_take_lowest(whole))) {
        comm_close(p);
        direct_comm_free(p);
    }
}
