/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists the devices of this machine: a process of `collrun-engine --devices` for each kind of
 * memory that the job has a demand for, and none for jobs without devices. The devices of other
 * hosts are unknown here; their agents list them.
 */
#ifndef RUNNER_PLAN_DEVICE_QUERY_H
#define RUNNER_PLAN_DEVICE_QUERY_H

#include "plan/plan.h"

/* Fills in in->pools from in->plugins. A listing that fails is a pool without devices and with the
 * reason. Fails only if the engine cannot be run. */
int device_query(const struct job *job, const char *engine, struct arena *arena,
                 struct plan_input *in, struct diag *d);
/* Lists the devices of every kind that one of in->plugins declares; `out` has them. */
int device_query_all(const char *engine, const struct plan_input *in, struct arena *arena,
                     struct plan_pools *out, struct diag *d);

#endif
