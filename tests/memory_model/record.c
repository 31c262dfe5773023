/* SPDX-License-Identifier: Apache-2.0
 *
 * The record while it is written: what the agent reads of an operation, of a group's current one
 * and of a mark is of one moment, or nothing.
 */
#include "base/record_queue.h"
#include "base/record_view.h"
#include "memory_model/model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FEW = 8, MANY = 32, WRITES = 14, LOOKS = 4 }; /* FEW entries are overwritten, MANY not */

static struct record_head *head;
static struct record_queue queue;
static int file = -1;

static void open_record(uint32_t entries)
{
    if (head)
        record_unmap(head, record_len(head));
    if (file >= 0)
        close(file);
    file = record_make(0, entries);
    head = record_map(file);
    MODEL_CHECK(head);
    record_queue_thread = 1;
    record_queue_open(&queue, head,
                      &(struct record_queue_info){.name = "g", .scope = "g", .members = 2});
    model_racy(head, record_len(head));
}

static void open_few(void)
{
    open_record(FEW);
}

/* Two threads: none is overtaken by a whole ring while it writes. */
static void open_many(void)
{
    open_record(MANY);
}

static struct record_call call_of(uint64_t number)
{
    return (struct record_call){.count = 3 * number,
                                .site = 7 * number,
                                .root_or_peer = (int32_t)(number % 2),
                                .kind = COLLRUN_BROADCAST,
                                .tag = (uint32_t)number};
}

static void write_operations(uint32_t self)
{
    (void)self;
    for (int i = 0; i < WRITES; i++) {
        const uint64_t index = record_queue_reserve(&queue, 1);
        const struct record_call call = call_of(index + 1);
        record_queue_write(&queue, index, &call, index + 1, RECORD_STARTED, 5 * index + 5);
    }
}

static void check_operation(const struct record_view *v, uint64_t index)
{
    struct record_view_op op;
    const uint64_t n = index + 1;
    if (!record_view_op(v, index, &op))
        return;
    const struct record_call call = call_of(n);
    MODEL_CHECK((uint32_t)op.number == n);
    MODEL_CHECK(op.count == call.count && op.site == call.site && op.tag == call.tag);
    MODEL_CHECK(op.kind == COLLRUN_BROADCAST && op.root_or_peer == call.root_or_peer);
    MODEL_CHECK(op.state == RECORD_STARTED && op.thread == 1);
    MODEL_CHECK(op.called_ns == record_view_ns(v, 5 * n) && op.started_ns == op.called_ns &&
                op.ended_ns == 0);
}

static void two_writers(uint32_t self)
{
    struct record_view v;
    if (self < 2) {
        write_operations(self);
        return;
    }
    MODEL_CHECK(record_view_init(&v, head, record_len(head), NULL) == COLLRUN_OK);
    for (int look = 0; look < LOOKS; look++)
        for (uint64_t i = record_view_first(&v); i < record_view_end(&v); i++)
            check_operation(&v, i);
}

/* ---- one operation from its call to its end ---- */

static void post_start_end(void)
{
    for (int i = 0; i < WRITES; i++) {
        const uint64_t index = record_queue_reserve(&queue, 1), n = index + 1;
        const struct record_call call = call_of(n);
        record_queue_write(&queue, index, &call, n, RECORD_POSTED, 5 * n);
        record_queue_start(&queue, index, 5 * n + 1);
        record_queue_end(&queue, index, RECORD_DONE, 5 * n + 2);
    }
}

static void one_writer(uint32_t self)
{
    struct record_view v;
    struct record_view_op op;
    if (self == 0) {
        post_start_end();
        return;
    }
    MODEL_CHECK(record_view_init(&v, head, record_len(head), NULL) == COLLRUN_OK);
    for (int look = 0; look < LOOKS; look++)
        for (uint64_t i = record_view_first(&v); i < record_view_end(&v); i++) {
            if (!record_view_op(&v, i, &op))
                continue;
            const uint64_t n = i + 1;
            MODEL_CHECK((uint32_t)op.number == n && op.count == 3 * n);
            MODEL_CHECK(op.started_ns == 0 || op.started_ns == record_view_ns(&v, 5 * n + 1));
            MODEL_CHECK(op.ended_ns == 0 || op.ended_ns == record_view_ns(&v, 5 * n + 2));
            MODEL_CHECK(op.state >= RECORD_POSTED && op.state <= RECORD_DONE);
            MODEL_CHECK(op.state != RECORD_DONE || (op.started_ns && op.ended_ns));
        }
}

/* ---- counts that are overwritten ---- */

enum { FEW_COUNTS = 4 };

static uint32_t kept; /* record_call.tag of the first ones */

static void keep_counts(size_t value)
{
    size_t sent[FEW_COUNTS];
    for (int i = 0; i < FEW_COUNTS; i++)
        sent[i] = value;
    const struct record_counts counts = {.sent = sent, .nsent = FEW_COUNTS};
    const uint32_t at = record_queue_keep_counts(&queue, &counts);
    if (value == 1)
        kept = at;
}

