/* SPDX-License-Identifier: Apache-2.0
 *
 * What `collrun plan` prints: tables for people, JSON for programs.
 */
#ifndef RUNNER_REPORT_SHOW_H
#define RUNNER_REPORT_SHOW_H

#include "base/desc.h"
#include "plan/plan.h"

#include <jansson.h>
#include <stdio.h>

void show_plan(const struct desc *desc, struct arena *arena, FILE *out);
void show_plan_json(const struct desc *desc, const struct job_strs *secrets, struct arena *arena,
                    FILE *out);

void show_dump(json_t *root, FILE *out); /* prints it, as text, and releases it */

#endif
