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

/* "0-3,8-14:2" for ranks in any order that begins so. */
const char *show_ranks(const struct desc_ranks *ranks, struct arena *arena);

void show_plan(const struct desc *desc, struct arena *arena, FILE *out);
void show_plan_json(const struct desc *desc, const struct job_strs *secrets, struct arena *arena,
                    FILE *out);

void show_dump(json_t *root, FILE *out); /* prints it, as text, and releases it */

#endif
