/* SPDX-License-Identifier: Apache-2.0
 *
 * Grows the set of ranks that can make progress until it no longer changes. The message then
 * follows one path through the remaining ranks.
 */
#include "diagnose/deadlock.h"

#include "base/call_text.h"
#include "base/names.h"

#include <collrun/backend.h>
#include <stdio.h>
#include <string.h>

enum { NO_RANK = -1, MOST_RANKS_IN_TEXT = 6 };

struct deadlock_graph {
    const struct desc *desc;
    const struct rank_state *ranks;
    bool explain;
    bool *blocked; /* per rank: not yet known to be able to make progress */
};

/* ---- one call ---- */

static const struct wait_report_group *deadlock_group(const struct deadlock_graph *graph,
                                                      uint32_t rank, const char *scope)
{
    return wait_report_group(&graph->ranks[rank].wait_report, scope);
}

/* Its receives that take a message with this tag from `peer`. */
static uint64_t deadlock_posted(const struct wait_report_group *g, uint32_t peer, uint32_t tag)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < g->nposted; i++) {
        const struct posted_message *m = &g->posted[i];
        n += (m->tag == tag || m->tag == COLLRUN_ANY_TAG) &&
             (m->kind == COLLRUN_RECV_ANY || m->peer == peer);
    }
    return n;
}

/* Its receives with this peer and tag that get their messages before the one of `w` does. */
static uint64_t deadlock_earlier(const struct wait_report_group *own,
                                 const struct wait_report_call *w, uint32_t peer, uint32_t tag)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < own->nposted; i++) {
        const struct posted_message *m = &own->posted[i];
        n += m->thread == w->thread && m->order < w->order && m->kind == COLLRUN_RECV &&
             m->peer == peer && m->tag == tag;
    }
    return n;
}

static struct message_count deadlock_count(const struct wait_report_group *g, uint32_t peer,
                                           uint32_t tag)
{
    struct message_count sum = {.peer = peer, .tag = tag};
    for (uint32_t i = 0; i < g->ncounts; i++) {
        if (g->counts[i].peer != peer || g->counts[i].tag != tag)
            continue;
        sum.sent += g->counts[i].sent;
        sum.received += g->counts[i].received;
    }
    return sum;
}

/* True if `other` has posted the counterpart of this call, or has completed it and this rank does
 * not know yet. A message counts as sent once its send has begun, and as received once its receive
 * was waited for: sent - received is never smaller than what may be on the way. */
static bool deadlock_is_matched(const struct wait_report_group *own,
                                const struct wait_report_group *theirs, uint32_t rank,
                                uint32_t other, const struct wait_report_call *w)
{
    if (own->lost || theirs->lost)
        return true;
    if (w->kind == COLLRUN_SEND)
        return deadlock_count(theirs, rank, w->tag).received +
                   deadlock_posted(theirs, rank, w->tag) >
               w->order;
    for (uint32_t i = 0; i < theirs->ncounts; i++) {
        const struct message_count *c = &theirs->counts[i];
        if (c->peer == rank && (c->tag == w->tag || w->tag == COLLRUN_ANY_TAG) &&
            c->sent > deadlock_count(own, other, c->tag).received +
                          deadlock_earlier(own, w, other, c->tag))
            return true;
    }
    return false;
}

/* True if the call of `rank` cannot complete until `other` acts. False if `other` has closed the
 * group or has not opened it yet: nothing is known then. */
static bool deadlock_depends_on(const struct deadlock_graph *graph, uint32_t rank,
                                const struct wait_report_call *w, uint32_t other)
{
    const struct wait_report_group *own = deadlock_group(graph, rank, w->scope);
    const struct wait_report_group *theirs = deadlock_group(graph, other, w->scope);
    if (!graph->blocked[other] || !own)
        return false;
    if (w->kind == KIND_CREATE)
        return !graph->ranks[other].wait_report.created_lost &&
               wait_report_times(&graph->ranks[other].wait_report, w->count) < w->number;
    if (!theirs)
        return false;
    if (w->kind == KIND_SPLIT)
        return theirs->splits < w->number;
    if (kind_is_collective(w->kind))
        return theirs->collectives < w->number;
    return !w->eager && !deadlock_is_matched(own, theirs, rank, other, w);
}

