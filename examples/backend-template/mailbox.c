/* SPDX-License-Identifier: Apache-2.0
 *
 * mailbox: a whole backend in one file, to copy and change. It sends and receives between ranks of
 * one host; collrun builds all other operations from that.
 *
 * Each ordered pair of ranks has a box in a memory file that the members share: room for one chunk
 * of a message, and a word that says whether it is full. The sender fills it, the receiver empties
 * it; a message longer than the box goes in several chunks. Each rank has a bell, which the others
 * ring when they have filled or emptied a box of its, so that it can sleep meanwhile. Who waits for
 * one tag while a message with another one blocks the box puts that message aside, for the receive
 * that will ask for it.
 *
 * Every failure is a sentence through services->fail. Every wait ends: when the data is there, when
 * the time-out of the call has passed, or when collrun calls group_abort from another thread.
 */
#define _GNU_SOURCE /* clock_gettime, syscall */
#include <collrun/backend.h>

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { EMPTY, FULL, REFUSED };

struct bell {
    _Alignas(64) atomic_uint rings;
    atomic_uint asleep;
};

struct box {
    _Alignas(64) atomic_uint state;
    uint32_t tag, dtype;
    uint64_t message; /* bytes of the whole message */
    unsigned char chunk[];
};

/* One call on its way. */
struct transfer {
    const struct collrun_call *call;
    size_t bytes, moved;
    int from; /* the rank whose message it receives, once that is known; else -1 */
    bool done;
};

/* A message that came before anybody asked for it. */
struct stashed {
    struct stashed *next;
    uint32_t tag, dtype;
    size_t bytes;
    bool complete;
    unsigned char data[];
};

/* What comes from one rank: the message in the box, half received perhaps, and those put aside. */
struct source {
    unsigned char *to; /* where its next chunk goes; NULL = the box is at the start of a message */
    size_t left;
    struct transfer *transfer; /* whose message it is, or NULL: that of `last` */
    struct stashed *first, *last;
};

struct group {
    const struct collrun_services *services;
    uint32_t rank, nranks;
    int spins;                  /* looks before it sleeps: none where ranks outnumber cores */
    size_t chunk, box_len, len; /* bytes of a chunk, of a box, of the memory */
    struct bell *bells;         /* the memory: nranks bells, then nranks * nranks boxes */
    struct source *sources;     /* nranks */
    bool *busy;          /* nranks, for exec: an earlier send of the batch still uses the box */
    atomic_bool aborted; /* set by another thread */
};

/* The calls of one exec. */
struct batch {
    struct transfer *transfers;
    uint32_t n, left;
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
    for (uint32_t i = 0; group->sources && i < group->nranks; i++)
        for (struct stashed *next, *m = group->sources[i].first; m; m = next) {
            next = m->next;
            free(m);
        }
    if (group->bells)
        munmap(group->bells, group->len);
    free(group->sources);
    free(group->busy);
    free(group);
}

/* The option `chunk` of job.yaml, in bytes; collrun has compared it with `options` below. */
static size_t read_chunk(const struct collrun_services *s)
{
    const char *text = s->option(s->ctx, "chunk");
    return text ? strtoull(text, NULL, 0) : 16384;
}

/* One memory file for all members; it comes zeroed, so every box is empty. */
static int map_memory(struct group *group, const struct collrun_rendezvous *rendezvous)
{
    const struct collrun_services *s = group->services;
    group->box_len = (sizeof(struct box) + group->chunk + 63) / 64 * 64;
    group->len = group->nranks * (sizeof(struct bell) + group->nranks * group->box_len);
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
    group->bells = memory;
    return COLLRUN_OK;
}

