/* SPDX-License-Identifier: Apache-2.0
 *
 * `collrun doctor`: connects to every host of a job as a run does, staging included, and lets its
 * agent examine the host. No rank is started. Prints one table on stdout, and each problem on
 * stderr.
 */
#ifndef RUNNER_CONNECT_DOCTOR_H
#define RUNNER_CONNECT_DOCTOR_H

#include "base/desc.h"
#include "report/report.h"
#include "spec/job.h"

/* Returns the exit code: EXIT_HOST if a host cannot be reached, EXIT_LOAD if a host cannot load a
 * plugin or backend, EXIT_JOB if network.interface or the GPUs do not fit a host. */
int doctor_run(const struct job *job, const struct desc *desc, const struct report *report,
               bool verbose);

#endif
