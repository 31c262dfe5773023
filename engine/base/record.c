/* SPDX-License-Identifier: Apache-2.0
 *
 * A sequence lock per group: the version is odd while its numbers change. One thread writes a group
 * at a time (the API says so), so the writer needs no lock of its own.
 */
#include "base/record.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(struct record_group) == 128, "a record has a fixed shape");

int record_make(void)
{
    int fd = memfd_create("collrun-record", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, sizeof(struct record_page)) < 0 || pwrite(fd, RECORD_MAGIC, 8, 0) != 8) {
        int err = errno;
        close(fd);
        return -err;
    }
    return fd;
}

struct record_page *record_map(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || st.st_size != (off_t)sizeof(struct record_page))
        return NULL;
    struct record_page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return NULL;
    if (memcmp(page->magic, RECORD_MAGIC, sizeof page->magic) == 0)
        return page;
    munmap(page, sizeof *page);
    return NULL;
}

struct record_group *record_open(struct record_page *page, const char *name)
{
    for (int i = 0; page && i < RECORD_GROUPS; i++) {
        struct record_group *g = &page->groups[i];
        uint32_t free_entry = 0;
        if (!atomic_compare_exchange_strong(&g->used, &free_entry, 2))
            continue;
        snprintf(g->name, sizeof g->name, "%s", name);
        g->started = g->done = g->bytes = g->since_ns = 0;
        atomic_store_explicit(&g->used, 1, memory_order_release);
        return g;
    }
    return NULL;
}

void record_close(struct record_group *g)
{
    if (g)
        atomic_store_explicit(&g->used, 0, memory_order_release);
}

static uint64_t coarse_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void record_begin(struct record_group *g, const struct collrun_call *call, uint64_t number,
                  uint64_t bytes)
{
    if (!g)
        return;
    uint32_t version = atomic_load_explicit(&g->version, memory_order_relaxed);
    bool pair = call->kind >= COLLRUN_SEND;
    atomic_store_explicit(&g->version, version + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    g->started = number;
    g->bytes += bytes;
    g->since_ns = coarse_now();
    g->count = call->count;
    g->root_or_peer = pair ? call->peer : call->root;
    g->kind = (uint8_t)call->kind;
    g->dtype = (uint8_t)call->dtype;
    g->op = (uint8_t)call->op;
    atomic_store_explicit(&g->version, version + 2, memory_order_release);
}

void record_end(struct record_group *g, uint64_t number)
{
    if (g)
        g->done = number; /* one word: a reader sees the old or the new value */
}

bool record_read(const struct record_group *g, struct record_group *out)
{
    for (int tries = 0; tries < 1000; tries++) {
        if (atomic_load_explicit(&g->used, memory_order_acquire) != 1)
            return false;
        uint32_t before = atomic_load_explicit(&g->version, memory_order_acquire);
        memcpy(out->name, g->name, sizeof out->name);
        memcpy(&out->started, &g->started, sizeof *out - offsetof(struct record_group, started));
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&g->version, memory_order_relaxed) == before && !(before & 1)) {
            out->name[sizeof out->name - 1] = '\0';
            return true;
        }
    }
    return true; /* the writer died in the middle: what there is, is still worth telling */
}
