/* SPDX-License-Identifier: Apache-2.0
 *
 * The least set of ranks that may go on, grown until nothing changes; then one path through what is
 * left, in words.
 */
#include "watch/deadlock.h"

#include "base/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOBODY = -1, LONGEST_STORY = 6 };

struct puzzle {
    const struct desc *desc;
    const struct rank_state *ranks;
    bool explain;
    bool *stuck; /* by rank */
};

/* ---- one wait ---- */

static const struct wait_group *group_of(const struct puzzle *p, uint32_t rank, const char *scope)
{
    return waits_group(&p->ranks[rank].waits, scope);
}

static bool has_posted(const struct wait_group *g, uint8_t kind, uint32_t peer, uint32_t tag)
{
    for (uint32_t i = 0; i < g->nposted; i++) {
        const struct wait_posted *m = &g->posted[i];
        if (m->kind == kind && m->peer == peer && m->tag == tag)
            return true;
    }
    return false;
}

static struct wait_traffic messages(const struct wait_group *g, uint32_t peer, uint32_t tag)
{
    struct wait_traffic sum = {.peer = peer, .tag = tag};
    for (uint32_t i = 0; i < g->ntraffic; i++) {
        if (g->traffic[i].peer != peer || g->traffic[i].tag != tag)
            continue;
        sum.sent += g->traffic[i].sent;
        sum.received += g->traffic[i].received;
    }
    return sum;
}

/* Has the other end called for the message that this wait is about: is it posted, or done there and
 * only not known here yet? */
static bool is_met(const struct wait_group *own, const struct wait_group *theirs, uint32_t rank,
                   uint32_t other, const struct wait *w)
{
    struct wait_traffic here = messages(own, other, w->tag), there = messages(theirs, rank, w->tag);
    if (own->lost || theirs->lost)
        return true;
    if (w->kind == COLLRUN_SEND)
        return has_posted(theirs, COLLRUN_RECV, rank, w->tag) ||
               has_posted(theirs, COLLRUN_RECV_ANY, WIRE_HOST, w->tag) ||
               there.received > here.sent;
    return has_posted(theirs, COLLRUN_SEND, rank, w->tag) || there.sent > here.received;
}

/* Must `other` still act before this wait of `rank` can end? A group that the other has closed, or
 * not opened yet, tells nothing. */
static bool awaits(const struct puzzle *p, uint32_t rank, const struct wait *w, uint32_t other)
{
    const struct wait_group *own = group_of(p, rank, w->scope);
    const struct wait_group *theirs = group_of(p, other, w->scope);
    if (!p->stuck[other] || !own || !theirs)
        return false;
    if (w->kind < COLLRUN_SEND)
        return theirs->collectives < w->number;
    return !w->eager && !is_met(own, theirs, rank, other, w);
}

/* The rank that has to act before this wait can end, and never will; NOBODY: it may end. */
static int64_t culprit(const struct puzzle *p, uint32_t rank, const struct wait *w)
{
    const struct wait_group *g = group_of(p, rank, w->scope);
    bool any = w->kind == COLLRUN_RECV_ANY;
    int64_t found = NOBODY;
    if (!p->explain && w->timeout_ns < DEADLOCK_PATIENCE_NS)
        return NOBODY;
    if (w->kind == COLLRUN_SEND || w->kind == COLLRUN_RECV)
        return w->peer < p->desc->nranks && awaits(p, rank, w, w->peer) ? (int64_t)w->peer : NOBODY;
    for (uint32_t i = 0; g && i < g->nmembers; i++) {
        uint32_t other = g->members[i];
        if (other == rank || other >= p->desc->nranks)
            continue;
        bool needed = awaits(p, rank, w, other);
        if (needed && !any)
            return other;
        if (!needed && any)
            return NOBODY;
        found = needed && found == NOBODY ? other : found;
    }
    return found;
}

/* ---- all of them ---- */

/* A thread waits for all of its calls; a rank goes on with any of its threads. */
static bool may_go_on(const struct puzzle *p, uint32_t rank)
{
    const struct waits *w = &p->ranks[rank].waits;
    for (uint32_t i = 0, next; i < w->nitems; i = next) {
        bool ends = true;
        for (next = i; next < w->nitems && w->items[next].thread == w->items[i].thread; next++)
            ends = ends && culprit(p, rank, &w->items[next]) == NOBODY;
        if (ends)
            return true;
    }
    return false;
}

static void solve(struct puzzle *p)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < p->desc->nranks; i++) {
            if (!p->stuck[i] || !may_go_on(p, i))
                continue;
            p->stuck[i] = false;
            changed = true;
        }
    }
}

static bool has_spoken(const struct puzzle *p, uint32_t rank)
{
    const struct rank_state *r = &p->ranks[rank];
    return r->waits.told && (p->explain || (r->waits.sure && !r->exited && !r->failed));
}

/* ---- in words ---- */

static const struct wait *stuck_wait(const struct puzzle *p, uint32_t rank, int64_t *whose)
{
    const struct waits *w = &p->ranks[rank].waits;
    for (uint32_t i = 0; i < w->nitems; i++) {
        if ((*whose = culprit(p, rank, &w->items[i])) != NOBODY)
            return &w->items[i];
    }
    return NULL;
}

