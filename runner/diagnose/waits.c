/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/waits.h"

#include "base/names.h"
#include "diagnose/blame.h"
#include "diagnose/cuts.h"
#include "diagnose/deadlock.h"
#include "diagnose/mismatch.h"

#include <stdio.h>
#include <string.h>

/* Sets v->waits: those in the same operation for the same ranks are one. */
static void waits_list(const struct evidence *e, const struct graph *graph, struct arena *arena,
                       struct verdict *v)
{
    struct verdict_wait *waits = arena_calloc(arena, graph->n, sizeof *waits);
    for (uint32_t i = 0; i < graph->n; i++) {
        const struct graph_wait *w = &graph->waits[i];
        uint32_t k = 0;
        while (k < v->nwaits &&
               (strcmp(waits[k].group, w->group) != 0 || waits[k].number != w->number ||
                waits[k].waited_for.n != w->waited_for.n ||
                memcmp(waits[k].waited_for.items, w->waited_for.items,
                       w->waited_for.n * sizeof(uint32_t)) != 0))
            k++;
        if (k == v->nwaits)
            waits[v->nwaits++] =
                (struct verdict_wait){blame_new_list(e, arena), w->group, w->number, w->waited_for};
        if (waits[k].ranks.items)
            waits[k].ranks.items[waits[k].ranks.n++] = w->rank;
    }
    v->waits = waits;
}

static void waits_set_operation(const struct graph_wait *w, struct verdict *v)
{
    v->group = w->group;
    v->number = w->number;
    v->kind = w->call ? NULL : kind_name((enum collrun_kind)w->kind);
}

static const struct graph_wait *waits_of(const struct graph *graph, uint32_t rank)
{
    for (uint32_t i = 0; i < graph->n; i++) {
        if (graph->waits[i].rank == rank)
            return &graph->waits[i];
    }
    return NULL;
}

/* The first wait for a rank that does not wait. */
static const struct graph_wait *waits_for_sink(const struct graph *graph)
{
    for (uint32_t i = 0; i < graph->n; i++) {
        const struct graph_wait *w = &graph->waits[i];
        for (uint32_t k = 0; k < w->waited_for.n; k++) {
            if (!waits_of(graph, w->waited_for.items[k]))
                return w;
        }
    }
    return NULL;
}

/* Ranks wait for ranks whose workloads have ended. If more have ended than wait, those that wait
 * made a call that the others did not. */
static void waits_ended(const struct evidence *e, const struct graph *graph, struct arena *arena,
                        struct verdict *v)
{
    const struct graph_wait *w = waits_for_sink(graph);
    struct desc_ranks ended = blame_new_list(e, arena), waiting = blame_new_list(e, arena);
    if (!w)
        return;
    waits_set_operation(w, v);
    for (uint32_t k = 0; k < w->waited_for.n; k++) {
        if (!waits_of(graph, w->waited_for.items[k]))
            ended.items[ended.n++] = w->waited_for.items[k];
    }
    for (uint32_t i = 0; i < graph->n; i++) {
        const struct graph_wait *other = &graph->waits[i];
        if (strcmp(other->group, w->group) == 0 && other->number == w->number)
            waiting.items[waiting.n++] = other->rank;
    }
    bool extra = !w->call && kind_is_collective(w->kind) && ended.n > waiting.n;
    v->class = CAUSE_EXIT;
    v->culprits = extra ? waiting : ended;
    if (extra)
        mismatch_blame_extra(e, &ended, arena, v);
}

/* Appends "; rank 3 has not called world#17". */
static void waits_add_missing(const struct verdict *v, const char *it, struct diag *d)
{
    char ranks[200], line[400];
    blame_ranks_text(&v->culprits, ranks, sizeof ranks);
    snprintf(line, sizeof line, "; %s %s not called %s", ranks, v->culprits.n == 1 ? "has" : "have",
             it);
    blame_append(d, line);
}

/* The operation of the group of `number` that the culprits are late in. */
static const struct graph_wait *waits_for(const struct graph *graph, uint32_t rank)
{
    for (uint32_t i = 0; i < graph->n; i++) {
        if (blame_has(&graph->waits[i].waited_for, rank))
            return &graph->waits[i];
    }
    return NULL;
}

static bool waits_have_ended(const struct evidence *e, const struct desc_ranks *ranks)
{
    bool ended = ranks->n > 0;
    for (uint32_t i = 0; i < ranks->n; i++)
        ended = ended && rank_has_ended(&e->ranks[ranks->items[i]]);
    return ended;
}

