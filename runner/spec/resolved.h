/* SPDX-License-Identifier: Apache-2.0
 *
 * The job as it was run, written as a job file: --set and --run-dir applied, ${env:...} replaced,
 * defaults written, relative paths made absolute. Reading it gives the same job from any folder.
 */
#ifndef RUNNER_SPEC_RESOLVED_H
#define RUNNER_SPEC_RESOLVED_H

#include "spec/job.h"

#include <stdio.h>

/* `programs` has the file of each workload's command, NULL for a plugin. 0, or a negative code (no
 * memory). */
int resolved_write(const struct job *job, const char *const *programs, FILE *out);

#endif