/* The blocked rank that has to act before this call can complete; NO_RANK: the call may complete.
 */
static int64_t deadlock_blocker(const struct deadlock_graph *graph, uint32_t rank,
                                const struct wait_report_call *w)
{
    const struct wait_report_group *g = deadlock_group(graph, rank, w->scope);
    bool any = w->kind == COLLRUN_RECV_ANY || (w->kind == KIND_PROBE && w->peer == WIRE_HOST);
    int64_t found = NO_RANK;
    if (!graph->explain && w->timeout_ns < DEADLOCK_MIN_TIMEOUT_NS)
        return NO_RANK;
    if (!kind_is_collective(w->kind) && !any)
        return w->peer < graph->desc->nranks && deadlock_depends_on(graph, rank, w, w->peer)
                   ? (int64_t)w->peer
                   : NO_RANK;
    for (uint32_t i = 0; g && i < g->nmembers; i++) {
        uint32_t other = g->members[i];
        if (other == rank || other >= graph->desc->nranks)
            continue;
        bool needed = deadlock_depends_on(graph, rank, w, other);
        if (needed && !any)
            return other;
        if (!needed && any)
            return NO_RANK;
        found = needed && found == NO_RANK ? other : found;
    }
    return found;
}

/* ---- all calls ---- */

/* A thread needs all of its calls to complete; a rank needs one thread that makes progress, or one
 * that is free. */
static bool deadlock_can_progress(const struct deadlock_graph *graph, uint32_t rank)
{
    const struct wait_report *w = &graph->ranks[rank].wait_report;
    if (w->caller_free)
        return true;
    for (uint32_t i = 0, next; i < w->nitems; i = next) {
        bool ends = true;
        for (next = i; next < w->nitems && w->items[next].thread == w->items[i].thread; next++)
            ends = ends && deadlock_blocker(graph, rank, &w->items[next]) == NO_RANK;
        if (ends)
            return true;
    }
    return false;
}

static void deadlock_solve(struct deadlock_graph *graph)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < graph->desc->nranks; i++) {
            if (!graph->blocked[i] || !deadlock_can_progress(graph, i))
                continue;
            graph->blocked[i] = false;
            changed = true;
        }
    }
}

/* A report without calls counts if the rank has ended. Otherwise it proves nothing: a thread may
 * wait for a library, such as that of a device, and call again. */
static bool deadlock_has_report(const struct deadlock_graph *graph, uint32_t rank)
{
    const struct rank_state *r = &graph->ranks[rank];
    const bool ended = rank_has_ended(r);
    if (!r->wait_report.received || (!r->wait_report.nitems && !ended))
        return false;
    if (graph->explain && r->wait_report.nitems)
        return true;
    return r->wait_report.certain &&
           (graph->explain || r->stop_requested || (r->end != RANK_EXITED && !r->failed));
}

/* ---- the message ---- */

static const struct wait_report_call *deadlock_blocked_call(const struct deadlock_graph *graph,
                                                            uint32_t rank, int64_t *blocker)
{
    const struct wait_report *w = &graph->ranks[rank].wait_report;
    for (uint32_t i = 0; i < w->nitems; i++) {
        if ((*blocker = deadlock_blocker(graph, rank, &w->items[i])) != NO_RANK)
            return &w->items[i];
    }
    return NULL;
}

/* "the creation of group sub"; false: it is an operation. */
static bool deadlock_forming_text(const struct wait_report_call *w, const char *group, char *out,
                                  size_t size)
{
    if (w->kind != KIND_CREATE && w->kind != KIND_SPLIT)
        return false;
    forming_text(w->kind == KIND_SPLIT ? WIRE_FORMING_SPLIT : WIRE_FORMING_CREATE, group, out,
                 size);
    return true;
}

