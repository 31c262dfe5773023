/* SPDX-License-Identifier: Apache-2.0
 *
 * A workload's parameters, as job.yaml writes them, against the table that its plugin declares.
 */
#ifndef PLAN_PARAMS_H
#define PLAN_PARAMS_H

#include "plan/maker.h"

/* `index` is the workload's in job.yaml; `what` describes its plugin. */
void params_check(struct maker *m, uint32_t index, const struct described *what);

#endif
