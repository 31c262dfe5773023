/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of a trace, in the JSON array format of the Trace Event Format, one event a line; see
 * collrun-trace(5) for the events. It appends to a buffer, which its caller writes to the file. No
 * I/O; memory is bounded by the ranks and the groups of the job.
 */
#ifndef RUNNER_TRACE_WRITER_H
#define RUNNER_TRACE_WRITER_H

#include "base/buf.h"
#include "base/desc.h"

struct trace_writer;

/* `desc` is borrowed. Times in the trace begin at `begin_ns`. */
struct trace_writer *trace_writer_new(const struct desc *desc, uint64_t begin_ns);
void trace_writer_free(struct trace_writer *w); /* NULL: no effect */
/* What has been written since; the caller consumes it. */
struct buf *trace_writer_out(struct trace_writer *w);

void trace_writer_begin(struct trace_writer *w);

struct trace_frame { /* of WIRE_TRACE */
    const void *payload;
    size_t len;
    uint32_t rank, attempt;
    int64_t ahead_ns; /* the clock of its host is ahead of ours */
};
/* False: malformed. */
bool trace_writer_frame(struct trace_writer *w, const struct trace_frame *f);
/* The number of operations in a frame; 0 if it is malformed. */
uint32_t trace_writer_count(const struct trace_frame *f);

struct trace_instant {
    uint64_t ns;      /* CLOCK_MONOTONIC here; trace_instant: 0: now */
    uint32_t rank;    /* WIRE_HOST: the job */
    const char *name; /* "stall" */
    const char *key;  /* a further member; NULL: none */
    const char *value;
    const char *text; /* NULL: none */
};
void trace_writer_instant(struct trace_writer *w, const struct trace_instant *i);
/* Operations that did not reach the file. */
void trace_writer_drop(struct trace_writer *w, uint32_t rank, uint64_t ns, uint64_t operations);

struct trace_totals {
    uint64_t operations, dropped;
};
struct trace_totals trace_writer_totals(const struct trace_writer *w);
void trace_writer_end(struct trace_writer *w, int exit_code);

#endif