/* How long the workloads had run when the limit passed that the verdict is about; 0: it is the
 * time-out of an operation, which others have waited in for too long. */
static uint64_t waits_limit(const struct evidence *e, const struct verdict *v)
{
    if (v->rank == WIRE_HOST)
        return e->job.limit_ns;
    const struct rank_state *r = &e->ranks[v->rank];
    return !v->group && r->workload < e->desc->nworkloads
               ? e->desc->workloads[r->workload].timeout_ns
               : 0;
}

/* How many operations a rank has completed in a group. */
static uint64_t waits_steps(const struct evidence *e, uint32_t rank, const char *group)
{
    const struct rank_snapshot *s = &e->ranks[rank].snapshot;
    uint64_t steps = 1;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct group_snapshot *g = &s->groups[i];
        if (strcmp(g->name, group) == 0 && g->done > steps)
            steps = g->done;
    }
    return steps;
}

/* In a healthy job ranks wait for each other all the time, and a limit may pass at any moment. A
 * rank is missing if others have waited for it for a good part of the limit, and for four times as
 * long as it took from one operation to the next before; if it has completed fewer than four, for
 * as long as all of them took. */
static bool waits_is_overdue(const struct evidence *e, const struct verdict *v,
                             const struct graph_wait *w, uint32_t rank)
{
    enum { STEPS = 4, SHARE = 10 };
    const uint64_t ran_ns = waits_limit(e, v), steps = waits_steps(e, rank, w->group);
    const uint64_t before_ns = ran_ns > w->age_ns ? ran_ns - w->age_ns : 0;
    return w->age_ns >= ran_ns / SHARE &&
           w->age_ns >= before_ns / steps * (steps < STEPS ? steps : STEPS);
}

/* The sinks that `start` waits for. Without any, the ranks wait for each other. */
static void waits_missing(const struct evidence *e, const struct graph *graph, uint32_t start,
                          struct arena *arena, struct verdict *v)
{
    struct desc_ranks sinks = graph_sinks(graph, start, arena);
    const struct graph_wait *own = waits_of(graph, start);
    char it[120];
    if (v->network && network_cut_explains(e->ranks, sinks.items, sinks.n))
        return;
    if (!sinks.n) {
        v->class = CAUSE_DEADLOCK;
        v->suspects = graph_reached(graph, start, arena);
        waits_set_operation(own, v);
        return;
    }
    const struct graph_wait *w =
        blame_has(&own->waited_for, sinks.items[0]) ? own : waits_for(graph, sinks.items[0]);
    const struct rank_state *r = &e->ranks[start];
    bool same = v->rank == start && r->operation == w->number && strcmp(r->group, w->group) == 0;
    if (waits_limit(e, v) && !waits_is_overdue(e, v, w, sinks.items[0]))
        return;
    v->class = CAUSE_MISSING;
    v->culprits = sinks;
    if (waits_have_ended(e, &sinks))
        waits_ended(e, graph, arena, v);
    if (v->class == CAUSE_MISMATCH)
        return;
    waits_set_operation(w, v);
    if (w->call)
        snprintf(it, sizeof it, "%s", w->call);
    else
        snprintf(it, sizeof it, "%s#%llu", w->group, (unsigned long long)w->number);
    if (w->call || kind_is_collective(w->kind))
        waits_add_missing(v, same ? "it" : it, &v->diag);
}

/* Before all ranks run: those that are behind the others. */
static void waits_late_start(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    enum rank_phase last = PHASE_WAITING;
    struct desc_ranks late = blame_new_list(e, arena);
    for (uint32_t i = 0; i < e->desc->nranks; i++)
        last = e->ranks[i].phase > last ? e->ranks[i].phase : last;
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        if (e->ranks[i].phase < last)
            late.items[late.n++] = i;
    }
    if (!late.n || last > PHASE_READY)
        return;
    v->class = CAUSE_MISSING;
    v->culprits = late;
}

/* When the limit of the job passed, all ranks that had not finished had been in their fini for a
 * good part of it. */
