/* SPDX-License-Identifier: Apache-2.0
 *
 * The run directory (logging.dir):
 *   plan.json      the placement of ranks, as `collrun plan --json` prints it
 *   resolved.yaml  the job with all defaults (spec/resolved.h)
 *   events.jsonl   one JSON object a line, in order of time: t (seconds since the start), event
 *                  (host, spawned, running, metric, stall, stall_passed, failed, exited, end,
 *                  restart, ...), attempt,
 *                  and the members of this event
 *   attempt-N/rank-R.stdout, .stderr   what a rank printed, unlabelled, up to logging.max_file each
 *   result.json    how the run ended (report/result.h)
 *   debug.log      with COLLRUN_DEBUG: the log of the runner and of the agents (base/debug.h)
 *
 * No error here stops a job: the first failed write, such as on a full disk, is reported once on
 * stderr, and the rest of that file is dropped. Nothing waits for the disk before the end of the
 * attempt: a thread writes (report/disk.h). While rundir_is_full, the ranks' output is to wait.
 */
#ifndef RUNNER_REPORT_RUNDIR_H
#define RUNNER_REPORT_RUNDIR_H

#include "base/desc.h"
#include "diagnose/verdict_types.h"
#include "spec/job.h"

#include <jansson.h>
#include <stdio.h>
#include <sys/types.h>

struct rundir;

/* mkdir -p. Returns 0 or an errno. */
int rundir_make_dirs(const char *path);

/* Makes the directory, which must not exist yet or be empty. NULL without logging.dir (d->code 0)
 * or on failure. Failed writes are reported on `warnings`. */
struct rundir *rundir_open(const struct job *job, const struct desc *desc, FILE *warnings,
                           struct diag *d);
/* Waits a while for the disk. */
void rundir_close(struct rundir *rd); /* NULL is fine, here and below */

/* The lines of the log (base/debug.h) come through a pipe: its reading end, or -1; and writes what
 * is in it to debug.log. */
int rundir_debug_fd(const struct rundir *rd);
void rundir_take_debug(struct rundir *rd);

bool rundir_is_full(const struct rundir *rd);
bool rundir_is_written(const struct rundir *rd); /* nothing waits for the disk */
/* Readable when errors wait for rundir_take_errors, and when rundir_is_full has become false; -1:
 * none. */
int rundir_event_fd(const struct rundir *rd);
void rundir_take_errors(struct rundir *rd); /* reports them */
/* Reports that a file, or a part of it, could not be made: a path in it is not UTF-8. */
void rundir_not_made(struct rundir *rd, const char *name);

/* Writes a whole file into the directory, atomically. */
void rundir_file(struct rundir *rd, const char *name, const void *bytes, size_t len);
/* A rank has started: creates its files, which may stay empty. */
void rundir_rank(struct rundir *rd, uint32_t attempt, uint32_t rank);
void rundir_output(struct rundir *rd, uint32_t attempt, uint32_t rank, uint8_t stream,
                   const void *bytes, size_t len);
/* For developers: "internal" of result.json has this line. */
void rundir_internal(struct rundir *rd, const char *text);
/* `fields` is taken: {"rank": 3, "pid": 4711}; NULL = none. */
void rundir_event(struct rundir *rd, const char *event, json_t *fields);
void rundir_metric(struct rundir *rd, uint32_t rank, uint32_t workload, const char *name,
                   double value);
/* A stall that has passed, for result.json (report/stall_report.h). Taken. */
void rundir_stall(struct rundir *rd, json_t *stall);
/* After the last rundir_result: `trace` of result.json, which is taken. */
void rundir_trace(struct rundir *rd, json_t *trace);
/* Before rundir_result: stragglers_json of this attempt, which is taken. */
void rundir_stragglers(struct rundir *rd, json_t *stragglers);
/* After each attempt; the last one stays. */
void rundir_result(struct rundir *rd, const struct rank_state *ranks, const struct verdict *v,
                   int exit_code);
/* Writes diag/ (report/evidence_json.h); NULL: the attempt was good, and has none. That of an
 * earlier attempt moves to the folder of the attempt. */
void rundir_diag(struct rundir *rd, const struct evidence *e);
/* The run ended after its last attempt, as in the pause before the next one. */
void rundir_amend(struct rundir *rd, const struct verdict *v, int exit_code);

#endif
