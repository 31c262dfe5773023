/* SPDX-License-Identifier: Apache-2.0
 *
 * --wrap RANKS COMMAND...: a debugger or a tool around the processes of some ranks.
 */
#ifndef RUNNER_PLAN_WRAP_H
#define RUNNER_PLAN_WRAP_H

#include "base/desc.h"
#include "spec/job.h"

/* Adds it to a planned job. `command` ends with NULL and is borrowed. */
int wrap_plan(const char *ranks, const struct parse_rank_names *names, char *const *command,
              struct arena *arena, struct desc *desc, struct diag *d);

/* The only wrapped rank gets the terminal of collrun; NULL: it has none. The other ranks then wait
 * for a person: of what job.yaml does not set, the time-outs of the start are a day, and stalls are
 * not reported. INVALID: a shell cannot run a workload, and has no terminal to work on. */
int wrap_use_terminal(struct desc *desc, struct job *job, const struct desc_terminal *terminal,
                      struct diag *d);

#endif
