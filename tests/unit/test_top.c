/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a job as JSON, and the screen of `collrun top` that is drawn of it.
 */
#include "base/quote.h"
#include "report/top.h"
#include "report/top_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECOND UINT64_C(1000000000)

/* ---- the state ---- */

enum { RANKS = 2 };
static uint32_t all_ranks[] = {0, 1};
static struct desc_host hosts[] = {{.name = "node1"}};
static struct desc_rank desc_ranks[RANKS];
static struct desc_backend backends[] = {{.name = "shm"}};
static struct desc_group groups[] = {{.name = "dp", .ranks = {all_ranks, 2}}};
static uint32_t used[] = {0};
static struct desc_workload workloads[] = {
    {.name = "train", .ranks = {all_ranks, 2}, .groups = used, .ngroups = 1}};
static const struct desc desc = {.job_name = "demo",
                                 .run_id = "r1",
                                 .hosts = hosts,
                                 .nhosts = 1,
                                 .ranks = desc_ranks,
                                 .nranks = RANKS,
                                 .backends = backends,
                                 .nbackends = 1,
                                 .groups = groups,
                                 .ngroups = 1,
                                 .workloads = workloads,
                                 .nworkloads = 1};

static void put_usage(struct buf *b, uint64_t cpu_us, uint64_t memory)
{
    buf_init(b);
    buf_put_u64(b, cpu_us);
    buf_put_u64(b, memory);
    buf_put_u32(b, 1);
    buf_put_str(b, "dp");
    buf_put_u32(b, 4);
    buf_put_u64(b, 48000);
    buf_put_u64(b, 30000);
}

static bool read_usage(struct rank_usage *u, const struct buf *b, size_t len, uint64_t now)
{
    return usage_read(u, &(struct wire_frame){.payload = b->data, .len = len}, now);
}

static void usage_is_read_or_refused(void **state)
{
    struct rank_usage u = {0};
    struct buf b;
    (void)state;
    put_usage(&b, 1000000, 4096);
    for (size_t len = 0; len < b.len; len++)
        assert_false(read_usage(&u, &b, len, SECOND));
    assert_int_equal(u.before_ns, 0);
    assert_true(read_usage(&u, &b, b.len, SECOND));
    buf_fini(&b);
    assert_true(u.cpu < 0); /* one sample */
    assert_int_equal(u.memory, 4096);
    assert_int_equal(u.groups[0].sum_ns, 48000);
    put_usage(&b, 2000000, 4096);
    assert_true(read_usage(&u, &b, b.len, SECOND + SECOND / 2)); /* too soon for a rate */
    assert_true(u.cpu < 0);
    assert_true(read_usage(&u, &b, b.len, 3 * SECOND));
    assert_true(u.cpu > 0.499 && u.cpu < 0.501);
    buf_fini(&b);
    usage_fini(&u);
}

static void the_state_has_what_is_known(void **state)
{
    struct rank_state ranks[RANKS] = {{.phase = PHASE_RUNNING, .pid = 7},
                                      {.phase = PHASE_RUNNING, .end = RANK_EXITED, .status = 9}};
    struct audit *audit = audit_new(RANKS);
    struct live live;
    struct buf b;
    (void)state;
    live_init(&live, NULL, &desc, ranks, NULL, true);
    put_usage(&b, 1, 1 << 20);
    assert_true(read_usage(&ranks[0].usage, &b, b.len, SECOND));
    buf_fini(&b);
    json_t *json =
        top_json(&(struct top_state){&desc, ranks, &live, audit}, live.begin_ns + 2 * SECOND);
    const json_t *g = json_array_get(json_object_get(json, "groups"), 0);
    assert_float_equal(json_real_value(json_object_get(json, "seconds")), 2, 1e-6);
    assert_float_equal(json_real_value(json_object_get(g, "latency_us")), 12, 1e-6);
    assert_float_equal(json_real_value(json_object_get(g, "longest_us")), 30, 1e-6);
    assert_true(json_is_null(json_object_get(g, "operations_per_s")));
    assert_true(json_is_null(json_object_get(g, "last")));
    const json_t *r0 = json_array_get(json_object_get(json, "ranks"), 0);
    const json_t *r1 = json_array_get(json_object_get(json, "ranks"), 1);
    assert_int_equal(json_integer_value(json_object_get(r0, "memory")), 1 << 20);
    assert_true(json_is_null(json_object_get(r0, "cpu")));
    assert_string_equal(json_string_value(json_object_get(r1, "state")), "killed");
    assert_string_equal(json_string_value(json_object_get(r1, "doing")), "by signal 9");
    assert_int_equal(json_integer_value(json_object_get(json, "up")), 1);
    json_decref(json);
    ranks[0].end = RANK_LOST;
    json = top_json(&(struct top_state){&desc, ranks, &live, audit}, live.begin_ns);
    r0 = json_array_get(json_object_get(json, "ranks"), 0);
    assert_string_equal(json_string_value(json_object_get(r0, "state")), "lost");
    assert_int_equal(json_integer_value(json_object_get(json, "up")), 0);
    json_decref(json);
    live.loop = NULL;
    live_fini(&live);
    usage_fini(&ranks[0].usage);
    audit_free(audit);
}

