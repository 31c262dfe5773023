/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of faulthandler: threads, frames, whose code a frame is, and damaged text.
 */
#include "stack/python.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct python_stacks stacks;

static void parse(const char *text)
{
    python_fini(&stacks);
    python_parse(&stacks, strdup(text));
}

static int end(void **state)
{
    (void)state;
    python_fini(&stacks);
    return 0;
}

static void frame_is(int thread, int frame, const char *expected)
{
    char text[256];
    assert_true(thread <= stacks.nthreads - 1);
    assert_true(frame <= stacks.threads[thread].nframes - 1);
    python_format(&stacks, &stacks.threads[thread].frames[frame], text, sizeof text);
    assert_string_equal(text, expected);
}

static void place_is(int thread, const char *expected)
{
    char text[256];
    const struct python_frame *f = python_place(&stacks, &stacks.threads[thread]);
    assert_non_null(f);
    python_format(&stacks, f, text, sizeof text);
    assert_string_equal(text, expected);
}

static void threads_and_their_frames(void **state)
{
    (void)state;
    parse("Thread 0x00007f01aa (most recent call first):\n"
          "  File \"/usr/lib/python3.11/threading.py\", line 327 in wait\n"
          "  File \"/home/me/my \", line 3/train.py\", line 12 in <lambda>\n"
          "\n"
          "Current thread 0x00007f01bb [MainThread] (most recent call first):\n"
          "  File \"late.py\", line 17 in step\n"
          "  File \"late.py\", line 20 in <module>\n"
          "end\n");
    assert_int_equal(stacks.nthreads, 2);
    assert_true(stacks.threads[0].ident == 0x7f01aa && stacks.threads[1].ident == 0x7f01bb);
    assert_int_equal(stacks.threads[0].nframes, 2);
    frame_is(0, 0, "wait in threading.py:327");
    frame_is(0, 1, "<lambda> (train.py:12)");
    place_is(0, "<lambda> (train.py:12)");
    frame_is(1, 0, "step (late.py:17)");
    frame_is(1, 1, "<module> (late.py:20)");
    stacks.threads[1].tid = 42;
    assert_ptr_equal(python_find(&stacks, 42), &stacks.threads[1]);
    assert_null(python_find(&stacks, 43));
}

#define LIBRARY                                                                                    \
    "Thread 0x1 (most recent call first):\n"                                                       \
    "  File \"<frozen runpy>\", line 88 in _run_code\n"                                            \
    "  File \"/opt/collrun/python/collrun/ray.py\", line 5 in f\n"                                 \
    "  File \"/usr/lib/python3.11/queue.py\", line 171 in get\n"
#define PACKAGE "  File \"/v/lib/python3.11/site-packages/torch/d.py\", line 633 in __next__\n"
#define USER "  File \"/lib/me/train.py\", line 4 in train\n"

static void the_first_place_is_in_the_code_of_the_user(void **state)
{
    (void)state;
    parse(LIBRARY);
    place_is(0, "_run_code (<frozen runpy>:88)");
    parse(LIBRARY PACKAGE);
    frame_is(0, 0, "_run_code in <frozen runpy>:88");
    frame_is(0, 1, "f in ray.py:5");
    place_is(0, "__next__ (d.py:633)");
    parse(LIBRARY PACKAGE USER);
    frame_is(0, 3, "__next__ in d.py:633");
    place_is(0, "train (train.py:4)");
}

static void other_lines_are_skipped(void **state)
{
    (void)state;
    parse("  File \"a.py\", line 1 in before_any_thread\n"
          "Thread 0x (most recent call first):\n"
          "Thread 0x9 and no more\n"
          "Thread 0x1 (most recent call first):\n"
          "  <no Python frame>\n"
          "  File ???, line ??? in ???\n"
          "  File \"a.py\", line ??? in f\n"
          "  File \"a.py\", line 0 in f\n"
          "  File \"a.py\", line 99999999999 in f\n"
          "  File \"a.py\", line 5 in \n"
          "  File \"a.py\"\n"
          "  File \"\n"
          "  File \"a.py\", line 7 in g\n"
          "  ...\n"
          "  File \"a.py\", line 8 in incomplete");
    assert_int_equal(stacks.nthreads, 1);
    assert_int_equal(stacks.threads[0].nframes, 1);
    frame_is(0, 0, "g (a.py:7)");
    parse("");
    assert_int_equal(stacks.nthreads, 0);
    parse("Thread 0x1 (most recent call first):\nend\n");
    assert_null(python_place(&stacks, &stacks.threads[0]));
}

static void more_threads_than_there_is_room_for(void **state)
{
    (void)state;
    static const char line[] = "Thread 0x1 (most recent call first):\n";
    static char text[2 * PYTHON_THREADS_MAX * sizeof line];
    for (int i = 0; i < 2 * PYTHON_THREADS_MAX; i++)
        memcpy(text + (size_t)i * (sizeof line - 1), line, sizeof line);
    parse(text);
    assert_int_equal(stacks.nthreads, PYTHON_THREADS_MAX);
}

static void which_object_is_the_interpreter(void **state)
{
    (void)state;
    assert_true(python_is_interpreter("/usr/bin/python3.11"));
    assert_true(python_is_interpreter("/opt/conda/lib/libpython3.13.so.1.0"));
    assert_false(python_is_interpreter("/python/_collrun.abi3.so"));
    assert_false(python_is_interpreter(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(threads_and_their_frames, end),
        cmocka_unit_test_teardown(the_first_place_is_in_the_code_of_the_user, end),
        cmocka_unit_test_teardown(other_lines_are_skipped, end),
        cmocka_unit_test_teardown(more_threads_than_there_is_room_for, end),
        cmocka_unit_test_teardown(which_object_is_the_interpreter, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
