/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the parameters of a workload and the options of a backend in job.yaml against the table
 * that the plugin declares.
 */
#ifndef RUNNER_PLAN_PARAMS_H
#define RUNNER_PLAN_PARAMS_H

#include "plan/planner.h"

/* `index`: of the workload in job.yaml; `what`: the description of its plugin. */
void params_check(struct planner *pl, uint32_t index, const struct described *what);
/* `path`: of the options in job.yaml. One of the `n` >= 1 backends must know each option; `auto`
 * has selected the first. */
void params_check_options(struct planner *pl, const char *path, const struct job_pairs *options,
                          const struct described *const *tables, uint32_t n, bool is_auto);

#endif
