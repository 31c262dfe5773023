/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables that grow by use: threads, channels and requests. Their last members are found by counters
 * of the head, so readers look at no memory that was never used. One lock is for all that is added;
 * it is taken by threads of one process alone, and only if several may call at the same time.
 */
#include "base/record_writer.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *record_writer_at(struct record_head *head, size_t offset)
{
    return (unsigned char *)head + offset;
}

/* The image before this one has no calls any more, and its groups are no longer those of its peers.
 * Their words stay: a reader must not find an old one again. */
static void record_writer_drop(struct record_writer *w, struct record_head *head)
{
    for (uint32_t i = 0; i < head->nthreads; i++) {
        const uint32_t word = atomic_load(&w->threads[i].word);
        atomic_store(&w->threads[i].word, (word + 3) & ~3u);
        atomic_store(&w->threads[i].takes, 0);
    }
    memset(w->requests, 0, atomic_load(&head->requests_used) * sizeof *w->requests);
    memset(w->channels, 0, atomic_load(&head->channels_used) * sizeof *w->channels);
    for (uint32_t i = 0; i < head->ngroups; i++)
        w->groups[i].id = 0;
    atomic_store(&head->requests_used, 0);
    atomic_store(&head->channels_used, 0);
    atomic_store(&head->lost, 0);
    atomic_store(&head->forgotten, 0);
    atomic_store(&head->finished, 0);
}

struct record_writer *record_writer_open(struct record_head *head, enum record_tap tap,
                                         enum record_level level)
{
    const struct record_layout at = record_layout(head);
    struct record_writer *w =
        mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (w == MAP_FAILED)
        return NULL;
    if (madvise(w, sizeof *w, MADV_WIPEONFORK) < 0) { /* a child would write into this record */
        munmap(w, sizeof *w);
        return NULL;
    }
    w->threads = record_writer_at(head, at.threads);
    w->waits = record_writer_at(head, at.waits);
    w->requests = record_writer_at(head, at.requests);
    w->channels = record_writer_at(head, at.channels);
    w->groups = record_writer_at(head, at.groups);
    w->shared = level == RECORD_LEVEL_MULTIPLE;
    /* Odd while the tables change. */
    if (atomic_fetch_or(&head->epoch, 1))
        record_writer_drop(w, head);
    atomic_store(&head->level, (uint32_t)level);
    atomic_store(&head->init_thread, (uint32_t)syscall(SYS_gettid));
    atomic_store(&head->pid, (uint32_t)getpid());
    atomic_fetch_add(&head->epoch, 1);
    atomic_store(&head->tap, (uint32_t)tap);
    w->head = head;
    return w;
}

void record_writer_close(struct record_writer *w)
{
    if (w)
        munmap(w, sizeof *w);
}

void record_finish(struct record_writer *w)
{
    atomic_store_explicit(&w->head->finished, 1, memory_order_relaxed);
}

void record_writer_lock(struct record_writer *w)
{
    while (w->shared && atomic_exchange_explicit(&w->lock, 1, memory_order_acquire))
        sched_yield();
}

void record_writer_unlock(struct record_writer *w)
{
    if (w->shared)
        atomic_store_explicit(&w->lock, 0, memory_order_release);
}

static void record_writer_lose(struct record_writer *w, enum record_lost what)
{
    atomic_fetch_or_explicit(&w->head->lost, (uint32_t)what, memory_order_relaxed);
}

/* ---- threads ---- */

struct record_thread *record_writer_add_thread(struct record_writer *w)
{
    const uint16_t self =
        record_queue_thread ? record_queue_thread : record_queue_name_thread(w->head);
    if (self < w->head->nthreads)
        return &w->threads[self];
    record_writer_lose(w, RECORD_LOST_THREADS);
    return NULL;
}

uint64_t record_writer_takes(const struct record_writer *w)
{
    const uint32_t used = atomic_load_explicit(&w->head->threads_used, memory_order_relaxed);
    uint64_t sum = 0;
    for (uint32_t i = 1; i <= used && i < w->head->nthreads; i++)
        sum += atomic_load_explicit(&w->threads[i].takes, memory_order_relaxed);
    return sum;
}

/* ---- channels ---- */

static struct record_channel *record_writer_find(struct record_writer *w, uint64_t of, uint64_t to,
                                                 uint32_t *place)
{
    for (*place = record_channel_place(of, to);; *place = (*place + 1) % RECORD_WRITER_PLACES) {
        const uint16_t at = w->places[*place];
        if (!at)
            return NULL;
        if (w->channels[at - 1].of == of && w->channels[at - 1].to == to)
            return &w->channels[at - 1];
    }
}

/* The place of the hash is released after the channel: threads look there without the lock. */
static struct record_channel *record_writer_put(struct record_writer *w, uint64_t of, uint64_t to)
{
    uint32_t place;
    struct record_channel *c = record_writer_find(w, of, to, &place);
    const uint32_t used = atomic_load_explicit(&w->head->channels_used, memory_order_relaxed);
    if (c)
        return c;
    if (used == w->head->nchannels) {
        record_writer_lose(w, RECORD_LOST_CHANNELS);
        return NULL;
    }
    c = &w->channels[used];
    c->of = of;
    c->to = to;
    atomic_store_explicit(&w->head->channels_used, used + 1, memory_order_relaxed);
    __atomic_store_n(&w->places[place], (uint16_t)(used + 1), __ATOMIC_RELEASE);
    return c;
}

