/* SPDX-License-Identifier: Apache-2.0
 *
 * The last attempt in full, and a line for each.
 */
#include "report/result.h"

#include "base/loop.h"
#include "report/json_value.h"
#include "report/verdict_json.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static json_t *result_text(const char *text)
{
    return text && *text ? json_value_text(text) : json_null();
}

static double result_seconds(const struct result *r, uint64_t ns)
{
    return ns > r->begin_ns ? (double)(ns - r->begin_ns) / 1e9 : 0;
}

void result_put_end(const struct result *r, json_t *o)
{
    const struct verdict *v = r->verdict;
    json_object_set_new(o, "seconds", json_real(result_seconds(r, now_ns())));
    json_object_set_new(o, "exit_code", json_integer(r->exit_code));
    json_object_set_new(o, "verdict", verdict_json(v));
}

/* A culprit ended by its own doing, even if another one was reported before. */
static enum cause_class result_rank_class(const struct result *r, uint32_t rank)
{
    for (uint32_t i = 0; i < r->verdict->culprits.n; i++) {
        if (r->verdict->culprits.items[i] == rank && cause_alone(&r->ranks[rank]) < CAUSE_PEER)
            return cause_alone(&r->ranks[rank]);
    }
    return cause_of(&r->ranks[rank]);
}

/* What the rank reported; without a report, how it died. */
static json_t *result_error(const struct result *r, uint32_t rank, enum cause_class class)
{
    const struct rank_state *state = &r->ranks[rank];
    struct diag d;
    if (state->failed)
        return result_text(state->failure.text);
    if (!state->exited || (class > CAUSE_EXIT && !cause_is_by_failed_call(state)))
        return json_null();
    diag_init(&d);
    cause_set_text(r->desc, r->ranks, &(struct desc_ranks){&rank, 1}, &d);
    return json_value_text(d.text);
}

static json_t *result_rank_json(const struct result *r, uint32_t rank)
{
    const struct rank_state *state = &r->ranks[rank];
    char key[16];
    json_t *o = json_pack("{s:i, s:s, s:i}", "rank", (int)rank, "host",
                          r->desc->hosts[r->desc->ranks[rank].host].name, "pid", (int)state->pid);
    if (state->command)
        json_object_set_new(
            o, "command",
            json_string(r->desc->workloads[desc_find_command(r->desc, rank)].command.items[0]));
    if (state->exited && WIFSIGNALED(state->status))
        json_object_set_new(o, "signal", json_integer(WTERMSIG(state->status)));
    else if (state->exited)
        json_object_set_new(o, "exit_code", json_integer(WEXITSTATUS(state->status)));
    enum cause_class class = result_rank_class(r, rank);
    json_object_set_new(o, "class", json_string(cause_class_name(class)));
    json_object_set_new(o, "error", result_error(r, rank, class));
    json_object_set_new(o, "started_s", json_real(result_seconds(r, state->started_ns)));
    json_object_set_new(o, "ended_s",
                        state->ended_ns ? json_real(result_seconds(r, state->ended_ns))
                                        : json_null());
    json_object_set_new(o, "user_s", json_real((double)state->user_us / 1e6));
    json_object_set_new(o, "system_s", json_real((double)state->system_us / 1e6));
    json_object_set_new(o, "max_rss_bytes", json_integer((json_int_t)state->max_rss));
    snprintf(key, sizeof key, "%u", rank);
    json_t *metrics = json_object_get(r->metrics, key);
    json_object_set_new(o, "metrics", metrics ? json_incref(metrics) : json_object());
    return o;
}

static json_t *result_group_json(const struct result *r, const struct desc_group *group)
{
    uint64_t most = 0, bytes = 0;
    for (uint32_t i = 0; i < group->ranks.n; i++) {
        const struct rank_snapshot *snapshot = &r->ranks[group->ranks.items[i]].snapshot;
        uint64_t operations = snapshot_total(snapshot, group->name, &bytes);
        most = operations > most ? operations : most;
    }
    return json_pack("{s:s, s:s, s:i, s:I, s:I}", "name", group->name, "backend",
                     r->desc->backends[group->backend].name, "size", (int)group->ranks.n,
                     "operations", (json_int_t)most, "bytes", (json_int_t)bytes);
}

json_t *result_attempt(const struct result *r)
{
    json_t *o = json_pack("{s:i}", "attempt", (int)r->desc->attempt);
    result_put_end(r, o);
    return o;
}

json_t *result_json(const struct result *r, json_t *attempts)
{
    char started[32] = "";
    struct tm tm;
    json_t *ranks = json_array(), *groups = json_array();
    gmtime_r(&r->begin_realtime, &tm);
    strftime(started, sizeof started, "%Y-%m-%dT%H:%M:%SZ", &tm);
    for (uint32_t i = 0; i < r->desc->nranks; i++)
        json_array_append_new(ranks, result_rank_json(r, i));
    for (uint32_t i = 0; i < r->desc->ngroups; i++)
        json_array_append_new(groups, result_group_json(r, &r->desc->groups[i]));
    json_t *o = json_pack("{s:s, s:s, s:s}", "job", r->desc->job_name, "run_id", r->desc->run_id,
                          "started", started);
    result_put_end(r, o);
    json_object_set(o, "attempts", attempts);
    json_object_set(o, "stalls", r->stalls);
    json_object_set_new(o, "groups", groups);
    json_object_set_new(o, "ranks", ranks);
    if (r->stragglers)
        json_object_update(o, r->stragglers);
    return o;
}
