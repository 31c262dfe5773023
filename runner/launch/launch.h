/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a planned job to its end: one agent per host, ranks, groups, workloads; supervises it; says
 * on stderr why it failed; leaves nothing behind. It never returns before every rank is gone, or is
 * known to be out of reach.
 */
#ifndef LAUNCH_LAUNCH_H
#define LAUNCH_LAUNCH_H

#include "base/desc.h"
#include "spec/job.h"
#include "tell/report.h"

struct launch_options {
    const struct report *report; /* where and how errors are printed */
    bool quiet, verbose;
};

/* The exit code of collrun: 0; that of the root-cause rank; 124 time-out, 125 internal, 126 a
 * plugin or backend cannot be loaded, 127 host or agent unreachable, 128 + N ended by signal N. */
int launch_run(const struct job *job, const struct desc *desc,
               const struct launch_options *options);

#endif
