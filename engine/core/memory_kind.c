/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of the backend's table. A copy between two kinds of device memory is two copies, through
 * host memory.
 */
#include "core/memory_kind.h"

#include "base/loop.h"
#include "core/error.h"

#include <stdlib.h>
#include <string.h>

/* ---- pointers ---- */

static int memory_kind_index(const struct memory_kind *kind, int32_t number)
{
    if (!kind->renumbered)
        return number;
    for (uint32_t i = 0; i < kind->ndevices; i++)
        if (kind->numbers[i] == number)
            return (int)i;
    return -1;
}

bool memory_kind_locate(const struct memory_kind *kind, const void *ptr, int *device)
{
    int32_t number = -1;
    bool found = ptr && kind->usable && kind->table.locate(kind->state, ptr, &number) > 0;
    if (device)
        *device = found ? memory_kind_index(kind, number) : -1;
    return found;
}

struct memory_kind *memory_kind_of(const struct memory_kind_set *set, const void *ptr, int *device)
{
    if (device)
        *device = -1;
    for (uint32_t i = 0; i < set->n; i++)
        if (memory_kind_locate(set->items[i], ptr, device))
            return set->items[i];
    return NULL;
}

/* ---- copies ---- */

static int memory_kind_copy_one(const struct memory_kind *kind,
                                const struct collrun_memory_copy *copy)
{
    return kind->table.copy(kind->state, copy);
}

static int memory_kind_copy_two(struct memory_kind *to, const struct memory_kind *from,
                                const struct collrun_memory_copy *copy)
{
    struct collrun_memory_copy out = *copy, in = *copy;
    void *host = memory_kind_host_take(to, copy->len);
    if (!host)
        return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for a copy of %llu bytes",
                           (unsigned long long)copy->len);
    out.dst = host;
    in.src = host;
    in.ordered = 0;
    int rc = memory_kind_copy_one(from, &out);
    if (rc == COLLRUN_OK)
        rc = memory_kind_copy_one(to, &in);
    if (rc == COLLRUN_OK) /* else a device may still use it */
        memory_kind_host_give(to, host, copy->len);
    return rc;
}

int memory_kind_copy(const struct memory_kind_set *set, const struct collrun_memory_copy *copy)
{
    if ((!copy->len && !copy->ordered) || copy->dst == copy->src)
        return COLLRUN_OK;
    struct memory_kind *to = memory_kind_of(set, copy->dst, NULL);
    struct memory_kind *from = memory_kind_of(set, copy->src, NULL);
    if (to && from && to != from)
        return memory_kind_copy_two(to, from, copy);
    if (to || from)
        return memory_kind_copy_one(to ? to : from, copy);
    if (copy->len)
        memmove(copy->dst, copy->src, copy->len);
    return COLLRUN_OK;
}

int memory_kind_copy_bytes(const struct memory_kind_set *set, void *dst, const void *src,
                           size_t len, uint64_t timeout_ns)
{
    const struct collrun_memory_copy copy = {.size = sizeof copy,
                                             .dst = dst,
                                             .src = src,
                                             .len = len,
                                             .stream_device = -1,
                                             .deadline_ns = deadline_after(now_ns(), timeout_ns)};
    return memory_kind_copy(set, &copy);
}

/* ---- devices ---- */

static int memory_kind_need(const struct memory_kind *kind, bool has, const char *what)
{
    if (!kind->usable)
        return error_cause(COLLRUN_ERR_UNAVAILABLE, "%s", kind->reason);
    if (!has)
        return error_cause(COLLRUN_ERR_UNSUPPORTED, "the backend of %s memory cannot %s",
                           kind->title, what);
    return COLLRUN_OK;
}

int memory_kind_synchronize(const struct memory_kind *kind, uint32_t device)
{
    int rc = memory_kind_need(kind, kind->table.synchronize, "wait for a device");
    return rc == COLLRUN_OK ? kind->table.synchronize(kind->state, kind->numbers[device]) : rc;
}

int memory_kind_alloc(const struct memory_kind *kind, uint32_t device, size_t len, void **out)
{
    int rc = memory_kind_need(kind, kind->table.alloc, "allocate it");
    return rc == COLLRUN_OK
               ? kind->table.alloc(kind->state, kind->numbers[device], len ? len : 1, out)
               : rc;
}

int memory_kind_free(const struct memory_kind *kind, void *ptr)
{
    return kind->table.free(kind->state, ptr);
}

/* ---- host memory ---- */

/* Blocks are rounded up to powers of two, so that they fit again. */
enum { SMALLEST_SHIFT = 12, LARGEST_KEPT = 64 << 20 };

struct memory_kind_block {
    struct memory_kind_block *next;
};

static unsigned memory_kind_size_class(size_t len)
{
    unsigned shift = SMALLEST_SHIFT;
    while (shift < MEMORY_KIND_SIZES - 1 && (size_t)1 << shift < len)
        shift++;
    return shift;
}

void *memory_kind_host_take(struct memory_kind *kind, size_t len)
{
    if (!kind || !kind->usable || !kind->table.host_alloc)
        return malloc(len ? len : 1);
    unsigned shift = memory_kind_size_class(len);
    struct memory_kind_blocks *blocks = &kind->blocks;
    pthread_mutex_lock(&blocks->lock);
    void *block = blocks->free[shift];
    if (block) {
        blocks->free[shift] = blocks->free[shift]->next;
        blocks->kept -= (size_t)1 << shift;
    }
    pthread_mutex_unlock(&blocks->lock);
    if (!block && kind->table.host_alloc(kind->state, (size_t)1 << shift, &block) != COLLRUN_OK)
        block = NULL;
    return block;
}

void memory_kind_host_give(struct memory_kind *kind, void *ptr, size_t len)
{
    if (!kind || !kind->usable || !kind->table.host_alloc) {
        free(ptr);
        return;
    }
    unsigned shift = memory_kind_size_class(len);
    size_t size = (size_t)1 << shift;
    struct memory_kind_blocks *blocks = &kind->blocks;
    if (!ptr)
        return;
    pthread_mutex_lock(&blocks->lock);
    bool keep = blocks->kept + size <= LARGEST_KEPT;
    if (keep) {
        struct memory_kind_block *block = ptr;
        block->next = blocks->free[shift];
        blocks->free[shift] = block;
        blocks->kept += size;
    }
    pthread_mutex_unlock(&blocks->lock);
    if (!keep)
        kind->table.host_free(kind->state, ptr, size);
}

void memory_kind_host_drop(struct memory_kind *kind)
{
    for (unsigned shift = 0; shift < MEMORY_KIND_SIZES; shift++)
        while (kind->blocks.free[shift]) {
            struct memory_kind_block *block = kind->blocks.free[shift];
            kind->blocks.free[shift] = block->next;
            kind->table.host_free(kind->state, block, (size_t)1 << shift);
        }
    kind->blocks.kept = 0;
}
