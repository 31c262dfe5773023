/* SPDX-License-Identifier: Apache-2.0
 *
 * The last attempt in full, and a line for each.
 */
#include "report/result.h"

#include "base/loop.h"
#include "base/preload.h"
#include "report/json_value.h"
#include "xalloc.h"

#include <stdio.h>
#include <stdlib.h>
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
    if (state->end != RANK_EXITED || (class > CAUSE_EXIT && !cause_is_by_failed_call(state)))
        return json_null();
    diag_init(&d);
    cause_set_text(r->desc, r->ranks, &(struct desc_ranks){&rank, 1}, &d);
    return json_value_text(d.text);
}

/* Whose calls the rank's record has, or why it has none: {"by": "mpi", "library": "MPICH 5.0.2"},
 * {"by": null, "why": "..."}. */
static json_t *result_observed(const struct rank_state *state)
{
    static const char *const taps[] = {NULL, "collrun", "mpi", "torch"};
    const struct record_head *head = &state->record.head;
    if (!state->record_bytes)
        return json_null();
    const uint32_t tap = atomic_load(&head->tap), why = atomic_load(&head->unobserved);
    const char *by = tap < sizeof taps / sizeof *taps ? taps[tap] : NULL;
    char library[sizeof head->library_name + 1] = "";
    memcpy(library, head->library_name, sizeof head->library_name);
    if (!by)
        return json_pack("{s:n, s:s}", "by", "why", unobserved_text((enum record_unobserved)why));
    if (!record_tap_has_functions(tap))
        return json_pack("{s:s}", "by", by);
    return json_pack("{s:s, s:o}", "by", by, "library", json_value_text(library));
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
    if (state->end == RANK_EXITED && WIFSIGNALED(state->status))
        json_object_set_new(o, "signal", json_integer(WTERMSIG(state->status)));
    else if (state->end == RANK_EXITED)
        json_object_set_new(o, "exit_code", json_integer(WEXITSTATUS(state->status)));
    enum cause_class class = result_rank_class(r, rank);
    json_object_set_new(o, "class", json_string(cause_class_name(class)));
    json_object_set_new(o, "error", result_error(r, rank, class));
    if (state->command)
        json_object_set_new(o, "observed", result_observed(state));
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
    if (json_array_size(r->internal))
        json_object_set(o, "internal", r->internal);
    json_object_set_new(o, "groups", groups);
    json_object_set_new(o, "ranks", ranks);
    if (r->stragglers)
        json_object_update(o, r->stragglers);
    return o;
}

/* ---- the verdict ---- */

static json_t *verdict_json_text(const char *text)
{
    return text && *text ? json_value_text(text) : json_null();
}

static json_t *verdict_json_calls(const struct verdict *v)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < v->ncalls; i++)
        json_array_append_new(list,
                              json_pack("{s:o, s:o}", "ranks", ranks_json_set(&v->calls[i].ranks),
                                        "call", json_value_text(v->calls[i].call)));
    return list;
}

static json_t *verdict_json_waits(const struct verdict *v)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < v->nwaits; i++) {
        const struct verdict_wait *w = &v->waits[i];
        json_array_append_new(
            list, json_pack("{s:o, s:o, s:o, s:o}", "ranks", ranks_json_set(&w->ranks), "group",
                            json_value_text(w->group), "number",
                            w->number ? json_integer((json_int_t)w->number) : json_null(), "for",
                            ranks_json_set(&w->waited_for)));
    }
    return list;
}

static json_t *verdict_json_exception(const struct rank_exception *e)
{
    json_t *o = e ? json_pack("{s:o, s:o, s:o, s:o}", "type", json_value_text(e->type), "text",
                              json_value_text(e->text), "file", verdict_json_text(e->file), "line",
                              e->line ? json_integer(e->line) : json_null())
                  : json_null();
    if (e && e->thread[0])
        json_object_set_new(o, "thread", json_value_text(e->thread));
    return o;
}

static json_t *verdict_json_doing(const struct verdict *v)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < v->ndoing; i++)
        json_array_append_new(list, json_pack("{s:i, s:o}", "rank", (int)v->doing[i].rank, "text",
                                              json_value_text(v->doing[i].text)));
    return list;
}

static json_t *verdict_json_warnings(const struct verdict *v)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < v->nwarnings; i++)
        json_array_append_new(list, json_pack("{s:i, s:o}", "rank", (int)v->warnings[i].rank,
                                              "text", json_value_text(v->warnings[i].text)));
    return list;
}

