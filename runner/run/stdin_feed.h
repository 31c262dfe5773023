/* SPDX-License-Identifier: Apache-2.0
 *
 * processes.stdin: the standard input of collrun for one rank, or a copy for each.
 *
 *  - It is read from when all ranks run, and only while the pipes of the ranks take it: a rank that
 *    does not read holds back the others' copies, and the writer before collrun.
 *  - A rank that has closed its input, or exited, is left out.
 *  - The next attempt of a restarted job reads on where this one has stopped.
 */
#ifndef RUNNER_RUN_STDIN_FEED_H
#define RUNNER_RUN_STDIN_FEED_H

#include "run/run_state.h"

struct stdin_feed {
    struct run_state *run;
    struct loop_fd watch;
    bool started, ended;
    bool always;           /* a file, which the loop cannot watch: it can always be read */
    uint32_t *outstanding; /* by rank: bytes that its pipe has not taken */
    bool *closed;          /* by rank: it reads no more, or is no reader */
};

/* All ranks run. */
void stdin_feed_start(struct stdin_feed *f);
/* STDIN_TAKEN. False: it is malformed. */
bool stdin_feed_on_taken(struct stdin_feed *f, const struct wire_frame *frame);
/* A rank has exited: the others need not wait for it. */
void stdin_feed_on_exit(struct stdin_feed *f);
void stdin_feed_stop(struct stdin_feed *f);

#endif
