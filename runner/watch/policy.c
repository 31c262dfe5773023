/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules, counts, pauses.
 */
#include "watch/policy.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define MINUTE_NS 60000000000ull

static enum job_cause job_cause_of(const struct verdict *v)
{
    if (v->diag.code == COLLRUN_ERR_MISMATCH)
        return JOB_CAUSE_MISMATCH;
    switch (v->class) {
    case CAUSE_LAUNCH:
        return v->exit_code == 126 ? JOB_CAUSE_PLUGIN : JOB_CAUSE_LAUNCH;
    case CAUSE_OOM:
        return JOB_CAUSE_OOM;
    case CAUSE_SIGNAL:
        return JOB_CAUSE_SIGNAL;
    case CAUSE_HOST_LOST:
        return JOB_CAUSE_HOST_LOST;
    case CAUSE_STALL:
        return JOB_CAUSE_STALL;
    case CAUSE_TIMEOUT:
        return JOB_CAUSE_TIMEOUT;
    default:
        return JOB_CAUSE_EXIT;
    }
}

static bool rule_matches(const struct job_rule *rule, const struct verdict *v)
{
    if (rule->cause.v != JOB_CAUSE_ANY && rule->cause.v != (int64_t)job_cause_of(v))
        return false;
    for (uint32_t i = 0; i < rule->exit_code.n; i++) {
        if (rule->exit_code.items[i].v == v->exit_code)
            return true;
    }
    return rule->exit_code.n == 0;
}

enum job_action policy_action(const struct job_on_failure *on, const struct verdict *v)
{
    if (v->class == CAUSE_INTERRUPTED)
        return JOB_ACTION_STOP;
    for (uint32_t i = 0; i < on->nrules; i++) {
        if (rule_matches(&on->rules[i], v))
            return (enum job_action)on->rules[i].action.v;
    }
    return (enum job_action)on->action.v;
}

/* Two attempts failed alike if the same operation failed, whichever rank was the first to say so,
 * or if the same rank ended in the same way inside the same operation, or crashed after the same
 * one. Without an operation there is no place, and nothing to compare: an
 * exit code may well mean that something was not there yet. */
static bool place_of(const struct verdict *v, const struct rank_state *ranks, char *out,
                     size_t size)
{
    char inside[192], where[200], who[32] = "";
    if (v->rank == WIRE_HOST)
        return false;
    const struct rank_state *r = &ranks[v->rank];
    bool crashed = v->class == CAUSE_SIGNAL && v->exit_code != 128 + SIGKILL;
    if (!r->failed || !r->group[0])
        snprintf(who, sizeof who, "rank %u, ", v->rank);
    if (r->failed && r->group[0])
        snprintf(where, sizeof where, "in %s#%llu", r->group, (unsigned long long)r->operation);
    else if (seen_inside(&r->seen, inside, sizeof inside))
        snprintf(where, sizeof where, "in %s", inside);
    else if (!crashed || !seen_after(&r->seen, where, sizeof where))
        return false;
    snprintf(out, size, "%sexit code %d, %.150s", who, v->exit_code, where);
    return true;
}

void policy_decide(struct policy *p, const struct job_on_failure *on, const struct verdict *v,
                   const struct rank_state *ranks, uint64_t uptime_ns, struct policy_decision *out)
{
    char place[256];
    *out = (struct policy_decision){0};
    if (policy_action(on, v) != JOB_ACTION_RESTART)
        return;
    bool has_place = place_of(v, ranks, place, sizeof place);
    bool same = has_place && p->has_last && strcmp(place, p->last) == 0;
    p->has_last = has_place;
    if (has_place)
        memcpy(p->last, place, sizeof p->last);
    if (uptime_ns >= (uint64_t)on->min_uptime.v)
        p->restarts = 0;
    if (same) {
        snprintf(out->why, sizeof out->why,
                 "not restarted: it failed twice in the same way (%.120s), so it would again",
                 place);
        return;
    }
    if (p->restarts >= (uint64_t)on->max_restarts.v) {
        snprintf(out->why, sizeof out->why,
                 "not restarted: on_failure.max_restarts (%lld) is used up",
                 (long long)on->max_restarts.v);
        return;
    }
    uint64_t pause = (uint64_t)on->backoff.v;
    for (uint32_t i = 0; i < p->restarts && pause < MINUTE_NS; i++)
        pause *= 2;
    out->pause_ns = pause < MINUTE_NS || pause == (uint64_t)on->backoff.v ? pause : MINUTE_NS;
    out->restart = true;
    p->restarts++;
}
