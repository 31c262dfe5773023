/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a planned job to its end: starts one agent per host, supervises the ranks, prints on stderr
 * why the job failed, and cleans up. It returns only after every rank has exited, or its host is
 * known to be unreachable.
 */
#ifndef RUNNER_RUN_RUN_H
#define RUNNER_RUN_RUN_H

#include "base/desc.h"
#include "report/report.h"
#include "spec/job.h"

#include <stdio.h>

struct run_options {
    const struct report *report; /* where and how errors are printed */
    bool quiet, verbose;
};

/* Returns the exit code of collrun: that of the root-cause rank, or one of base/exit_codes.h. */
int run_job(const struct job *job, const struct desc *desc, const struct run_options *options);

#endif