static void waits_in_fini(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    enum { SHARE = 10 };
    struct desc_ranks hang = blame_new_list(e, arena);
    char ranks[200], line[320];
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        const struct rank_state *r = &e->ranks[i];
        if (rank_has_ended(r) || rank_is_gone(r))
            continue;
        if (!cause_is_in_fini(e->desc, r, i) || r->snapshot.fini_ns < e->job.limit_ns / SHARE)
            return;
        hang.items[hang.n++] = i;
    }
    if (!hang.n || !e->job.limit_ns || v->class != CAUSE_TIMEOUT)
        return;
    v->class = CAUSE_MISSING;
    v->culprits = hang;
    snprintf(line, sizeof line, "; %s %s been in %s fini for %.1f s",
             blame_ranks_text(&hang, ranks, sizeof ranks), hang.n == 1 ? "has" : "have",
             hang.n == 1 ? "its" : "their", (double)e->ranks[hang.items[0]].snapshot.fini_ns / 1e9);
    blame_append(&v->diag, line);
}

/* A group of the job did not form: its members that did not wait for it. */
static void waits_absent(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    struct desc_ranks absent = blame_new_list(e, arena);
    for (uint32_t i = 0; i < e->desc->ngroups; i++) {
        const struct desc_group *group = &e->desc->groups[i];
        for (uint32_t k = 0; strcmp(group->name, v->group) == 0 && k < group->ranks.n; k++) {
            const struct rank_state *r = &e->ranks[group->ranks.items[k]];
            if (!r->failed || r->failure.code != COLLRUN_ERR_TIMEOUT)
                absent.items[absent.n++] = group->ranks.items[k];
        }
    }
    if (!absent.n)
        return;
    v->class = CAUSE_MISSING;
    v->culprits = absent;
}

static bool waits_is_inside(const struct evidence *e, uint32_t rank)
{
    char inside[256];
    return snapshot_inside(&e->ranks[rank].snapshot, inside, sizeof inside);
}

/* Reads a list of ranks up to " did not", as base/parse.h writes it. False: it is cut short. */
static bool waits_read_ranks(const char *text, uint32_t nranks, struct desc_ranks *out)
{
    while (strncmp(text, " did not ", 9) != 0) {
        uint32_t first, last;
        int len = 0;
        text += strncmp(text, ", ", 2) == 0 ? 2 : strncmp(text, " and ", 5) == 0 ? 5 : 0;
        if (sscanf(text, "%u%n", &first, &len) != 1)
            return false;
        text += len;
        last = first;
        if (sscanf(text, "-%u%n", &last, &len) == 1)
            text += len;
        if (first > last || last >= nranks || last - first >= nranks - out->n)
            return false;
        for (uint32_t rank = first; rank <= last; rank++)
            out->items[out->n++] = rank;
    }
    return true;
}

/* A group that a workload creates or splits did not form. The error names the members that did not
 * join: "group "x": ranks 2 and 5 did not join within 3.0 s (2 of 6 members)". Those that wait in
 * an operation, or may have waited for another group, are suspects. False: it is another error. */
static bool waits_not_joined(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    const char *text = rank_failed_text(&e->ranks[v->rank]), *at = strstr(text, "\": rank");
    struct desc_ranks missing = blame_new_list(e, arena), absent = blame_new_list(e, arena);
    if (!at || !strstr(at, " did not ") || !missing.items || !absent.items)
        return false;
    at += strlen("\": rank");
    v->culprits.n = 0;
    if (!waits_read_ranks(at + strspn(at, "s "), e->desc->nranks, &missing))
        return true;
    for (uint32_t i = 0; i < missing.n; i++) {
        const struct rank_state *r = &e->ranks[missing.items[i]];
        if (!waits_is_inside(e, missing.items[i]) &&
            ((!r->failed && !r->why.status) || r->operation))
            absent.items[absent.n++] = missing.items[i];
    }
    if (absent.n) {
        v->class = CAUSE_MISSING;
        v->culprits = absent;
    } else {
        v->suspects = missing;
    }
    return true;
}

/* The wait to begin with: that of the rank that failed, or the oldest one. */
static uint32_t waits_start(const struct graph *graph, const struct verdict *v)
{
    const struct graph_wait *oldest = NULL;
    if (v->rank != WIRE_HOST)
        return waits_of(graph, v->rank) ? v->rank : WIRE_HOST;
    for (uint32_t i = 0; i < graph->n; i++)
        oldest = !oldest || graph->waits[i].age_ns > oldest->age_ns ? &graph->waits[i] : oldest;
    return oldest ? oldest->rank : WIRE_HOST;
}

/* Two collectives, and the ranks that call them in an order which more ranks contradict. */
struct waits_order {
    const char *first, *later; /* groups */
    uint64_t first_number, later_number;
    const struct desc_ranks *ranks;
};

