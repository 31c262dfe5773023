/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that a group moves best, as workloads see it. Each piece is noted with its group: only
 * what came from there goes back, once, whatever a backend does with a pointer that it never gave.
 * Plain memory that was not given back by then goes with its group, as the backends' own does.
 */
#include "backend.h"
#include "coll.h"
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>

struct group_memory {
    void *ptr;
    const struct group_side *side; /* where it came from */
    bool plain;                    /* the engine's own */
    struct group_memory *next;
};

/* `device` of the processes' GPUs, or -1 for whatever its backend (in a group with two, the one for
 * host memory) likes best. */
static int alloc_on(const struct group_side *side, int device, size_t bytes, void **out)
{
    struct lane *lane = side->lane[GROUP_COLLECTIVES];
    const struct collrun_backend *table = &side->backend->table;
    if (device >= 0 && (uint32_t)device >= side->ndevices)
        return error_cause(COLLRUN_ERR_INVALID,
                           "device %d is not one of the %u GPUs that each "
                           "process drives in this group",
                           device, side->ndevices);
    lane_acquire(lane);
    error_clear_cause();
    int rc = device >= 0 ? table->alloc_on(lane->handle, (uint32_t)device, bytes, out)
                         : table->alloc(lane->handle, bytes, out);
    lane_release(lane);
    return rc;
}

static int alloc_noted(struct collrun_group *g, int device, size_t bytes, void **out)
{
    struct group_memory *note = calloc(1, sizeof *note);
    if (!note)
        return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory");
    note->side = &g->sides[device >= 0 && g->nsides == 2];
    note->plain = device < 0 && !note->side->backend->has_alloc;
    int rc = alloc_on(note->side, device, bytes, &note->ptr);
    if (rc != COLLRUN_OK) {
        free(note);
        return rc;
    }
    note->next = g->memory;
    g->memory = note;
    *out = note->ptr;
    return COLLRUN_OK;
}

static int alloc(struct collrun_group *g, int device, size_t bytes, void **out)
{
    if (!g || !out)
        return error_set(COLLRUN_ERR_INVALID, "collrun_alloc: the %s is NULL",
                         g ? "place for the memory" : "group");
    int rc = group_enter(g, "alloc");
    if (rc != COLLRUN_OK)
        return rc;
    rc = alloc_noted(g, device, bytes, out);
    group_leave(g);
    if (rc == COLLRUN_OK)
        return rc;
    char where[256];
    snprintf(where, sizeof where, "alloc %s, %zu bytes", g->name, bytes);
    return error_wrap(rc, g->name, 0, where);
}

int collrun_alloc(struct collrun_group *g, size_t bytes, void **out)
{
    return alloc(g, -1, bytes, out);
}

int collrun_alloc_device(struct collrun_group *g, int device, size_t bytes, void **out)
{
    if (g && device < 0)
        return error_set(COLLRUN_ERR_INVALID, "alloc %s: %d is no GPU of this process", g->name,
                         device);
    return alloc(g, device, bytes, out);
}

static int free_on(const struct group_side *side, void *ptr)
{
    struct lane *lane = side->lane[GROUP_COLLECTIVES];
    lane_acquire(lane);
    error_clear_cause();
    int rc = side->backend->table.free(lane->handle, ptr);
    lane_release(lane);
    return rc;
}

static int free_noted(struct collrun_group *g, void *ptr)
{
    struct group_memory **p = &g->memory, *note;
    while (*p && (*p)->ptr != ptr)
        p = &(*p)->next;
    if (!(note = *p))
        return error_cause(COLLRUN_ERR_INVALID, "%p was not allocated by this group", ptr);
    int rc = free_on(note->side, ptr);
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
    rc = free_noted(g, ptr);
    group_leave(g);
    char where[256];
    snprintf(where, sizeof where, "free %s", g->name);
    return rc == COLLRUN_OK ? rc : error_wrap(rc, g->name, 0, where);
}

void group_free_memory(struct collrun_group *g)
{
    while (g->memory) {
        struct group_memory *note = g->memory;
        if (note->plain)
            free(note->ptr);
        g->memory = note->next;
        free(note);
    }
}
