/* SPDX-License-Identifier: Apache-2.0
 *
 * env.files: lines NAME=VALUE, as `env` prints them and docker reads them. "export " may stand
 * before a name, and a value may be in quotes; nothing is expanded. Empty lines and those that
 * begin with # are left out.
 */
#ifndef RUNNER_SPEC_ENV_FILE_H
#define RUNNER_SPEC_ENV_FILE_H

#include "spec/diag_list.h"
#include "spec/job.h"

/* Fills in job->env.from_files, in the order of the files. */
void env_files_read(struct job *job, struct arena *arena, struct diag_list *diags);

#endif
