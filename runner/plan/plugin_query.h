/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes the plugins that a job may use, before the plan is made. Loading a backend can be slow
 * (libraries), so `auto` describes only the backends that it can select by their flags.
 */
#ifndef RUNNER_PLAN_PLUGIN_QUERY_H
#define RUNNER_PLAN_PLUGIN_QUERY_H

#include "plan/plan.h"

/* Fills in in->plugins from in->backends and in->workloads. Fails only if the engine cannot be run.
 */
int plugin_query(const struct job *job, const char *engine, struct arena *arena,
                 struct plan_input *in, struct diag *d);

/* Describes every installed backend and those that the job declares (job may be NULL), for `collrun
 * backends`. */
int plugin_query_backends(const struct job *job, const char *engine, struct arena *arena,
                          struct plan_input *in, struct diag *d);

/* Describes one plugin, a path or the name of an installed workload or backend. NOT_FOUND: there is
 * no such plugin; UNAVAILABLE: it cannot be loaded. */
int plugin_query_one(const char *written, const char *engine, const struct plan_input *in,
                     struct arena *arena, struct described *out, struct diag *d);

#endif
