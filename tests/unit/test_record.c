/* SPDX-License-Identifier: Apache-2.0
 *
 * The flight recorder: what a rank writes is what a view of its memory, or of a copy, returns; also
 * of a slot that was used again, a ring that has wrapped, and an operation that was never ended.
 * Then damaged bytes: no view may read past them or return what is out of range.
 */
#include "base/buf.h"
#include "base/names.h"
#include "base/record_queue.h"
#include "base/record_view.h"

#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { ENTRIES = 64 };

static struct record_head *make(uint32_t entries)
{
    int fd = record_make(3, entries);
    assert_true(fd >= 0);
    struct record_head *head = record_map(fd);
    assert_non_null(head);
    close(fd);
    return head;
}

static struct record_queue open_queue(struct record_head *head, const char *name, bool messages)
{
    struct record_queue q;
    struct record_queue_info info = {
        .name = name, .scope = "train#1:abc", .members = 4, .rank = 2, .messages = messages};
    record_queue_open(&q, head, &info);
    return q;
}

static struct record_view view_of(const void *bytes, size_t len)
{
    struct record_view v;
    struct diag d;
    diag_init(&d);
    assert_int_equal(record_view_init(&v, bytes, len, &d), COLLRUN_OK);
    return v;
}

static struct record_view live_view(struct record_head *head)
{
    return view_of(head, record_len(head));
}

static const struct record_call allreduce = {.count = 8,
                                             .site = 0x1234,
                                             .root_or_peer = -1,
                                             .kind = COLLRUN_ALLREDUCE,
                                             .dtype = COLLRUN_FLOAT32,
                                             .op = COLLRUN_MAX};

/* Operation `number` as call_record.c writes it. */
static uint64_t begin(struct record_queue *q, uint64_t number)
{
    uint64_t index = record_queue_reserve(q, 1), ticks = record_ticks(q->head);
    record_queue_write(q, index, &allreduce, number, RECORD_STARTED, ticks);
    q->signature = 1000 + number;
    q->pairs = 2000 + number;
    record_queue_mark(q, number, ticks);
    record_queue_enter(q, &allreduce, number, 32, ticks);
    return index;
}

static void end(struct record_queue *q, uint64_t index, uint64_t number)
{
    record_queue_leave(q, number);
    record_queue_end(q, index, RECORD_DONE, record_ticks(q->head));
}

static uint64_t mono_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void an_operation_is_read_as_it_was_written(void **state)
{
    (void)state;
    struct record_head *head = make(ENTRIES);
    struct record_queue q = open_queue(head, "train", false);
    uint64_t before = mono_ns(), index = begin(&q, 1);
    while (mono_ns() < before + 20000000)
        ;
    end(&q, index, 1);
    uint64_t after = mono_ns();
    begin(&q, 2); /* and never ends */
    record_calibrate(head);
    struct record_view v = live_view(head);
    struct record_view_op op;
    assert_int_equal(record_view_first(&v), 0);
    assert_int_equal(record_view_end(&v), 2);
    assert_true(record_view_op(&v, index, &op));
    assert_int_equal(op.number, 1);
    assert_int_equal(op.state, RECORD_DONE);
    assert_int_equal(op.kind, COLLRUN_ALLREDUCE);
    assert_int_equal(op.dtype, COLLRUN_FLOAT32);
    assert_int_equal(op.op, COLLRUN_MAX);
    assert_int_equal(op.root_or_peer, -1);
    assert_int_equal(op.count, 8);
    assert_int_equal(op.site, 0x1234);
    assert_int_equal(op.tid, gettid());
    assert_true(op.is_current);
    /* A tick is well under a microsecond, and the clocks were compared over 20 ms. */
    assert_true(op.called_ns >= before - 10000 && op.called_ns <= before + 10000000);
    assert_true(op.ended_ns >= op.called_ns + 19000000 && op.ended_ns <= after + 10000);
    assert_true(record_view_op(&v, 1, &op));
    assert_int_equal(op.state, RECORD_STARTED);
    assert_int_equal(op.ended_ns, 0);
    assert_false(record_view_op(&v, 2, &op));
    record_unmap(head, record_len(head));
}

