/* SPDX-License-Identifier: Apache-2.0
 *
 * The standard input of a rank that reads that of collrun (processes.stdin): a pipe, and what does
 * not fit into it. The runner sends no more than WIRE_STDIN_WINDOW bytes ahead of STDIN_TAKEN.
 */
#ifndef RUNNER_AGENT_RANK_STDIN_H
#define RUNNER_AGENT_RANK_STDIN_H

#include "base/buf.h"
#include "base/desc.h"
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

/* ---- the terminal of a rank ---- */

/* The pseudo-terminal of the rank that has collrun's terminal (desc.terminal): its standard input,
 * output and error. */

bool rank_terminal_is_wanted(const struct rank_proc *p);
/* out[0], in[1]: for the agent; out[1], err[1], in[0]: for the rank; err[0]: a pipe at its end. The
 * caller closes all, also after -1, which sets errno. */
int rank_terminal_open(const struct desc_terminal *t, int out[2], int err[2], int in[2]);
/* In the rank, the leader of a session: descriptor 0 becomes its controlling terminal. */
void rank_terminal_enter(const struct rank_proc *p);
/* A frame WINDOW. */
void rank_terminal_resize(const struct rank_proc *p, const struct wire_frame *f);

#endif
