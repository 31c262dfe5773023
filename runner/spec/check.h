/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks between keys of one job that need no plugin. Each contradiction is reported with both
 * places.
 */
#ifndef RUNNER_SPEC_CHECK_H
#define RUNNER_SPEC_CHECK_H

#include "spec/job.h"

void job_check(const struct job *job, struct arena *arena, struct diag_list *diags);

#endif
