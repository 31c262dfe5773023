/* SPDX-License-Identifier: Apache-2.0
 *
 * struct record_queue: the rank's side of the record (record.h) for one queue of an open group, its
 * collectives or its messages.
 *
 * - Operations: record_queue_add from any thread, then record_queue_start and _end, possibly from
 *   other threads, with the index that it returned. A thread that stands still inside
 *   record_queue_write while others fill the whole ring may spoil the entry that took its place.
 * - The current operation and the marks: by one thread at a time, which is inside the group or owns
 *   the queue.
 */
#ifndef ENGINE_BASE_RECORD_QUEUE_H
#define ENGINE_BASE_RECORD_QUEUE_H

#include "base/record.h"

#include <collrun/types.h>

/* All zero: nothing is recorded, and no function has an effect. */
struct record_queue {
    struct record_head *head; /* NULL: nothing */
    struct record_group *group;
    struct record_marks *marks;      /* NULL: messages */
    struct record_entry *entries;    /* NULL: record.entries is 0 */
    uint64_t signature, pairs;       /* of the last mark */
    uint64_t *counts;                /* NULL with `entries` */
    uint64_t counts_hash, counts_at; /* the last counts that were kept */
    uint32_t mask;                   /* entries - 1 */
    uint32_t generation;             /* of the slot */
    uint16_t slot;
};

struct record_queue_info {
    const char *name, *scope;
    uint32_t members, rank;
    bool messages;
    enum collrun_check check;
    uint64_t id;           /* record_group.id; 0: none */
    const uint32_t *world; /* the world ranks of `members` members, then of `nremote`; NULL: none */
    uint32_t nremote;
    bool unordered; /* record_group.unordered */
    bool forming;   /* record_queue_formed follows, or record_queue_close */
};

/* One operation, in the form that is recorded: fields that its kind does not have are 0, root and
 * peer -1. */
struct record_call {
    uint64_t count, site;
    union {
        struct {
            int32_t root_or_peer;
            uint8_t kind, dtype, op;
        };
        uint64_t what;
    };
    uint32_t tag; /* or where its counts begin */
};

#define RECORD_QUEUE_NONE UINT64_MAX /* the index of an operation that is not recorded */

/* Nothing is recorded if `head` is NULL or no slot is free. */
void record_queue_open(struct record_queue *q, struct record_head *head,
                       const struct record_queue_info *info);
void record_queue_formed(struct record_queue *q);
void record_queue_close(struct record_queue *q);

/* ---- failures ---- */

/* Now, in this thread. Without a record: all zero. */
struct record_moment record_queue_now(struct record_head *head);
/* Stores record_head.failure; from any thread. Without a record: no effect. */
void record_queue_note_failure(struct record_head *head, const struct record_failure *failure);
/* Another mistake of one kind in the same call is counted; without room it is dropped. */
void record_queue_note_mistake(struct record_head *head, enum record_mistake_kind kind,
                               uint64_t site, const char *text);

/* ---- operators of the caller ---- */

/* Lists the name; returns `hash`. */
uint32_t record_queue_name_user_op(struct record_head *head, uint32_t hash, const char *name);

/* ---- operations ---- */

/* The number of this thread; 0: not known yet. Initial-exec: a load without a call. */
extern _Thread_local uint16_t record_queue_thread
    __attribute__((visibility("hidden"), tls_model("initial-exec")));
uint16_t record_queue_name_thread(struct record_head *head);

/* Reserves `n` adjacent indices; returns the first. */
static inline uint64_t record_queue_reserve(const struct record_queue *q, uint32_t n)
{
    return q->entries ? atomic_fetch_add_explicit(&q->head->next, n, memory_order_relaxed)
                      : RECORD_QUEUE_NONE;
}

/* A version is only equal for the operation itself, unless 2^31 operations have been recorded
 * since. */
static inline uint32_t record_queue_version(uint64_t index)
{
    return (uint32_t)(2 * index + 2);
}

/* Writes operation `index`, which was reserved. `called` in ticks; a blocking call is
 * RECORD_STARTED then, a request RECORD_POSTED. */
