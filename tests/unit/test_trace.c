/* SPDX-License-Identifier: Apache-2.0
 *
 * From records of ranks to lines of a trace: a rank records operations as the engine does, the
 * sender of the agent packs frames, and the writer of the runner turns them into text.
 */
#include "agent/trace_sender.h"
#include "base/loop.h"
#include "base/record_queue.h"
#include "base/wire.h"
#include "trace/groups.h"
#include "trace/trace.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { ENTRIES = 64, RANKS = 2 };

struct rank {
    struct record_head *head;
    struct record_queue queue;
    struct trace_sender_rank *sent;
    uint64_t number;
};

static struct rank ranks[RANKS];
static struct trace_writer *writer;
static struct desc_host host = {.name = "node\"1", .nranks = RANKS};
static struct desc_rank places[RANKS];
static const struct desc job = {.job_name = "job",
                                .run_id = "1",
                                .hosts = &host,
                                .nhosts = 1,
                                .ranks = places,
                                .nranks = RANKS};

static void open_group(struct rank *r, const char *name, uint32_t messages)
{
    const struct record_queue_info info = {.name = name,
                                           .scope = name,
                                           .members = RANKS,
                                           .rank = (uint32_t)(r - ranks),
                                           .messages = messages};
    record_queue_open(&r->queue, r->head, &info);
    r->number = 0;
}

