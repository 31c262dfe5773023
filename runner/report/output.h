/* SPDX-License-Identifier: Apache-2.0
 *
 * The output of the ranks: cut into lines, labelled, and queued on the console.
 * - The lines of one stream of one rank keep their order, and lines of different ranks are never
 *   mixed.
 * - On a terminal, and of a rank that reads collrun's stdin, a line that is not complete is shown
 *   after OUTPUT_PART_NS, and its rest follows: a prompt, a progress bar. So are the parts of a
 *   line longer than OUTPUT_LINE_MAX. Only what another rank or collrun shows meanwhile cuts such a
 *   line.
 * - With `logging.console.fold`, equal lines of several ranks are shown once (report/fold.h), at
 *   most FOLD_WINDOW_NS after the first.
 * - Back-pressure: the bytes that an agent sent are returned to it as credit while the console is
 *   not full, nor the queue of the files.
 */
#ifndef RUNNER_REPORT_OUTPUT_H
#define RUNNER_REPORT_OUTPUT_H

#include "base/buf.h"
#include "base/desc.h"
#include "report/console.h"
#include "spec/job.h"

#include <stdio.h>

enum { OUTPUT_TAIL = 8 << 10, OUTPUT_LINE_MAX = 64 << 10, OUTPUT_CREDIT = 256 << 10 };
/* Lines of the culprit's stderr that the verdict repeats, unless all of them stand among so many
 * lines of the console above it. */
enum { OUTPUT_TAIL_LINES = 32, OUTPUT_SHOWN_ABOVE = 64 };

#define OUTPUT_PART_NS 200000000ull

struct output;
struct output_hooks {
    void (*credit)(void *ctx, uint32_t host,
                   uint32_t bytes); /* the agent of this host may send that many bytes more */
    bool (*full)(void *ctx);        /* another file of the output is behind; NULL: none */
    void *ctx;
};

/* `loop` is needed to fold lines, and for OUTPUT_PART_NS. */
struct output *output_new(struct console *console, struct loop *loop, const struct job *job,
                          const struct desc *desc, struct output_hooks hooks);
void output_free(struct output *o);
void output_add(struct output *o, uint32_t rank, uint8_t stream, uint64_t realtime_ns,
                const void *bytes, size_t len);
/* Shows the lines of the rank that wait for equal ones of others. */
void output_show_rank(struct output *o, uint32_t rank);
/* The same for all ranks: before the verdict. */
void output_show_all(struct output *o);
/* Prints a message of collrun on stderr; while the console is full it is dropped and counted. */
void output_message(struct output *o, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The rank writes no more: writes an unfinished line, with a newline. */
void output_end_rank(struct output *o, uint32_t rank);
/* Prints the last lines that a rank wrote to stderr, each after `prefix`. False: it wrote none. */
bool output_stderr_tail(const struct output *o, uint32_t rank, unsigned lines, const char *prefix,
                        FILE *to);
/* The last line that a rank wrote to stderr, without control characters; "" if it wrote none. */
void output_stderr_last(const struct output *o, uint32_t rank, char *out, size_t size);
/* True: its last OUTPUT_TAIL_LINES lines, or all that it wrote, stand on the console, not far above
 * the next line. */
bool output_tail_is_shown(const struct output *o, uint32_t rank);
/* The console or the queue of the files has room again. */
void output_refund(struct output *o);
/* All ranks have exited. The rest of their pipes is small, and is accepted even if the console is
 * full, so that the end of the job does not wait for a reader. */
void output_flush_lines(struct output *o);
/* Drops the queued output and all later output, without waiting for the reader of the console. */
void output_give_up(struct output *o);

#endif
