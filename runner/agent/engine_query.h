/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs collrun-engine with a query (--describe, --devices) and collects what it prints: the agent
 * never loads a backend. A process that crashes or exceeds the deadline leaves an incomplete
 * answer. While the process runs, the agent sends heartbeats: a library of devices may take seconds
 * to load. Frames of the runner are read afterwards; the end of its stream ends the query.
 */
#ifndef RUNNER_AGENT_ENGINE_QUERY_H
#define RUNNER_AGENT_ENGINE_QUERY_H

#include "base/buf.h"

struct agent;

/* Appends the output to `answer`. */
void engine_query(struct agent *a, const char *engine, const char *option, const char *argument,
                  struct buf *answer);

#endif