/* "send world#1 (1024 x float32, tag 7)" */
static void deadlock_call_text(const struct deadlock_graph *graph, uint32_t rank,
                               const struct wait_report_call *w, char *out, size_t size)
{
    const struct wait_report_group *g = deadlock_group(graph, rank, w->scope);
    const struct collrun_call call = {.kind = (enum collrun_kind)w->kind,
                                      .count = w->count,
                                      .dtype = (enum collrun_dtype)w->dtype,
                                      .op = (enum collrun_op)w->op,
                                      .root = -1,
                                      .peer = -1,
                                      .tag = w->tag};
    if (!deadlock_forming_text(w, g ? g->name : "?", out, size))
        call_text_numbered(&call, g ? g->name : "?", w->number, out, size);
}

struct wait_path {
    uint32_t *path;   /* every rank at most once */
    uint32_t n, from; /* the path returns to path[from]; from == n: it does not return */
    int64_t last;     /* the rank that the last one waits for */
};

static uint32_t deadlock_path_index(const struct wait_path *s, int64_t rank)
{
    uint32_t i = 0;
    while (i < s->n && s->path[i] != rank)
        i++;
    return i;
}

/* From each blocked rank to the rank that it waits for, until a rank repeats or has ended. */
static void deadlock_follow(const struct deadlock_graph *graph, uint32_t start, struct wait_path *s)
{
    s->n = 0;
    s->last = start;
    while (s->path && s->last != NO_RANK && deadlock_path_index(s, s->last) == s->n &&
           graph->ranks[s->last].wait_report.nitems) {
        uint32_t rank = (uint32_t)s->last;
        s->path[s->n++] = rank;
        deadlock_blocked_call(graph, rank, &s->last);
    }
    s->from = deadlock_path_index(s, s->last);
}

static uint32_t deadlock_count_blocked(const struct deadlock_graph *graph)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < graph->desc->nranks; i++)
        n += graph->blocked[i] && graph->ranks[i].wait_report.nitems;
    return n;
}

/* The kinds of the calls in a cycle decide the hint. */
struct call_kinds {
    uint32_t collectives, sends, receives;
    uint32_t send_tag, receive_tag; /* of the last one of each */
};

static void deadlock_count_kind(struct call_kinds *n, const struct wait_report_call *w)
{
    n->collectives += kind_is_collective(w->kind);
    n->sends += w->kind == COLLRUN_SEND;
    n->receives += !kind_is_collective(w->kind) && w->kind != COLLRUN_SEND;
    *(w->kind == COLLRUN_SEND ? &n->send_tag : &n->receive_tag) = w->tag;
}

static void deadlock_set_hint(const struct call_kinds *n, struct diag *d)
{
    if (n->collectives && !n->sends && !n->receives)
        diag_hint(d, "ranks that share groups must call their operations in the same order");
    else if (n->sends && !n->receives && !n->collectives)
        diag_hint(d, "one of the ranks must receive first; collrun_sendrecv and "
                     "collrun_start_many send and receive at the same time");
    else if (n->receives && !n->sends && !n->collectives)
        diag_hint(d, "one of the ranks must send first");
    else if (n->sends == 1 && n->receives == 1 && n->send_tag != n->receive_tag &&
             n->receive_tag != COLLRUN_ANY_TAG)
        diag_hint(d, "the tag of the receive must be the tag of the send");
}

static void deadlock_rank_text(const struct deadlock_graph *graph, uint32_t rank, char *out,
                               size_t size)
{
    const struct desc *desc = graph->desc;
    const char *host = desc->nhosts > 1 ? desc->hosts[desc->ranks[rank].host].name : NULL;
    snprintf(out, size, host ? "rank %u (%s)" : "rank %u", rank, host);
}

static void deadlock_append(struct diag *d, const char *text)
{
    size_t len = strlen(d->text);
    snprintf(d->text + len, sizeof d->text - len, "%s", text);
}

/* "rank 0 waits in send world#1 (4 x uint8) for rank 1" */
static void deadlock_add_rank(const struct deadlock_graph *graph, uint32_t rank,
                              struct call_kinds *kinds, struct diag *d)
{
    int64_t blocker = NO_RANK;
    char name[96], what[256], line[512];
    const struct wait_report_call *w = deadlock_blocked_call(graph, rank, &blocker);
    if (!w)
        return;
    deadlock_count_kind(kinds, w);
    deadlock_rank_text(graph, rank, name, sizeof name);
    deadlock_call_text(graph, rank, w, what, sizeof what);
    snprintf(line, sizeof line, "%s waits in %s for rank %lld", name, what, (long long)blocker);
    deadlock_append(d, line);
}