/* ---- the screen ---- */

static const char shown_state[] =
    "{'job': 'demo', 'run_id': 'r1', 'attempt': 1, 'seconds': 75.0, 'up': 2, 'waits': '1/2 wait',"
    " 'workloads': [{'name': 'train', 'done': 1, 'total': 4, 'what': 'steps'},"
    "               {'name': 'beat', 'done': 0, 'total': 0, 'what': ''}],"
    " 'groups': [{'name': 'world', 'ranks': 2, 'backend': 'shm', 'operations': 9, 'bytes': 9,"
    "   'operations_per_s': 1234.5, 'bytes_per_s': 99000.0, 'latency_us': 12.4,"
    "   'longest_us': 2500.0, 'last': {'rank': 1, 'share': 0.75, 'late_ms': 3.0}},"
    "  {'name': 'new', 'ranks': 2, 'backend': 'tcp', 'operations': 0, 'bytes': 0,"
    "   'operations_per_s': null, 'bytes_per_s': null, 'latency_us': null,"
    "   'longest_us': null, 'last': null}],"
    " 'ranks': [{'rank': 0, 'host': 'n1', 'pid': 7, 'state': 'running',"
    "   'doing': 'in barrier world#9', 'seconds': 2.2, 'cpu': 0.5, 'memory': 12345678},"
    "  {'rank': 1, 'host': 'n1', 'pid': 8, 'state': 'killed', 'doing': 'by signal 9',"
    "   'seconds': null, 'cpu': null, 'memory': null}]}";

static json_t *parse(const char *text)
{
    char *json = strdup(text);
    for (char *c = json; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *state = json_loads(json, 0, NULL);
    assert_non_null(state);
    free(json);
    return state;
}

static char *draw(const json_t *state, const struct top_view *view)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    top_screen_draw(state, view, f);
    fclose(f);
    return text;
}

static void shows(const char *state, const struct top_view *view, const char *want)
{
    json_t *json = parse(state);
    char *text = draw(json, view);
    assert_string_equal(text, want);
    free(text);
    json_decref(json);
}

static void the_screen_is_drawn(void **state)
{
    (void)state;
    shows(shown_state, &(struct top_view){0},
          "demo  r1  1m15s  attempt 1  2/2 ranks up\n"
          "1/2 wait\n"
          "train 25% steps\n"
          "\n"
          "GROUP  RANKS  BACKEND    OP/S      B/S  LATENCY  LONGEST  LAST TO ARRIVE\n"
          "world      2  shm       1.2 k    99 kB    12 us   2.5 ms  rank 1, 75% of calls, 3.0 ms "
          "late\n"
          "new        2  tcp           -        -        -        -  -\n"
          "\n"
          "RANK  HOST      PID  STATE      CPU  MEMORY  DOING\n"
          "   0  n1          7  running    50%   12 MB  in barrier world#9, for 2 s\n"
          "   1  n1          8  killed       -       -  by signal 9\n");
}

static void colours_mark_what_matters(void **state)
{
    json_t *json = parse(shown_state);
    char *text = draw(json, &(struct top_view){.color = true});
    (void)state;
    assert_non_null(strstr(text, "\033[33m1/2 wait\033[0m"));
    assert_non_null(strstr(text, "\033[33mrank 1, 75% of calls, 3.0 ms late\033[0m"));
    assert_non_null(strstr(text, "\033[31mkilled "));
    assert_null(strstr(text, "\033[31mrunning"));
    free(text);
    json_decref(json);
}

