/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of devices as lines, their text, and the pools that a mask selects.
 */
#include "base/devices.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ID "GPU-fa4e0000-0000-4000-8000-00000000000"

static struct arena arena;
static struct device eight[] = {
    {ID "0", "H200", "0-7"}, {ID "1", "H200", "0-7"}, {ID "2", "H200", ""}, {ID "3", "H200", ""},
    {ID "4", "H200", ""},    {ID "5", "H200", ""},    {ID "6", "H200", ""}, {ID "7", "H200", ""}};
static const struct devices all = {eight, 8, ""};

static int open_all(void **state)
{
    (void)state;
    arena_init(&arena);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

static struct devices read_text(const char *text)
{
    struct devices out;
    devices_read(text, strlen(text), &arena, &out);
    return out;
}

static void a_list_survives_its_lines(void **state)
{
    (void)state;
    struct device two[] = {{"hpu-1", "Pretend\tHPU\nv2", "0-3"}, {"hpu-2", "", ""}};
    const struct devices written = {two, 2, "one is broken"};
    struct buf lines;
    buf_init(&lines);
    devices_write(&written, &lines);
    assert_true(devices_complete((const char *)lines.data, lines.len));
    struct devices got;
    devices_read((const char *)lines.data, lines.len, &arena, &got);
    buf_fini(&lines);
    assert_int_equal(got.n, 2);
    assert_string_equal(got.items[0].id, "hpu-1");
    assert_string_equal(got.items[0].model, "Pretend HPU v2"); /* one line per device */
    assert_string_equal(got.items[0].cpus, "0-3");
    assert_string_equal(got.items[1].id, "hpu-2");
    assert_string_equal(got.items[1].model, "");
    assert_string_equal(got.items[1].cpus, "");
    assert_string_equal(got.reason, "one is broken");
}

static void lines_that_are_cut_are_incomplete(void **state)
{
    (void)state;
    static const char text[] = "device\ta\tM\t0\nend\n";
    for (size_t len = 0; len < sizeof text - 1; len++) {
        struct devices got;
        devices_read(text, len, &arena, &got);
        assert_false(devices_complete(text, len));
        assert_true(got.n <= 1);
    }
    assert_true(devices_complete(text, sizeof text - 1));
    assert_true(devices_complete("end\n", 4));
    assert_false(devices_complete("bend\n", 5));
}

static void lines_of_others_are_skipped(void **state)
{
    (void)state;
    struct devices got = read_text("hello\n\ndevices\tx\ndevice\ta\nreason\twhy\nend\n");
    assert_int_equal(got.n, 1);
    assert_string_equal(got.items[0].id, "a");
    assert_string_equal(got.items[0].cpus, "");
    assert_string_equal(got.reason, "why");
}

static void the_text_names_the_models(void **state)
{
    (void)state;
    struct device items[] = {{"a", "A100", ""}, {"b", "T4", ""}, {"c", "A100", ""}, {"d", "", ""}};
    const struct devices same = {items, 1, ""}, two = {items, 3, ""}, unknown = {items + 3, 1, ""};
    const struct devices none = {items, 0, "no driver"};
    assert_string_equal(devices_text(&all, "GPU", &arena), "8 x H200");
    assert_string_equal(devices_text(&same, "GPU", &arena), "1 x A100");
    assert_string_equal(devices_text(&two, "GPU", &arena), "3 (A100, T4)");
    assert_string_equal(devices_text(&unknown, "HPU", &arena), "1 x HPU");
    assert_string_equal(devices_text(&none, "GPU", &arena), "none (no driver)");
}

/* The last characters of the ids in a pool. */
static const char *pool(const struct devices *from, const char *mask)
{
    static char text[32];
    struct devices out;
    struct diag d;
    assert_int_equal(devices_pool(from, "MASK", mask, &arena, &out, &d), 0);
    memset(text, 0, sizeof text);
    for (uint32_t i = 0; i < out.n; i++)
        text[i] = out.items[i].id[strlen(out.items[i].id) - 1];
    return text;
}

static void a_mask_selects_devices_as_cuda_reads_it(void **state)
{
    (void)state;
    assert_string_equal(pool(&all, NULL), "01234567");
    assert_string_equal(pool(&all, "6,0"), "60");
    assert_string_equal(pool(&all, " 3 , " ID "5"), "35");
    assert_string_equal(pool(&all, ID "4,1"), "41");
    assert_string_equal(pool(&all, "2,8,1"), "2"); /* an invalid entry ends the list */
    assert_string_equal(pool(&all, "2,-1,1"), "2");
    assert_string_equal(pool(&all, "2,x,1"), "2");
    assert_string_equal(pool(&all, ""), "");
    assert_string_equal(pool(&all, "NoDevFiles"), "");
    assert_string_equal(pool(&all, "2,GPU-fa4e,1"), "2"); /* an ambiguous prefix */
    assert_string_equal(pool(&all, "2,GPU,1"), "2");      /* a short one */
    assert_string_equal(pool(&all, "2,1," ID "2"), "");   /* twice: CUDA shows none */
}

static void a_whole_id_may_be_short_and_a_prefix_of_another(void **state)
{
    (void)state;
    struct device items[] = {{"hpu1", "", ""}, {"hpu10", "", ""}, {"hpu2", "", ""}};
    const struct devices three = {items, 3, ""};
    assert_string_equal(pool(&three, "hpu2,hpu1"), "21");
    assert_string_equal(pool(&three, "HPU10"), "0");
}

/* If the mask is the reason, the error explains it. */
static void a_mask_that_leaves_too_few_is_explained(void **state)
{
    static const struct {
        const char *mask, *reason;
    } cases[] = {
        {NULL, ""},
        {"7,6,5,4,3,2,1,0", ""},
        {"", "MASK= leaves none of 8"},
        {"9", "MASK=9 leaves none of 8: \"9\" names none"},
        {"3", "MASK=3 leaves 1 of 8"},
        {"0,GPU-dead,1", "MASK=0,GPU-dead,1 leaves 1 of 8: \"GPU-dead\" names no whole device"},
        {"1,1", "MASK=1,1 leaves none of 8: \"1\" is listed twice, which leaves none"},
        {"GPU-fa4e", "MASK=GPU-fa4e leaves none of 8: \"GPU-fa4e\" names several"},
        {"MIG-1/2", "MASK=MIG-1/2 leaves none of 8: \"MIG-1/2\" names no whole device"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct devices out;
        struct diag d;
        assert_int_equal(devices_pool(&all, "MASK", cases[i].mask, &arena, &out, &d), 0);
        assert_string_equal(out.reason, cases[i].reason);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_survives_its_lines),
        cmocka_unit_test(lines_that_are_cut_are_incomplete),
        cmocka_unit_test(lines_of_others_are_skipped),
        cmocka_unit_test(the_text_names_the_models),
        cmocka_unit_test(a_mask_selects_devices_as_cuda_reads_it),
        cmocka_unit_test(a_whole_id_may_be_short_and_a_prefix_of_another),
        cmocka_unit_test(a_mask_that_leaves_too_few_is_explained),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