/* Why the last rank of a path, which waits for none, calls no more. */
static void deadlock_add_end(const struct deadlock_graph *graph, uint32_t rank, struct diag *d)
{
    const struct rank_state *r = &graph->ranks[rank];
    char text[900], line[1024];
    if (r->exception && r->exception->thread[0])
        snprintf(line, sizeof line, ", whose thread \"%s\" has ended with %s", r->exception->thread,
                 rank_exception_text(r->exception, text, sizeof text));
    else
        snprintf(line, sizeof line, "%s",
                 r->over                      ? ", whose program has ended with exit code 0"
                 : r->part >= PART_FINALIZING ? ", which has called collrun_finalize"
                                              : ", whose workloads have ended");
    deadlock_append(d, line);
    if (r->command)
        d->loc = graph->desc->workloads[desc_find_command(graph->desc, rank)].loc;
}

/* A cycle is described alone; without one, only the last rank of the path is. */
static void deadlock_set_text(const struct deadlock_graph *graph, const struct wait_path *s,
                              struct diag *d)
{
    bool cycle = s->from < s->n;
    uint32_t first = cycle ? s->from : s->n - 1, all = deadlock_count_blocked(graph);
    struct call_kinds kinds = {0};
    diag_set(d, COLLRUN_ERR_ABORTED, cycle ? "deadlock: " : "");
    uint32_t last = s->n - first > MOST_RANKS_IN_TEXT ? first + MOST_RANKS_IN_TEXT : s->n;
    for (uint32_t i = first; i < last; i++) {
        if (i > first)
            deadlock_append(d, "; ");
        deadlock_add_rank(graph, s->path[i], &kinds, d);
    }
    if (cycle)
        deadlock_set_hint(&kinds, d);
    else if (s->last != NO_RANK && !graph->ranks[s->last].wait_report.nitems)
        deadlock_add_end(graph, (uint32_t)s->last, d);
    if (all > last - first) {
        char rest[64];
        snprintf(rest, sizeof rest, "; %u ranks are blocked forever", all);
        deadlock_append(d, rest);
    }
}

/* ---- messages with another tag ---- */

/* The sends with this tag to `rank` in which threads wait. */
static uint64_t deadlock_waiting_sends(const struct wait_report *w, const char *scope,
                                       uint32_t rank, uint32_t tag)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < w->nitems; i++)
        n += w->items[i].kind == COLLRUN_SEND && w->items[i].peer == rank &&
             w->items[i].tag == tag && strcmp(w->items[i].scope, scope) == 0;
    return n;
}

/* The messages that `other` has sent to `rank`, and that this rank neither has received nor
 * receives. *tag: that of the first ones. */
static uint64_t deadlock_not_received(const struct wait_report_group *own,
                                      const struct wait_report *report, uint32_t rank,
                                      uint32_t other, uint32_t *tag)
{
    const struct wait_report_group *theirs = wait_report_group(report, own->scope);
    for (uint32_t i = 0; i < theirs->ncounts; i++) {
        const struct message_count *c = &theirs->counts[i];
        if (c->peer != rank || c->tag >= COLLRUN_ENGINE_TAG || deadlock_posted(own, other, c->tag))
            continue;
        const uint64_t sent = deadlock_count(theirs, rank, c->tag).sent,
                       received = deadlock_count(own, other, c->tag).received;
        *tag = c->tag;
        const uint64_t waiting = deadlock_waiting_sends(report, own->scope, rank, c->tag);
        if (sent > received + waiting)
            return sent - received - waiting;
    }
    return 0;
}

