/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks print: cut into whole lines, labelled, and put to the console. Lines of one stream
 * of one rank keep their order; a line is never torn by another rank's. A line longer than
 * OUTPUT_LINE_MAX is cut into several.
 *
 * Back-pressure: bytes that a host's agent sent are owed back to it as credit. They are returned as
 * soon as they are not in the way, that is while the console is not full.
 */
#ifndef TELL_OUTPUT_H
#define TELL_OUTPUT_H

#include "base/buf.h"
#include "base/desc.h"
#include "spec/job.h"
#include "tell/console.h"

#include <stdio.h>

enum { OUTPUT_TAIL = 8 << 10, OUTPUT_LINE_MAX = 64 << 10, OUTPUT_CREDIT = 256 << 10 };

struct output;
struct output_hooks {
    void (*credit)(void *ctx, uint32_t host,
                   uint32_t bytes); /* the agent of this host may send as many more */
    void *ctx;
};

struct output *output_new(struct console *console, const struct job *job, const struct desc *desc,
                          struct output_hooks hooks);
void output_free(struct output *o);
void output_take(struct output *o, uint32_t rank, uint8_t stream, uint64_t realtime_ns,
                 const void *bytes, size_t len);
/* A line of collrun's own on stderr, among those of the ranks; dropped, and counted, while the
 * console is full. */
void output_say(struct output *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A line that has no end yet is written as it is, with a newline. */
void output_end_rank(struct output *o, uint32_t rank);
/* The last lines that a rank wrote to stderr, each behind `prefix`. */
void output_last_words(const struct output *o, uint32_t rank, unsigned lines, const char *prefix,
                       FILE *to);
/* The console has room again. */
void output_refund(struct output *o);
/* No rank runs any more. What is left in their pipes is little enough to be taken at once, so that
 * the end of the job does not wait for a reader. */
void output_take_rest(struct output *o);
/* What waits for a reader who does not come is dropped, and so is what follows. */
void output_give_up(struct output *o);

#endif
