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
#include "base/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct agent;

/* Appends the output to `answer`. */
void engine_query(struct agent *a, const char *engine, const char *option, const char *argument,
                  struct buf *answer);

/* Reads what a child writes into a pipe until its other end is closed. False: the child has run for
 * `limit_ns`, or the runner has closed its stream. */
bool engine_query_read(struct agent *a, pid_t pid, int fd, uint64_t limit_ns, struct buf *answer);

/* ---- where collrun-engine is ---- */

/* `given`, or beside this program if it is "". */
int engine_path(const char *given, char *path, size_t size, struct diag *d);
/* The path of another program in the folder of collrun-engine. False: it is not there. */
bool engine_path_beside(const char *engine, const char *name, char *path, size_t size);
/* In a child, before exec: LD_LIBRARY_PATH begins with the staged libraries, if there are any,
 * which this host lacks. */
void engine_path_set_libraries(const char *engine);

#endif
