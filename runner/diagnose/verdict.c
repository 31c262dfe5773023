/* SPDX-License-Identifier: Apache-2.0
 *
 * The strongest class, the earliest rank of it, then the culprits and the facts that programs read.
 */
#include "diagnose/verdict.h"

#include "base/exit_codes.h"
#include "base/names.h"
#include "base/parse.h"
#include "diagnose/blame.h"
#include "diagnose/graph.h"
#include "diagnose/message_pairs.h"
#include "diagnose/mismatch.h"
#include "diagnose/waits.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define NO_CULPRIT UINT32_MAX

const char *verdict_class(const struct verdict *v)
{
    if (v->class == CAUSE_LAUNCH && v->exit_code == EXIT_JOB)
        return "job";
    return cause_class_name(v->class == CAUSE_PEER || v->class == CAUSE_STOPPED ? CAUSE_ERROR
                                                                                : v->class);
}

void verdict_init(struct verdict *v, enum cause_class class, int exit_code, const struct diag *d)
{
    *v = (struct verdict){.class = class, .exit_code = exit_code, .rank = WIRE_HOST};
    if (d)
        v->diag = *d;
    else
        diag_init(&v->diag);
}

/* ---- the culprits ---- */

/* The class of an end as a candidate. After the failure of a rank, another one may fail on its own
 * before that failure has reached it. After a failure of the job, all ranks are asked to stop. */
static enum cause_class verdict_class_of(const struct evidence *e, const struct rank_state *r)
{
    bool alone = e->job.class == CAUSE_NONE && r->stop_requested && !r->disturbed && !r->killed;
    return alone ? cause_alone(r) : cause_of(r);
}

/* The strongest end of a rank replaces `v` if it is stronger than that; of two equal ones, the
 * first. `left_out`: of the ranks that the job continues without, or else of the others. */
static void verdict_choose_among(const struct evidence *e, bool left_out, struct verdict *v)
{
    uint64_t best_ns = v->rank == WIRE_HOST ? e->job.ns : e->ranks[v->rank].first_failure_ns;
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        const struct rank_state *r = &e->ranks[i];
        enum cause_class class = verdict_class_of(e, r);
        if (r->left_out != left_out || class == CAUSE_NONE || class > v->class ||
            (class == v->class && r->first_failure_ns >= best_ns))
            continue;
        v->class = class;
        v->rank = i;
        best_ns = r->first_failure_ns;
    }
}

/* A failure that the job has survived is not its cause if another rank has failed on its own
 * since. */
static void verdict_choose(const struct evidence *e, struct verdict *v)
{
    verdict_choose_among(e, false, v);
    if (v->rank == WIRE_HOST || v->class >= CAUSE_PEER)
        verdict_choose_among(e, true, v);
}

/* Among ranks whose operations have timed out, or failed because of a peer, chooses the one with a
 * connection that has no answer: others may wait for it on the same host. */
static void verdict_choose_connection(const struct evidence *e, struct verdict *v)
{
    if ((v->class != CAUSE_TIMEOUT && v->class != CAUSE_PEER) || v->rank == WIRE_HOST ||
        !e->ranks[v->rank].group[0] || network_cut_is_reported(&e->ranks[v->rank]))
        return;
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        const struct rank_state *r = &e->ranks[i];
        if (r->group[0] && cause_alone(r) == v->class && network_cut_is_reported(r)) {
            v->rank = i;
            return;
        }
    }
}

/* All ranks whose end, without regard to the order of the reports, is of this class. */
static void verdict_blame_ends(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    const bool left_out = e->ranks[v->rank].left_out;
    v->culprits = blame_new_list(e, arena);
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        const struct rank_state *r = &e->ranks[i];
        if (i == v->rank || (cause_alone(r) == v->class && r->left_out == left_out))
            v->culprits.items[v->culprits.n++] = i;
    }
}

static void verdict_blame_lost(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    v->culprits = blame_new_list(e, arena);
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        if (e->ranks[i].end == RANK_LOST)
            v->culprits.items[v->culprits.n++] = i;
    }
}

/* ---- the message ---- */

/* Ranks that report the failure of an operation may be victims of it. Those that exceeded the
 * time-out of a workload did so each on its own. */