/* "send world#1 (1024 x float32, tag 7)" */
static void say_wait(const struct puzzle *p, uint32_t rank, const struct wait *w, char *out,
                     size_t size)
{
    const struct wait_group *g = group_of(p, rank, w->scope);
    const char *kind = kind_name(w->kind), *dtype = dtype_name(w->dtype);
    char tag[32] = "", what[96] = "";
    if (w->kind >= COLLRUN_SEND && w->tag)
        snprintf(tag, sizeof tag, ", tag %u", w->tag);
    if (w->kind != COLLRUN_BARRIER)
        snprintf(what, sizeof what, " (%llu x %s%s)", (unsigned long long)w->count,
                 dtype ? dtype : "?", tag);
    snprintf(out, size, "%s %s#%llu%s", kind ? kind : "an operation", g ? g->name : "?",
             (unsigned long long)w->number, what);
}

struct story {
    uint32_t path[LONGEST_STORY + 1];
    uint32_t n, from; /* path[from] is where it came back to; from == n: it ends elsewhere */
    int64_t last;     /* whom the last one waits for */
};

static uint32_t find(const struct story *s, int64_t rank)
{
    uint32_t i = 0;
    while (i < s->n && s->path[i] != rank)
        i++;
    return i;
}

/* From one who waits to the next, until somebody comes again, or has ended. */
static void follow(const struct puzzle *p, uint32_t start, struct story *s)
{
    s->n = 0;
    s->last = start;
    while (s->n < LONGEST_STORY && s->last != NOBODY && find(s, s->last) == s->n &&
           p->ranks[s->last].waits.nitems) {
        uint32_t rank = (uint32_t)s->last;
        s->path[s->n++] = rank;
        stuck_wait(p, rank, &s->last);
    }
    s->from = find(s, s->last);
}

static uint32_t count_stuck(const struct puzzle *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->desc->nranks; i++)
        n += p->stuck[i] && p->ranks[i].waits.nitems;
    return n;
}

/* What the waits of a circle have in common says what is wrong with it. */
struct sorts {
    uint32_t collectives, sends, receives;
    uint32_t send_tag, receive_tag; /* of the last ones */
};

static void note_sort(struct sorts *n, const struct wait *w)
{
    n->collectives += w->kind < COLLRUN_SEND;
    n->sends += w->kind == COLLRUN_SEND;
    n->receives += w->kind > COLLRUN_SEND;
    *(w->kind == COLLRUN_SEND ? &n->send_tag : &n->receive_tag) = w->tag;
}

static void give_hint(const struct sorts *n, struct diag *d)
{
    if (n->collectives && !n->sends && !n->receives)
        diag_hint(d, "ranks that share groups have to call their operations in the same order");
    else if (n->sends && !n->receives && !n->collectives)
        diag_hint(d, "one of them has to receive first; collrun_sendrecv and collrun_start_many "
                     "send and receive at once");
    else if (n->receives && !n->sends && !n->collectives)
        diag_hint(d, "one of them has to send first");
    else if (n->sends == 1 && n->receives == 1 && n->send_tag != n->receive_tag)
        diag_hint(d, "a message is received with the tag that it was sent with");
}

static void say_rank(const struct puzzle *p, uint32_t rank, char *out, size_t size)
{
    const struct desc *desc = p->desc;
    const char *host = desc->nhosts > 1 ? desc->hosts[desc->ranks[rank].host].name : NULL;
    snprintf(out, size, host ? "rank %u (%s)" : "rank %u", rank, host);
}

static void add(struct diag *d, const char *text)
{
    size_t len = strlen(d->text);
    snprintf(d->text + len, sizeof d->text - len, "%s", text);
}

/* "rank 0 waits in send world#1 (4 x uint8) for rank 1" */
static void tell_one(const struct puzzle *p, uint32_t rank, struct sorts *sorts, struct diag *d)
{
    int64_t whose = NOBODY;
    char name[96], what[256], line[512];
    const struct wait *w = stuck_wait(p, rank, &whose);
    if (!w)
        return;
    note_sort(sorts, w);
    say_rank(p, rank, name, sizeof name);
    say_wait(p, rank, w, what, sizeof what);
    snprintf(line, sizeof line, "%s waits in %s for rank %lld", name, what, (long long)whose);
    add(d, line);
}

/* In a circle, only the circle; else the last one, who tells why. */
static void tell(const struct puzzle *p, const struct story *s, struct diag *d)
{
    bool circle = s->from < s->n;
    uint32_t first = circle ? s->from : s->n - 1, all = count_stuck(p);
    struct sorts sorts = {0};
    diag_set(d, COLLRUN_ERR_ABORTED, "deadlock: ");
    for (uint32_t i = first; i < s->n; i++) {
        if (i > first)
            add(d, "; ");
        tell_one(p, s->path[i], &sorts, d);
    }
    if (circle)
        give_hint(&sorts, d);
    else if (s->last != NOBODY && !p->ranks[s->last].waits.nitems)
        add(d, ", whose workloads have ended");
    if (all > s->n - first) {
        char rest[64];
        snprintf(rest, sizeof rest, "; %u ranks can never go on", all);
        add(d, rest);
    }
}

bool deadlock_find(const struct desc *desc, const struct rank_state *ranks, bool explain,
                   struct diag *d)
{
    struct puzzle p = {desc, ranks, explain, calloc(desc->nranks + 1, sizeof *p.stuck)};
    bool found = false;
    for (uint32_t i = 0; p.stuck && i < desc->nranks; i++)
        p.stuck[i] = has_spoken(&p, i);
    if (p.stuck)
        solve(&p);
    for (uint32_t i = 0; p.stuck && i < desc->nranks && !found; i++) {
        if (!p.stuck[i] || !ranks[i].waits.nitems)
            continue;
        struct story s;
        follow(&p, i, &s);
        tell(&p, &s, d);
        found = true;
    }
    free(p.stuck);
    return found;
}
