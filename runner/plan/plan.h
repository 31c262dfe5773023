/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan: struct job and what is known about hosts and plugins in, struct desc out; a pure
 * function. It places ranks on hosts and cpus, expands splits, chooses backends for `auto`, checks
 * parameters against the plugins' tables, and makes every path absolute. It reports every
 * contradiction it finds, each with its place.
 */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "base/desc.h"
#include "base/gpus.h"
#include "plan/describe.h"
#include "plan/topology.h"
#include "prefix.h"
#include "spec/diag_list.h"
#include "spec/job.h"

struct plan_input {
    /* One per job host, the same pointer = the same machine; NULL: not known, nothing is bound
     * there. */
    const struct topology *const *topologies;
    /* Likewise: the GPUs that its ranks may have (base/gpus.h). NULL, or an entry that is: not
     * known, the agent finds out. */
    const struct gpus *const *gpus;
    const struct prefix_plugins *backends, *workloads; /* installed with this build */
    const struct described *plugins; /* what those that the job may use say of themselves */
    uint32_t nplugins;
    bool examined; /* every host is asked what it can load (doctor); what cannot be loaded here is
                      no error of the plan */
    const char *const *environ; /* that env.pass and env.secrets take from; NULL-terminated */
    const char *run_id;
};

/* 0, or a negative code with the errors in `diags`: COLLRUN_ERR_UNAVAILABLE those of a plugin that
 * cannot be used, COLLRUN_ERR_INVALID those of the job. `desc` borrows from job, input and arena.
 * A complete job with errors may be planned too, for the sake of further errors. */
int plan_make(const struct job *job, const struct plan_input *in, struct arena *arena,
              struct desc *desc, struct diag_list *diags);

#endif
