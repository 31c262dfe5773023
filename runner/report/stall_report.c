/* SPDX-License-Identifier: Apache-2.0 */
#include "report/stall_report.h"

#include "base/call_text.h"
#include "base/names.h"
#include "base/parse.h"
#include "diagnose/blame.h"
#include "diagnose/deadlock.h"
#include "diagnose/network_cut.h"
#include "report/json_value.h"
#include "report/result.h"

#include <string.h>

enum { FRAMES_MAX = 16, THREADS_MAX = 12, RANKS_LEN = 160 };

/* "rank 3", "ranks 0-2 and 5" */
static void stall_report_list(const uint32_t *ranks, uint32_t n, char *out, size_t size)
{
    char list[RANKS_LEN];
    rank_list_format(list, sizeof list, ranks, n);
    snprintf(out, size, "rank%s %s", n == 1 ? "" : "s", list);
}

/* "allreduce world#7 (8 x float32, sum)"; "world#7" if the arguments are not known. */
static void stall_report_call(const struct stall_wait *w, bool arguments, char *out, size_t size)
{
    if (w->joining)
        snprintf(out, size, "collrun_init");
    else if (w->start)
        snprintf(out, size, "start of the workloads");
    else if (w->forming)
        forming_text(w->kind, w->op.name, out, size);
    else if (w->described && arguments)
        snapshot_call_numbered(&w->op, w->tag, out, size);
    else
        snprintf(out, size, "%s%s%s#%llu", w->described ? snapshot_kind_name(&w->op) : "",
                 w->described ? " " : "", w->op.name, (unsigned long long)w->op.started);
}

/* ---- CAUSE ---- */

/* "rank 5 (node2, pid 4711)" */
static int stall_report_rank(const struct stall_report *r, uint32_t rank, char *out, size_t size)
{
    return snprintf(out, size, "rank %u (%s, pid %d)", rank,
                    r->desc->hosts[r->desc->ranks[rank].host].name, (int)r->ranks[rank].pid);
}

static bool stall_report_in_background(const struct stall_report *r, uint32_t rank)
{
    for (uint32_t i = 0; i < r->desc->nworkloads; i++) {
        const struct desc_workload *w = &r->desc->workloads[i];
        if (w->background && blame_has(&w->ranks, rank))
            return true;
    }
    return false;
}

static const char *stall_report_end(const struct stall_report *r, uint32_t rank)
{
    if (r->ranks[rank].part >= PART_FINALIZING)
        return r->ranks[rank].over ? "its program has ended with exit code 0"
                                   : "it has called collrun_finalize";
    return stall_report_in_background(r, rank) ? "its foreground workloads have ended"
                                               : "its workloads have ended";
}

/* "it is in load_batch (data.c:88), asleep in read(3) of /data/x" */
static void stall_report_doing(const struct stall_report *r, uint32_t rank, char *out, size_t size)
{
    const struct rank_state *state = &r->ranks[rank];
    char doing[400];
    rank_doing(state, doing, sizeof doing);
    if (rank_has_ended(state))
        snprintf(out, size, "%s", stall_report_end(r, rank));
    else
        snprintf(out, size, "it is %s", doing);
}

static void stall_report_culprit(const struct stall_report *r, uint32_t rank, char *out,
                                 size_t size)
{
    const struct stall_wait *w = stall_wait_for(r->stall, rank);
    char who[160], call[200], doing[420], waiting[RANKS_LEN + 8];
    stall_report_rank(r, rank, who, sizeof who);
    stall_report_doing(r, rank, doing, sizeof doing);
    if (!w) { /* stopped inside an operation */
        snprintf(out, size, "%s has called all operations; %s", who, doing);
        return;
    }
    stall_report_call(w, true, call, sizeof call);
    stall_report_list(w->waiting, w->nwaiting, waiting, sizeof waiting);
    const char *verb = !w->op.messages              ? "has not called"
                       : w->op.kind == COLLRUN_SEND ? "has not received"
                                                    : "has not sent";
    const struct rank_state *state = &r->ranks[rank];
    if (w->joining)
        snprintf(out, size, "%s has not called collrun_init; %s", who, doing);
    else if (w->start)
        snprintf(out, size, "%s is %s; %s", who, rank_phase_text(state, state->phase), doing);
    else if (w->op.messages)
        snprintf(out, size, "%s %s the message of %s in %s; %s", who, verb, waiting, call, doing);
    else
        snprintf(out, size, "%s %s %s; %s", who, verb, call, doing);
}

/* A connection between hosts has no answer, and no rank is late for another reason. */
static bool stall_report_cut(const struct stall_report *r, struct arena *arena,
                             struct network_cut *cut)
{
    return network_cut_explains(r->ranks, r->stall->culprits, r->stall->nculprits) &&
           network_cut_find(r->desc, r->ranks, arena, WIRE_HOST, cut);
}