static int setup(void **state)
{
    (void)state;
    writer = trace_writer_new(&job, now_ns());
    assert_non_null(writer);
    for (uint32_t i = 0; i < RANKS; i++) {
        int fd = record_make(i, ENTRIES);
        assert_true(fd >= 0);
        ranks[i] = (struct rank){.head = record_map(fd), .sent = calloc(1, sizeof *ranks[i].sent)};
        close(fd);
        assert_non_null(ranks[i].head);
        assert_non_null(ranks[i].sent);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    trace_writer_free(writer);
    for (uint32_t i = 0; i < RANKS; i++) {
        record_unmap(ranks[i].head, record_len(ranks[i].head));
        free(ranks[i].sent);
    }
    return 0;
}

static uint64_t begin(struct rank *r, const struct record_call *call)
{
    uint64_t index = record_queue_reserve(&r->queue, 1), ticks = record_ticks(r->head);
    record_queue_write(&r->queue, index, call, ++r->number, RECORD_STARTED, ticks);
    record_queue_enter(&r->queue, call, r->number, 0, ticks);
    return index;
}

static void end(struct rank *r, uint64_t index, enum record_state state)
{
    record_queue_end(&r->queue, index, state, record_ticks(r->head));
}

static void call(struct rank *r, const struct record_call *c)
{
    end(r, begin(r, c), RECORD_DONE);
}

static const struct record_call allreduce = {.count = 3,
                                             .kind = COLLRUN_ALLREDUCE,
                                             .dtype = COLLRUN_FLOAT32,
                                             .op = COLLRUN_MAX,
                                             .root_or_peer = -1};

static struct record_call message(enum collrun_kind kind, int peer, uint32_t tag)
{
    return (struct record_call){
        .count = 1, .kind = (uint8_t)kind, .root_or_peer = peer, .tag = tag};
}

/* The agent looks at a rank, and the runner writes what it sends. */
static void look(struct rank *r, bool ended)
{
    struct record_view v;
    struct diag d;
    struct buf b;
    buf_init(&b);
    record_calibrate(r->head);
    assert_int_equal(record_view_init(&v, r->head, record_len(r->head), &d), COLLRUN_OK);
    const struct trace_sender_look at = {.now_ns = now_ns(), .ended = ended};
    if (trace_sender_pack(r->sent, &v, &at, &b)) {
        const struct trace_frame f = {
            .payload = b.data, .len = b.len, .rank = (uint32_t)(r - ranks)};
        assert_true(trace_writer_frame(writer, &f));
    }
    buf_fini(&b);
}

static const char *text(void)
{
    buf_put_u8(trace_writer_out(writer), 0);
    return (const char *)trace_writer_out(writer)->data;
}

static uint32_t count(const char *what)
{
    uint32_t n = 0;
    for (const char *at = text(); (at = strstr(at, what)); at += strlen(what))
        n++;
    trace_writer_out(writer)->len--;
    return n;
}

static void an_operation_is_written_once(void **state)
{
    (void)state;
    open_group(&ranks[0], "world", 0);
    for (int i = 0; i < 20; i++) {
        call(&ranks[0], &allreduce);
        look(&ranks[0], false);
    }
    look(&ranks[0], true);
    assert_int_equal(count("\"ph\":\"X\""), 20);
    assert_int_equal(count("\"seq\":20,\"Collective name\":\"allreduce\",\"dtype\":"
                           "\"float32\",\"op\":\"max\",\"In msg nelems\":3,\"Out msg nelems\":3,"
                           "\"bytes\":12,\"Group size\":2,\"Process Group Name\":\"world\"}},\n"),
                     1);
    assert_int_equal(count("thread_name"), 1);
    assert_int_equal(trace_writer_totals(writer).operations, 20);
    assert_int_equal(trace_writer_totals(writer).dropped, 0);
}

static void operations_in_flight_are_written_when_they_end(void **state)
{
    (void)state;
    open_group(&ranks[0], "world", 0);
    uint64_t first = begin(&ranks[0], &allreduce), second = begin(&ranks[0], &allreduce);
    look(&ranks[0], false);
    assert_int_equal(count("\"ph\":\"X\""), 0);
    assert_int_equal(count("\"bytes in flight\""), 1);
    assert_int_equal(count("\"args\":{\"bytes\":24}"), 1);
    end(&ranks[0], second, RECORD_DONE);
    look(&ranks[0], false);
    assert_int_equal(count("\"seq\":2,\"Collective name\""), 1);
    end(&ranks[0], first, RECORD_FAILED);
    look(&ranks[0], false);
    assert_int_equal(count("\"seq\":1,\"state\":\"failed\""), 1);
    assert_int_equal(count("\"tid\":32,\"ts\""), 1);
    assert_int_equal(count("\"tid\":33,\"ts\""), 1); /* they overlap */
}

static void collectives_and_messages_of_a_group_have_one_track(void **state)
{
    (void)state;
    const struct record_call send = message(COLLRUN_SEND, 1, 0);
    open_group(&ranks[0], "world", 0);
    begin(&ranks[0], &allreduce);
    look(&ranks[0], false);
    open_group(&ranks[0], "world", 1);
    call(&ranks[0], &send);
    look(&ranks[0], true);
    assert_int_equal(count("thread_name"), 2); /* they overlap */
    assert_int_equal(count("\"name\":\"send\",\"pid\":0,\"tid\":33,"), 1);
    assert_int_equal(count("\"name\":\"allreduce\",\"pid\":0,\"tid\":32,"), 1);
}

static void what_a_rank_was_in_is_written_at_its_end(void **state)
{
    (void)state;
    open_group(&ranks[0], "world", 0);
    begin(&ranks[0], &allreduce);
    look(&ranks[0], false);
    look(&ranks[0], true);
    assert_int_equal(count("\"seq\":1,\"state\":\"started\""), 1);
}

static void overwritten_operations_are_counted(void **state)
{
    (void)state;
    open_group(&ranks[0], "world", 0);
    begin(&ranks[0], &allreduce);
    look(&ranks[0], false);
    for (int i = 0; i < 100; i++)
        call(&ranks[0], &allreduce);
    look(&ranks[0], true);
    assert_int_equal(trace_writer_totals(writer).operations, ENTRIES);
    assert_int_equal(trace_writer_totals(writer).dropped, 101 - ENTRIES);
    assert_int_equal(count("\"name\":\"dropped\""), 1);
}

static void a_flow_joins_both_ends_of_a_message(void **state)
{
    (void)state;
    open_group(&ranks[0], "world", 1);
    open_group(&ranks[1], "world", 1);
    const struct record_call send = message(COLLRUN_SEND, 1, 7), recv = message(COLLRUN_RECV, 0, 7);
    for (int i = 0; i < 2; i++) {
        call(&ranks[0], &send);
        call(&ranks[1], &recv);
    }
    look(&ranks[0], false);
    look(&ranks[1], false);
    assert_int_equal(count("\"id\":\"32/0>1/7/0\""), 2);
    assert_int_equal(count("\"id\":\"32/0>1/7/1\""), 2);
    assert_int_equal(count("\"ph\":\"s\""), 2);
    assert_int_equal(count("\"ph\":\"f\""), 2);
}

/* A receive from any source may have taken any message. */
static void a_flow_is_not_guessed(void **state)
{
    (void)state;
    open_group(&ranks[1], "world", 1);
    const struct record_call any = message(COLLRUN_RECV_ANY, -1, 7),
                             recv = message(COLLRUN_RECV, 0, 7);
    uint64_t first = begin(&ranks[1], &any);
    look(&ranks[1], false);
    call(&ranks[1], &recv);
    end(&ranks[1], first, RECORD_DONE);
    look(&ranks[1], true);
    assert_int_equal(count("\"ph\":\"X\""), 2);
    assert_int_equal(count("\"ph\":\"f\""), 0);
}

static void the_skew_is_from_the_first_call_to_the_last(void **state)
{
    (void)state;
    for (int i = 0; i < RANKS; i++) {
        open_group(&ranks[i], "world", 0);
        call(&ranks[i], &allreduce);
        look(&ranks[i], false);
    }
    assert_int_equal(count("\"name\":\"skew world\",\"pid\":2,\"tid\":32"), 1);
}

static void names_are_escaped(void **state)
{
    (void)state;
    open_group(&ranks[0], "a\"b\\c\n\xff\xc3\xa4", 0);
    trace_writer_begin(writer);
    call(&ranks[0], &allreduce);
    look(&ranks[0], true);
    assert_int_equal(count("\"Process Group Name\":\"a\\\"b\\\\c\\u000a?\xc3\xa4\""), 1);
    assert_int_equal(count("\"host\":\"node\\\"1\""), RANKS);
}

static void damaged_frames_are_refused(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b);
    for (int i = 0; i < 3; i++)
        buf_put_u64(&b, 0);
    buf_put_u32(&b, 1);
    for (size_t len = 0; len <= b.len; len++)
        assert_int_equal(trace_writer_frame(writer, &(struct trace_frame){b.data, len, 0, 0, 0}),
                         len == b.len);
    buf_put_u8(&b, 'o');
    assert_false(trace_writer_frame(writer, &(struct trace_frame){b.data, b.len, 0, 0, 0}));
    for (int i = 0; i < 64; i++)
        buf_put_u8(&b, 255);
    assert_false(trace_writer_frame(writer, &(struct trace_frame){b.data, b.len, 0, 0, 0}));
    assert_false(trace_writer_frame(writer, &(struct trace_frame){b.data, 28, RANKS, 0, 0}));
    buf_fini(&b);
}