static bool verdict_is_shared(const struct verdict *v, const struct rank_state *first)
{
    return v->class < CAUSE_MISMATCH ||
           (first->failed && first->failure.code == COLLRUN_ERR_TIMEOUT &&
            first->subject == WIRE_SUBJECT_WORKLOAD);
}

/* One message for the first culprit and for those that ended in the same way. */
static void verdict_set_text(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    struct desc_ranks alike = blame_new_list(e, arena);
    for (uint32_t i = 0; i < v->culprits.n; i++) {
        uint32_t rank = v->culprits.items[i];
        if (rank == v->rank || (verdict_is_shared(v, &e->ranks[v->rank]) &&
                                cause_is_alike(&e->ranks[v->rank], &e->ranks[rank])))
            alike.items[alike.n++] = rank;
    }
    if (alike.n)
        cause_set_text(e->desc, e->ranks, &alike, &v->diag);
}

static void verdict_take_wait(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    struct graph graph;
    char ranks[200], line[320];
    struct desc_ranks waiting = blame_new_list(e, arena);
    graph_build(e, arena, &graph);
    for (uint32_t i = 0; i < graph.n; i++) {
        const struct graph_wait *w = &graph.waits[i];
        if (!blame_has(&w->waited_for, v->rank) ||
            (v->group && (strcmp(w->group, v->group) != 0 || w->number != v->number)))
            continue;
        v->group = arena_strdup(arena, w->group);
        v->number = w->number;
        v->kind = kind_name((enum collrun_kind)w->kind);
        waiting.items[waiting.n++] = w->rank;
    }
    if (!waiting.n)
        return;
    snprintf(line, sizeof line, "; %s wait%s for it in %s %s#%llu",
             blame_ranks_text(&waiting, ranks, sizeof ranks), waiting.n == 1 ? "s" : "", v->kind,
             v->group, (unsigned long long)v->number);
    blame_append(&v->diag, line);
}

/* The operation in which a rank failed, or that it was in when it died. Of a rank that left the job
 * with code 0, the one in which others wait for it. */
static void verdict_set_operation(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    const struct rank_state *r = &e->ranks[v->rank];
    const struct group_snapshot *inside = snapshot_oldest(&r->snapshot);
    if (r->group[0]) {
        enum collrun_kind kind = blame_kind_of(rank_failed_text(r));
        v->group = arena_strdup(arena, r->group);
        v->number = r->operation;
        v->kind = kind < COLLRUN_KIND_COUNT ? kind_name(kind) : NULL;
    } else if (inside && r->end == RANK_EXITED && !r->failed) {
        v->group = arena_strdup(arena, inside->name);
        v->number = inside->started;
        v->kind = snapshot_kind_name(inside);
    } else if (v->class == CAUSE_EXIT && r->end == RANK_EXITED && !r->failed && r->status == 0) {
        verdict_take_wait(e, arena, v);
    }
}

/* The rank has ended inside a call of MPI: the library has crashed, or has aborted the job, as it
 * does where messages of a collective do not fit. */
static bool verdict_ended_in_mpi(const struct rank_state *r)
{
    const struct group_snapshot *inside = snapshot_oldest(&r->snapshot);
    return r->command && inside && inside->function;
}

/* Ranks that disagree about a call may wait for each other, or break the connections of a backend.
 * A workload may end in its own way after such a failure. */
static bool verdict_may_hide_mismatch(const struct evidence *e, const struct verdict *v)
{
    if (v->rank != WIRE_HOST && cause_is_by_failed_call(&e->ranks[v->rank]))
        return false;
    if (v->rank != WIRE_HOST && v->class >= CAUSE_SIGNAL &&
        verdict_ended_in_mpi(&e->ranks[v->rank]))
        return true;
    if (v->rank == WIRE_HOST || !v->group)
        return false;
    return v->class == CAUSE_PEER || e->ranks[v->rank].why.status == COLLRUN_ERR_BACKEND ||
           (v->class == CAUSE_ERROR && v->diag.code == COLLRUN_ERR_BACKEND);
}

/* All ranks only report that another one failed: the cause is not known, unless a rank has aborted
 * a group by collrun_group_abort: "rank 2 has aborted the group: loss is NaN". */
