/* SPDX-License-Identifier: Apache-2.0
 *
 * The logs of agents (base/debug.h). An agent logs nothing until the runner has answered its HELLO
 * with DEBUG; its lines arrive as DEBUG_LINES, and go to the log of this process as they are.
 */
#ifndef RUNNER_CONNECT_AGENT_LOG_H
#define RUNNER_CONNECT_AGENT_LOG_H

#include "base/conn.h"

/* Answers HELLO, if anything is logged. `host`: its name in the job. */
void agent_log_start(struct conn *conn, const char *host);
void agent_log_relay(const struct wire_frame *f);

#endif
