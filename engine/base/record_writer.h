/* SPDX-License-Identifier: Apache-2.0
 *
 * struct record_writer: the calls of a process's threads, as they enter and leave a library, in the
 * record (record.h). It depends on nothing but memory: a library that is preloaded beside an MPI,
 * without a connection to an agent, can use it. No function of a call allocates, or waits for
 * another process.
 *
 * A call, by its thread:
 *
 *     t = record_enter(w);                 NULL: not recorded, and no other function is called
 *     record_begin(w, t, &part);           a blocking operation; sendrecv has two
 *     handle = record_post(w, t, &part);   a nonblocking one
 *     record_wait(w, t, handle);           a request that the call waits for
 *     record_inside(t, mode, &at);
 *     ... the library is called ...
 *     record_leave(t);
 *     record_take(w, t, &message);         a message that was received
 *     record_close(w, handle);             a request that is complete
 *     record_outside(t);
 *
 * - Proofs of deadlock need this order (diagnose/proof.h): a send and a collective are counted
 *   before the library is called; a message is taken after the word has left INSIDE.
 * - A call that was left by longjmp or an exception stays INSIDE until its thread calls again.
 *   Calls inside calls are not recorded: the caller knows its depth, and does not enter.
 * - A child of fork() finds no writer: its memory is wiped there (MADV_WIPEONFORK).
 * - Where a table is full, record_head.lost says so, and less is proven.
 */
#ifndef ENGINE_BASE_RECORD_WRITER_H
#define ENGINE_BASE_RECORD_WRITER_H

#include "base/record_queue.h"

#include <assert.h>

enum { RECORD_WRITER_PLACES = 4 * RECORD_CHANNELS };

/* Private memory of the process; the arrays are those of the record. */
struct record_writer {
    struct record_head *head; /* NULL in a child of fork() */
    struct record_thread *threads;
    uint32_t *waits;
    struct record_request *requests;
    struct record_channel *channels;
    struct record_group *groups;
    bool shared;           /* threads may call at the same time: counters need atomic additions */
    _Atomic uint32_t lock; /* 1: a thread takes or frees a request, or adds a channel */
    _Atomic uint16_t spare[RECORD_THREADS]; /* of each thread: a free request + 1; 0: none */
    uint32_t nfree;
    uint16_t free[RECORD_REQUESTS];        /* a stack of further ones that were used before */
    uint16_t places[RECORD_WRITER_PLACES]; /* hash of the channels: index + 1; 0: free */
};

/* A thread's part of an operation. */
struct record_part {
    const struct record_group *group;
    int32_t peer; /* world rank; of a collective the root; RECORD_ANY_RANK */
    uint32_t tag;
    uint64_t count;
    uint8_t kind, flags, dtype, op; /* as in record_op */
    uint64_t number; /* of a collective, if the caller has counted it alone; 0: it is the next */
};

/* Times in ticks, the return address of the call, and the number of its messages; 0: not known, or
 * no time-out. */
struct record_at {
    uint64_t since, deadline, site, number;
};

/* Begins to record the calls of this process; what another process image has written, before exec
 * or in a command that has ended, is dropped. NULL: no memory. */
struct record_writer *record_writer_open(struct record_head *head, enum record_tap tap,
                                         enum record_level level);
void record_writer_close(struct record_writer *w); /* NULL: no effect */

/* The call leaves no further ones of the process (MPI_Finalize). While it enters. */
void record_finish(struct record_writer *w);
/* As it leaves: the request of a receive is freed or given up, and may yet take a message
 * (ABANDONED); or it may complete at any time (WITHDRAWN). */
void record_give_up(struct record_writer *w, uint32_t handle, enum record_request_state state);
/* The sends of this channel have no order any more, as one of them was canceled. */
void record_cancel_send(struct record_writer *w, const struct record_part *part);

/* ---- slow parts of the functions below ---- */

/* NULL: there is no room. */
struct record_channel *record_writer_add_channel(struct record_writer *w, uint64_t of, uint64_t to);
struct record_thread *record_writer_add_thread(struct record_writer *w);
/* The receives of the call that the thread has left may yet take messages. */
void record_writer_abandon(struct record_writer *w, const struct record_thread *t);
uint64_t record_writer_takes(const struct record_writer *w);
void record_writer_lock(struct record_writer *w);
void record_writer_unlock(struct record_writer *w);

/* ---- channels ---- */

static inline uint64_t record_channel_of_group(const struct record_writer *w,
                                               const struct record_group *g)
{
    return (uint64_t)(g - w->groups) | (uint64_t)g->generation << 32;
}

static inline uint32_t record_channel_place(uint64_t of, uint64_t to)
{
    return (uint32_t)((to ^ of * UINT64_C(0xc4ceb9fe1a85ec53)) * UINT64_C(0x9e3779b97f4a7c15) >>
                      40) %
           RECORD_WRITER_PLACES;
}

