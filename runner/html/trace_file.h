/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads trace.json of a run directory: the operations, and the instants (failures, stalls). One
 * event a line, so a trace of any length needs no memory; a line that is cut, as the last one of a
 * run that was killed, is left out.
 */
#ifndef RUNNER_HTML_TRACE_FILE_H
#define RUNNER_HTML_TRACE_FILE_H

#include "html/ops.h"

#include <jansson.h>
#include <stdio.h>

struct trace_file {
    uint64_t dropped; /* operations that the trace lacks */
    json_t *instants; /* [[us, rank or -1, name, text]], at most 500 */
};

/* trace_file_fini is due. */
void trace_file_read(struct trace_file *t, FILE *in, struct ops *ops);
void trace_file_fini(struct trace_file *t);

#endif