static void a_group_shows_its_current_operation(void **state)
{
    (void)state;
    struct record_head *head = make(ENTRIES);
    struct record_queue q = open_queue(head, "train", false), m = open_queue(head, "train", true);
    uint64_t index = begin(&q, 7);
    struct record_view v = live_view(head);
    struct record_view_group g;
    assert_int_equal(record_view_ngroups(&v), 2);
    assert_true(record_view_group(&v, q.slot, &g));
    assert_string_equal(g.name, "train");
    assert_string_equal(g.scope, "train#1:abc");
    assert_int_equal(g.members, 4);
    assert_int_equal(g.rank, 2);
    assert_true(g.open && !g.messages);
    assert_int_equal(g.started, 7);
    assert_int_equal(g.done, 0);
    assert_int_equal(g.bytes, 32);
    assert_int_equal(g.kind, COLLRUN_ALLREDUCE);
    assert_true(g.since_ns);
    end(&q, index, 7);
    assert_true(record_view_group(&v, q.slot, &g));
    assert_int_equal(g.done, 7);
    assert_true(record_view_group(&v, m.slot, &g));
    assert_true(g.messages);
    assert_int_equal(g.started, 0);
    assert_false(record_view_group(&v, 2, &g));
    record_unmap(head, record_len(head));
}

static void marks_are_kept_by_number(void **state)
{
    (void)state;
    struct record_head *head = make(0); /* marks need no entries */
    struct record_queue q = open_queue(head, "train", false);
    struct record_view_group g;
    struct record_view_mark mark;
    for (uint64_t n = 1; n <= 10000; n++)
        assert_int_equal(begin(&q, n), RECORD_QUEUE_NONE);
    struct record_view v = live_view(head);
    assert_true(record_view_group(&v, q.slot, &g));
    for (uint64_t n = 0; n <= 10001; n++) {
        bool recent = n > 10000 - RECORD_MARKS && n <= 10000;
        bool step = n && n % RECORD_STEP == 0 && n > 10000 / 64 * 64 - 64 * RECORD_MARKS;
        assert_int_equal(record_view_mark(&v, &g, n, &mark), recent || step);
        if (!recent && !step)
            continue;
        assert_int_equal(mark.number, n);
        assert_int_equal(mark.signature, 1000 + n);
        assert_int_equal(mark.pairs, 2000 + n);
        assert_true(mark.called_ns);
    }
    assert_int_equal(record_view_end(&v), 0);
    record_unmap(head, record_len(head));
}

static void a_closed_group_is_kept_until_its_slot_is_needed(void **state)
{
    (void)state;
    struct record_head *head = make(ENTRIES);
    struct record_queue first = open_queue(head, "first", false), q;
    uint64_t index = begin(&first, 1);
    uint32_t slot = first.slot;
    end(&first, index, 1);
    record_queue_close(&first);
    struct record_view v = live_view(head);
    struct record_view_group g, now;
    struct record_view_mark mark;
    struct record_view_op op;
    for (int i = 1; i < RECORD_GROUPS; i++) {
        q = open_queue(head, "other", false);
        assert_int_not_equal(q.slot, slot);
    }
    assert_true(record_view_group(&v, slot, &g));
    assert_false(g.open);
    assert_string_equal(g.name, "first");
    assert_true(record_view_mark(&v, &g, 1, &mark));
    q = open_queue(head, "again", false);
    assert_int_equal(q.slot, slot);
    assert_true(record_view_group(&v, slot, &now));
    assert_string_equal(now.name, "again");
    assert_false(record_view_mark(&v, &g, 1, &mark)); /* of the group that the slot had */
    assert_false(record_view_mark(&v, &now, 1, &mark));
    assert_true(record_view_op(&v, index, &op));
    assert_false(op.is_current);
    q = open_queue(head, "no slot", false);
    assert_null(q.head);
    record_queue_leave(&q, 1);
    record_queue_close(&q);
    record_unmap(head, record_len(head));
}

static void a_long_scope_stays_unique(void **state)
{
    (void)state;
    struct record_head *head = make(0);
    struct record_view_group g[2];
    struct record_queue q;
    char scope[200];
    struct record_view v = live_view(head);
    for (int i = 0; i < 2; i++) {
        memset(scope, 'a' + i, 100);
        snprintf(scope + 100, 100, "%099d", 5);
        record_queue_open(&q, head,
                          &(struct record_queue_info){.name = "n", .scope = scope, .members = 1});
        assert_true(record_view_group(&v, q.slot, &g[i]));
        assert_int_equal(strlen(g[i].scope), 63);
        assert_int_equal(g[i].scope[62], '5');
    }
    assert_string_not_equal(g[0].scope, g[1].scope);
    record_unmap(head, record_len(head));
}

