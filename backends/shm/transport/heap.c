/* SPDX-License-Identifier: Apache-2.0
 *
 * First fit over a sorted list of spans, in whole pages. An unused page after every span keeps
 * neighbours apart.
 */
#include "transport/heap.h"

#include "group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int heap_init(struct heap *h, const struct segment *seg, uint32_t nranks)
{
    *h = (struct heap){.seg = seg, .windows = calloc(nranks, sizeof *h->windows)};
    atomic_init(&h->window_bytes, HEAP_BYTES);
    return h->windows ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

static size_t heap_window_bytes(const struct heap *h)
{
    return atomic_load_explicit(&h->window_bytes, memory_order_relaxed);
}

void heap_fini(struct heap *h, uint32_t nranks)
{
    for (uint32_t r = 0; h->windows && r < nranks; r++)
        segment_unmap_heap(h->windows[r], heap_window_bytes(h));
    free(h->windows);
    free(h->spans);
}

/* NULL with errno. */
static char *heap_map(struct heap *h, uint32_t rank)
{
    char *window = segment_map_heap(h->seg, rank, heap_window_bytes(h));
    if (window || errno != EINVAL)
        return window;
    atomic_store_explicit(&h->window_bytes, HEAP_LIMITED_BYTES, memory_order_relaxed);
    return segment_map_heap(h->seg, rank, HEAP_LIMITED_BYTES);
}

static char *heap_window(struct heap *h, uint32_t rank)
{
    char *first = atomic_load_explicit(&h->windows[rank], memory_order_acquire);
    if (first)
        return first;
    char *mine = heap_map(h, rank);
    if (!mine || atomic_compare_exchange_strong(&h->windows[rank], &first, mine))
        return mine;
    segment_unmap_heap(mine, heap_window_bytes(h));
    return first;
}

static bool heap_reserve_span(struct heap *h)
{
    if (h->nspans < h->capacity)
        return true;
    const size_t capacity = h->capacity ? 2 * h->capacity : 16;
    struct heap_span *spans = realloc(h->spans, capacity * sizeof *spans);
    if (!spans)
        return false;
    h->spans = spans;
    h->capacity = capacity;
    return true;
}

/* Finds the first gap of `len` bytes: its offset, and the index at which its span belongs. */
static bool heap_find_gap(const struct heap *h, size_t len, size_t *offset, size_t *index)
{
    size_t at = 0;
    for (size_t i = 0; i <= h->nspans; i++) {
        const size_t end = i < h->nspans ? h->spans[i].offset : heap_window_bytes(h);
        if (end - at >= len) {
            *offset = at;
            *index = i;
            return true;
        }
        at = i < h->nspans ? h->spans[i].offset + h->spans[i].len : at;
    }
    return false;
}

int heap_alloc(struct shm_group *g, size_t len, void **ptr)
{
    const struct collrun_services *s = g->services;
    struct heap *h = g->heap;
    size_t offset;
    size_t index;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *base = heap_window(h, g->rank);
    if (!base)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "cannot map the shared heap: %s",
                       strerror(errno));
    const size_t most = heap_window_bytes(h);
    if (len > most - 2 * page)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY,
                       "%zu bytes do not fit the shared heap of %zu GiB", len, most >> 30);
    const size_t pages = (len + page - 1) / page * page + page;
    if (!heap_reserve_span(h) || !heap_find_gap(h, pages, &offset, &index))
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "no room for %zu bytes in the shared heap",
                       len);
    memmove(&h->spans[index + 1], &h->spans[index], (h->nspans - index) * sizeof *h->spans);
    h->spans[index] = (struct heap_span){.offset = offset, .len = pages};
    h->nspans++;
    *ptr = base + offset;
    return COLLRUN_OK;
}

int heap_free(struct shm_group *g, void *ptr)
{
    const struct collrun_services *s = g->services;
    struct heap *h = g->heap;
    const char *base = h->windows[g->rank];
    for (size_t i = 0; base && i < h->nspans; i++) {
        if (base + h->spans[i].offset != ptr)
            continue;
        madvise(ptr, h->spans[i].len, MADV_REMOVE);
        h->nspans--;
        memmove(&h->spans[i], &h->spans[i + 1], (h->nspans - i) * sizeof *h->spans);
        return COLLRUN_OK;
    }
    return s->fail(s->ctx, COLLRUN_ERR_INVALID, "%p was not allocated by this group", ptr);
}

struct heap_ref heap_find(const struct shm_group *g, const void *ptr, size_t len)
{
    const char *base = atomic_load_explicit(&g->heap->windows[g->rank], memory_order_acquire);
    if (!base || len == 0)
        return HEAP_REF_NONE;
    const uintptr_t offset = (uintptr_t)ptr - (uintptr_t)base;
    const size_t most = heap_window_bytes(g->heap);
    if (offset >= most || len > most - offset)
        return HEAP_REF_NONE;
    return (struct heap_ref){offset};
}

char *heap_at(struct shm_group *g, uint32_t rank, struct heap_ref ref, size_t len)
{
    char *base = heap_window(g->heap, rank);
    if (ref.offset > HEAP_BYTES || len > HEAP_BYTES - ref.offset) {
        shm_group_fail_damaged(g, rank, "a reference that lies outside its heap");
        return NULL;
    }
    if (base && ref.offset + len > heap_window_bytes(g->heap)) {
        shm_group_fail(g, COLLRUN_ERR_NO_MEMORY,
                       "rank %u cannot map more than %llu GiB of the shared heap of rank %u",
                       g->rank, HEAP_LIMITED_BYTES >> 30, rank);
        return NULL;
    }
    if (base)
        return base + ref.offset;
    shm_group_fail(g, COLLRUN_ERR_NO_MEMORY, "rank %u cannot map the shared heap of rank %u: %s",
                   g->rank, rank, strerror(errno));
    return NULL;
}
