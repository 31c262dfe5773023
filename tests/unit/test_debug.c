/* SPDX-License-Identifier: Apache-2.0
 *
 * The log for developers: areas, lines, their bound, the ring in the record, frames as they are
 * printed, and that what is not enabled costs no argument.
 */
#include "base/debug.h"
#include "base/record_view.h"
#include "base/wire_fields.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BIT(area) (UINT64_C(1) << (area))

static int lines_fd[2]; /* the pipe that lines go to */

static int setup(void **state)
{
    (void)state;
    assert_int_equal(pipe2(lines_fd, O_CLOEXEC | O_NONBLOCK), 0);
    debug_set_output(lines_fd[1], -1);
    debug_start(0, 0, "");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    debug_start(0, 0, "");
    debug_start_rank(NULL);
    debug_set_output(STDERR_FILENO, -1);
    close(lines_fd[0]);
    close(lines_fd[1]);
    return 0;
}

/* What was written since the last call. */
static const char *written(char *out, size_t size)
{
    const ssize_t n = read(lines_fd[0], out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    return out;
}

static unsigned count_lines(const char *text)
{
    unsigned n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void areas_are_parsed(void **state)
{
    uint64_t areas = 7;
    struct diag d;
    (void)state;
    assert_int_equal(debug_parse(NULL, &areas, &d), COLLRUN_OK);
    assert_int_equal(areas, 0);
    assert_int_equal(debug_parse("", &areas, &d), COLLRUN_OK);
    assert_int_equal(areas, 0);
    assert_int_equal(debug_parse("rdv,link", &areas, &d), COLLRUN_OK);
    assert_int_equal(areas, BIT(DEBUG_RDV) | BIT(DEBUG_LINK));
    assert_int_equal(debug_parse("link,,link,", &areas, &d), COLLRUN_OK);
    assert_int_equal(areas, BIT(DEBUG_LINK));
    assert_int_equal(debug_parse("all", &areas, &d), COLLRUN_OK);
    for (unsigned i = 0; i < DEBUG_AREA_COUNT; i++)
        assert_true(areas >> i & 1);
    assert_int_equal(areas >> DEBUG_AREA_COUNT, 0);
}

static void every_name_is_the_name_of_its_area(void **state)
{
    (void)state;
    for (unsigned i = 0; i < DEBUG_AREA_COUNT; i++) {
        uint64_t areas = 0;
        struct diag d;
        assert_int_equal(debug_parse(debug_area_name(i), &areas, &d), COLLRUN_OK);
        assert_int_equal(areas, BIT(i));
        assert_true(strlen(debug_area_text(i)) > 10);
    }
}

static void unknown_areas_are_refused(void **state)
{
    uint64_t areas = 42;
    struct diag d;
    char text[200];
    (void)state;
    assert_int_equal(debug_parse("link,rvd", &areas, &d), COLLRUN_ERR_INVALID);
    assert_string_equal(d.text, "COLLRUN_DEBUG: there is no area \"rvd\"");
    assert_string_equal(d.hint, "did you mean \"rdv\"? COLLRUN_DEBUG=help lists all");
    assert_int_equal(areas, 42);
    assert_int_equal(debug_parse("1", &areas, &d), COLLRUN_ERR_INVALID);
    assert_string_equal(d.hint, "COLLRUN_DEBUG=help lists all");
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(debug_parse(text, &areas, &d), COLLRUN_ERR_INVALID);
}

static int evaluated(int *times)
{
    return ++*times;
}

static void only_enabled_areas_are_logged(void **state)
{
    char text[1024];
    int times = 0;
    (void)state;
    debug_start(BIT(DEBUG_RDV), 0, "rank 3");
    debug_log(DEBUG_LINK, "%d", evaluated(&times));
    assert_int_equal(times, 0);
    assert_string_equal(written(text, sizeof text), "");
    errno = ENOTTY;
    debug_log(DEBUG_RDV, "scope %s, member %d", "world#0", evaluated(&times));
    assert_int_equal(errno, ENOTTY);
    assert_int_equal(times, 1);
    written(text, sizeof text);
    double at = -1;
    int end = 0;
    assert_int_equal(sscanf(text, "debug: %lf rank 3: rdv: scope world#0, member 1%n", &at, &end),
                     1);
    assert_string_equal(text + end, "\n");
    assert_true(at >= 0 && at < 60);
}

static void a_line_is_one_line(void **state)
{
    char text[2048], longest[1000];
    (void)state;
    debug_start(BIT(DEBUG_RDV), 0, "rank 3");
    debug_log(DEBUG_RDV, "a\nb\x1b[2Jc");
    written(text, sizeof text);
    assert_int_equal(count_lines(text), 1);
    assert_non_null(strstr(text, "rdv: a?b?[2Jc\n"));
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    debug_log(DEBUG_RDV, "%s", longest);
    written(text, sizeof text);
    assert_int_equal(count_lines(text), 1);
    assert_int_equal(strlen(text), DEBUG_LINE - 1);
}

/* Every line is written or counted as dropped, and the call never blocks. */
static void a_full_pipe_drops_lines_and_counts_them(void **state)
{
    enum { LINES = 1500 }; /* more than a pipe holds */
    static char text[1 << 17];
    unsigned dropped = 0, seen;
    (void)state;
    debug_start(BIT(DEBUG_RDV), 0, "rank 3");
    for (int i = 0; i < LINES; i++)
        debug_log(DEBUG_RDV, "line %d of some length, so that the pipe is full before the end", i);
    seen = count_lines(written(text, sizeof text));
    assert_true(seen > 100 && seen < LINES);
    debug_log(DEBUG_RDV, "the last one");
    written(text, sizeof text);
    assert_int_equal(sscanf(text, "debug: rank 3: %u lines were dropped here\n", &dropped), 1);
    assert_int_equal(seen + dropped, LINES);
    assert_non_null(strstr(text, "the last one\n"));
}

static void lines_of_a_second_are_bounded(void **state)
{
    static char text[1 << 17];
    unsigned seen = 0;
    (void)state;
    debug_start(BIT(DEBUG_RDV), 0, "rank 3");
    for (int i = 0; i < 3 * DEBUG_LINES_A_SECOND; i++) {
        debug_log(DEBUG_RDV, "%d", i);
        seen += count_lines(written(text, sizeof text));
    }
    /* The loop takes milliseconds: two seconds at most. */
    assert_true(seen >= DEBUG_LINES_A_SECOND && seen <= 2 * DEBUG_LINES_A_SECOND + 2);
}

/* ---- the ring in the record ---- */

static struct record_head *new_record(uint64_t areas)
{
    const int fd = record_make(3, 16);
    struct record_head *head = record_map(fd);
    assert_non_null(head);
    close(fd);
    head->debug_areas = areas;
    return head;
}

static void the_record_keeps_the_last_lines(void **state)
{
    char line[RECORD_VIEW_LINE], expected[64];
    struct record_view v;
    struct record_head *head = new_record(BIT(DEBUG_RDV));
    const size_t len = record_len(head);
    (void)state;
    debug_start_rank(head);
    assert_int_equal(record_view_init(&v, head, len, NULL), COLLRUN_OK);
    assert_false(record_view_line(&v, 0, line));
    for (int i = 0; i < 3 * RECORD_LINES; i++)
        debug_log(DEBUG_RDV, "line %d.", i);
    for (uint32_t back = 0; back < RECORD_LINES; back++) {
        assert_true(record_view_line(&v, back, line));
        snprintf(expected, sizeof expected, "rank 3: rdv: line %u.", 3 * RECORD_LINES - 1 - back);
        assert_non_null(strstr(line, expected));
    }
    assert_false(record_view_line(&v, RECORD_LINES, line));
    debug_start_rank(NULL);
    record_unmap(head, len);
}

static void a_saved_record_has_the_lines(void **state)
{
    char line[RECORD_VIEW_LINE];
    struct record_view v;
    struct buf none, some;
    struct record_head *head = new_record(BIT(DEBUG_RDV));
    const size_t len = record_len(head);
    const struct record_view_part part = {.entries = 16, .marks = true};
    (void)state;
    buf_init(&none);
    buf_init(&some);
    assert_true(record_view_save(head, len, &part, &none));
    debug_start_rank(head);
    debug_log(DEBUG_RDV, "the only line");
    assert_true(record_view_save(head, len, &part, &some));
    assert_int_equal(record_view_init(&v, none.data, none.len, NULL), COLLRUN_OK);
    assert_int_equal(v.head.nlines, 0);
    assert_false(record_view_line(&v, 0, line));
    assert_int_equal(record_view_init(&v, some.data, some.len, NULL), COLLRUN_OK);
    assert_true(record_view_line(&v, 0, line));
    assert_non_null(strstr(line, "the only line"));
    assert_false(record_view_line(&v, 1, line));
    debug_start_rank(NULL);
    record_unmap(head, len);
    buf_fini(&none);
    buf_fini(&some);
}

/* A rank may write into its record at random. */
static void damaged_lines_are_no_text_of_the_terminal(void **state)
{
    char line[RECORD_VIEW_LINE];
    struct record_view v;
    struct record_head *head = new_record(BIT(DEBUG_RDV));
    const size_t len = record_len(head);
    struct record_line *lines = (void *)((char *)head + record_layout(head).lines);
    (void)state;
    debug_start_rank(head);
    debug_log(DEBUG_RDV, "the only line");
    assert_int_equal(record_view_init(&v, head, len, NULL), COLLRUN_OK);
    memset(lines->text, '\x1b', sizeof lines->text);
    assert_true(record_view_line(&v, 0, line));
    assert_int_equal(strspn(line, "?"), sizeof line - 1);
    atomic_store(&lines->version, 7);
    assert_false(record_view_line(&v, 0, line));
    atomic_store(&head->next_line, UINT64_MAX);
    assert_false(record_view_line(&v, 0, line));
    debug_start_rank(NULL);
    record_unmap(head, len);
}

/* ---- threads ---- */

static void *log_a_lot(void *arg)
{
    for (int i = 0; i < 500; i++)
        debug_log(DEBUG_RDV, "thread %d says %d.", (int)(intptr_t)arg, i);
    return NULL;
}

static void threads_write_whole_lines(void **state)
{
    static char text[1 << 17];
    pthread_t threads[3];
    char line[RECORD_VIEW_LINE];
    struct record_view v;
    struct record_head *head = new_record(BIT(DEBUG_RDV));
    const size_t len = record_len(head);
    (void)state;
    debug_start_rank(head);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_a_lot, (void *)(intptr_t)i), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (char *l = strtok((char *)written(text, sizeof text), "\n"); l; l = strtok(NULL, "\n")) {
        int thread, number, end = 0;
        const char *at = strstr(l, "rdv: thread ");
        if (!at) /* lines that were dropped */
            continue;
        assert_int_equal(sscanf(at, "rdv: thread %d says %d.%n", &thread, &number, &end), 2);
        assert_int_equal(at[end], '\0');
    }
    assert_int_equal(record_view_init(&v, head, len, NULL), COLLRUN_OK);
    /* Each of two threads that were delayed for a whole ring may have kept the slot of a later
     * line. */
    uint32_t kept = 0;
    for (uint32_t back = 0; back < RECORD_LINES; back++)
        kept += record_view_line(&v, back, line);
    assert_true(kept >= RECORD_LINES - 2);
    debug_start_rank(NULL);
    record_unmap(head, len);
}

/* ---- frames ---- */

static void print_payload(uint16_t type, uint32_t rank, const struct buf *b, char *out, size_t size)
{
    const struct wire_frame f = {
        .type = type, .rank = rank, .payload = b->data, .len = buf_pending(b)};
    wire_print(&f, out, size);
}

static void frames_are_printed_by_their_codec(void **state)
{
    struct buf b;
    char text[300];
    (void)state;
    buf_init(&b);
    wire_put_abort(&b, &(struct wire_abort){COLLRUN_ERR_PEER_FAILED, 2, "rank 2 \"died\""});
    print_payload(WIRE_ABORT, 4, &b, text, sizeof text);
    char expected[100];
    snprintf(expected, sizeof expected,
             "ABORT (rank 4) status=%d culprit=2 text=\"rank 2 \\\"died\\\"\"",
             COLLRUN_ERR_PEER_FAILED);
    assert_string_equal(text, expected);
    print_payload(WIRE_ABORT, WIRE_HOST, &b, text, 20);
    assert_string_equal(text, "ABORT status=-9 cul");
    b.len--;
    print_payload(WIRE_ABORT, WIRE_HOST, &b, text, sizeof text);
    snprintf(expected, sizeof expected, "ABORT malformed %zu bytes", buf_pending(&b));
    assert_string_equal(text, expected);
    buf_clear(&b);
    const struct wire_item_site sites[] = {{7}, {8}};
    const struct wire_item_look looks[] = {{.rank = 2, .threads = 1}, {3, 0, {sites, 2}}};
    wire_put_read_stacks(&b, &(struct wire_read_stacks){{looks, 2}});
    print_payload(WIRE_READ_STACKS, WIRE_HOST, &b, text, sizeof text);
    assert_string_equal(text, "READ_STACKS ranks=2 { rank=2 threads=1 sites=0 }"
                              " { rank=3 threads=0 sites=2 { address=7 } { address=8 } }");
    print_payload(WIRE_READ_STACKS, WIRE_HOST, &b, text, 23);
    assert_string_equal(text, "READ_STACKS ranks=2 { ");
    buf_clear(&b);
    print_payload(WIRE_GO, WIRE_HOST, &b, text, sizeof text);
    assert_string_equal(text, "GO 0 bytes");
    print_payload(999, WIRE_HOST, &b, text, sizeof text);
    assert_string_equal(text, "unknown 0 bytes");
    buf_fini(&b);
}

/* Values of the store may be keys of connections, and the environment has secrets. */
static void no_value_of_the_store_or_the_job_is_printed(void **state)
{
    static const uint16_t types[] = {WIRE_PUT,     WIRE_REPLY, WIRE_FENCED, WIRE_JOB,
                                     WIRE_WELCOME, WIRE_STDIN, WIRE_OUTPUT};
    char text[300];
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct buf b;
        buf_init(&b);
        buf_put_str(&b, "scope");
        buf_put_str(&b, "key");
        buf_put_str(&b, "hunter2");
        print_payload(types[i], 0, &b, text, sizeof text);
        assert_null(strstr(text, "hunter2"));
        buf_fini(&b);
    }
    struct buf b;
    buf_init(&b);
    wire_put_welcome(&b, &(struct wire_welcome){.rank = 1, .desc = {"hunter2", 7}});
    print_payload(WIRE_WELCOME, 1, &b, text, sizeof text);
    assert_string_equal(text, "WELCOME (rank 1) rank=1 attempt=0 host=0 address=\"\" interface=\"\""
                              " cpus=0 desc=(7 bytes)");
    buf_clear(&b);
    wire_put_stdin_bytes(&b, &(struct wire_stdin_bytes){{"hunter2", 7}});
    print_payload(WIRE_STDIN, WIRE_HOST, &b, text, sizeof text);
    assert_string_equal(text, "STDIN bytes=(7 bytes)");
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(areas_are_parsed),
        cmocka_unit_test(every_name_is_the_name_of_its_area),
        cmocka_unit_test(unknown_areas_are_refused),
        cmocka_unit_test_setup_teardown(only_enabled_areas_are_logged, setup, teardown),
        cmocka_unit_test_setup_teardown(a_line_is_one_line, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_pipe_drops_lines_and_counts_them, setup, teardown),
        cmocka_unit_test_setup_teardown(lines_of_a_second_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(the_record_keeps_the_last_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(a_saved_record_has_the_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(damaged_lines_are_no_text_of_the_terminal, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_write_whole_lines, setup, teardown),
        cmocka_unit_test(frames_are_printed_by_their_codec),
        cmocka_unit_test(no_value_of_the_store_or_the_job_is_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