/* The reader of a pipe is a disk that takes nothing for a while. */
static void a_slow_disk_costs_operations_and_no_memory(void **state)
{
    (void)state;
    char path[] = "/tmp/test_trace.XXXXXX", *fifo = NULL;
    char name[2000] = {0}; /* few of them are read soon, by a slow machine, too */
    struct diag d;
    struct buf b;
    memset(name, 'n', sizeof name - 1);
    assert_non_null(mkdtemp(path));
    assert_true(asprintf(&fifo, "%s/fifo", path) > 0);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    FILE *reader = fopen(fifo, "r+");
    struct trace *t = trace_open(fifo, true, &job, now_ns(), &d);
    assert_non_null(t);
    buf_init(&b);
    for (int i = 0; i < 3; i++)
        buf_put_u64(&b, 0);
    buf_put_u32(&b, 10);
    while (b.len < (1 << 20)) {
        buf_put_u8(&b, 'g');
        buf_put_u16(&b, 0);
        buf_put_u32(&b, 2);
        buf_put_u32(&b, 0);
        buf_put_str(&b, name);
        buf_put_str(&b, "world");
    }
    const struct trace_instant instant = {.rank = WIRE_HOST, .name = "stall"};
    for (int i = 0; i < 2000; i++)
        trace_instant(t, &instant); /* more than a pipe holds */
    for (int i = 0; i < 200; i++)
        trace_frame(t, &(struct trace_frame){b.data, b.len, 0, 0, 0});
    fcntl(fileno(reader), F_SETPIPE_SZ, 1 << 20);
    struct trace_result result = trace_close(t, 0);
    assert_false(result.stuck);
    assert_true(result.dropped > 0 && result.dropped % 10 == 0);
    assert_int_equal(result.err, 0);
    fclose(reader);
    unlink(fifo);
    rmdir(path);
    free(fifo);
    buf_fini(&b);
}

static void numbers_are_decimal(void **state)
{
    (void)state;
    char s[64];
    *trace_line_us(s, 12345006) = '\0';
    assert_string_equal(s, "12345.006");
    *trace_line_number(s, UINT64_MAX) = '\0';
    assert_string_equal(s, "18446744073709551615");
    *trace_line_signed(s, INT64_MIN) = '\0';
    assert_string_equal(s, "-9223372036854775808");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(an_operation_is_written_once),
        CASE(operations_in_flight_are_written_when_they_end),
        CASE(collectives_and_messages_of_a_group_have_one_track),
        CASE(what_a_rank_was_in_is_written_at_its_end),
        CASE(overwritten_operations_are_counted),
        CASE(a_flow_joins_both_ends_of_a_message),
        CASE(a_flow_is_not_guessed),
        CASE(the_skew_is_from_the_first_call_to_the_last),
        CASE(names_are_escaped),
        CASE(damaged_frames_are_refused),
        CASE(a_slow_disk_costs_operations_and_no_memory),
        CASE(numbers_are_decimal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
