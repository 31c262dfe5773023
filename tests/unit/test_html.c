/* SPDX-License-Identifier: Apache-2.0
 *
 * The page of collrun report: escaping of hostile text, the sample of operations, percentiles, who
 * came last, and traces that are cut.
 */
#include "html/ops.h"
#include "html/page.h"
#include "html/run_files.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void text_is(const char *text, const char *want)
{
    char *got = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&got, &len);
    markup_text(out, text);
    fclose(out);
    assert_string_equal(got, want);
    free(got);
}

#define HIDDEN "\xef\xbf\xbd"

static void test_text(void **state)
{
    (void)state;
    text_is(NULL, "");
    text_is("a b\tc\nd", "a b\tc\nd");
    text_is("<b>&\"'", "&lt;b&gt;&amp;&quot;&#39;");
    text_is("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
    text_is("\x1b[31m\r", HIDDEN "[31m" HIDDEN);
    text_is("\xff\xc3<", HIDDEN HIDDEN "&lt;");         /* a character that is cut by markup */
    text_is("\xc0\xbc", HIDDEN HIDDEN);                 /* an overlong "<" */
    text_is("\xed\xa0\x80", HIDDEN HIDDEN HIDDEN);      /* a surrogate */
    text_is("\xe2\x80\xa8\xe2\x80\xae", HIDDEN HIDDEN); /* a line separator, right to left */
}

static void test_data(void **state)
{
    (void)state;
    char *got = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&got, &len);
    json_t *value =
        json_string("</script><!--&\xe2\x80\xa8\n\x1b\x7f\xf3\xa0\x81\x81\xf0\x9f\x98\x80\"\\");
    markup_data(out, value);
    fclose(out);
    assert_string_equal(
        got,
        "\"\\u003c/"
        "script\\u003e\\u003c!--\\u0026\\ufffd\\n\\ufffd\\ufffd\\ufffd\\uD83D\\uDE00\\\"\\\\\"");
    json_decref(value);
    free(got);
}

static void numbers_are(void (*print)(FILE *, double), double value, const char *want)
{
    char *got = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&got, &len);
    print(out, value);
    fclose(out);
    assert_string_equal(got, want);
    free(got);
}

static void test_numbers(void **state)
{
    (void)state;
    numbers_are(markup_duration, 0.25, "250 ns");
    numbers_are(markup_duration, 12.34, "12.3 µs");
    numbers_are(markup_duration, 999.9, "1.00 ms");
    numbers_are(markup_duration, 90e6, "90.0 s");
    numbers_are(markup_size, 65536, "64 KiB");
    numbers_are(markup_size, 1536, "1.5 KiB");
}

/* Operation `number` of a rank in a group of 2: it takes 10 us, rank 1 calls it 4 us late. */
static void take(struct ops *ops, uint32_t rank, uint64_t number, const char *how)
{
    ops_take(ops, &(struct op){.rank = rank,
                               .group = "world",
                               .members = 2,
                               .kind = "allreduce",
                               .state = how,
                               .number = number,
                               .bytes = 100,
                               .begin_us = 20.0 * (double)number + 4 * rank,
                               .length_us = 10});
}

static void test_last(void **state)
{
    (void)state;
    struct ops *ops = ops_new();
    struct ops_view v;
    for (uint64_t i = 1; i <= 50; i++) {
        take(ops, 1, i, "done");
        take(ops, 0, i, "done");
    }
    take(ops, 0, 51, "started"); /* rank 1 does not call it */
    ops_view(ops, &v);
    assert_int_equal(v.n, 101);
    assert_int_equal(v.compared, 50);
    assert_int_equal(v.last[0], 0);
    assert_int_equal(v.last[1], 50);
    assert_float_equal(v.waited[1], 200, 1e-6); /* rank 0 for rank 1 */
    assert_float_equal(v.waited[OPS_RANKS], 0, 1e-6);
    assert_int_equal(v.nlatencies, 1);
    assert_int_equal(v.latencies[0].n, 100);
    assert_float_equal(ops_percentile(&v.latencies[0], 0.5), 10, 0.5);
    double bytes = 0;
    for (uint32_t i = 0; i < OPS_SLICES; i++)
        bytes += v.slices[i];
    assert_float_equal(bytes, 100 * 100, 1e-6);
    assert_int_equal(v.nrows, 2);
    assert_int_equal(v.rows[0].rank, 0);
    assert_int_equal(v.rows[v.kept[0].row].rank, 1);
    ops_free(ops);
}