static void verdict_blame_peer(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    const char *text = v->rank == WIRE_HOST ? "" : rank_failed_text(&e->ranks[v->rank]);
    const char *by = strstr(text, " has aborted the group: ");
    uint32_t rank;
    while (by && by > text && by[-1] != ' ')
        by--;
    bool named = by && by - text >= 5 && strncmp(by - 5, "rank ", 5) == 0 &&
                 sscanf(by, "%u", &rank) == 1 && rank < e->desc->nranks;
    v->suspects = v->culprits;
    v->culprits = named ? blame_new_list(e, arena) : (struct desc_ranks){NULL, 0};
    if (!named || !v->culprits.items)
        return;
    v->culprits.items[v->culprits.n++] = rank;
    v->suspects.n = 0;
}

/* A connection of the rank is broken, or cannot be made, and that is no other rank's doing. */
static void verdict_blame_network(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    char hosts[640];
    struct network_cut *cut = arena_calloc(arena, 1, sizeof *cut);
    if (v->culprits.n || !network_cut_is_reported(&e->ranks[v->rank]) ||
        !network_cut_find(e->desc, e->ranks, arena, v->rank, cut))
        return;
    v->network = cut;
    if (cut->ranks.n)
        v->suspects = cut->ranks;
    network_cut_hosts_text(cut, hosts, sizeof hosts);
    blame_append(&v->diag, hosts);
}

/* The cause behind a deadlock or a time limit. Its exit code is that of its class: the rank that
 * reported it may be a victim. */
static void verdict_blame_waits(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    if (!mismatch_find_hidden(e, arena, v) && !mismatch_find_destroyed(e, arena, v) &&
        !mismatch_find_forming(e, arena, v))
        waits_blame(e, arena, v);
    v->exit_code = v->class >= CAUSE_DEADLOCK ? EXIT_TIMEOUT : EXIT_FAILED;
}

/* The exception of the culprit that failed first, or else of any. If it has ended a thread alone,
 * the message may be about what followed. */
static void verdict_set_exception(const struct evidence *e, struct verdict *v)
{
    uint32_t from = NO_CULPRIT;
    for (uint32_t i = 0; i < v->culprits.n; i++) {
        const uint32_t rank = v->culprits.items[i];
        if (e->ranks[rank].exception && (from == NO_CULPRIT || rank == v->rank))
            from = rank;
    }
    if (from == NO_CULPRIT)
        return;
    v->exception = e->ranks[from].exception;
    char text[900];
    rank_exception_text(v->exception, text, sizeof text);
    if (v->exception->thread[0] && !v->diag.hint[0] && !strstr(v->diag.text, text))
        diag_hint(&v->diag, "thread \"%s\" of rank %u has ended with %s", v->exception->thread,
                  from, text);
}

static void verdict_find_cause(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    verdict_init(v, e->job.class, e->job.exit_code, &e->job.diag);
    verdict_choose(e, v);
    verdict_choose_connection(e, v);
    if (v->class == CAUSE_NONE) {
        if (message_pairs_find(e, WIRE_HOST, arena, v))
            v->exit_code = EXIT_FAILED;
        return;
    }
    if (v->rank != WIRE_HOST) {
        v->exit_code = v->own_code = cause_exit_code(&e->ranks[v->rank], v->class);
        verdict_blame_ends(e, arena, v);
        verdict_set_text(e, arena, v);
        verdict_set_operation(e, arena, v);
    }
    if (v->class == CAUSE_DEADLOCK || v->class == CAUSE_TIMEOUT)
        verdict_blame_waits(e, arena, v);
    else if (v->class == CAUSE_MISMATCH)
        mismatch_blame(e, arena, v);
    else if (verdict_may_hide_mismatch(e, v) &&
             (mismatch_find_hidden(e, arena, v) || mismatch_find_destroyed(e, arena, v) ||
              (verdict_ended_in_mpi(&e->ranks[v->rank]) &&
               message_pairs_find(e, v->rank, arena, v))))
        return;
    else if (v->class == CAUSE_HOST_LOST)
        verdict_blame_lost(e, arena, v);
    else if (v->class >= CAUSE_PEER) {
        verdict_blame_peer(e, arena, v);
        if (v->class == CAUSE_PEER && v->rank != WIRE_HOST)
            verdict_blame_network(e, arena, v);
    }
}

