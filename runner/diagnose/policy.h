/* SPDX-License-Identifier: Apache-2.0
 *
 * on_failure of job.yaml applied to a failed attempt.
 * - The runner counts restarts over the whole job. An attempt that ran for `min_uptime` resets the
 *   count.
 * - The pause before a restart doubles each time, up to one minute.
 * - An attempt that fails in the same way at the same place as the one before is not restarted,
 *   because it would fail again.
 */
#ifndef RUNNER_DIAGNOSE_POLICY_H
#define RUNNER_DIAGNOSE_POLICY_H

#include "diagnose/verdict.h"
#include "spec/job.h"

struct policy {
    uint32_t restarts; /* since the count was last reset */
    bool has_last;
    char last[256]; /* how the previous attempt failed */
};

struct policy_decision {
    bool restart;
    uint64_t pause_ns;
    char why[256]; /* why a requested restart is not done; else "" */
};

/* The action of the first rule that matches, else on_failure.action. */
enum job_action policy_action(const struct job_on_failure *on, const struct verdict *v);
/* `ranks` are those of the failed attempt, which ran for uptime_ns. */
void policy_decide(struct policy *p, const struct job_on_failure *on, const struct verdict *v,
                   const struct rank_state *ranks, uint64_t uptime_ns, struct policy_decision *out);

#endif