static void a_ring_holds_the_last_operations(void **state)
{
    (void)state;
    struct record_head *head = make(ENTRIES);
    struct record_queue q = open_queue(head, "train", false);
    uint64_t first = begin(&q, 1);
    for (uint64_t n = 2; n <= 1000; n++)
        end(&q, begin(&q, n), n);
    end(&q, first, 1); /* it was overwritten long ago */
    struct record_view v = live_view(head);
    struct record_view_op op;
    assert_int_equal(record_view_end(&v), 1000);
    assert_int_equal(record_view_first(&v), 1000 - ENTRIES);
    assert_false(record_view_op(&v, first, &op));
    for (uint64_t i = record_view_first(&v); i < record_view_end(&v); i++) {
        assert_true(record_view_op(&v, i, &op));
        assert_int_equal(op.number, i + 1);
    }
    record_unmap(head, record_len(head));
}

static uint32_t keep(struct record_queue *q, const size_t *sent, uint32_t nsent,
                     const size_t *expected, uint32_t nexpected)
{
    const struct record_counts c = {
        .sent = sent, .nsent = nsent, .expected = expected, .nexpected = nexpected};
    return record_queue_keep_counts(q, &c);
}

static void counts_are_kept_as_long_as_the_ring_has_them(void **state)
{
    (void)state;
    struct record_head *head = make(1024);
    struct record_queue q = open_queue(head, "train", false);
    struct record_call call = {.root_or_peer = -1, .kind = COLLRUN_ALLTOALLV};
    const size_t sent[3] = {1, 2, 3}, expected[3] = {4, 5, 6};
    uint64_t got[2][3], n = 0;
    struct record_view_counts counts = {.sent = got[0], .expected = got[1]};
    struct record_view v = live_view(head);
    struct record_view_op op;
    for (; n < 1000; n++) {
        call.tag = keep(&q, sent, 3, expected, 3);
        record_queue_write(&q, record_queue_reserve(&q, 1), &call, n + 1, RECORD_STARTED, 1);
    }
    assert_true(record_view_op(&v, 999, &op));
    assert_int_equal(op.tag, 0);
    assert_false(record_view_counts(&v, &op, 2, &counts));
    assert_true(record_view_counts(&v, &op, 3, &counts));
    assert_int_equal(counts.nsent, 3);
    assert_int_equal(counts.nexpected, 3);
    assert_memory_equal(got[0], sent, sizeof sent);
    assert_memory_equal(got[1], expected, sizeof expected);
    for (; n < 5200; n++)
        keep(&q, sent, 3, NULL, 0);
    assert_false(record_view_op(&v, 999, &op) && record_view_counts(&v, &op, 3, &counts));
    size_t *many = calloc(RECORD_COUNTS, sizeof *many);
    assert_int_equal(keep(&q, many, RECORD_COUNTS, NULL, 0), RECORD_NO_COUNTS);
    free(many);
    record_unmap(head, record_len(head));
}

static void a_site_is_found_in_its_module(void **state)
{
    (void)state;
    struct record_head *head = make(0);
    char path[RECORD_VIEW_PATH], self[PATH_MAX] = "";
    uint64_t offset = 0;
    open_queue(head, "train", false);
    open_queue(head, "train", true); /* lists no module twice */
    struct record_view v = live_view(head);
    assert_true(
        record_view_module(&v, (uint64_t)(uintptr_t)a_site_is_found_in_its_module, path, &offset));
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    assert_string_equal(path, self);
    assert_true(offset > 0 && offset < 1 << 24);
    assert_false(record_view_module(&v, 16, path, &offset));
    uint32_t listed = head->modules_used;
    open_queue(head, "train", true);
    assert_int_equal(head->modules_used, listed);
    record_unmap(head, record_len(head));
}

/* ---- copies ---- */