void stall_report_text(const struct stall_report *r, char *out, size_t size)
{
    const struct stall *s = r->stall;
    char list[RANKS_LEN + 8], call[200] = "";
    struct network_cut cut;
    struct arena arena;
    arena_init(&arena);
    if (stall_report_cut(r, &arena, &cut)) {
        int len = stall_report_rank(r, cut.rank, out, size);
        len += snprintf(out + len, size - (size_t)len, ": ");
        network_cut_text(&cut, out + len, size - (size_t)len);
    } else if (s->nculprits) {
        stall_report_culprit(r, s->culprits[0], out, size);
    } else if (s->nsuspects) {
        stall_report_list(s->suspects, s->nsuspects, list, sizeof list);
        snprintf(out, size, "%s wait for each other", list);
    } else {
        stall_report_list(s->waits[0].waiting, s->waits[0].nwaiting, list, sizeof list);
        stall_report_call(&s->waits[0], true, call, sizeof call);
        snprintf(out, size,
                 "not known: no member is missing, but %s %s not completed %s (a long transfer, a "
                 "cut network, or a library that hangs)",
                 list, s->waits[0].nwaiting == 1 ? "has" : "have", call);
    }
    arena_fini(&arena);
}

static void stall_report_thread(const struct stacks_thread *t, FILE *out)
{
    char doing[320];
    stacks_describe(t, doing, sizeof doing);
    fprintf(out, "       thread %u (%s): %s", t->tid, t->name, doing);
    if (t->state != 'R')
        fprintf(out, ", %u %% CPU", (t->use + 5) / 10);
    fputc('\n', out);
    for (uint32_t i = 0; i < t->nframes && i < FRAMES_MAX; i++)
        fprintf(out, "         %s\n", t->frames[i]);
    if (t->nframes > FRAMES_MAX)
        fprintf(out, "         ... and %u more\n", t->nframes - FRAMES_MAX);
}

static void stall_report_threads(const struct stall_report *r, uint32_t rank, FILE *out)
{
    const struct rank_stacks *s = &r->ranks[rank].stacks;
    uint32_t shown = 0;
    for (uint32_t i = 0; i < s->nthreads && shown < THREADS_MAX; i++) {
        if (!stacks_is_shown(s, i, r->ranks[rank].command))
            continue;
        stall_report_thread(&s->threads[i], out);
        shown++;
    }
    if (s->received && s->why[0])
        fprintf(out, "       its stacks are not known: %s\n", s->why);
}

static void stall_report_causes(const struct stall_report *r, FILE *out)
{
    const struct stall *s = r->stall;
    uint32_t shown[STALL_REPORT_STACKS], n = stall_report_ranks(s, shown);
    char text[1200], who[160];
    struct network_cut cut;
    struct arena arena;
    arena_init(&arena);
    const uint32_t nculprits = stall_report_cut(r, &arena, &cut) ? 0 : s->nculprits;
    arena_fini(&arena);
    stall_report_text(r, text, sizeof text);
    fprintf(out, "CAUSE  %s\n", text);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 && nculprits) {
            stall_report_culprit(r, shown[i], text, sizeof text);
            fprintf(out, "CAUSE  %s\n", text);
        } else if (!nculprits) {
            stall_report_rank(r, shown[i], who, sizeof who);
            fprintf(out, "       %s:\n", who);
        }
        stall_report_threads(r, shown[i], out);
    }
    if (nculprits > n) {
        stall_report_list(s->culprits + n, s->nculprits - n, text, sizeof text);
        fprintf(out, "CAUSE  %s: likewise\n", text);
    }
}

/* ---- WAIT ---- */

static void stall_report_wait(const struct stall_report *r, const struct stall_wait *w, FILE *out)
{
    char waiting[RANKS_LEN + 8], missing[RANKS_LEN + 8], call[200], tags[320];
    stall_report_list(w->waiting, w->nwaiting, waiting, sizeof waiting);
    stall_report_list(w->missing, w->nmissing, missing, sizeof missing);
    stall_report_call(w, false, call, sizeof call);
    fprintf(out, "WAIT   %s -> %s", waiting, call);
    if (w->nmissing)
        fprintf(out, " -> %s%s", w->any && w->nmissing > 1 ? "one of " : "", missing);
    else if (w->peer_unknown)
        fprintf(out, " -> rank %d of the group", w->op.root_or_peer);
    fprintf(out, ", for %.1f s", (double)(r->now_ns - w->since_ns) / 1e9);
    const char *place = w->site ? stacks_site(&r->ranks[w->site_rank].stacks, w->site) : NULL;
    if (place)
        fprintf(out, "; rank %u calls it in %s", w->site_rank, place);
    fputc('\n', out);
    for (uint32_t i = 0; w->op.messages && i < w->nwaiting && i < STALL_REPORT_WAITS; i++) {
        if (deadlock_other_tag(r->desc, r->ranks, w->waiting[i], tags, sizeof tags))
            fprintf(out, "       %s\n", tags);
    }
}

void stall_report_print(const struct stall_report *r, FILE *out)
{
    const struct stall *s = r->stall;
    stall_report_causes(r, out);
    for (uint32_t i = 0; i < s->nwaits && i < STALL_REPORT_WAITS; i++)
        stall_report_wait(r, &s->waits[i], out);
    if (s->nwaits > STALL_REPORT_WAITS)
        fprintf(out, "WAIT   and %u more\n", s->nwaits - STALL_REPORT_WAITS);
}

