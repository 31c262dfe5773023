/* SPDX-License-Identifier: Apache-2.0
 *
 * The pseudo-terminal of the rank that has collrun's terminal (desc.terminal): its standard input,
 * output and error.
 */
#ifndef RUNNER_AGENT_RANK_TERMINAL_H
#define RUNNER_AGENT_RANK_TERMINAL_H

#include "base/desc.h"
#include "base/wire.h"

struct rank_proc;

bool rank_terminal_is_wanted(const struct rank_proc *p);
/* out[0], in[1]: for the agent; out[1], err[1], in[0]: for the rank; err[0]: a pipe at its end. The
 * caller closes all, also after -1, which sets errno. */
int rank_terminal_open(const struct desc_terminal *t, int out[2], int err[2], int in[2]);
/* In the rank, the leader of a session: descriptor 0 becomes its controlling terminal. */
void rank_terminal_enter(const struct rank_proc *p);
/* A frame WINDOW. */
void rank_terminal_resize(const struct rank_proc *p, const struct wire_frame *f);

#endif
