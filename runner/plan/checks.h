/* SPDX-License-Identifier: Apache-2.0
 *
 * The `check` of workloads (collrun/workload.h). `collrun-engine --check` calls them in a separate
 * process; rank/check.h has its output.
 */
#ifndef RUNNER_PLAN_CHECKS_H
#define RUNNER_PLAN_CHECKS_H

#include "plan/plan.h"

enum { CHECKS_DEADLINE_MS = 10000 };

/* Adds what the checks refuse in a plan without errors to `diags`: at the value of the parameter in
 * job.yaml, or at the plugin. A check that crashes, or that exceeds the deadline, gets an error,
 * and the ones after it are not called. Returns a negative code with `d` set if the engine cannot
 * be run. */
int checks_run(const struct desc *desc, const struct plan_input *in, const char *engine,
               uint32_t deadline_ms, struct diag_list *diags, struct diag *d);

#endif
