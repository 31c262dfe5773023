/* SPDX-License-Identifier: Apache-2.0 */
#include "report/top_json.h"

#include "report/json_value.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static json_t *top_json_real(bool known, double value)
{
    return known ? json_real(value) : json_null();
}

static json_t *top_json_workloads(const struct top_state *s)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < s->desc->nworkloads; i++) {
        const struct live_workload *w = &s->live->workloads[i];
        uint64_t done = 0, total = 0;
        for (uint32_t r = 0; r < s->desc->nranks; r++) {
            done += w->done[r];
            total += w->total[r];
        }
        json_array_append_new(list, json_pack("{s:o, s:I, s:I, s:o}", "name",
                                              json_value_text(s->desc->workloads[i].name), "done",
                                              (json_int_t)done, "total", (json_int_t)total, "what",
                                              json_value_text(w->what)));
    }
    return list;
}

static json_t *top_json_last(const struct top_state *s, const char *group)
{
    struct straggler_finding last;
    if (!audit_last(s->audit, group, &last))
        return json_null();
    return json_pack("{s:i, s:f, s:f}", "rank", (int)last.rank, "share",
                     (double)last.last / (double)last.compared, "late_ms", last.late_ms);
}

static json_t *top_json_group(const struct top_state *s, uint32_t i)
{
    const struct desc_group *g = &s->desc->groups[i];
    const struct live_group *live = &s->live->groups[i];
    uint64_t operations = 0, sum_ns = 0, longest_ns = 0;
    for (uint32_t r = 0; r < s->desc->nranks; r++) {
        const struct rank_usage *u = &s->ranks[r].usage;
        for (uint32_t k = 0; k < u->n && s->ranks[r].end != RANK_EXITED; k++) {
            const struct usage_group *of = &u->groups[k];
            if (strcmp(of->name, g->name) != 0)
                continue;
            operations += of->operations;
            sum_ns += of->sum_ns;
            longest_ns = of->longest_ns > longest_ns ? of->longest_ns : longest_ns;
        }
    }
    double mean_us = operations ? (double)sum_ns / (double)operations / 1e3 : 0;
    return json_pack(
        "{s:o, s:i, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "name", json_value_text(g->name),
        "ranks", (int)g->ranks.n, "backend", json_value_text(s->desc->backends[g->backend].name),
        "operations", (json_int_t)live->operations, "bytes", (json_int_t)live->bytes,
        "operations_per_s", top_json_real(live->has_rates, live->operations_per_s), "bytes_per_s",
        top_json_real(live->has_rates, live->bytes_per_s), "latency_us",
        top_json_real(operations, mean_us), "longest_us",
        top_json_real(operations, (double)longest_ns / 1e3), "last", top_json_last(s, g->name));
}

/* Fills in what the rank is doing; returns its state. */
static const char *top_json_doing(const struct rank_state *r, char *doing, size_t size)
{
    doing[0] = '\0';
    if (r->end == RANK_EXITED && WIFSIGNALED(r->status)) {
        snprintf(doing, size, "by signal %d", WTERMSIG(r->status));
        return "killed";
    }
    if (r->end == RANK_EXITED) {
        snprintf(doing, size, "with code %d", WEXITSTATUS(r->status));
        return "exited";
    }
    if (r->end == RANK_LOST)
        return "lost";
    if (r->snapshot.known && r->snapshot.state == 'T')
        return "stopped";
    if (r->phase != PHASE_RUNNING && !r->command)
        return rank_phase_text(r, r->phase);
    if (r->snapshot.known && (r->snapshot.n || r->part != PART_OUTSIDE))
        rank_describe(r, doing, size);
    return rank_phase_text(r, r->phase);
}

static json_t *top_json_rank(const struct top_state *s, uint32_t i, uint64_t now_ns)
{
    const struct rank_state *r = &s->ranks[i];
    const struct rank_usage *u = &r->usage;
    char doing[320];
    uint64_t age = 0;
    const char *state = top_json_doing(r, doing, sizeof doing);
    bool inside, aged = r->end != RANK_EXITED && doing[0] && rank_age(r, now_ns, &age, &inside);
    bool used = u->before_ns && r->end != RANK_EXITED;
    return json_pack("{s:i, s:o, s:i, s:o, s:o, s:o, s:o, s:o}", "rank", (int)i, "host",
                     json_value_text(s->desc->hosts[s->desc->ranks[i].host].name), "pid",
                     (int)r->pid, "state", json_value_text(state), "doing", json_value_text(doing),
                     "seconds", top_json_real(aged, (double)age / 1e9), "cpu",
                     top_json_real(used && u->cpu >= 0, u->cpu), "memory",
                     used ? json_integer((json_int_t)u->memory) : json_null());
}

json_t *top_json(const struct top_state *s, uint64_t now_ns)
{
    json_t *groups = json_array(), *ranks = json_array();
    for (uint32_t i = 0; i < s->desc->ngroups; i++)
        if (desc_group_is_used(s->desc, i))
            json_array_append_new(groups, top_json_group(s, i));
    for (uint32_t i = 0; i < s->desc->nranks; i++)
        json_array_append_new(ranks, top_json_rank(s, i, now_ns));
    return json_pack("{s:o, s:o, s:i, s:f, s:i, s:o, s:o, s:o, s:o}", "job",
                     json_value_text(s->desc->job_name), "run_id", json_value_text(s->desc->run_id),
                     "attempt", (int)s->desc->attempt, "seconds",
                     (double)(now_ns - s->live->begin_ns) / 1e9, "up", (int)live_up(s->live),
                     "waits", json_value_text(s->live->waits), "workloads", top_json_workloads(s),
                     "groups", groups, "ranks", ranks);
}