static inline void record_queue_write(const struct record_queue *q, uint64_t index,
                                      const struct record_call *call, uint64_t number,
                                      enum record_state state, uint64_t called)
{
    if (index == RECORD_QUEUE_NONE)
        return;
    struct record_entry *e = &q->entries[index & q->mask];
    uint16_t thread = record_queue_thread;
    atomic_store_explicit(&e->version, record_queue_version(index) - 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    e->group = q->slot;
    e->thread = thread ? thread : record_queue_name_thread(q->head);
    e->what = call->what | (uint64_t)state << RECORD_WHAT_STATE;
    e->number = (uint32_t)number;
    e->tag = call->tag;
    e->count = call->count;
    e->called = called;
    e->started = state == RECORD_POSTED ? 0 : called;
    atomic_store_explicit(&e->ended, 0, memory_order_relaxed);
    e->site = call->site;
    atomic_store_explicit(&e->version, record_queue_version(index), memory_order_release);
}

/* NULL: it has been overwritten. The thread got `index` with the operation, so it knows of its
 * version: a relaxed load returns that, or a later one. */
static inline struct record_entry *record_queue_find(const struct record_queue *q, uint64_t index)
{
    if (index == RECORD_QUEUE_NONE)
        return NULL;
    struct record_entry *e = &q->entries[index & q->mask];
    uint32_t version = atomic_load_explicit(&e->version, memory_order_relaxed);
    return version == record_queue_version(index) ? e : NULL;
}

/* The backend begins an operation that was posted. */
static inline void record_queue_start(const struct record_queue *q, uint64_t index, uint64_t ticks)
{
    struct record_entry *e = record_queue_find(q, index);
    if (!e)
        return;
    e->started = ticks;
    atomic_store_explicit(&e->state, RECORD_STARTED, memory_order_relaxed);
}

/* Releases the end: a reader that finds it has all that was written of the operation before. */
static inline void record_queue_end(const struct record_queue *q, uint64_t index,
                                    enum record_state state, uint64_t ticks)
{
    struct record_entry *e = record_queue_find(q, index);
    if (!e)
        return;
    atomic_store_explicit(&e->ended, ticks, memory_order_relaxed);
    atomic_store_explicit(&e->state, (uint8_t)state, memory_order_release);
}

/* The counts of a v-form: what this rank sends to each member, and what it expects from each;
 * either may be NULL, with length 0. */
struct record_counts {
    const size_t *sent, *expected;
    uint32_t nsent, nexpected;
    uint64_t hash; /* of both; 0: not known */
};
/* True if the last counts that were kept have this hash, and the ring will have them for a while:
 * q->counts_at can be record_call.tag. */
static inline bool record_queue_has_counts(const struct record_queue *q, uint64_t hash)
{
    return hash && hash == q->counts_hash &&
           atomic_load_explicit(&q->head->next_count, memory_order_relaxed) - q->counts_at <
               RECORD_COUNTS / 2;
}

/* Returns record_call.tag. */
uint32_t record_queue_keep_counts(struct record_queue *q, const struct record_counts *counts);

/* ---- the current operation, marks ---- */

static inline void record_queue_enter(const struct record_queue *q, const struct record_call *call,
                                      uint64_t number, uint64_t bytes, uint64_t ticks)
{
    struct record_group *g = q->group;
    if (!g)
        return;
    /* Odd, then even, also if the owner of another queue of the group writes at the same time: the
     * agent may then read some of each, and the next operation corrects that. */
    uint32_t version = atomic_load_explicit(&g->version, memory_order_relaxed) | 1;
    atomic_store_explicit(&g->version, version, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    g->started = number;
    g->bytes += bytes;
    g->since = ticks;
    g->count = call->count;
    g->what = call->what;
    atomic_store_explicit(&g->version, version + 1, memory_order_release);
}

/* A load and a store: a thread that does not own the queue (a probe, a cancellation) may put `done`
 * back to its own number. The rank then seems to be inside an operation until the next one ends. */
static inline void record_queue_leave(const struct record_queue *q, uint64_t number)
{
    if (q->group && number > atomic_load_explicit(&q->group->done, memory_order_relaxed))
        atomic_store_explicit(&q->group->done, number, memory_order_relaxed);
}

/* The group has failed. From any thread, once. */
static inline void record_queue_fail(const struct record_queue *q, int status)
{
    if (q->group)
        atomic_store_explicit(&q->group->status, status, memory_order_relaxed);
}

static inline void record_queue_put_mark(struct record_mark *m, const struct record_queue *q,
                                         uint64_t number, uint64_t ticks)
{
    const struct record_mark mark = {.signature = q->signature, .pairs = q->pairs, .called = ticks};
    uint64_t checksum = record_mark_checksum(&mark, number, q->generation);
    atomic_store_explicit(&m->checksum, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    /* One by one: a vector load of both would wait for the store of the signature. */
    __atomic_store_n(&m->signature, mark.signature, __ATOMIC_RELAXED);
    __atomic_store_n(&m->pairs, mark.pairs, __ATOMIC_RELAXED);
    m->called = ticks;
    atomic_store_explicit(&m->checksum, checksum, memory_order_release);
}

/* After q->signature and q->pairs include operation `number`. */
static inline void record_queue_mark(const struct record_queue *q, uint64_t number, uint64_t ticks)
{
    if (!q->marks)
        return;
    record_queue_put_mark(&q->marks->recent[number % RECORD_MARKS], q, number, ticks);
    if (number % RECORD_STEP == 0)
        record_queue_put_mark(&q->marks->steps[number / RECORD_STEP % RECORD_MARKS], q, number,
                              ticks);
}

#endif
