/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun diag: the verdict on a run that has ended, from the folder diag/ of its run directory
 * alone (report/evidence_json.h). Nothing else of the run is needed.
 */
#ifndef RUNNER_REPORT_DIAG_COMMAND_H
#define RUNNER_REPORT_DIAG_COMMAND_H

#include "report/report.h"

#include <stdbool.h>

/* `folder` is a run directory, the folder of one of its attempts, or diag/ itself. Prints the
 * verdict to report->out as the run printed it, or as JSON. Negative: there is no evidence. */
int diag_command(const char *folder, bool json, const struct report *report, struct diag *d);

#endif
