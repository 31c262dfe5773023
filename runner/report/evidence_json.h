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

#include "diagnose/evidence.h"

#include <jansson.h>

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

#endif
