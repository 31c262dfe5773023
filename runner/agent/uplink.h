/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames from the agent to the runner: HELLO, heartbeats, errors of the host, and the output of
 * the ranks, which is limited by the credit of the runner.
 */
#ifndef RUNNER_AGENT_UPLINK_H
#define RUNNER_AGENT_UPLINK_H

#include "agent/rank.h"

void uplink_send_hello(struct agent *a);
void uplink_send_heartbeat(struct agent *a);
/* This host cannot run the job. */
void uplink_send_error(struct agent *a, const struct diag *d);
/* Takes the bytes off the credit; drops them if the runner is gone. */
void uplink_send_output(struct rank_pipe *p, const void *bytes, size_t len);

/* DEBUG: the lines of the agent's log go through a pipe, since any thread may write one at any
 * time, also while a frame is being put. uplink_send_debug sends what is in it. */
void uplink_open_debug(struct agent *a, const struct wire_frame *f);
void uplink_send_debug(struct agent *a);
void uplink_close_debug(struct agent *a); /* later lines go to stderr */

#endif