json_t *verdict_json_network(const struct network_cut *cut)
{
    const struct network_fault *f = &cut->fault;
    json_t *hosts = json_array();
    for (int i = 0; i < 2 && cut->hosts[i]; i++)
        json_array_append_new(hosts, json_value_text(cut->hosts[i]));
    return json_pack("{s:o, s:i, s:s, s:i, s:b, s:f, s:I, s:i, s:i}", "hosts", hosts, "rank",
                     (int)cut->rank, "address", f->address, "port", (int)f->port, "connected",
                     !f->opening, "seconds", f->silent_s, "unacknowledged", (json_int_t)f->bytes,
                     "retransmits", f->probed ? 0 : (int)f->attempts, "probes",
                     f->probed ? (int)f->attempts : 0);
}

json_t *verdict_json(const struct verdict *v)
{
    json_t *o = json_object();
    json_object_set_new(o, "class", json_string(verdict_class(v)));
    json_object_set_new(o, "culprits", ranks_json_list(&v->culprits));
    json_object_set_new(o, "suspects", ranks_json_list(&v->suspects));
    json_object_set_new(o, "group", verdict_json_text(v->group));
    json_object_set_new(o, "kind", verdict_json_text(v->kind));
    json_object_set_new(o, "number",
                        v->group && v->number ? json_integer((json_int_t)v->number) : json_null());
    json_object_set_new(o, "field", verdict_json_text(v->field));
    json_object_set_new(o, "calls", verdict_json_calls(v));
    json_object_set_new(o, "waits", verdict_json_waits(v));
    json_object_set_new(o, "exception", verdict_json_exception(v->exception));
    if (v->ndoing)
        json_object_set_new(o, "doing", verdict_json_doing(v));
    if (v->network)
        json_object_set_new(o, "network", verdict_json_network(v->network));
    if (v->nwarnings)
        json_object_set_new(o, "warnings", verdict_json_warnings(v));
    json_object_set_new(o, "text",
                        v->class == CAUSE_NONE ? json_null() : verdict_json_text(v->diag.text));
    return o;
}

/* ---- stragglers ---- */

static int stragglers_compare(const void *a, const void *b)
{
    const struct straggler_rank *x = *(const struct straggler_rank *const *)a;
    const struct straggler_rank *y = *(const struct straggler_rank *const *)b;
    if (x->last != y->last)
        return x->last < y->last ? 1 : -1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static json_t *stragglers_rank(const struct straggler_group *g, const struct straggler_rank *r)
{
    return json_pack("{s:I, s:I, s:f, s:f}", "rank", (json_int_t)r->rank, "last",
                     (json_int_t)r->last, "late_ms", (double)r->late_ns / 1e6 / (double)r->last,
                     "cost", straggler_cost(g, (uint32_t)(r - g->ranks)));
}

static json_t *stragglers_ranks(const struct straggler_group *g)
{
    const struct straggler_rank **order = xcalloc(g->nranks + 1, sizeof(void *));
    json_t *list = json_array();
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->nranks; i++) {
        if (g->ranks[i].last)
            order[n++] = &g->ranks[i];
    }
    qsort((void *)order, n, sizeof(void *), stragglers_compare);
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, stragglers_rank(g, order[i]));
    free((void *)order);
    return list;
}

json_t *stragglers_json(const struct straggler_list *list)
{
    json_t *groups = json_array(), *o = json_pack("{s:o}", "stragglers", groups);
    for (uint32_t i = 0; i < list->n; i++) {
        const struct straggler_sums *s = &list->items[i];
        json_array_append_new(
            groups, json_pack("{s:o, s:I, s:o}", "group", json_value_text(s->group), "compared",
                              (json_int_t)s->sums.compared, "ranks", stragglers_ranks(&s->sums)));
    }
    if (list->left_out)
        json_object_set_new(o, "stragglers_left_out", json_integer((json_int_t)list->left_out));
    return o;
}

void stragglers_print(const struct straggler_list *list, FILE *out)
{
    struct straggler_finding f;
    for (uint32_t i = 0; i < list->n; i++) {
        if (straggler_find(&list->items[i].sums, &f))
            fprintf(out,
                    "collrun: rank %u was last in %.0f %% of the operations of group %s, %.1f ms "
                    "late on average; that cost %.0f %% of the time\n",
                    f.rank, 100.0 * (double)f.last / (double)f.compared, list->items[i].group,
                    f.late_ms, 100.0 * f.cost);
    }
}
