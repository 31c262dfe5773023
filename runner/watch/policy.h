/* SPDX-License-Identifier: Apache-2.0
 *
 * What on_failure of job.yaml says about a failed attempt. The runner alone counts restarts, over
 * the whole job. An attempt that stayed up for `min_uptime` gives the count a fresh start; the
 * pause before a restart doubles each time, up to a minute. What fails twice in the same way at the
 * same place is deterministic, and is not tried a third time.
 */
#ifndef WATCH_POLICY_H
#define WATCH_POLICY_H

#include "spec/job.h"
#include "watch/cause.h"

struct policy {
    uint32_t restarts; /* since the count began afresh */
    bool has_last;
    char last[256]; /* how the attempt before failed */
};

struct policy_decision {
    bool restart;
    uint64_t pause_ns;
    char why[256]; /* if restart was asked for but is not done: why; "" otherwise */
};

/* The action that the rules (the first that matches) or on_failure.action ask for. */
enum job_action policy_action(const struct job_on_failure *on, const struct verdict *v);
/* `ranks` are those of the failed attempt, which was up for uptime_ns. */
void policy_decide(struct policy *p, const struct job_on_failure *on, const struct verdict *v,
                   const struct rank_state *ranks, uint64_t uptime_ns, struct policy_decision *out);

#endif
