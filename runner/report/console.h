/* SPDX-License-Identifier: Apache-2.0
 *
 * stdout and stderr of collrun during a run. Their reader may pause: a pager, a terminal stopped
 * with Ctrl-S, a full pipe; the disk of a file may stall. No function here blocks: bytes that
 * cannot be written yet wait in a queue, while the job is supervised, stopped and judged.
 *
 * - If both are one file, as on a terminal or after 2>&1, they share one queue, so that lines keep
 *   their order.
 * - The queue of the ranks' output is bounded by credit (report/output.h). collrun's own messages
 *   are few; the frequent ones (logs, states) check console_full first.
 */
#ifndef RUNNER_REPORT_CONSOLE_H
#define RUNNER_REPORT_CONSOLE_H

#include "base/loop.h"

#include <poll.h>
#include <stdio.h>

enum { CONSOLE_QUEUE_MAX = 1 << 20 };

struct console;
struct console_hooks {
    void (*writing)(void *ctx); /* bytes are about to be queued */
    void (*written)(void *ctx); /* a part of the queue has been written */
    /* Writing to "stdout" or "stderr" failed and is not tried again: EPIPE, ENOSPC, ... */
    void (*broken)(void *ctx, const char *which, int err);
    void *ctx;
};

struct console *console_new(void);
void console_free(struct console *c);
/* Writes the queues from this loop until the next attach; NULL: only console_push writes. A stream
 * that failed is tried again. */
void console_attach(struct console *c, struct loop *loop, const struct console_hooks *hooks);

/* Queues bytes for `stream` 1 or 2; the next push writes them as far as there is room. */
void console_put(struct console *c, int stream, const void *bytes, size_t len);
/* The same, for bytes that are made for the terminal: see console_set_raw. */
void console_put_as_is(struct console *c, int stream, const void *bytes, size_t len);
/* Queues lines, each behind a label. `text`: with a newline between two lines, and none behind the
 * last one. Returns their number. */
uint64_t console_put_lines(struct console *c, int stream, const char *label, size_t label_len,
                           const char *text, size_t len);
/* Queues a part of a line behind a label, or the next part of the line that is open. Whatever else
 * is queued for the file ends the line first. */
void console_put_part(struct console *c, int stream, const char *label, size_t label_len,
                      const char *text, size_t len);
void console_end_part(struct console *c, int stream); /* ends the line, if it is open */
bool console_part_is_open(const struct console *c, int stream);
bool console_is_terminal(const struct console *c, int stream);
/* The terminal does not return at the end of a line (run/stdin_feed.h): console_put does, and
 * console_put_lines. */
void console_set_raw(struct console *c, bool raw);
void console_push(struct console *c);
/* A FILE whose lines are queued for stderr. */
FILE *console_stderr(struct console *c);
/* Equal at two times: no line was queued for the file of stderr between them. */
uint64_t console_lines(const struct console *c);

size_t console_pending(const struct console *c); /* bytes that are not written */
bool console_full(const struct console *c);
/* True: the queues are empty and stderr has room. */
bool console_ready(const struct console *c);
/* Drops the queues, except the rest of a line that may be partly written. */
void console_forget(struct console *c);
/* Without a loop: fills in the descriptors to poll before the next push; returns their number. */
nfds_t console_poll(const struct console *c, struct pollfd p[2]);

#endif
