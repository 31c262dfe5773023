/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks print: cut into whole lines, labelled, and written to collrun's own stdout and
 * stderr without ever blocking the event loop. Lines of one stream of one rank keep their order; a
 * line is never torn by another rank's. A line longer than LINE_MAX_LEN is cut into several.
 *
 * Back-pressure: bytes that a host's agent sent are owed back to it as credit. They are returned as
 * soon as they are not in the way, that is while less than QUEUE_MAX waits for a slow reader of
 * collrun's stdout or stderr.
 */
#ifndef TELL_OUTPUT_H
#define TELL_OUTPUT_H

#include "base/buf.h"
#include "base/desc.h"
#include "base/loop.h"
#include "spec/job.h"

#include <stdio.h>

enum {
    OUTPUT_TAIL = 8 << 10,
    OUTPUT_LINE_MAX = 64 << 10,
    OUTPUT_QUEUE_MAX = 1 << 20,
    OUTPUT_CREDIT = 256 << 10
};

struct output;
struct output_hooks {
    void (*credit)(void *ctx, uint32_t host,
                   uint32_t bytes); /* the agent of this host may send as many more */
    void (*writing)(void *ctx);     /* something is about to be written */
    /* Writing to stdout or stderr failed, and is given up: EPIPE, ENOSPC, ... */
    void (*broken)(void *ctx, const char *which, int err);
    void *ctx;
};

struct output *output_new(struct loop *loop, const struct job *job, const struct desc *desc,
                          struct output_hooks hooks);
void output_free(struct output *o);
void output_take(struct output *o, uint32_t rank, uint8_t stream, uint64_t realtime_ns,
                 const void *bytes, size_t len);
/* A line of collrun's own on stderr, among those of the ranks. */
void output_say(struct output *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A line that has no end yet is written as it is, with a newline. */
void output_end_rank(struct output *o, uint32_t rank);
/* The last lines that a rank wrote to stderr, each behind `prefix`. */
void output_last_words(const struct output *o, uint32_t rank, unsigned lines, const char *prefix,
                       FILE *to);
/* What waits for a reader who does not come is dropped, and so is what follows. */
void output_give_up(struct output *o);
/* Writes what waits, blocking, until the deadline (monotonic ns) at most. False: some is left. */
bool output_drain(struct output *o, uint64_t deadline_ns);

#endif
