/* SPDX-License-Identifier: Apache-2.0
 *
 * What `collrun backends` prints: a table for people, JSON for programs.
 */
#ifndef RUNNER_REPORT_SHOW_BACKENDS_H
#define RUNNER_REPORT_SHOW_BACKENDS_H

#include "plan/plan.h"

#include <stdio.h>

/* `pools`: the devices of this machine, of every kind of memory that a backend declares. */
void show_backends(const struct plan_input *in, const struct plan_pools *pools, struct arena *arena,
                   FILE *out);
void show_backends_json(const struct plan_input *in, const struct plan_pools *pools, FILE *out);

#endif
