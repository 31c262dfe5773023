/* SPDX-License-Identifier: Apache-2.0
 *
 * What `collrun describe` prints about one plugin, and `collrun backends` about all backends.
 */
#ifndef RUNNER_REPORT_SHOW_PLUGIN_H
#define RUNNER_REPORT_SHOW_PLUGIN_H

#include "plan/describe.h"
#include "plan/plan.h"

#include <stdio.h>

void show_plugin(const struct described *what, FILE *out);
void show_plugin_json(const struct described *what, FILE *out);

/* ---- collrun backends ----
 *
 * What `collrun backends` prints: a table for people, JSON for programs.
 */

/* `pools`: the devices of this machine, of every kind of memory that a backend declares. */
void show_backends(const struct plan_input *in, const struct plan_pools *pools, struct arena *arena,
                   FILE *out);
void show_backends_json(const struct plan_input *in, const struct plan_pools *pools, FILE *out);

#endif
