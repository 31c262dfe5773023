/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the parameters of a workload and the options of a backend in job.yaml against the table
 * that the plugin declares.
 */
#ifndef RUNNER_PLAN_PARAMS_H
#define RUNNER_PLAN_PARAMS_H

#include "plan/plan.h"
#include "plan/planner.h"

/* `index`: of the workload in job.yaml; `what`: the description of its plugin. */
void params_check(struct planner *pl, uint32_t index, const struct described *what);
/* `path`: of the options in job.yaml. One of the `n` >= 1 backends must know each option; `auto`
 * has selected the first. */
void params_check_options(struct planner *pl, const char *path, const struct job_pairs *options,
                          const struct described *const *tables, uint32_t n, bool is_auto);

/* The `check` of workloads (collrun/workload.h). `collrun-engine --check` calls them in a separate
 * process; rank/describe.h has its output. */

enum { CHECKS_DEADLINE_MS = 10000 };

/* Adds what the checks refuse in a plan without errors to `diags`: at the value of the parameter in
 * job.yaml, or at the plugin. A check that crashes, or that exceeds the deadline, gets an error,
 * and the ones after it are not called. Returns a negative code with `d` set if the engine cannot
 * be run. */
int checks_run(const struct desc *desc, const struct plan_input *in, const char *engine,
               uint32_t deadline_ms, struct diag_list *diags, struct diag *d);

#endif
