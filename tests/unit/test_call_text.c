/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of a call: one format for every kind, with and without group and number.
 */
#include "base/call_text.h"

#include "base/names.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static size_t room;

static void every_kind_shows_what_it_has(void **state)
{
    static const struct collrun_user_op argmax = {.name = "argmax"};
    static const struct {
        struct collrun_call call;
        const char *text;
    } cases[] = {
        {{.kind = COLLRUN_BARRIER, .count = 3}, "barrier()"},
        {{.kind = COLLRUN_ALLREDUCE, .count = 8, .dtype = COLLRUN_FLOAT32, .op = COLLRUN_SUM},
         "allreduce(8 x float32, sum)"},
        {{.kind = COLLRUN_REDUCE, .count = 1, .dtype = COLLRUN_INT8, .op = COLLRUN_BXOR, .root = 2},
         "reduce(1 x int8, bxor, root 2)"},
        {{.kind = COLLRUN_BROADCAST, .count = 0, .dtype = COLLRUN_BOOL, .root = -1},
         "broadcast(0 x bool)"},
        {{.kind = COLLRUN_GATHERV, .count = 5, .dtype = COLLRUN_FLOAT64, .root = 0},
         "gatherv(float64, root 0)"},
        {{.kind = COLLRUN_SEND, .count = 10, .dtype = COLLRUN_INT32, .peer = 1, .tag = 3},
         "send(10 x int32, to 1, tag 3)"},
        {{.kind = COLLRUN_RECV, .count = 10, .dtype = COLLRUN_INT32, .peer = 0},
         "recv(10 x int32, from 0)"},
        {{.kind = COLLRUN_RECV_ANY, .count = 10, .dtype = COLLRUN_INT32, .peer = 7, .tag = 4},
         "recv_any(10 x int32, tag 4)"},
        {{.kind = COLLRUN_SCAN, .count = 8, .dtype = COLLRUN_FLOAT32, .op = COLLRUN_SUM},
         "scan(8 x float32, sum)"},
        {{.kind = COLLRUN_EXSCAN, .count = 2, .dtype = COLLRUN_INT64, .op = COLLRUN_MAX},
         "exscan(2 x int64, max)"},
        {{.size = sizeof(struct collrun_call),
          .kind = COLLRUN_ALLREDUCE,
          .count = 8,
          .dtype = COLLRUN_FLOAT32,
          .user_op = &argmax},
         "allreduce(8 x float32, user op argmax)"},
        /* As a record shows it, and a call that ends before user_op. */
        {{.kind = COLLRUN_REDUCE, .count = 8, .op = (enum collrun_op)OP_USER, .root = 1},
         "reduce(8 x int8, user op, root 1)"},
        {{.size = offsetof(struct collrun_call, user_op),
          .kind = COLLRUN_ALLREDUCE,
          .count = 1,
          .user_op = &argmax},
         "allreduce(1 x int8, sum)"},
        {{.size = sizeof(struct collrun_call),
          .kind = COLLRUN_RECV,
          .count = 10,
          .dtype = COLLRUN_INT32,
          .peer = 0,
          .tag = COLLRUN_ANY_TAG,
          .received = &room},
         "recv(up to 10 x int32, from 0, any tag)"},
        {{.kind = KIND_PROBE, .peer = 2, .tag = 7}, "probe(from 2, tag 7)"},
        {{.kind = KIND_PROBE, .peer = -1, .tag = COLLRUN_ANY_TAG}, "probe(any tag)"},
        {{.kind = KIND_PROBE, .peer = -1}, "probe()"},
        {{.kind = (enum collrun_kind)99, .dtype = (enum collrun_dtype)99}, "?(0 x ?)"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[CALL_TEXT_LEN];
        call_text(&cases[i].call, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
}

static void group_and_number_stand_between_kind_and_arguments(void **state)
{
    char text[CALL_TEXT_LEN];
    const struct collrun_call sum = {
        .kind = COLLRUN_ALLREDUCE, .count = 8, .dtype = COLLRUN_FLOAT32, .op = COLLRUN_SUM};
    const struct collrun_call barrier = {.kind = COLLRUN_BARRIER};
    (void)state;
    call_text_numbered(&sum, "train", 1042, text, sizeof text);
    assert_string_equal(text, "allreduce train#1042 (8 x float32, sum)");
    call_text_numbered(&barrier, "train", 7, text, sizeof text);
    assert_string_equal(text, "barrier train#7");
}

static void a_short_buffer_cuts_the_text(void **state)
{
    char text[10];
    const struct collrun_call barrier = {.kind = COLLRUN_BARRIER};
    (void)state;
    memset(text, 'x', sizeof text);
    call_text(&barrier, text, 5);
    assert_string_equal(text, "barr");
    assert_int_equal(text[5], 'x');
}

static void every_signal_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(signal_name(SIGKILL), "SIGKILL");
    assert_string_equal(signal_name(SIGRTMIN), "SIGRTMIN+0");
    assert_string_equal(signal_name(SIGRTMIN + 3), "SIGRTMIN+3");
    assert_string_equal(signal_name(0), "signal 0");
    assert_string_equal(signal_name(127), "signal 127");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_shows_what_it_has),
        cmocka_unit_test(group_and_number_stand_between_kind_and_arguments),
        cmocka_unit_test(every_signal_has_a_name),
        cmocka_unit_test(a_short_buffer_cuts_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
