/* SPDX-License-Identifier: Apache-2.0
 *
 * processes.stdin: the standard input of collrun for one rank, or a copy for each.
 *
 *  - It is read from when all ranks run, and only while the pipes of the ranks take it: a rank that
 *    does not read holds back the others' copies, and the writer before collrun.
 *  - A rank that has closed its input, or exited, is left out.
 *  - The next attempt of a restarted job reads on where this one has stopped.
 *  - The rank that has the terminal (desc.terminal) gets every key, from when all ranks are
 *    processes: it may be a debugger that has not begun to run the program.
 */
#ifndef RUNNER_RUN_STDIN_FEED_H
#define RUNNER_RUN_STDIN_FEED_H

#include "base/desc.h"
#include "report/console.h"
#include "run/run_state.h"

#include <termios.h>

/* The terminal of collrun, while a rank has it (collrun JOB --wrap RANK COMMAND): every key goes to
 * the rank, Ctrl-C and Ctrl-Z too, and the terminal shows what the rank writes as it is. */

struct terminal {
    bool taken;
    struct termios before;
};

/* Whether standard input and output are one terminal, with this process in its foreground. Fills in
 * all but the rank. */
bool terminal_describe(struct desc_terminal *out);
/* The size of the terminal; 24 rows of 80 characters if it has none. */
void terminal_size(uint16_t *rows, uint16_t *columns);
void terminal_take(struct terminal *t);
/* Restores it. No effect if it is not taken. */
void terminal_give(struct terminal *t);

struct stdin_feed {
    struct run_state *run;
    struct console *console;
    struct loop_fd watch;
    struct terminal terminal;
    bool started, ended;
    bool always;           /* a file, which the loop cannot watch: it can always be read */
    uint32_t *outstanding; /* by rank: bytes that its pipe has not taken */
    bool *closed;          /* by rank: it reads no more, or is no reader */
};

void stdin_feed_start(struct stdin_feed *f);
/* STDIN_TAKEN. False: it is malformed. */
bool stdin_feed_on_taken(struct stdin_feed *f, const struct wire_frame *frame);
/* A rank has exited: the others need not wait for it. */
void stdin_feed_on_exit(struct stdin_feed *f);
void stdin_feed_stop(struct stdin_feed *f);
/* The terminal has another size. */
void stdin_feed_resize(const struct stdin_feed *f);
/* collrun is about to be stopped (Ctrl-Z by another process), and goes on. */
void stdin_feed_suspend(struct stdin_feed *f);
void stdin_feed_resume(struct stdin_feed *f);

#endif
