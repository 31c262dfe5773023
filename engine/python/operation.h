/* SPDX-License-Identifier: Apache-2.0
 *
 * One operation of a group with the memory that it uses: filled by calls.c, then run (blocking, in
 * the caller's stack) or started (on the heap, owned by a request).
 *
 * A request that the program drops while it is in flight is detached: the operation keeps its
 * buffers until it has ended, and is freed by a later call or at the end of the rank.
 */
#ifndef PYTHON_OPERATION_H
#define PYTHON_OPERATION_H

#include "buffer.h"
#include "extension.h"

struct operation {
    struct group *group; /* owned */
    struct collrun_call call[2];
    int ncalls;
    int async;
    struct buffer buffers[2];
    size_t *counts;   /* 4 arrays of `size` entries, for the forms with counts; NULL: none yet */
    int source;       /* recv_any */
    PyObject *result; /* the array with the result, owned; NULL: None */
    struct collrun_request *request;
    struct operation *next; /* in the list of detached operations */
};

/* `room` is used by a blocking operation; an asynchronous one is allocated. NULL: no memory. */
struct operation *operation_begin(struct operation *room, struct group *g, enum collrun_kind kind,
                                  int async);
/* Runs a blocking operation and frees it. Returns its result, or NULL with an exception. */
PyObject *operation_run(struct operation *op);
/* Starts an asynchronous one. 0; or -1 with an exception, and `op` is freed. */
int operation_start(struct operation *op);
/* Waits for an operation that was started, for 20 ms or until `deadline` (operation_now), whichever
 * is earlier: the status, or AGAIN. The caller then runs the handlers of signals. */
uint64_t operation_now(void);
int operation_poll(struct operation *op, uint64_t deadline);
/* What the method or wait() returns for an operation that has ended well. A new reference. */
PyObject *operation_result(const struct operation *op);
/* Instead of run or start, after a failure. NULL. */
PyObject *operation_discard(struct operation *op);

/* Entry `which` (0 to 3) of op->counts; NULL: no memory, with an exception. */
size_t *operation_counts(struct operation *op, int which);

/* The operation of a request is over: releases its memory. */
void operation_complete(struct operation *op);
void operation_free(struct operation *op);
void operation_detach(struct operation *op);
/* Frees detached operations that have ended. */
void operation_sweep(void);

#endif
