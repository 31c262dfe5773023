/* SPDX-License-Identifier: Apache-2.0
 *
 * The last attempt in full, and a line for each.
 */
#include "tell/result.h"

#include "base/loop.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static const char *const causes[] = {[CAUSE_INTERRUPTED] = "interrupted",
                                     [CAUSE_LAUNCH] = "launch",
                                     [CAUSE_OOM] = "oom",
                                     [CAUSE_SIGNAL] = "signal",
                                     [CAUSE_EXIT] = "exit",
                                     [CAUSE_HOST_LOST] = "host_lost",
                                     [CAUSE_STALL] = "stall",
                                     [CAUSE_TIMEOUT] = "timeout",
                                     [CAUSE_PEER] = "peer",
                                     [CAUSE_STOPPED] = "stopped",
                                     [CAUSE_NONE] = NULL};

static json_t *text_or_null(const char *text)
{
    return text && *text ? json_string(text) : json_null();
}

static double since(const struct result *r, uint64_t ns)
{
    return ns > r->begin_ns ? (double)(ns - r->begin_ns) / 1e9 : 0;
}

void result_put_end(const struct result *r, json_t *o)
{
    const struct verdict *v = r->verdict;
    json_object_set_new(o, "seconds", json_real(since(r, now_ns())));
    json_object_set_new(o, "exit_code", json_integer(r->exit_code));
    json_object_set_new(o, "cause", text_or_null(causes[v->class]));
    json_object_set_new(o, "error",
                        v->class == CAUSE_NONE ? json_null() : text_or_null(v->diag.text));
    json_object_set_new(o, "culprit",
                        v->class == CAUSE_NONE || v->rank == WIRE_HOST ? json_null()
                                                                       : json_integer(v->rank));
}

static json_t *rank_json(const struct result *r, uint32_t rank)
{
    const struct rank_state *state = &r->ranks[rank];
    char key[16];
    json_t *o = json_pack("{s:i, s:s, s:i}", "rank", (int)rank, "host",
                          r->desc->hosts[r->desc->ranks[rank].host].name, "pid", (int)state->pid);
    if (state->exited && WIFSIGNALED(state->status))
        json_object_set_new(o, "signal", json_integer(WTERMSIG(state->status)));
    else if (state->exited)
        json_object_set_new(o, "exit_code", json_integer(WEXITSTATUS(state->status)));
    json_object_set_new(o, "cause", text_or_null(causes[cause_of(state)]));
    json_object_set_new(o, "error", text_or_null(state->failed ? state->failure.text : NULL));
    json_object_set_new(o, "started_s", json_real(since(r, state->started_ns)));
    json_object_set_new(o, "ended_s",
                        state->ended_ns ? json_real(since(r, state->ended_ns)) : json_null());
    json_object_set_new(o, "user_s", json_real((double)state->user_us / 1e6));
    json_object_set_new(o, "system_s", json_real((double)state->system_us / 1e6));
    json_object_set_new(o, "max_rss_bytes", json_integer((json_int_t)state->max_rss));
    snprintf(key, sizeof key, "%u", rank);
    json_t *metrics = json_object_get(r->metrics, key);
    json_object_set_new(o, "metrics", metrics ? json_incref(metrics) : json_object());
    return o;
}

static json_t *group_json(const struct result *r, const struct desc_group *group)
{
    uint64_t most = 0, bytes = 0;
    for (uint32_t i = 0; i < group->ranks.n; i++) {
        const struct seen *seen = &r->ranks[group->ranks.items[i]].seen;
        uint64_t operations = seen_total(seen, group->name, &bytes);
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
        json_array_append_new(ranks, rank_json(r, i));
    for (uint32_t i = 0; i < r->desc->ngroups; i++)
        json_array_append_new(groups, group_json(r, &r->desc->groups[i]));
    json_t *o = json_pack("{s:s, s:s, s:s}", "job", r->desc->job_name, "run_id", r->desc->run_id,
                          "started", started);
    result_put_end(r, o);
    json_object_set(o, "attempts", attempts);
    json_object_set_new(o, "groups", groups);
    json_object_set_new(o, "ranks", ranks);
    return o;
}
