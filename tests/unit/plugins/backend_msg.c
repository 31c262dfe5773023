/* SPDX-License-Identifier: Apache-2.0
 *
 * A backend for the engine's tests, as small as one can be and still move data between processes:
 * only SEND, RECV and RECV_ANY, of uint8, through one byte ring per ordered pair in a shared
 * segment; no tags. Everything else the engine has to emulate. Built three times: with exec alone
 * ("msg"), with start and test alone (-DWITH_START, "msgstart"), and broken in ways that
 * -DBROKEN_... names. A message is its length and its bytes; a length that differs from what is
 * received is a MISMATCH.
 */
#include <collrun/backend.h>
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { RING_LEN = 4096 };

struct ring { /* one writer, one reader */
    _Atomic uint64_t written, read;
    unsigned char bytes[RING_LEN];
};

struct group {
    const struct collrun_services *services;
    uint32_t rank, nranks;
    struct ring *rings; /* nranks * nranks: [from * nranks + to] */
    size_t len;
    atomic_bool aborted;
    struct request *requests; /* in order of their start */
};

struct message {
    struct collrun_call call;
    uint64_t head, done; /* bytes of the length, of the data */
    int from;            /* receives: the rank, -1 = any so far */
    uint64_t sent_len;   /* the length that the sender sent */
    bool finished;
};

struct request {
    struct request *next;
    uint64_t deadline_ns;
    uint32_t n;
    int failure;
    struct message messages[];
};

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static size_t ring_put(struct ring *r, const void *bytes, size_t len)
{
    uint64_t w = atomic_load_explicit(&r->written, memory_order_relaxed);
    uint64_t space = RING_LEN - (w - atomic_load_explicit(&r->read, memory_order_acquire));
    len = len < space ? len : (size_t)space;
    for (size_t i = 0; i < len; i++)
        r->bytes[(w + i) % RING_LEN] = ((const unsigned char *)bytes)[i];
    atomic_store_explicit(&r->written, w + len, memory_order_release);
    return len;
}

static size_t ring_get(struct ring *r, void *bytes, size_t len)
{
    uint64_t at = atomic_load_explicit(&r->read, memory_order_relaxed);
    uint64_t there = atomic_load_explicit(&r->written, memory_order_acquire) - at;
    len = len < there ? len : (size_t)there;
    for (size_t i = 0; i < len; i++)
        ((unsigned char *)bytes)[i] = r->bytes[(at + i) % RING_LEN];
    atomic_store_explicit(&r->read, at + len, memory_order_release);
    return len;
}

static struct ring *ring_of(const struct group *g, uint32_t from, uint32_t to)
{
    return &g->rings[from * g->nranks + to];
}

static void push(struct group *g, struct message *m)
{
    struct ring *r = ring_of(g, g->rank, (uint32_t)m->call.peer);
    uint64_t len = m->call.count;
    if (m->head < sizeof len)
        m->head += ring_put(r, (char *)&len + m->head, sizeof len - m->head);
    if (m->head == sizeof len)
        m->done += ring_put(r, (const char *)m->call.send + m->done, len - m->done);
    m->finished = m->head == sizeof len && m->done == len;
}

static int pull(struct group *g, struct message *m)
{
    for (uint32_t i = 0; m->from < 0 && i < g->nranks; i++) {
        struct ring *r = ring_of(g, i, g->rank);
        if (atomic_load(&r->written) != atomic_load(&r->read))
            m->from = (int)i;
    }
    if (m->from < 0)
        return COLLRUN_OK;
    struct ring *r = ring_of(g, (uint32_t)m->from, g->rank);
    if (m->head < sizeof m->sent_len)
        m->head += ring_get(r, (char *)&m->sent_len + m->head, sizeof m->sent_len - m->head);
    if (m->head < sizeof m->sent_len)
        return COLLRUN_OK;
    if (m->sent_len != m->call.count)
        return g->services->fail(g->services->ctx, COLLRUN_ERR_MISMATCH,
                                 "rank %d sends %llu bytes, this rank receives %zu", m->from,
                                 (unsigned long long)m->sent_len, m->call.count);
    m->done += ring_get(r, (char *)m->call.recv + m->done, m->call.count - m->done);
    m->finished = m->done == m->call.count;
    if (m->finished && m->call.kind == COLLRUN_RECV_ANY && m->call.source)
        *m->call.source = m->from;
    return COLLRUN_OK;
}

/* An earlier unfinished message in the same direction with the same peer goes first. */
static bool must_wait(const struct group *g, const struct message *m)
{
    for (const struct request *q = g->requests; q; q = q->next) {
        for (uint32_t i = 0; i < q->n; i++) {
            const struct message *other = &q->messages[i];
            if (other == m)
                return false;
            bool same_way = (other->call.kind == COLLRUN_SEND) == (m->call.kind == COLLRUN_SEND);
            bool same_peer = other->call.kind == COLLRUN_RECV_ANY ||
                             m->call.kind == COLLRUN_RECV_ANY || other->call.peer == m->call.peer;
            if (!other->finished && !q->failure && same_way && same_peer)
                return true;
        }
    }
    return false;
}