/* ---- warnings, and what a program of MPI does wrong ---- */

/* "MPI_Comm_dup at main (a.c:12): the communicator was not freed before MPI_Finalize, 3 times": the
 * place stands between the call and the reason. */
static const char *verdict_mistake_text(struct arena *arena, const char *text,
                                        const struct stacks_site *site, uint64_t address,
                                        uint32_t times)
{
    const char *colon = strstr(text, ": ");
    const bool placed = site && address && site->address == address && colon;
    char count[32] = "";
    if (times > 1)
        snprintf(count, sizeof count, ", %u times", times);
    return arena_printf(arena, "%.*s%s%s%s%s", placed ? (int)(colon - text) : 0, text,
                        placed ? " at " : "", placed ? site->place : "", placed ? colon : text,
                        count);
}

static void verdict_add_mistakes(const struct evidence *e, uint32_t rank, struct arena *arena,
                                 struct verdict *v, struct verdict_warning *list)
{
    const struct rank_state *r = &e->ranks[rank];
    for (uint32_t i = 0; r->record_bytes && i < r->record.head.nmistakes; i++) {
        struct record_view_mistake m;
        if (!record_view_mistake(&r->record, i, &m))
            continue;
        const struct stacks_site *site = r->mistake_places ? &r->mistake_places[i] : NULL;
        list[v->nwarnings++] = (struct verdict_warning){
            .rank = rank,
            .text = verdict_mistake_text(arena, m.text, site, m.site, m.times),
            .mistake = i,
            .site = m.site};
    }
}

static void verdict_set_warnings(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->desc->nranks; i++)
        n += e->ranks[i].nwarnings +
             (e->ranks[i].record_bytes ? e->ranks[i].record.head.nmistakes : 0);
    struct verdict_warning *list = arena_calloc(arena, n, sizeof *list);
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        for (uint32_t k = 0; k < e->ranks[i].nwarnings; k++)
            list[v->nwarnings++] =
                (struct verdict_warning){.rank = i, .text = e->ranks[i].warnings[k]};
        verdict_add_mistakes(e, i, arena, v, list);
    }
    v->warnings = list;
}

/* The call of MPI whose wrong argument has ended the rank, and its place in the message. */
static void verdict_set_wrong_call(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    const struct rank_state *r = v->rank == WIRE_HOST ? NULL : &e->ranks[v->rank];
    struct record_view_failure why;
    if (!r || v->class != CAUSE_ERROR || !cause_is_by_failed_call(r) || !r->record_bytes)
        return;
    record_view_failure(&r->record, UINT64_MAX, &why);
    struct verdict_call *call = arena_calloc(arena, 1, sizeof *call);
    *call = (struct verdict_call){
        .ranks = v->culprits, .call = r->why.text, .rank = v->rank, .site = why.site};
    v->calls = call;
    v->ncalls = 1;
    char *text = strstr(v->diag.text, r->why.text);
    if (!text || !why.site || r->place.address != why.site)
        return;
    const char *placed = verdict_mistake_text(arena, r->why.text, &r->place, why.site, 1);
    snprintf(text, sizeof v->diag.text - (size_t)(text - v->diag.text), "%s", placed);
}

static bool verdict_is_leak(const struct evidence *e, const struct verdict_warning *w)
{
    const struct rank_state *r = &e->ranks[w->rank];
    struct record_view_mistake m;
    return r->command && r->record_bytes && w->site &&
           e->desc->workloads[desc_find_command(e->desc, w->rank)].observe & DESC_OBSERVE_LEAKS &&
           record_view_mistake(&r->record, w->mistake, &m) && m.kind == RECORD_MISTAKE_LEAK;
}

/* With `leaks: error`, ranks that leave objects of MPI behind have failed. */
static void verdict_blame_leaks(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    if (v->class != CAUSE_NONE)
        return;
    for (uint32_t i = 0; i < v->nwarnings; i++) {
        const struct verdict_warning *w = &v->warnings[i];
        if (!verdict_is_leak(e, w) || blame_has(&v->culprits, w->rank))
            continue;
        if (!v->culprits.n) {
            v->class = CAUSE_ERROR;
            v->exit_code = EXIT_FAILED;
            v->rank = w->rank;
            v->culprits = blame_new_list(e, arena);
            diag_set(&v->diag, COLLRUN_ERR_INVALID, "rank %u: %s", w->rank, w->text);
        }
        v->culprits.items[v->culprits.n++] = w->rank;
    }
}