/* The next counts of the ring take the place of the first ones. */
static void open_counts(void)
{
    open_record(FEW);
    keep_counts(1);
    atomic_store(&head->next_count, RECORD_COUNTS);
}

static void overwritten(uint32_t self)
{
    struct record_view v;
    uint64_t sent[FEW_COUNTS];
    struct record_view_counts counts = {.sent = sent};
    const struct record_view_op op = {.counts = kept};
    if (self == 0) {
        keep_counts(2);
        return;
    }
    MODEL_CHECK(record_view_init(&v, head, record_len(head), NULL) == COLLRUN_OK);
    if (!record_view_counts(&v, &op, FEW_COUNTS, &counts))
        return;
    for (uint32_t i = 0; i < counts.nsent; i++)
        MODEL_CHECK(counts.sent[i] == 1);
}

/* ---- the current operation and the marks ---- */

static void run_operations(void)
{
    for (uint64_t n = 1; n <= WRITES; n++) {
        const struct record_call call = call_of(n);
        record_queue_enter(&queue, &call, n, 8, 5 * n);
        queue.signature = 11 * n;
        queue.pairs = 13 * n;
        record_queue_mark(&queue, n, 5 * n);
        record_queue_leave(&queue, n);
    }
}

static void current(uint32_t self)
{
    struct record_view v;
    struct record_view_group g;
    struct record_view_mark mark;
    if (self == 0) {
        run_operations();
        return;
    }
    MODEL_CHECK(record_view_init(&v, head, record_len(head), NULL) == COLLRUN_OK);
    for (int look = 0; look < 3 * LOOKS; look++) {
        if (!record_view_group(&v, queue.slot, &g))
            continue;
        const uint64_t n = g.started;
        MODEL_CHECK(n == 0 || g.count == call_of(n).count);
        MODEL_CHECK(n == 0 || (g.kind == COLLRUN_BROADCAST && g.bytes == 8 * n));
        MODEL_CHECK(g.since_ns == record_view_ns(&v, 5 * n));
        MODEL_CHECK(g.done <= n && g.done + 1 >= n);
        if (record_view_mark(&v, &g, n, &mark))
            MODEL_CHECK(mark.signature == 11 * n && mark.pairs == 13 * n &&
                        mark.called_ns == record_view_ns(&v, 5 * n));
    }
}

/* ---- groups that come and go in one slot ---- */

static void open_slots(void)
{
    open_record(FEW);
    record_queue_close(&queue);
    atomic_store(&head->groups_used, head->ngroups); /* so that slots are used again */
    atomic_store(&head->next_slot, 0);
}

static void use_groups(void)
{
    for (uint32_t k = 1; k <= 3; k++) {
        char name[8];
        snprintf(name, sizeof name, "g%u", k);
        record_queue_open(
            &queue, head,
            &(struct record_queue_info){.name = name, .scope = name, .members = k + 1, .rank = k});
        for (uint64_t n = 1; n <= 2; n++) {
            const struct record_call call = call_of(n);
            const uint64_t index = record_queue_reserve(&queue, 1);
            record_queue_write(&queue, index, &call, n, RECORD_STARTED, 5 * n);
            record_queue_enter(&queue, &call, n, 8, 5 * n);
            record_queue_leave(&queue, n);
        }
        record_queue_close(&queue);
        atomic_store_explicit(&head->next_slot, 0, memory_order_relaxed);
    }
}

static void groups(uint32_t self)
{
    struct record_view v;
    struct record_view_group g;
    if (self == 0) {
        use_groups();
        return;
    }
    MODEL_CHECK(record_view_init(&v, head, record_len(head), NULL) == COLLRUN_OK);
    for (int look = 0; look < 2 * LOOKS; look++) {
        if (!record_view_group(&v, 0, &g) || strcmp(g.name, "g") == 0)
            continue;
        const uint32_t k = g.members - 1;
        MODEL_CHECK(g.rank == k && g.name[1] == (char)('0' + k) && strcmp(g.name, g.scope) == 0);
        MODEL_CHECK(g.generation == k + 1 && g.started <= 2 && g.first == 2 * (k - 1));
        MODEL_CHECK(g.started == 0 || g.count == 3 * g.started);
    }
}

int main(int argc, char **argv)
{
    const struct model_test tests[] = {
        {.name = "two threads write operations",
         .nthreads = 3,
         .setup = open_many,
         .thread = two_writers},
        {.name = "an operation from its call to its end",
         .nthreads = 2,
         .setup = open_few,
         .thread = one_writer},
        {.name = "counts that are overwritten",
         .nthreads = 2,
         .setup = open_counts,
         .thread = overwritten},
        {.name = "the current operation, and marks",
         .nthreads = 2,
         .setup = open_few,
         .thread = current},
        {.name = "groups come and go", .nthreads = 2, .setup = open_slots, .thread = groups},
    };
    return model_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