/* A channel is found by what names it, and added the first time. */
static inline struct record_channel *
record_channel(struct record_writer *w, const struct record_group *g, uint32_t peer, uint32_t tag)
{
    const uint64_t of = record_channel_of_group(w, g), to = peer | (uint64_t)tag << 32;
    for (uint32_t i = record_channel_place(of, to);; i = (i + 1) % RECORD_WRITER_PLACES) {
        const uint32_t at = __atomic_load_n(&w->places[i], __ATOMIC_ACQUIRE);
        if (!at)
            return record_writer_add_channel(w, of, to);
        struct record_channel *c = &w->channels[at - 1];
        if (c->to == to && c->of == of)
            return c;
    }
}

/* Returns the count before. */
static inline uint64_t record_count(const struct record_writer *w, _Atomic uint64_t *counter)
{
    if (w->shared)
        return atomic_fetch_add_explicit(counter, 1, memory_order_acq_rel);
    uint64_t n = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, n + 1, memory_order_relaxed);
    return n;
}

/* The thread is the first one that counts here: no other one writes the counter. */
static inline bool record_is_first(_Atomic uint16_t *first)
{
    const uint16_t self = record_queue_thread;
    uint16_t now = atomic_load_explicit(first, memory_order_relaxed);
    return now == self ||
           (now == 0 && atomic_compare_exchange_strong_explicit(
                            first, &now, self, memory_order_relaxed, memory_order_relaxed));
}

/* Returns the count before. */
static inline uint64_t record_count_alone(_Atomic uint64_t *counter, uint64_t more)
{
    const uint64_t n = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, n + more, memory_order_relaxed);
    return n;
}

/* Returns record_op.order: how many the thread has sent here, as far as it knows. */
static inline uint64_t record_count_sent(struct record_channel *c)
{
    if (!record_is_first(&c->sender)) {
        atomic_fetch_add_explicit(&c->sent_by_others, 1, memory_order_relaxed);
        return RECORD_RULE(ONE_SENDER) ? 0 : atomic_load(&c->sent);
    }
    const uint64_t before = record_count_alone(&c->sent, 1);
    const bool ordered = !atomic_load_explicit(&c->unordered, memory_order_relaxed);
    return ordered && !c->folded ? before : 0;
}

/* The send is not made after all. While its thread enters still, so no reader has seen the count.
 */
static inline void record_uncount_sent(struct record_writer *w, const struct record_part *part)
{
    struct record_channel *c = record_channel(w, part->group, (uint32_t)part->peer, part->tag);
    if (c && record_is_first(&c->sender))
        record_count_alone(&c->sent, UINT64_MAX);
    else if (c)
        atomic_fetch_sub_explicit(&c->sent_by_others, 1, memory_order_relaxed);
}

static inline void record_count_taken(struct record_channel *c)
{
    if (record_is_first(&c->taker))
        record_count_alone(&c->taken, 1);
    else
        atomic_fetch_add_explicit(&c->taken_by_others, 1, memory_order_relaxed);
}

/* Returns the number of the collective. */
static inline uint64_t record_count_called(const struct record_writer *w, _Atomic uint64_t *called,
                                           uint64_t number)
{
    if (!number)
        return record_count(w, called) + 1;
    atomic_store_explicit(called, number, memory_order_relaxed);
    return number;
}

/* ---- the word of a thread ---- */

static inline enum record_phase record_phase(const struct record_thread *t)
{
    return (enum record_phase)(atomic_load_explicit(&t->word, memory_order_relaxed) & 3);
}

/* Each phase follows the last one; OUTSIDE begins the next call. */
static inline void record_step(struct record_thread *t, enum record_phase to, memory_order order)
{
    const uint32_t word = atomic_load_explicit(&t->word, memory_order_relaxed) + 1;
    assert((word & 3) == (uint32_t)to);
    (void)to;
    atomic_store_explicit(&t->word, word, order);
}

/* ---- a call ---- */

/* `word`: that of the thread, which is OUTSIDE, or INSIDE a call that it has left by longjmp. */
static inline void record_enter_at(struct record_writer *w, struct record_thread *t, uint32_t word)
{
    const bool left = (word & 3) == RECORD_INSIDE;
    /* The next number and ENTERING, whatever the phase was. */
    atomic_store_explicit(&t->word, (word | 3) + 2, memory_order_relaxed);
    /* A reader that finds what is stored from here on finds the odd word, too. */
    atomic_thread_fence(memory_order_release);
    if (left)
        record_writer_abandon(w, t);
    t->mode = RECORD_NONE; /* with the next ones, one store of 8 bytes */
    t->nops = 0;
    t->nwaits = 0;
    t->cut = 0;
}

static inline struct record_thread *record_enter(struct record_writer *w)
{
    if (!w || !w->head)
        return NULL;
    const uint16_t self = record_queue_thread;
    struct record_thread *t =
        self && self < RECORD_THREADS ? &w->threads[self] : record_writer_add_thread(w);
    if (t)
        record_enter_at(w, t, atomic_load_explicit(&t->word, memory_order_relaxed));
    return t;
}

