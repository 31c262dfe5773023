/* SPDX-License-Identifier: Apache-2.0
 *
 * mailbox: a whole backend in one file, to copy and change. It knows two operations, send and
 * receive, between ranks of one host; collrun builds the other operations from those two.
 *
 * Each ordered pair of ranks has a box in a memory file that the members share: room for one chunk
 * of a message, and a word that says whether it is full. The sender fills it, the receiver empties
 * it, both by polling. A message longer than the box goes in several chunks, the first of which
 * announces its whole length.
 *
 * Every failure is a sentence through services->fail. Every wait ends: when the data is there, when
 * the time-out of the call has passed, or when collrun calls group_abort from another thread.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <collrun/backend.h>

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { EMPTY, FULL, REFUSED };

struct box {
    _Alignas(64) atomic_uint state;
    uint64_t message; /* bytes of the whole message */
    unsigned char chunk[];
};

struct group {
    const struct collrun_services *services;
    uint32_t rank, nranks;
    size_t chunk, box_len, len; /* bytes of a chunk, of a box, of all boxes */
    unsigned char *boxes;
    bool *busy;          /* for exec: which boxes an earlier call of the batch still uses */
    atomic_bool aborted; /* set by another thread */
};

/* One call on its way. */
struct transfer {
    const struct collrun_call *call;
    size_t bytes, moved;
    bool sends, done;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void group_close(void *handle)
{
    struct group *group = handle;
    if (group->boxes)
        munmap(group->boxes, group->len);
    free(group->busy);
    free(group);
}

/* The option `chunk` of job.yaml, in bytes. */
static int read_chunk(struct group *group)
{
    const struct collrun_services *s = group->services;
    const char *text = s->option(s->ctx, "chunk");
    char *end;
    errno = 0;
    unsigned long long chunk = text ? strtoull(text, &end, 10) : 16384;
    if (text && (errno || end == text || *end || chunk < 64 || chunk > 16777216))
        return s->fail(s->ctx, COLLRUN_ERR_INVALID,
                       "option chunk: \"%s\" is not 64 to 16777216 bytes", text);
    group->chunk = (size_t)chunk;
    return COLLRUN_OK;
}

/* One memory file for all members; it comes zeroed, so every box is empty. */
static int map_boxes(struct group *group, const struct collrun_rendezvous *rendezvous)
{
    const struct collrun_services *s = group->services;
    group->box_len = (sizeof(struct box) + group->chunk + 63) / 64 * 64;
    group->len = group->box_len * group->nranks * group->nranks;
    int fd;
    int rc = rendezvous->segment(rendezvous->ctx, "boxes", group->len, &fd);
    if (rc)
        return rc; /* the sentence is there already */
    void *memory = mmap(NULL, group->len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int error = errno;
    close(fd);
    if (memory == MAP_FAILED)
        return s->fail(s->ctx, COLLRUN_ERR_SYSTEM, "mapping %zu bytes: %s", group->len,
                       strerror(error));
    group->boxes = memory;
    return COLLRUN_OK;
}

static int group_open(void *backend, const struct collrun_group_desc *desc, void **out)
{
    (void)backend;
    const struct collrun_services *s = desc->services;
    struct group *group = calloc(1, sizeof *group);
    bool *busy = calloc(2 * (size_t)desc->nranks, sizeof *busy);
    if (!group || !busy) {
        free(group);
        free(busy);
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    }
    group->services = s;
    group->rank = desc->rank;
    group->nranks = desc->nranks;
    group->busy = busy;
    int rc = read_chunk(group);
    if (!rc)
        rc = map_boxes(group, desc->rendezvous);
    if (rc) {
        group_close(group);
        return rc;
    }
    *out = group;
    return COLLRUN_OK;
}

static void group_abort(void *handle)
{
    atomic_store(&((struct group *)handle)->aborted, true);
}

static struct box *box_of(const struct group *group, uint32_t from, uint32_t to)
{
    return (struct box *)(void *)(group->boxes + group->box_len * (from * group->nranks + to));
}

/* Moves the next chunk if the box allows: 1 if it did, 0 if not yet. */
static int send_chunk(struct group *group, struct transfer *t)
{
    const struct collrun_services *s = group->services;
    struct box *box = box_of(group, group->rank, (uint32_t)t->call->peer);
    unsigned state = atomic_load_explicit(&box->state, memory_order_acquire);
    if (state == REFUSED)
        return s->fail(s->ctx, COLLRUN_ERR_MISMATCH, "rank %d expects a message of another length",
                       t->call->peer);
    if (state != EMPTY)
        return 0;
    size_t left = t->bytes - t->moved, n = left < group->chunk ? left : group->chunk;
    if (n > 0)
        memcpy(box->chunk, (const unsigned char *)t->call->send + t->moved, n);
    box->message = t->bytes;
    atomic_store_explicit(&box->state, FULL, memory_order_release);
    t->moved += n;
    t->done = t->moved == t->bytes;
    return 1;
}

static int receive_chunk(struct group *group, struct transfer *t)
{
    const struct collrun_services *s = group->services;
    struct box *box = box_of(group, (uint32_t)t->call->peer, group->rank);
    if (atomic_load_explicit(&box->state, memory_order_acquire) != FULL)
        return 0;
    if (box->message != t->bytes) {
        atomic_store_explicit(&box->state, REFUSED, memory_order_release);
        return s->fail(s->ctx, COLLRUN_ERR_MISMATCH,
                       "rank %d sends %llu bytes, this rank expects %zu", t->call->peer,
                       (unsigned long long)box->message, t->bytes);
    }
    size_t left = t->bytes - t->moved, n = left < group->chunk ? left : group->chunk;
    if (n > 0)
        memcpy((unsigned char *)t->call->recv + t->moved, box->chunk, n);
    atomic_store_explicit(&box->state, EMPTY, memory_order_release);
    t->moved += n;
    t->done = t->moved == t->bytes;
    return 1;
}

/* One round over all transfers; those through the same box take turns in their order. Returns how
 * many chunks moved. */
static int advance(struct group *group, struct transfer *transfers, uint32_t n, uint32_t *left)
{
    int moved = 0;
    memset(group->busy, 0, 2 * (size_t)group->nranks * sizeof *group->busy);
    for (uint32_t i = 0; i < n; i++) {
        struct transfer *t = &transfers[i];
        bool *busy = &group->busy[2 * (size_t)t->call->peer + t->sends];
        if (t->done || *busy)
            continue;
        int rc = t->sends ? send_chunk(group, t) : receive_chunk(group, t);
        if (rc < 0)
            return rc;
        moved += rc;
        *busy = !t->done;
        *left -= t->done;
    }
    return moved;
}

static int move(struct group *group, struct transfer *transfers, uint32_t n)
{
    const struct collrun_services *s = group->services;
    uint64_t deadline = now_ns() + transfers[0].call->timeout_ns;
    uint32_t left = n;
    while (left > 0) {
        int rc = advance(group, transfers, n, &left);
        if (rc < 0)
            return rc;
        if (rc > 0)
            continue;
        if (atomic_load(&group->aborted))
            return s->fail(s->ctx, COLLRUN_ERR_ABORTED, "the group is being torn down");
        if (now_ns() > deadline)
            return s->fail(s->ctx, COLLRUN_ERR_TIMEOUT, "%u of %u messages did not move", left, n);
        sched_yield();
    }
    return COLLRUN_OK;
}

static int exec(void *handle, const struct collrun_call *calls, uint32_t ncalls)
{
    struct group *group = handle;
    const struct collrun_services *s = group->services;
    struct transfer *transfers = calloc(ncalls, sizeof *transfers);
    if (!transfers)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory: %u calls", ncalls);
    for (uint32_t i = 0; i < ncalls; i++) {
        transfers[i].call = &calls[i];
        transfers[i].bytes = calls[i].count * s->dtype_size(calls[i].dtype);
        transfers[i].sends = calls[i].kind == COLLRUN_SEND;
    }
    int rc = move(group, transfers, ncalls);
    free(transfers);
    return rc;
}

static const struct collrun_capability native[] = {
    {COLLRUN_SEND, COLLRUN_MEMORY_HOST, ~0ull, 0},
    {COLLRUN_RECV, COLLRUN_MEMORY_HOST, ~0ull, 0},
    {0},
};

const struct collrun_backend collrun_backend_v1 = {
    .abi = COLLRUN_BACKEND_ABI,
    .size = (uint32_t)sizeof(struct collrun_backend),
    .name = "mailbox",
    .version = "1.0",
    .flags = COLLRUN_BACKEND_ONE_HOST,
    .native = native,
    .group_open = group_open,
    .group_abort = group_abort,
    .group_close = group_close,
    .exec = exec,
};