static void a_copy_is_a_record_with_the_latest_operations(void **state)
{
    (void)state;
    struct record_head *head = make(ENTRIES);
    struct record_queue q = open_queue(head, "train", false);
    for (uint64_t n = 1; n <= 100; n++)
        end(&q, begin(&q, n), n);
    for (int marks = 0; marks < 2; marks++) {
        struct buf b;
        buf_init(&b);
        assert_true(
            record_view_save(head, record_len(head), &(struct record_view_part){20, marks}, &b));
        assert_true(b.len < 4096 + 4096u * (uint32_t)marks + 64 * 256 + 256 + 16 * 64 + 1);
        struct record_view v = view_of(b.data, b.len);
        struct record_view_group g;
        struct record_view_op op;
        struct record_view_mark mark;
        assert_int_equal(record_view_ngroups(&v), 1);
        assert_true(record_view_group(&v, 0, &g));
        assert_int_equal(g.started, 100);
        assert_int_equal(record_view_mark(&v, &g, 99, &mark), marks);
        assert_int_equal(record_view_end(&v), 100);
        assert_int_equal(record_view_first(&v), 84);
        for (uint64_t i = 84; i < 100; i++) {
            assert_true(record_view_op(&v, i, &op));
            assert_int_equal(op.number, i + 1);
        }
        buf_fini(&b);
    }
    record_unmap(head, record_len(head));
}

static void a_record_without_operations_can_be_copied(void **state)
{
    (void)state;
    struct record_head *head = make(0);
    struct buf b;
    buf_init(&b);
    assert_true(
        record_view_save(head, record_len(head), &(struct record_view_part){UINT32_MAX, true}, &b));
    struct record_view v = view_of(b.data, b.len);
    assert_int_equal(record_view_ngroups(&v), 0);
    assert_int_equal(record_view_end(&v), 0);
    buf_fini(&b);
    record_unmap(head, record_len(head));
}

/* ---- a rank that is killed ---- */

