/* SPDX-License-Identifier: Apache-2.0
 *
 * --wrap RANKS COMMAND...: a debugger or a tool around the processes of some ranks.
 */
#ifndef RUNNER_PLAN_WRAP_H
#define RUNNER_PLAN_WRAP_H

#include "base/desc.h"

/* Adds it to a planned job. `command` ends with NULL and is borrowed. */
int wrap_plan(const char *ranks, char *const *command, struct arena *arena, struct desc *desc,
              struct diag *d);

#endif
