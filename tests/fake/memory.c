/* SPDX-License-Identifier: Apache-2.0
 *
 * Each device has one reservation of address space, made at first use. Programs see the lower half,
 * which has no access rights; the upper half has the bytes. Blocks are ordered by address; a new
 * one takes the first gap that fits. Pages of freed blocks are returned at once.
 */
#include "memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 512, GAP = 512, POISON = 0xa5, POISON_MAX = 4 << 20 };

struct block {
    struct block *next;
    char *at;
    size_t len;
    int device;
    bool made; /* pinned memory: by memory_pin */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct arena {
    char *base; /* of the lower half; NULL: not used yet */
    size_t len; /* of a half */
    struct block *blocks;
} arenas[FAKE_GPUS_MAX];
static struct block *pinned;

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static bool arena_open(struct arena *arena)
{
    if (arena->base)
        return true;
    size_t len = (size_t)fake_setting("FAKE_CUDA_MEMORY_MIB", 16384) << 20;
    void *at = mmap(NULL, 2 * len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return false;
    if (mprotect((char *)at + len, len, PROT_READ | PROT_WRITE) < 0) {
        munmap(at, 2 * len);
        return false;
    }
    madvise(at, 2 * len, MADV_DONTDUMP);
    arena->base = at;
    arena->len = len;
    return true;
}

/* The position of the first gap of `len` bytes in the chain; NULL: none. */
static struct block **find_gap(struct arena *arena, size_t len, char **at)
{
    char *from = arena->base + GAP;
    struct block **link = &arena->blocks;
    for (; *link; link = &(*link)->next) {
        if ((size_t)((*link)->at - from) >= len + GAP)
            break;
        from = (*link)->at + round_up((*link)->len, ALIGN) + GAP;
    }
    *at = from;
    return (size_t)(arena->base + arena->len - from) >= len ? link : NULL;
}

int memory_alloc(int device, size_t len, void **ptr)
{
    struct arena *arena = &arenas[device];
    char *at = NULL;
    if (!len) {
        *ptr = NULL;
        return cudaSuccess;
    }
    struct block *block = calloc(1, sizeof *block);
    pthread_mutex_lock(&lock);
    struct block **link = NULL;
    if (block && arena_open(arena) && len <= arena->len)
        link = find_gap(arena, round_up(len, ALIGN), &at);
    if (link) {
        *block = (struct block){.next = *link, .at = at, .len = len, .device = device};
        *link = block;
        memset(at + arena->len, POISON, len < POISON_MAX ? len : POISON_MAX);
    }
    pthread_mutex_unlock(&lock);
    if (!link) {
        free(block);
        return cudaErrorMemoryAllocation;
    }
    *ptr = at;
    return cudaSuccess;
}

/* Takes the block that starts at `ptr` out of a chain. */
static struct block *take(struct block **link, const void *ptr)
{
    while (*link && (*link)->at != ptr)
        link = &(*link)->next;
    struct block *block = *link;
    if (block)
        *link = block->next;
    return block;
}

static struct arena *arena_of(const void *ptr)
{
    const char *at = ptr;
    for (int device = 0; device < FAKE_GPUS_MAX; device++)
        if (arenas[device].base && at >= arenas[device].base &&
            at < arenas[device].base + arenas[device].len)
            return &arenas[device];
    return NULL;
}

int memory_free(void *ptr)
{
    pthread_mutex_lock(&lock);
    struct arena *arena = arena_of(ptr);
    struct block *block = arena ? take(&arena->blocks, ptr) : NULL;
    if (block) {
        char *first = (char *)round_up((size_t)(block->at + arena->len), 4096);
        char *end = block->at + arena->len + block->len;
        if (end - first >= 4096)
            madvise(first, (size_t)(end - first) / 4096 * 4096, MADV_DONTNEED);
    }
    pthread_mutex_unlock(&lock);
    free(block);
    return block ? cudaSuccess : cudaErrorInvalidValue;
}

bool fake_reserve(int device, size_t len, void **ptr)
{
    return memory_alloc(device, len, ptr) == cudaSuccess;
}

void fake_release(void *ptr)
{
    if (ptr)
        memory_free(ptr);
}

void memory_info(int device, size_t *available, size_t *total)
{
    pthread_mutex_lock(&lock);
    arena_open(&arenas[device]);
    *total = *available = arenas[device].len;
    for (const struct block *b = arenas[device].blocks; b; b = b->next)
        *available -= b->len;
    pthread_mutex_unlock(&lock);
}

static const struct block *holds(const struct block *block, const char *at)
{
    while (block && !(at >= block->at && at < block->at + block->len))
        block = block->next;
    return block;
}

int memory_pin(int device, void **ptr, size_t len)
{
    struct block *block = calloc(1, sizeof *block);
    bool make = !*ptr;
    if (!block)
        return cudaErrorMemoryAllocation;
    pthread_mutex_lock(&lock);
    if (!make && holds(pinned, *ptr)) {
        pthread_mutex_unlock(&lock);
        free(block);
        return cudaErrorHostMemoryAlreadyRegistered;
    }
    if (make)
        *ptr =
            mmap(NULL, len ? len : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool failed = *ptr == MAP_FAILED;
    if (!failed) {
        *block = (struct block){pinned, *ptr, len ? len : 1, device, make};
        pinned = block;
    }
    pthread_mutex_unlock(&lock);
    if (failed)
        free(block);
    return failed ? cudaErrorMemoryAllocation : cudaSuccess;
}

int memory_unpin(void *ptr, bool made)
{
    pthread_mutex_lock(&lock);
    const struct block *at = holds(pinned, ptr);
    struct block *block = at && at->made == made ? take(&pinned, ptr) : NULL;
    pthread_mutex_unlock(&lock);
    if (block && made)
        munmap(block->at, block->len);
    free(block);
    return block ? cudaSuccess : made ? cudaErrorInvalidValue : cudaErrorHostMemoryNotRegistered;
}

struct fake_place fake_find(const void *ptr)
{
    struct fake_place place = {.type = cudaMemoryTypeUnregistered, .device = -1};
    pthread_mutex_lock(&lock);
    const struct arena *arena = arena_of(ptr);
    const struct block *block = holds(arena ? arena->blocks : pinned, ptr);
    if (block) {
        place.type = arena ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
        place.device = block->device;
        place.bytes = (char *)ptr + (arena ? arena->len : 0);
        place.base = block->at;
        place.left = (size_t)(block->at + block->len - (const char *)ptr);
    } else if (arena) { /* a gap, or freed */
        place.type = cudaMemoryTypeDevice;
        place.device = (int)(arena - arenas);
    }
    pthread_mutex_unlock(&lock);
    return place;
}