/* What does not depend on the kind. */
static inline __attribute__((always_inline)) void
record_describe(const struct record_writer *w, const struct record_part *part, struct record_op *op)
{
    op->kind = part->kind;
    op->flags = part->flags;
    op->dtype = part->dtype;
    op->op = part->op;
    op->group = (uint16_t)(part->group - w->groups);
    op->generation = (uint16_t)part->group->generation;
    op->peer = part->peer;
    op->tag = part->tag;
    op->count = part->count;
}

static inline void record_fill(struct record_writer *w, struct record_thread *t,
                               const struct record_part *part, struct record_op *op)
{
    assert(record_phase(t) == RECORD_ENTERING);
    record_describe(w, part, op);
    switch ((unsigned)part->kind) {
    case COLLRUN_SEND: {
        struct record_channel *c = record_channel(w, part->group, (uint32_t)part->peer, part->tag);
        op->order = c ? record_count_sent(c) : 0;
        break;
    }
    case COLLRUN_RECV:
    case COLLRUN_RECV_ANY:
        op->post = t->posted++;
        break;
    case RECORD_PROBE:
        op->takes = record_writer_takes(w);
        break;
    default:
        op->number = record_count_called(w, &w->groups[op->group].called, part->number);
    }
}

static inline void record_begin(struct record_writer *w, struct record_thread *t,
                                const struct record_part *part)
{
    assert(t->nops < 2);
    record_fill(w, t, part, &t->ops[t->nops]);
    t->nops++;
}

/* A collective that its caller has numbered, and that may be waited for later. */
static inline void record_call(const struct record_thread *t, struct record_group *group,
                               uint64_t number)
{
    assert(record_phase(t) == RECORD_ENTERING);
    (void)t;
    atomic_store_explicit(&group->called, number, memory_order_relaxed);
}

/* The same for one in which the thread waits, in few instructions. */
static inline __attribute__((always_inline)) void
record_begin_collective(struct record_writer *w, struct record_thread *t,
                        struct record_group *group, const struct record_part *part)
{
    assert(record_phase(t) == RECORD_ENTERING && t->nops == 0);
    record_describe(w, part, &t->ops[0]);
    t->ops[0].number = part->number;
    record_call(t, group, part->number);
    t->nops = 1;
}

/* The thread waits for one that was called before (record_call). False: there is no room. */
static inline bool record_wait_collective(struct record_writer *w, struct record_thread *t,
                                          const struct record_part *part)
{
    assert(record_phase(t) == RECORD_ENTERING);
    if (t->nops == 2)
        return false;
    record_describe(w, part, &t->ops[t->nops]);
    t->ops[t->nops++].number = part->number;
    return true;
}

/* Returns the handle of the request; 0: there is no room. */
uint32_t record_post(struct record_writer *w, struct record_thread *t,
                     const struct record_part *part, const struct record_at *at);

/* The same for a collective that was called before (record_call). */
uint32_t record_open(struct record_writer *w, struct record_thread *t,
                     const struct record_part *part, const struct record_at *at);

/* A request for which there was no room, or past the end of the list, is counted. */
static inline void record_wait(struct record_writer *w, struct record_thread *t, uint32_t handle)
{
    assert(record_phase(t) == RECORD_ENTERING);
    if (!handle || t->nwaits == RECORD_WAITS) {
        t->cut++;
        return;
    }
    w->waits[(size_t)(t - w->threads) * RECORD_WAITS + t->nwaits] = handle;
    t->nwaits++;
}

static inline void record_inside(struct record_thread *t, enum record_mode mode,
                                 const struct record_at *at)
{
    t->mode = (uint8_t)mode;
    t->since = at->since;
    t->deadline = at->deadline;
    t->site = at->site;
    t->number = at->number;
    record_step(t, RECORD_INSIDE, memory_order_release);
}

static inline void record_leave(struct record_thread *t)
{
    record_step(t, RECORD_LEAVING, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

/* The call leaves, and nothing is stored meanwhile. */
static inline void record_return(struct record_thread *t)
{
    const uint32_t word = atomic_load_explicit(&t->word, memory_order_relaxed);
    assert((word & 3) == RECORD_INSIDE);
    atomic_store_explicit(&t->word, word + 2, memory_order_release);
}

/* A message was received: `peer` and `tag` are those of its status. */
static inline void record_take(struct record_writer *w, struct record_thread *t,
                               const struct record_part *part)
{
    assert(record_phase(t) == RECORD_LEAVING);
    struct record_channel *c = record_channel(w, part->group, (uint32_t)part->peer, part->tag);
    if (c)
        record_count_taken(c);
    record_count_alone(&t->takes, 1);
}

/* The request is complete. 0: no effect. */
void record_close(struct record_writer *w, uint32_t handle);

static inline void record_outside(struct record_thread *t)
{
    record_step(t, RECORD_OUTSIDE, memory_order_release);
}

#endif
