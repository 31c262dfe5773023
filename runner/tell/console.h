/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun's stdout and stderr for the time of a run. Whoever reads them may pause: a pager, a
 * terminal held with Ctrl-S, a full pipe that nobody empties. Nothing here ever blocks: what cannot
 * be written yet waits in a queue, and a job is supervised, stopped and judged meanwhile. Where
 * both are one file, as on a terminal or after 2>&1, they share one queue, so that lines come out
 * in the order in which they went in.
 *
 * The queue of what the ranks print is bounded by credit (tell/output.h); collrun's own words are
 * few, and those that are not (logs, states) look at console_full first.
 */
#ifndef TELL_CONSOLE_H
#define TELL_CONSOLE_H

#include "base/loop.h"

#include <poll.h>
#include <stdio.h>

enum { CONSOLE_QUEUE_MAX = 1 << 20 };

struct console;
struct console_hooks {
    void (*writing)(void *ctx); /* something is about to be queued */
    void (*taken)(void *ctx);   /* some of the queue has been written */
    /* Writing to "stdout" or "stderr" failed, and is given up: EPIPE, ENOSPC, ... */
    void (*broken)(void *ctx, const char *which, int err);
    void *ctx;
};

struct console *console_new(void); /* NULL: no memory */
void console_free(struct console *c);
/* From now on the queues are written as this loop finds room, until attached elsewhere; NULL: only
 * by console_push. A stream that broke gets another chance. */
void console_attach(struct console *c, struct loop *loop, const struct console_hooks *hooks);

/* `stream` is 1 or 2. What was put is written by the next push, as far as there is room. */
void console_put(struct console *c, int stream, const void *bytes, size_t len);
void console_push(struct console *c);
/* What is printed here goes to stderr, line by line. */
FILE *console_voice(struct console *c);

size_t console_pending(const struct console *c);
bool console_full(const struct console *c);
/* Nothing waits, and stderr would take something now. */
bool console_ready(const struct console *c);
/* Drops what waits, but for a line that may have been begun. */
void console_forget(struct console *c);
/* Without a loop: the descriptors to wait for before the next push; how many. */
nfds_t console_poll(const struct console *c, struct pollfd p[2]);

#endif