/* From three quarters on, new tags of a peer share a few channels. */
struct record_channel *record_writer_add_channel(struct record_writer *w, uint64_t of, uint64_t to)
{
    uint32_t place;
    record_writer_lock(w);
    struct record_channel *c = record_writer_find(w, of, to, &place);
    const uint32_t used = atomic_load_explicit(&w->head->channels_used, memory_order_relaxed);
    if (!c && used < w->head->nchannels / 4 * 3)
        c = record_writer_put(w, of, to);
    else if (!c)
        c = record_writer_put(w, of | UINT64_C(1) << 16,
                              (to & UINT32_MAX) | (uint64_t)record_fold((uint32_t)(to >> 32))
                                                      << 32);
    record_writer_unlock(w);
    return c;
}

void record_cancel_send(struct record_writer *w, const struct record_part *part)
{
    struct record_channel *c = record_channel(w, part->group, (uint32_t)part->peer, part->tag);
    if (c)
        atomic_store_explicit(&c->unordered, 1, memory_order_relaxed);
}

/* ---- requests ---- */

/* A thread that posts and completes requests one by one uses the same slot, without the lock. */
static _Atomic uint16_t *record_writer_spare(struct record_writer *w)
{
    const uint16_t self = record_queue_thread;
    return &w->spare[self < RECORD_THREADS ? self : 0];
}

static uint32_t record_writer_take_request(struct record_writer *w)
{
    _Atomic uint16_t *spare = record_writer_spare(w);
    uint32_t slot = atomic_load_explicit(spare, memory_order_relaxed);
    if (slot) {
        atomic_store_explicit(spare, 0, memory_order_relaxed);
        return slot - 1;
    }
    slot = w->head->nrequests;
    record_writer_lock(w);
    const uint32_t used = atomic_load_explicit(&w->head->requests_used, memory_order_relaxed);
    if (w->nfree) {
        slot = w->free[--w->nfree];
    } else if (used < w->head->nrequests) {
        slot = used;
        atomic_store_explicit(&w->head->requests_used, used + 1, memory_order_relaxed);
    }
    record_writer_unlock(w);
    return slot;
}

static uint32_t record_writer_add_request(struct record_writer *w, const struct record_thread *t,
                                          const struct record_op *op, enum record_request_state to,
                                          const struct record_at *at)
{
    const uint32_t slot = record_writer_take_request(w);
    if (slot == w->head->nrequests) {
        record_writer_lose(w, RECORD_LOST_REQUESTS);
        return 0;
    }
    struct record_request *r = &w->requests[slot];
    const uint32_t last = atomic_load_explicit(&r->state, memory_order_relaxed) >> 2;
    const uint32_t use = last + 1 < RECORD_HANDLE_USES ? last + 1 : 1; /* no handle is 0 */
    r->thread = (uint16_t)(t - w->threads);
    r->since = at->since;
    r->site = at->site;
    r->number = at->number;
    r->op = *op;
    atomic_store_explicit(&r->state, use << 2 | (uint32_t)to, memory_order_relaxed);
    return slot + RECORD_HANDLE_SLOT * use;
}

uint32_t record_post(struct record_writer *w, struct record_thread *t,
                     const struct record_part *part, const struct record_at *at)
{
    struct record_op op;
    record_fill(w, t, part, &op);
    return record_writer_add_request(w, t, &op, RECORD_OPEN, at);
}

uint32_t record_open(struct record_writer *w, struct record_thread *t,
                     const struct record_part *part, const struct record_at *at)
{
    struct record_op op;
    record_describe(w, part, &op);
    op.number = part->number;
    return record_writer_add_request(w, t, &op, RECORD_OPEN, at);
}

static struct record_request *record_writer_request(struct record_writer *w, uint32_t handle)
{
    struct record_request *r = &w->requests[handle % RECORD_HANDLE_SLOT];
    const uint32_t state = atomic_load_explicit(&r->state, memory_order_relaxed);
    return handle && state >> 2 == handle / RECORD_HANDLE_SLOT && (state & 3) != RECORD_FREE ? r
                                                                                             : NULL;
}

static void record_writer_set(struct record_request *r, enum record_request_state to)
{
    const uint32_t state = atomic_load_explicit(&r->state, memory_order_relaxed);
    atomic_store_explicit(&r->state, (state & ~3u) | (uint32_t)to, memory_order_relaxed);
}

void record_close(struct record_writer *w, uint32_t handle)
{
    struct record_request *r = record_writer_request(w, handle);
    if (!r)
        return;
    record_writer_set(r, RECORD_FREE);
    _Atomic uint16_t *spare = record_writer_spare(w);
    if (!atomic_load_explicit(spare, memory_order_relaxed)) {
        atomic_store_explicit(spare, (uint16_t)(r - w->requests + 1), memory_order_relaxed);
        return;
    }
    record_writer_lock(w);
    assert(w->nfree < RECORD_REQUESTS);
    w->free[w->nfree++] = (uint16_t)(r - w->requests);
    record_writer_unlock(w);
}

void record_give_up(struct record_writer *w, uint32_t handle, enum record_request_state state)
{
    struct record_request *r = record_writer_request(w, handle);
    if (r)
        record_writer_set(r, state);
}

void record_writer_abandon(struct record_writer *w, const struct record_thread *t)
{
    const struct record_at at = {.since = t->since, .site = t->site};
    for (uint32_t i = 0; i < t->nops; i++)
        if (t->ops[i].kind == COLLRUN_RECV || t->ops[i].kind == COLLRUN_RECV_ANY)
            record_writer_add_request(w, t, &t->ops[i], RECORD_ABANDONED, &at);
}