static void progress(struct group *g)
{
    for (struct request *q = g->requests; q; q = q->next) {
        for (uint32_t i = 0; i < q->n && !q->failure; i++) {
            struct message *m = &q->messages[i];
            if (m->finished || must_wait(g, m))
                continue;
            if (m->call.kind == COLLRUN_SEND)
                push(g, m);
            else
                q->failure = pull(g, m);
        }
    }
}

static int start(void *group, const struct collrun_call *calls, uint32_t n, void **request)
{
    struct group *g = group;
    struct request *q = calloc(1, sizeof *q + n * sizeof *q->messages);
    if (!q)
        return COLLRUN_ERR_NO_MEMORY;
    q->n = n;
    q->deadline_ns = now() + calls[0].timeout_ns;
    for (uint32_t i = 0; i < n; i++) {
        q->messages[i].call = calls[i];
        q->messages[i].from = calls[i].kind == COLLRUN_RECV_ANY ? -1 : calls[i].peer;
    }
    struct request **end = &g->requests;
    while (*end)
        end = &(*end)->next;
    *end = q;
    *request = q;
    return COLLRUN_OK;
}

static int test(void *group, void *request)
{
    struct group *g = group;
    struct request *q = request, **p = &g->requests;
    bool finished = true;
    progress(g);
    for (uint32_t i = 0; i < q->n; i++)
        finished = finished && q->messages[i].finished;
    int rc = q->failure;
    if (!rc && !finished && atomic_load(&g->aborted))
        rc = g->services->fail(g->services->ctx, COLLRUN_ERR_ABORTED, "stopped in mid-message");
    if (!rc && !finished && now() > q->deadline_ns)
        rc = g->services->fail(g->services->ctx, COLLRUN_ERR_TIMEOUT,
                               "timed out waiting for rank %d", q->messages[0].call.peer);
    if (!rc && !finished)
        return COLLRUN_AGAIN;
    while (*p != q)
        p = &(*p)->next;
    *p = q->next;
    free(q);
    return rc;
}

#ifndef WITH_START
static int exec(void *group, const struct collrun_call *calls, uint32_t n)
{
    void *request = NULL;
    int rc = start(group, calls, n, &request);
    while (rc == COLLRUN_OK && (rc = test(group, request)) == COLLRUN_AGAIN) {
        sched_yield();
        rc = COLLRUN_OK;
    }
    return rc;
}
#endif

static int group_open(void *backend, const struct collrun_group_desc *desc, void **group)
{
    (void)backend;
    const struct collrun_services *s = desc->services;
    const struct collrun_rendezvous *r = desc->rendezvous;
    struct group *g = calloc(1, sizeof *g);
    int fd = -1;
    if (!g)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    const char *stumble = s->option(s->ctx, "stumble");
    if (stumble) {
        free(g);
        return s->fail(s->ctx, COLLRUN_ERR_BACKEND, "stumbled over %s", stumble);
    }
    *g = (struct group){.services = s, .rank = desc->rank, .nranks = desc->nranks};
    g->len = (size_t)g->nranks * g->nranks * sizeof *g->rings;
    uint64_t offset;
    int rc = r->segment(r->ctx, g->len, &fd, &offset);
    if (rc == COLLRUN_OK) {
        g->rings = mmap(NULL, g->len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
        if (g->rings == MAP_FAILED)
            rc = s->fail(s->ctx, COLLRUN_ERR_SYSTEM, "mmap: %s", strerror(errno));
    }
    if (rc != COLLRUN_OK) {
        free(g);
        return rc;
    }
    s->log(s->ctx, COLLRUN_LOG_DEBUG, "open, %u of %u", desc->rank, desc->nranks);
    *group = g;
    return COLLRUN_OK;
}

static void group_abort(void *group)
{
    atomic_store(&((struct group *)group)->aborted, true);
}

static void group_close(void *group)
{
    struct group *g = group;
    munmap(g->rings, g->len);
    free(g);
}

#ifdef BROKEN_PROBE
static int probe(const struct collrun_services *services, char *why, size_t len)
{
    (void)services;
    strncpy(why, "the moon is in the wrong phase", len - 1);
    return COLLRUN_ERR_UNAVAILABLE;
}
#endif

static const struct collrun_capability native[] = {
    {COLLRUN_SEND, COLLRUN_MEMORY_HOST, 1u << COLLRUN_UINT8, 0},
    {COLLRUN_RECV, COLLRUN_MEMORY_HOST, 1u << COLLRUN_UINT8, 0},
    {COLLRUN_RECV_ANY, COLLRUN_MEMORY_HOST, 1u << COLLRUN_UINT8, 0},
    {0},
};

const struct collrun_backend collrun_backend_v1 = {
#ifdef BROKEN_ABI
    77,
    sizeof collrun_backend_v1,
#else
    COLLRUN_BACKEND_HEAD,
#endif
#ifdef WITH_START
    .name = "msgstart",
    .start = start,
    .test = test,
#else
    .name = "msg",
    .exec = exec,
#endif
#ifdef VERSION_2
    .version = "2.0",
#else
    .version = "1.0",
#endif
    .flags = COLLRUN_BACKEND_ONE_HOST | COLLRUN_BACKEND_RECV_ANY,
    .native = native,
#ifdef BROKEN_PROBE
    .probe = probe,
#endif
    .group_open = group_open,
    .group_abort = group_abort,
#ifndef BROKEN_HALF
    .group_close = group_close,
#endif
};
