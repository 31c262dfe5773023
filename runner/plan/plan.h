/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan: a pure function from struct job and the facts about hosts and plugins to struct desc.
 * - It places ranks on hosts, CPUs and devices.
 * - It expands split groups and selects backends for `auto`.
 * - It checks parameters and options against the tables of the plugins.
 * - It makes every path absolute.
 * - It reports every error that it finds, each with its place.
 */
#ifndef RUNNER_PLAN_PLAN_H
#define RUNNER_PLAN_PLAN_H

#include "base/desc.h"
#include "base/devices.h"
#include "base/topology.h"
#include "plan/describe.h"
#include "prefix.h"
#include "spec/diag_list.h"
#include "spec/job.h"

/* The devices of a host that ranks may use, per kind of memory. */
struct plan_pool {
    const char *kind;
    struct devices devices;
};
struct plan_pools {
    struct plan_pool *items;
    uint32_t n;
};

struct plan_input {
    /* Per host of the job; equal pointers mean the same machine. NULL: unknown, so nothing is bound
     * there. */
    const struct topology *const *topologies;
    /* Per host of the job; equal pointers mean the same machine. NULL, or a NULL entry: unknown,
     * the agent checks. */
    const struct plan_pools *const *pools;
    const struct prefix_plugins *backends, *workloads; /* installed with this build */
    const struct described *plugins; /* descriptions of the plugins that the job may use */
    uint32_t nplugins;
    bool examined; /* every host is asked what it can load (doctor); a plugin that cannot be loaded
                      here is no error */
    const char *const *environ; /* the source of env.pass and env.secrets; NULL-terminated */
    const char *run_id;
};

/* Returns 0, or a negative code with the errors in `diags`: COLLRUN_ERR_UNAVAILABLE for a plugin
 * that cannot be used, COLLRUN_ERR_INVALID for an error of the job. `desc` borrows from job, input
 * and arena. A complete job with errors can be planned too, to find further errors. */
int plan_make(const struct job *job, const struct plan_input *in, struct arena *arena,
              struct desc *desc, struct diag_list *diags);

/* Sets the backend of the groups with a choice, and which backends are unused. True if a group has
 * a backend for RDMA devices by that choice. Before desc_encode, once the hosts are known. */
bool plan_choose_rdma(const struct desc *desc, bool every_host_has_rdma);

#endif
