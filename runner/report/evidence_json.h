/* SPDX-License-Identifier: Apache-2.0
 *
 * The evidence of a verdict as files, the folder diag/ of a run directory:
 *
 *   evidence.json     version 1, job, run_id, attempt
 *                     hosts      [name]; default: one
 *                     workloads  [{name, ranks}]
 *                     groups     [{name, ranks}]: members in the order of their ranks in the group;
 *                                default: as the records say
 *                     failure    of the job and no rank: {class, exit_code, ns, code, text, hint},
 *                                and what the audit knows of a mismatch
 *                     ranks      [{rank, ...}]: host (index), pid, phase, how it ended, FAILED;
 *                                the payloads of its last STATUS and WAIT_REPORT (base/wire.h) in
 *                                hexadecimal; record: its file. All but `rank` may be left out.
 *   rank-N.record     base/record.h
 *
 * Everything that is read is checked; a file of any content gives an error or a verdict.
 */
#ifndef RUNNER_REPORT_EVIDENCE_JSON_H
#define RUNNER_REPORT_EVIDENCE_JSON_H

#include "base/diag.h"
#include "diagnose/evidence.h"
#include "report/report.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* evidence.json; the files of the records are written by the caller. */
json_t *evidence_json(const struct evidence *e);

struct evidence_files { /* evidence that was read back */
    struct arena arena;
    struct desc desc;
    struct rank_state *ranks;
    struct evidence evidence;
};

/* Reads the folder, or `below` it the folder diag. evidence_files_fini is due in any case. */
int evidence_read(struct evidence_files *f, const char *folder, bool below, struct diag *d);
void evidence_files_fini(struct evidence_files *f);

/* ---- files of a run directory ----
 *
 * Reading the files of a run directory, which other programs, a host or a foreign archive may have
 * written. Only regular files below the folder are opened: a link, also one in the place of a
 * subfolder, could lead to a private file of the reader, and a FIFO would hang it. The folder
 * itself may be a link, since the user names it.
 */

/* `name` is a path below the folder, without "..". NULL: `d` says why; sys_errno is ENOENT if the
 * file is not there, and ELOOP if it is a link or below one. */
FILE *run_file_open(const char *folder, const char *name, struct diag *d);

/* ---- collrun diag ----
 *
 * collrun diag: the verdict on a run that has ended, from the folder diag/ of its run directory
 * alone (report/evidence_json.h). Nothing else of the run is needed.
 */

/* `folder` is a run directory, the folder of one of its attempts, or diag/ itself. Prints the
 * verdict to report->out as the run printed it, or as JSON. Negative: there is no evidence. */
int diag_command(const char *folder, bool json, const struct report *report, struct diag *d);

#endif