/* Appends "; only rank 1 calls world#4 before other#7". */
static void waits_add_order(const struct waits_order *o, struct diag *d)
{
    char ranks[200], line[480];
    snprintf(line, sizeof line, "; only %s call%s %s#%llu before %s#%llu",
             blame_ranks_text(o->ranks, ranks, sizeof ranks), o->ranks->n == 1 ? "s" : "", o->first,
             (unsigned long long)o->first_number, o->later, (unsigned long long)o->later_number);
    blame_append(d, line);
}

static void waits_deadlock(const struct evidence *e, const struct deadlock *found,
                           struct arena *arena, struct verdict *v)
{
    if (v->class == CAUSE_TIMEOUT) {
        blame_append(&v->diag, "; ");
        blame_append(&v->diag, found->diag.text);
        if (!v->diag.hint[0] && found->diag.hint[0])
            diag_hint(&v->diag, "%s", found->diag.hint);
    }
    waits_list(e, &found->waits, arena, v);
    if (!found->cycle.n) {
        waits_ended(e, &found->waits, arena, v);
        return;
    }
    v->class = CAUSE_DEADLOCK;
    v->culprits = found->minority.ranks;
    if (v->culprits.n)
        waits_add_order(&(struct waits_order){found->minority.first->name,
                                              found->minority.later->name,
                                              found->minority.first_number,
                                              found->minority.later_number, &v->culprits},
                        &v->diag);
    else
        v->suspects = found->cycle;
    waits_set_operation(waits_of(&found->waits, found->cycle.items[0]), v);
}

/* The ranks that are waited for wait in an operation, too, and a signal has stopped some in it. */
static void waits_stopped(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    struct desc_ranks stopped = blame_new_list(e, arena);
    char ranks[200], line[320];
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        if (e->ranks[i].snapshot.state == 'T' && waits_is_inside(e, i))
            stopped.items[stopped.n++] = i;
    }
    for (uint32_t i = 0; i < v->culprits.n; i++) {
        if (!waits_is_inside(e, v->culprits.items[i]))
            return;
    }
    if (!stopped.n)
        return;
    v->class = CAUSE_MISSING;
    v->culprits = stopped;
    blame_ranks_text(&stopped, ranks, sizeof ranks);
    snprintf(line, sizeof line, "; %s %s been stopped by a signal", ranks,
             stopped.n == 1 ? "has" : "have");
    blame_append(&v->diag, line);
}

/* The message is that of the proof. */
static void waits_proven(const struct evidence *e, const struct cuts_proof *p, struct arena *arena,
                         struct verdict *v)
{
    struct desc_ranks missing = blame_new_list(e, arena);
    const struct graph_wait *first = waits_of(&p->waits, p->core.items[0]);
    waits_list(e, &p->waits, arena, v);
    if (first)
        waits_set_operation(first, v);
    if (p->shape != PROOF_MISSING) {
        v->class = CAUSE_DEADLOCK;
        v->culprits = p->minority.ranks;
        v->suspects = v->culprits.n ? v->suspects : p->core;
        if (v->culprits.n)
            waits_add_order(&(struct waits_order){p->minority.first, p->minority.later,
                                                  p->minority.first_number,
                                                  p->minority.later_number, &v->culprits},
                            &v->diag);
    } else if (!p->missing_sleeps) {
        waits_ended(e, &p->waits, arena, v);
    } else if (missing.items) {
        missing.items[missing.n++] = p->missing;
        v->class = CAUSE_MISSING;
        v->culprits = missing;
    }
}

static void waits_find(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    struct deadlock found;
    struct graph graph;
    bool workload = v->rank != WIRE_HOST && !v->group;
    bool explain = v->class == CAUSE_TIMEOUT;
    if (!workload)
        v->culprits.n = 0;
    if (v->rank != WIRE_HOST && v->group && e->ranks[v->rank].failed_phase == WIRE_PHASE_GROUPS) {
        waits_absent(e, arena, v);
        return;
    }
    if (v->rank != WIRE_HOST && waits_not_joined(e, arena, v))
        return;
    if (e->job.proof && v->class == CAUSE_DEADLOCK) {
        waits_proven(e, e->job.proof, arena, v);
        return;
    }
    if (deadlock_find(e->desc, e->ranks, explain, arena, &found)) {
        v->culprits.n = 0;
        waits_deadlock(e, &found, arena, v);
        return;
    }
    graph_build(e, arena, &graph);
    waits_list(e, &graph, arena, v);
    uint32_t start = waits_start(&graph, v);
    if (start != WIRE_HOST)
        waits_missing(e, &graph, start, arena, v);
    else
        waits_late_start(e, arena, v);
    if (start == WIRE_HOST && v->rank == WIRE_HOST)
        waits_in_fini(e, arena, v);
    if (v->class == (v->culprits.n ? CAUSE_MISSING : CAUSE_TIMEOUT))
        waits_stopped(e, arena, v);
}