uint32_t stall_report_ranks(const struct stall *stall, uint32_t ranks[STALL_REPORT_STACKS])
{
    const struct stall_wait *oldest = &stall->waits[0];
    const uint32_t *from = stall->nculprits   ? stall->culprits
                           : stall->nsuspects ? stall->suspects
                                              : oldest->waiting;
    uint32_t n = stall->nculprits   ? stall->nculprits
                 : stall->nsuspects ? stall->nsuspects
                                    : oldest->nwaiting;
    n = n < STALL_REPORT_STACKS ? n : STALL_REPORT_STACKS;
    memcpy(ranks, from, n * sizeof *ranks);
    return n;
}

/* ---- the live line ---- */

void stall_report_line(const struct stall *stall, char *out, size_t size)
{
    const struct stall_wait *w = &stall->waits[0];
    uint32_t members = w->op.members ? w->op.members : w->nwaiting + w->nmissing;
    char missing[RANKS_LEN + 8], waiting[RANKS_LEN + 8];
    stall_report_list(w->missing, w->nmissing, missing, sizeof missing);
    if (w->start) {
        snprintf(out, size, "%u/%u wait for %s to start", w->nwaiting, members, missing);
        return;
    }
    if (w->forming) {
        char what[120];
        snprintf(out, size, "%u/%u wait in %s for %s", w->nwaiting, members,
                 forming_text(w->kind, w->op.name, what, sizeof what), missing);
        return;
    }
    if (w->op.messages)
        stall_report_list(w->waiting, w->nwaiting, waiting, sizeof waiting);
    else
        snprintf(waiting, sizeof waiting, "%u/%u", w->nwaiting, members);
    snprintf(out, size, "%s wait%s in %s#%llu%s%s", waiting,
             w->op.messages && w->nwaiting == 1 ? "s" : "", w->op.name,
             (unsigned long long)w->op.started, w->nmissing ? " for " : "",
             w->nmissing ? missing : "");
}

/* ---- result.json ---- */

static json_t *stall_report_list_json(uint32_t *ranks, uint32_t n)
{
    return ranks_json_list(&(struct desc_ranks){ranks, n});
}

static json_t *stall_report_set_json(uint32_t *ranks, uint32_t n)
{
    return ranks_json_set(&(struct desc_ranks){ranks, n});
}

static json_t *stall_report_calls(const struct stall_wait *w)
{
    char text[CALL_TEXT_LEN];
    if (!w->described)
        return json_array();
    snapshot_call_text(&w->op, w->tag, text, sizeof text);
    return json_pack("[{s:o, s:s}]", "ranks", stall_report_set_json(w->waiting, w->nwaiting),
                     "call", text);
}

/* The group and the number of a wait are null if it is no operation. */
static json_t *stall_report_group(const struct stall_wait *w)
{
    return w->start ? json_null() : json_value_text(w->op.name);
}

static json_t *stall_report_number(const struct stall_wait *w)
{
    return w->start || w->forming ? json_null() : json_integer((json_int_t)w->op.started);
}

static json_t *stall_report_waits(const struct stall *s)
{
    json_t *waits = json_array();
    for (uint32_t i = 0; i < s->nwaits && i < STALL_REPORT_WAITS; i++) {
        const struct stall_wait *w = &s->waits[i];
        json_array_append_new(waits,
                              json_pack("{s:o, s:o, s:o, s:o}", "ranks",
                                        stall_report_set_json(w->waiting, w->nwaiting), "group",
                                        stall_report_group(w), "number", stall_report_number(w),
                                        "for", stall_report_set_json(w->missing, w->nmissing)));
    }
    return waits;
}

json_t *stall_report_json(const struct stall_report *r)
{
    const struct stall *s = r->stall;
    const struct stall_wait *w = s->nculprits ? stall_wait_for(s, s->culprits[0]) : NULL;
    char text[1200];
    w = w ? w : &s->waits[0];
    stall_report_text(r, text, sizeof text);
    struct network_cut cut;
    struct arena arena;
    arena_init(&arena);
    const bool network = stall_report_cut(r, &arena, &cut);
    const char *class = !network && (s->nculprits || s->nsuspects) ? "missing" : "timeout";
    json_t *o = json_pack(
        "{s:i, s:f, s:s, s:o, s:o, s:o, s:s?, s:o, s:n, s:o, s:o, s:o}", "attempt",
        (int)r->desc->attempt, "seconds", (double)(r->now_ns - s->waits[0].since_ns) / 1e9, "class",
        class, "culprits", stall_report_list_json(s->culprits, network ? 0 : s->nculprits),
        "suspects",
        network ? ranks_json_list(&cut.ranks) : stall_report_list_json(s->suspects, s->nsuspects),
        "group", stall_report_group(w), "kind", w->described ? snapshot_kind_name(&w->op) : NULL,
        "number", stall_report_number(w), "field", "calls", stall_report_calls(w), "waits",
        stall_report_waits(s), "text", json_value_text(text));
    if (o && network)
        json_object_set_new(o, "network", verdict_json_network(&cut));
    arena_fini(&arena);
    return o;
}