/* Maps the record as a rank does, and is inside operation 3 from then on. */
_Noreturn static void hang_inside(int fd, int ready)
{
    struct record_head *head = record_map(fd);
    if (!head)
        _exit(1);
    struct record_queue q = open_queue(head, "train", false);
    for (uint64_t n = 1; n < 3; n++)
        end(&q, begin(&q, n), n);
    begin(&q, 3);
    if (write(ready, "", 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

static void check_inside(struct record_head *head)
{
    struct record_view v = live_view(head);
    struct record_view_group g;
    struct record_view_op op;
    char path[RECORD_VIEW_PATH];
    uint64_t offset;
    assert_true(record_view_group(&v, 0, &g));
    assert_true(g.open);
    assert_int_equal(g.started, 3);
    assert_int_equal(g.done, 2);
    assert_int_equal(record_view_end(&v), 3);
    assert_true(record_view_op(&v, 2, &op));
    assert_int_equal(op.state, RECORD_STARTED);
    assert_true(record_view_module(&v, (uint64_t)(uintptr_t)check_inside, path, &offset));
}

static void the_record_of_a_rank_that_hangs_or_was_killed_can_be_read(void **state)
{
    (void)state;
    char byte;
    int ready[2], fd = record_make(3, ENTRIES);
    struct record_head *head = record_map(fd);
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0)
        hang_inside(fd, ready[1]);
    close(ready[1]);
    close(fd);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    check_inside(head);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    check_inside(head);
    close(ready[0]);
    record_unmap(head, record_len(head));
}

/* ---- damaged bytes ---- */

static void check_op(const struct record_view *v, uint64_t index)
{
    struct record_view_op op;
    uint64_t got[2][8];
    struct record_view_counts counts = {.sent = got[0], .expected = got[1]};
    if (!record_view_op(v, index, &op))
        return;
    assert_true(op.kind == KIND_PROBE || kind_is_known(op.kind));
    assert_true(dtype_is_known(op.dtype));
    assert_true((int)op.op == OP_USER || op_is_known(op.op));
    assert_true(op.root_or_peer >= -1);
    assert_true(op.state >= RECORD_POSTED && op.state <= RECORD_CANCELED);
    assert_true(op.slot <= RECORD_GROUPS - 1);
    if (record_view_counts(v, &op, 8, &counts))
        assert_true(counts.nsent <= 8 && counts.nexpected <= 8);
}

static void look_at_everything(const void *bytes, size_t len)
{
    struct record_view v;
    struct record_view_group g;
    struct record_view_mark mark;
    char path[RECORD_VIEW_PATH];
    uint64_t offset;
    if (record_view_init(&v, bytes, len, NULL) != COLLRUN_OK)
        return;
    for (uint32_t i = 0; i < record_view_ngroups(&v); i++) {
        if (!record_view_group(&v, i, &g))
            continue;
        assert_true(strlen(g.name) < sizeof g.name && strlen(g.scope) < sizeof g.scope);
        assert_true(g.rank < g.members && (g.kind == KIND_PROBE || kind_is_known(g.kind)));
        record_view_mark(&v, &g, g.started, &mark);
        record_view_mark(&v, &g, g.started & ~63ull, &mark);
    }
    uint64_t i = record_view_first(&v);
    for (uint64_t n = 0; i < record_view_end(&v); i++, n++) {
        assert_true(n < RECORD_ENTRIES_MAX);
        check_op(&v, i);
    }
    if (record_view_module(&v, 0x1000, path, &offset))
        assert_true(strlen(path) < sizeof path);
}

static void damaged_bytes_are_refused_or_read_safely(void **state)
{
    (void)state;
    struct record_head *head = make(ENTRIES);
    struct record_queue q = open_queue(head, "train", false);
    const size_t counts[3] = {1, 2, 3};
    struct record_call call = {.root_or_peer = -1, .kind = COLLRUN_ALLTOALLV};
    for (uint64_t n = 1; n <= 100; n++) {
        call.tag = keep(&q, counts, 3, counts, 3);
        record_queue_write(&q, record_queue_reserve(&q, 1), &call, n, RECORD_STARTED, 1);
        record_queue_mark(&q, n, 1);
    }
    struct buf b;
    buf_init(&b);
    assert_true(
        record_view_save(head, record_len(head), &(struct record_view_part){ENTRIES, true}, &b));
    for (size_t cut = 0; cut <= b.len; cut += cut < 300 ? 1 : 997) {
        void *exact = malloc(cut ? cut : 1); /* so that AddressSanitizer knows its end */
        memcpy(exact, b.data, cut);
        look_at_everything(exact, cut);
        free(exact);
    }
    unsigned seed = 1;
    for (int round = 0; round < 20000; round++) {
        size_t at = round % 2 ? (size_t)rand_r(&seed) % b.len : (size_t)rand_r(&seed) % 192;
        unsigned char before[8];
        at = at > b.len - 8 ? b.len - 8 : at;
        memcpy(before, b.data + at, 8);
        for (int i = 0; i < 1 << round % 4; i++)
            b.data[at + (size_t)i] = (unsigned char)(round % 3 ? rand_r(&seed) : 255);
        look_at_everything(b.data, b.len);
        memcpy(b.data + at, before, 8);
    }
    buf_fini(&b);
    record_unmap(head, record_len(head));
}

/* A rank that has lost its mind writes into the head; the agent knows how much memory there is. */
static void a_live_record_with_a_damaged_head_is_not_read(void **state)
{
    (void)state;
    struct record_head *head = make(ENTRIES);
    size_t len = record_len(head);
    struct record_view v;
    struct buf b;
    uint32_t *const lengths[] = {&head->nmodules, &head->ngroups, &head->nmarks, &head->ncounts,
                                 &head->entries};
    open_queue(head, "train", false);
    buf_init(&b);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint32_t before = *lengths[i];
        for (uint32_t bit = 0; bit < 32; bit++) {
            *lengths[i] = before ^ 1u << bit;
            assert_int_equal(record_view_init(&v, head, len, NULL), COLLRUN_ERR_INVALID);
            assert_false(record_view_save(head, len, &(struct record_view_part){64, true}, &b));
        }
        *lengths[i] = before;
    }
    assert_int_equal(record_view_init(&v, head, len, NULL), COLLRUN_OK);
    assert_int_equal(b.len, 0);
    record_unmap(head, len);
}

/* ---- threads ---- */

static void *post_many(void *arg)
{
    const struct record_queue *q = arg;
    for (uint64_t n = 1; n <= 20000; n++) {
        uint64_t index = record_queue_reserve(q, 1);
        record_queue_write(q, index, &allreduce, n, RECORD_POSTED, 1);
        record_queue_start(q, index, 2);
        record_queue_end(q, index, RECORD_DONE, 3);
    }
    return NULL;
}

static void threads_record_beside_each_other_and_a_reader(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    print_message("# a record is read while it is written, as sequence numbers allow: a race by "
                  "design. tests/memory_model has it\n");
    skip();
#endif
    struct record_head *head = make(ENTRIES);
    struct record_queue q = open_queue(head, "train", true);
    pthread_t threads[3];
    uint32_t seen = 0;
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, post_many, &q), 0);
    struct record_view v = live_view(head);
    while (record_view_end(&v) < 60000)
        look_at_everything(head, record_len(head));
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (uint64_t i = record_view_first(&v); i < record_view_end(&v); i++) {
        struct record_view_op op;
        assert_true(record_view_op(&v, i, &op));
        assert_int_equal(op.state, RECORD_DONE);
        seen |= 1u << op.thread;
    }
    assert_true(seen && !(seen & 1));
    record_unmap(head, record_len(head));
}

