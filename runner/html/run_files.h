/* SPDX-License-Identifier: Apache-2.0
 *
 * What a page about a run is made of: the files of its run directory (report/rundir.h), each of
 * which may be missing, as after a run that was killed. Files of other runs, or of any content,
 * give a page or an error.
 */
#ifndef RUNNER_HTML_RUN_FILES_H
#define RUNNER_HTML_RUN_FILES_H

#include "diagnose/evidence.h"
#include "html/ops.h"
#include "report/evidence_json.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct run_files {
    const char *folder;
    json_t *refused;       /* names of files that are links or no regular files */
    json_t *result, *plan; /* objects, which may be empty */
    json_t *matrix;        /* of a folder with the runs of a matrix; NULL: of one run */
    json_t *events;        /* the first of events.jsonl, and the last; objects */
    uint64_t events_left_out;
    json_t *bench; /* the objects of bench-GROUP.json, in the order of their names */
    char *job;     /* resolved.yaml; NULL: not there */
    bool has_evidence;
    struct evidence_files evidence; /* if has_evidence */
};

/* On failure: `folder` is no run directory, and not that of a matrix. run_files_close is due in any
 * case. */
int run_files_open(struct run_files *f, const char *folder, struct diag *d);
void run_files_close(struct run_files *f);

/* The file of that name in the folder; NULL: not there, or refused (run_file_open). */
FILE *run_files_find(const struct run_files *f, const char *name);

/* The end of a file, at most `size` bytes, and how many the file has. 0: empty or not there. */
size_t run_files_tail(const struct run_files *f, const char *name, char *bytes, size_t size,
                      uint64_t *total);

/* A member of an object as text; "" if it is none. */
const char *run_files_text(const json_t *o, const char *key);

/* ---- trace file ----
 *
 * Reads trace.json of a run directory: the operations, and the instants (failures, stalls). One
 * event a line, so a trace of any length needs no memory; a line that is cut, as the last one of a
 * run that was killed, is left out.
 */

struct trace_file {
    uint64_t dropped; /* operations that the trace lacks */
    json_t *instants; /* [[us, rank or -1, name, text]], at most 500 */
};

/* trace_file_fini is due. */
void trace_file_read(struct trace_file *t, FILE *in, struct ops *ops);
void trace_file_fini(struct trace_file *t);

/* ---- flight records ----
 *
 * Reads the operations that the flight records of a failed run hold (diag/rank-N.record): the last
 * ones of each rank. Times are those of each host's clock.
 */

/* Returns how many operations the records no longer have. */
uint64_t flight_records_read(const struct evidence *e, struct ops *ops);

#endif