void verdict_find(const struct evidence *e, struct arena *arena, struct verdict *v)
{
    verdict_find_cause(e, arena, v);
    verdict_set_exception(e, v);
    verdict_set_warnings(e, arena, v);
    verdict_set_wrong_call(e, arena, v);
    verdict_blame_leaks(e, arena, v);
}

/* ---- the other ranks ---- */

enum end { END_OWN, END_PEER, END_STOPPED, END_KILLED, END_UNLISTED };

/* The ranks that the message is about are not listed. */
static enum end verdict_end_of(const struct evidence *e, const struct verdict *v, uint32_t rank)
{
    const struct rank_state *r = &e->ranks[rank];
    enum cause_class class = cause_of(r);
    bool culprit = blame_has(&v->culprits, rank);
    if (rank == v->rank || (culprit && v->class == CAUSE_MISMATCH))
        return END_UNLISTED;
    if (culprit && v->rank != WIRE_HOST && verdict_is_shared(v, &e->ranks[v->rank]))
        return cause_is_alike(&e->ranks[v->rank], r) ? END_UNLISTED : END_OWN;
    if (class == CAUSE_STOPPED)
        return r->end == RANK_EXITED && WIFSIGNALED(r->status) ? END_KILLED : END_STOPPED;
    return class == CAUSE_PEER ? END_PEER : class <= CAUSE_ERROR ? END_OWN : END_UNLISTED;
}

/* Moves those that ended as list[0] did to the front; returns how many. */
static uint32_t verdict_take_alike(const struct evidence *e, uint32_t *list, uint32_t n)
{
    uint32_t alike = 1;
    for (uint32_t i = 1; i < n; i++) {
        uint32_t rank = list[i];
        if (!cause_is_alike(&e->ranks[list[0]], &e->ranks[rank]))
            continue;
        memmove(&list[alike + 1], &list[alike], (i - alike) * sizeof *list);
        list[alike++] = rank;
    }
    return alike;
}

/* "; ranks 0-2 failed because of it"; of ranks that failed on their own, how they did: "; rank 2
 * also failed: workload "train" returned 4 from run". */
static size_t verdict_add_others(const struct evidence *e, enum end end, const uint32_t *list,
                                 uint32_t n, char *out, size_t size)
{
    static const char *const end_texts[END_UNLISTED] = {[END_OWN] = "also failed: ",
                                                        [END_PEER] = "failed because of it",
                                                        [END_STOPPED] = "stopped on request",
                                                        [END_KILLED] =
                                                            "had to be killed by collrun"};
    char text[256], how[400] = "";
    rank_list_format(text, sizeof text, list, n);
    if (end == END_OWN)
        cause_how_text(&e->ranks[list[0]], how, sizeof how);
    int wrote = snprintf(out, size, "rank%s %s %s%s", n == 1 ? "" : "s", text, end_texts[end], how);
    return wrote > 0 && (size_t)wrote < size ? (size_t)wrote : 0;
}

void verdict_other_ranks(const struct evidence *e, const struct verdict *v, char *out, size_t size)
{
    struct arena arena;
    size_t len = 0;
    arena_init(&arena);
    uint32_t *list = arena_calloc(&arena, e->desc->nranks, sizeof *list);
    out[0] = '\0';
    for (int end = 0; end < END_UNLISTED; end++) {
        uint32_t n = 0, alike;
        for (uint32_t i = 0; i < e->desc->nranks; i++) {
            if (verdict_end_of(e, v, i) == (enum end)end)
                list[n++] = i;
        }
        for (uint32_t at = 0; at < n && len + 3 < size; at += alike) {
            alike = end == END_OWN ? verdict_take_alike(e, list + at, n - at) : n;
            size_t begin = len + (len ? (size_t)snprintf(out + len, size - len, "; ") : 0);
            size_t wrote =
                verdict_add_others(e, (enum end)end, list + at, alike, out + begin, size - begin);
            if (!wrote) /* there is no room for it */
                out[len] = '\0';
            len = wrote ? begin + wrote : len;
        }
    }
    arena_fini(&arena);
}
