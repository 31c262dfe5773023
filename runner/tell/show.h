/* SPDX-License-Identifier: Apache-2.0
 *
 * What `collrun plan` and `collrun backends` print: tables for people, JSON for programs.
 */
#ifndef TELL_SHOW_H
#define TELL_SHOW_H

#include "base/desc.h"
#include "plan/plan.h"

#include <stdio.h>

/* "0-3,8-14:2" for ranks in any order that begins so. */
const char *show_ranks(const struct desc_ranks *ranks, struct arena *arena);

int show_plan(const struct desc *desc, struct arena *arena, FILE *out);
int show_plan_json(const struct desc *desc, struct arena *arena, FILE *out);

void show_backends(const struct plan_input *in, FILE *out);
int show_backends_json(const struct plan_input *in, FILE *out);

#endif
