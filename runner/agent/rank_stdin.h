/* SPDX-License-Identifier: Apache-2.0
 *
 * The standard input of a rank that reads that of collrun (processes.stdin): a pipe, and what does
 * not fit into it. The runner sends no more than WIRE_STDIN_WINDOW bytes ahead of STDIN_TAKEN.
 */
#ifndef RUNNER_AGENT_RANK_STDIN_H
#define RUNNER_AGENT_RANK_STDIN_H

#include "base/buf.h"
#include "base/loop.h"
#include "base/wire.h"

struct rank_proc;

struct rank_stdin {
    struct rank_proc *rank;
    int fd; /* the writing end; -1: none, or closed */
    struct loop_fd watch;
    struct buf pending;
    bool in_line;     /* the last byte that has arrived ends no line */
    uint32_t control; /* Ctrl-D at the end of `pending`, for a terminal: not of the input */
    bool ended; /* the end of the input has arrived: the pipe is closed once `pending` is empty */
};

/* Whether a rank of this job reads the standard input of collrun. */
bool rank_stdin_is_wanted(const struct rank_proc *p);
/* `fd`: the writing end, owned from now on; -1: none. */
void rank_stdin_open(struct rank_stdin *in, struct rank_proc *p, int fd);
void rank_stdin_on_frame(struct rank_stdin *in, const struct wire_frame *f);
void rank_stdin_close(struct rank_stdin *in);

#endif
