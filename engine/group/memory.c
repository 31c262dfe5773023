/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun_alloc and collrun_free. Each allocation is listed in its group, so a backend only gets
 * pointers back that it returned, and each of them once. Plain memory that was not freed is freed
 * with its group, as the backends do with theirs.
 */
#include "group/group.h"

#include "core/backend.h"

#include <stdio.h>
#include <stdlib.h>

struct group_memory {
    void *ptr;
    const struct group_backend *gb; /* which allocated it */
    struct memory_kind *kind;       /* which allocated it; NULL: the backend, or the engine */
    bool plain;                     /* allocated by the engine */
    struct group_memory *next;
};

/* `device`: of the backend, or -1 for its default memory. */
static int memory_alloc_on(const struct group_backend *gb, int device, size_t bytes, void **out)
{
    struct progress_queue *pq = gb->pq[GROUP_COLLECTIVES];
    const struct collrun_backend *table = &gb->backend->table;
    pq_acquire(pq);
    error_clear_cause();
    int rc = device >= 0 ? table->alloc_on(pq->config.handle, (uint32_t)device, bytes, out)
                         : table->alloc(pq->config.handle, bytes, out);
    pq_release(pq);
    return rc;
}

/* Who allocates. `device`: of the group, or -1 for the default memory of its first backend. */
static int memory_choose(struct collrun_group *g, int device, struct group_memory *out)
{
    const struct group_backend *gb = group_device_backend(g);
    struct memory_kind *kind = group_device_kind(g);
    if (device < 0) {
        gb = &g->backends[0];
        kind = group_host_kind(gb);
        out->kind = gb->backend->has_alloc || !kind || !kind->table.alloc ? NULL : kind;
        out->plain = !gb->backend->has_alloc && !out->kind;
    } else {
        uint32_t n = gb->ndevices ? gb->ndevices : kind ? kind->ndevices : 0;
        if ((uint32_t)device >= n)
            return error_cause(COLLRUN_ERR_INVALID,
                               "device %d is not one of the %u %ss that each process drives in "
                               "this group",
                               device, n, kind ? kind->title : "device");
        out->kind = gb->kind && gb->backend->has_alloc_on ? NULL : kind;
    }
    out->gb = gb;
    return COLLRUN_OK;
}

static int memory_alloc_noted(struct collrun_group *g, int device, size_t bytes, void **out)
{
    struct group_memory *note = calloc(1, sizeof *note);
    if (!note)
        return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory");
    int rc = memory_choose(g, device, note);
    if (rc == COLLRUN_OK)
        rc = note->kind ? memory_kind_alloc(note->kind, device < 0 ? 0 : (uint32_t)device, bytes,
                                            &note->ptr)
                        : memory_alloc_on(note->gb, device, bytes, &note->ptr);
    if (rc != COLLRUN_OK) {
        free(note);
        return rc;
    }
    note->next = g->memory;
    g->memory = note;
    *out = note->ptr;
    return COLLRUN_OK;
}

static int memory_alloc(struct collrun_group *g, int device, size_t bytes, void **out)
{
    if (!g || !out)
        return error_set(COLLRUN_ERR_INVALID, "collrun_alloc: the %s is NULL",
                         g ? "output pointer for the memory" : "group");
    int rc = group_enter(g, "alloc");
    if (rc != COLLRUN_OK)
        return rc;
    rc = memory_alloc_noted(g, device, bytes, out);
    group_leave(g);
    if (rc == COLLRUN_OK)
        return rc;
    char where[256];
    snprintf(where, sizeof where, "alloc %s, %zu bytes", g->id.name, bytes);
    return error_wrap(rc, g->id.name, 0, where);
}

int collrun_alloc(struct collrun_group *g, size_t bytes, void **out)
{
    return memory_alloc(g, -1, bytes, out);
}

int collrun_alloc_device(struct collrun_group *g, int device, size_t bytes, void **out)
{
    if (g && device < 0)
        return error_set(COLLRUN_ERR_INVALID, "alloc %s: %d is not a device of this process",
                         g->id.name, device);
    return memory_alloc(g, device, bytes, out);
}

static int memory_free_on(const struct group_backend *gb, void *ptr)
{
    struct progress_queue *pq = gb->pq[GROUP_COLLECTIVES];
    pq_acquire(pq);
    error_clear_cause();
    int rc = gb->backend->table.free(pq->config.handle, ptr);
    pq_release(pq);
    return rc;
}

static int memory_free_noted(struct collrun_group *g, void *ptr)
{
    struct group_memory **p = &g->memory, *note;
    while (*p && (*p)->ptr != ptr)
        p = &(*p)->next;
    if (!(note = *p))
        return error_cause(COLLRUN_ERR_INVALID, "%p was not allocated by this group", ptr);
    int rc = note->kind ? memory_kind_free(note->kind, ptr) : memory_free_on(note->gb, ptr);
    if (rc == COLLRUN_OK) {
        *p = note->next;
        free(note);
    }
    return rc;
}

int collrun_free(struct collrun_group *g, void *ptr)
{
    if (!g)
        return error_set(COLLRUN_ERR_INVALID, "collrun_free: the group is NULL");
    if (!ptr)
        return COLLRUN_OK;
    int rc = group_enter(g, "free");
    if (rc != COLLRUN_OK)
        return rc;
    rc = memory_free_noted(g, ptr);
    group_leave(g);
    char where[256];
    snprintf(where, sizeof where, "free %s", g->id.name);
    return rc == COLLRUN_OK ? rc : error_wrap(rc, g->id.name, 0, where);
}

void memory_free_all(struct collrun_group *g)
{
    while (g->memory) {
        struct group_memory *note = g->memory;
        if (note->plain)
            free(note->ptr);
        else if (note->kind)
            memory_kind_free(note->kind, note->ptr);
        g->memory = note->next;
        free(note);
    }
}
