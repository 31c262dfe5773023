/* SPDX-License-Identifier: Apache-2.0
 *
 * `collrun doctor`: reaches every host of a job as a run would, staging included, and lets its
 * agent look around; starts no rank. Prints one table on stdout and each problem on stderr.
 */
#ifndef LAUNCH_DOCTOR_H
#define LAUNCH_DOCTOR_H

#include "base/desc.h"
#include "spec/job.h"
#include "tell/report.h"

/* The exit code: 0; 127 a host cannot be reached; 126 a plugin or backend cannot be used somewhere;
 * 2 the network of job.yaml does not fit a host. */
int doctor_run(const struct job *job, const struct desc *desc, const struct report *report,
               bool verbose);

#endif