/* Where ranks were that no rank waits for, when the limit of the job passed, without a culprit:
 * "; ranks 0-2 are in load_batch (data.c:88), asleep in nanosleep()". */
static void waits_add_alone(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    char ranks[200], line[640];
    if (v->class != CAUSE_TIMEOUT || v->rank != WIRE_HOST || v->culprits.n || v->suspects.n)
        return;
    struct desc_ranks alike = blame_new_list(e, arena);
    for (uint32_t i = 0; alike.items && i < e->desc->nranks; i++) {
        const char *doing = e->ranks[i].doing;
        alike.n = 0;
        for (uint32_t k = 0; *doing && !waits_is_inside(e, i) && k < e->desc->nranks; k++) {
            if (!waits_is_inside(e, k) && strcmp(e->ranks[k].doing, doing) == 0)
                alike.items[alike.n++] = k;
        }
        if (!alike.n || alike.items[0] != i)
            continue;
        snprintf(line, sizeof line, "; %s %s %s", blame_ranks_text(&alike, ranks, sizeof ranks),
                 alike.n == 1 ? "is" : "are", doing);
        blame_append(&v->diag, line);
    }
}

/* Where the ranks were that are late: "; it is in load_batch (data.c:88), asleep in nanosleep()".
 */
static void waits_add_doing(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    struct verdict_doing *list = arena_calloc(arena, e->desc->nranks, sizeof *list);
    char who[32], line[480];
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        if (!e->ranks[i].doing[0])
            continue;
        list[v->ndoing++] = (struct verdict_doing){i, e->ranks[i].doing};
        if (!blame_has(&v->culprits, i) || waits_is_inside(e, i))
            continue;
        snprintf(who, sizeof who, "rank %u", i);
        snprintf(line, sizeof line, "; %s is %s", v->culprits.n == 1 ? "it" : who,
                 e->ranks[i].doing);
        blame_append(&v->diag, line);
    }
    v->doing = list;
    waits_add_alone(e, arena, v);
}

/* Without ranks that are to blame, those of the hosts between which a connection has no answer. */
static void waits_add_network(struct verdict *v)
{
    char text[640];
    if (!v->network || v->class != CAUSE_TIMEOUT || v->culprits.n || v->suspects.n)
        return;
    v->suspects = v->network->ranks;
    struct network_fault named;
    const char *end;
    if (network_fault_read(v->diag.text, &named, &end))
        return;
    snprintf(text, sizeof text, "; rank %u: ", v->network->rank);
    network_cut_text(v->network, text + strlen(text), sizeof text - strlen(text));
    blame_append(&v->diag, text);
}

/* A receive waits, and a message with another tag that its rank does not receive is there. */
static void waits_add_other_tags(const struct evidence *e, struct verdict *v)
{
    enum { MOST = 2 };
    char text[320];
    for (uint32_t i = 0, n = 0; n < MOST && i < e->desc->nranks; i++) {
        if (!deadlock_other_tag(e->desc, e->ranks, i, text, sizeof text) ||
            (v->rank == i && strstr(v->diag.text, " from it has arrived")))
            continue;
        n++;
        blame_append(&v->diag, "; ");
        blame_append(&v->diag, text);
        if (!v->diag.hint[0])
            diag_hint(&v->diag, "the tag of the receive must be the tag of the send");
    }
}

void waits_blame(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    struct network_cut *cut = arena_calloc(arena, 1, sizeof *cut);
    if (network_cut_find(e->desc, e->ranks, arena, v->rank, cut))
        v->network = cut;
    waits_find(e, arena, v);
    waits_add_network(v);
    if (v->class == CAUSE_DEADLOCK || v->class == CAUSE_MISSING || v->class == CAUSE_TIMEOUT)
        waits_add_other_tags(e, v);
    if (v->class == CAUSE_MISSING || v->class == CAUSE_TIMEOUT)
        waits_add_doing(e, arena, v);
}