bool deadlock_other_tag(const struct desc *desc, const struct rank_state *ranks, uint32_t rank,
                        char *out, size_t size)
{
    const struct wait_report *report = &ranks[rank].wait_report;
    for (uint32_t i = 0; i < report->nitems; i++) {
        const struct wait_report_call *w = &report->items[i];
        const struct wait_report_group *own = wait_report_group(report, w->scope);
        const bool receives =
            w->tag != COLLRUN_ANY_TAG &&
            (w->kind == COLLRUN_RECV || w->kind == COLLRUN_RECV_ANY || w->kind == KIND_PROBE);
        for (uint32_t k = 0; own && receives && !own->lost && k < own->nmembers; k++) {
            const uint32_t other = own->members[k];
            const struct wait_report_group *theirs =
                other < desc->nranks ? wait_report_group(&ranks[other].wait_report, w->scope)
                                     : NULL;
            uint32_t tag;
            if (!theirs || theirs->lost || (w->peer != WIRE_HOST && w->peer != other))
                continue;
            const uint64_t n =
                deadlock_not_received(own, &ranks[other].wait_report, rank, other, &tag);
            if (!n)
                continue;
            snprintf(out, size,
                     "rank %u has sent %llu message%s with tag %u to rank %u, which receives one "
                     "with tag %u",
                     other, (unsigned long long)n, n == 1 ? "" : "s", tag, rank, w->tag);
            return true;
        }
    }
    return false;
}

/* ---- for programs ---- */

/* All blocked ranks that have to act before this call can complete. */
static struct desc_ranks deadlock_blockers(const struct deadlock_graph *graph, uint32_t rank,
                                           const struct wait_report_call *w, struct arena *arena)
{
    struct desc_ranks list = {arena_calloc(arena, graph->desc->nranks, sizeof(uint32_t)), 0};
    const struct wait_report_group *g = deadlock_group(graph, rank, w->scope);
    for (uint32_t i = 0; i < graph->desc->nranks; i++) {
        bool member = w->peer == i;
        for (uint32_t k = 0; g && w->peer == WIRE_HOST && k < g->nmembers; k++)
            member = member || g->members[k] == i;
        if (i != rank && member && deadlock_depends_on(graph, rank, w, i))
            list.items[list.n++] = i;
    }
    return list;
}

static void deadlock_set_waits(const struct deadlock_graph *graph, struct arena *arena,
                               struct graph *out)
{
    struct graph_wait *waits = arena_calloc(arena, graph->desc->nranks, sizeof *waits);
    uint32_t n = 0;
    for (uint32_t i = 0; i < graph->desc->nranks; i++) {
        int64_t blocker;
        const struct wait_report_call *w =
            graph->blocked[i] ? deadlock_blocked_call(graph, i, &blocker) : NULL;
        const struct wait_report_group *g = w ? deadlock_group(graph, i, w->scope) : NULL;
        if (!g)
            continue;
        char call[300];
        const bool forms = deadlock_forming_text(w, g->name, call, sizeof call);
        waits[n++] = (struct graph_wait){.rank = i,
                                         .group = arena_strdup(arena, g->name),
                                         .number = forms ? 0 : w->number,
                                         .kind = w->kind,
                                         .call = forms ? arena_strdup(arena, call) : NULL,
                                         .waited_for = deadlock_blockers(graph, i, w, arena)};
    }
    *out = (struct graph){waits, n, graph->desc->nranks};
}

static struct desc_ranks deadlock_cycle(const struct deadlock_graph *graph,
                                        const struct wait_path *s, struct arena *arena)
{
    struct desc_ranks cycle = {arena_calloc(arena, s->n, sizeof(uint32_t)), 0};
    for (uint32_t i = 0; s->from < s->n && i < graph->desc->nranks; i++) {
        uint32_t at = deadlock_path_index(s, i);
        if (at >= s->from && at < s->n)
            cycle.items[cycle.n++] = i;
    }
    return cycle;
}

/* ---- the order that most ranks follow ---- */

static bool deadlock_is_operation(const struct wait_report_call *w)
{
    return kind_is_known((enum collrun_kind)w->kind) && kind_is_collective(w->kind);
}

/* Compares the i-th rank of the path, which waits in `later`, with the rank that it waits for,
 * which is in `first`. */