static int group_open(void *backend, const struct collrun_group_desc *desc, void **out)
{
    (void)backend;
    const struct collrun_services *s = desc->services;
    struct group *group = calloc(1, sizeof *group);
    if (!group)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    group->services = s;
    group->rank = desc->rank;
    group->nranks = desc->nranks;
    group->spins = desc->nlocal > desc->ncpus ? 0 : 1000;
    group->sources = calloc(desc->nranks, sizeof *group->sources);
    group->busy = calloc(desc->nranks, sizeof *group->busy);
    group->chunk = read_chunk(s);
    int rc = COLLRUN_OK;
    if (!group->sources || !group->busy)
        rc = s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    if (!rc)
        rc = map_memory(group, desc->rendezvous);
    if (rc) {
        group_close(group);
        return rc;
    }
    *out = group;
    return COLLRUN_OK;
}

static void ring(struct group *group, int rank)
{
    struct bell *bell = &group->bells[rank];
    atomic_fetch_add(&bell->rings, 1);
    if (atomic_load(&bell->asleep))
        syscall(SYS_futex, &bell->rings, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Sleeps until the bell has rung more often than `rings`, for 10 ms at most. */
static void sleep_until_rung(struct group *group, unsigned rings)
{
    const struct timespec limit = {0, 10000000};
    struct bell *bell = &group->bells[group->rank];
    atomic_store(&bell->asleep, 1);
    syscall(SYS_futex, &bell->rings, FUTEX_WAIT, rings, &limit, NULL, 0);
    atomic_store(&bell->asleep, 0);
}

static void group_abort(void *handle)
{
    struct group *group = handle;
    atomic_store(&group->aborted, true);
    ring(group, (int)group->rank);
}

static struct box *box_of(const struct group *group, uint32_t from, uint32_t to)
{
    unsigned char *boxes = (unsigned char *)(group->bells + group->nranks);
    return (struct box *)(void *)(boxes + group->box_len * (from * group->nranks + to));
}

/* Each of these moves at most one chunk: 1 if it did, 0 if it cannot yet, or a status. */

static int send_chunk(struct group *group, struct transfer *t)
{
    const struct collrun_services *s = group->services;
    struct box *box = box_of(group, group->rank, (uint32_t)t->call->peer);
    unsigned state = atomic_load_explicit(&box->state, memory_order_acquire);
    if (state == REFUSED)
        return s->fail(s->ctx, COLLRUN_ERR_MISMATCH, "rank %d expects another message",
                       t->call->peer);
    if (state != EMPTY)
        return 0;
    size_t left = t->bytes - t->moved, n = left < group->chunk ? left : group->chunk;
    if (n > 0)
        memcpy(box->chunk, (const unsigned char *)t->call->send + t->moved, n);
    box->tag = t->call->tag;
    box->dtype = t->call->dtype;
    box->message = t->bytes;
    atomic_store_explicit(&box->state, FULL, memory_order_release);
    ring(group, t->call->peer);
    t->moved += n;
    t->done = t->moved == t->bytes;
    return 1;
}

/* The first receive of the batch that wants a message from this rank with this tag. */
static struct transfer *wanted_by(const struct batch *batch, int from, uint32_t tag)
{
    for (struct transfer *t = batch->transfers; t < batch->transfers + batch->n; t++) {
        bool receives = t->call->kind == COLLRUN_RECV_ANY ||
                        (t->call->kind == COLLRUN_RECV && t->call->peer == from);
        if (receives && !t->done && t->from < 0 && t->call->tag == tag)
            return t;
    }
    return NULL;
}

/* Gives the message of `from` to a receive, if they agree on length and type. */
static int claim(struct group *group, struct transfer *t, int from, size_t bytes, uint32_t type)
{
    const struct collrun_services *s = group->services;
    enum collrun_dtype theirs = (enum collrun_dtype)type, mine = t->call->dtype;
    if (bytes != t->bytes || theirs != mine)
        return s->fail(s->ctx, COLLRUN_ERR_MISMATCH,
                       "rank %d sends %zu x %s, this rank expects %zu x %s", from,
                       bytes / s->dtype_size(theirs), s->dtype_name(theirs), t->call->count,
                       s->dtype_name(mine));
    t->from = from;
    if (t->call->source)
        *t->call->source = from;
    return COLLRUN_OK;
}

/* A message begins: it goes to the receive that wants it, or aside. */
static int begin_message(struct group *group, struct source *source, int from, struct box *box,
                         const struct batch *batch)
{
    static unsigned char nowhere;
    const struct collrun_services *s = group->services;
    source->left = (size_t)box->message;
    source->transfer = wanted_by(batch, from, box->tag);
    if (source->transfer) {
        int rc = claim(group, source->transfer, from, source->left, box->dtype);
        if (rc) {
            atomic_store_explicit(&box->state, REFUSED, memory_order_release);
            ring(group, from);
        }
        source->to = source->left ? source->transfer->call->recv : &nowhere;
        return rc;
    }
    struct stashed *m = calloc(1, sizeof *m + source->left);
    if (!m)
        return s->fail(s->ctx, COLLRUN_ERR_BACKEND, "no memory for a message of %zu bytes",
                       source->left);
    m->tag = box->tag;
    m->dtype = box->dtype;
    m->bytes = source->left;
    *(source->first ? &source->last->next : &source->first) = m;
    source->last = m;
    source->to = m->data;
    return COLLRUN_OK;
}

/* Looks for the message among those put aside: 1 if it was there, 0 if it has not arrived in full
 * or at all. */
static int take_stashed(struct group *group, struct transfer *t, int from)
{
    struct source *source = &group->sources[from];
    struct stashed *before = NULL, *m = source->first;
    while (m && m->tag != t->call->tag) {
        before = m;
        m = m->next;
    }
    if (!m || !m->complete)
        return 0;
    int rc = claim(group, t, from, m->bytes, m->dtype);
    if (rc)
        return rc;
    if (m->bytes > 0)
        memcpy(t->call->recv, m->data, m->bytes);
    *(before ? &before->next : &source->first) = m->next;
    if (source->last == m)
        source->last = before;
    free(m);
    t->done = true;
    return 1;
}

static int receive_chunk(struct group *group, int from, struct batch *batch)
{
    struct source *source = &group->sources[from];
    struct box *box = box_of(group, (uint32_t)from, group->rank);
    if (atomic_load_explicit(&box->state, memory_order_acquire) != FULL)
        return 0;
    if (!source->to) {
        int rc = begin_message(group, source, from, box, batch);
        if (rc)
            return rc;
    }
    size_t n = source->left < group->chunk ? source->left : group->chunk;
    memcpy(source->to, box->chunk, n);
    atomic_store_explicit(&box->state, EMPTY, memory_order_release);
    ring(group, from);
    source->to += n;
    source->left -= n;
    if (source->left > 0)
        return 1;
    source->to = NULL;
    if (source->transfer) {
        source->transfer->done = true;
        return 1;
    }
    source->last->complete = true;
    struct transfer *t = wanted_by(batch, from, source->last->tag); /* asked for meanwhile? */
    return t ? take_stashed(group, t, from) : 1;
}

/* The ranks that a receive may get its message from: the first, and the one after the last. */
static void range_of(const struct group *group, const struct transfer *t, int *first, int *end)
{
    bool any = t->call->kind == COLLRUN_RECV_ANY && t->from < 0;
    *first = any ? 0 : t->from >= 0 ? t->from : t->call->peer;
    *end = any ? (int)group->nranks : *first + 1;
}

static int receive(struct group *group, struct transfer *t, struct batch *batch)
{
    int first, end, moved = 0;
    range_of(group, t, &first, &end);
    for (int from = first; from < end && !t->done; from++) {
        int rc = receive_chunk(group, from, batch);
        if (rc < 0)
            return rc;
        moved += rc;
    }
    return moved;
}

/* Serves what has been waiting since earlier calls, before anything newer is looked at. */
static int receive_stashed(struct group *group, struct batch *batch)
{
    for (struct transfer *t = batch->transfers; t < batch->transfers + batch->n; t++) {
        int first, end, rc = 0;
        range_of(group, t, &first, &end);
        for (int from = first; from < end && rc == 0 && t->call->kind != COLLRUN_SEND; from++)
            rc = take_stashed(group, t, from);
        if (rc < 0)
            return rc;
    }
    return COLLRUN_OK;
}

/* One round over the batch. Sends to one rank take turns in their order. Returns how many chunks
 * moved. */
static int advance(struct group *group, struct batch *batch)
{
    int moved = 0;
    batch->left = 0;
    memset(group->busy, 0, group->nranks * sizeof *group->busy);
    for (struct transfer *t = batch->transfers; t < batch->transfers + batch->n; t++) {
        int rc = 0;
        if (t->done)
            continue;
        if (t->call->kind != COLLRUN_SEND) {
            rc = receive(group, t, batch);
        } else if (!group->busy[t->call->peer]) {
            rc = send_chunk(group, t);
            group->busy[t->call->peer] = !t->done;
        }
        if (rc < 0)
            return rc;
        moved += rc;
        batch->left += !t->done;
    }
    return moved;
}

static int move(struct group *group, struct batch *batch, uint64_t timeout_ns)
{
    const struct collrun_services *s = group->services;
    uint64_t deadline = now_ns() + timeout_ns;
    for (int idle = 0; batch->left > 0; idle++) {
        unsigned rings = atomic_load(&group->bells[group->rank].rings);
        int rc = advance(group, batch);
        if (rc < 0)
            return rc;
        if (rc > 0) {
            idle = 0;
            continue;
        }
        if (atomic_load(&group->aborted))
            return s->fail(s->ctx, COLLRUN_ERR_ABORTED, "the group is being torn down");
        if (now_ns() > deadline)
            return s->fail(s->ctx, COLLRUN_ERR_TIMEOUT, "%u of %u messages are not through",
                           batch->left, batch->n);
        if (idle >= group->spins)
            sleep_until_rung(group, rings);
    }
    return COLLRUN_OK;
}

static int exec(void *handle, const struct collrun_call *calls, uint32_t ncalls)
{
    struct group *group = handle;
    const struct collrun_services *s = group->services;
    struct batch batch = {calloc(ncalls, sizeof *batch.transfers), ncalls, ncalls};
    if (!batch.transfers)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory: %u calls", ncalls);
    for (uint32_t i = 0; i < ncalls; i++)
        batch.transfers[i] = (struct transfer){
            .call = &calls[i], .bytes = calls[i].count * s->dtype_size(calls[i].dtype), .from = -1};
    int rc = receive_stashed(group, &batch);
    if (!rc)
        rc = move(group, &batch, calls[0].timeout_ns);
    free(batch.transfers);
    return rc;
}

static const struct collrun_capability native[] = {
    {COLLRUN_SEND, COLLRUN_MEMORY_HOST, ~0ull, 0},
    {COLLRUN_RECV, COLLRUN_MEMORY_HOST, ~0ull, 0},
    {COLLRUN_RECV_ANY, COLLRUN_MEMORY_HOST, ~0ull, 0},
    {0},
};

static const struct collrun_param options[] = {
    {"chunk", COLLRUN_PARAM_INT, NULL, "64", "16777216", "bytes that move at a time"},
    {0},
};

const struct collrun_backend collrun_backend_v1 = {
    .abi = COLLRUN_BACKEND_ABI,
    .size = (uint32_t)sizeof(struct collrun_backend),
    .name = "mailbox",
    .version = "1.0",
    .flags = COLLRUN_BACKEND_ONE_HOST | COLLRUN_BACKEND_TAGS | COLLRUN_BACKEND_RECV_ANY,
    .native = native,
    .group_open = group_open,
    .group_abort = group_abort,
    .group_close = group_close,
    .exec = exec,
    .options = options,
};
