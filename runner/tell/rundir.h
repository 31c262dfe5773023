/* SPDX-License-Identifier: Apache-2.0
 *
 * The run directory (logging.dir): what is left of a run for those who come later.
 *   plan.json      who runs where, as `collrun plan --json` prints it
 *   resolved.yaml  the job with nothing left open (spec/resolved.h)
 *   events.jsonl   one JSON object a line, as things happened: t (seconds since the start), event
 *                  (host, spawned, running, metric, failed, exited, end, restart, ...), attempt,
 *                  and what belongs to it
 *   attempt-N/rank-R.stdout, .stderr   what a rank printed, unlabelled, up to logging.max_file each
 *   result.json    the end (tell/result.h)
 *
 * Nothing here can stop a job: the first failure to write (a full disk, above all) is said once, on
 * stderr, and the rest of that file is dropped.
 */
#ifndef TELL_RUNDIR_H
#define TELL_RUNDIR_H

#include "base/desc.h"
#include "spec/job.h"
#include "watch/cause.h"

#include <jansson.h>
#include <stdio.h>
#include <sys/types.h>

struct rundir;

/* Makes the directory, which must not exist yet or be empty. NULL without logging.dir (d->code 0)
 * or on failure. What cannot be written is told of on `voice`. */
struct rundir *rundir_open(const struct job *job, const struct desc *desc, FILE *voice,
                           struct diag *d);
void rundir_close(struct rundir *rd); /* NULL is fine, here and below */

/* Writes a whole file into the directory, atomically. */
void rundir_file(struct rundir *rd, const char *name, const char *text, size_t len);
/* A rank runs: makes its files, however little will be in them. */
void rundir_rank(struct rundir *rd, uint32_t attempt, uint32_t rank);
void rundir_output(struct rundir *rd, uint32_t attempt, uint32_t rank, uint8_t stream,
                   const void *bytes, size_t len);
/* `fields` is taken: {"rank": 3, "pid": 4711}; NULL = none. */
void rundir_event(struct rundir *rd, const char *event, json_t *fields);
void rundir_metric(struct rundir *rd, uint32_t rank, uint32_t workload, const char *name,
                   double value);
/* After each attempt; the last one stays. */
void rundir_result(struct rundir *rd, const struct rank_state *ranks, const struct verdict *v,
                   int exit_code);
/* The run ended otherwise than its last attempt: in the pause before the next, above all. */
void rundir_amend(struct rundir *rd, const struct verdict *v, int exit_code);

#endif
