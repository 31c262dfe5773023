/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding out, before the plan is made, what it needs to know: which plugin files the job may use,
 * and what they say. Loading a backend can be dear (libraries), so `auto` asks only those whose
 * declared flags can win.
 */
#ifndef PLAN_SCOUT_H
#define PLAN_SCOUT_H

#include "plan/plan.h"

/* Fills in in->plugins; in->backends and in->workloads are there. Fails only when the engine cannot
 * be run. */
int scout(const struct job *job, const char *engine, struct arena *arena, struct plan_input *in,
          struct diag *d);

/* Every installed backend and those that the job names (job may be NULL), for `collrun backends`.
 */
int scout_backends(const struct job *job, const char *engine, struct arena *arena,
                   struct plan_input *in, struct diag *d);

#endif
