/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace of a run: a file that a thread writes while the job runs (trace/writer.h), so that a
 * run that is killed leaves a file that opens.
 *
 * - What is to be written waits in a queue of TRACE_QUEUE bytes at most. While the disk is slower
 *   than the job, frames that find no room are dropped and counted; the runner never waits for the
 *   disk, and no memory grows.
 * - A failed write ends the file; the job continues.
 * - trace_close waits TRACE_CLOSE_MS at most for the disk.
 *
 * All functions are called by the thread that opened it.
 */
#ifndef RUNNER_TRACE_TRACE_H
#define RUNNER_TRACE_TRACE_H

#include "trace/writer.h"

enum { TRACE_QUEUE = 32 << 20, TRACE_CLOSE_MS = 10000 };

struct trace;

/* Creates the file, or empties it; `follow`: also behind a link. `desc` is borrowed. NULL: *d says
 * why. */
struct trace *trace_open(const char *path, bool follow, const struct desc *desc, uint64_t begin_ns,
                         struct diag *d);
/* NULL is fine, here and below. `payload` is copied. */
void trace_frame(struct trace *t, const struct trace_frame *f);
/* The texts are copied. */
void trace_instant(struct trace *t, const struct trace_instant *i);

struct trace_result {
    uint64_t operations, dropped;
    int err;    /* errno of the first failed write; 0: none */
    bool stuck; /* the disk has not taken everything in time */
};
/* Ends the file and frees `t`. */
struct trace_result trace_close(struct trace *t, int exit_code);

#endif
