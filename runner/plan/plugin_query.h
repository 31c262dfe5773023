/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes the plugins that a job may use, before the plan is made. Loading a backend can be slow
 * (libraries), so `auto` describes only the backends that it can select by their flags.
 */
#ifndef RUNNER_PLAN_PLUGIN_QUERY_H
#define RUNNER_PLAN_PLUGIN_QUERY_H

#include "plan/plan.h"

#include <stdbool.h>
#include <stdint.h>

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

/* ---- devices of this machine ---- */

/* A process of `collrun-engine --devices` lists them for each kind of memory that the job has a
 * demand for, and none for jobs without devices. The devices of other hosts are unknown here; their
 * agents list them. */

/* Fills in in->pools from in->plugins. A listing that fails is a pool without devices and with the
 * reason. Fails only if the engine cannot be run. */
int device_query(const struct job *job, const char *engine, struct arena *arena,
                 struct plan_input *in, struct diag *d);
/* Lists the devices of every kind that one of in->plugins declares; `out` has them. */
int device_query_all(const char *engine, const struct plan_input *in, struct arena *arena,
                     struct plan_pools *out, struct diag *d);

/* What the file of a plugin tells without being loaded. Loading a backend can be slow (a GPU
 * library initializes itself); reading its file is not.
 *  - The flags of a backend: the exported struct is const data, so the file contains them.
 *  - Whether a workload calls collectives: their names are among its undefined symbols. */

/* False: the flags cannot be read from the file, and are unknown. */
bool elf_backend_flags(const char *path, uint64_t *flags);

/* True if the workload in the file calls a collective operation by its name. One that calls it
 * through another library, or as one of several operations of a request, is not seen. */
bool elf_calls_collectives(const char *path);

#endif