static bool deadlock_order(const struct deadlock_graph *graph, const struct wait_path *s,
                           uint32_t i, struct deadlock_order *out)
{
    uint32_t rank = s->path[i], other = s->path[i + 1 < s->n ? i + 1 : s->from];
    int64_t blocker;
    const struct wait_report_call *first = deadlock_blocked_call(graph, other, &blocker),
                                  *later = deadlock_blocked_call(graph, rank, &blocker);
    if (!first || !later || !deadlock_is_operation(first) || !deadlock_is_operation(later))
        return false;
    *out = (struct deadlock_order){.first = deadlock_group(graph, other, first->scope),
                                   .later = deadlock_group(graph, rank, later->scope),
                                   .first_number = first->number,
                                   .later_number = later->number};
    return true;
}

/* How many collectives the rank has called in the group, by its report or its STATUS, which may be
 * newer. False: it is no member. */
static bool deadlock_has_called(const struct deadlock_graph *graph, uint32_t rank,
                                const struct wait_report_group *group, uint64_t *called)
{
    const struct wait_report_group *own = deadlock_group(graph, rank, group->scope);
    const struct rank_snapshot *s = &graph->ranks[rank].snapshot;
    bool member = own != NULL;
    *called = own ? own->collectives : 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->groups[i].messages || strcmp(s->groups[i].scope, group->scope) != 0)
            continue;
        member = true;
        *called = s->groups[i].started > *called ? s->groups[i].started : *called;
    }
    return member;
}

/* The ranks that take part in both collectives and have called the first one alone. */
static struct desc_ranks deadlock_followers(const struct deadlock_graph *graph,
                                            const struct deadlock_order *o, struct arena *arena)
{
    struct desc_ranks list = {arena_calloc(arena, graph->desc->nranks, sizeof(uint32_t)), 0};
    for (uint32_t i = 0; i < graph->desc->nranks; i++) {
        uint64_t first, later;
        if (deadlock_has_called(graph, i, o->first, &first) &&
            deadlock_has_called(graph, i, o->later, &later) && first >= o->first_number &&
            later < o->later_number)
            list.items[list.n++] = i;
    }
    return list;
}

/* The orders of a cycle cannot all be right. The one that fewer ranks follow than each other one is
 * wrong. */
static void deadlock_set_minority(const struct deadlock_graph *graph, const struct wait_path *s,
                                  struct arena *arena, struct deadlock *out)
{
    uint32_t least = UINT32_MAX;
    struct deadlock_order wrong = {0}, o;
    for (uint32_t i = s->from; i < s->n; i++) {
        if (!deadlock_order(graph, s, i, &o))
            return;
        o.ranks = deadlock_followers(graph, &o, arena);
        if (o.ranks.n < least)
            wrong = o;
        else if (o.ranks.n == least)
            wrong.ranks.n = 0;
        least = o.ranks.n < least ? o.ranks.n : least;
    }
    out->minority = wrong;
}

bool deadlock_find(const struct desc *desc, const struct rank_state *ranks, bool explain,
                   struct arena *arena, struct deadlock *out)
{
    struct deadlock_graph graph = {desc, ranks, explain,
                                   arena_calloc(arena, desc->nranks, sizeof *graph.blocked)};
    bool settled = true;
    for (uint32_t i = 0; graph.blocked && i < desc->nranks; i++) {
        graph.blocked[i] = deadlock_has_report(&graph, i);
        settled = settled && graph.blocked[i];
    }
    if (graph.blocked)
        deadlock_solve(&graph);
    for (uint32_t i = 0; graph.blocked && i < desc->nranks; i++) {
        if (!graph.blocked[i] || !ranks[i].wait_report.nitems)
            continue;
        struct wait_path s = {.path = arena_calloc(arena, desc->nranks, sizeof *s.path)};
        *out = (struct deadlock){.settled = settled};
        deadlock_follow(&graph, i, &s);
        deadlock_set_text(&graph, &s, &out->diag);
        deadlock_set_waits(&graph, arena, &out->waits);
        out->cycle = deadlock_cycle(&graph, &s, arena);
        deadlock_set_minority(&graph, &s, arena, out);
        return true;
    }
    return false;
}
