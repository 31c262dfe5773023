/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout and mapping of the shared segment. All sizes follow from the number of ranks and the
 * constants of segment.h, and the key holds them too, so two builds that disagree never meet in one
 * file.
 */
#include "segment.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096u

_Static_assert(sizeof(struct post) == SLIP_BYTES, "a post is one slip");
_Static_assert(sizeof(struct cell) == SLIP_BYTES, "a cell is one slip");

/* Takes the next part of the layout: `len` bytes from a page border. */
static size_t take(size_t *end, size_t len)
{
    const size_t at = *end;
    *end = (at + len + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    return at;
}

static int map_failed(struct segment *seg, const struct collrun_group_desc *desc)
{
    const struct collrun_services *s = desc->services;
    const int error = errno;
    close(seg->fd);
    return s->fail(s->ctx, COLLRUN_ERR_SYSTEM, "map %zu MiB of shared memory: %s",
                   seg->mapped >> 20, strerror(error));
}

int segment_open(struct segment *seg, const struct collrun_group_desc *desc)
{
    const size_t n = desc->nranks;
    size_t end = 0;
    const size_t head = take(&end, sizeof(struct segment_head));
    const size_t bells = take(&end, n * sizeof(struct bell));
    const size_t posts = take(&end, STEP_LANES * n * sizeof(struct post));
    const size_t slots = take(&end, n * STEP_LANES * SLOT_BYTES);
    const size_t boxes = take(&end, n * n * sizeof(struct box));
    const size_t rings = take(&end, n * RING_BYTES);
    const size_t blocks = take(&end, n * BLOCK_COUNT * BLOCK_BYTES);
    const size_t returned = take(&end, n * sizeof(struct returned));
    char key[64];
    *seg = (struct segment){.nranks = desc->nranks, .fd = -1, .mapped = end, .heaps = end};
    snprintf(key, sizeof(key), "shm/4/%zu", end);
    const int status =
        desc->rendezvous->segment(desc->rendezvous->ctx, key, end + n * HEAP_BYTES, &seg->fd);
    if (status != COLLRUN_OK)
        return status;
    seg->base = mmap(NULL, end, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, seg->fd, 0);
    if (seg->base == MAP_FAILED)
        return map_failed(seg, desc);
    madvise(seg->base, end, MADV_DONTDUMP);
    seg->head = (struct segment_head *)(void *)(seg->base + head);
    seg->bells = (struct bell *)(void *)(seg->base + bells);
    seg->posts = (struct post *)(void *)(seg->base + posts);
    seg->slots = seg->base + slots;
    seg->boxes = (struct box *)(void *)(seg->base + boxes);
    seg->rings = seg->base + rings;
    seg->blocks = seg->base + blocks;
    seg->returned = (struct returned *)(void *)(seg->base + returned);
    return COLLRUN_OK;
}

void segment_close(struct segment *seg)
{
    munmap(seg->base, seg->mapped);
    close(seg->fd);
}

char *segment_map_heap(const struct segment *seg, uint32_t rank)
{
    char *heap = mmap(NULL, HEAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, seg->fd,
                      (off_t)(seg->heaps + rank * HEAP_BYTES));
    if (heap == MAP_FAILED)
        return NULL;
    madvise(heap, HEAP_BYTES, MADV_DONTDUMP);
    return heap;
}

void segment_unmap_heap(char *heap)
{
    if (heap)
        munmap(heap, HEAP_BYTES);
}