static void test_percentiles(void **state)
{
    (void)state;
    struct ops *ops = ops_new();
    struct ops_view v;
    for (int i = 1; i <= 1000; i++)
        ops_take(ops, &(struct op){.group = "g",
                                   .kind = "send",
                                   .message = true,
                                   .state = "done",
                                   .number = (uint64_t)i,
                                   .begin_us = i * 1e4,
                                   .length_us = i});
    ops_view(ops, &v);
    assert_float_equal(ops_percentile(&v.latencies[0], 0.5), 500, 25);
    assert_float_equal(ops_percentile(&v.latencies[0], 0.99), 990, 50);
    assert_float_equal(ops_percentile(&v.latencies[0], 1), 1000, 50);
    ops_free(ops);
}

static void test_sample(void **state)
{
    (void)state;
    struct ops *ops = ops_new();
    struct ops_view v;
    uint32_t bad = 0;
    for (uint64_t i = 1; i <= 50000; i++) {
        for (uint32_t rank = 0; rank < 2; rank++)
            take(ops, rank, i, i == 777 ? "failed" : "done");
    }
    ops_view(ops, &v);
    assert_int_equal(v.n, 100000);
    assert_true(v.nkept <= OPS_MOST && v.nkept > OPS_MOST / 2);
    for (uint32_t i = 0; i < v.nkept; i++) {
        bad += v.kept[i].number == 777;
        assert_true(v.kept[i].number % v.stride == 0 || v.kept[i].number == 777);
    }
    assert_int_equal(bad, 2);
    assert_int_equal(v.latencies[0].n, 99998); /* none is left out of the numbers */
    ops_free(ops);
}

static void test_not_numbers(void **state)
{
    (void)state;
    struct ops *ops = ops_new();
    struct ops_view v;
    const double bad[] = {NAN, HUGE_VAL, -1, 1e300};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ops_take(ops,
                 &(struct op){.group = "g", .kind = "k", .state = "done", .length_us = bad[i]});
    ops_view(ops, &v);
    assert_int_equal(v.n, 0);
    ops_free(ops);
}

static void read_trace(const char *text, uint64_t operations, uint64_t dropped)
{
    struct ops *ops = ops_new();
    struct trace_file trace;
    struct ops_view v;
    FILE *in = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    trace_file_read(&trace, in, ops);
    fclose(in);
    ops_view(ops, &v);
    assert_int_equal(v.n, operations);
    assert_int_equal(trace.dropped, dropped);
    trace_file_fini(&trace);
    ops_free(ops);
}

#define X                                                                                          \
    "{\"ph\":\"X\",\"cat\":\"collective\",\"name\":\"barrier\",\"pid\":0,\"tid\":16,\"ts\":1.5,"   \
    "\"dur\":2,\"args\":{\"seq\":1,\"state\":\"done\",\"Process Group Name\":\"world\"}}"

static void test_traces(void **state)
{
    (void)state;
    read_trace("[\n" X ",\n" X
               ",\n{\"ph\":\"M\",\"name\":\"trace_end\",\"args\":{\"dropped\":7}}\n]",
               2, 7);
    read_trace("[\n" X ",\n{\"ph\":\"X\",\"na", 1, 0); /* of a run that was killed */
    read_trace("", 0, 0);
    read_trace("]\n,\n[[[\n{}\n{\"ph\":1}\n{\"ph\":\"X\",\"ts\":[]}\n", 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),        cmocka_unit_test(test_data),
        cmocka_unit_test(test_numbers),     cmocka_unit_test(test_last),
        cmocka_unit_test(test_percentiles), cmocka_unit_test(test_sample),
        cmocka_unit_test(test_not_numbers), cmocka_unit_test(test_traces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