/* A failed call with this status, in this thread and now. */
static void fail_now(struct record_head *head, int status)
{
    struct record_failure f = {.status = status,
                               .at = record_queue_now(head),
                               .number = 7,
                               .group = "train",
                               .text = "why"};
    record_queue_note_failure(head, &f);
}

static int last_failure(struct record_head *head, uint64_t most_ns)
{
    record_calibrate(head);
    struct record_view v = live_view(head);
    struct record_view_failure f;
    record_view_failure(&v, most_ns, &f);
    if (f.status) {
        assert_string_equal(f.group, "train");
        assert_string_equal(f.text, "why");
        assert_int_equal(f.number, 7);
    }
    return f.status;
}

static void *complete_an_operation(void *arg)
{
    struct record_queue *q = arg;
    end(q, begin(q, 9), 9);
    return NULL;
}

/* The last failed call of a rank is kept until its thread has completed another operation, or time
 * has passed. */
static void a_failed_call_is_kept_until_the_rank_goes_on(void **state)
{
    (void)state;
    struct record_head *head = make(ENTRIES);
    struct record_queue q = open_queue(head, "train", false);
    pthread_t thread;
    record_queue_thread = 0; /* that of another record */
    assert_int_equal(last_failure(head, UINT64_MAX), 0);
    uint64_t before = begin(&q, 7);
    fail_now(head, COLLRUN_ERR_TIMEOUT);
    end(&q, before, 7); /* called before the failure */
    begin(&q, 8);       /* it does not end */
    assert_int_equal(pthread_create(&thread, NULL, complete_an_operation, &q), 0);
    pthread_join(thread, NULL);
    assert_int_equal(last_failure(head, UINT64_MAX), COLLRUN_ERR_TIMEOUT);
    fail_now(head, COLLRUN_ERR_MISMATCH);
    assert_int_equal(last_failure(head, UINT64_MAX), COLLRUN_ERR_MISMATCH);
    assert_int_equal(last_failure(head, 0), 0);
    end(&q, begin(&q, 10), 10);
    assert_int_equal(last_failure(head, UINT64_MAX), 0);
    record_unmap(head, record_len(head));
    /* Without operations, the state of the groups shows it. */
    head = make(0);
    q = open_queue(head, "train", false);
    begin(&q, 7);
    fail_now(head, COLLRUN_ERR_TIMEOUT);
    assert_int_equal(last_failure(head, UINT64_MAX), COLLRUN_ERR_TIMEOUT);
    end(&q, begin(&q, 8), 8);
    assert_int_equal(last_failure(head, UINT64_MAX), 0);
    record_unmap(head, record_len(head));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_operation_is_read_as_it_was_written),
        cmocka_unit_test(a_group_shows_its_current_operation),
        cmocka_unit_test(marks_are_kept_by_number),
        cmocka_unit_test(a_closed_group_is_kept_until_its_slot_is_needed),
        cmocka_unit_test(a_long_scope_stays_unique),
        cmocka_unit_test(a_ring_holds_the_last_operations),
        cmocka_unit_test(counts_are_kept_as_long_as_the_ring_has_them),
        cmocka_unit_test(a_site_is_found_in_its_module),
        cmocka_unit_test(a_failed_call_is_kept_until_the_rank_goes_on),
        cmocka_unit_test(a_copy_is_a_record_with_the_latest_operations),
        cmocka_unit_test(a_record_without_operations_can_be_copied),
        cmocka_unit_test(the_record_of_a_rank_that_hangs_or_was_killed_can_be_read),
        cmocka_unit_test(damaged_bytes_are_refused_or_read_safely),
        cmocka_unit_test(a_live_record_with_a_damaged_head_is_not_read),
        cmocka_unit_test(threads_record_beside_each_other_and_a_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