/* Counts columns; the state has no wide characters. */
static void it_fits_a_terminal_of_any_size(void **state)
{
    json_t *json = parse(shown_state);
    (void)state;
    for (size_t width = 1; width < 100; width++) {
        for (size_t height = 1; height < 16; height++) {
            char *text = draw(json, &(struct top_view){.width = width, .height = height});
            size_t lines = 0;
            for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, lines++)
                assert_true((size_t)(end - line) <= width);
            assert_true(lines <= height);
            free(text);
        }
    }
    json_decref(json);
}

/* A character of three bytes may have two columns. */
static void wide_characters_are_not_cut(void **state)
{
    json_t *json = parse("{'job': '\xe4\xba\xba\xe4\xba\xba\xe4\xba\xba'}");
    char *text = draw(json, &(struct top_view){.width = 5, .height = 1});
    (void)state;
    assert_string_equal(text, "\xe4\xba\xba\xe4\xba\xba\n");
    free(text);
    json_decref(json);
}

static void ranks_without_room_are_counted(void **state)
{
    json_t *json = parse("{'job': 'demo', 'groups': [], 'ranks': []}");
    json_t *ranks = json_object_get(json, "ranks");
    (void)state;
    for (int i = 0; i < 20; i++)
        json_array_append_new(ranks, json_pack("{s:i, s:s}", "rank", i, "state", "running"));
    char *text = draw(json, &(struct top_view){.height = 10, .first = 5});
    assert_non_null(strstr(text, "ranks 5-8 of 20: up and down scroll, q quits\n"));
    assert_non_null(strstr(text, "\n   5  "));
    assert_null(strstr(text, "\n   4  "));
    assert_null(strstr(text, "\n   9  "));
    free(text);
    json_decref(json);
}

/* ---- texts of unknown origin ---- */

static void no_escape_sequence_passes(void **state)
{
    static const char *const texts[][2] = {
        {"plain \xc3\xa9 \xe2\x82\xac", "plain \xc3\xa9 \xe2\x82\xac"},
        {"\033]0;title\a", "?]0;title?"},
        {"\xc2\x9b"
         "31m",
         "?31m"},                                 /* CSI as one character */
        {"a\r\nb\tc\x7f", "a??b?c?"},             /* the line */
        {"\xe2\x80\xaenot\xe2\x81\xa6", "?not?"}, /* the direction of the text */
        {"\x9b\xff", "??"},                       /* no UTF-8 */
        {"0123456789abcdefghij", "0123456789abcdefghi"},
    };
    char out[20];
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        utf8_clean(out, sizeof out, texts[i][0], strlen(texts[i][0]));
        assert_string_equal(out, texts[i][1]);
    }
    json_t *json = parse("{'job': '\\u001b[31mx', 'waits': '\\u009b2J', 'groups': [{'name': "
                         "'\\u001bc'}], 'ranks': [{'host': '\\u001b[H', 'state': '\\u001b7', "
                         "'doing': '\\u001b8'}], 'workloads': [{'name': '\\u001bD', 'total': 1}]}");
    char *text = draw(json, &(struct top_view){0});
    assert_null(strchr(text, '\033'));
    assert_null(strstr(text, "\xc2\x9b"));
    assert_non_null(strstr(text, "?[31mx"));
    free(text);
    json_decref(json);
}

/* What another program might send in the place of a state. */
static void a_state_of_any_shape_is_drawn(void **state)
{
    static const char *const shapes[] = {"{}", "[]", "1",
                                         "{'groups': {}, 'ranks': 3, 'workloads': 'x'}",
                                         "{'groups': [1, null], 'ranks': ['x', [], {'pid': {}}]}"};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char *json = strdup(shapes[i]);
        for (char *c = json; *c; c++)
            *c = *c == '\'' ? '"' : *c;
        json_t *o = json_loads(json, JSON_DECODE_ANY, NULL);
        char *text = draw(o, &(struct top_view){.width = 80, .height = 24});
        assert_non_null(strstr(text, "ranks up"));
        free(text);
        free(json);
        json_decref(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_is_read_or_refused),
        cmocka_unit_test(the_state_has_what_is_known),
        cmocka_unit_test(the_screen_is_drawn),
        cmocka_unit_test(colours_mark_what_matters),
        cmocka_unit_test(it_fits_a_terminal_of_any_size),
        cmocka_unit_test(wide_characters_are_not_cut),
        cmocka_unit_test(ranks_without_room_are_counted),
        cmocka_unit_test(no_escape_sequence_passes),
        cmocka_unit_test(a_state_of_any_shape_is_drawn),
    };
    return cmocka_run_group_tests_name("top", tests, NULL, NULL);
}
