/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys are "GROUP#GENERATION/KEY"; the generation counts how often this rank has met under that
 * name, which all members do equally often. Values are copied into one arena that only grows: a run
 * is short.
 */
#include "harness_store.h"

#include "backend_harness.h"
#include "core/connect_all.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HARNESS_SEGMENT_OFFSET (1u << 20)

struct segment_ticket {
    pid_t pid;
    int fd;
    size_t len;
};

void harness_store_init(struct harness_store *store)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&store->lock, &attr);
    pthread_mutexattr_destroy(&attr);
}

static void store_lock(struct harness_store *store)
{
    if (pthread_mutex_lock(&store->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&store->lock);
}

static void store_changed(struct harness_store *store)
{
    atomic_fetch_add(&store->changes, 1);
    syscall(SYS_futex, &store->changes, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void harness_store_fail(struct harness_store *store)
{
    atomic_store(&store->failed, 1);
    store_changed(store);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Under the lock. */
static struct harness_entry *store_find(struct harness_store *store, const char *key)
{
    for (uint32_t i = 0; i < store->nentries; i++)
        if (strcmp(store->entries[i].key, key) == 0)
            return &store->entries[i];
    return NULL;
}

/* Under the lock. */
static struct harness_entry *store_add(struct harness_store *store, const char *key,
                                       const void *value, size_t len)
{
    if (store->nentries == HARNESS_STORE_ENTRIES || len > HARNESS_STORE_BYTES - store->used)
        return NULL;
    struct harness_entry *e = &store->entries[store->nentries++];
    snprintf(e->key, sizeof(e->key), "%s", key);
    e->offset = store->used;
    e->len = (uint32_t)len;
    memcpy(store->bytes + e->offset, value, len);
    store->used += (uint32_t)len;
    return e;
}

static int fail(const struct harness_rendezvous *m, int status, const char *text, const char *key)
{
    const struct collrun_services *s = m->desc->services;
    return m->quiet ? status : s->fail(s->ctx, status, "%s: %s", text, key);
}

static int full_key(const struct harness_rendezvous *m, const char *key,
                    char out[HARNESS_STORE_KEY])
{
    const int n = snprintf(out, HARNESS_STORE_KEY, "%s#%u/%s", m->desc->name, m->generation, key);
    return n < (int)HARNESS_STORE_KEY ? COLLRUN_OK
                                      : fail(m, COLLRUN_ERR_INVALID, "the key is too long", key);
}

static int rendezvous_put(void *ctx, const char *key, const void *value, size_t len)
{
    struct harness_rendezvous *m = ctx;
    char full[HARNESS_STORE_KEY];
    if (full_key(m, key, full) != COLLRUN_OK)
        return COLLRUN_ERR_INVALID;
    store_lock(m->store);
    const bool taken = store_find(m->store, full) != NULL;
    const bool added = !taken && store_add(m->store, full, value, len) != NULL;
    pthread_mutex_unlock(&m->store->lock);
    if (taken)
        return fail(m, COLLRUN_ERR_EXISTS, "the key was put twice", key);
    if (!added)
        return fail(m, COLLRUN_ERR_NO_MEMORY, "the harness's store is full", key);
    store_changed(m->store);
    return COLLRUN_OK;
}

/* Waits until `full` is there; with the lock held and *out set when OK. */
static int wait_for(struct harness_rendezvous *m, const char *full, struct harness_entry **out)
{
    const uint64_t deadline = now_ns() + m->limit_ns;
    for (;;) {
        const uint32_t seen = atomic_load(&m->store->changes);
        store_lock(m->store);
        *out = store_find(m->store, full);
        if (*out)
            return COLLRUN_OK;
        pthread_mutex_unlock(&m->store->lock);
        if (atomic_load(&m->store->failed))
            return fail(m, COLLRUN_ERR_PEER_FAILED, "a rank ended during rendezvous", full);
        if (now_ns() >= deadline)
            return fail(m, COLLRUN_ERR_TIMEOUT, "the rendezvous timed out", full);
        const struct timespec nap = {0, 20000000};
        syscall(SYS_futex, &m->store->changes, FUTEX_WAIT, seen, &nap, NULL, 0);
    }
}

static int rendezvous_get(void *ctx, const char *key, void *value, size_t capacity, size_t *len)
{
    struct harness_rendezvous *m = ctx;
    char full[HARNESS_STORE_KEY];
    struct harness_entry *e = NULL;
    int status = full_key(m, key, full);
    if (status == COLLRUN_OK)
        status = wait_for(m, full, &e);
    if (status != COLLRUN_OK)
        return status;
    *len = e->len;
    if (e->len > 0 && e->len <= capacity)
        memcpy(value, m->store->bytes + e->offset, e->len);
    if (e->len > capacity)
        status = COLLRUN_ERR_INVALID;
    pthread_mutex_unlock(&m->store->lock);
    return status == COLLRUN_OK ? status : fail(m, status, "the value is longer than asked", key);
}

static int rendezvous_alive(void *ctx)
{
    struct harness_rendezvous *m = ctx;
    if (!atomic_load(&m->store->failed))
        return COLLRUN_OK;
    return fail(m, COLLRUN_ERR_PEER_FAILED, "a rank ended while the group formed", "");
}

static int rendezvous_fence(void *ctx)
{
    struct harness_rendezvous *m = ctx;
    char key[64];
    const uint32_t number = m->fences++;
    snprintf(key, sizeof(key),
             "\x1f"
             "fence/%u/%u",
             number, m->desc->rank);
    int status = rendezvous_put(m, key, "", 0);
    for (uint32_t i = 0; status == COLLRUN_OK && i < m->desc->nranks; i++) {
        size_t len;
        snprintf(key, sizeof(key),
                 "\x1f"
                 "fence/%u/%u",
                 number, i);
        status = rendezvous_get(m, key, NULL, 0, &len);
    }
    return status;
}

static int rendezvous_share(void *ctx, const char *key, const void *value, size_t len)
{
    const int status = rendezvous_put(ctx, key, value, len);
    return status == COLLRUN_OK ? rendezvous_fence(ctx) : status;
}

/* Makes the memory file and leaves a ticket for the others. Under the lock. */
static int segment_new(struct harness_rendezvous *m, const char *full, size_t len)
{
    if (m->nfds == HARNESS_RENDEZVOUS_FDS)
        return -1;
    const int fd = memfd_create("harness-segment", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)(HARNESS_SEGMENT_OFFSET + len)) != 0)
        return -1;
    const struct segment_ticket ticket = {.pid = getpid(), .fd = fd, .len = len};
    if (!store_add(m->store, full, &ticket, sizeof(ticket)))
        return -1;
    m->fds[m->nfds++] = fd;
    return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

static int segment_join(struct harness_rendezvous *m, const struct harness_entry *e, size_t len)
{
    struct segment_ticket ticket;
    memcpy(&ticket, m->store->bytes + e->offset, sizeof(ticket));
    if (ticket.len != len)
        return -1;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)ticket.pid, ticket.fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

static int rendezvous_segment(void *ctx, size_t len, int *fd, uint64_t *offset)
{
    struct harness_rendezvous *m = ctx;
    char local[HARNESS_STORE_KEY];
    char full[HARNESS_STORE_KEY];
    snprintf(local, sizeof(local),
             "\x1f"
             "segment/%u",
             m->desc->host_of[m->desc->rank]);
    if (full_key(m, local, full) != COLLRUN_OK)
        return COLLRUN_ERR_INVALID;
    if (m->segment >= 0)
        return fail(m, COLLRUN_ERR_INVALID, "a second segment", local);
    store_lock(m->store);
    const struct harness_entry *e = store_find(m->store, full);
    m->segment = e ? segment_join(m, e, len) : segment_new(m, full, len);
    pthread_mutex_unlock(&m->store->lock);
    *fd = m->segment;
    *offset = HARNESS_SEGMENT_OFFSET;
    return *fd >= 0 ? COLLRUN_OK : fail(m, COLLRUN_ERR_SYSTEM, "no segment", local);
}

/* How often this rank has met under this name, itself kept in the store. */
static uint32_t next_generation(struct harness_store *store, const struct collrun_group_desc *desc)
{
    char key[HARNESS_STORE_KEY];
    snprintf(key, sizeof(key),
             "\x1f"
             "generation/%u/%s",
             desc->world_rank[desc->rank], desc->name);
    uint32_t generation = 0;
    store_lock(store);
    struct harness_entry *e = store_find(store, key);
    if (e) {
        memcpy(&generation, store->bytes + e->offset, sizeof(generation));
        generation++;
        memcpy(store->bytes + e->offset, &generation, sizeof(generation));
    } else {
        store_add(store, key, &generation, sizeof(generation));
    }
    pthread_mutex_unlock(&store->lock);
    return generation;
}

/* The engine's, over this store. */
static int rendezvous_connect_all(void *ctx, int *fds)
{
    struct harness_rendezvous *m = ctx;
    return connect_all(&(struct connect_all){.rendezvous = &m->table,
                                             .address = m->desc->address,
                                             .rank = m->desc->rank,
                                             .nranks = m->desc->nranks,
                                             .number = m->meshes++,
                                             .deadline_ns = harness_now_ns() + m->limit_ns},
                       fds);
}

void harness_rendezvous_open(struct harness_rendezvous *m, struct harness_store *store,
                             const struct collrun_group_desc *desc, uint64_t limit_ns)
{
    *m = (struct harness_rendezvous){
        .store = store,
        .desc = desc,
        .limit_ns = limit_ns,
        .segment = -1,
        .generation = next_generation(store, desc),
        .table = {.size = sizeof(m->table),
                  .ctx = m,
                  .put = rendezvous_put,
                  .get = rendezvous_get,
                  .fence = rendezvous_fence,
                  .segment = rendezvous_segment,
                  .alive = rendezvous_alive,
                  .connect_all = rendezvous_connect_all,
                  .share = rendezvous_share},
    };
}

void harness_rendezvous_close(struct harness_rendezvous *m)
{
    char key[64];
    size_t len;
    int status = COLLRUN_OK;
    m->quiet = true;
    m->limit_ns = 2000000000u;
    snprintf(key, sizeof(key),
             "\x1f"
             "done/%u",
             m->desc->rank);
    rendezvous_put(m, key, "", 0);
    for (uint32_t i = 0; m->nfds > 0 && status == COLLRUN_OK && i < m->desc->nranks; i++) {
        snprintf(key, sizeof(key),
                 "\x1f"
                 "done/%u",
                 i);
        status = rendezvous_get(m, key, NULL, 0, &len);
    }
    for (uint32_t i = 0; i < m->nfds; i++)
        close(m->fds[i]);
}
