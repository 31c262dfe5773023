/* SPDX-License-Identifier: Apache-2.0
 *
 * A workload's parameters and a backend's options, as job.yaml writes them, against the table that
 * its plugin declares.
 */
#ifndef PLAN_PARAMS_H
#define PLAN_PARAMS_H

#include "plan/maker.h"

/* `index` is the workload's in job.yaml; `what` describes its plugin. */
void params_check(struct maker *m, uint32_t index, const struct described *what);
/* `path` is that of the options in job.yaml; `other` may know them, too, and may be NULL. */
void params_check_options(struct maker *m, const char *path, const struct job_pairs *options,
                          const struct described *what, const struct described *other);

#endif
