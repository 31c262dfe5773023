/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules, counts, pauses.
 */
#include "diagnose/policy.h"

#include "base/debug.h"
#include "base/exit_codes.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define MINUTE_NS 60000000000ull

static enum job_cause policy_cause(const struct verdict *v)
{
    static const enum job_cause causes[] = {
        [CAUSE_INTERRUPTED] = JOB_CAUSE_ANY,   [CAUSE_LAUNCH] = JOB_CAUSE_PLUGIN,
        [CAUSE_OOM] = JOB_CAUSE_OOM,           [CAUSE_SIGNAL] = JOB_CAUSE_SIGNAL,
        [CAUSE_EXIT] = JOB_CAUSE_EXIT,         [CAUSE_HOST_LOST] = JOB_CAUSE_HOST_LOST,
        [CAUSE_ERROR] = JOB_CAUSE_ERROR,       [CAUSE_MISMATCH] = JOB_CAUSE_MISMATCH,
        [CAUSE_DEADLOCK] = JOB_CAUSE_DEADLOCK, [CAUSE_MISSING] = JOB_CAUSE_MISSING,
        [CAUSE_TIMEOUT] = JOB_CAUSE_TIMEOUT,   [CAUSE_PEER] = JOB_CAUSE_ERROR,
        [CAUSE_STOPPED] = JOB_CAUSE_ERROR,     [CAUSE_NONE] = JOB_CAUSE_ANY};
    return v->class == CAUSE_LAUNCH && v->exit_code == EXIT_JOB ? JOB_CAUSE_JOB : causes[v->class];
}

/* "MemoryError", "torch.OutOfMemoryError"; a name without a dot stands for those of all modules. */
static bool policy_exception_matches(const char *wanted, const struct rank_exception *e)
{
    if (!e || e->thread[0])
        return false;
    const char *dot = strrchr(e->type, '.');
    return strcmp(wanted, e->type) == 0 || (dot && strcmp(wanted, dot + 1) == 0);
}

static bool policy_rule_matches(const struct job_rule *rule, const struct verdict *v)
{
    if (rule->exception.v && !policy_exception_matches(rule->exception.v, v->exception))
        return false;
    if (rule->cause.v != JOB_CAUSE_ANY && rule->cause.v != (int64_t)policy_cause(v))
        return false;
    for (uint32_t i = 0; i < rule->exit_code.n; i++) {
        int64_t code = rule->exit_code.items[i].v;
        if (code == v->exit_code || (v->own_code && code == v->own_code))
            return true;
    }
    return rule->exit_code.n == 0;
}

enum job_action policy_action(const struct job_on_failure *on, const struct verdict *v)
{
    if (v->class == CAUSE_INTERRUPTED)
        return JOB_ACTION_STOP;
    for (uint32_t i = 0; i < on->nrules; i++) {
        if (!policy_rule_matches(&on->rules[i], v))
            continue;
        debug_log(DEBUG_POLICY, "rule %u of on_failure decides: action %d (exit code %d, own %d)",
                  i, (int)on->rules[i].action.v, v->exit_code, v->own_code);
        return (enum job_action)on->rules[i].action.v;
    }
    debug_log(DEBUG_POLICY, "no rule of on_failure matches: action %d", (int)on->action.v);
    return (enum job_action)on->action.v;
}

/* Two attempts failed in the same way if
 * - the same operation failed, whichever rank reported it first; or
 * - the same rank ended in the same way inside the same operation, or crashed after it.
 * False: no operation is known, so there is nothing to compare; an exit code alone may mean that a
 * resource was not ready yet. */
static bool policy_failure_key(const struct verdict *v, const struct rank_state *ranks, char *out,
                               size_t size)
{
    char inside[192], where[200], who[32] = "";
    const struct rank_state *r = v->rank == WIRE_HOST ? NULL : &ranks[v->rank];
    bool reported = v->group && (!r || r->failed || r->why.status);
    bool crashed = v->class == CAUSE_SIGNAL && v->exit_code != 128 + SIGKILL;
    if (reported)
        snprintf(where, sizeof where, "in %s#%llu", v->group, (unsigned long long)v->number);
    else if (!r)
        return false;
    else if (snapshot_inside(&r->snapshot, inside, sizeof inside))
        snprintf(where, sizeof where, "in %s", inside);
    else if (!crashed || !snapshot_after(&r->snapshot, where, sizeof where))
        return false;
    if (!reported)
        snprintf(who, sizeof who, "rank %u, ", v->rank);
    snprintf(out, size, "%sexit code %d, %.150s", who, v->exit_code, where);
    return true;
}

void policy_decide(struct policy *p, const struct job_on_failure *on, const struct verdict *v,
                   const struct rank_state *ranks, uint64_t uptime_ns, struct policy_decision *out)
{
    char key[256];
    *out = (struct policy_decision){0};
    if (policy_action(on, v) != JOB_ACTION_RESTART)
        return;
    bool has_key = policy_failure_key(v, ranks, key, sizeof key);
    bool same = has_key && p->has_last && strcmp(key, p->last) == 0;
    debug_log(DEBUG_POLICY,
              "restart? cause %d, %s%s, ran %.1f s of min_uptime %.1f s, %u of %lld "
              "restarts",
              (int)policy_cause(v), has_key ? "failed " : "no operation known", has_key ? key : "",
              (double)uptime_ns / 1e9, (double)on->min_uptime.v / 1e9, (unsigned)p->restarts,
              (long long)on->max_restarts.v);
    p->has_last = has_key;
    if (has_key)
        memcpy(p->last, key, sizeof p->last);
    if (uptime_ns >= (uint64_t)on->min_uptime.v)
        p->restarts = 0;
    if (same) {
        snprintf(out->why, sizeof out->why,
                 "not restarted: two attempts failed in the same way (%.120s)", key);
        return;
    }
    if (p->restarts >= (uint64_t)on->max_restarts.v) {
        snprintf(out->why, sizeof out->why,
                 "not restarted: on_failure.max_restarts (%lld) is reached",
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
