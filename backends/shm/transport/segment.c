/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout and mapping of the shared segment. All sizes follow from the number of ranks and the
 * constants of segment.h. Members compare the version of the backend and the size of the segment
 * before they share it, so two builds that disagree about the layout never do.
 */
#include "transport/segment.h"

#include "transport/spread.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(sizeof(struct step_rec) == RECORD_BYTES, "a step record fills its four lines");
_Static_assert(sizeof(struct packet) == RECORD_BYTES, "a packet fills its four lines");

/* Offsets in the segment. Those of the first part are offsets from `base`, too. */
struct layout {
    size_t returned, doorbells, processes, cores, step_recs, slots;
    size_t rings, messages, heaps; /* whole pages */
};

static size_t segment_round(size_t len, size_t to)
{
    return (len + to - 1) / to * to;
}

/* What is mapped alone begins at a page. */
static size_t segment_round_page(size_t len)
{
    return segment_round(len, (size_t)sysconf(_SC_PAGESIZE));
}

static size_t segment_fifos_len(size_t nranks)
{
    return nranks * nranks * sizeof(struct fifo);
}

static size_t segment_blocks_at(size_t nranks)
{
    return segment_round_page(segment_fifos_len(nranks) +
                              nranks * BLOCK_COUNT * sizeof(struct written));
}

/* FIFOs and blocks of one handle. */
static size_t segment_messages_len(size_t nranks)
{
    return segment_round_page(segment_blocks_at(nranks) + nranks * BLOCK_COUNT * BLOCK_BYTES);
}

static uint32_t segment_depth_oversubscribed(uint32_t nranks)
{
    uint32_t depth = STEP_DEPTH_OVERSUBSCRIBED;
    while (depth > STEP_DEPTH_OVERSUBSCRIBED_MIN && depth * nranks > STEP_RECORDS_OVERSUBSCRIBED)
        depth /= 2;
    return depth;
}

void segment_set_depth(struct segment *seg, bool oversubscribed)
{
    const bool large = seg->nranks > STEP_DEPTH_MAX_RANKS;
    seg->depth = large ? STEP_DEPTH_LARGE : STEP_DEPTH;
    seg->nslots = SLOT_COUNT;
    if (large || !oversubscribed)
        return;
    seg->depth = segment_depth_oversubscribed(seg->nranks);
    seg->nslots = seg->depth < STEP_DEPTH_OVERSUBSCRIBED ? SLOT_COUNT_OVERSUBSCRIBED / 2
                                                         : SLOT_COUNT_OVERSUBSCRIBED;
}

/* Whether the group is oversubscribed is not known yet. What is not used takes no memory. */
static struct layout segment_layout(uint32_t nranks)
{
    struct layout l;
    struct segment most = {.nranks = nranks};
    segment_set_depth(&most, true);
    l.returned = segment_round(sizeof(struct segment_head), LINE_BYTES);
    l.doorbells = l.returned + SEGMENT_HANDLES * nranks * sizeof(struct returned);
    l.processes = l.doorbells + SEGMENT_HANDLES * nranks * sizeof(struct doorbell);
    l.cores = segment_round(l.processes + nranks * sizeof(struct process), LINE_BYTES);
    l.step_recs = segment_round_page(l.cores + nranks * sizeof(struct spread_core));
    l.slots = l.step_recs + most.depth * nranks * sizeof(struct step_rec);
    l.rings = segment_round_page(l.slots + (size_t)nranks * most.nslots * SLOT_BYTES);
    l.messages = l.rings + nranks * (size_t)RING_BYTES;
    l.heaps = l.messages + SEGMENT_HANDLES * segment_messages_len(nranks);
    return l;
}

/* NULL with errno. */
static char *segment_map(int fd, uint64_t at, size_t len)
{
    char *memory =
        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)at);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, len, MADV_DONTDUMP);
    return memory;
}

static int segment_get(struct segment *seg, const struct collrun_group_desc *desc)
{
    const struct collrun_services *s = desc->services;
    const struct layout l = segment_layout(desc->nranks);
    uint64_t at;
    const int status = desc->rendezvous->segment(
        desc->rendezvous->ctx, l.heaps + desc->nranks * HEAP_BYTES, &seg->fd, &at);
    if (status != COLLRUN_OK)
        return status;
    seg->base = segment_map(seg->fd, at, l.rings);
    if (!seg->base)
        return s->fail(s->ctx, COLLRUN_ERR_SYSTEM, "cannot map %zu KiB of shared memory: %s",
                       l.rings >> 10, strerror(errno));
    seg->base_len = l.rings;
    seg->rings_at = at + l.rings;
    seg->messages_at = at + l.messages;
    seg->heaps_at = at + l.heaps;
    return COLLRUN_OK;
}

int segment_open(struct segment *seg, const struct segment *first,
                 const struct collrun_group_desc *desc)
{
    const size_t n = desc->nranks;
    const struct layout l = segment_layout(desc->nranks);
    if (first) {
        *seg = *first;
        seg->messages_at += segment_messages_len(n);
    } else {
        *seg = (struct segment){.nranks = desc->nranks};
        const int status = segment_get(seg, desc);
        if (status != COLLRUN_OK)
            return status;
    }
    seg->handle = first != NULL;
    seg->head = (struct segment_head *)(void *)seg->base;
    seg->returned = (struct returned *)(void *)(seg->base + l.returned) + seg->handle * n;
    seg->all_doorbells = (struct doorbell *)(void *)(seg->base + l.doorbells);
    seg->doorbells = seg->all_doorbells + seg->handle * n;
    seg->processes = (struct process *)(void *)(seg->base + l.processes);
    seg->cores = (struct spread_core *)(void *)(seg->base + l.cores);
    seg->step_recs = (struct step_rec *)(void *)(seg->base + l.step_recs);
    seg->slots = seg->base + l.slots;
    seg->rings = seg->blocks = NULL;
    seg->fifos = NULL;
    seg->written = NULL;
    return COLLRUN_OK;
}

void segment_close(struct segment *seg)
{
    if (seg->rings)
        munmap(seg->rings, seg->nranks * (size_t)RING_BYTES);
    if (seg->fifos)
        munmap(seg->fifos, segment_messages_len(seg->nranks));
    if (seg->handle == 0)
        munmap(seg->base, seg->base_len);
}

bool segment_map_rings(struct segment *seg)
{
    if (!seg->rings)
        seg->rings = segment_map(seg->fd, seg->rings_at, seg->nranks * (size_t)RING_BYTES);
    return seg->rings != NULL;
}

bool segment_map_messages(struct segment *seg)
{
    if (seg->fifos)
        return true;
    char *messages = segment_map(seg->fd, seg->messages_at, segment_messages_len(seg->nranks));
    if (!messages)
        return false;
    seg->fifos = (struct fifo *)(void *)messages;
    seg->written = (struct written *)(void *)(messages + segment_fifos_len(seg->nranks));
    seg->blocks = messages + segment_blocks_at(seg->nranks);
    return true;
}

char *segment_map_heap(const struct segment *seg, uint32_t rank, size_t len)
{
    return segment_map(seg->fd, seg->heaps_at + rank * HEAP_BYTES, len);
}

void segment_unmap_heap(char *heap, size_t len)
{
    if (heap)
        munmap(heap, len);
}
