/* SPDX-License-Identifier: Apache-2.0
 *
 * The Python frames of a process, parsed from the text of CPython's faulthandler (3.11 to 3.14):
 *
 *   Thread 0x00007f5d4b1c2740 (most recent call first):
 *     File "/home/me/train.py", line 12 in load_batch
 *
 *  - A frame of the user's code has a place, "load_batch (train.py:12)". The standard library and
 *    collrun's package have places only in a process without other code, and installed packages
 *    only in one without code of the user, so that the first place is in the user's code.
 *  - Lines that have another form are skipped; an incomplete last line is one.
 */
#ifndef RUNNER_STACK_PYTHON_H
#define RUNNER_STACK_PYTHON_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Whose code a frame is. */
enum python_owner { PYTHON_USER, PYTHON_PACKAGE, PYTHON_LIBRARY };

struct python_frame {
    const char *path, *function;
    int line;
    enum python_owner owner;
};

struct python_thread {
    unsigned long long ident;    /* of pthread_self() */
    pid_t tid;                   /* 0: not known; the caller sets it */
    struct python_frame *frames; /* the innermost first */
    int nframes;
};

enum { PYTHON_THREADS_MAX = 128 };

struct python_stacks {
    char *text; /* owned, as `frames`; the other pointers point into it */
    struct python_frame *frames;
    struct python_thread threads[PYTHON_THREADS_MAX];
    int nthreads;             /* 0: none are known */
    enum python_owner places; /* frames of this owner have places */
};

/* Parses `text`, which it takes and changes. Without memory there are no threads. */
void python_parse(struct python_stacks *s, char *text);
void python_fini(struct python_stacks *s);

/* The frames of a thread; NULL: it runs no Python code. */
const struct python_thread *python_find(const struct python_stacks *s, pid_t tid);
/* "FUNCTION (FILE:LINE)", or "FUNCTION in FILE:LINE" for a frame without a place. */
void python_format(const struct python_stacks *s, const struct python_frame *frame, char *out,
                   size_t size);
/* The innermost frame with a place; NULL: none. */
const struct python_frame *python_place(const struct python_stacks *s,
                                        const struct python_thread *thread);
/* True if the path of a program or library is that of a Python interpreter. */
bool python_is_interpreter(const char *object);

#endif
